"""The other end of a request or a socket, as the broker sees it. Transports subclass `Peer`; services read it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from crewel.broker.sessions import Session


class Peer(ABC):
    """One HTTP request (answered once), or one WebSocket (sent to at any time)."""

    __slots__ = ("browser", "is_writable", "mints_cookie", "session")

    transport: ClassVar[str] = ""
    """The connection type by its name on the wire."""
    pushes: ClassVar[bool] = False
    """Whether messages may be sent at any time and not only as the answer to a request."""
    connect_only: ClassVar[bool] = False
    """Whether only connect replies may carry messages on this transport."""

    def __init__(self, browser: str | None) -> None:
        self.browser = browser
        """The value of the browser cookie, None if the request has none."""
        self.mints_cookie = False
        """Whether the answer must set the cookie to `browser`."""
        self.session: Session | None = None
        """The session whose connect this request holds, or that this socket speaks for."""
        self.is_writable = True
        """Whether the peer takes what it is sent; False while a socket's reader has fallen behind."""

    @abstractmethod
    def send(self, parts: list[bytes]) -> None:
        """Send these ready messages as one payload: the whole response of a request, one frame of a socket."""

    @abstractmethod
    def supersede(self) -> None:
        """A newer connect has taken the place of the one that this request holds: end it without a Bayeux body. A socket
        stays open and says nothing."""

    def slow_down(self, seconds: float) -> None:  # noqa: B027 - not every connection can
        """Take nothing more from the client for so long, if the connection is its own: it asks for more than it may have."""

    @property
    def is_gone(self) -> bool:
        """Whether the connection has ended: nobody hears what is sent."""
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
