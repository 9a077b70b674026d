"""The browser's half of names, with the official client and the real server."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.conftest import StartServer
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
    seen = json.loads(ended.stdout.splitlines()[-1])
    assert seen.pop("anonymous").startswith("/node/heron/client/anonymous/-")
    assert seen == {
        "first": ["/node/heron/client/page/1", False],
        "heard": [1],
        "again": True,
        "ended": f"402:client/page/1:{IDENTICAL}",
        "refused": [f"403:client/page/1:{IDENTICAL}", IDENTICAL, None],
        "kept": 0,
    }
