"""Links between nodes: one connection for each pair and direction, dialled by the node that has something to forward.

A link sends what has been collected in one turn of the event loop at once. It ends if the introduction takes too long, and
later if nothing has come for some seconds, so that a peer that vanished without a word is noticed.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable
from math import inf
from typing import Final, Protocol, cast

from crewel.addresses import canonical
from crewel.errors import LinkError
from crewel.event_loop import GRACE_S, has_stalled
from crewel.nodes.frames import MOST_BYTES, Frame, FrameReader, Introduction, Kind, head
from crewel.nodes.strangers import INTRODUCTION_S, Strangers
from crewel.settings.storage import port_of

log = logging.getLogger(__name__)

_BEAT_S: Final = 1.0
_SILENCE_S: Final = 5.0
_DIAL_S: Final = 3.0
_MOST_UNSENT: Final = 4 << 20
"""Bytes that wait for the other node's reading; beyond that nothing more is taken that would be sent there."""
_ALL_ADDRESSES: Final = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound


class LinkUser(Protocol):
    """What links serve: requests that go out on them, or that come in."""

    def opened(self, link: Link) -> None:
        """The other node has proved itself."""

    def take(self, link: Link, frame: Frame) -> None:
        """A frame has come."""

    def caught_up(self, link: Link) -> None:
        """What had waited for the other node's reading has gone out."""

    def lost(self, link: Link) -> None:
        """The link has ended, after it was open."""


class Link(asyncio.Protocol):
    """One end of one link."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        introduction: Introduction,
        user: LinkUser,
        strangers: Strangers,
    ) -> None:
        """`strangers` counts it until the other end has proved itself."""
        self._loop = loop
        self._strangers = strangers
        self._introduction: Introduction | None = introduction
        self._user = user
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._heard_at = self._taken_at = 0.0
        """When something came; and when the other node had read some of what is sent to it, at the last look (loop time)."""
        self._waits = 0
        """Bytes that would wait now if it had taken none since that look."""
        self._timer: asyncio.TimerHandle | None = None
        self.own = introduction.own
        """This node's token when the link was made; it changes when the node begins again."""
        self.token = ""
        """The other node's."""
        self.is_clogged = False
        """Whether the other node does not read what it is sent."""
        self.is_open = False
        """Whether both nodes have proved themselves, and the connection lasts."""
        self.settled: asyncio.Future[None] = loop.create_future()
        """Done when the link is open, or has ended."""
        self.streams = 0
        """The number of the last stream that was opened on it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Introduce this node."""
        assert self._introduction is not None
        self._transport = wire = cast("asyncio.Transport", transport)
        wire.set_write_buffer_limits(high=_MOST_UNSENT)
        self._strangers.came(self, _address(wire))
        wire.write(self._introduction.hello)
        self._timer = self._loop.call_later(INTRODUCTION_S, self._too_late)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell the user, if the link was open."""
        was_open, self.is_open = self.is_open, False
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._strangers.left(self)
        if not self.settled.done():
            self.settled.set_result(None)
        if was_open:
            self._user.lost(self)

    def data_received(self, data: bytes) -> None:
        """Take the frames in it."""
        self._heard_at = self._loop.time()
        is_new = self._introduction is not None
        try:
            frames = self._reader.feed(data)
            while frames:
                for frame in frames:
                    if self._introduction is None:
                        self._user.take(self, frame)
                    else:
                        self._introduce(self._introduction, frame)
                # What comes in one piece with the proof, and behind it, may be longer.
                frames = self._reader.feed(b"") if is_new else []
        except LinkError as error:
            if self._introduction is None:
                log.warning("a node has sent %s: closing the link", error)
                self.end()
            else:
                self._refuse(str(error))
        except Exception:
            log.exception("cannot handle a frame of another node: closing the link")
            self.end()

    def _introduce(self, introduction: Introduction, frame: Frame) -> None:
        assert self._transport is not None
        reply = introduction.take(frame)
        if reply:
            self._transport.write(reply)
            return
        self.token, self._introduction = introduction.token, None
        self._reader.most_bytes, self.is_open = MOST_BYTES, True
        self._taken_at = self._heard_at
        self._strangers.left(self)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._next_beat(), self._beat)
        self._user.opened(self)
        if not self.settled.done():
            self.settled.set_result(None)

    def _too_late(self) -> None:
        """The introduction has taken too long."""
        timer = self._timer
        if timer is not None and has_stalled(timer.when(), self._loop.time()):
            self._timer = self._loop.call_later(
                GRACE_S, self._too_late
            )  # the rest may have come, and has not been read
        else:
            self._refuse(f"the other side has not proved itself within {INTRODUCTION_S:.0f} s")

    def _refuse(self, reason: str) -> None:
        self._strangers.refused(self, reason)
        self.end()

    def pause_writing(self) -> None:
        """The other node does not read: send nothing more that can wait."""
        self.is_clogged = True

    def resume_writing(self) -> None:
        """It reads again."""
        self.is_clogged = False
        self._taken_at = self._loop.time()
        self._user.caught_up(self)

    def pause_reading(self) -> None:
        """Take nothing more of the other node, until `resume_reading`."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take what comes again."""
        if self._transport is not None:
            self._heard_at = self._loop.time()
            self._transport.resume_reading()

    def send(self, kind: Kind, stream: int = 0, payload: bytes = b"") -> None:
        """Send this frame, with all others of this turn. Nothing happens if the link has ended."""
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent += (head(len(payload), kind, stream), payload)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._transport is not None:
            data = b"".join(unsent)
            if self.is_clogged:
                self._waits += len(data)
            self._transport.write(data)

    def end(self) -> None:
        """Close it at once."""
        if self._transport is not None:
            self._transport.abort()

    def _beat(self) -> None:
        transport, timer = self._transport, self._timer
        if transport is None or timer is None:
            return
        now, waits = self._loop.time(), transport.get_write_buffer_size()
        if waits < self._waits or not self.is_clogged:
            self._taken_at = now
        self._waits = waits
        # While this node does not read the other one, that has to read what it is sent.
        silent_since = self._heard_at if transport.is_reading() else self._taken_at
        # After a stall of this process, what the other node has sent has come and has not been read.
        if not has_stalled(timer.when(), now) and now - silent_since > _SILENCE_S:
            log.warning("a node has been silent for %.0f s: closing the link", now - silent_since)
            self.end()
            return
        self.send(Kind.PING)
        self._timer = self._loop.call_at(self._next_beat(), self._beat)

    def _next_beat(self) -> float:
        """When it beats next: all links of a machine do at the same moments, so that a process wakes once for all of them."""
        now = self._loop.time()
        return now + _BEAT_S + _BEAT_S / 2 - (now + _BEAT_S / 2) % _BEAT_S


def _address(wire: asyncio.Transport) -> str:
    peer = wire.get_extra_info("peername")
    return canonical(str(peer[0])) if isinstance(peer, tuple) else "here"


class _NotYet(asyncio.Protocol):
    """A connection to a node that cannot prove anything yet: the other one dials again."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        transport.close()


class OpenLinks:
    """The links of one node: those that it has dialled, and those that it has accepted."""

    def __init__(self, token: Callable[[], str]) -> None:
        """`token` gives this node's, which changes when it begins again."""
        self._token = token
        self._dialled: dict[str, Link] = {}
        self._accepted: set[Link] = set()
        self.secret = ""
        """What nodes of one store know; empty until it has been read, and so long no link opens."""

    def introduction(self, *, dials: bool, expected: str = "") -> Introduction:
        """With this, a new link proves which node this is; `expected` is the token of the node that it leads to."""
        return Introduction(self.secret, self._token(), secrets.token_hex(16), dials=dials, expected=expected)

    def to(self, token: str) -> Link | None:
        """The link to the node with this token, if it is open and not clogged."""
        link = self._dialled.get(token)
        return link if link is not None and link.is_open and not link.is_clogged else None

    def leads_to(self, token: str) -> bool:
        """Whether the link to the node with this token is open."""
        link = self._dialled.get(token)
        return link is not None and link.is_open

    def add_dialled(self, token: str, link: Link) -> None:
        """This link leads to the node with this token."""
        self._dialled[token] = link

    def add_accepted(self, link: Link) -> None:
        """Another node has dialled this link, and has to prove itself."""
        self._accepted.add(link)
        link.settled.add_done_callback(lambda _: None if link.is_open else self._accepted.discard(link))

    def accepted(self) -> list[Link]:
        """The open links that others have dialled."""
        self._accepted = {each for each in self._accepted if each.is_open or not each.settled.done()}
        return [each for each in self._accepted if each.is_open]

    def dialled(self) -> list[Link]:
        """The open links that this node has dialled."""
        self._dialled = {token: each for token, each in self._dialled.items() if each.is_open}
        return list(self._dialled.values())

    def end_former(self) -> None:
        """Close those by which others know this node under a token that it had before."""
        token = self._token()
        for link in (*self.dialled(), *self.accepted()):
            if link.own != token:
                link.end()

    def end(self) -> None:
        """Close all of them."""
        for link in (*self.dialled(), *self._accepted):
            link.end()


class Dialler:
    """Opens links to other nodes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, user: LinkUser, links: OpenLinks) -> None:
        self._loop = loop
        self._user = user
        self._links = links
        self._strangers = Strangers(loop, most=inf)  # there are no more than nodes
        self._dialling: dict[str, asyncio.Task[None]] = {}

    async def reach(self, token: str, address: str) -> bool:
        """Open the link to this node, unless it is open; returns whether it is now. Not more than one attempt at a time."""
        if self._links.leads_to(token):
            return True
        dialling = self._dialling.get(token)
        if dialling is None:
            dialling = self._dialling[token] = self._loop.create_task(self._dial(token, address))
            dialling.add_done_callback(lambda _: self._dialling.pop(token, None))
        await asyncio.shield(dialling)
        return self._links.leads_to(token)

    def made(self, token: str) -> Link:
        """A link that is to lead to the node with this token."""
        return Link(self._loop, self._links.introduction(dials=True, expected=token), self._user, self._strangers)

    async def _dial(self, token: str, address: str) -> None:
        host, _, port = address.rpartition(":")
        link = self.made(token)
        try:
            async with asyncio.timeout(_DIAL_S):
                await self._loop.create_connection(lambda: link, host.strip("[]"), int(port))
                await asyncio.shield(link.settled)
        except (OSError, ValueError, TimeoutError) as error:
            log.info("the node at %s cannot be reached: %s", address or "no address", error or "no answer in time")
        finally:
            if link.is_open:
                self._links.add_dialled(token, link)
            else:
                link.end()  # it may open later, and nothing would use or end it

    async def close(self) -> None:
        """Dial no more."""
        dialling = list(self._dialling.values())
        for task in dialling:
            task.cancel()
        await asyncio.gather(*dialling, return_exceptions=True)
        self._strangers.close()


class LinkListener:
    """Accepts the links that other nodes dial."""

    def __init__(self, loop: asyncio.AbstractEventLoop, user: LinkUser, links: OpenLinks) -> None:
        self._loop = loop
        self._user = user
        self._links = links
        self._strangers = Strangers(loop)
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Accept links there; returns the port. Raises OSError."""
        self._server = await self._loop.create_server(self._accept, host, port)
        address: tuple[str, int] = self._server.sockets[0].getsockname()
        return address[1]

    def _accept(self) -> asyncio.Protocol:
        if not self._links.secret:
            return _NotYet()
        link = self.made()
        self._links.add_accepted(link)
        return link

    def made(self) -> Link:
        """A link that another node has dialled."""
        return Link(self._loop, self._links.introduction(dials=False), self._user, self._strangers)

    def close(self) -> None:
        """Accept no more."""
        if self._server is not None:
            self._server.close()
        self._strangers.close()


def address_of(listen: str) -> tuple[str, int]:
    """Return host and port of `host:port`; an empty host is this machine alone. Raises ValueError."""
    host, _, port = listen.rpartition(":")
    return host.strip("[]") or "127.0.0.1", int(port or 0)


def advertised_address(host: str, port: int, advertise: str) -> str:
    """Return the address for the other nodes: `advertise`, with the port in use if it has none; else where it listens."""
    if not advertise:
        # There is no address in "all addresses": the name of the machine is the best guess.
        advertise = socket.gethostname() if host in _ALL_ADDRESSES else host
    elif port_of(advertise) is not None:
        return advertise
    if ":" in advertise and not advertise.startswith("["):
        advertise = f"[{advertise}]"
    return f"{advertise}:{port}"
