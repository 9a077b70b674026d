"""The browser's half of request and reply, with the official client and the real server."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.conftest import StartServer
from tests.interop.peers import HERE

LIMIT_S = 30


@pytest.mark.usefixtures("installed_clients")
@pytest.mark.parametrize("lane", ["http.fast_lane=true", "http.fast_lane=false"])
@pytest.mark.parametrize(
    ("transport", "other"), [("websocket", "long-polling"), ("long-polling", "websocket")], ids=["websocket", "http"]
)
def test_pages_ask_and_answer(start_server: StartServer, lane: str, transport: str, other: str) -> None:
    server = start_server(lane, service="tests.client.services")
    command = ["node", "drivers/request.mjs", server.url, transport, other]
    ended = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=LIMIT_S)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == {
        "hasId": True,
        "stock": {"got": {"n": [1]}},
        "untouched": {"n": [1, "too late"]},
        "format": True,
        "many": True,
        "strict": ["ErrorAnswer", "user.illegalArgument", "no number"],
        "broken": ["ErrorAnswer", "internal.unknown", "the responder failed"],
        "service": 81,
        "back": 9,
        "late": ["AnswerTimeoutError", None, "/slow: no answer within 100 ms"],
        "slow": 2,
        "counted": [2, 1, 0],
        "refused": ["RequestError", None, "/closed/a: 403:nobody may:channel_create_denied"],
        "lost": ["RequestError", None, "/nobody: the session was lost"],
        "again": [False, 25],
    }
