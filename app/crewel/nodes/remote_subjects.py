"""Subjects at several nodes. A login that clears the earlier sessions of its subject ends those of all nodes. A subject that an
operator blocks is blocked at all of them, as long as one of them lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final

from crewel.broker.addressing.session_names import Names
from crewel.broker.cluster import ANY_NUMBER
from crewel.broker.node_tags import tag_of, tagged
from crewel.broker.session import Session, unstored_of
from crewel.broker.sessions.name_claims import NameClaims
from crewel.broker.writing.store_access import StoreAccess
from crewel.errors import StoreFull, StoreUnavailable
from crewel.nodes.calls import Calls
from crewel.nodes.node_registry import NodeRegistry
from crewel.nodes.node_requests import (
    ALIVE,
    BLOCK,
    BLOCKED,
    CLEAR,
    Answer,
    BlockSubject,
    ClearSessions,
    Nothing,
    OfSubject,
    Question,
    Request,
    SessionName,
    Subjects,
)
from crewel.storage import transient_sessions
from crewel.storage.script_step import NameTaken

_AWAY: Final = (StoreUnavailable, StoreFull)
_AGAIN_S: Final = 0.2


class RemoteSubjects:
    """The part of one node."""

    def __init__(
        self, access: StoreAccess, names: Names, claims: NameClaims, registry: NodeRegistry, calls: Calls
    ) -> None:
        self._access = access
        self._names = names
        self._claims = claims
        self._registry = registry
        self._calls = calls
        self._asked: dict[str, object] = {}  # name: the last claim or unclaim of it, until the store has answered that
        calls.serve(ALIVE, self._alive)
        calls.serve(CLEAR, self._clear)
        calls.serve(BLOCK, self._block)
        calls.serve(BLOCKED, self._blocked)

    # Names of sessions that are not stored

    def marked(self, secret: str) -> str:
        """The secret, with the tag of this node: so it leads to the node that gave it."""
        return tagged(secret, tag_of(self._access.token))

    def claim(self, name: str, most: int, *, takes_ptp: bool) -> asyncio.Future[Any]:
        """No other node gives this name from now on. Negative `most`: its subject may have any number of sessions. Raises
        NameTaken, TooManySessions and StoreError."""
        access, asked = self._access, object()
        self._asked[name] = asked

        def answered(answer: object) -> None:
            if self._asked.get(name) is not asked:
                return
            del self._asked[name]
            if isinstance(answer, _AWAY) and self._names.find(name) is None:
                self._unclaim(name)  # the store may have it nonetheless, or from an earlier session

        step = transient_sessions.claim(access.keys, access.token, name, most, takes_ptp=takes_ptp)
        return access.writing.ask(step, then=answered)

    async def claim_again(self, sessions: Iterable[Session]) -> None:
        """The store knows this node under another token: claim the names of these sessions as far as they are not stored. A
        name that another node has given meanwhile is lost, and its session ends. Raises StoreError."""
        for session in unstored_of(sessions):
            if session.name and session.is_live:
                try:
                    await self.claim(session.name, ANY_NUMBER, takes_ptp=session.takes_ptp)
                except NameTaken:
                    session.disconnect()

    def on_removed(self, session: Session, _timed_out: bool) -> None:
        """The session has ended: other nodes may give its name."""
        if session.name and session.durable is None:
            self._unclaim(session.name)

    def _unclaim(self, name: str) -> None:
        """Ask the store until it has answered, but not again after a new login has claimed the name."""
        access, asked = self._access, object()
        if access.writing.is_closed:
            return
        self._asked[name] = asked

        def answered(answer: object) -> None:
            if self._asked.get(name) is not asked:
                return
            if isinstance(answer, _AWAY):
                asyncio.get_running_loop().call_later(_AGAIN_S, again)
            else:
                del self._asked[name]

        def again() -> None:
            if self._asked.get(name) is asked:
                self._unclaim(name)

        access.writing.submit(transient_sessions.unclaim(access.keys, access.token, name), answered)

    # Sessions of a subject

    def _ask_all(self, request: Request[Question, Answer], question: Question) -> list[Coroutine[Any, Any, Answer]]:
        return [self._calls.ask(each.token, request, question) for each in self._registry.others()]

    async def clear_elsewhere(self, subject: str, is_granted: bool) -> str:
        """End the sessions of the subject at all other nodes, but none if one of them is alive and the login is not granted.
        Returns the name of such a one. Raises StoreUnavailable if a node does not answer."""
        if not is_granted:
            answers = await asyncio.gather(*self._ask_all(ALIVE, OfSubject(subject)))
            alive = next((answer.name for answer in answers if answer.name), "")
            if alive:
                return alive
        await asyncio.gather(*self._ask_all(CLEAR, ClearSessions(subject, is_granted)))
        return ""

    async def _alive(self, asked: OfSubject) -> SessionName:
        return SessionName(self._claims.alive_of(asked.subject))

    async def _clear(self, asked: ClearSessions) -> Nothing:
        self._claims.clear(list(self._names.of_subject(asked.subject)), is_granted=asked.granted)
        await self._access.writing.probe()  # by then the store knows that their ends have begun
        return Nothing()

    async def block(self, subject: str, *, is_blocked: bool) -> None:
        """Let all nodes refuse the logins of the subject, or accept them again. Raises StoreUnavailable if one of them does not
        answer: then it may not."""
        self._names.block(subject, is_blocked=is_blocked)
        await asyncio.gather(*self._ask_all(BLOCK, BlockSubject(subject, is_blocked)))

    async def _block(self, asked: BlockSubject) -> Nothing:
        self._names.block(asked.subject, is_blocked=asked.blocked)
        return Nothing()

    async def join(self) -> None:
        """Block the subjects that the nodes block which were there before."""
        for answer in await asyncio.gather(*self._ask_all(BLOCKED, Nothing()), return_exceptions=True):
            if isinstance(answer, Subjects):
                for subject in answer.subjects:
                    self._names.block(subject, is_blocked=True)
            elif not isinstance(answer, StoreUnavailable):
                raise answer

    async def _blocked(self, _: Nothing) -> Subjects:
        return Subjects(sorted(self._names.blocked))
