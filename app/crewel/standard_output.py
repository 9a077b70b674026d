"""Standard output of a process: whether it is read, and how the process ends when nothing reads it any more, as in
`crewel sessions list | head -1`. It is for all commands, those of the pipeline too."""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from typer.core import TyperGroup

if TYPE_CHECKING:
    from rich.console import Console


class Commands(TyperGroup):
    """A group of commands that end quietly, with 0, when nothing reads what they print: typer would end them with 1."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the command line; with `--help` and `--version` that prints."""
        with closed_pipe_ends():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with closed_pipe_ends():
            return super().invoke(ctx)


@contextmanager
def closed_pipe_ends(status: int = 0) -> Iterator[None]:
    """End the process quietly, with this status, when nothing reads its standard output any more. Other errors pass.

    What is printed is written when this ends: Python would report what it cannot write at its own end, and change the status.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        if not is_closed():  # it was another pipe
            raise
        _drop()
        raise SystemExit(status) from None
    except BaseException:
        try:
            sys.stdout.flush()
        except OSError:
            _drop()
        raise


def is_closed() -> bool:
    """Whether nothing can read standard output any more."""
    output, poll = descriptor(), select.poll()
    if output is not None:
        poll.register(output, 0)  # for nothing but errors
    return bool(poll.poll(0))


def descriptor() -> int | None:
    """The descriptor of standard output; None in a process that has replaced it with an object."""
    try:
        return sys.stdout.fileno()
    except OSError:
        return None


def _drop() -> None:
    """Let what is not written yet, and all that follows, go nowhere."""
    output = descriptor()
    if output is not None:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, output)
        os.close(nothing)


def console(**options: Any) -> Console:
    """What prints tables and styles on standard output. It raises BrokenPipeError if nothing reads that any more, as `print`
    does."""
    from rich.console import Console

    class Printer(Console):
        def on_broken_pipe(self) -> None:
            # That of `Console` ends the process with 1, also in the middle of a session.
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    return Printer(highlight=False, **options)
