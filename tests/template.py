"""`crewel` commands for tests, forked from one process that has imported everything: 0.7 s of imports less for each.

`Command` is a `subprocess.Popen` of `python -m crewel`, and what it starts is a process as that would be: with its own pid,
arguments, environment, working directory, standard streams, signals, memory, and an exit status. Its parent is the template,
`python -m tests.template`, which reads requests from a socket and ends with the tests.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import pkgutil
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

import typer.main

ROOT: Final = Path(__file__).parents[1]
_APP: Final = os.environ.get("CREWEL_TEST_APP", str(ROOT / "app"))
"""Where the code of the commands is: of this tree, or of a release that the tests have in its place."""
PYTHONPATH: Final = os.pathsep.join((str(ROOT), _APP))
"""Where commands find the tests and their code, whichever tree the environment of Python was made for."""
_MESSAGE_BYTES: Final = 1 << 18
_LIBRARIES: Final = ("uvloop", "rich.console", "rich.table", "redis.asyncio", "websockets.asyncio.client")
"""What commands import within functions, beside the modules of Crewel."""
_AT_START: Final = ("PYTHON", "LANG", "LC_", "LD_", "MALLOC_", "OPENSSL_", "SSL_")
"""The first letters of the variables that a process reads while it starts: a fork cannot obey them."""

_LIMITS: Final = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})
"""The limits that a process inherits, from the tests and not from the template."""


class Command(subprocess.Popen[Any]):
    """`python -m crewel ARGUMENTS`, made from the arguments alone, and otherwise as any `subprocess.Popen`.

    It overrides three methods of `Popen` that are private, and the same in Python 3.11 to 3.14.
    """

    _pidfd: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """As `Popen.wait`, which looks 20 times a second; this one is woken."""
        if self.returncode is None and self._pidfd is not None:
            _is_readable(self._pidfd, timeout)
        return super().wait(timeout)

    def _execute_child(
        self,
        args: Sequence[str],
        executable: object,
        preexec_fn: object,
        close_fds: object,
        pass_fds: object,
        cwd: os.PathLike[str] | str | None,
        env: Mapping[str, str] | None,
        startupinfo: object,
        creationflags: object,
        shell: object,
        *more: Any,
    ) -> None:
        environ = dict(os.environ if env is None else env)
        if not _can_fork(environ):
            given = (executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell)
            super()._execute_child([sys.executable, "-m", "crewel", *args], *given, *more)
            return
        pipes = more[:6]
        streams = [own if fd == -1 else fd for own, fd in enumerate((pipes[0], pipes[3], pipes[5]))]
        try:
            self.pid = _the_template().start(args, os.fspath(cwd or Path.cwd()), environ, streams)
            self._pidfd = os.pidfd_open(self.pid)
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)

    def _internal_poll(self, *given: Any, **named: Any) -> int | None:
        if self._pidfd is None:
            return super()._internal_poll(*given, **named)
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                self._take_status(0)
            finally:
                self._waitpid_lock.release()
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._pidfd is None:
            return super()._try_wait(wait_flags)
        return self._take_status(0 if wait_flags & os.WNOHANG else None)

    def _take_status(self, timeout: float | None) -> tuple[int, int]:
        """Return pid and status as `os.waitpid` does, or zeros if it runs on after `timeout` seconds."""
        if self._pidfd is None or not _is_readable(self._pidfd, timeout):
            return 0, 0
        status = _the_template().status(self.pid)
        os.close(self._pidfd)
        self._pidfd = None
        self._handle_exitstatus(status)
        return self.pid, status


def _is_readable(fd: int, timeout: float | None) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if timeout is None else timeout * 1000))


def _can_fork(environ: Mapping[str, str]) -> bool:
    """Whether a fork would be like a process that starts with this environment."""
    return (
        hasattr(os, "pidfd_open")
        and _read_at_start(environ) == _read_at_start(os.environ)
        and not any(map(_is_obeyed_at_start, environ.get("PYTHONPATH", "").split(os.pathsep)))
    )


def _is_obeyed_at_start(place: str) -> bool:
    """Whether a process would import from there what the template has not, or has from elsewhere."""
    has_other_code = Path(place, "crewel").is_dir() and not Path(place).samefile(_APP)
    return has_other_code or Path(place, "sitecustomize.py").exists()


def _read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environ.items() if name.startswith(_AT_START) and name != "PYTHONPATH"}


class _Template:
    """The process that forks, as the tests see it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._turn = threading.Lock()
        command = [sys.executable, "-m", "tests.template", str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def start(self, arguments: Sequence[str], directory: str, environ: Mapping[str, str], streams: list[int]) -> int:
        """Fork a command with these three standard streams; return its pid."""
        request = {
            "arguments": list(arguments),
            "directory": directory,
            "environ": dict(environ),
            "limits": [(number, resource.getrlimit(number)) for number in _LIMITS],
        }
        return self._ask(request, streams)

    def status(self, pid: int) -> int:
        """Return how a command that has ended did, as `os.waitpid` tells."""
        return self._ask({"ended": pid}, [])

    def end(self) -> None:
        """End it, and all commands that still run."""
        self._socket.close()
        self._process.wait()

    def _ask(self, request: Mapping[str, object], fds: list[int]) -> int:
        with self._turn:
            socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
            answer = self._socket.recv(64)
        assert answer, "the template has ended"
        return int(answer)


_templates: list[_Template] = []
_first = threading.Lock()


def _the_template() -> _Template:
    with _first:
        if not _templates:
            _templates.append(_Template())
        return _templates[0]


def end_template() -> None:
    """End the template, if a test started it."""
    while _templates:
        _templates.pop().end()


def main() -> None:
    """Be the template; in a child, return from the requests and be the command."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    sys.path.insert(0, _APP)
    _import_all()
    del sys.path[0]
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page of the template
    asked = _fork_until_asked(requests)
    if asked is not None:
        _become(*asked)
        _end(_run())


def _run() -> int:
    """Run the command; return the exit status of a process that ran it."""
    try:
        runpy.run_module("crewel", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, int | None):
            return ended.code or 0
        raise
    return 0


def _end(status: int) -> None:
    """End as Python does after its last statement, but leave the memory as it is.

    To free all that the template has imported, a child copies each page of it: as much processor time as its start.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the threads
    atexit._run_exitfuncs()
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):  # None: the command has given it up
            stream.flush()
    except (OSError, ValueError):
        return  # Python finds the same, and says so
    os._exit(status & 0xFF)


def _import_all() -> None:
    import crewel

    ours = pkgutil.walk_packages(crewel.__path__, "crewel.")
    for name in (*_LIBRARIES, *(module.name for module in ours if not module.name.startswith("crewel.pipeline"))):
        if not name.endswith("__main__"):
            importlib.import_module(name)
    # Making all commands takes nearly half of the processor time in which a server starts.
    typer.main.get_command = functools.cache(typer.main.get_command)
    typer.main.get_command(sys.modules["crewel.cli.main"].app)


def _fork_until_asked(requests: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for each request; in a child, return it with its standard streams. None means that the tests have ended."""
    running: set[int] = set()
    while True:
        message, streams, _, _ = socket.recv_fds(requests, _MESSAGE_BYTES, 3)
        if not message:
            break
        request = json.loads(message)
        if ended := request.get("ended"):
            running.discard(ended)
            answer = os.waitpid(ended, 0)[1]
        else:
            answer = os.fork()
            if not answer:
                requests.close()
                return request, streams
            running.add(answer)
        for fd in streams:
            os.close(fd)
        requests.send(str(answer).encode())
    for pid in running:
        os.kill(pid, signal.SIGTERM)
    return None


def _become(request: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Take over what a new process has of its own."""
    for own, fd in enumerate(streams):
        os.dup2(fd, own)
        os.close(fd)
    sys.stdin = sys.__stdin__ = _opened(0, sys.stdin)
    sys.stdout = sys.__stdout__ = _opened(1, sys.stdout)
    sys.stderr = sys.__stderr__ = _opened(2, sys.stderr)
    for number, limits in request["limits"]:
        resource.setrlimit(number, limits)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environ"])
    time.tzset()
    listed = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [request["directory"], *listed, *(path for path in sys.path if path != str(ROOT))]
    sys.argv = ["crewel", *request["arguments"]]
    sys.orig_argv = [sys.executable, "-m", *sys.argv]
    importlib.invalidate_caches()


def _opened(fd: int, before: TextIO) -> TextIO:
    """Open a standard stream as a new process does: by lines if it is a terminal, and standard error always."""
    mode = "r" if fd == 0 else "w"
    stream = open(fd, mode, encoding=before.encoding, errors=before.errors, closefd=False)  # noqa: SIM115
    is_unbuffered = before.write_through
    by_lines = not is_unbuffered and (fd == 2 or (fd == 1 and stream.isatty()))
    stream.reconfigure(line_buffering=by_lines, write_through=is_unbuffered)
    return stream


if __name__ == "__main__":
    main()
