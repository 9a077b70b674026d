"""What is taken for many sessions at once: applied when something reads it, and never differently from one by one."""

import pytest

from crewel.delivery.durable_session import DurableSession
from crewel.delivery.fan_out_buffer import SubscriberSet
from crewel.delivery.log_consumer import LogConsumer
from crewel.delivery.records import (
    Commit,
    Disposition,
    EndReason,
    LogId,
    PendingDeadLetter,
    PendingMessage,
    SessionName,
    SessionRecord,
    Settled,
)
from tests.delivery.store_model import ends_of
from tests.delivery.test_log_consumer import A, B, adopted, session


def served(*durables: DurableSession, cursor: int = 10) -> LogConsumer:
    """A node at 10 that has told the store of these."""
    node = LogConsumer(LogId(cursor))
    for durable in durables:
        node.add(durable)
    first = node.commit()
    if first is not None:
        node.committed(first)
    return node


def subscriber_set(node: LogConsumer, *durables: DurableSession) -> SubscriberSet[DurableSession]:
    assert all(node.receives_all(each, A) for each in durables)
    return SubscriberSet({each: each.name for each in durables})


def take(node: LogConsumer, subscriber_set: SubscriberSet[DurableSession], *ids: int) -> None:
    for each in ids:
        assert node.take_for(subscriber_set, LogId(each), PendingMessage(0, 5)) is not None


def acknowledge(node: LogConsumer, durable: DurableSession, *ids: int) -> None:
    noted = {record.id: record for record in node.fan_out.records}
    for each in map(LogId, ids):
        node.acknowledged(durable, each, noted.get(each))


def ended(node: LogConsumer) -> list[Disposition]:
    commit = node.commit()
    assert commit is not None
    assert commit.changes == ()
    node.committed(commit)
    return ends_of(commit)


class TestTaking:
    def test_what_is_taken_for_all_is_open_for_each(self) -> None:
        joe, ann = session(a=3), session("client/ann/1", a=5)
        node = served(joe, ann)
        take(node, subscriber_set(node, joe, ann), 11, 12)
        assert (list(joe.pending), list(ann.pending)) == ([11, 12], [11, 12])
        assert (len(joe), joe.size, joe.first_needed, node.cursor) == (2, 10, 11, 12)

    def test_others_do_not_have_it(self) -> None:
        joe, ann = session(a=3), session("client/ann/1", a=5)
        node = served(joe, ann)
        take(node, subscriber_set(node, joe), 11)
        take(node, subscriber_set(node, joe, ann), 12)
        assert (list(joe.pending), list(ann.pending)) == ([11, 12], [12])

    def test_one_that_looks_does_not_get_it_twice(self) -> None:
        joe = session(a=3)
        node = served(joe)
        all_of_them = subscriber_set(node, joe)
        for each in (11, 12, 13):
            take(node, all_of_them, each)
            assert joe.end_message(LogId(each))
        assert ended(node) == [Disposition(joe.name, EndReason.SETTLED, (LogId(11), LogId(12), LogId(13)))]

    def test_what_was_taken_before_is_not_taken(self) -> None:
        joe = session(a=3)
        node = served(joe)
        assert node.take_for(subscriber_set(node, joe), LogId(10), PendingMessage()) is None
        assert not joe.pending

    def test_nobody_has_to_hear_it(self) -> None:
        node = served()
        take(node, subscriber_set(node), 11)
        assert not node.fan_out.records
        commit = node.commit()
        assert commit is not None
        assert (commit.cursor, commit.low, commit.settled) == (11, 11, ())

    def test_what_lay_there_before_the_node_may_have_been_sent(self) -> None:
        joe = session(a=3)
        node = LogConsumer(LogId(11))
        node.add(joe)
        node.begin_at(LogId(10))
        take(node, subscriber_set(node, joe), 11, 12)
        assert [each.attempts for each in joe.pending.values()] == [1, 0]

    def test_a_session_that_comes_later_has_not_heard_it(self) -> None:
        joe, ann = session(a=3), session("client/ann/1", a=5)
        node = served(joe)
        take(node, subscriber_set(node, joe), 11)
        node.add(ann)
        take(node, subscriber_set(node, joe, ann), 12)
        assert list(ann.pending) == [12]

    def test_what_came_beside_the_log_may_be_newer(self) -> None:
        joe = session(a=3)
        node = served(joe)
        all_of_them = subscriber_set(node, joe)
        take(node, all_of_them, 11)
        joe.arrived(LogId(13), PendingMessage(0, 7))
        take(node, all_of_them, 12)
        assert (list(joe.pending), list(joe.inbox), joe.size) == ([11, 12], [13], 17)
        assert not joe.wants(A, LogId(13))
        assert joe.wants(A, LogId(14))

    def test_one_who_looks_seldom_books_before_it_is_too_much(self) -> None:
        joe = session(a=3)
        node = served(joe)
        node.max_pending = 50
        take(node, subscriber_set(node, joe), *range(11, 11 + 51))
        assert len(node.fan_out.records) == 1
        assert len(joe.applied) == 50
        assert len(joe) == 51


class TestTakingInSteps:
    def test_each_step_opens_it_for_some_and_the_last_moves_the_cursor(self) -> None:
        durables = [session(f"client/joe/{number}", a=3) for number in range(1, 6)]
        node = served(*durables)
        seen = []
        for taken in node.take_in_steps(LogId(11), A, PendingMessage(0, 5), durables, 2):
            seen.append((len(taken), node.cursor, sum(len(each) for each in durables)))
        assert seen == [(2, 10, 2), (2, 10, 4), (1, 10, 5), (0, 11, 5)]

    def test_what_is_settled_between_the_steps_is_not_opened_again(self) -> None:
        joe, ann = session(a=3, b=3), session("client/ann/1", a=3)
        node = served(joe, ann)
        node.answered(node.unsubscribing(joe, ["/b"]), {"/b": (LogId(3), LogId(20))})
        pending = node.subscribing(joe, ["/*"])
        for taken in node.take_in_steps(LogId(11), [*A, *B, "/*"], PendingMessage(0, 5), [joe, ann], 1):
            for durable in taken:
                assert durable.end_message(LogId(11))
        assert node.answered(pending, {"/*": (LogId(10), None)}) == []
        assert [len(joe), len(ann)] == [0, 0]

    def test_a_session_that_is_gone_by_then_is_left_out(self) -> None:
        joe, ann = session(a=3), session("client/ann/1", a=3)
        node = served(joe, ann)
        steps = node.take_in_steps(LogId(11), A, PendingMessage(0, 5), [joe, ann], 1)
        assert next(steps) == [joe]
        node.drop(ann)
        assert list(steps) == [[], []]
        assert len(ann) == 0

    def test_one_that_is_asking_meanwhile_gets_it_by_the_answer(self) -> None:
        joe, ann = session(a=3), session("client/ann/1")
        node = served(joe, ann)
        steps = node.take_in_steps(LogId(11), A, PendingMessage(0, 5), [joe], 1)
        next(steps)
        pending = node.subscribing(ann, ["/a"])
        list(steps)
        assert node.answered(pending, {"/a": (LogId(10), None)}) == [11]

    def test_what_was_taken_before_is_opened_for_none(self) -> None:
        joe = session(a=3)
        node = served(joe)
        assert list(node.take_in_steps(LogId(10), A, PendingMessage(0, 5), [joe], 1)) == []
        assert len(joe) == 0


class TestApplyInSteps:
    def test_no_step_books_more_than_it_may(self) -> None:
        durables = [session(f"client/joe/{number}", a=3) for number in range(1, 8)]
        node = served(*durables)
        take(node, subscriber_set(node, *durables), 11)
        node.max_applied = 4
        steps = node.apply_in_steps()
        applied = [sum(durable.applied_number == 1 for durable in durables) for _ in steps]
        assert applied == [2, 4, 6, 7]
        assert node.fan_out.records == []
        assert [each.is_dirty for each in durables] == [True] * 7

    def test_a_commit_between_the_steps_ends_them(self) -> None:
        joe, eve = session(a=3), session("client/eve/1", a=3)
        node = served(joe, eve)
        node.max_applied = 1
        take(node, subscriber_set(node, joe, eve), 11)
        steps = node.apply_in_steps()
        next(steps)
        commit = node.commit()
        assert commit is not None
        assert {change.name for change in commit.changes} == {joe.name, eve.name}
        node.committed(commit)
        take(node, subscriber_set(node, joe, eve), 12)
        assert list(steps) == []
        assert [record.id for record in node.fan_out.records] == [12]

    def test_what_others_have_settled_is_told_with_the_next_commit(self) -> None:
        joe, eve, ann = (session(f"client/joe/{number}", a=3) for number in (1, 2, 3))
        node = served(joe, eve, ann)
        take(node, subscriber_set(node, joe, eve, ann), 11)
        acknowledge(node, joe, 11)
        steps = node.apply_in_steps()
        next(steps)
        take(node, subscriber_set(node, joe, eve, ann), 12)
        assert eve.pending
        for _ in steps:
            pass
        acknowledge(node, joe, 12)
        commit = node.commit()
        assert commit is not None
        assert commit.settled == (Settled((LogId(11),), (joe.name,)), Settled((LogId(12),), (joe.name,)))
        assert {change.name: sorted(change.opened) for change in commit.changes} == {
            eve.name: [11, 12],
            ann.name: [11, 12],
        }

    def test_pending_deliveries_are_applied_once_for_two_that_ask(self) -> None:
        """Or the second would take what the first has applied for settled by all."""
        joe, eve = session(a=3), session("client/eve/1", a=3)
        node = served(joe, eve)
        node.max_applied = 1
        take(node, subscriber_set(node, joe, eve), 11)
        acknowledge(node, joe, 11)
        assert not joe.pending
        first = node.apply_in_steps()
        next(first)
        assert len(list(node.apply_in_steps())) == 1, "the rest"
        assert list(first) == []
        commit = node.commit()
        assert commit is not None
        assert commit.settled == ()
        assert ends_of(commit) == [Disposition(joe.name, EndReason.SETTLED, (LogId(11),))]
        node.committed(commit)
        take(node, subscriber_set(node, joe, eve), 12)
        assert len(list(node.apply_in_steps())) == 2, "and again when there is more"


class TestFitting:
    def test_a_fitting_batch_is_booked_only_if_in_doubt(self) -> None:
        joe = session(a=3)
        node = served(joe)
        take(node, subscriber_set(node, joe), 11, 12)
        assert joe.fits(10)
        assert not joe.applied
        acknowledge(node, joe, 11)
        assert not joe.fits(4)
        assert joe.fits(5)

    def test_a_session_without_a_node_knows_what_it_has(self) -> None:
        joe = session()
        joe.take(LogId(4), PendingMessage(0, 5))
        assert joe.fits(5)
        assert not joe.fits(4)


class TestAcknowledging:
    def test_what_was_taken_and_acknowledged_is_settled(self) -> None:
        joe, ann = session(a=3), session("client/ann/1", a=5)
        node = served(joe, ann)
        take(node, subscriber_set(node, joe, ann), 11, 12)
        for each in (joe, ann):
            acknowledge(node, each, 11, 12)
        assert ended(node) == [Disposition(each.name, EndReason.SETTLED, (LogId(11), LogId(12))) for each in (joe, ann)]
        assert (len(joe), joe.size, joe.first_needed) == (0, 0, None)

    @pytest.mark.parametrize("ids", [(12,), (11,), (12, 11), (11, 12, 13)])
    def test_nothing_else_is(self, ids: tuple[int, ...]) -> None:
        joe = session(a=3)
        node = served(joe)
        take(node, subscriber_set(node, joe), 11, 12)
        acknowledge(node, joe, *ids)
        assert list(joe.pending) == [each for each in (11, 12) if each not in ids]
        ((_, reason, settled),), _ = joe.take_ended()
        assert (reason, sorted(settled)) == (EndReason.SETTLED, sorted(each for each in ids if each < 13))

    def test_what_was_open_before_stays(self) -> None:
        joe = session(a=3)
        node = served(joe)
        all_of_them = subscriber_set(node, joe)
        take(node, all_of_them, 11)
        assert node.commit() is not None
        take(node, all_of_them, 12)
        acknowledge(node, joe, 12)
        assert (list(joe.pending), joe.size) == ([11], 5)
        acknowledge(node, joe, 11)
        assert (list(joe.pending), joe.size) == ([], 0)

    def test_by_two_audiences(self) -> None:
        joe, ann = session(a=3), session("client/ann/1", a=5)
        node = served(joe, ann)
        take(node, subscriber_set(node, joe, ann), 11)
        take(node, subscriber_set(node, joe), 12)
        acknowledge(node, joe, 11, 12)
        acknowledge(node, ann, 11)
        assert [(each.session, each.ids) for each in ended(node)] == [
            (joe.name, (11,)),
            (ann.name, (11,)),
            (joe.name, (12,)),
        ]

    def test_an_acknowledged_message_may_lie_beside_the_log(self) -> None:
        joe = session(a=3)
        node = served(joe)
        joe.arrived(LogId(9), PendingMessage(0, 7))
        acknowledge(node, joe, 9)
        assert not joe.inbox

    def test_what_others_have_acknowledged_stays_open(self) -> None:
        joe, ann = session(a=3), session("client/ann/1", a=5)
        node = served(joe, ann)
        take(node, subscriber_set(node, joe, ann), 11)
        acknowledge(node, joe, 11)
        commit = node.commit()
        assert commit is not None
        assert [(each.name, list(each.opened)) for each in commit.changes] == [(ann.name, [11])]
        assert commit.low == 10


def settled(node: LogConsumer) -> tuple[Commit, dict[str, tuple[LogId, ...]]]:
    """The commit, and what it tells of many at once."""
    commit = node.commit()
    assert commit is not None
    node.committed(commit)
    told: dict[str, tuple[LogId, ...]] = {}
    for alike in commit.settled:
        for name in alike.sessions:
            told[name] = told.get(name, ()) + alike.ids
    return commit, told


class TestSettlingAlike:
    def test_a_commit_tells_once_what_many_have_settled(self) -> None:
        joe, ann, eve = session(a=3), session("client/ann/1", a=3), session("client/eve/1", a=3)
        node = served(joe, ann, eve)
        take(node, subscriber_set(node, joe, ann, eve), 11, 12)
        for each in (joe, ann):
            acknowledge(node, each, 11, 12)
        acknowledge(node, eve, 11)
        commit, alike = settled(node)
        assert alike == {joe.name: (11, 12), ann.name: (11, 12)}
        assert [(each.session, each.ids) for each in commit.ended] == [(eve.name, (11,))]
        assert [each.name for each in commit.changes] == [eve.name]

    def test_again_and_again(self) -> None:
        joe, ann = session(a=3), session("client/ann/1", a=3)
        node = served(joe, ann)
        all_of_them = subscriber_set(node, joe, ann)
        for number in (11, 12, 13):
            take(node, all_of_them, number)
            for each in (joe, ann):
                acknowledge(node, each, number)
            assert settled(node)[1] == {joe.name: (number,), ann.name: (number,)}
        assert node.commit() is None

    def test_who_was_behind_joins_when_all_has_been_told(self) -> None:
        joe = session(a=3)
        node = served(joe)
        all_of_them = subscriber_set(node, joe)
        take(node, all_of_them, 11)
        assert settled(node)[1] == {}
        take(node, all_of_them, 12)
        acknowledge(node, joe, 11, 12)
        assert settled(node)[1] == {}
        take(node, all_of_them, 13)
        acknowledge(node, joe, 13)
        assert settled(node)[1] == {joe.name: (13,)}

    def test_by_what_was_taken_for_whom(self) -> None:
        joe, ann, eve, sam = (session(f"client/{name}/1", a=3) for name in ("joe", "ann", "eve", "sam"))
        node = served(joe, ann, eve, sam)
        all_of_them, some, one = (
            subscriber_set(node, joe, ann, eve, sam),
            subscriber_set(node, joe, ann),
            subscriber_set(node, eve),
        )
        for number, hearing in ((11, some), (12, all_of_them), (13, some), (14, one)):
            take(node, hearing, number)
        for each in (joe, ann):
            acknowledge(node, each, 11, 12, 13)
        acknowledge(node, eve, 12, 14)
        acknowledge(node, sam, 12)
        commit, alike = settled(node)
        assert alike == {joe.name: (11, 13, 12), ann.name: (11, 13, 12), eve.name: (12, 14), sam.name: (12,)}
        assert [each.ids for each in commit.settled] == [(11, 13), (12,), (14,)]
        assert (commit.changes, commit.ended, commit.low) == ((), (), 14)

    @pytest.mark.parametrize("ids", [(11,), (12,)])
    def test_not_of_one_that_lacks_what_it_heard_by_another_audience(self, ids: tuple[int, ...]) -> None:
        joe, ann = session(a=3), session("client/ann/1", a=3)
        node = served(joe, ann)
        take(node, subscriber_set(node, joe, ann), 11)
        take(node, subscriber_set(node, joe), 12)
        acknowledge(node, ann, 11)
        acknowledge(node, joe, *ids)
        commit, alike = settled(node)
        assert alike == {ann.name: (11,)}
        assert [(each.session, each.ids) for each in commit.ended] == [(joe.name, ids)]
        assert [each for change in commit.changes for each in change.opened] == [i for i in (11, 12) if i not in ids]

    def test_of_one_who_heard_by_two_audiences_and_was_behind(self) -> None:
        joe, ann = session(a=3), session("client/ann/1", a=3)
        node = served(joe, ann)
        both, one = subscriber_set(node, joe, ann), subscriber_set(node, joe)
        take(node, both, 11)
        take(node, one, 12)
        assert list(joe.pending) == [11, 12]
        take(node, both, 13)
        acknowledge(node, joe, 11, 12, 13)
        acknowledge(node, ann, 11, 13)
        commit, alike = settled(node)
        assert alike == {ann.name: (11, 13)}
        assert [(each.session, sorted(each.ids)) for each in commit.ended] == [(joe.name, [11, 12, 13])]

    def test_not_of_one_that_has_been_looked_at(self) -> None:
        joe = session(a=3)
        node = served(joe)
        take(node, subscriber_set(node, joe), 11)
        assert len(joe) == 1
        acknowledge(node, joe, 11)
        commit, alike = settled(node)
        assert (alike, [each.ids for each in commit.ended]) == ({}, [(11,)])

    def test_not_of_one_of_whom_more_is_to_be_told(self) -> None:
        joe = session(a=3)
        node = served(joe)
        take(node, subscriber_set(node, joe), 11)
        acknowledge(node, joe, 11)
        joe.dead_letter(PendingDeadLetter(joe.name, LogId(11), "user.update.error", "no"))
        node.mark_dirty(joe)
        commit, alike = settled(node)
        assert (alike, len(commit.dead_letters)) == ({}, 1)


class TestLeaving:
    def test_a_session_that_leaves_has_booked_what_it_is_owed(self) -> None:
        joe, ann = session(a=3), session("client/ann/1", a=5)
        node = served(joe, ann)
        take(node, subscriber_set(node, joe, ann), 11)
        acknowledge(node, ann, 11)
        node.drop(joe)
        assert ended(node) == [Disposition(ann.name, EndReason.SETTLED, (LogId(11),))]
        assert list(joe.pending) == [11]
        node.drop(joe)

    def test_what_it_acknowledges_afterwards_is_booked_too(self) -> None:
        joe = session(a=3)
        node = served(joe)
        take(node, subscriber_set(node, joe), 11)
        node.leave(joe)
        acknowledge(node, joe, 11)
        assert not joe.pending


class TestSubscriberSets:
    def test_who_is_not_owed_all_is_in_none(self) -> None:
        node = served(session("client/ann/1", a=3))
        (ann,) = node.sessions.values()
        for unsure in (session(b=3), session(a=11), adopted(11, a=3), adopted(3, [11], a=3)):
            node.add(unsure)
            assert not node.receives_all(unsure, A)
            node.drop(unsure)
            assert not node.receives_all(unsure, A)
        assert node.receives_all(ann, A)
        assert not node.receives_all(ann, B)

    def test_a_session_that_ends_is_in_none(self) -> None:
        joe = session(a=3)
        node = served(joe)
        node.ending(joe, LogId(10))
        assert not node.receives_all(joe, A)
        assert list(node.closing) == [joe]

    def test_a_name_that_comes_back_is_another_session(self) -> None:
        record = SessionRecord(SessionName("client/joe/1"), {}, subscriptions={"/a": LogId(3)})
        node = served(DurableSession.adopted(record))
        (joe,) = node.sessions.values()
        take(node, subscriber_set(node, joe), 11)
        node.drop(joe)
        again = session(a=3)
        node.add(again)
        assert (list(joe.pending), list(again.pending)) == ([11], [])

    def test_whatever_may_change_it_is_noted(self) -> None:
        joe, ann = session(a=3), session("client/ann/1")
        node = served(joe)
        changes = node.fan_out.changes
        versions = [changes.version]

        def has_changed() -> bool:
            versions.append(changes.version)
            return set(changes.since(versions[-2]) or ()) == {ann}

        node.add(ann)
        assert has_changed()
        pending = node.subscribing(ann, ["/a"])
        assert has_changed()
        assert not node.is_stable
        node.answered(pending, {"/a": (LogId(10), None)})
        assert has_changed()
        assert node.is_stable
        pending = node.unsubscribing(ann, ["/a"])
        assert has_changed()
        node.unanswered(pending)
        assert has_changed()
        ann.arrived(LogId(15), PendingMessage())
        assert has_changed()
        node.ending(ann, LogId(11))
        assert has_changed()
        node.drop(ann)
        assert has_changed()
        take(node, subscriber_set(node, joe), 11)
        assert not has_changed()

    def test_a_session_that_was_unsubscribed_gets_what_came_before(self) -> None:
        joe, ann = session(a=3), session("client/ann/1", a=5)
        node = served(joe, ann)
        pending = node.unsubscribing(ann, ["/a"])
        assert not node.is_stable
        node.answered(pending, {"/a": (LogId(5), LogId(11))})
        assert node.is_stable
        others = subscriber_set(node, joe)
        for each in (11, 12):
            take(node, others, each)
            found = node.take_closing(others, LogId(each), A, PendingMessage(0, 5))
            assert found == ([ann] if each == 11 else [])
        assert (list(joe.pending), list(ann.pending)) == ([11, 12], [11])

    def test_a_session_that_is_in_it_has_it_once(self) -> None:
        joe = session(a=3, b=5)
        node = served(joe)
        node.answered(node.unsubscribing(joe, ["/b"]), {"/b": (LogId(5), LogId(20))})
        everyone = subscriber_set(node, joe)
        take(node, everyone, 11)
        assert node.take_closing(everyone, LogId(11), [*A, *B], PendingMessage(0, 5)) == []

    def test_a_late_answer_finds_what_was_taken_for_all(self) -> None:
        joe = session(a=3)
        node = served(joe)
        all_of_them = subscriber_set(node, joe)
        pending = node.subscribing(joe, ["/*"])
        node.take(LogId(11), A, PendingMessage(0, 5), [])
        take(node, all_of_them, 12)
        assert node.answered(pending, {"/*": (LogId(10), None)}) == [11]
        assert list(joe.pending) == [11, 12]
