"""The other nodes, as the parts of a broker see them: each question goes to the part of `Membership` that answers it."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from crewel.bayeux.channel import Channel
from crewel.bayeux.replies import Reply
from crewel.broker.cluster import LONGEST_PAUSE_MS, Cluster, SubscribeStep
from crewel.broker.handler_steps import Steps
from crewel.broker.node_tags import tag_of
from crewel.broker.topic_view import Shares
from crewel.delivery.entry import Entry
from crewel.delivery.records import SessionName
from crewel.qos.names import Name, group_of
from crewel.storage import nodes
from crewel.storage.keys import Keys
from crewel.storage.node_leases import Membership as Registration
from crewel.storage.node_leases import Slice
from crewel.storage.receivers import Receiver
from crewel.storage.script_step import Step
from crewel.storage.store import Store
from crewel.supervision import Body, Supervisor

if TYPE_CHECKING:
    from crewel.bayeux.message import Message
    from crewel.broker.exchange import Exchange
    from crewel.broker.session import Session
    from crewel.nodes.membership import Membership


class Nodes(Cluster):
    """Made before the broker, and used when its membership is there."""

    is_single = False
    pause_ms = LONGEST_PAUSE_MS
    membership: Membership
    """The part that this node has in the cluster."""

    def spread(self, channel: Channel, entry: Entry, publisher: str, qos: bytes) -> None:
        """Send a transient message to the nodes that want it."""
        self.membership.bus.spread(channel, entry, publisher, qos)

    def wants(self, pattern: str) -> None:
        """There is a subscriber to this pattern here, or a member of the group with this queue, and was none."""
        self.membership.bus.wants(pattern)
        if group_of(pattern) is not None:
            self.membership.groups.wants(pattern)

    def gives_up(self, pattern: str) -> None:
        """There is none any more."""
        self.membership.bus.gives_up(pattern)
        if group_of(pattern) is not None:
            self.membership.groups.gives_up(pattern)

    def announcing(self, subscribe: SubscribeStep) -> SubscribeStep:
        """The handler of subscribes, so that it replies when all nodes know what is subscribed to here."""

        def announced(exchange: Exchange, session: Session, message: Message) -> Steps[Reply]:
            return self._announced(session, subscribe(exchange, session, message))

        return announced

    def _announced(self, session: Session, outcome: Reply | Steps[Reply]) -> Steps[Reply]:
        reply = outcome if isinstance(outcome, dict) else (yield from outcome)
        if (waiting := self.membership.bus.announced()) is not None:
            yield waiting
        if (waiting := self.membership.groups.known_everywhere(session)) is not None:
            yield waiting
        return reply

    @property
    def has_sessions(self) -> bool:
        """Whether other nodes may have sessions, or dead ones that are not taken over yet."""
        return self.membership.addressed.is_anywhere

    @property
    def has_receivers(self) -> bool:
        """Whether nodes that live may have sessions for shared queues."""
        return bool(self.membership.registry.others())

    async def find(self, destinations: Iterable[Name]) -> list[list[Receiver]]:
        """Return for each destination the sessions that it means there. Raises StoreError."""
        return await self.membership.addressed.find(destinations)

    def deliver(self, channel: Channel, entry: Entry, names: Mapping[str, list[str]]) -> set[str]:
        """Send a message to sessions, by the token of their node. Returns the tokens of nodes that cannot be reached."""
        return self.membership.addressed.deliver(channel, entry, names)

    def announce(self, queue: str) -> None:
        """Something is in a shared queue."""
        self.membership.addressed.announce(queue)

    def may_have(self, name: SessionName) -> bool:
        """Whether another node may have this session: this one does not have it."""
        return self.membership.addressed.may_have(name)

    def follow_log(self, supervisor: Supervisor, tail: Body) -> None:
        """Read what others append."""
        supervisor.start("tail of the log", tail)

    def registration(self, token: str) -> Registration:
        """The tag of this node, and where it accepts links."""
        return Registration(tag_of(token), self.membership.link)

    def author(self, name: str) -> str:
        """This name."""
        return name

    def caught_up(self) -> Awaitable[None]:
        """Wait until this node has taken all that others had published before."""
        return self.membership.topics.caught_up()

    async def is_replaced(self, store: Store, epoch: int) -> bool:
        """A node that was taken for dead reads the store again, under a new token."""
        return False

    def adoption(self, keys: Keys, token: str, count: int, dead: Iterable[str]) -> Step[Slice]:
        """The sessions of nodes that are dead."""
        return nodes.inherit(keys, token, count, dead)

    def marked(self, secret: str) -> str:
        """The secret with the tag of this node."""
        return self.membership.subjects.marked(secret)

    def counted(self, most: int) -> int:
        """As many as it may have: other nodes have sessions too."""
        return most

    def claim(self, name: str, most: int, *, takes_ptp: bool) -> Awaitable[None]:
        """No other node gives this name from now on."""
        return self.membership.subjects.claim(name, most, takes_ptp=takes_ptp)

    def clear(self, subject: str, *, is_granted: bool) -> Awaitable[str]:
        """End the sessions of the subject at all other nodes, as a login asks for."""
        return self.membership.subjects.clear_elsewhere(subject, is_granted)

    def sessions_came(self, names: Iterable[SessionName]) -> None:
        """The sessions with these names were a dead node's, and are this one's."""
        self.membership.router.sessions_came(names)
        self.membership.presence.sessions_came(names)

    def shares(self, topic: str) -> Awaitable[Shares]:
        """What the other nodes have of a topic."""
        return self.membership.topics.shares(topic)

    def everywhere(self) -> Awaitable[None]:
        """Wait until all nodes have applied what is in the log now."""
        return self.membership.topics.everywhere()

    def known_everywhere(self, done: Future[Any], *, raises: bool = True) -> Future[None]:
        """Done when this is done, and all nodes know what it was about."""
        return self.membership.topics.known_everywhere(done, raises=raises)
