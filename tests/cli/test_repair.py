"""Damaged files of the server's own store: what `serve`, `doctor --repair`, `backup` and `restore --force` say and do."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.cli.command import assert_refused, crewel
from tests.conftest import StartServer
from tests.functional.bayeux import Client
from tests.functional.wire import readiness
from tests.store_process import until

MESSAGES = 5
OWN_STORE = ("storage.url=", "storage.prefix=crewel:")


@pytest.fixture
def left(start_server: StartServer, tmp_path: Path) -> list[str]:
    """What a server has stored that has ended: the ids of its messages. Its directory is `data`."""
    server = start_server(*OWN_STORE)
    publisher = Client(server)
    publisher.handshake()
    ids = [published(publisher) for _ in range(MESSAGES)]
    assert server.terminate() == 0
    return ids


def published(publisher: Client) -> str:
    message = publisher.message("/a", data=1, ext={"publish": {"persistent": True}})
    answer = publisher.send(message)[-1]
    assert answer["successful"] is True, answer
    return str(answer["ext"]["publish"]["id"])


def appended(directory: Path) -> Path:
    (file,) = (directory / "data" / "appendonlydir").glob("*.incr.aof")
    return file


def damage(directory: Path, log_id: str) -> None:
    """Write over some bytes in front of this message."""
    file = appended(directory)
    text = bytearray(file.read_bytes())
    place = (
        text.index(b"EVALSHA") if b"EVALSHA" in text else text.rindex(b"XADD", 0, text.index(f"{log_id}-0".encode()))
    )
    text[place - 6 : place - 4] = b"!!"
    file.write_bytes(text)


def test_repair_cuts_a_tail_after_it_has_asked(left: list[str], start_server: StartServer, tmp_path: Path) -> None:
    damage(tmp_path, left[3])
    refused = crewel("serve", "--port=0", directory=tmp_path)
    assert_refused(refused, "the store cannot read its files", "crewel doctor --repair", "crewel restore FILE --force")
    before = appended(tmp_path).read_bytes()
    asked = crewel("doctor", "--repair", directory=tmp_path, given="n\n")
    assert asked.status == 1
    assert f"{left[3]} of 20" in asked.out
    assert f"to {left[4]} of 20" in asked.out
    assert appended(tmp_path).read_bytes() == before
    done = crewel("doctor", "--repair", "--yes", directory=tmp_path)
    assert (done.status, done.err) == (0, "")
    assert "cut off, and kept in" in done.out
    (kept,) = (tmp_path / "data").glob("*.cut.*")
    assert appended(tmp_path).read_bytes() + kept.read_bytes() == before
    server = start_server(*OWN_STORE)
    assert "the store has lost messages that it had answered" in server.stderr
    assert readiness(server) == 200


def test_a_manifest_is_made_of_the_files_that_are_there(
    left: list[str], start_server: StartServer, tmp_path: Path
) -> None:
    manifest = tmp_path / "data" / "appendonlydir" / "appendonly.aof.manifest"
    before = manifest.read_text().split()
    manifest.unlink()
    refused = crewel("serve", "--port=0", directory=tmp_path)
    assert_refused(refused, "appendonly.aof.manifest is missing, and a store was here", left[-1])
    assert crewel("doctor", "--repair", "--yes", directory=tmp_path).status == 0
    assert manifest.read_text().split() == before
    server = start_server(*OWN_STORE)
    assert "lost" not in server.stderr


def test_files_that_are_gone_cannot_be_repaired_and_are_not_backed_up(left: list[str], tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "data" / "appendonlydir")
    assert left
    assert_refused(crewel("doctor", "--repair", "--yes", directory=tmp_path), "cannot be repaired, only restored")
    assert_refused(crewel("backup", "a.backup", directory=tmp_path), "appendonlydir is missing")
    assert not (tmp_path / "a.backup").exists()
    looked = crewel("doctor", directory=tmp_path)
    assert looked.status == 1
    assert "appendonlydir is missing" in looked.out


def test_a_backup_is_restored_in_place_of_damaged_files(
    left: list[str], start_server: StartServer, tmp_path: Path
) -> None:
    assert crewel("backup", "a.backup", directory=tmp_path).status == 0
    damage(tmp_path, left[1])
    assert_refused(crewel("restore", "a.backup", directory=tmp_path), "cannot read its files")
    restored = crewel("restore", "a.backup", "--force", directory=tmp_path)
    assert restored.status == 0
    assert "the damaged files of the store are now in" in restored.err
    assert list((tmp_path / "data").glob("appendonlydir.*"))
    server = start_server(*OWN_STORE)
    assert "has lost messages" not in server.stderr
    assert readiness(server) == 200


@pytest.mark.parametrize(("kept", "why"), [(-10, "cannot read its files"), (0, "appendonlydir lacks")])
def test_a_backup_is_restored_in_place_of_a_damaged_base_file(
    left: list[str], start_server: StartServer, tmp_path: Path, kept: int, why: str
) -> None:
    assert crewel("backup", "a.backup", directory=tmp_path).status == 0
    (base,) = (tmp_path / "data" / "appendonlydir").glob("*.base.rdb")
    base.write_bytes(base.read_bytes()[:kept])
    assert_refused(crewel("serve", "--port=0", directory=tmp_path), why, "crewel restore FILE --force")
    restored = crewel("restore", "a.backup", "--force", directory=tmp_path)
    assert restored.status == 0, restored.err
    assert "the damaged files of the store are now in" in restored.err
    server = start_server(*OWN_STORE)
    assert "has lost messages" not in server.stderr
    assert readiness(server) == 200
    assert left


@pytest.mark.parametrize("gone", [False, True], ids=["damaged", "gone"])
def test_a_restore_that_fails_puts_the_damaged_files_back(
    left: list[str], start_server: StartServer, tmp_path: Path, gone: bool
) -> None:
    """A server would take the empty store in their place for a new one."""
    assert crewel("backup", "a.backup", directory=tmp_path).status == 0
    if gone:
        shutil.rmtree(tmp_path / "data" / "appendonlydir")
    else:
        damage(tmp_path, left[1])
    before = contents_of(tmp_path / "data")
    small = "--set=storage.max_memory_bytes=1000000"  # the store itself needs more
    assert_refused(crewel("restore", "a.backup", "--force", small, directory=tmp_path), "has memory for 0 MiB")
    assert contents_of(tmp_path / "data") == before
    assert_refused(crewel("serve", "--port=0", directory=tmp_path), "crewel restore FILE --force")
    assert crewel("restore", "a.backup", "--force", directory=tmp_path).status == 0
    assert readiness(start_server(*OWN_STORE)) == 200


def contents_of(data: Path) -> dict[str, bytes]:
    """What lies in the files of the store, and in its marker."""
    files = [*data.rglob("appendonlydir*/*"), data / "contents.json"]
    return {str(file.relative_to(data)): file.read_bytes() for file in files}


def test_nothing_is_repaired_where_nothing_is_wrong(left: list[str], tmp_path: Path) -> None:
    assert left
    done = crewel("doctor", "--repair", directory=tmp_path)
    assert (done.status, done.err) == (0, "")
    assert "nothing to repair" in done.out


def test_a_base_file_is_not_called_readable(left: list[str], tmp_path: Path) -> None:
    """Only the store itself can read it."""
    assert left
    (base,) = (tmp_path / "data" / "appendonlydir").glob("*.base.rdb")
    base.write_bytes(base.read_bytes()[:-10])
    done = crewel("doctor", "--repair", directory=tmp_path)
    assert (done.status, done.err) == (0, "")
    assert "all files" not in done.out
    assert f"{base.name} was not examined: if the store cannot read it, restore a backup" in done.out


def test_files_of_a_store_that_runs_are_not_repaired(start_server: StartServer, tmp_path: Path) -> None:
    start_server(*OWN_STORE)
    assert_refused(crewel("doctor", "--repair", "--yes", directory=tmp_path), "the store runs there")


def test_no_store_is_not_repaired(tmp_path: Path) -> None:
    assert_refused(crewel("doctor", "--repair", directory=tmp_path), "there is no store to repair")
    assert not list(tmp_path.iterdir())


def test_a_server_whose_data_directory_vanishes_says_so_and_recovers(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(*OWN_STORE)
    publisher = Client(server)
    publisher.handshake()
    (tmp_path / "data").rename(tmp_path / "away")
    until(lambda: readiness(server) == 503)
    message = publisher.message("/a", data=1, ext={"publish": {"persistent": True}})
    assert publisher.send(message)[-1]["error"].startswith("503::resource.noMoreSpace")
    (tmp_path / "away").rename(tmp_path / "data")
    until(lambda: readiness(server) == 200)
    assert published(publisher)
    os.kill(server.pid, 15)
    assert server.wait() == 0
