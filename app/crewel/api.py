"""`POST /api/publish`: publishing for back ends that have no Bayeux client.

One message or a list of them, with the fields of a Bayeux publish; the answer is the list of replies. A bearer token is
always asked for: the admin token, or with `security.policy=jwt` one that grants the channel.
"""

from __future__ import annotations

from aiohttp import web

from crewel.bayeux.codec import encode
from crewel.broker.broker import Broker
from crewel.broker.posting import post
from crewel.errors import PayloadError
from crewel.security.bearer import grants_of
from crewel.security.jwt import BadToken
from crewel.transports.bodies import elements_of, media_type, read_body
from crewel.transports.requests import refused

__all__ = ["PATH", "mount_api"]

PATH = "/api/publish"


class Api:
    """The face of one broker for back ends."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def publish(self, request: web.Request) -> web.Response:
        """Answer one request. Whoever shows no token gets 401 before the body is read."""
        try:
            authorization = request.headers.get("Authorization", "")
            grants = await grants_of(authorization, self._broker.logins.admin, self._broker.guard.policy)
        except BadToken as error:
            return _unauthorized(error)
        broker = self._broker
        if broker.has_lost_store:
            return web.Response(status=503, text="another server has taken the store of this one")
        try:
            body = await read_body(request, broker.settings)
            elements = elements_of(body, *media_type(request.headers.get("content-type", "")), broker.settings)
        except PayloadError as error:
            broker.metrics.refused_payloads[error.fault.name.lower()] += 1
            return refused(error)
        replies = await post(broker, grants, elements)
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
