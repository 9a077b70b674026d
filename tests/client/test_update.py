"""How the client tells the server of its messages: with connects, at once while one is held, again until confirmed."""

import asyncio
import math
from collections.abc import Callable
from typing import Any, Unpack

import orjson
import pytest

from crewel.bayeux.message import Fields
from crewel.client import Client, Consumer, Message, Overflow, Subscription, WorkerOptions, settle
from crewel.client.client_extension import AckExtension
from crewel.client.errors import INTERNAL_ERROR, NoReplyError, SubscribeRefused
from crewel.client.router import Router
from crewel.client.settle import Ledger, UpdateExtension
from tests.client.support import LIMIT_S
from tests.client.test_router import subscribed

GRANTED = {"update": True, "reconnected": False}


def ok(*ids: str) -> list[Fields]:
    return [{"id": message_id, "state": "OK"} for message_id in ids]


def delivery(message_id: str, **update: Any) -> Fields:
    return {"channel": "/a", "data": message_id, "ext": {"update": {"id": message_id, **update}}}


class World:
    """The extension of one client, a server that a test plays, and the task that tells it."""

    def __init__(self, settle: str = "message", on_rejected: Callable[[Fields], None] | None = None) -> None:
        self.update = UpdateExtension(settle, on_rejected)
        self.connects = 0
        self.published: asyncio.Queue[tuple[list[Fields], asyncio.Future[list[Fields]]]] = asyncio.Queue()
        self._telling = asyncio.create_task(self.update.publish_statuses(self._exchange))

    async def _exchange(self, messages: list[Fields]) -> list[Fields]:
        answer: asyncio.Future[list[Fields]] = asyncio.get_running_loop().create_future()
        self.published.put_nowait((messages, answer))
        return await answer

    def shake(self, session: Any = GRANTED, **fields: Any) -> None:
        self.update.outgoing({"channel": "/meta/handshake", "id": "h"})
        reply = {"channel": "/meta/handshake", "id": "h", "successful": True, "ext": {"session": session}}
        self.update.incoming({**reply, **fields})

    def connect(self) -> list[Fields]:
        """Send the next connect; what it tells."""
        self.connects += 1
        message = self.update.outgoing({"channel": "/meta/connect", "id": f"c{self.connects}"})
        told: list[Fields] = message.get("ext", {}).get("update", [])
        return told

    def answer(self, **fields: Any) -> None:
        """Answer that connect."""
        self.update.incoming({"channel": "/meta/connect", "id": f"c{self.connects}", "successful": True, **fields})

    def deliver(self, message_id: str, **update: Any) -> Any:
        """Hand out a message; what the application settles it with."""
        handling = self.update.begin(delivery(message_id, **update))
        assert handling is not None
        message = Message("/a", None, {}, handling.share())
        handling.end()
        return message

    async def told(self) -> tuple[list[Fields], asyncio.Future[list[Fields]]]:
        """What is published next, and how to answer it."""
        async with asyncio.timeout(LIMIT_S):
            [message], answer = await self.published.get()
        assert message["channel"] == "/service/update"
        return message["data"], answer

    async def quiet(self) -> bool:
        """Whether nothing is published although there was time."""
        try:
            async with asyncio.timeout(0.05):
                await self.published.get()
        except TimeoutError:
            return True
        return False

    async def __aenter__(self) -> "World":
        self.shake()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._telling.cancel()
        await asyncio.wait([self._telling])


ANSWERED = [{"channel": "/service/update", "successful": True}]


async def test_what_is_settled_between_connects_goes_with_the_next() -> None:
    async with World() as world:
        assert world.connect() == []
        world.answer()
        for message_id in ("1", "2"):
            world.deliver(message_id).settle()
        world.deliver("3").reject("user.update.holdback", "later")
        assert world.connect() == [*ok("1", "2"), {"id": "3", "errorCode": "user.update.holdback", "message": "later"}]
        assert await world.quiet()
        world.answer()
        assert world.connect() == []


async def test_what_is_settled_while_a_connect_is_held_is_told_at_once_and_what_gathers_meanwhile_together() -> None:
    async with World() as world:
        parts = [world.deliver(message_id) for message_id in ("1", "2", "3")]
        world.connect()
        parts[0].settle()
        told, answer = await world.told()
        assert told == ok("1")
        parts[1].settle()
        parts[2].settle()
        assert await world.quiet()
        answer.set_result(ANSWERED)
        told, answer = await world.told()
        assert told == ok("2", "3")
        answer.set_result(ANSWERED)
        world.answer()
        assert world.connect() == []


async def test_what_was_not_answered_goes_again() -> None:
    async with World() as world:
        world.deliver("1").settle()
        assert world.connect() == ok("1")
        assert world.connect() == ok("1")  # the first one was lost
        world.answer(successful=False)
        assert world.connect() == ok("1")
        world.answer()
        part = world.deliver("2")
        world.connect()
        part.settle()
        _, answer = await world.told()
        answer.set_exception(NoReplyError("lost"))
        told, answer = await world.told()
        assert told == ok("2")
        answer.set_result([{"channel": "/service/update", "successful": False}])
        assert await world.quiet()  # not at once
        world.answer()
        assert world.connect() == ok("2")


async def test_statuses_that_the_server_refuses_are_logged_and_go_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "_RETRY_S", 0.001)
    refused = {
        "channel": "/service/update",
        "successful": False,
        "error": "403:denied_by_security_policy:publish_denied",
    }
    async with World() as world:
        part = world.deliver("1")
        world.connect()
        part.settle()
        for _ in range(3):
            told, answer = await world.told()
            assert told == ok("1")
            answer.set_result([refused])
        told, answer = await world.told()
        answer.set_result(ANSWERED)
        assert await world.quiet()
    assert caplog.text.count("403:denied_by_security_policy:publish_denied") == 3


def test_the_last_statuses_that_the_server_refuses_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    gone = [{"channel": "/meta/disconnect", "successful": True}]
    update = UpdateExtension()
    update.report_refused([*ANSWERED, *gone])
    assert not caplog.records
    update.report_refused([{"channel": "/service/update", "successful": False, "error": "403::no"}, *gone])
    assert "403::no" in caplog.text


def test_the_last_statuses_without_an_answer_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    gone = {"channel": "/meta/disconnect"}
    update = UpdateExtension()
    update.report_unanswered([gone])
    assert not caplog.records
    update.report_unanswered([{"channel": "/service/update", "data": ok("1", "2")}, gone])
    assert "statuses of 2 messages were not answered" in caplog.text


async def test_what_the_server_did_not_take_is_told_to_the_application(caplog: pytest.LogCaptureFixture) -> None:
    rejected: list[Fields] = []
    async with World(on_rejected=rejected.append) as world:
        world.deliver("1").settle()
        world.connect()
        no = [{**ok("1")[0], "reason": "not open"}]
        with caplog.at_level("DEBUG", "crewel.client.update"):
            world.answer(ext={"update": {"rejected": no}})
        assert rejected == no
        assert "not open" in caplog.text
        assert world.connect() == []
        world.answer(ext={"update": {"rejected": 7}})
        world.answer(ext=7)


@pytest.mark.parametrize("fault", [LookupError("no such order"), SystemExit(3)])
async def test_an_exception_of_on_rejected_does_not_end_the_reports(
    fault: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(status: Fields) -> None:
        raise fault

    no = [{**ok("1")[0], "reason": "not open"}]
    async with World(on_rejected=fail) as world, asyncio.timeout(LIMIT_S):
        parts = [world.deliver(message_id) for message_id in ("1", "2")]
        world.connect()
        parts[0].settle()
        _, answer = await world.told()
        answer.set_result([{**ANSWERED[0], "ext": {"update": {"rejected": no}}}])
        parts[1].settle()
        told, _ = await world.told()
        assert told == ok("2")
    assert "on_rejected failed" in caplog.text


async def test_more_than_fits_into_a_connect_is_published_after_it() -> None:
    async with World() as world:
        ids = [f"{number:060}" for number in range(400)]
        for message_id in ids:
            world.deliver(message_id).settle()
        told = world.connect()
        while len(told) < len(ids):
            more, answer = await world.told()
            told += more
            answer.set_result(ANSWERED)
        assert told == ok(*ids)


async def test_statuses_take_at_most_half_of_what_the_server_takes() -> None:
    """A connect that is too large would end the session."""
    async with World() as world:
        world.shake({**GRANTED, "maxMessageBytes": 1000})
        for number in range(100):
            world.deliver(f"{number:060}").settle()
        assert len(orjson.dumps(world.connect())) <= 500


async def test_a_new_session_is_told_nothing_of_the_old_one() -> None:
    async with World() as world:
        world.deliver("1").settle()
        late = world.deliver("2")
        world.shake()
        assert world.connect() == []
        late.settle()
        assert await world.quiet()
        assert not world.update.repeats(delivery("1"))


async def test_a_session_that_was_taken_over_is_told_what_it_was_not_told() -> None:
    async with World() as world:
        world.deliver("1").settle()
        late = world.deliver("2")
        assert world.connect() == ok("1")
        world.shake({"update": True, "reconnected": True})
        assert world.connect() == ok("1")
        late.settle()
        assert (await world.told())[0] == ok("2")
        assert world.update.repeats(delivery("1", redeliver=1))
        assert not world.update.repeats(delivery("1", initial=True))


async def test_what_the_application_has_is_not_delivered_again_after_a_login() -> None:
    async with World() as world:
        kept, failed = world.deliver("1"), world.deliver("2")
        world.deliver("3", initial=True)
        assert not world.update.repeats(delivery("1", redeliver=1))
        world.shake({"update": True, "reconnected": True})
        failed.reject("communication.noConnection", "later")
        assert world.update.repeats(delivery("1", redeliver=2))
        assert not world.update.repeats(delivery("3", initial=True))  # another subscription asks for the history
        assert world.update.repeats(delivery("3", redeliver=1, initial=True))
        assert not world.update.repeats(delivery("2", redeliver=1))
        assert not world.update.repeats(delivery("1", redeliver=3))  # its time at the server has passed
        kept.settle()
        assert world.connect() == [
            {"id": "2", "errorCode": "communication.noConnection", "message": "later"},
            *ok("1"),
        ]


@pytest.mark.parametrize("is_sent", [False, True])
async def test_a_rejection_that_was_not_sent_before_a_login_is_sent_when_its_message_comes_again(is_sent: bool) -> None:
    """The server knows of no open message until then. One that it has been told of it may send because it has failed."""
    failure = {"id": "1", "errorCode": "communication.noConnection", "message": "later"}
    async with World() as world:
        failed = world.deliver("1")
        assert world.connect() == []
        failed.reject("communication.noConnection", "later")
        if is_sent:
            assert (await world.told())[0] == [failure]
        world.shake({"update": True, "reconnected": True})
        assert world.connect() == [failure]
        world.answer()
        assert world.update.repeats(delivery("1", redeliver=1)) is not is_sent
        assert world.connect() == [failure] * (not is_sent)
        assert not world.update.repeats(delivery("1", redeliver=2))


async def test_what_no_listener_takes_comes_again_after_a_login() -> None:
    async with World() as world:
        world.shake({**GRANTED, "unclaimed": True})
        before, after = world.update.begin(delivery("1")), world.update.begin(delivery("2"))
        assert before is not None
        assert after is not None
        before.unclaimed()
        world.shake({"update": True, "reconnected": True, "unclaimed": True})
        after.unclaimed()
        assert not world.update.repeats(delivery("1", redeliver=1))
        assert not world.update.repeats(delivery("2", redeliver=1))


@pytest.mark.parametrize("session", [None, 7, {}, {"update": False}, {"update": "true"}])
async def test_without_the_servers_half_nothing_is_done_and_that_is_said(
    session: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with World() as world:
        world.shake(session)
        assert "takes no statuses" in caplog.text
        assert world.update.begin(delivery("1")) is None
        assert not world.update.repeats(delivery("1"))
        assert world.connect() == []
        assert world.update.final_statuses() == []


async def test_a_refused_handshake_says_nothing_of_it(caplog: pytest.LogCaptureFixture) -> None:
    async with World() as world:
        world.shake(successful=False)
        assert caplog.text == ""
        assert not world.update.is_granted


@pytest.mark.parametrize(
    "fields",
    [{"channel": "/a", "data": 1}, {"channel": "/a", "data": 1, "ext": {"update": {"id": 7}}}, {"channel": "/a"}],
)
async def test_what_has_no_id_is_not_to_be_settled(fields: Fields) -> None:
    async with World() as world:
        assert world.update.begin(fields) is None
        assert not world.update.repeats(fields)


async def test_the_goodbye_takes_the_rest_along() -> None:
    async with World() as world:
        ids = [f"{number:060}" for number in range(400)]
        for message_id in ids:
            world.deliver(message_id).settle()
        messages = world.update.final_statuses()
        assert len(messages) > 1
        assert [status for message in messages for status in message["data"]] == ok(*ids)


async def test_the_goodbye_repeats_what_an_unanswered_connect_carries() -> None:
    async with World() as world:
        world.deliver("1").settle()
        assert world.connect() == ok("1")
        assert [message["data"] for message in world.update.final_statuses()] == [ok("1")]


class TestByBatch:
    async def test_a_batch_is_acknowledged_when_the_application_is_done_with_it(self) -> None:
        async with World("batch") as world:
            ack = AckExtension(lambda: world.update.may_acknowledge)
            ack.outgoing({"channel": "/meta/handshake"})
            ack.incoming({"channel": "/meta/handshake", "successful": True, "ext": {"ack": True}})

            def acknowledged() -> Any:
                return ack.outgoing({"channel": "/meta/connect"})["ext"]["ack"]

            ack.incoming({"channel": "/meta/connect", "successful": True, "ext": {"ack": 1}})
            assert acknowledged() == 1
            first, second = world.deliver("1"), world.deliver("2")
            ack.incoming({"channel": "/meta/connect", "successful": True, "ext": {"ack": 2}})
            first.settle()
            assert acknowledged() == 1
            second.reject("user.update.error", "no")
            assert acknowledged() == 2
            assert world.connect() == [{"id": "2", "errorCode": "user.update.error", "message": "no"}]

    async def test_the_next_connect_waits_for_the_application_but_not_for_ever(self) -> None:
        async with World("batch") as world:
            await world.update.handled(LIMIT_S)
            part = world.deliver("1")
            await world.update.handled(0.01)
            assert not world.update.may_acknowledge
            waiting = asyncio.create_task(world.update.handled(LIMIT_S))
            await asyncio.sleep(0)
            assert not waiting.done()
            part.settle()
            await waiting
            assert world.update.may_acknowledge

    async def test_by_message_nothing_waits(self) -> None:
        async with World() as world:
            world.deliver("1")
            await world.update.handled(0)
            assert world.update.may_acknowledge


class Hands:
    """A router whose messages have to be settled, and what came of them."""

    def __init__(self) -> None:
        self.router = Router()
        self.ledger = Ledger(reports_ok=True, changed=lambda: None)

    def deliver(self, *ids: str, is_initial: bool = False) -> None:
        more = {"initial": True} if is_initial else {}
        for message_id in ids:
            handling = self.ledger.begin(message_id, is_initial=is_initial)
            self.router.deliver(delivery(message_id, **more), retained=False, handling=handling)
            handling.end()

    def worker(self, **options: Unpack[WorkerOptions]) -> Consumer:
        """A worker of the channel."""
        client = Client("http://127.0.0.1:1/cometd")
        worker: Consumer = Consumer(client, "/a", options=options)
        worker._subscription = subscribed(self.router, "/a")
        worker._subscription.on_end = worker._room.set
        return worker

    def told(self) -> list[Any]:
        """The ids that went well, and the codes of those that did not."""
        return [each.get("errorCode", each["id"]) for each in self.ledger.statuses.take(object(), 10_000)]


async def fail_with(subscription: Subscription) -> None:
    """Take a message and fail."""
    async with subscription:
        await anext(subscription)
        raise ZeroDivisionError


class TestContract:
    async def test_asking_for_the_next_message_settles_the_one_before(self) -> None:
        hands = Hands()
        subscription = subscribed(hands.router, "/a")
        hands.deliver("1", "2")
        await anext(subscription)
        assert hands.told() == []
        await anext(subscription)
        assert hands.told() == ["1"]
        with pytest.raises(TimeoutError):
            await subscription.receive(0)
        assert hands.told() == ["2"]

    async def test_a_message_can_be_settled_before_or_rejected_or_kept_longer(self) -> None:
        hands = Hands()
        subscription = subscribed(hands.router, "/a")
        hands.deliver("1", "2", "3", "4")
        (await anext(subscription)).settle()
        assert hands.told() == ["1"]
        (await anext(subscription)).reject("user.update.error", "no")
        assert hands.told() == ["user.update.error"]
        kept = await anext(subscription)
        kept.defer()
        kept.working()
        last = await anext(subscription)
        assert hands.told() == ["3"]  # WORKING
        kept.settle()
        last.settle()
        assert hands.told() == ["3", "4"]

    async def test_of_two_copies_that_wait_the_application_receives_the_later_one(self) -> None:
        hands = Hands()
        subscription = subscribed(hands.router, "/a")
        hands.deliver("1", "2", "1")
        taken = [await anext(subscription) for _ in range(2)]
        with pytest.raises(TimeoutError):
            await subscription.receive(0)
        assert ([each.id for each in taken], hands.told()) == (["2", "1"], ["2", "1"])

    @pytest.mark.parametrize(
        ("end", "told"),
        [
            (lambda message: message.settle(), ["1"]),
            (lambda message: message.reject("user.update.error", "no"), ["user.update.error"]),
        ],
    )
    async def test_a_copy_that_waits_while_the_message_ends_does_not_reach_the_application(
        self, end: Callable[[Message], None], told: list[str]
    ) -> None:
        hands = Hands()
        subscription = subscribed(hands.router, "/a")
        hands.deliver("1")
        first = await anext(subscription)
        hands.deliver("1")
        end(first)
        with pytest.raises(TimeoutError):
            await subscription.receive(0)
        assert (hands.told(), hands.ledger.is_idle) == (told, True)

    async def test_a_worker_processes_a_message_once_if_copies_come_while_it_waits(self) -> None:
        hands = Hands()
        worker = hands.worker()
        hands.deliver("1", "2")
        first = await anext(worker)
        hands.deliver("1", "2")
        second = await anext(worker)
        second.acknowledge()
        first.acknowledge()
        assert ((first.id, second.id), worker.fetched, sorted(hands.told())) == (("1", "2"), 0, ["1", "2"])

    async def test_a_copy_takes_no_message_from_a_worker_that_tries_it_again(self) -> None:
        hands = Hands()
        worker = hands.worker()
        hands.deliver("1")
        first = await anext(worker)
        first.retry()
        hands.deliver("1")
        again = await asyncio.wait_for(anext(worker), LIMIT_S)
        assert (again is first, again.attempt) == (True, 2)

    @pytest.mark.parametrize("ack_wait", [None, -1, math.inf, 0.02])
    async def test_a_worker_tries_a_message_again_whatever_time_it_has_for_it(self, ack_wait: float | None) -> None:
        hands = Hands()
        worker = hands.worker(ack_wait=ack_wait)
        hands.deliver("1")
        first = await anext(worker)
        first.retry(0.05)
        again = await asyncio.wait_for(anext(worker), LIMIT_S)
        assert (again is first, again.attempt) == (True, 2)

    async def test_a_worker_that_waits_for_a_retry_notices_the_end_of_its_subscription(self) -> None:
        hands = Hands()
        worker = hands.worker(prefetch=1)
        hands.deliver("1")
        (await anext(worker)).retry(3600)
        waiting = asyncio.create_task(anext(worker))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        hands.router.fail(SubscribeRefused({"subscription": "/a", "error": "413::too expensive"}), None)
        with pytest.raises(SubscribeRefused, match="too expensive"):
            await asyncio.wait_for(waiting, LIMIT_S)

    async def test_a_batch_has_what_came_before_the_end_of_the_subscription(self) -> None:
        hands = Hands()
        worker = hands.worker()
        hands.deliver("1")
        hands.router.fail(SubscribeRefused({"subscription": "/a", "error": "413::too expensive"}), None)
        assert [message.id for message in await worker.batch(2, within=LIMIT_S)] == ["1"]
        with pytest.raises(SubscribeRefused, match="too expensive"):
            await worker.batch(2, within=LIMIT_S)

    async def test_a_message_of_a_history_reaches_the_application_in_any_case(self) -> None:
        hands = Hands()
        subscription = subscribed(hands.router, "/a")
        hands.deliver("1")
        hands.deliver("1", is_initial=True)
        taken = [await anext(subscription) for _ in range(2)]
        assert [each.is_initial for each in taken] == [False, True]

    async def test_a_rejection_that_nothing_waits_for_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        hands = Hands()
        subscription = subscribed(hands.router, "/a")
        hands.deliver("1")
        taken = await anext(subscription)
        taken.settle()
        taken.reject("user.update.error", "late")  # the first of them counts
        assert not caplog.records
        Message("/a", 1, {}).reject("user.update.error", "no")
        assert [each.levelname for each in caplog.records] == ["WARNING"]
        assert "/a" in caplog.text
        assert "update=True" in caplog.text

    @pytest.mark.parametrize("is_of_worker", [False, True])
    async def test_a_rejection_without_texts_is_refused_and_leaves_the_message_open(self, is_of_worker: bool) -> None:
        hands = Hands()
        receiver: Any = hands.worker() if is_of_worker else subscribed(hands.router, "/a")
        hands.deliver("1")
        message: Any = await anext(receiver)
        for reject in (message.dead_letter, message.hold, lambda text: message.reject("user.update.error", text)):
            with pytest.raises(TypeError, match="text is a string, not ValueError"):
                reject(ValueError("no such article"))
        with pytest.raises(TypeError, match="code is a string, not None"):
            message.reject(None)
        assert hands.told() == []
        message.reject("user.update.error", "no such article")
        assert hands.told() == ["user.update.error"]

    async def test_leaving_the_block_settles_what_is_taken_and_what_is_not_wanted_any_more(self) -> None:
        hands = Hands()
        async with subscribed(hands.router, "/a") as subscription:
            hands.deliver("1", "2")
            await anext(subscription)
        assert sorted(hands.told()) == ["1", "2"]
        hands.deliver("3")
        assert hands.told() == ["3"]  # nobody wants it

    async def test_an_exception_rejects_the_message_that_was_taken_and_leaves_those_that_were_not(self) -> None:
        hands = Hands()
        subscription = subscribed(hands.router, "/a")
        hands.deliver("1", "2")
        with pytest.raises(ZeroDivisionError):
            await fail_with(subscription)
        assert hands.told() == ["user.update.internalError"]

    async def test_every_subscription_that_hears_a_message_has_to_be_done_with_it(self) -> None:
        hands = Hands()
        one, other = subscribed(hands.router, "/a"), subscribed(hands.router, "/**")
        hands.deliver("1")
        (await anext(one)).settle()
        assert hands.told() == []
        (await anext(other)).reject("user.update.error")
        assert hands.told() == ["user.update.error"]

    @pytest.mark.parametrize(
        ("overflow", "told"),
        [(Overflow.DROP_OLDEST, ["1"]), (Overflow.DROP_NEWEST, ["2"]), (Overflow.CLOSE, [INTERNAL_ERROR])],
    )
    async def test_what_a_full_queue_costs_is_told(self, overflow: Overflow, told: list[str]) -> None:
        hands = Hands()
        subscribed(hands.router, "/a", bound=1, overflow=overflow)
        hands.deliver("1", "2")
        assert hands.told() == told

    @pytest.mark.parametrize("overflow", Overflow)
    async def test_a_copy_needs_no_room_of_its_own_in_a_full_queue(self, overflow: Overflow) -> None:
        hands = Hands()
        subscription = subscribed(hands.router, "/a", bound=2, overflow=overflow)
        hands.deliver("1", "2", "1", "2")
        assert (hands.told(), subscription.dropped, subscription.is_ended) == ([], 0, False)
        assert [(await anext(subscription)).id for _ in range(2)] == ["1", "2"]
        subscription.settle_taken()
        assert (hands.told(), subscription.queued) == (["1", "2"], 0)

    async def test_an_ended_subscription_settles_what_still_comes(self) -> None:
        hands = Hands()
        subscription = subscribed(hands.router, "/a")
        subscription.end()
        hands.deliver("1")
        assert hands.told() == ["1"]

    async def test_elsewhere_the_methods_do_nothing(self) -> None:
        message = Message("/a", 1, {"channel": "/a", "data": 1})
        message.settle()
        message.reject("user.update.error")
        message.working()
        message.defer()


def test_a_message_knows_what_the_server_tells_of_it() -> None:
    plain = Message("/a", 1, {"channel": "/a", "data": 1, "id": "7"})
    assert (plain.id, plain.sender, plain.redeliver, plain.is_persistent, plain.is_initial) == (
        "7",
        None,
        0,
        False,
        False,
    )
    assert (plain.client_properties, plain.update) == ({}, {})
    update = {"id": "9", "sender": "/node/heron/client/ann/1", "redeliver": 2, "persistent": True, "initial": True}
    told = Message("/a", 1, {"ext": {"update": {**update, "clientProperties": {"a": 1}}}})
    assert (told.id, told.sender, told.redeliver) == ("9", "/node/heron/client/ann/1", 2)
    assert (told.is_persistent, told.is_initial, told.client_properties) == (True, True, {"a": 1})
    odd = Message("/a", 1, {"ext": {"update": {"id": 1, "sender": 1, "redeliver": "1", "clientProperties": 1}}})
    assert (odd.id, odd.sender, odd.redeliver, odd.client_properties) == (None, None, 0, {})


@pytest.mark.parametrize(
    ("options", "words"), [({"update": True, "ack": False}, "needs ack"), ({"settle": "later"}, "message or batch")]
)
def test_what_cannot_be_is_said_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Client("http://localhost/cometd", **options)


def test_the_handshake_asks_for_what_the_application_wants() -> None:
    client = Client(
        "http://localhost/cometd",
        update=True,
        ack_wait=0.5,
        max_open=1,
        retries=3,
        delay=0,
        ping_interval=1,
        session={"queue": {"maxEntries": 5}},
    )
    shake = client._session.connection.pipe.outgoing({"channel": "/meta/handshake"})
    assert shake is not None
    session = shake["ext"]["session"]
    assert session.pop("nonce")
    assert session == {
        "update": True,
        "settle": "message",
        "ackWait": 500,
        "maxOpen": 1,
        "dispatcher": {"retries": 3, "delay": 0, "absence": False},
        "pingInterval": 1000,
        "queue": {"maxEntries": 5},
    }
    assert not client.settles


USUAL = {"retries": 5, "delay": 1000, "factor": 2, "maxDelay": 60_000, "absence": False}


@pytest.mark.parametrize(
    ("options", "dispatcher"),
    [
        ({"update": True}, USUAL),
        ({"update": True, "retries": 0}, USUAL | {"retries": 0}),
        ({"update": True, "delay": 0.5}, {"retries": 5, "delay": 500, "absence": False}),
        ({"delay": 0.5, "delay_factor": 3.0}, {"retries": 5, "delay": 500, "factor": 3.0, "absence": False}),
        ({"update": True, "absence": True}, USUAL | {"absence": True}),
        ({"update": True, "session": {"dispatcher": {"retries": 1}}}, USUAL | {"retries": 1}),
        ({}, None),
    ],
)
def test_retries_with_back_off_are_asked_for_unless_told_otherwise(options: dict[str, Any], dispatcher: Any) -> None:
    client = Client("http://localhost/cometd", **options)
    shake = client._session.connection.pipe.outgoing({"channel": "/meta/handshake"})
    assert shake is not None
    assert shake["ext"]["session"].get("dispatcher") == dispatcher
