"""A Crewel server in a process of its own, for tests that need the real thing.

Its store is the one that all tests share, under a prefix of its own, unless the arguments say otherwise: the set
`storage.url=` gives it one of its own in `storage.data_dir`, as people have it.

Its standard output and error are read by threads, so that a full pipe never
stops it, and so that sync and async tests use it alike.
"""

from __future__ import annotations

import itertools
import os
import queue
import random
import signal
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from tests.store_process import OTHER_PROGRAM, shared_store
from tests.template import PYTHONPATH, ROOT, Command

__all__ = ["LIMIT_S", "ROOT", "Server", "start"]
_running: weakref.WeakSet[Server] = weakref.WeakSet()
STATE = str(Path(tempfile.gettempdir()) / "crewel-tests-state")
LIMIT_S = 60.0  # generous: several suites may share two cores


class Server:
    """One `crewel serve`. Made, it is ready: `url` is where it said that it serves Bayeux."""

    def __init__(self, arguments: Sequence[str], directory: Path, environ: Mapping[str, str] | None = None) -> None:
        """Start `crewel serve` with `arguments` in `directory`; raise AssertionError if it ends before it is ready."""
        self.ended_by_test = False
        self.store_sets = _store_sets(arguments)
        """The `--set` texts that give another server the same store."""
        arguments = [*(f"--set={text}" for text in self.store_sets), *arguments]
        self._process = Command(
            ["serve", *arguments],
            cwd=directory,
            env=_environment(environ or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._errors: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._readers = [
            _read_in_thread(self._process.stdout, self._lines.put),
            _read_in_thread(self._process.stderr, self._errors.append),
        ]
        self.url = self._wait_until_ready()
        parts = urlsplit(self.url)
        self.base = f"{parts.scheme}://{parts.netloc}"
        self.ws_url = self.url.replace("http", "ws", 1)
        self.port = parts.port
        self.pid = self._process.pid
        self._checked = 0  # lines of its log
        _running.add(self)

    @property
    def pids(self) -> list[int]:
        """Its process; of two nodes, both."""
        return [self.pid]

    @property
    def stderr(self) -> str:
        """What it logged until now."""
        return "".join(self._errors)

    @property
    def returncode(self) -> int | None:
        """Its exit status, None while it runs."""
        return self._process.poll()

    @property
    def stdout_after_ready(self) -> str:
        """What it wrote to stdout after its ready line; call it when it has ended."""
        return "".join(self._lines.queue)

    def wait(self) -> int:
        """Wait until it has ended by itself, or by a signal that the test sent, and return its exit status."""
        return self._process.wait(LIMIT_S)

    def terminate(self) -> int:
        """End it as an operator would, with SIGTERM, and return its exit status."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """End it as a power cut would, with SIGKILL, and return its exit status."""
        return self._end(signal.SIGKILL)

    def close(self) -> int:
        """End it however it is and return its exit status; SIGKILL when SIGTERM does not do within the limit."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            try:
                self.terminate()
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"the server did not end within {LIMIT_S} s of SIGTERM:\n{self.stderr}") from None
        for reader in self._readers:
            reader.join(LIMIT_S)
        return self._process.wait(LIMIT_S)

    def end_well(self) -> None:
        """End it; fails if it has logged a traceback or has gone in a wrong way."""
        status = self.close()
        assert "Traceback" not in self.stderr, self.stderr
        assert status == 0, (status, self.stderr)

    def check(self) -> None:
        """Fail if it has logged a traceback since it was last asked."""
        new = self._errors[self._checked :]
        self._checked += len(new)
        assert not any("Traceback" in line for line in new), self.stderr

    def _end(self, number: signal.Signals) -> int:
        self.ended_by_test = True
        self._process.send_signal(number)
        return self._process.wait(LIMIT_S)

    def _wait_until_ready(self) -> str:
        try:
            line = self._lines.get(timeout=LIMIT_S)
        except queue.Empty:
            line = ""
        word, _, url = line.strip().partition(" ")
        if word != "ready":
            self._process.kill()
            self.close()
            raise AssertionError(f"the server said {line!r} instead of being ready:\n{self.stderr}")
        return url


class _OfAny:
    """An attribute of a cluster: that of one of its nodes, at random."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __set__(self, cluster: Server, value: object) -> None:
        vars(cluster)[self._name] = value

    def __get__(self, cluster: Server, owner: type) -> Any:
        chosen = random.choice([None, *vars(cluster).get("others", ())])
        return vars(cluster)[self._name] if chosen is None else getattr(chosen, self._name)


class Cluster(Server):
    """Several nodes that look like one server: each connection reaches one of them, at random."""

    url = _OfAny()  # type: ignore[assignment]
    base = _OfAny()  # type: ignore[assignment]
    ws_url = _OfAny()  # type: ignore[assignment]
    port = _OfAny()  # type: ignore[assignment]

    def __init__(self, arguments: Sequence[str], directory: Path, environ: Mapping[str, str] | None = None) -> None:
        shared = ["--set=cluster.enabled=true", "--set=cluster.lease_ms=600000"]
        super().__init__([*arguments, *shared], directory, environ)
        same = [text for text in arguments if not text.startswith(("--set=storage.", "--port"))]
        stores = [f"--set={text}" for text in self.store_sets]
        given = ["--port=0", *stores, *same, *shared]
        self.others = [Server(given, directory, environ) for _ in range(nodes_of_tests() - 1)]

    @property
    def pids(self) -> list[int]:
        """Those of all nodes."""
        return [self.pid, *(each.pid for each in self.others)]

    @property
    def ports(self) -> list[int]:
        """Those of all nodes."""
        return [vars(self)["port"], *(each.port for each in self.others)]

    def close(self) -> int:
        """End all."""
        for each in self.others:
            each.ended_by_test = True
        statuses = [*[each.close() for each in self.others], super().close()]
        return next((status for status in statuses if status), 0)


def nodes_of_tests() -> int:
    """How many nodes the tests have in the place of one server (`CREWEL_TEST_NODES`)."""
    return int(os.environ.get("CREWEL_TEST_NODES", "1"))


def start(arguments: Sequence[str], directory: Path, environ: Mapping[str, str] | None = None) -> Server:
    """Start a server; with `CREWEL_TEST_NODES` so many nodes in its place, if it has a store that they can share."""
    said = " ".join(arguments)
    is_alone = any(text in said for text in ("storage.url=", "storage.enabled=false", "cluster.", "--workers"))
    if nodes_of_tests() == 1 or is_alone:
        return Server(arguments, directory, environ)
    return Cluster(arguments, directory, environ)


@contextmanager
def serving(directory: Path, *sets: str, service: str = "") -> Iterator[Server]:
    """A server with these `--set` texts for several tests, which has to end well."""
    services = [f"--service={service}"] if service else []
    server = Server(["--port=0", *services, *(f"--set={text}" for text in sets)], directory)
    yield server
    server.end_well()


def check_running() -> None:
    """Fail if a server that runs, as one of several tests does, has logged a traceback."""
    for server in [*_running]:
        if server.returncode is None:
            server.check()


_numbers = itertools.count(1)


def _store_sets(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return what settles the store of a server with these arguments: what they say, and what they leave open."""
    said = [text.removeprefix("--set=") for text in arguments if text.startswith("--set=storage.")]
    names = {text.partition("=")[0] for text in said}
    open_ends = [] if "storage.url" in names or "storage.enabled" in names else [f"storage.url={shared_store().url}"]
    if "storage.prefix" not in names:
        open_ends.append(f"storage.prefix=server{next(_numbers)}:")
    return (*open_ends, *said)


def _read_in_thread(stream: IO[str], take: Callable[[str], object]) -> threading.Thread:
    def read() -> None:
        with stream:
            for line in stream:
                take(line)
        take("")  # the end, for whoever waits for a line

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment without its settings; its Python finds this tree's code, and the tests, which have
    services. The list of the user's servers is not the user's own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CREWEL_")}
    store = {"CREWEL_STORAGE__SERVER_BINARY": OTHER_PROGRAM} if OTHER_PROGRAM else {}
    return {**inherited, **store, "PYTHONPATH": PYTHONPATH, "XDG_STATE_HOME": STATE, **more}


def processes(server: Server) -> list[int]:
    """The workers of a server, the oldest first."""
    found = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return [pid for pid in map(int, found) if "--inherited" in _command_line(pid)]


def _command_line(pid: int) -> str:
    """The arguments of a process; empty once it has ended."""
    with suppress(ProcessLookupError, FileNotFoundError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""
