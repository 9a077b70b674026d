"""Events by their numbers, as clients of Salesforce's Streaming API ask for them."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.bayeux.message import Fields
from crewel.broker.subscriptions.replay_numbers import Numbers, read_number
from crewel.errors import Refused
from crewel.extensions.ack import AckExtension
from crewel.extensions.replay import ReplayExtension
from crewel.extensions.update import UpdateExtension
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld
from tests.broker.world import Client, World, data_of

RULES = 'topics={"/topic/**":{"history":{"max_entries":5},"replay":true},"/h/**":{"history":{"max_entries":5}}}'
INVALID = (
    "400::The replayId {%s} you provided was invalid.  Please provide a valid ID, -2 to replay all events, or -1 to replay "
    "only new events."
)


def stored_world(make_stored: MakeStored, prefix: str = "") -> StoredWorld:
    return make_stored(RULES, prefix=prefix, extensions=(AckExtension(), UpdateExtension(), ReplayExtension()))


@pytest.fixture
def world(make_stored: MakeStored) -> StoredWorld:
    return stored_world(make_stored)


def publish(world: StoredWorld, *values: Any, channel: str = "/topic/a") -> None:
    for value in values:
        world.broker.publish(channel, {"payload": value})
        world.settle()


class Subscriber:
    """A client of one kind, and the events that come to it."""

    def __init__(self, world: StoredWorld, kind: str = "plain") -> None:
        self.client = Client(world) if kind == "plain" else Receiver(world)
        if isinstance(self.client, Receiver):
            self.client.started()
        else:
            self.client.joined()
        self._early: list[Fields] = []

    def subscribe(self, replay: Any = None, channel: str = "/topic/a", **ext: Any) -> Fields:
        ext = ext if replay is None else {**ext, "replay": replay}
        request = self.client.send(self.client.message("/meta/subscribe", subscription=channel, ext=ext))
        self._early = [each for each in request.received if "data" in each]
        return next(each for each in request.received if each["channel"] == "/meta/subscribe")

    def events(self) -> list[Fields]:
        early, self._early = self._early, []
        if isinstance(self.client, Receiver):
            return [*early, *self.client.take()]
        answer = self.client.connect(advice={"timeout": 0}).answer
        return [*early, *(each for each in answer if "data" in each)]

    def payloads(self) -> list[Any]:
        return [each["payload"] for each in data_of(self.events())]


@pytest.fixture(params=["plain", "update"])
def subscriber(request: pytest.FixtureRequest, world: StoredWorld) -> Subscriber:
    return Subscriber(world, request.param)


def number_of(event: Fields) -> int:
    number = event["data"]["event"]["replayId"]
    assert isinstance(number, int)
    return number


def test_a_handshake_is_told_that_numbers_may_be_asked_for(world: StoredWorld) -> None:
    reply = Client(world).handshake(ext={"replay": True})
    assert reply["ext"] == {"replay": True, "payload.format": True}
    assert "ext" not in Client(world).handshake()


def test_each_event_has_a_number_and_its_date(world: StoredWorld, subscriber: Subscriber) -> None:
    subscriber.subscribe()
    publish(world, "a", "b")
    first, second = subscriber.events()
    assert number_of(second) == number_of(first) + 1
    created = first["data"]["event"]["createdDate"]
    assert (created[10], created[-1], len(created)) == ("T", "Z", len("2016-03-29T19:05:28.334Z"))
    assert first["data"]["payload"] == "a"


def test_what_an_event_says_of_itself_stays(world: StoredWorld, subscriber: Subscriber) -> None:
    subscriber.subscribe()
    data = {"event": {"type": "created", "replayId": 1}, "sobject": {}}
    world.broker.publish("/topic/a", data)
    world.settle()
    (event,) = subscriber.events()
    assert event["data"]["event"]["type"] == "created"
    assert number_of(event) > 1
    assert data["event"]["replayId"] == 1


def test_data_that_is_no_object_has_no_number(world: StoredWorld, subscriber: Subscriber) -> None:
    subscriber.subscribe()
    world.broker.publish("/topic/a", "text")
    world.settle()
    assert data_of(subscriber.events()) == ["text"]


def test_other_topics_and_volatile_messages_have_none(world: StoredWorld, subscriber: Subscriber) -> None:
    subscriber.subscribe(channel="/h/a")
    subscriber.subscribe()
    publish(world, "a", channel="/h/a")
    world.broker.publish("/topic/a", {"payload": "b"}, qos={"lifeTime": 0})
    world.settle()
    assert data_of(subscriber.events()) == [{"payload": "a"}, {"payload": "b"}]


@pytest.mark.parametrize(("replay", "expected"), [(-2, ["a", "b", "c"]), ("-2", ["a", "b", "c"]), (-1, []), ("-1", [])])
def test_all_or_none_of_the_retained_events_come(
    world: StoredWorld, subscriber: Subscriber, replay: Any, expected: list[str]
) -> None:
    publish(world, "a", "b", "c")
    assert subscriber.subscribe({"/topic/a": replay})["successful"]
    publish(world, "d")
    assert subscriber.payloads() == [*expected, "d"]


@pytest.mark.parametrize("text", [True, False])
def test_those_after_a_number_come_and_then_the_new_ones(
    world: StoredWorld, subscriber: Subscriber, text: bool
) -> None:
    watcher = Subscriber(world)
    watcher.subscribe()
    publish(world, "a", "b", "c")
    second = number_of(watcher.events()[1])
    subscriber.subscribe({"/topic/other": 99, "/topic/a": str(second) if text else second})
    publish(world, "d")
    assert subscriber.payloads() == ["c", "d"]


def test_the_map_need_not_name_the_channel(world: StoredWorld, subscriber: Subscriber) -> None:
    publish(world, "a")
    assert subscriber.subscribe({"/topic/other": -2})["successful"]
    assert subscriber.payloads() == []


def test_the_number_that_has_just_left_is_still_good(world: StoredWorld, subscriber: Subscriber) -> None:
    watcher = Subscriber(world)
    watcher.subscribe()
    publish(world, *range(7))
    numbers = [number_of(event) for event in watcher.events()]
    assert subscriber.subscribe({"/topic/a": numbers[1]})["successful"]  # 2 to 6 are retained
    assert subscriber.payloads() == [2, 3, 4, 5, 6]
    assert Subscriber(world).subscribe({"/topic/a": numbers[0]})["error"] == INVALID % numbers[0]


@pytest.mark.parametrize("number", [0, 123, "123", 9007199254740991, -3, "-3", 1.5, "new", True])
def test_a_number_that_there_is_not_is_refused_in_the_words_that_clients_know(
    world: StoredWorld, subscriber: Subscriber, number: Any
) -> None:
    publish(world, "a")
    reply = subscriber.subscribe({"/topic/a": number})
    assert (reply["successful"], reply["error"]) == (False, INVALID % number)
    publish(world, "b")
    assert subscriber.events() == []
    assert "/topic/a" not in subscriber.client.session.subscriptions


def test_numbers_mean_nothing_on_other_topics(world: StoredWorld, subscriber: Subscriber) -> None:
    publish(world, "a", channel="/h/a")
    assert subscriber.subscribe({"/h/a": -2}, channel="/h/a")["successful"]
    assert subscriber.events() == []


def test_events_that_are_replayed_are_not_initial(world: StoredWorld) -> None:
    publish(world, "a")
    subscriber = Subscriber(world, "update")
    subscriber.subscribe({"/topic/a": -2}, subscribe={})
    (event,) = subscriber.events()
    assert "initial" not in event["ext"]["update"]


def test_numbers_survive_the_server_and_never_come_twice(make_stored: MakeStored, world: StoredWorld) -> None:
    watcher = Subscriber(world)
    watcher.subscribe()
    publish(world, "a", "b")
    first, last = map(number_of, watcher.events())
    world.close()
    again = stored_world(make_stored, world.prefix)
    publish(again, "c")
    subscriber = Subscriber(again)
    subscriber.subscribe({"/topic/a": first})
    events = subscriber.events()
    assert [each["data"]["payload"] for each in events] == ["b", "c"]
    assert number_of(events[1]) > last


def test_without_the_extension_messages_have_no_numbers(make_stored: MakeStored) -> None:
    world = make_stored(RULES)
    subscriber = Subscriber(world)
    subscriber.subscribe({"/topic/a": "nonsense"})
    publish(world, "a")
    assert data_of(subscriber.events()) == [{"payload": "a"}]


def test_numbers_follow_one_another_while_the_clock_stands_still_or_goes_back() -> None:
    times = iter((1000.0, 1000.0, 500.0, 2000.0))
    numbers = Numbers(lambda: next(times))
    written = []
    for _ in range(4):
        fields: Fields = {"channel": "/a", "data": {}}
        numbers.write(fields)
        written.append(fields["data"]["event"]["replayId"])
    assert written == [1_000_000_001, 1_000_000_002, 1_000_000_003, 1_000_000_004]


@pytest.mark.parametrize(("value", "number"), [("-2", -2), (-1, -1), ("0", 0), (7, 7)])
def test_numbers_may_be_texts(value: Any, number: int) -> None:
    assert read_number(value) == number


def test_a_number_of_another_type_is_told_as_far_as_it_can_be() -> None:
    with pytest.raises(Refused, match=r"The replayId \{\?\} you"):
        read_number([])


def test_a_world_without_a_store_has_nothing_to_replay() -> None:
    world = World('topics={"/topic/**":{"replay":true}}', extensions=(ReplayExtension(),))
    client = Client(world).joined()
    assert client.say("/meta/subscribe", subscription="/topic/a", ext={"replay": {"/topic/a": -2}})["successful"]
    reply = client.say("/meta/subscribe", subscription="/topic/b", ext={"replay": {"/topic/b": 5}})
    assert reply["error"] == INVALID % 5
    world.close()
