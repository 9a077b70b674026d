"""The other nodes that share the store, as the parts of a broker see them. `SingleNode` has none; those of `Nodes` are real."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from crewel.bayeux.channel import Channel
from crewel.bayeux.replies import Reply
from crewel.broker.handler_steps import Steps
from crewel.broker.topic_view import Shares
from crewel.delivery.entry import Entry
from crewel.delivery.records import SessionName
from crewel.qos.names import Name
from crewel.storage import node_leases
from crewel.storage.keys import Keys
from crewel.storage.node_leases import ALONE, Membership, Slice
from crewel.storage.receivers import Receiver
from crewel.storage.script_step import Step
from crewel.storage.store import Store
from crewel.supervision import Body, Supervisor

if TYPE_CHECKING:
    from crewel.bayeux.message import Message
    from crewel.broker.exchange import Exchange
    from crewel.broker.session import Session

SubscribeStep = Callable[["Exchange", "Session", "Message"], "Reply | Steps[Reply]"]
"""The handler of a subscribe."""

LONGEST_PAUSE_MS: Final = 300
"""How long clients wait at most before their next connect while a node ends: its sessions are another one's by then."""
ANY_NUMBER: Final = -1
"""Of sessions of a subject, for the store."""


class Cluster(ABC):
    """What a node tells the others, and what it asks them. An answer of None means that there is nothing to wait for."""

    is_single: bool
    """Whether this server has its store to itself. What depends on it is a method here; this is for where a call would cost too
    much, and for a part that has two forms."""
    pause_ms: int
    """Milliseconds within which the clients of a server that ends should come back, to be received by another node."""

    # Publishes

    @abstractmethod
    def spread(self, channel: Channel, entry: Entry, publisher: str, qos: bytes) -> None:
        """Send a transient message, with the name of its publisher and its QoS, to the nodes that want it."""

    @abstractmethod
    def wants(self, pattern: str) -> None:
        """There is a subscriber to this pattern here, or a member of the group with this queue, and was none."""

    @abstractmethod
    def gives_up(self, pattern: str) -> None:
        """There is none any more."""

    @abstractmethod
    def announcing(self, subscribe: SubscribeStep) -> SubscribeStep:
        """The handler of subscribes, so that it replies when all nodes know what is subscribed to here."""

    # Destinations and shared queues

    @property
    @abstractmethod
    def has_sessions(self) -> bool:
        """Whether other nodes may have sessions, or dead ones that are not taken over yet."""

    @property
    @abstractmethod
    def has_receivers(self) -> bool:
        """Whether nodes that live may have sessions for shared queues."""

    @abstractmethod
    def find(self, destinations: Iterable[Name]) -> Awaitable[list[list[Receiver]]]:
        """Return for each destination the sessions that it means there. Raises StoreError."""

    @abstractmethod
    def deliver(self, channel: Channel, entry: Entry, names: Mapping[str, list[str]]) -> set[str]:
        """Send a message to sessions, by the token of their node. Returns the tokens of nodes that cannot be reached."""

    @abstractmethod
    def announce(self, queue: str) -> None:
        """Something is in a shared queue."""

    @abstractmethod
    def may_have(self, name: SessionName) -> bool:
        """Whether another node may have this session, which the store has."""

    # The log

    @abstractmethod
    def follow_log(self, supervisor: Supervisor, tail: Body) -> None:
        """Have `tail` read what others append, as long as this server runs."""

    @abstractmethod
    def registration(self, token: str) -> Membership:
        """What the store notes of this node, under this token, for the others."""

    @abstractmethod
    def author(self, name: str) -> str:
        """This name of this node, as the log notes it with an entry for the others; empty if it need not."""

    @abstractmethod
    def caught_up(self) -> Awaitable[None] | None:
        """Wait until this node has taken all that others had published before."""

    @abstractmethod
    async def is_replaced(self, store: Store, epoch: int) -> bool:
        """Whether another server has taken over the store since this one's start, which had this number: then this one must
        stop serving. Raises StoreError."""

    # Sessions and topics

    @abstractmethod
    def adoption(self, keys: Keys, token: str, count: int, dead: Iterable[str]) -> Step[Slice]:
        """The step that takes over sessions of servers before this one, or of nodes that are dead, at most so many. The leases
        of those in `dead` do not count."""

    @abstractmethod
    def marked(self, secret: str) -> str:
        """The secret, so that it leads to the node that gave it."""

    @abstractmethod
    def counted(self, most: int) -> int:
        """How many sessions the store lets a subject have that may have so many. Negative: any number, for this server has
        counted them all."""

    @abstractmethod
    def claim(self, name: str, most: int, *, takes_ptp: bool) -> Awaitable[None] | None:
        """No other node gives this name, of a session that is not stored, from now on. The subject may have so many sessions,
        `counted`. Raises NameTaken, TooManySessions and StoreError."""

    @abstractmethod
    def clear(self, subject: str, *, is_granted: bool) -> Awaitable[str] | None:
        """End the sessions of the subject at all other nodes, as a login asks for. If that would leave a session, it ends none
        and the answer is its name, else an empty one."""

    @abstractmethod
    def sessions_came(self, names: Iterable[SessionName]) -> None:
        """The sessions with these names were a dead node's, and are this one's."""

    @abstractmethod
    def shares(self, topic: str) -> Awaitable[Shares] | None:
        """What the other nodes have of a topic."""

    @abstractmethod
    def everywhere(self) -> Awaitable[None] | None:
        """Wait until all nodes have applied what is in the log now."""

    @abstractmethod
    def known_everywhere(self, done: Future[Any], *, raises: bool = True) -> Future[None] | None:
        """A future that is done when this one is, and all nodes know what it was about. It raises what this one raises, or
        nothing."""


class SingleNode(Cluster):
    """A server that has its store to itself, or none."""

    is_single = True
    pause_ms = 0
    has_sessions = has_receivers = False

    def spread(self, channel: Channel, entry: Entry, publisher: str, qos: bytes) -> None:
        """Nowhere."""

    def wants(self, pattern: str) -> None:
        """This concerns no other node."""

    def gives_up(self, pattern: str) -> None:
        """This concerns no other node."""

    def announcing(self, subscribe: SubscribeStep) -> SubscribeStep:
        """The handler as it is."""
        return subscribe

    async def find(self, destinations: Iterable[Name]) -> list[list[Receiver]]:
        """None of them."""
        return [[] for _ in destinations]

    def deliver(self, channel: Channel, entry: Entry, names: Mapping[str, list[str]]) -> set[str]:
        """There are no such sessions."""
        return set()

    def announce(self, queue: str) -> None:
        """This concerns no other node."""

    def may_have(self, name: SessionName) -> bool:
        """There is no other node."""
        return False

    def follow_log(self, supervisor: Supervisor, tail: Body) -> None:
        """Only this server appends."""

    def registration(self, token: str) -> Membership:
        """Nothing."""
        return ALONE

    def author(self, name: str) -> str:
        """The log need not note it."""
        return ""

    def caught_up(self) -> None:
        """Nothing to wait for."""

    async def is_replaced(self, store: Store, epoch: int) -> bool:
        """Whether a server has started later."""
        return await node_leases.epoch(store) > epoch

    def adoption(self, keys: Keys, token: str, count: int, dead: Iterable[str]) -> Step[Slice]:
        """The sessions of all other servers: they have ended, as this one has the store."""
        return node_leases.adopt(keys, token, count)

    def marked(self, secret: str) -> str:
        """The secret as it is."""
        return secret

    def counted(self, most: int) -> int:
        """Any number."""
        return ANY_NUMBER

    def claim(self, name: str, most: int, *, takes_ptp: bool) -> None:
        """Nothing to wait for."""

    def clear(self, subject: str, *, is_granted: bool) -> None:
        """Nothing to wait for."""

    def sessions_came(self, names: Iterable[SessionName]) -> None:
        """This concerns no other node."""

    def shares(self, topic: str) -> None:
        """Nothing to wait for."""

    def everywhere(self) -> None:
        """Nothing to wait for."""

    def known_everywhere(self, done: Future[Any], *, raises: bool = True) -> None:
        """Nothing to wait for beyond it."""
