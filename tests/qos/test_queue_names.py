"""The names of shared queues: what a queue is of, and how it is consumed."""

from __future__ import annotations

import pytest

from crewel.qos import names

SUBJECT, ONE, GROUP = "client/joe", "one:client/joe", "group:/a/** workers"


def test_each_kind_of_queue_has_a_name_of_its_own() -> None:
    """The store keeps them."""
    assert (names.subject_queue("joe"), names.one_queue("joe")) == (SUBJECT, ONE)
    assert names.group_queue("/a/**", "workers") == GROUP


@pytest.mark.parametrize(("queue", "expected"), [(SUBJECT, False), (ONE, True), (GROUP, True)])
def test_only_a_subject_has_each_message_open_for_several_sessions(queue: str, expected: bool) -> None:
    assert names.is_exclusive(queue) is expected


@pytest.mark.parametrize(("queue", "expected"), [(SUBJECT, None), (ONE, None), (GROUP, ("/a/**", "workers"))])
def test_group_is_read_from_its_queue(queue: str, expected: tuple[str, str] | None) -> None:
    assert names.group_of(queue) == expected


@pytest.mark.parametrize(("queue", "expected"), [(SUBJECT, "joe"), (ONE, "joe"), (GROUP, "")])
def test_subject_is_read_from_its_queue(queue: str, expected: str) -> None:
    assert names.subject_of(queue) == expected


@pytest.mark.parametrize(("receiver", "expected"), [(SUBJECT, True), (GROUP, True), ("client/joe/1", False)])
def test_session_is_no_queue(receiver: str, expected: bool) -> None:
    assert names.is_queue(receiver) is expected
