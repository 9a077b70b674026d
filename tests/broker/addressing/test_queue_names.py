import pytest

from crewel.qos.names import (
    group_of,
    group_queue,
    is_exclusive,
    is_queue,
    one_queue,
    subject_of,
    subject_queue,
)


def test_a_subjects_queue_is_called_as_the_subject_is() -> None:
    assert subject_queue("joe") == "client/joe"
    assert subject_of(subject_queue("joe")) == subject_of(one_queue("joe")) == "joe"


@pytest.mark.parametrize("pattern", ["/a", "/a/*", "/**", "/a name/with (signs) and blanks/*"])
def test_a_groups_queue_tells_pattern_and_name(pattern: str) -> None:
    queue = group_queue(pattern, "workers")
    assert group_of(queue) == (pattern, "workers")
    assert subject_of(queue) == ""


def test_a_subjects_queue_is_no_groups() -> None:
    assert group_of(subject_queue("joe")) is None
    assert group_of(one_queue("joe")) is None


def test_only_a_subjects_own_messages_are_open_for_several_at_once() -> None:
    assert not is_exclusive(subject_queue("joe"))
    assert not is_exclusive("")  # what came from no queue
    assert is_exclusive(one_queue("joe"))
    assert is_exclusive(group_queue("/a", "workers"))


def test_letters_are_of_queues_or_of_sessions() -> None:
    assert is_queue("client/joe")
    assert is_queue(group_queue("/a", "workers"))
    assert not is_queue("client/joe/1")
    assert not is_queue("client/anonymous/-7")
