"""What the server shows beside Bayeux: health, metrics, the extensions' browser halves, and the demos."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from crewel.broker.broker import Broker
from crewel.version import VERSION

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_PACKAGE: Final = Path(__file__).resolve().parent
STATIC: Final = (_PACKAGE / "static").resolve()
"""The directory of the pages: index.html, style.css, chat/, vendor/. In a checkout it is a link, in a wheel a directory:
the same expression finds both."""
EXTENSIONS: Final = {file.stem: file for file in (_PACKAGE / "extensions").resolve().glob("*.js")}
"""The extensions' browser halves by name: `update` is update.js."""
VENDORED: Final = {
    file.relative_to(STATIC / "vendor").as_posix(): file for file in (STATIC / "vendor").rglob("*") if file.is_file()
}
"""The files of the client from npm, and of others that pages use, by their path below `/static/vendor/`."""

_PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; connect-src 'self' ws: wss:; worker-src blob:; img-src 'self' data:; "
        "object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}

_SHARED = {"Access-Control-Allow-Origin": "*"}
"""For the modules of the client: pages of other origins may import them, as they are public and the same for everyone."""
_CLIENT = "/static/vendor/"
_CHAT = STATIC / ("chat/index.html" if "cometd/cometd.js" in VENDORED else "without-client.html")
"""The chat, or the page that says how to get the client which the chat needs: only a published package must have it."""


def mount_health(app: web.Application, broker: Broker) -> None:
    """Serve `/health/live`, the process answers with its version, and `/health/ready`, the server takes all traffic. It is not
    ready while its store is away or full, while one of its tasks is down, or while it has no descriptors for connections. It is
    never ready again when it goes down or has lost its store."""

    async def live(_: web.Request) -> web.Response:
        return web.json_response({"status": "live", "version": VERSION})

    async def ready(_: web.Request) -> web.Response:
        # Before `draining`: an operator must see why the server goes down.
        if broker.has_lost_store:
            return web.json_response({"status": "fenced", "store": broker.runtime.life.concerns["store"]()}, status=503)
        if broker.runtime.life.is_draining:
            return web.json_response({"status": "draining"}, status=503)
        found = {what: trouble for what, ask in broker.runtime.life.concerns.items() if (trouble := ask()) is not None}
        if found:
            return web.json_response({"status": "degraded", **found}, status=503)
        return web.json_response({"status": "ready"})

    app.router.add_get("/health/live", live)
    app.router.add_get("/health/ready", ready)


async def figures(broker: Broker) -> bytes:
    """What this process counts, for Prometheus."""
    await broker.dead_letters.notifier.count()
    await broker.metrics.measure()
    return broker.metrics.exposition()


def mount_metrics(app: web.Application, broker: Broker, join: Callable[[bytes], Awaitable[bytes]]) -> None:
    """Serve the figures for Prometheus at `/metrics`. `join` makes of those of this process those of the whole server."""

    async def metrics(_: web.Request) -> web.Response:
        text = await join(await figures(broker))
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app.router.add_get("/metrics", metrics)


def mount_extensions(app: web.Application) -> None:
    """Serve the browser halves of the extensions, by name, at `/extensions/`, and the client that they extend at
    `/static/vendor/`."""

    async def extension(request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        path = EXTENSIONS.get(name)
        if path is None:
            raise web.HTTPNotFound(text=f"there is no extension script {name}.js")
        return _public(path, {"Content-Type": "text/javascript; charset=utf-8"})

    app.router.add_get("/extensions/{name:[a-z-]+}.js", extension)

    async def vendored(request: web.Request) -> web.StreamResponse:
        path = VENDORED.get(request.match_info["path"])
        if path is None:
            hint = "" if VENDORED else ": the browser client is not installed, `crewel pages` fetches it"
            raise web.HTTPNotFound(text=f"there is no {request.path}{hint}")
        return _public(path, {})

    app.router.add_get(_CLIENT + "{path:.+}", vendored)


def _public(path: Path, headers: dict[str, str]) -> web.FileResponse:
    response = web.FileResponse(path, headers=_SHARED | headers)
    _protect(response)
    return response


def mount_demos(app: web.Application) -> None:
    """Serve the page of first steps at `/`, the chat at `/chat/`, and their own files at `/static/`."""

    def page(file: Path) -> Handler:
        async def send(_: web.Request) -> web.StreamResponse:
            text = await asyncio.to_thread(file.read_text, "utf-8")
            return web.Response(text=text.replace("{{version}}", VERSION), content_type="text/html", charset="utf-8")

        return send

    def asset(file: Path) -> Handler:
        async def send(_: web.Request) -> web.StreamResponse:
            return web.FileResponse(file)

        return send

    app.router.add_get("/", page(STATIC / "index.html"))
    app.router.add_get("/chat/", page(_CHAT))
    app.router.add_get("/chat", _to_chat)
    for name in ("style.css", "icon.svg"):  # one by one: in a checkout, the directory holds npm's files too
        app.router.add_get(f"/static/{name}", asset(STATIC / name))
    app.router.add_static("/static/chat/", STATIC / "chat")


async def _to_chat(_: web.Request) -> web.Response:
    raise web.HTTPMovedPermanently("/chat/")


async def protect_pages(_: web.Request, response: web.StreamResponse) -> None:
    """Give pages and scripts the headers that keep them to themselves; a signal handler for `on_response_prepare`."""
    if response.content_type in ("text/html", "text/javascript", "application/javascript", "text/css"):
        _protect(response)


def _protect(response: web.StreamResponse) -> None:
    for name, value in _PAGE_HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-cache")
