"""TopicTable: how a publish makes and configures them, what the store keeps of them, and what operators see."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from crewel.bayeux.channel import Channel, parse
from crewel.broker.writing.store_phase import StorePhase
from crewel.errors import StoreError, StoreFull, StoreUnavailable, StoreUncertain
from crewel.qos.publish import DEFAULT, PublishQos
from crewel.topics import USUAL, State, TopicSettings
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, data
from tests.broker.world import Client, MakeWorld, World
from tests.work import instructions


def channel(name: str) -> Channel:
    found = parse(name)
    assert found is not None
    return found


def publish(client: Client, name: str, value: Any = 1, **qos: Any) -> dict[str, Any]:
    """The answer to a publish with these qualities."""
    reply = client.publish(name, value, ext={"publish": qos})
    assert reply["successful"], reply
    return reply


def administer(world: World, **changed: Any) -> Any:
    """What an operator says of the topic /a, and what has to be waited for."""
    topics = world.broker.topics.table
    return topics.administer(channel("/a"), replace(topics.administered(channel("/a")), **changed))


def state(world: World, name: str) -> State:
    return world.loop.run_until_complete(world.broker.topics.views.state(name))


def history(name: str, count: int) -> str:
    return f"topics.{name}.history.max_entries={count}"


def refusing(error: StoreError) -> Callable[..., None]:
    """In the place of `Store.submit`: every step is answered so."""
    return lambda steps, answered: answered([error] * len(steps))


class TestPlainChannels:
    def test_a_publish_makes_a_topic_that_asks_for_nothing(self, world: World) -> None:
        topics = world.broker.topics.table
        assert topics.find("/a") is None
        assert topics.plain(channel("/a"))
        topic = topics.find("/a")
        assert topic is not None
        assert topic.settings == USUAL
        assert world.broker.topics.table.usual(channel("/a")) is DEFAULT

    def test_the_channel_is_known_by_it(self, world: World) -> None:
        world.broker.topics.table.plain(channel("/a"))
        assert "/a" in world.broker.addressing.channels

    def test_a_channel_that_was_forgotten_meanwhile_finds_its_topic_again(self, world: World) -> None:
        client = Client(world).joined()
        publish(client, "/a", destroyDelay=-1)
        for _ in range(4):
            world.sweep_after(1)
        assert "/a" not in world.broker.addressing.channels
        client.publish("/a", 2)
        topic = world.broker.topics.table.find("/a")
        assert topic is not None
        assert topic.settings.destroy_delay_ms == -1

    def test_what_answers_a_request_makes_no_topic(self, world: World) -> None:
        assert world.broker.topics.table.plain(channel("/ret/0123456789abcdef/3000001"))
        assert not world.broker.topics.table.known


class TestConfiguration:
    def test_the_first_publish_says_what_the_topic_is_like_and_later_ones_do_not(self, world: World) -> None:
        client = Client(world).joined()
        publish(client, "/a", destroyDelay=5)
        publish(client, "/a", destroyDelay=7)
        topic = world.broker.topics.table.find("/a")
        assert topic is not None
        assert topic.settings == TopicSettings(destroy_delay_ms=5)
        assert not world.broker.topics.table.plain(channel("/a"))

    def test_an_administrative_publish_says_it_anew_and_is_delivered_to_nobody(self, world: World) -> None:
        client, reader = Client(world).joined(), Client(world).joined("/a")
        publish(client, "/a", 1, destroyDelay=5)
        publish(client, "/a", 2, administrative=True, destroyDelay=7)
        assert [each["data"] for each in reader.connect().answer if "data" in each] == [1]
        topic = world.broker.topics.table.find("/a")
        assert topic is not None
        assert topic.settings.destroy_delay_ms == 7

    def test_what_an_administrative_publish_does_not_name_stays(self, world: World) -> None:
        topics = world.broker.topics.table
        topics.publish(channel("/a"), PublishQos(destroy_delay_ms=5, history_max=3))
        assert topics.administered(channel("/a")).history_max == 3
        assert topics.administered(channel("/b")) is DEFAULT

    def test_a_configuration_makes_a_topic_before_the_first_publish(self, world: World) -> None:
        client = Client(world).joined()
        publish(client, "/a", administrative=True, destroyDelay=9)
        assert state(world, "/a") is State.UNREFERENCED

    def test_a_rule_says_what_a_publish_does_not(self, make_world: MakeWorld) -> None:
        world = make_world("topics./chat/**.priority=HIGH", "topics./chat/**.destroy_delay_ms=5")
        topics = world.broker.topics.table
        assert topics.usual(channel("/chat/a")) == PublishQos(priority=7, destroy_delay_ms=5)
        assert topics.usual(channel("/other")) is DEFAULT
        assert not topics.plain(channel("/chat/a"))
        assert topics.plain(channel("/other"))
        topic = topics.find("/chat/a")
        assert topic is not None
        assert topic.settings.destroy_delay_ms == 5

    def test_the_pattern_of_a_rule_may_end_in_a_slash(self, make_world: MakeWorld) -> None:
        assert make_world("topics./a/.priority=1").broker.topics.table.usual(channel("/a")).priority == 1

    def test_a_rule_may_say_that_messages_are_numbered(self, make_world: MakeWorld) -> None:
        topics = make_world("topics./feed/*.replay=true").broker.topics.table
        assert topics.is_replayed(channel("/feed/a"))
        assert not topics.is_replayed(channel("/other"))

    def test_a_group_makes_its_channels_less_than_plain(self, world: World) -> None:
        topics, groups = world.broker.topics.table, world.broker.addressing.groups
        assert topics.plain(channel("/a/b"))
        groups.add_elsewhere("group:/other/* g")
        assert topics.plain(channel("/a/b"))
        groups.add_elsewhere("group:/a/* g")
        assert not topics.plain(channel("/a/b"))
        groups.remove_elsewhere("group:/a/* g")
        assert topics.plain(channel("/a/b"))

    def test_a_group_costs_the_same_however_many_topics_there_are(self, make_world: MakeWorld) -> None:
        costs = {}
        for topics in (few := 20, many := 420):
            world = make_world()
            for number in range(topics):
                world.broker.publish(f"/known/{number}", 1)
            groups = world.broker.addressing.groups
            costs[topics] = instructions(partial(groups.add_elsewhere, "group:/a/* g"))
            costs[topics] += instructions(partial(groups.remove_elsewhere, "group:/a/* g"))
        assert costs[many] - costs[few] < many - few, costs

    def test_a_group_with_the_name_of_the_topic_refers_to_it(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            world.broker.addressing.groups, "on", lambda each: ("group:/a g",) if each.name == "/a" else ()
        )
        assert state(world, "/a") is State.UNCONFIGURED
        monkeypatch.setattr(world.broker.addressing.groups, "on", lambda each: ("group:/** g",))
        assert state(world, "/a") is State.DEAD


class TestTheStore:
    def test_what_was_asked_for_is_there_after_a_restart(self, make_stored: MakeStored) -> None:
        world = make_stored()
        sender = Receiver(world).started()
        publish(sender, "/a", 1, history={"maxEntries": 3}, destroyDelay=-1)
        publish(sender, "/a", 2)
        before = world.wait(world.broker.topics.views.of("/a"))
        world.crash()
        view = (again := make_stored(prefix=world.prefix)).wait(again.broker.topics.views.of("/a"))
        assert before is not None
        assert view is not None
        assert (view.state, view.history, view.settings) == (State.ALIVE, 2, TopicSettings(3, destroy_delay_ms=-1))
        assert view.epoch == before.epoch != ""
        assert view.newest == before.newest != 0

    def test_what_a_rule_says_follows_the_rule(self, make_stored: MakeStored) -> None:
        world = make_stored(history("/a", 3))
        publish(Receiver(world).started(), "/a", 1, destroyDelay=-1, persistent=True)
        world.crash()
        again = make_stored(history("/a", 5), prefix=world.prefix)
        topic = again.broker.topics.table.find("/a")
        assert topic is not None
        assert topic.settings == TopicSettings(5, destroy_delay_ms=-1)

    def test_a_topic_by_rules_alone_comes_back_with_its_history(self, make_stored: MakeStored) -> None:
        world = make_stored(history("/**", 3))
        Receiver(world).started().publish("/a", 1)
        world.crash()
        again = make_stored(history("/**", 3), prefix=world.prefix)
        assert state(again, "/a") is State.ALIVE
        assert state(again, "/b") is State.DEAD

    def test_a_plain_channel_is_forgotten_unless_a_message_waits(self, make_stored: MakeStored) -> None:
        world = make_stored()
        joe = Receiver(world).started("/a/*", name="joe/1", persistent=True)
        sender = Receiver(world).started()
        publish(sender, "/a/waits", 1, persistent=True)
        publish(sender, "/b", 1, persistent=True)
        world.crash()
        again = make_stored(prefix=world.prefix)
        assert joe.login["durable"]
        assert state(again, "/a/waits") is State.ALIVE
        assert state(again, "/b") is State.DEAD

    def test_an_administrative_publish_is_answered_when_it_is_stored(self, make_stored: MakeStored) -> None:
        world = make_stored()
        publish(Receiver(world).started(), "/a", administrative=True, destroyDelay=77)
        world.crash()
        topic = make_stored(prefix=world.prefix).broker.topics.table.find("/a")
        assert topic is not None
        assert topic.settings.destroy_delay_ms == 77

    def test_taking_its_history_away_removes_what_was_in_it(self, make_stored: MakeStored) -> None:
        world = make_stored()
        sender = Receiver(world).started()
        publish(sender, "/a", 1, history={"maxEntries": 3})
        publish(sender, "/a", 2, administrative=True, history={"maxEntries": 0})
        view = world.wait(world.broker.topics.views.of("/a"))
        assert view is not None
        assert (view.state, view.history) == (State.UNREFERENCED, 0)
        publish(sender, "/a", 3)
        world.crash()
        again = make_stored(prefix=world.prefix)
        topic = again.broker.topics.table.find("/a")
        assert topic is None or topic.history_count == 0

    @pytest.mark.parametrize("rule", [0, 2], ids=["asked", "as the rule says"])
    def test_a_history_that_is_made_shorter_loses_its_oldest_at_once(self, make_stored: MakeStored, rule: int) -> None:
        world = make_stored(history("/a", rule))
        sender = Receiver(world).started()
        for value in range(5):
            publish(sender, "/a", value, history={"maxEntries": 5})
        publish(sender, "/a", administrative=True, history={"maxEntries": 2})
        topic = world.broker.topics.table.find("/a")
        view = world.wait(world.broker.topics.views.of("/a"))
        assert topic is not None
        assert view is not None
        assert topic.history_count == view.history == 2
        world.crash()
        again = make_stored(history("/a", rule), prefix=world.prefix).broker.topics.table.find("/a")
        assert again is not None
        assert (again.history_count, again.settings.history_max) == (2, 2)

    def test_the_count_stops_at_what_the_history_keeps(self, make_stored: MakeStored) -> None:
        world = make_stored(history("/a", 2))
        sender = Receiver(world).started()
        for value in range(5):
            sender.publish("/a", value)
        topic = world.broker.topics.table.find("/a")
        view = world.wait(world.broker.topics.views.of("/a"))
        assert topic is not None
        assert view is not None
        assert topic.history_count == view.history == 2

    @pytest.mark.parametrize(
        "asked",
        [{"lifeTime": 0}, {"lifeTime": 0, "persistent": True}, {"destination": [{"to": "client/joe/1"}]}],
        ids=["volatile", "volatile and stored", "addressed"],
    )
    def test_a_readonly_topic_with_its_message_takes_nothing_that_would_not_go_into_its_history(
        self, stored: StoredWorld, asked: dict[str, Any]
    ) -> None:
        sender, joe = Receiver(stored).started(), Receiver(stored).started("/a", name="client/joe/1")
        publish(sender, "/a", 1, readonly=True)
        reply = sender.publish("/a", 2, ext={"publish": asked})
        assert reply["error"] == "409:/a:user.publish.readonly"
        assert data(joe.take()) == [1]

    def test_what_is_volatile_goes_into_no_history(self, make_stored: MakeStored) -> None:
        world = make_stored(history("/a", 2))
        publish(Receiver(world).started(), "/a", 1, lifeTime=0)
        topic = world.broker.topics.table.find("/a")
        assert topic is not None
        assert topic.history_count == 0

    @pytest.mark.parametrize(
        "asked", [{"history": {"maxEntries": 0}}, {"history": {"maxEntries": 2}}, {"readonly": True}]
    )
    def test_an_administrative_publish_that_could_not_be_stored_changes_nothing(
        self, stored: StoredWorld, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
    ) -> None:
        sender = Receiver(stored).started()
        for value in range(4):
            publish(sender, "/a", value, history={"maxEntries": 9})
        topic = stored.broker.topics.table.find("/a")
        assert topic is not None
        before = topic.settings
        with monkeypatch.context() as patch:
            patch.setattr(stored.access.writing, "submit", lambda step, done, **_: done(StoreError("away")))
            reply = sender.publish("/a", None, ext={"publish": {"administrative": True, **asked}})
        assert reply["error"].startswith("503:")
        assert topic.settings == before
        assert topic.history_count == 4
        assert publish(sender, "/a", 5)
        assert topic.history_count == 5

    @pytest.mark.parametrize(
        "asked",
        [
            {"persistent": True, "destroyDelay": 5},
            {"persistent": True, "readonly": True},
            {"history": {"maxEntries": 2}},
            {"administrative": True, "history": {"maxEntries": 2}},
        ],
    )
    @pytest.mark.parametrize("is_full", [True, False], ids=["full", "away"])
    def test_a_first_publish_that_the_store_refuses_makes_no_topic(
        self, make_stored: MakeStored, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], *, is_full: bool
    ) -> None:
        stored = make_stored()
        sender = Receiver(stored).started()
        with monkeypatch.context() as patch:
            patch.setattr(stored.store, "submit", refusing(StoreFull("full") if is_full else StoreUnavailable("away")))
            patch.setattr(stored.store, "is_full", is_full)
            for _ in range(2):
                reply = sender.publish("/a", 1, ext={"publish": asked})
                assert reply["error"].startswith("503:")
        assert stored.broker.topics.table.find("/a") is None
        assert make_stored(prefix=stored.prefix).broker.topics.table.find("/a") is None

    def test_what_a_refused_publish_asked_for_does_not_hold_for_the_next_one(
        self, stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sender = Receiver(stored).started()
        with monkeypatch.context() as patch:
            patch.setattr(stored.store, "submit", refusing(StoreUnavailable("away")))
            sender.publish(
                "/a", 1, ext={"publish": {"persistent": True, "readonly": True, "history": {"maxEntries": 9}}}
            )
        publish(sender, "/a", persistent=True, destroyDelay=7)
        topic = stored.broker.topics.table.find("/a")
        assert topic is not None
        assert topic.settings == TopicSettings(destroy_delay_ms=7)

    @pytest.mark.parametrize("rule", ["topics./a.persistent=true", "topics./b.persistent=true"])
    def test_a_refused_publish_leaves_the_topic_that_was_there(
        self, make_stored: MakeStored, monkeypatch: pytest.MonkeyPatch, rule: str
    ) -> None:
        world = make_stored(rule)
        sender = Receiver(world).started()
        assert sender.publish("/a", 1)["successful"]
        with monkeypatch.context() as patch:
            patch.setattr(world.store, "submit", refusing(StoreUnavailable("away")))
            assert not sender.publish("/a", 1, ext={"publish": {"persistent": True}})["successful"]
        assert world.broker.topics.table.find("/a") is not None

    def test_without_a_store_a_publish_that_wants_one_makes_no_topic(self, world: World) -> None:
        reply = Client(world).joined().publish("/a", 1, ext={"publish": {"history": {"maxEntries": 2}}})
        assert reply["error"].startswith("503:")
        assert world.broker.topics.table.find("/a") is None

    def test_a_plain_publish_that_a_rule_stores_makes_no_topic_if_it_is_refused(
        self, make_stored: MakeStored, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = make_stored("topics./a.persistent=true")
        sender = Receiver(world).started()
        with monkeypatch.context() as patch:
            patch.setattr(world.store, "submit", refusing(StoreUnavailable("away")))
            assert not sender.publish("/a", 1)["successful"]
        assert world.broker.topics.table.find("/a") is None

    def test_nobody_knows_whether_a_publish_whose_answer_was_lost_made_a_topic(
        self, stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sender = Receiver(stored).started()
        with monkeypatch.context() as patch:
            patch.setattr(stored.store, "submit", refusing(StoreUncertain("late")))
            assert not sender.publish("/a", 1, ext={"publish": {"persistent": True}})["successful"]
        assert stored.broker.topics.table.find("/a") is not None

    def test_a_history_is_counted_again_when_a_message_is_found_whose_answer_was_lost(
        self, stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sender = Receiver(stored).started()
        publish(sender, "/a", 1, history={"maxEntries": 3})
        submit = stored.store.submit
        with monkeypatch.context() as patch:
            patch.setattr(
                stored.store,
                "submit",
                lambda steps, done: submit(steps, lambda answers: done([StoreUncertain("late") for _ in answers])),
            )
            assert not sender.publish("/a", 2)["successful"]
        topic = stored.broker.topics.table.find("/a")
        assert topic is not None
        assert topic.history_count == 1
        stored.access.writing.probe()
        stored.settle()
        (newest,) = stored.wait(stored.store.reader.xrevrange(stored.store.keys.history("/a"), count=1))
        assert (topic.history_count, topic.newest) == (2, int(newest[0].partition(b"-")[0]))

    def test_nobody_knows_what_the_store_made_of_an_administrative_publish(
        self, stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sender = Receiver(stored).started()
        for value in range(4):
            publish(sender, "/a", value, history={"maxEntries": 9})
        with monkeypatch.context() as patch:
            patch.setattr(stored.access.writing, "submit", lambda step, done, **_: done(StoreUncertain("late")))
            sender.publish("/a", None, ext={"publish": {"administrative": True, "history": {"maxEntries": 2}}})
        topic = stored.broker.topics.table.find("/a")
        assert topic is not None
        assert (topic.settings.history_max, topic.history_count) == (2, 2)
        assert not topic.is_stored

    def test_settings_that_could_not_be_stored_are_stored_with_the_next_publish(
        self, stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sender = Receiver(stored).started()
        asked: list[str] = []
        submit = stored.access.writing.submit

        def failing(step: Any, done: Callable[[Any], None], **options: Any) -> None:
            if step.script == "configure" and not asked:
                asked.append(step.script)
                done(StoreError("no room"))
            else:
                submit(step, done, **options)

        monkeypatch.setattr(stored.access.writing, "submit", failing)
        publish(sender, "/a", 1, history={"maxEntries": 3})
        topic = stored.broker.topics.table.find("/a")
        assert topic is not None
        assert not topic.is_stored
        publish(sender, "/a", 2)
        assert topic.is_stored
        assert topic.epoch

    def test_when_the_store_has_lost_something_histories_begin_a_new_epoch(self, stored: StoredWorld) -> None:
        sender = Receiver(stored).started()
        publish(sender, "/a", 1, history={"maxEntries": 3})
        sender.publish("/plain", 1)
        before = stored.wait(stored.broker.topics.views.of("/a"))
        stored.access.phase = StorePhase.CATCHING_UP
        stored.wait(stored.broker.topics.table.restore(stored.wait(stored.broker.topics.table.stored())))
        stored.access.phase = StorePhase.SERVING
        view = stored.wait(stored.broker.topics.views.of("/a"))
        assert before is not None
        assert view is not None
        assert view.epoch not in {"", before.epoch}
        assert (view.history, view.newest, view.settings) == (1, before.newest, before.settings)
        assert state(stored, "/plain") is State.UNREFERENCED

    def test_what_the_store_has_lost_altogether_is_no_history_any_more(self, stored: StoredWorld) -> None:
        publish(Receiver(stored).started(), "/a", 1, history={"maxEntries": 3})
        keys = stored.store.keys
        stored.wait(stored.store.reader.delete(keys.topics, keys.topic("/a"), keys.history("/a")))
        stored.wait(stored.broker.topics.table.restore(stored.wait(stored.broker.topics.table.stored())))
        topic = stored.broker.topics.table.find("/a")
        assert topic is not None
        assert (topic.history_count, topic.epoch, topic.is_stored) == (0, "", False)

    def test_clearing_removes_the_history_and_leaves_the_topic(self, stored: StoredWorld) -> None:
        sender = Receiver(stored).started("/a")
        publish(sender, "/a", 1, history={"maxEntries": 3})
        publish(sender, "/a", 2)
        before = stored.wait(stored.broker.topics.views.of("/a"))
        assert stored.wait(stored.broker.topics.table.clear("/a")) == 2
        assert stored.wait(stored.broker.topics.table.clear("/unknown")) == 0
        view = stored.wait(stored.broker.topics.views.of("/a"))
        assert before is not None
        assert view is not None
        assert (view.state, view.history, view.settings.history_max) == (State.ALIVE, 0, 3)
        assert view.epoch != before.epoch
        publish(sender, "/a", 3)
        assert data(sender.take()) == [1, 2, 3]

    def test_if_nobody_knows_whether_it_was_cleared_it_is_cleared_again(
        self, stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(Receiver(stored).started(), "/a", 1, history={"maxEntries": 3})
        ask, asked = stored.access.writing.ask, []

        async def losing(step: Any, **options: Any) -> Any:
            asked.append(options["retries"])
            answer = await ask(step, **options)
            if len(asked) == 1:
                raise StoreUncertain("no answer")
            return answer

        monkeypatch.setattr(stored.access.writing, "ask", losing)
        assert stored.wait(stored.broker.topics.table.clear("/a")) == 0  # for it had been
        assert asked == [False, True]

    def test_a_history_that_somebody_has_deleted_is_seen_to_be_gone(self, stored: StoredWorld) -> None:
        publish(Receiver(stored).started(), "/a", 1, history={"maxEntries": 3})
        stored.wait(stored.store.reader.delete(stored.store.keys.history("/a")))
        view = stored.wait(stored.broker.topics.views.of("/a"))
        assert view is not None
        assert (view.state, view.history) == (State.UNREFERENCED, 0)

    def test_an_operator_may_set_how_long_it_lives(self, make_stored: MakeStored) -> None:
        world = make_stored()
        publish(Receiver(world).started(), "/a", 1, history={"maxEntries": 3})
        stored = administer(world, destroy_delay_ms=5)
        assert stored is not None
        world.wait(stored)
        world.crash()
        topic = make_stored(prefix=world.prefix).broker.topics.table.find("/a")
        assert topic is not None
        assert topic.settings == TopicSettings(3, destroy_delay_ms=5)

    def test_without_a_store_it_is_set_for_this_server(self, world: World) -> None:
        assert administer(world, destroy_delay_ms=5) is None
        assert world.loop.run_until_complete(world.broker.topics.table.clear("/a")) == 0
        topic = world.broker.topics.table.find("/a")
        assert topic is not None
        assert topic.settings.destroy_delay_ms == 5


class TestLooking:
    def test_the_list_has_all_that_are_not_dead(self, stored: StoredWorld) -> None:
        sender, reader = Receiver(stored).started(), Receiver(stored).started("/waited", "/w/*")
        publish(sender, "/kept", 1, history={"maxEntries": 3})
        sender.publish("/gone", 1)
        publish(sender, "/w/a", 1, persistent=True)
        views = {view.name: view for view in stored.wait(stored.broker.topics.views.all())}
        assert {name: view.state for name, view in views.items()} == {
            "/gone": State.UNREFERENCED,
            "/kept": State.ALIVE,
            "/w/a": State.ALIVE,
            "/waited": State.UNCONFIGURED,
        }
        assert views["/w/a"].queued == 1
        assert views["/waited"].subscribers == 1
        assert views["/kept"].history == 1
        assert views["/gone"].dies_in_ms == 60_000
        assert reader.is_known

    def test_there_is_nothing_to_see_of_a_topic_that_is_dead(self, stored: StoredWorld) -> None:
        assert stored.wait(stored.broker.topics.views.of("/a")) is None

    def test_what_waits_is_counted_once_for_each_session(self, stored: StoredWorld) -> None:
        for _ in range(2):
            Receiver(stored).started("/a/*")
        Client(stored).joined("/a/*")
        sender = Receiver(stored).started()
        publish(sender, "/a/b", 1, persistent=True)
        publish(sender, "/a/b", 2)
        view = stored.wait(stored.broker.topics.views.of("/a/b"))
        assert view is not None
        assert view.queued == 6

    def test_answers_of_the_server_are_of_no_topic(self, world: World) -> None:
        client = Client(world).joined()
        world.broker.deliver(client.session, "/service/x", 1)
        assert world.loop.run_until_complete(world.broker.topics.views.all()) == []

    def test_without_the_store_it_is_told_as_this_server_knows_it(
        self, stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(Receiver(stored).started(), "/a", 1, history={"maxEntries": 3})

        async def refused(step: Any, **_options: Any) -> None:
            raise StoreError("away")

        monkeypatch.setattr(stored.access.writing, "ask", refused)
        view = stored.wait(stored.broker.topics.views.of("/a"))
        assert view is not None
        assert (view.history, view.state) == (1, State.ALIVE)
