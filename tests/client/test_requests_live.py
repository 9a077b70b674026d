"""Requests and their answers, with the real server (xMsg's syncPublish)."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from crewel.bayeux.message import Fields
from crewel.client import (
    AnswerTimeoutError,
    Client,
    DisconnectedError,
    ErrorAnswer,
    Extension,
    Message,
    NotConnectedError,
    PublishRefused,
    State,
    SubscribeRefused,
    TransportError,
    create_response,
)
from tests.client.support import LIMIT_S, QUICK, SERVICE, Steps
from tests.client.test_live import Sent
from tests.conftest import StartServer
from tests.server_process import Server


@asynccontextmanager
async def two(server: Server, transport: str, **options: Any) -> AsyncIterator[tuple[Client, Client]]:
    """Who asks, and who answers over the other transport."""
    other = "long-polling" if transport == "websocket" else "websocket"
    async with (
        asyncio.timeout(LIMIT_S),
        Client(server.url, transports=[transport], **options) as joe,
        Client(server.url, transports=[other], **options) as ann,
    ):
        yield joe, ann


async def has_asked(joe: Client, ann: Client, channel: str) -> None:
    """Let the client ask something. Before its first request it subscribes; further ones are on their way at once, however
    little time they have for their answer."""
    await ann.reply(f"{channel}/before", lambda message: message.data)
    assert (await joe.request(f"{channel}/before", 1)).data == 1


@pytest.fixture
def channel(request: pytest.FixtureRequest) -> str:
    """A channel that no other test uses."""
    return "/" + re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)


MODES = [{"ack": False}, {"ack": True}, {"update": True}, {"update": True, "settle": "batch"}]


@pytest.mark.parametrize("options", MODES, ids=str)
async def test_a_request_is_answered(server: Server, transport: str, options: Any, channel: str) -> None:
    async with two(server, transport, **options) as (joe, ann):
        await ann.reply(channel, lambda message: {"got": message.data})
        answer = await joe.request(channel, {"n": [1]}, timeout=30)
        assert answer.data == {"got": {"n": [1]}}
        assert re.fullmatch(rf"/ret/{joe.login['replyId']}/3\d{{6}}", answer.channel)
        if joe.settles:
            assert str(ann.name).endswith(f"/{answer.sender}")


async def test_many_at_once_get_their_own_answers(server: Server, transport: str, channel: str) -> None:
    async def later(message: Message) -> Any:
        await asyncio.sleep(0.001 * (message.data % 7))  # so that they overtake each other
        return message.data * 2

    sent = Sent()
    async with two(server, transport) as (joe, ann):
        joe.add_extension(sent)
        await ann.reply(channel, later, at_once=50)
        answers = await asyncio.gather(*(joe.request(channel, number) for number in range(300)))
        assert [answer.data for answer in answers] == [number * 2 for number in range(300)]
        assert len({answer.channel for answer in answers}) == 300
        assert (joe.requests.pending, joe.requests.late, joe.requests.duplicates) == (0, 0, 0)
        subscribes = sent.on("/meta/subscribe")
        assert [each["subscription"] for each in subscribes] == [f"/ret/{joe.login['replyId']}/*"]


async def test_the_subscription_is_confirmed_before_the_first_request(
    server: Server, transport: str, channel: str
) -> None:
    class Order(Extension):
        seen: list[str]

        def __init__(self) -> None:
            self.seen = []

        def outgoing(self, message: Fields) -> Fields:
            if message["channel"] == channel:
                self.seen.append("asked")
            return message

        def incoming(self, message: Fields) -> Fields:
            if message.get("channel") == "/meta/subscribe" and message["successful"]:
                self.seen.append("confirmed")
            return message

    async with two(server, transport) as (joe, ann):
        await ann.reply(channel, lambda message: message.data)
        order = Order()
        joe.add_extension(order)
        await asyncio.gather(*(joe.request(channel, n) for n in range(3)))
        assert order.seen == ["confirmed", *["asked"] * 3]


async def test_what_is_asked_is_not_changed(server: Server, transport: str, channel: str) -> None:
    data: Any = {"n": [1]}
    ext: Any = {"mine": {"x": 1}}
    async with two(server, transport) as (joe, ann):
        requests = await ann.subscribe(channel)
        asking = asyncio.create_task(joe.request(channel, data, ext=ext, timeout=30))
        data["n"].append("not yet asked")  # the task has not begun
        request = await requests.receive(LIMIT_S)
        data["n"].append("asked")
        await ann.publish(*create_response(request))
        answer = await asking
        assert answer.data == {"n": [1, "not yet asked"]}
        assert request.ext["mine"] == {"x": 1}
        assert ext == {"mine": {"x": 1}}


@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        (b"\0\xff" * 5, None),
        (b"", "image/png"),
        (b"a", "text/plain"),
        ({"a": 1}, "application/vnd.shop+json"),
        ("", None),
    ],
    ids=str,
)
async def test_a_response_without_data_of_its_own_is_the_request_as_it_was(
    server: Server, transport: str, channel: str, data: Any, content_type: str | None
) -> None:
    async with two(server, transport, update=True) as (joe, ann):
        requests = await ann.subscribe(channel)
        asking = asyncio.create_task(joe.request(channel, data, content_type=content_type, timeout=30))
        request = await requests.receive(LIMIT_S)
        await ann.publish(*create_response(request))
        answer = await asking
        assert (answer.data, answer.content, answer.content_type) == (
            request.data,
            request.content,
            request.content_type,
        )
        assert answer.content_type == content_type or (content_type is None and data == b"\0\xff" * 5)
        assert (answer.content if isinstance(data, bytes) else answer.data) == data


async def test_a_client_that_knows_nothing_of_us_answers_by_a_publish(
    server: Server, transport: str, channel: str
) -> None:
    async with two(server, transport, ack=False) as (joe, stock):
        requests = await stock.subscribe(channel)
        asking = asyncio.create_task(joe.request(channel, 1, timeout=30))
        request = await requests.receive(LIMIT_S)
        await stock.publish(request.fields["ext"]["replyTo"], "an answer")
        assert (await asking).data == "an answer"


async def test_an_error_answer_is_told_from_none_in_time(server: Server, transport: str, channel: str) -> None:
    def answer(message: Message) -> Any:
        raise ErrorAnswer("user.illegalArgument", "no such power", data=message.data)

    async with two(server, transport) as (joe, ann):
        await ann.reply(channel, answer)
        with pytest.raises(ErrorAnswer, match=r"user\.illegalArgument \(no such power\)") as raised:
            await joe.request(channel, 7)
        error = raised.value
        assert (error.error_code, error.message, error.data) == ("user.illegalArgument", "no such power", 7)
        assert error.answer.ext["error"] == {"errorCode": "user.illegalArgument", "message": "no such power"}
        assert not isinstance(error, AnswerTimeoutError)


async def test_a_responder_without_an_answer_leads_to_a_time_out(server: Server, transport: str, channel: str) -> None:
    async with two(server, transport) as (joe, ann):
        requests = await ann.subscribe(channel)
        await has_asked(joe, ann, channel)
        with pytest.raises(AnswerTimeoutError, match=f"{channel}: no answer within 0.3 s"):
            await joe.request(channel, 1, timeout=0.3)
        assert joe.requests.pending == 0
        request = await requests.receive(LIMIT_S)
        for _ in range(2):
            await ann.publish(*create_response(request, "too late"))
        await ann.reply(f"{channel}/more", lambda message: message.data)
        assert (await joe.request(f"{channel}/more", 2)).data == 2
        assert (joe.requests.late, joe.requests.duplicates) == (2, 0)


async def test_where_nobody_is_there_is_no_answer(server: Server, transport: str, channel: str) -> None:
    async with two(server, transport) as (joe, ann):
        await has_asked(joe, ann, channel)
        with pytest.raises(AnswerTimeoutError):
            await joe.request(channel, 1, timeout=0.2)


async def test_of_two_responders_the_first_counts(server: Server, transport: str, channel: str) -> None:
    async with two(server, transport) as (joe, ann):
        for name in ("one", "two"):
            await ann.reply(channel, lambda message, name=name: name)
        assert (await joe.request(channel)).data in ("one", "two")
        assert (await joe.request(channel)).data in ("one", "two")
        while joe.requests.duplicates < 2:
            await asyncio.sleep(0.01)
        assert joe.requests.late == 0


async def test_members_of_a_group_share_the_requests(server: Server, transport: str, channel: str) -> None:
    async with two(server, transport, update=True) as (joe, ann), Client(server.url, update=True) as bob:
        for name, client in (("ann", ann), ("bob", bob)):
            await client.reply(channel, lambda message, name=name: name, group="workers")
        answers = [(await joe.request(channel, number)).data for number in range(10)]
        assert set(answers) == {"ann", "bob"}
        assert (joe.requests.late, joe.requests.duplicates) == (0, 0)


async def test_a_request_that_is_redelivered_is_answered_twice_and_heard_once(
    server: Server, transport: str, channel: str
) -> None:
    async with two(server, transport, update=True, retries=1, delay=0) as (joe, ann):
        requests = await ann.subscribe(channel)
        asking = asyncio.create_task(joe.request(channel, 1, timeout=30, persistent=True))
        first = await requests.receive(LIMIT_S)
        await ann.publish(*create_response(first, "once"))
        first.reject("communication.timeout")
        again = await requests.receive(LIMIT_S)
        assert (again.redeliver, again.reply_to, again.id) == (1, first.reply_to, first.id)
        await ann.publish(*create_response(again, "twice"))
        again.settle()
        assert (await asking).data == "once"
        while not joe.requests.duplicates:
            await asyncio.sleep(0.01)


async def test_a_service_of_the_server_answers(server: Server, transport: str) -> None:
    async with two(server, transport) as (joe, _):
        assert (await joe.request("/asked/square", 7)).data == 49
        with pytest.raises(ErrorAnswer, match="no number: x"):
            await joe.request("/asked/square", "x")


async def test_a_refused_request_is_a_refused_publish(server: Server, transport: str) -> None:
    async with two(server, transport) as (joe, _):
        with pytest.raises(PublishRefused, match="nobody may"):
            await joe.request("/closed/a", 1)
        for bad in ({"timeout": 0}, {"timeout": -1}, {"reply_to": "/ret/a/3000000"}):
            with pytest.raises(ValueError, match=r"waits for longer|client's own"):
                await joe.request("/a", 1, **bad)
        assert joe.requests.pending == 0


async def test_a_client_that_is_closed_waits_no_longer(server: Server, transport: str, channel: str) -> None:
    async with asyncio.timeout(LIMIT_S):
        async with Client(server.url, transports=[transport]) as joe:
            asking = asyncio.create_task(joe.request(channel, 1))
            while not joe.requests.pending:
                await asyncio.sleep(0)
        with pytest.raises(DisconnectedError):
            await asking
        with pytest.raises(DisconnectedError):
            await joe.request(channel, 1)


async def test_a_responder_may_be_a_named_one(server: Server, transport: str, channel: str) -> None:
    """A request that is addressed to somebody, heard without a subscription."""
    async with two(server, transport) as (joe, _), Client(server.url, name="ann") as ann:
        await ann.reply(channel, lambda message: message.data, is_addressed=True)
        assert (await joe.request(channel, 1, to="client/ann", subscribable=False)).data == 1


class Forgetful(Extension):
    """Lets the client believe that the server gives no IDs."""

    def incoming(self, message: Fields) -> Fields:
        if message.get("channel") == "/meta/handshake":
            message["ext"]["session"].pop("replyId")
        return message


async def test_an_id_that_the_server_has_not_given_is_refused(server: Server, channel: str) -> None:
    async with Client(server.url, extensions=[Forgetful()]) as joe:
        with pytest.raises(SubscribeRefused, match="403"):
            await joe.request(channel, 1)


SETS = ("bayeux.timeout_ms=1000", "bayeux.max_interval_ms=3000", "bayeux.sweep_ms=100")


@pytest.mark.parametrize("ack", [True, False])
async def test_in_a_new_session_it_is_subscribed_again(start_server: StartServer, transport: str, ack: bool) -> None:
    """A new session has another ID, and no client gets the answers to the old one: the request fails at once."""
    server = start_server(*SETS, service=SERVICE)
    steps = Steps()
    async with Client(server.url, transports=[transport], ack=ack, backoff=QUICK, on_state=steps) as joe:
        assert (await joe.request("/asked/a", 2)).data == 4
        old = joe.login["replyId"]
        waiting = asyncio.create_task(joe.request("/unheard", 1, timeout=LIMIT_S))
        while joe.requests.pending != 1:
            await asyncio.sleep(0.01)
        assert (await joe.request("/asked/a", 3)).data == 9, "by then the one that waits has been sent"
        server.kill()
        await steps.reach(State.RECONNECTING)
        start_server(*SETS, port=server.port, service=SERVICE)
        with pytest.raises(TransportError, match="the session was lost"):
            await waiting
        assert (await joe.request("/asked/a", 3)).data == 9
        assert joe.login["replyId"] != old


async def test_a_session_that_outlives_the_server_keeps_its_answers(start_server: StartServer, transport: str) -> None:
    server = start_server(*SETS, service=SERVICE)
    steps, anns = Steps(), Steps()
    async with (
        asyncio.timeout(3 * LIMIT_S),
        Client(server.url, transports=[transport], name="joe/1", persistent=True, backoff=QUICK, on_state=steps) as joe,
        Client(server.url, name="ann/1", persistent=True, backoff=QUICK, on_state=anns) as ann,
    ):
        requests = await ann.subscribe("/late")
        asking = asyncio.create_task(joe.request("/late", 1, timeout=2 * LIMIT_S))
        request = await requests.receive(LIMIT_S)
        reply_id = joe.login["replyId"]
        server.kill()
        await asyncio.gather(steps.reach(State.RECONNECTING), anns.reach(State.RECONNECTING))
        start_server(*SETS, *server.store_sets, port=server.port, service=SERVICE)
        await asyncio.gather(steps.reach(State.CONNECTED, times=2), anns.reach(State.CONNECTED, times=2))
        await ann.publish(*create_response(request, "after"))
        assert (await asking).data == "after"
        assert joe.login["replyId"] == reply_id
        assert (await joe.request("/asked/a", 3)).data == 9


async def test_without_a_session_nothing_is_sent(start_server: StartServer, transport: str) -> None:
    server = start_server(*SETS)
    steps = Steps()
    async with Client(server.url, transports=[transport], backoff=QUICK, on_state=steps) as joe:
        server.kill()
        await steps.reach(State.RECONNECTING)
        with pytest.raises(NotConnectedError):
            await joe.request("/a", 1, timeout=0.2)


async def test_an_answer_passes_a_queue_that_is_full(server: Server, transport: str, channel: str) -> None:
    """Nobody reads another subscription; what is asked for is heard all the same."""
    async with two(server, transport) as (joe, ann):
        await ann.reply(channel, lambda message: message.data)
        await joe.request(channel, 0)
        unread = await joe.subscribe(f"{channel}/full", bound=1)
        for number in range(3):
            await ann.publish(f"{channel}/full", number)
        while not unread.is_full:
            await asyncio.sleep(0.01)
        assert (await joe.request(channel, 1)).data == 1
