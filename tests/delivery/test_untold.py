"""The dead letters of one session that the store does not have yet, and those that are withheld."""

from collections.abc import Iterable

from crewel.delivery.records import Letter, LogId, SessionName, Transient, Waiting
from crewel.delivery.untold import Untold

FAR = LogId(1000)


def letter(log_id: int, message: Transient | None = None) -> Letter:
    return Letter(SessionName("client/joe/1"), LogId(log_id), "user.update.deadMessage", "no", 0, message)


def untold(*ids: int, size: int = 5) -> Untold:
    made = Untold()
    for log_id in ids:
        made.add(letter(log_id), Waiting(0, size))
    return made


def ids(letters: Iterable[Letter]) -> list[int]:
    return [each.id for each in letters]


def test_each_is_taken_once_in_the_order_in_which_it_was_made() -> None:
    made = untold(5, 4)
    assert made
    assert ids(made.take(FAR)) == [5, 4]
    assert not made
    assert made.take(FAR) == []


def test_what_is_beyond_the_cursor_stays() -> None:
    made = untold(4, 9, 5)
    assert ids(made.take(LogId(5))) == [4, 5]
    assert (len(made), made.cost) == (1, 1)
    assert ids(made.take(LogId(9))) == [9]


def test_withheld_ones_are_taken_only_up_to_what_they_may_cost() -> None:
    made = untold(4, 5, 6)
    made.withhold()
    assert (len(made), made.withheld, made.cost) == (0, 3, 0)
    assert made.take(FAR) == []
    assert ids(made.take(FAR, 2)) == [4, 5]
    assert (made.withheld, made.spent) == (1, 2)
    assert ids(made.take(FAR, 2)) == [6]
    assert not made


def test_newer_ones_are_taken_beside_those_that_are_withheld() -> None:
    made = untold(4, 5)
    made.withhold()
    made.add(letter(6), Waiting())
    assert len(made) == 1
    assert ids(made.take(FAR)) == [6]
    assert ids(made.take(FAR, 10)) == [4, 5]


def test_one_beyond_the_cursor_holds_up_those_behind_it_if_they_are_withheld() -> None:
    made = untold(9, 4)
    made.withhold()
    assert made.take(LogId(5), 10) == []
    assert ids(made.take(LogId(9), 10)) == [9, 4]


def test_all_are_taken_when_the_session_ends() -> None:
    made = untold(4, 5)
    made.withhold()
    made.add(letter(6), Waiting())
    assert ids(made.take(None)) == [4, 5, 6]
    assert (made.withheld, len(made)) == (0, 0)


def test_a_long_body_costs_more() -> None:
    made = untold(4, 5, 6, size=20_000)
    assert made.cost == 30
    made.withhold()
    assert ids(made.take(FAR, 10)) == [4]
    assert ids(made.take(FAR, 11)) == [5, 6]


def test_the_messages_of_withheld_ones_are_kept() -> None:
    made = untold(4)
    made.add(letter(0, Transient("1-0-a", "1000000", "/a", b"{}")), Waiting(0, 2))
    made.withhold()
    made.add(letter(6), Waiting())
    assert made.kept == {4: Waiting(0, 5)}


def test_the_log_is_needed_from_the_lowest_message_on() -> None:
    assert untold(7, 4, 9).low == 4
    made = Untold()
    made.add(letter(0, Transient("1-0-a", "1000000", "/a", b"{}")), Waiting(0, 2))
    assert made.low == 0
