"""Standard input and output of a command: texts in UTF-8, whether the output has been read, and whether it can be."""

import asyncio
import codecs
import fcntl
import json
import os
import stat
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from crewel import standard_output
from crewel.errors import CrewelError

_WIDE: Final = {
    codecs.BOM_UTF32_LE: "UTF-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_PAUSES_S: Final = (*[0.0] * 8, 0.001, 0.002, 0.005)
"""How long to wait before looking again whether a message has been read; the last one from there on."""
_LOOK_S: Final = 0.25


def prepare() -> None:
    """Replace streams that are closed, and let standard output escape what its encoding does not have, as JSON does."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - for the whole process
    codecs.register_error("crewel.escape", _escape)
    sys.stdout.reconfigure(errors="crewel.escape")  # type: ignore[union-attr]


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def read_text() -> str:
    """All of standard input. Raises CrewelError if it is not UTF-8, or cannot be read."""
    with _input() as source:
        return _decoded(source.read(), 0, 1)


def read_lines() -> Iterator[str]:
    """The lines of standard input, without their ends. Raises as `read_text`."""
    start, number = 0, 1
    with _input() as source:
        for read in source:
            for line in read.splitlines(keepends=True):
                yield _decoded(line, start, number).rstrip("\r\n")
                start, number = start + len(line), number + 1


@contextmanager
def _input() -> Iterator[BinaryIO]:
    """A file of our own: at exit, Python would wait for the lock of sys.stdin that a blocked reader holds."""
    try:
        with open(sys.stdin.fileno(), "rb", closefd=False) as source:
            yield source
    except OSError as error:
        raise CrewelError(f"standard input cannot be read: {error.strerror or error}") from None


def _decoded(part: bytes, start: int, line: int) -> str:
    """The text of bytes that begin at an offset and in a line of standard input, without a byte-order mark."""
    if start == 0:
        _check_width(part)
    try:
        text = part.decode()
    except UnicodeDecodeError as error:
        found, before = f"byte 0x{part[error.start]:02x} at offset {start + error.start}", part[: error.start]
        raise CrewelError(
            f"standard input is not UTF-8: {found}, in line {line + before.count(10)}; convert it, for example with: "
            "iconv -f ISO-8859-1 -t UTF-8"
        ) from None
    return text.removeprefix("\N{BYTE ORDER MARK}") if start == 0 else text


def _check_width(beginning: bytes) -> None:
    wide = next((name for mark, name in _WIDE.items() if beginning.startswith(mark)), None)
    if wide is None and b"\0" in beginning[:2]:
        wide = "UTF-16"  # without a mark
    if wide is not None:
        raise CrewelError(
            f"standard input is not UTF-8 but {wide}: byte 0x{beginning[0]:02x} at offset 0; convert it, for example with: "
            f"iconv -f {wide} -t UTF-8"
        )


async def output_read() -> None:
    """Wait until what was printed has been read, if standard output is a pipe: what is in a pipe ends with its reader."""
    descriptor = standard_output.descriptor()
    if descriptor is None or not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return
    pauses = iter(_PAUSES_S)
    pause = 0.0
    while any(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4))):
        pause = next(pauses, pause)
        await asyncio.sleep(pause)


async def output_closed() -> None:
    """Wait until nothing can read standard output any more. Raises BrokenPipeError then."""
    while not standard_output.is_closed():  # noqa: ASYNC110 - nothing else reports it
        await asyncio.sleep(_LOOK_S)
    raise BrokenPipeError


@contextmanager
def closed_pipe_fails(words: str) -> Iterator[None]:
    """Raise CrewelError with these words if nothing reads standard output any more."""
    try:
        yield
    except BrokenPipeError:
        raise CrewelError(f"standard output is closed: {words}") from None
