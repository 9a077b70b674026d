"""The end of a server has one deadline, whatever its store does."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic

import pytest

from crewel import supervision
from crewel.event_loop import unless
from crewel.nodes.membership import Membership
from crewel.server import BROKER, build, listening_with
from crewel.settings import Settings, load
from crewel.settings.server_settings import Http
from crewel.settings.storage import Cluster, Storage
from crewel.supervision import Shutdown
from tests.cli.command import Running
from tests.functional.wire import until
from tests.ports import free_port
from tests.store_process import own_prefix, shared_store

WITHIN_S = 2.0
LONGEST_S = 20.0
"""Far more than the deadline, for a machine under load; without the deadline it takes over 30."""


def test_no_step_takes_longer_than_all_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(supervision, "monotonic", lambda: now)
    shutdown = Shutdown()
    assert shutdown.left(50) == 50
    shutdown.begin()
    assert (shutdown.left(5), shutdown.left(50)) == (5, supervision.SHUTDOWN_S)
    now += 30
    shutdown.begin()
    assert (shutdown.left(5), shutdown.left(50)) == (5, supervision.SHUTDOWN_S - 30)
    now += 30
    assert shutdown.left(5) == 0


async def test_step_that_takes_too_long_is_given_up_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    steps: list[str] = []

    async def quick() -> None:
        steps.append("quick")

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("cancelled")

    shutdown = Shutdown()
    shutdown.begin()
    await shutdown.within(5, quick(), "the quick one")
    await shutdown.within(0, endless(), "the endless one")
    assert steps[0] == "quick"
    assert [record.getMessage() for record in caplog.records] == [
        "shutdown: the endless one took longer than 0.0 s and was abandoned"
    ]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The settings; to read them reads files, which must not happen in the event loop."""
    own = (f"storage.data_dir={tmp_path}/data", "http.port=0", "http.demos=false", "admin.token=a-token-of-the-tests")
    return load(overrides=own, environ={})


@pytest.mark.server
async def test_server_whose_store_hangs_ends_before_its_deadline(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervision, "SHUTDOWN_S", WITHIN_S)
    caplog.set_level(logging.WARNING)
    app = build(settings)
    async with listening_with(app):
        broker = app[BROKER]
        store = int((await broker.runtime.access.store.reader.info("server"))["process_id"])
        os.kill(store, signal.SIGSTOP)
        stored = asyncio.ensure_future(broker.publish_stored("/a", "soup"))
        await asyncio.sleep(0)
        began = monotonic()
    assert monotonic() - began < LONGEST_S
    with pytest.raises(ProcessLookupError):
        os.kill(store, 0)
    assert "the store has not ended within" in caplog.text
    await asyncio.wait([stored], timeout=LONGEST_S)
    assert stored.exception() is not None


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler for this signal, which would end it otherwise."""
    (caught,) = re.findall(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(caught, 16) >> (number - 1) & 1)


@pytest.fixture
def of_a_node(tmp_path: Path) -> Settings:
    """The settings of a server that shares its store, as `settings`."""
    storage = Storage(url=shared_store().url, prefix=own_prefix(), data_dir=str(tmp_path))
    return Settings(
        storage=storage, cluster=Cluster(enabled=True, listen="127.0.0.1:0"), http=Http(port=0, demos=False)
    )


@pytest.mark.server
async def test_a_node_that_ends_while_it_joins_the_others_gives_up_its_lease(
    of_a_node: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the others wait for the end of the lease until they take over its sessions."""
    stop, is_joining = asyncio.Event(), asyncio.Event()

    async def join(_: Membership) -> None:
        is_joining.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Membership, "join", join)
    app = build(of_a_node)
    with shared_store().client() as client:
        async with AsyncExitStack() as stack:
            start = asyncio.create_task(unless(stop, stack.enter_async_context(listening_with(app))))
            await asyncio.wait_for(is_joining.wait(), LONGEST_S)
            leases = f"{of_a_node.storage.prefix}*lease:*"
            assert client.keys(leases)
            stop.set()
            assert await start is None
        assert not client.keys(leases)


@pytest.mark.server
def test_server_that_waits_for_its_store_ends_by_sigterm(tmp_path: Path) -> None:
    """It looks for the store for ten seconds, and for minutes if that reads a long file."""
    nowhere = f"--set=storage.url=redis://127.0.0.1:{free_port()}"
    server = Running("serve", "--port=0", nowhere, directory=tmp_path)
    until(lambda: catches(server.process.pid, signal.SIGTERM))
    status, err = server.end(signal.SIGTERM)
    assert (status, "crewel: " in err) == (0, False), err
