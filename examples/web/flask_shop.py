"""A shop with Flask: orders are published without loss.

gunicorn --workers 2 --threads 4 flask_shop:app
"""

import os
import threading
from functools import cache

from flask import Flask, request

from crewel.client import ClientError
from crewel.client.sync import Client

ADDRESS = os.environ.get("CREWEL_URL", "http://127.0.0.1:8080")
app = Flask(__name__)
_lock = threading.Lock()


@cache
def _opened() -> Client:
    return Client(ADDRESS).open()


def crewel() -> Client:
    """One client for each process. The first request opens it, so that it is not made before the process forks."""
    with _lock:
        return _opened()


@app.post("/orders")
def take() -> tuple[dict[str, str | None], int]:
    order = request.get_json()
    try:
        key = f"order-{order['number']}"
        reply = crewel().publish("/orders/new", order, persistent=True, key=key, retry_for=5)
    except ClientError as error:
        return {"error": str(error)}, 503
    return {"id": reply.message_id}, 201
