"""The examples of web frameworks and workers, each under the server that its users have, and on its page."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.admin.desk import TOKEN
from tests.admin.desk import Desk as Operator
from tests.client.support import LIMIT_S
from tests.conftest import StartServer
from tests.functional.wire import until
from tests.ports import free_port
from tests.server_process import ROOT, Server
from tests.terminals import blocks

WEB = ROOT / "examples" / "web"
ORDER = {"number": 7, "pizzas": 4}
ASGI = ("uvicorn", "--host", "127.0.0.1", "--port")
WSGI = ("gunicorn", "--preload", "--workers", "2", "--threads", "4", "--bind")
SHOPS = {
    "fastapi": (*ASGI, "{port}", "fastapi_shop:app"),
    "django-asgi": (*ASGI, "{port}", "django_async_shop:application"),
    "django-wsgi": (*WSGI, "127.0.0.1:{port}", "django_shop:application"),
    "flask": (*WSGI, "127.0.0.1:{port}", "flask_shop:app"),
    "aiohttp": ("aiohttp.web", "-H", "127.0.0.1", "-P", "{port}", "aiohttp_shop:application"),
}
PAGES = {
    "fastapi.md": ["fastapi_shop.py"],
    "django.md": ["django_shop.py", "django_async_shop.py"],
    "flask.md": ["flask_shop.py"],
    "aiohttp.md": ["aiohttp_shop.py"],
    "celery.md": ["workers.py"],
}


@contextmanager
def running(url: str, directory: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a module of Python in the directory of the examples; end it by SIGTERM, which must be in good order."""
    environ = os.environ | {"CREWEL_URL": url, "STATE_DIRECTORY": str(directory), "PYTHONUNBUFFERED": "1"}
    program = [sys.executable, *command]
    with subprocess.Popen(program, cwd=WEB, env=environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
            process.terminate()
            assert process.wait(LIMIT_S) in (0, -15)
        finally:
            process.kill()


def asked(address: str, data: object = None) -> tuple[int, object]:
    """The status and the JSON that are answered; 0 while nothing listens."""
    body = None if data is None else json.dumps(data).encode()
    try:
        with urlopen(Request(address, body, {"Content-Type": "application/json"}), timeout=LIMIT_S) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        return error.code, None
    except OSError:
        return 0, None


@pytest.fixture
def crewel(start_server: StartServer) -> Server:
    """A server that keeps what was published, for readers that come later."""
    return start_server(f"admin.token={TOKEN}")


@pytest.mark.parametrize("shop", SHOPS)
def test_a_shop_publishes_orders_and_workers_bake_them(crewel: Server, tmp_path: Path, shop: str) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [word.format(port=port) for word in SHOPS[shop]]
    with (
        running(crewel.url, tmp_path, "workers.py", "1") as worker,
        running(crewel.url, tmp_path, "-m", *command),
    ):
        assert worker.stdout is not None
        operator = Operator(crewel)
        until(lambda: b"/orders/*" in operator.ask("GET", "/sessions/bake/1").body, LIMIT_S)
        until(lambda: asked(f"{address}/nothing")[0] == 404, LIMIT_S)
        status, answer = asked(f"{address}/orders", ORDER)
        assert (status, list(answer or [])) == (201, ["id"]), answer
        assert asked(f"{address}/orders", ORDER) == (201, answer), "the same number is the same message"
        assert worker.stdout.readline() == "baked 7\n"
        if "wsgi" not in shop and shop != "flask":
            until(lambda: asked(f"{address}/baked") == (200, [7]), LIMIT_S)
        if shop in ("fastapi", "flask"):
            until(lambda: operator.get("/sessions/bake/1")["waiting"] == 0, LIMIT_S)  # else it waits for an end
            crewel.kill()
            assert asked(f"{address}/orders", ORDER)[0] == 503


@pytest.mark.parametrize(("page", "files"), PAGES.items())
def test_a_page_shows_its_example_as_it_is(page: str, files: list[str]) -> None:
    path = ROOT / "docs" / "how-to" / page
    shown = [each.text.strip() for each in blocks(path) if each.language == "python"]
    assert shown == [(WEB / name).read_text("utf-8").strip() for name in files]
    text = path.read_text("utf-8")
    for name in files:
        told = re.search(r"^(uvicorn|gunicorn|python) .*", (WEB / name).read_text("utf-8"), re.MULTILINE)
        assert told is None or f"$ {told[0]}" in text
