"""What the tests of operators' commands share: a server with letters in it, and commands as they are typed."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.admin.desk import TOKEN, Desk, Receiver, publish
from tests.cli.command import Ended, crewel
from tests.functional.wire import until
from tests.server_process import Server
from tests.template import Command

LIMIT_S = 60.0


class Post:
    """A server, an operator's shell, and somebody who makes letters."""

    def __init__(self, server: Server, directory: Path) -> None:
        self.server = server
        self.desk = Desk(server)
        self.directory = directory
        self.environ = {"CREWEL_URL": self.server.url, "CREWEL_TOKEN": TOKEN}

    def run(self, *arguments: str, given: str | None = None) -> Ended:
        return crewel(*arguments, directory=self.directory, environ=self.environ, given=given)

    def lines(self, *arguments: str) -> list[Any]:
        """The JSON lines of a command that has to succeed."""
        ended = self.run(*arguments)
        assert (ended.status, ended.err) == (0, ""), ended
        return [json.loads(line) for line in ended.out.splitlines()]

    def receiver(self, name: str, channel: str, **session: Any) -> Receiver:
        receiver = Receiver(self.server).be(name, **session)
        receiver.subscribe(channel)
        return receiver

    def letters(self, receiver: Receiver, channel: str, count: int, code: str = "user.update.error") -> list[str]:
        """Let the receiver make so many letters; the ids of all of the channel."""
        before = len(self.desk.letters(f"channel={channel}&count=1000"))
        publish(self.server, channel, count)
        receiver.reject(receiver.take(), code)
        query = f"channel={channel}&count=1000"
        found = until(lambda: them if len(them := self.desk.letters(query)) == before + count else None)
        return [letter["id"] for letter in found]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A command that the test goes on beside."""
        return Command(
            arguments, cwd=self.directory, env=self._env(), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def on_terminal(self, *arguments: str, typed: str = "") -> tuple[int, str]:
        """The status of a command on a terminal, and what stands there at the end."""
        ours, theirs = pty.openpty()
        process = Command(
            arguments, cwd=self.directory, env=self._env(TERM="xterm", COLUMNS="120"),
            stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        os.close(theirs)
        os.write(ours, typed.encode())
        said, deadline = b"", time.monotonic() + LIMIT_S
        while select.select([ours], [], [], max(0, deadline - time.monotonic()))[0]:
            try:
                said += os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
        os.close(ours)
        return process.wait(LIMIT_S), said.decode()

    def _env(self, **more: str) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("CREWEL_")}
        return inherited | self.environ | more
