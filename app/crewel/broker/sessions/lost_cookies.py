"""Clients that do not keep the browser cookie: each connect is refused, and followed by another handshake.

Their sessions are of no use to them. So those end soon, the clients come less and less often, and the log says what helps.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from crewel.addresses import holder_of
from crewel.broker.exchange import Peer
from crewel.broker.mailboxes.session_times import SessionTimes
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session, State

log = logging.getLogger(__name__)

_FIRST_MS: Final = 250
_LONGEST_MS: Final = 60_000
_REMEMBERED_S: Final = 2 * _LONGEST_MS / 1000
"""How long after its last attempt a client counts as a new one."""
_MOST: Final = 1000
"""Addresses that are remembered; strangers can have any number."""
_LEFT_S: Final = 5.0
"""How long such a session waits for a connect with its cookie: anything that knows its `clientId` can send one without."""
_HANDSHAKEN: Final = State.HANDSHAKEN

_PAGE: Final = (
    "a page of the origin %s. Let the page send credentials; in a frame of a page of another site, set"
    " bayeux.cookie_same_site=none and bayeux.cookie_partitioned=true, and serve https"
)
_PAGE_OF_ANOTHER_SITE: Final = (
    "a page of the origin %s, which is of another site. Its browser blocks the cookies of other sites: leave"
    " bayeux.cookie_same_site unset, or set bayeux.cookie_partitioned=true"
)
_PAGE_WITHOUT_ORIGIN: Final = (
    "a page of the origin 'null', such as one in a sandboxed frame. No session is bound to that origin: add allow-same-origin"
    " to the sandbox of the frame, or set bayeux.cookie_same_site=none and bayeux.cookie_partitioned=true, and serve https"
)
_SCRIPT: Final = (
    "a script of a page of another site. Let bayeux.transports have long-polling, and http.allowed_origins the origin of the"
    " page"
)
_PROGRAM: Final = "a program. Let it keep cookies, or set bayeux.trust_client_session=true"


@dataclass(eq=False)
class LostCookies:
    """Those of one server."""

    _runtime: Runtime
    _times: SessionTimes
    _attempts: OrderedDict[str, tuple[int, float]] = field(default_factory=OrderedDict, init=False)
    """By address: how many there were in a row, and when the last one came, as loop time (s)."""
    _logged: set[str] = field(default_factory=set, init=False)

    def refuse(self, session: Session, peer: Peer) -> int:
        """A connect of this session is refused because of its cookie. Returns for how many milliseconds its client should wait
        until it handshakes again."""
        if session.state is not _HANDSHAKEN or peer.pushes or peer.browser is not None:
            return 0  # it has had the cookie before, or this is another client
        self._runtime.metrics.lost_cookies += 1
        self._log(peer)
        # What an earlier client has left to the session waits until its own time ends.
        if session.asked.name is None and not session.subscriptions and not session.mailbox.view().depth:
            now = self._runtime.loop.time()
            session.end_by(now + _LEFT_S)
            self._times.wheel.put(session, now)
        return self._pause(holder_of(peer.remote))

    def _pause(self, holder: str) -> int:
        now = self._runtime.loop.time()
        count, at = self._attempts.pop(holder, (0, now))
        if now - at > _REMEMBERED_S:
            count = 0
        pause = min(_FIRST_MS << count, _LONGEST_MS)
        self._attempts[holder] = (count if pause == _LONGEST_MS else count + 1, now)
        if len(self._attempts) > _MOST:
            self._attempts.popitem(last=False)
        return pause

    def _log(self, peer: Peer) -> None:
        """Log what helps, once for each kind of client."""
        origin, site = peer.headers.get("origin"), peer.headers.get("sec-fetch-site")
        if origin == "null":
            found = _PAGE_WITHOUT_ORIGIN
        elif origin is not None:
            found = _PAGE_OF_ANOTHER_SITE if site == "cross-site" else _PAGE
        else:
            found = _SCRIPT if site == "cross-site" else _PROGRAM
        if found in self._logged:
            return
        self._logged.add(found)
        client = found.replace("%s", ascii((origin or "")[:100]))
        log.warning(
            "the connect of a new session came without the cookie that the reply to its handshake set, so the session cannot be"
            " used. The client is %s",
            client,
        )
