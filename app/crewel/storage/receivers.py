"""Whom an addressed message may mean: the sessions of a name or a subject, at all nodes that share the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from crewel.delivery.records import SessionName
from crewel.qos.names import ANONYMOUS, Name
from crewel.storage import transient_sessions
from crewel.storage.store import Store


class Receiver(NamedTuple):
    """A session, as the store knows it."""

    name: SessionName
    owner: str
    """The token of its node. That may be dead, until another one has the session."""
    takes_ptp: bool
    """Whether it takes addressed messages."""
    is_stored: bool


async def find(store: Store, destination: Name, tokens: Sequence[str]) -> list[Receiver]:
    """Return the sessions that this name means, a session's or a subject's. Those that are not stored are looked for at the
    nodes with these tokens. Raises StoreError."""
    if destination.number:
        names = [SessionName(destination.relative)]
        others = await transient_sessions.of_name(store, destination.relative, tokens)
    elif destination.subject == ANONYMOUS:
        return []
    else:
        members: Any = await store.reader.smembers(store.keys.subject(destination.subject))
        names = sorted(SessionName(name.decode()) for name in members)
        others = await transient_sessions.of_subject(store, destination.subject, tokens)
    stored = await _stored(store, names)
    return [*stored, *(Receiver(each.name, each.owner, each.takes_ptp, is_stored=False) for each in others)]


async def _stored(store: Store, names: Iterable[SessionName]) -> list[Receiver]:
    pipeline = store.reader.pipeline(transaction=False)
    for name in names:
        pipeline.hmget(store.keys.session(name), ["owner", "ending", "r"])
    found = zip(names, await pipeline.execute(), strict=True)
    return [
        Receiver(name, owner.decode(), _takes_ptp(login), is_stored=True)
        for name, (owner, ending, login) in found
        if owner is not None and ending is None
    ]


def _takes_ptp(login: bytes | None) -> bool:
    asked = orjson.loads(login or b"{}").get("asked", {})
    return asked.get("ptp", True) is not False
