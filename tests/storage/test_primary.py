"""Whom to believe about the primary of the store."""

import asyncio
from typing import Any

import pytest
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import ResponseError
from redis.retry import Retry

from crewel.settings.store_location import parse_store_address
from crewel.storage.keys import Keys
from crewel.storage.primary import ServiceUnknown, client_at, newest_primary
from crewel.storage.store_connection import pool_of
from tests.storage.test_keys import all_names

LOCATION = parse_store_address("redis+sentinel://one,two,three/main")
AWAY = NoConnection("refused")


def state(port: int, epoch: int) -> dict[str, Any]:
    return {"ip": "127.0.0.1", "port": port, "config-epoch": epoch}


def test_the_newest_election_is_believed_and_not_who_was_cut_off() -> None:
    assert newest_primary([state(1, 4), state(2, 5), AWAY], LOCATION) == ("127.0.0.1", 2)


def test_sentinels_that_are_away_say_nothing() -> None:
    with pytest.raises(NoConnection, match=r"no sentinel knows.*refused"):
        newest_primary([AWAY, ResponseError("No such master with that name"), AWAY], LOCATION)


def test_a_name_that_no_sentinel_knows_has_to_be_mended() -> None:
    with pytest.raises(ServiceUnknown, match="not know the service 'main'"):
        newest_primary([ResponseError("No such master with that name")] * 3, LOCATION)


def test_all_keys_lie_in_one_slot_of_a_cluster() -> None:
    names = all_names(Keys("crewel:")).values()
    assert len({key_slot(name.encode()) for name in names}) == 1
    assert key_slot(Keys("crewel:").base.encode()) == key_slot(b"crewel")


async def test_cluster_that_does_not_answer_is_a_lost_connection() -> None:
    """The library's own error is none of its RedisErrors: nothing would expect it."""
    url = "redis+cluster://127.0.0.1:1"
    pool = pool_of(url, "test")
    with pytest.raises(NoConnection, match="cannot be connected"):
        await pool.make_connection().connect()  # type: ignore[no-untyped-call]
    with pytest.raises(NoConnection, match="cannot be connected"):
        await asyncio.to_thread(client_at, url, "{crewel}:", {"retry": Retry(NoBackoff(), 0)})
