"""What a dotted code is: its category, its class, its status."""

import pytest

from crewel.errors import Category, ErrorCode, class_of, coded, status_of
from crewel.errors.codes import CLASSES, is_below


@pytest.mark.parametrize(
    ("code", "prefix", "is_one"),
    [
        ("user.update.error", "user.update.error", True),
        ("user.update.error.mine", "user.update.error", True),
        ("user.update.errorX", "user.update.error", False),
        ("user", "user.update", False),
    ],
)
def test_a_code_is_below_another_by_whole_segments(code: str, prefix: str, is_one: bool) -> None:
    assert is_below(code, prefix) is is_one


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("user.ptp.denied", 404),
        ("user.ptpx", 400),
        ("user.security.authentication", 403),
        ("user.publish.readonly", 409),
        ("user.illegalArgument", 400),
        ("resource.overflow.queue.bytes", 413),
        ("resource.unavailable", 503),
        ("internal.illegalState", 500),
        ("users", 500),
    ],
)
def test_a_code_has_a_status(code: str, status: int) -> None:
    assert status_of(code) == status


def test_an_argument_cannot_smuggle_in_a_colon() -> None:
    assert coded("user.illegalArgument", "a:b") == "400:a b:user.illegalArgument"
    assert coded("user.illegalArgument", "a", 403) == "403:a:user.illegalArgument"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("user.update.error", "user.update"),
        ("user.updates", "user"),
        ("user.security.authentication.expired", "user.security"),
        ("user.mine.and.mine.alone", "user"),
        ("communication.noConnection.dead", "communication.noConnection"),
        ("communication.responseTimeout", "communication"),
        ("resource.overflow.queue.entries", "resource.overflow"),
        ("nonsense", "internal"),
    ],
)
def test_figures_count_a_code_by_its_narrowest_class(code: str, expected: str) -> None:
    assert class_of(code) == expected


def test_a_narrow_class_stands_before_the_wide_one() -> None:
    for number, narrow in enumerate(CLASSES):
        assert not any(is_below(narrow, wide) for wide in CLASSES[:number])


def test_the_first_word_is_the_category() -> None:
    assert ErrorCode("user.update.error", "", True).category is Category.USER
    assert all(each.meaning for each in Category)
