"""What the store has lost by the comparison with what the server was answered, with the real store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from crewel.delivery.records import LogId
from crewel.errors import Behind, StoreError, StoreUnavailable, StoreUncertain
from crewel.storage import session_store
from crewel.storage.script_step import Step
from tests.broker.stored_world import Receiver, StoredWorld, failed

STORED = {"publish": {"persistent": True}}
LOST = "the store has lost data"


@pytest.fixture
def stored(make_stored: Callable[..., StoredWorld]) -> StoredWorld:
    return make_stored()


def publish(world: StoredWorld, publisher: Receiver) -> LogId:
    """Returns the id of a message that the store has confirmed."""
    publisher.send(publisher.message("/news", data=1, ext=STORED))
    world.settle()
    return world.access.node.cursor


def suspect(world: StoredWorld) -> None:
    """The store says that it does not know this server, which tries once to begin with what the store has."""
    world.access.lost(StoreError("suspected"))
    read_all(world)


def read_all(world: StoredWorld) -> None:
    """Let the store answer what it is asked for one after the other; time stands still."""
    for _ in range(20):
        world.settle()
        world.wait(world.store.reader.ping())


def no_answer_to(script: str, monkeypatch: pytest.MonkeyPatch, error: StoreError | None = None) -> list[str]:
    """The store does the next such step, and the server is not answered, or gets this error. Returns the script until then."""
    result, left = Step.result, [script]

    def lost(step: Step[object], answer: object) -> object:
        if step.script in left:
            left.clear()
            raise error or StoreUncertain("1 of 2 replicas have it in time")
        return result(step, answer)

    monkeypatch.setattr(Step, "result", lost)
    return left


@pytest.mark.parametrize("script", ["meet", "boot"])
def test_what_is_confirmed_between_two_attempts_is_not_lost(
    stored: StoredWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, script: str
) -> None:
    publisher = Receiver(stored).started()
    publish(stored, publisher)
    no_answer_to(script, monkeypatch)
    suspect(stored)
    assert stored.access.phase.is_reloading
    before = stored.access.node.cursor
    assert publish(stored, publisher) > before, "nothing was published meanwhile"
    stored.advance(1)
    read_all(stored)
    assert not stored.access.phase.is_reloading
    assert LOST not in caplog.text
    assert stored.broker.runtime.metrics.store_losses == 0


def test_a_loss_whose_record_was_not_confirmed_is_counted_once(
    stored: StoredWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = Receiver(stored).started()
    first, last = publish(stored, publisher), publish(stored, publisher)
    stored.wait(stored.store.reader.set(stored.store.keys.last, first))
    no_answer_to("lose", monkeypatch)
    suspect(stored)
    stored.advance(1)
    read_all(stored)
    metrics = stored.broker.runtime.metrics
    assert (metrics.store_losses, metrics.lost_messages) == (1, 1)
    assert f"what came after {first}" in caplog.text
    assert int(stored.wait(stored.store.reader.get(stored.store.keys.last))) == last


def test_what_a_new_store_has_confirmed_is_not_lost_when_its_connection_ends_before_the_comparison(
    stored: StoredWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = Receiver(stored).started()
    publish(stored, publisher)
    losses = stored.durability._losses
    monkeypatch.setattr(type(stored.store), "generation", "another")
    monkeypatch.setattr(stored.store, "met", stored.store.met._replace(last=stored.access.node.cursor))
    losses.store_changed()
    publish(stored, publisher)
    losses.store_changed()
    stored.wait(losses.compare("before", is_fenced=False))
    assert LOST not in caplog.text
    assert "all sessions are read again" in caplog.text


def test_a_server_says_at_once_that_it_reads_its_sessions_again(
    stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not ready, reading, ready: between the first two it was ready for a moment, and what was acknowledged then came again."""
    assert stored.access.trouble is None
    monkeypatch.setattr(type(stored.store), "generation", "another")
    stored.durability._store_is_back()
    assert stored.access.trouble is not None
    assert not stored.access.phase.is_reloading
    read_all(stored)
    assert stored.access.trouble is None


def test_a_server_that_hears_of_it_twice_is_ready_when_it_has_read_its_sessions_again(stored: StoredWorld) -> None:
    """First by a commit, and then by what was published meanwhile: it stayed unready, and read no log of others any more."""
    stored.broker.runtime.spawn(stored.durability._lost(Behind("by a commit")))
    stored.wait(asyncio.sleep(0))  # it has begun; a quick store would have answered all before others settle
    assert stored.access.trouble is not None
    suspect(stored)
    assert stored.access.trouble is None


def test_the_sessions_are_not_read_again_for_a_refusal_of_what_was_asked_before(
    stored: StoredWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A step waits for a store that is away, and is asked again when the sessions were read: as the former node."""
    receiver = Receiver(stored).started()
    left = no_answer_to("away", monkeypatch, StoreUnavailable("the store is away"))
    stored.durability.note_away(receiver.session, 10)
    stored.durability.commit_soon()
    read_all(stored)
    assert not left
    suspect(stored)
    token = stored.access.token
    stored.advance(1)
    read_all(stored)
    assert caplog.text.count("all sessions are read again") == 1
    assert (stored.access.token, stored.access.trouble) == (token, None)


def test_sessions_that_a_changed_store_lacks_are_counted_when_the_first_attempt_to_read_it_fails(
    stored: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable = Receiver(stored).started().session.durable
    stored.commit()
    assert durable is not None
    stored.wait(stored.store.reader.delete(stored.store.keys.session(durable.name)))
    no_answer_to("adopt", monkeypatch)
    monkeypatch.setattr(type(stored.store), "generation", "another")
    stored.durability._store_is_back()
    read_all(stored)
    assert stored.access.phase.is_reloading
    stored.advance(1)
    read_all(stored)
    assert not stored.access.phase.is_reloading
    assert stored.broker.runtime.metrics.lost_sessions == 1


def test_a_session_that_is_read_again_is_away_since_the_same_time_and_keeps_its_last_failure(
    stored: StoredWorld,
) -> None:
    joe = Receiver(stored).started("/news", name="joe/1", update=True, settle="message")
    publish(stored, Receiver(stored).started())
    (message,) = joe.take()
    joe.tell(failed(message, "user.update.error", "no"))
    dispatchers = stored.broker.mailboxes.dispatchers
    stored.sweep_after(40)
    assert dispatchers.is_away(joe.session)
    came = joe.session.last_seen
    suspect(stored)
    for _ in range(3):
        assert dispatchers.is_away(joe.session)
        assert dispatchers.away_since(joe.session) == came
        stored.advance(20)
    assert joe.session.mailbox._dispatcher.last_failure == ("user.update.error", "no")


def test_after_a_restart_a_client_is_away_since_the_start_until_it_is_seen(
    make_stored: Callable[..., StoredWorld],
) -> None:
    before = make_stored()
    Receiver(before).started("/news", name="joe/1")
    before.close()
    after = make_stored(prefix=before.prefix)
    (session,) = after.broker.sessions.by_id.values()
    began = after.loop.time()
    for _ in range(3):
        assert after.broker.mailboxes.dispatchers.away_since(session) == began
        after.advance(5)


def test_sessions_that_another_node_has_are_not_lost(
    make_stored: Callable[..., StoredWorld], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The store was away for so long that this node was taken for dead, and is another one since: one session is nowhere."""
    node = make_stored("cluster.enabled=true")
    heir = make_stored("cluster.enabled=true", prefix=node.prefix)
    durables = [Receiver(node).started("/news").session.durable for _ in range(4)]
    node.commit()
    lost, *taken = [durable.name for durable in durables if durable is not None]
    heir.wait(heir.store.reader.delete(heir.store.keys.session(lost)))
    monkeypatch.setattr(session_store, "_TOGETHER", 3)
    heir.wait(heir.durability.inheritance.take_over_dead([node.access.token]))
    monkeypatch.setattr(type(node.store), "generation", "another")
    with caplog.at_level(logging.INFO):
        node.durability._store_is_back()
        read_all(node)
    assert not node.access.phase.is_reloading
    assert heir.access.node.sessions.keys() >= {*taken}
    assert node.broker.runtime.metrics.lost_sessions == 1
    assert "the store has lost 1 sessions" in caplog.text
    assert f"other nodes have taken over {len(taken)} sessions" in caplog.text
