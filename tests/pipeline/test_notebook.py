"""The notebook of the examples, run cell by cell over tables of a few rows."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from crewel.pipeline.schemas import TABLES
from tests.server_process import ROOT

NOTEBOOK = ROOT / "examples" / "python" / "tables.ipynb"
DAY = date(2026, 11, 20)


def write(root: Path, name: str, *rows: dict[str, Any]) -> None:
    path = root / TABLES[name].path
    path.parent.mkdir(parents=True)
    write_deltalake(path, pa.Table.from_pylist([*rows]))


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joe, ann = "client/joe/1", "client/ann/1"
    dead = {"date": DAY, "receiver": joe, "reason": "dead", "code": "user.update.error"}
    write(tmp_path, "fact_ended", dead, dead, {"date": DAY, "receiver": ann, "reason": "settled", "code": None})
    minutes = [datetime(2026, 11, 20, 8, minute, tzinfo=UTC) for minute in (1, 59)]
    write(tmp_path, "latency", *({"minute": each, "channel": "/a", "count": 2, "p99_ms": 5.0} for each in minutes))
    write(tmp_path, "backlog", *({"minute": each, "waiting": each.minute} for each in minutes))
    monkeypatch.setenv("CREWEL_PIPELINE__DIR", str(tmp_path))
    found: dict[str, Any] = {}
    cells = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        exec("".join(cell["source"]), found)
    assert found["ends"]["messages"].tolist() == [2, 1]
    assert found["dead"].to_dict("records") == [{"receiver": joe, "code": "user.update.error", "letters": 2}]
    assert found["slow"].to_dict("records") == [{"channel": "/a", "messages": 4, "worst_p99_ms": 5.0}]
    assert found["waiting"]["waiting"].tolist() == [59]
    assert all(not cell["outputs"] for cell in cells), "what it showed somewhere else"
    with pytest.raises(FileNotFoundError, match="does CREWEL_PIPELINE__DIR name its directory"):
        found["table"]("gold/none")


@pytest.mark.parametrize("page", [NOTEBOOK, ROOT / "examples" / "README.md", ROOT / "docs" / "how-to" / "pipeline.md"])
def test_the_command_that_installs_the_readers_brings_what_they_import(page: Path) -> None:
    """deltalake hands its rows over by pyarrow, which it does not bring unless asked."""
    (words,) = re.findall(r"pip install ([^`\n]*deltalake[^`\n]*)", page.read_text("utf-8"))
    assert {"'deltalake[pyarrow]'", "pandas", "duckdb"} <= {*words.split()}
