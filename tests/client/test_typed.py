"""Typed data with the real server, and programs of workers."""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from crewel.client import App, Client, Delivery, SubscribeRefused, sync
from tests.admin.desk import Desk as Operator
from tests.client.support import LIMIT_S
from tests.functional.wire import until
from tests.server_process import Server

NUMBERS = itertools.count(1)


class Order(BaseModel):
    pizza: int


@pytest.fixture
def channel() -> str:
    """A channel that no other test has."""
    return f"/typed{next(NUMBERS)}/new"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where workers keep their secrets."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))


async def letters(server: Server, channel: str, count: int = 1) -> list[Any]:
    """The dead letters of the channel, when there are so many."""
    operator = Operator(server)
    await asyncio.to_thread(until, lambda: len(operator.letters(f"channel={channel}")) == count, LIMIT_S)
    return list(operator.letters(f"channel={channel}"))


async def test_a_typed_subscription_rejects_other_data_with_its_error(
    server: Server, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Client(server.url, update=True, name=f"reader{next(NUMBERS)}/1") as client:
        orders = await client.subscribe(channel, data=Order)
        for body in ({"pizza": "many"}, {"pizza": 4}):
            await client.publish(channel, body, persistent=True)
        message = await orders.receive(LIMIT_S)
        assert message.data == Order(pizza=4)
        message.settle()
        [letter] = await letters(server, channel)
        assert letter["errorCode"] == "user.update.illegalArgument"
        assert "data.pizza: Input should be a valid integer" in str(letter)
        assert orders.invalid == 1
    assert "is rejected: data.pizza: Input should be" in caplog.text


async def test_without_update_other_data_is_dropped_and_logged(
    server: Server, channel: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Order] = []
    done = asyncio.Event()
    async with Client(server.url) as client:
        await client.subscribe(channel, lambda message: (seen.append(message.data), done.set())[0], data=Order)
        for body in (None, {"pizza": 4}):
            await client.publish(channel, body)
        await asyncio.wait_for(done.wait(), LIMIT_S)
    assert seen == [Order(pizza=4)]
    assert "is dropped: data: Input should be" in caplog.text


async def test_a_typed_worker_makes_dead_letters_of_other_data(server: Server, channel: str) -> None:
    async with Client(server.url) as client:
        worker = client.consume(channel, name=f"typed{next(NUMBERS)}/1", data=Order, attempts=2)
        async with worker:
            for body in ([], Order(pizza=4)):
                await client.publish(channel, body, persistent=True)
            seen = []
            async for message in worker:
                async with message:
                    seen.append(message.data.model_copy())
                    message.data.pizza = 5
                    if message.failures == 0:
                        raise LookupError
                    break
            assert (seen, worker.invalid) == ([Order(pizza=4)] * 2, 1)
        await letters(server, channel)


async def test_typed_data_without_asyncio(server: Server, channel: str) -> None:
    def run() -> list[Order]:
        with (
            sync.Client(server.url) as client,
            client.consume(channel, name=f"sync{next(NUMBERS)}/1", data=Order) as worker,
        ):
            for body in ("none", Order(pizza=3)):
                client.publish(channel, body, persistent=True)
            message = next(worker)
            message.acknowledge()
            assert worker.invalid == 1
            return [message.data]

    assert await asyncio.to_thread(run) == [Order(pizza=3)]
    await letters(server, channel)


def test_a_wrong_type_is_refused_at_the_call(server: Server) -> None:
    with pytest.raises(TypeError, match="data is a type"):
        Client(server.url).consume("/orders/*", name="worker/1", data={"pizza": int})


async def test_an_app_runs_its_functions_until_it_is_stopped(server: Server, channel: str) -> None:
    app, seen = App(server.url), []
    pattern, done = channel.replace("new", "*"), channel.replace("new", "done")

    @app.consumer(channel, group="bakers", data=Order)
    async def bake(order: Delivery[Order]) -> None:
        await app.client.publish(done, order.data.pizza, persistent=True)

    @app.consumer(done, name=f"waiter{next(NUMBERS)}/1")
    def serve(order: Delivery) -> None:
        seen.append((order.data, order.consumer and order.consumer.client.name))
        app.stop()

    with pytest.raises(ValueError, match="two functions of an app have the session bake/1"):
        app.consumer(pattern)(bake)
    running = asyncio.create_task(app.serve())
    async with Client(server.url) as client:
        while not running.done():  # until both have subscribed
            await client.publish(channel, {"pizza": 4}, persistent=True)
            await asyncio.wait([running], timeout=0.2)
    await running
    assert seen[0][0] == 4


async def test_an_app_whose_session_is_refused_stops_and_says_why(server: Server, channel: str) -> None:
    app = App(server.url)

    @app.consumer(channel, name=f"good{next(NUMBERS)}/1")
    async def good(order: Delivery) -> None: ...

    @app.consumer(channel, name=f"bad{next(NUMBERS)}/1", filter="((")
    async def bad(order: Delivery) -> None: ...

    with pytest.raises(SubscribeRefused):
        await asyncio.wait_for(app.serve(), LIMIT_S)


async def test_an_app_without_functions_says_so(server: Server) -> None:
    with pytest.raises(ValueError, match="the app has no consumer"):
        await App(server.url).serve()
    with pytest.raises(ValueError, match="the app has no consumer"):
        sync.App(server.url).run()


PROGRAM = """
import sys
from crewel.client{module} import App, Delivery
app = App("{url}", number={session})

@app.consumer("{channel}", at_once=2)
{keyword}def bake(order: Delivery) -> None:
    print(order.data, order.consumer.client.name if {is_async} else "baked", flush=True)

@app.consumer("/other", name="other{channel}/1".replace("/new", ""))
{keyword}def other(order: Delivery) -> None: ...

app.run()
print("ended")
"""


@pytest.mark.parametrize(("module", "keyword"), [("", "async "), (".sync", "")])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_an_app_in_good_order(
    server: Server, tmp_path: Path, module: str, keyword: str, number: signal.Signals
) -> None:
    channel = f"/signal{next(NUMBERS)}/new"
    session = next(NUMBERS)
    script = PROGRAM.format(
        module=module, keyword=keyword, url=server.url, channel=channel, is_async=bool(keyword), session=session
    )
    script = script.replace(f'"other{channel}/1"', f'"other{next(NUMBERS)}/1"')
    environ = os.environ | {"STATE_DIRECTORY": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-c", script]
    program = await asyncio.create_subprocess_exec(*command, env=environ, stdout=subprocess.PIPE)
    assert program.stdout is not None
    try:
        async with asyncio.timeout(LIMIT_S), Client(server.url) as client:
            line = asyncio.create_task(program.stdout.readline())
            while not line.done():  # until it has subscribed
                await client.publish(channel, 4, persistent=True)
                await asyncio.wait([line], timeout=0.2)
            assert line.result().endswith(f"bake/{session}\n".encode() if keyword else b"4 baked\n")
            program.send_signal(number)
            assert (await program.stdout.read()).endswith(b"ended\n")
            assert await program.wait() == 0
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
