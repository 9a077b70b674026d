"""How much work a call does, in instructions or calls of Python: unlike a timing it is the same on every machine."""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import crewel

_OURS = str(Path(crewel.__file__).parent)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Let no garbage be collected: the finalisers of what earlier tests left would be counted as this work's."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def instructions(work: Callable[[], object]) -> int:
    """The number of instructions of Crewel's own code that this work takes.

    Those of the event loop and of the connection to the store are left out: how many turns an answer takes is the kernel's.
    """
    with _without_collections():
        return _monitored(work) if sys.version_info >= (3, 12) else _traced(work)


def _monitored(work: Callable[[], object]) -> int:
    """As `_traced`, which from Python 3.12 on does not count a function until its second call."""
    count, monitoring = 0, sys.monitoring  # type: ignore[attr-defined]

    def counted(code: CodeType, _: int) -> Any:
        nonlocal count
        if not code.co_filename.startswith(_OURS):
            return monitoring.DISABLE
        count += 1
        return None

    tool, event = monitoring.PROFILER_ID, monitoring.events.INSTRUCTION
    monitoring.use_tool_id(tool, "crewel-tests")
    try:
        monitoring.register_callback(tool, event, counted)
        monitoring.set_events(tool, event)
        work()
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
    return count


def _traced(work: Callable[[], object]) -> int:
    count = 0

    def traced(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if event == "call" and not frame.f_code.co_filename.startswith(_OURS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def calls(work: Callable[[], object]) -> Counter[str]:
    """The calls, of Python's functions and of C's, that this work makes, by name."""
    counted: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            counted[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            counted[getattr(argument, "__qualname__", str(argument))] += 1

    with _without_collections():
        sys.setprofile(count)
        try:
            work()
        finally:
            sys.setprofile(None)
    return counted


def processor_s(work: Callable[[], object], enough: float) -> float:
    """Seconds of the processor that this work takes: the least of three times, or the first below `enough`.

    For work within a library, whose instructions say little. Another process may slow one time down, and hardly three.
    """
    least = float("inf")
    with _without_collections():
        for _ in range(3):
            began = time.process_time()
            work()
            least = min(least, time.process_time() - began)
            if least < enough:
                break
    return least
