"""The browser's half of names, with the official client and the real server."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.duplicating_proxy import DuplicatingProxy
from tests.interop.peers import HERE

LIMIT_S = 30
IDENTICAL = "user.configuration.identicalClient"


@pytest.mark.usefixtures("installed_clients")
@pytest.mark.parametrize("lane", ["http.fast_lane=true", "http.fast_lane=false"])
@pytest.mark.parametrize("transport", ["websocket", "long-polling"])
def test_a_page_goes_on_with_its_session(start_server: StartServer, lane: str, transport: str) -> None:
    server = start_server(lane, "node.name=heron")
    command = ["node", "drivers/session.mjs", server.url, transport]
    ended = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=LIMIT_S)
    assert ended.returncode == 0, ended.stderr
    check(json.loads(ended.stdout.splitlines()[-1]))


@pytest.mark.usefixtures("installed_clients")
@pytest.mark.parametrize("answers", ["first", "second"])
async def test_a_page_behind_a_proxy_that_sends_requests_twice_keeps_its_session(
    start_server: StartServer, answers: str
) -> None:
    server = start_server("node.name=heron")
    async with DuplicatingProxy(server.port, passes_on=answers) as proxy:
        command = ["node", "drivers/session.mjs", f"http://127.0.0.1:{proxy.port}/cometd", "long-polling"]
        # In a thread, which ends the page when it takes too long: the proxy needs the loop.
        ended = await asyncio.to_thread(
            lambda: subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=LIMIT_S)
        )
    assert ended.returncode == 0, ended.stderr
    # The copy of the disconnect may be the one that ends the session. Then the other one fails, and the page keeps its secret.
    check(json.loads(ended.stdout.splitlines()[-1]) | {"kept": 0})


def check(seen: dict[str, Any]) -> None:
    """What the page has seen is as it should be."""
    assert seen.pop("anonymous").startswith("/node/heron/client/anonymous/-")
    assert seen == {
        "first": ["/node/heron/client/page/1", False],
        "heard": [1],
        "again": True,
        "ended": f"402:client/page/1:{IDENTICAL}",
        "refused": [f"403:client/page/1:{IDENTICAL}", IDENTICAL, None],
        "kept": 0,
    }
