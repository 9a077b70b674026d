"""A worker's messages, with the real server."""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crewel.client import (
    BackoffRule,
    Client,
    Consumer,
    Delivery,
    Message,
    ResumeCallbacks,
    State,
    SupersededError,
    Transition,
    TransportError,
)
from crewel.client.config import Config
from tests.admin.desk import Desk as Operator
from tests.client.support import QUICK
from tests.conftest import StartServer
from tests.functional.wire import figures, until
from tests.server_process import ROOT, Server

LIMIT_S = 60.0
"""Ends a test that hangs."""
AGAIN = ("crewel_resends_total", "crewel_resends_busy_total")
HELD = "crewel_held_sessions"
KEPT = ResumeCallbacks(lambda: None, lambda _: None)
"""Keeps no secret."""
NOW = BackoffRule(initial=0.01, factor=1.0, maximum=0.01)


class Desk:
    """A server, a channel and a worker that no other test has."""

    _numbers = itertools.count(1)

    def __init__(self, server: Server) -> None:
        number = next(self._numbers)
        self.url = server.url
        self.channel = f"/orders{number}/new"
        self._name, self._server = f"worker{number}/1", server
        self._held = self.figure(HELD)

    def worker(self, client: Client, resume_file: Path, **more: Any) -> Consumer:
        """The worker."""
        pattern = self.channel.replace("new", "*")
        return client.consume(pattern, name=self._name, resume_file=resume_file, **more)

    async def publish(self, client: Client, *bodies: object) -> None:
        """Publish these."""
        for body in bodies:
            await client.publish(self.channel, body, persistent=True)

    async def has_dead_letter(self, count: int = 1) -> None:
        """Wait until so many messages of this channel have become dead letters: other tests may still make some."""
        operator = Operator(self._server)
        await asyncio.to_thread(until, lambda: len(operator.letters(f"channel={self.channel}")) == count, LIMIT_S)

    async def is_held(self) -> None:
        """Wait until one more session is on hold than at the start."""
        await asyncio.to_thread(until, lambda: self.figure(HELD) == self._held + 1, LIMIT_S)

    def figure(self, name: str) -> float:
        """The figure of this metric."""
        return figures(self._server).get(name, 0)


@pytest.fixture
def desk(server: Server) -> Desk:
    """The server that the tests of this module share."""
    return Desk(server)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Where the worker keeps its secret."""
    return tmp_path / "state" / "worker.resume"


async def take(consumer: Consumer) -> Delivery:
    """The next message, in time."""
    async with asyncio.timeout(LIMIT_S):
        return await anext(consumer)


async def test_a_message_is_acknowledged_when_its_block_ends(desk: Desk, secret: Path) -> None:
    async with Client(desk.url) as client:
        async with desk.worker(client, secret) as worker:
            await desk.publish(client, 1, 2)
            async with await take(worker) as message:  # an assertion that failed in here would only reject the message
                begun = (message.data, message.channel, message.attempt, message.is_open)
            assert begun == (1, desk.channel, 1, True)
            assert not message.is_open
            second = await take(worker)  # which is left open
        assert secret.stat().st_mode & 0o777 == 0o600
        async with desk.worker(client, secret) as again:
            message = await take(again)
            assert (message.data, message.id, message.attempt) == (2, second.id, 2)


async def test_an_exception_makes_a_dead_letter_and_the_worker_continues(
    desk: Desk, secret: Path, caplog: pytest.LogCaptureFixture
) -> None:
    meant = LookupError("sold out")
    meant.error_code = "user.update.error"  # type: ignore[attr-defined]
    failures = {"bad": LookupError("no such article"), "meant": meant}
    seen = []
    async with Client(desk.url) as client:
        worker = desk.worker(client, secret)
        async with worker:
            await desk.publish(client, "bad", "meant", "good")
            async for message in worker:
                async with message:
                    seen.append(message.data)
                    if message.data in failures:
                        raise failures[message.data]
                if message.data == "good":
                    break
            assert seen == ["bad", "meant", "good"]
            await desk.has_dead_letter(2)
    fault, rejection = (each for each in caplog.records if "is rejected" in each.getMessage())
    assert fault.getMessage().endswith("no such article (user.update.internalError)")
    assert rejection.getMessage().endswith("sold out (user.update.error)")
    assert fault.exc_info
    assert not rejection.exc_info, "a trace is for faults of the program"


async def test_a_failed_message_is_tried_as_often_as_the_worker_says(desk: Desk, secret: Path) -> None:
    attempts = []
    async with Client(desk.url) as client:
        consumer = desk.worker(client, secret, attempts=3, backoff=NOW)
        async with consumer as worker:
            await desk.publish(client, "bad", "end")
            while len(attempts) < 3:
                async with await take(worker) as message:
                    if message.data == "bad":
                        attempts.append(message.attempt)
                        raise RuntimeError
            assert (attempts, worker.retrying) == ([1, 2, 3], 0)
            await desk.has_dead_letter()


async def test_a_message_that_was_fetched_and_not_handled_has_all_its_tries(desk: Desk, secret: Path) -> None:
    """The worker before this one ended with it: that was no failure of the message."""
    tries = []
    async with Client(desk.url) as client:
        async with desk.worker(client, secret, attempts=2) as worker:
            await desk.publish(client, "first", "behind")
            while worker.fetched < 2:
                await asyncio.sleep(0.01)
        async with desk.worker(client, secret, attempts=2, backoff=NOW) as again:
            (await take(again)).acknowledge()
            while len(tries) < 2:
                async with await take(again) as message:
                    tries.append(message.attempt)
                    raise RuntimeError
            assert (tries, again.retrying) == ([2, 3], 0)
            await desk.has_dead_letter()


async def test_one_at_a_time_a_retried_message_comes_before_the_next(desk: Desk, secret: Path) -> None:
    async with Client(desk.url) as client, desk.worker(client, secret, max_open=1) as worker:
        await desk.publish(client, 1, 2)
        order, fetched = [], []
        for _ in range(3):
            async with await take(worker) as message:  # an assertion that failed in here would only reject the message
                fetched.append(worker.fetched)
                order.append((message.data, message.attempt))
                if len(order) == 1:
                    message.retry()
        assert (order, fetched) == ([(1, 1), (1, 2), (2, 1)], [0, 0, 0])


async def test_a_retried_message_comes_behind_those_that_were_fetched(desk: Desk, secret: Path) -> None:
    async with Client(desk.url) as client:
        async with desk.worker(client, secret, ack_wait=60) as worker:
            await desk.publish(client, 1, 2, 3)
            first = await take(worker)
            async with asyncio.timeout(LIMIT_S):
                while worker.fetched < 2:
                    await asyncio.sleep(0.01)
            async with first:
                first.retry()
            order = []
            for _ in range(3):
                async with await take(worker) as message:
                    order.append((message.data, message.attempt))
            assert order == [(2, 1), (3, 1), (1, 2)]
        async with desk.worker(client, secret) as again:
            await desk.publish(client, 4)
            assert (await take(again)).data == 4  # none of the others comes again


async def test_a_retried_message_stays_open_when_its_block_takes_longer(desk: Desk, secret: Path) -> None:
    """Its end would acknowledge it if the next attempt had begun."""
    async with Client(desk.url) as client:
        async with desk.worker(client, secret, max_open=1) as worker:
            await desk.publish(client, 1)
            async with await take(worker) as message:
                message.retry()
                await desk.publish(client, 2)  # the next attempt is due when that is answered
                waiting = worker.retrying, worker.fetched
            assert (waiting, message.is_open) == ((1, 0), True)
            again = await take(worker)
            assert (again.data, again.attempt, again.is_open, worker.retrying) == (1, 2, True, 0)
        async with desk.worker(client, secret) as worker:
            assert (await take(worker)).data == 1, "the first worker has not acknowledged it"


async def test_a_retried_message_without_a_block_is_not_acknowledged_with_the_next(desk: Desk, secret: Path) -> None:
    async with Client(desk.url) as client, desk.worker(client, secret) as worker:
        await desk.publish(client, 1, 2)
        first = await take(worker)
        async with asyncio.timeout(LIMIT_S):
            while not worker.fetched:
                await asyncio.sleep(0.01)
            first.retry()
            while worker.retrying:
                await asyncio.sleep(0.01)
        assert (await take(worker)).data == 2
        assert first.is_open


async def test_a_message_that_waits_for_its_retry_survives_the_worker(desk: Desk, secret: Path) -> None:
    async with Client(desk.url) as client:
        async with desk.worker(client, secret, prefetch=1) as worker:
            await desk.publish(client, 1)
            message = await take(worker)
            message.retry(after=3600)
            message.retry(after=0)  # the first one counts
            assert (worker.retrying, message.is_open) == (1, True)
        async with desk.worker(client, secret) as again:
            assert (await take(again)).data == 1


async def test_a_slow_worker_gets_each_message_once(desk: Desk, secret: Path) -> None:
    """It has no room for what it has not begun, and says so with each connect, instead of having it sent again."""
    sent_again = [desk.figure(name) for name in AGAIN]
    async with Client(desk.url) as client, desk.worker(client, secret, prefetch=1) as worker:
        await desk.publish(client, 1, 2, 3)
        connects = desk.figure("crewel_connects_total")
        await asyncio.to_thread(until, lambda: desk.figure("crewel_connects_total") >= connects + 3, LIMIT_S)
        taken = []
        for _ in range(3):
            async with await take(worker) as message:
                taken.append((message.data, message.attempt))
        assert taken == [(1, 1), (2, 1), (3, 1)]
        await desk.publish(client, 4)
        assert (await take(worker)).data == 4
    assert [desk.figure(name) for name in AGAIN] == sent_again


async def test_a_worker_says_what_happens_to_a_message(desk: Desk, secret: Path) -> None:
    async with Client(desk.url) as client, desk.worker(client, secret) as worker:
        await desk.publish(client, 1, 2, 3)
        (await take(worker)).dead_letter("no such article")
        await desk.has_dead_letter()
        (await take(worker)).acknowledge()
        (await take(worker)).hold("the printer is out of paper")
        await desk.is_held()
        await desk.publish(client, 4)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await anext(worker)


async def test_a_cancelled_message_comes_again(desk: Desk, secret: Path) -> None:
    begun = asyncio.Event()
    async with Client(desk.url) as client:

        async def work() -> None:
            async for message in desk.worker(client, secret):
                async with message:
                    begun.set()
                    await asyncio.Event().wait()

        task = asyncio.create_task(work())
        while not begun.is_set():
            await desk.publish(client, 1)
            await asyncio.wait([task], timeout=0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with Client(desk.url) as client:
        assert (await take(desk.worker(client, secret))).data == 1


WORKER = """
import asyncio, sys
from crewel.client import Client

async def main():
    async with Client(sys.argv[1]) as client:
        async for message in client.consume("/orders/*", name="worker/1"):
            async with message:
                print(message.data, flush=True)
                if message.data == "stay":
                    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_killed_worker_is_back_at_once(start_server: StartServer, tmp_path: Path) -> None:
    """Without its secret it would wait for ten seconds at least, and here for longer than the test."""
    server = start_server("bayeux.max_interval_ms=600000")
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "STATE_DIRECTORY": str(state := tmp_path / "state")}
    command = [sys.executable, "-c", WORKER, server.url]

    async def worker() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(*command, env=environ, stdout=subprocess.PIPE)

    async def line(process: asyncio.subprocess.Process) -> str:
        assert process.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            return (await process.stdout.readline()).decode().strip()

    first = await worker()
    async with Client(server.url) as client:
        printed = asyncio.create_task(line(first))
        while not printed.done():  # until it has subscribed
            await client.publish("/orders/new", "stay", persistent=True)
            await asyncio.wait([printed], timeout=0.2)
        assert await printed == "stay"
        first.send_signal(signal.SIGKILL)
        await first.wait()
        assert len(list(state.glob("*worker*1.resume"))) == 1
        second = await worker()
        try:
            assert await line(second) == "stay"
        finally:
            second.kill()
            await second.wait()


MEMBER = """
import asyncio, sys
from crewel.client import Client

async def main():
    async with Client(sys.argv[1]) as client:
        async for message in client.consume("/orders/*", name=sys.argv[2], group="cooks"):
            async with message:
                print(message.data, flush=True)
                await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_what_a_killed_member_of_a_group_had_fetched_another_one_gets(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server("bayeux.max_interval_ms=500", "bayeux.sweep_ms=100")
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "STATE_DIRECTORY": str(tmp_path)}
    killed = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", MEMBER, server.url, "cook/1"), env=environ, stdout=subprocess.PIPE
    )
    assert killed.stdout is not None
    numbers = itertools.count()
    async with Client(server.url) as client:
        printed = asyncio.create_task(killed.stdout.readline())
        while not printed.done():  # until it has subscribed, and works on the first one
            await client.publish("/orders/new", next(numbers), persistent=True)
            await asyncio.wait([printed], timeout=0.2)
        first = int(await printed)
        for _ in range(3):
            await client.publish("/orders/new", next(numbers), persistent=True)
        async with client.consume("/orders/*", name="cook/2", group="cooks", resume_store=KEPT) as other:
            killed.send_signal(signal.SIGKILL)
            await killed.wait()
            wanted = [*range(first, next(numbers))]
            assert [(await take(other)).data for _ in wanted] == wanted


async def test_a_member_of_a_group_keeps_what_it_works_on_for_long(start_server: StartServer) -> None:
    """Longer than a client may be away."""
    server = start_server("bayeux.max_interval_ms=200", "bayeux.sweep_ms=50")
    async with (
        Client(server.url) as client,
        client.consume("/orders/*", name="cook/1", group="cooks", resume_store=KEPT) as busy,
        client.consume("/orders/*", name="cook/2", group="cooks", resume_store=KEPT) as other,
    ):
        for number in range(2):
            await client.publish("/orders/new", number, persistent=True)
        async with await take(busy) as long, await take(other):
            attempt = long.attempt
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.5):
                    await anext(other)
        assert attempt == 1


async def test_a_worker_survives_its_server(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    saved: list[str] = []
    store = ResumeCallbacks(lambda: saved[-1] if saved else None, saved.append)
    async with (
        Client(server.url, backoff=QUICK) as client,
        client.consume("/orders/*", name="worker/1", resume_store=store) as worker,
    ):
        await client.publish("/orders/new", 1, persistent=True)
        first = await take(worker)
        server.kill()
        again = start_server(*server.store_sets, port=server.port or 0)
        assert again.url == server.url
        async with first:
            pass  # its acknowledgement reaches the second server
        async with Client(server.url, backoff=QUICK) as other:
            await other.publish("/orders/new", 2, persistent=True)
        assert (await take(worker)).data == 2
    assert saved


async def test_a_worker_that_is_cancelled_twice_closes_its_connections(desk: Desk, secret: Path) -> None:
    async def work() -> None:
        async with client:
            async for _ in worker:
                pass

    def cancel_again(step: Transition) -> None:
        if step.new is State.DISCONNECTING:
            task.cancel()

    client, connected = Client(desk.url), asyncio.Event()
    worker = desk.worker(client, secret)
    worker.client.on_state(cancel_again)
    worker.client.on_state(lambda step: connected.set() if step.new is State.CONNECTED else None)
    task = asyncio.create_task(work())
    async with asyncio.timeout(LIMIT_S):
        await connected.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (worker.client.state, client.state) == (State.CLOSED, State.CLOSED)
    assert worker.client._session.connection._http is None
    assert client._session.connection._http is None


async def test_the_younger_of_two_workers_with_one_secret_has_the_session(desk: Desk, secret: Path) -> None:
    async with Client(desk.url) as client, desk.worker(client, secret) as old:
        waiting = asyncio.create_task(anext(old))  # type: ignore[arg-type]
        async with desk.worker(client, secret):
            with pytest.raises(SupersededError):
                await waiting


async def test_a_worker_that_waits_for_a_retry_notices_that_it_was_superseded(desk: Desk, secret: Path) -> None:
    async with Client(desk.url) as client, desk.worker(client, secret, prefetch=1) as old:
        await desk.publish(client, 1)
        (await take(old)).retry(after=3600)
        waiting = asyncio.create_task(anext(old))  # type: ignore[arg-type]
        async with desk.worker(client, secret), asyncio.timeout(LIMIT_S):
            with pytest.raises(SupersededError):
                await waiting


async def test_a_worker_that_was_superseded_processes_nothing_more(desk: Desk, secret: Path) -> None:
    processed = []
    async with Client(desk.url) as client, desk.worker(client, secret) as old:
        await desk.publish(client, 1, 2, 3)
        async for message in old:
            async with message:
                processed.append(message.data)
                while old.fetched < 2:
                    await asyncio.sleep(0.01)
            break
        async with desk.worker(client, secret) as young:
            assert (await take(young)).id is not None
            async with asyncio.timeout(LIMIT_S):
                while old.client.state is not State.CLOSED:
                    await asyncio.sleep(0.01)
            with pytest.raises(SupersededError):
                await take(old)
    assert processed == [1]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "worker"}, "name must be a subject and a number, such as worker/1, not 'worker'"),
        ({"name": "worker/1", "prefetch": 0}, "prefetch is a whole number from 1, not 0"),
        ({"name": "worker/1", "max_open": 0}, "max_open is a whole number from 1, not 0"),
        ({"name": "worker/1", "attempts": True}, "attempts is a whole number from 1, not True"),
        ({"name": "worker/1", "ack_wait": "x"}, "ack_wait is a number of seconds, or -1 for no limit, not 'x'"),
        (
            {"name": "worker/1", "resume_file": "a", "resume_store": ResumeCallbacks(str, print)},
            "resume_file and resume_store exclude each other",
        ),
    ],
)
async def test_a_wrong_argument_is_named(arguments: dict[str, object], words: str) -> None:
    client = Client("http://127.0.0.1:1/cometd")
    with pytest.raises(ValueError, match=words):
        client.consume("/a", **arguments)  # type: ignore[arg-type]


@pytest.mark.unit
async def test_a_wrong_time_of_a_retry_is_named() -> None:
    with pytest.raises(ValueError, match="after is a number of seconds from 0, not -1"):
        Delivery("/a", 1, {}).retry(after=-1)


@pytest.mark.unit
async def test_a_client_forgets_the_workers_that_were_closed() -> None:
    client = Client("http://127.0.0.1:1/cometd")
    for number in range(1, 4):
        consumer = client.consume("/orders", name=f"worker/{number}")
        await consumer.close()
    assert client._consumers == [consumer]


@pytest.mark.server
async def test_a_client_forgets_the_workers_that_could_not_log_in() -> None:
    client = Client("http://127.0.0.1:1/cometd", open_timeout=0)
    for number in range(1, 4):
        consumer = client.consume("/orders", name=f"worker/{number}", resume_store=KEPT)
        with pytest.raises(TransportError):
            await anext(consumer)
    assert client._consumers == [consumer]


@pytest.mark.unit
def test_a_session_of_a_worker_has_what_its_client_has_but_its_identity() -> None:
    client = Client("http://127.0.0.1:1/cometd", name="boss/1", token="t", resume="r", network_delay=3)
    config = client.consume("/a", name="worker/1", prefetch=7).client._config
    assert isinstance(config, Config)
    assert (config.name, config.token, config.resume, config.network_delay) == ("worker/1", "t", None, 3)
    assert config.login["burst"] == {"maxEntries": 7}


async def test_a_copy_that_comes_while_the_worker_has_the_message_ends_with_it(desk: Desk, secret: Path) -> None:
    async with Client(desk.url) as client:
        async with desk.worker(client, secret, backoff=NOW) as worker:
            await desk.publish(client, 1, 2)
            first = await take(worker)
            # The server sends again what is open in a batch that it has not seen acknowledged.
            await worker.client._session.connection.close_transport()
            assert (await take(worker)).data == 2
            first.acknowledge()
        async with desk.worker(client, secret) as again:
            assert (await take(again)).data == 2


async def test_run_handles_several_messages_at_once_and_stop_waits_for_them(
    desk: Desk, secret: Path, caplog: pytest.LogCaptureFixture
) -> None:
    at_work: set[object] = set()
    most = 0
    enough, may_end = asyncio.Event(), asyncio.Event()

    async def handle(message: Delivery) -> None:
        nonlocal most
        at_work.add(message.data)
        most = max(most, len(at_work))
        if len(at_work) == 3:
            enough.set()
        await may_end.wait()
        at_work.remove(message.data)
        if message.data == 2:
            raise LookupError("no such article")

    async with Client(desk.url) as client:
        worker = desk.worker(client, secret)
        async with worker, asyncio.timeout(LIMIT_S):
            await desk.publish(client, 1, 2, 3, 4, 5)
            running = asyncio.create_task(worker.run(handle, at_once=3))
            await enough.wait()
            assert at_work == {1, 2, 3}
            worker.stop()
            await asyncio.sleep(0)
            assert not running.done()
            may_end.set()
            await running
            assert (most, at_work) == (3, set())
            await desk.has_dead_letter()
        async with desk.worker(client, secret) as again, asyncio.timeout(LIMIT_S):
            assert [message.data for message in await again.batch(2, within=LIMIT_S)] == [4, 5]
    assert "no such article" in caplog.text


async def test_a_worker_that_is_stopped_while_it_logs_in_leaves_its_messages_to_the_next(
    desk: Desk, secret: Path
) -> None:
    handled: list[object] = []

    def handle(message: Delivery) -> None:
        handled.append(message.data)

    async with Client(desk.url) as client:
        async with desk.worker(client, secret):
            pass
        await desk.publish(client, 1)
        worker = desk.worker(client, secret)
        running = asyncio.create_task(worker.run(handle))
        await asyncio.sleep(0)  # the login has begun
        worker.stop()
        async with asyncio.timeout(LIMIT_S):
            await running
        await worker.close()
        async with desk.worker(client, secret) as again:
            assert (await take(again)).data == 1
    assert handled == []


async def test_a_worker_that_is_closed_while_it_logs_in_has_no_session_left(desk: Desk, secret: Path) -> None:
    async with Client(desk.url) as client:
        worker = desk.worker(client, secret)
        running = asyncio.create_task(worker.run(lambda message: None))
        async with asyncio.timeout(LIMIT_S):
            while worker.client.state is State.NEW:
                await asyncio.sleep(0)
            await worker.close()
            await running
    assert worker.client.state is State.CLOSED


async def test_run_calls_a_plain_function_and_ignores_what_it_returns(desk: Desk, secret: Path) -> None:
    handled: list[object] = []
    async with Client(desk.url) as client, desk.worker(client, secret) as worker, asyncio.timeout(LIMIT_S):
        await desk.publish(client, 1, 2)

        def handle(message: Delivery) -> bool:
            handled.append(message.data)
            if len(handled) == 2:
                worker.stop()
            return True

        await worker.run(handle)
    assert handled == [1, 2]


async def test_a_cancelled_run_leaves_its_messages_to_the_next_worker(desk: Desk, secret: Path) -> None:
    begun = asyncio.Event()

    async def handle(message: Delivery) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with Client(desk.url) as client:
        async with desk.worker(client, secret) as worker, asyncio.timeout(LIMIT_S):
            await desk.publish(client, 1)
            running = asyncio.create_task(worker.run(handle))
            await begun.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        async with desk.worker(client, secret) as again:
            message = await take(again)
            assert (message.data, message.attempt) == (1, 2)


async def cancelled_elsewhere() -> None:
    """Wait for what another task has cancelled, as a handler does that shares a connection or a lookup."""
    shared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    shared.cancel()
    await shared


async def test_a_handler_that_waits_for_what_others_cancel_fails(desk: Desk, secret: Path) -> None:
    async def handle(message: Delivery) -> None:
        if message.data == 1:
            await cancelled_elsewhere()
        worker.stop()

    async with Client(desk.url) as client:
        worker = desk.worker(client, secret, max_open=1)
        async with worker, asyncio.timeout(10):
            await desk.publish(client, 1, 2)
            await worker.run(handle)
        await desk.has_dead_letter()


async def test_a_callback_that_waits_for_what_others_cancel_fails(desk: Desk) -> None:
    seen: asyncio.Queue[object] = asyncio.Queue()

    async def handle(message: Message) -> None:
        if message.data == 1:
            await cancelled_elsewhere()
        seen.put_nowait(message.data)

    async with Client(desk.url, update=True) as client:
        await client.subscribe(desk.channel, handle)
        await desk.publish(client, 1, 2)
        async with asyncio.timeout(10):
            assert await seen.get() == 2
        await desk.has_dead_letter()


async def test_what_leaves_the_block_of_a_message_leaves_run(desk: Desk, secret: Path) -> None:
    async def handle(message: Delivery) -> None:
        message.recorded_in = SimpleNamespace(in_transaction=True)
        raise LookupError("no such article")

    async with Client(desk.url) as client, desk.worker(client, secret, attempts=2) as worker, asyncio.timeout(10):
        await desk.publish(client, 1)
        with pytest.raises(RuntimeError, match="the inbox has recorded message"):
            await worker.run(handle, at_once=2)


async def test_a_batch_has_what_is_there_and_is_acknowledged_by_the_application(desk: Desk, secret: Path) -> None:
    async with Client(desk.url) as client:
        async with desk.worker(client, secret) as worker, asyncio.timeout(LIMIT_S):
            await desk.publish(client, *range(5))
            while worker.fetched < 5:
                await asyncio.sleep(0.01)
            first = await worker.batch(3)
            assert [message.data for message in first] == [0, 1, 2]
            rest = await worker.batch(3)
            assert [message.data for message in rest] == [3, 4]
            assert all(message.is_open for message in [*first, *rest])
            for message in first:
                message.acknowledge()
            worker.stop()
            assert await worker.batch(3) == []
        async with desk.worker(client, secret) as again, asyncio.timeout(LIMIT_S):
            assert [message.data for message in await again.batch(2, within=LIMIT_S)] == [3, 4]


async def test_a_batch_that_is_cancelled_loses_nothing(desk: Desk, secret: Path) -> None:
    async with Client(desk.url) as client, desk.worker(client, secret) as worker, asyncio.timeout(LIMIT_S):
        await desk.publish(client, 1, 2)
        while worker.fetched < 2:
            await asyncio.sleep(0.01)
        collecting = asyncio.create_task(worker.batch(3, within=LIMIT_S))
        while worker.fetched:
            await asyncio.sleep(0.01)
        collecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await collecting
        assert [(message.data, message.attempt) for message in await worker.batch(2)] == [(1, 1), (2, 1)]


async def test_two_workers_of_one_client_have_sessions_of_their_own(desk: Desk, tmp_path: Path) -> None:
    async with Client(desk.url) as client:
        first = client.consume("/two/a", name="two/1", resume_file=tmp_path / "1")
        second = client.consume("/two/*", name="two/2", resume_file=tmp_path / "2")
        async with first, second:
            await client.publish("/two/a", 1, persistent=True)
            async with await take(first) as one, await take(second) as other:
                taken = (one.data, other.data)
            assert taken == (1, 1)
            names = [str(worker.client.name).rpartition("client/")[2] for worker in (first, second)]
            assert names == ["two/1", "two/2"]


@pytest.mark.unit
async def test_a_wrong_number_is_named() -> None:
    worker = Client("http://127.0.0.1:1/cometd").consume("/a", name="worker/1")
    with pytest.raises(ValueError, match="at_once is a whole number from 1, not 0"):
        await worker.run(print, at_once=0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="most is a whole number from 1, not True"):
        await worker.batch(True)
    with pytest.raises(ValueError, match="within is a number of seconds from 0, not nan"):
        await worker.batch(1, within=float("nan"))
