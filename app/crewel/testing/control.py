"""The control address of a server under test: the methods of `AsyncServer` over HTTP, for tests in other languages.

`ROUTES` is all there is. A request has a JSON object, and gets one; what goes wrong is `{"error": …}` with 400, 403, 404, 409
or 421. It asks for no token, so it obeys no web page but those that the settings name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final

from aiohttp import web

from crewel.errors import CrewelError, SettingsError
from crewel.settings import Settings
from crewel.testing.facades import AsyncServer, Condition
from crewel.transports.forwarded import TrustedProxies
from crewel.transports.origins import Hosts, Origins, is_loopback

Answer = Awaitable[Mapping[str, Any]]
Handler = Callable[[Any, dict[str, Any]], Answer]


async def _health(server: AsyncServer[Any], _: dict[str, Any]) -> Mapping[str, Any]:
    return {"up": server.is_up, "url": server.url}


async def _state(server: AsyncServer[Any], _: dict[str, Any]) -> Mapping[str, Any]:
    return (await server.state()).as_json()


async def _publish(server: AsyncServer[Any], asked: dict[str, Any]) -> Mapping[str, Any]:
    channel, data = asked.pop("channel"), asked.pop("data", None)
    return {"id": await server.publish(channel, data, **asked)}


async def _wait(server: AsyncServer[Any], asked: dict[str, Any]) -> Mapping[str, Any]:
    return (await server.wait_for(_condition(asked), asked.get("timeout_ms", 10_000) / 1000)).as_json()


def _condition(asked: Mapping[str, Any]) -> Condition:
    if "channel" in asked:
        channel, count = asked["channel"], asked.get("subscribers", 1)
        return lambda state: state.subscribers(channel) == count
    connected = asked["connected"]
    return lambda state: state.connected == connected


async def _clock(server: AsyncServer[Any], asked: dict[str, Any]) -> Mapping[str, Any]:
    await server.advance(asked["advance"], keep_up=asked.get("keep_up", True))
    return await _state(server, {})


async def _letters(server: AsyncServer[Any], _: dict[str, Any]) -> Mapping[str, Any]:
    return {"letters": [letter.as_json() for letter in await server.letters()]}


async def _kill(server: AsyncServer[Any], _: dict[str, Any]) -> Mapping[str, Any]:
    await server.kill()
    return await _health(server, {})


async def _restart(server: AsyncServer[Any], _: dict[str, Any]) -> Mapping[str, Any]:
    await server.restart()
    return await _health(server, {})


Routes = Mapping[tuple[str, str], tuple[Handler, Collection[str] | None]]

ROUTES: Final[Routes] = {
    ("GET", "/health"): (_health, ()),
    ("GET", "/state"): (_state, ()),
    ("POST", "/publish"): (_publish, None),
    ("POST", "/wait"): (_wait, ("connected", "channel", "subscribers", "timeout_ms")),
    ("POST", "/clock"): (_clock, ("advance", "keep_up")),
    ("GET", "/letters"): (_letters, ()),
    ("POST", "/kill"): (_kill, ()),
    ("POST", "/restart"): (_restart, ()),
}
"""Method and path, what answers, and the fields that it takes; None if a method of the server checks them."""


def control_app(controlled: Any, settings: Settings, routes: Routes = ROUTES) -> web.Application:
    """The application of the control address of a server with these settings."""
    app = web.Application(middlewares=[_guard(settings)])
    for (method, path), (handler, fields) in routes.items():
        app.router.add_route(method, path, _answering(controlled, handler, fields))
    known = ", ".join(f"{method} {path}" for method, path in routes)

    async def unknown(request: web.Request) -> web.Response:
        return _refused(404, f"there is no {request.method} {request.path}; known are {known}")

    app.router.add_route("*", "/{path:.*}", unknown)
    return app


def _guard(settings: Settings) -> Any:
    """The middleware that refuses web pages as the server does. But what lets all pages or names talk to the server does not
    let them control it."""
    named = settings.model_copy(deep=True)
    named.http.allowed_origins = tuple(each for each in settings.http.allowed_origins if each != "*")
    named.http.allowed_hosts = tuple(each for each in settings.http.allowed_hosts if each != "*")
    hosts, origins, proxies = Hosts(named), Origins(named), TrustedProxies(named)
    hosts.on_loopback = is_loopback(settings.http.host)

    @web.middleware
    async def guard(request: web.Request, handler: Callable[[web.Request], Awaitable[web.Response]]) -> web.Response:
        for host in request.headers.getall("Host", ()):
            if not hosts.allows(host, request.remote):
                return _refused(421, f"the control address is not known as {host[:100]!a}: call it by its address")
        client = proxies.client(request.headers, request.remote, request.scheme)
        if not origins.allows(request.headers, client):
            return _refused(403, "requests from pages of this origin are not allowed")
        return await handler(request)

    return guard


def _answering(
    controlled: Any, handler: Handler, fields: Collection[str] | None
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        try:
            return web.json_response(await handler(controlled, _asked(await request.text(), fields)))
        except AssertionError as error:
            return _refused(409, str(error))
        except KeyError as error:
            return _refused(400, f"{error.args[0]} is missing")
        except (ValueError, TypeError, CrewelError, RuntimeError, OSError) as error:
            return _refused(400, str(error))

    return answer


def _asked(body: str, fields: Collection[str] | None) -> dict[str, Any]:
    """The JSON object of a request. Raises ValueError and TypeError for one that the route does not take."""
    try:
        asked = json.loads(body) if body.strip() else {}
    except ValueError as error:
        raise ValueError(f"the body is not JSON: {error}") from None
    if not isinstance(asked, dict):
        raise TypeError(f"expected a JSON object, got {body.strip()[:100]}")
    unknown = [] if fields is None else [name for name in asked if name not in fields]
    if unknown:
        known = f"known are {', '.join(fields)}" if fields else "it takes none"
        raise ValueError(f"there is no field {unknown[0]!r} here; {known}")
    return asked


def _refused(status: int, why: str) -> web.Response:
    return web.json_response({"error": why}, status=status)


async def serve_control(app: web.Application, host: str, port: int) -> tuple[web.AppRunner, str]:
    """Serve the control address; returns what is to be cleaned up in the end, and its URL. Raises SettingsError."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    shown = f"[{host}]" if ":" in host else host
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        why = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else error.strerror or error
        raise SettingsError(f"cannot serve the control address on {shown}:{port}: {why}") from None
    return runner, f"http://{shown}:{runner.addresses[0][1]}"
