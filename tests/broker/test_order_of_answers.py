"""What the store answers changes memory in the order of the answers: what one step has left there, the next one finds."""

from __future__ import annotations

import pytest

from crewel.broker.dead_letters.redrive import Chosen, Limits
from crewel.delivery.records import EndReason, LogId
from tests.broker.addressing.post import Clerk, come, login, queue
from tests.broker.stored_world import Receiver, StoredWorld, data, failed, store
from tests.broker.together import Together
from tests.broker.world import reply_to

pytestmark = pytest.mark.store

ANN = "client/ann"
WORK = "/jobs/a"
GROUP = {"subscribe": {"group": "workers"}}
HISTORY = {"publish": {"history": {"maxEntries": 5}}}


def test_letters_that_are_redriven_while_their_receiver_logs_in_reach_it(stored: StoredWorld) -> None:
    joe = Receiver(stored).started("/news", name="joe/1")
    store(stored, "/news", 1, 2)
    joe.say("/meta/disconnect")
    letters = stored.letters()
    assert len(letters) == 2
    together, again = Together(stored), Receiver(stored)
    asked = {"name": "joe/1", "update": True}
    message = again.message("/meta/handshake", version="1.0", ext={"ack": True, "session": asked})
    handshake = together.send(again, message)
    chosen = Chosen(ids=tuple(each.dead_id for each in letters))
    redriving = together.ask(stored.broker.dead_letters.redrive.redrive(chosen, Limits()))
    together.close()
    assert stored.wait(redriving).done == 2
    again.id, again.browser = reply_to(handshake, message["id"])["clientId"], handshake.browser
    assert len(stored.inbox(again.session)) == 2
    assert stored.wait(stored.durability.waiting()) == 2
    assert data([*again.take(), *again.take()]) == [1, 2]


def test_a_queue_that_is_counted_while_messages_are_discarded_keeps_the_others(stored: StoredWorld) -> None:
    clerk, queues = Clerk(stored), stored.broker.addressing.shared_queues
    places = [LogId(int(clerk.post(number, queue("ann"), persistent=True))) for number in range(3)]
    together = Together(stored)
    discarding = together.ask(queues.discard(ANN, places[:2], EndReason.DROPPED))
    queues.refresh(ANN)
    together.close()
    assert stored.wait(discarding) == 2
    assert queues.waiting(ANN) == 1
    assert data(come(login(stored, "ann/1"))) == [2]


def test_a_message_that_is_published_while_the_history_is_cleared_is_the_history(stored: StoredWorld) -> None:
    clerk, topics = Clerk(stored), stored.broker.topics.table
    assert clerk.publish("/news", 1, ext=HISTORY)["successful"]
    together = Together(stored)
    clearing = together.ask(topics.clear("/news"))
    message = clerk.message("/news", data=2, ext=HISTORY)
    publishing = together.send(clerk, message)
    together.close()
    assert stored.wait(clearing) == 1
    topic = topics.known["/news"]
    assert (topic.history_count, topic.newest) == (1, int(reply_to(publishing, message["id"])["ext"]["publish"]["id"]))


def test_a_message_that_is_put_back_while_the_last_member_leaves_becomes_a_dead_letter(stored: StoredWorld) -> None:
    first, second = login(stored, "joe/1"), login(stored, "joe/2")
    assert first.say("/meta/subscribe", subscription=WORK, ext=GROUP)["successful"]
    store(stored, WORK, 1)
    (message,) = come(first)
    assert second.say("/meta/subscribe", subscription=WORK, ext=GROUP)["successful"]
    assert first.say("/meta/unsubscribe", subscription=WORK)["successful"]
    together = Together(stored)
    together.send(second, second.message("/meta/unsubscribe", subscription=WORK))
    together.send(first, first.message("/service/update", data=[failed(message, "user.update.error")]))
    together.close()
    assert [reason for _, reason, _ in stored.ended()] == ["dead"]
    assert [each.code for each in stored.letters()] == ["user.update.error"]
    ended = stored.broker.metrics.ended
    assert (ended[EndReason.DEAD], ended[EndReason.LAPSED], ended[EndReason.RETURNED]) == (1, 0, 0)
