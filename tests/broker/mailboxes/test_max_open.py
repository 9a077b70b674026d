"""At most so many messages open at a client, `maxOpen`: on a real store, statuses on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.bayeux.message import Fields
from crewel.extensions.ack import AckExtension
from crewel.extensions.update import UpdateExtension
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, data, failed, ok, origin, store
from tests.broker.world import Client, MakeWorld, Request, Socket, World, data_of

ONE: dict[str, Any] = {"name": "joe/1", "settle": "message", "maxOpen": 1}
PATIENT: dict[str, Any] = {"dispatcher": {"retries": -1, "delay": 0}}


@pytest.fixture
def joe(stored: StoredWorld) -> Receiver:
    """A client that gets one message at a time, and is subscribed to /a."""
    return Receiver(stored).started("/a", **ONE, **PATIENT)


def next_of(client: Receiver, held: Request) -> Fields:
    """The only message with which the connect was answered."""
    (message,) = client.heard(held)
    return message


class TestLogin:
    def test_the_reply_tells_the_limit(self, joe: Receiver) -> None:
        assert joe.login["maxOpen"] == 1

    def test_without_a_limit_the_reply_says_nothing_of_it(self, stored: StoredWorld) -> None:
        assert "maxOpen" not in Receiver(stored).started(**(ONE | {"maxOpen": 0})).login

    @pytest.mark.parametrize("given", [-1, True, "1", 1.0, None, [1]])
    def test_another_value_is_refused_and_named(self, stored: StoredWorld, given: Any) -> None:
        reply = Client(stored).handshake(ext={"ack": True, "session": {"maxOpen": given}})
        assert not reply["successful"]
        assert "maxOpen" in reply["ext"]["session"]["message"]

    def test_a_limit_needs_acknowledgements(self, stored: StoredWorld) -> None:
        reply = Client(stored).handshake(ext={"session": {"name": "joe/1", "maxOpen": 1}})
        assert reply["error"].startswith("403:")
        assert "maxOpen: needs ext.ack" in reply["ext"]["session"]["message"]

    def test_another_login_changes_it(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a", 1, 2, 3)
        eve = Receiver(stored).taking_over(joe, **PATIENT)
        assert data(eve.take()) == [1, 2, 3]
        kim = Receiver(stored).taking_over(eve, maxOpen=2, **PATIENT)
        assert data(kim.take()) == [1, 2]
        assert kim.take() == []


class TestOneAtATime:
    def test_the_next_message_waits_for_the_status_of_the_one_before(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a", 1, 2, 3)
        for number in (1, 2, 3):
            (message,) = joe.take()
            assert message["data"] == number
            assert joe.take() == []
            joe.tell(ok(message))
        assert [each[1] for each in stored.ended()] == ["settled"] * 3

    def test_a_held_connect_is_held_until_the_status_comes(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a", 1, 2)
        (message,) = joe.take()
        held = joe.reconnect()
        assert held.is_held
        store(stored, "/a", 3)
        assert held.is_held
        joe.tell(ok(message))
        assert next_of(joe, held)["data"] == 2

    def test_a_status_in_the_connect_makes_room_for_its_answer(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a", 1, 2)
        (message,) = joe.take()
        assert data(joe.take(ok(message))) == [2]

    def test_a_message_whose_status_is_late_comes_again_before_the_next(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", ackWait=1000, **ONE, **PATIENT)
        store(stored, "/a", 1, 2)
        assert data(joe.take()) == [1]
        held = joe.reconnect()
        stored.advance(1.1)
        again = next_of(joe, held)
        assert (again["data"], origin(again)["redeliver"]) == (1, 1)
        held = joe.reconnect()
        joe.tell(ok(again))
        assert next_of(joe, held)["data"] == 2

    def test_without_retries_the_next_comes_when_the_late_one_has_become_a_dead_letter(
        self, stored: StoredWorld
    ) -> None:
        joe = Receiver(stored).started("/a", ackWait=1000, **ONE)
        store(stored, "/a", 1, 2)
        assert data(joe.take()) == [1]
        held = joe.reconnect()
        stored.advance(1.1)
        assert next_of(joe, held)["data"] == 2
        assert len(stored.letters()) == 1

    def test_working_keeps_the_place(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", ackWait=1000, **ONE, **PATIENT)
        store(stored, "/a", 1, 2)
        (message,) = joe.take()
        held = joe.reconnect()
        for _ in range(3):
            stored.advance(0.8)
            joe.tell({"id": origin(message)["id"], "state": "WORKING"})
        assert held.is_held
        joe.tell(ok(message))
        assert next_of(joe, held)["data"] == 2

    @pytest.mark.parametrize("delay", [0, 500])
    def test_a_failed_message_comes_again_before_the_next(self, stored: StoredWorld, delay: int) -> None:
        joe = Receiver(stored).started("/a", **ONE, dispatcher={"retries": 3, "delay": delay})
        store(stored, "/a", 1, 2)
        (message,) = joe.take()
        held = joe.reconnect()
        joe.tell(failed(message, "communication.noConnection"))
        if delay:
            assert held.is_held
            stored.advance(0.6)
        assert next_of(joe, held)["data"] == 1

    def test_a_dead_letter_makes_room(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a", 1, 2)
        (message,) = joe.take()
        held = joe.reconnect()
        joe.tell(failed(message, "user.no"))
        assert next_of(joe, held)["data"] == 2

    def test_a_message_on_hold_comes_first_when_the_session_is_activated(
        self, stored: StoredWorld, joe: Receiver
    ) -> None:
        store(stored, "/a", 1, 2)
        (message,) = joe.take()
        held = joe.reconnect()
        joe.tell(failed(message, "user.update.holdback"))
        assert held.is_held
        stored.wait(stored.broker.mailboxes.dispatchers.activate(joe.session))
        stored.settle()
        assert next_of(joe, held)["data"] == 1

    @pytest.mark.parametrize("operation", ["skip", "remove", "clear", "drain"])
    def test_what_an_operator_takes_away_makes_room(self, stored: StoredWorld, joe: Receiver, operation: str) -> None:
        store(stored, "/a", 1, 2)
        joe.take()
        held = joe.reconnect()
        dispatchers = stored.broker.mailboxes.dispatchers
        stored.wait(
            dispatchers.remove(joe.session, 1)
            if operation == "remove"
            else getattr(dispatchers, operation)(joe.session)
        )
        store(stored, "/a", 3)
        stored.settle()
        assert next_of(joe, held)["data"] == (2 if operation in ("skip", "remove") else 3)

    def test_a_reply_that_was_lost_comes_again_alone(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a", 1, 2)
        before = joe.ack
        assert data(joe.take()) == [1]
        joe.ack = before
        assert data(joe.take()) == [1]
        assert joe.take() == []

    def test_a_client_that_was_away_for_long_still_has_its_message(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a", 1, 2)
        (message,) = joe.take()
        assert joe.take() == []
        stored.sweep_after(60.0)
        assert joe.session.mailbox.is_absent
        assert joe.take() == []
        joe.tell(ok(message))
        assert data(joe.take()) == [2]

    def test_a_client_that_was_away_and_lost_the_reply_gets_it_again(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a", 1, 2)
        before = joe.ack
        joe.take()
        joe.ack = before
        stored.sweep_after(60.0)
        assert joe.session.mailbox.is_absent
        held = joe.reconnect()
        assert next_of(joe, held)["data"] == 1
        assert joe.reconnect().is_held

    def test_another_client_begins_with_what_the_one_before_had(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a", 1, 2)
        joe.take()
        eve = Receiver(stored).taking_over(joe, maxOpen=1, **PATIENT)
        (message,) = eve.take()
        assert message["data"] == 1
        assert eve.take() == []
        eve.tell(ok(message))
        assert data(eve.take()) == [2]

    @pytest.mark.parametrize("crashes", [True, False])
    def test_the_next_server_keeps_the_limit(self, make_stored: MakeStored, stored: StoredWorld, crashes: bool) -> None:
        joe = Receiver(stored).started("/a", **ONE, **PATIENT)
        store(stored, "/a", 1, 2, 3)
        (message,) = joe.take()
        joe.tell(ok(message))
        stored.commit()
        assert data(joe.take()) == [2]
        (stored.crash if crashes else stored.close)()
        joe.world = make_stored(prefix=stored.prefix)
        held = joe.reconnect()
        again = next_of(joe, held)
        assert again["data"] == 2
        held = joe.reconnect()
        assert held.is_held
        joe.tell(ok(again))
        assert next_of(joe, held)["data"] == 3

    def test_on_a_socket(self, stored: StoredWorld) -> None:
        socket = Socket()
        joe = Receiver(stored, socket)
        reply = joe.handshake(ext={"ack": True, "session": {"update": True, **ONE, **PATIENT}})
        assert reply["successful"]
        joe.say("/meta/connect", connectionType="websocket", ext={"ack": 0})
        joe.subscribe("/a")
        socket.take()
        store(stored, "/a", 1, 2)
        joe.send(joe.message("/meta/connect", connectionType="websocket", ext={"ack": 0}))
        message, reply = socket.take()
        assert message["data"] == 1
        joe.send(joe.message("/meta/connect", connectionType="websocket", ext={"ack": reply["ext"]["ack"]}))
        assert socket.take() == []
        joe.tell(ok(message))
        stored.settle()
        assert data_of(socket.take()) == [2]

    def test_answers_pass(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a", 1, 2)
        joe.take()
        prefix = f"/ret/{joe.session.reply_id}/"
        joe.subscribe(f"{prefix}*")
        held = joe.reconnect()
        assert held.is_held
        Client(stored).joined().publish(f"{prefix}3000001", "answer")
        stored.settle()
        assert data(joe.heard(held)) == ["answer"]
        assert joe.reconnect().is_held


class TestWithoutStatuses:
    """Batches settle: what is not acknowledged is open."""

    def test_a_response_carries_no_more_than_may_be_open(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", name="joe/1", update=False, maxOpen=2)
        store(stored, "/a", 1, 2, 3, 4, 5)
        assert [data(joe.take()) for _ in range(4)] == [[1, 2], [3, 4], [5], []]

    def test_a_busy_client_that_awaits_an_answer_gets_no_more(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", name="joe/1", update=False, maxOpen=1)
        store(stored, "/a", 1, 2)
        before = joe.ack
        assert data(joe.take()) == [1]
        request = joe.connect(ext={"ack": before, "busy": "awaits"}, advice={"timeout": 0})
        assert data_of(request.answer) == []

    def test_an_anonymous_session_without_a_store(self, make_world: MakeWorld) -> None:
        world: World = make_world("storage.enabled=false", extensions=[UpdateExtension(), AckExtension()])
        joe = Receiver(world).started("/a", update=False, maxOpen=1)
        other = Client(world).joined()
        for number in (1, 2, 3):
            other.publish("/a", number)
        assert [data(joe.take()) for _ in range(4)] == [[1], [2], [3], []]


class TestWithoutStore:
    def test_one_after_the_other(self, make_world: MakeWorld) -> None:
        world: World = make_world("storage.enabled=false", extensions=[UpdateExtension(), AckExtension()])
        joe = Receiver(world).started("/a", settle="message", maxOpen=1, ackWait=1000, **PATIENT)
        other = Client(world).joined()
        held = joe.reconnect()
        for number in (1, 2, 3):
            other.publish("/a", number)
        world.settle()
        assert data(joe.heard(held)) == [1]
        held = joe.reconnect()
        assert held.is_held
        world.advance(1.1)
        world.settle()
        again = next_of(joe, held)
        assert again["data"] == 1
        held = joe.reconnect()
        joe.tell(ok(again))
        world.settle()
        assert next_of(joe, held)["data"] == 2

    def test_lazy_messages_wait_too(self, make_world: MakeWorld) -> None:
        world: World = make_world(
            "storage.enabled=false",
            "bayeux.lazy_channels=/a",
            "bayeux.max_lazy_ms=1000",
            extensions=[UpdateExtension(), AckExtension()],
        )
        joe = Receiver(world).started("/a", settle="message", maxOpen=1, **PATIENT)
        held = joe.reconnect()
        other = Client(world).joined()
        for number in (1, 2):
            other.publish("/a", number)
        assert held.is_held
        world.advance(1.1)
        world.settle()
        message = next_of(joe, held)
        assert message["data"] == 1
        held = joe.reconnect()
        world.advance(5.0)
        assert held.is_held
        joe.tell(ok(message))
        world.settle()
        assert next_of(joe, held)["data"] == 2
