"""The order of copies, as the ledger of a run judges it."""

from __future__ import annotations

import pytest

from tests.faults.ledger import Item, Ledger

FIRST: Item = ("p", 1)
SECOND: Item = ("p", 2)


def ledger_of(*came: tuple[str, Item], is_keyed: bool = False) -> Ledger:
    """Two messages that were published one after the other, and these copies of them."""
    ledger = Ledger()
    ledger.subscribed("amy")
    for handful, item in enumerate((FIRST, SECOND), start=1):
        ledger.begin(item, is_keyed=is_keyed, handful=handful)
    for item, log_id in ((FIRST, "1"), (SECOND, "2")):
        ledger.answered(item, log_id)
    for log_id, item in came:
        ledger.came("amy", log_id, item)
    return ledger


def test_a_message_without_a_key_may_come_again_under_another_id_after_later_ones() -> None:
    """A node that hung takes the first request when the publisher has long sent it again."""
    ledger_of(("1", FIRST), ("2", SECOND), ("3", FIRST)).check()


def test_a_message_with_a_key_may_not() -> None:
    with pytest.raises(AssertionError, match="published with a key, as 1 and as 3"):
        ledger_of(("1", FIRST), ("2", SECOND), ("3", FIRST), is_keyed=True).check()


def test_first_copies_come_in_the_order_of_their_publisher() -> None:
    ledger = ledger_of(("2", SECOND), ("3", FIRST))
    ledger.published[FIRST].id = "3"
    with pytest.raises(AssertionError, match="number 1 of p after later ones"):
        ledger.check()
