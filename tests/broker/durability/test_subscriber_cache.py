"""Persistent messages on the way that they mostly take, for all who hear a channel at once; and who leaves that way, when."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from crewel.bayeux.channel import parse
from crewel.broker.mailboxes.outbound import Outbound
from crewel.broker.session import Session
from crewel.delivery.dispatcher import Rejection
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry
from crewel.delivery.records import EndReason, Submission
from crewel.storage import log as stored_log
from tests.broker.stored_world import Receiver, StoredWorld, data
from tests.broker.world import Client, Request, data_of


@pytest.fixture
def joe(stored: StoredWorld) -> Receiver:
    return Receiver(stored).started("/a", name="joe/1", update=False)


@pytest.fixture
def ann(stored: StoredWorld) -> Receiver:
    return Receiver(stored).started("/a", name="ann/1", update=False)


def store(world: StoredWorld, *values: Any, **qos: Any) -> list[int]:
    return [int(world.wait(world.broker.publish_stored("/a", value, qos=qos))) for value in values]


@contextmanager
def count_calls(owner: type, name: str) -> Iterator[list[Any]]:
    """The objects whose method is called meanwhile, in order."""
    found: list[Any] = []
    original = getattr(owner, name)

    def counted(self: Any, *arguments: Any) -> Any:
        found.append(self)
        return original(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, counted)
        yield found


def let_go(world: StoredWorld) -> None:
    world.advance(60.0)
    world.broker.sweep()


def is_booked(world: StoredWorld) -> bool:
    """Whether nothing is left to be applied."""
    return not world.access.node.fan_out.records


def waiting(client: Receiver) -> list[int]:
    assert client.session.durable is not None
    return list(client.session.durable.pending)


@pytest.mark.parametrize("is_filtered", [False, True])
def test_full_queues_leave_the_rest_of_a_message_to_another_turn(
    stored: StoredWorld, monkeypatch: pytest.MonkeyPatch, is_filtered: bool
) -> None:
    """One message for 1,000 full queues was a turn of 30 ms; of 12 ms where one of them had a filter. What follows in the log
    waits until all have it."""
    fan_outs = stored.broker.mailboxes.outbound.fan_outs
    fan_outs.step, fan_outs.slice_s = 2, 0.0
    monkeypatch.setattr("crewel.broker.durability.log_appender.PORTION_S", 0.0)
    receivers = [Receiver(stored).started("/a", name=f"joe{n}/1", queue={"maxEntries": 1}) for n in range(6)]
    store(stored, 0)
    if is_filtered:
        stored.broker.subscriptions.options.filtered[Receiver(stored).started("/a", name="ann/1").session] = {}
    enqueue, turns = Outbound.enqueue, list[str]()

    def noted(outbound: Outbound, session: Session, entry: Entry) -> None:
        stored.loop.call_soon(turns.append, "others")
        turns.append(session.name)
        enqueue(outbound, session, entry)

    monkeypatch.setattr(Outbound, "enqueue", noted)
    store(stored, 1)
    full = [each.session.name for each in receivers]
    assert turns[:3] == [*full[:2], "others"]
    assert [each for each in turns if each in full] == full
    assert len(stored.letters()) == 6


class TestTogether:
    def test_all_get_it_and_it_is_booked_once_it_is_committed(
        self, stored: StoredWorld, joe: Receiver, ann: Receiver
    ) -> None:
        ids = store(stored, 1, 2)
        assert not is_booked(stored)
        for client in (joe, ann):
            assert data(client.take()) == [1, 2]
            client.reconnect()
        assert not is_booked(stored)
        settled = [(f"client/{name}/1", "settled", log_id) for name in ("ann", "joe") for log_id in ids]
        assert sorted(stored.ended()) == settled
        assert is_booked(stored)
        assert stored.broker.metrics.ended[EndReason.SETTLED] == 4

    def test_what_is_not_acknowledged_survives(
        self, stored: StoredWorld, make_stored: Callable[..., StoredWorld], joe: Receiver, ann: Receiver
    ) -> None:
        first, second = store(stored, 1, 2)
        joe.take()
        joe.reconnect()
        assert sorted(stored.ended()) == [("client/joe/1", "settled", first), ("client/joe/1", "settled", second)]
        stored.crash()
        again = make_stored(prefix=stored.prefix)
        for client in (joe, ann):
            client.world = again
        assert data(ann.take()) == [1, 2]
        assert joe.reconnect().is_held

    def test_what_no_commit_has_seen_survives(
        self, stored: StoredWorld, make_stored: Callable[..., StoredWorld], joe: Receiver
    ) -> None:
        stored.commit()
        store(stored, 1)
        stored.crash()
        again = make_stored(prefix=stored.prefix)
        joe.world = again
        assert data(joe.take()) == [1]

    def test_others_hear_it_too(self, stored: StoredWorld, joe: Receiver) -> None:
        plain = Client(stored).joined("/a")
        held = plain.connect()
        store(stored, 1)
        stored.settle()
        assert data_of(held.answer) == [1]
        assert data(joe.take()) == [1]

    def test_how_long_it_took_is_told(self, stored: StoredWorld, joe: Receiver, ann: Receiver) -> None:
        store(stored, 1, 2)
        for client in (joe, ann):
            client.take()
            client.reconnect()
        stored.commit()
        (settled,) = [each for each in stored.broker.mailboxes.events._taken() if each["type"] == "settled"]
        assert (settled["channel"], settled["count"]) == ("/a", 4)


class TestChanges:
    def test_who_comes_later_hears_what_comes_later(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, 1)
        ann = Receiver(stored).started("/a", update=False)
        store(stored, 2)
        assert (data(joe.take()), data(ann.take())) == ([1, 2], [2])

    def test_who_unsubscribes_hears_no_more(self, stored: StoredWorld, joe: Receiver, ann: Receiver) -> None:
        store(stored, 1)
        joe.say("/meta/unsubscribe", subscription="/a")
        stored.settle()
        store(stored, 2)
        assert (data(joe.take()), data(ann.take())) == ([1], [1, 2])
        stored.commit()
        store(stored, 3)
        assert not is_booked(stored)
        ann.reconnect()

    def test_who_ends_leaves_letters(self, stored: StoredWorld, joe: Receiver, ann: Receiver) -> None:
        store(stored, 1)
        joe.say("/meta/disconnect")
        stored.settle()
        assert [letter.receiver for letter in stored.letters()] == ["client/joe/1"]
        assert data(ann.take()) == [1]

    def test_a_filter_is_asked_about_each_message(self, stored: StoredWorld, joe: Receiver, ann: Receiver) -> None:
        store(stored, 1)
        stored.broker.subscriptions.options.filtered[joe.session] = {}
        store(stored, 2)
        assert data(ann.take()) == [1, 2]
        assert len(stored.access.node.fan_out.records) == 1

    def test_another_client_goes_on_with_the_session(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", name="joe/1")
        store(stored, 1)
        other = Receiver(stored).taking_over(joe, name="joe/1")
        store(stored, 2)
        assert data(other.take()) == [1, 2]


class TestClosedIntervals:
    @pytest.fixture
    def leaving(self, stored: StoredWorld) -> list[Receiver]:
        """Sessions that have unsubscribed from `/a`, after a message that the server has not taken yet."""
        leaving = [Receiver(stored).started("/a", "/b", name=f"{name}/1", update=False) for name in ("joe", "ann")]
        access, missed = stored.access, Submission("/a", b'{"channel":"/a","data":"a"}')
        stored.wait(stored.store.run([stored_log.append(access.keys, access.token, [missed], 1000)]))
        for each in leaving:
            each.say("/meta/unsubscribe", subscription="/a")
        assert len(access.node.closing) == 2
        return leaving

    def test_a_message_of_another_channel_does_not_overtake(self, stored: StoredWorld, leaving: list[Receiver]) -> None:
        stored.wait(stored.broker.publish_stored("/b", "b"))
        stored.settle()
        assert [data(each.take()) for each in leaving] == [["a", "b"]] * 2

    def test_many_of_them_get_the_channel_in_order(self, stored: StoredWorld, leaving: list[Receiver]) -> None:
        fan_outs = stored.broker.mailboxes.outbound.fan_outs
        fan_outs.at_once, fan_outs.step, fan_outs.slice_s = 1, 1, -1.0
        store(stored, "too late")
        for each in leaving:
            each.subscribe("/a")
        store(stored, "again")
        stored.settle()
        assert [data(each.take()) for each in leaving] == [["a", "again"]] * 2


class TestManyReceivers:
    @pytest.fixture(autouse=True)
    def cut_small(self, stored: StoredWorld) -> None:
        """As if each channel had many subscribers."""
        fan_outs = stored.broker.mailboxes.outbound.fan_outs
        fan_outs.at_once, fan_outs.step, fan_outs.looked_up, fan_outs.slice_s = 2, 1, 1, -1.0

    @pytest.fixture
    def many(self, stored: StoredWorld) -> list[Receiver]:
        return [Receiver(stored).started("/a", name=f"joe{number:02}/1", update=False) for number in range(30)]

    @pytest.mark.parametrize("qos", [{}, {"lifeTime": 60_000, "forceDestroy": True}], ids=["together", "one by one"])
    def test_others_have_turns_while_they_are_looked_up(
        self, stored: StoredWorld, many: list[Receiver], qos: dict[str, Any]
    ) -> None:
        async def count() -> int:
            task = asyncio.get_running_loop().create_task(stored.broker.publish_stored("/a", 1, qos=qos))
            turns = 0
            while not task.done() or stored.access.writing.under_way is not None:
                turns += 1
                await asyncio.sleep(0)
            return turns

        assert stored.wait(count()) > 30 / stored.broker.mailboxes.outbound.fan_outs.at_once
        stored.settle()
        assert [data(each.take()) for each in many] == [[1]] * 30

    def test_one_more_costs_the_next_message_no_look_up(self, stored: StoredWorld, many: list[Receiver]) -> None:
        store(stored, 1)
        ann = Receiver(stored).started("/a", name="ann/1", update=False)
        with count_calls(DurableSession, "receives_all") as looked_at:
            store(stored, 2)
        stored.settle()
        assert looked_at == [ann.session.durable]
        assert data(ann.take()) == [2]
        assert [data(each.take()) for each in many] == [[1, 2]] * 30

    def test_one_less_is_looked_up_alone_too(self, stored: StoredWorld, many: list[Receiver]) -> None:
        store(stored, 1)
        many[0].say("/meta/unsubscribe", subscription="/a")
        stored.settle()
        with count_calls(DurableSession, "receives_all") as looked_at:
            store(stored, 2)
        stored.settle()
        assert looked_at == []
        assert [data(each.take()) for each in many] == [[1]] + [[1, 2]] * 29

    def test_others_have_turns_while_many_that_have_changed_are_looked_up(
        self, stored: StoredWorld, many: list[Receiver]
    ) -> None:
        store(stored, 1)
        for each in many[:10]:
            each.say("/meta/unsubscribe", subscription="/a")
            each.subscribe("/a")
        stored.settle()

        async def most_at_once() -> int:
            task = asyncio.get_running_loop().create_task(stored.broker.publish_stored("/a", 2))
            most = before = 0
            while not task.done() or stored.access.writing.under_way is not None:
                await asyncio.sleep(0)
                most, before = max(most, len(looked_at) - before), len(looked_at)
            return most

        with count_calls(DurableSession, "receives_all") as looked_at:
            assert stored.wait(most_at_once()) <= 3
        stored.settle()
        assert len(looked_at) >= 30
        assert [data(each.take()) for each in many] == [[1, 2]] * 30

    def test_messages_keep_their_order(self, stored: StoredWorld, many: list[Receiver]) -> None:
        async def publish() -> None:
            publish = stored.broker.publish_stored
            lives = {"lifeTime": 60_000, "forceDestroy": True}
            await asyncio.gather(*(publish("/a", number, qos=lives if number % 2 else {}) for number in range(6)))

        stored.wait(publish())
        stored.settle()
        assert [data(each.take()) for each in many] == [list(range(6))] * 30

    def test_too_much_for_all_is_applied_in_turns(self, stored: StoredWorld, many: list[Receiver]) -> None:
        stored.access.node.max_pending = 40
        store(stored, 1, 2, 3)
        stored.settle()
        assert [data(each.take()) for each in many] == [[1, 2, 3]] * 30


class TestChangesAtRandom:
    @pytest.mark.parametrize("seed", range(5))
    def test_what_is_known_is_what_a_look_up_finds(self, stored: StoredWorld, seed: int) -> None:
        rng = random.Random(seed)
        cache = stored.durability.appender._cache
        a = parse("/a/b")
        assert a is not None
        clients = [Receiver(stored).started("/else", name=f"joe{number}/1", update=False) for number in range(5)]
        clients += [Client(stored).joined("/else") for _ in range(3)]
        for _ in range(60):
            client, pattern = rng.choice(clients), rng.choice(["/a/b", "/a/*", "/**"])
            verb = rng.choice(["subscribe", "subscribe", "unsubscribe"])
            stored.receive(
                Request(client.browser), client.message(f"/meta/{verb}", subscription=pattern, id=str(rng.random()))
            )
            if rng.random() < 0.3:
                stored.wait(stored.broker.publish_stored("/a/b", 1))
            if rng.random() < 0.2:
                stored.commit()
            if (known := cache.of(a)) is None:
                continue
            for _ in cache.look_up(a):
                pass
            found = cache.of(a)
            assert found is not None
            assert found.others.keys() == known.others.keys()
            assert found.subscriber_set.sessions.keys() == known.subscriber_set.sessions.keys()


class TestUnusual:
    def test_who_is_away_has_it_read_back(self, stored: StoredWorld, joe: Receiver) -> None:
        let_go(stored)
        ann = Receiver(stored).started("/a", update=False)
        store(stored, 1, 2)
        assert data(ann.take()) == [1, 2]
        assert joe.session.mailbox._queue == []
        assert data(joe.take()) == [1, 2]

    def test_who_is_held_back_gets_it_afterwards(self, stored: StoredWorld, ann: Receiver) -> None:
        joe = Receiver(stored).started("/a", settle="message")
        stored.wait(stored.broker.mailboxes.dispatchers.hold(joe.session, "operator"))
        store(stored, 1)
        assert data(ann.take()) == [1]
        stored.wait(stored.broker.mailboxes.dispatchers.activate(joe.session))
        assert data(joe.take()) == [1]

    def test_a_sink_makes_letters(self, stored: StoredWorld, ann: Receiver) -> None:
        joe = Receiver(stored).started("/a", name="joe/1", settle="message")
        rules = stored.broker.mailboxes.dispatchers.rules(joe.session)
        joe.session.mailbox.hold(Rejection("user.x", "why"), rules)
        store(stored, 1)
        assert [(letter.receiver, letter.code) for letter in stored.letters()] == [("client/joe/1", "user.x")]
        assert data(ann.take()) == [1]

    @pytest.mark.parametrize("queue", [{"maxEntries": 2}, {"maxBytes": 100}])
    def test_a_full_queue_has_its_policy(self, stored: StoredWorld, ann: Receiver, queue: dict[str, int]) -> None:
        joe = Receiver(stored).started("/a", name="joe/1", update=False, queue=queue)
        ids = store(stored, 1, 2, 3)
        assert waiting(joe) == ids[:2]
        assert data(joe.take()) == [1, 2]
        joe.reconnect()
        store(stored, 4)
        assert data(ann.take()) == [1, 2, 3, 4]
        assert [letter.code.rpartition(".")[2] for letter in stored.letters()] == [next(iter(queue))[3:].lower()]

    def test_what_has_a_life_goes_the_general_way(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, 1, lifeTime=60_000, forceDestroy=True)
        assert is_booked(stored)
        store(stored, 2)
        assert data(joe.take()) == [1, 2]

    def test_a_publisher_that_does_not_hear_itself_is_spared(self, stored: StoredWorld, ann: Receiver) -> None:
        joe = Receiver(stored).started("/a", name="joe/1", update=False)
        joe.session.broadcast_to_publisher = False
        joe.say("/a", data=1, ext={"publish": {"persistent": True}})
        assert data(ann.take()) == [1]
        assert waiting(joe) == []
        assert [reason for name, reason, _ in stored.ended() if name == "client/joe/1"] == ["filtered"]

    def test_a_message_that_is_alone_fits(self, stored: StoredWorld, ann: Receiver) -> None:
        joe = Receiver(stored).started("/a", name="joe/1", update=False, queue={"maxBytes": 10})
        first, second = store(stored, 1, 2)
        assert waiting(joe) == [first]
        assert data(ann.take()) == [1, 2]
        assert [(letter.receiver, letter.id) for letter in stored.letters()] == [("client/joe/1", str(second))]

    def test_what_is_lazy_waits(self, stored: StoredWorld, ann: Receiver) -> None:
        stored.broker.addressing.channels.make_lazy(["/a"])
        held = ann.connect()
        store(stored, 1)
        stored.settle()
        assert held.is_held
        stored.advance(stored.broker.settings.bayeux.max_lazy_ms / 1000)
        stored.settle()
        assert data_of(held.answer) == [1]
