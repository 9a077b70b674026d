"""Messages that the application settles, with the real server."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

import pytest

from crewel.client import Client, Message
from crewel.delivery.records import EndReason
from tests.client.support import LIMIT_S
from tests.conftest import StartServer
from tests.functional.wire import figures, until
from tests.server_process import Server

pytestmark = pytest.mark.server

ENDED = 'crewel_ended_total{reason="%s"}'
ENDS = [ENDED % reason.value for reason in EndReason]


@pytest.fixture(scope="module")
def holding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that holds connects for longer than a test waits."""
    server = Server(["--port=0", "--set=bayeux.timeout_ms=60000"], tmp_path_factory.mktemp("server"))
    yield server
    server.end_well()


class Patient:
    """That server, and what it had counted before the test."""

    published = 0
    """How many messages all tests have published so far, each to one session."""

    def __init__(self, server: Server) -> None:
        # A session of the last test may be on its way out, and what it was owed.
        until(lambda: sum(each for name, each in figures(server).items() if name in ENDS) == Patient.published)
        self.server = server
        self.url = server.url
        self.before = figures(server)


@pytest.fixture
def patient(holding: Server) -> Patient:
    """The server, with nothing that waits."""
    return Patient(holding)


async def reach(holds: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again until it holds."""
    async with asyncio.timeout(LIMIT_S):
        while not await holds():
            await asyncio.sleep(0.05)


async def counted(patient: Patient, name: str) -> float:
    """How much one of the server's figures has grown in this test."""
    now = await asyncio.to_thread(figures, patient.server)
    return now.get(name, 0.0) - patient.before.get(name, 0.0)


async def published(server: Patient, count: int) -> None:
    """Publish 1, 2, 3 …, which are to be stored."""
    Patient.published += count
    async with Client(server.url) as client:
        for number in range(1, count + 1):
            await client.publish("/a", number, persistent=True)


async def test_what_is_settled_is_told_at_once_though_a_connect_is_held(patient: Patient, transport: str) -> None:
    async with Client(patient.url, transports=[transport], update=True, name="joe/1") as joe:
        assert joe.settles
        heard = await joe.subscribe("/a")
        await published(patient, 3)
        first, second, third = [await heard.receive(LIMIT_S) for _ in range(3)]
        await reach(lambda: waits(patient, 1))  # the last one is in our hands
        third.settle()
        await reach(lambda: waits(patient, 0))
        assert [each.redeliver for each in (first, second, third)] == [0, 0, 0]
        assert first.is_persistent
        assert first.sender is not None


async def test_a_rejection_is_told_at_once(patient: Patient, transport: str) -> None:
    async with Client(patient.url, transports=[transport], update=True, name="joe/1") as joe:
        heard = await joe.subscribe("/a")
        await published(patient, 1)
        message = await heard.receive(LIMIT_S)
        message.reject("user.update.error", "no")
        await reach(lambda: ended(patient, "dead", 1))


async def test_a_message_becomes_a_dead_letter_or_holds_its_session(patient: Patient, transport: str) -> None:
    async with Client(patient.url, transports=[transport], update=True, name="joe/1") as joe:
        heard = await joe.subscribe("/a")
        await published(patient, 2)
        (await heard.receive(LIMIT_S)).dead_letter("no such article")
        await reach(lambda: ended(patient, "dead", 1))
        (await heard.receive(LIMIT_S)).hold("out of paper")
        await reach(lambda: waits(patient, 1))


async def waits(patient: Patient, count: int) -> bool:
    """Whether so many messages wait."""
    return await counted(patient, "crewel_waiting") == count


async def ended(patient: Patient, reason: str, count: int) -> bool:
    """Whether so many have ended so."""
    return await counted(patient, ENDED % reason) == count


async def test_who_goes_on_with_a_session_hears_what_was_not_settled_and_nothing_else(patient: Patient) -> None:
    async with Client(patient.url, update=True, name="joe/1", leave=True) as joe:
        heard = await joe.subscribe("/a")
        await published(patient, 3)
        (await heard.receive(LIMIT_S)).settle()
        await heard.receive(LIMIT_S)  # and is not done with it
    async with Client(patient.url, update=True, name="joe/1", resume=joe.resume) as joe:
        assert joe.login["reconnected"] is True
        again = await joe.subscribe("/a")
        messages = [await again.receive(LIMIT_S) for _ in range(2)]
        assert [(each.data, each.redeliver > 0) for each in messages] == [(2, True), (3, True)]
        messages[1].settle()
        await reach(lambda: waits(patient, 0))


async def test_what_is_told_last_is_told_with_the_goodbye(patient: Patient, transport: str) -> None:
    async with Client(patient.url, transports=[transport], update=True, name="joe/1") as joe:
        heard = await joe.subscribe("/a")
        await published(patient, 2)
        await heard.receive(LIMIT_S)
        (await heard.receive(LIMIT_S)).settle()
    await reach(lambda: ended(patient, "settled", 2))
    assert await ended(patient, "dead", 0)


async def test_more_statuses_than_one_payload_takes_go_with_the_goodbye(patient: Patient, transport: str) -> None:
    count = 200
    async with Client(patient.url, transports=[transport], update=True, name="joe/1") as joe:
        heard = await joe.subscribe("/a")
        await published(patient, count)
        messages = []
        for _ in range(count):
            messages.append(await heard.receive(LIMIT_S))
            messages[-1].defer()
        for message in messages:
            message.reject("user.update.error", "x" * 500)
    await reach(lambda: ended(patient, "dead", count))


async def test_a_batch_is_settled_when_the_application_is_done_with_it(patient: Patient, transport: str) -> None:
    async with Client(patient.url, transports=[transport], update=True, settle="batch", name="joe/1") as joe:
        heard = await joe.subscribe("/a")
        await published(patient, 3)
        for number in (1, 2, 3):
            message = await heard.receive(LIMIT_S)
            assert message.data == number
            if number == 2:
                message.reject("user.update.error", "no")
        assert not await waits(patient, 0)
        message.settle()
        await reach(lambda: waits(patient, 0))
        await reach(lambda: ended(patient, "dead", 1))
        await reach(lambda: ended(patient, "settled", 2))


async def test_who_is_slow_with_a_batch_hears_nothing_twice(patient: Patient) -> None:
    """Nothing acknowledges it all the while, but the client says that it is busy."""
    async with Client(patient.url, update=True, settle="batch", name="joe/1") as joe:
        heard = await joe.subscribe("/a")
        await published(patient, 1)
        message = await heard.receive(LIMIT_S)
        connects = await counted(patient, "crewel_connects_total")
        await reach(lambda: has_connected(patient, connects + 2))
        message.settle()
        await reach(lambda: waits(patient, 0))
        await published(patient, 1)
        assert (await heard.receive(LIMIT_S)).id != message.id
    assert await counted(patient, "crewel_resends_total") + await counted(patient, "crewel_resends_busy_total") == 0


@pytest.mark.parametrize("settle", ["message", "batch"])
async def test_who_asks_while_there_is_no_room_hears_nothing_twice(
    patient: Patient, transport: str, settle: str
) -> None:
    """The answer comes, and what is new with it; what the client has got, and could not take, does not come again."""
    may_answer = asyncio.Event()

    async def answered(message: Message) -> str:
        await may_answer.wait()
        return f"the answer to {message.data}"

    async with (
        Client(patient.url, transports=[transport], update=True, settle=settle, name="joe/1") as joe,
        Client(patient.url) as ann,
    ):
        heard = await joe.subscribe("/a", bound=1)
        await ann.reply("/question", answered)
        await published(patient, 3)
        connects = await counted(patient, "crewel_connects_total")
        await reach(lambda: has_connected(patient, connects + 2))
        asking = asyncio.create_task(joe.request("/question", "everything", timeout=LIMIT_S))
        await published(patient, 1)
        may_answer.set()
        assert (await asking).data == "the answer to everything"
        messages = []
        for _ in range(4):
            messages.append(await heard.receive(LIMIT_S))
            messages[-1].settle()
        assert [(each.data, each.redeliver) for each in messages] == [(1, 0), (2, 0), (3, 0), (1, 0)]
        await reach(lambda: waits(patient, 0))
    assert await counted(patient, "crewel_resends_total") + await counted(patient, "crewel_resends_busy_total") == 0


async def has_connected(patient: Patient, times: float) -> bool:
    """Whether clients have connected so often."""
    return await counted(patient, "crewel_connects_total") >= times


async def test_callbacks_settle_by_returning_and_report_by_raising(patient: Patient, transport: str) -> None:
    async with Client(patient.url, transports=[transport], update=True, name="joe/1") as joe:

        async def odd(message: Message) -> None:
            await asyncio.sleep(0)
            if message.data % 2 == 0:
                raise ValueError("even")

        await joe.subscribe("/a", odd)
        await published(patient, 4)
        await reach(lambda: waits(patient, 0))
        await reach(lambda: ended(patient, "dead", 2))


async def test_a_server_that_cannot_is_used_all_the_same(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_server("bayeux.extensions=ack")
    async with Client(server.url, update=True) as joe:
        assert not joe.settles
        assert "takes no statuses" in caplog.records[-1].message
        assert caplog.records[-1].levelno == logging.WARNING
        heard = await joe.subscribe("/a")
        await joe.publish("/a", 1)
        message = await heard.receive(LIMIT_S)
        message.reject("user.update.error")
        assert message.handling is None
