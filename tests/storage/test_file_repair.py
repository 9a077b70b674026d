"""The end of a file of the store that cannot be read is found, cut off, and kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from crewel.storage.file_repair import cut_off, examine

SET = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n"
ADD = b"*5\r\n$4\r\nXADD\r\n$12\r\n{crewel}:log\r\n$%d\r\n%d-0\r\n$1\r\nb\r\n$1\r\nx\r\n"


def entry(log_id: int) -> bytes:
    return ADD % (len(str(log_id)) + 2, log_id)


@pytest.mark.parametrize(
    ("text", "begins", "messages"),
    [
        (b"", 0, ()),
        (SET, len(SET), ()),
        (SET + SET[:-1], len(SET), ()),
        (SET + b"#TS:1795190671\r\n" + SET, 2 * len(SET) + 16, ()),
        (SET + b"nonsense" + entry(17) + entry(18), len(SET), (17, 18)),
        (SET + b"*1\r\n$5\r\nMULTI\r\n" + entry(17), len(SET), (17,)),
        (b"*1\r\n$5\r\nMULTI\r\n" + SET + b"*1\r\n$4\r\nEXEC\r\n", len(SET) + 29, ()),
        (SET + b"*2\r\n$3\r\nSET\r\n$x\r\n", len(SET), ()),
        (SET + b"*0\r\n", len(SET), ()),
    ],
    ids=["empty", "whole", "short", "notes", "damage", "open transaction", "transaction", "no length", "no words"],
)
def test_a_tail_begins_where_commands_end(tmp_path: Path, text: bytes, begins: int, messages: tuple[int, ...]) -> None:
    file = tmp_path / "a.incr.aof"
    file.write_bytes(text)
    tail = examine(file)
    assert (tail.begins, tail.size, tail.messages) == (begins, len(text) - begins, messages)


def test_a_tail_is_cut_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "files" / "a.incr.aof"
    file.parent.mkdir()
    file.write_bytes(SET + b"nonsense" + entry(1_795_190_671_003_112))
    tail = examine(file)
    assert "with 1 messages, 1795190671003112 of 2026-11-20T" in str(tail)
    kept = cut_off(tail)
    assert file.read_bytes() == SET
    assert kept.read_bytes() == b"nonsense" + entry(1_795_190_671_003_112)
    assert kept.parent == tmp_path
