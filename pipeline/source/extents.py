"""Asks the store how far its streams go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import redis

from crewel.pipeline.connection import Address, patiently
from crewel.pipeline.source.losses import Gap
from crewel.pipeline.source.pages import Part, pages
from crewel.pipeline.source.positions import EntryId, Extent, Position
from crewel.pipeline.steps import run


class Extents:
    """The streams of one store, as far as they go. Every question waits for a store that is away."""

    def __init__(self, address: Address, patience_s: float) -> None:
        self._address = address
        self._patience_s = patience_s
        self._client: redis.Redis | None = None

    def look(self, streams: Sequence[str]) -> dict[str, Extent]:
        """Return how far streams go, all at one instant. Raises StoreUnavailable."""
        keys = [self._key(stream) for stream in streams]
        told = self._ask(lambda client: run(client, "look", keys))
        return {
            stream: Extent(EntryId.parse(newest), added, length, EntryId.parse(oldest), EntryId.parse(deleted))
            for stream, (newest, added, length, oldest, deleted) in zip(streams, told, strict=True)
        }

    def walk(self, stream: str, after: EntryId, until: EntryId, most: int | None = None) -> tuple[EntryId, int]:
        """Return how many entries lie after one id up to another, but at most `most`, and the id of the last of these.

        The store cannot count between two ids, so all of them are read: a million a second, about.
        """
        last, passed = after, 0
        for page in pages(self._address, Part(stream, after, until), patience_s=self._patience_s):
            assert not isinstance(page, Gap)
            wanted = page if most is None else page[: most - passed]
            passed += len(wanted)
            last = EntryId.parse(wanted[-1][0])
            if passed == most:
                break
        return last, passed

    def counted(self, stream: str, position: Position, extent: Extent) -> Position:
        """Return a position with its count, for which the store may have to look at all that follows it."""
        position = extent.anchored(position)
        if position.count is not None:
            return position
        return Position(position.id, extent.added - self.walk(stream, position.id, extent.newest)[1])

    def note(self, key: str, fields: Mapping[str, bytes]) -> None:
        """Write fields of a hash. Raises StoreUnavailable."""
        words = [word for field in fields.items() for word in field]
        self._ask(lambda client: client.execute_command("HSET", key, *words))

    def close(self) -> None:
        """Let go of the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _ask(self, step: Callable[[Any], Any]) -> Any:
        """Return what the step returns. One that fails leaves the client: the next one looks for the primary again."""

        def attempt() -> Any:
            try:
                return step(self._connected())
            except redis.RedisError:
                self.close()
                raise

        return patiently(attempt, self._patience_s)

    def _key(self, stream: str) -> str:
        return f"{self._address.keys.base}{stream}"

    def _connected(self) -> redis.Redis:
        if self._client is None:
            self._client = self._address.client()
        return self._client
