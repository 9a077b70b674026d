"""An exception of the program in a loop over messages costs that message an attempt, and the session nothing."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crewel.client import Client, Consumer
from crewel.client.sync import Client as SyncClient
from tests.admin.desk import TOKEN
from tests.admin.desk import Desk as Operator
from tests.client.support import LIMIT_S
from tests.functional.wire import until
from tests.server_process import Server, serving

_numbers = itertools.count(1)


class BadOrderError(Exception):
    """The program's own."""

    error_code = "user.update.error"


class Place:
    """A channel and a name that no other test has."""

    def __init__(self, server: Server, directory: Path) -> None:
        number = next(_numbers)
        self.url = server.url
        self.channel, self.name = f"/loops{number}", f"looper{number}/1"
        self._server, self._secret = server, directory / "worker.resume"

    def client(self, **more: Any) -> Client:
        return Client(self.url, **({"name": self.name, "update": True, "persistent": True} | more))

    def worker(self, client: Client, **more: Any) -> Consumer:
        return client.consume(self.channel, name=self.name, resume_file=self._secret, **more)

    async def publish(self, *bodies: object) -> None:
        async with Client(self.url) as client:
            for body in bodies:
                await client.publish(self.channel, body, persistent=True)

    async def letters(self, count: int) -> list[dict[str, Any]]:
        """The dead letters of the channel, when there are so many."""
        operator = Operator(self._server)

        def found() -> list[dict[str, Any]]:
            return operator.letters(f"channel={self.channel}")

        await asyncio.to_thread(until, lambda: len(found()) == count, LIMIT_S)
        return await asyncio.to_thread(found)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that frees the name of a client that is gone soon."""
    sets = ("bayeux.timeout_ms=300", "bayeux.max_interval_ms=300", "bayeux.sweep_ms=50", f"admin.token={TOKEN}")
    with serving(tmp_path_factory.mktemp("server"), *sets) as server:
        yield server


@pytest.fixture
async def place(server: Server, tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(server, tmp_path)
    async with asyncio.timeout(LIMIT_S):
        yield place


async def prepare(place: Place) -> None:
    """Leave a session that three messages wait for."""
    async with place.client(leave=True) as client:
        await client.subscribe(place.channel)
        await client.ready()
    await place.publish(1, 2, 3)


async def fail(messages: Any) -> None:
    async for message in messages:
        raise BadOrderError(f"bad order {message.data}")


async def in_the_block_of_the_client(place: Place) -> None:
    async with place.client() as client:
        await fail(await client.subscribe(place.channel))


async def in_the_block_of_the_subscription(place: Place) -> None:
    async with place.client(leave=True) as client, await client.subscribe(place.channel) as messages:
        await fail(messages)


async def in_a_task_of_a_group(place: Place) -> None:
    async with place.client() as client, asyncio.TaskGroup() as group:
        group.create_task(fail(await client.subscribe(place.channel)))


async def in_a_task_that_is_awaited(place: Place) -> None:
    async with place.client() as client:
        await asyncio.create_task(fail(await client.subscribe(place.channel)))


async def in_a_thread(place: Place) -> None:
    def work() -> None:
        with SyncClient(place.url, name=place.name, update=True) as client:
            for message in client.subscribe(place.channel):
                raise BadOrderError(f"bad order {message.data}")

    await asyncio.to_thread(work)


@pytest.mark.parametrize(
    "fails",
    [
        in_the_block_of_the_client,
        in_the_block_of_the_subscription,
        in_a_task_of_a_group,
        in_a_task_that_is_awaited,
        in_a_thread,
    ],
)
async def test_the_message_is_a_dead_letter_and_the_others_wait(
    place: Place, fails: Callable[[Place], Awaitable[None]]
) -> None:
    await prepare(place)
    with pytest.raises((BadOrderError, BaseExceptionGroup)) as raised:
        await fails(place)
    errors = raised.value.exceptions if isinstance(raised.value, BaseExceptionGroup) else (raised.value,)
    assert [type(each) for each in errors] == [BadOrderError]
    [letter] = await place.letters(1)
    assert (letter["data"], letter["errorCode"]) == (1, "user.update.error")
    async with place.client() as client:
        assert client.login["reconnected"] is True
        messages = await client.subscribe(place.channel)
        assert [(await messages.receive(LIMIT_S)).data for _ in range(2)] == [2, 3]


async def test_a_worker_without_a_block_has_its_attempts_over_processes(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with Client(place.url) as client:
            async for message in place.worker(client, attempts=2):
                if message.data == 1:
                    raise BadOrderError("no")
                return

    async with Client(place.url) as client, place.worker(client):
        pass
    await place.publish(1, 2)
    with pytest.raises(BadOrderError):
        await work()
    assert "stays for the next process: no" in caplog.text
    with pytest.raises(BadOrderError):
        await work()
    [letter] = await place.letters(1)
    assert letter["data"] == 1
    await work()


async def test_in_the_block_of_the_worker_too_and_in_a_thread(place: Place) -> None:
    async with Client(place.url) as client, place.worker(client):
        pass
    await place.publish(1, 2)
    with pytest.raises(BadOrderError):
        async with Client(place.url) as client, place.worker(client) as worker:
            await fail(worker)
    await place.letters(1)

    def work() -> None:
        with SyncClient(place.url) as client:
            for message in client.consume(place.channel, name=place.name, resume_file=place._secret):
                raise BadOrderError(f"bad order {message.data}")

    with pytest.raises(BadOrderError):
        await asyncio.to_thread(work)
    assert {each["data"] for each in await place.letters(2)} == {1, 2}


async def test_what_another_task_was_processing_stays_open(place: Place) -> None:
    await prepare(place)
    has_one = asyncio.Event()

    async def hold(messages: Any) -> None:
        async for _ in messages:
            has_one.set()
            await asyncio.Event().wait()

    async def fail_then() -> None:
        await has_one.wait()
        raise BadOrderError("elsewhere")

    async def work() -> None:
        async with place.client() as client, asyncio.TaskGroup() as group:
            group.create_task(hold(await client.subscribe(place.channel)))
            group.create_task(fail_then())

    with pytest.raises(BaseExceptionGroup):
        await work()
    async with place.client() as client:
        messages = await client.subscribe(place.channel)
        assert [(await messages.receive(LIMIT_S)).data for _ in range(3)] == [1, 2, 3]
        assert await place.letters(0) == []  # the last message becomes one when this session ends


async def test_a_message_that_was_settled_or_deferred_is_left_alone(place: Place) -> None:
    async def work() -> None:
        async with place.client() as client:
            async for message in await client.subscribe(place.channel):
                if message.data == 1:
                    message.settle()
                    continue
                message.defer()
                raise BadOrderError("not about it")

    await prepare(place)
    with pytest.raises(BadOrderError):
        await work()
    async with place.client() as client:
        messages = await client.subscribe(place.channel)
        assert [(await messages.receive(LIMIT_S)).data for _ in range(2)] == [2, 3]
        assert await place.letters(0) == []  # the last message becomes one when this session ends


@pytest.mark.parametrize("name", [None, "none-comes-back"])
async def test_a_session_that_nothing_can_continue_ends(place: Place, name: str | None) -> None:
    async def work() -> None:
        async with place.client(name=name, persistent=False) as client:
            messages = await client.subscribe(place.channel)
            await client.publish(place.channel, 1, persistent=True)
            await fail(messages)

    with pytest.raises(BadOrderError):
        await work()
    [letter] = await place.letters(1)
    assert letter["errorCode"] == "user.update.error"
    left = await asyncio.to_thread(Operator(place._server).cmd, "__cmd:?clientList")
    assert "none-comes-back" not in left


async def test_a_dropped_message_without_an_id_is_named_by_its_data(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with Client(server.url) as client:
        messages = await client.subscribe("/typed", data=int)
        await client.publish("/typed", {"order": "seventeen"})
        await client.publish("/typed", 1)
        assert (await messages.receive(timeout=-1)).data == 1
    assert "the message {'order': 'seventeen'} of /typed is dropped" in caplog.text


@pytest.mark.parametrize("name", ["z/0", "z/-0", "client/z/00", "z y", ""])
def test_a_name_that_no_session_can_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name is a subject, or one with a number from 1, such as joe or joe/1"):
        Client("http://127.0.0.1:1", name=name)


@pytest.mark.parametrize("name", ["z", "0", "client/0", "z/1", "0/1", "joe/-7", "/node/heron/client/z/1"])
def test_other_names_are_taken(name: str) -> None:
    assert Client("http://127.0.0.1:1", name=name).name is None


async def test_times_without_sense_are_refused() -> None:
    client = Client("http://127.0.0.1:1")
    with pytest.raises(ValueError, match=r"timeout is a number of seconds from 0, not -1"):
        await client.ready(-1)
    with pytest.raises(ValueError, match=r"timeout is a number of seconds from 0, not -1"):
        await client.remote_call("echo", timeout=-1)
    with pytest.raises(ValueError, match=r"open_timeout is a number of seconds from 0, not -1"):
        Client("http://127.0.0.1:1", open_timeout=-1)
    with pytest.raises(ValueError, match=r"network_delay is a positive number of seconds, not nan"):
        Client("http://127.0.0.1:1", network_delay=math.nan)
    with pytest.raises(ValueError, match=r"a request waits for longer than 0 seconds"):
        await client.request("/a", timeout=math.nan)
    with pytest.raises(TypeError, match=r"timeout is a number of seconds, not None"):
        await client.request("/a", timeout=None)  # type: ignore[arg-type]
