"""The callback-polling transport: a GET whose answer is a script that calls a function (JSONP). Off unless it is listed
in `bayeux.transports`: any page can load a script, so the origin rule and these protections are all that guards it.

The answer begins with a comment, is never sniffed as anything else, is a download if opened by itself, and has no
character that ends a line in JavaScript but not in JSON.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aiohttp import web

from crewel.bayeux.codec import join
from crewel.errors import PayloadError
from crewel.transports.bodies import elements_of_values
from crewel.transports.requests import RequestPeer, refused

if TYPE_CHECKING:
    from crewel.transports.endpoint import Endpoint
    from crewel.transports.origins import Client

_HEADERS = {
    "Cache-Control": "no-cache, no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Disposition": "attachment; filename=f.txt",
}
_NAME = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


class CallbackPeer(RequestPeer):
    """A GET with the name of a function. Only connect replies carry messages: a script cannot be told from another."""

    __slots__ = ("_function",)

    transport = "callback-polling"
    connect_only = True

    def __init__(self, endpoint: Endpoint, request: web.Request, client: Client, function: str) -> None:
        super().__init__(endpoint, request, client)
        self._function = function

    def payload(self, parts: list[bytes]) -> web.Response:
        """The call of the function with these messages."""
        json = join(parts).replace("\u2028".encode(), b"\\u2028").replace("\u2029".encode(), b"\\u2029")
        script = b"/**/" + self._function.encode() + b"(" + json + b");"
        return web.Response(body=script, content_type="text/javascript", charset="utf-8", headers=_HEADERS)


def function_name(request: web.Request, parameter: str, max_length: int) -> str | None:
    """The function to call; None if it is missing, given twice, too long, or no name."""
    values = request.query.getall(parameter, [])
    if len(values) != 1 or len(values[0]) > max_length or _NAME.fullmatch(values[0]) is None:
        return None
    return values[0]


async def answer(endpoint: Endpoint, request: web.Request, client: Client, function: str) -> web.Response:
    """Answer a GET that names a function."""
    settings = endpoint.settings
    try:
        elements = elements_of_values(request.query.getall("message", []), settings)
    except PayloadError as error:
        endpoint.broker.metrics.refused_payloads[error.fault.name.lower()] += 1
        return refused(error)
    peer = CallbackPeer(endpoint, request, client, function)
    endpoint.broker.inbound.receive(peer, elements)
    return await peer.answered()
