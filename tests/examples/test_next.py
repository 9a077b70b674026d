"""That the page with Next.js builds, is rendered on a server that has no browser, and connects in a browser."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.browser.conftest import browser, context  # noqa: F401 - fixtures
from tests.browser.test_package import LIMIT_MS, package  # noqa: F401 - a fixture
from tests.conftest import StartServer
from tests.house.source import ROOT
from tests.ports import free_port

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

EXAMPLE = ROOT / "examples" / "next"
LIMIT_S = 600.0


@contextmanager
def serving(port: int, environ: dict[str, str]) -> Iterator[str]:
    """Serve the built example until the block ends."""
    command = ["node", "node_modules/next/dist/bin/next", "start", "--port", str(port), "--hostname", "127.0.0.1"]
    with subprocess.Popen(command, cwd=EXAMPLE, env=environ, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert any("Ready" in line for line in server.stdout), "it has ended"
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def test_the_page_is_built_rendered_and_connects(
    package: Path,  # noqa: F811
    context: BrowserContext,  # noqa: F811
    start_server: StartServer,
) -> None:
    """The hydrated page is what the server rendered: React would report a difference in the console."""
    installed = EXAMPLE / "node_modules" / "@crewel" / "client"
    shutil.rmtree(installed, ignore_errors=True)
    shutil.copytree(package, installed)
    port, origin_port = free_port(), free_port()
    url = f"http://127.0.0.1:{port}/cometd"
    environ = os.environ | {"NEXT_PUBLIC_CREWEL_URL": url, "NEXT_TELEMETRY_DISABLED": "1"}
    built = subprocess.run(
        ["npm", "run", "build"], cwd=EXAMPLE, env=environ, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert built.returncode == 0, built.stdout + built.stderr
    with serving(origin_port, environ) as origin:
        with urlopen(origin, timeout=LIMIT_S) as response:
            assert b"connecting" in response.read()
        page = context.new_page()
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(origin)
        status = page.get_by_role("status")
        expect(status).to_have_text("offline, 0 waiting, 0 pizzas", timeout=LIMIT_MS)
        page.get_by_role("button", name="Order").click()
        expect(status).to_have_text("offline, 1 waiting, 0 pizzas", timeout=LIMIT_MS)
        start_server(f"http.allowed_origins={origin}", port=port)
        expect(status).to_have_text("connected, 0 waiting, 1 pizzas", timeout=LIMIT_MS)
        assert complaints == []
