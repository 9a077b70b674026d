"""What is agreed on with a client that upgrades, which websockets negotiates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from websockets.extensions.base import ServerExtensionFactory
from websockets.extensions.permessage_deflate import PerMessageDeflate, ServerPerMessageDeflateFactory
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from crewel.settings.server_settings import WebSocket
from crewel.transports.frame_reader import WINDOW_BITS, Parameters, frames_log

_SWITCHING: Final = 101
_OWN_LINES: Final = ("Date", "Sec-WebSocket-Accept")
_KNOWN_KINDS: Final = 256
_KNOWN_LENGTH: Final = 2048  # bytes; with the number, the bound of what foreign heads can make the server remember


class Negotiated(NamedTuple):
    """What a client's upgrade is answered with."""

    lines: bytes
    """The headers of the answer that are the same for all clients of its kind."""
    deflate: Parameters | None
    """The parameters of permessage-deflate, if it was agreed on."""


def negotiate(
    head: bytes, extensions: Sequence[ServerExtensionFactory] | None, protocols: Sequence[Subprotocol] | None
) -> Negotiated | None:
    """What is agreed on with a client whose upgrade has this head; None if aiohttp has to answer it."""
    protocol = ServerProtocol(extensions=extensions, subprotocols=protocols, logger=frames_log)
    protocol.receive_data(head)
    response = next(
        (protocol.accept(event) for event in protocol.events_received() if isinstance(event, Request)), None
    )
    if response is None or response.status_code != _SWITCHING:
        return None
    deflate = next((each for each in protocol.extensions if isinstance(each, PerMessageDeflate)), None)
    if deflate is not None and deflate.local_max_window_bits < WINDOW_BITS:
        return None  # the peer cannot read the compressed frames that all receivers share
    lines = "".join(f"{name}: {value}\r\n" for name, value in response.headers.raw_items() if name not in _OWN_LINES)
    return Negotiated(lines.encode(), None if deflate is None else _parameters(deflate))


def _parameters(deflate: PerMessageDeflate) -> Parameters:
    takeovers = deflate.remote_no_context_takeover, deflate.local_no_context_takeover
    return *takeovers, deflate.remote_max_window_bits, deflate.local_max_window_bits


class Upgrades:
    """What is agreed on with clients, asked of websockets once for all that upgrade alike."""

    def __init__(self, settings: WebSocket) -> None:
        self._protocols = [Subprotocol(settings.protocol)] if settings.protocol else None
        # No context is kept between messages, in either direction: a window for each socket would be most of its memory.
        deflate = ServerPerMessageDeflateFactory(
            server_no_context_takeover=True, client_no_context_takeover=True, server_max_window_bits=WINDOW_BITS
        )
        self._extensions = [deflate] if settings.compression else None
        self.known: dict[bytes, Negotiated] = {}

    def negotiated(self, head: bytes, kind: bytes) -> Negotiated | None:
        """What is agreed on with a client whose upgrade has this head; None if aiohttp has to answer it. `kind` is the head
        without what differs between clients of one kind."""
        known = self.known.get(kind)
        if known is not None:
            return known
        negotiated = negotiate(head, self._extensions, self._protocols)
        if negotiated is not None and len(kind) <= _KNOWN_LENGTH:
            if len(self.known) >= _KNOWN_KINDS:
                self.known.clear()  # what is in use is back after one upgrade
            self.known[kind] = negotiated
        return negotiated
