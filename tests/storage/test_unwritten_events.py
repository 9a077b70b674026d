"""What happened to a server and the store does not have yet outlives the server in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from crewel.storage.unwritten_events import UnwrittenEvents

EVENT = {"at": 1, "until": None, "node": "heron", "what": "store outage", "why": ["it is away"]}


def test_a_new_run_reads_what_the_one_before_has_left(tmp_path: Path) -> None:
    kept = UnwrittenEvents(tmp_path / "data", "heron")
    assert kept.read() == []
    kept.events = [EVENT]
    kept.save()
    assert UnwrittenEvents(tmp_path / "data", "heron").read() == [EVENT]
    assert UnwrittenEvents(tmp_path / "data", "ibis").read() == []
    kept.events = []
    kept.save()
    assert list((tmp_path / "data").iterdir()) == []
    kept.save()


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'"x"'])
def test_a_damaged_file_is_as_none(tmp_path: Path, content: bytes) -> None:
    kept = UnwrittenEvents(tmp_path, "heron")
    (tmp_path / "events-heron.json").write_bytes(content)
    assert kept.read() == []


def test_a_directory_that_cannot_be_written_is_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data").write_text("")
    kept = UnwrittenEvents(tmp_path / "data", "heron")
    kept.events = [EVENT]
    kept.save()
    assert kept.read() == []
    assert "events-heron.json" in caplog.text
