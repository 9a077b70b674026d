"""The wire to the store: answers in the order of the questions, and what becomes of them when it breaks."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import hiredis
import pytest
import uvloop

from crewel.errors import StoreUncertain
from crewel.storage.store_connection import Connection, pool_of
from tests.store_process import StoreProcess

LIMIT_S = 30
PING = b"*1\r\n$4\r\nPING\r\n"
UNKNOWN = b"*1\r\n$7\r\nUNHEARD\r\n"


class Asking:
    """A line, and what was said of it."""

    def __init__(self, line: Callable[[Callable[[str], None]], Connection]) -> None:
        self.lost: list[str] = []
        self.line = line(self._lose)

    def _lose(self, reason: str) -> None:
        self.lost.append(reason)
        self.line.close(reason)

    async def ask(self, *commands: bytes) -> list[Any]:
        """The answers; nobody is asked more than the line itself allows."""
        answers: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.line.exchange(commands, answers.set_result)
        async with asyncio.timeout(LIMIT_S):
            return await answers


@contextlib.asynccontextmanager
async def asking(url: str) -> AsyncIterator[Asking]:
    """A line to whoever listens there."""
    pool = pool_of(url, "line:")
    connection = pool.make_connection()
    await connection.connect()
    asking = Asking(lambda lost: Connection(connection, lost))
    yield asking
    asking.line.close("the test is over")
    await pool.aclose()


@contextlib.asynccontextmanager
async def saying(*pieces: bytes) -> AsyncIterator[str]:
    """Somebody who lets clients in, and then says this to the first question, piece by piece, and no more."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            await reader.readuntil(b"line:\r\n")  # the connection's name
            writer.write(b"+OK\r\n")
            await reader.readuntil(PING)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            await reader.read()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_each_command_has_its_answer(server: StoreProcess) -> None:
    async with asking(server.url) as there:
        pong, error, again = await there.ask(PING, UNKNOWN, PING)
        assert pong == again == b"PONG"
        assert type(error) is hiredis.ReplyError
        assert len(await there.ask(PING)) == 1
        assert there.lost == []


async def test_answers_may_come_in_pieces() -> None:
    async with saying(b":1\r", b"\n$2\r\n", b"ab\r\n:", b"3\r\n") as url, asking(url) as there:
        assert await there.ask(PING, PING, PING) == [1, b"ab", 3]


@pytest.mark.parametrize(
    ("said", "reason", "known"),
    [
        (b":1\r\n:2\r\n:3\r\n", "a reply without a request", []),
        (b":1\r\n?2\r\n", "does not speak its protocol", [1]),
    ],
)
async def test_unreadable_answers_end_the_connection(said: bytes, reason: str, known: list[int]) -> None:
    async with saying(said) as url, asking(url) as there:
        answers = await there.ask(PING, PING)
        assert answers[: len(known)] == known
        assert {type(answer) for answer in answers[len(known) :]} == {StoreUncertain}
        assert len(answers) == 2
        assert reason in there.lost[0]
        assert len(there.lost) == 1


async def test_an_answer_that_does_not_come_in_time_ends_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crewel.storage.store_connection.ANSWER_LIMIT_S", 0.1)
    async with saying(b":1\r\n") as url, asking(url) as there:
        one, missing = await there.ask(PING, PING)
        assert one == 1
        assert type(missing) is StoreUncertain
        assert there.lost == ["no answer within 0.1 s"]


async def test_each_exchange_has_the_whole_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One timer serves many exchanges: it must neither end a later one too early nor forget it."""
    monkeypatch.setattr("crewel.storage.store_connection.ANSWER_LIMIT_S", 1.0)
    async with saying(b":1\r\n") as url, asking(url) as there:
        assert await there.ask(PING) == [1]
        await asyncio.sleep(0.5)
        begun = asyncio.get_running_loop().time()
        (answer,) = await there.ask(PING)
        assert type(answer) is StoreUncertain
        assert asyncio.get_running_loop().time() - begun >= 0.99


async def test_a_stall_of_the_loop_is_no_outage_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer lies unread in the socket when the timer fires, long after its time."""
    monkeypatch.setattr("crewel.storage.store_connection.ANSWER_LIMIT_S", 0.3)
    async with saying(b":1\r\n") as url, asking(url) as there:
        asked = asyncio.create_task(there.ask(PING))
        await asyncio.sleep(0)
        stall(1.0)
        assert await asked == [1]
        assert there.lost == []
        (answer,) = await there.ask(PING)
        assert type(answer) is StoreUncertain, "an outage is noticed all the same"


def test_a_deadline_that_is_due_at_once_is_checked_on_uvloop() -> None:
    """Its handle of such a timer has no time."""

    async def check() -> None:
        loop = asyncio.get_running_loop()
        async with saying(b":1\r\n") as url, asking(url) as there:
            assert await there.ask(PING) == [1]
            asked = asyncio.create_task(there.ask(PING))
            await asyncio.sleep(0)
            there.line._deadline = loop.time() + 0.0004
            there.line._check_deadline()
            (answer,) = await asked
            assert type(answer) is StoreUncertain

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(check())


def stall(seconds: float) -> None:
    """Keep the loop for so long."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


async def test_a_store_that_ends_leaves_it_uncertain(start_store: Callable[[], StoreProcess]) -> None:
    process = start_store()
    async with asking(process.url) as there:
        process.stop()
        asked = asyncio.create_task(there.ask(PING))
        await asyncio.sleep(0)
        await asyncio.to_thread(process.kill)
        (answer,) = await asked
        assert type(answer) is StoreUncertain
        assert len(there.lost) == 1


async def test_closing_the_connection_does_not_report_a_loss(server: StoreProcess) -> None:
    async with asking(server.url) as there:
        asked = asyncio.create_task(there.ask(PING))
        await asyncio.sleep(0)
        there.line.close("enough")
        (answer,) = await asked
        assert type(answer) is StoreUncertain
        assert "enough" in str(answer)
        assert there.lost == []
