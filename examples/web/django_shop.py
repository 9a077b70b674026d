"""A shop with Django under WSGI, in one file: orders are published without loss.

gunicorn --workers 2 --threads 4 django_shop:application
"""

import json
import os
import threading
from functools import cache

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from crewel.client import ClientError
from crewel.client.sync import Client

ADDRESS = os.environ.get("CREWEL_URL", "http://127.0.0.1:8080")
settings.configure(
    ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"], SECRET_KEY=os.environ.get("SECRET_KEY", "example")
)
django.setup()
_lock = threading.Lock()


@cache
def _opened() -> Client:
    return Client(ADDRESS).open()


def crewel() -> Client:
    """One client for each process. The first request opens it, so that it is not made before the process forks."""
    with _lock:
        return _opened()


@csrf_exempt
def take(request: HttpRequest) -> JsonResponse:
    order = json.loads(request.body)
    try:
        key = f"order-{order['number']}"
        reply = crewel().publish("/orders/new", order, persistent=True, key=key, retry_for=5)
    except ClientError as error:
        return JsonResponse({"error": str(error)}, status=503)
    return JsonResponse({"id": reply.message_id}, status=201)


urlpatterns = [path("orders", take)]
application = get_wsgi_application()
