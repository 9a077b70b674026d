"""The Autobahn test suite against WebSockets, whichever way their upgrades come: 247 cases of framing, fragments, control
frames, UTF-8 and closing. Its groups of limits (9) and compression (12, 13) are left out: they are made of binary frames for
the most part, which Bayeux refuses.

The suite expects its messages back, so that an echo takes the place of Bayeux above the frames.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from typing import Any, Final

import pytest
from aiohttp import web

from crewel import server
from crewel.broker.exchange import Peer
from crewel.errors import Fault, PayloadError
from crewel.settings import Settings, load
from crewel.transports import websocket
from crewel.transports.text_frames import Frames, text_frame
from tests.server_process import ROOT

CASES = [f"{group}.*" for group in (1, 2, 3, 4, 5, 6, 7, 10)]
LIMIT_S = 90.0

PASSED: Final = ("OK", "NON-STRICT", "INFORMATIONAL")
REFUSED: Final = dict.fromkeys(["1.1.1", "6.1.1", "6.1.2"], 1007) | {f"1.2.{number}": 1003 for number in range(1, 9)}
"""Cases that the protocol above WebSockets excludes, with the code that they are closed with: an empty text is no JSON, and no
frame is binary."""
DIFFERENT: Final = {"7.1.5": 1002}
"""Where websockets, which reads the frames, is of another opinion than the suite: it takes a close amid the fragments of a
message for an error."""


def echoed(payload: bytes, *_: int, **__: int) -> list[bytes]:
    """What stands in for the decoding of Bayeux: a text, which must be UTF-8."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        raise PayloadError(Fault.MALFORMED) from None
    return [payload]


def echo(peer: Peer, elements: list[Any]) -> None:
    peer.send(elements)


@pytest.fixture(params=["true", "false"], ids=["fast", "aiohttp"])
def fast_lane(request: pytest.FixtureRequest) -> str:
    """`http.fast_lane`."""
    lane: str = request.param
    return lane


@pytest.fixture
def settings(fast_lane: str) -> Settings:
    """The settings; to read them reads files, which must not happen in the event loop."""
    without = ("bayeux.extensions=", "storage.enabled=false", "http.port=0")
    large = (f"{name}=20000000" for name in ("bayeux.max_message_bytes", "bayeux.max_response_bytes"))
    return load(None, [f"http.fast_lane={fast_lane}", *without, *large])


async def test_the_cases_of_the_autobahn_suite_pass(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "decode", echoed)
    monkeypatch.setattr(Frames, "of", lambda _, parts: text_frame(b",".join(parts)))
    app = web.Application()
    server.attach(app, settings)
    app[server.ENDPOINT].receiver.receive = echo
    async with server.listening_with(app) as url:
        words = (sys.executable, "-m", "tests.functional.autobahn", url.replace("http", "ws", 1), *CASES)
        process = await asyncio.create_subprocess_exec(*words, stdout=PIPE, cwd=ROOT)
        async with asyncio.timeout(LIMIT_S):
            output, _ = await process.communicate()
    verdicts: Mapping[str, list[Any]] = json.loads(output)
    assert len(verdicts) == 247
    failed = {case: code or verdict for case, (verdict, _, code) in verdicts.items() if verdict not in PASSED}
    assert failed == REFUSED | DIFFERENT
