"""xMsg's page on publishing a message and receiving a response (syncPublish), statement by statement: on the wire, as a
responder without any library meets it, and with the Python client as the one who asks."""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from crewel.client import AnswerTimeoutError, Client, ErrorAnswer, Extension, create_response
from crewel.client.requests import Serials
from tests.functional.bayeux import Message
from tests.functional.conftest import Serve, one_lane
from tests.functional.people import Person
from tests.functional.wire import until
from tests.server_process import Server

pytestmark = one_lane

REPLY_CHANNEL = re.compile(r"/ret/(?P<id>[^/]+)/(?P<language>\d)(?P<serial>\d{6})")
_numbers = itertools.count(1)


@pytest.fixture
def server(shared: Serve) -> Server:
    return shared("bayeux.timeout_ms=60000")


@pytest.fixture
def channel() -> str:
    return f"/service{next(_numbers)}/power"


@pytest.fixture(params=["websocket", "long-polling"])
async def client(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Client]:
    """Who asks, over each transport."""
    async with Client(server.url, transports=[request.param]) as client:
        yield client


async def has_asked(client: Client, channel: str) -> None:
    """Let the client ask something. Before its first request it subscribes; further ones are on their way at once, however
    little time they have for their answer."""
    await client.reply(f"{channel}/before", lambda message: message.data)
    assert (await client.request(f"{channel}/before", 1, timeout=30)).data == 1


Answer = Callable[[Person, Message], None]


class Plain(Person):
    """A client without any extension but `ext.session`."""

    acknowledges = False


class Responder:
    """Answers what comes on a channel, with plain HTTP and no library, on a thread of its own. `heard` is all that came."""

    def __init__(self, server: Server, channel: str, answer: Answer) -> None:
        self.heard: list[Message] = []
        self.answer = answer
        self._client = Person(server).be()
        self._client.subscribe(channel)
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def reply_channels(self) -> list[str]:
        """Where answers were awaited."""
        return [message["ext"]["replyTo"] for message in self.heard]

    def _run(self) -> None:
        while not self._is_ending.is_set():
            for message in self._client.take(timeout=50):
                self.heard.append(message)
                self.answer(self._client, message)

    def stop(self) -> None:
        """End."""
        self._is_ending.set()
        self._thread.join(10)


Respond = Callable[..., Responder]


def echo(client: Person, message: Message, data: Any = None, channel: str | None = None, **ext: Any) -> None:
    """Publish the request's data, or this, where the answer is awaited, or here."""
    more = {"ext": ext} if ext else {}
    client.publish(channel or message["ext"]["replyTo"], message["data"] if data is None else data, **more)


def echo_requests(client: Person, message: Message) -> None:
    """The same, and let pass what is no request."""
    if "replyTo" in message.get("ext", {}):
        echo(client, message)


def twice(client: Person, message: Message) -> None:
    """The same, twice."""
    echo(client, message)
    echo(client, message)


def silent(client: Person, message: Message) -> None:
    """Answer nothing."""


@pytest.fixture
def respond(server: Server, channel: str) -> Iterator[Respond]:
    """Start a responder: `respond(lambda client, message: …)`; without a function it echoes."""
    responders: list[Responder] = []

    def start(answer: Answer = echo) -> Responder:
        responders.append(Responder(server, channel, answer))
        return responders[-1]

    yield start
    for each in responders:
        each.stop()


class TestSyncPublish:
    """The page: "this publishes the message just like the publish method, but with a unique replyTo field. Then the method
    will block until a response message is received or the timeout occurs, whichever happens first"."""

    async def test_a_request_is_answered(self, client: Client, respond: Respond, channel: str) -> None:
        responder = respond()
        answer = await client.request(channel, {"value": 1}, timeout=30)
        assert answer.data == {"value": 1}
        assert responder.heard[0]["data"] == {"value": 1}

    async def test_without_an_answer_the_request_times_out(
        self, client: Client, respond: Respond, channel: str
    ) -> None:
        """The page: "xMsg will not reply synchronous requests automatically. If the callback does not send a response, the
        actor doing the syncPublish call will timeout"."""
        responder = respond(silent)
        await has_asked(client, channel)
        begun = time.monotonic()
        with pytest.raises(AnswerTimeoutError):
            await client.request(channel, 1, timeout=0.5)
        assert 0.5 <= time.monotonic() - begun < 5
        await asyncio.to_thread(until, lambda: responder.heard)
        assert len(responder.heard) == 1

    async def test_a_responder_may_answer_with_an_error(self, client: Client, respond: Respond, channel: str) -> None:
        """xMsg has no such thing: there a time-out is all that a requester sees."""
        error = {"errorCode": "user.illegalArgument", "message": "too many"}
        respond(lambda other, request: echo(other, request, [], error=error))
        with pytest.raises(ErrorAnswer) as raised:
            await client.request(channel, 1, timeout=30)
        assert raised.value.error_code == "user.illegalArgument"

    async def test_many_requests_at_once_get_their_own_answers(
        self, client: Client, respond: Respond, channel: str
    ) -> None:
        """The page: "this unique replyTo value ensures that the response can be matched with the sync-publication call"."""
        waiting: list[Message] = []

        def answer_backwards(responder: Person, message: Message) -> None:
            waiting.append(message)
            if len(waiting) == 50:
                for each in reversed(waiting):
                    echo(responder, each)

        respond(answer_backwards)
        answers = await asyncio.gather(*(client.request(channel, number, timeout=60) for number in range(50)))
        assert [answer.data for answer in answers] == list(range(50))

    async def test_the_message_of_the_caller_stays_as_it_is(
        self, client: Client, respond: Respond, channel: str
    ) -> None:
        respond()
        data, ext = {"value": [1]}, {"more": {"of": "this"}}
        await client.request(channel, data, timeout=10, ext=ext)
        assert (data, ext) == ({"value": [1]}, {"more": {"of": "this"}})

    async def test_a_sync_publish_is_answered_to_other_transports(
        self, client: Client, server: Server, channel: str
    ) -> None:
        async with Client(server.url, transports=["websocket"]) as other:
            await other.reply(channel, lambda message: message.data + 1)
            assert (await client.request(channel, 1, timeout=30)).data == 2


class TestReceivingResponses:
    """The page: "the format of the replyTo topic is ret:<ID>:LDDDDDD"."""

    async def test_each_request_has_a_reply_channel_of_its_own(
        self, client: Client, respond: Respond, channel: str
    ) -> None:
        """The page: "L is the language (3 for Python), DDDDDD is a 6-digit serial number, different for each message"."""
        responder = respond()
        for number in range(3):
            await client.request(channel, number, timeout=30)
        parts = [REPLY_CHANNEL.fullmatch(each) for each in responder.reply_channels]
        assert {part["language"] for part in parts if part} == {"3"}
        assert {part["id"] for part in parts if part} == {client.login["replyId"]}
        first, *others = (int(part["serial"]) for part in parts if part)
        assert others == [(first + 1) % 1_000_000, (first + 2) % 1_000_000]

    async def test_after_999999_comes_0(self, client: Client, respond: Respond, channel: str) -> None:
        """The page: "when 999999 is reached, it starts from 0 again"."""
        responder = respond()
        client.requests._serials = Serials(999_999)
        for number in range(2):
            await client.request(channel, number, timeout=30)
        assert [each[-7:] for each in responder.reply_channels] == ["3999999", "3000000"]

    def test_the_id_is_the_sessions_own(self, server: Server) -> None:
        """The page: "the <ID> is the unique identifier of the actor": nobody else may hear what comes there."""
        asker, other = Plain(server).be(), Plain(server).be()
        mine, others = asker.login["replyId"], other.login["replyId"]
        assert mine != others
        assert len(mine) >= 22  # 128 bits
        asker.subscribe(f"/ret/{mine}/*")
        for pattern in (f"/ret/{mine}/*", f"/ret/{mine}/3000000", f"/ret/{mine}/**", "/ret/*", "/ret/**"):
            reply = other.send(other.message("/meta/subscribe", subscription=pattern))[-1]
            assert reply["successful"] is False, pattern
        other.subscribe("/**")
        other.publish(f"/ret/{mine}/3000000", "for you")
        assert [message["data"] for message in asker.take(timeout=2000)] == ["for you"]
        assert other.take() == []

    def test_a_malformed_reply_channel_is_refused(self, server: Server) -> None:
        asker, other = Plain(server).be(), Plain(server).be()
        for name in ("300000", "30000000", "3OOOOOO", "a/b", "3000000/x"):
            reply = other.send(other.message(f"/ret/{asker.login['replyId']}/{name}", data=1))[-1]
            assert (reply["successful"], reply["error"][:4]) == (False, "403:"), name

    async def test_there_is_one_subscription_and_it_comes_first(
        self, server: Server, respond: Respond, channel: str
    ) -> None:
        """The page: "to avoid creating a new subscription every time a sync message is sent, only a single subscription per
        proxy will be created, with topic ret:<ID>"; and "if no response socket to address: create", before it is published."""
        respond()
        sent = Sent()
        async with Client(server.url, transports=["long-polling"], extensions=[sent]) as client:
            await asyncio.gather(*(client.request(channel, number, timeout=30) for number in range(5)))
            await client.request(channel, 5, timeout=30)
            reply_id = client.login["replyId"]
        subscribed = ("/meta/subscribe", f"/ret/{reply_id}/*")
        assert [each for each in sent.messages if each[0] in ("/meta/subscribe", channel)] == [
            subscribed, *[(channel, None)] * 6
        ]  # fmt: skip

    async def test_late_and_second_answers_are_dropped_and_counted(
        self, client: Client, respond: Respond, channel: str
    ) -> None:
        """Where xMsg's map would keep them for ever."""
        late: list[tuple[Person, Message]] = []
        responder = respond(lambda *request: late.append(request))
        await has_asked(client, channel)
        with pytest.raises(AnswerTimeoutError):
            await client.request(channel, 1, timeout=0.3)
        until(lambda: late)
        echo(*late[0])
        echo(*late[0])
        responder.answer = twice
        assert (await client.request(channel, 2, timeout=30)).data == 2
        async with asyncio.timeout(30):
            while (client.requests.late, client.requests.duplicates) != (2, 1):
                await asyncio.sleep(0.01)
        assert client.requests.pending == 0


class TestPublishingResponses:
    """The page: "to sync-reply, the user-defined callback must explicitly support publication of responses"."""

    async def test_the_receiver_sees_where_to_answer(
        self, client: Client, respond: Respond, server: Server, channel: str
    ) -> None:
        """The page: "a received message is a synchronous request if the replyTo metadata is set"."""
        responder = respond(echo_requests)
        async with Client(server.url, update=True) as other:
            heard = await other.subscribe(channel)
            await client.publish(channel, "no request")
            await client.request(channel, "a request", timeout=30)
            plain, request = await heard.receive(timeout=30), await heard.receive(timeout=30)
        until(lambda: len(responder.heard) == 2)
        assert plain.reply_to is None
        assert "replyTo" not in responder.heard[0].get("ext", {})
        assert request.reply_to == request.update["replyTo"] == responder.heard[1]["ext"]["replyTo"]

    async def test_the_answer_may_be_a_plain_publish(self, client: Client, server: Server, channel: str) -> None:
        """The page: "the response message shall be published to the topic defined by the value of replyTo"."""
        async with Client(server.url) as other:

            async def answer(message: Any) -> None:
                await other.publish(message.reply_to, {"power": message.data})

            await other.subscribe(channel, answer)
            assert (await client.request(channel, 5, timeout=30)).data == {"power": 5}

    async def test_an_answer_on_another_channel_is_not_received(
        self, client: Client, respond: Respond, channel: str
    ) -> None:
        """The page: "if the wrong topic ... are used, the response will not be received"."""
        respond(lambda other, request: echo(other, request, channel="/elsewhere"))
        await has_asked(client, channel)
        with pytest.raises(AnswerTimeoutError):
            await client.request(channel, 1, timeout=0.5)

    async def test_create_response_copies_what_it_needs(self, client: Client, server: Server, channel: str) -> None:
        """The page: createResponse(msg), "returning the same input data", and createResponse(msg, data)."""
        async with Client(server.url) as other:
            heard = await other.subscribe(channel)
            for data, given in (({"same": 1}, ()), ({"same": 1}, ([2],))):
                asking = asyncio.create_task(client.request(channel, data, timeout=30))
                message = await heard.receive(timeout=30)
                await other.publish(*create_response(message, *given))
                assert (await asking).data == (given[0] if given else data)


class Sent(Extension):
    """Notes what a client sends: channels, and what is subscribed to."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str | None]] = []

    def outgoing(self, message: Message) -> Message:
        self.messages.append((message["channel"], message.get("subscription")))
        return message
