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
from crewel.security.grants import OPERATOR, Grants
from crewel.security.jwt import BadToken, JwtPolicy
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
            grants = await self._granted(request)
        except BadToken as error:
            return _unauthorized(error)
        broker = self._broker
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

    async def _granted(self, request: web.Request) -> Grants:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise BadToken("a bearer token is asked for")
        if self._broker.logins.admin.matches(token):
            return OPERATOR
        policy = self._broker.guard.policy
        if not isinstance(policy, JwtPolicy):
            raise BadToken("this is not the admin token")
        return await policy.tokens.read(token)


def _unauthorized(error: BadToken) -> web.Response:
    if error.code.startswith("resource."):
        return web.Response(status=503, text=str(error), headers={"Retry-After": "5"})
    response = web.Response(status=401, text=str(error), headers={"WWW-Authenticate": 'Bearer realm="crewel"'})
    response.force_close()  # the body is not worth reading
    return response


def mount_api(app: web.Application, broker: Broker) -> None:
    """Serve it in this application."""
    app.router.add_post(PATH, Api(broker).publish)
