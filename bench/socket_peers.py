"""Who is measured by sockets.py, and how each is made ready and started."""

import sys
from contextlib import suppress

from peers import BENCH, BUILD, Missing, Peer, build, is_older, npm_peer, output_of, peers, tool

_NATIVE = BENCH / "peers" / "native.py"
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


def _go_peer(name: str, title: str, module: str, version: str, *words: str) -> Peer:
    """A peer that Go builds and native.py starts. A new version has a directory of its own, so it is built."""
    program = module.split("/")[2]
    path = BUILD / version / program

    def prepare() -> None:
        if not path.exists():
            build(program, ["env", f"GOBIN={path.parent}", tool("go"), "install", f"{module}@{version}"], BENCH)

    command = [sys.executable, str(_NATIVE), program, str(path), *words]
    return Peer(name, title, prepare, lambda: command, lambda: f"{program} {version}")


def everyone() -> dict[str, Peer]:
    """Who is measured, by name."""
    known = {peer.name: peer for peer in peers([]) if peer.name in ("crewel", "faye")}
    native = [sys.executable, str(_NATIVE)]
    nats = ("github.com/nats-io/nats-server/v2", "v2.15.3")
    others = (
        Peer("floor", "the floor", _floor, lambda: [str(_FLOOR)], lambda: output_of("cc", "--version")),
        Peer(
            "mosquitto",
            "mosquitto",
            prepare=_prepare_mosquitto,
            command=lambda: [*native, "mosquitto", _mosquitto()],
            version=lambda: output_of(_mosquitto(), "-h"),
        ),
        _go_peer("nats", "NATS", *nats),
        _go_peer("nats-synced", "NATS, always synced", *nats, "always"),
        npm_peer("socketio", "socket.io", "socket.io"),
        _go_peer("centrifugo", "Centrifugo", "github.com/centrifugal/centrifugo/v6", "v6.9.1"),
    )
    return known | {peer.name: peer for peer in others}
