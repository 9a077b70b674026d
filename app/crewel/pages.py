"""What the server shows beside Bayeux: health, metrics, the extensions' browser halves, and the demos."""

from __future__ import annotations

from pathlib import Path

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from crewel.broker.broker import Broker

__all__ = ["mount_pages"]

_PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; connect-src 'self' ws: wss:; worker-src blob:; img-src 'self' data:; "
        "object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


class Pages:
    """The handlers, with the broker and the directories that they read."""

    def __init__(self, broker: Broker, static: Path, extensions: Path) -> None:
        self._broker = broker
        self._static = static
        self._extensions = extensions

    async def live(self, _: web.Request) -> web.Response:
        """The process answers."""
        return web.json_response({"status": "live"})

    async def ready(self, _: web.Request) -> web.Response:
        """The server takes all traffic; not while its store is away or full, while one of its tasks is down, or while it has
        no descriptors for connections; and not any more when it goes down or has lost its store."""
        broker = self._broker
        if broker.has_lost_store:
            return web.json_response({"status": "fenced", "store": broker.concerns["store"]()}, status=503)
        if broker.is_draining:
            return web.json_response({"status": "draining"}, status=503)
        found = {what: trouble for what, ask in broker.concerns.items() if (trouble := ask()) is not None}
        if found:
            return web.json_response({"status": "degraded", **found}, status=503)
        return web.json_response({"status": "ready"})

    async def metrics(self, _: web.Request) -> web.Response:
        """The figures for Prometheus."""
        await self._broker.letters.count()
        return web.Response(body=self._broker.metrics.exposition(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def extension(self, request: web.Request) -> web.StreamResponse:
        """The browser half of an extension."""
        path = self._extensions / f"{request.match_info['name']}.js"
        if not path.is_file():
            raise web.HTTPNotFound(text=f"there is no extension script {path.name}")
        return web.FileResponse(path, headers={"Content-Type": "text/javascript; charset=utf-8"})

    async def file(self, request: web.Request) -> web.StreamResponse:
        """What several pages share. Named one by one: in a checkout, the directory holds npm's files too."""
        return web.FileResponse(self._static / request.match_info["name"])

    async def index(self, _: web.Request) -> web.StreamResponse:
        """The page that introduces the demos."""
        return web.FileResponse(self._static / "index.html")

    async def chat(self, _: web.Request) -> web.StreamResponse:
        """The chat demo."""
        return web.FileResponse(self._static / "chat" / "index.html")


def mount_pages(app: web.Application, broker: Broker, static: Path, extensions: Path) -> None:
    """Serve the pages in this application; the demos only if `http.demos` says so."""
    pages = Pages(broker, static, extensions)
    app.router.add_get("/health/live", pages.live)
    app.router.add_get("/health/ready", pages.ready)
    app.router.add_get("/metrics", pages.metrics)
    app.router.add_get("/extensions/{name:[a-z-]+}.js", pages.extension)
    if broker.settings.http.demos:
        app.router.add_get("/", pages.index)
        app.router.add_get("/chat/", pages.chat)
        app.router.add_get("/chat", _to_chat)
        app.router.add_get("/static/{name:style\\.css|icon\\.svg}", pages.file)
        for directory in ("chat", "vendor"):
            if (static / directory).is_dir():
                app.router.add_static(f"/static/{directory}/", static / directory)
    app.on_response_prepare.append(_protect)


async def _to_chat(_: web.Request) -> web.Response:
    raise web.HTTPMovedPermanently("/chat/")


async def _protect(_: web.Request, response: web.StreamResponse) -> None:
    if response.content_type in ("text/html", "text/javascript", "application/javascript", "text/css"):
        for name, value in _PAGE_HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.setdefault("Cache-Control", "no-cache")
