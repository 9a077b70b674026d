"""The operator's page at `/admin/`: its files, and the headers that let it do no more than it needs.

The page is the same for all; what it shows comes from `/admin/api`, with the cookie of an operator who has signed in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from crewel.pages import STATIC

ADDRESS: Final = "/admin/"
_FILES: Final = ADDRESS + "page/"
_FEED: Final = "vendor/cometd"
"""The client of the live feed, below the directory of all pages; without it the page asks again and again."""
_SHARED: Final = ("style.css", "icon.svg", "vendor/uplot/uPlot.esm.js", "vendor/uplot/uPlot.min.css")
"""What the page uses that is not its own, below the directory of all pages."""
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none';"
        " form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


_OWN: Final = STATIC / "console"
_SERVED: Final = (
    {each.name: each for each in _OWN.iterdir() if each.name != "index.html"}
    | {Path(name).name: STATIC / name for name in _SHARED if (STATIC / name).exists()}
    | {f"cometd/{each.name}": each for each in (STATIC / _FEED).glob("*.js")}
)
"""The files by the name under which they are served."""


def mount_console(app: web.Application) -> None:
    """Serve the page in this application."""
    app.router.add_get(ADDRESS, _sending(_OWN / "index.html"))
    app.router.add_get(ADDRESS.rstrip("/"), _to_page)
    for name, file in _SERVED.items():
        app.router.add_get(_FILES + name, _sending(file))


def _sending(file: Path) -> Handler:
    async def send(_: web.Request) -> web.StreamResponse:
        return web.FileResponse(file, headers=_HEADERS)

    return send


async def _to_page(_: web.Request) -> web.Response:
    raise web.HTTPMovedPermanently(ADDRESS)
