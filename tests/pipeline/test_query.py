"""Queries in SQL over the tables and what the store has beyond them."""

from __future__ import annotations

import csv
import io
import json
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.pipeline.job_runner import Common, show, show_csv, show_rows
from crewel.pipeline.jobs import query
from crewel.pipeline.output import as_json
from tests.pipeline.conftest import Streams
from tests.texts import texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_query_sees_tables_and_store(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    for log_id in (1, 2, 3):
        streams.fact("published", {"first": log_id, "channels": [f"/a{log_id % 2}"]}, f"{log_id}-0")

    def asked(sql: str, **options: int | bool) -> query.Result:
        return query.run(spark, query.Options(address=streams.address, directory=tmp_path, sql=sql, **options))  # type: ignore[arg-type]

    found = asked("SELECT channel, count(*) AS messages, max(at) AS last FROM fact_published GROUP BY ALL ORDER BY 1")
    assert found.columns == ["channel", "messages", "last"]
    assert found.rows == [
        ["/a0", 1, datetime(1970, 1, 1, 0, 0, 0, 2000, UTC)],
        ["/a1", 2, datetime(1970, 1, 1, 0, 0, 0, 3000, UTC)],
    ]
    assert not found.is_cut
    within = asked(
        "SELECT max(at), collect_list(at), named_struct('at', max(at)), map('a', max(at)),"
        " TIMESTAMP_NTZ'1970-01-01 00:00:00.003' FROM fact_published WHERE log_id = 3"
    )
    at = datetime(1970, 1, 1, 0, 0, 0, 3000, UTC)
    assert within.rows == [[at, [at], (at,), {"a": at}, at.replace(tzinfo=None)]]
    values = asked(
        "SELECT map(max(at), date'2026-11-20'), map(named_struct('a', 1), 1.50), map(7, true), X'00ff',"
        " named_struct('at', max(at), 'of', array(named_struct('n', 0.10))), double('NaN'), map(1.5D, double('-Infinity'))"
        " FROM fact_published WHERE log_id = 3"
    )
    moment = "1970-01-01 00:00:00.003000+00:00"
    assert json.loads(json.dumps(as_json(values)["rows"], allow_nan=False)) == [
        [
            {moment: "2026-11-20"}, {'{"a": 1}': "1.50"}, {"7": True}, "AP8=", {"at": moment, "of": [{"n": "0.10"}]},
            "nan", {"1.5": "-inf"},
        ]
    ]  # fmt: skip
    cut = asked("SELECT log_id, log_id FROM fact_published ORDER BY 1", limit=2)
    assert (cut.rows, cut.is_cut) == ([[1, 1], [2, 2]], True)
    assert asked("SELECT * FROM FACT_PUBLISHED", from_store=False).rows == []
    assert {"raw", "letters", "minutes"} <= {row[1] for row in asked("SHOW TABLES", from_store=False).rows}
    for wrong, words in {"SELEC 1": "SELEC", "SELECT nothing FROM raw": "nothing", "SELECT 1 FROM row": "row"}.items():
        with pytest.raises(query.BadQuery, match=words):
            asked(wrong, from_store=False)
    assert spark.catalog.listTables() == []


ATTACKS = [
    "=1+1",
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "\uff1d1+1",
    '=HYPERLINK("http://x")',
    "-",
    "+1 2",
]


@pytest.mark.parametrize("text", ATTACKS)
def test_csv_has_no_cell_that_a_spreadsheet_runs(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_csv([text, "n"], [[text, -1], [f"a;{text}", 2]], is_raw=False)
    shown = capsys.readouterr().out
    head, first, second = csv.reader(io.StringIO(shown, newline=""))
    assert (head, first, second) == ([f"'{text}", "n"], [f"'{text}", "-1"], [f"a;{text}", "2"])
    assert '"a;' in shown  # in quotes, where a semicolon separates no cells
    show_csv([text], [[text]], is_raw=True)
    assert [*csv.reader(io.StringIO(capsys.readouterr().out, newline=""))] == [[text], [text]]


CELLS = texts() | texts("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20'\";, \\1.eE", max_size=8)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=4))
def test_csv_of_any_texts_has_no_formula_and_loses_none(rows: list[tuple[str, str]]) -> None:
    with redirect_stdout(io.StringIO()) as out:
        show_csv(["a", "b"], [[*row] for row in rows], is_raw=False)
    (_, *shown) = csv.reader(io.StringIO(out.getvalue(), newline=""))
    assert [[cell.removeprefix("'") for cell in row] for row in shown] == [
        [cell.removeprefix("'") for cell in row] for row in rows
    ]
    for cell in (cell for row in shown for cell in row if cell[:1] in tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")):
        assert cell[0] in "+-"
        assert float(cell) is not None  # a number, which a spreadsheet shows as it is


def test_csv_keeps_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    show_csv(["a"], [[-5], [-1.5], [Decimal("-2.50")], ["-7"], ["+1.5e-3"], [None], [timedelta(days=-1)]], is_raw=False)
    assert capsys.readouterr().out.splitlines() == [
        '"a"',
        "-5",
        "-1.5",
        "-2.50",
        '"-7"',
        '"+1.5e-3"',
        '""',
        '"\'-1 day, 0:00:00"',
    ]


@dataclass
class Answer:
    """A result of a job."""

    rows: list[object]


def test_what_has_parts_is_json_in_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime(2026, 11, 20, tzinfo=UTC)
    rows: list[list[object]] = [[{at: [date(2026, 11, 20)]}, bytearray(b"\0\xff"), [Decimal("1.50"), None], inf]]
    show(Answer(rows), Common("", None, None, Path(), is_json=True))
    shown = {"2026-11-20 00:00:00+00:00": ["2026-11-20"]}
    assert json.loads(capsys.readouterr().out) == {"rows": [[shown, "AP8=", ["1.50", None], "inf"]]}
    show_csv(["a", "b", "c", "d"], rows, is_raw=False)
    (_, cells) = csv.reader(io.StringIO(capsys.readouterr().out, newline=""))
    assert [json.loads(cells[0]), cells[1], json.loads(cells[2])] == [shown, "AP8=", ["1.50", None]]
    show_rows(["a", "b"], [row[:2] for row in rows])
    assert capsys.readouterr().out.split("\n")[1].split("  ")[0] == json.dumps(shown)


def test_rows_are_printed_as_a_table_and_as_csv(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [["/a", 12345, None], ["/b, c", 1, "[red]"]]
    show_csv(["channel", "n", "why"], rows, is_raw=False)
    assert capsys.readouterr().out == '"channel","n","why"\n"/a",12345,""\n"/b, c",1,"[red]"\n'
    show_rows(["channel", "n", "why"], rows)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "channel  n       why",
        "/a       12,345",
        "/b, c    1       [red]",
    ]
