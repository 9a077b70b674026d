"""A store in a process of its own: the real server, which tests stop, kill and start again.

Almost all tests use the one of `shared_store`, each under a prefix of its own.
"""

import ctypes
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from crewel.settings.storage import Storage
from crewel.storage.embedded import server_binary

LIMIT_S = 60.0
_ASK_AGAIN_S = 0.5
_LEAST_PAUSE_S, _MOST_PAUSE_S = 0.005, 0.05
OTHER_PROGRAM = os.environ.get("CREWEL_TEST_STORE")
"""The program of all stores, also of the embedded ones, if it is not that of Crewel: `make test-store STORE=redis-server`."""
PROGRAM = server_binary(Storage(server_binary=OTHER_PROGRAM))
_PR_SET_PDEATHSIG = 1


class StoreProcess:
    """One server on a Unix socket in `directory`. Made, it is ready: `url` is where it listens."""

    def __init__(self, directory: Path, **options: str) -> None:
        """`options` are its own, with _ for -: `maxmemory="10mb"`. Without any it is as Crewel wants it, less the syncing."""
        self.directory = directory
        self.socket = directory / "s.sock"
        self.url = f"unix://{self.socket}"
        self._options = {
            "dir": str(directory),
            "unixsocket": str(self.socket),
            "port": "0",
            "save": "",
            "appendonly": "yes",
            "appendfsync": "no",
            "maxmemory-policy": "noeviction",
            "repl-diskless-sync-delay": "0",
        } | {name.replace("_", "-"): value for name, value in options.items()}
        self.start()

    def start(self) -> None:
        """Start it, also again after it has ended, and wait until it answers."""
        self.launch([word for name, value in self._options.items() for word in (f"--{name}", value)])

    def launch(self, words: list[str]) -> None:
        """Start the program with these arguments, and wait until it answers."""
        with (self.directory / "log").open("ab") as log:
            command = [PROGRAM, *words]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=_die_with_owner())  # noqa: PLW1509
        self.pid = self._process.pid
        until(self._answers)

    def configure(self, name: str, value: object) -> None:
        """Change an option while it runs, and for the next start too."""
        self._options[name] = str(value)
        with self.client() as client:
            client.config_set(name, value)  # type: ignore[arg-type]

    def option(self, name: str) -> str:
        """Return what it was started with."""
        return self._options[name]

    def client(self) -> redis.Redis:
        """Return a client for the test to look with, or to damage with."""
        return redis.Redis(unix_socket_path=str(self.socket), retry=Retry(NoBackoff(), 0))

    def stop(self) -> None:
        """Let it hang: connections stay and nothing is answered."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it answer again, also what came meanwhile."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self._process.wait(LIMIT_S)

    def close(self) -> None:
        """End it, however it is. Redis 7 that has just become a replica refuses until its file is written: ask it again."""
        if self._process.poll() is None:
            self.go_on()
            until(self._ends)

    def _ends(self) -> bool:
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ASK_AGAIN_S)
        return self._process.poll() is not None

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self.directory / "log").read_text()
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.AuthenticationError:
            return True
        except redis.RedisError:
            return False


def until(is_so: Callable[[], object], seen: Callable[[], object] = lambda: "") -> None:
    """Wait until `is_so` says yes; fail after LIMIT_S, with what is `seen` then."""
    assert any(is_so() for _ in looks(LIMIT_S)), f"it did not come about in time {seen()}"


def looks(limit_s: float) -> Iterator[None]:
    """Pause between looks at what nothing announces, for a tenth of the time that has passed: a look costs processor time,
    often that of a server too."""
    began = time.monotonic()
    while (passed := time.monotonic() - began) <= limit_s:
        yield
        time.sleep(min(max(passed / 10, _LEAST_PAUSE_S), _MOST_PAUSE_S))


_shared: list[StoreProcess] = []
_prefixes = itertools.count(1)


def shared_store() -> StoreProcess:
    """Return the store that all tests share; the first call starts it."""
    if not _shared:
        _shared.append(StoreProcess(Path(tempfile.mkdtemp(prefix="crewel-tests-"))))
    return _shared[0]


def end_shared_store() -> None:
    """End the store that all tests share, and forget what it held."""
    while _shared:
        store = _shared.pop()
        store.close()
        shutil.rmtree(store.directory)


def own_prefix() -> str:
    """Return a prefix that no other test uses."""
    return f"test{next(_prefixes)}:"


def _die_with_owner() -> Callable[[], object] | None:
    """Return what ends the store with the tests, also when those are killed; elsewhere than on Linux it would stay."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    owner = os.getpid()
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM) or os.getppid() == owner or os._exit(1)
