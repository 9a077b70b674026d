"""Opening a client and a worker: once, by several tasks at the same time, and not without an end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from crewel.client import Client, Consumer, Delivery, DisconnectedError, Outbox, ResumeCallbacks, State
from tests.client.support import LIMIT_S, QUICK
from tests.client.test_trouble import Asked
from tests.ports import free_port
from tests.server_process import Server


@pytest.fixture
async def away(tmp_path: Path) -> AsyncIterator[Consumer]:
    """A worker whose server is away, and whose client keeps trying."""
    url = f"http://127.0.0.1:{free_port()}/cometd"
    async with Client(url, outbox=Outbox(), backoff=QUICK, close_timeout=0.1) as client:
        yield client.consume("/orders", name="worker/1", resume_file=tmp_path / "secret")


@pytest.mark.parametrize("options", [{}, {"resume_file": "secret"}, {"outbox": None}])
async def test_a_second_opening_leaves_the_session_as_it_is(
    server: Server, tmp_path: Path, options: dict[str, Any]
) -> None:
    if "resume_file" in options:
        options = {"resume_file": tmp_path / "secret", "name": "twice/1"}
    elif options:
        options = {"outbox": Outbox()}
    client = Client(server.url, **options)
    opening = [asyncio.create_task(client.__aenter__()) for _ in range(2)]
    _, refused = await asyncio.gather(*opening, return_exceptions=True)
    for error in (refused, *(await asyncio.gather(client.__aenter__(), return_exceptions=True))):
        assert isinstance(error, RuntimeError)
        assert "opened once" in str(error)
    async with asyncio.timeout(LIMIT_S):
        await client.publish("/a", 1)
        await client.__aexit__(None, None, None)


async def test_what_is_unsubscribed_while_the_client_opens_is_not_subscribed(server: Server) -> None:
    asked = Asked()
    client = Client(server.url, extensions=[asked])
    subscription = await client.subscribe("/a")
    opening = asyncio.create_task(client.__aenter__())
    await asyncio.sleep(0)
    await subscription.unsubscribe()
    async with asyncio.timeout(LIMIT_S):
        await opening
        await client.__aexit__(None, None, None)
    assert asked.channels == []


async def test_a_client_that_is_closed_while_it_reads_its_secret_ends() -> None:
    reading, go = asyncio.Event(), asyncio.Event()

    async def load() -> None:
        reading.set()
        await go.wait()

    store = ResumeCallbacks(load, lambda secret: None)
    client = Client("http://127.0.0.1:9/cometd", name="a/1", resume_store=store, outbox=Outbox(), update=True)
    opening = asyncio.create_task(client.__aenter__())
    async with asyncio.timeout(LIMIT_S):
        await reading.wait()
        await client.__aexit__(None, None, None)
        go.set()
        with pytest.raises(DisconnectedError, match="the client was closed"):
            await opening
    assert client._session.connection._http is None
    assert client._session._tasks == []


async def test_a_client_whose_outbox_is_in_use_is_closed(server: Server) -> None:
    outbox = Outbox()
    async with Client(server.url, outbox=outbox) as first:
        second = Client(server.url, outbox=outbox)
        with pytest.raises(Exception, match="belongs to another client"):
            await second.__aenter__()
        assert second.state is State.CLOSED
        await first.enqueue("/a", 1)
        await outbox.drained(LIMIT_S)


async def test_tasks_that_begin_to_iterate_at_the_same_time_have_one_login(server: Server, tmp_path: Path) -> None:
    async with Client(server.url) as client, asyncio.timeout(LIMIT_S):
        worker = client.consume("/both", name="both/1", resume_file=tmp_path / "secret")
        both = asyncio.gather(anext(worker), anext(worker))
        while worker.client.state is not State.CONNECTED:
            await asyncio.sleep(0.01)
        for number in (1, 2):
            await client.publish("/both", number, persistent=True)
        assert {message.data for message in await both} == {1, 2}


async def taken(worker: Consumer) -> list[Delivery]:
    return [message async for message in worker]


async def in_a_block(worker: Consumer) -> list[Delivery]:
    async with worker:
        return await taken(worker)


@pytest.mark.server
@pytest.mark.parametrize("use", [taken, in_a_block])
@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_worker_that_logs_in_without_success_can_be_ended(
    away: Consumer, use: Callable[[Consumer], Any], is_closed: bool
) -> None:
    running = [asyncio.create_task(use(away)) for _ in range(2)]
    await asyncio.sleep(0.1)
    if is_closed:
        await asyncio.wait_for(away.close(), 5)
    else:
        away.stop()
    assert await asyncio.wait_for(asyncio.gather(*running), 5) == [[], []]
    assert away.client.state is State.CLOSED
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(anext(away), 5)
