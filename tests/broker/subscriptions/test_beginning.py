"""How subscriptions begin on channels with a history: what comes first, and that nothing is missing or twice at the seam."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from crewel.bayeux.message import Fields
from tests.broker.stored_world import Receiver, StoredWorld, data, origin
from tests.broker.subscriptions.asking import Asking, asked, publish
from tests.broker.world import Request, data_of


def test_the_newest_message_comes_first_unless_more_is_asked(world: StoredWorld, asking: Asking) -> None:
    publish(world, "/h/a", 1, 2, 3)
    assert asking.subscribe("/h/a")["successful"]
    assert data_of(asking.take()) == [3]


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ({"numEntries": 2}, [3, 2]),
        ({"numEntries": 2, "newestFirst": False}, [2, 3]),
        ({"numEntries": -1, "newestFirst": False}, [1, 2, 3]),
        ({"numEntries": -1}, [3, 2, 1]),
        ({"numEntries": 0}, []),
        ({"numEntries": 100, "newestFirst": False}, [1, 2, 3]),
        ({"newestFirst": False}, [3]),
    ],
)
def test_the_number_and_the_order_are_those_that_are_asked_for(
    world: StoredWorld, asking: Asking, history: Fields, expected: list[int]
) -> None:
    publish(world, "/h/a", 1, 2, 3)
    asking.subscribe("/h/a", history=history)
    assert data_of(asking.take()) == expected
    publish(world, "/h/a", 4)
    assert data_of(asking.take()) == [4]


def test_no_initial_update_no_old_messages(world: StoredWorld, asking: Asking) -> None:
    publish(world, "/h/a", 1)
    reply = asking.subscribe("/h/a", initialUpdate=False, history={"numEntries": 5})
    publish(world, "/h/a", 2)
    assert data_of(asking.take()) == [2]
    assert reply["ext"]["subscribe"]["position"]["/h/a"]["id"]


def test_nothing_old_comes_to_a_subscribe_that_asks_for_nothing(world: StoredWorld) -> None:
    publish(world, "/h/a", 1)
    receiver = Receiver(world).started("/h/a")
    assert receiver.take() == []


def test_a_topic_without_history_has_no_position(world: StoredWorld, asking: Asking) -> None:
    publish(world, "/plain", 1)
    assert asking.subscribe("/plain")["ext"]["subscribe"] == {"position": {}}
    assert asking.take() == []


def test_initial_messages_are_marked_and_later_ones_are_not(world: StoredWorld) -> None:
    (first,) = publish(world, "/h/a", 1)
    receiver = Receiver(world).started()
    receiver.say("/meta/subscribe", subscription="/h/a", ext={"subscribe": {}})
    (old,) = receiver.take()
    assert (origin(old)["initial"], origin(old)["id"], old["id"]) == (True, first, first)
    publish(world, "/h/a", 2)
    (new,) = receiver.take()
    assert "initial" not in origin(new)


def test_a_pattern_begins_with_the_histories_of_all_channels_that_it_matches(
    world: StoredWorld, asking: Asking
) -> None:
    for channel in ("/h/a", "/h/b", "/h/deep/c", "/other/a"):
        publish(world, channel, f"{channel} 1", f"{channel} 2")
    told = asking.subscribe(["/h/*", "/h/b"], history={"numEntries": 2, "newestFirst": False})["ext"]["subscribe"]
    assert told["position"].keys() == {"/h/a", "/h/b"}
    publish(world, "/h/a", "new")
    assert data_of(asking.take()) == ["/h/a 1", "/h/a 2", "/h/b 1", "/h/b 2", "new"]
    assert asking.subscribe("/h/**", initialUpdate=False)["ext"]["subscribe"] == {"position": {}}
    assert asking.take() == []


class TestRoom:
    """A pattern may match a thousand topics, and a queue has room for what one of them holds."""

    def begin(self, world: StoredWorld, count: int, newest_first: bool, **queue: int) -> tuple[list[Fields], int]:
        """What comes of the newest messages of all topics, and how many messages were read for that."""
        receiver, read = Receiver(world).started(queue=queue), list[int]()
        submit = world.access.writing.submit

        def count_entries(step: Any, done: Any, **how: Any) -> None:
            def counted(answer: Any) -> None:
                if step.script in ("history", "histories"):
                    pasts = getattr(answer, "found", [answer])
                    read.extend(len(past.entries) for past in pasts)
                done(answer)

            submit(step, counted, **how)

        world.access.writing.submit = count_entries  # type: ignore[method-assign]
        history = {"numEntries": count, "newestFirst": newest_first}
        receiver.say("/meta/subscribe", subscription="/h/*", **asked(history=history))
        return receiver.take(), sum(read)

    def test_the_newest_messages_of_all_topics_come_and_no_more_are_read(self, world: StoredWorld) -> None:
        publish(world, "/h/a", 1, 2, 3)
        publish(world, "/h/b", 4, 5, 6)
        came, read = self.begin(world, -1, False, maxEntries=3)
        assert (data(came), read) == ([4, 5, 6], 3)

    def test_messages_come_topic_by_topic_in_the_order_that_is_asked_for(self, world: StoredWorld) -> None:
        for value in range(1, 5):
            for channel in ("/h/b", "/h/a", "/h/c"):
                publish(world, channel, f"{channel} {value}")
        came, read = self.begin(world, 3, True, maxEntries=4)
        assert (data(came), read) == (["/h/a 4", "/h/b 4", "/h/c 4", "/h/c 3"], 4)
        came, read = self.begin(world, 1, True, maxEntries=4)
        assert (data(came), read) == (["/h/a 4", "/h/b 4", "/h/c 4"], 3)

    def test_bytes_are_shared_by_all_topics(self, world: StoredWorld) -> None:
        for value in "12345":
            for channel in ("/h/a", "/h/b"):
                publish(world, channel, value * 1000)
        came, read = self.begin(world, -1, False, maxBytes=5000)
        assert [each["data"][0] for each in came] == ["4", "5", "4", "5"]
        assert read == 5  # one more than fits


class TestSince:
    def test_all_that_was_missed_comes_in_order(self, world: StoredWorld, asking: Asking) -> None:
        (first,) = publish(world, "/h/a", 1)
        position = asking.subscribe("/h/a", initialUpdate=False)["ext"]["subscribe"]["position"]
        assert position["/h/a"]["id"] == first
        publish(world, "/h/a", 2, 3, 4)
        other = Asking(world, asking.kind)
        told = other.subscribe("/h/a", since=position)["ext"]["subscribe"]
        assert told["recovered"] is True
        publish(world, "/h/a", 5)
        messages = other.take()
        assert data_of(messages) == [2, 3, 4, 5]
        assert not any("initial" in each.get("ext", {}).get("update", {}) for each in messages)
        assert told["position"]["/h/a"]["epoch"] == position["/h/a"]["epoch"]

    def test_nothing_missed_is_all_recovered(self, world: StoredWorld, asking: Asking) -> None:
        publish(world, "/h/a", 1)
        position = asking.subscribe("/h/a", initialUpdate=False)["ext"]["subscribe"]["position"]
        told = Asking(world, asking.kind).subscribe("/h/a", since=position)["ext"]["subscribe"]
        assert told == {"position": position, "recovered": True}

    def test_what_the_history_has_lost_is_not_recovered_and_nothing_old_comes(
        self, world: StoredWorld, asking: Asking
    ) -> None:
        publish(world, "/h/a", 1)
        position = asking.subscribe("/h/a")["ext"]["subscribe"]["position"]
        publish(world, "/h/a", *range(10))
        other = Asking(world, asking.kind)
        assert other.subscribe("/h/a", since=position)["ext"]["subscribe"]["recovered"] is False
        publish(world, "/h/a", "new")
        assert data_of(other.take()) == ["new"]

    def test_another_epoch_is_not_recovered(self, world: StoredWorld, asking: Asking) -> None:
        (first,) = publish(world, "/h/a", 1)
        since = {"/h/a": {"epoch": "other", "id": first}}
        assert asking.subscribe("/h/a", since=since)["ext"]["subscribe"]["recovered"] is False

    def test_a_topic_without_history_is_not_recovered(self, world: StoredWorld, asking: Asking) -> None:
        (first,) = publish(world, "/plain", 1)
        since = {"/plain": {"epoch": "e", "id": first}}
        assert asking.subscribe("/plain", since=since)["ext"]["subscribe"]["recovered"] is False
        publish(world, "/plain", 2)
        assert data_of(asking.take()) == [2]

    def test_one_channel_that_is_not_recovered_keeps_all_from_coming(self, world: StoredWorld, asking: Asking) -> None:
        publish(world, "/h/a", 1)
        publish(world, "/h/b", 1)
        position = asking.subscribe(["/h/a", "/h/b"], initialUpdate=False)["ext"]["subscribe"]["position"]
        publish(world, "/h/a", "a")
        publish(world, "/h/b", *range(10))
        other = Asking(world, asking.kind)
        told = other.subscribe(["/h/a", "/h/b"], since=position)["ext"]["subscribe"]
        assert told["recovered"] is False
        assert other.take() == []

    def test_a_channel_that_it_does_not_name_begins_with_its_history(self, world: StoredWorld, asking: Asking) -> None:
        publish(world, "/h/a", 1)
        publish(world, "/h/b", 2)
        told = asking.subscribe(["/h/a", "/h/b"], since={})["ext"]["subscribe"]
        assert told["recovered"] is True
        assert data_of(asking.take()) == [1, 2]

    def test_who_subscribed_before_the_first_message_recovers_from_the_beginning(
        self, world: StoredWorld, asking: Asking
    ) -> None:
        topic = {"administrative": True, "history": {"maxEntries": 7}}
        assert asking.client.publish("/new", None, ext={"publish": topic})["successful"]
        position = asking.subscribe("/new")["ext"]["subscribe"]["position"]
        publish(world, "/new", 1, 2)
        other = Asking(world, asking.kind)
        told = other.subscribe("/new", since=position)["ext"]["subscribe"]
        assert told["recovered"] is True
        assert data_of(other.take()) == [1, 2]

    def test_a_history_that_had_not_begun_is_not_recovered(self, world: StoredWorld, asking: Asking) -> None:
        """Nothing tells whether there was one meanwhile, that was erased."""
        position = asking.subscribe("/h/new")["ext"]["subscribe"]["position"]
        assert position == {"/h/new": {"epoch": "", "id": "0"}}
        publish(world, "/h/new", 1)
        assert Asking(world, asking.kind).subscribe("/h/new", since=position)["ext"]["subscribe"]["recovered"] is False
        assert world.wait(world.broker.topics.endings.erase("/h/new", force=True))
        other = Asking(world, asking.kind)
        assert other.subscribe("/h/new", since=position)["ext"]["subscribe"]["recovered"] is False

    def test_a_wildcard_is_refused(self, asking: Asking) -> None:
        reply = asking.subscribe("/h/*", since={})
        assert (reply["successful"], reply["error"]) == (False, "400:since:user.illegalArgument")
        assert reply["ext"]["subscribe"]["errorCode"] == "user.illegalArgument"

    def test_more_than_the_queue_takes_is_not_recovered(self, world: StoredWorld) -> None:
        receiver = Receiver(world).started(queue={"maxEntries": 3})
        (first,) = publish(world, "/h/a", 0)
        told = receiver.say("/meta/subscribe", subscription="/h/a", **asked())["ext"]["subscribe"]
        publish(world, "/h/a", 1, 2, 3)
        receiver.take()
        for count, expected in ((3, True), (4, False)):
            other = Receiver(world).started(queue={"maxEntries": 3})
            since = told["position"] if count == 3 else {"/h/a": {**told["position"]["/h/a"], "id": first}}
            if count == 4:
                publish(world, "/h/a", 4)
            again = other.say("/meta/subscribe", subscription="/h/a", **asked(since=since))["ext"]["subscribe"]
            assert again["recovered"] is expected
            assert data(other.take()) == ([1, 2, 3] if expected else [])


def test_what_is_published_while_the_history_is_read_comes_once(world: StoredWorld, asking: Asking) -> None:
    publish(world, "/h/a", 1)
    publishes = [world.broker.publish_stored("/h/a", value) for value in ("before", "between", "after")]
    whole = {"subscribe": {"history": {"numEntries": -1, "newestFirst": False}}}
    asking.client.subscribe()  # nothing: what has gone before is done
    message = asking.client.message("/meta/subscribe", subscription="/h/a", ext=whole)
    peer = Request(asking.client.browser)
    steps = [
        lambda: world.loop.create_task(publishes[0]),
        lambda: world.broker.inbound.receive(peer, [message]),
        lambda: world.loop.create_task(publishes[1]),
        lambda: world.loop.create_task(publishes[2]),
    ]
    for step in steps:
        world.loop.call_soon(step)
    world.settle()
    asking.early = [each for each in peer.received if "data" in each]
    assert data_of(asking.take()) == [1, "before", "between", "after"]


def test_a_stored_session_is_owed_exactly_what_follows_its_history(world: StoredWorld) -> None:
    """Whatever stands in the queue of writes around a subscribe: each message comes once, as history or by itself."""
    for before in range(4):
        channel = f"/long/{before}"
        values = iter(range(100))
        receiver = Receiver(world).started()

        def publishing(count: int, channel: str = channel, values: Iterator[int] = values) -> None:
            for _ in range(count):
                world.broker.publish(channel, next(values))

        publishing(before)
        whole = {"subscribe": {"history": {"numEntries": -1, "newestFirst": False}}}
        peer = Request(receiver.browser)
        message = receiver.message("/meta/subscribe", subscription=channel, ext=whole)
        world.broker.inbound.receive(peer, [message])
        publishing(2)
        world.settle()
        publishing(1)
        world.settle()
        assert data(receiver.take()) == list(range(before + 3))


def test_what_is_sent_of_a_history_is_sent_again_until_it_is_acknowledged(world: StoredWorld) -> None:
    publish(world, "/h/a", 1, 2)
    receiver = Receiver(world).started()
    receiver.say("/meta/subscribe", subscription="/h/a", **asked(history={"numEntries": 2}))
    first = receiver.reconnect(advice={"timeout": 0}).answer
    assert data(each for each in first if "data" in each) == [2, 1]
    assert data(receiver.take()) == [2, 1]  # the first answer got lost
    assert receiver.take() == []


def test_a_session_that_hears_the_channel_already_is_not_sent_twice_what_waits_for_it(
    world: StoredWorld, asking: Asking
) -> None:
    publish(world, "/h/a", 0)
    position = asking.subscribe("/h/a", initialUpdate=False)["ext"]["subscribe"]["position"]
    publish(world, "/h/a", 1, 2)
    told = asking.subscribe("/h/a", since=position)["ext"]["subscribe"]
    assert told["recovered"] is True
    assert data_of(asking.take()) == [1, 2]
