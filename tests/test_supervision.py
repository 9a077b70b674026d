"""Long-lived tasks are started again when they fail, with growing pauses, and what is down is known."""

from __future__ import annotations

import asyncio
from typing import Any

from crewel.supervision import FIRST_PAUSE_S, LONGEST_PAUSE_S, Supervisor
from tests.broker.clock import ControlledLoop


class Failing:
    """A body that fails at once, so many times, and then waits for ever."""

    def __init__(self, loop: ControlledLoop, failures: int, error: Exception) -> None:
        self.loop = loop
        self.failures = failures
        self.error = error
        self.starts: list[float] = []

    async def __call__(self) -> None:
        self.starts.append(self.loop.time())
        if len(self.starts) <= self.failures:
            raise self.error
        await asyncio.Event().wait()


def started(loop: ControlledLoop, body: Failing) -> Supervisor:
    supervisor = Supervisor()
    loop.call_soon(supervisor.start, "pump", body)
    loop.settle()
    return supervisor


def ended(loop: ControlledLoop, supervisor: Supervisor) -> None:
    loop.run_until_complete(supervisor.close())
    loop.close()


def test_a_task_that_fails_is_started_again_with_growing_pauses() -> None:
    loop = ControlledLoop()
    body = Failing(loop, failures=8, error=OSError(24, "Too many open files"))
    supervisor = started(loop, body)
    loop.advance(60)
    pauses = [round(later - earlier, 3) for earlier, later in zip(body.starts, body.starts[1:], strict=False)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    assert supervisor.restarts["pump"] == 8
    ended(loop, supervisor)


def test_trouble_names_the_task_until_it_has_run_for_a_while() -> None:
    loop = ControlledLoop()
    supervisor = started(loop, Failing(loop, failures=1, error=OSError(24, "Too many open files")))
    assert supervisor.trouble == "pump failed: [Errno 24] Too many open files"
    loop.advance(FIRST_PAUSE_S * 2.5)
    assert supervisor.trouble is None
    ended(loop, supervisor)


def test_a_task_that_fails_again_at_once_stays_in_trouble() -> None:
    loop = ControlledLoop()
    supervisor = started(loop, Failing(loop, failures=10**6, error=ValueError("no")))
    for _ in range(100):
        loop.advance(0.1)
        assert supervisor.trouble == "pump failed: no"
    ended(loop, supervisor)


def test_an_error_of_the_system_is_logged_without_a_traceback(caplog: Any) -> None:
    loop = ControlledLoop()
    supervisor = started(loop, Failing(loop, failures=1, error=OSError(24, "Too many open files")))
    (record,) = caplog.records
    assert record.getMessage().startswith("the task 'pump' failed and starts again in 0.1 s: [Errno 24]")
    assert not record.exc_info
    ended(loop, supervisor)


def test_a_mistake_in_the_code_is_logged_with_its_traceback(caplog: Any) -> None:
    loop = ControlledLoop()
    supervisor = started(loop, Failing(loop, failures=1, error=ValueError("no")))
    assert caplog.records[0].exc_info
    ended(loop, supervisor)


def test_a_task_that_returns_is_not_started_again() -> None:
    loop = ControlledLoop()
    starts = []

    async def body() -> None:
        starts.append(1)

    supervisor = Supervisor()
    loop.call_soon(supervisor.start, "once", body)
    loop.advance(10)
    assert len(starts) == 1
    ended(loop, supervisor)


def test_closing_ends_a_task_that_waits_for_its_restart() -> None:
    loop = ControlledLoop()
    body = Failing(loop, failures=10**6, error=ValueError("no"))
    supervisor = started(loop, body)
    loop.run_until_complete(supervisor.close())
    count = len(body.starts)
    loop.advance(60)
    assert len(body.starts) == count
    assert supervisor.trouble is None
    loop.close()
