"""The dead letters of one session that the store does not have yet, and those that are withheld."""

from collections.abc import Iterable

from crewel.delivery.pending_dead_letters import DeadLetterBacklog, PendingDeadLetters
from crewel.delivery.records import LogId, PendingDeadLetter, PendingMessage, SessionName, Transient

FAR = LogId(1000)


def letter(log_id: int, message: Transient | None = None) -> PendingDeadLetter:
    return PendingDeadLetter(SessionName("client/joe/1"), LogId(log_id), "user.update.deadMessage", "no", 0, message)


def pending(*ids: int, size: int = 5) -> PendingDeadLetters:
    made = PendingDeadLetters()
    for log_id in ids:
        made.add(letter(log_id), PendingMessage(0, size))
    return made


def ids(letters: Iterable[PendingDeadLetter]) -> list[int]:
    return [each.id for each in letters]


def test_each_is_taken_once_in_the_order_in_which_it_was_made() -> None:
    made = pending(5, 4)
    assert made
    assert ids(made.take(FAR)) == [5, 4]
    assert not made
    assert made.take(FAR) == []


def test_what_is_beyond_the_cursor_stays() -> None:
    made = pending(4, 9, 5)
    assert ids(made.take(LogId(5))) == [4, 5]
    assert (made.due, made.cost) == (1, 1)
    assert ids(made.take(LogId(9))) == [9]


def test_withheld_ones_are_taken_only_up_to_what_they_may_cost() -> None:
    made = pending(4, 5, 6)
    made.withhold()
    assert (made.due, made.withheld, made.cost) == (0, 3, 0)
    assert made.take(FAR) == []
    assert ids(made.take(FAR, 2)) == [4, 5]
    assert (made.withheld, made.spent) == (1, 2)
    assert ids(made.take(FAR, 2)) == [6]
    assert not made


def test_newer_ones_are_taken_beside_those_that_are_withheld() -> None:
    made = pending(4, 5)
    made.withhold()
    made.add(letter(6), PendingMessage())
    assert made.due == 1
    assert ids(made.take(FAR)) == [6]
    assert ids(made.take(FAR, 10)) == [4, 5]


def test_one_beyond_the_cursor_holds_up_those_behind_it_if_they_are_withheld() -> None:
    made = pending(9, 4)
    made.withhold()
    assert made.take(LogId(5), 10) == []
    assert ids(made.take(LogId(9), 10)) == [9, 4]


def test_all_are_taken_when_the_session_ends() -> None:
    made = pending(4, 5)
    made.withhold()
    made.add(letter(6), PendingMessage())
    assert ids(made.take(None)) == [4, 5, 6]
    assert (made.withheld, made.due) == (0, 0)


def test_a_long_body_costs_more() -> None:
    made = pending(4, 5, 6, size=20_000)
    assert made.cost == 30
    made.withhold()
    assert ids(made.take(FAR, 10)) == [4]
    assert ids(made.take(FAR, 11)) == [5, 6]


def counted(log_id: int, channel: str, backlog: DeadLetterBacklog, size: int = 5) -> PendingDeadLetters:
    made = PendingDeadLetters(backlog)
    made.add(letter(log_id), PendingMessage(0, size, channel))
    return made


def test_the_backlog_has_what_those_of_all_sessions_cost_by_channel() -> None:
    backlog = DeadLetterBacklog()
    first, second = counted(4, "/a", backlog), counted(5, "/b", backlog, 20_000)
    second.add(letter(6), PendingMessage(0, 5, "/a"))
    assert (backlog.size, backlog.shared.by_channel) == (12, {"/a": 2, "/b": 10})
    first.take(FAR)
    second.withhold()
    second.take(FAR, 1)
    assert (backlog.size, backlog.shared.by_channel) == (1, {"/a": 1})
    second.take(None)
    assert (backlog.size, backlog.shared.by_channel) == (0, {})


def test_the_backlog_has_what_each_account_owes() -> None:
    backlog = DeadLetterBacklog()
    first, second = PendingDeadLetters(backlog, ("home", "joe")), PendingDeadLetters(backlog, ("home",))
    first.add(letter(4), PendingMessage(0, 5, "/a"))
    second.add(letter(5), PendingMessage(0, 20_000, "/b"))
    assert {payer: debt.by_channel for payer, debt in backlog.by_payer.items()} == {
        "home": {"/a": 1, "/b": 10},
        "joe": {"/a": 1},
    }
    assert (backlog.size, backlog.shared.size, backlog.shared.by_channel) == (11, 0, {})
    assert [backlog.most(each) for each in ((), ("joe",), ("joe", "home"), ("ann",))] == [0, 1, 11, 0]
    second.take(None)
    assert backlog.by_payer["home"].size == 1
    first.detach()
    assert (backlog.by_payer, backlog.size) == ({}, 0)


def test_those_of_a_session_that_has_gone_are_no_part_of_the_backlog() -> None:
    backlog = DeadLetterBacklog()
    made = counted(4, "/a", backlog)
    made.detach()
    assert (backlog.size, backlog.shared.by_channel) == (0, {})
    made.add(letter(5), PendingMessage())
    assert ids(made.take(None)) == [4, 5]
    assert backlog.size == 0


def test_one_beyond_the_cursor_is_counted_until_it_is_taken() -> None:
    backlog = DeadLetterBacklog()
    made = counted(9, "/a", backlog)
    assert made.take(LogId(5)) == []
    assert backlog.size == 1
    made.take(FAR)
    assert backlog.size == 0


def test_the_messages_of_withheld_ones_are_kept() -> None:
    made = pending(4)
    made.add(letter(0, Transient("1-0-a", "1000000", "/a", b"{}")), PendingMessage(0, 2))
    made.withhold()
    made.add(letter(6), PendingMessage())
    assert made.withheld_messages == {4: PendingMessage(0, 5)}


def test_the_log_is_needed_from_the_lowest_message_on() -> None:
    assert pending(7, 4, 9).first_needed == 4
    made = pending(4, 7, 6)
    made.withhold()
    made.take(FAR, 1)
    assert made.first_needed == 6
    made.add(letter(5), PendingMessage())
    assert made.first_needed == 5
    made.take(FAR)
    assert made.first_needed == 6
    made = PendingDeadLetters()
    made.add(letter(0, Transient("1-0-a", "1000000", "/a", b"{}")), PendingMessage(0, 2))
    assert made.first_needed is None
