"""The page of a receiver says that the messages which it rejects have other fields than those that were acknowledged before."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.admin.rejected_shapes import LEAST, other_shape
from crewel.admin.session_resource import SESSION_ROUTES
from tests.admin.test_rejecting_receivers import Operator, rejecting
from tests.broker.stored_world import Receiver, StoredWorld, ok, store

SHOW = next(each for each in SESSION_ROUTES if each.method == "GET" and each.path.endswith("{number}"))
OLD, NEW = "{total: number}", "{sum: number}"


@pytest.mark.parametrize(
    ("rejected", "last", "text"),
    [
        (
            [("/a", NEW)] * LEAST,
            {"/a": OLD},
            f"3 rejected messages of /a have the data {NEW}; what was acknowledged last there had {OLD}",
        ),
        ([("/a", NEW)] * (LEAST - 1), {"/a": OLD}, ""),
        ([("/a", OLD)] * 9, {"/a": OLD}, ""),
        ([("/a", NEW)] * 9, {}, ""),
        (
            [*[("/b", OLD)] * 9, *[("/a", NEW)] * 4],
            {"/a": OLD, "/b": OLD},
            f"4 rejected messages of /a have the data {NEW}; what was acknowledged last there had {OLD}",
        ),
    ],
)
def test_a_shape_is_said_only_if_it_tells_the_rejected_ones(
    rejected: list[tuple[str, str]], last: dict[str, str], text: str
) -> None:
    assert other_shape(rejected, last.get) == text


@pytest.mark.store
def test_a_publisher_that_changes_its_fields_is_seen_at_the_receiver(stored: StoredWorld) -> None:
    operator = Operator(stored)
    joe = Receiver(stored).started("/a", name="joe/1", settle="message")

    def cause() -> dict[str, Any]:
        (found,) = operator.get(SHOW, path={"subject": "joe", "number": "1"})["causes"]
        return dict(found)

    store(stored, "/a", *({"total": number} for number in range(4)))
    joe.take(*map(ok, joe.take()))
    stored.wait(stored.broker.mailboxes.events.flush())
    store(stored, "/a", *({"sum": number} for number in range(4)))
    rejecting(joe, joe.take())
    stored.commit()
    stored.advance(2)
    stored.wait(stored.broker.mailboxes.events.flush())
    assert cause()["shape"] == (
        f"4 rejected messages of /a have the data {NEW}; what was acknowledged last there had {OLD}"
    )
    store(stored, "/a", {"sum": 9})
    joe.take(*map(ok, joe.take()))  # it takes the new ones now
    stored.advance(2)
    stored.wait(stored.broker.mailboxes.events.flush())
    assert cause()["shape"] == ""
