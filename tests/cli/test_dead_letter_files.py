"""Dead letters as files, on disks that fail."""

import errno
import json
import os
from pathlib import Path
from typing import IO, Any, Self

import pytest

from crewel.cli.dead_letter_files import write_file
from crewel.errors import CrewelError

pytestmark = pytest.mark.unit

LETTER: dict[str, Any] = {
    "id": "7",
    "receiver": "/node/heron/client/joe/1",
    "rcvTimestamp": "1795190671003112001",
    "channel": "/a",
    "data": {"n": 1},
    "qos": {},
    "ext": {},
    "persistent": True,
}


class FullDisk:
    """A file on a disk that has no room for its content."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, content: bytes) -> None:
        """Write a part of it."""
        self._file.write(content[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def files(directory: Path) -> list[Path]:
    """All files below this directory."""
    return [each for each in directory.rglob("*") if each.is_file()]


def test_a_dead_letter_whose_write_failed_is_written_by_the_next_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: Any = Path.open
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda *given: FullDisk(opened(*given)))
        with pytest.raises(CrewelError, match="No space left on device"):
            write_file(LETTER, tmp_path)
    assert files(tmp_path) == []
    assert write_file(LETTER, tmp_path)
    (file,) = files(tmp_path)
    assert json.loads(file.read_bytes())["data"] == {"n": 1}


@pytest.mark.parametrize("has_links", [True, False])
def test_a_dead_letter_that_is_there_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    if not has_links:
        monkeypatch.setattr(os, "link", refused)
    assert write_file(LETTER, tmp_path)
    (file,) = files(tmp_path)
    file.write_text("changed")
    assert not write_file(LETTER, tmp_path)
    assert file.read_text() == "changed"


def test_two_dumps_at_once_write_a_dead_letter_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def quicker(_: Path, file: Path) -> None:
        file.write_text("of the other")
        raise FileExistsError

    monkeypatch.setattr(os, "link", quicker)
    assert not write_file(LETTER, tmp_path)
    (file,) = files(tmp_path)
    assert file.read_text() == "of the other"
