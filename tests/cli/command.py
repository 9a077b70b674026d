"""Runs `crewel` as a person would, in a process of its own."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.server_process import LIMIT_S
from tests.template import PYTHONPATH, Command

_STATE = str(Path(tempfile.gettempdir()) / f"crewel-tests-commands-{os.getpid()}")
"""Where commands look for servers of their user: another run's server, which was killed, may have had the same port."""


class Ended(NamedTuple):
    """What a command that ended left: its status and what it wrote."""

    status: int
    out: str
    err: str


def crewel(
    *arguments: str, directory: Path, environ: Mapping[str, str] | None = None, given: str | None = None
) -> Ended:
    """Run `crewel ARGUMENTS` in `directory` until it ends, with `given` as its standard input."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CREWEL_")}
    with Command(
        arguments,
        cwd=directory,
        env={"XDG_STATE_HOME": _STATE} | inherited | {"NO_COLOR": "1"} | dict(environ or {}),
        stdin=None if given is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            out, err = process.communicate(given, timeout=LIMIT_S)
        except BaseException:
            process.kill()
            raise
    return Ended(process.returncode, out, err)


class Running:
    """A command that runs until it is told to end, or ends by itself."""

    def __init__(self, *arguments: str, directory: Path, stdout: int = subprocess.PIPE) -> None:
        self.process = Command(
            arguments,
            cwd=directory,
            env={"XDG_STATE_HOME": _STATE} | os.environ | {"NO_COLOR": "1", "PYTHONPATH": PYTHONPATH},
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )

    def told(self) -> str:
        """The next line of its standard error."""
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def said(self) -> Any:
        """The next line of its standard output, as JSON."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def heard(self) -> Any:
        """The same without what the server tells of the delivery."""
        message = self.said()
        message.pop("ext", None)
        return message

    def end(self, number: signal.Signals | None = None) -> tuple[int, str]:
        """Its exit status and the rest of its standard error; after this signal, if one is given."""
        if number is not None:
            self.process.send_signal(number)
        _, err = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, err


def assert_refused(ended: Ended, *words: str) -> None:
    """Assert that the command failed with one line on stderr that holds all `words`, and nothing on stdout."""
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("crewel: ")
    assert ended.err.count("\n") == 1
    for word in words:
        assert word in ended.err
