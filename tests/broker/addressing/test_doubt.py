"""Answers of the store that are lost or late: what was done is known in the end, and is done once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from crewel.broker.addressing.lease_room import AHEAD
from crewel.broker.dead_letters.redrive import Chosen, Limits
from crewel.errors import StoreError, StoreFull, StoreUnavailable, StoreUncertain
from crewel.storage import shared_queue_store
from crewel.storage.script_step import REMEMBERED_MS, Step
from crewel.storage.shared_queue_store import Lease, StoredQueue
from crewel.storage.store import Store
from tests.broker.addressing.post import Clerk, come, ends, ids, letters, login, one, queue, settled
from tests.broker.stored_world import Receiver, StoredWorld, data, failed, origin, store
from tests.broker.world import Client, data_of, reply_to

EDITED = b'{"channel":"/news","data":2}'


class Line:
    """The way to the store, on which answers to one kind of step get lost: the step is done, or it is not."""

    def __init__(
        self, world: StoredWorld, script: str, times: int = 1, *, is_done: bool, error: StoreError | None = None
    ) -> None:
        """`error`: what is answered instead; by default that the store is away, or has not answered."""
        self._submit = world.store.submit
        self._script, self._is_done = script, is_done
        self._error = error or (StoreUncertain("no answer") if is_done else StoreUnavailable("away"))
        self.left = times
        world.store.submit = self.submit  # type: ignore[method-assign]

    def submit(self, steps: Sequence[Step[Any]], done: Callable[[list[Any]], None]) -> None:
        hit = [place for place, step in enumerate(steps) if step.script == self._script][: self.left]
        self.left -= len(hit)
        error = self._error

        def lost(answers: list[Any]) -> None:
            told = iter(answers)
            done([error if place in hit else next(told) for place in range(len(steps))])

        if self._is_done:
            self._submit(steps, lambda answers: done([error if i in hit else a for i, a in enumerate(answers)]))
        else:
            self._submit([step for place, step in enumerate(steps) if place not in hit], lost)


def wait(world: StoredWorld) -> None:
    """Until what has to be asked again has been."""
    world.advance(1.0)
    world.commit()


def assert_repeat_is_delivered_once(world: StoredWorld, clerk: Clerk, joe: Receiver) -> None:
    """A publish with the key of one that the store did not answer is that one."""
    message_id = clerk.post("hi", "joe/1", persistent=True, key="k")
    wait(world)
    messages = come(joe)
    assert ids(messages) == [message_id]
    settled(joe, *messages)
    assert ends(world) == {(message_id, "settled"): 1}


class TestAHandOver:
    """What waits for a subject goes to a session that acknowledges nothing."""

    @pytest.mark.parametrize("is_done", [False, True])
    def test_whose_end_is_in_doubt_sends_each_message_once(self, world: StoredWorld, is_done: bool) -> None:
        clerk = Clerk(world)
        wanted = [clerk.post(number, queue("ann")) for number in range(AHEAD + 2)]
        line = Line(world, "discard_waiting", is_done=is_done)
        ann = self._come(world)
        wait(world)
        assert data_of(ann.connect(advice={"timeout": 0}).received) == [*range(len(wanted))]
        assert (line.left, world.broker.addressing.destinations.waiting("ann")) == (0, 0)
        assert ends(world) == {(each, "settled"): 1 for each in wanted}

    def test_that_could_not_read_the_queue_reads_it_again(
        self, world: StoredWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        message_id = Clerk(world).post("hi", queue("ann"))
        peek, errors = shared_queue_store.peek, [StoreUnavailable("away")]

        async def broken(*asked: Any) -> Any:
            if errors:
                raise errors.pop()
            return await peek(*asked)

        monkeypatch.setattr(shared_queue_store, "peek", broken)
        ann = self._come(world)
        wait(world)
        assert data_of(ann.connect(advice={"timeout": 0}).received) == ["hi"]
        assert (errors, ends(world)) == ([], {(message_id, "settled"): 1})

    @staticmethod
    def _come(world: StoredWorld) -> Client:
        ann = Client(world)
        assert ann.handshake(ext={"session": {"name": "ann/1"}})["successful"]
        ann.connect(advice={"timeout": 0})
        return ann


class TestASend:
    def test_that_was_done_is_known_although_its_publisher_was_told_otherwise(self, world: StoredWorld) -> None:
        clerk, joe = Clerk(world), login(world, "joe/1")
        line = Line(world, "send", is_done=True)
        reply = clerk.ask("hi", "joe/1", queue("ann"), persistent=True)
        assert (reply["successful"], line.left) == (False, 0)
        assert reply["ext"]["publish"]["errorCode"] == "resource.unavailable"
        wait(world)
        (message,) = come(joe)
        settled(joe, message)
        assert world.broker.addressing.destinations.waiting("ann") == 1
        assert ids(come(login(world, "ann/1"))) == [origin(message)["id"]]
        assert world.inbox(joe.session) == []

    def test_whose_repeat_has_the_same_key_is_done_once(self, world: StoredWorld) -> None:
        clerk, joe = Clerk(world), login(world, "joe/1")
        Line(world, "send", is_done=True)
        assert not clerk.ask("hi", "joe/1", persistent=True, key="k")["successful"]
        assert_repeat_is_delivered_once(world, clerk, joe)

    def test_that_was_not_done_leaves_nothing(self, world: StoredWorld) -> None:
        clerk, joe = Clerk(world), login(world, "joe/1")
        Line(world, "send", is_done=False)
        assert not clerk.ask("hi", "joe/1", persistent=True)["successful"]
        wait(world)
        assert come(joe) == []


class TestAPublish:
    def test_that_was_done_reaches_a_group_although_its_publisher_was_told_otherwise(self, world: StoredWorld) -> None:
        joe = login(world, "joe/1")
        reply = joe.say("/meta/subscribe", subscription="/jobs/*", ext={"subscribe": {"group": "workers"}})
        assert reply["successful"]
        Line(world, "publish", is_done=True)
        message = Clerk(world)
        assert not message.say("/jobs/a", data="hi", ext={"publish": {"persistent": True}})["successful"]
        world.access.writing.probe()  # as when the store is back
        wait(world)
        (heard,) = come(joe)
        settled(joe, heard)
        assert ends(world) == {(origin(heard)["id"], "settled"): 1}


class TestAnOutageThatIsLonger:
    """By its end the store has forgotten what it has done, and to ask again is to ask for the first time. It was there all the
    time: its replicas were not, say."""

    def end(self, world: StoredWorld, line: Line) -> None:
        world.advance(REMEMBERED_MS / 1000)
        keys = world.wait(world.store.reader.keys(world.store.keys.once("*")))
        world.wait(world.store.reader.delete(*keys))
        line.left = 0
        wait(world)

    def test_than_a_lease_is_remembered(self, world: StoredWorld) -> None:
        message_id = Clerk(world).post("hi", queue("joe"))
        line = Line(world, "lease_queued", 10_000, is_done=True)
        joe = login(world, "joe/1")
        self.end(world, line)
        messages = come(joe)
        assert ids(messages) == [message_id]
        settled(joe, *messages)
        assert ends(world) == {(message_id, "settled"): 1}

    def test_than_a_send_is_remembered(self, world: StoredWorld) -> None:
        clerk, joe = Clerk(world), login(world, "joe/1")
        line = Line(world, "send", 10_000, is_done=True)
        assert not clerk.ask("hi", "joe/1", persistent=True)["successful"]
        self.end(world, line)
        (message,) = come(joe)
        settled(joe, message)
        assert ends(world) == {(origin(message)["id"], "settled"): 1}

    def test_than_a_send_is_asked_again_whose_publisher_repeats_the_key(self, world: StoredWorld) -> None:
        clerk, joe = Clerk(world), login(world, "joe/1")
        line = Line(world, "send", 10_000, is_done=True)
        assert not clerk.ask("hi", "joe/1", persistent=True, key="k")["successful"]
        world.advance(REMEMBERED_MS / 1000 - 10.0)
        line.left = 0
        assert_repeat_is_delivered_once(world, clerk, joe)

    def test_than_a_redrive_is_remembered(self, world: StoredWorld) -> None:
        joe = login(world, "joe/1", "/news")
        store(world, "/news", 1)
        joe.take(failed(come(joe)[0], "user.x"))
        (letter,) = world.letters()
        line = Line(world, "redrive", 10_000, is_done=True)
        redrive = world.broker.dead_letters.redrive.redrive(Chosen(ids=(letter.dead_id,)), Limits())
        asked = world.loop.create_task(redrive)
        self.end(world, line)
        assert world.wait(asked).done == 0  # it was not done when the operator was answered
        assert data(come(joe)) == [1]

    def test_than_steps_are_remembered_begins_with_the_first_lost_answer(self, world: StoredWorld) -> None:
        """While the store refuses a step, it has done nothing that it could forget."""
        line = Line(world, "lease_queued", 10_000, is_done=False)
        Clerk(world).post("hi", queue("joe"))
        joe, node = login(world, "joe/1"), world.access.node
        world.advance(REMEMBERED_MS / 1000)
        line.left = 0
        wait(world)
        assert data(come(joe)) == ["hi"]
        assert world.access.node is node


@pytest.mark.parametrize("is_done", [True, False])
class TestTheRest:
    def test_a_lease(self, world: StoredWorld, is_done: bool) -> None:
        message_id = Clerk(world).post("hi", queue("joe"))
        Line(world, "lease_queued", 2, is_done=is_done)
        joe = login(world, "joe/1")
        wait(world)
        messages = come(joe)
        assert ids(messages) == [message_id]
        settled(joe, *messages)
        assert ends(world) == {(message_id, "settled"): 1}

    def test_a_going_back(self, world: StoredWorld, is_done: bool) -> None:
        first = login(world, "joe/1")
        message_id = Clerk(world).post("hi", one("joe"))
        second = login(world, "joe/2")
        Line(world, "requeue", 2, is_done=is_done)
        first.take(failed(come(first)[0], "user.update.error"))
        wait(world)
        messages = come(second)
        assert ids(messages) == [message_id]
        settled(second, *messages)
        assert letters(world) == []
        assert ends(world) == {(message_id, "settled"): 1}

    def test_an_end(self, world: StoredWorld, is_done: bool) -> None:
        joe = login(world, "joe/1")
        message_id = Clerk(world).post("hi", queue("joe"))
        Line(world, "end", 2, is_done=is_done)
        joe.say("/meta/disconnect")
        wait(world)
        wait(world)
        later = login(world, "joe/2")
        wait(world)
        messages = come(later)
        assert ids(messages) == [message_id]
        settled(later, *messages)
        assert ends(world) == {(message_id, "settled"): 1}

    def test_a_session_that_ends_while_something_goes_back(self, world: StoredWorld, is_done: bool) -> None:
        first = login(world, "joe/1")
        message_id = Clerk(world).post("hi", one("joe"))
        second = login(world, "joe/2")
        Line(world, "requeue", 3, is_done=is_done)
        first.take(failed(come(first)[0], "user.update.error"))
        first.say("/meta/disconnect")
        wait(world)
        wait(world)
        messages = come(second)
        assert ids(messages) == [message_id]
        settled(second, *messages)
        assert letters(world) == []
        assert ends(world) == {(message_id, "settled"): 1}


@pytest.mark.parametrize("script", ["lease_queued", "requeue"])
def test_a_store_that_is_full_is_asked_again_when_it_may_have_space(world: StoredWorld, script: str) -> None:
    first = login(world, "joe/1")
    message_id = Clerk(world).post("hi", one("joe"))
    (message,) = come(first)
    second = login(world, "joe/2")
    Line(world, script, 2, is_done=False, error=StoreFull("the disk is full"))
    first.take(failed(message, "user.update.error"))
    wait(world)
    messages = come(second)
    assert ids(messages) == [message_id]
    settled(second, *messages)
    assert ends(world) == {(message_id, "settled"): 1}


def test_a_queue_is_not_asked_for_again_because_the_store_is_slow(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, lease = [0], shared_queue_store.lease

    def lease_late(*what: Any) -> Step[Lease]:
        asked[0] += 1
        assert asked[0] < 20
        world.loop._now += 0.3
        return lease(*what)

    monkeypatch.setattr(shared_queue_store, "lease", lease_late)
    message_id = Clerk(world).post("hi", queue("joe"))
    joe = login(world, "joe/1")
    assert ids(come(joe)) == [message_id]
    world.advance(0.1)
    assert 0 < asked[0] <= 2


def test_a_login_waits_for_the_end_of_the_session_before_it(world: StoredWorld) -> None:
    """Also while the store is asked for the last time."""
    first = login(world, "joe/1")
    message_id = Clerk(world).post("hi", queue("joe"))
    Line(world, "end", 10, is_done=False)
    first.say("/meta/disconnect")
    world.commit()
    assert [*world.access.leaving] == ["client/joe/1"]  # it has been asked for, and will be again
    later = Receiver(world)
    message = later.message(
        "/meta/handshake", version="1.0", ext={"ack": True, "session": {"name": "joe/1", "update": True}}
    )
    peer = later.send(message)
    assert peer.payloads == []
    wait(world)
    wait(world)
    reply = reply_to(peer, message["id"])
    assert reply["successful"], reply
    later.id = reply["clientId"]
    assert ids(come(later)) == [message_id]


def test_an_edit_that_the_store_does_not_answer_may_be_done_later(world: StoredWorld) -> None:
    joe = login(world, "joe/1", "/news")
    store(world, "/news", 1)
    (message,) = come(joe)
    joe.take(failed(message, "user.x"))
    (letter,) = world.letters()
    line = Line(world, "redrive", 10_000, is_done=False)
    edit = world.loop.create_task(world.broker.dead_letters.redrive.edit(letter, EDITED, "an operator"))
    world.advance(10.0)
    with pytest.raises(StoreUncertain, match="may still send the dead letter"):
        world.wait(edit)
    line.left = 0
    wait(world)
    (message,) = come(joe)
    assert message["data"] == 2


class TestReadingLate:
    """How much waits is read while messages come: what was read before them says nothing of them."""

    @pytest.mark.parametrize(
        ("read", "begin"),
        [
            (
                "crewel.storage.shared_queue_store.queues",
                lambda world: world.broker.addressing.shared_queues.load_again(),
            ),
            ("crewel.broker.durability.durability.stored_queues", lambda world: world.durability._reload()),
        ],
        ids=["something unknown was found", "the store has lost something"],
    )
    def test_what_has_come_meanwhile_is_not_forgotten(
        self, world: StoredWorld, monkeypatch: pytest.MonkeyPatch, read: str, begin: Callable[[StoredWorld], Any]
    ) -> None:
        clerk, was_read, told = Clerk(world), world.loop.create_future(), world.loop.create_future()
        queues = shared_queue_store.queues

        async def queues_late(store: Store) -> list[StoredQueue]:
            found = await queues(store)
            was_read.set_result(None)
            await told
            return found

        monkeypatch.setattr(read, queues_late)
        reading = world.loop.create_task(begin(world))
        world.wait(was_read)
        message_id = clerk.post("hi", queue("ann"))
        told.set_result(None)
        world.wait(reading)
        assert ids(come(login(world, "ann/1"))) == [message_id]


class TestALogin:
    def test_whose_session_got_a_letter_meanwhile_finds_it_there(self, world: StoredWorld) -> None:
        """The store has the session, and memory lacks it until its client comes again."""
        joe = login(world, "joe/1", "/news")
        store(world, "/news", 1)
        joe.say("/meta/disconnect")
        (letter,) = world.letters()
        line = Line(world, "login", is_done=True)
        asked = {"name": "joe/1", "update": True, "settle": "message"}
        assert not Receiver(world).handshake(ext={"ack": True, "session": asked})["successful"]
        assert line.left == 0
        redriven = world.wait(world.broker.dead_letters.redrive.redrive(Chosen(ids=(letter.dead_id,)), Limits()))
        assert redriven.done == 1
        again = login(world, "joe/1")
        messages = come(again)
        assert data(messages) == [1]
        settled(again, *messages)
        assert world.inbox(again.session) == []
