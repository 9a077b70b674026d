"""Sessions: their states, their queue, and the connect that they hold.

Owns what is true of one session. What a message or a meta channel does to it is decided in `broker` and `meta`.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from crewel.bayeux.advice import Advice
from crewel.bayeux.message import Fields
from crewel.broker.held import Held
from crewel.delivery.batches import Batches
from crewel.delivery.dispatcher import Dispatcher
from crewel.delivery.durable import Durable
from crewel.delivery.entry import Entry
from crewel.limits.accounts import Account
from crewel.qos.connect import NOTHING_ASKED, Bounds, Burst, ConnectQos
from crewel.security.grants import Grants

if TYPE_CHECKING:
    from crewel.broker.broker import Broker
    from crewel.broker.peer import Peer
    from crewel.extension import SessionPart


class State(Enum):
    """Where a session stands."""

    NEW = "new"
    HANDSHAKEN = "handshaken"
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    EXPIRED = "expired"

    is_live: bool


class Verdict(NamedTuple):
    """What each connect is answered of a session that may not go on as it is."""

    error: str
    advice: Advice


class Event(Enum):
    """What moves a session on."""

    GRANTED = "the handshake was granted"
    CONNECT = "a connect came"
    TAKEN_OVER = "another client goes on with it"
    DISCONNECT = "the client or the server ended it"
    SILENCE = "no connect came in time"
    FAILED = "the client has failed for good"


TRANSITIONS: Final[Mapping[State, Mapping[Event, State]]] = {
    State.NEW: {Event.GRANTED: State.HANDSHAKEN},
    State.HANDSHAKEN: {
        Event.CONNECT: State.CONNECTED,
        Event.TAKEN_OVER: State.HANDSHAKEN,
        Event.DISCONNECT: State.DISCONNECTED,
        Event.SILENCE: State.EXPIRED,
        Event.FAILED: State.EXPIRED,
    },
    State.CONNECTED: {
        Event.CONNECT: State.CONNECTED,
        Event.TAKEN_OVER: State.HANDSHAKEN,
        Event.DISCONNECT: State.DISCONNECTED,
        Event.SILENCE: State.EXPIRED,
        Event.FAILED: State.EXPIRED,
    },
    State.DISCONNECTED: {},
    State.EXPIRED: {},
}
"""The life of a session. An event that is missing from a state's row is impossible there."""

for _state in State:
    _state.is_live = Event.CONNECT in TRANSITIONS[_state]


_ANY_BURST: Final = Burst()
_secrets: list[str] = []


def new_secret() -> str:
    """An unguessable `clientId` or cookie: 104 random bits in 26 characters of `[0-9a-f]`."""
    if not _secrets:
        randomness = secrets.token_hex(13 * 64)  # one system call for many
        _secrets.extend(randomness[start : start + 26] for start in range(0, len(randomness), 26))
    return _secrets.pop()


class Session:
    """One client of the server. Services read `id`, `attributes` and `subscriptions`, and use `deliver` and `disconnect`."""

    __slots__ = (
        "__weakref__",
        "_attributes",
        "_broker",
        "account",
        "added_at",
        "advised_on",
        "alarm",
        "asked",
        "batches",
        "batching",
        "bounds",
        "broadcast_to_publisher",
        "browser",
        "burst",
        "connect_id",
        "connect_only",
        "credit",
        "dispatcher",
        "durable",
        "ends_when_full",
        "expires_at",
        "expiry",
        "grace_ms",
        "grants",
        "held",
        "hold_delay",
        "id",
        "interval_ms",
        "is_absent",
        "is_exempt",
        "is_live",
        "is_operator",
        "is_paused",
        "is_ready",
        "is_reliable",
        "last_seen",
        "lazy_at",
        "name",
        "parts",
        "parts_out",
        "peer",
        "plain",
        "queue",
        "queue_bytes",
        "queue_counted",
        "queue_limit",
        "queue_max_bytes",
        "recovered",
        "reply_id",
        "retained",
        "socket",
        "state",
        "subject",
        "subscriptions",
        "takes_ptp",
        "timeout_ms",
        "transient_interval_ms",
        "transient_timeout_ms",
        "turn",
        "urgent",
        "verdict",
    )

    account: Account | None
    """What its address has, and how often it does what is limited; None until a client of this server speaks for it."""
    subject: Account | None
    """The same of its subject; None if it has none."""
    credit: int
    """Publishes that it may make before its limits are asked again."""
    is_exempt: bool
    """Whether no rate holds for its address."""
    added_at: float
    """Loop time (s) since which this server has it."""
    is_live: bool
    """Whether it can send and be delivered to: it has been granted and has not ended."""
    parts_out: tuple[SessionPart, ...]
    """The same parts in the order in which they see what leaves."""
    plain: SessionPart | None
    """Its only part, if that has a short way for plain connects."""
    peer: Peer | None
    """The request that is being processed, or the socket; None between requests."""
    urgent: bool
    """Whether the queue holds something that a held connect must not wait with: anything but lazy messages."""
    lazy_at: float
    """Loop time (s) at which lazy messages stop waiting."""
    retained: int
    """How many sent messages a part keeps until they are acknowledged; they count against the queue's bound."""
    connect_id: str | None
    """The id of its last connect, if that came over HTTP and was not answered a second time."""
    connect_only: bool
    """Whether only connect replies carry its messages."""
    is_reliable: bool
    """Whether it acknowledges: no message to it is dropped in silence."""
    batches: Batches | None
    """What it was sent and has not acknowledged; None unless it acknowledges."""
    queue_limit: int
    """Most messages that wait for it; 0: as many as `bayeux.max_queue_messages` says; below 0: none."""
    queue_max_bytes: int
    """Most bytes that wait for it."""
    queue_bytes: int
    """Bytes of the bodies of as many entries of the queue as `queue_counted` says; `backlog.queue_bytes` of all."""
    recovered: Entry | None
    """The last message that it was told to have missed: while that waits, the session ends rather than lose one."""
    ends_when_full: bool
    """Whether it ends when its queue is full, although it does not acknowledge."""
    name: str
    """Its public name, `client/joe/1`; empty if nobody but its client knows of it."""
    reply_id: str
    """The ID of its reply channels, `/ret/<ID>/*`; empty if it was not told any."""
    durable: Durable | None
    """What the log owes it; None unless the store has the session."""
    bounds: Bounds | None
    """The bounds of its queue, if the store has it."""
    dispatcher: Dispatcher | None
    """What decides about its failures; None while nothing needs one."""
    turn: int
    """When it last got a message that one of several receivers gets, as a running number of the server; 0: never. Of receivers
    with equally little to do, the one with the lowest gets the next."""
    asked: ConnectQos
    """What its last login asked for, less its secrets."""
    takes_ptp: bool
    """Whether messages may be addressed to it."""
    is_paused: bool
    """Whether nothing is sent to it: it is held back, or waits after a failure."""
    is_absent: bool
    """Whether the client has been away for so long that memory keeps only the ids of what is stored."""
    grace_ms: int | None
    """How long it may be away, counted from any request; None: as long as a connect may be."""
    hold_delay: float
    """Seconds that the reply to the connect being processed must wait; set by a part, used once."""
    browser: str | None
    """The cookie that its HTTP requests must carry; None until a session made by WebSocket is first used by HTTP."""
    advised_on: str | None
    """The transport that was last told the advice; None makes the next connect reply tell it."""
    grants: Grants | None
    """What its token grants; None if it has shown none that the policy looks at."""
    verdict: Verdict | None
    """Set while its client has to log in again before it may go on."""
    expires_at: float
    """Loop time (s) at which it expires; infinite while a connect is held."""

    expiry: int
    """None of its messages in memory goes out of all queues before this, microseconds since 1970; 0: none does at all."""

    def __init__(self, broker: Broker, client_id: str) -> None:
        self._broker = broker
        self._attributes: dict[str, Any] | None = None
        self.account = self.subject = None
        self.credit = 0
        self.is_exempt = False
        self.id = client_id
        self.added_at = 0.0
        self.state = State.NEW
        self.is_live = False
        self.subscriptions: set[str] = set()
        self.parts: tuple[SessionPart, ...] = ()
        self.parts_out = ()
        self.plain = None
        self.peer = None
        self.queue: list[Entry] = []
        self.urgent = False
        self.lazy_at = inf
        self.retained = 0
        self.connect_id = None
        self.connect_only = False
        self.is_reliable = False
        self.batches = None
        self.queue_limit = 0
        self.queue_max_bytes = broker.settings.bayeux.max_queue_bytes
        self.queue_bytes = self.queue_counted = 0
        self.recovered = None
        self.ends_when_full = False
        self.burst = _ANY_BURST
        self.is_ready = False
        self.batching = 0
        self.name = self.reply_id = ""
        self.durable = None
        self.bounds = None
        self.dispatcher = None
        self.is_paused = False
        self.turn = 0
        self.asked = NOTHING_ASKED
        self.takes_ptp = True
        self.is_absent = False
        self.grace_ms = None
        self.held: Held | None = None
        self.socket: Peer | None = None
        self.hold_delay = 0.0
        self.browser = None
        self.advised_on = None
        self.timeout_ms: int | None = None
        self.interval_ms: int | None = None
        self.transient_timeout_ms: float | None = None
        self.transient_interval_ms: float | None = None
        self.broadcast_to_publisher: bool | None = None
        self.grants = None
        self.is_operator = False
        self.verdict = None
        self.expires_at = inf
        self.expiry = 0
        self.last_seen = 0.0
        self.alarm = inf

    def __repr__(self) -> str:
        return f"<Session {self.state.value}>"  # never the id: it is the client's secret

    @property
    def attributes(self) -> dict[str, Any]:
        """What the application remembers of this session; it dies with it."""
        if self._attributes is None:
            self._attributes = {}
        return self._attributes

    def move(self, event: Event) -> None:
        """Go to the state that the table names. Raises KeyError where it names none."""
        self.state = TRANSITIONS[self.state][event]
        self.is_live = self.state.is_live

    def add_part(self, part: SessionPart) -> None:
        """Let this part of an extension see the session's messages from now on."""
        self.parts = (*self.parts, part)
        self.parts_out = self.parts[::-1]
        self.plain = part if part.is_plain and len(self.parts) == 1 else None

    def deliver(self, channel: str, data: Any, *, ext: Fields | None = None, lazy: bool = False) -> bool:
        """Send this session a message, whatever it is subscribed to; False if the session is gone. Raises ValueError for
        an invalid channel and TypeError for data that JSON cannot say."""
        return self._broker.deliver(self, channel, data, ext=ext, lazy=lazy)

    def disconnect(self) -> None:
        """End the session: the client is told so and does not come back by itself."""
        self._broker.disconnect(self)

    def advise(self, *, timeout_ms: int | None = None, interval_ms: int | None = None) -> None:
        """Set its own hold and pause; None returns to the server's. The next connect reply tells the client."""
        self.timeout_ms = timeout_ms
        self.interval_ms = interval_ms
        self.advised_on = None

    def take(self, max_bytes: int) -> list[Entry]:
        """The entries for one response: as many from the front of the queue as fit, at least one. The rest stays."""
        queue = self.queue
        if not queue:
            return queue
        if len(queue) > 1:
            size, burst = 0, self.burst
            most = burst.max_entries or len(queue)
            if burst.max_bytes is not None and burst.max_bytes < max_bytes:
                max_bytes = burst.max_bytes
            for position, entry in enumerate(queue):
                size += len(entry.wire) + 1
                if (size > max_bytes or position >= most) and position:
                    self.queue = queue[position:]
                    self.queue_bytes -= size - len(entry.wire) - 1 - position
                    self.queue_counted -= position
                    self.urgent = True  # the rest goes with the next connect, at once
                    return queue[:position]
        self.queue = []
        self.queue_bytes = self.queue_counted = 0
        self.urgent = False
        self.lazy_at = inf
        return queue
