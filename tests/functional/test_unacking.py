"""A client that never acknowledges is slowed down: at most 10 connects in 6 s, whatever is published meanwhile.

The pauses double until they are five seconds; tests/extensions/test_ack.py has half a minute of them, on a clock of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.conftest import StartServer
from tests.functional.bayeux import Client
from tests.functional.conftest import LANES
from tests.functional.frames import SocketClient
from tests.server_process import Server

SECONDS = 6.0
MOST = 10
Ext = dict[str, object]

SAME_BATCH: Ext = {"ext": {"ack": 1}}
NONE: Ext = {}
ZERO: Ext = {"ext": {"ack": 0}}
FUTURE: Ext = {"ext": {"ack": 10**9}}
WRONG: Ext = {"ext": {"ack": "1"}}


def poll(server: Server, channel: str, ext: Ext, ready: Callable[[], object]) -> int:
    """How many connects a client makes over long-polling; each starts when the one before is answered."""
    client = Client(server)
    assert client.handshake(ext={"ack": True})["ext"]["ack"] is True
    client.connect(ext={"ack": 0})
    client.subscribe(channel)
    ready()
    return _count(lambda left: client.ask_connect(**ext).response(left))


def push(server: Server, channel: str, ext: Ext, ready: Callable[[], object]) -> int:
    """The same over WebSocket."""
    client = SocketClient(server)
    client.handshake(ext={"ack": True})
    client.connect(ext={"ack": 0})
    client.subscribe(channel)
    ready()
    return _count(lambda left: client.reply_to(client.ask_connect(**ext), left))


def _count(connect: Callable[[float], object]) -> int:
    begin = time.monotonic()
    connects = 0
    while (left := begin + SECONDS - time.monotonic()) > 0:
        connects += 1
        try:
            connect(left)
        except TimeoutError:
            break
    return connects


VARIANTS = {
    f"{how.__name__} {name} {traffic}": (how, ext, traffic)
    for how in (poll, push)
    for name, ext in {"same": SAME_BATCH, "none": NONE, "zero": ZERO, "future": FUTURE, "wrong": WRONG}.items()
    for traffic in ("quiet", "busy")
}


def test_a_client_that_never_acknowledges_is_slowed_down(start_server: StartServer) -> None:
    """All variants at once, on both lanes; one message is there from the start, and the busy channel gets ten a second."""
    servers = [start_server(*lane, "bayeux.max_sessions_per_browser=-1") for lane in LANES]
    together = threading.Barrier(len(servers) * len(VARIANTS) + 1)
    with ThreadPoolExecutor(len(servers) * len(VARIANTS)) as threads:
        counts = {
            (lane, name): threads.submit(partial(how, server, f"/{traffic}", ext, lambda: together.wait(20)))
            for lane, server in zip(LANES, servers, strict=True)
            for name, (how, ext, traffic) in VARIANTS.items()
        }
        publishers = [Client(server).start() for server in servers]
        together.wait(20)
        for publisher in publishers:
            publisher.publish("/quiet", 0)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for publisher in publishers:
                publisher.publish("/busy", time.time())
            publishers[0].command.has_input(within=0.1)
        made = {key: count.result(20) for key, count in counts.items()}
    assert {key: count for key, count in made.items() if count > MOST} == {}
    assert min(made.values()) >= 1
