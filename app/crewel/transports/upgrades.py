"""What is agreed on with a client that upgrades, which websockets negotiates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from websockets.extensions.base import ServerExtensionFactory
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from crewel.transports.frame_reader import WINDOW_BITS, Parameters, frames_log

_SWITCHING: Final = 101
_OWN_LINES: Final = ("Date", "Sec-WebSocket-Accept")


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
