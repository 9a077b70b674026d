"""Browsers, distinguished by a cookie: which of them may speak for a session, and how many connects each holds.

A browser keeps the cookie of a server from pages of other sites. Sessions of such pages are bound to the page's origin instead.
"""

from __future__ import annotations

from typing import Final

from crewel.broker.client_ids import new_secret
from crewel.broker.exchange import Peer
from crewel.broker.session import Session
from crewel.settings import Settings

_ORIGIN: Final = "origin:"
"""How a binding to an origin begins; no value of the cookie has a colon."""


def bound_to(origin: str) -> str:
    """The text that stands for a page of this origin where that of the cookie stands for a browser."""
    return _ORIGIN + origin


class Browsers:
    """The cookie binding, and the count of held connects a cookie."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.bayeux
        self._holding: dict[str, int] = {}
        self.has_limit = self._settings.max_sessions_per_browser >= 0
        """Whether connects need counting at all."""

    def bind_new(self, session: Session, peer: Peer) -> None:
        """Bind a new session to the cookie that its handshake carried, to the origin of its page, or to a new cookie. A socket
        without a cookie leaves the session open to the first HTTP request that shows its `clientId`."""
        if peer.browser is None and not peer.pushes:
            _mint(peer)
        session.browser = peer.browser

    def may_speak_for(self, session: Session, peer: Peer) -> bool:
        """Whether this request, or this socket, belongs to the session's browser; the first one with a cookie to use a session
        that was made without one binds it. A socket needs no cookie, for many clients send none with an upgrade, but that of
        another browser, or a page of another origin, is refused."""
        browser = session.browser
        if browser is not None and browser == peer.browser:
            if browser is not peer.browser:
                peer.recognise(browser)
            return True
        if peer.pushes and peer.browser is None:
            return browser is None or self._settings.trust_client_session or not _is_of_another_page(peer, browser)
        if session.browser is None:
            if peer.browser is None:
                _mint(peer)
            session.browser = peer.browser
        return self._settings.trust_client_session or session.browser == peer.browser

    def admits(self, session: Session) -> bool:
        """Whether one more connect of this browser may be held. Many browsers have a page of the same origin."""
        limit, browser = self._settings.max_sessions_per_browser, session.browser
        return limit < 0 or browser is None or self._holding.get(browser, 0) < limit or browser.startswith(_ORIGIN)

    def hold(self, session: Session) -> None:
        """Count a connect that is held over HTTP; there is no need to where nothing is limited."""
        browser = session.browser
        if browser is not None and self.has_limit:
            self._holding[browser] = self._holding.get(browser, 0) + 1

    def release(self, session: Session) -> None:
        """Count it no more."""
        if self._holding and session.browser is not None:
            left = self._holding.pop(session.browser, 0) - 1
            if left > 0:
                self._holding[session.browser] = left


def _is_of_another_page(socket: Peer, bound: str) -> bool:
    """Whether a page opened the socket, and the session is bound to pages of another origin. A program names none."""
    if not bound.startswith(_ORIGIN):
        return False
    origin = socket.headers.get("origin")
    return origin is not None and bound_to(origin) != bound


def _mint(peer: Peer) -> None:
    peer.mint(new_secret())
