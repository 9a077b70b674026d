"""What the notebook and the pages tell to install. `test_analysing` runs them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.server_process import ROOT

NOTEBOOK = ROOT / "examples" / "python" / "tables.ipynb"
PAGES = ROOT / "docs" / "how-to"


@pytest.mark.parametrize(
    "page", [NOTEBOOK, ROOT / "examples" / "README.md", PAGES / "pipeline.md", PAGES / "analysing.md"]
)
def test_the_command_that_installs_the_readers_brings_what_they_import(page: Path) -> None:
    """deltalake hands its rows over by pyarrow, which it does not bring unless asked."""
    (words,) = re.findall(r"pip install ([^`\n]*deltalake[^`\n]*)", page.read_text("utf-8"))
    assert {"'deltalake[pyarrow]'", "pandas", "duckdb"} <= {*words.split()}
