"""A `crewel` for shells that is forked from the template, in place of the installed one, which imports for most of a second.

The program that the shell starts is a short one: it hands its arguments, directory, environment and streams to the tests,
passes signals on, and ends as the command does. If it is killed, so is the command.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.template import Command

_PROGRAM: Final = """#!{python} -IS
import json, os, signal, socket, sys

tests = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
tests.connect({address!r})
request = [sys.argv[1:], os.getcwd(), dict(os.environ)]
socket.send_fds(tests, [json.dumps(request).encode()], [0, 1, 2])
pid = int(tests.recv(64))
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(pid, number))
status = int(tests.recv(64))
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""
_REQUEST_BYTES: Final = 1 << 18


@contextmanager
def shell_command() -> Iterator[Path]:
    """A directory for the front of PATH, with a `crewel` that works as long as this lasts."""
    with TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        address, program = f"{directory}/socket", Path(directory, "crewel")
        listener.bind(address)
        listener.listen()
        program.write_text(_PROGRAM.format(python=sys.executable, address=address))
        program.chmod(0o755)
        accepting = threading.Thread(target=_accept, args=[listener])
        accepting.start()
        yield program.parent
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()


def _accept(listener: socket.socket) -> None:
    """Run a command for each program that comes."""
    running: list[threading.Thread] = []
    with suppress(OSError):  # the end
        while True:
            running.append(threading.Thread(target=_run, args=[listener.accept()[0]]))
            running[-1].start()
    for each in running:
        each.join()


def _run(program: socket.socket) -> None:
    with program, suppress(ConnectionError):
        message, streams, _, _ = socket.recv_fds(program, _REQUEST_BYTES, 3)
        arguments, directory, environ = json.loads(message)
        stdin, stdout, stderr = streams
        with Command(arguments, cwd=directory, env=environ, stdin=stdin, stdout=stdout, stderr=stderr) as command:
            for each in streams:
                os.close(each)
            ended = os.pidfd_open(command.pid)
            try:
                program.send(str(command.pid).encode())
                if program in select.select([program, ended], [], [])[0]:
                    command.kill()  # as the program was
                program.send(str(command.wait()).encode())
            finally:
                command.kill()
                os.close(ended)
