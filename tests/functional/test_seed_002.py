"""xmlBlaster's page engine.message.lifecycle, statement by statement: the states of topics and of messages, and what configures
them.

`TestTable` has the rows of its table of internal conditions: is the topic visible (V), referenced by its history queue (H),
by a callback queue (C), and has it EXACT subscriptions (E), which are literal ones here? Its XPATH subscriptions are
wildcards. A message that waits for a reader who does not settle it is in a callback queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.functional.bayeux import data
from tests.functional.conftest import Serve, one_lane
from tests.functional.topic import SETS, Topic, settle
from tests.functional.wire import until

pytestmark = one_lane

ALIVE, UNREFERENCED, SOFTERASED, UNCONFIGURED, DEAD = "ALIVE", "UNREFERENCED", "SOFTERASED", "UNCONFIGURED", "DEAD"
KEPT = 5
Prepare = Callable[[Topic], object]


@pytest.fixture
def topic(shared: Serve) -> Topic:
    """A topic of its own on a server that other tests use too."""
    return Topic(shared(*SETS))


def history_queue_and_subscription(topic: Topic) -> None:
    topic.reader()
    topic.publish(history=KEPT)


def history_and_queue(topic: Topic) -> None:
    topic.reader(topic.family)
    topic.publish(history=KEPT)


def history_and_subscription(topic: Topic) -> None:
    reader = topic.reader()
    topic.publish(history=KEPT)
    settle(reader)


def history(topic: Topic) -> None:
    topic.publish(history=KEPT)


def queue_and_subscription(topic: Topic) -> None:
    topic.reader()
    topic.publish(persistent=True)


def queue(topic: Topic) -> None:
    topic.reader(topic.family)
    topic.publish(persistent=True)


def subscription(topic: Topic) -> None:
    reader = topic.reader()
    topic.publish(persistent=True)
    settle(reader)


def nothing(topic: Topic) -> None:
    settle_what_comes(topic, topic.family)  # a wildcard does not keep a topic


def nothing_published(topic: Topic) -> None:
    topic.reader()


def erased_with_queue(topic: Topic) -> None:
    queue(topic)
    topic.erase()


def nobody_knows_it(topic: Topic) -> None:
    """It has not been heard of."""


def settle_what_comes(topic: Topic, pattern: str, **qos: Any) -> None:
    reader = topic.reader(pattern)
    topic.publish(persistent=True, **qos)
    settle(reader)


class TestTable:
    """The table "Internal conditions of a topic"."""

    @pytest.mark.parametrize(
        ("state", "row", "prepare"),
        [
            (ALIVE, "V H C E", history_queue_and_subscription),
            (ALIVE, "V H C -", history_and_queue),
            (ALIVE, "V H - E", history_and_subscription),
            (ALIVE, "V H - -", history),
            (ALIVE, "V - C E", queue_and_subscription),
            (ALIVE, "V - C -", queue),
            (ALIVE, "V - - E", subscription),
            (UNREFERENCED, "V - - -", nothing),
            (SOFTERASED, "- - C -", erased_with_queue),
            (UNCONFIGURED, "- - - E", nothing_published),
            (DEAD, "- - - -", nobody_knows_it),
        ],
    )
    def test_row(self, topic: Topic, state: str, row: str, prepare: Prepare) -> None:
        prepare(topic)
        topic.becomes(state)
        until(lambda: topic.conditions == row)

    @pytest.mark.parametrize(
        ("row", "prepare", "becomes"),
        [
            ("- H C E", history_queue_and_subscription, (SOFTERASED, "- - C -")),
            ("- H C -", history_and_queue, (SOFTERASED, "- - C -")),
            ("- H - E", history_and_subscription, (DEAD, "- - - -")),
            ("- H - -", history, (DEAD, "- - - -")),
            ("- - C E", queue_and_subscription, (SOFTERASED, "- - C -")),
        ],
    )
    def test_invalid_row(self, topic: Topic, row: str, prepare: Prepare, becomes: tuple[str, str]) -> None:
        """A visible topic of these conditions is erased, and does not stay what it was without being visible: its history and
        its literal subscriptions go too."""
        prepare(topic)
        until(lambda: topic.conditions == "V" + row[1:])
        topic.erase()
        assert (topic.state, topic.conditions) == becomes


class TestTransitions:
    """The state chart of the page, one test for each arrow."""

    def test_an_unknown_topic_is_unconfigured_by_a_subscription(self, topic: Topic) -> None:
        topic.reader()
        assert topic.state == UNCONFIGURED

    def test_an_unknown_topic_is_alive_or_unreferenced_by_a_publish(self, topic: Topic) -> None:
        topic.publish()
        topic.becomes(UNREFERENCED)
        topic.publish(history=KEPT, administrative=True)
        topic.publish()
        assert topic.state == ALIVE

    @pytest.mark.parametrize("administrative", [False, True])
    def test_an_unconfigured_one_is_alive_when_it_is_published_to(self, topic: Topic, administrative: bool) -> None:
        topic.reader()
        topic.publish(administrative=administrative)
        assert topic.state == ALIVE

    @pytest.mark.parametrize("by", ["unsubscribe", "erase"])
    def test_an_unconfigured_one_is_dead_without_its_subscription(self, topic: Topic, by: str) -> None:
        reader = topic.reader()
        if by == "erase":
            topic.erase()
        else:
            topic.unsubscribe(reader)
        topic.becomes(DEAD)

    @pytest.mark.parametrize("by", ["publish", "subscribe", "wildcard"])
    def test_an_unreferenced_one_is_alive_again_when_somebody_refers_to_it(self, topic: Topic, by: str) -> None:
        reader = topic.reader(f"{topic.channel}/elsewhere")
        topic.publish(destroyDelay=-1)
        topic.becomes(UNREFERENCED)
        if by == "publish":
            topic.subscribe(reader, topic.family)
            topic.publish(persistent=True)
        elif by == "subscribe":
            topic.subscribe(reader)
        else:
            topic.subscribe(reader, topic.family)
            topic.publish()
        assert topic.state == ALIVE

    @pytest.mark.parametrize("by", ["unsubscribe", "delivery", "expiry"])
    def test_an_alive_one_is_unreferenced_when_its_last_reference_is_gone(self, topic: Topic, by: str) -> None:
        if by == "unsubscribe":
            reader = topic.reader()
            topic.publish()
            settle(reader)
            topic.unsubscribe(reader)
        elif by == "delivery":
            reader = topic.reader(topic.family)
            topic.publish(lifeTime=0)
            assert topic.state == ALIVE
            settle(reader)
        else:
            topic.publish(history=KEPT, lifeTime=200)
            assert topic.state == ALIVE
        topic.becomes(UNREFERENCED)

    def test_an_alive_one_is_soft_erased_while_its_messages_wait(self, topic: Topic) -> None:
        reader = topic.reader()
        topic.publish(persistent=True, history=KEPT)
        topic.erase()
        assert topic.state == SOFTERASED
        assert data(settle(reader, 2)) == ["hi", None]  # the notice comes last

    @pytest.mark.parametrize("by", ["publish", "administrative publish", "subscribe"])
    def test_a_soft_erased_one_is_alive_again(self, topic: Topic, by: str) -> None:
        reader = topic.reader(topic.family)
        topic.publish(1, persistent=True)
        topic.erase()
        assert topic.state == SOFTERASED
        if by == "subscribe":
            topic.subscribe(reader)
        else:
            topic.publish(2, administrative=by.startswith("admin"))
        assert topic.state == ALIVE

    @pytest.mark.parametrize("by", ["delivery", "expiry"])
    def test_a_soft_erased_one_is_dead_when_nothing_waits_any_more(self, topic: Topic, by: str) -> None:
        reader = topic.reader(topic.family)
        topic.publish(persistent=True, **({"lifeTime": 800, "forceDestroy": True} if by == "expiry" else {}))
        topic.erase()
        assert topic.state == SOFTERASED
        if by == "delivery":
            settle(reader)
        topic.becomes(DEAD)

    def test_an_alive_one_is_dead_by_a_forced_erase_with_all_that_waits(self, topic: Topic) -> None:
        reader = topic.reader(topic.family)
        topic.publish(persistent=True, history=KEPT)
        topic.erase(force=True)
        assert (topic.state, topic.get()) == (DEAD, [])
        assert [each for each in data(reader.take_all()) if each is not None] == []

    def test_an_alive_one_is_dead_by_an_erase_when_nothing_waits(self, topic: Topic) -> None:
        history_and_subscription(topic)
        topic.erase()
        assert topic.state == DEAD

    @pytest.mark.parametrize("by", ["destroyDelay", "erase"])
    def test_an_unreferenced_one_dies(self, topic: Topic, by: str) -> None:
        topic.publish(destroyDelay=200 if by == "destroyDelay" else -1)
        if by == "erase":
            topic.becomes(UNREFERENCED)
            topic.erase()
        topic.becomes(DEAD)

    def test_a_dead_one_is_published_to_as_a_new_one(self, topic: Topic) -> None:
        """Wildcards hear it again; literal subscriptions are gone with the topic."""
        exact, family = topic.reader(), topic.reader(topic.family)
        topic.publish(1, history=KEPT)
        settle(exact)
        settle(family)
        topic.erase(force=True)
        topic.publish(2)
        heard = [[each for each in data(reader.take_all()) if each is not None] for reader in (exact, family)]
        assert heard == [[], [2]]
        assert topic.get() == []

    def test_subscribers_are_told_of_an_erase(self, topic: Topic) -> None:
        told, untold = topic.reader(notify=True), topic.reader(notify=False)
        topic.publish(history=KEPT)
        settle(told)
        settle(untold)
        topic.erase(force=True)
        (notice,) = settle(told)
        assert (notice["channel"], notice["data"]) == (topic.channel, None)
        assert notice["ext"]["update"]["state"] == "ERASED"
        assert untold.take_all() == []


class TestMessages:
    """What the page says of the instances of messages."""

    def test_messages_are_distinguished_by_their_receive_timestamp(self, topic: Topic) -> None:
        """The page: "MsgUnit instances are distinguished by the unique receive timestamp"."""
        reader = topic.reader()
        for _ in range(3):
            topic.publish("the same")
        stamps = [int(each["ext"]["update"]["rcvTimestamp"]) for each in settle(reader, 3)]
        assert sorted(set(stamps)) == stamps

    def test_messages_build_the_history_of_the_topic(self, topic: Topic) -> None:
        """The page: "the message instances build a history queue of a topic", which is queryable."""
        ids = [topic.publish(number, history=3) for number in range(5)]
        messages = topic.get()
        assert data(messages) == [2, 3, 4]
        assert [each["id"] for each in messages] == ids[2:]
        assert data(topic.get(2, newest_first=True)) == [4, 3]

    def test_history_and_queues_refer_to_one_message(self, topic: Topic) -> None:
        """The page: "the history queue only contains references to the real messageUnit", and so do callback queues."""
        reader = topic.reader()
        message_id = topic.publish(history=KEPT)
        (delivered,) = settle(reader)
        assert delivered["id"] == topic.get()[0]["id"] == message_id

    def test_a_message_is_gone_when_nothing_refers_to_it(self, topic: Topic) -> None:
        """The page: "if no weak reference exists anymore the cache entry is destroyed"."""
        reader = topic.reader()
        for number in range(2):
            topic.publish(number, history=1)  # the second drives the first out of the history, not out of the queue
        assert data(topic.get()) == [1]
        assert data(settle(reader, 2)) == [0, 1]
        topic.cmd("clearHistoryQueue")
        assert topic.get() == []

    def test_what_is_swapped_is_there_when_it_is_needed(self, serve: Serve) -> None:
        """The page: "the access forces a lookup and the message is swapped back": here from the store, after a restart."""
        server = serve(*SETS)
        topic = Topic(server)
        topic.publish("kept", history=KEPT)
        server.kill()
        topic = topic.again(serve(*SETS, *server.store_sets, port=server.port))
        assert data(topic.get()) == ["kept"]
        assert topic.state == ALIVE
        reader = topic.reader(history={"numEntries": 1})
        (message,) = settle(reader)
        assert (message["data"], message["ext"]["update"]["initial"]) == ("kept", True)

    def test_an_expired_one_leaves_the_history_and_is_still_delivered(self, topic: Topic) -> None:
        """ALIVE, then EXPIRED: nobody finds it any more, and who was owed it gets it."""
        reader = topic.reader()
        topic.publish(history=KEPT, lifeTime=300)
        assert data(topic.get()) == ["hi"]
        until(lambda: topic.get() == [])
        (message,) = settle(reader)
        assert message["data"] == "hi"

    def test_a_destroyed_one_is_nowhere(self, topic: Topic) -> None:
        """ALIVE, then DESTROYED: with `forceDestroy` it goes out of queues as well, and is no dead letter."""
        reader = topic.reader()
        topic.publish(history=KEPT, lifeTime=300, forceDestroy=True)
        until(lambda: topic.get() == [] and topic.conditions[4] == "-")
        assert reader.take_all() == []
        assert topic.desk.letters(f"channel={topic.channel}") == []

    def test_what_is_left_of_its_life_is_told(self, topic: Topic) -> None:
        reader = topic.reader()
        topic.publish(lifeTime=60_000)
        (message,) = settle(reader)
        assert message["ext"]["update"]["lifeTime"] == 60_000
        assert 0 < message["ext"]["update"]["remainingLife"] <= 60_000

    def test_a_volatile_one_reaches_who_is_there_and_no_history(self, topic: Topic) -> None:
        reader = topic.reader()
        topic.publish(1, history=KEPT)
        topic.publish(2, lifeTime=0)
        assert data(settle(reader, 2)) == [1, 2]
        assert data(topic.get()) == [1]


class TestConfiguration:
    """The page: "the configuration of topics and messages are done by publishing a message and setting certain publish QoS
    tags"."""

    def test_the_first_publish_configures_the_topic_and_a_later_one_does_not(self, topic: Topic) -> None:
        topic.publish(1, history=2)
        for number in (2, 3):
            topic.publish(number, history=9)
        assert data(topic.get()) == [2, 3]

    def test_an_administrative_publish_changes_it_and_is_heard_by_nobody(self, topic: Topic) -> None:
        reader = topic.reader()
        topic.publish(1, history=1)
        topic.publish("never heard", history=3, administrative=True)
        for number in (2, 3, 4):
            topic.publish(number)
        assert data(topic.get()) == [2, 3, 4]
        assert data(settle(reader, 4)) == [1, 2, 3, 4]

    def test_a_readonly_topic_takes_one_message(self, topic: Topic) -> None:
        topic.publish(1, history=1, readonly=True)
        refused = topic.ask(2)
        assert (refused["successful"], refused["error"]) == (False, f"409:{topic.channel}:user.publish.readonly")
        assert data(topic.get()) == [1]

    def test_an_unchanged_message_is_told_to_nobody_without_force_update(self, topic: Topic) -> None:
        reader = topic.reader()
        for value in ("a", "a", "b", "b"):
            topic.publish(value, history=KEPT, forceUpdate=False)
        assert data(settle(reader, 2)) == ["a", "b"]
        assert data(topic.get()) == ["a", "a", "b", "b"]

    def test_each_message_has_its_own_life_and_priority(self, topic: Topic) -> None:
        reader = topic.reader()
        for number, priority in enumerate(("LOW", 9, "NORM")):
            topic.publish(number, priority=priority, persistent=True)
        assert data(settle(reader, 3)) == [1, 2, 0]

    def test_rules_of_the_server_are_defaults(self, serve: Serve, tmp_path: Any) -> None:
        rules = '[topics."/topic/**"]\nhistory.max_entries = 2\npersistent = true\n'
        (tmp_path / "crewel.toml").write_text(rules)
        topic = Topic(serve(*SETS))
        for number in range(3):
            topic.publish(number)
        assert data(topic.get()) == [1, 2]
