"""`POST /api/publish`: publishing for back ends that have no Bayeux client.

One message or a list of them, with the fields of a Bayeux publish; the answer is the list of replies. A bearer token is
always asked for: the admin token, or with `security.policy=jwt` one that grants the channel.
"""

from __future__ import annotations

from aiohttp import web

from crewel.bayeux.codec import encode
from crewel.broker.broker import Broker
from crewel.errors import Limited, PayloadError
from crewel.security.bad_token import BadToken
from crewel.transports.bodies import elements_of, media_type, read_body
from crewel.transports.forwarded import TrustedProxies
from crewel.transports.http_aiohttp import refused, too_many

PATH = "/api/publish"


class Api:
    """The face of one broker for back ends."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._proxies = TrustedProxies(broker.settings)

    async def publish(self, request: web.Request) -> web.Response:
        """Answer one request. A request without a token gets 401 before its body is read."""
        broker = self._broker
        address = self._proxies.client(request.headers, request.remote, request.scheme).address
        try:
            grants = await broker.admission.limits.grants_of(request.headers.get("Authorization", ""), address)
        except BadToken as error:
            return _unauthorized(error)
        except Limited as error:
            return too_many(error)
        if broker.has_lost_store:
            return web.Response(status=503, text="another server has taken the store of this one")
        try:
            body = await read_body(request, broker.settings)
            elements = elements_of(body, *media_type(request.headers.get("content-type", "")), broker.settings)
        except PayloadError as error:
            broker.metrics.refused_payloads[error.fault.name.lower()] += 1
            return refused(error)
        try:
            replies = await broker.publishing.for_back_ends.post(grants, elements, address)
        except Limited as error:
            return too_many(error)
        return web.Response(
            body=encode(replies), content_type="application/json", headers={"Cache-Control": "no-store"}
        )


def _unauthorized(error: BadToken) -> web.Response:
    if error.code.startswith("resource."):
        return web.Response(status=503, text=str(error), headers={"Retry-After": "5"})
    response = web.Response(status=401, text=str(error), headers={"WWW-Authenticate": 'Bearer realm="crewel"'})
    response.force_close()  # the body is not worth reading
    return response


def mount_api(app: web.Application, broker: Broker) -> None:
    """Serve it in this application."""
    app.router.add_post(PATH, Api(broker).publish)
