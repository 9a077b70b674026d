"""How far the streams go, where the store moves meanwhile. What is answered: test_pages.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from redis.connection import DefaultParser

from crewel.pipeline.connection import Address
from crewel.pipeline.source.extents import Extents
from tests.pipeline.conftest import Streams


class Former:
    """A client of the server that was the primary before."""

    def register_script(self, _: str) -> Callable[..., None]:
        return self._moved

    def _moved(self, *_: object) -> None:
        raise DefaultParser.parse_error("MOVED 3999 127.0.0.1:6381")

    def close(self) -> None:
        """There is nothing to close."""


def test_question_that_failed_is_asked_where_the_primary_is_then(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients: list[Any] = [Former(), streams.client]
    monkeypatch.setattr(Address, "client", lambda _: clients.pop(0))
    extents = Extents(streams.address, 1)
    assert extents.look(["facts"])["facts"].length == 0
    assert not clients


def test_question_that_the_store_refuses_is_not_repeated(streams: Streams) -> None:
    streams.client.set(streams.keys.facts, "not a stream")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        Extents(streams.address, 1).look(["facts"])
