"""What goes back to the queue of a subject when its sessions end, and who has it then."""

from collections import Counter
from collections.abc import Callable

import pytest

from tests.broker.addressing.post import Clerk, come, ends, ids, letters, login, one, queue, settled
from tests.broker.stored_world import Receiver, StoredWorld, data, failed, ok, origin
from tests.broker.world import World

DEAD = "communication.noConnection.dead"


def disconnects(joe: Receiver) -> None:
    joe.say("/meta/disconnect")
    joe.world.commit()


def is_killed(joe: Receiver) -> None:
    joe.world.broker.disconnect(joe.session)
    joe.world.commit()


def is_silent(joe: Receiver) -> None:
    joe.world.sweep_after(60.0)
    joe.world.commit()


def fails(joe: Receiver) -> None:
    messages = joe.take()
    joe.take(failed(messages[0], "communication.timeout"))
    joe.world.commit()


ENDS = pytest.mark.parametrize("end", [disconnects, is_killed, is_silent, fails])


class TestASubject:
    @ENDS
    @pytest.mark.parametrize("is_sent", [False, True], ids=["not sent", "sent"])
    def test_the_message_goes_back_and_to_the_next_who_comes(
        self, world: StoredWorld, clerk: Clerk, end: Callable[[Receiver], None], is_sent: bool
    ) -> None:
        joe = login(world, "joe/1", timeout=20000)
        message_id = clerk.post("hi", queue("joe"))
        if is_sent and end is not fails:
            assert ids(joe.take()) == [message_id]
        end(joe)
        assert world.broker.addressing.destinations.waiting("joe") == 1
        again = login(world, "joe/1")
        (message,) = come(again)
        assert (message["data"], origin(message)["id"]) == ("hi", message_id)
        assert origin(message)["subscription"] == "__subId:PtP"
        assert ("redeliver" in origin(message)) is (is_sent or end is fails)
        settled(again, message)
        assert world.broker.addressing.destinations.waiting("joe") == 0
        assert letters(world) == []
        assert ends(world) == {(message_id, "settled"): 1}

    def test_a_persistent_one_goes_back_although_it_was_not_to_wait(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1")
        message_id = clerk.post("hi", "joe", persistent=True)
        disconnects(joe)
        assert ids(come(login(world, "joe/2"))) == [message_id]

    def test_a_transient_one_becomes_a_letter(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1")
        message_id = clerk.post("hi", "joe")
        disconnects(joe)
        assert letters(world) == [("client/joe/1", DEAD, message_id)]

    def test_a_message_goes_back_into_its_place(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1")
        for number in (1, 2):
            clerk.post(number, queue("joe"))
        joe.take()
        disconnects(joe)
        clerk.post(3, queue("joe"))
        clerk.post(0, queue("joe"), priority=9)
        assert data(come(login(world, "joe/2"))) == [0, 1, 2, 3]

    def test_a_message_goes_back_once_when_the_last_session_has_ended(self, world: StoredWorld, clerk: Clerk) -> None:
        first, second = login(world, "joe/1"), login(world, "joe/2")
        message_id = clerk.post("hi", queue("joe"))
        assert ids(first.take()) == [message_id]
        disconnects(first)
        assert world.broker.addressing.destinations.waiting("joe") == 0
        assert ids(second.take()) == [message_id]
        disconnects(second)
        assert world.broker.addressing.destinations.waiting("joe") == 1
        assert letters(world) == []
        third = login(world, "joe/3")
        settled(third, *come(third))
        assert ends(world) == {(message_id, "settled"): 1}

    def test_a_message_that_another_session_has_settled_does_not_go_back(
        self, world: StoredWorld, clerk: Clerk
    ) -> None:
        first, second = login(world, "joe/1"), login(world, "joe/2")
        clerk.post("hi", queue("joe"))
        settled(second, *second.take())
        world.commit()
        disconnects(first)
        disconnects(second)
        assert come(login(world, "joe/3")) == []
        assert world.broker.addressing.destinations.waiting("joe") == 0
        assert letters(world) == []

    @ENDS
    @pytest.mark.parametrize("is_first", [True, False], ids=["ends first", "ends last"])
    def test_settled_by_one_session_it_leaves_no_letter_in_either_order(
        self, world: StoredWorld, clerk: Clerk, end: Callable[[Receiver], None], is_first: bool
    ) -> None:
        first = login(world, "joe/1", timeout=20000)
        second = login(world, "joe/2", timeout=500000)
        message_id = clerk.post("hi", queue("joe"))
        (message,) = second.take()
        if is_first:
            end(first)
            second.take(ok(message))
        else:
            second.take(ok(message))
            world.commit()
            end(first)
        assert letters(world) == []
        assert world.broker.addressing.destinations.waiting("joe") == 0
        assert Counter(world.ended()) == {
            ("client/joe/1", "returned", int(message_id)): 1,
            ("client/joe/2", "settled", int(message_id)): 1,
        }
        assert world.broker.metrics.ended["returned"] == 1
        assert world.broker.metrics.ended["dead"] == 0

    def test_settled_by_one_session_it_leaves_no_letter_after_a_crash(self, world: StoredWorld, clerk: Clerk) -> None:
        first, second = login(world, "joe/1"), login(world, "joe/2")
        message_id = clerk.post("hi", queue("joe"))
        second.take(ok(*second.take()))
        world.commit()
        first.say("/meta/disconnect")
        world.crash()
        again = StoredWorld(prefix=world.prefix)
        assert letters(again) == []
        assert again.broker.addressing.destinations.waiting("joe") == 0
        assert ends(again) == {(message_id, "settled"): 1}
        again.close()

    def test_a_message_goes_back_but_not_to_a_session_that_has_rejected_it(
        self, world: StoredWorld, clerk: Clerk
    ) -> None:
        first, second = login(world, "joe/1"), login(world, "joe/2")
        message_id = clerk.post("hi", queue("joe"))
        first.take(*(failed(each, "user.update.error") for each in first.take()))
        world.commit()
        disconnects(second)
        assert world.broker.addressing.destinations.waiting("joe") == 1
        world.sweep_after(1.0)
        assert come(first) == []
        third = login(world, "joe/3")
        messages = come(third)
        assert ids(messages) == [message_id]
        settled(third, *messages)
        assert ends(world) == {(message_id, "dead"): 1, (message_id, "settled"): 1}

    def test_what_the_receiver_rejects_is_a_letter_and_goes_nowhere(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1")
        message_id = clerk.post("hi", queue("joe"))
        joe.take(*(failed(each, "user.update.error") for each in joe.take()))
        assert letters(world) == [("client/joe/1", "user.update.error", message_id)]
        assert world.broker.addressing.destinations.waiting("joe") == 0

    @ENDS
    def test_a_session_that_the_message_was_for_leaves_a_letter(
        self, world: StoredWorld, clerk: Clerk, end: Callable[[Receiver], None]
    ) -> None:
        joe = login(world, "joe/1", timeout=20000)
        message_id = clerk.post("hi", "joe/1", persistent=True)
        end(joe)
        code = "communication.timeout" if end is fails else DEAD
        assert letters(world) == [("client/joe/1", code, message_id)]
        assert world.broker.addressing.destinations.waiting("joe") == 0

    def test_a_session_that_logs_in_while_the_other_ends_has_it(self, world: StoredWorld, clerk: Clerk) -> None:
        first = login(world, "joe/1")
        message_id = clerk.post("hi", queue("joe"))
        first.say("/meta/disconnect")
        second = login(world, "joe/2")
        assert come(second) == []
        world.commit()
        assert ids(come(second)) == [message_id]

    def test_a_message_that_arrives_while_its_session_ends_goes_back(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1")
        ask = clerk.message("/service/post", data="hi", ext={"publish": {"destination": [queue("joe")]}})
        bye = joe.message("/meta/disconnect")
        peer, end = type(joe.connect(advice={"timeout": 0}))(clerk.browser), None
        World.receive(world, peer, ask)  # the store has not answered yet
        end = type(peer)(joe.browser)
        World.receive(world, end, bye)
        world.commit()
        world.commit()
        assert peer.received[0]["successful"]
        assert data(come(login(world, "joe/2"))) == ["hi"]

    def test_after_a_crash_between_the_end_and_the_going_back(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1")
        message_id = clerk.post("hi", queue("joe"))
        joe.take()
        joe.say("/meta/disconnect")
        world.crash()
        again = StoredWorld(prefix=world.prefix)
        again.commit()
        assert again.broker.addressing.destinations.waiting("joe") == 1
        back = login(again, "joe/1")
        (message,) = come(back)
        assert origin(message)["id"] == message_id
        settled(back, message)
        assert ends(again) == {(message_id, "settled"): 1}
        again.close()

    def test_after_a_crash_of_both_sessions_only_the_last_end_counts(self, world: StoredWorld, clerk: Clerk) -> None:
        first, second = login(world, "joe/1"), login(world, "joe/2")
        message_id = clerk.post("hi", queue("joe"))
        world.crash()
        again = StoredWorld(prefix=world.prefix)
        one_back, other_back = (Receiver(again).taking_over(each) for each in (first, second))
        disconnects(one_back)
        assert again.broker.addressing.destinations.waiting("joe") == 0
        disconnects(other_back)
        assert again.broker.addressing.destinations.waiting("joe") == 1
        assert ids(come(login(again, "joe/3"))) == [message_id]
        again.close()


class TestOneOfASubject:
    """`distribute: "one"`."""

    def test_each_message_has_one_receiver_the_one_with_the_least_to_do(self, world: StoredWorld, clerk: Clerk) -> None:
        sessions = [login(world, f"joe/{number}") for number in (1, 2, 3)]
        for number in range(9):
            clerk.post(number, one("joe"))
        got = [data(come(each)) for each in sessions]
        assert [len(each) for each in got] == [3, 3, 3]
        assert sorted(number for each in got for number in each) == list(range(9))

    @pytest.mark.parametrize("code", ["user.update.error", "communication.timeout", "user.update.holdback"])
    def test_another_one_has_it_when_one_fails(self, world: StoredWorld, clerk: Clerk, code: str) -> None:
        message_id, first, second = self._given(world, clerk)
        first.take(failed(come(first)[0], code))
        (message,) = come(second)
        assert origin(message)["id"] == message_id
        assert origin(message)["redeliver"] == 1
        settled(second, message)
        assert letters(world) == []
        assert ends(world) == {(message_id, "settled"): 1}

    @ENDS
    def test_another_one_has_it_when_one_ends(
        self, world: StoredWorld, clerk: Clerk, end: Callable[[Receiver], None]
    ) -> None:
        message_id, first, second = self._given(world, clerk, timeout=20000)
        if end is is_silent:
            for _ in range(3):  # the other one goes on
                world.advance(9.0)
                second.take()
            world.broker.sweep()
            world.commit()
        else:
            end(first)
        assert ids(come(second)) == [message_id]
        assert letters(world) == []

    def test_a_letter_at_once_if_that_is_what_the_receiver_wants(self, world: StoredWorld, clerk: Clerk) -> None:
        message_id, first, second = self._given(world, clerk)
        first.take(failed(come(first)[0], "user.update.deadMessage"))
        assert come(second) == []
        assert letters(world) == [("client/joe/1", "user.update.deadMessage", message_id)]

    def test_a_letter_when_all_who_are_there_have_failed_it(self, world: StoredWorld, clerk: Clerk) -> None:
        message_id, first, second = self._given(world, clerk)
        first.take(failed(come(first)[0], "user.update.error"))
        second.take(failed(come(second)[0], "user.update.second"))
        assert come(first) == []
        assert letters(world) == [("client/joe/2", "user.update.second", message_id)]
        assert ends(world) == {(message_id, "dead"): 1}

    def test_a_letter_when_the_only_one_left_has_failed_it(self, world: StoredWorld, clerk: Clerk) -> None:
        """The other one has it, and ends with it."""
        message_id, first, second = self._given(world, clerk)
        first.take(failed(come(first)[0], "user.update.error"))
        assert ids(come(second)) == [message_id]
        disconnects(second)
        assert letters(world) == [("client/joe/1", "user.update.error", message_id)]

    def test_a_message_waits_until_a_session_comes(self, world: StoredWorld, clerk: Clerk) -> None:
        message_id = clerk.post("hi", one("joe", waits=True))
        assert world.broker.addressing.destinations.waiting("joe") == 1
        first, second = login(world, "joe/1"), login(world, "joe/2")
        assert ids(come(first) + come(second)) == [message_id]

    def test_a_message_waits_when_the_only_session_ends(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1")
        message_id = clerk.post("hi", one("joe"))
        disconnects(joe)
        assert world.broker.addressing.destinations.waiting("joe") == 1
        assert ids(come(login(world, "joe/2"))) == [message_id]

    def test_who_is_away_has_nothing_while_others_are_there(self, world: StoredWorld, clerk: Clerk) -> None:
        first, second = login(world, "joe/1"), login(world, "joe/2")
        world.sweep_after(50.0)
        assert first.session.mailbox.is_absent
        second.take()
        wanted = [clerk.post(number, one("joe")) for number in range(4)]
        assert ids(come(second)) == wanted

    def test_who_comes_back_has_what_waits(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1")
        world.sweep_after(50.0)
        message_id = clerk.post("hi", one("joe"))
        assert world.broker.addressing.destinations.waiting("joe") == 1
        assert ids(come(joe)) == [message_id]

    def test_a_session_takes_as_many_at_once_as_its_login_says(self, world: StoredWorld, clerk: Clerk) -> None:
        joe = login(world, "joe/1", burst={"maxEntries": 2})
        wanted = [clerk.post(number, one("joe")) for number in range(5)]
        assert world.broker.addressing.destinations.waiting("joe") == 3
        got: list[str] = []
        messages = come(joe)
        for _ in range(5):
            got += ids(messages)
            assert len(messages) <= 2
            messages = joe.take(*map(ok, messages)) + come(joe)
        assert got == wanted

    def test_after_a_crash_it_is_with_the_one_who_has_it(self, world: StoredWorld, clerk: Clerk) -> None:
        message_id, first, _ = self._given(world, clerk)
        world.crash()
        again = StoredWorld(prefix=world.prefix)
        back = Receiver(again).taking_over(first)
        (message,) = come(back)
        assert origin(message)["id"] == message_id
        settled(back, message)
        assert ends(again) == {(message_id, "settled"): 1}
        again.close()

    @staticmethod
    def _given(world: StoredWorld, clerk: Clerk, **session: int) -> tuple[str, Receiver, Receiver]:
        """A message that the first of two sessions has."""
        first = login(world, "joe/1", **session)
        message_id = clerk.post("hi", one("joe"))
        second = login(world, "joe/2", **session)
        assert come(second) == []
        return message_id, first, second
