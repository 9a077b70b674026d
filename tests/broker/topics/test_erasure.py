"""Erasing a topic of which messages wait: gently it ends none of them, and the notice comes behind all of them."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from crewel import event_loop
from crewel.bayeux.message import Fields
from crewel.extensions.ack import AckExtension
from crewel.extensions.update import UpdateExtension
from crewel.topics import State
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, data, failed, ok, origin, store
from tests.broker.topics.test_endings import erase, publish, state
from tests.broker.world import Client, World, data_of, let_go

PATTERNS = ["/a/b", "/a/*"]
RETRY: dict[str, Any] = {"dispatcher": {"retries": -1, "delay": 5000}}


def take_all(reader: Receiver) -> list[Fields]:
    """Take and settle what waits, response by response, until nothing comes any more."""
    taken: list[Fields] = []
    statuses: list[Fields] = []
    empty = 0
    while empty < 2:
        came = reader.take(*statuses)
        taken += came
        statuses = [ok(each) for each in came]
        empty = 0 if came else empty + 1
    return taken


def again(reader: Receiver, world: StoredWorld) -> Receiver:
    """The same client at the next server."""
    other = Receiver(world, browser=reader.browser)
    other.id, other.login, other.ack = reader.id, reader.login, reader.ack
    return other


@pytest.fixture(params=PATTERNS)
def joe(request: pytest.FixtureRequest, stored: StoredWorld) -> Receiver:
    """A subscriber that settles each message by itself, subscribed to the topic by its name or by a wildcard."""
    return Receiver(stored).started(request.param, name="joe/1", settle="message", **RETRY)


class TestTheNoticeComesLast:
    def test_for_one_who_is_there(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a/b", 0, 1, 2)
        erase(stored, "/a/b")
        assert data(take_all(joe)) == [0, 1, 2, None]

    @pytest.mark.parametrize("count", [3, 250])
    def test_for_one_who_is_away(self, stored: StoredWorld, joe: Receiver, count: int) -> None:
        let_go(stored)
        store(stored, "/a/b", *range(count))
        erase(stored, "/a/b")
        assert data(take_all(joe)) == [*range(count), None]

    def test_for_one_who_was_there_and_went(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a/b", 0, 1, 2)
        erase(stored, "/a/b")
        let_go(stored)
        assert data(take_all(joe)) == [0, 1, 2, None]

    def test_for_one_who_is_held_back(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a/b", 0)
        joe.take(failed(*joe.take(), code="user.update.holdback"))
        store(stored, "/a/b", 1, 2)
        erase(stored, "/a/b")
        assert joe.take() == []
        stored.wait(stored.broker.mailboxes.dispatchers.activate(joe.session))
        stored.settle()
        assert data(take_all(joe)) == [0, 1, 2, None]

    def test_for_one_who_waits_after_a_failure(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a/b", 0, 1, 2)
        joe.take(failed(joe.take()[0], "communication.down"))
        erase(stored, "/a/b")
        assert joe.take() == []
        stored.advance(6.0)
        assert data(take_all(joe)) == [0, None]  # the others are open at the client

    def test_again_for_one_who_fails_after_it(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a/b", 0, 1)
        erase(stored, "/a/b")
        first, second, notice = joe.take()
        assert (second["data"], notice["data"]) == (1, None)
        joe.take(failed(first, "communication.down"), ok(second))
        stored.advance(6.0)
        assert data(take_all(joe)) == [0, None]

    def test_behind_messages_of_lower_priorities(self, stored: StoredWorld, joe: Receiver) -> None:
        let_go(stored)
        sender = Receiver(stored).started()
        for priority in (0, 9, 5, 1):
            publish(sender, "/a/b", priority, persistent=True, priority=priority)
        erase(stored, "/a/b")
        assert data(take_all(joe)) == [9, 5, 1, 0, None]

    def test_behind_what_is_not_stored(self, stored: StoredWorld, joe: Receiver) -> None:
        sender = Receiver(stored).started()
        publish(sender, "/a/b", 0, priority=2)
        publish(sender, "/a/b", 1, persistent=True)
        erase(stored, "/a/b")
        assert data(take_all(joe)) == [1, 0, None]

    def test_without_a_store(self) -> None:
        world = World(extensions=(UpdateExtension(), AckExtension()))
        reader = Client(world).joined("/a/b", ext={"ack": True, "session": {"update": True}})
        sender = Client(world).joined()
        sender.publish("/a/b", 0, ext={"publish": {"priority": 0}})
        assert erase(world, "/a/b")
        assert data_of(reader.connect().answer) == [0, None]
        world.close()

    def test_what_comes_after_it_is_the_next_topic(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a/*", name="joe/1", settle="message")
        let_go(stored)
        store(stored, "/a/b", 0, 1)
        erase(stored, "/a/b")
        store(stored, "/a/b", 2)
        assert data(take_all(joe)) == [0, 1, None, 2]

    def test_for_the_next_client_of_the_session(self, stored: StoredWorld, joe: Receiver) -> None:
        let_go(stored)
        store(stored, "/a/b", 0, 1)
        erase(stored, "/a/b")
        assert data(joe.take()) == [0, 1, None]
        other = Receiver(stored).taking_over(joe, name="joe/1")
        assert data(take_all(other)) == [0, 1, None]

    def test_twice_erased_it_comes_once(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a/*", name="joe/1", settle="message")
        let_go(stored)
        store(stored, "/a/b", 0)
        erase(stored, "/a/b")
        store(stored, "/a/b", 1)
        erase(stored, "/a/b")
        assert data(take_all(joe)) == [0, 1, None]

    def test_the_notice_counts_as_no_message(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a/b", 0)
        erase(stored, "/a/b")
        assert joe.session.mailbox.view().depth == 1
        taken = take_all(joe)
        assert not [field for field in stored.record(joe.session) if field.startswith("n:")]
        assert [log_id for *_, log_id in stored.ended()] == [int(origin(taken[0])["id"])]

    def test_the_notice_makes_no_letter_when_its_receiver_fails_for_good(
        self, stored: StoredWorld, joe: Receiver
    ) -> None:
        store(stored, "/a/b", 0)
        erase(stored, "/a/b")
        message, notice = joe.take()
        assert joe.take(ok(message), failed(notice, "user.update.error")) == []
        assert stored.letters() == []

    def test_the_notice_makes_no_letter_when_its_session_ends(self, stored: StoredWorld, joe: Receiver) -> None:
        let_go(stored)
        store(stored, "/a/b", 0)
        erase(stored, "/a/b")
        assert joe.say("/meta/disconnect")["successful"]
        assert [letter.channel for letter in stored.letters()] == ["/a/b"]


class TestSubscribingAgain:
    """A client ends its subscription on the notice, which must not be a later one."""

    @pytest.mark.parametrize("login", [{"name": "joe/1", "persistent": True}, {}], ids=["named", "anonymous"])
    def test_a_notice_that_still_waits_is_withdrawn(self, make_stored: MakeStored, login: dict[str, Any]) -> None:
        world = make_stored()
        joe = Receiver(world).started("/a/b", settle="message", **login)
        store(world, "/a/b", 0)
        erase(world, "/a/b")
        joe.subscribe("/a/b")
        store(world, "/a/b", 1)
        assert data(take_all(joe)) == [0, 1]
        world.commit()
        world.crash()
        assert take_all(again(joe, make_stored(prefix=world.prefix))) == []

    def test_of_a_client_that_the_store_does_not_have_too(self, stored: StoredWorld) -> None:
        joe = Receiver(stored)
        joe.handshake(ext={"session": {"update": True}})
        joe.say("/meta/connect", connectionType="long-polling")
        joe.subscribe("/a/b")
        erase(stored, "/a/b")
        joe.subscribe("/a/b")
        stored.settle()
        assert not any(each.is_notice for each in joe.session.mailbox._queue)

    def test_a_notice_that_the_client_has_stays_open(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a/b", name="joe/1", settle="message")
        erase(stored, "/a/b")
        (notice,) = joe.take()
        joe.subscribe("/a/b")
        durable = joe.session.durable
        assert durable is not None
        assert [each.channel for each in durable.notices.values()] == ["/a/b"]
        assert joe.take(ok(notice)) == []
        assert not durable.notices

    def test_notices_of_other_topics_still_come(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a/b", name="joe/1", settle="message")
        joe.subscribe("/a/c")
        store(stored, "/a/b", 0)
        erase(stored, "/a/b")
        joe.subscribe("/a/c")
        assert data(take_all(joe)) == [0, None]


class TestAfterARestart:
    @pytest.mark.parametrize("pattern", PATTERNS)
    @pytest.mark.parametrize("ends", ["close", "crash"])
    @pytest.mark.parametrize("is_away", [False, True])
    def test_the_notice_still_comes_last(self, make_stored: MakeStored, pattern: str, ends: str, is_away: bool) -> None:
        world = make_stored()
        joe = Receiver(world).started(pattern, name="joe/1", settle="message", persistent=True)
        if is_away:
            let_go(world)
        sender = Receiver(world).started()
        publish(sender, "/a/b", 0, persistent=True, priority=1)
        store(world, "/a/b", 1, 2)
        erase(world, "/a/b")
        getattr(world, ends)()
        next_world = make_stored(prefix=world.prefix)
        assert data(take_all(again(joe, next_world))) == [1, 2, 0, None]

    def test_a_notice_that_was_settled_does_not_come_again(self, make_stored: MakeStored) -> None:
        world = make_stored()
        joe = Receiver(world).started("/a/b", name="joe/1", settle="message", persistent=True)
        store(world, "/a/b", 0)
        erase(world, "/a/b")
        assert data(take_all(joe)) == [0, None]
        world.commit()
        world.crash()
        assert take_all(again(joe, make_stored(prefix=world.prefix))) == []

    def test_a_topic_is_softerased_until_what_waits_is_delivered(self, make_stored: MakeStored) -> None:
        world = make_stored()
        joe = Receiver(world).started("/a/b", name="joe/1", settle="message", persistent=True)
        store(world, "/a/b", 0)
        erase(world, "/a/b")
        assert state(world, "/a/b") is State.SOFTERASED
        world.crash()
        world = make_stored(prefix=world.prefix)
        assert state(world, "/a/b") is State.SOFTERASED
        take_all(again(joe, world))
        for _ in range(3):
            world.sweep_after(0.1)
        assert state(world, "/a/b") is State.DEAD
        assert "/a/b" not in world.broker.topics.table.known
        assert world.wait(world.store.reader.smembers(world.store.keys.topics)) == set()
        assert not world.wait(world.store.reader.exists(world.store.keys.topic("/a/b")))

    @pytest.mark.parametrize("how", ["publish", "subscribe", "configure"])
    def test_one_that_has_begun_again_is_alive(self, make_stored: MakeStored, how: str) -> None:
        world = make_stored()
        Receiver(world).started("/a/*", name="joe/1", persistent=True)
        store(world, "/a/b", 0)
        erase(world, "/a/b")
        other = Receiver(world).started(name="ann/1", persistent=True)
        if how == "publish":
            store(world, "/a/b", 1)
        elif how == "configure":
            publish(other, "/a/b", 1, administrative=True, history={"maxEntries": 7})
        else:
            other.subscribe("/a/b")
        assert state(world, "/a/b") is State.ALIVE
        world.settle()
        world.crash()
        world = make_stored(prefix=world.prefix)
        assert state(world, "/a/b") is State.ALIVE
        topic = world.broker.topics.table.find("/a/b")
        assert topic is not None
        assert topic.settings.history_max == (7 if how == "configure" else 0)


class TestGroups:
    @staticmethod
    def member(world: StoredWorld, name: str = "joe/1", pattern: str = "/a/b") -> Receiver:
        reader = Receiver(world).started(name=name, settle="message", persistent=True, burst={"maxEntries": 1})
        subscribe = {"subscribe": {"group": "crew"}}
        assert reader.say("/meta/subscribe", subscription=pattern, ext=subscribe)["successful"]
        return reader

    @pytest.mark.parametrize("pattern", PATTERNS)
    def test_a_gentle_erase_ends_nothing_that_waits_for_a_group(self, stored: StoredWorld, pattern: str) -> None:
        joe = self.member(stored, pattern=pattern)
        store(stored, "/a/b", 0, 1, 2, 3)
        erase(stored, "/a/b")
        assert state(stored, "/a/b") is State.SOFTERASED
        taken = take_all(joe)
        stored.sweep_after(0.1)
        assert data(taken + take_all(joe)) == [0, 1, 2, 3, None]
        assert {reason for _, reason, _ in stored.ended()} == {"settled"}
        assert joe.session.subscriptions == (set() if pattern == "/a/b" else {pattern})
        stored.sweep_after(0.1)
        assert state(stored, "/a/b") is State.DEAD
        assert stored.letters() == []

    def test_its_members_leave_at_once_where_nothing_waits(self, stored: StoredWorld) -> None:
        joe = self.member(stored)
        store(stored, "/a/b", 0)
        assert data(take_all(joe)) == [0]
        erase(stored, "/a/b")
        assert joe.session.subscriptions == set()
        assert data(take_all(joe)) == [None]

    def test_what_waits_for_a_group_outlives_a_restart(self, make_stored: MakeStored) -> None:
        world = make_stored()
        joe = self.member(world)
        store(world, "/a/b", 0, 1, 2, 3)
        erase(world, "/a/b")
        world.crash()
        world = make_stored(prefix=world.prefix)
        joe = again(joe, world)
        taken = take_all(joe)
        for _ in range(2):
            world.sweep_after(0.1)
        assert data(taken + take_all(joe)) == [0, 1, 2, 3, None]
        assert joe.session.subscriptions == set()
        world.sweep_after(0.1)
        assert state(world, "/a/b") is State.DEAD

    def test_a_publish_lets_the_group_go_on(self, stored: StoredWorld) -> None:
        joe = self.member(stored)
        store(stored, "/a/b", 0, 1)
        erase(stored, "/a/b")
        store(stored, "/a/b", 2)
        assert state(stored, "/a/b") is State.ALIVE
        taken = take_all(joe)
        stored.sweep_after(0.1)
        store(stored, "/a/b", 3)
        assert data(taken + take_all(joe)) == [0, 1, 2, 3]

    def test_a_new_member_lets_the_group_go_on(self, stored: StoredWorld) -> None:
        joe = self.member(stored)
        store(stored, "/a/b", 0, 1)
        erase(stored, "/a/b")
        self.member(stored, "ann/1")
        assert state(stored, "/a/b") is State.ALIVE
        take_all(joe)
        stored.sweep_after(0.1)
        assert joe.session.subscriptions == {"/a/b"}

    def test_by_force_what_waits_for_a_group_ends_as_erased(self, stored: StoredWorld) -> None:
        joe = self.member(stored)
        store(stored, "/a/b", 0, 1, 2, 3)
        erase(stored, "/a/b", force=True)
        assert state(stored, "/a/b") is State.DEAD
        assert data(take_all(joe)) == [None]
        assert [reason for _, reason, _ in stored.ended()] == ["erased"] * 4
        assert joe.session.subscriptions == set()


class TestPortions:
    """A large erase: no step of it is long, whatever waits in all."""

    @staticmethod
    def prepared(world: StoredWorld) -> None:
        for number in range(20):
            Receiver(world).started("/a/b", name=f"reader{number}/1", settle="message")

        async def published() -> None:
            await asyncio.gather(*(world.broker.publish_stored("/a/b", number) for number in range(500)))

        world.wait(published())
        world.commit()

    @pytest.mark.parametrize("is_away", [False, True])
    def test_the_store_is_told_of_some_before_others_end(self, stored: StoredWorld, is_away: bool) -> None:
        self.prepared(stored)
        if is_away:
            let_go(stored)
        erase(stored, "/a/b", force=True)
        stored.commit()
        facts: Any = stored.wait(stored.store.reader.xrange(stored.store.keys.facts))
        told = [orjson.loads(fields[b"d"]) for _, fields in facts if fields[b"t"] == b"ended"]
        counts = [sum(len(each["ids"]) for each in fact["ended"]) for fact in told]
        assert sum(counts) == 20 * 500
        assert max(counts) <= 3000

    @pytest.mark.parametrize("force", [False, True])
    def test_others_have_their_turn(self, stored: StoredWorld, monkeypatch: pytest.MonkeyPatch, force: bool) -> None:
        self.prepared(stored)
        monkeypatch.setattr(event_loop, "TURN_S", 0.0)
        count = 0

        async def counted() -> None:
            nonlocal count
            erasing = stored.loop.create_task(stored.broker.topics.endings.erase("/a/b", force=force))
            while not erasing.done():
                count += 1
                await asyncio.sleep(0)

        stored.wait(counted())
        assert count >= 20
