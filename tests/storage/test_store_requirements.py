"""What a store must be before the server trusts it."""

from __future__ import annotations

import pytest

from crewel.errors import SettingsError, StoreUnavailable
from crewel.settings.storage import Storage
from crewel.storage.keys import FORMAT
from crewel.storage.store_info import StoreInfo
from crewel.storage.store_requirements import check_format, check_server

GOOD = {
    "redis_version": "7.2.4",
    "valkey_version": "9.1.2",
    "role": "master",
    "loading": "0",
    "aof_enabled": "1",
    "maxmemory_policy": "noeviction",
}


def facts(**other: str) -> StoreInfo:
    """Return what a good store says, with some lines changed, or left out if empty."""
    rows = GOOD | other
    return StoreInfo(
        "\r\n".join(["# Server", *(f"{name}:{value}" for name, value in rows.items() if value), ""]).encode()
    )


def test_a_good_store_is_trusted() -> None:
    check_server(facts(), Storage())
    check_server(facts(valkey_version="7.2.0"), Storage())
    check_server(facts(valkey_version="", redis_version="7.0.0"), Storage())
    check_server(facts(valkey_version="", redis_version="8.2-rc1"), Storage())


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"valkey_version": "7.1.9"}, r"valkey 7\.1\.9: 7\.2 or newer"),
        ({"valkey_version": "", "redis_version": "6.2.14"}, r"redis 6\.2\.14: 7\.0 or newer"),
        ({"valkey_version": "", "redis_version": ""}, "redis 0"),
        ({"aof_enabled": "0"}, "appendonly yes"),
        ({"maxmemory_policy": "allkeys-lru"}, "allkeys-lru.*maxmemory-policy noeviction"),
    ],
)
def test_an_operator_is_told_what_to_mend(changed: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        check_server(facts(**changed), Storage())


def test_a_replica_may_become_a_master() -> None:
    with pytest.raises(StoreUnavailable, match="replica"):
        check_server(facts(role="slave"), Storage())


def test_memory_counts_without_what_is_never_evicted() -> None:
    said = facts(used_memory="1000", mem_not_counted_for_evict="100", maxmemory="2000")
    assert (said.used_memory, said.max_memory) == (900, 2000)
    assert (facts().used_memory, facts().max_memory) == (0, 0)


def test_an_empty_store_and_one_of_today_are_accepted() -> None:
    check_format(None, is_empty=True)
    check_format(b"%d" % FORMAT, is_empty=False)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (b"%d" % (FORMAT + 1), "use the newer version"),
        (b"%d" % (FORMAT - 1), "no release of Crewel"),
        (b"0", "no release of Crewel"),
        (b"one", "no release of Crewel"),
        (None, "restore again with --force"),
        (b"restoring", "restore again with --force"),
    ],
)
def test_another_format_is_refused(found: bytes | None, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        check_format(found, is_empty=False)
