"""A filter that takes more than its budget: the message is delivered, the subscription ends, and its session learns of it."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.bayeux.message import Fields
from crewel.errors import StoreUnavailable, StoreUncertain
from crewel.extensions.ack import AckExtension
from crewel.extensions.update import UpdateExtension
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, failed, ok
from tests.broker.stored_world import store as store_only
from tests.broker.topics.test_erasure import again, let_go
from tests.broker.world import Client, Request, Socket, World

COSTLY = "max(data) < `0` || sum(data) < `0`"
CHEAP = [[-1], [-2], [-3]]
HUGE = [1] * 30_000
CODE = "resource.exhaust"


def store(world: StoredWorld, channel: str, *values: Any) -> None:
    """Publish them, and let the subscriptions end that end by it."""
    store_only(world, channel, *values)
    world.settle()


def ask(client: Client, channel: str, **qos: Any) -> Fields:
    return client.say("/meta/subscribe", subscription=channel, ext={"subscribe": qos})


def story(came: list[Fields]) -> list[Any]:
    """The data of deliveries, those of the huge message as their length, and of notices the subscription."""
    return [
        _told(each) for each in came if "data" in each or (each["channel"] == "/meta/subscribe" and "id" not in each)
    ]


def _told(each: Fields) -> Any:
    if "data" not in each:
        assert each["successful"] is False
        assert each["error"] == f"429:{each['subscription']}:{CODE}"
        told = each["ext"]["subscribe"]
        assert told["errorCode"] == CODE
        assert "too expensive" in told["message"]
        return each["subscription"]
    return len(each["data"]) if len(each["data"]) > 1 else each["data"][0]


def take(reader: Receiver, *statuses: Fields) -> list[Fields]:
    """All of a response but the reply to the connect, acknowledged with the next one."""
    request: Request = reader.reconnect(*statuses, advice={"timeout": 0})
    reader.heard(request)
    return [each for each in request.answer if each["channel"] != "/meta/connect"]


def take_all(reader: Receiver) -> list[Any]:
    """Take and settle what waits, until nothing comes any more."""
    taken: list[Fields] = []
    statuses: list[Fields] = []
    empty = 0
    while empty < 2:
        came = take(reader, *statuses)
        taken += came
        statuses = [ok(each) for each in came]
        empty = 0 if came else empty + 1
    return story(taken)


@pytest.fixture(params=["/a/b", "/a/*"])
def pattern(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def joe(stored: StoredWorld, pattern: str) -> Receiver:
    joe = Receiver(stored).started(name="joe/1", settle="message", dispatcher={"retries": -1, "delay": 5000})
    assert ask(joe, pattern, filter=COSTLY)["successful"]
    return joe


class TestTheNotice:
    def test_the_notice_comes_behind_the_message_that_was_not_judged(
        self, stored: StoredWorld, joe: Receiver, pattern: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        store(stored, "/a/b", [1], *CHEAP, HUGE, HUGE, [-4])
        assert take_all(joe) == [-1, -2, -3, 30_000, pattern]
        assert joe.session.subscriptions == set()
        assert stored.broker.metrics.filters_over_budget == 1
        assert caplog.text.count("a subscription of client/joe/1 to") == 1
        assert stored.letters() == []

    def test_the_notice_comes_last_for_a_client_that_is_away(
        self, stored: StoredWorld, joe: Receiver, pattern: str
    ) -> None:
        let_go(stored)
        store(stored, "/a/b", *CHEAP, HUGE, [-4])
        assert take_all(joe) == [-1, -2, -3, 30_000, pattern]

    def test_the_notice_comes_last_for_a_client_that_is_held_back(
        self, stored: StoredWorld, joe: Receiver, pattern: str
    ) -> None:
        store(stored, "/a/b", [-1])
        take(joe, failed(*take(joe), code="user.update.holdback"))
        store(stored, "/a/b", [-2], HUGE, [-3])
        assert take(joe) == []
        stored.wait(stored.broker.mailboxes.dispatchers.activate(joe.session))
        stored.settle()
        assert take_all(joe) == [-1, -2, 30_000, pattern]

    def test_the_notice_comes_behind_messages_of_lower_priorities(
        self, stored: StoredWorld, joe: Receiver, pattern: str
    ) -> None:
        let_go(stored)
        sender = Receiver(stored).started()
        for priority in (0, 9, 5):
            sender.publish("/a/b", [-priority - 1], ext={"publish": {"persistent": True, "priority": priority}})
        store(stored, "/a/b", HUGE)
        assert take_all(joe) == [-10, -6, 30_000, -1, pattern]

    @pytest.mark.parametrize("is_told", [True, False])
    def test_the_notice_is_there_after_a_crash(
        self, make_stored: MakeStored, stored: StoredWorld, joe: Receiver, pattern: str, is_told: bool
    ) -> None:
        store(stored, "/a/b", [-1], HUGE, [-2])
        stored.commit()
        if is_told:
            take(joe)
        stored.crash()
        world = make_stored(prefix=stored.prefix)
        other = again(joe, world)
        assert take_all(other) == [-1, 30_000, pattern]
        world.commit()
        assert other.session.durable is not None
        assert not other.session.durable.failed
        assert not [field for field in world.record(other.session) if field.startswith("n:")]

    def test_the_notice_comes_again_to_the_next_client(self, stored: StoredWorld, joe: Receiver, pattern: str) -> None:
        store(stored, "/a/b", [-1], HUGE)
        assert story(take(joe)) == [-1, 30_000, pattern]
        other = Receiver(stored).taking_over(joe, name="joe/1")
        assert take_all(other) == [-1, 30_000, pattern]

    def test_a_history_fails_the_new_subscription(self, stored: StoredWorld) -> None:
        sender = Receiver(stored).started()
        for value in ([-1], HUGE):
            sender.publish("/a", value, ext={"publish": {"persistent": True, "history": {"maxEntries": 5}}})
        ann = Receiver(stored).started(name="ann/1")
        assert ask(ann, "/a", filter=COSTLY, history={"numEntries": 5})["successful"]
        stored.settle()
        assert take_all(ann) == [30_000, -1, "/a"]
        assert ann.session.subscriptions == set()

    def test_other_subscriptions_stay(self, stored: StoredWorld, joe: Receiver, pattern: str) -> None:
        joe.subscribe("/other")
        store(stored, "/a/b", HUGE)
        store(stored, "/other", [7])
        assert sorted(map(str, take_all(joe))) == sorted(["30000", pattern, "7"])
        assert joe.session.subscriptions == {"/other"}

    def test_all_who_share_the_filter_are_told(self, stored: StoredWorld) -> None:
        readers = [Receiver(stored).started() for _ in range(3)]
        for each in readers:
            ask(each, "/a", filter=COSTLY)
        store(stored, "/a", HUGE, [-1])
        assert [take_all(each) for each in readers] == [[30_000, "/a"]] * 3
        assert stored.broker.metrics.filters_over_budget == 3

    def test_the_budget_of_a_session_ends_them_too(self, stored: StoredWorld) -> None:
        client = Receiver(stored).started()
        for number in range(10):
            ask(client, "/a", filter=f"max(data) < `-{number}`")
        store(stored, "/a", *([[1] * 10_000] * 20))
        came = take_all(client)
        assert came[-1] == "/a"
        assert client.session.subscriptions == set()


class TestOtherSessions:
    def test_one_without_update_acknowledges_it(self, stored: StoredWorld) -> None:
        reader = Receiver(stored)
        reader.handshake(ext={"ack": True, "session": {"name": "joe/1"}})
        reader.take()
        ask(reader, "/a", filter=COSTLY)
        store(stored, "/a", [-1], HUGE, [-2])
        assert story(take(reader)) == [-1, 30_000, "/a"]
        assert take_all(reader) == []
        stored.commit()
        assert not [field for field in stored.record(reader.session) if field.startswith("n:")]

    @pytest.mark.parametrize("socket", [True, False])
    def test_a_plain_one_is_told_once(self, stored: StoredWorld, socket: bool) -> None:
        client = Client(stored, Socket() if socket else None).joined()
        ask(client, "/a", filter=COSTLY)
        store(stored, "/a", [-1], HUGE, [-2])
        came = client.socket.take() if client.socket else client.connect(advice={"timeout": 0}).answer
        assert story(came) == [-1, 30_000, "/a"]

    def test_without_a_store(self) -> None:
        world = World(extensions=(UpdateExtension(), AckExtension()))
        reader = Client(world).joined(ext={"ack": True, "session": {"update": True}})
        ask(reader, "/a", filter=COSTLY)
        sender = Client(world).joined()
        sender.publish("/a", [-1], ext={"publish": {"priority": 0}})
        sender.publish("/a", HUGE)
        world.settle()
        sender.publish("/a", [-2])
        assert story(reader.connect().answer) == [30_000, -1, "/a"]
        world.close()


class TestSubscribingAgain:
    def test_subscribing_again_is_refused_once_while_the_notice_waits(
        self, stored: StoredWorld, joe: Receiver, pattern: str
    ) -> None:
        let_go(stored)
        store(stored, "/a/b", [-1], HUGE)
        reply = joe.say("/meta/subscribe", subscription=pattern)
        assert reply["error"] == f"429:{pattern}:{CODE}"
        assert joe.say("/meta/subscribe", subscription=pattern)["successful"]
        store(stored, "/a/b", HUGE)
        assert take_all(joe) == [-1, 30_000, 30_000]

    def test_the_refusal_says_why(self, stored: StoredWorld, joe: Receiver, pattern: str) -> None:
        let_go(stored)
        store(stored, "/a/b", HUGE)
        told = joe.say("/meta/subscribe", subscription=pattern)["ext"]["subscribe"]
        assert told["errorCode"] == CODE
        assert "too expensive" in told["message"]
        assert told["message"].endswith("subscribe again")

    def test_one_that_has_been_told_may_subscribe_at_once(
        self, stored: StoredWorld, joe: Receiver, pattern: str
    ) -> None:
        store(stored, "/a/b", HUGE)
        *_, notice = take(joe)
        assert joe.say("/meta/subscribe", subscription=pattern)["successful"]
        assert take(joe, ok(notice)) == []
        store(stored, "/a/b", [5])
        assert story(take(joe)) == [5]

    def test_one_without_update_that_has_been_told_does_not_hear_it_again(self, stored: StoredWorld) -> None:
        reader = Receiver(stored)
        reader.handshake(ext={"ack": True, "session": {"name": "joe/1"}})
        reader.take()
        ask(reader, "/a", filter=COSTLY)
        store(stored, "/a", HUGE)
        assert story(take(reader)) == [30_000, "/a"]
        assert reader.say("/meta/subscribe", subscription="/a")["successful"]
        reader.ack = -1  # as if the acknowledgement had been lost
        assert "/a" not in story(take(reader))

    def test_a_plain_one_is_refused_while_the_notice_waits(self, stored: StoredWorld) -> None:
        client = Client(stored).joined()
        ask(client, "/a", filter=COSTLY)
        store(stored, "/a", HUGE)
        assert client.say("/meta/subscribe", subscription="/a")["error"] == f"429:/a:{CODE}"
        assert client.say("/meta/subscribe", subscription="/a")["successful"]
        assert story(client.connect(advice={"timeout": 0}).answer) == []

    def test_subscribing_again_is_refused_while_the_store_is_asked(
        self, stored: StoredWorld, joe: Receiver, pattern: str
    ) -> None:
        store_only(stored, "/a/b", HUGE)
        assert joe.say("/meta/subscribe", subscription=pattern)["error"] == f"429:{pattern}:{CODE}"
        assert take_all(joe) == [30_000, pattern]
        assert joe.say("/meta/subscribe", subscription=pattern)["successful"]


class TestAStoreThatDoesNotAnswer:
    @pytest.mark.parametrize("error", [StoreUnavailable("away"), StoreUncertain("no answer")], ids=["away", "in doubt"])
    def test_the_subscription_goes_on_until_it_does(
        self, stored: StoredWorld, joe: Receiver, pattern: str, error: Exception, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = stored.access.writing.submit
        failures = [error]

        def submit(step: Any, answered: Any, **options: Any) -> Any:
            if step.script == "unsubscribe" and failures:
                return stored.loop.call_soon(answered, failures.pop())
            return real(step, answered, **options)

        monkeypatch.setattr(stored.access.writing, "submit", submit)
        store(stored, "/a/b", [-1], HUGE)
        stored.settle()
        store(stored, "/a/b", HUGE)
        came = take_all(joe)
        assert came[-1] == pattern
        assert set(came[:-1]) <= {-1, 30_000}
        assert joe.session.subscriptions == set()
