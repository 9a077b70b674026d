"""Where the client of a session is: how it is connected, from which address, and with which program."""

from __future__ import annotations

from typing import Final

from crewel.broker.exchange import Peer
from crewel.broker.session import Session
from crewel.limits import OVERFLOW

_SHOWN: Final = 200
"""Characters of how a program describes itself; strangers choose them."""


def transport_of(session: Session) -> str | None:
    """How its client is connected at the moment; None if no connect is held and no socket open."""
    peer = _peer(session)
    return None if peer is None else peer.transport


def address_of(session: Session) -> str:
    """The address of its client behind trusted proxies, as the limits take it. While the client is away, the address that it
    came from last, of IPv6 its network; empty if it has not come since the server started."""
    peer = _peer(session)
    if peer is not None and peer.remote is not None:
        return peer.remote
    account = session.account
    return "" if account is None or account.name == OVERFLOW else account.name


def program_of(session: Session) -> str:
    """What its client calls itself in `User-Agent`; empty while it is away."""
    peer = _peer(session)
    if peer is None:
        return ""
    # Some transports have the names of headers in lower case, in a plain dictionary.
    said = peer.headers.get("User-Agent") or peer.headers.get("user-agent", "")
    return said[:_SHOWN]


def _peer(session: Session) -> Peer | None:
    if session.socket is not None:
        return session.socket
    return None if session.held is None else session.held.peer
