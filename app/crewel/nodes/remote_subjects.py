"""Subjects at several nodes: a login that clears the earlier sessions of its subject ends those of all nodes, and a subject
that an operator blocks is blocked at all of them, as long as one of them lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from crewel.broker.durability.access import StoreAccess
from crewel.broker.name_claims import NameClaims
from crewel.broker.names import Names
from crewel.errors import StoreUnavailable
from crewel.nodes.calls import Calls, Fields
from crewel.nodes.node_registry import NodeRegistry


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
        calls.answers["alive"] = self._alive
        calls.answers["clear"] = self._clear
        calls.answers["block"] = self._block
        calls.answers["blocked"] = self._blocked
        claims.clear_elsewhere = self._clear_elsewhere

    def _ask_all(self, about: str, fields: Fields) -> list[Coroutine[Any, Any, Fields]]:
        return [self._calls.ask(each.token, about, fields) for each in self._registry.others()]

    async def _clear_elsewhere(self, subject: str, is_granted: bool) -> str:
        """End the sessions of the subject at all other nodes, but none if one of them is alive and the login is not granted.
        Returns the name of such a one. Raises StoreUnavailable if a node does not answer."""
        if not is_granted:
            answers = await asyncio.gather(*self._ask_all("alive", {"subject": subject}))
            alive = next((name for answer in answers if (name := str(answer["name"]))), "")
            if alive:
                return alive
        await asyncio.gather(*self._ask_all("clear", {"subject": subject, "granted": is_granted}))
        return ""

    async def _alive(self, asked: Fields) -> Fields:
        return {"name": self._claims.alive_of(asked["subject"])}

    async def _clear(self, asked: Fields) -> Fields:
        self._claims.clear(list(self._names.of_subject(asked["subject"])), is_granted=asked["granted"])
        await self._access.writing.probe_and_wait()  # by then the store knows that their ends have begun
        return {}

    async def block(self, subject: str, *, is_blocked: bool) -> None:
        """Let all nodes refuse the logins of the subject, or accept them again. Raises StoreUnavailable if one of them does not
        answer: then it may not."""
        self._names.block(subject, is_blocked=is_blocked)
        await asyncio.gather(*self._ask_all("block", {"subject": subject, "blocked": is_blocked}))

    async def _block(self, asked: Fields) -> Fields:
        self._names.block(asked["subject"], is_blocked=asked["blocked"])
        return {}

    async def join(self) -> None:
        """Block the subjects that the nodes block which were there before."""
        for answer in await asyncio.gather(*self._ask_all("blocked", {}), return_exceptions=True):
            if isinstance(answer, dict):
                for subject in answer["subjects"]:
                    self._names.block(subject, is_blocked=True)
            elif not isinstance(answer, StoreUnavailable):
                raise answer

    async def _blocked(self, _: Fields) -> Fields:
        return {"subjects": sorted(self._names.blocked)}
