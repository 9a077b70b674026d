"""Applications in processes of their own that are killed and begin again, and what their listeners have taken: through the
Python client, `crewel sub`, and the official client with and without the browser's halves of our extensions."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from abc import abstractmethod
from collections import Counter
from typing import Any

from tests.admin.desk import Desk
from tests.faults.at_work import AtWork
from tests.interop.peers import DRIVERS
from tests.server_process import ROOT, Server

CHANNELS = ("/app/a", "/app/b", "/app/c")
BOX = "/service/box"
"""Where addressed messages come."""


class Taken:
    """What the listeners of each application have returned from, by the ids of messages; they say it before they return."""

    def __init__(self) -> None:
        self.taken: dict[str, set[str]] = {}
        self.rejected: dict[str, set[str]] = {}
        self.copies = 0
        """How many came more than once."""

    def note(self, told: dict[str, Any]) -> None:
        """An application says what it did with a message."""
        table = self.taken if told["event"] == "taken" else self.rejected
        ids = table.setdefault(told["name"], set())
        self.copies += told["id"] in ids
        ids.add(told["id"])


class RandomApplications(AtWork):
    """A process with some applications. It begins again whenever it has ended, until `stop`."""

    def __init__(self, names: tuple[str, ...], taken: Taken, rng: random.Random) -> None:
        super().__init__()
        self.names = names
        self.kills = 0
        self._taken = taken
        self._rng = rng
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: Counter[str] = Counter()

    @property
    def is_ready(self) -> bool:
        """Whether all listeners of its applications are there."""
        return all(self._ready[name] for name in self.names)

    def kill(self) -> None:
        """`kill -9`; another process follows."""
        if self._process is not None:
            self.kills += 1
            self._process.kill()

    def stop(self) -> None:
        self._is_ending.set()
        if self._process is not None:
            self._process.kill()
        super().stop()

    def work(self) -> None:
        while not self.is_ending:
            self._ready.clear()
            command, pipe = self._command()
            with subprocess.Popen(command, cwd=ROOT, env=_environment(), stdin=subprocess.PIPE, **pipe) as process:
                self._process = process
                if self.is_ending:
                    process.kill()
                assert process.stdout is not None
                for line in process.stdout:
                    if line.endswith(b"\n"):  # a kill may cut the last one
                        self._note(line)
            self.pause(self._rng.uniform(0, 0.5))

    def _told(self, told: dict[str, Any]) -> None:
        if told["event"] == "ready":
            self._ready[told["name"]] += 1
        elif told["event"] in ("taken", "rejected"):
            self._taken.note(told)

    @abstractmethod
    def _command(self) -> tuple[list[str], dict[str, Any]]:
        """What is started, and which of its outputs are read."""

    @abstractmethod
    def _note(self, line: bytes) -> None:
        """A line of its standard output."""


class Driven(RandomApplications):
    """Applications on a client library: see application.py and application.mjs."""

    def __init__(
        self, server: Server, taken: Taken, rng: random.Random, program: list[str], apps: list[dict[str, Any]]
    ) -> None:
        super().__init__(tuple(each["name"] for each in apps), taken, rng)
        self._url = server.url.replace("127.0.0.1", "localhost")
        self._program = program
        self._apps = apps

    def _command(self) -> tuple[list[str], dict[str, Any]]:
        spec = {"url": self._url, "seed": self._rng.randrange(1, 1 << 30), "apps": self._apps}
        return [*self._program, json.dumps(spec)], {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}

    def _note(self, line: bytes) -> None:
        told = json.loads(line)
        if told["event"] == "resume":
            for each in self._apps:
                if each["name"] == told["name"]:
                    each["resume"] = told["resume"]
        self._told(told)


class Printing(RandomApplications):
    """`crewel sub`, which prints what it takes. Each time it subscribes to some of the channels; it hears them all."""

    def __init__(self, server: Server, taken: Taken, rng: random.Random, name: str) -> None:
        super().__init__((name,), taken, rng)
        self._server = server
        self._is_first = True

    def _command(self) -> tuple[list[str], dict[str, Any]]:
        [name] = self.names
        while not self._is_first and not self.is_ending and self._is_alive(name):
            self.pause(0.2)
        channels = CHANNELS if self._is_first else self._rng.sample(CHANNELS, self._rng.randint(0, len(CHANNELS)))
        self._is_first = False
        url = f"--url={self._server.url}"
        command = [sys.executable, "-m", "crewel", "sub", *channels, f"--name={name}", "--leave", "--json", url]
        return command, {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}

    def _is_alive(self, name: str) -> bool:
        try:
            return bool(Desk(self._server).get(f"/sessions/{name}")["state"] == "ALIVE")
        except (OSError, EOFError, AssertionError):  # there is no server at the moment
            return True

    def _note(self, line: bytes) -> None:
        [name] = self.names
        if line.startswith(b"crewel: subscribed to"):
            self._told({"event": "ready", "name": name})
        elif line.startswith(b"{"):
            fields = json.loads(line)
            update = fields.get("ext", {}).get("update", {})
            if update.get("state") != "ERASED":
                self._told({"event": "taken", "name": name, "id": fields.get("id", update.get("id"))})


def everyone(server: Server, taken: Taken, rng: random.Random) -> list[RandomApplications]:
    """One application of each kind."""

    def app(name: str, settle: str | None, transport: str) -> dict[str, Any]:
        return {"name": name, "settle": settle, "transport": transport, "channels": CHANNELS}

    python = [sys.executable, "-m", "tests.faults.application"]
    node = ["node", str(DRIVERS / "application.mjs")]
    settling = [app("py/1", "message", "websocket"), app("py/2", "batch", "long-polling")]
    page = [app("js/1", "message", "long-polling"), app("js/2", "message", "websocket")]
    page += [app("stock/1", None, "long-polling"), app("stock/2", None, "websocket")]

    def part() -> random.Random:
        return random.Random(rng.random())

    return [
        Driven(server, taken, part(), python, settling),
        Driven(server, taken, part(), node, page),
        Printing(server, taken, part(), "sub/1"),
        Driven(server, taken, part(), python, [app(PLAIN, None, "websocket")]),
    ]


PLAIN = "plain/1"
"""The Python client without `update`: what is in its queues counts as done, so that its process is not killed."""


def _environment() -> dict[str, str]:
    proxies = {name for name in os.environ if name.lower().endswith("_proxy")}
    kept = {name: value for name, value in os.environ.items() if name not in proxies}
    return kept | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
