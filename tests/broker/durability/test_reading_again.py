"""The server reads all sessions again, because the store is not what it was, while messages come: they are taken once more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from crewel.bayeux.channel import Channel
from crewel.bayeux.message import Fields, Message
from crewel.broker.durability import durability
from crewel.broker.durability.log_appender import LogAppender
from crewel.broker.session import Session
from crewel.broker.writing.store_phase import StorePhase
from crewel.errors import StoreUnavailable
from crewel.security.grants import OPERATOR
from crewel.security.policy import GRANTED, Answer, OpenPolicy, Refusal
from crewel.storage import log as stored_log
from tests.broker.addressing.post import Clerk, come, ends, ids, letters, login, one, queue
from tests.broker.addressing.test_doubt import Line
from tests.broker.durability.test_log_appender import appended
from tests.broker.slow import Slow
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, data, failed, ok, store
from tests.broker.world import Request, reply_to


@pytest.fixture
def world(make_stored: MakeStored) -> StoredWorld:
    """A server that commits nothing by itself: the sessions of the store begin with the first message."""
    return make_stored("delivery.commit_ms=60000")


@pytest.fixture
def joe(world: StoredWorld) -> Receiver:
    receiver = Receiver(world).started("/a", name="joe/1", update=False)
    world.commit()
    return receiver


class SlowTurn:
    """What is appended from now on has its turn late."""

    def __init__(self, world: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        finish, self._ends, self._begun = LogAppender._finish, asyncio.Event(), asyncio.Event()

        async def late(appender: LogAppender) -> None:
            self._begun.set()
            await self._ends.wait()
            await finish(appender)

        monkeypatch.setattr(LogAppender, "_finish", late)
        world.broker.mailboxes.outbound.fan_outs.slice_s = -1.0

    def wait(self) -> None:
        """Until something waits for its turn."""
        self.world.wait(self._begun.wait())

    def end(self) -> None:
        """Let everything have its turn."""
        self._ends.set()


class Reading:
    """All sessions are read again, up to the moment before they are replaced."""

    def __init__(self, world: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.node = world, world.access.node
        self._queues = Slow(monkeypatch, durability, "stored_queues")
        self.task = world.loop.create_task(world.durability._reload())
        world.wait(self._queues.begun.wait())

    def replace(self) -> None:
        """Let the sessions be replaced."""
        self._queues.ends.set()
        while self.world.access.node is self.node:
            self.world.wait(self.world.store.reader.ping())

    def end(self) -> None:
        """Let all be read."""
        self.world.wait(self.task)
        self.world.settle()


def test_a_group_that_waits_for_its_turn_meanwhile(
    world: StoredWorld, joe: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(world, "/a", 1)
    reading, turn = Reading(world, monkeypatch), SlowTurn(world, monkeypatch)
    published = [world.loop.create_task(world.broker.publish_stored("/a", value)) for value in (2, 3)]
    turn.wait()
    reading.replace()
    turn.end()
    reading.end()
    for each in published:
        world.wait(each)
    assert data(joe.take()) == [1, 2, 3]


def test_a_read_of_the_log_that_is_under_way_meanwhile(
    world: StoredWorld, joe: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(world, "/a", 1)
    reading = Reading(world, monkeypatch)
    world.wait(appended(world, 2))
    slow = Slow(monkeypatch, stored_log, "read")
    published = world.loop.create_task(world.broker.publish_stored("/a", 3))
    world.wait(slow.begun.wait())
    reading.replace()
    slow.ends.set()
    reading.end()
    world.wait(published)
    assert data(joe.take()) == [1, 2, 3]


def test_what_only_memory_knows_of_a_session_is_kept(world: StoredWorld) -> None:
    """A transient message that waits, and the dead letter of another one that has failed."""
    joe = login(world, "joe/1", "/a")
    world.commit()
    world.broker.publish("/a", 1)
    world.settle()
    joe.take(failed(come(joe)[0], "user.message.invalid"))
    world.broker.publish("/a", 2)
    world.settle()
    world.wait(world.durability._reload())
    assert data(come(joe)) == [2]
    world.advance(60.0)
    world.commit()
    assert [code for _, code, _ in letters(world)] == ["user.message.invalid"]


def rejected(world: StoredWorld, receiver: Receiver) -> None:
    """The client of this session rejects a transient message: only memory has its dead letter."""
    world.broker.publish("/a", 1)
    world.settle()
    receiver.take(failed(come(receiver)[0], "user.message.invalid"))


def commit_begins(world: StoredWorld) -> None:
    world.durability.commit_soon()
    world.settle()


def codes_after_reading(world: StoredWorld, line: Line) -> list[str]:
    """The codes of all dead letters, when all sessions have been read again before this line is whole."""
    world.wait(world.durability._reload())
    line.left = 0
    world.advance(60.0)
    world.commit()
    return [code for _, code, _ in letters(world)]


@pytest.mark.parametrize("is_done", [True, False])
def test_a_dead_letter_of_a_commit_that_the_store_has_not_answered_is_stored_once(
    world: StoredWorld, is_done: bool
) -> None:
    """The commit is repeated under a token that the store refuses by then."""
    joe = login(world, "joe/1", "/a")
    world.commit()
    rejected(world, joe)
    line = Line(world, "commit", 10_000, is_done=is_done)
    commit_begins(world)
    assert line.left < 10_000
    assert codes_after_reading(world, line) == ["user.message.invalid"]


def refuse_while_reading(world: StoredWorld, monkeypatch: pytest.MonkeyPatch, line: Line) -> None:
    """Let the step on this line be repeated while all sessions are read again, whose old token the store refuses."""
    reading = Reading(world, monkeypatch)
    line.left = 0
    world.advance(1.0)
    assert letters(world) == []
    reading.replace()
    reading.end()
    world.advance(60.0)


def test_a_dead_letter_of_a_commit_that_is_refused_while_all_is_read_is_stored_once(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    joe = login(world, "joe/1", "/a")
    world.commit()
    rejected(world, joe)
    line = Line(world, "commit", 10_000, is_done=False)
    commit_begins(world)
    refuse_while_reading(world, monkeypatch, line)
    assert [code for _, code, _ in letters(world)] == ["user.message.invalid"]


def test_a_dead_letter_of_a_session_that_has_ended_is_stored_once(world: StoredWorld) -> None:
    joe = login(world, "joe/1", "/a")
    world.commit()
    rejected(world, joe)
    assert joe.say("/meta/disconnect")["successful"]
    assert codes_after_reading(world, Line(world, "commit", 0, is_done=False)) == ["user.message.invalid"]


def end_begins(world: StoredWorld, *, is_done: bool) -> Line:
    """A session ends with such a dead letter, which came after the commit that its end follows. Returns the line on which the
    answers to that get lost."""
    joe = login(world, "joe/1", "/a")
    store(world, "/a", 0)
    joe.take(*map(ok, come(joe)))
    Line(world, "commit", is_done=False)
    commit_begins(world)
    rejected(world, joe)
    assert joe.say("/meta/disconnect")["successful"]
    line = Line(world, "end", 10_000, is_done=is_done)
    world.advance(0.3)
    assert line.left < 10_000
    return line


@pytest.mark.parametrize("is_done", [True, False])
def test_a_dead_letter_of_an_end_that_the_store_has_not_answered_is_stored_once(
    world: StoredWorld, is_done: bool
) -> None:
    line = end_begins(world, is_done=is_done)
    assert codes_after_reading(world, line) == ["user.message.invalid"]
    assert login(world, "joe/1").session.is_live


def test_a_dead_letter_of_an_end_that_is_refused_while_all_is_read_is_stored_once(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = end_begins(world, is_done=False)
    refuse_while_reading(world, monkeypatch, line)
    assert [code for _, code, _ in letters(world)] == ["user.message.invalid"]
    assert login(world, "joe/1").session.is_live


def test_a_session_that_ends_meanwhile_ends(world: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    ann = login(world, "ann/1")
    world.commit()
    reading = Reading(world, monkeypatch)
    assert ann.say("/meta/disconnect")["successful"]
    reading.replace()
    reading.end()
    world.advance(60.0)
    world.commit()
    assert not world.wait(world.store.reader.exists(world.store.keys.session("client/ann/1")))
    assert login(world, "ann/1").session.is_live


@pytest.mark.parametrize("is_done", [True, False])
def test_a_session_that_has_ended_before_ends_although_the_store_has_not_answered(
    world: StoredWorld, is_done: bool
) -> None:
    """It is asked again under a token that it refuses by then."""
    ann = login(world, "ann/1")
    world.commit()
    line = Line(world, "close", 10_000, is_done=is_done)
    assert ann.say("/meta/disconnect")["successful"]
    world.wait(world.durability._reload())
    line.left = 0
    world.advance(60.0)
    world.commit()
    assert not world.wait(world.store.reader.exists(world.store.keys.session("client/ann/1")))
    assert login(world, "ann/1").session.is_live


def straddled(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch, client: Receiver, channel: str, **fields: Any
) -> Fields:
    """The reply to a message behind two publishes in one payload: the second waits for its turn while all is read again."""
    reading, turn = Reading(world, monkeypatch), SlowTurn(world, monkeypatch)
    published = [client.message("/a", data=value, ext={"publish": {"persistent": True}}) for value in (1, 2)]
    message = client.message(channel, **fields)
    peer = Request(client.browser)
    world.broker.inbound.receive(peer, [*published, message])
    turn.wait()
    reading.replace()
    assert peer.is_held
    turn.end()
    reading.end()
    return reply_to(peer, message["id"])


def test_a_disconnect_that_waits_meanwhile_ends_the_session_that_is_back(
    world: StoredWorld, joe: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert straddled(world, monkeypatch, joe, "/meta/disconnect")["successful"]
    assert not joe.is_known
    world.advance(60.0)
    world.commit()
    assert not world.wait(world.store.reader.exists(world.store.keys.session("client/joe/1")))


def test_a_subscribe_that_waits_meanwhile_is_that_of_the_session_that_is_back(
    world: StoredWorld, joe: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = joe.session
    reply = straddled(world, monkeypatch, joe, "/meta/subscribe", subscription="/b")
    assert not former.is_live
    assert former.subscriptions == set()
    assert ("/b" in joe.session.subscriptions) is reply["successful"]


class LatePolicy(OpenPolicy):
    """Grants all subscribes at once but those to one channel."""

    def __init__(self, channel: str, answer: asyncio.Future[bool]) -> None:
        self._channel, self._answer = channel, answer

    def can_subscribe(self, session: Session, channel: Channel, message: Message) -> Answer:
        return self._answer if channel.name == self._channel else GRANTED


def test_a_subscribe_whose_policy_answers_after_that_is_refused(world: StoredWorld, joe: Receiver) -> None:
    answer = world.loop.create_future()
    world.broker.admission.guard.policy = LatePolicy("/c", answer)
    former, message = joe.session, joe.message("/meta/subscribe", subscription=["/b", "/c"])
    peer = joe.send(message)
    world.wait(world.durability._reload())
    answer.set_result(GRANTED)
    world.settle()
    assert not reply_to(peer, message["id"])["successful"]
    assert (former.subscriptions, joe.session.subscriptions) == (set(), {"/a"})


def test_an_answer_that_waits_meanwhile_takes_no_message_from_the_session_that_is_back(
    world: StoredWorld, joe: Receiver
) -> None:
    world.broker.publish("/a", 1)
    world.settle()
    answer = world.loop.create_future()
    world.broker.admission.guard.policy = LatePolicy("/c", answer)
    message = joe.message("/meta/subscribe", subscription="/c")
    peer = joe.send(message)
    world.wait(world.durability._reload())
    answer.set_result(GRANTED)
    world.settle()
    assert data(each for each in peer.received if "data" in each) == []
    assert data(come(joe)) == [1]


class NoPublishes(OpenPolicy):
    """The policy of an application, which knows no token of the server itself."""

    def can_publish(self, session: Session, channel: Channel, message: Message) -> Answer:
        return Refusal("not yours")


@pytest.mark.parametrize("name", [{}, {"name": "joe/1"}], ids=["without a name", "with a name"])
def test_a_login_with_the_admin_token_still_holds_after_that(world: StoredWorld, name: dict[str, str]) -> None:
    """The token is not stored; nor is what the application has noted of the session."""
    operator = Receiver(world).started("/a", **name)
    former = operator.session
    former.authenticate(OPERATOR)
    former.attributes["shift"] = 2
    world.broker.admission.guard.policy = NoPublishes()
    world.commit()
    world.wait(world.durability._reload())
    assert operator.session is not former
    assert operator.say("/a", data=1)["successful"]
    assert operator.session.attributes == {"shift": 2}


WORKERS = {"subscription": "/jobs", "ext": {"subscribe": {"group": "workers"}}}


def test_a_group_that_a_session_knows_nothing_of_ends_it(world: StoredWorld) -> None:
    """It would get messages of the group for which its client has no listener."""
    ann = login(world, "ann/1")
    Line(world, "subscribe", is_done=True)
    again = Line(world, "unsubscribe", 10_000, is_done=False)
    assert not ann.say("/meta/subscribe", **WORKERS)["successful"]
    world.wait(world.durability._reload())
    again.left = 0
    assert not ann.is_known


def test_all_that_is_asked_again_has_its_turn_before(world: StoredWorld) -> None:
    """When the store has forgotten one step, others may be in a pause."""
    ann, node = login(world, "ann/1"), world.access.node
    Line(world, "subscribe", is_done=True)
    Line(world, "unsubscribe", is_done=False)
    assert not ann.say("/meta/subscribe", **WORKERS)["successful"]
    world.access.writing._on_forgotten(world.loop.time())
    for _ in range(50):
        world.wait(world.store.reader.ping())  # time enough for the store, and none for the pause
    assert world.access.node is node
    world.advance(60.0)
    assert world.access.node is not node
    assert ann.is_known
    assert world.broker.addressing.groups.of(ann.session) == []


def test_a_message_that_a_session_has_failed_meanwhile_comes_again(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = login(world, "ann/1")
    message_id = Clerk(world).post("hi", one("ann"), persistent=True)
    second = login(world, "ann/2")
    (message,) = come(first)
    world.advance(60.0)
    world.commit()
    reading = Reading(world, monkeypatch)
    first.take(failed(message, "user.update.error"))
    reading.replace()
    reading.end()
    (again,) = come(first)
    first.take(ok(again))
    assert come(second) == []
    world.advance(60.0)
    world.commit()
    assert ends(world) == {(message_id, "settled"): 1}
    assert letters(world) == []


def test_an_operator_who_puts_a_session_on_hold_meanwhile_learns_that_it_is_not(
    world: StoredWorld, joe: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatchers = world.broker.mailboxes.dispatchers
    reading = Reading(world, monkeypatch)
    with pytest.raises(StoreUnavailable, match="read again"):
        world.wait(dispatchers.hold(joe.session, "operator"))
    reading.replace()
    reading.end()
    restored = world.broker.sessions.by_id[joe.session.id]
    assert restored.mailbox.view().holdback is None
    world.wait(world.durability._reload())
    assert world.broker.sessions.by_id[joe.session.id].mailbox.view().holdback is None


def test_a_message_to_a_session_by_name_is_refused_meanwhile(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store would have it in a session whose record was read before."""
    clerk, ann = Clerk(world), login(world, "ann/1")
    world.commit()
    reading = Reading(world, monkeypatch)
    reply = clerk.ask("lost", queue("ann"), persistent=True)
    assert (reply["successful"], reply["error"]) == (False, "503::resource.unavailable"), reply
    reading.replace()
    reading.end()
    message_id = clerk.post("hi", queue("ann"), persistent=True)
    assert ids(come(ann)) == [message_id]


def test_a_message_of_a_shared_queue_waits_meanwhile(world: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    clerk, ann = Clerk(world), login(world, "ann/1")
    world.commit()
    reading = Reading(world, monkeypatch)
    message_id = clerk.post("hi", one("ann", waits=True), persistent=True)
    reading.replace()
    reading.end()
    assert ids(come(ann)) == [message_id]


def test_a_commit_that_is_waited_for_is_not_made_meanwhile(world: StoredWorld, joe: Receiver) -> None:
    """A node that waits for one then removes what the commit has made unneeded."""
    world.access.phase = StorePhase.CATCHING_UP
    waiting = world.loop.create_task(world.durability.committed())
    world.advance(120.0)
    world.settle()
    assert not waiting.done()
    world.access.phase = StorePhase.SERVING
    world.advance(60.0)
    world.wait(waiting)


def test_a_server_that_ends_while_it_reads_commits_nothing_of_what_was_before(
    world: StoredWorld, joe: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has adopted the sessions for the new token already, and memory has what it was under the old one."""
    store(world, "/a", 1)
    joe.take()
    joe.take()  # acknowledges it

    has_failed = asyncio.Event()

    async def away(*_: object) -> None:
        has_failed.set()
        raise StoreUnavailable("away")

    monkeypatch.setattr(durability, "stored_queues", away)
    reading = world.loop.create_task(world.durability._reload())
    world.wait(has_failed.wait())
    world.settle()
    commits = list[object]()
    submit = world.store.submit

    def note(steps: Any, done: Any) -> None:
        commits.extend(each for each in steps if each.script == "commit")
        submit(steps, done)

    monkeypatch.setattr(world.store, "submit", note)
    world.durability._closing.set()
    world.advance(durability._RELOAD_PAUSE)
    assert reading.done()
    world.close()
    assert commits == []


def in_steps(world: StoredWorld, count: int, at: Callable[[int], object] = bool) -> list[int]:
    """A message that is handed out in so many steps, each a turn of its own. Returns the steps that were made; `at` is called
    in each."""
    world.broker.mailboxes.outbound.fan_outs.slice_s = 0.0
    made = list[int]()

    def steps() -> Iterator[None]:
        for number in range(count):
            made.append(number)
            at(number)
            yield

    world.durability.appender._unfinished.append(steps())
    return made


def test_two_tasks_that_hand_out_messages_at_once_make_each_step_once(world: StoredWorld) -> None:
    """One reads the log for the new sessions, and the other takes what a publisher has appended."""
    first, second = in_steps(world, 5), in_steps(world, 5)
    tasks = [world.loop.create_task(world.durability.appender._finish()) for _ in range(2)]
    for task in tasks:
        world.wait(task)
    assert (first, second) == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])


def test_what_is_handed_out_in_steps_ends_with_the_sessions_that_are_replaced(world: StoredWorld) -> None:
    appender = world.durability.appender
    made = in_steps(world, 5, lambda number: number == 2 and appender.begin_again())
    world.wait(appender._finish())
    assert made == [0, 1, 2]
    assert not appender.is_in_steps
