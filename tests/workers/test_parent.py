"""The parent of the workers, when the machine has no process for one of them."""

from __future__ import annotations

import asyncio
import errno
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from crewel.settings import Settings, load
from crewel.workers import parent as module
from crewel.workers.parent import Parent, _Process

NO_PROCESS = OSError(errno.EAGAIN, "Resource temporarily unavailable")


class Run(Parent):
    """A parent whose processes are none."""

    def __init__(self, settings: Settings, failures: int) -> None:
        super().__init__(settings, lambda *_: [])
        self.failures = failures
        self.spawned: list[int] = []
        self._has_started = True

    async def _spawn(self, number: int) -> _Process:
        self.spawned.append(number)
        if len(self.spawned) <= self.failures:
            raise NO_PROCESS
        return self.worker(number)

    def worker(self, number: int, *, serves: bool = True) -> _Process:
        streams: Any = (None, SimpleNamespace(write=lambda _: None, is_closing=lambda: False))
        process: Any = SimpleNamespace(pid=number, send_signal=lambda _: None)
        made = _Process(number, process, streams, asyncio.get_running_loop().create_future())
        if serves:
            made.ready.set_result("url")
            made.since = asyncio.get_running_loop().time()
            self._running.append(made)
        return made


@pytest.fixture
def settings() -> Settings:
    """Those of a parent; reading them looks at files, which must not happen inside the event loop."""
    return load(None, ["cluster.workers=2"])


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(module, "_EVERY_S", 0.0)


async def test_a_worker_whose_process_cannot_be_made_starts_again(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(settings, 6)
    run.worker(1)
    await run._replace(run.worker(2, serves=False), -9)
    assert run.spawned == [2] * 7
    assert run._failed == {2: 7}  # so operators see it in `crewel_workers_failing`
    assert "worker 2 cannot be started (Resource temporarily unavailable), and starts again" in caplog.text
    assert "worker 2 has not started 5 times in a row; 1 of 2 serve" in caplog.text
    assert not run._stop.is_set()


async def test_the_parent_ends_with_the_reason_if_no_other_worker_serves(settings: Settings) -> None:
    run = Run(settings, 100)
    dead = run.worker(1, serves=False)
    dead.since = 1.0
    await run._replace(dead, -9)
    assert run._stop.is_set()
    assert str(run._failure) == "worker 1 cannot be started: Resource temporarily unavailable"
    assert len(run.spawned) <= module._TRIES


async def test_workers_that_cannot_be_replaced_continue(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    run = Run(settings, 1)
    old = run.worker(1)
    run._hang_up()
    watching = asyncio.create_task(run._watch())
    while not run.spawned:
        await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not watching.done()
    assert old.is_wanted
    assert "cannot replace worker 1: it continues to run (Resource temporarily unavailable)" in caplog.text
    run._end()
    await watching
