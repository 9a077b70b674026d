"""What receivers report and operators ask for, carried out on a real store, statuses on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.broker.mailboxes.ends import Ends
from crewel.delivery.dispatcher import NO_DISPATCHER
from crewel.delivery.dispatcher_states import DispatcherState
from crewel.errors import IllegalArgument
from crewel.extension import Extension
from crewel.extensions.ack import AckExtension
from crewel.extensions.update import UpdateExtension
from tests.broker.addressing.test_doubt import Line
from tests.broker.stored_world import MESSAGE, MakeStored, Receiver, StoredWorld, data, failed, ok, origin, store
from tests.broker.world import Client, MakeWorld, Request

ALIVE, POLLING, DEAD = DispatcherState
HELD, GONE, AUTH = "user.update.holdback", "communication.noConnection", "user.security.authentication"
DEAD_SESSION = "communication.noConnection.dead"
NOT_OPEN = "no message of this id is open"
RETRIES: dict[str, Any] = {"dispatcher": {"retries": 2, "delay": 5000}}


def rejected(reply: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = reply["ext"]["update"]["rejected"]
    return found


def reply_of(request: Request) -> dict[str, Any]:
    return next(each for each in request.answer if each["channel"] == "/meta/connect")


class TestStatuses:
    def test_a_status_of_an_unknown_id_is_told_back_by_connect_and_publish(self, joe: Receiver) -> None:
        unknown = {"id": "5", "state": "OK", "more": 1}
        told = [{**unknown, "reason": NOT_OPEN}]
        assert rejected(joe.tell(unknown)) == told
        request = joe.reconnect(unknown, advice={"timeout": 0})
        assert rejected(reply_of(request)) == told

    def test_without_anything_to_tell_back_the_reply_says_nothing(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a", 1)
        (message,) = joe.take()
        assert "ext" not in joe.tell(ok(message))
        assert "update" not in reply_of(joe.reconnect(advice={"timeout": 0}))["ext"]

    def test_a_repeat_is_harmless(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a", 1)
        (message,) = joe.take()
        joe.tell(ok(message))
        assert rejected(joe.tell(ok(message)))[0]["reason"] == NOT_OPEN
        assert [each[1] for each in stored.ended()] == ["settled"]

    @pytest.mark.parametrize("given", [None, 5, True, "OK", {}, {"id": "5", "state": "OK"}])
    def test_data_of_the_wrong_kind_is_refused_and_named(self, joe: Receiver, given: Any) -> None:
        reply = joe.say("/service/update", data=given)
        assert not reply["successful"]
        assert reply["error"].startswith("400:data:")
        assert "user.illegalArgument" in reply["error"]

    def test_a_report_without_data_is_refused_and_named(self, joe: Receiver) -> None:
        assert joe.say("/service/update")["error"].startswith("400:data:")

    @pytest.mark.parametrize(
        "given", [5, None, "x", [], {}, {"id": 5}, {"id": "5"}, {"id": "5", "state": "?"}, {"state": "OK"}, {"id": {}}]
    )
    def test_a_status_that_makes_no_sense_is_told_back_with_what_is_wrong(self, joe: Receiver, given: Any) -> None:
        reply = joe.tell(given)
        assert reply["successful"]
        (told,) = rejected(reply)
        assert told.pop("reason")
        assert told == (given if isinstance(given, dict) else {"status": given})

    @pytest.mark.parametrize("given", [5, "OK", {}, None, True])
    def test_in_a_connect_what_is_no_list_is_told_back_and_the_connect_counts(self, joe: Receiver, given: Any) -> None:
        request = joe.connect(ext={"ack": joe.ack, "update": given}, advice={"timeout": 0})
        reply = reply_of(request)
        assert reply["successful"]
        assert rejected(reply) == [{"reason": "must be a list of at most 10000 statuses"}]

    def test_other_sessions_cannot_say_anything(self, make_world: MakeWorld) -> None:
        world = make_world("storage.enabled=false", extensions=[UpdateExtension(), AckExtension()])
        acking, plain = Client(world).joined(ext={"ack": True}), Client(world).joined()
        for client in (acking, plain):
            reply = client.say("/service/update", data=[{"id": "5", "state": "OK"}])
            assert reply["successful"]
            assert "did not ask for update" in rejected(reply)[0]["reason"]

    def test_who_does_not_acknowledge_is_not_granted_updates(self, stored: StoredWorld) -> None:
        client = Receiver(stored)
        login = client.handshake(ext={"session": {"update": True}})["ext"]["session"]
        assert login["update"] is False
        assert rejected(client.tell({"id": "5", "state": "OK"}))

    def test_a_stranger_is_nobody(self, stored: StoredWorld) -> None:
        client = Receiver(stored)
        client.id = "nobody"
        assert client.tell({"id": "5", "state": "OK"})["error"].startswith("402")

    def test_a_connect_of_a_stranger_is_answered_as_ever(self, stored: StoredWorld) -> None:
        client = Receiver(stored)
        client.id = "nobody"
        reply = reply_of(client.reconnect({"id": "5", "state": "OK"}))
        assert reply["error"].startswith("402")


class TestSettling:
    def test_with_settle_batch_the_acknowledgement_settles_what_no_status_names(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", name="joe/1")
        ids = store(stored, "/a", 1, 2, 3)
        messages = joe.take()
        joe.take(failed(messages[1], "user.no"))
        assert joe.session.mailbox.view().depth == 0
        assert sorted(stored.ended()) == sorted(
            ("client/joe/1", reason, int(each))
            for reason, each in zip(("settled", "dead", "settled"), ids, strict=True)
        )

    @pytest.mark.parametrize("order", [(UpdateExtension, AckExtension), (AckExtension, UpdateExtension)])
    def test_a_status_counts_before_the_acknowledgement_in_any_order_of_the_extensions(
        self, make_stored: MakeStored, order: tuple[type[Extension], ...]
    ) -> None:
        world = make_stored(extensions=[each() for each in order])
        joe = Receiver(world).started("/a", name="joe/1")
        store(world, "/a", 1)
        (message,) = joe.take()
        joe.take(failed(message, "user.no"))
        assert [letter.code for letter in world.letters()] == ["user.no"]

    def test_what_no_listener_takes_stays_open_when_its_batch_is_acknowledged(
        self, stored: StoredWorld, caplog: pytest.LogCaptureFixture
    ) -> None:
        joe = Receiver(stored).started("/a", name="joe/1")
        assert joe.login["unclaimed"] is True
        store(stored, "/a", 1, 2)
        first, second = joe.take()
        joe.take({"id": origin(first)["id"], "state": "UNCLAIMED"})
        assert (joe.session.mailbox.view().depth, joe.session.mailbox.view().unclaimed) == (1, 1)
        assert [each[1:] for each in stored.ended()] == [("settled", int(origin(second)["id"]))]
        assert "client/joe/1: no listener takes its messages of /a; they stay open until one does" in caplog.text
        assert joe.take(ok(first)) == []
        assert (joe.session.mailbox.view().depth, joe.session.mailbox.view().unclaimed) == (0, 0)

    def test_with_settle_message_what_is_acknowledged_is_neither_settled_nor_sent_again(
        self, stored: StoredWorld, joe: Receiver
    ) -> None:
        store(stored, "/a", 1, 2)
        first, second = joe.take()
        for _ in range(3):
            assert joe.take() == []
        assert joe.session.mailbox.view().depth == 2
        joe.tell(ok(second))
        assert joe.take(ok(first)) == []
        assert joe.session.mailbox.view().depth == 0
        assert [each[1] for each in stored.ended()] == ["settled", "settled"]

    def test_what_is_sent_and_not_settled_counts_against_the_bounds(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", queue={"maxEntries": 2}, **MESSAGE)
        store(stored, "/a", 1, 2)
        first, _ = joe.take()
        joe.take()
        store(stored, "/a", 3)
        (letter,) = stored.letters()
        assert letter.code == "resource.overflow.queue.entries"
        joe.tell(ok(first))
        store(stored, "/a", 4)
        assert data(joe.take()) == [4]
        assert len(stored.letters()) == 1

    def test_unstored_messages_that_are_not_settled_count_against_the_bounds(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", queue={"maxEntries": 2}, **MESSAGE)
        for number in (1, 2):
            stored.broker.publish("/a", number)
        first, _ = joe.take()
        joe.take()
        stored.broker.publish("/a", 3)
        assert [letter.code for letter in stored.letters()] == ["resource.overflow.queue.entries"]
        joe.tell(ok(first))
        stored.broker.publish("/a", 4)
        assert data(joe.take()) == [4]

    def test_what_waits_again_counts_once(self, stored: StoredWorld) -> None:
        """Sent, and not acknowledged, and recalled: it is open at the client and waits in the store."""
        joe = Receiver(stored).started("/a", queue={"maxEntries": 4}, **MESSAGE)
        store(stored, "/a", 1, 2, 3)
        joe.heard(joe.connect(ext={"ack": 1}, advice={"timeout": 0}))
        held = joe.connect(ext={"ack": 1})  # the reply was lost
        stored.wait(stored.broker.mailboxes.dispatchers.hold(joe.session, "admin"))
        assert held.answer
        store(stored, "/a", 4)
        assert stored.letters() == []


class TestAbsence:
    """Of what is stored memory keeps the places only, while a client is away."""

    AWAY_S = 15.0

    def absent(self, world: StoredWorld, **session: Any) -> tuple[Receiver, list[dict[str, Any]]]:
        """A client that got 1 and 2, and was away."""
        joe = Receiver(world).started("/a", name="joe/1", **session)
        store(world, "/a", 1, 2)
        messages = joe.take()
        world.sweep_after(self.AWAY_S)
        assert joe.session.mailbox.is_absent
        return joe, messages

    def test_an_acknowledgement_does_not_settle_what_settles_by_status(self, stored: StoredWorld) -> None:
        joe, (first, second) = self.absent(stored, settle="message")
        assert joe.take() == []
        assert stored.ended() == []
        assert "ext" not in joe.tell(ok(first), ok(second))
        assert len(stored.ended()) == 2

    def test_an_acknowledgement_settles_a_batch(self, stored: StoredWorld) -> None:
        joe, _ = self.absent(stored)
        assert joe.take() == []
        assert len(stored.ended()) == 2
        assert joe.session.mailbox.view().depth == 0
        assert joe.session.mailbox._dispatcher.messages.opened == {}

    @pytest.mark.parametrize("settle", ["batch", "message"])
    def test_what_a_status_names_is_not_settled_by_the_batch(self, stored: StoredWorld, settle: str) -> None:
        joe, (first, second) = self.absent(stored, settle=settle)
        assert joe.take(failed(first, HELD), ok(second)) == []
        assert [(reason, log_id) for _, reason, log_id in stored.ended()] == [("settled", int(second["id"]))]
        stored.wait(stored.broker.mailboxes.dispatchers.activate(joe.session))
        again = joe.take()
        assert data(again) == [1]
        assert origin(again[0])["redeliver"] == 1

    def test_what_is_open_counts_against_the_bounds_all_the_same(self, stored: StoredWorld) -> None:
        joe, _ = self.absent(stored, settle="message", queue={"maxEntries": 2})
        assert joe.reconnect().is_held
        store(stored, "/a", 3)
        assert [each.code for each in stored.letters()] == ["resource.overflow.queue.entries"]

    def test_what_was_not_acknowledged_comes_again_once(self, stored: StoredWorld) -> None:
        joe, _ = self.absent(stored, settle="message")
        joe.ack = 1
        assert data(joe.take()) == [1, 2]


class TestHoldback:
    def test_nothing_is_delivered_until_an_operator_activates_it_and_then_in_order(
        self, stored: StoredWorld, joe: Receiver
    ) -> None:
        store(stored, "/a", 1, 2, 3)
        first, second, third = joe.take()
        assert joe.take(ok(first), failed(second, HELD, "lunch")) == []
        store(stored, "/a", 4)
        held = joe.reconnect(ok(third))
        assert held.is_held
        dispatchers, session = stored.broker.mailboxes.dispatchers, joe.session
        holdback = session.mailbox.view().holdback
        assert holdback is not None
        assert (holdback.who, holdback.code, holdback.reason) == ("client/joe/1", HELD, "lunch")
        assert holdback.message_id == origin(second)["id"]
        assert (session.mailbox.view().depth, dispatchers.state(session)) == (2, ALIVE)
        stored.wait(dispatchers.activate(session))
        stored.settle()
        messages = joe.heard(held)
        assert data(messages) == [2, 4]
        assert [origin(each).get("redeliver", 0) for each in messages] == [1, 0]
        assert session.mailbox.view().holdback is None

    def test_the_rest_of_the_batch_is_untouched(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", name="joe/1")
        store(stored, "/a", 1, 2, 3)
        messages = joe.take()
        joe.take(failed(messages[1], HELD))
        assert joe.session.mailbox.view().depth == 1

    def test_a_held_connect_is_answered_after_its_time_all_the_same(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a", 1)
        joe.take(failed(joe.take()[0], HELD))
        held = joe.reconnect()
        store(stored, "/a", 2)
        stored.broker.publish("/a", 3)
        stored.advance(29)
        assert held.is_held
        stored.advance(2)
        assert joe.heard(held) == []

    @pytest.mark.parametrize("end", ["close", "crash"])
    def test_holdback_survives_a_restart(
        self, stored: StoredWorld, make_stored: MakeStored, joe: Receiver, end: str
    ) -> None:
        store(stored, "/a", 1, 2)
        first, _ = joe.take()
        joe.take(failed(first, HELD, "lunch"))
        held = joe.session.mailbox.view().holdback
        stored.commit()
        getattr(stored, end)()
        joe.world = after = make_stored(prefix=stored.prefix)
        store(after, "/a", 3)
        assert joe.session.mailbox.view().holdback == held
        assert joe.take() == []
        after.wait(after.broker.mailboxes.dispatchers.activate(joe.session))
        assert data(joe.take()) == [1, 2, 3]
        after.commit()
        after.close()
        joe.world = make_stored(prefix=stored.prefix)
        assert joe.session.mailbox.view().holdback is None

    def test_holdback_is_stored_as_operators_are_shown_it(self, stored: StoredWorld, joe: Receiver) -> None:
        stored.wait(
            stored.broker.mailboxes.dispatchers.hold(joe.session, "admin", code="user.x", message_id="7", reason="r")
        )
        assert '"who":"admin"' in stored.record(joe.session)["d"]
        stored.wait(stored.broker.mailboxes.dispatchers.activate(joe.session))
        assert "d" not in stored.record(joe.session)

    def test_a_take_over_does_not_end_it(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a", 1)
        joe.take(failed(joe.take()[0], HELD))
        new = Receiver(stored).taking_over(joe)
        assert new.login["queued"] == 1
        assert new.take() == []
        stored.wait(stored.broker.mailboxes.dispatchers.activate(new.session))
        assert data(new.take()) == [1]

    def test_one_that_is_held_back_already_stays_as_it_is(self, stored: StoredWorld, joe: Receiver) -> None:
        dispatchers = stored.broker.mailboxes.dispatchers
        for who in ("first", "second"):
            stored.wait(dispatchers.hold(joe.session, who))
        holdback = joe.session.mailbox.view().holdback
        assert holdback is not None
        assert holdback.who == "first"

    def test_what_was_asked_last_counts_when_the_store_is_back(self, stored: StoredWorld, joe: Receiver) -> None:
        """Each step is asked again after a pause of its own: the second one may find the store first."""
        dispatchers = stored.broker.mailboxes.dispatchers
        Line(stored, "hold", 3, is_done=False)
        asked = [stored.loop.create_task(dispatchers.hold(joe.session, "operator"))]
        stored.advance(0.1)
        asked.append(stored.loop.create_task(dispatchers.activate(joe.session)))
        stored.advance(2.0)
        for each in asked:
            stored.wait(each)
        assert "d" not in stored.record(joe.session)

    def test_to_activate_what_is_active_changes_nothing(self, stored: StoredWorld, joe: Receiver) -> None:
        stored.wait(stored.broker.mailboxes.dispatchers.activate(joe.session))
        store(stored, "/a", 1)
        assert data(joe.take()) == [1]

    def test_a_session_that_is_told_nothing_can_be_held_back_too(self, stored: StoredWorld) -> None:
        client = Receiver(stored)
        assert client.handshake(ext={"ack": True})["successful"]
        client.take()
        client.subscribe("/a")
        dispatchers = stored.broker.mailboxes.dispatchers
        stored.wait(dispatchers.hold(client.session, "admin"))
        store(stored, "/a", 1)
        stored.broker.publish("/a", 2)
        assert client.take() == []
        stored.wait(dispatchers.activate(client.session))
        assert sorted(data([*client.take(), *client.take()])) == [1, 2]
        client.take()
        assert client.session.mailbox.view().depth == 0

    def test_one_that_does_not_acknowledge_cannot(self, stored: StoredWorld) -> None:
        client = Client(stored)
        client.handshake()
        dispatchers = stored.broker.mailboxes.dispatchers
        with pytest.raises(IllegalArgument) as refused:
            stored.wait(dispatchers.hold(client.session, "admin"))
        assert "does not acknowledge" in refused.value.message
        assert client.session.mailbox._dispatcher is NO_DISPATCHER
        assert (client.session.mailbox.view().depth, client.session.mailbox.view().holdback) == (0, None)

    def test_without_a_store_it_holds_in_memory(self, make_world: MakeWorld) -> None:
        world = make_world("storage.enabled=false", extensions=[UpdateExtension(), AckExtension()])
        joe = Receiver(world).started("/a", **MESSAGE)
        world.broker.publish("/a", 1)
        (message,) = joe.take()
        assert joe.take(failed(message, HELD)) == []
        world.broker.publish("/a", 2)
        assert joe.take() == []
        world.loop.run_until_complete(world.broker.mailboxes.dispatchers.activate(joe.session))
        assert data(joe.take()) == [1, 2]


class TestOperators:
    def held(self, stored: StoredWorld, joe: Receiver) -> list[str]:
        """Three messages wait, and the second is why."""
        ids = store(stored, "/a", 1, 2, 3)
        messages = joe.take()
        joe.take(failed(messages[1], HELD, "lunch"))
        return ids

    def test_skip_takes_the_message_that_is_held_back_and_then_the_oldest(
        self, stored: StoredWorld, joe: Receiver
    ) -> None:
        ids, dispatchers = self.held(stored, joe), stored.broker.mailboxes.dispatchers
        assert stored.wait(dispatchers.skip(joe.session)) == 1
        (letter,) = stored.letters()
        assert (letter.id, letter.code, letter.reason) == (ids[1], HELD, "lunch")
        assert stored.wait(dispatchers.skip(joe.session)) == 1
        held, other = stored.letters()
        assert (held.id, other.id, other.code) == (ids[1], ids[0], "resource.maintenance.skipped")
        assert stored.wait(dispatchers.skip(joe.session)) == 1
        assert stored.wait(dispatchers.skip(joe.session)) == 0
        assert joe.session.mailbox.view().holdback is not None

    def test_drain_makes_letters_of_all_that_waits(self, stored: StoredWorld, joe: Receiver) -> None:
        ids, dispatchers = self.held(stored, joe), stored.broker.mailboxes.dispatchers
        stored.broker.publish("/a", "not stored")
        assert stored.wait(dispatchers.drain(joe.session)) == 4
        letters = stored.letters()
        assert sorted(each.id for each in letters if each.is_persistent) == sorted(ids)
        assert [each.is_persistent for each in letters].count(False) == 1
        assert {each.code for each in letters} == {"resource.maintenance.drained"}
        assert joe.session.mailbox.view().depth == 0
        stored.wait(dispatchers.activate(joe.session))
        assert joe.take() == []

    def test_clear_leaves_no_letters(self, stored: StoredWorld, joe: Receiver) -> None:
        self.held(stored, joe)
        stored.broker.publish("/a", "not stored")
        assert stored.wait(stored.broker.mailboxes.dispatchers.clear(joe.session)) == 4
        assert stored.letters() == []
        assert [each[1] for each in stored.ended()] == ["dropped"] * 3
        stored.wait(stored.broker.mailboxes.dispatchers.activate(joe.session))
        assert joe.take() == []

    @pytest.mark.parametrize(("count", "left"), [(0, [1, 2, 3, "new"]), (2, [3, "new"]), (3, ["new"]), (9, [])])
    def test_remove_drops_the_oldest_so_many(
        self, stored: StoredWorld, joe: Receiver, count: int, left: list[Any]
    ) -> None:
        dispatchers = stored.broker.mailboxes.dispatchers
        stored.wait(dispatchers.hold(joe.session, "admin"))
        store(stored, "/a", 1, 2, 3)
        stored.broker.publish("/a", "new")
        assert stored.wait(dispatchers.remove(joe.session, count)) == min(count, 4)
        assert joe.session.mailbox.view().depth == len(left)
        stored.wait(dispatchers.activate(joe.session))
        assert sorted(map(str, data([*joe.take(), *joe.take()]))) == sorted(map(str, left))

    def test_peek_shows_the_oldest_with_their_bodies_and_takes_nothing(
        self, stored: StoredWorld, joe: Receiver
    ) -> None:
        ids, dispatchers = self.held(stored, joe), stored.broker.mailboxes.dispatchers
        stored.broker.publish("/a", "not stored")
        seen = stored.wait(dispatchers.peek(joe.session, 10))
        assert [each.fields["data"] for each in seen] == [1, 2, 3, "not stored"]
        assert [each.origin.id for each in seen if each.origin is not None][:3] == ids
        assert [each.fields["data"] for each in stored.wait(dispatchers.peek(joe.session, 2))] == [1, 2]
        assert stored.wait(dispatchers.peek(joe.session, 0)) == []
        assert joe.session.mailbox.view().depth == 4

    def test_what_waits_is_counted_in_bytes_too(self, stored: StoredWorld, joe: Receiver) -> None:
        assert joe.session.mailbox.view().size == 0
        store(stored, "/a", "x" * 1000)
        stored.broker.publish("/a", "y" * 1000)
        assert 2000 < joe.session.mailbox.view().size < 2300
        Ends(joe.session.mailbox).drop_first(2)
        assert joe.session.mailbox.view().size == 0


class TestRetries:
    def test_a_failed_message_comes_again_after_the_delay_and_before_younger_ones(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", **MESSAGE, **RETRIES)
        store(stored, "/a", 1, 2, 3)
        first, second, third = joe.take()
        assert joe.take(ok(first), failed(second, GONE), ok(third)) == []
        store(stored, "/a", 4)
        held = joe.reconnect()
        assert stored.broker.mailboxes.dispatchers.state(joe.session) is POLLING
        stored.advance(4.9)
        assert held.is_held
        stored.advance(0.2)
        messages = joe.heard(held)
        assert data(messages) == [2, 4]
        assert origin(messages[0])["redeliver"] == 1
        assert stored.broker.mailboxes.dispatchers.state(joe.session) is ALIVE

    def test_what_is_not_stored_keeps_its_order_too(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", **MESSAGE, **RETRIES)
        for number in (1, 2, 3, 4):
            stored.broker.publish("/a", number)
        first, second, third, _ = joe.take()
        joe.take(failed(third, GONE), failed(first, GONE))
        stored.broker.publish("/a", 5)
        joe.tell(failed(second, GONE))
        stored.advance(5.1)
        assert data(joe.take()) == [1, 2, 3, 5]

    def test_without_a_delay_it_comes_again_at_once(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", dispatcher={"retries": -1, "delay": 0}, **MESSAGE)
        store(stored, "/a", 1)
        (message,) = joe.take()
        for count in (1, 2, 3):
            (message,) = joe.take(failed(message, GONE))
            assert origin(message)["redeliver"] == count

    def test_a_holdback_during_the_delay_is_stored_as_well(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", **MESSAGE, **RETRIES)
        store(stored, "/a", 1, 2)
        first, second = joe.take()
        joe.tell(failed(first, GONE))
        joe.tell(failed(second, HELD, "no paper"))
        stored.settle()
        assert "no paper" in stored.record(joe.session)["d"]

    def test_a_repeated_status_of_what_got_lost_on_its_way_counts_once(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", dispatcher={"retries": 1, "delay": 0}, **MESSAGE)
        store(stored, "/a", 1)
        (message,) = joe.take()
        lost = joe.reconnect(failed(message, GONE), advice={"timeout": 0})
        assert data(each for each in lost.answer if "data" in each) == [1]
        (again,) = joe.take(failed(message, GONE))  # which acknowledges what came before that answer
        assert origin(again)["redeliver"] == 2
        assert joe.session.mailbox._dispatcher.failures == 1

    def test_an_ok_counts_although_the_message_is_on_its_way_again(self, stored: StoredWorld) -> None:
        """It came too late for the wait, and the answer with the second delivery was lost."""
        joe = Receiver(stored).started("/a", ackWait=3000, dispatcher={"retries": -1, "delay": 0}, **MESSAGE)
        store(stored, "/a", 1)
        (message,) = joe.take()
        stored.advance(3.1)
        lost = joe.reconnect(advice={"timeout": 0})
        assert data(each for each in lost.answer if "data" in each) == [1]
        assert joe.take(ok(message)) == []  # which acknowledges what came before that answer
        assert rejected(joe.tell(ok(message)))[0]["reason"] == NOT_OPEN
        stored.settle()
        assert not stored.letters()

    def test_more_failures_in_a_row_than_retries_end_the_session_with_letters(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", **MESSAGE, **RETRIES)
        ids = store(stored, "/a", 1, 2)
        stored.broker.publish("/a", "not stored")
        messages = joe.take()
        for _ in range(2):
            joe.take(failed(messages[0], GONE, "away"))
            stored.advance(5.1)
            joe.take()
        joe.reconnect(failed(messages[0], GONE, "away"))
        assert not joe.is_known
        letters = stored.letters()
        assert sorted(each.id for each in letters if each.is_persistent) == sorted(ids)
        assert len(letters) == 3
        assert {(each.code, each.reason) for each in letters} == {(GONE, "away")}
        assert {each.id: each.attempts for each in letters if each.is_persistent} == {ids[0]: 3, ids[1]: 1}
        reply = reply_of(joe.connect())
        assert reply["error"].startswith("402")
        assert reply["advice"]["reconnect"] == "handshake"

    def test_without_retries_the_first_one_does(self, stored: StoredWorld, joe: Receiver) -> None:
        store(stored, "/a", 1)
        (message,) = joe.take()
        joe.tell(failed(message, GONE))
        assert not joe.is_known
        assert [each.code for each in stored.letters()] == [GONE]

    def test_what_an_anonymous_session_leaves_is_counted_as_lapsed(self, stored: StoredWorld) -> None:
        nobody = Receiver(stored).started("/a", settle="message")
        store(stored, "/a", 1)
        stored.broker.publish("/a", 2)
        stored.broker.publish("/a", 3)
        nobody.take()
        stored.broker.disconnect(nobody.session)
        stored.settle()
        stored.commit()
        stored.commit()
        assert stored.letters() == []
        assert stored.broker.metrics.ended["lapsed"] == 3

    def test_an_anonymous_session_leaves_letters_if_it_reported_a_failure(self, stored: StoredWorld) -> None:
        nobody = Receiver(stored).started("/a", settle="message")
        store(stored, "/a", 1, 2)
        stored.broker.publish("/a", 3)
        (message, *_) = nobody.take()
        nobody.tell(failed(message, AUTH))
        assert not nobody.is_known
        assert {each.code for each in stored.letters()} == {AUTH}
        assert len(stored.letters()) == 3

    def test_any_ok_begins_the_row_anew(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", dispatcher={"retries": 1, "delay": 0}, **MESSAGE)
        store(stored, "/a", *range(6))
        messages = joe.take()
        for bad, good in ((0, 1), (2, 3), (4, 5)):
            joe.tell(failed(messages[bad], GONE))
            joe.tell(ok(messages[good]))
        assert joe.is_known


class TestAckWait:
    def test_what_is_not_settled_in_time_comes_again(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", ackWait=3000, dispatcher={"retries": -1, "delay": 0}, **MESSAGE)
        store(stored, "/a", 1)
        joe.take()
        held = joe.reconnect()
        stored.advance(2.9)
        assert held.is_held
        stored.advance(0.2)
        (again,) = joe.heard(held)
        assert origin(again)["redeliver"] == 1

    def test_working_begins_it_anew(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", ackWait=3000, dispatcher={"retries": -1, "delay": 0}, **MESSAGE)
        store(stored, "/a", 1)
        (message,) = joe.take()
        for _ in range(4):
            stored.advance(2.5)
            assert "ext" not in joe.tell({"id": origin(message)["id"], "state": "WORKING"})
        assert joe.take() == []
        assert joe.session.mailbox._dispatcher.failures == 0

    def test_without_retries_it_becomes_a_letter_and_the_session_lives(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", ackWait=3000, **MESSAGE)
        ids = store(stored, "/a", 1)
        stored.broker.publish("/a", 2)
        joe.take()
        held = joe.reconnect()
        stored.advance(3.1)
        assert held.is_held
        letters = stored.letters()
        assert [(each.code, each.attempts) for each in letters] == [("communication.responseTimeout", 1)] * 2
        assert ids[0] in [each.id for each in letters]
        assert joe.session.mailbox.view().depth == 0

    def test_ack_wait_stands_still_while_the_client_is_away(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", ackWait=20000, **MESSAGE)
        store(stored, "/a", 1)
        joe.take()
        stored.advance(12.0)
        stored.broker.sweep()
        stored.advance(60.0)
        assert (stored.letters(), joe.session.mailbox.view().depth) == ([], 1)
        joe.take()
        held = joe.reconnect()
        stored.advance(20.1)
        assert held.is_held
        assert [each.code for each in stored.letters()] == ["communication.responseTimeout"]


class TestSink:
    SETS = "delivery.on_user_error=dead"

    def sink(self, world: StoredWorld) -> Receiver:
        joe = Receiver(world).started("/a", **MESSAGE)
        store(world, "/a", 1, 2)
        world.broker.publish("/a", 3)
        (message, *_) = joe.take()
        joe.tell(failed(message, "user.broken", "no idea"))
        return joe

    def test_what_waits_and_what_arrives_becomes_letters(self, make_stored: MakeStored) -> None:
        world = make_stored(self.SETS)
        joe = self.sink(world)
        assert len(world.letters()) == 3
        store(world, "/a", 4)
        world.broker.publish("/a", 5)
        letters = world.letters()
        assert [each.id for each in letters].count("") == 0
        assert len(letters) == 5
        assert {(each.code, each.reason) for each in letters} == {("user.broken", "no idea")}
        assert world.broker.mailboxes.dispatchers.state(joe.session) is DEAD
        assert joe.take() == []

    def test_without_a_store_nothing_more_comes(self, make_world: MakeWorld) -> None:
        world = make_world(self.SETS, "storage.enabled=false", extensions=[UpdateExtension(), AckExtension()])
        joe = Receiver(world).started("/a")
        world.broker.publish("/a", 1)
        (message,) = joe.take()
        joe.tell(failed(message, "user.broken", "no idea"))
        world.broker.publish("/a", 2)
        world.broker.publish("/a", 3)
        assert joe.take() == []

    def test_rejecting_all_survives_a_restart(self, make_stored: MakeStored) -> None:
        world = make_stored(self.SETS)
        joe = self.sink(world)
        world.commit()
        world.crash()
        joe.world = after = make_stored(self.SETS, prefix=world.prefix)
        store(after, "/a", 4)
        assert len(after.letters()) == 4
        assert joe.take() == []

    def test_a_new_handshake_ends_it(self, make_stored: MakeStored) -> None:
        world = make_stored(self.SETS)
        joe = self.sink(world)
        new = Receiver(world).taking_over(joe)
        store(world, "/a", 4)
        world.broker.publish("/a", 5)
        assert sorted(data([*new.take(), *new.take()])) == [4, 5]
        assert "d" not in world.record(new.session)
        assert len(world.letters()) == 3


class TestEnds:
    def waiting(self, world: StoredWorld, **session: Any) -> Receiver:
        """A session for which 1 is open at the client, 2 waits, and so does 3, which is not stored."""
        joe = Receiver(world).started("/a", settle="message", **session)
        store(world, "/a", 1)
        joe.take()
        joe.take()
        store(world, "/a", 2)
        world.broker.publish("/a", 3)
        return joe

    def test_a_named_session_leaves_letters(self, stored: StoredWorld) -> None:
        joe = self.waiting(stored, name="joe/1")
        joe.say("/meta/disconnect")
        letters = stored.letters()
        assert [each.code for each in letters] == [DEAD_SESSION] * 3
        assert {each.receiver for each in letters} == {"client/joe/1"}

    def test_those_of_an_anonymous_one_lapse(self, stored: StoredWorld) -> None:
        self.waiting(stored).say("/meta/disconnect")
        assert stored.letters() == []
        assert [each[1] for each in stored.ended()] == ["lapsed", "lapsed"]

    def test_unless_letters_are_wanted(self, make_stored: MakeStored) -> None:
        world = make_stored("delivery.letters_for_anonymous=true")
        self.waiting(world).say("/meta/disconnect")
        assert len(world.letters()) == 3

    def test_one_that_is_held_back_ends_as_any(self, stored: StoredWorld) -> None:
        joe = self.waiting(stored, name="joe/1")
        stored.wait(stored.broker.mailboxes.dispatchers.hold(joe.session, "admin"))
        joe.say("/meta/disconnect")
        assert len(stored.letters()) == 3

    def test_a_client_that_is_gone_is_waited_for_as_long_as_its_login_said(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", dispatcher={"retries": 2, "delay": 20_000}, **MESSAGE)
        store(stored, "/a", 1)
        stored.sweep_after(15)
        stored.sweep_after(39)
        assert joe.is_known
        stored.sweep_after(2)
        assert not joe.is_known
        assert [each.code for each in stored.letters()] == [DEAD_SESSION]

    def test_absence_need_not_count_as_failing(self, stored: StoredWorld) -> None:
        dispatcher = {"retries": 2, "delay": 20_000, "absence": False}
        joe = Receiver(stored).started("/a", dispatcher=dispatcher, **MESSAGE)
        store(stored, "/a", 1)
        stored.sweep_after(15)
        stored.sweep_after(400)
        assert joe.is_known
        assert data(joe.take()) == [1]

    def test_an_absence_that_counts_may_take_as_long_as_all_retries(self, stored: StoredWorld) -> None:
        dispatcher = {"retries": 3, "delay": 10_000, "factor": 2}
        joe = Receiver(stored).started("/a", dispatcher=dispatcher, **MESSAGE)
        stored.sweep_after(15)
        stored.sweep_after(69)
        assert joe.is_known
        stored.sweep_after(2)
        assert not joe.is_known

    def test_the_end_of_a_session_with_a_backlog_is_logged(
        self, stored: StoredWorld, caplog: pytest.LogCaptureFixture
    ) -> None:
        Receiver(stored).started("/a", dispatcher={"retries": 1, "delay": 500}, **MESSAGE)
        store(stored, "/a", 1, 2, 3)
        stored.sweep_after(15)
        caplog.clear()
        stored.sweep_after(1)
        (line,) = [record.getMessage() for record in caplog.records if "has ended" in record.getMessage()]
        assert line.startswith("the session client/joe/1 has ended (its client is away, which counts as failing")
        assert "its waiting messages (3) become dead letters" in line

    def test_the_end_of_a_session_by_a_failure_is_logged_with_its_code(
        self, stored: StoredWorld, joe: Receiver, caplog: pytest.LogCaptureFixture
    ) -> None:
        store(stored, "/a", 1)
        joe.take(failed(joe.take()[0], GONE))
        assert any(f"has ended ({GONE}" in record.getMessage() for record in caplog.records)

    def test_the_end_of_a_session_without_a_backlog_is_not(
        self, joe: Receiver, caplog: pytest.LogCaptureFixture
    ) -> None:
        joe.say("/meta/disconnect")
        assert not [record for record in caplog.records if "has ended" in record.getMessage()]

    def test_one_whose_login_said_nothing_is_waited_for_until_its_time_is_over(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", **MESSAGE)
        stored.sweep_after(15)
        stored.sweep_after(400)
        assert joe.is_known

    def test_a_channel_of_the_servers_own_leaves_no_letters(self, stored: StoredWorld, joe: Receiver) -> None:
        stored.broker.deliver(joe.session, "/__sys__Event", {"x": 1})
        (message,) = joe.take()
        assert message["channel"] == "/__sys__Event"
        joe.say("/meta/disconnect")
        assert stored.letters() == []


class TestTakeOver:
    def test_all_that_was_open_goes_to_the_new_client_and_the_old_ones_statuses_do_not_count(
        self, stored: StoredWorld, joe: Receiver
    ) -> None:
        store(stored, "/a", 1, 2)
        stored.broker.publish("/a", 3)
        first, *_ = joe.take()
        joe.take()
        new = Receiver(stored).taking_over(joe)
        assert new.login["queued"] == 3
        assert rejected(new.tell(ok(first)))[0]["reason"] == NOT_OPEN
        messages = [*new.take(), *new.take()]
        assert sorted(data(messages)) == [1, 2, 3]
        assert {origin(each).get("redeliver", 0) for each in messages} == {1}
        assert "ext" not in new.tell(*map(ok, messages))
        assert new.session.mailbox.view().depth == 0

    def test_a_retry_can_be_had_now(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", dispatcher={"retries": 1, "delay": 60_000}, **MESSAGE)
        store(stored, "/a", 1)
        assert not stored.broker.mailboxes.dispatchers.retry(joe.session)
        joe.take(failed(joe.take()[0], GONE))
        assert stored.broker.mailboxes.dispatchers.state(joe.session) is POLLING
        assert stored.broker.mailboxes.dispatchers.retry(joe.session)
        stored.settle()
        assert stored.broker.mailboxes.dispatchers.state(joe.session) is ALIVE
        assert data(joe.take()) == [1]

    def test_after_a_failure_it_need_not_wait(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", dispatcher={"retries": -1, "delay": 60_000}, **MESSAGE)
        store(stored, "/a", 1)
        joe.take(failed(joe.take()[0], GONE))
        new = Receiver(stored).taking_over(joe)
        assert data(new.take()) == [1]

    def test_over_a_restart_what_was_open_comes_again(
        self, stored: StoredWorld, make_stored: MakeStored, joe: Receiver
    ) -> None:
        store(stored, "/a", 1, 2, 3)
        first, second, _ = joe.take()
        joe.take(ok(first))
        stored.commit()
        stored.crash()
        joe.world = after = make_stored(prefix=stored.prefix)
        messages = joe.take()
        assert data(messages) == [2, 3]
        assert {origin(each)["redeliver"] for each in messages} == {1}
        joe.take(failed(second, "user.no"))
        assert [each.attempts for each in after.letters()] == [2]
