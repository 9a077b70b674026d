"""Addressed messages between nodes: where the sessions are that a destination means, and the way to those that are not stored.

What is stored needs no link: the log tells the node of the session (`send.lua`). All else goes over the link, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final

import orjson

from crewel.bayeux.channel import Channel, parse
from crewel.broker.addressing.destinations import Destinations
from crewel.broker.addressing.session_names import Names
from crewel.broker.addressing.shared_queues import SharedQueues
from crewel.broker.writing.store_access import StoreAccess
from crewel.delivery.entry import Entry
from crewel.delivery.records import PendingMessage, SessionName
from crewel.nodes.frames import Frame, Kind
from crewel.nodes.link import OpenLinks
from crewel.nodes.node_registry import NodeRegistry
from crewel.qos.names import Name
from crewel.qos.update import Origin
from crewel.storage import nodes, receivers
from crewel.storage.receivers import Receiver

_LENGTH: Final = Struct("!I")
"""What a message begins with: the length of the JSON between this and the message itself."""


class RemoteDestinations:
    """The part of one node."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        access: StoreAccess,
        names: Names,
        destinations: Destinations,
        shared_queues: SharedQueues,
        registry: NodeRegistry,
        links: OpenLinks,
    ) -> None:
        self._loop = loop
        self._access = access
        self._names = names
        self._destinations = destinations
        self._shared_queues = shared_queues
        self._queues: dict[str, None] = {}  # filled in this turn
        self._registry = registry
        self._links = links

    @property
    def is_anywhere(self) -> bool:
        """Whether there are other nodes, or sessions of dead ones. One that has just joined has a link here before clients."""
        return len(self._registry.members.nodes) > 1 or bool(self._links.accepted())

    def may_have(self, name: SessionName) -> bool:
        """Whether another node may have this session: this one does not have it, or not yet."""
        return name not in self._access.node.sessions

    async def find(self, destinations: Iterable[Name]) -> list[list[Receiver]]:
        """Return for each destination the sessions that it means and this node does not have, or not yet. Raises StoreError."""
        store, names = self._access.store, self._names
        tokens = [each for each in await nodes.tokens(store) if each != self._registry.own]
        found = await asyncio.gather(*(receivers.find(store, each, tokens) for each in destinations))
        return [[each for each in there if names.find(each.name) is None] for there in found]

    def deliver(self, channel: Channel, entry: Entry, names: Mapping[str, list[str]]) -> set[str]:
        """Send a message to sessions, by the token of their node. Returns the tokens of nodes that cannot be reached."""
        cut_off = set()
        origin = entry.origin or Origin("", "")
        for token, of_it in names.items():
            link = self._links.to(token)
            if link is None:
                cut_off.add(token)
                continue
            about = (origin.id, origin.received, origin.sender, origin.qos.decode(), origin.is_persistent)
            head = orjson.dumps([channel.name, entry.to, of_it, about, entry.priority, entry.expires])
            link.send(Kind.ADDRESSED, 0, _LENGTH.pack(len(head)) + head + entry.wire)
        return cut_off

    def announce(self, queue: str) -> None:
        """Tell the other nodes, at the end of this turn, that something waits in this queue. It is a hint: each node looks for
        itself now and then."""
        if not self._queues:
            self._loop.call_soon(self._announce_queues)
        self._queues[queue] = None

    def _announce_queues(self) -> None:
        payload, self._queues = orjson.dumps(list(self._queues)), {}
        for node in self._registry.others():
            link = self._links.to(node.token)
            if link is not None:
                link.send(Kind.QUEUES, 0, payload)

    def take(self, frame: Frame) -> None:
        """Another node has sent a message to sessions of this one, or has filled a shared queue."""
        if frame.kind == Kind.QUEUES:
            self._shared_queues.announced(orjson.loads(frame.payload))
        else:
            self._take_message(frame.payload)

    def _take_message(self, payload: bytes) -> None:
        (length,) = _LENGTH.unpack_from(payload)
        begin = _LENGTH.size + length
        name, to, names, about, priority, expires = orjson.loads(payload[_LENGTH.size : begin])
        channel = parse(name)
        assert channel is not None
        message_id, received, sender, qos, is_persistent = about
        origin = Origin(message_id, received, sender, qos.encode(), is_persistent)
        waiting = PendingMessage(channel=channel.name, priority=priority, expires=expires)
        self._destinations.from_another_node(channel, payload[begin:], names, origin, waiting, to)
