"""A client that comes back: nothing that waited for it counts as done before the application has taken it."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from crewel.client import Client, SubscribeRefused, Subscription
from tests.admin.desk import TOKEN, Desk
from tests.client.support import LIMIT_S
from tests.conftest import StartServer
from tests.functional.wire import figures
from tests.server_process import Server

pytestmark = pytest.mark.server

CHANNELS = ("/back/a", "/back/b", "/back/c")
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An operator of a server that holds connects for a second."""
    sets = (f"admin.token={TOKEN}", "bayeux.timeout_ms=1000", "bayeux.sweep_ms=100")
    server = Server(["--port=0", *(f"--set={text}" for text in sets)], tmp_path_factory.mktemp("server"))
    yield Desk(server)
    server.end_well()


@pytest.fixture
def name() -> str:
    """A session that no other test has."""
    return f"joe{next(_numbers)}/1"


async def eventually(holds: Callable[[], Any]) -> Any:
    """What this tells, once it tells something; it is asked in a thread."""
    async with asyncio.timeout(LIMIT_S):
        while not (found := await asyncio.to_thread(holds)):
            await asyncio.sleep(0.02)
    return found


async def missed(desk: Desk, name: str, count: int = 3) -> str | None:
    """Be there once and subscribe, go, and miss so many persistent messages on each channel; what takes the session over."""
    url = desk.server.url
    async with Client(url, name=name, leave=True) as joe:
        for channel in CHANNELS:
            await joe.subscribe(channel)
    async with Client(url) as publisher, publisher.batch() as batch:
        for number in range(count):
            for channel in CHANNELS:
                batch.publish(channel, number, persistent=True)
    return joe.resume


async def read(subscription: Subscription, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        message = await subscription.receive(LIMIT_S)
        message.settle()
        found.append(message.data)
    return found


@pytest.mark.parametrize("settling", [{"update": True}, {"update": True, "settle": "batch"}, {}], ids=str)
async def test_what_waited_goes_to_listeners_that_come_late(
    desk: Desk, name: str, settling: dict[str, Any], transport: str
) -> None:
    path = f"/sessions/{name}"
    asked = {"transports": [transport], "name": name, "leave": True, **settling}
    resume = await missed(desk, name)
    async with Client(desk.server.url, resume=resume, **asked) as joe:
        first = await joe.subscribe(CHANNELS[0])
        assert await read(first, 3) == [0, 1, 2]
        await eventually(lambda: desk.get(path)["unclaimed"] == 6)
    # It is gone without having heard the others, as after a kill. They are owed still.
    assert await eventually(lambda: desk.get(path)["waiting"] == 6)
    async with Client(desk.server.url, resume=joe.resume, **asked) as joe:
        await eventually(lambda: desk.get(path)["unclaimed"] == 6)
        assert figures(desk.server)["crewel_unclaimed"] >= 6
        for channel in CHANNELS[1:]:
            assert await read(await joe.subscribe(channel), 3) == [0, 1, 2]
        assert await eventually(lambda: desk.get(path)["waiting"] == 0)
        assert desk.get(path)["unclaimed"] == 0


async def test_subscriptions_before_the_first_connect_take_all_in_their_order(desk: Desk, name: str) -> None:
    joe = Client(desk.server.url, name=name, resume=await missed(desk, name), update=True)
    subscriptions = [await joe.subscribe(channel) for channel in CHANNELS]
    heard = [await joe.subscribe("/back/**", bound=9)]
    async with joe:
        assert await read(heard[0], 9) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
        assert [await read(each, 3) for each in subscriptions] == [[0, 1, 2]] * 3
        assert joe.unclaimed == 0


async def test_entering_raises_what_an_early_subscription_is_refused_for(desk: Desk) -> None:
    joe = Client(desk.server.url)
    subscription = await joe.subscribe("/a", filter="no filter (")
    with pytest.raises(SubscribeRefused, match="/a"):
        await joe.__aenter__()
    with pytest.raises(SubscribeRefused, match="/a"):
        await subscription.receive(1)


async def test_what_is_addressed_and_not_listened_to_stays_open_beside_all_else(desk: Desk, name: str) -> None:
    path = f"/sessions/{name}"
    async with Client(desk.server.url) as ann, Client(desk.server.url, name=name) as joe:
        plain = await joe.subscribe("/plain")
        await ann.publish("/box", 1, persistent=True, to=f"client/{name}")
        await eventually(lambda: desk.get(path)["unclaimed"] == 1)
        for number in range(5):
            await ann.publish("/plain", number, persistent=True)
            assert await read(plain, 1) == [number]
        assert await eventually(lambda: desk.get(path)["waiting"] == 1)
        assert await read(joe.listen("/box"), 1) == [1]
        assert await eventually(lambda: desk.get(path)["waiting"] == 0)


async def test_with_a_setting_they_become_dead_letters(desk: Desk, name: str) -> None:
    resume = await missed(desk, name, 1)
    async with Client(desk.server.url, name=name, resume=resume, update=True, unclaimed_timeout=0.05):
        letters = await eventually(lambda: desk.letters(f"receiver=client/{name}"))
        await eventually(lambda: len(desk.letters(f"receiver=client/{name}")) == 3)
        assert letters[0]["errorCode"] == "user.update.deadMessage"
        assert letters[0]["reason"] == "no listener took it within 0.05 s"


async def test_late_results_and_answers_are_of_no_interest(start_server: StartServer) -> None:
    server = start_server(service="tests.client.services")
    async with Client(server.url, name="joe/1", update=True) as joe, Client(server.url) as ann:
        await joe.publish("/service/echo", 1)  # the answer comes as a message, and no listener waits for it
        told = f"/ret/{joe.login['replyId']}/3000001"
        await joe.subscribe(f"/ret/{joe.login['replyId']}/*")
        await ann.publish(told, 1)
        heard = await joe.subscribe("/a")
        await ann.publish("/a", 1)
        assert await read(heard, 1) == [1]
        assert joe.unclaimed == 0


CHANNEL = "/back/filtered"
COSTLY = "max(data) < `0` || sum(data) < `0`"
HUGE = [1] * 30_000


@pytest.mark.parametrize(
    "settling", [{"update": True}, {"update": True, "settle": "batch"}, {"ack": True}, {"ack": False}], ids=str
)
async def test_a_filter_that_is_too_expensive_ends_its_subscription(desk: Desk, settling: dict[str, Any]) -> None:
    async with Client(desk.server.url, **settling) as joe, Client(desk.server.url) as publisher:
        subscription = await joe.subscribe(CHANNEL, filter=COSTLY)
        for data in ([-1], HUGE, [-2]):
            await publisher.publish(CHANNEL, data, persistent=True)
        assert await values(subscription, 2) == [[-1], HUGE]
        with pytest.raises(SubscribeRefused, match="too expensive") as caught:
            await values(subscription, 2)  # the last message may have been judged before the subscription ended
        assert caught.value.error_code == "resource.exhaust"
        again = await joe.subscribe(CHANNEL)
        await publisher.publish(CHANNEL, [3], persistent=True)
        assert await values(again, 1) == [[3]]


@pytest.mark.parametrize("settling", [{"update": True}, {"update": True, "settle": "batch"}, {"ack": True}], ids=str)
async def test_a_client_that_was_away_learns_that_its_subscription_has_ended(
    desk: Desk, name: str, settling: dict[str, Any]
) -> None:
    async with Client(desk.server.url, name=name, leave=True, **settling) as joe:
        await joe.subscribe(CHANNEL, filter=COSTLY)
    async with Client(desk.server.url) as publisher:
        for data in ([-1], HUGE):
            await publisher.publish(CHANNEL, data, persistent=True)
    told = await eventually(lambda: desk.get(f"/sessions/{name}")["failedSubscriptions"])
    assert told[CHANNEL]["errorCode"] == "resource.exhaust"
    again = Client(desk.server.url, name=name, resume=joe.resume, leave=True, **settling)
    with pytest.raises(SubscribeRefused, match=r"too expensive.*subscribe again"):
        await asyncio.wait_for(_subscribed(again), LIMIT_S)
    async with Client(desk.server.url, name=name, resume=again.resume, **settling) as joe:
        assert await values(await joe.subscribe(CHANNEL), 2) == [[-1], HUGE]


async def values(subscription: Subscription, count: int) -> list[Any]:
    return [(await subscription.receive(LIMIT_S)).data for _ in range(count)]


async def _subscribed(client: Client) -> None:
    async with client:
        await client.subscribe(CHANNEL)
