"""Starting a server on its own core and ending it, and the meter on the other."""

import json
import os
import resource
import selectors
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import IO
from urllib.parse import urlsplit

from cases import Case, Result
from peers import BENCH, BUILD, Peer, build, is_older, tool

METER = BUILD / "meter"
START_S = 60.0
STOP_S = 10.0
CORES = sorted(os.sched_getaffinity(0))  # the meter takes the first, the server the last


class Failed(Exception):
    """A server or the meter did not do what a measurement needs."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    pid: int
    port: int


def raise_file_limit() -> None:
    """Allow as many open files as the machine lets us; children inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def build_meter() -> None:
    """Compile the meter when its sources are newer. Raises Missing without a C compiler."""
    sources = sorted((BENCH / "meter").glob("*.[ch]"))
    if is_older(METER, *sources):
        BUILD.mkdir(exist_ok=True)
        units = [str(source) for source in sources if source.suffix == ".c"]
        build("meter", [tool("cc"), "-O2", "-std=gnu11", "-Wall", "-Wextra", "-o", str(METER), *units], BENCH)


@contextmanager
def running(peer: Peer) -> Iterator[Server]:
    """A server on its core, ended with everything it started."""
    log = BUILD / f"{peer.name}.log"
    with log.open("w") as errors, TemporaryDirectory(prefix=f"{peer.name}-", dir=BUILD) as data:
        with _pinned(CORES[-1]):
            process = subprocess.Popen(
                peer.command(),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=BENCH.parent,
                env=os.environ | {"CREWEL_STORAGE__DATA_DIR": data},
                start_new_session=True,
            )
        assert process.stdout
        try:
            yield Server(process.pid, _ready_port(process.stdout, peer))
        finally:
            _end(process)


@contextmanager
def _pinned(core: int) -> Iterator[None]:
    """What is started meanwhile runs on this core only."""
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, CORES)


def _ready_port(stdout: IO[str], peer: Peer) -> int:
    with selectors.DefaultSelector() as selector:
        selector.register(stdout, selectors.EVENT_READ)
        line = stdout.readline() if selector.select(START_S) else ""
    port = urlsplit(line.removeprefix("ready ").strip()).port if line.startswith("ready ") else None
    if port is None:
        raise Failed(
            f"{peer.title} did not start: {line.strip() or 'it said nothing'} (see bench/build/{peer.name}.log)"
        )
    # Whatever else it prints must not fill the pipe.
    threading.Thread(target=stdout.read, daemon=True).start()
    return port


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # and whatever it started
    process.wait(STOP_S)


def measure(server: Server, peer: Peer, case: Case, seconds: float) -> Result:
    """What the meter says of one server under one case. Raises Failed."""
    options = case.options | {
        "pid": str(server.pid),
        "port": str(server.port),
        "warmup": str(peer.warmup_s),
        "seconds": str(seconds),
        "prelude": str(peer.prelude),
        "limit": "180",
    }
    if case.options["mode"] == "storm":
        options["clients"] = str(int(case.options["clients"]) + peer.prelude)
    elif case.options["mode"] == "hold":
        options["warmup"] = "2"
    command = [str(METER), *(word for name, value in options.items() for word in (f"--{name}", value))]
    command += ["--websocket"] * case.websocket + ["--ack"] * (case.ack and peer.ack) + ["--stored"] * case.stores
    try:
        with _pinned(CORES[0]):
            done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    except subprocess.CalledProcessError as error:
        raise Failed(error.stderr.strip() or f"the meter ended with {error.returncode}") from error
    except subprocess.TimeoutExpired as error:
        raise Failed("the meter did not end in time") from error
    result: Result = json.loads(done.stdout)
    result["complaints"] = [*done.stderr.strip().splitlines(), *_doubts(result)]
    return result


def _doubts(result: Result) -> list[str]:
    """What makes figures doubtful: a meter that had no time of its own, messages that never left."""
    steps = [*result.get("steps", []), *([result["storm"]] if "storm" in result else [])]
    told = (
        ["the meter had its core full: the latencies are its own"] if any(s["meter_cores"] > 0.9 for s in steps) else []
    )
    unsent = steps[0].get("unsent", 0) if steps else 0
    return [*told, f"{unsent} messages were due and found no publisher at rest"] if unsent > 10 else told
