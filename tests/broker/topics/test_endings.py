"""How topics end: because nothing refers to them for long enough, and because somebody erases them."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from crewel.bayeux.channel import parse
from crewel.bayeux.codec import encode
from crewel.broker.topic import Topic
from crewel.broker.topics import endings
from crewel.broker.topics.references import QueuedTopics
from crewel.errors import StoreError, StoreUncertain
from crewel.nodes.node_requests import Request, TopicAnswer
from crewel.nodes.remote_topics import RemoteTopics
from crewel.storage import histories
from crewel.topics import State
from tests.broker.addressing.test_doubt import Line
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, data, ok, origin, store
from tests.broker.world import Client, World


@pytest.fixture(autouse=True)
def _looking_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine rests longer from looking through the queues."""
    monkeypatch.setattr(endings, "perf_counter", lambda: 0.0)


def publish(client: Client, name: str, value: Any = 1, **qos: Any) -> None:
    reply = client.publish(name, value, ext={"publish": qos})
    assert reply["successful"], reply


def erase(world: World, name: str, *, force: bool = False) -> bool:
    erased = world.loop.run_until_complete(world.broker.topics.endings.erase(name, force=force))
    world.settle()
    return erased


def state(world: World, name: str) -> State:
    return world.loop.run_until_complete(world.broker.topics.views.state(name))


class OtherNode:
    """The calls to another node, which has the same topics and queues, or always gives this answer. It answers when `is_open`
    is set."""

    def __init__(self, world: StoredWorld, answer: TopicAnswer | None = None) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.is_open = asyncio.Event()
        self._answering: dict[str, Any] = {}
        registry: Any = SimpleNamespace(others=lambda: [SimpleNamespace(token="other")])
        calls: Any = self
        remote = RemoteTopics(
            world.broker.runtime, world.broker.topics.views, world.broker.durability.topic_changes, registry, calls
        )
        world.cluster.shares = remote.shares  # type: ignore[method-assign, assignment]

    def serve(self, request: Request[Any, Any], answering: Any) -> None:
        self._answering[request.about] = answering

    async def ask(self, _: str, request: Request[Any, Any], question: Any) -> Any:
        self.asked.append(question.name)
        await self.is_open.wait()
        return self.answer or await self._answering[request.about](question)


@pytest.mark.parametrize("is_done", [False, True])
def test_a_repeated_end_leaves_a_message_that_came_in_between(make_stored: MakeStored, is_done: bool) -> None:
    rule = {"/h/**": {"history": {"max_entries": 5}, "destroy_delay_ms": 0}}
    world = make_stored(f"topics={encode(rule).decode()}")
    client = Client(world).joined()
    publish(client, "/h/a", lifeTime=0)
    line = Line(world, "erase", is_done=is_done)
    while line.left:
        world.sweep_after(1)
    publish(client, "/h/a", 2, persistent=True)
    world.advance(5)
    access = world.access
    (found,) = world.wait(world.store.run([histories.history(access.keys, access.token, "/h/a", newest=5)]))
    assert found.total == 1


class TestOtherNodes:
    @pytest.fixture
    def world(self, make_stored: MakeStored) -> StoredWorld:
        rule = {"/h/**": {"history": {"max_entries": 5}, "destroy_delay_ms": 0}}
        return make_stored("cluster.enabled=true", f"topics={encode(rule).decode()}")

    def test_topics_that_end_together_cost_another_node_one_look(
        self, world: StoredWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other, looks = OtherNode(world), list[None]()
        other.is_open.set()
        queued = QueuedTopics.queued

        async def count_looks(self: QueuedTopics) -> Any:
            looks.append(None)
            return await queued(self)

        monkeypatch.setattr(QueuedTopics, "queued", count_looks)
        client, names = Client(world).joined(), [f"/h/{number:03}" for number in range(200)]
        for name in names:
            publish(client, name, lifeTime=0)
        for _ in range(3):
            world.sweep_after(1)
        assert not world.broker.topics.table.known
        assert sorted(other.asked) == names
        assert len(looks) <= 3 + 2  # one a sweep, and those for the other node

    def test_another_node_is_not_asked_again_before_it_has_answered(self, world: StoredWorld) -> None:
        other = OtherNode(world)
        publish(Client(world).joined(), "/h/a", lifeTime=0)
        for _ in range(5):
            world.sweep_after(1)
        assert other.asked == ["/h/a"]
        other.is_open.set()
        world.sweep_after(1)
        assert not world.broker.topics.table.known

    def test_a_topic_that_comes_back_while_another_node_is_asked_stays(self, world: StoredWorld) -> None:
        """Its message waits for a session: neither the history nor the next sweep shows that anything refers to it."""
        other = OtherNode(world, TopicAnswer(State.DEAD, None, 0, 0, 0, [], True))
        client = Client(world).joined()
        publish(client, "/h/a", lifeTime=0)
        for _ in range(3):
            world.sweep_after(1)
        assert other.asked == ["/h/a"]
        receiver = Receiver(world).started("/h/*")
        publish(client, "/h/a", lifeTime=0)
        for _ in range(3):
            world.sweep_after(1)
        other.is_open.set()
        world.settle()
        assert list(world.broker.topics.table.known) == ["/h/a"]
        assert data(receiver.take()) == [1]


class TestTime:
    def test_a_topic_dies_that_nothing_refers_to_for_its_destroy_delay(self, world: World) -> None:
        publish(Client(world).joined(), "/a", destroyDelay=10_000)
        for _ in range(11):
            world.sweep_after(1)
            assert state(world, "/a") is State.UNREFERENCED
        world.sweep_after(1)
        assert state(world, "/a") is State.DEAD
        assert "/a" not in world.broker.topics.table.known

    def test_others_have_their_turn_between_topics(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ten thousand topics were one turn of 50 ms. One that comes back meanwhile stays."""
        monkeypatch.setattr("crewel.event_loop.TURN_S", 0.0)
        client = Client(world).joined()
        names = [f"/a/{number}" for number in range(10)]
        for name in names:
            publish(client, name, destroyDelay=0)
        world.broker.sweep()
        world.settle()
        topics = world.broker.topics
        check, events = topics.endings._check, list[str]()

        def noted(topic: Topic, *arguments: Any) -> None:
            if not events:
                world.loop.call_soon(lambda: publish(client, names[-1]))
            world.loop.call_soon(events.append, "others")
            events.append(topic.name)
            check(topic, *arguments)

        monkeypatch.setattr(topics.endings, "_check", noted)
        world.advance(1)
        world.broker.sweep()
        world.settle()
        assert events[:4] == [names[0], "others", names[1], "others"]
        assert list(topics.table.known) == names[-1:]

    def test_the_time_until_a_topic_dies_is_known(self, world: World) -> None:
        publish(Client(world).joined(), "/a", destroyDelay=10_000)
        left = []
        for _ in range(4):
            world.sweep_after(1)
            (view,) = world.loop.run_until_complete(world.broker.topics.views.all())
            left.append(view.dies_in_ms)
        assert left == [10_000, 10_000, 9000, 8000]

    def test_a_publish_begins_its_time_anew(self, world: World) -> None:
        client = Client(world).joined()
        publish(client, "/a", destroyDelay=3000)
        for _ in range(10):
            world.sweep_after(1)
            world.sweep_after(1)
            client.publish("/a", 2)
            assert state(world, "/a") is State.UNREFERENCED
        for _ in range(5):
            world.sweep_after(1)
        assert state(world, "/a") is State.DEAD

    @pytest.mark.parametrize(("delay_ms", "then"), [(0, State.DEAD), (-1, State.UNREFERENCED)])
    def test_a_topic_may_die_at_once_or_never(self, world: World, delay_ms: int, then: State) -> None:
        publish(Client(world).joined(), "/a", destroyDelay=delay_ms)
        for _ in range(2):
            world.sweep_after(1)
        assert state(world, "/a") is then
        world.sweep_after(100_000)
        assert state(world, "/a") is then

    def test_one_that_never_dies_tells_no_time(self, world: World) -> None:
        publish(Client(world).joined(), "/a", destroyDelay=-1)
        (view,) = world.loop.run_until_complete(world.broker.topics.views.all())
        assert view.dies_in_ms is None

    def test_a_subscription_to_its_name_keeps_it_and_a_wildcard_does_not(self, world: World) -> None:
        client = Client(world).joined("/a", "/b/*")
        for name in ("/a", "/b/c"):
            publish(client, name, destroyDelay=0)
        client.connect()
        for _ in range(3):
            world.sweep_after(1)
        assert state(world, "/a") is State.ALIVE
        assert state(world, "/b/c") is State.DEAD
        client.say("/meta/unsubscribe", subscription="/a")
        world.sweep_after(1)
        assert state(world, "/a") is State.DEAD

    def test_a_message_in_a_queue_keeps_it_until_it_is_settled(self, stored: StoredWorld) -> None:
        reader = Receiver(stored).started("/a/*", settle="message")
        publish(Receiver(stored).started(), "/a/b", persistent=True, destroyDelay=0)
        for _ in range(3):
            stored.sweep_after(0.1)
        assert state(stored, "/a/b") is State.ALIVE
        (message,) = reader.take()
        stored.sweep_after(0.1)
        assert state(stored, "/a/b") is State.ALIVE
        reader.take(ok(message))
        stored.sweep_after(0.1)
        assert state(stored, "/a/b") is State.DEAD

    def test_its_history_keeps_it_until_the_last_message_expires(self, stored: StoredWorld) -> None:
        publish(Receiver(stored).started(), "/a", history={"maxEntries": 3}, lifeTime=1, destroyDelay=0)
        topic = stored.broker.topics.table.find("/a")
        assert topic is not None
        assert topic.history_count == 1
        while topic.history_count:
            stored.broker.sweep()  # the store has a clock of its own
            stored.settle()
        for _ in range(3):
            stored.sweep_after(0.1)
        assert state(stored, "/a") is State.DEAD

    def test_one_sweep_removes_all_that_has_expired(
        self, make_stored: MakeStored, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = make_stored("topics./a.history.max_entries=9")
        monkeypatch.setattr(endings, "_EXPIRED_AT_ONCE", 2)
        sender = Receiver(world).started()
        for number in range(5):
            publish(sender, "/a", number, lifeTime=60_000)
        topic = world.broker.topics.table.find("/a")
        assert topic is not None
        assert topic.history_count == 5
        clock = world.broker.runtime.clock
        monkeypatch.setattr(world.broker.topics.endings, "_clock", lambda: clock() + 3600)
        world.broker.sweep()
        world.settle()
        assert topic.history_count == 0

    def test_the_store_forgets_it_too(self, make_stored: MakeStored) -> None:
        world = make_stored()
        publish(Receiver(world).started(), "/a", persistent=True, destroyDelay=0)
        assert "/a" in world.broker.topics.table.known
        assert world.wait(world.store.reader.smembers(world.store.keys.topics)) == {b"/a"}
        for _ in range(3):
            world.sweep_after(0.1)
            world.settle()
        assert world.wait(world.store.reader.smembers(world.store.keys.topics)) == set()

    def test_the_store_forgets_one_that_had_a_history_by_a_rule(self, make_stored: MakeStored) -> None:
        world = make_stored("topics./a.history.max_entries=3", "topics./a.destroy_delay_ms=0")
        publish(Receiver(world).started(), "/a", lifeTime=1)
        while "/a" in world.broker.topics.table.known:
            world.sweep_after(0.1)
        world.settle()
        assert world.wait(world.store.reader.smembers(world.store.keys.topics)) == set()
        assert not world.wait(world.store.reader.exists(world.store.keys.topic("/a")))

    def test_a_history_that_was_not_counted_is_found_before_the_topic_dies(self, stored: StoredWorld) -> None:
        publish(Receiver(stored).started(), "/a", history={"maxEntries": 3}, destroyDelay=0)
        topic = stored.broker.topics.table.find("/a")
        assert topic is not None
        topic.history_count = 0  # as if the answer had been lost
        for _ in range(3):
            stored.sweep_after(0.1)
        assert topic.history_count == 1
        assert state(stored, "/a") is State.ALIVE

    def test_a_topic_that_is_published_to_at_the_last_moment_does_not_die(self, stored: StoredWorld) -> None:
        sender = Client(stored).joined()
        publish(sender, "/a", persistent=True, destroyDelay=0)
        stored.sweep_after(0.1)
        stored.broker.sweep()  # the store is being asked
        stored.broker.publish("/a", 2)
        stored.settle()
        assert state(stored, "/a") is State.UNREFERENCED

    def test_while_the_server_goes_down_the_store_is_not_asked_any_more(
        self, stored: StoredWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        publish(Receiver(stored).started(), "/a", 1, history={"maxEntries": 3}, lifeTime=1)
        with monkeypatch.context() as patch:
            patch.setattr(stored.access.writing, "is_closed", True)
            patch.setattr(stored.access.writing, "submit", lambda step, done, **_: done(StoreError("away")))
            stored.sweep_after(1)
        assert "could not be removed" not in caplog.text

    def test_a_topic_does_not_die_while_the_store_does_not_answer(
        self, stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(Client(stored).joined(), "/a", persistent=True, destroyDelay=0)
        with monkeypatch.context() as patch:
            patch.setattr(stored.access.writing, "submit", lambda step, done, **_: done(StoreError("away")))
            for _ in range(3):
                stored.sweep_after(0.1)
            assert state(stored, "/a") is State.UNREFERENCED
        stored.sweep_after(0.1)
        assert state(stored, "/a") is State.DEAD

    def test_after_its_death_it_begins_anew(self, world: World) -> None:
        client = Client(world).joined()
        publish(client, "/a", destroyDelay=0)
        for _ in range(3):
            world.sweep_after(0.1)
        publish(client, "/a", destroyDelay=5)
        topic = world.broker.topics.table.find("/a")
        assert topic is not None
        assert topic.settings.destroy_delay_ms == 5

    def test_many_topics_are_looked_at_some_at_a_time(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(endings, "_LOOKED_AT", 3)
        client = Client(world).joined()
        for number in range(10):
            publish(client, f"/a/{number}", destroyDelay=0)
        for _ in range(4):
            world.sweep_after(0.1)
        assert len(world.broker.topics.table.known) == 10
        for _ in range(8):
            world.sweep_after(0.1)
        assert not world.broker.topics.table.known

    def test_looking_through_the_queues_is_rested_from(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        times = iter([0.0, 0.1] * 10)  # it takes a tenth of a second
        monkeypatch.setattr(endings, "perf_counter", lambda: next(times))
        client = Client(world).joined()
        publish(client, "/a", destroyDelay=0)
        publish(client, "/b", destroyDelay=3000)
        world.sweep_after(1)
        world.sweep_after(1)
        assert set(world.broker.topics.table.known) == {"/b"}
        for _ in range(4):
            world.sweep_after(1)
            assert set(world.broker.topics.table.known) == {"/b"}
        world.sweep_after(1)
        assert not world.broker.topics.table.known

    def test_what_the_store_does_not_answer_is_tried_again(
        self, stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        submit, asked = stored.access.writing.submit, []

        def failing(step: Any, done: Callable[[Any], None], **options: Any) -> None:
            asked.append(step.script)
            if len(asked) == 1:
                done(StoreError("away"))
            else:
                submit(step, done, **options)

        monkeypatch.setattr(stored.access.writing, "submit", failing)
        for _ in range(2):
            stored.sweep_after(0.1)
            stored.settle()
        assert asked == ["expire", "expire"]


class TestErase:
    def test_there_is_nothing_to_erase_of_a_topic_that_is_not_there(self, stored: StoredWorld) -> None:
        assert not erase(stored, "/a")

    @pytest.mark.parametrize("force", [False, True])
    def test_an_unreferenced_topic_is_dead(self, stored: StoredWorld, force: bool) -> None:
        publish(Receiver(stored).started(), "/a", destroyDelay=-1)
        assert state(stored, "/a") is State.UNREFERENCED
        assert erase(stored, "/a", force=force)
        assert state(stored, "/a") is State.DEAD
        assert not erase(stored, "/a", force=force)

    @pytest.mark.parametrize("force", [False, True])
    def test_its_history_goes(self, stored: StoredWorld, force: bool) -> None:
        publish(Receiver(stored).started(), "/a", history={"maxEntries": 3})
        assert erase(stored, "/a", force=force)
        assert state(stored, "/a") is State.DEAD
        assert not stored.wait(stored.store.reader.exists(stored.store.keys.history("/a")))

    def test_gently_what_waits_is_delivered_and_then_it_is_dead(self, stored: StoredWorld) -> None:
        reader = Receiver(stored).started("/a/*")
        publish(Receiver(stored).started(), "/a/b", 1, persistent=True, history={"maxEntries": 3})
        assert erase(stored, "/a/b")
        assert state(stored, "/a/b") is State.SOFTERASED
        assert data(reader.take()) == [1, None]
        reader.take()
        stored.sweep_after(0.1)
        assert state(stored, "/a/b") is State.DEAD
        assert "/a/b" not in stored.broker.topics.table.known

    def test_by_force_what_waits_ends(self, stored: StoredWorld) -> None:
        waiting = Receiver(stored).started("/a/*")
        sent = Receiver(stored).started("/a/*", settle="message")
        sender = Receiver(stored).started()
        publish(sender, "/a/b", 1, persistent=True)
        publish(sender, "/a/b", 2)
        publish(sender, "/a/c", 3, persistent=True)
        assert data(sent.take()) == [1, 2, 3]
        assert erase(stored, "/a/b", force=True)
        assert state(stored, "/a/b") is State.DEAD
        assert data(waiting.take()) == [3, None]
        assert data(sent.take()) == [None]
        ended = [(reason, session) for session, reason, _ in stored.ended() if reason == "erased"]
        assert sorted(ended) == [("erased", each.session.name) for each in (waiting, sent)]
        assert state(stored, "/a/c") is State.ALIVE

    def test_by_force_what_waits_for_one_who_is_away_ends(self, make_stored: MakeStored) -> None:
        world = make_stored()
        Receiver(world).started("/a/*", name="joe/1", persistent=True)
        store(world, "/a/b", 1)
        world.crash()
        again = make_stored(prefix=world.prefix)
        assert state(again, "/a/b") is State.ALIVE
        assert erase(again, "/a/b", force=True)
        assert [each[1] for each in again.ended()] == ["erased"]
        joe = Receiver(again)
        assert joe.handshake(ext={"ack": True, "session": {"name": "joe/1", "update": True}})["successful"]
        assert data(joe.take()) == [None]

    def test_by_force_what_waits_for_an_ending_session_ends(self, stored: StoredWorld) -> None:
        reader = Receiver(stored).started("/a/*", name="joe/1")
        store(stored, "/a/b", 1)
        durable = reader.session.durable
        assert durable is not None
        durable.connected = None
        erase(stored, "/a/b", force=True)
        assert len(durable) == 0

    def test_a_session_without_acknowledgement_loses_what_waits_as_well(self, world: World) -> None:
        reader, sender = Client(world).joined("/a/*"), Client(world).joined()
        sender.publish("/a/b", 1)
        sender.publish("/a/c", 2)
        assert erase(world, "/a/b", force=True)
        assert [each["data"] for each in reader.connect().answer if "data" in each] == [2]

    def test_subscriptions_to_its_name_end_and_wildcards_stay(self, stored: StoredWorld) -> None:
        reader, plain = Receiver(stored).started("/a/b", "/a/*"), Client(stored).joined("/a/b")
        sender = Receiver(stored).started()
        publish(sender, "/a/b", 1, persistent=True)
        erase(stored, "/a/b")
        assert reader.session.subscriptions == {"/a/*"}
        assert plain.session.subscriptions == set()
        publish(sender, "/a/b", 2, persistent=True)
        assert data(reader.take()) == [1, None, 2]

    def test_who_only_waits_for_a_topic_loses_the_subscription_too(self, stored: StoredWorld) -> None:
        reader = Receiver(stored).started("/a")
        assert state(stored, "/a") is State.UNCONFIGURED
        assert erase(stored, "/a")
        assert state(stored, "/a") is State.DEAD
        assert reader.session.subscriptions == set()

    def test_a_publish_begins_it_anew(self, stored: StoredWorld) -> None:
        reader, sender = Receiver(stored).started("/a/*"), Receiver(stored).started()
        publish(sender, "/a/b", 1, persistent=True, history={"maxEntries": 3})
        erase(stored, "/a/b")
        publish(sender, "/a/b", 2, persistent=True, history={"maxEntries": 7})
        view = stored.wait(stored.broker.topics.views.of("/a/b"))
        assert view is not None
        assert (view.state, view.history, view.settings.history_max) == (State.ALIVE, 1, 7)
        assert data(reader.take()) == [1, None, 2]

    def test_a_subscription_to_its_name_brings_it_back(self, stored: StoredWorld) -> None:
        reader, other = Receiver(stored).started("/a/*"), Receiver(stored).started()
        publish(other, "/a/b", 1, persistent=True)
        erase(stored, "/a/b")
        other.subscribe("/a/b")
        assert state(stored, "/a/b") is State.ALIVE
        reader.take()
        reader.take()
        assert state(stored, "/a/b") is State.ALIVE

    def test_one_that_is_subscribed_to_and_has_been_delivered_waits_to_be_configured(self, stored: StoredWorld) -> None:
        reader, other = Receiver(stored).started("/a/*"), Receiver(stored).started()
        publish(other, "/a/b", 1, persistent=True)
        erase(stored, "/a/b")
        reader.take()
        reader.take()
        other.subscribe("/a/b")
        stored.sweep_after(0.1)
        assert state(stored, "/a/b") is State.UNCONFIGURED
        other.say("/meta/unsubscribe", subscription="/a/b")
        stored.sweep_after(0.1)
        assert state(stored, "/a/b") is State.DEAD
        assert "/a/b" not in stored.broker.topics.table.known

    def test_a_publish_that_is_under_way_belongs_to_the_topic_that_begins(self, stored: StoredWorld) -> None:
        sender = Receiver(stored).started()
        publish(sender, "/a", 1, history={"maxEntries": 3})
        topics, broker = stored.broker.topics, stored.broker

        async def both() -> None:
            erasing = broker.loop.create_task(topics.endings.erase("/a", force=True))
            while (topic := topics.table.known["/a"]) and not topic.is_erased:
                await asyncio.sleep(0)
            await broker.publish_stored("/a", 2, qos={"history": {"maxEntries": 5}})
            await erasing

        stored.wait(both())
        view = stored.wait(topics.views.of("/a"))
        assert view is not None
        assert (view.state, view.history, view.settings.history_max) == (State.ALIVE, 1, 5)

    def test_if_the_store_refuses_nothing_has_changed(
        self, stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reader = Receiver(stored).started("/a")
        publish(Receiver(stored).started(), "/a", 1, history={"maxEntries": 3})
        monkeypatch.setattr(stored.access.writing, "submit", lambda step, done, **_: done(StoreError("away")))
        with pytest.raises(StoreError):
            erase(stored, "/a")
        assert state(stored, "/a") is State.ALIVE
        assert reader.session.subscriptions == {"/a"}

    def test_if_nobody_knows_what_the_store_did_it_is_asked_until_it_answers(
        self, stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(Receiver(stored).started(), "/a", 1, history={"maxEntries": 3})
        submit, asked = stored.access.writing.submit, []

        def losing(step: Any, done: Callable[[Any], None], **options: Any) -> None:
            asked.append((step.script, options))
            first = len(asked) == 1
            submit(step, (lambda _: done(StoreUncertain("no answer"))) if first else done, **options)

        monkeypatch.setattr(stored.access.writing, "submit", losing)
        assert erase(stored, "/a")
        assert [each for each in asked if each[0] == "erase"] == [("erase", {}), ("erase", {"retries": True})]
        assert state(stored, "/a") is State.DEAD

    def test_a_topic_stays_erased_after_a_restart(self, make_stored: MakeStored) -> None:
        world = make_stored()
        publish(Receiver(world).started(), "/a", 1, history={"maxEntries": 3})
        erase(world, "/a")
        world.crash()
        assert state(make_stored(prefix=world.prefix), "/a") is State.DEAD


class TestSharedQueues:
    """What waits for a subject or a group lies in the store, and refers to its topic all the same."""

    @staticmethod
    def send(world: StoredWorld, **qos: Any) -> None:
        """Send joe, who is not there, a message on /a, and one on /b."""
        sender = Receiver(world).started()
        for name in ("/a", "/b"):
            publish(sender, name, 1, destination=[{"to": "client/joe", "forceQueuing": True}], **qos)

    @staticmethod
    def come(world: StoredWorld) -> Receiver:
        """Joe, who has got nothing yet."""
        joe = Receiver(world)
        assert joe.handshake(ext={"ack": True, "session": {"name": "joe/1", "update": True}})["successful"]
        world.settle()
        return joe

    def test_a_message_for_somebody_who_is_not_there_keeps_its_topic(self, stored: StoredWorld) -> None:
        self.send(stored, destroyDelay=0)
        for _ in range(3):
            stored.sweep_after(0.1)
            stored.wait(stored.store.reader.ping())
            stored.settle()
        assert state(stored, "/a") is State.ALIVE
        (view,) = [each for each in stored.wait(stored.broker.topics.views.all()) if each.name == "/a"]
        assert view.queued == 1

    def test_gently_erased_it_is_dead_when_the_message_has_been_delivered(self, stored: StoredWorld) -> None:
        self.send(stored)
        assert erase(stored, "/a")
        assert state(stored, "/a") is State.SOFTERASED
        joe = self.come(stored)
        assert data(joe.take()) == [1, 1]
        joe.take()
        assert state(stored, "/a") is State.DEAD

    def test_by_force_it_ends(self, stored: StoredWorld) -> None:
        self.send(stored)
        assert erase(stored, "/a", force=True)
        assert state(stored, "/a") is State.DEAD
        joe = self.come(stored)
        assert [each["channel"] for each in joe.take()] == ["/b"]

    def test_without_the_store_nothing_dies_and_the_rest_is_told(
        self, stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.send(stored, destroyDelay=0)

        async def refused(*_: Any) -> None:
            raise StoreError("away")

        monkeypatch.setattr(stored.broker.addressing.shared_queues, "peek", refused)
        for _ in range(3):
            stored.sweep_after(0.1)
        assert "/a" in stored.broker.topics.table.known
        assert state(stored, "/a") is State.UNREFERENCED


class TestNotices:
    def test_all_are_told_who_hear_it_and_are_told_the_origin(self, stored: StoredWorld) -> None:
        literal, wide = Receiver(stored).started("/a/b"), Receiver(stored).started("/a/*")
        plain = Client(stored).joined("/a/b")
        other = Receiver(stored).started("/c/*")
        publish(other, "/a/b", 1, history={"maxEntries": 3})
        for reader in (literal, wide):
            reader.take()
        assert [each["data"] for each in plain.connect().answer if "data" in each] == [1]
        erase(stored, "/a/b")
        for reader in (literal, wide):
            (notice,) = reader.take()
            assert (notice["channel"], notice["data"], origin(notice)["state"]) == ("/a/b", None, "ERASED")
            assert origin(notice)["id"]
        assert other.take() == []
        assert plain.connect().is_held

    def test_who_is_subscribed_twice_is_told_once(self, stored: StoredWorld) -> None:
        reader = Receiver(stored).started("/a/b", "/a/*", "/**")
        publish(Receiver(stored).started(), "/a/b", 1, history={"maxEntries": 3})
        reader.take()
        erase(stored, "/a/b")
        assert len(reader.take()) == 1

    def test_who_does_not_want_to_know_is_not_told(self, stored: StoredWorld) -> None:
        reader = Receiver(stored).started()
        asked = {"notify": False, "initialUpdate": False}
        reply = reader.say("/meta/subscribe", subscription="/a/*", ext={"subscribe": asked})
        assert reply["successful"], reply
        publish(Receiver(stored).started(), "/a/b", 1, destroyDelay=-1)
        reader.take()
        erase(stored, "/a/b")
        assert reader.take() == []

    def test_a_notice_refers_to_no_topic(self, stored: StoredWorld) -> None:
        Receiver(stored).started("/a/*")
        publish(Receiver(stored).started(), "/a/b", 1, destroyDelay=-1, subscribable=True, lifeTime=0)
        erase(stored, "/a/b", force=True)
        assert state(stored, "/a/b") is State.DEAD

    def test_a_notice_for_a_full_queue_makes_no_letter(self, stored: StoredWorld) -> None:
        reader = Receiver(stored).started("/a/*", name="joe/1", queue={"maxEntries": 1})
        publish(Receiver(stored).started(), "/a/b", 1, persistent=True)
        erase(stored, "/a/b")
        assert stored.letters() == []
        assert data(reader.take()) == [1, None]


def test_the_table_of_states_is_what_the_server_goes_by(stored: StoredWorld) -> None:
    channel = parse("/a")
    assert channel is not None
    assert state(stored, "/a") is State.DEAD
    stored.broker.topics.table.plain(channel)
    assert state(stored, "/a") is State.UNREFERENCED
