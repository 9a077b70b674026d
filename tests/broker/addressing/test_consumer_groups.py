"""Groups of consumers: each message goes to one member."""

import sys
from collections import Counter
from typing import Any, ClassVar

import pytest

from crewel.broker.dead_letters.redrive import Chosen, Limits
from crewel.delivery.records import SessionName, Submission
from crewel.errors import StoreUnavailable
from crewel.storage import log, shared_queue_store
from crewel.storage.shared_queue_store import Member
from tests.broker.addressing.post import Clerk, come, ends, ids, letters, login, settled
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, data, failed, ok, origin, store
from tests.broker.world import Client, Recording, Request, World, reply_to

WORK = "/jobs/a"
AWAY_S = 50.0
RETURN_S = 75.0
"""More than a client may take to come back after a restart, by the default settings."""


def join(receiver: Receiver, pattern: str = WORK, group: str = "workers") -> Receiver:
    reply = receiver.say("/meta/subscribe", subscription=pattern, ext={"subscribe": {"group": group}})
    assert reply["successful"], reply
    return receiver


def member(world: StoredWorld, name: str, pattern: str = WORK, group: str = "workers", **session: Any) -> Receiver:
    return join(login(world, name, **session), pattern, group)


def publish(world: StoredWorld, *values: Any, channel: str = WORK, **qos: Any) -> list[str]:
    """Publish these as a client does; their ids."""
    clerk = Clerk(world)
    told = []
    for value in values:
        message = clerk.message(channel, data=value, ext={"publish": qos})
        peer: Recording = clerk.send(message)
        reply = reply_to(peer, message["id"])
        assert reply["successful"], reply
        told.append(reply["ext"]["publish"]["id"])
    clerk.say("/meta/disconnect")
    return told


def waiting(world: StoredWorld) -> int:
    return sum(each.waiting for each in world.broker.addressing.groups.states())


class TestOneOfThem:
    def test_each_message_goes_to_the_one_with_the_least_to_do(self, world: StoredWorld) -> None:
        members = [member(world, f"joe/{number}") for number in (1, 2, 3)]
        publish(world, *range(9))
        got = [data(come(each)) for each in members]
        assert [len(each) for each in got] == [3, 3, 3]
        assert sorted(number for each in got for number in each) == list(range(9))

    def test_members_are_of_any_subject(self, world: StoredWorld) -> None:
        members = [member(world, name) for name in ("joe/1", "ann/1")]
        publish(world, 1, 2)
        assert [len(come(each)) for each in members] == [1, 1]

    def test_members_need_no_name(self, world: StoredWorld) -> None:
        anonymous = Receiver(world).started()
        join(anonymous)
        publish(world, 1)
        assert data(come(anonymous)) == [1]

    def test_transient_messages_are_stored_for_them(self, make_stored: MakeStored, world: StoredWorld) -> None:
        (message_id,) = publish(world, 1)
        joe = member(world, "joe/1")
        assert come(joe) == []  # there was no group when it was published
        (message_id,) = publish(world, 2)
        world.crash()
        again = make_stored(prefix=world.prefix)
        back = Receiver(again).taking_over(joe)
        assert ids(come(back)) == [message_id]

    def test_publishes_without_any_qualities_too(self, world: StoredWorld) -> None:
        joe = member(world, "joe/1")
        world.broker.publish(WORK, 1)
        world.settle()
        assert data(come(joe)) == [1]
        client = Client(world).joined()
        client.publish(WORK, 2)
        assert data(come(joe)) == [2]

    def test_subscribers_hear_all_of_it_beside_the_group(self, world: StoredWorld) -> None:
        first, second = member(world, "joe/1"), member(world, "joe/2")
        other = login(world, "ann/1", WORK)
        wanted = store(world, WORK, 1, 2)
        assert ids(come(other)) == wanted
        assert sorted(ids(come(first)) + ids(come(second))) == wanted

    def test_each_group_has_each_message(self, world: StoredWorld) -> None:
        one, two = member(world, "joe/1", group="one"), member(world, "joe/2", group="two")
        wide = member(world, "joe/3", "/jobs/*", group="one")  # of another pattern: another group
        wanted = publish(world, 1, 2)
        assert [ids(come(each)) for each in (one, two, wide)] == [wanted] * 3

    def test_the_pattern_is_told(self, world: StoredWorld) -> None:
        wide = member(world, "joe/1", "/jobs/**")
        publish(world, 1)
        (message,) = come(wide)
        assert origin(message)["subscription"] == "/jobs/**"
        literal = member(world, "joe/2", WORK)
        publish(world, 2)
        (message,) = come(literal)
        assert "subscription" not in origin(message)

    def test_by_priority_and_then_by_age(self, world: StoredWorld) -> None:
        joe = member(world, "joe/1", burst={"maxEntries": 1})
        publish(world, 0)
        publish(world, 1, 2)
        publish(world, 3, priority="HIGH")
        got = []
        messages = come(joe)
        for _ in range(4):
            got += data(messages)
            messages = joe.take(*map(ok, messages)) + come(joe)
        assert got == [0, 3, 1, 2]

    def test_a_member_takes_as_many_at_once_as_its_login_says(self, world: StoredWorld) -> None:
        slow = member(world, "joe/1", burst={"maxEntries": 2})
        publish(world, *range(5))
        assert data(come(slow)) == [0, 1]
        assert waiting(world) == 3
        quick = member(world, "joe/2")
        assert data(come(quick)) == [2, 3, 4]

    def test_messages_wait_while_nobody_has_room(self, world: StoredWorld) -> None:
        joe = member(world, "joe/1", burst={"maxEntries": 1})
        wanted = publish(world, 1, 2)
        messages = come(joe)
        assert ids(messages) == wanted[:1]
        settled(joe, *messages)
        assert ids(come(joe)) == wanted[1:]

    def test_members_get_what_they_have_room_for_in_several_leases(self, world: StoredWorld) -> None:
        members = [member(world, f"joe{number}/1") for number in range(12)]
        access, queue = world.access, f"group:{WORK} workers"
        submissions = [Submission(WORK, b'{"channel":"/jobs/a"}', groups=(queue,))] * 1300
        world.wait(world.store.run([log.append(access.keys, access.token, submissions, access.facts_max)]))
        world.broker.addressing.shared_queues.refresh(queue)
        world.settle()
        assert [len(each.session.mailbox.view().inbox) for each in members] == [100] * 12
        assert waiting(world) == 100

    def test_what_waits_behind_very_many_that_no_free_member_may_have_is_leased(self, world: StoredWorld) -> None:
        joe, ann = (member(world, name) for name in ("joe/1", "ann/1"))
        world.wait(world.broker.mailboxes.dispatchers.hold(ann.session, "an operator"))
        k, token, most, queue = world.access.keys, world.access.token, world.access.facts_max, f"group:{WORK} workers"
        name, other = SessionName("client/joe/1"), SessionName("client/ann/1")
        message = Submission(WORK, b'{"channel":"/jobs/a"}', groups=(queue,))
        lease = shared_queue_store.lease(k, token, queue, [Member(name, 1000), Member(other, 0)], most)
        _, leased = world.wait(world.store.run([log.append(k, token, [message] * 1000, most), lease]))
        made = {each.id: 1 for each in leased.leased}
        world.wait(world.store.run([shared_queue_store.requeue(k, token, name, made, most, failed=True)]))
        wanted = publish(world, 1)
        assert (len(made), ids(come(joe))) == (1000, wanted)

    def test_who_acknowledges_nothing_cannot_be_a_member(self, world: StoredWorld) -> None:
        client = Client(world).joined()
        reply = client.say("/meta/subscribe", subscription=WORK, ext={"subscribe": {"group": "workers"}})
        assert not reply["successful"]

    def test_a_queue_of_a_group_has_a_bound(self, make_stored: MakeStored) -> None:
        world = make_stored("ptp.group_queue_max_entries=2")
        joe = member(world, "joe/1", burst={"maxEntries": 1})
        wanted = publish(world, 1, 2, 3, 4)
        assert letters(world) == [(f"group:{WORK} workers", "resource.overflow.queue.entries", wanted[3])]
        assert waiting(world) == 2
        (letter,) = world.letters()
        settled(joe, *come(joe))
        settled(joe, *come(joe))
        report = world.wait(world.broker.dead_letters.redrive.redrive(Chosen(ids=(letter.dead_id,)), Limits()))
        assert report.done == 1
        got = []
        for _ in range(2):
            messages = come(joe)
            got += data(messages)
            settled(joe, *messages)
        assert got == [3, 4]


class TestFailures:
    @pytest.mark.parametrize("code", ["user.update.error", "communication.timeout", "user.update.holdback"])
    def test_another_member_has_it_when_one_fails(self, world: StoredWorld, code: str) -> None:
        message_id, first, second = self._given(world)
        first.take(failed(come(first)[0], code))
        (message,) = come(second)
        assert (origin(message)["id"], origin(message)["redeliver"]) == (message_id, 1)
        settled(second, message)
        assert letters(world) == []
        assert ends(world) == {(message_id, "settled"): 1}

    def test_each_failure_of_one_report_counts_by_its_own_code(self, world: StoredWorld) -> None:
        first, second = (member(world, f"joe/{n}", dispatcher={"retries": 5, "delay": 0}) for n in (1, 2))
        publish(world, *range(4))
        late, poison = come(first)
        settled(second, *come(second))
        first.take(failed(late, "communication.timeout"), failed(poison, "user.update.deadMessage"))
        assert ids(come(second)) == ids([late])
        assert letters(world) == [("client/joe/1", "user.update.deadMessage", *ids([poison]))]

    def test_another_member_has_it_when_one_ends(self, world: StoredWorld) -> None:
        message_id, first, second = self._given(world)
        come(first)
        first.say("/meta/disconnect")
        world.commit()
        (message,) = come(second)
        assert (origin(message)["id"], origin(message)["redeliver"]) == (message_id, 1)

    def test_another_member_has_it_when_a_status_does_not_come_in_time(self, world: StoredWorld) -> None:
        message_id, first, second = self._given(world, ackWait=1000)
        come(first)
        world.advance(1.5)
        assert ids(come(second)) == [message_id]
        assert letters(world) == []

    def test_a_letter_when_all_have_failed_it(self, world: StoredWorld) -> None:
        message_id, first, second = self._given(world)
        first.take(failed(come(first)[0], "user.update.error"))
        second.take(failed(come(second)[0], "user.update.second"))
        assert come(first) == []
        assert letters(world) == [("client/joe/2", "user.update.second", message_id)]

    def test_who_has_failed_it_is_remembered_over_a_restart(self, make_stored: MakeStored, world: StoredWorld) -> None:
        message_id, first, second = self._given(world)
        first.take(failed(come(first)[0], "user.update.error"))
        world.crash()
        again = make_stored(prefix=world.prefix)
        one_back, other_back = (Receiver(again).taking_over(each) for each in (first, second))
        one_back.take()
        other_back.take(failed(come(other_back)[0], "user.update.second"))
        assert come(one_back) == []
        assert [letter[1:] for letter in letters(again)] == [("user.update.second", message_id)]

    def test_after_a_restart_it_waits_for_a_member_that_has_not_come_back(
        self, make_stored: MakeStored, world: StoredWorld
    ) -> None:
        message_id, first, second = self._given(world)
        one_back = self._back(make_stored, world, first)
        one_back.take(failed(come(one_back)[0], "user.update.error"))
        assert come(one_back) == []
        other_back = Receiver(one_back.world).taking_over(second)
        (message,) = come(other_back)
        assert origin(message)["id"] == message_id
        settled(other_back, message)
        assert letters(one_back.world) == []

    def test_after_a_restart_a_letter_when_that_member_does_not_come_in_time(
        self, make_stored: MakeStored, world: StoredWorld
    ) -> None:
        message_id, first, _ = self._given(world, timeout=600_000)
        one_back = self._back(make_stored, world, first)
        one_back.take(failed(come(one_back)[0], "user.update.error"))
        assert letters(one_back.world) == []
        one_back.world.advance(RETURN_S)
        one_back.world.broker.addressing.sweep()
        assert come(one_back) == []
        assert [letter[1:] for letter in letters(one_back.world)] == [("user.update.error", message_id)]

    def test_a_letter_when_the_others_have_been_away_for_long(
        self, make_stored: MakeStored, world: StoredWorld
    ) -> None:
        message_id, first, _ = self._given(world, timeout=600_000)
        one_back = self._back(make_stored, world, first)
        (message,) = come(one_back)
        one_back.world.advance(RETURN_S)
        one_back.take(failed(message, "user.update.error"))
        assert [letter[1:] for letter in letters(one_back.world)] == [("user.update.error", message_id)]

    def test_the_only_member_fails_as_any_session_does(self, world: StoredWorld) -> None:
        joe = member(world, "joe/1")
        (message_id,) = publish(world, 1)
        joe.take(failed(come(joe)[0], "user.update.error"))
        assert letters(world) == [("client/joe/1", "user.update.error", message_id)]

    def test_the_only_member_that_is_held_back_keeps_it(self, world: StoredWorld) -> None:
        joe = member(world, "joe/1")
        (message_id,) = publish(world, 1)
        joe.take(failed(come(joe)[0], "user.update.holdback"))
        assert come(joe) == []
        world.wait(world.broker.mailboxes.dispatchers.activate(joe.session))
        assert ids(come(joe)) == [message_id]

    def test_who_is_held_back_keeps_nothing_that_others_could_have(self, world: StoredWorld) -> None:
        first = member(world, "joe/1")
        publish(world, 1, 2, 3)
        messages = come(first)
        second = member(world, "joe/2")
        first.take(failed(messages[1], "user.update.holdback"))
        assert data(come(second)) == [1, 2, 3]
        publish(world, 4)
        assert data(come(second)) == [4]
        assert letters(world) == []

    def test_a_client_on_hold_keeps_nothing_that_later_members_could_have(self, world: StoredWorld) -> None:
        first = member(world, "joe/1")
        publish(world, 1, 2, 3)
        first.take(failed(come(first)[1], "user.update.holdback"))
        assert come(first) == []
        assert data(come(member(world, "ann/1"))) == [1, 2, 3]
        assert letters(world) == []

    def test_an_operator_who_holds_a_member_gives_the_others_its_work(self, world: StoredWorld) -> None:
        message_id, first, second = self._given(world)
        world.wait(world.broker.mailboxes.dispatchers.hold(first.session, "an operator"))
        assert ids(come(second)) == [message_id]

    @staticmethod
    def _back(make_stored: MakeStored, world: StoredWorld, member: Receiver) -> Receiver:
        """This member alone, after a crash of its server."""
        world.crash()
        return Receiver(make_stored(prefix=world.prefix)).taking_over(member)

    @staticmethod
    def _given(world: StoredWorld, **session: Any) -> tuple[str, Receiver, Receiver]:
        """A message that the first of two members has."""
        first = member(world, "joe/1", **session)
        (message_id,) = publish(world, 1)
        second = member(world, "joe/2", **session)
        assert come(second) == []
        return message_id, first, second


class TestAbsence:
    """What a member had fetched when its client went away, which the others get."""

    def test_another_member_gets_it_and_the_absent_one_has_failed_nothing(self, world: StoredWorld) -> None:
        first, second = (member(world, f"joe/{number}", timeout=600_000) for number in (1, 2))
        wanted = publish(world, *range(20))
        has, second_has = come(first), come(second)
        settled(second, *second_has)
        self._pass_without(world, second)
        messages = come(second)
        assert ids(messages) == ids(has)
        assert all(origin(each)["redeliver"] for each in messages)
        assert first.session.mailbox._dispatcher.failures == 0
        settled(second, *messages)
        assert ends(world) == {(each, "settled"): 1 for each in wanted}

    def test_the_only_member_keeps_it_until_another_one_joins(self, world: StoredWorld) -> None:
        joe = member(world, "joe/1", timeout=600_000)
        wanted = publish(world, 1, 2)
        come(joe)
        for _ in range(20):
            world.sweep_after(AWAY_S / 2)
        assert (waiting(world), joe.session.mailbox.view().depth) == (0, 2)
        joe.take()
        world.sweep_after(1.0)
        assert (joe.session.mailbox.view().depth, letters(world)) == (2, [])
        self._pass_without(world)
        ann = member(world, "ann/1", timeout=600_000)
        world.sweep_after(1.0)
        assert ids(come(ann)) == wanted

    def test_a_client_that_comes_back_late_may_report_what_another_one_has(self, world: StoredWorld) -> None:
        first, second = (member(world, f"joe/{number}", timeout=600_000) for number in (1, 2))
        (message_id,) = publish(world, 1)
        (late,) = come(first)
        self._pass_without(world, second)
        (message,) = come(second)
        assert settled(first, late) == []
        publish(world, 2)
        assert data(come(first)) == [2]
        settled(second, message)
        assert ends(world) == {(message_id, "settled"): 1}

    def test_after_a_restart_it_waits_for_a_client_that_may_still_come(
        self, make_stored: MakeStored, world: StoredWorld
    ) -> None:
        first, second = (member(world, f"joe/{number}", timeout=600_000) for number in (1, 2))
        (message_id,) = publish(world, 1)
        come(first)
        world.crash()
        again = make_stored(prefix=world.prefix)
        back = Receiver(again).taking_over(second)
        self._pass_without(again, back, seconds=1.0)
        assert come(back) == []
        self._pass_without(again, back, seconds=RETURN_S)
        assert ids(come(back)) == [message_id]

    @staticmethod
    def _pass_without(world: StoredWorld, *there: Receiver, seconds: float = AWAY_S) -> None:
        """Time passes, in which only these members come."""
        world.sweep_after(seconds)
        for each in there:
            each.take()
        world.sweep_after(1.0)


class TestLife:
    def test_a_group_survives_the_server_with_what_waits(self, make_stored: MakeStored, world: StoredWorld) -> None:
        joe = member(world, "joe/1", burst={"maxEntries": 1})
        wanted = publish(world, 1, 2, 3)
        world.crash()
        again = make_stored(prefix=world.prefix)
        (group,) = again.broker.addressing.groups.states()
        assert (group.pattern, group.name, group.waiting, group.members) == (WORK, "workers", 2, ["client/joe/1"])
        wanted += publish(again, 4)
        back = Receiver(again).taking_over(joe, burst={"maxEntries": 10})
        got: list[str] = []
        for _ in range(3):
            messages = come(back)
            got += ids(messages)
            settled(back, *messages)
        assert got == wanted

    def test_what_waits_when_the_last_member_has_ended_lapses(self, world: StoredWorld) -> None:
        joe = member(world, "joe/1", burst={"maxEntries": 1})
        first, *rest = publish(world, 1, 2, 3)
        joe.say("/meta/disconnect")
        assert letters(world) == [("client/joe/1", "communication.noConnection.dead", first)]
        world.commit()
        assert world.broker.addressing.groups.states() == []
        assert ends(world) == {(first, "dead"): 1} | {(each, "lapsed"): 1 for each in rest}
        later = member(world, "joe/2")
        assert come(later) == []
        assert world.broker.metrics.ended["lapsed"] == 2

    def test_a_member_that_comes_before_the_last_one_has_left_the_store_gets_what_waits(
        self, world: StoredWorld
    ) -> None:
        self._last_one_ends(world)
        assert data(come(member(world, "joe/2"))) == [1, 2]

    def test_members_that_come_while_the_store_is_asked_are_not_taken_for_messages(self, world: StoredWorld) -> None:
        joe, queues, name = member(world, "joe/1"), world.broker.addressing.shared_queues, f"group:{WORK} workers"
        queues.refresh(name)
        for _ in range(3):
            queues.joined(name)
        assert queues.waiting(name) == 0
        world.settle()
        publish(world, 1)
        assert data(come(joe)) == [1]

    @staticmethod
    def _last_one_ends(world: StoredWorld) -> None:
        """The only member ends, with two messages that wait for the group, and the store knows nothing of it yet."""
        gone = member(world, "joe/1", timeout=600_000)
        gone.take()
        world.sweep_after(AWAY_S)
        publish(world, 1, 2)
        assert waiting(world) == 2
        world.broker.disconnect(gone.session)

    def test_a_member_that_goes_leaves_the_rest_to_the_others(self, world: StoredWorld) -> None:
        first = member(world, "joe/1")
        wanted = publish(world, 1, 2, 3)
        second = member(world, "joe/2")
        first.say("/meta/disconnect")
        world.commit()
        assert ids(come(second)) == wanted
        assert letters(world) == []

    def test_who_unsubscribes_gets_no_more(self, world: StoredWorld) -> None:
        first, second = member(world, "joe/1"), member(world, "joe/2")
        reply = first.say("/meta/unsubscribe", subscription=WORK)
        assert reply["successful"]
        wanted = publish(world, 1, 2)
        assert (come(first), ids(come(second))) == ([], wanted)
        (group,) = world.broker.addressing.groups.states()
        assert group.members == ["client/joe/2"]

    def test_what_it_has_got_it_may_still_settle(self, world: StoredWorld) -> None:
        joe = member(world, "joe/1")
        (message_id,) = publish(world, 1)
        messages = come(joe)
        joe.say("/meta/unsubscribe", subscription=WORK)
        settled(joe, *messages)
        assert ends(world) == {(message_id, "settled"): 1}

    def test_a_topic_that_groups_hear_is_plain_again_when_they_have_gone(self, world: StoredWorld) -> None:
        joe = member(world, "joe/1")
        publish(world, 1)
        stored = world.broker.metrics.stored_publishes
        joe.say("/meta/disconnect")
        world.commit()
        world.broker.publish(WORK, 2)
        world.settle()
        assert world.broker.metrics.stored_publishes == stored

    def test_a_store_that_is_read_again_keeps_the_groups(self, world: StoredWorld) -> None:
        joe = member(world, "joe/1")
        wanted = publish(world, 1, 2)
        world.wait(world.durability._reload())
        assert [each.members for each in world.broker.addressing.groups.states()] == [["client/joe/1"]]
        wanted += publish(world, 3)
        got = Counter(ids(come(joe)) + ids(come(joe)))
        assert set(got) == set(wanted)

    def test_operators_see_them(self, world: StoredWorld) -> None:
        member(world, "joe/1", burst={"maxEntries": 1})
        member(world, "ann/1", group="another", burst={"maxEntries": 1})
        publish(world, 1, 2)
        assert [tuple(each) for each in world.broker.addressing.groups.states()] == [
            (WORK, "another", 1, ["client/ann/1"]),
            (WORK, "workers", 1, ["client/joe/1"]),
        ]


class TestOpenLimit:
    """A member has no more leases than messages may be open at its client."""

    ONE: ClassVar[dict[str, Any]] = {"settle": "message", "maxOpen": 1, "dispatcher": {"retries": -1, "delay": 0}}

    def test_another_member_gets_what_one_at_its_limit_may_not_have(self, world: StoredWorld) -> None:
        slow, quick = (member(world, f"joe/{number}", **self.ONE) for number in (1, 2))
        publish(world, *range(6))
        (kept,) = come(slow)
        got = []
        while messages := come(quick):
            (message,) = messages
            got.append(message["data"])
            quick.tell(ok(message))
        assert sorted([kept["data"], *got]) == list(range(6))
        assert come(slow) == []

    def test_messages_that_are_not_of_the_group_count(self, world: StoredWorld) -> None:
        slow = member(world, "joe/1", **self.ONE)
        slow.subscribe("/own")
        store(world, "/own", "own")
        (own,) = come(slow)
        publish(world, 1)
        assert (come(slow), waiting(world)) == ([], 1)
        slow.tell(ok(own))
        assert data(come(slow)) == [1]

    def test_messages_wait_while_all_members_are_at_their_limit(self, world: StoredWorld) -> None:
        one = member(world, "joe/1", **self.ONE)
        publish(world, 1, 2, 3)
        for number in (1, 2, 3):
            (message,) = come(one)
            assert (message["data"], waiting(world)) == (number, 3 - number)
            one.tell(ok(message))
        assert come(one) == []

    def test_a_message_that_another_member_has_counts_no_more(self, world: StoredWorld) -> None:
        """Its client may still be busy with it: a member is limited by what it leases."""
        slow = member(world, "joe/1", ackWait=1000, **self.ONE)
        publish(world, 1, 2)
        assert data(come(slow)) == [1]
        quick = member(world, "joe/2", **self.ONE)
        assert data(come(quick)) == [2]
        world.advance(1.5)
        assert (data(come(slow)), waiting(world)) == ([], 1)
        publish(world, 3)
        assert data(come(slow)) == [3]

    def test_without_statuses_the_acknowledgement_leases_the_next(self, world: StoredWorld) -> None:
        one = member(world, "joe/1", update=False, maxOpen=2)
        publish(world, 1, 2, 3, 4, 5)
        assert [data(come(one)) for _ in range(3)] == [[1, 2], [3, 4], [5]]


class TestSubscribers:
    """A member that is subscribed to the channel too has one message of each, which ends once."""

    def test_a_status_ends_both(self, world: StoredWorld) -> None:
        joe, held = self._waiting(world)
        (message_id,) = publish(world, 1)
        (message,) = [*joe.heard(held), *come(joe)]
        assert settled(joe, message) == []
        self._nothing_is_left(world, joe)
        assert ends(world) == {(message_id, "settled"): 1}

    def test_the_acknowledgement_of_a_batch_ends_both(self, world: StoredWorld) -> None:
        joe, held = self._waiting(world, settle="batch")
        publish(world, 1)
        assert data([*joe.heard(held), *come(joe)]) == [1]
        assert joe.take() == []
        self._nothing_is_left(world, joe)

    def test_a_message_fails_once(self, world: StoredWorld) -> None:
        joe, held = self._waiting(world)
        (message_id,) = publish(world, 1)
        (message,) = [*joe.heard(held), *come(joe)]
        assert joe.take(failed(message, "user.update.error")) == []
        self._nothing_is_left(world, joe)
        assert letters(world) == [("client/joe/1", "user.update.error", message_id)]

    def test_a_message_is_still_there_when_another_member_gets_it(self, world: StoredWorld) -> None:
        joe, held = self._waiting(world)
        (message_id,) = publish(world, 1)
        (message,) = [*joe.heard(held), *come(joe)]
        ann = member(world, "ann/1")
        joe.tell(failed(message, "user.update.error"))
        (again,), (other,) = come(joe), come(ann)
        assert [origin(each)["id"] for each in (again, other)] == [message_id] * 2
        for each, one in ((joe, again), (ann, other)):
            settled(each, one)
            self._nothing_is_left(world, each)

    def test_a_message_that_another_member_gets_comes_before_younger_ones(self, world: StoredWorld) -> None:
        joe, held = self._waiting(world)
        publish(world, 1)
        (message,) = [*joe.heard(held), *come(joe)]
        member(world, "ann/1")
        store(world, "/jobs/of-joe", 2, 3)
        joe.tell(failed(message, "user.update.error"))
        assert data([*come(joe), *come(joe)]) == [1, 2, 3]

    def test_a_subscription_to_the_newest_only_does_not_end_what_the_group_has(self, world: StoredWorld) -> None:
        joe = login(world, "joe/1")
        reply = joe.say("/meta/subscribe", subscription="/jobs/*", ext={"subscribe": {"newestOnly": True}})
        assert reply["successful"]
        join(joe)
        publish(world, 1, 2)
        messages = come(joe)
        assert data(messages) == [1, 2]
        settled(joe, *messages)
        self._nothing_is_left(world, joe)

    def test_a_message_is_there_once_after_a_restart(self, make_stored: MakeStored, world: StoredWorld) -> None:
        joe, held = self._waiting(world)
        publish(world, 1)
        assert data(joe.heard(held)) == [1]
        world.commit()
        world.crash()
        back = Receiver(make_stored(prefix=world.prefix)).taking_over(joe)
        (message,) = come(back)
        settled(back, message)
        self._nothing_is_left(back.world, back)

    @staticmethod
    def _waiting(world: StoredWorld, **session: Any) -> tuple[Receiver, Request]:
        """A member that is subscribed as well, and its held connect."""
        joe = login(world, "joe/1", "/jobs/*", **session)
        join(joe)
        joe.take()
        return joe, joe.reconnect()

    @staticmethod
    def _nothing_is_left(world: StoredWorld, receiver: Receiver) -> None:
        world.commit()
        durable = receiver.session.durable
        assert durable is not None
        assert (world.inbox(receiver.session), len(durable), durable.size, receiver.session.mailbox.view().depth) == (
            [],
            0,
            0,
            0,
        )


def join_all(receiver: Receiver, patterns: list[str]) -> Any:
    return receiver.say("/meta/subscribe", subscription=patterns, ext={"subscribe": {"group": "workers"}})


class TestManyGroups:
    @pytest.mark.parametrize("again", [False, True])
    def test_each_group_costs_the_same(self, world: StoredWorld, again: bool) -> None:
        def calls(number: int) -> int:
            """The calls of functions that it takes the server to let a session join so many groups, and leave them."""
            joe, patterns = login(world, f"joe/{number}"), [f"/many/{number}/{each}" for each in range(number)]
            if again:
                assert join_all(joe, patterns)["successful"]
            count = 0

            def counted(_frame: object, event: str, _argument: object) -> None:
                nonlocal count
                count += event in {"call", "c_call"}

            sys.setprofile(counted)
            try:
                assert join_all(joe, patterns)["successful"]
                assert joe.say("/meta/unsubscribe", subscription=patterns)["successful"]
            finally:
                sys.setprofile(None)
            return count

        calls(10)  # what is imported and cached at first
        few, many = calls(100), calls(400)
        assert many < 5 * few

    def test_groups_are_bounded_for_a_session_and_an_account(self, make_stored: MakeStored) -> None:
        world = make_stored("limits.max_groups_per_session=3", "limits.max_groups_per_account=4")
        joe, ann = login(world, "joe/1"), login(world, "joe/2")
        assert join_all(joe, ["/a", "/b", "/c"])["successful"]
        assert join_all(joe, ["/a", "/b", "/c"])["successful"], "it is in them already"
        reply = join_all(joe, ["/c", "/d"])
        assert reply["error"] == "429:limits.max_groups_per_session:resource.exhaust"
        assert joe.session.subscriptions == {"/a", "/b", "/c"}
        assert join_all(ann, ["/a"])["successful"]
        assert join_all(ann, ["/d"])["error"] == "429:limits.max_groups_per_account:resource.exhaust"
        accounts = [world.broker.admission.limits.subjects.of("joe"), ann.session.account]
        assert [each.groups for each in accounts if each is not None] == [4, 4]
        assert joe.say("/meta/unsubscribe", subscription="/a")["successful"]
        assert join_all(ann, ["/d"])["successful"]
        joe.say("/meta/disconnect")
        assert [each.groups for each in accounts if each is not None] == [2, 2]

    def test_groups_are_bounded_while_the_store_has_not_answered(
        self, make_stored: MakeStored, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = make_stored("limits.max_groups_per_session=3", "limits.max_groups_per_account=4")
        joe, ann = login(world, "joe/1"), login(world, "joe/2")

        def ask(receiver: Receiver, *patterns: str, **asked: Any) -> Request:
            request, ext = Request(receiver.browser), {"subscribe": {"group": "workers", **asked}}
            World.receive(world, request, receiver.message("/meta/subscribe", subscription=[*patterns], ext=ext))
            return request

        def joined(*requests: Request) -> list[bool]:
            world.settle()
            return [request.answer[0]["successful"] for request in requests]

        account = world.broker.admission.limits.subjects.of("joe")
        requests = [ask(joe, f"/{number}/a", f"/{number}/b", f"/{number}/c") for number in range(3)]
        again = ask(joe, "/0/a")
        of_another_session = [ask(ann, "/0/a"), ask(ann, "/0/b")]
        assert joined(*requests, again, *of_another_session) == [True, False, False, True, True, False]
        assert account.groups == 4
        other, as_well = ask(joe, "/0/a", group="others", multiSubscribe=False), ask(joe, "/0/a", group="others")
        assert joined(other, as_well) == [True, False], "the group that is left counts until the store has answered"
        assert ("/0/a", "others") in world.broker.addressing.groups.of(joe.session)
        with monkeypatch.context() as patch:
            patch.setattr(world.access.writing, "submit", lambda _, done, **__: done(StoreUnavailable("it is away")))
            assert joined(ask(joe, "/0/a", group="third", multiSubscribe=False)) == [False]
        assert (world.broker.addressing.groups.count(joe.session), account.groups) == (3, 4)
        ask(joe, "/0/a", group="third", multiSubscribe=False)
        joe.say("/meta/disconnect")
        assert account.groups == 1

    def test_groups_count_as_subscriptions(self, make_stored: MakeStored) -> None:
        world = make_stored("limits.max_subscriptions_per_address=3")
        joe, ann = login(world, "joe/1"), login(world, "ann/1")
        assert join_all(joe, ["/a", "/b"])["successful"]
        assert join_all(ann, ["/a", "/b"])["error"] == "429:limits.max_subscriptions_per_address:resource.exhaust"
        assert ann.session.account is not None
        joe.say("/meta/disconnect")
        assert (world.broker.addressing.channels.subscriptions, ann.session.account.subscriptions) == (0, 0)
