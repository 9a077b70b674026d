"""Requests and responders, without a server: serial numbers, answers that come twice or late, and what is sent."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.bayeux.message import Fields
from crewel.client import (
    ErrorAnswer,
    Message,
    NotConnectedError,
    PayloadRefusedError,
    PublishRefused,
    Response,
    TransportError,
    create_response,
)
from crewel.client.awaited import Answers
from crewel.client.client_responder import Responder
from crewel.client.errors import ClientError
from crewel.client.publish_options import publication
from crewel.client.requests import Serials, _name
from crewel.client.router import Router
from tests.client.support import LIMIT_S
from tests.client.test_router import subscribed
from tests.texts import texts

PREFIX = "/ret/a1/"
REPLY = "/ret/a1/3000001"


def answer(channel: str = REPLY, data: Any = 1) -> Fields:
    return {"channel": channel, "data": data}


class TestSerials:
    def test_serials_are_seven_digits_of_which_the_first_says_python(self) -> None:
        serials = Serials(0)
        assert [serials.take(PREFIX, ()) for _ in range(3)] == [f"{PREFIX}300000{n}" for n in range(3)]

    def test_after_the_last_comes_the_first(self) -> None:
        serials = Serials(999_998)
        taken = [serials.take(PREFIX, ()) for _ in range(3)]
        assert taken == [f"{PREFIX}3999998", f"{PREFIX}3999999", f"{PREFIX}3000000"]

    def test_one_that_waits_is_never_given_again(self) -> None:
        serials = Serials(999_999)
        used = {f"{PREFIX}3999999", f"{PREFIX}3000000", f"{PREFIX}3000002"}
        assert [serials.take(PREFIX, used) for _ in range(2)] == [f"{PREFIX}3000001", f"{PREFIX}3000003"]

    def test_when_all_wait_there_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("crewel.client.requests.SERIALS", 3)
        with pytest.raises(ClientError, match="3 requests are waiting"):
            Serials(0).take(PREFIX, {f"{PREFIX}300000{n}" for n in range(3)})

    def test_serials_begin_at_random(self) -> None:
        firsts = {Serials().take(PREFIX, ()) for _ in range(10)}
        assert len(firsts) > 1


class TestAnswers:
    async def test_the_first_answer_counts_and_the_second_is_counted(self) -> None:
        answers = Answers()
        with answers.wait_for([REPLY]) as (awaited,):
            assert answers.is_awaited(answer())
            assert answers.take(answer(data=1))
            assert not answers.is_awaited(answer())
            assert not answers.take(answer(data=2))
            assert (await awaited)["data"] == 1
        assert (answers.duplicates, answers.late, len(answers)) == (1, 0, 0)

    async def test_after_the_wait_it_is_late(self) -> None:
        answers = Answers()
        with answers.wait_for([REPLY]):
            assert REPLY in answers
        assert REPLY not in answers
        assert not answers.take(answer())
        assert (answers.duplicates, answers.late) == (0, 1)

    async def test_what_is_no_answer_is_none(self) -> None:
        answers = Answers()
        with answers.wait_for([REPLY]) as (awaited,):
            for fields in ({"channel": REPLY, "successful": True}, {"channel": "/a", "data": 1}, {"data": 1}):
                assert not answers.is_awaited(fields)
                assert not answers.take(fields)
            assert not awaited.done()
        assert answers.late == 0

    async def test_a_session_that_is_lost_fails_those_that_cannot_be_answered_any_more(self) -> None:
        answers = Answers()
        with answers.wait_for([REPLY]) as (ours,), answers.wait_for(["/ret/b2/3000001"]) as (theirs,):
            answers.fail(TransportError("lost"), except_prefix=PREFIX)
            assert (ours.done(), theirs.done()) == (False, True)
            answers.fail(TransportError("over"))
            with pytest.raises(TransportError, match="over"):
                await ours
            assert not answers.take(answer())
        assert answers.late == 1

    async def test_answers_remembers_a_bounded_number(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("crewel.client.awaited._ANSWERS_REMEMBERED", 2)
        answers = Answers()
        channels = [f"{PREFIX}300000{n}" for n in range(3)]
        for channel in channels:
            with answers.wait_for([channel]):
                answers.take(answer(channel))
        for channel in channels:
            answers.take(answer(channel))
        assert (answers.late, answers.duplicates) == (1, 2)


class TestNaming:
    def test_the_server_is_told_in_its_own_words(self) -> None:
        message: Fields = {"channel": "/a", "data": 1, "ext": {"x": 1, "publish": {"priority": 9}}}
        _name(message, REPLY, is_known=True)
        assert message["ext"] == {"x": 1, "publish": {"priority": 9, "replyTo": REPLY}}

    def test_a_server_that_knows_nothing_of_it_passes_it_on(self) -> None:
        message: Fields = {"channel": "/a", "data": 1}
        _name(message, REPLY, is_known=False)
        assert message["ext"] == {"replyTo": REPLY}


def request(data: Any = 1, **ext: Any) -> Message:
    return Message("/power", data, {"channel": "/power", "data": data, "ext": {"replyTo": REPLY, **ext}})


class TestCreateResponse:
    def test_with_data_it_has_that(self) -> None:
        assert create_response(request(), None) == Response(REPLY, None)

    def test_without_it_is_the_request_with_its_properties(self) -> None:
        asked = request({"x": [1]}, update={"clientProperties": {"unit": "W"}})
        response = create_response(asked)
        assert response == Response(REPLY, {"x": [1]}, {"publish": {"clientProperties": {"unit": "W"}}})
        response.data["x"].append(2)
        assert asked.data == {"x": [1]}
        assert create_response(request()).ext is None

    def test_bytes_come_back_with_their_content_type(self) -> None:
        sent = publication("/power", b"\0\xff", content_type="image/png", properties={"unit": "W"})
        update = {"clientProperties": sent["ext"]["publish"]["clientProperties"]}
        response = create_response(request(sent["data"], binary=sent["ext"]["binary"], update=update))
        answer = publication(*response)
        assert (answer["data"], answer["ext"]) == (sent["data"], sent["ext"])

    @given(
        st.binary(max_size=300),
        st.none() | texts(min_size=1, max_size=40),
        st.dictionaries(texts("abz_", min_size=1, max_size=5), st.integers() | texts(max_size=9), max_size=3),
    )
    def test_whatever_bytes_a_request_carries_come_back(
        self, content: bytes, content_type: str | None, properties: Fields
    ) -> None:
        options: Any = {} if content_type is None else {"content_type": content_type}
        sent = publication("/power", content, properties=properties, **options)
        ext = sent["ext"]
        update = {"clientProperties": ext.get("publish", {}).get("clientProperties", {})}
        asked = request(sent["data"], binary=ext["binary"], update=update)
        channel, data, answered = create_response(asked)
        answer = Message(channel, data, {"channel": channel, "data": data, "ext": answered})
        assert (answer.content, answer.content_type) == (content, asked.content_type)
        assert ((answered or {}).get("publish", {}).get("clientProperties") or {}) == properties

    def test_what_is_no_request_has_none(self) -> None:
        with pytest.raises(ValueError, match="/power is not a request"):
            create_response(Message("/power", 1, {"channel": "/power", "data": 1}))


class Published:
    """A client's `publish`, played by a test: each failure is raised once."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.sent: list[Response] = []
        self.more = asyncio.Event()

    async def __call__(self, channel: str, data: Any, ext: Fields | None = None) -> None:
        self.sent.append(Response(channel, data, ext))
        self.more.set()
        if self.failures:
            raise self.failures.pop(0)
        if isinstance(data, set):
            raise TypeError("not JSON")

    async def times(self, count: int) -> list[Response]:
        async with asyncio.timeout(LIMIT_S):
            while len(self.sent) < count:
                self.more.clear()
                await self.more.wait()
        return self.sent


async def respond(callback: Callable[[Message], Any], publish: Published, *messages: Message, at_once: int = 1) -> None:
    """Let a responder work until all is answered."""
    subscription = subscribed(Router(), "/power")
    for message in messages:
        subscription.offer(message)
    subscription.end()
    async with asyncio.timeout(LIMIT_S):
        await Responder(callback, publish, at_once).run(subscription)


class TestResponder:
    async def test_responder_answers_with_what_the_function_returns(self) -> None:
        async def later(message: Message) -> Any:
            return message.data * 2

        for callback in (lambda message: message.data * 2, later):
            published = Published()
            await respond(callback, published, request(4), request(5))
            assert published.sent == [Response(REPLY, 8), Response(REPLY, 10)]

    async def test_responder_may_return_a_response_as_it_is_created(self) -> None:
        ready = request({"data": "0ri"}, binary={})

        async def later(message: Message) -> Response:
            return create_response(message)

        for callback in (create_response, later):
            published = Published()
            await respond(callback, published, ready)
            assert published.sent == [Response(REPLY, {"data": "0ri"}, {"binary": {}})]

    async def test_a_response_to_another_request_goes_where_this_one_asks(self) -> None:
        other = Message("/power", 1, {"channel": "/power", "data": 1, "ext": {"replyTo": f"{PREFIX}3000002"}})
        published = Published()
        await respond(lambda message: create_response(other, 5), published, request())
        assert published.sent == [Response(REPLY, 5)]

    async def test_what_is_no_request_is_let_pass(self) -> None:
        heard: list[Message] = []
        published = Published()
        await respond(heard.append, published, Message("/power", 1, {"channel": "/power", "data": 1}))
        assert (heard, published.sent) == ([], [])

    async def test_a_failure_is_the_answer_and_only_one_with_a_code_is_told(self, caplog: Any) -> None:
        def fail(message: Message) -> Any:
            raise message.data

        published = Published()
        await respond(fail, published, request(ErrorAnswer("user.a", "why", data=[1])), request(ValueError("secret")))
        assert published.sent == [
            Response(REPLY, [1], {"error": {"errorCode": "user.a", "message": "why"}}),
            Response(REPLY, None, {"error": {"errorCode": "internal.unknown", "message": "the responder failed"}}),
        ]
        assert "secret" in caplog.text
        assert "why" not in caplog.text

    async def test_a_request_fails_whose_responder_waits_for_what_others_cancel(self, caplog: Any) -> None:
        async def fail(message: Message) -> Any:
            raise asyncio.CancelledError

        published = Published()
        await respond(fail, published, request())
        assert [response.data for response in published.sent] == [None]
        assert "what it waited for was cancelled" in caplog.text

    async def test_what_json_cannot_say_is_a_failure(self) -> None:
        published = Published()
        await respond(lambda message: {1}, published, request())
        assert published.sent[1].ext == {"error": {"errorCode": "internal.unknown", "message": "the responder failed"}}

    @pytest.mark.parametrize(
        ("refusal", "code"),
        [
            (PayloadRefusedError("too deep"), "internal.unknown"),
            (
                PublishRefused({"channel": REPLY, "error": "400:data:user.illegalArgument"}),
                "user.illegalArgument",
            ),
        ],
    )
    async def test_what_the_server_does_not_take_is_a_failure(self, refusal: Exception, code: str) -> None:
        published = Published(refusal)
        await respond(lambda message: 1, published, request())
        [_, (_, data, ext)] = published.sent
        assert ext is not None
        assert (data, ext["error"]["errorCode"]) == (None, code)

    async def test_a_failure_that_the_server_does_not_take_either_is_sent_once(self, caplog: Any) -> None:
        published = Published(*[PayloadRefusedError("too large")] * 5)
        await respond(lambda message: 1, published, request())
        assert [response.data for response in published.sent] == [1, None]
        assert "could not be sent" in caplog.text

    @pytest.mark.parametrize(
        "failure",
        [
            TransportError("cut"),
            NotConnectedError("no session within 10 s"),
            PublishRefused({"channel": REPLY, "error": "402::session_unknown"}),
        ],
    )
    async def test_an_answer_that_may_be_lost_is_sent_again(self, failure: Exception) -> None:
        published = Published(failure, failure)
        await respond(lambda message: 1, published, request())
        assert published.sent == [Response(REPLY, 1)] * 3

    @pytest.mark.parametrize(
        ("failures", "tries"),
        [
            ([TransportError("cut")] * 3, 3),
            ([PublishRefused({"channel": REPLY, "error": "403:no:publish_denied"})], 1),
        ],
    )
    async def test_one_that_cannot_be_sent_is_logged(self, failures: list[Exception], tries: int, caplog: Any) -> None:
        published = Published(*failures)
        await respond(lambda message: 1, published, request())
        assert len(published.sent) == tries
        assert "could not be sent" in caplog.text

    async def test_responder_works_on_at_most_at_once_requests(self) -> None:
        most = running = 0
        together = asyncio.Event()

        async def work(message: Message) -> Any:
            nonlocal most, running
            running += 1
            most = max(most, running)
            if running == 3:
                together.set()
            await together.wait()
            running -= 1

        await respond(work, Published(), *map(request, range(7)), at_once=3)
        assert most == 3

    async def test_a_subscription_that_is_lost_ends_it(self, caplog: Any) -> None:
        subscription = subscribed(Router(), "/power")
        subscription.end(ClientError("refused"))
        responder = Responder(lambda message: 1, Published(), 1)
        await responder.run_until_ended(subscription)
        assert "/power ended: refused" in caplog.text
        with pytest.raises(ClientError, match="refused"):
            await responder.run(subscription)

    async def test_when_its_topic_is_erased_that_is_told(self, caplog: Any) -> None:
        notice = {"channel": "/power", "data": None, "ext": {"update": {"state": "ERASED"}}}
        published = Published()
        await respond(lambda message: 1, published, Message("/power", None, notice))
        assert published.sent == []
        assert "/power was erased" in caplog.text

    async def test_responder_ends_after_count_requests(self) -> None:
        subscription = subscribed(Router(), "/power")
        for number in range(3):
            subscription.offer(request(number))
        published = Published()
        assert await Responder(lambda message: message.data, published, 2).run(subscription, 2) == 2
        assert sorted(response.data for response in published.sent) == [0, 1]
        assert subscription.queued == 1

    def test_responder_refuses_at_once_below_one(self) -> None:
        with pytest.raises(ValueError, match="1 request at once"):
            Responder(lambda message: 1, Published(), 0)
