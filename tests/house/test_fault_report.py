"""The report of `make faults`: what its rows and its closing lines say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.faults import report
from tests.faults.report import Row, row_name

NOW = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)
KILLED = "tests/faults/test_server_killed.py::test_what_was_answered[1]"


@pytest.fixture(autouse=True)
def _began(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "BEGAN", NOW - timedelta(minutes=10))


def test_faults_have_rows_of_their_own_and_other_tests_one_for_each_file() -> None:
    assert row_name(KILLED) == "`test_what_was_answered[1]`"
    assert row_name("tests/delivery/test_order.py::TestOrder::test_first[a-1]") == "`tests/delivery/test_order.py`"


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        (Row(3.4, 1, did="10 kills | 2"), "| 3 | passed | 10 kills \\| 2 |"),
        (Row(3.4, 1, "assert 1\nwas 2", "10 kills"), "| 3 | FAILED: assert 1 was 2 | 10 kills |"),
        (Row(0.1), "| 0 | skipped |  |"),
    ],
    ids=["passed", "failed", "skipped"],
)
def test_a_row_says_what_became_of_its_test(row: Row, cells: str) -> None:
    assert cells in row.line("`test_a`", "2026-05-04 12:30, abc")


def test_a_row_of_a_file_counts_its_tests() -> None:
    assert "| 20 | passed | 7 passed |" in Row(20.0, 7).line("`tests/qos/test_publish.py`", "2026-05-04 12:30, abc")


def test_rows_of_earlier_runs_stay_and_do_not_count_as_the_last_run() -> None:
    first = report.report({"`test_a`": Row(1, 0, "broken"), "`test_b`": Row(1, 1)}, "", "abc", NOW - timedelta(days=1))
    text = report.report({"`test_b`": Row(2, 1), "`test_c`": Row(1, 0, "lost")}, first, "def", NOW)
    assert "3 rows, 2 failed" in text
    assert "The last run: 2 rows, 1 failed, 10 minutes." in text
    assert "| `test_a` | 1 | FAILED: broken |  | 2026-05-03 12:30, abc |" in text
    assert "| `test_b` | 2 | passed |  | 2026-05-04 12:30, def |" in text


def test_rows_of_tests_that_no_longer_exist_go_after_a_whole_run() -> None:
    first = report.report({"`test_a`": Row(1, 1), "`test_b`": Row(1, 1)}, "", "abc", NOW - timedelta(days=1))
    text = report.report({"`test_b`": Row(2, 1), "`test_c`": Row(1, 1)}, first, "def", NOW)
    assert report.without_earlier(text) == report.report({"`test_b`": Row(2, 1), "`test_c`": Row(1, 1)}, "", "def", NOW)


def test_the_closing_lines_name_what_failed_in_the_last_run_alone() -> None:
    first = report.report({"`test_a`": Row(1, 0, "broken")}, "", "abc", NOW - timedelta(days=1))
    text = report.report({"`test_b`": Row(1, 0, "lost")}, first, "def", NOW)
    closing = report.closing(text)
    assert "The last run: 1 rows, 1 failed" in closing
    assert "test_b" in closing
    assert "test_a" not in closing
