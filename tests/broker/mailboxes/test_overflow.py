"""Full queues: what a message that has no room costs and leaves, by policy and by name."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import orjson
import pytest

from crewel.broker.mailboxes.ends import Ends
from crewel.broker.mailboxes.mailbox import Mailbox
from crewel.extensions.ack import AckExtension
from crewel.storage import dead_letter_store
from crewel.storage.dead_letter_records import DeadLetterFilter
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, data, ok, origin, store
from tests.broker.world import Client, World
from tests.work import instructions

AWAY_S = 15.0
MakeWorld = Callable[..., World]


def full(world: StoredWorld, most: int, policy: str, *, is_stored: bool, is_away: bool) -> Receiver:
    """A client whose queue has all that it may have."""
    joe = Receiver(world).started("/a", name="joe/1", queue={"maxEntries": most, "onOverflow": policy})
    if is_away:
        world.sweep_after(AWAY_S)
        assert joe.session.mailbox.is_absent
    if is_stored:
        store(world, "/a", *range(most))
    else:
        for number in range(most):
            world.broker.publish("/a", number)
    return joe


@pytest.mark.parametrize("is_away", [False, True])
@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("policy", ["deadMessage", "dropOldest"])
def test_a_message_for_a_full_queue_costs_the_same_however_long_the_queue_is(
    make_stored: MakeStored, policy: str, is_stored: bool, is_away: bool
) -> None:
    short, long = 20, 420
    costs = {}
    for most in (short, long):
        world = make_stored("bayeux.max_queue_messages=1000")
        joe = full(world, most, policy, is_stored=is_stored, is_away=is_away)
        publish = partial(store, world, "/a") if is_stored else partial(world.broker.publish, "/a")
        publish("the first one too many")
        world.settle()
        costs[most] = instructions(partial(publish, "one more"))
        assert joe.session.mailbox.view().depth == most
    assert costs[long] - costs[short] < 2 * (long - short), costs


def test_a_full_queue_takes_messages_again_when_one_was_acknowledged(stored: StoredWorld) -> None:
    joe = Receiver(stored).started("/a", name="joe/1", queue={"maxEntries": 2})
    for number in range(4):
        stored.broker.publish("/a", number)
    assert data(joe.take()) == [0, 1]
    joe.take()
    for number in range(4, 7):
        stored.broker.publish("/a", number)
    assert data(joe.take()) == [4, 5]
    assert [letter.code for letter in stored.letters()] == ["resource.overflow.queue.entries"] * 3


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_session_without_a_name_makes_no_letters_of_overflow(stored: StoredWorld, is_stored: bool) -> None:
    ann = Receiver(stored).started("/a", queue={"maxEntries": 1})
    before = stored.broker.metrics.dropped["noLetter"]
    for number in range(3):
        if is_stored:
            store(stored, "/a", number)
        else:
            stored.broker.publish("/a", number)
    assert data(ann.take()) == [0]
    assert stored.letters() == []
    assert stored.broker.metrics.dropped["noLetter"] == before + 2
    assert [reason for _, reason, _ in stored.ended()] == ["dropped"] * (2 if is_stored else 0)


def test_a_session_without_a_name_makes_letters_of_overflow_if_asked(make_stored: MakeStored) -> None:
    world = make_stored("delivery.letters_for_anonymous=true")
    Receiver(world).started("/a", queue={"maxEntries": 1})
    store(world, "/a", 1, 2)
    assert [letter.code for letter in world.letters()] == ["resource.overflow.queue.entries"]


MESSAGES, RECEIVERS, MOST_LETTERS = 40, 200, 50


def test_no_commit_has_more_letters_than_it_may(make_stored: MakeStored) -> None:
    """One request for many receivers with full queues."""
    world = make_stored()
    node = world.access.node
    node.max_dead_letters = MOST_LETTERS
    for number in range(RECEIVERS):
        Receiver(world).started("/a", name=f"joe{number}/1", queue={"maxEntries": 1})
    (kept,) = store(world, "/a", "fills the queues")

    ids = publish_all(world, range(MESSAGES))
    told = Counter((session, log_id) for session, reason, log_id in world.ended() if reason == "dead")
    assert told == {(f"client/joe{n}/1", int(each)): 1 for n in range(RECEIVERS) for each in ids}
    assert world.wait(dead_letter_store.count(world.store, DeadLetterFilter())) == MESSAGES * RECEIVERS
    assert max(letters_of_commits(world)) <= MOST_LETTERS
    assert {log_id for session in world.access.node.sessions.values() for log_id in session.pending} == {int(kept)}


def publish_all(world: StoredWorld, numbers: Iterable[int]) -> list[str]:
    """Publish these side by side; their ids."""

    async def publish() -> list[str]:
        return await asyncio.gather(*(world.broker.publish_stored("/a", number) for number in numbers))

    return world.wait(publish())


def letters_of_commits(world: StoredWorld) -> list[int]:
    """How many messages died with each commit, by the facts."""
    facts: Any = world.wait(world.store.reader.xrange(world.store.keys.facts))
    ended = [orjson.loads(fields[b"d"])["ended"] for _, fields in facts if fields[b"t"] == b"ended"]
    return [sum(len(each["ids"]) for each in fact if each["reason"] == "dead") for fact in ended]


def test_letters_that_were_not_stored_are_messages_again_when_the_server_dies(
    make_stored: MakeStored, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_stored()
    world.access.node.max_dead_letters = 2
    Receiver(world).started("/a", name="joe/1", queue={"maxEntries": 1})
    (kept,) = store(world, "/a", "fills the queue")
    world.commit()
    commit, counted = world.access.node.commit, itertools.count()
    monkeypatch.setattr(world.access.node, "commit", lambda: commit() if next(counted) < 3 else None)
    ids = publish_all(world, range(8))
    assert len(world.letters()) in (2, 4)
    world.crash()
    after = make_stored(prefix=world.prefix)
    letters = [letter.id for letter in after.letters()]
    (durable,) = after.access.node.sessions.values()
    assert sorted([*map(int, letters), *durable.pending]) == sorted([int(kept), *map(int, ids)])


def test_what_waits_for_a_commit_does_not_wait_for_withheld_letters(make_stored: MakeStored) -> None:
    """In a steady flood some are always withheld, and an erase would never end."""
    world = make_stored()
    world.access.node.max_dead_letters = 1
    Receiver(world).started("/a", name="joe/1", queue={"maxEntries": 1})
    store(world, "/a", "fills the queue")
    world.commit()
    publish_all(world, range(8))
    world.wait(world.durability.committed())
    letters = world.access.node.fan_out.dead_letters
    assert 0 < letters.size < 8
    world.commit()
    assert letters.size == 0


class TestDroppingTheOldest:
    """One large message takes the place of as many small ones as it needs."""

    MOST_BYTES = 10_000

    @pytest.fixture
    def joe(self, stored: StoredWorld) -> Receiver:
        queue = {"maxEntries": 100, "maxBytes": self.MOST_BYTES, "onOverflow": "dropOldest"}
        return Receiver(stored).started("/a", name="joe/1", queue=queue)

    def test_transient_messages_keep_to_the_bytes_of_the_queue(self, joe: Receiver) -> None:
        world, mailbox = joe.world, joe.session.mailbox
        for value in [*range(50), *[str(number) * 1000 for number in range(50)]]:
            world.broker.publish("/a", value)
            assert mailbox._count_bytes() <= self.MOST_BYTES
        assert data(joe.take())[-1] == "49" * 1000

    def test_a_queue_full_of_small_transient_messages_keeps_to_its_bytes(self, joe: Receiver) -> None:
        for value in [*range(100), *["large" * 200] * 100]:
            joe.world.broker.publish("/a", value)
            assert joe.session.mailbox._count_bytes() <= self.MOST_BYTES

    def test_stored_messages_keep_to_the_bytes_of_the_queue(self, joe: Receiver) -> None:
        durable = joe.session.durable
        assert durable is not None
        store(joe.world, "/a", *range(30))
        for _ in range(20):
            store(joe.world, "/a", "large" * 200)
            assert durable.size <= self.MOST_BYTES

    def test_evicted_messages_do_not_end_for_transient_ones(self, joe: Receiver) -> None:
        joe.world.sweep_after(AWAY_S)
        mailbox = joe.session.mailbox
        kept = store(joe.world, "/a", *range(5))
        for _ in range(20):
            joe.world.broker.publish("/a", "large" * 200)
        assert mailbox._count_bytes() <= self.MOST_BYTES
        assert joe.session.durable is not None
        assert [*map(str, joe.session.durable.pending)] == kept

    def test_a_stored_message_that_is_too_large_takes_the_place_of_all(self, joe: Receiver) -> None:
        store(joe.world, "/a", *range(5))
        joe.world.broker.publish("/a", 5)
        store(joe.world, "/a", "large" * 3000)
        assert data(joe.take()) == ["large" * 3000]

    def test_one_that_has_no_room_beside_what_the_client_has_takes_no_others_place(self, joe: Receiver) -> None:
        world = joe.world
        store(world, "/a", "large" * 1400)
        (sent,) = joe.take()
        store(world, "/a", *range(5))
        store(world, "/a", "large" * 1000)
        assert data([*joe.take(ok(sent)), *joe.take()]) == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize("is_resent", [False, True])
    def test_one_that_has_no_room_beside_what_was_sent_takes_no_others_place(
        self, joe: Receiver, is_resent: bool
    ) -> None:
        """Memory has only the places of what an absent client was sent."""
        world, mailbox = joe.world, joe.session.mailbox
        store(world, "/a", "large" * 1400)
        joe.take()
        if is_resent:
            joe.ack = None
            joe.take()
        else:
            world.sweep_after(AWAY_S)
        assert mailbox.is_absent is not is_resent
        kept = store(world, "/a", *range(5))
        store(world, "/a", "large" * 1000)
        assert [*map(str, mailbox._ledger.places())][1:] == kept

    @pytest.mark.parametrize("is_away", [False, True])
    @pytest.mark.parametrize("is_stored", [False, True])
    def test_one_that_has_no_room_beside_urgent_messages_takes_no_others_place(
        self, joe: Receiver, is_stored: bool, is_away: bool
    ) -> None:
        world, mailbox = joe.world, joe.session.mailbox
        if is_away:
            world.sweep_after(AWAY_S)
        client = Client(world).joined()
        client.publish("/a", "large" * 1400, ext={"publish": {"priority": "HIGH", "persistent": is_stored}})
        for value in [*range(5), "large" * 1000]:
            client.publish("/a", value, ext={"publish": {"persistent": is_stored}})
        world.settle()
        assert data(joe.take()) == ["large" * 1400, *range(5)]
        assert mailbox.view().depth == 6

    @pytest.mark.parametrize("is_away", [False, True])
    def test_notices_keep_their_place(self, joe: Receiver, is_away: bool) -> None:
        world = joe.world
        joe.subscribe("/b")
        if is_away:
            world.sweep_after(AWAY_S)
        store(world, "/b", "gone")
        assert world.wait(world.broker.topics.endings.erase("/b", force=True))
        world.settle()
        store(world, "/a", *["large" * 300] * 9)
        taken = joe.take()
        assert data(taken) == [None, *["large" * 300] * 6]
        assert origin(taken[0])["state"] == "ERASED"

    def test_one_that_has_no_room_costs_the_same_however_long_the_queue_is(self, make_stored: MakeStored) -> None:
        costs = {}
        for count in (few := 50, many := 400):
            world = make_stored("bayeux.max_queue_messages=2000")
            queue = {"maxEntries": 2000, "maxBytes": 100_000, "onOverflow": "dropOldest"}
            joe = Receiver(world).started("/a", name="joe/1", queue=queue)
            store(world, "/a", "large" * 10_000)
            joe.take()
            store(world, "/a", *range(count))
            store(world, "/a", "large" * 16_000)
            costs[count] = instructions(partial(store, world, "/a", "large" * 16_000))
            assert joe.session.mailbox.view().depth == count + 1
        assert costs[many] < costs[few] * 2, costs

    def test_a_message_of_a_lower_priority_makes_no_room(self, stored: StoredWorld, joe: Receiver) -> None:
        client = Client(stored).joined()
        urgent = {"publish": {"priority": "HIGH"}}
        for _ in range(20):
            client.publish("/a", "large" * 100, ext=urgent)
        count = joe.session.mailbox.view().depth
        stored.broker.publish("/a", "large" * 400)
        assert joe.session.mailbox.view().depth == count

    def test_one_that_makes_room_costs_the_same_for_each_that_it_drops(self, make_stored: MakeStored) -> None:
        costs = {}
        for count in (few := 50, many := 400):
            world = make_stored("bayeux.max_queue_messages=2000")
            queue = {"maxEntries": 2000, "maxBytes": 40_000, "onOverflow": "dropOldest"}
            joe = Receiver(world).started("/a", name="joe/1", queue=queue)
            for number in range(count):
                world.broker.publish("/a", number)
            costs[count] = instructions(partial(world.broker.publish, "/a", "large" * 8000))
            assert joe.session.mailbox.view().depth == 1
        assert costs[many] < costs[few] * 2 * many / few, costs


class TestWhatCounts:
    """The bounds hold for all that waits, wherever it is, and for nothing that has ended."""

    @pytest.fixture
    def joe(self, stored: StoredWorld) -> Receiver:
        return Receiver(stored).started("/a", name="joe/1", queue={"maxEntries": 2, "maxBytes": 400})

    @pytest.mark.parametrize("values", [[0, 1], ["large" * 100]])
    def test_what_is_in_the_store_only_leaves_no_room_for_a_transient_message(
        self, stored: StoredWorld, joe: Receiver, values: list[Any]
    ) -> None:
        stored.sweep_after(AWAY_S)
        store(stored, "/a", *values)
        stored.broker.publish("/a", "one too many")
        assert joe.session.mailbox.view().depth == len(values)
        assert [letter.channel for letter in stored.letters()] == ["/a"]
        assert data(joe.take()) == values

    def test_what_is_in_the_store_only_leaves_no_room_as_others_see_it(
        self, stored: StoredWorld, joe: Receiver
    ) -> None:
        stored.sweep_after(AWAY_S)
        assert joe.session.mailbox.view().room == 2
        store(stored, "/a", 0)
        assert joe.session.mailbox.view().room == 1

    @pytest.mark.parametrize(
        "end",
        [
            lambda mailbox: Ends(mailbox).drop_first(2),
            lambda mailbox: [Ends(mailbox).dead_letter_one("", "user.update.holdback", "skipped") for _ in range(2)],
            lambda mailbox: mailbox.expire(10**18, is_gone=True),
        ],
        ids=["dropped", "skipped", "expired"],
    )
    def test_what_has_ended_at_the_client_leaves_its_room(
        self, make_world: MakeWorld, end: Callable[[Mailbox], object]
    ) -> None:
        world = make_world("storage.enabled=false", extensions=(AckExtension(),))
        queue = {"maxEntries": 2, "onOverflow": "disconnect"}
        ann, joe = Receiver(world).started("/a", update=False, queue=queue), Client(world).joined()
        for number in range(2):
            joe.publish("/a", number, ext={"publish": {"lifeTime": 1000, "forceDestroy": True}})
        assert data(ann.take()) == [0, 1]
        end(ann.session.mailbox)
        joe.publish("/a", 2)
        world.settle()
        assert ann.is_known
        assert data(ann.take()) == [2]

    @pytest.mark.parametrize("update", [True, False])
    def test_the_bytes_of_what_goes_out_again_count(self, stored: StoredWorld, update: bool) -> None:
        queue = {"maxEntries": 100, "maxBytes": 400, "onOverflow": "dropOldest"}
        joe = Receiver(stored).started("/a", name="joe/2", update=update, queue=queue)
        for number in range(4):
            stored.broker.publish("/a", f"{number}" * 50)
        joe.take()
        joe.ack = None
        for _ in range(3):  # a client that never makes progress has to wait
            request = joe.reconnect()
        assert request.is_held
        assert len(joe.session.mailbox._queue) == 4
        for number in range(4, 8):
            stored.broker.publish("/a", f"{number}" * 50)
            assert sum(len(each.wire) for each in joe.session.mailbox._queue) <= 400
