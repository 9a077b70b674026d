"""Messages to somebody by name that are stored: in inboxes, and in the queues of subjects that nobody is."""

from typing import Any

import pytest

from crewel.bayeux.message import Fields
from crewel.broker.dead_letters.redrive import Chosen, Limits
from crewel.storage import dead_letter_store, shared_queue_store
from crewel.storage.dead_letter_records import DeadLetterFilter
from tests.broker.addressing.post import Clerk, come, ends, ids, letters, login, one, queue, settled
from tests.broker.slow import Slow
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, data, origin, store
from tests.broker.world import Client, data_of

UNKNOWN = "user.ptp.unknownDestination"


def codes(reply: Fields) -> list[str]:
    """Why the destinations of a publish failed, each."""
    return [each.get("errorCode", "") for each in reply["ext"]["publish"]["destinations"]]


def plain(world: StoredWorld, name: str) -> Client:
    """A client that acknowledges nothing."""
    client = Client(world)
    assert client.handshake(ext={"session": {"name": name}})["successful"]
    client.connect(advice={"timeout": 0})
    world.settle()
    return client


def look(client: Client) -> list[Any]:
    return data_of(client.connect(advice={"timeout": 0}).received)


class TestPersistent:
    def test_a_session_has_it_under_the_id_of_the_answer(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1")
        message_id = clerk.post("hi", "joe/1", persistent=True)
        (message,) = joe.take()
        assert message["data"] == "hi"
        told = origin(message)
        assert (told["id"], told["sender"], told["subscription"]) == (message_id, clerk.session.name, "__subId:PtP")
        assert settled(joe, message) == []
        assert world.inbox(joe.session) == []
        assert world.ended() == [("client/joe/1", "settled", int(message_id))]

    def test_a_message_comes_at_once_if_the_client_waits(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1")
        assert joe.take() == []
        held = joe.reconnect()
        clerk.post("hi", "joe/1", persistent=True)
        assert data(joe.heard(held)) == ["hi"]

    def test_a_message_survives_the_server(self, make_stored: MakeStored, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1")
        message_id = clerk.post("hi", "joe/1", persistent=True)
        world.crash()
        again = make_stored(prefix=world.prefix)
        back = Receiver(again).taking_over(joe)
        (message,) = back.take()
        assert (message["data"], origin(message)["id"]) == ("hi", message_id)
        assert origin(message)["subscription"] == "__subId:PtP"
        settled(back, message)
        assert again.inbox(back.session) == []

    def test_a_message_keeps_its_place_among_what_is_published(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1", "/news")
        store(world, "/news", 1)
        clerk.post(2, "joe/1", persistent=True)
        store(world, "/news", 3)
        assert data(joe.take()) == [1, 2, 3]

    def test_a_message_for_a_client_that_is_away_keeps_its_place(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1", "/news")
        world.sweep_after(50.0)
        assert joe.session.mailbox.is_absent
        store(world, "/news", 1)
        clerk.post(2, "joe/1", persistent=True)
        store(world, "/news", 3)
        clerk.post(0, "joe/1", persistent=True, priority=9)
        assert data(joe.take()) == [0, 1, 2, 3]

    def test_a_session_that_acknowledges_nothing_has_it_too(self, world: StoredWorld, clerk: Clerk) -> None:
        plain = Client(world)
        plain.handshake(ext={"session": {"name": "joe/1"}})
        plain.connect(advice={"timeout": 0})
        world.settle()
        joe = login(world, "joe/2")
        message_id = clerk.post("hi", "joe", persistent=True)
        assert ids(joe.take()) == [message_id]
        assert data_of(plain.connect(advice={"timeout": 0}).received) == ["hi"]

    def test_a_named_session_that_ends_leaves_a_letter(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1")
        message_id = clerk.post("hi", "joe/1", persistent=True)
        joe.say("/meta/disconnect")
        assert letters(world) == [("client/joe/1", "communication.noConnection.dead", message_id)]

    def test_a_full_queue_does_what_its_policy_says(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1", queue={"maxEntries": 2})
        wanted = [clerk.post(number, "joe/1", persistent=True) for number in range(3)]
        assert letters(world) == [("client/joe/1", "resource.overflow.queue.entries", wanted[2])]
        assert data(joe.take()) == [0, 1]

    def test_a_queue_that_drops_the_oldest(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1", queue={"maxEntries": 2, "onOverflow": "dropOldest"})
        for number in range(3):
            clerk.post(number, "joe/1", persistent=True)
        assert data(joe.take()) == [1, 2]
        assert letters(world) == []

    def test_a_repeat_by_its_key_delivers_nothing(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1")
        first = clerk.post("hi", "joe/1", persistent=True, key="k")
        settled(joe, *joe.take())
        assert clerk.post("hi", "joe/1", persistent=True, key="k") == first
        assert come(joe) == []

    @pytest.mark.parametrize("to", ["joe/1", queue("ann")], ids=["session", "subject"])
    def test_a_repeat_after_the_stores_clock_was_set_ahead_delivers_nothing(
        self, world: StoredWorld, clerk: Clerk, to: Any
    ) -> None:
        joe = login(world, "joe/1")
        first = clerk.post("hi", to, persistent=True, key="k")
        settled(joe, *joe.take())
        for key in world.wait(world.store.reader.keys(f"{world.prefix}*}}:k:*")):
            world.wait(world.store.reader.delete(key))  # its time is over, by that clock
        assert clerk.post("hi", to, persistent=True, key="k") == first
        assert come(joe) == []
        assert world.broker.addressing.destinations.waiting("ann") == (to != "joe/1")

    def test_a_repeat_after_a_restart_delivers_nothing(
        self, make_stored: MakeStored, world: StoredWorld, clerk: Clerk
    ) -> None:
        login(world, "joe/1")
        first = clerk.post("hi", queue("ann"), persistent=True, key="k")
        world.crash()
        again = make_stored(prefix=world.prefix)
        assert Clerk(again).post("hi", queue("ann"), persistent=True, key="k") == first
        assert again.broker.addressing.destinations.waiting("ann") == 1

    def test_a_repeat_is_delivered_if_the_first_one_reached_no_session(
        self, make_stored: MakeStored, world: StoredWorld, clerk: Clerk
    ) -> None:
        assert clerk.ask("hi", "joe", persistent=True, key="k")["ext"]["publish"]["errorCode"] == UNKNOWN
        world.crash()
        again = make_stored(prefix=world.prefix)
        joe, other = login(again, "joe/1"), Clerk(again)
        message_id = other.post("hi", "joe", persistent=True, key="k")
        (message,) = come(joe)
        assert origin(message)["id"] == message_id
        settled(joe, message)
        assert other.post("hi", "joe", persistent=True, key="k") == message_id
        assert come(joe) == []

    def test_a_repeat_at_the_same_server_is_delivered_if_the_first_one_reached_no_session(
        self, world: StoredWorld, clerk: Clerk
    ) -> None:
        assert not clerk.ask("hi", "joe", persistent=True, key="k")["successful"]
        joe = login(world, "joe/1")
        message_id = clerk.post("hi", "joe", persistent=True, key="k")
        assert ids(come(joe)) == [message_id]

    def test_a_repeat_is_answered_for_each_destination_as_the_first_one(
        self, make_stored: MakeStored, world: StoredWorld, clerk: Clerk
    ) -> None:
        """The destinations may mean other sessions by then."""
        to = (queue("ann"), "joe", "bob/1")
        login(world, "bob/1")
        first = clerk.ask("hi", *to, persistent=True, key="k")
        assert codes(first) == ["", UNKNOWN, ""]
        world.crash()
        again = make_stored(prefix=world.prefix)
        joe, ann, bob = login(again, "joe/1"), login(again, "ann/1"), login(again, "bob/2")
        gone = again.broker.addressing.names.find("client/bob/1")
        assert gone is not None
        again.broker.disconnect(gone)
        again.commit()
        assert len(come(ann)) == 1
        repeated = Clerk(again).ask("hi", *to, persistent=True, key="k")
        assert codes(repeated) == codes(first)
        assert repeated["ext"]["publish"]["id"] == first["ext"]["publish"]["id"]
        assert [*come(joe), *come(ann), *come(bob)] == []

    def test_a_repeat_for_a_session_without_a_store_delivers_nothing(
        self, make_stored: MakeStored, world: StoredWorld, clerk: Clerk
    ) -> None:
        hasty = plain(world, "eve/1")
        first = clerk.post("hi", "eve", persistent=True, key="k")
        assert look(hasty) == ["hi"]
        world.crash()
        again = make_stored(prefix=world.prefix)
        hasty = plain(again, "eve/1")
        assert Clerk(again).post("hi", "eve", persistent=True, key="k") == first
        assert look(hasty) == []

    def test_while_the_store_refuses_nobody_has_it(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1")
        world.store.is_full = True
        reply = clerk.ask("hi", "joe/1", persistent=True)
        assert not reply["successful"]
        assert reply["ext"]["publish"]["errorCode"] == "resource.noMoreSpace"
        assert joe.take() == []
        assert world.broker.metrics.publishes == 0
        world.store.is_full = False
        clerk.post("hi", "joe/1", persistent=True)
        assert world.broker.metrics.publishes == 1

    def test_a_publish_that_subscribers_do_not_get_says_which_destinations_have_it(
        self, world: StoredWorld, clerk: Clerk
    ) -> None:
        """The store refuses what would go into the history."""
        joe = login(world, "joe/1", "/news")
        world.store.is_full = True
        kept: dict[str, Any] = {"history": {"maxEntries": 5}, "lifeTime": 60_000}
        for key in ({}, {"key": "k"}):
            reply = clerk.ask("hi", "joe/1", "ann/1", channel="/news", **kept, **key)
            published = reply["ext"]["publish"]
            assert (reply["successful"], published["errorCode"]) == (False, "resource.noMoreSpace")
            assert reply["error"].endswith("resource.noMoreSpace")
            assert [(each["to"], each["state"]) for each in published["destinations"]] == [
                ("client/joe/1", "OK"),
                ("client/ann/1", "ERROR"),
            ]
            assert data(come(joe)) == ["hi"]
            assert "/news" not in world.broker.topics.table.known

    def test_subscribers_and_receivers_have_two_messages(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1", "/news")
        clerk.post("hi", "joe/1", channel="/news", persistent=True)
        messages = joe.take()
        assert data(messages) == ["hi", "hi"]
        assert len(set(ids(messages))) == 2


class TestQueuesOfSubjects:
    def test_a_message_waits_and_comes_with_the_login(self, world: StoredWorld, clerk: Clerk) -> None:
        message_id = clerk.post("hi", queue("joe"))
        assert world.broker.addressing.destinations.waiting("joe") == 1
        joe = login(world, "joe/7")
        (message,) = come(joe)
        assert (message["data"], origin(message)["id"]) == ("hi", message_id)
        assert origin(message)["subscription"] == "__subId:PtP"
        assert world.broker.addressing.destinations.waiting("joe") == 0
        settled(joe, message)
        assert ends(world) == {(message_id, "settled"): 1}

    def test_by_priority_and_then_by_age(self, world: StoredWorld, clerk: Clerk) -> None:
        for number, priority in enumerate((5, 0, "HIGH", 9, 5, "HIGH")):
            clerk.post(number, queue("joe"), priority=priority)
        assert data(come(login(world, "joe/1"))) == [3, 2, 5, 0, 4, 1]

    def test_the_queue_survives_the_server(self, make_stored: MakeStored, world: StoredWorld, clerk: Clerk) -> None:
        wanted = [clerk.post(number, queue("joe"), persistent=bool(number % 2)) for number in range(3)]
        world.crash()
        again = make_stored(prefix=world.prefix)
        assert again.broker.addressing.destinations.waiting("joe") == 3
        joe = login(again, "joe/1")
        assert ids(come(joe)) == wanted

    def test_who_takes_none_does_not_have_it(self, world: StoredWorld, clerk: Clerk) -> None:
        clerk.post("hi", queue("joe"))
        assert come(login(world, "joe/1", ptp=False)) == []
        assert data(come(login(world, "joe/2"))) == ["hi"]

    def test_who_takes_some_after_all_has_it(self, world: StoredWorld, clerk: Clerk) -> None:
        clerk.post("hi", queue("joe"))
        first = login(world, "joe/1", ptp=False)
        assert come(first) == []
        assert data(come(Receiver(world).taking_over(first))) == ["hi"]

    def test_a_session_that_acknowledges_nothing_has_it_once_it_connects(
        self, world: StoredWorld, clerk: Clerk
    ) -> None:
        message_id = clerk.post("hi", queue("joe"))
        plain = Client(world)
        plain.handshake(ext={"session": {"name": "joe/1"}})
        world.settle()
        assert world.broker.addressing.destinations.waiting("joe") == 1
        plain.connect(advice={"timeout": 0})
        world.commit()
        assert data_of(plain.connect(advice={"timeout": 0}).received) == ["hi"]
        world.commit()
        assert world.broker.addressing.destinations.waiting("joe") == 0
        assert ends(world) == {(message_id, "settled"): 1}

    def test_a_message_waits_if_the_session_ends_while_the_queue_is_read(
        self, world: StoredWorld, clerk: Clerk, slow: Slow
    ) -> None:
        clerk.post("hi", queue("joe"))
        plain = self._reading(world, slow)
        plain.say("/meta/disconnect")
        slow.ends.set()
        world.commit()
        assert world.broker.addressing.destinations.waiting("joe") == 1
        assert ends(world) == {}
        assert data(come(login(world, "joe/2"))) == ["hi"]

    def test_one_that_comes_while_the_queue_is_read_has_what_waits(
        self, world: StoredWorld, clerk: Clerk, slow: Slow
    ) -> None:
        clerk.post("hi", queue("joe"))
        plain = self._reading(world, slow)
        plain.say("/meta/disconnect")
        joe = login(world, "joe/2")
        joe.take()
        slow.ends.set()
        assert data(come(joe)) == ["hi"]

    def test_what_is_counted_twice_while_the_queue_is_read_is_counted_again(
        self, world: StoredWorld, clerk: Clerk, slow: Slow
    ) -> None:
        clerk.post("hi", queue("joe"))
        plain = self._reading(world, slow)
        world.broker.addressing.shared_queues.refresh("client/joe")
        slow.ends.set()
        world.commit()
        assert data_of(plain.connect(advice={"timeout": 0}).received) == ["hi"]
        assert world.broker.addressing.destinations.waiting("joe") == 0
        clerk.post("again", queue("joe"))
        world.commit()
        assert data_of(plain.connect(advice={"timeout": 0}).received) == ["again"]

    @pytest.fixture
    def slow(self, monkeypatch: pytest.MonkeyPatch) -> Slow:
        """How a queue is read."""
        return Slow(monkeypatch, shared_queue_store, "peek")

    @staticmethod
    def _reading(world: StoredWorld, slow: Slow) -> Client:
        """A session of joe that acknowledges nothing, and for which the queue is being read."""
        plain = Client(world)
        plain.handshake(ext={"session": {"name": "joe/1"}})
        plain.connect(advice={"timeout": 0})
        world.wait(slow.begun.wait())
        return plain

    def test_the_bound_is_told_to_the_publisher(self, make_stored: MakeStored) -> None:
        world = make_stored("ptp.subject_queue_max_entries=2")
        clerk = Clerk(world)
        for number in range(2):
            clerk.post(number, queue("joe"))
        reply = clerk.ask(2, queue("joe"))
        assert reply["error"] == "413:client/joe:resource.overflow.queue.entries"
        assert data(come(login(world, "joe/1"))) == [0, 1]

    def test_what_expires_before_anybody_comes_is_counted(self, world: StoredWorld, clerk: Clerk) -> None:
        posted = [clerk.post("hi", to, lifeTime=1, forceDestroy=True) for to in (queue("joe"), one("joe", waits=True))]
        while world.broker.addressing.destinations.waiting("joe"):
            world.broker.sweep()  # the store has a clock of its own
            world.settle()
        assert ends(world) == {(each, "expired"): 1 for each in posted}
        assert world.broker.metrics.ended["expired"] == 2

    def test_what_another_node_stores_while_expired_messages_leave_is_counted(
        self, world: StoredWorld, clerk: Clerk
    ) -> None:
        clerk.post("hi", queue("joe"))
        world.broker.addressing.shared_queues.swept("client/joe", 1, 0)  # an answer from before it was stored
        world.settle()
        assert world.broker.addressing.destinations.waiting("joe") == 1

    def test_what_has_expired_when_somebody_comes_is_counted(self, world: StoredWorld, clerk: Clerk) -> None:
        message_id = clerk.post("hi", queue("joe"), lifeTime=1, forceDestroy=True)
        world.broker.runtime.clock.advance(1.0)
        assert come(login(world, "joe/1")) == []
        assert ends(world) == {(message_id, "expired"): 1}
        assert world.broker.metrics.ended["expired"] == 1

    def test_a_message_whose_receiver_never_comes_becomes_a_dead_letter(self, make_stored: MakeStored) -> None:
        world = make_stored("ptp.subject_idle_ms=60000")
        clerk = Clerk(world)
        message_id, other = clerk.post("hi", queue("joe")), clerk.post("hi", one("ann", waits=True))
        world.sweep_after(59.0)
        assert (
            world.broker.addressing.destinations.waiting("joe"),
            world.broker.addressing.destinations.waiting("ann"),
        ) == (1, 1)
        world.sweep_after(2.0)
        code = "communication.noConnection.dead"
        assert letters(world) == [("client/joe", code, message_id), ("client/ann", code, other)]
        assert ends(world) == {(message_id, "dead"): 1, (other, "dead"): 1}
        assert (
            world.broker.addressing.destinations.waiting("joe"),
            world.broker.addressing.destinations.waiting("ann"),
        ) == (0, 0)
        assert world.broker.metrics.ended["dead"] == 2
        world.sweep_after(1.0)
        assert come(login(world, "joe/1")) == []

    def test_more_of_them_than_one_step_buries(self, make_stored: MakeStored) -> None:
        world = make_stored("ptp.subject_idle_ms=60000", "ptp.subject_queue_max_entries=3000")
        clerk = Clerk(world)
        for number in range(1001):
            clerk.post(number, queue("joe"))
        world.sweep_after(61.0)
        assert world.wait(dead_letter_store.count(world.store, DeadLetterFilter())) == 1001

    def test_a_letter_of_a_subject_can_be_sent_again(self, make_stored: MakeStored) -> None:
        world = make_stored("ptp.subject_idle_ms=60000")
        Clerk(world).post("hi", queue("joe"))
        world.sweep_after(61.0)
        (letter,) = world.letters()
        report = world.wait(world.broker.dead_letters.redrive.redrive(Chosen(ids=(letter.dead_id,)), Limits()))
        assert report.done == 1
        assert world.broker.addressing.destinations.waiting("joe") == 1
        assert data(come(login(world, "joe/1"))) == ["hi"]

    def test_a_session_without_room_leaves_the_rest_in_the_queue(self, world: StoredWorld, clerk: Clerk) -> None:
        for number in range(5):
            clerk.post(number, queue("joe"))
        joe = login(world, "joe/1", queue={"maxEntries": 2})
        first = come(joe)
        assert data(first) == [0, 1]
        assert world.broker.addressing.destinations.waiting("joe") == 3
        settled(joe, *first)
        assert data(come(joe)) == [2, 3]
        assert letters(world) == []

    def test_operators_look_and_clear(self, world: StoredWorld, clerk: Clerk) -> None:
        wanted = [clerk.post(number, queue("joe")) for number in range(3)]
        login(world, "ann/1")
        destinations = world.broker.addressing.destinations
        peeked = world.wait(destinations.peek("joe", 2))
        assert [str(entry.position) for entry in peeked] == wanted[:2]
        assert destinations.awaited() == {"joe"}
        assert destinations.waiting("joe") == 3
        assert world.wait(destinations.clear("joe")) == 3
        assert destinations.waiting("joe") == 0
        assert ends(world) == {(each, "dropped"): 1 for each in wanted}


class TestSeveral:
    def test_all_have_it_under_one_id(self, world: StoredWorld, clerk: Clerk) -> None:
        joe, ann = login(world, "joe/1"), login(world, "ann/1")
        reply = clerk.ask("hi", "joe/1", "ann", "bob", queue("eve"), "joe/9", persistent=True)
        assert not reply["successful"]
        told = reply["ext"]["publish"]["destinations"]
        assert [each.get("errorCode") for each in told] == [None, None, UNKNOWN, None, f"{UNKNOWN}Session"]
        eve = login(world, "eve/1")
        (first,), (second,), (third,) = joe.take(), ann.take(), come(eve)
        assert len({*ids([first, second, third])}) == 1

    def test_two_subjects_do_not_settle_for_each_other(self, world: StoredWorld, clerk: Clerk) -> None:
        joe, ann = login(world, "joe/1"), login(world, "ann/1")
        message_id = clerk.post("hi", queue("joe"), queue("ann"))
        settled(joe, *joe.take())
        world.commit()
        ann.say("/meta/disconnect")
        world.commit()
        assert world.broker.addressing.destinations.waiting("ann") == 1
        assert ids(come(login(world, "ann/2"))) == [message_id]

    def test_one_transient_message_can_wait_and_arrive(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1")
        message_id = clerk.post("hi", "joe/1", queue("ann"))
        assert ids(joe.take()) == [message_id]
        assert ids(come(login(world, "ann/1"))) == [message_id]
