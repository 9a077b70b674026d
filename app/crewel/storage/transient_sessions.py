"""The names of sessions that are not stored, where several nodes share the store: which node has which.

So a name is given once, a login finds the session that it takes over, and an addressed message its receiver. A node that has
died takes its names with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from crewel.delivery.records import SessionName
from crewel.storage.keys import Keys
from crewel.storage.script_step import Step, nothing
from crewel.storage.store import Store


def claim(k: Keys, token: str, name: str, max_sessions: int, *, takes_ptp: bool) -> Step[None]:
    """Give the name to a session of this node. A negative `max_sessions` allows any number. May be repeated. Raises Fenced,
    NameTaken if another session has it, and TooManySessions."""
    keys = (k.node(token), k.unstored(token), k.subject(name.split("/")[1]))
    return Step("claim", keys, (k.base, name, "ptp" if takes_ptp else "-", max_sessions), nothing)


def unclaim(k: Keys, token: str, name: str) -> Step[int]:
    """The session of this name has ended."""
    return Step("unclaim", (k.unstored(token),), (name,), int)


class TransientSession(NamedTuple):
    """A session that is not stored."""

    name: SessionName
    owner: str
    """The token of its node."""
    takes_ptp: bool
    """Whether it takes addressed messages."""


async def of_name(store: Store, name: str, tokens: Sequence[str]) -> list[TransientSession]:
    """Return the session of this name that one of these nodes has and the store has not. Raises StoreError."""
    return await _found(store, tokens, f"{name} ", f"{name}!")


async def of_subject(store: Store, subject: str, tokens: Sequence[str]) -> list[TransientSession]:
    """Return those of a subject. Raises StoreError."""
    return await _found(store, tokens, f"client/{subject}/", f"client/{subject}0")


async def _found(store: Store, tokens: Sequence[str], first: str, behind: str) -> list[TransientSession]:
    pipeline = store.reader.pipeline(transaction=False)
    for token in tokens:
        pipeline.zrangebylex(store.keys.unstored(token), f"[{first}", f"({behind}")
    found = zip(tokens, await pipeline.execute(), strict=True)
    return [_parsed(token, member) for token, members in found for member in members]


def _parsed(token: str, member: bytes) -> TransientSession:
    name, _, takes = member.decode().partition(" ")
    return TransientSession(SessionName(name), token, takes == "ptp")
