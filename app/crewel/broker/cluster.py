"""The other nodes that share the store, as the parts of a broker see them. `Cluster` has none; those of `Nodes` are real."""

from __future__ import annotations

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


class Cluster:
    """What a node tells the others, and what it asks them. An answer of None means that there is nothing to wait for. The
    answers here are those of a server that has its store to itself, or none; `Nodes` answers each question otherwise."""

    is_single = True
    """Whether this server has its store to itself. What depends on it is a method here; this is for where a call would cost too
    much, and for a part that has two forms."""
    pause_ms = 0
    """Milliseconds within which the clients of a server that ends should come back, to be received by another node."""

    # Publishes

    def spread(self, channel: Channel, entry: Entry, publisher: str, qos: bytes) -> None:
        """Send a transient message, with the name of its publisher and its QoS, to the nodes that want it."""

    def wants(self, pattern: str) -> None:
        """There is a subscriber to this pattern here, or a member of the group with this queue, and was none."""

    def gives_up(self, pattern: str) -> None:
        """There is none any more."""

    def announcing(self, subscribe: SubscribeStep) -> SubscribeStep:
        """The handler of subscribes, so that it replies when all nodes know what is subscribed to here."""
        return subscribe

    # Destinations and shared queues

    @property
    def has_sessions(self) -> bool:
        """Whether other nodes may have sessions, or dead ones that are not taken over yet."""
        return False

    @property
    def has_receivers(self) -> bool:
        """Whether nodes that live may have sessions for shared queues."""
        return False

    async def find(self, destinations: Iterable[Name]) -> list[list[Receiver]]:
        """Return for each destination the sessions that it means there. Raises StoreError."""
        return [[] for _ in destinations]

    def deliver(self, channel: Channel, entry: Entry, names: Mapping[str, list[str]]) -> set[str]:
        """Send a message to sessions, by the token of their node. Returns the tokens of nodes that cannot be reached."""
        return set()

    def announce(self, queue: str) -> None:
        """Something is in a shared queue."""

    def may_have(self, name: SessionName) -> bool:
        """Whether another node may have this session, which the store has."""
        return False

    # The log

    def follow_log(self, supervisor: Supervisor, tail: Body) -> None:
        """Have `tail` read what others append, as long as this server runs."""

    def registration(self, token: str) -> Membership:
        """What the store notes of this node, under this token, for the others."""
        return ALONE

    def author(self, name: str) -> str:
        """This name of this node, as the log notes it with an entry for the others; empty if it need not."""
        return ""

    def caught_up(self) -> Awaitable[None] | None:
        """Wait until this node has taken all that others had published before."""

    async def is_replaced(self, store: Store, epoch: int) -> bool:
        """Whether another server has taken over the store since this one's start, which had this number: then this one must
        stop serving. Raises StoreError."""
        return await node_leases.epoch(store) > epoch

    # Sessions and topics

    def adoption(self, keys: Keys, token: str, count: int, dead: Iterable[str]) -> Step[Slice]:
        """The step that takes over sessions of servers before this one, or of nodes that are dead, at most so many. The leases
        of those in `dead` do not count."""
        return node_leases.adopt(keys, token, count)

    def marked(self, secret: str) -> str:
        """The secret, so that it leads to the node that gave it."""
        return secret

    def counted(self, most: int) -> int:
        """How many sessions the store lets a subject have that may have so many. Negative: any number, for this server has
        counted them all."""
        return ANY_NUMBER

    def claim(self, name: str, most: int, *, takes_ptp: bool) -> Awaitable[None] | None:
        """No other node gives this name, of a session that is not stored, from now on. The subject may have so many sessions,
        `counted`. Raises NameTaken, TooManySessions and StoreError."""

    def clear(self, subject: str, *, is_granted: bool) -> Awaitable[str] | None:
        """End the sessions of the subject at all other nodes, as a login asks for. If that would leave a session, it ends none
        and the answer is its name, else an empty one."""

    def sessions_came(self, names: Iterable[SessionName]) -> None:
        """The sessions with these names were a dead node's, and are this one's."""

    def shares(self, topic: str) -> Awaitable[Shares] | None:
        """What the other nodes have of a topic."""

    def everywhere(self) -> Awaitable[None] | None:
        """Wait until all nodes have applied what is in the log now."""

    def known_everywhere(self, done: Future[Any], *, raises: bool = True) -> Future[None] | None:
        """A future that is done when this one is, and all nodes know what it was about. It raises what this one raises, or
        nothing."""
