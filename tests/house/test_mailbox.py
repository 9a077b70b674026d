"""A mailbox is closed: outside of its rooms, verbs and a view are all there is, and two numbers that each delivery reads."""

from __future__ import annotations

import ast
from collections import Counter
from typing import Final

import pytest

from tests.house.mailbox_accesses import READ, accesses, aliases, looks, members, outside
from tests.house.source import shown, tree

LEFT: Final[dict[str, int]] = {"evicted": 3, "is_absent": 2}
"""The other fields that are read from outside, and at how many places: at each connect, where a call would cost more (decision
0460). A figure may only fall."""
MOST_VERBS: Final = 34


def test_no_other_field_has_a_name_without_an_underscore() -> None:
    fields, _ = members()
    assert {each for each in fields if not each.startswith("_")} == READ | set(LEFT)


def test_no_place_looks_into_a_mailbox_but_those_that_read_at_each_connect() -> None:
    assert Counter(each.member for each in accesses()) == LEFT


def test_a_mailbox_has_no_other_name_outside() -> None:
    """So each look from outside is found by its name; one at a part is an error of the linter whatever the name."""
    assert [(shown(file), alias) for file in outside() for alias in aliases(tree(file))] == []


def test_a_mailbox_gets_no_more_verbs() -> None:
    _, methods = members()
    assert sum(not each.startswith("_") for each in methods) <= MOST_VERBS


PLANTED = """
def walk(session, mailbox, other):
    session.mailbox._queue.clear()
    mailbox.offer(1)
    first, second = session.mailbox, other._queue
    first._queue = mailbox.news
    if (batches := mailbox._batches) is not None and mailbox.is_absent:
        mailbox._look()
"""


def test_looks_and_other_names_are_found() -> None:
    planted = ast.parse(PLANTED)
    assert Counter(each.member for each in looks(planted, "")) == Counter(["_queue", "_batches", "is_absent", "_look"])
    assert list(aliases(planted)) == ["first"]


@pytest.mark.parametrize("text", ["session.mailbox.view().depth", "def f(mailbox: Mailbox): return mailbox.tells"])
def test_verbs_and_what_is_read_for_each_delivery_are_no_looks(text: str) -> None:
    assert not list(looks(ast.parse(text), "planted"))
