"""What the broker gathers for the events: how much, at which level, and how it is summed up."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from crewel.broker.mailboxes import shape_samples
from crewel.broker.mailboxes.events import Events
from crewel.broker.mailboxes.ledger import NoLedger
from crewel.broker.mailboxes.mailbox import Mailbox
from crewel.broker.mailboxes.shape_samples import LARGEST
from crewel.broker.session import Session
from crewel.delivery.dispatcher import NO_STATUS, UNCLAIMED, Dispatcher, FailedDelivery, Judgement, Rules
from crewel.delivery.dispatcher_states import Holdback
from crewel.delivery.entry import Entry
from crewel.delivery.records import LogId
from crewel.errors import StoreUnavailable
from crewel.qos.connect import Bounds
from crewel.qos.update import Origin
from crewel.storage.streams import BUCKETS_MS, EVENTS, GROUP
from tests.broker.world import Client, Request, World

NOTHING_SAID = SimpleNamespace(bounds=Bounds(0, 0))
HOLDBACK = Holdback("client/joe/1", 5, "user.update.holdback", "7", "not now")


def session(name: str = "client/joe/1", *, acknowledges: bool = True) -> Session:
    made = Session.__new__(Session)
    made.name, made.peer, made.mailbox = name, Request(), Mailbox(NoLedger(cast("Any", NOTHING_SAID)))
    made.acknowledges = acknowledges
    made.last_seen = 0.0
    return made


def entry(channel: str, position: int) -> Entry:
    made = Entry.logged(channel, LogId(position), b'{"channel":"/a"}')
    made.origin = Origin(str(position), f"{position}000")
    return made


def data(channel: str, position: int, value: Any) -> Entry:
    """A stored message with this data."""
    made = Entry.logged(channel, LogId(position), orjson.dumps({"channel": channel, "data": value}))
    made.origin = Origin(str(position), f"{position}000", "client/shop/1")
    return made


def gathering(world: World, level: str) -> Events:
    """Events that have begun, less the task that writes them."""
    events = Events(world.broker.runtime)
    world.broker.settings.events.level = level  # type: ignore[assignment]
    events._obey()
    return events


def group(events: Events) -> dict[str, Any]:
    made = events._group("t")
    assert made is not None
    return made


def looked(events: Events) -> dict[str, Any]:
    """The next group, after a look at the shapes of what was acknowledged."""
    asyncio.run(events._note_shapes())
    return group(events)


def tell_everything(events: Events) -> None:
    joe, someone, unnamed = session(), session("client/ann/1", acknowledges=False), session("", acknowledges=False)
    for each in (joe, someone, unnamed):
        events._opened(each)
    events.judged(
        joe,
        Judgement(dead_letters=[FailedDelivery(entry("/a", 7), "user.update.internalError", "why", 1, "resource.x")]),
    )
    events.held(joe, HOLDBACK)
    events.released(joe)
    events.overflow(joe.name, "dropOldest")
    events.redelivered(joe.name, 2)
    events.settled(joe, [entry("/a", 7)])
    if events.traffic is not None:
        events.published("/a", 3)
    for each in (joe, someone, unnamed):
        events._closed(each, True)


class TestLevels:
    @pytest.mark.parametrize(
        ("level", "types"),
        [
            ("failures", ["failed", "held", "released", "overflow"]),
            (
                "reliable",
                ["opened", "failed", "held", "released", "closed", "shape", "overflow", "redelivered", "settled"],
            ),
            (
                "all",
                [
                    *["opened", "opened", "failed", "held", "released", "closed", "closed", "shape"],
                    *["overflow", "redelivered", "settled", "traffic", "visitors"],
                ],
            ),
        ],
    )
    def test_each_level_writes_what_the_schema_says(self, world: World, level: str, types: list[str]) -> None:
        events = gathering(world, level)
        tell_everything(events)
        assert [each["type"] for each in looked(events)["events"]] == types

    def test_a_group_and_its_events_hold_what_the_schema_says_and_nothing_else(self, world: World) -> None:
        events = gathering(world, "all")
        tell_everything(events)
        made = looked(events)
        assert set(made) == set(GROUP)
        known = {each.name: set(each.fields) for each in EVENTS}
        seen = {each["type"]: set(each) - {"type"} for each in made["events"]}
        assert seen == known

    def test_a_session_that_the_store_brings_back_has_not_been_opened(self, world: World) -> None:
        events, joe = gathering(world, "reliable"), session()
        joe.peer = None
        events._opened(joe)
        assert events._group("t") is None

    def test_a_level_can_change_while_the_server_runs(self, world: World) -> None:
        events = gathering(world, "failures")
        world.broker.settings.events.level = "all"
        events._obey()
        events.published("/a", 1)
        world.broker.settings.events.level = "failures"
        events._obey()
        assert events.traffic is None
        assert events._group("t") is None

    def test_before_there_is_a_store_nothing_is_kept(self, world: World) -> None:
        events = Events(world.broker.runtime)
        tell_everything(events)
        assert events._group("t") is None


class TestGroups:
    def test_groups_are_numbered_for_each_token(self, world: World) -> None:
        events = gathering(world, "reliable")
        numbers = []
        for token in ("t", "t", "u"):
            events.held(session(), HOLDBACK)
            made = events._group(token)
            assert made is not None
            numbers.append((made["token"], made["n"]))
        assert numbers == [("t", 1), ("t", 2), ("u", 1)]

    def test_groups_follow_one_another_without_a_gap_in_time(self, world: World) -> None:
        events = gathering(world, "reliable")
        events.held(session(), HOLDBACK)
        first = group(events)
        events.held(session(), HOLDBACK)
        assert group(events)["from"] == first["until"]

    def test_where_nothing_has_happened_there_is_none(self, world: World) -> None:
        assert gathering(world, "all")._group("t") is None

    def test_what_is_too_much_is_lost_and_counted(self, world: World) -> None:
        world.broker.settings.events.max_group = 3
        events = gathering(world, "all")
        for number in range(5):
            events.held(session(), HOLDBACK)
            events.published(f"/{number}", 1)
        made = group(events)
        assert len(made["events"]) == 3
        assert made["lost"] == 7, "two of the first kind, two channels, and three when the group was made"
        assert world.broker.metrics.events_lost == 7
        assert events._group("t") is None

    def test_one_that_the_store_does_not_take_is_a_gap_in_the_numbers(self, world: World) -> None:
        asked: list[Any] = []

        async def ask(step: Any, *, unordered: bool) -> None:
            asked.append(step.arguments)
            if len(asked) == 2:
                raise StoreUnavailable("away")

        access = world.broker.runtime.access
        access.token, access.has_store, access.writing = "t", True, SimpleNamespace(ask=ask)  # type: ignore[assignment]
        events = gathering(world, "reliable")
        for _ in range(3):
            events.held(session(), HOLDBACK)
            world.loop.run_until_complete(events.flush())
        assert [orjson.loads(text)["n"] for _, text in asked] == [1, 2, 3]
        assert world.broker.metrics.events_lost == 1


class TestSums:
    def test_settling_is_counted_by_channel_in_buckets(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        events = gathering(world, "reliable")
        monkeypatch.setattr("crewel.broker.mailboxes.events.time", lambda: 10.0)
        took_ms = (0, 1, 5)
        settled = [entry("/a", 10_000_000 - 1000 * took) for took in took_ms]
        events.settled(session(), [*settled[:2], entry("/b", 10_005_000)])
        events.settled(session(), [Entry.placeholder(LogId(5)), Entry({"channel": "/a", "data": 1}), settled[2]])
        first, second = (each for each in group(events)["events"] if each["type"] == "settled")
        assert (first["channel"], first["count"], first["sum"]) == ("/a", 3, 6)
        assert first["buckets"] == [2, 0, 1] + [0] * (len(BUCKETS_MS) - 2)
        assert (second["channel"], second["sum"]) == ("/b", 0), "a store whose clock is ahead"

    def test_what_takes_longest_has_a_bucket(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        events = gathering(world, "reliable")
        monkeypatch.setattr("crewel.broker.mailboxes.events.time", lambda: 1_000_000.0)
        events.settled(session(), [entry("/a", 1)])
        (settled,) = group(events)["events"]
        assert settled["buckets"][-1] == 1

    def test_messages_that_are_put_back_are_told_with_the_code_and_what_it_did(self, world: World) -> None:
        events, joe = gathering(world, "reliable"), session()
        dispatcher = joe.mailbox._dispatcher = Dispatcher(Rules())
        events.judged(joe, Judgement(put_back=[FailedDelivery(entry("/a", 7), "communication.timeout", "slow")]))
        dispatcher.holdback = HOLDBACK
        held = FailedDelivery(entry("/a", 8), "user.update.holdback", "not now")
        events.judged(joe, Judgement(put_back=[held], settled=[entry("/a", 9)]))
        told = group(events)["events"]
        assert [(each["code"], each["outcome"], each["id"]) for each in told[:2]] == [
            ("communication.timeout", "waits", "7"),
            ("user.update.holdback", "held", "8"),
        ]
        assert told[2] == {"type": "redelivered", "session": "client/joe/1", "count": 2}
        assert (told[3]["type"], told[3]["count"]) == ("settled", 1)

    def test_what_no_listener_takes_is_redelivered_and_has_not_failed(self, world: World) -> None:
        events, joe = gathering(world, "reliable"), session()
        followed: list[str] = []
        events.on_settled.append(lambda _, __, code: followed.append(code))
        joe.mailbox._dispatcher = Dispatcher(Rules())
        joe.mailbox._dispatcher.last_failure = ("user.update.error", "of a message of last week")
        events.judged(joe, Judgement(put_back=[FailedDelivery(entry("/a", 7), NO_STATUS, UNCLAIMED)]))
        assert group(events)["events"] == [{"type": "redelivered", "session": "client/joe/1", "count": 1}]
        assert followed == []

    def test_redeliveries_and_overflows_are_counted_by_session(self, world: World) -> None:
        events = gathering(world, "reliable")
        for _ in range(3):
            events.overflow(session().name, "dropOldest")
            events.redelivered(session().name, 2)
        events.redelivered("client/ann/1", 1)
        assert group(events)["events"] == [
            {"type": "overflow", "session": "client/joe/1", "policy": "dropOldest", "count": 3},
            {"type": "redelivered", "session": "client/joe/1", "count": 6},
            {"type": "redelivered", "session": "client/ann/1", "count": 1},
        ]

    def test_traffic_is_counted_by_channel(self, world: World) -> None:
        events = gathering(world, "all")
        for receivers in (0, 2, 3):
            events.published("/a", receivers)
        (traffic,) = group(events)["events"]
        assert traffic == {"type": "traffic", "channel": "/a", "published": 3, "delivered": 5}

    def test_sessions_without_a_name_are_only_counted(self, world: World) -> None:
        events = gathering(world, "all")
        nameless = session("", acknowledges=False)
        events._opened(nameless)
        events._opened(nameless)
        events._closed(nameless, False)
        assert group(events)["events"] == [{"type": "visitors", "opened": 2, "closed": 1}]


class TestShapes:
    """What the data of acknowledged messages looks like, by sample."""

    def told(self, world: World, events: Events, *taken: Entry, after_s: float = 1.0) -> list[dict[str, Any]]:
        """The events of shapes that a group has, if these are acknowledged before it."""
        world.advance(after_s)
        events.settled(session(), taken)
        return [each for each in looked(events)["events"] if each["type"] == "shape"]

    def test_the_first_of_a_channel_is_told_and_then_what_differs(self, world: World) -> None:
        events = gathering(world, "reliable")
        first = self.told(world, events, data("/a", 7, {"n": 1}), data("/a", 8, {"n": "x"}), data("/b", 9, 5))
        assert [(each["channel"], each["shape"], each["id"], each["count"]) for each in first] == [
            ("/a", "{n: number}", "7", 2),
            ("/b", "number", "9", 1),
        ]
        assert first[0]["sender"] == "client/shop/1"
        assert self.told(world, events, data("/a", 10, {"n": 2})) == []
        (changed,) = self.told(world, events, data("/a", 11, {"m": 2}))
        assert (changed["channel"], changed["shape"], changed["id"]) == ("/a", "{m: number}", "11")

    def test_a_channel_is_looked_at_once_a_second_and_told_again_after_an_hour(self, world: World) -> None:
        events = gathering(world, "reliable")
        assert self.told(world, events, data("/a", 7, {"n": 1}))
        assert self.told(world, events, data("/a", 8, {"m": 1}), after_s=0.5) == []
        (late,) = self.told(world, events, data("/a", 9, {"k": 1}), after_s=0.6)
        assert late["id"] == "8", "the sample has waited for its second"
        assert self.told(world, events, data("/a", 10, {"m": 1})) == []
        assert self.told(world, events, data("/a", 11, {"m": 1}), after_s=3600.0) != []

    def test_what_was_lost_on_its_way_to_the_store_is_told_again(self, world: World) -> None:
        events = gathering(world, "reliable")
        assert self.told(world, events, data("/a", 7, {"n": 1}))

        async def refuse(step: Any, *, unordered: bool) -> None:
            raise StoreUnavailable("away")

        access = world.broker.runtime.access
        access.token, access.has_store, access.writing = "t", True, SimpleNamespace(ask=refuse)  # type: ignore[assignment]
        events.held(session(), HOLDBACK)
        world.loop.run_until_complete(events.flush())
        assert self.told(world, events, data("/a", 8, {"n": 1}))

    def test_nothing_is_kept_of_what_is_large_redriven_or_not_there(self, world: World) -> None:
        events = gathering(world, "reliable")
        redriven = data("/b", 8, {"n": 1})
        assert redriven.origin is not None
        redriven.origin = redriven.origin._replace(redrive_of="3-0")
        away = data("/c", 9, 1).drop_body()
        assert self.told(world, events, data("/a", 7, "x" * LARGEST), redriven, away) == []

    def test_memory_stays_bounded_with_very_many_channels(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shape_samples, "MOST", 3)
        monkeypatch.setattr(shape_samples, "MOST_KNOWN", 4)
        events = gathering(world, "reliable")
        for first in (0, 5):
            names = [f"/{first + each}" for each in range(5)]
            assert len(self.told(world, events, *(data(name, 7, 1) for name in names))) == 3
        assert self.told(world, events, data("/7", 8, 1)) == []
        assert self.told(world, events, data("/0", 8, 1)) != [], "the one that was not seen for longest is forgotten"

    def test_without_the_events_of_reliable_sessions_there_are_none(self, world: World) -> None:
        events = gathering(world, "failures")
        events.settled(session(), [data("/a", 7, 1)])
        asyncio.run(events._note_shapes())
        assert events._group("t") is None


def test_without_a_store_a_server_has_no_events(world: World) -> None:
    Client(world).joined("/a").publish("/a", 1)
    world.settle()
    assert world.broker.metrics.events_lost == 0
