"""Nothing outside of it looks into a mailbox more than it does already: the places that do are counted by what they look at."""

from __future__ import annotations

import ast
from collections import Counter
from typing import Final

import pytest

from tests.house.mailbox_accesses import accesses, looks

LEFT: Final[dict[str, int]] = {
    "append": 1,
    "at_client": 1,
    "attempts": 1,
    "batches.number": 1,
    "begin_batches": 1,
    "bound": 1,
    "burst": 1,
    "count_evicted": 1,
    "dispatcher.last_failure": 1,
    "dispatcher.reported": 3,
    "dispatcher.rules": 1,
    "drop_where": 4,
    "evict": 1,
    "evict_arrived": 1,
    "expiry": 2,
    "forget_stored": 2,
    "has_bytes": 1,
    "in_memory": 1,
    "is_absent": 5,
    "is_blocked": 2,
    "is_due": 1,
    "is_paused": 1,
    "limit": 2,
    "offer_at_once": 1,
    "queue": 5,
    "recovered": 1,
    "replace": 2,
    "resend_delay": 1,
    "shorten": 1,
    "stored": 2,
    "transients": 3,
}
"""How many places look at this. A figure may only fall: what a place wants is a verb of the mailbox, or a part of its view."""


def test_no_place_looks_into_a_mailbox_that_did_not_before() -> None:
    places: dict[str, list[str]] = {}
    for each in accesses():
        places.setdefault(each.member, []).append(each.place)
    more = {member: found for member, found in places.items() if len(found) > LEFT.get(member, 0)}
    assert not more


PLANTED = """
def walk(session, mailbox: Mailbox, other):
    session.mailbox.queue.clear()
    mailbox.offer(1)
    first, second = session.mailbox, other.queue
    first.urgent = first.news
    dispatcher = first.dispatcher
    dispatcher.rules.tells
    again = dispatcher
    if (batches := mailbox.batches) is not None:
        again.in_flight, batches.sent

class Part:
    def __init__(self, limit: OpenLimit):
        self.limit = limit

    def room(self):
        return self.limit.most

def elsewhere(first, dispatcher):
    first.queue, dispatcher.rules
"""


def test_looks_are_found_under_other_names_too() -> None:
    found = Counter(each.member for each in looks(ast.parse(PLANTED), "planted"))
    assert found == Counter(
        [
            "queue",
            "urgent",
            "dispatcher",
            "dispatcher.rules",
            "batches",
            "dispatcher.in_flight",
            "batches.sent",
            "limit.most",
        ]
    )


@pytest.mark.parametrize("text", ["session.mailbox.view().depth", "def f(mailbox: Mailbox): return mailbox.tells"])
def test_verbs_and_what_is_read_for_each_delivery_are_no_looks(text: str) -> None:
    assert not list(looks(ast.parse(text), "planted"))
