"""Transient messages between nodes: each goes to nodes with a subscriber, an answer to the node of its asker (decision 0261).

A node tells the others which patterns it wants, and which groups of consumers have members there; a subscribe is answered when
they have confirmed that. Messages to one node are numbered, so that it can count those that did not come. Stored messages come
by the log, which every node reads.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from struct import Struct
from typing import Final

import orjson

from crewel.bayeux.channel import REPLIES, Channel, parse
from crewel.broker.addressing.addressing import Addressing
from crewel.broker.dead_letter import CHANNEL as DEAD_LETTERS
from crewel.broker.dead_letters.notifier import DeadLetterNotifier
from crewel.broker.node_tags import tag_in
from crewel.broker.publishing.broadcaster import Broadcaster
from crewel.broker.runtime import Runtime
from crewel.delivery.entry import Entry
from crewel.nodes.frames import Frame, Kind
from crewel.nodes.link import Link, OpenLinks
from crewel.nodes.node_registry import NodeRegistry
from crewel.qos.names import group_of

_MESSAGE: Final = Struct("!QI")
"""What a message begins with: its number, and the length of the JSON between this and the message itself."""
_CONFIRM_S: Final = 2.0
"""How long a subscribe waits at most for the nodes that have not confirmed it: one that is dead never will."""


class Bus:
    """The part of one node."""

    def __init__(
        self,
        runtime: Runtime,
        broadcaster: Broadcaster,
        addressing: Addressing,
        dead_letters: DeadLetterNotifier,
        registry: NodeRegistry,
        links: OpenLinks,
    ) -> None:
        self._runtime = runtime
        self._channels, self._groups = addressing.channels, addressing.groups
        self._broadcaster = broadcaster
        self._dead_letters = dead_letters
        self._registry = registry
        self._links = links
        # What others want
        self._wanted: defaultdict[str, set[str]] = defaultdict(set)  # pattern: tokens
        self._sent: Counter[str] = Counter()
        # What this node wants
        self.version = 0
        """Of what this node wants: it rises with each pattern."""
        self._confirmed: dict[Link, int] = {}  # the link by which a node sends here: the version that it has confirmed
        # Number of the last message of a node, by the token that this one had for it, and by that one's.
        self._received: Counter[tuple[str, str]] = Counter()
        self._known: set[str] = set()  # tokens of nodes that have said what they want
        self._changed: asyncio.Future[None] | None = None

    # What this node wants

    def wants(self, pattern: str) -> None:
        """There is a subscriber to this pattern, and was none."""
        if not pattern.startswith(REPLIES):  # a reply channel says itself whose it is
            self.version += 1
            self._announce(Kind.SUBSCRIBE, [pattern])

    def gives_up(self, pattern: str) -> None:
        """There is none any more. That need not be known at once."""
        if not pattern.startswith(REPLIES):
            self._announce(Kind.UNSUBSCRIBE, [pattern])

    def _announce(self, kind: Kind, patterns: Iterable[str]) -> None:
        payload = self.version.to_bytes(8) + orjson.dumps(list(patterns))
        for link in self._confirmed:
            link.send(kind, 0, payload)

    def joined(self, link: Link) -> None:
        """A node can send here: tell it all."""
        self._confirmed[link] = -1
        patterns = [name for name in self._channels if self._channels.count(name) and not name.startswith(REPLIES)]
        patterns += self._groups.queues()
        link.send(Kind.ALL_PATTERNS, 0, self.version.to_bytes(8) + orjson.dumps(patterns))
        self._registry.hurry()  # it may be new

    def left(self, link: Link) -> None:
        """It cannot any more."""
        self._confirmed.pop(link, None)
        self._wake_waiting()

    def announced(self) -> asyncio.Task[None] | None:
        """A task that ends when all nodes that live have confirmed what this one wants now; None if they have."""
        return None if self.is_confirmed(self.version) else self._runtime.loop.create_task(self._wait(self.version))

    def is_confirmed(self, version: int) -> bool:
        """Whether all nodes that live have confirmed what this one wanted at this version."""
        confirmed = {link.token for link, each in self._confirmed.items() if each >= version}
        return all(node.token in confirmed for node in self._registry.others())

    async def _wait(self, version: int) -> None:
        await self._until(lambda: self.is_confirmed(version))

    async def wait_for(self, tokens: Iterable[str]) -> None:
        """Wait until these nodes have said what they want, but not for long."""
        expected = set(tokens)
        await self._until(lambda: expected <= self._known)

    async def linked(self, tokens: Iterable[str]) -> None:
        """Wait until these nodes have a link to here, and know what this one wants, but not for long."""
        expected = set(tokens)
        await self._until(lambda: expected <= {link.token for link, version in self._confirmed.items() if version >= 0})

    async def _until(self, holds: Callable[[], bool]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CONFIRM_S):
                while not holds():
                    await asyncio.wait([self.change()])

    def change(self) -> asyncio.Future[None]:
        """Done when nodes have confirmed something, or have come or gone."""
        if self._changed is None:
            self._changed = self._runtime.loop.create_future()
        return self._changed

    def _wake_waiting(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)

    def take(self, link: Link, frame: Frame) -> None:
        """A node that sends here has confirmed something, or has sent a message."""
        if frame.kind == Kind.CONFIRM:
            self._confirmed[link] = int.from_bytes(frame.payload)
            self._wake_waiting()
        elif frame.kind == Kind.DEAD_LETTERS:
            self._dead_letters.made_elsewhere(orjson.loads(frame.payload))
        else:
            self._deliver(link, frame.payload)

    def _deliver(self, link: Link, payload: bytes) -> None:
        number, length = _MESSAGE.unpack_from(payload)
        way = link.own, link.token
        self._runtime.metrics.bus_lost += number - self._received[way] - 1
        self._received[way] = number
        begin = _MESSAGE.size + length
        name, sender, stored_qos, lazy, priority, expires = orjson.loads(payload[_MESSAGE.size : begin])
        channel = parse(name)
        assert channel is not None
        node = self._registry.members.nodes.get(link.token)
        self._broadcaster.deliver_here(
            channel,
            payload[begin:],
            sender,
            stored_qos.encode(),
            node="" if node is None else node.name,
            lazy=lazy,
            priority=priority,
            expires=expires,
        )

    # What others want

    def on_patterns(self, link: Link, frame: Frame) -> None:
        """The node at the other end of a link that this one has dialled says what it wants."""
        token, patterns = link.token, orjson.loads(frame.payload[8:])
        if frame.kind == Kind.ALL_PATTERNS:
            self.forget(token)
        for pattern in patterns:
            if group_of(pattern) is not None:
                # That a group has no member there is no news: the store knows whether it has any at all (`Membership`).
                if frame.kind != Kind.UNSUBSCRIBE:
                    self._groups.add_elsewhere(pattern)
            elif frame.kind == Kind.UNSUBSCRIBE:
                self._withdraw(pattern, token)
            else:
                self._wanted[pattern].add(token)
        self._known.add(token)
        link.send(Kind.CONFIRM, 0, frame.payload[:8])
        self._wake_waiting()

    def forget(self, token: str) -> None:
        """This node wants nothing any more."""
        for pattern in [pattern for pattern, tokens in self._wanted.items() if token in tokens]:
            self._withdraw(pattern, token)

    def on_nodes_changed(self) -> None:
        """Something is known of the nodes: those that are dead want nothing, and no subscribe waits for them."""
        for token in [each for each in self._known if self._registry.has_gone(each)]:
            self.forget(token)
            self._known.discard(token)
        self._wake_waiting()

    def _withdraw(self, pattern: str, token: str) -> None:
        tokens = self._wanted.get(pattern)
        if tokens is not None:
            tokens.discard(token)
            if not tokens:
                del self._wanted[pattern]

    def spread(self, channel: Channel, entry: Entry, sender: str, stored_qos: bytes) -> None:
        """Send a message to the nodes that want it; filters look at `sender` and `stored_qos`. Nothing waits for it."""
        tokens = self._receivers(channel)
        if not tokens:
            return
        head = orjson.dumps([entry.channel, sender, stored_qos.decode(), entry.lazy, entry.priority, entry.expires])
        for token in tokens:
            self._sent[token] += 1
            link = self._links.to(token)
            if link is not None:  # else the next message that arrives shows that this one did not
                link.send(Kind.MESSAGE, 0, _MESSAGE.pack(self._sent[token], len(head)) + head + entry.wire)

    def announce_dead_letters(self, dead_ids: Sequence[str]) -> None:
        """Let the nodes with operators who follow dead letters read these from the store."""
        for token in self._wanted.get(DEAD_LETTERS, ()):
            link = self._links.to(token)
            if link is not None:
                link.send(Kind.DEAD_LETTERS, 0, orjson.dumps(dead_ids))

    def _receivers(self, channel: Channel) -> Iterable[str]:
        if channel.is_reply:
            node = self._registry.owner(tag_in(channel.reply_id))
            return () if node is None or node.token == self._registry.own else (node.token,)
        if not self._wanted or not channel.is_broadcast:
            return ()
        found: set[str] = set()
        for pattern in channel.patterns:
            found |= self._wanted.get(pattern, set())
        return found
