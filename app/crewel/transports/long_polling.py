"""The long-polling transport: a POST with messages, answered with messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from crewel.errors import PayloadError
from crewel.transports.bodies import elements_of, media_type, read_body
from crewel.transports.requests import RequestPeer, refused

if TYPE_CHECKING:
    from crewel.transports.endpoint import Endpoint
    from crewel.transports.origins import Client


class LongPollingPeer(RequestPeer):
    """A POST."""

    __slots__ = ()

    transport = "long-polling"


async def answer(endpoint: Endpoint, request: web.Request, client: Client) -> web.Response:
    """Answer a POST; a connect may be held in here for as long as its hold lasts."""
    settings = endpoint.settings
    try:
        body = await read_body(request, settings)
        elements = elements_of(body, *media_type(request.headers.get("content-type", "")), settings)
    except PayloadError as error:
        endpoint.broker.metrics.refused_payloads[error.fault.name.lower()] += 1
        return refused(error)
    peer = LongPollingPeer(endpoint, request, client)
    endpoint.broker.inbound.receive(peer, elements)
    return await peer.answered()
