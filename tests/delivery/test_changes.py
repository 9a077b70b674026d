"""What has changed lately is known to those who keep a copy; who has missed too much has to read all of it again."""

from crewel.delivery.changes import MAX_CHANGES, Changes


def changed(count: int) -> Changes[int]:
    changes: Changes[int] = Changes()
    for number in range(count):
        changes.note(number)
    return changes


def test_what_came_since_is_known_oldest_first() -> None:
    changes = changed(3)
    assert changes.version == 3
    assert [list(changes.since(version) or ()) for version in range(4)] == [[0, 1, 2], [1, 2], [2], []]


def test_a_copy_that_lacks_more_than_is_remembered_is_of_no_use() -> None:
    changes = changed(MAX_CHANGES + 1)
    oldest = MAX_CHANGES // 2
    assert changes.since(oldest - 1) is None
    assert list(changes.since(oldest) or ()) == list(range(oldest, MAX_CHANGES + 1))


def test_no_more_is_remembered_however_much_changes() -> None:
    changes = changed(MAX_CHANGES * 5)
    assert len(changes.since(changes.version - MAX_CHANGES // 2) or ()) == MAX_CHANGES // 2
    assert changes.since(changes.version - MAX_CHANGES - 1) is None
