"""What is agreed on with a client that upgrades, which websockets negotiates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from websockets.datastructures import Headers
from websockets.exceptions import NegotiationError
from websockets.extensions import Extension, ServerExtensionFactory
from websockets.extensions.permessage_deflate import PerMessageDeflate, ServerPerMessageDeflateFactory
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.typing import ExtensionParameter, Subprotocol
from websockets.utils import accept_key

from crewel.settings.server_settings import WebSocket
from crewel.transports.frame_reader import WINDOW_BITS, Parameters, frames_log
from crewel.transports.heads import Upgrade, headers_of

SWITCHING: Final = 101
_RESPONSE: Final = b"HTTP/1.1 101 Switching Protocols\r\n%b%bSec-WebSocket-Accept: %b\r\n\r\n"
_OWN_LINES: Final = ("Date", "Sec-WebSocket-Accept")
_KNOWN_KINDS: Final = 256
_KNOWN_LENGTH: Final = 2048  # bytes; with the number, the bound of what foreign heads can make the server remember


class Negotiated(NamedTuple):
    """What a client's upgrade is answered with."""

    lines: bytes
    """The headers of the answer that are the same for all clients of its kind."""
    deflate: Parameters | None
    """The parameters of permessage-deflate, if it was agreed on."""

    def answer(self, key: str, date: bytes) -> bytes:
        """The answer to a client with this key; `date` is the line of that header."""
        return _RESPONSE % (self.lines, date, accept_key(key).encode())


class Upgrades:
    """What is agreed on with clients, asked of websockets once for all that upgrade alike."""

    def __init__(self, settings: WebSocket) -> None:
        self._protocol = settings.protocol
        self._extensions = [_Deflate()] if settings.compression else None
        self.known: dict[bytes, Negotiated] = {}

    def answer(self, request: Request) -> tuple[Response, Parameters | None]:
        """The answer to this request, which may be a refusal, and the parameters of permessage-deflate if it was agreed on."""
        handshake = _Handshake(self._protocol, self._extensions)
        response = handshake.accept(request)
        deflate = next((each for each in handshake.extensions if isinstance(each, PerMessageDeflate)), None)
        return response, None if deflate is None else _parameters(deflate)

    def negotiated(self, head: bytes, upgrade: Upgrade) -> Negotiated | None:
        """What is agreed on with a client whose upgrade has this head; None if it is refused."""
        known = self.known.get(upgrade.plain) if upgrade.key else None
        if known is not None:
            return known
        response, deflate = self.answer(Request("", Headers(headers_of(head).items())))
        if response.status_code != SWITCHING:
            return None
        lines = "".join(
            f"{name}: {value}\r\n" for name, value in response.headers.raw_items() if name not in _OWN_LINES
        )
        negotiated = Negotiated(lines.encode(), deflate)
        if len(upgrade.plain) <= _KNOWN_LENGTH:
            if len(self.known) >= _KNOWN_KINDS:
                self.known.clear()  # what is in use is back after one upgrade
            self.known[upgrade.plain] = negotiated
        return negotiated


class _Handshake(ServerProtocol):
    """websockets' own, but for the names of sub-protocols: Bayeux has `bayeux/1.0`, which is not a token."""

    def __init__(self, wanted: str | None, extensions: Sequence[ServerExtensionFactory] | None) -> None:
        super().__init__(extensions=extensions, logger=frames_log)
        self._wanted = wanted

    def process_subprotocol(self, headers: Headers) -> Subprotocol | None:
        """The sub-protocol if one is wanted. Raises NegotiationError if it is not offered, or offers cannot be read."""
        offers = ",".join(headers.get_all("Sec-WebSocket-Protocol"))
        if not offers.isascii():
            raise NegotiationError("Sec-WebSocket-Protocol must be ASCII")
        if not self._wanted:
            return None
        if self._wanted not in map(str.strip, offers.split(",")):
            raise NegotiationError(f"this server speaks the sub-protocol {self._wanted} only")
        return Subprotocol(self._wanted)


class _Deflate(ServerPerMessageDeflateFactory):
    """permessage-deflate, in any form in which the peer can read the compressed frames that all receivers share."""

    def __init__(self) -> None:
        # No context is kept between messages, in either direction: a window for each socket would be most of its memory.
        super().__init__(
            server_no_context_takeover=True, client_no_context_takeover=True, server_max_window_bits=WINDOW_BITS
        )

    def process_request_params(
        self, params: Sequence[ExtensionParameter], accepted_extensions: Sequence[Extension]
    ) -> tuple[list[ExtensionParameter], PerMessageDeflate]:
        """Answer an offer. Raises NegotiationError to decline it."""
        answer, deflate = super().process_request_params(params, accepted_extensions)
        if deflate.local_max_window_bits < WINDOW_BITS:
            raise NegotiationError("the window is too small")
        return answer, deflate


def _parameters(deflate: PerMessageDeflate) -> Parameters:
    takeovers = deflate.remote_no_context_takeover, deflate.local_no_context_takeover
    return *takeovers, deflate.remote_max_window_bits, deflate.local_max_window_bits
