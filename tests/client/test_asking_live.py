"""What publishes and subscriptions of the client ask for, done by a real server."""

import asyncio
import itertools
import re
import textwrap
from typing import Any

import pytest

from crewel.client import (
    Client,
    Destination,
    DestinationDenied,
    PublishOptions,
    PublishRefused,
    QueueOverflow,
    SubscribeOptions,
    SubscribeRefused,
    Subscription,
    SubscriptionEndedError,
    TopicReadonly,
    UnknownDestination,
    UnknownDestinationSession,
)
from crewel.client.time_units import TIMES
from tests.admin.desk import TOKEN, Desk
from tests.client.support import LIMIT_S
from tests.conftest import StartServer
from tests.house.source import ROOT
from tests.server_process import Server

PAGE = (ROOT / "docs" / "reference" / "client.md").read_text("utf-8")
_numbers = itertools.count(1)


@pytest.fixture
def channel() -> str:
    """A channel that no other test uses."""
    return f"/asking/{next(_numbers)}"


@pytest.fixture
def subject() -> str:
    return f"ask{next(_numbers)}"


async def received(subscription: Subscription, count: int) -> list[Any]:
    return [(await subscription.receive(LIMIT_S)).data for _ in range(count)]


# The old names of times are left out: the page mentions them together.
OPTIONS = [*PublishOptions.__annotations__, *SubscribeOptions.__annotations__]


@pytest.mark.parametrize("name", [name for name in OPTIONS if name not in TIMES.values()])
def test_each_option_is_documented(name: str) -> None:
    assert f"| `{name}` |" in PAGE


async def test_the_examples_of_the_page_run(start_server: StartServer, capsys: pytest.CaptureFixture[str]) -> None:
    server = start_server()
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    publishing = next(each for each in blocks if "Destination(" in each)
    listening = next(each for each in blocks if "cook.listen(" in each)
    for block in (publishing, listening):
        script = block.replace("http://127.0.0.1:8080/cometd", server.url)
        names: dict[str, Any] = {"Client": Client}
        imports = script[: script.index("async with")]
        body = textwrap.indent(script[script.index("async with") :], "    ")
        exec(f"{imports}\nasync def main():\n{body}", names)
        await asyncio.wait_for(names["main"](), LIMIT_S)
    assert capsys.readouterr().out.splitlines() == [
        "['client/nobody']",
        "/orders {'pizza': 4} client/shop/1 True",
    ]


# Destinations


async def test_a_session_and_a_subject_are_addressed(server: Server, channel: str, subject: str) -> None:
    async with (
        Client(server.url, name=f"client/{subject}/1", update=True) as one,
        Client(server.url, name=f"client/{subject}/2", update=True) as two,
        Client(server.url) as shop,
    ):
        first, second = one.listen("/**"), two.listen("/**")
        reply = await shop.publish(channel, "to one", to=f"client/{subject}/1")
        assert [(each.to, each.is_ok) for each in reply.destinations] == [(f"client/{subject}/1", True)]
        assert reply.message_id
        await shop.publish(channel, "to all", to=subject)
        message = await first.receive(LIMIT_S)
        assert (message.data, message.is_addressed, message.channel) == ("to one", True, channel)
        assert await received(first, 1) == ["to all"]
        assert await received(second, 1) == ["to all"]


async def test_what_nobody_gets_is_told_by_its_own_exception(server: Server, channel: str, subject: str) -> None:
    async with (
        Client(server.url, name=f"client/{subject}/1", session={"ptp": False}),
        Client(server.url) as shop,
    ):
        for to, kind in (
            (f"client/{subject}x", UnknownDestination),
            (f"client/{subject}/9", UnknownDestinationSession),
            (f"client/{subject}/1", DestinationDenied),
        ):
            with pytest.raises(kind) as caught:
                await shop.publish(channel, 1, to=to)
            assert (caught.value.code, caught.value.destinations[0].error_code) == (404, caught.value.error_code)
        with pytest.raises(PublishRefused):
            await shop.publish(channel, 1, to="not a name")


async def test_all_destinations_are_tried(server: Server, channel: str, subject: str) -> None:
    async with Client(server.url, name=f"client/{subject}/1") as joe, Client(server.url) as shop:
        heard = joe.listen(channel)
        with pytest.raises(UnknownDestinationSession) as caught:
            await shop.publish(channel, 1, to=[f"{subject}/9", f"{subject}/1", Destination(f"{subject}x")])
        assert [each.is_ok for each in caught.value.destinations] == [False, True, False]
        assert await received(heard, 1) == [1]


async def test_a_message_waits_for_its_subject(server: Server, channel: str, subject: str) -> None:
    async with Client(server.url) as shop:
        for number in range(3):
            await shop.publish(channel, number, to=subject, force_queuing=True, priority=number)
    async with Client(server.url, name=f"client/{subject}/1", update=True) as joe:
        assert await received(joe.listen("/**"), 3) == [2, 1, 0]


async def test_a_full_queue_of_a_subject_is_told(start_server: StartServer, channel: str) -> None:
    server = start_server("ptp.subject_queue_max_entries=2")
    async with Client(server.url) as shop:
        for _ in range(2):
            await shop.publish(channel, 1, to="joe", force_queuing=True)
        with pytest.raises(QueueOverflow) as caught:
            await shop.publish(channel, 1, to="joe", force_queuing=True)
        assert caught.value.code == 413


async def test_one_of_a_subjects_sessions_gets_it(server: Server, channel: str, subject: str) -> None:
    async with (
        Client(server.url, name=f"client/{subject}/1", update=True) as one,
        Client(server.url, name=f"client/{subject}/2", update=True) as two,
        Client(server.url) as shop,
    ):
        heard = [one.listen("/**"), two.listen("/**")]
        for number in range(4):
            await shop.publish(channel, number, to=subject, distribute="one", persistent=True)
        seen: list[Any] = []
        while len(seen) < 4:
            async with asyncio.timeout(LIMIT_S):
                takers = [asyncio.create_task(each.receive()) for each in heard]
                _, left = await asyncio.wait(takers, return_when=asyncio.FIRST_COMPLETED)
                for task in left:
                    task.cancel()
                await asyncio.wait(takers)
                seen += [task.result().data for task in takers if not task.cancelled()]
        assert sorted(seen) == [0, 1, 2, 3]


async def test_subscribers_need_not_hear_it(server: Server, channel: str, subject: str) -> None:
    async with Client(server.url, name=f"client/{subject}/1") as joe, Client(server.url) as shop:
        everybody = await shop.subscribe(channel)
        heard = joe.listen(channel)
        await shop.publish(channel, "hidden", to=subject, subscribable=False)
        await shop.publish(channel, "seen", to=subject)
        assert await received(heard, 2) == ["hidden", "seen"]
        assert await received(everybody, 1) == ["seen"]


# Topics


async def test_a_readonly_topic_takes_one_message(server: Server, channel: str) -> None:
    async with Client(server.url) as client:
        await client.publish(channel, 1, readonly=True)
        with pytest.raises(TopicReadonly) as caught:
            await client.publish(channel, 2)
        assert caught.value.code == 409


async def test_what_says_the_same_is_not_heard(server: Server, channel: str) -> None:
    async with Client(server.url) as client:
        heard = await client.subscribe(channel)
        for data in (1, 1, 2):
            await client.publish(channel, data, history_max=5, force_update=False)
        assert await received(heard, 2) == [1, 2]


async def test_a_history_comes_first(server: Server, channel: str) -> None:
    async with Client(server.url, update=True) as client:
        await client.publish(channel, None, administrative=True, history_max=3)
        for number in range(5):
            await client.publish(channel, number, life_time=60)
        past = await client.subscribe(channel, history=-1, newest_first=False)
        messages = [await past.receive(LIMIT_S) for _ in range(3)]
        assert [(each.data, each.is_initial, each.life_time) for each in messages] == [
            (2, True, 60), (3, True, 60), (4, True, 60),
        ]  # fmt: skip
        assert all(0 < (each.remaining_life or 0) <= 60 for each in messages)
        await client.publish(channel, "now")
        last = await past.receive(LIMIT_S)
        assert (last.data, last.is_initial) == ("now", False)


async def test_what_was_missed_comes_with_the_position(server: Server, channel: str) -> None:
    async with Client(server.url) as client:
        await client.publish(channel, None, administrative=True, history_max=10)
        async with await client.subscribe(channel, since={}, initial_update=False) as before:
            for number in range(2):
                await client.publish(channel, number)
            assert await received(before, 2) == [0, 1]
            position = before.position
        for number in range(2, 5):
            await client.publish(channel, number)
        after = await client.subscribe(channel, since=position)
        assert after.recovered is True
        assert await received(after, 3) == [2, 3, 4]
        assert int(after.position[channel]["id"]) > int(position[channel]["id"])


async def test_what_is_not_there_any_more_is_not_recovered(server: Server, channel: str) -> None:
    async with Client(server.url) as client:
        await client.publish(channel, None, administrative=True, history_max=2)
        async with await client.subscribe(channel, since={}) as before:
            await client.publish(channel, 0)
            assert await received(before, 1) == [0]
            position = before.position
        for number in range(1, 5):
            await client.publish(channel, number)
        after = await client.subscribe(channel, since=position)
        assert after.recovered is False
        await client.publish(channel, "now")
        assert await received(after, 1) == ["now"]


async def test_the_notice_ends_the_subscription(start_server: StartServer, channel: str) -> None:
    server = start_server(f"admin.token={TOKEN}")
    async with Client(server.url, update=True) as client:
        exact, wild = await client.subscribe(channel), await client.subscribe("/asking/*")
        await client.publish(channel, 1)
        response = await asyncio.to_thread(Desk(server).ask, "DELETE", f"/topics{channel}?force=true")
        assert response.status == 200
        for heard in (exact, wild):
            while not (message := await heard.receive(LIMIT_S)).is_erased:
                assert message.data == 1
            assert (message.channel, message.data) == (channel, None)
        with pytest.raises(SubscriptionEndedError):
            await exact.receive(LIMIT_S)
        again = await client.subscribe(channel)
        await client.publish(channel, "new")
        assert await received(again, 1) == ["new"]
        assert await received(wild, 1) == ["new"]


# Subscriptions


async def test_a_filter_chooses(server: Server, channel: str) -> None:
    async with Client(server.url) as client:
        large = await client.subscribe(channel, filter="data.n > `2` && clientProperties.kind == 'pizza'")
        for number in range(5):
            await client.publish(channel, {"n": number}, properties={"kind": "pizza" if number != 3 else "pasta"})
        assert await received(large, 1) == [{"n": 4}]


async def test_a_bad_filter_is_refused(server: Server, channel: str) -> None:
    async with Client(server.url) as client:
        with pytest.raises(SubscribeRefused) as caught:
            await client.subscribe(channel, filter="data.[")
        assert (caught.value.code, caught.value.error_code) == (400, "user.illegalArgument")
        assert "filter" in caught.value.message


async def test_a_client_need_not_hear_itself(server: Server, channel: str) -> None:
    async with Client(server.url, name="quiet") as client, Client(server.url) as other:
        others = await client.subscribe(channel, local=False)
        await client.publish(channel, "mine")
        await other.publish(channel, "theirs")
        assert await received(others, 1) == ["theirs"]


async def test_a_group_shares_its_messages(server: Server, channel: str) -> None:
    async with (
        Client(server.url, name="cook1", update=True) as one,
        Client(server.url, name="cook2", update=True) as two,
        Client(server.url) as shop,
    ):
        seen: list[Any] = []
        done = asyncio.Event()

        def cook(message: Any) -> None:
            seen.append(message.data)
            if len(seen) >= 10:
                done.set()

        for client in (one, two):
            await client.subscribe(channel, cook, group="cooks")
        for number in range(10):
            await shop.publish(channel, number)
        await asyncio.wait_for(done.wait(), LIMIT_S)
        assert sorted(seen) == list(range(10))
