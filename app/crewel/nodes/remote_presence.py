"""Presence across nodes: each announces the sessions that are present there, and knows those of all others (decision 0499).

Announcements of one node have versions, one after the other. A node that misses one asks for everything; every look at the
registry repeats the version, so it notices soon. A node on which nothing was ever present sends nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from crewel.broker.addressing.session_names import Names
from crewel.broker.presence.presence import Announcement, Left, Presence
from crewel.broker.presence.presence_set import OWN, PresenceEntry
from crewel.broker.runtime import Runtime
from crewel.delivery.records import SessionName
from crewel.errors import NodeFailed, StoreUnavailable
from crewel.nodes.calls import Calls
from crewel.nodes.frames import Frame, Kind
from crewel.nodes.link import Link, OpenLinks
from crewel.nodes.node_registry import NodeRegistry
from crewel.nodes.node_requests import PRESENT, Nothing, Present

log = logging.getLogger(__name__)

_CLAIM_S: Final = 0.5
"""How long after the record of a dead node has gone its heir's announcements may still be on their way."""


class RemotePresence:
    """The part of one node."""

    def __init__(
        self, runtime: Runtime, presence: Presence, names: Names, registry: NodeRegistry, links: OpenLinks, calls: Calls
    ) -> None:
        self._runtime = runtime
        self._presence, self._names = presence, names
        self._registry, self._links, self._calls = registry, links, calls
        self._version = 0
        """Of what this node has announced."""
        self._known: dict[str, int] = {}  # token: the version of that node up to which all is known
        self._asking: dict[str, int] = {}  # token: the newest version that has come since it was asked
        self._leaving: dict[str, asyncio.TimerHandle] = {}
        presence.on_change.append(self._announce)
        registry.on_change.append(self._on_nodes_changed)
        calls.serve(PRESENT, self._all)

    # What this node announces

    def _announce(self, announcements: Sequence[Announcement]) -> None:
        self._version += 1
        self._send(orjson.dumps([self._version, [_written(each) for each in announcements]]))

    def _send(self, payload: bytes) -> None:
        for node in self._registry.others():
            link = self._links.to(node.token)
            if link is not None:  # else the node notices by the next version
                link.send(Kind.PRESENCE, 0, payload)

    async def _all(self, _: Nothing) -> Present:
        return Present(self._version, [_written(each) for each in self._presence.entries.of_node(OWN)])

    # What others announce

    def take(self, link: Link, frame: Frame) -> None:
        """A node has announced something, or has repeated its version."""
        token = link.token
        version, announcements = orjson.loads(frame.payload)
        known = self._known.get(token)
        if known is not None and announcements and version == known + 1:
            self._known[token] = version
            self._presence.announced(token, [_read(each) for each in announcements])
        elif token in self._asking:
            self._asking[token] = version
        elif known is None or version > known:
            self._ask_soon(token)

    async def join(self, tokens: Iterable[str]) -> None:
        """Learn what is present at these nodes."""
        await asyncio.gather(*(self._ask_soon(token) for token in tokens if token not in self._asking))

    def _ask_soon(self, token: str) -> asyncio.Task[None]:
        self._asking[token] = 0
        return self._runtime.spawn(self._ask(token))

    async def _ask(self, token: str) -> None:
        version = 0
        try:
            present = await self._calls.ask(token, PRESENT, Nothing())
            if not self._registry.has_gone(token):
                self._known[token] = version = present.version
                self._presence.has_all(token, [_entry(each) for each in present.entries])
        except (StoreUnavailable, NodeFailed) as error:
            log.info("the presence at another node is not known: %s", error)  # until it repeats its version
        finally:
            newest = self._asking.pop(token)
        if version and newest > version:
            self._ask_soon(token)

    # Nodes that have gone

    def sessions_came(self, names: Iterable[SessionName]) -> None:
        """The sessions with these names were a dead node's, and are this one's: so is their presence."""
        for name in names:
            session = self._names.find(name)
            if session is not None:
                self._presence.claim(session)

    def _on_nodes_changed(self) -> None:
        """Something is known of the nodes. The sessions of a dead one have ended, except those that the store has: its heir
        announces these before its record goes."""
        for token in {*self._known, *self._presence.entries.nodes()}:
            if not self._registry.has_gone(token):
                self._lives(token)
            elif token in self._registry.members.nodes:
                self._known.pop(token, None)
                self._presence.has_all(
                    token, [each for each in self._presence.entries.of_node(token) if each.is_stored]
                )
            elif token not in self._leaving:
                self._leaving[token] = self._runtime.loop.call_later(_CLAIM_S, self._forget, token)
        if self._version:
            self._send(orjson.dumps([self._version, []]))

    def _lives(self, token: str) -> None:
        leaving = self._leaving.pop(token, None)
        if leaving is not None:
            leaving.cancel()

    def _forget(self, token: str) -> None:
        del self._leaving[token]
        self._known.pop(token, None)
        self._presence.has_all(token, ())


def _written(announcement: Announcement) -> list[Any]:
    if isinstance(announcement, Left):
        return [announcement.channel, announcement.session]
    channel, session, member, data, at, is_stored = announcement
    return [channel, session, member, data.decode(), at, is_stored]


def _read(written: list[Any]) -> Announcement:
    return Left(*written) if len(written) == len(Left._fields) else _entry(written)


def _entry(written: list[Any]) -> PresenceEntry:
    channel, session, member, data, at, is_stored = written
    return PresenceEntry(channel, session, member, data.encode(), at, is_stored)
