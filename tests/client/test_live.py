"""The client against the real server, over each transport."""

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

from crewel.bayeux.message import Fields
from crewel.client import (
    Batch,
    Client,
    ClientError,
    DisconnectedError,
    Extension,
    Message,
    MessageDroppedError,
    MessageTooLargeError,
    NotEncodableError,
    Overflow,
    PayloadRefusedError,
    PublishRefused,
    RemoteCallFailedError,
    RemoteCallTimeoutError,
    State,
    SubscribeRefused,
)
from tests.client.support import LIMIT_S, Steps
from tests.server_process import Server


class Sent(Extension):
    """Notes what goes out and what comes in."""

    def __init__(self) -> None:
        self.out: list[Fields] = []
        self.came: list[Fields] = []

    def outgoing(self, message: Fields) -> Fields:
        self.out.append(message)
        return message

    def incoming(self, message: Fields) -> Fields:
        self.came.append(message)
        return message

    def on(self, channel: str) -> list[Fields]:
        return [message for message in self.out if message["channel"] == channel]


@pytest.mark.parametrize("ack", [True, False])
async def test_two_clients_chat(server: Server, transport: str, ack: bool) -> None:
    async with (
        Client(server.url, transports=[transport], ack=ack) as joe,
        Client(server.url, transports=[transport], ack=ack) as ann,
    ):
        assert (joe.transport, joe.acknowledges) == (transport, ack)
        rooms = await ann.subscribe("/chat/**")
        reply = await joe.publish("/chat/demo", {"user": "joe", "chat": "hello"}, ext={"mood": "good"})
        assert reply["successful"] is True
        message = await rooms.receive(LIMIT_S)
        assert (message.channel, message.data) == ("/chat/demo", {"user": "joe", "chat": "hello"})
        assert message.ext == {"mood": "good"}
    assert joe.state is ann.state is State.CLOSED


async def test_one_server_subscription_serves_many_local_ones(server: Server, transport: str) -> None:
    sent = Sent()
    async with Client(server.url, transports=[transport], extensions=[sent]) as client:
        exact = await client.subscribe("/a/b")
        wide = await client.subscribe("/a/*")
        again = await client.subscribe("/a/b")
        await client.publish("/a/b", 1)
        assert [(await each.receive(LIMIT_S)).data for each in (exact, wide, again)] == [1, 1, 1]
        assert [fields["subscription"] for fields in sent.on("/meta/subscribe")] == ["/a/b", "/a/*"]
        await exact.unsubscribe()
        await client.publish("/a/b", 2)
        assert [(await each.receive(LIMIT_S)).data for each in (wide, again)] == [2, 2]
        assert not sent.on("/meta/unsubscribe")
        await again.unsubscribe()
        assert [fields["subscription"] for fields in sent.on("/meta/unsubscribe")] == ["/a/b"]
        assert wide.queued == 0


async def test_an_unsubscribed_channel_is_not_heard(server: Server, transport: str) -> None:
    async with Client(server.url, transports=[transport]) as client:
        async with await client.subscribe("/a"):
            pass
        everything = await client.subscribe("/**")
        await client.publish("/a", 1)
        assert (await everything.receive(LIMIT_S)).data == 1


async def test_a_batch_travels_in_one_payload_and_in_order(server: Server, transport: str) -> None:
    async with Client(server.url, transports=[transport]) as client:
        subscription = await client.subscribe("/numbers")
        async with client.batch() as batch:
            for number in range(20):
                batch.publish("/numbers", number)
        assert all(reply["successful"] for reply in batch.replies)
        assert [(await subscription.receive(LIMIT_S)).data for _ in range(20)] == list(range(20))


async def test_a_batch_tells_which_message_was_refused(server: Server, transport: str) -> None:
    async with Client(server.url, transports=[transport]) as client:
        batch = client.batch()
        with pytest.raises(PublishRefused, match="nobody may"):
            await _publish(batch, "/fine", "/closed/a", "/fine")
        assert [reply["successful"] for reply in batch.replies] == [True, False, True]


async def _publish(batch: Batch, *channels: str) -> None:
    async with batch:
        for channel in channels:
            batch.publish(channel, 1)


async def test_a_batch_whose_block_fails_sends_nothing(server: Server) -> None:
    sent = Sent()
    async with Client(server.url, extensions=[sent]) as client:
        with pytest.raises(ValueError, match="not a channel"):
            await _publish(client.batch(), "/a", "no channel")
        async with client.batch():
            pass
        assert not sent.on("/a")


@pytest.mark.parametrize("ack", [True, False])
async def test_a_remote_call_returns_its_result(server: Server, transport: str, ack: bool) -> None:
    async with Client(server.url, transports=[transport], ack=ack) as client:
        assert await client.remote_call("echo", {"a": [1, None]}) == {"a": [1, None]}
        assert await client.remote_call("/echo") is None
        results = await asyncio.gather(*(client.remote_call("echo", number) for number in range(10)))
        assert results == list(range(10))


async def test_a_remote_call_that_fails_tells_why(server: Server, transport: str) -> None:
    async with Client(server.url, transports=[transport]) as client:
        with pytest.raises(RemoteCallFailedError) as caught:
            await client.remote_call("fail", 7)
        assert caught.value.data == {"because": 7}


async def test_a_remote_call_that_nobody_answers_times_out(server: Server, transport: str) -> None:
    async with Client(server.url, transports=[transport]) as client:
        with pytest.raises(RemoteCallTimeoutError, match="nobody"):
            await client.remote_call("nobody", timeout=0.2)
        assert await client.remote_call("echo", 1) == 1


async def test_a_remote_call_that_nothing_answers_is_logged(
    server: Server, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Client(server.url, transports=[transport]) as client:
        with pytest.raises(RemoteCallTimeoutError):
            await client.remote_call("missing", timeout=0.2)
    assert "nothing in the server answers /service/missing" in caplog.text


async def test_refusals_are_errors_with_their_parts(server: Server, transport: str) -> None:
    async with Client(server.url, transports=[transport]) as client:
        with pytest.raises(PublishRefused) as vetoed:
            await client.publish("/vetoed", 1)
        assert (vetoed.value.code, vetoed.value.text) == (404, "message_deleted")
        with pytest.raises(SubscribeRefused) as closed:
            await client.subscribe("/closed/a")
        assert (closed.value.code, closed.value.arguments) == (403, ("nobody may",))
        assert await client.remote_call("echo", 1) == 1


@pytest.mark.parametrize("channel", ["a", "/", "/a//b", "/a,b", ""])
async def test_what_is_no_channel_is_refused_before_it_is_sent(server: Server, channel: str) -> None:
    async with Client(server.url) as client:
        with pytest.raises(ValueError, match="channel"):
            await client.publish(channel, 1)
        with pytest.raises(ValueError, match="channel"):
            await client.subscribe(channel)


@pytest.mark.parametrize("channel", ["/a/*", "/**", "/meta/connect"])
async def test_nobody_publishes_to_wildcards_and_meta_channels(server: Server, channel: str) -> None:
    async with Client(server.url) as client:
        with pytest.raises(ValueError, match="nothing can be published"):
            await client.publish(channel, 1)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ({"price": [1, 2, float("nan")]}, r"data\.price\[2\] is NaN, which JSON cannot represent"),
        (float("inf"), "data is Infinity, which JSON cannot represent"),
        ({"raw": b"12"}, r"data\.raw is 2 bytes, which JSON cannot represent"),
        ([2**64], r"data\[0\] is an integer of more than 64 bits"),
    ],
)
async def test_what_json_cannot_say_is_refused_before_it_is_sent(
    server: Server, transport: str, data: Any, fault: str
) -> None:
    async with Client(server.url, transports=[transport]) as client:
        hearing = await client.subscribe("/said")
        with pytest.raises(NotEncodableError, match=fault):
            await client.publish("/said", data)
        with pytest.raises(NotEncodableError, match=fault):
            await client.publish("/said", data, persistent=True, retry_for=LIMIT_S)
        await client.publish("/said", "next")
        assert (await hearing.receive(LIMIT_S)).data == "next"


async def test_what_is_too_large_is_refused_with_the_limit(server: Server, transport: str) -> None:
    steps = Steps()
    async with Client(server.url, transports=[transport], on_state=steps) as client:
        words = r"a message to /large has 70\d{3} bytes: the server takes requests of at most 65536 bytes"
        with pytest.raises(MessageTooLargeError, match=words):
            await client.publish("/large", "x" * 70_000, persistent=True, retry_for=LIMIT_S)
        batch = client.batch()
        for _ in range(2):
            batch.publish("/large", "x" * 40_000)
        with pytest.raises(MessageTooLargeError, match="a payload of 2 messages has"):
            await batch.__aexit__(None, None, None)
        await client.publish("/large", "x" * 60_000)
        assert State.RECONNECTING not in [step.new for step in steps.seen]


async def test_what_is_nested_too_deeply_is_refused_at_once_and_alone(server: Server, transport: str) -> None:
    steps = Steps()
    deep: Any = 1
    for _ in range(70):
        deep = [deep]
    async with Client(server.url, transports=[transport], on_state=steps) as client:
        with pytest.raises((PayloadRefusedError, PublishRefused), match=r"deeper than bayeux\.max_depth, which is 64"):
            await client.publish("/deep", deep, persistent=True, retry_for=LIMIT_S)
        assert State.RECONNECTING not in [step.new for step in steps.seen]


async def test_a_callback_is_called_with_one_message_after_the_other(server: Server, transport: str) -> None:
    heard: list[Any] = []
    done = asyncio.Event()
    all_came = threading.Event()  # plain functions may be called in a thread of their own

    def plain(message: Message) -> None:
        heard.append(message.data)
        if message.data == 1:
            raise LookupError("the second message is not to my liking")
        if message.data == 2:
            all_came.set()

    async def coroutine(message: Message) -> None:
        await asyncio.sleep(0)
        if message.data == 2:
            done.set()

    async with Client(server.url, transports=[transport]) as client:
        await client.subscribe("/a", plain)
        last = await client.subscribe("/a", coroutine)
        for number in range(3):
            await client.publish("/a", number)
        await asyncio.wait_for(done.wait(), LIMIT_S)
        assert await asyncio.to_thread(all_came.wait, LIMIT_S)
    assert last.is_ended
    assert heard == [0, 1, 2]


async def test_a_slow_reader_loses_nothing_when_deliveries_are_acknowledged(server: Server, transport: str) -> None:
    sent = Sent()
    async with (
        Client(server.url, transports=[transport], extensions=[sent]) as slow,
        Client(server.url, transports=[transport]) as fast,
    ):
        subscription = await slow.subscribe("/a", bound=3)
        for number in range(50):
            await fast.publish("/a", number)
        received = []
        for _ in range(50):
            received.append((await subscription.receive(LIMIT_S)).data)
            await asyncio.sleep(0.002)
        assert received == list(range(50))
        assert subscription.dropped == 0


async def test_a_slow_reader_without_acknowledgement_loses_the_oldest(server: Server, transport: str) -> None:
    async with Client(server.url, transports=[transport], ack=False) as client:
        subscription = await client.subscribe("/a", bound=3)
        last = await client.subscribe("/last")
        for number in range(10):
            await client.publish("/a", number)
        await client.publish("/last", None)
        await last.receive(LIMIT_S)
        assert [(await subscription.receive(LIMIT_S)).data for _ in range(3)] == [7, 8, 9]
        assert subscription.dropped == 7


async def test_a_full_subscription_may_close_without_harm_to_the_others(server: Server, transport: str) -> None:
    async with Client(server.url, transports=[transport]) as client:
        subscription = await client.subscribe("/a", bound=1, overflow=Overflow.CLOSE)
        other = await client.subscribe("/a", bound=1, overflow=Overflow.DROP_NEWEST)
        last = await client.subscribe("/last")
        for number in range(3):
            await client.publish("/a", number)
        await client.publish("/last", None)
        await last.receive(LIMIT_S)
        assert subscription.is_ended
        assert (await other.receive(LIMIT_S)).data == 0


async def test_the_server_can_end_the_session(server: Server, transport: str) -> None:
    steps = Steps()
    async with Client(server.url, transports=[transport], on_state=steps) as client:
        subscription = await client.subscribe("/a")
        await steps.reach(State.CONNECTED)
        with suppress(ClientError):  # the end may overtake the answer to the publish
            await client.publish("/service/leave", None)
        with pytest.raises(DisconnectedError):
            await subscription.receive(LIMIT_S)
        assert client.state is State.CLOSED
        with pytest.raises(DisconnectedError):
            await client.publish("/a", 1)


async def test_leaving_says_goodbye(server: Server, transport: str) -> None:
    async with Client(server.url, transports=[transport]) as witness:
        gone = await witness.subscribe("/gone")
        async with Client(server.url, transports=[transport]):
            pass
        assert (await gone.receive(LIMIT_S)).data == "said goodbye"


async def test_leaving_ends_iterations_and_wakes_whoever_waits(server: Server, transport: str) -> None:
    async with Client(server.url, transports=[transport]) as client:
        subscription = await client.subscribe("/a")
        reader = asyncio.create_task(_collect(subscription))
        call = asyncio.create_task(client.remote_call("nobody"))
        await asyncio.sleep(0)
    assert await asyncio.wait_for(reader, LIMIT_S) == []
    with pytest.raises(DisconnectedError):
        await asyncio.wait_for(call, LIMIT_S)


async def _collect(subscription: Any) -> list[Any]:
    return [message.data async for message in subscription]


async def test_a_message_that_an_extension_drops_is_not_sent(server: Server, transport: str) -> None:
    class Censor(Extension):
        def outgoing(self, message: Fields) -> Fields | None:
            return None if message.get("data") == "secret" else message

    censor = Censor()
    async with Client(server.url, transports=[transport]) as client:
        client.add_extension(censor)
        subscription = await client.subscribe("/a")
        with pytest.raises(MessageDroppedError, match="/a"):
            await client.publish("/a", "secret")
        client.remove_extension(censor)
        await client.publish("/a", "secret")
        assert (await subscription.receive(LIMIT_S)).data == "secret"


async def test_publishes_of_many_tasks_keep_the_order_of_each(server: Server, transport: str) -> None:
    async with Client(server.url, transports=[transport]) as client:
        subscription = await client.subscribe("/a")

        async def publish(task: int) -> None:
            for number in range(10):
                await client.publish("/a", [task, number])

        await asyncio.gather(*map(publish, range(10)))
        came = [(await subscription.receive(LIMIT_S)).data for _ in range(100)]
        assert sorted(came, key=lambda data: data[0]) == [[task, number] for task in range(10) for number in range(10)]


async def test_publishes_that_wait_together_keep_the_order_of_their_calls(server: Server, transport: str) -> None:
    async with Client(server.url, transports=[transport]) as client:
        subscription = await client.subscribe("/a")
        await asyncio.gather(*(client.publish("/a", number) for number in range(100)))
        assert [(await subscription.receive(LIMIT_S)).data for _ in range(100)] == list(range(100))


async def test_a_cancelled_publish_leaves_the_client_in_order(server: Server, transport: str) -> None:
    async with Client(server.url, transports=[transport]) as client:
        publishing = asyncio.create_task(client.publish("/a", 1))
        await asyncio.sleep(0)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        assert await client.remote_call("echo", 1) == 1


async def test_a_cancelled_block_says_goodbye_all_the_same(server: Server, transport: str) -> None:
    entered = asyncio.Event()

    async def stay() -> None:
        async with Client(server.url, transports=[transport]):
            entered.set()
            await asyncio.get_running_loop().create_future()

    async with Client(server.url) as witness:
        gone = await witness.subscribe("/gone")
        task = asyncio.create_task(stay())
        await asyncio.wait_for(entered.wait(), LIMIT_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await gone.receive(LIMIT_S)).data == "said goodbye"


async def test_nothing_is_left_running(server: Server, transport: str) -> None:
    before = asyncio.all_tasks()
    async with Client(server.url, transports=[transport]) as client:
        await client.subscribe("/a", lambda message: None)
    assert asyncio.all_tasks() == before


async def test_the_hold_ends_and_the_session_goes_on(server: Server, transport: str) -> None:
    """The server holds a connect for half a second; three answers mean that it was held, answered and asked again."""
    sent = Sent()
    steps = Steps()
    async with Client(server.url, transports=[transport], extensions=[sent], on_state=steps) as client:
        async with asyncio.timeout(LIMIT_S):
            while len([fields for fields in sent.came if fields["channel"] == "/meta/connect"]) < 3:
                await client.remote_call("echo")
                await asyncio.sleep(0.05)
        assert [step.new for step in steps.seen] == [State.HANDSHAKING, State.CONNECTING, State.CONNECTED]
        first, *later = sent.on("/meta/connect")
        assert first["advice"] == {"timeout": 0}
        assert first["connectionType"] == transport
        assert all("advice" not in fields for fields in later)
