"""Marks: what is known of a store by the number that it has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from crewel.storage.confirmation import Marks


def confirmed(marks: Marks) -> None:
    marks.step()
    marks.confirm()


def written(marks: Marks) -> None:
    marks.step()


def lapsed(marks: Marks) -> None:
    marks.lapse()


def test_each_mark_has_the_next_number() -> None:
    marks = Marks("copied:a")
    assert [marks.step().arguments[0] for _ in range(3)] == [1, 2, 3]
    assert marks.step().keys == ("copied:a",)


@pytest.mark.parametrize(
    ("happened", "value", "has_all"),
    [
        ([], None, True),
        ([confirmed, confirmed], b"2", True),
        ([confirmed, confirmed], b"1", False),
        ([confirmed, confirmed], None, False),
        ([confirmed, written], b"1", True),
        ([confirmed, written], b"2", True),
        ([confirmed, lapsed], b"1", False),
        ([confirmed, lapsed, confirmed], b"2", True),
    ],
    ids=[
        "nothing was answered",
        "the newest is there",
        "the newest is not there",
        "none is there",
        "what was not confirmed is not there",
        "what was not confirmed is there",
        "something was answered without a mark",
        "it was confirmed by a later one",
    ],
)
def test_a_store_has_all_if_it_has_the_newest_confirmed_mark(
    happened: list[Callable[[Marks], None]], value: bytes | None, has_all: bool
) -> None:
    marks = Marks("copied:a")
    for each in happened:
        each(marks)
    assert marks.are_in(value) is has_all
