"""Sessions: their states, who they belong to, and the connect that they hold. The messages that wait for them are in
`mailboxes.mailbox`.

Owns what is true of one session. What a message or a meta channel does to it is decided in `broker` and `meta`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

from crewel.bayeux.advice import Advice
from crewel.bayeux.message import Fields, Message
from crewel.broker.exchange import Held
from crewel.broker.mailboxes.ledger import NoLedger, StoreLedger
from crewel.broker.mailboxes.mailbox import Mailbox
from crewel.delivery.entry import Entry
from crewel.limits import Account
from crewel.qos.connect import NOTHING_ASKED, ConnectQos
from crewel.security.grants import Grants

if TYPE_CHECKING:
    from crewel.broker.exchange import Peer
    from crewel.delivery.durable_session import DurableSession
    from crewel.delivery.entry import Entry
    from crewel.delivery.pending_dead_letters import Payers


class State(Enum):
    """Where a session stands."""

    NEW = "new"
    HANDSHAKEN = "handshaken"
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    EXPIRED = "expired"

    is_live: bool

    __hash__ = object.__hash__  # that of Enum is Python code, and the table is asked for each newcomer


class Verdict(NamedTuple):
    """What each connect is answered of a session that may not continue as it is."""

    error: str
    advice: Advice


class Event(Enum):
    """What moves a session on."""

    GRANTED = "the handshake was granted"
    CONNECT = "a connect came"
    TAKEN_OVER = "another client continues it"
    DISCONNECT = "the client ended it"
    ENDED = "the server ended it"
    SILENCE = "no connect came in time"
    FAILED = "the client has failed permanently"

    __hash__ = object.__hash__  # as for State


TRANSITIONS: Final[Mapping[State, Mapping[Event, State]]] = {
    State.NEW: {Event.GRANTED: State.HANDSHAKEN},
    State.HANDSHAKEN: {
        Event.CONNECT: State.CONNECTED,
        Event.TAKEN_OVER: State.HANDSHAKEN,
        Event.DISCONNECT: State.DISCONNECTED,
        Event.ENDED: State.DISCONNECTED,
        Event.SILENCE: State.EXPIRED,
        Event.FAILED: State.EXPIRED,
    },
    State.CONNECTED: {
        Event.CONNECT: State.CONNECTED,
        Event.TAKEN_OVER: State.HANDSHAKEN,
        Event.DISCONNECT: State.DISCONNECTED,
        Event.ENDED: State.DISCONNECTED,
        Event.SILENCE: State.EXPIRED,
        Event.FAILED: State.EXPIRED,
    },
    State.DISCONNECTED: {},
    State.EXPIRED: {},
}
"""The life of a session. An event that is missing from a state's row is impossible there."""

for _state in State:
    _state.is_live = Event.CONNECT in TRANSITIONS[_state]


class Host(Protocol):
    """What a session needs of its server."""

    @property
    def no_ledger(self) -> NoLedger:
        """Of its messages, while the store does not have it."""

    def deliver(
        self, session: Session, channel: str, data: Any, *, ext: Fields | None = None, lazy: bool = False
    ) -> bool:
        """Send the session a message."""

    def disconnect(self, session: Session) -> None:
        """End the session."""


class Session:
    """One client of the server. Services read `id`, `name`, `subject`, `attributes`, `subscriptions` (a set of channels and
    patterns) and `is_operator`, and call `deliver` and `disconnect`."""

    __slots__ = (
        "__weakref__",
        "_attributes",
        "_broker",
        "account",
        "acknowledges",
        "added_at",
        "advised_on",
        "alarm",
        "answered",
        "asked",
        "broadcast_to_publisher",
        "browser",
        "connect_before",
        "connect_id",
        "connect_only",
        "connecting",
        "credit",
        "due",
        "durable",
        "expires_at",
        "grace_ms",
        "grants",
        "has_senders",
        "held",
        "hold_delay",
        "id",
        "interval_ms",
        "is_exempt",
        "is_live",
        "last_seen",
        "mailbox",
        "name",
        "parts",
        "peer",
        "plain",
        "reply_id",
        "requests",
        "socket",
        "state",
        "subject_account",
        "subscriptions",
        "timeout_ms",
        "transient",
        "turn",
        "verdict",
    )

    answered: list[bytes] | None
    """What its last connect or handshake was answered, for a copy of that; None if a newer connect has come, or where a copy
    gets no messages."""
    requests: int
    """Requests of its client that wait for something. What comes meanwhile leaves with their answer and wakes nothing."""
    account: Account | None
    """What its address has, and how often it does what is limited; None until a client of this server speaks for it."""
    subject_account: Account | None
    """What its subject has, and how often it does what is limited; None if it has no subject."""
    credit: int
    """Publishes that it may make before its limits are asked again."""
    is_exempt: bool
    """Whether no rate holds for its address."""
    added_at: float
    """Loop time (s) since which this server has it."""
    acknowledges: bool
    """Whether its client acknowledges what it gets, so that no message to it is dropped in silence."""
    due: dict[Session, None] | None
    """Those that the sweep looks at in the same second as this one; None unless it lives."""
    durable: DurableSession | None
    """What it is to receive of the log; None unless the store has it."""
    is_live: bool
    """Whether it can send and be delivered to: it has been granted and has not ended."""
    has_senders: bool
    """Whether one of its parts has a `send`."""
    plain: SessionPart | None
    """Its only part, if that has a short way for plain connects."""
    peer: Peer | None
    """The request that is being processed, or the socket; None between requests."""
    connect_id: str | None
    """The id of its last connect, if that came over HTTP and was not answered a second time."""
    connect_before: str | None
    """The id of the one before, if that was not answered a second time either: a copy of it may still be on its way."""
    connecting: Peer | None
    """What brought its last connect, until that is answered or held; later requests do not change it."""
    connect_only: bool
    """Whether only connect replies carry its messages."""
    name: str
    """Its public name, `client/joe/1`; empty if only its client knows it."""
    reply_id: str
    """The ID of its reply channels, `/ret/<ID>/*`; empty if it has none."""
    turn: int
    """When it last got a message that one of several receivers gets, as a running number of the server; 0: never. Of receivers
    with equally little to do, the one with the lowest gets the next."""
    asked: ConnectQos
    """What its last login asked for, less its secrets."""
    grace_ms: int | None
    """How long it may be away, counted from any request; None: as long as a connect may be."""
    hold_delay: float
    """Seconds that the reply to the connect being processed must wait; set by a part, used once."""
    browser: str | None
    """The cookie that its HTTP requests must carry; None until a session made by WebSocket is first used by HTTP."""
    advised_on: str | None
    """The transport that last received the advice; None puts it into the next connect reply."""
    grants: Grants | None
    """What its token grants; None if it has shown none that the policy looks at."""
    verdict: Verdict | None
    """Set while its client has to log in again before it may continue."""
    expires_at: float
    """Loop time (s) at which it expires; infinite while a connect is held."""

    def __init__(self, broker: Host, client_id: str, peer: Peer | None = None) -> None:
        self.mailbox = Mailbox(broker.no_ledger)
        self.answered = None
        self.requests = 0
        self._broker = broker
        self._attributes: dict[str, Any] | None = None
        self.account = self.subject_account = None
        self.credit = 0
        self.is_exempt = False
        self.id = client_id
        self.added_at = 0.0
        self.state = State.NEW
        self.is_live = self.acknowledges = False
        self.due = self.durable = None
        self.subscriptions: set[str] = set()
        self.parts: tuple[SessionPart, ...] = ()
        self.plain = None
        self.has_senders = False
        self.peer = peer
        self.connect_id = self.connect_before = self.connecting = None
        self.connect_only = False
        self.name = self.reply_id = ""
        self.turn = 0
        self.asked = NOTHING_ASKED
        self.grace_ms = None
        self.held: Held | None = None
        self.socket: Peer | None = None
        self.hold_delay = 0.0
        self.browser = None
        self.advised_on = None
        self.timeout_ms: int | None = None
        self.interval_ms: int | None = None
        self.transient: tuple[float | None, float | None] | None = None
        """What its last connect asked for: how long it is held, and the pause after it, in milliseconds."""
        self.broadcast_to_publisher: bool | None = None
        self.grants = None
        self.verdict = None
        self.expires_at = inf
        self.last_seen = 0.0
        self.alarm = inf

    def __repr__(self) -> str:
        return f"<Session {self.state.value}>"  # never the id: it is the client's secret

    @property
    def attributes(self) -> dict[str, Any]:
        """A dictionary for the application; it is gone when the session ends."""
        if self._attributes is None:
            self._attributes = {}
        return self._attributes

    def move(self, event: Event) -> None:
        """Go to the state that the table names. Raises KeyError where it names none."""
        self.state = TRANSITIONS[self.state][event]
        self.is_live = self.state.is_live

    def add_part(self, part: SessionPart) -> None:
        """Let this part of an extension see the session's messages from now on."""
        self._set_parts((*self.parts, part))

    def remove_part(self, part: SessionPart) -> None:
        """Let it see them no more."""
        self._set_parts(tuple(each for each in self.parts if each is not part))

    def _set_parts(self, parts: tuple[SessionPart, ...]) -> None:
        self.parts = parts
        self.has_senders = any(type(each).send is not SessionPart.send for each in parts)
        self.plain = parts[0] if len(parts) == 1 and parts[0].is_plain else None

    def deliver(self, channel: str, data: Any, *, ext: Fields | None = None, lazy: bool = False) -> bool:
        """Send a message to this session, whatever its subscriptions; False if the session has ended. Raises ValueError for
        an invalid channel and TypeError for data that JSON cannot represent."""
        return self._broker.deliver(self, channel, data, ext=ext, lazy=lazy)

    def disconnect(self) -> None:
        """End the session: the client is notified, and does not return without a new login."""
        self._broker.disconnect(self)

    def advise(self, *, timeout_ms: int | None = None, interval_ms: int | None = None) -> None:
        """Set the time for which this session's connects are held, and the pause between them, in milliseconds; None means the
        server's settings. The client receives them with the next reply to a connect."""
        self.timeout_ms = timeout_ms
        self.interval_ms = interval_ms
        self.advised_on = None

    def begin_acknowledging(self) -> None:
        """Its client acknowledges what it gets from now on, and so gets it with connects alone."""
        self.acknowledges = self.connect_only = True

    def delay_answer(self, seconds: float) -> None:
        """Let the reply to the connect that is being processed wait so long."""
        self.hold_delay = seconds

    def answer_at_once(self) -> None:
        """Do not hold the connect that is being processed, as if it had asked for that: its reply carries the advice."""
        self.advised_on = None

    # Its life

    def begin(self, now: float, *, connect_only: bool) -> None:
        """The handshake was granted."""
        self.move(Event.GRANTED)
        self.connect_only = self.connect_only or connect_only
        self.added_at = now

    def end_by(self, at: float) -> None:
        """Let it end at this loop time (s), or before, unless its client connects."""
        self.expires_at = min(self.expires_at, at)

    def revive(self, now: float) -> None:
        """It came back from the store."""
        self.move(Event.GRANTED)
        self.move(Event.CONNECT)
        self.added_at = now

    def hand_over(self, newcomer: Session, peer: Peer, *, connect_only: bool) -> None:
        """The client with the handshake `newcomer` has this session now: its clientId, its browser, its token."""
        self.leave_socket()
        self.id, self.browser = newcomer.id, newcomer.browser
        self.authenticate(newcomer.grants)
        if newcomer._attributes is not None:  # the policy noted there who the client is
            self.attributes.update(newcomer._attributes)
        self.charge(newcomer.account, is_exempt=newcomer.is_exempt)
        self.credit = 0
        self.verdict = None
        self.connect_only = self.acknowledges or connect_only
        self.hold_delay = 0.0
        self.connect_id = self.connect_before = self.connecting = None  # its next client numbers its own connects
        self.answered = None
        self.move(Event.TAKEN_OVER)
        self.peer = peer

    def refuse(self, verdict: Verdict) -> None:
        """Its client has to log in again: no connect succeeds until then, and nothing but the replies may say why."""
        self.verdict = verdict
        self.connect_only = True
        self.advised_on = None

    # Where its client is

    def use_socket(self, socket: Peer | None) -> None:
        """Its messages go to this socket from here on, or to none."""
        self.socket = socket

    def leave_socket(self) -> None:
        """Its messages go to no socket any more, and its socket speaks for it no more."""
        if self.socket is not None and self.socket.session is self:
            self.socket.session = None
        self.socket = None

    def go_away(self) -> None:
        """Its client has been away for long: memory keeps of what is stored no more than its place."""
        self.answered = None
        self.mailbox.go_away()

    def forget_peer(self, peer: Peer) -> None:
        """This request, or socket, has ended."""
        if self.peer is peer:
            self.peer = None

    # Who it is

    def authenticate(self, grants: Grants | None) -> None:
        """Its token grants this."""
        self.grants = grants

    @property
    def is_operator(self) -> bool:
        """Whether its token makes an operator of it."""
        return self.grants is not None and self.grants.is_operator

    @property
    def subject(self) -> str:
        """Whose client it is, as its token or the policy's `Identity` says, also after a restart; empty if neither does."""
        return "" if self.grants is None else self.grants.subject

    def log_in(self, qos: ConnectQos) -> None:
        """Its login asks for this."""
        self.asked = qos if qos is NOTHING_ASKED else replace(qos, token=None, resume=None, nonce=None)

    @property
    def takes_ptp(self) -> bool:
        """Whether messages may be addressed to it."""
        return self.asked.ptp

    def use_name(self, name: str) -> None:
        """Be known by this name."""
        self.name = name

    def use_reply_id(self, reply_id: str) -> None:
        """Get answers on the channels of this ID."""
        self.reply_id = reply_id

    def wait_for_client(self, grace_ms: int | None) -> None:
        """Let its client be away for so long; None: as long as a connect may be."""
        self.grace_ms = grace_ms

    def restore(self, browser: str | None, reply_id: str, grants: Grants | None, *, acknowledges: bool) -> None:
        """It comes back from the store as its last login made it, and its client is away."""
        self.browser, self.reply_id = browser, reply_id
        self.acknowledges = self.connect_only = acknowledges
        self.mailbox.go_away()
        self.authenticate(grants)

    def remember(self, former: Session) -> None:
        """It was this one before the store was read again, which does not say what the application noted, when its client came
        last, and how it failed."""
        if former.id == self.id:  # of the same login: the policy may have noted there who the client is
            self._attributes = former._attributes
        self.added_at, self.last_seen = former.added_at, former.last_seen
        self.mailbox.remember(former.mailbox)

    # The store

    def promises(self) -> dict[str, bool]:
        """What logins and operators see of its messages: `update`, that they end as their receiver reports; and `durable`, that
        the store has them."""
        return {"update": self.mailbox.view().rules.tells, "durable": self.durable is not None}

    def charge_letters(self, payers: Payers) -> None:
        """Dead letters are charged to these accounts until the store has them."""
        if self.durable is not None:
            self.durable.payers = payers

    def join_store(self, durable: DurableSession) -> None:
        """The store has it, and this says what it is to receive."""
        self.mailbox.keep_in(StoreLedger(durable, self._broker.no_ledger.listener))
        self.durable, self.name = durable, durable.name

    def leave_store(self) -> None:
        """It is to receive nothing of the store any more."""
        self.mailbox.keep_in(self._broker.no_ledger)
        self.durable = None

    def recover_to(self, entry: Entry) -> None:
        """Its client knows that it misses nothing; this is the last of that."""
        self.mailbox.recover_to(entry)

    def take_turn(self, turn: int) -> None:
        """It gets a message that one of several receivers gets."""
        self.turn = turn

    # Its limits

    def charge(self, account: Account | None, *, is_exempt: bool) -> None:
        """This address pays for what it does."""
        self.account, self.is_exempt = account, is_exempt

    def charge_subject(self, subject: Account | None) -> None:
        """This subject does too."""
        self.subject_account = subject

    def charge_none(self) -> None:
        """It has ended, or is another client's."""
        self.account = self.subject_account = None

    def spend(self) -> bool:
        """Use one publish of its credit; False if there is none."""
        if self.credit > 0:
            self.credit -= 1
            return True
        return False

    def allow(self, credit: int) -> None:
        """Let it publish so often before its limits are asked again."""
        self.credit = credit


def stored_of(sessions: Iterable[Session]) -> list[DurableSession]:
    """What the store has of these sessions: of those that it does not have, nothing."""
    return [durable for each in sessions if (durable := each.durable) is not None]


def unstored_of(sessions: Iterable[Session]) -> list[Session]:
    """Those of the sessions that the store does not have."""
    return [each for each in sessions if each.durable is None]


class SessionPart:
    """What an extension keeps for one session; override what you need."""

    is_plain: ClassVar[bool] = False
    """Whether it has a short way for the connects of a waiting client: `takes` or, where bytes are compared, `expects` and
    `took_all`; and `answer`. It is used while the session has no other part."""

    def takes(self, session: Session, ext: Fields) -> bool:
        """A connect came that says nothing but this in `ext`, while nothing waits for the session. True: all is done that
        `rcv_meta` would do. False: nothing is done, and `rcv_meta` will be asked."""
        return False

    def expects(self, session: Session) -> bytes:
        """The `ext` of the next connect of a client that has got everything: the JSON, less the braces around it. Empty if that
        has no short way now."""
        return b""

    def took_all(self, session: Session) -> None:
        """A connect came with that `ext`: do what `takes` would do."""

    def answer(self, session: Session) -> bytes:
        """What the reply to such a connect says in `ext`: the JSON, less the braces around it."""
        return b""

    def rcv(self, session: Session, message: Message) -> bool:
        """A publish of this session came in."""
        return True

    def rcv_meta(self, session: Session, message: Message) -> bool:
        """A meta message of this session came in."""
        return True

    def send(self, session: Session, entries: list[Entry]) -> list[Entry]:
        """These entries leave for the client in one response: the ones that should, in their order. An entry is shared by
        all its receivers: replace, never change."""
        return entries

    def send_meta(self, session: Session, reply: Fields, message: Message) -> bool:
        """A meta reply to this session goes out."""
        return True
