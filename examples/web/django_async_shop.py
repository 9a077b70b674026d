"""A shop with Django under ASGI, in one file: orders are published without loss, and what the kitchen reports is received.

uvicorn django_async_shop:application
"""

import json
import os
from typing import Any

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from crewel.client import Client, ClientError, Message

ADDRESS = os.environ.get("CREWEL_URL", "http://127.0.0.1:8080")
settings.configure(
    ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"], SECRET_KEY=os.environ.get("SECRET_KEY", "example")
)
django.setup()
clients: dict[str, Client] = {}
baked: list[int] = []


def note(message: Message) -> None:
    baked.append(message.data["number"])


@csrf_exempt
async def take(request: HttpRequest) -> JsonResponse:
    order = json.loads(request.body)
    try:
        key = f"order-{order['number']}"
        reply = await clients["crewel"].publish("/orders/new", order, persistent=True, key=key, retry_for=5)
    except ClientError as error:
        return JsonResponse({"error": str(error)}, status=503)
    return JsonResponse({"id": reply.message_id}, status=201)


async def show(request: HttpRequest) -> JsonResponse:
    return JsonResponse(baked, safe=False)


urlpatterns = [path("orders", take), path("baked", show)]
pages = get_asgi_application()


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Django, and a client that is open as long as the server runs."""
    if scope["type"] != "lifespan":
        await pages(scope, receive, send)
        return
    await receive()  # lifespan.startup
    async with Client(ADDRESS) as client:
        await client.subscribe("/kitchen/baked", note)
        clients["crewel"] = client
        await send({"type": "lifespan.startup.complete"})
        await receive()  # lifespan.shutdown
    await send({"type": "lifespan.shutdown.complete"})
