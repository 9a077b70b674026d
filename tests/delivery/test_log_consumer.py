"""One node's place in the log: what it takes for whom, and what its commits say."""

from collections.abc import Iterable

from crewel.delivery.durable_session import DurableSession
from crewel.delivery.fan_out_buffer import SubscriberSet
from crewel.delivery.log_consumer import LogConsumer
from crewel.delivery.records import (
    Change,
    Commit,
    Disposition,
    EndReason,
    LogId,
    PendingDeadLetter,
    PendingMessage,
    SessionName,
    SessionRecord,
    Transient,
)
from crewel.delivery.subscription_request import SubscriptionRequest

A = ("/a", "/*")
"""The patterns of channel /a."""
B = ("/b", "/*")


class Served:
    """A node at 10 with some sessions, and a store that answers at once."""

    def __init__(self, *durables: DurableSession, cursor: int = 10) -> None:
        self.node = LogConsumer(LogId(cursor))
        self.durables = durables
        for durable in durables:
            self.node.add(durable)
        self.commit()

    def take(self, log_id: int, patterns: tuple[str, ...] = A) -> list[str]:
        """The names of who gets the next entry."""
        hearing = [each for each in self.durables if not each.since.keys().isdisjoint(patterns)]
        return [each.name for each in self.node.take(LogId(log_id), patterns, PendingMessage(0, 5), hearing)]

    def commit(self) -> Commit | None:
        commit = self.node.commit()
        while commit is None and self.node.is_divided:
            commit = self.node.commit()
        if commit is not None:
            self.node.committed(commit)
        return commit

    def committed(self) -> Commit:
        commit = self.commit()
        assert commit is not None
        return commit

    def change(self) -> Change:
        """What the next commit says about the only session in it."""
        (change,) = self.committed().changes
        return change

    def settle(self, durable: DurableSession, log_id: int) -> None:
        assert durable.end_message(LogId(log_id))
        self.node.mark_dirty(durable)


def session(name: str = "client/joe/1", **subscriptions: int) -> DurableSession:
    durable = DurableSession(SessionName(name))
    for pattern, since in subscriptions.items():
        durable.subscribed(f"/{pattern}", LogId(since))
    return durable


def adopted(at: int, open_ids: Iterable[int] = (), **subscriptions: int) -> DurableSession:
    record = SessionRecord(SessionName("client/joe/1"), {}, LogId(at))
    record.subscriptions = {f"/{pattern}": LogId(since) for pattern, since in subscriptions.items()}
    record.pending = {LogId(each): PendingMessage() for each in open_ids}
    return DurableSession.adopted(record)


def held(
    pending: SubscriptionRequest, *, since: int, until: int | None = None
) -> dict[str, tuple[LogId, LogId | None]]:
    """The store's answer about all patterns that were asked for."""
    return {each: (LogId(since), None if until is None else LogId(until)) for each in pending.patterns}


class TestTaking:
    def test_an_entry_goes_to_each_session_that_is_owed_it(self) -> None:
        served = Served(session("client/joe/1", a=10), session("client/joe/2", b=10), session("client/joe/3", a=11))
        assert served.take(11) == ["client/joe/1"]
        assert served.take(12) == ["client/joe/1", "client/joe/3"]
        assert served.node.cursor == 12

    def test_an_entry_is_taken_once(self) -> None:
        served = Served(session(a=3))
        assert served.take(10) == []
        assert served.take(12) == ["client/joe/1"]
        assert served.take(11) == []
        assert served.node.cursor == 12

    def test_an_id_at_which_nothing_lies_is_passed(self) -> None:
        served = Served(session(a=3))
        served.node.skip(LogId(12))
        assert served.take(11) == []
        assert served.take(13) == ["client/joe/1"]
        served.node.skip(LogId(12))
        assert served.node.cursor == 13

    def test_a_session_that_is_gone_gets_nothing(self) -> None:
        durable = session(a=10)
        served = Served(durable)
        served.node.unsubscribing(durable, ["/a"])
        served.node.drop(durable)
        served.durables = ()
        assert served.take(11) == []
        assert durable.is_fenced
        assert served.node.sessions == {}

    def test_dropping_an_older_session_leaves_one_of_the_same_name(self) -> None:
        older, newer = session(), session()
        served = Served(older, newer)
        served.node.drop(older)
        assert served.node.sessions == {newer.name: newer}


class TestSubscribing:
    def test_what_was_taken_while_the_answer_was_on_its_way_is_owed(self) -> None:
        durable = session()
        served = Served(durable)
        pending = served.node.subscribing(durable, ["/a"])
        assert [served.take(11), served.take(12, B), served.take(13), served.take(14)] == [[], [], [], []]
        assert served.node.answered(pending, held(pending, since=11)) == [13, 14]
        assert [*durable.pending] == [13, 14]
        assert served.take(15) == ["client/joe/1"]

    def test_what_the_store_refuses_begins_nothing(self) -> None:
        durable = session()
        served = Served(durable)
        pending = served.node.subscribing(durable, ["/a"])
        served.take(11)
        assert served.node.answered(pending, {}) == []
        assert served.take(12) == []

    def test_what_another_subscription_has_found_is_not_given_again(self) -> None:
        durable = session(a=10)
        served = Served(durable)
        pending = served.node.subscribing(durable, ["/*"])
        assert served.take(11) == ["client/joe/1"]
        served.settle(durable, 11)
        assert served.node.answered(pending, held(pending, since=10)) == []

    def test_what_one_pending_subscription_has_found_is_not_given_again_by_another(self) -> None:
        durable = session()
        served = Served(durable)
        first, second = (served.node.subscribing(durable, [pattern]) for pattern in ("/a", "/*"))
        served.take(11)
        served.take(12, B)
        assert served.node.answered(first, held(first, since=10)) == [11]
        served.settle(durable, 11)
        assert served.node.answered(second, held(second, since=10)) == [12]

    def test_unsubscribing_waits_for_the_store_to_say_where_it_ends(self) -> None:
        durable = session(a=10)
        served = Served(durable)
        pending = served.node.unsubscribing(durable, ["/a", "/b"])
        assert [served.take(11), served.take(12)] == [[], []]
        assert served.node.answered(pending, {"/a": (LogId(10), LogId(11))}) == [11]

    def test_what_lies_before_the_end_of_a_subscription_is_taken_later(self) -> None:
        durable = session(a=10)
        served = Served(durable)
        pending = served.node.unsubscribing(durable, ["/a"])
        assert served.node.answered(pending, held(pending, since=10, until=11)) == []
        assert served.take(11) == ["client/joe/1"]
        assert served.take(12) == []

    def test_an_unsubscribe_that_is_refused_leaves_all_as_it_was(self) -> None:
        durable = session(a=10)
        served = Served(durable)
        pending = served.node.unsubscribing(durable, ["/a"])
        served.take(11)
        assert served.node.unanswered(pending) == [11]
        assert served.take(12) == ["client/joe/1"]

    def test_an_unsubscribe_decides_about_a_subscribe_that_is_answered_after_it_began(self) -> None:
        durable = session()
        served = Served(durable)
        subscribe = served.node.subscribing(durable, ["/a"])
        served.take(11)
        assert served.node.patterns(durable) == ["/a"]
        unsubscribe = served.node.unsubscribing(durable, served.node.patterns(durable))
        served.take(12)
        assert served.node.answered(subscribe, held(subscribe, since=10)) == []
        assert served.take(13) == []
        assert served.commit() is None
        assert served.node.answered(unsubscribe, held(unsubscribe, since=10, until=12)) == [11, 12]
        assert served.node.patterns(durable) == []

    def test_of_two_unsubscribes_the_one_about_the_pattern_decides(self) -> None:
        durable = session(b=10)
        served = Served(durable)
        subscribe = served.node.subscribing(durable, ["/a"])
        served.node.unsubscribing(durable, ["/b"])
        served.node.answered(subscribe, held(subscribe, since=10))
        assert durable.since == {"/a": 10}

    def test_an_answer_for_a_session_that_is_gone_changes_nothing(self) -> None:
        durable = session(a=10)
        served = Served(durable)
        pending = served.node.unsubscribing(durable, ["/a"])
        served.take(11)
        served.node.drop(durable)
        assert served.committed().cursor == 11
        assert served.node.answered(pending, held(pending, since=10, until=11)) == []
        assert durable.closing == ()


class TestCommitting:
    def test_there_is_nothing_to_say_when_nothing_happened(self) -> None:
        assert Served(session(a=10)).commit() is None

    def test_a_commit_has_the_cursor_and_what_is_open(self) -> None:
        durable = session(a=10)
        served = Served(durable)
        served.take(11)
        served.take(12, B)
        change = Change(durable.name, {LogId(11): PendingMessage(0, 5)}, (), (), (), caught_up=False)
        assert served.committed() == Commit(1, LogId(12), LogId(10), (change,), (), ())

    def test_commits_are_numbered_without_gaps(self) -> None:
        served = Served()
        numbers = []
        for log_id in (11, 12, 13):
            served.take(log_id)
            numbers.append(served.committed().number)
        assert numbers == [1, 2, 3]

    def test_nothing_below_the_oldest_open_message_is_needed(self) -> None:
        durable = session(a=10)
        served = Served(durable)
        for log_id in (11, 12, 13):
            served.take(log_id)
        served.settle(durable, 11)
        assert served.committed().low == 11
        served.node.spilled(durable, [LogId(12)])
        assert served.committed().low == 12
        served.settle(durable, 13)
        assert served.committed().low == 13

    def test_how_messages_ended_is_told_once(self) -> None:
        durable = session(a=10)
        served = Served(durable)
        served.take(11)
        served.settle(durable, 11)
        assert served.committed().ended == (Disposition(durable.name, EndReason.SETTLED, (LogId(11),)),)
        assert served.commit() is None

    def test_no_commit_passes_a_subscribe_that_is_not_answered(self) -> None:
        durable = session()
        served = Served(durable)
        pending = served.node.subscribing(durable, ["/a"])
        served.take(11)
        assert served.commit() is None
        served.node.answered(pending, held(pending, since=10))
        commit = served.committed()
        assert (commit.cursor, commit.low) == (11, 10)

    def test_what_ends_beyond_the_cursor_is_told_when_the_cursor_is_there(self) -> None:
        durable, other = session(a=10), session("client/joe/2")
        served = Served(durable, other)
        pending = served.node.subscribing(other, ["/b"])
        served.take(11)
        served.settle(durable, 11)
        assert served.commit() is None
        served.node.answered(pending, {})
        assert served.committed().ended == (Disposition(durable.name, EndReason.SETTLED, (LogId(11),)),)

    def test_what_is_dropped_is_not_committed(self) -> None:
        durable = session(a=10)
        served = Served(durable)
        served.take(11)
        served.node.drop(durable)
        served.node.mark_dirty(durable)
        assert served.committed().changes == ()

    def test_a_closed_interval_is_forgotten_one_commit_after_the_cursor_passed_it(self) -> None:
        durable = session(a=10)
        served = Served(durable)
        pending = served.node.unsubscribing(durable, ["/a"])
        served.take(11)
        served.node.answered(pending, held(pending, since=10, until=11))
        assert served.change().forgotten == ()
        assert served.change().forgotten == (("/a", 10),)
        assert served.commit() is None


class TestAdopting:
    def test_a_node_starts_where_the_first_of_its_sessions_stopped(self) -> None:
        records = [SessionRecord(SessionName(str(at)), {}, at) for at in (LogId(7), None, LogId(5))]
        assert LogConsumer.starting_cursor(records, LogId(9)) == 5
        assert LogConsumer.starting_cursor([], LogId(9)) == 9

    def test_a_node_that_begins_further_back_takes_what_its_sessions_miss(self) -> None:
        behind, node = adopted(5, a=3), LogConsumer(LogId(9))
        node.add(behind)
        node.begin_at(LogId(5))
        assert node.take(LogId(6), A, PendingMessage(0, 5), [behind]) == [behind]
        assert node.commit() is None  # the store has 9 as the cursor: it is never set back
        node.skip(LogId(9))
        commit = node.commit()
        assert commit is not None
        assert (commit.cursor, commit.low) == (9, 5)

    def test_a_node_whose_sessions_are_in_step_has_nothing_to_say_of_them(self) -> None:
        record = SessionRecord(
            SessionName("client/joe/1"), {}, LogId(5), subscriptions={"/a": LogId(3)}, owner_cursor=LogId(5)
        )
        in_step, node = DurableSession.adopted(record), LogConsumer(LogId(9))
        node.add(in_step)
        node.begin_at(LogId(5), LogId(5))
        assert node.commit() is None
        assert node.take(LogId(5), A, PendingMessage(0, 5), [in_step]) == []
        assert node.take(LogId(6), A, PendingMessage(0, 5), [in_step]) == [in_step]
        commit = node.commit()
        assert commit is not None
        assert (commit.cursor, [each.caught_up for each in commit.changes]) == (6, [False])

    def test_each_session_goes_on_after_its_own_cursor(self) -> None:
        served = Served(adopted(12, [11], a=3))
        assert [served.take(log_id) for log_id in (11, 12, 13)] == [[], [], ["client/joe/1"]]

    def test_its_own_cursor_stays_until_the_node_has_reached_it(self) -> None:
        durable = adopted(12, a=3)
        served = Served(durable)
        served.take(11)
        assert served.committed() == Commit(1, LogId(11), LogId(11), (), (), ())
        served.take(12)
        assert served.change().caught_up
        assert served.commit() is None

    def test_what_lies_between_may_have_been_sent_already(self) -> None:
        durable = adopted(10, a=0)
        node = LogConsumer(LogId(12))
        node.add(durable)
        node.begin_at(LogId(10))
        for log_id in (11, 12, 13):
            node.take(LogId(log_id), A, PendingMessage(0, 5), [durable])
        assert [waiting.attempts for waiting in durable.pending.values()] == [1, 1, 0]

    def test_what_it_had_open_keeps_the_log(self) -> None:
        served = Served(adopted(12, [4], a=3))
        served.take(11)
        assert served.committed().low == 3

    def test_closed_intervals_of_it_are_passed_and_forgotten(self) -> None:
        record = SessionRecord(SessionName("client/joe/1"), {}, LogId(10), closed=[("/a", LogId(3), LogId(11))])
        served = Served(DurableSession.adopted(record))
        assert served.take(11) == ["client/joe/1"]
        served.commit()
        assert served.change().forgotten == (("/a", 3),)


class TestEnding:
    def test_a_session_ends_when_the_stored_cursor_has_passed_its_last_entry(self) -> None:
        durable = session(a=10)
        served = Served(durable)
        served.node.ending(durable, LogId(11))
        first = served.node.commit()
        assert first is not None
        assert served.node.committed(first) == []
        assert served.take(11) == ["client/joe/1"]
        second = served.node.commit()
        assert second is not None
        assert served.node.committed(second) == [durable]
        assert served.take(12) == []

    def test_its_messages_keep_the_log_until_the_store_has_ended_it(self) -> None:
        durable = session(a=10)
        served = Served(durable)
        served.take(11)
        assert served.committed().low == 10
        served.node.leave(durable)
        durable.end_message(LogId(11), EndReason.LAPSED)
        served.take(12)
        assert served.committed() == Commit(2, LogId(12), LogId(10), (), (), ())
        served.node.drop(durable)
        served.take(13)
        assert served.committed().low == 13

    def test_one_with_nothing_open_keeps_nothing(self) -> None:
        durable = session(a=10)
        served = Served(durable)
        served.node.leave(durable)
        served.take(11)
        assert served.committed().low == 11

    def test_one_that_was_ending_when_it_was_adopted_ends_here(self) -> None:
        record = SessionRecord(SessionName("client/joe/1"), {}, LogId(10), ending=LogId(9))
        durable = DurableSession.adopted(record)
        node = LogConsumer(LogId(10))
        node.add(durable)
        commit = node.commit()
        assert commit is not None
        assert node.committed(commit) == [durable]


class TestExpiry:
    def served(self) -> tuple[Served, DurableSession]:
        """A session with one message open that goes out of all queues at 50."""
        durable = session(a=10)
        served = Served(durable)
        served.node.take(LogId(11), A, PendingMessage(0, 5, "/a", 5, 50), [durable])
        return served, durable

    def test_a_session_is_named_from_the_moment_on_at_which_something_has_to_go(self) -> None:
        served, durable = self.served()
        assert [served.node.expiring(now) for now in (49, 50, 99)] == [[], [durable], [durable]]

    def test_until_it_has_looked(self) -> None:
        served, durable = self.served()
        served.settle(durable, 11)
        assert served.node.expiring(60) == [durable]
        durable.expired(60)
        assert served.node.expiring(60) == []
        assert served.node.expiring(60) == []

    def test_one_that_found_it_late_is_named_too(self) -> None:
        durable = session()
        served = Served(durable)
        pending = served.node.subscribing(durable, ["/a"])
        served.node.take(LogId(11), A, PendingMessage(0, 5, "/a", 5, 50), [])
        served.node.answered(pending, held(pending, since=10))
        assert served.node.expiring(60) == [durable]

    def test_one_that_was_taken_over_is_named(self) -> None:
        record = SessionRecord(SessionName("client/joe/1"), {}, LogId(10))
        record.pending = {LogId(4): PendingMessage(0, 5, "/a", 5, 50)}
        durable = DurableSession.adopted(record)
        assert Served(durable).node.expiring(60) == [durable]

    def test_one_that_is_gone_is_not(self) -> None:
        served, durable = self.served()
        served.node.drop(durable)
        served.node.mark_dirty(durable)
        assert served.node.expiring(60) == []


class TestDividedCommits:
    """A commit about many sessions is divided: the first parts record what is open, and the cursor moves with the last part."""

    def served(self, count: int = 5, most: int = 2) -> Served:
        served = Served(*(session(f"client/joe/{number}", a=3) for number in range(1, count + 1)))
        served.node.max_changes = most
        return served

    def opened(self, commit: Commit) -> list[str]:
        return [change.name for change in commit.changes if change.opened]

    def test_the_cursor_moves_with_the_last_part(self) -> None:
        served = self.served()
        served.take(11)
        commits = [served.committed()]
        while served.node.has_more:
            commits.append(served.committed())
        assert [len(self.opened(each)) for each in commits] == [2, 2, 1]
        assert [(each.cursor, each.low) for each in commits] == [(10, 10), (10, 10), (11, 10)]
        assert sorted(name for each in commits for name in self.opened(each)) == [each.name for each in served.durables]
        assert served.commit() is None

    def test_what_has_ended_is_told_when_the_cursor_moves(self) -> None:
        served = self.served()
        served.take(11)
        for durable in served.durables[:3]:
            served.settle(durable, 11)
        served.node.max_changes = 1
        commits = [served.committed() for _ in range(2)]
        assert [(each.cursor, len(each.ended), len(self.opened(each))) for each in commits] == [(10, 0, 1), (11, 3, 1)]

    def test_one_for_which_all_sessions_have_ended_something_is_not_divided(self) -> None:
        served = self.served()
        served.take(11)
        for durable in served.durables:
            served.settle(durable, 11)
        commit = served.committed()
        assert (commit.cursor, len(commit.ended)) == (11, 5)
        assert not served.node.has_more

    def test_sessions_of_which_there_is_nothing_to_tell_are_passed_over(self) -> None:
        served = self.served(7)
        served.take(11)
        served.commit()
        while served.node.has_more:
            served.commit()
        for durable in served.durables:
            served.node.mark_dirty(durable)
        commit = served.commit()
        assert commit is None or not commit.changes

    def test_the_cursor_moves_however_much_is_taken_meanwhile(self) -> None:
        served = self.served(6)
        commits = []
        for log_id in range(11, 23):
            served.take(log_id)
            commits.append(served.committed())
        assert max(each.cursor for each in commits) > 15

    def test_a_part_that_has_nothing_to_say_is_a_step_of_its_own(self) -> None:
        """One commit looked at 30 sessions with 1,000 dead letters each: 20 ms in one turn of the event loop."""
        served = self.served(5)
        served.take(11)
        while served.commit() is not None:
            pass
        for durable in served.durables:
            served.node.mark_dirty(durable)
        divided = []
        for _ in range(3):
            assert served.node.commit() is None
            divided.append(served.node.is_divided)
        assert divided == [True, True, False]

    def test_what_all_have_settled_alike_is_told_when_the_cursor_moves(self) -> None:
        served = self.served(6)
        subscriber_set = SubscriberSet({each: each.name for each in served.durables})
        record = served.node.take_for(subscriber_set, LogId(11), PendingMessage(0, 5))
        other = session("client/eve/1", b=3)
        served.node.add(other)
        for durable in served.durables[:1]:
            served.node.acknowledged(durable, LogId(11), record)
        commits = [served.committed()]
        while served.node.has_more:
            commits.append(served.committed())
        assert len(commits) > 1
        assert [len(each.settled) for each in commits] == [0] * (len(commits) - 1) + [1]
        assert commits[-1].settled[0].sessions == ("client/joe/1",)

    def test_an_adopted_session_keeps_what_it_needs_in_the_log(self) -> None:
        node = LogConsumer(LogId(10))
        node.max_changes = 1
        for number in range(1, 4):
            record = SessionRecord(SessionName(f"client/joe/{number}"), {}, LogId(10))
            record.pending = {LogId(number + 3): PendingMessage()}
            node.add(DurableSession.adopted(record))
        commit = node.commit()
        assert commit is not None
        assert node.has_more
        assert commit.low == 3

    def test_what_was_taken_for_many_can_be_booked_before(self) -> None:
        served = self.served(6)
        subscriber_set = SubscriberSet({each: each.name for each in served.durables})
        served.node.take_for(subscriber_set, LogId(11), PendingMessage(0, 5))
        for _ in served.node.apply_in_steps():
            pass
        commits = [served.committed()]
        while served.node.has_more:
            commits.append(served.committed())
        assert sorted(name for each in commits for name in self.opened(each)) == [each.name for each in served.durables]
        assert commits[-1].cursor == 11

    def test_a_session_that_is_ending_is_passed_although_nothing_else_is_told(self) -> None:
        served = self.served(4)
        served.take(11)
        while served.commit() is not None:
            pass
        for durable in served.durables:
            served.node.mark_dirty(durable)
        served.node.ending(served.durables[0], LogId(11))
        assert served.node.commit() is None
        assert served.node.is_divided, "a part has nothing to say"
        commit = served.node.commit()
        assert commit is not None
        assert served.node.committed(commit) == [served.durables[0]]


class TestWithheldLetters:
    """Many letters follow the cursor, a few with each commit, and until then their messages are open in the store."""

    def served(self, count: int = 3, most: int = 2) -> Served:
        served = Served(*(session(f"client/joe/{number}", a=3) for number in range(1, count + 1)))
        served.node.max_dead_letters = most
        return served

    def dead_letter(self, served: Served, durable: DurableSession, log_id: int) -> None:
        durable.dead_letter(PendingDeadLetter(durable.name, LogId(log_id), "resource.overflow.queue.entries", "full"))
        served.node.mark_dirty(durable)

    def dead_letters(self, *log_ids: int, most: int = 2) -> Served:
        """Each of these messages is a letter for each session."""
        served = self.served(most=most)
        for log_id in log_ids:
            served.take(log_id)
            for durable in served.durables:
                self.dead_letter(served, durable, log_id)
        return served

    def all(self, served: Served) -> list[Commit]:
        commits = [served.committed()]
        while served.node.has_more and (commit := served.commit()) is not None:
            commits.append(commit)
        assert served.commit() is None
        return commits

    def test_few_are_told_with_the_cursor(self) -> None:
        (commit,) = self.all(self.dead_letters(11, most=3))
        assert (commit.cursor, len(commit.dead_letters), commit.changes) == (11, 3, ())

    def test_a_commit_withholds_none_while_it_has_room_for_all(self) -> None:
        (commit,) = self.all(self.dead_letters(11, 12, most=6))
        assert (commit.cursor, len(commit.dead_letters), commit.changes) == (12, 6, ())

    def test_many_follow_and_no_commit_has_more_than_it_may(self) -> None:
        commits = self.all(self.dead_letters(11, 12))
        assert [len(each.dead_letters) for each in commits] == [0, 2, 2, 2]
        assert [each.cursor for each in commits] == [12] * 4
        assert [len(change.opened) for change in commits[0].changes] == [2, 2, 2]
        told = [(letter.session, letter.id) for each in commits for letter in each.dead_letters]
        assert sorted(told) == [(f"client/joe/{number}", log_id) for number in (1, 2, 3) for log_id in (11, 12)]

    def test_accounts_take_turns(self) -> None:
        served = self.served(4)
        for durable, payer in zip(served.durables, ("many", "many", "many", "few"), strict=True):
            durable.payers = (payer,)
        for log_id in (11, 12):
            served.take(log_id)
            for durable in served.durables:
                self.dead_letter(served, durable, log_id)
        commits = self.all(served)
        told = [{letter.session for letter in each.dead_letters} for each in commits[1:]]
        assert told[:2] == [{"client/joe/1"}, {"client/joe/4"}]
        assert sum(len(each.dead_letters) for each in commits) == 8

    def test_what_is_told_later_leaves_the_record_with_its_letter(self) -> None:
        commits = self.all(self.dead_letters(11, 12))
        assert len(commits) == 4
        for commit in commits[1:]:
            settled = [(change.name, log_id) for change in commit.changes for log_id in change.settled]
            assert settled == [(letter.session, letter.id) for letter in commit.dead_letters]
            ended = [(each.session, log_id) for each in commit.ended for log_id in each.ids]
            assert ended == settled
            assert {each.reason for each in commit.ended} == {EndReason.DEAD}

    def test_the_log_is_kept_until_the_last_is_told(self) -> None:
        commits = self.all(self.dead_letters(11, 12))
        assert [each.low for each in commits] == [10, 10, 10, 12]

    def test_messages_are_taken_and_told_in_between(self) -> None:
        served = self.dead_letters(11, 12)
        served.committed()
        served.take(13)
        commits = [served.committed() for _ in range(3)]
        assert [(each.cursor, len(each.dead_letters)) for each in commits] == [(12, 2), (13, 0), (13, 2)]
        opened = [
            change.name for each in commits for change in each.changes for log_id in change.opened if log_id == 13
        ]
        assert sorted(opened) == [each.name for each in served.durables]

    def test_newer_letters_wait_behind_them(self) -> None:
        served = self.dead_letters(11, 12)
        served.committed()
        served.take(13)
        self.dead_letter(served, served.durables[0], 13)
        told = [
            letter.id for each in self.all(served) for letter in each.dead_letters if letter.session == "client/joe/1"
        ]
        assert told == [11, 12, 13]

    def test_those_beyond_the_cursor_wait_for_it(self) -> None:
        served = self.served()
        other = session("client/eve/1")
        served.node.add(other)
        pending = served.node.subscribing(other, ["/b"])
        served.take(11)
        for durable in served.durables:
            self.dead_letter(served, durable, 11)
        commits = self.all(served)
        assert [(each.cursor, len(each.dead_letters)) for each in commits] == [(10, 0)]
        served.node.answered(pending, held(pending, since=10))
        assert [(each.cursor, len(each.dead_letters)) for each in self.all(served)] == [(11, 0), (11, 2), (11, 1)]

    def test_one_that_was_never_stored_is_withheld_too(self) -> None:
        served = self.served()
        (joe, *_) = served.durables
        for number in range(5):
            message = Transient(f"1-{number}-a", "1000000", "/a", b"{}")
            joe.dead_letter(
                PendingDeadLetter(joe.name, LogId(0), "resource.overflow.queue.entries", "full", 0, message)
            )
        served.node.mark_dirty(joe)
        assert [len(each.dead_letters) for each in self.all(served)] == [2, 2, 1]

    def test_long_bodies_make_smaller_portions(self) -> None:
        served = self.served(most=20)
        for log_id in (11, 12, 13):
            served.node.take(LogId(log_id), A, PendingMessage(0, 40_000), served.durables)
            for durable in served.durables:
                self.dead_letter(served, durable, log_id)
        assert [len(each.dead_letters) for each in self.all(served)] == [0] + [1] * 9

    def test_a_session_ends_with_the_last_of_its_letters(self) -> None:
        served = self.dead_letters(11, 12)
        (joe, *_) = served.durables
        served.node.ending(joe, LogId(12))
        passed = []
        while (commit := served.node.commit()) is not None:
            passed.append((len(commit.dead_letters), served.node.committed(commit)))
        assert passed[:2] == [(0, []), (2, [joe])]

    def test_one_that_leaves_before_takes_its_letters_with_it(self) -> None:
        served = self.dead_letters(11, 12)
        (joe, *_) = served.durables
        served.committed()
        served.node.leave(joe)
        ended, letters = joe.take_ended()
        assert [each.ids for each in ended] == [(11, 12)]
        assert [each.id for each in letters] == [11, 12]
        told = [letter.session for each in self.all(served) for letter in each.dead_letters]
        assert joe.name not in told
        assert served.node._leaving == {joe: 10}

    def test_one_that_goes_while_a_commit_is_divided_is_left_out(self) -> None:
        served = self.served(5)
        served.node.max_changes = 1
        served.take(11)
        served.committed()
        served.node.drop(served.durables[3])
        names = [change.name for each in self.all(served) for change in each.changes]
        assert served.durables[3].name not in names

    def test_a_spilled_message_is_not_opened_again_and_leaves_the_inbox(self) -> None:
        served = self.served()
        for log_id in (11, 12):
            served.take(log_id)
        served.committed()
        for log_id in (11, 12):
            for durable in served.durables:
                self.dead_letter(served, durable, log_id)
        for durable in served.durables:
            served.node.spilled(durable, [LogId(11), LogId(12)])
        commits = self.all(served)
        assert not any(change.opened or change.settled for each in commits for change in each.changes)
        assert [len(change.removed) for each in commits for change in each.changes] == [2, 2, 2]

    def test_a_commit_is_divided_by_what_it_opens(self) -> None:
        served = self.served()
        served.node.max_opened = 2
        for log_id in (11, 12):
            served.take(log_id)
        commits = self.all(served)
        assert [sum(len(change.opened) for change in each.changes) for each in commits] == [2, 2, 2]
        assert not served.node.is_divided
        assert [each.cursor for each in commits] == [10, 10, 12]
