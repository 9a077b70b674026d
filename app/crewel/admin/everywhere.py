"""The operators' work at all nodes, as the rest of the administration knows it; and what jobs do with sessions of other nodes:
commands reach the node of each. Without other nodes there is none."""

from __future__ import annotations

from typing import Any, Final, Protocol

from crewel.broker.admission.guard import NOT_AUTHORIZED
from crewel.errors import IllegalArgument, Refused, StoreUnavailable
from crewel.security.grants import Role, Scope

_ILLEGAL: Final = "user.illegalArgument"
_ALL_SEEN: Final = Scope(Role.VIEW)


class Everywhere(Protocol):
    """The operators' work at all nodes."""

    async def command(self, text: object, who: str, scope: Scope) -> dict[str, Any]:
        """Carry out a command at the nodes that it concerns."""

    async def is_somewhere(self, name: str) -> bool:
        """Whether the session is at a node, by what the store says; one that has ended has it until another takes it over.
        Raises StoreError."""

    async def stored_of(self, subject: str) -> set[str]:
        """The names of the sessions of the subject that the store has, of whichever node. Raises StoreError."""

    async def overview(self, after_ms: float) -> dict[str, Any]:
        """The overview of all nodes."""


async def sessions_of(everywhere: Everywhere | None, subject: str, who: str) -> list[str]:
    """The names of the sessions of the subject at all nodes. Raises StoreError if a node does not answer, also while another
    node takes one of them over."""
    if everywhere is None:
        return []
    stored = await everywhere.stored_of(subject)
    names: list[str] = await _told(everywhere, f"__cmd:client/{subject}/?sessionList", who, _ALL_SEEN) or []
    missing = stored.difference(names)
    if missing and missing & await everywhere.stored_of(subject):  # else they have just ended
        raise StoreUnavailable(f"a node takes over sessions of {subject}: try again later")
    return names


async def waiting_elsewhere(everywhere: Everywhere | None, name: str, who: str) -> int:
    """How many messages wait for the session, which this node does not have; 0 if none has it. Raises StoreError, also while
    another node takes it over."""
    return await _told_of(everywhere, name, "cbQueueNumMsgs", who, _ALL_SEEN) or 0


async def drain_elsewhere(everywhere: Everywhere | None, name: str, who: str, scope: Scope) -> int | None:
    """Drain the session, which this node does not have; how many became dead letters, None if no node has it, or the roles do
    not cover it. Raises StoreError, also while another node takes it over."""
    try:
        return await _told_of(everywhere, name, "drainCallbackQueue", who, scope)
    except Refused as error:
        if error.code != NOT_AUTHORIZED:
            raise
        return None


async def _told_of(everywhere: Everywhere | None, name: str, what: str, who: str, scope: Scope) -> int | None:
    number: int | None = await _told(everywhere, f"__cmd:{name}/?{what}", who, scope)
    if number is None and everywhere is not None and await everywhere.is_somewhere(name):
        raise StoreUnavailable(f"a node takes over the session {name}: try again later")
    return number


async def _told(everywhere: Everywhere | None, command: str, who: str, scope: Scope) -> Any:
    """The result of the command; None if no node has what it is about."""
    if everywhere is None:
        return None
    try:
        return (await everywhere.command(command, who, scope))["result"]
    except (IllegalArgument, Refused) as error:
        if error.code != _ILLEGAL:
            raise
        return None
