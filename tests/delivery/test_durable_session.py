"""What is pending for one session: intervals of the log, what is open, and what the store gets of both."""

import pytest

from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import place_of
from crewel.delivery.records import (
    Change,
    Disposition,
    EndReason,
    LogId,
    PendingDeadLetter,
    PendingMessage,
    SessionName,
    SessionRecord,
    Transient,
)

JOE = SessionName("client/joe/1")
FAR = LogId(1000)
NOTHING: tuple[LogId, ...] = ()


def session(*open_ids: int, **subscriptions: int) -> DurableSession:
    """A session with these messages open, and subscriptions to `/a`, `/b` after these entries."""
    durable = DurableSession(JOE)
    for name, since in subscriptions.items():
        durable.subscribed(f"/{name}", LogId(since))
    for log_id in open_ids:
        durable.take(LogId(log_id), PendingMessage(0, 10))
    return durable


def adopted(**fields: object) -> DurableSession:
    return DurableSession.adopted(SessionRecord(JOE, {}, **fields))  # type: ignore[arg-type]


def letter(log_id: int, message: Transient | None = None) -> PendingDeadLetter:
    return PendingDeadLetter(JOE, LogId(log_id), "user.no", "no", 0, message)


def change(durable: DurableSession, cursor: int = FAR, committed: int = 0) -> Change:
    found = durable.take_change(LogId(cursor), LogId(committed))
    assert found is not None
    return found


def loaded(durable: DurableSession, count: int) -> list[LogId]:
    """The first so many of what is evicted, which is loaded."""
    return durable.load(durable.first_evicted(count))


def wanted(durable: DurableSession, *patterns: str, among: range = range(1, 10)) -> list[int]:
    return [each for each in among if durable.wants(patterns, LogId(each))]


class TestNames:
    @pytest.mark.parametrize(
        ("name", "is_named"), [(JOE, True), ("client/joe/-7", True), ("client/anonymous/-7", False)]
    )
    def test_only_a_session_of_nobody_is_not_named(self, name: str, *, is_named: bool) -> None:
        assert DurableSession(SessionName(name)).is_named is is_named


class TestIntervals:
    def test_a_subscription_holds_after_the_entry_it_began_at(self) -> None:
        assert wanted(session(a=3), "/a", "/*") == [4, 5, 6, 7, 8, 9]

    def test_what_matches_no_subscription_is_not_wanted(self) -> None:
        assert wanted(session(a=3), "/b", "/*") == []

    def test_the_subscription_that_began_first_decides(self) -> None:
        assert wanted(session(a=7, b=3), "/a", "/b") == [4, 5, 6, 7, 8, 9]

    def test_subscribing_again_changes_nothing(self) -> None:
        durable = session(a=3)
        durable.subscribed("/a", LogId(8))
        assert durable.since == {"/a": 3}

    def test_unsubscribing_ends_the_interval_and_not_what_lies_in_it(self) -> None:
        durable = session(a=3)
        durable.unsubscribed("/a", LogId(3), LogId(6))
        assert wanted(durable, "/a") == [4, 5, 6]
        assert wanted(durable, "/b") == []

    def test_an_interval_can_follow_another(self) -> None:
        durable = session(a=2)
        durable.unsubscribed("/a", LogId(2), LogId(4))
        durable.subscribed("/a", LogId(7))
        assert wanted(durable, "/a") == [3, 4, 8, 9]

    def test_an_empty_interval_is_not_kept_for_another_may_begin_at_the_same_place(self) -> None:
        durable = session(a=3)
        durable.unsubscribed("/a", LogId(3), LogId(3))
        durable.subscribed("/a", LogId(3))
        durable.unsubscribed("/a", LogId(3), LogId(6))
        assert durable.closing == (("/a", 3, 6),)
        assert durable.take_change(FAR, LogId(3)) is None

    def test_an_interval_is_kept_once_though_the_store_tells_it_twice(self) -> None:
        durable = session(a=3)
        for _ in range(2):
            durable.unsubscribed("/a", LogId(3), LogId(6))
        assert durable.closing == (("/a", 3, 6),)

    def test_unsubscribing_what_was_never_confirmed_is_no_error(self) -> None:
        durable = session()
        durable.unsubscribed("/a", LogId(2), LogId(4))
        assert wanted(durable, "/a") == [3, 4]

    def test_a_session_that_ends_wants_nothing_beyond_its_end(self) -> None:
        durable = session(a=3)
        durable.ending = LogId(5)
        assert wanted(durable, "/a") == [4, 5]

    def test_what_is_open_is_not_wanted_again(self) -> None:
        durable = session(4, 5, a=3)
        durable.spilled([LogId(4)])
        assert wanted(durable, "/a") == [6, 7, 8, 9]

    def test_an_adopted_session_wants_nothing_up_to_its_own_cursor(self) -> None:
        assert wanted(adopted(own_cursor=LogId(6), subscriptions={"/a": LogId(2)}), "/a") == [7, 8, 9]

    def test_what_it_settles_before_the_node_comes_to_it_is_not_wanted_again(self) -> None:
        durable = adopted(
            own_cursor=LogId(2),
            subscriptions={"/a": LogId(1)},
            pending={LogId(4): PendingMessage()},
            inbox={LogId(5): PendingMessage()},
        )
        durable.end_message(LogId(4))
        durable.end_message(LogId(5))
        assert wanted(durable, "/a") == [3, 6, 7, 8, 9]
        durable.take_change(LogId(3), LogId(2))
        assert wanted(durable, "/a", among=range(4, 10)) == [6, 7, 8, 9]


class TestMessages:
    def test_a_message_is_open_from_when_it_is_taken_until_it_ends(self) -> None:
        durable = session(4, 5)
        assert (len(durable), durable.size, durable.first_needed) == (2, 20, 4)
        assert durable.end_message(LogId(4))
        assert (len(durable), durable.size, durable.first_needed) == (1, 10, 5)
        assert durable.end_message(LogId(5))
        assert (len(durable), durable.size, durable.first_needed) == (0, 0, None)

    def test_a_message_ends_once(self) -> None:
        durable = session(4)
        assert durable.end_message(LogId(4))
        assert not durable.end_message(LogId(4))
        assert durable.take_ended() == ([Disposition(JOE, EndReason.SETTLED, (LogId(4),))], [])

    def test_those_that_are_open_are_settled_together(self) -> None:
        durable = session(4, 5, 6)
        durable.spilled([LogId(5)])
        durable.settle_all([LogId(4), LogId(5), LogId(7)])
        assert ([*durable.pending], [*durable.inbox], durable.size) == ([6], [], 10)
        assert durable.take_ended() == ([Disposition(JOE, EndReason.SETTLED, (LogId(4), LogId(5)))], [])
        durable.settle_all([LogId(4)])
        assert not durable.has_uncommitted_ends

    def test_what_is_found_late_lies_in_the_order_of_the_log(self) -> None:
        durable = session(4, 7, 5)
        assert [*durable.pending] == [4, 5, 7]

    def test_the_log_is_not_needed_for_what_lies_in_the_inbox(self) -> None:
        durable = session(4, 5, 6)
        durable.spilled([LogId(5), LogId(4)])
        assert durable.first_needed == 6
        assert [*durable.inbox] == [4, 5]
        assert (len(durable), durable.size) == (3, 30)

    def test_what_lies_in_the_inbox_can_be_settled(self) -> None:
        durable = session(4)
        durable.spilled([LogId(4)])
        assert durable.end_message(LogId(4))
        assert (len(durable), durable.size) == (0, 0)

    def test_what_settles_while_it_is_being_boxed_stays_settled(self) -> None:
        durable = session(4)
        change(durable)
        durable.end_message(LogId(4))
        durable.spilled([LogId(4)])
        assert len(durable) == 0
        assert change(durable).removed == (4,)

    def test_ends_are_told_by_their_reasons(self) -> None:
        durable = session(4, 5, 6)
        durable.end_message(LogId(4))
        durable.end_message(LogId(6), EndReason.DROPPED)
        durable.note(LogId(7), EndReason.FILTERED)
        durable.end_message(LogId(5))
        ended, letters = durable.take_ended()
        assert {each.reason: each.ids for each in ended} == {
            EndReason.SETTLED: (4, 5),
            EndReason.DROPPED: (6,),
            EndReason.FILTERED: (7,),
        }
        assert letters == []
        assert durable.take_ended() == ([], [])

    def test_a_buried_message_ends_as_dead_and_leaves_a_letter(self) -> None:
        durable = session(4)
        durable.dead_letter(letter(4))
        assert len(durable) == 0
        assert durable.take_ended() == ([Disposition(JOE, EndReason.DEAD, (LogId(4),))], [letter(4)])

    def test_a_message_can_be_buried_on_arrival(self) -> None:
        durable = session()
        durable.dead_letter(letter(4))
        assert durable.take_ended() == ([Disposition(JOE, EndReason.DEAD, (LogId(4),))], [letter(4)])

    def test_of_a_message_that_was_never_stored_there_is_only_the_letter(self) -> None:
        durable = session()
        dead = letter(0, Transient("1-0-a", "1000000", "/a", b"{}"))
        durable.dead_letter(dead)
        assert durable.take_ended(LogId(0)) == ([], [dead])


class TestReadingAgain:
    def test_dead_letters_that_only_memory_has_are_told_apart(self) -> None:
        durable, dead = session(4), letter(0, Transient("1-0-a", "1000000", "/a", b"{}"))
        durable.dead_letter(letter(4))
        durable.dead_letter(dead)
        assert durable.dead_letters is not None
        assert durable.dead_letters.unstored == [dead]


class TestParking:
    def test_the_oldest_come_first_and_each_once(self) -> None:
        durable = session(4, 5, 6)
        for log_id in (5, 6, 4):
            durable.evict(LogId(log_id))
        assert loaded(durable, 2) == [4, 5]
        assert loaded(durable, 2) == [6]
        assert loaded(durable, 2) == []

    def test_what_has_ended_meanwhile_is_left_out(self) -> None:
        durable = session(4, 5, 6)
        for log_id in (4, 5, 6):
            durable.evict(LogId(log_id))
        durable.end_message(LogId(4))
        durable.spilled([LogId(6)])
        assert loaded(durable, 2) == [5, 6]

    def test_asked_for_none_it_gives_none(self) -> None:
        durable = session(4)
        durable.evict(LogId(4))
        assert loaded(durable, 0) == []
        assert durable.evicted == [4]


class TestAdoption:
    def test_all_that_was_open_waits_oldest_first_and_counts_as_sent(self) -> None:
        durable = adopted(
            own_cursor=LogId(3),
            batch=2000,
            pending={LogId(9): PendingMessage(0, 5), LogId(6): PendingMessage(2, 5)},
            inbox={LogId(7): PendingMessage(1, 3)},
        )
        assert durable.pending == {6: PendingMessage(3, 5), 9: PendingMessage(1, 5)}
        assert [*durable.pending] == [6, 9]
        assert durable.inbox == {7: PendingMessage(2, 3)}
        assert durable.evicted == [6, 7, 9]
        assert (durable.size, durable.batch, durable.own_cursor, durable.first_needed) == (13, 2000, 3, 6)

    def test_the_end_and_closed_intervals_come_along(self) -> None:
        durable = adopted(ending=LogId(5), closed=[("/a", LogId(1), LogId(5))], subscriptions={"/b": LogId(2)})
        assert durable.ending == 5
        assert wanted(durable, "/a") == [2, 3, 4, 5]
        assert not durable.has_own_cursor

    def test_nothing_has_changed_by_itself(self) -> None:
        durable = adopted(pending={LogId(6): PendingMessage()}, inbox={LogId(7): PendingMessage()}, batch=1000)
        assert durable.take_change(FAR, LogId(0)) is None


class TestCommits:
    def test_the_store_hears_once_what_is_open_and_once_what_is_open_no_more(self) -> None:
        durable = session(4, 5)
        assert change(durable).opened == {4: PendingMessage(0, 10), 5: PendingMessage(0, 10)}
        assert durable.take_change(FAR, LogId(0)) is None
        durable.end_message(LogId(4))
        assert change(durable) == Change(JOE, {}, (LogId(4),), NOTHING, (), caught_up=False)
        assert durable.take_change(FAR, LogId(0)) is None

    def test_what_was_taken_and_settled_between_two_commits_costs_nothing(self) -> None:
        durable = session(4)
        durable.end_message(LogId(4))
        assert durable.take_change(FAR, LogId(0)) is None

    def test_what_moved_to_the_inbox_is_no_news(self) -> None:
        durable = session(4)
        change(durable)
        durable.spilled([LogId(4)])
        assert durable.take_change(FAR, LogId(0)) is None
        durable.end_message(LogId(4))
        assert change(durable) == Change(JOE, {}, NOTHING, (LogId(4),), (), caught_up=False)

    def test_an_interval_is_forgotten_when_the_cursor_in_the_store_has_passed_it(self) -> None:
        durable = session()
        durable.unsubscribed("/a", LogId(1), LogId(4))
        durable.unsubscribed("/b", LogId(1), LogId(6))
        assert durable.take_change(LogId(9), LogId(3)) is None
        assert change(durable, cursor=9, committed=4).forgotten == (("/a", 1),)
        assert durable.closing == (("/b", 1, 6),)

    def test_its_own_cursor_is_forgotten_when_the_node_has_reached_it(self) -> None:
        durable = adopted(own_cursor=LogId(5))
        assert durable.take_change(LogId(4), LogId(0)) is None
        assert durable.has_own_cursor
        assert change(durable, cursor=5).caught_up
        assert not durable.has_own_cursor
        assert durable.take_change(LogId(6), LogId(5)) is None

    def test_batch_numbers_are_reserved_once(self) -> None:
        durable = session()
        durable.reserved(1000)
        assert durable.take_change(FAR, LogId(0)) is None
        durable.batch = 2000
        assert change(durable).batch == 2000
        assert durable.take_change(FAR, LogId(0)) is None

    def test_no_end_beyond_the_cursor_is_told_for_a_successor_would_find_the_message_again(self) -> None:
        durable = session(4, 5, 6)
        change(durable, cursor=3)
        durable.spilled([LogId(6)])
        for log_id in (4, 5, 6):
            durable.end_message(LogId(log_id))
        assert change(durable, cursor=4).settled == (4,)
        assert durable.take_ended(durable.last_reportable(LogId(4))) == (
            [Disposition(JOE, EndReason.SETTLED, (LogId(4),))],
            [],
        )
        assert durable.has_uncommitted_ends
        assert change(durable, cursor=6) == Change(JOE, {}, (LogId(5),), (LogId(6),), (), caught_up=False)
        assert durable.take_ended(LogId(6)) == ([Disposition(JOE, EndReason.SETTLED, (LogId(5), LogId(6)))], [])
        assert not durable.has_uncommitted_ends

    def test_letters_wait_with_their_ends(self) -> None:
        durable = session(4, 5, 6)
        for log_id in (4, 5):
            durable.dead_letter(letter(log_id))
        durable.end_message(LogId(6))
        assert durable.take_ended(LogId(4)) == ([Disposition(JOE, EndReason.DEAD, (LogId(4),))], [letter(4)])
        assert durable.take_ended(LogId(4)) == ([], [])
        ended, letters = durable.take_ended()
        assert {each.reason: each.ids for each in ended} == {EndReason.DEAD: (5,), EndReason.SETTLED: (6,)}
        assert letters == [letter(5)]

    def test_up_to_its_own_cursor_an_adopted_session_tells_ends_at_once(self) -> None:
        durable = adopted(own_cursor=LogId(6), pending={LogId(5): PendingMessage(), LogId(7): PendingMessage()})
        durable.end_message(LogId(5))
        durable.end_message(LogId(7))
        assert change(durable, cursor=2).settled == (5,)
        assert durable.last_reportable(LogId(2)) == 6


class TestArriving:
    """The store has put a message into the inbox: a redriven letter."""

    def test_a_message_is_open_from_its_arrival_on(self) -> None:
        durable = session(4, 5)
        assert durable.arrived(LogId(7), PendingMessage(0, 30))
        assert durable.inbox == {7: PendingMessage(0, 30)}
        assert (len(durable), durable.size, durable.first_needed) == (3, 50, 4)
        assert durable.end_message(LogId(7))
        assert durable.size == 20

    def test_a_second_time_it_is_known(self) -> None:
        durable = session()
        durable.arrived(LogId(7), PendingMessage(0, 30))
        assert not durable.arrived(LogId(7), PendingMessage(0, 30))
        assert (len(durable), durable.size) == (1, 30)

    def test_an_ended_message_does_not_come_back_before_the_store_knows_its_end(self) -> None:
        durable = session()
        durable.arrived(LogId(7), PendingMessage(0, 30))
        durable.end_message(LogId(7))
        assert not durable.arrived(LogId(7), PendingMessage(0, 30))
        assert len(durable) == 0

    def test_arriving_messages_lie_in_the_order_of_their_ids(self) -> None:
        durable = session()
        for log_id in (9, 7, 8):
            durable.arrived(LogId(log_id), PendingMessage())
        assert list(durable.inbox) == [7, 8, 9]

    def test_the_store_need_not_be_told_of_it_but_of_its_end(self) -> None:
        durable = session()
        durable.arrived(LogId(7), PendingMessage())
        assert durable.take_change(FAR, LogId(0)) is None
        durable.end_message(LogId(7))
        assert change(durable).removed == (7,)

    def test_the_log_does_not_bring_it_once_more(self) -> None:
        durable = session(a=1)
        durable.arrived(LogId(7), PendingMessage())
        assert wanted(durable, "/a") == [2, 3, 4, 5, 6, 8, 9]


class TestArrivingByTheLogToo:
    """What comes by a subscription and from a group is one message: it ends once, and with it all of its bytes."""

    X = LogId(4)

    @pytest.fixture
    def durable(self) -> DurableSession:
        durable = session(4, 5, a=3)
        assert durable.arrived(self.X, PendingMessage(0, 12, source="group:/a g"))
        return durable

    def test_the_message_ends_once(self, durable: DurableSession) -> None:
        assert durable.end_message(self.X)
        assert not durable.end_message(self.X)
        self.assert_has_ended(durable)

    def test_the_message_is_acknowledged_once(self, durable: DurableSession) -> None:
        durable.settle_all([self.X])
        self.assert_has_ended(durable)

    def test_the_message_is_delivered_once(self, durable: DurableSession) -> None:
        assert durable.in_order() == [4, 5]

    def test_the_message_counts_once(self, durable: DurableSession) -> None:
        assert (len(durable), durable.size) == (2, 20)

    def test_the_message_counts_once_if_the_log_was_first(self) -> None:
        durable = session(4, 5, a=3)
        assert list(durable.pending) == [4, 5]
        assert durable.arrived(self.X, PendingMessage(0, 12, source="group:/a g"))
        assert (len(durable), durable.size) == (2, 20)
        assert durable.end_message(self.X)
        self.assert_has_ended(durable)

    def test_the_message_that_goes_back_to_the_group_still_counts(self, durable: DurableSession) -> None:
        durable.requeue(self.X)
        assert (len(durable), durable.size) == (2, 20)
        durable.settle_all([self.X])
        self.assert_has_ended(durable)

    def test_what_is_spilled_is_one_message_too(self, durable: DurableSession) -> None:
        durable.spilled([self.X])
        assert (len(durable), durable.size) == (2, 20)
        durable.settle_all([self.X])
        self.assert_has_ended(durable)

    def test_one_that_is_adopted_ends_once(self) -> None:
        inbox = {self.X: PendingMessage(0, 12, source="group:/a g")}
        pending = {each: PendingMessage(0, 10) for each in (self.X, LogId(5))}
        durable = adopted(subscriptions={"/a": LogId(3)}, pending=pending, inbox=inbox)
        assert (len(durable), durable.size) == (2, 20)
        assert durable.end_message(self.X)
        self.assert_has_ended(durable)

    @staticmethod
    def assert_has_ended(durable: DurableSession) -> None:
        assert (list(durable.pending), list(durable.inbox), len(durable), durable.size) == ([5], [], 1, 10)
        ended, _ = durable.take_ended()
        assert ended == [Disposition(JOE, EndReason.SETTLED, (LogId(4),))]


class TestAttempts:
    def test_what_was_sent_here_is_added_to_what_was_sent_before(self) -> None:
        durable = adopted(pending={LogId(4): PendingMessage(1, 10)}, inbox={LogId(5): PendingMessage(0, 10)})
        for log_id in (4, 5, 6):
            durable.attempted(LogId(log_id), 2)
        assert (durable.pending, durable.inbox) == ({4: PendingMessage(4, 10)}, {5: PendingMessage(3, 10)})
        assert durable.size == 20

    def test_failed_attempts_are_kept_for_its_end(self) -> None:
        durable = session(1, 2)
        assert durable.tries is None
        durable.attempted(LogId(1), 1)
        durable.attempted(LogId(1), 1, "[1]")
        durable.attempted(LogId(2), 1, "[2]")
        assert durable.tries == {1: "[1]", 2: "[2]"}


class TestDeath:
    def test_whose_receiver_failed_for_good_is_remembered_over_a_restart(self) -> None:
        assert DurableSession(JOE).death is None
        durable = adopted(ending=LogId(5), death=("user.security.authentication", "no"))
        assert (durable.death, durable.ending) == (("user.security.authentication", "no"), 5)

    def test_a_message_that_was_never_stored_becomes_a_letter_and_no_place_in_the_log_ends(self) -> None:
        durable = session(4)
        message = Transient("7-0-ab", "7000000", "/a", b"{}")
        durable.dead_letter(letter(0, message))
        assert durable.take_ended() == ([], [letter(0, message)])
        assert len(durable) == 1


def of_priorities(*priorities: int) -> DurableSession:
    """A session with a message of each of these priorities open, at 1, 2, …, all of them evicted."""
    durable = DurableSession(JOE)
    for place, priority in enumerate(priorities, 1):
        durable.take(LogId(place), PendingMessage(0, 10, "/a", priority))
        durable.evict(LogId(place))
    return durable


class TestGivingBack:
    def test_what_goes_back_is_gone_without_a_word_and_may_come_again(self) -> None:
        durable = session()
        durable.arrived(LogId(4), PendingMessage(0, 10, "/a", 9, source="client/joe"))
        durable.evict(LogId(4))
        durable.requeue(LogId(4))
        assert (durable.inbox, durable.evicted, durable.size) == ({}, [], 0)
        assert durable.take_change(FAR, LogId(0)) is None
        assert durable.take_ended() == ([], [])
        assert durable.arrived(LogId(4), PendingMessage(1, 10, "/a", 9, source="client/joe"))
        durable.evict(LogId(4))
        assert loaded(durable, 9) == [4]

    def test_what_is_not_here_does_not_go_back(self) -> None:
        durable = session(4)
        durable.requeue(LogId(5))
        assert (list(durable.pending), durable.size) == ([4], 10)


class TestPriorities:
    def test_what_is_evicted_comes_by_priority_and_then_by_age(self) -> None:
        durable = of_priorities(5, 9, 0, 9, 5)
        assert durable.in_order() == [2, 4, 1, 5, 3]
        assert loaded(durable, 3) == [2, 4, 1]
        durable.evict(LogId(4))
        assert loaded(durable, 9) == [4, 5, 3]

    def test_what_comes_back_is_evicted_by_the_priority_that_the_store_knows(self) -> None:
        record = {LogId(1): PendingMessage(0, 1, "/a", 1), LogId(2): PendingMessage(0, 1, "/a", 5)}
        assert loaded(adopted(pending=record, inbox={LogId(3): PendingMessage(0, 1, "/a", 9)}), 9) == [3, 2, 1]

    def test_something_goes_before_a_message_that_arrives_if_it_has_its_priority_or_a_higher_one(self) -> None:
        durable = of_priorities(5)
        assert [durable.has_evicted_before(LogId(7), priority) for priority in (4, 5, 6)] == [True, True, False]
        assert not session().has_evicted_before(LogId(7), 0)

    def test_of_what_was_read_those_go_on_that_come_before_what_was_evicted_meanwhile(self) -> None:
        durable = of_priorities(9, 9, 5, 5)
        ids = durable.first_evicted(4)
        assert ids == [1, 2, 3, 4]
        durable.take(LogId(5), PendingMessage(0, 10, "/a", 7))
        durable.evict(LogId(5))
        durable.end_message(LogId(2))
        assert durable.load(ids) == [1]
        assert durable.first_evicted(2) == [5, 3]

    def test_one_that_is_evicted_can_be_told_and_forgotten(self) -> None:
        durable = of_priorities(9, 5)
        loaded(durable, 1)
        assert [durable.is_evicted(LogId(each)) for each in (1, 2, 3)] == [False, True, False]
        durable.forget_evicted(LogId(1))
        durable.forget_evicted(LogId(2))
        assert durable.evicted == []

    @pytest.mark.parametrize(
        ("priorities", "least"), [((), None), ((5, 5), 1), ((9, 5, 5), 2), ((5, 1, 5, 1), 2), ((9, 9), 1)]
    )
    def test_the_oldest_of_the_lowest_priority_gives_way_first(
        self, priorities: tuple[int, ...], least: int | None
    ) -> None:
        found = of_priorities(*priorities).lowest_evicted()
        assert (None if found is None else place_of(found)) == least

    def test_the_bytes_of_what_may_give_way_are_known(self) -> None:
        durable = of_priorities(9, 5, 1, 1)
        durable.end_message(LogId(4))  # its rank is still there
        sizes = [durable.size_of(LogId(each)) for each in (1, 2, 3, 4)]
        assert sizes[:3] == [each.size for each in durable.pending.values()]
        assert [[*durable.evicted_sizes(priority)] for priority in (9, 5, 0)] == [sizes, sizes[1:], []]


class TestExpiry:
    def test_nothing_expires_that_is_not_to_be_destroyed(self) -> None:
        durable = session(1, 2)
        assert (durable.expiry, durable.expired(10**9)) == (0, [])

    def test_what_has_to_go_out_is_told_from_its_moment_on(self) -> None:
        durable = session(1)
        durable.take(LogId(2), PendingMessage(0, 10, "/a", 5, 30))
        durable.take(LogId(3), PendingMessage(0, 10, "/a", 5, 20))
        durable.arrived(LogId(4), PendingMessage(0, 10, "/a", 5, 10))
        durable.arrived(LogId(5), PendingMessage(0, 10))
        assert durable.expiry == 10
        assert [durable.expired(now) for now in (9, 10, 20, 99)] == [[], [4], [3, 4], [2, 3, 4]]

    def test_the_time_of_the_next_expiry_is_known(self) -> None:
        durable = session()
        durable.take(LogId(2), PendingMessage(0, 10, "/a", 5, 20))
        durable.take(LogId(3), PendingMessage(0, 10, "/a", 5, 30))
        durable.end_message(LogId(2))
        assert (durable.expired(25), durable.expiry) == ([], 30)
        durable.end_message(LogId(3), EndReason.EXPIRED)
        assert (durable.expired(35), durable.expiry) == ([], 0)

    def test_what_has_gone_is_neither_open_nor_evicted(self) -> None:
        durable = of_priorities(5, 9, 5)
        durable.arrived(LogId(4), PendingMessage(0, 10))
        durable.evict(LogId(4))
        durable.expire([LogId(2), LogId(4), LogId(7)])
        assert (durable.in_order(), durable.evicted, durable.size) == ([1, 3], [1, 3], 20)
        assert durable.take_ended() == ([Disposition(JOE, EndReason.EXPIRED, (LogId(2), LogId(4)))], [])

    def test_the_next_expiry_of_a_session_that_comes_back_is_known(self) -> None:
        record = {LogId(1): PendingMessage(0, 1, "/a", 5, 30), LogId(2): PendingMessage()}
        assert adopted(pending=record, inbox={LogId(3): PendingMessage(0, 1, "/a", 5, 20)}).expiry == 20


def test_of_what_the_log_says_of_its_inbox_it_may_lack_only_what_came_after_it() -> None:
    """An older one that it has not, has ended, or was for another session of its name."""
    record = SessionRecord(SessionName("client/joe/1"), {}, own_cursor=LogId(5), inbox_until=LogId(9))
    durable = DurableSession.adopted(record)
    assert [durable.may_lack(LogId(each)) for each in (5, 6, 9, 10)] == [False, False, False, True]
    later = DurableSession.adopted(SessionRecord(SessionName("client/joe/1"), {}, own_cursor=LogId(5)))
    assert [later.may_lack(LogId(each)) for each in (5, 6)] == [False, True]
