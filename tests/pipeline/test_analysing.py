"""The page for analysts, run block by block over the tables of a small shop: each prints what the page shows. And what the
checks for a warehouse find when rows are gone or doubled."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

from crewel.pipeline.connection import Address
from crewel.pipeline.finished import finished
from crewel.pipeline.jobs import report
from crewel.pipeline.schemas import TABLES
from tests.pipeline import sample
from tests.pipeline.conftest import Streams
from tests.server_process import ROOT
from tests.store_process import own_prefix, shared_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "how-to" / "analysing.md"
SQL = ROOT / "examples" / "sql"
NOTEBOOK = ROOT / "examples" / "python" / "tables.ipynb"
BLOCK = re.compile(r"```(python|sql|text)\n(.*?)```", re.DOTALL)


def named(name: str) -> dict[str, str]:
    """The queries of a file, by their names."""
    parts = (SQL / name).read_text("utf-8").split("-- name: ")[1:]
    return {title: query.strip().rstrip(";") for title, _, query in (part.partition("\n") for part in parts)}


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the tables of the shop, `data/pipeline`, and the examples."""
    streams = Streams(Address(shared_store().url, own_prefix()))
    sample.fill(streams)
    directory = tmp_path_factory.mktemp("shop")
    (directory / "data").mkdir()
    (directory / "examples").symlink_to(ROOT / "examples")
    root = directory / "data" / "pipeline"
    report.run(spark, report.Options(address=streams.address, directory=root, backfill=True, audit=False))
    streams.client.close()
    return directory


@pytest.fixture(scope="module")
def filled(shop: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """The tables in memory, so that rows can be removed and added."""
    with duckdb.connect() as db:
        for name, table in finished(shop / "data" / "pipeline").items():
            if name not in ("raw", "corrupt"):
                db.register("source", table.to_table())
                db.execute(f"CREATE TABLE {name} AS FROM source")
                db.unregister("source")
        db.execute((SQL / "views.sql").read_text("utf-8"))
        yield db


@pytest.fixture
def db(filled: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """The same for one test: what it removes and adds is undone after it."""
    filled.begin()
    yield filled
    filled.rollback()


def shown(blocks: list[tuple[str, str]], names: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Run blocks in order; yield each with what it printed and what the page says that it prints."""
    for (kind, text), (next_kind, expected) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind == "text":
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            if kind == "sql":
                names["ask"](text)
            else:
                exec(text, names)
        yield text, out.getvalue(), expected if next_kind == "text" else ""


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def test_the_report_of_the_shop_brings_the_tables_up_to_date_first(shop: Path) -> None:
    tables = finished(shop / "data" / "pipeline")
    assert {*tables} == {*TABLES}
    assert len(tables["fact_published"].to_table()) == sum(map(sum, sample.DAYS))


def test_the_page_shows_what_its_blocks_print(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop)
    blocks = BLOCK.findall(PAGE.read_text("utf-8"))
    assert len(blocks) > 10
    for text, printed, expected in shown(blocks, {}):
        assert _lines(printed) == _lines(expected), text


def test_the_questions_of_the_page_are_those_of_the_file() -> None:
    text = PAGE.read_text("utf-8")
    for title, query in named("questions.sql").items():
        assert f"## {title}\n" in text
        assert query in text, title


def test_no_row_of_the_shop_breaks_a_rule(db: duckdb.DuckDBPyConnection) -> None:
    checks = named("checks.sql")
    assert {title: db.sql(query).fetchall() for title, query in checks.items()} == {title: [] for title in checks}
    assert all(f"| {title} |" in PAGE.read_text("utf-8") for title in checks)


@pytest.mark.parametrize(
    ("damage", "rules"),
    [
        (
            "INSERT INTO fact_ended FROM fact_ended WHERE reason = 'settled' LIMIT 1",
            {"Each delivery ends at most once", "Each row is there once"},
        ),
        (
            "DELETE FROM fact_subscribed WHERE true; DELETE FROM intervals WHERE true",
            {"Each delivery ends at most once"},
        ),
        (
            "DELETE FROM fact_ended WHERE reason = 'dead' AND date = '2026-11-18'",
            {"Each dead letter of a stored message has an end"},
        ),
        (
            "DELETE FROM letters WHERE code = 'communication.timeout' AND date = '2026-11-19'",
            {"Each dead end has a dead letter, or was redriven or discarded"},
        ),
        ("INSERT INTO fact_published FROM fact_published LIMIT 1", {"Each row is there once"}),
    ],
)
def test_a_rule_that_is_broken_is_found(db: duckdb.DuckDBPyConnection, damage: str, rules: set[str]) -> None:
    db.execute(damage)
    assert {title for title, query in named("checks.sql").items() if db.sql(query).fetchall()} == rules


def test_the_queue_for_one_session_of_a_subject_has_the_name_of_the_subject(db: duckdb.DuckDBPyConnection) -> None:
    """Facts call it `one:client/till`; dead letters and the causes of the report, `client/till`."""
    db.execute(
        "UPDATE fact_ended SET receiver = 'one:client/till' WHERE receiver = 'client/till/1' AND reason = 'dead'"
    )
    db.execute("UPDATE letters SET receiver = 'client/till' WHERE receiver = 'client/till/1'")
    db.execute("UPDATE triage SET receiver = 'client/till' WHERE receiver = 'client/till/1'")
    broken = {title for title, query in named("checks.sql").items() if db.sql(query).fetchall()}
    assert broken == {"Each delivery ends at most once"}, "nothing was addressed to the queue"
    causes = db.sql(named("questions.sql")["What are the top causes of dead letters, by day?"]).fetchall()
    assert {(row[2], row[3]) for row in causes if row[3] is not None} == {("client/till", "receiver")}


def test_a_redrive_to_a_queue_succeeds_if_a_session_that_got_the_message_acknowledges_it(
    db: duckdb.DuckDBPyConnection,
) -> None:
    """Each message came back to the queue once before that."""
    db.execute("UPDATE fact_redriven SET session = 'group:/orders/* cooks'")
    returned = "SELECT * REPLACE ('returned' AS reason) FROM fact_ended"
    db.execute(f"INSERT INTO fact_ended {returned} WHERE log_id IN (SELECT log_id FROM fact_redriven)")
    found = db.sql(named("questions.sql")["How often does a redrive succeed?"]).fetchall()
    assert found == [("user.update.error", 5, 3, 1, 1, 60.0)]


@pytest.mark.parametrize(
    ("pattern", "channel", "matches"),
    [
        ("/a/b", "/a/b", True),
        ("/a/*", "/a/b", True),
        ("/a/*", "/a/b/c", False),
        ("/a/**", "/a/b/c", True),
        ("/a/**", "/a", False),
        ("/a/**", "/ab/c", False),
        ("/**", "/a", True),
        ("/*", "/a/b", False),
        ("/**", "/meta/connect", False),
        ("/**", "/__sys__/x", False),
        ("/**", "/returns/x", True),
    ],
)
def test_the_view_matches_channels_as_the_server_does(pattern: str, channel: str, matches: bool) -> None:
    with duckdb.connect() as db:
        db.register("fact_published", pa.table({"channel": [channel], "log_id": [7]}))
        db.register("intervals", pa.table({"pattern": [pattern], "session": ["joe"], "from_id": [0], "until_id": [9]}))
        view = (SQL / "views.sql").read_text("utf-8").partition("-- A receiver")[0]
        db.execute(view)
        assert bool(db.sql("FROM matches").fetchall()) is matches


def test_the_notebook_shows_what_it_prints(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREWEL_PIPELINE__DIR", str(shop / "data" / "pipeline"))
    monkeypatch.chdir(NOTEBOOK.parent)
    names: dict[str, Any] = {}
    cells = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec("".join(cell["source"]), names)
        assert _lines(out.getvalue()) == _lines("".join("".join(each["text"]) for each in cell["outputs"]))
    assert sum(bool(cell["outputs"]) for cell in cells) == len(named("questions.sql"))
    with pytest.raises(FileNotFoundError, match="does CREWEL_PIPELINE__DIR name its directory"):
        names["table"]("gold/none")


def test_the_notebook_asks_the_same_questions() -> None:
    text = "".join("".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"])
    assert [title for title, query in named("questions.sql").items() if title not in text or query not in text] == []
