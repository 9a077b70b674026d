"""A shop with aiohttp: orders are published without loss, and what the kitchen reports is received.

python -m aiohttp.web -H 127.0.0.1 -P 8000 aiohttp_shop:application
"""

import os
from collections.abc import AsyncIterator

from aiohttp import web

from crewel.client import Client, ClientError, Message

ADDRESS = os.environ.get("CREWEL_URL", "http://127.0.0.1:8080")
CREWEL = web.AppKey("crewel", Client)
BAKED = web.AppKey("baked", list[int])


async def crewel(app: web.Application) -> AsyncIterator[None]:
    async with Client(ADDRESS) as client:

        def note(message: Message) -> None:
            app[BAKED].append(message.data["number"])

        await client.subscribe("/kitchen/baked", note)
        app[CREWEL] = client
        yield


async def take(request: web.Request) -> web.Response:
    order = await request.json()
    try:
        key = f"order-{order['number']}"
        reply = await request.app[CREWEL].publish("/orders/new", order, persistent=True, key=key, retry_for=5)
    except ClientError as error:
        raise web.HTTPServiceUnavailable(text=str(error)) from None
    return web.json_response({"id": reply.message_id}, status=201)


async def show(request: web.Request) -> web.Response:
    return web.json_response(request.app[BAKED])


def application(_: list[str]) -> web.Application:
    app = web.Application()
    app[BAKED] = []
    app.cleanup_ctx.append(crewel)
    app.add_routes([web.post("/orders", take), web.get("/baked", show)])
    return app
