"""One payload of a client on its way through the broker: who sent it, the replies so far, and the connect that waits.

Transports subclass `Peer`; services read it.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from asyncio import WriteTransport
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from crewel.bayeux.channel import Channel
from crewel.bayeux.codec import encode, encode_plain
from crewel.bayeux.message import Fields, Message
from crewel.bayeux.replies import Reply
from crewel.broker.handler_steps import Promise
from crewel.errors import BayeuxCode, Refused
from crewel.errors.codes import CODES
from crewel.metrics import Metrics

if TYPE_CHECKING:
    from crewel.broker.session import Session
    from crewel.settings.server_settings import Bayeux

log = logging.getLogger(__name__)

CONNECT_CHANNEL: Final = Channel("/meta/connect", ["meta", "connect"])
CONNECTED: Final = b'{"channel":"/meta/connect","successful":true,"id":"%b"}'
"""The reply to a bare connect that has nothing else to tell."""
CONNECTED_WITH: Final = CONNECTED[:-1] + b',"ext":{%b}}'
"""The reply to a bare connect of a session with a part that adds fields to `ext`, with the JSON of these."""

_MAX_LOGGED: Final = 100
"""Characters of a channel in the log, which a client has chosen."""


class Forwarded(Protocol):
    """What takes a request, or a socket, to the node that has its session."""

    def gone(self) -> None:
        """The client has gone."""

    def half_closed(self) -> None:
        """The client sends no more."""

    def caught_up(self) -> None:
        """The client takes again what it is sent."""


class Peer(ABC):
    """One HTTP request (answered once), or one WebSocket (sent to at any time)."""

    __slots__ = ("browser", "is_writable", "mints_cookie", "relay", "session", "writer")

    transport: ClassVar[str] = ""
    """The connection type by its name on the wire."""
    pushes: ClassVar[bool] = False
    """Whether messages may be sent at any time and not only as the answer to a request."""
    connect_only: ClassVar[bool] = False
    """Whether only connect replies may carry messages on this transport."""
    is_half_closed: bool = False
    """Whether the client of a request is known to send no more. It may be gone, so no connect is held for it."""
    frame: Callable[[list[bytes]], bytes]
    """Makes one frame of ready messages, where there is a writer: the same object for all peers that share frames."""

    def __init__(self, browser: str | None) -> None:
        self.browser = browser
        """The value of the browser cookie, or the text that stands for a page of another site (`browsers.bound_to`); None if
        the request has neither."""
        self.mints_cookie = False
        """Whether the answer must set the cookie to `browser`."""
        self.session: Session | None = None
        """The session whose connect this request holds, or that this socket speaks for."""
        self.is_writable = True
        """Whether the peer takes what it is sent; False while a socket's reader has fallen behind."""
        self.relay: Forwarded | None = None
        """Set while another node has its session."""
        self.writer: WriteTransport | None = None
        """Where a frame may be written without asking the peer. None: messages go through `send`."""

    def recognise(self, browser: str) -> None:
        """This is the session's text of the request's browser cookie."""
        self.browser = browser

    def mint(self, browser: str) -> None:
        """Let the answer set this browser cookie."""
        self.browser, self.mints_cookie = browser, True

    @abstractmethod
    def send(self, parts: list[bytes]) -> None:
        """Send these ready messages as one payload: the whole response of a request, one frame of a socket."""

    @abstractmethod
    def supersede(self) -> None:
        """A newer connect has taken the place of the one that this request holds: end it without a Bayeux body. A socket
        stays open and says nothing."""

    def slow_down(self, seconds: float) -> None:  # noqa: B027 - not every connection can
        """Take nothing more from the client for so long, if the connection is its own: it asks for more than it may have."""

    def cut_off(self) -> None:  # noqa: B027 - not every connection can
        """Break the connection: the outcome of the request is unknown, and no answer may say that it is known."""

    def end_well(self) -> None:  # noqa: B027 - a request ends with its answer
        """Close a socket behind what it was sent last."""

    @property
    def is_gone(self) -> bool:
        """Whether the connection has ended: what is sent arrives nowhere."""
        return False

    @property
    @abstractmethod
    def headers(self) -> Mapping[str, str]:
        """The headers of the request (of a socket: of its upgrade)."""

    @property
    @abstractmethod
    def remote(self) -> str | None:
        """The address of the client, through trusted proxies."""

    @property
    @abstractmethod
    def is_secure(self) -> bool:
        """Whether the client came by TLS, through trusted proxies."""


class Held:
    """A held connect. It waits for long, and many do: what it keeps is memory, and has left the caches when it is needed.
    So of a bare connect (a connect that says what it must, and nothing else) only the id is kept."""

    __slots__ = ("advise", "deadline", "not_before", "peer", "reply", "request", "twin")

    def __init__(
        self,
        peer: Peer,
        request: Message | bytes,
        reply: Reply | None,
        deadline: float,
        not_before: float = 0.0,
        advise: bool = False,
    ) -> None:
        self.peer = peer
        self.request = request
        """The message; of a bare connect, its id."""
        self.reply = reply
        """The reply as it stands; None of a plain connect, whose reply is made when it is answered."""
        self.deadline = deadline
        """Loop time (s) at which it is answered even if nothing has come."""
        self.not_before = not_before
        """Loop time (s) before which it is not answered, whatever comes (`SessionPart`s slow a futile client down)."""
        self.advise = advise
        self.twin: Peer | None = None
        """A second request that brought the very same connect, and gets the same answer."""

    def message(self, session: Session) -> Message:
        """The message; that of a bare connect as it was."""
        request = self.request
        if isinstance(request, bytes):
            message_id = request.decode()
            names = {"connectionType": self.peer.transport, "clientId": session.id, "id": message_id}
            request = Message({"channel": CONNECT_CHANNEL.name, **names}, CONNECT_CHANNEL, message_id)
        return request


class Exchange(Promise[bool]):
    """A request or frame that is being answered. The session of its first message is the session of the whole of it. If it
    has to wait for something, it is the promise of its answer."""

    __slots__ = (
        "advise",
        "ahead",
        "connect",
        "connect_then",
        "elements",
        "handshake",
        "has_waited",
        "is_busy",
        "login",
        "overload",
        "peer",
        "repeated",
        "replies",
        "session",
        "waits",
        "was_connected",
    )

    session: Session | None
    connect: Reply | None
    """The successful connect reply among the replies."""
    handshake: Reply | None
    """The successful handshake reply among them."""
    login: Fields | None
    """What the handshake reply reports of the session, in `ext.session`, if it was asked."""
    was_connected: bool
    """Whether the session had connected before: the first connect is answered at once."""
    advise: bool
    """Whether the connect reply tells the advice."""
    is_busy: bool
    """Whether its connect says that the client has no room for messages now."""
    has_waited: bool
    """Whether something had to be waited for, so that a later request may have been handled before."""
    connect_then: str | None
    """The session's last connect when that wait began."""
    repeated: list[bytes] | None
    """The answer to the handshake that this one is a copy of."""
    waits: Session | None
    """The session, while something is waited for: as it was at first, for a refused handshake takes it away."""
    overload: Refused | None
    """Why it may not publish on channels with far too much pending: it has waited for that in vain."""
    ahead: deque[tuple[Message | None, Any, Any]] | None
    """The messages after the one that is waited for that were begun already, each with its handler and what that waits for; or
    with its reply, and None."""

    def __init__(self, peer: Peer, elements: list[Any]) -> None:
        self.peer = peer
        self.elements = elements
        self.replies: list[tuple[Reply, Message | None]] = []
        """The replies with their requests, which the extensions see again when the reply leaves; an element that is not
        a message has none."""
        self.session = self.connect = self.handshake = self.login = None
        self.was_connected = self.advise = self.has_waited = self.is_busy = False
        self.connect_then = self.repeated = self.waits = self.overload = self.ahead = None

    def wait(self) -> None:
        """Something has to be waited for. What reaches the session until the answer goes with the answer, and wakes nothing."""
        self._function = self.result = None  # no exchange that waits for nothing needs them
        self.has_waited = True
        if self.session is not None:
            self.connect_then = self.session.connect_id
            self.waits = self.session
            self.session.requests += 1

    def resume(self) -> None:
        """All has come that was waited for."""
        if self.waits is not None:
            self.waits.requests -= 1
            self.waits = None

    def is_overtaken(self, session: Session, connect_id: str | None) -> bool:
        """Whether its connect, with this id, had to wait for something, and the session's client has sent another one since."""
        if not self.has_waited or self.peer.pushes:
            return False
        return session.connect_id not in (None, connect_id, self.connect_then)

    def carries_messages(self, session: Session, settings: Bayeux) -> bool:
        """Whether the messages that wait for the session go out with the answer."""
        if self.peer.is_gone:
            return False  # it went while its request waited for something
        if self.handshake is not None:
            return settings.allow_message_delivery_during_handshake
        if self.connect is not None and self.is_overtaken(session, self.connect.get("id")):
            return False
        if self.is_busy and session.is_live:
            return False
        if self.connect is not None or not session.is_live:
            return True
        return not (session.connect_only or self.peer.connect_only)


def encode_reply(reply: Reply, metrics: Metrics) -> bytes:
    """The reply's JSON; a failure is counted by its code. What JSON cannot say becomes an internal error."""
    if not reply["successful"] and "error" in reply:
        code = reply["error"][:3]
        metrics.errors[code] += 1
        channel = str(reply.get("channel", ""))
        if not channel.startswith("/meta/"):
            metrics.refused_publishes[code] += 1
            reason = reply["error"].rpartition(":")[2]
            metrics.refused_publish_reasons[reason if reason in CODES else "other"] += 1
            metrics.refused_channels[code] = channel[:_MAX_LOGGED]
    try:
        return encode_plain(reply)
    except TypeError:
        pass
    try:
        return encode(reply)
    except TypeError:
        log.exception("a policy or an extension put a value into a reply that JSON cannot represent")
        plain = {name: reply[name] for name in ("channel", "id") if name in reply}
        return encode(plain | {"successful": False, "error": BayeuxCode.INTERNAL_ERROR})
