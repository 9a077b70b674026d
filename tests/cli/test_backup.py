"""`crewel backup` and `crewel restore`: a round trip over a real store, and what is refused."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import resource
import shlex
import signal
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from crewel.storage.keys import FORMAT
from tests.cli.command import Ended, Running, assert_refused, crewel
from tests.conftest import StartServer
from tests.server_process import LIMIT_S
from tests.store_process import PROGRAM, StoreProcess, shared_store, until

FAR = 4_000_000_000_000  # milliseconds; the year 2096

_numbers = itertools.count(1)


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    with shared_store().client() as client:
        yield client


@pytest.fixture
def prefix() -> str:
    """A prefix that nobody else uses."""
    return f"backup{next(_numbers)}:"


def run(command: str, file: Path, prefix: str, *more: str, url: str | None = None) -> Ended:
    """Run backup or restore on the shared store."""
    sets = (f"--set=storage.url={shared_store().url if url is None else url}", f"--set=storage.prefix={prefix}")
    return crewel(command, str(file), *sets, *more, directory=file.parent)


def assert_done(ended: Ended, *words: str) -> None:
    """Assert that the command went well and said so in one line with these words."""
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.count("\n") == 1
    for word in words:
        assert word in ended.out


def fill(client: redis.Redis, prefix: str) -> None:
    """Put a key of each type there, with all bytes, with a lifetime, and with streams that have lost entries."""
    base = prefix + "{crewel}:"
    every_byte = bytes(range(256))
    client.set(base + "format", FORMAT)
    client.set(base + "last", 1234)
    client.set(base + "k:/a joe 7", 99)
    client.pexpireat(base + "k:/a joe 7", FAR)
    client.sadd(base + "own:abc", *(f"client/joe/{number}" for number in range(1200)), every_byte)
    client.zadd(base + "dead:channels", dict.fromkeys([*(f"/{number}" for number in range(1200)), every_byte], 0))
    client.zadd(base + "expiry", {"17 /a": 1_795_000_000_123, "18 /a": 0})
    client.hset(base + "s:client/joe/1", mapping={f"o:{number}": every_byte for number in range(1200)})
    with client.pipeline(transaction=False) as pipe:
        for number in range(1, 1201):
            pipe.xadd(base + "log", {"c": "/a", "b": every_byte, "q": ""}, id=f"{number}-0")
        pipe.execute()
    client.xtrim(base + "log", minid="100-0", approximate=False)
    client.xdel(base + "log", "700-0", "1200-0")
    client.xadd(base + "dead", {"a": "b"}, id="5-0")
    client.xtrim(base + "dead", maxlen=0, approximate=False)


def contents(client: redis.Redis, prefix: str) -> dict[bytes, Any]:
    """Return everything under a prefix, by names less the prefix, but for the note that it was backed up."""
    base = (prefix + "{crewel}:").encode()
    found: dict[bytes, Any] = {}
    for name in {*client.scan_iter(match=base + b"*", count=1000)} - {base + b"backed-up"}:
        kind = client.type(name)
        value: Any
        if kind == b"string":
            value = client.get(name)
        elif kind == b"set":
            value = client.smembers(name)
        elif kind == b"zset":
            value = client.zrange(name, 0, -1, withscores=True)
        elif kind == b"hash":
            value = client.hgetall(name)
        else:
            about = client.xinfo_stream(name)
            value = (
                client.xrange(name),
                about["last-generated-id"],
                about["entries-added"],
                about["max-deleted-entry-id"],
            )
        found[name.removeprefix(base)] = (value, client.pexpiretime(name))
    return found


def restored(client: redis.Redis, prefix: str) -> dict[bytes, Any]:
    """Return everything that a restore has put there, less the moment of the restore, which must be there as well."""
    found = contents(client, prefix)
    moment, expiry = found.pop(b"restored")
    assert (abs(int(moment) / 1000 - time.time()) < LIMIT_S, expiry) == (True, -1)
    return found


def test_a_round_trip_brings_everything_back_under_another_prefix_too(
    client: redis.Redis, prefix: str, tmp_path: Path
) -> None:
    fill(client, prefix)
    client.set(f"x{prefix}other", "not of this prefix")
    before = contents(client, prefix)
    assert len(before) == 9
    file = tmp_path / "a.backup"
    assert_done(
        run("backup", file, prefix),
        f"{file}: 9 keys: 1 session, 1,099 messages, 0 dead letters",
        f"{file.stat().st_size:,} bytes",
    )
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["a.backup"]
    assert abs(time.time() - float(client.get(f"{prefix}{{crewel}}:backed-up") or 0)) < 600  # type: ignore[arg-type]
    assert contents(client, prefix) == before
    assert_done(run("restore", file, f"again-{prefix}"), "9 keys: 1 session,", f"prefix 'again-{prefix}'")
    assert restored(client, f"again-{prefix}") == before


@pytest.mark.parametrize("permitted", ["+config", "-config"])
def test_a_backup_is_of_the_database_of_the_address(
    client: redis.Redis, prefix: str, tmp_path: Path, permitted: str
) -> None:
    """Others may use the other databases: a copy of the store has these as well."""
    fill(client, prefix)
    before = contents(client, prefix)
    client.acl_setuser("eve", enabled=True, passwords=["+secret"], commands=["+@all", permitted], keys=["*"])
    url = shared_store().url.replace("unix://", "unix://eve:secret@")
    third = f"{url}?db=3"
    file = tmp_path / "a.backup"
    try:
        assert_done(run("backup", file, prefix), "9 keys")
        assert_done(run("restore", file, prefix, url=third), "9 keys")
        client.delete(*client.keys(f"{prefix}*"))
        assert_done(run("backup", file, prefix, url=third), "10 keys")  # with the moment of the restore
        assert_refused(run("backup", file, prefix, url=url), "no server has stored anything there")
        assert_done(run("restore", file, prefix), "10 keys")
        assert restored(client, prefix) == before
    finally:
        with redis.Redis(unix_socket_path=str(shared_store().socket), db=3) as other:
            other.flushdb()


def test_a_server_with_its_own_store_starts_from_what_was_restored(
    client: redis.Redis, prefix: str, start_server: StartServer, tmp_path: Path
) -> None:
    client.set(prefix + "{crewel}:format", FORMAT)
    client.set(prefix + "{crewel}:last", 1234)
    file = tmp_path / "a.backup"
    assert run("backup", file, prefix).status == 0
    assert run("restore", file, "crewel:", url="").status == 0
    server = start_server("storage.url=", "storage.prefix=crewel:")
    again = tmp_path / "b.backup"
    assert_done(
        run("backup", again, "crewel:", url=""), f"{again}: ", f"the store {tmp_path / 'data'}, prefix 'crewel:'"
    )
    assert server.returncode is None
    assert b"1234" in gzip.decompress(again.read_bytes())


def test_a_backup_is_of_one_instant_while_others_write(client: redis.Redis, prefix: str, tmp_path: Path) -> None:
    """A script changes a stream, a hash and a string together; so they fit together in the backup, too."""
    fill(client, prefix)
    base = prefix + "{crewel}:"
    step = client.register_script(
        "local n = redis.call('INCR', KEYS[1]) redis.call('HSET', KEYS[2], 'n', n)"
        " redis.call('XADD', KEYS[3], n .. '-0', 'n', n) return n"
    )
    ended = threading.Event()

    def keep_writing() -> None:
        with shared_store().client() as other:
            while not ended.is_set():
                step(keys=[base + "names", base + "node:abc", base + "facts"], client=other)

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        before = int(client.get(base + "names") or 0)
        backed_up = run("backup", tmp_path / "a.backup", prefix)
        after = int(client.get(base + "names") or 0)
    finally:
        ended.set()
        writer.join(10)
    assert_done(backed_up)
    assert run("restore", tmp_path / "a.backup", f"then-{prefix}").status == 0
    found = contents(client, f"then-{prefix}")
    number = int(found[b"names"][0])
    assert before < number < after
    assert found[b"node:abc"][0] == {b"n": b"%d" % number}
    assert found[b"facts"][0][1] == b"%d-0" % number
    assert len(found[b"facts"][0][0]) == number


def test_a_store_that_holds_something_is_left_alone_unless_forced(
    client: redis.Redis, prefix: str, tmp_path: Path
) -> None:
    fill(client, prefix)
    file = tmp_path / "a.backup"
    run("backup", file, prefix)
    before = contents(client, prefix)
    client.set(prefix + "{crewel}:epoch", 7)
    assert_refused(run("restore", file, prefix), "the store has keys", "--force")
    assert client.get(prefix + "{crewel}:epoch") == b"7"
    assert_done(run("restore", file, prefix, "--force"))
    assert restored(client, prefix) == before


def test_a_store_that_a_server_uses_is_left_alone(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server("storage.url=", "storage.prefix=crewel:")
    file = tmp_path / "a.backup"
    assert run("backup", file, "crewel:", url="").status == 0
    assert_refused(run("restore", file, "crewel:", "--force", url=""), "a server is using this store")
    server.terminate()
    assert run("restore", file, "crewel:", "--force", url="").status == 0


def test_a_store_that_a_server_would_not_trust_is_not_restored_to(
    client: redis.Redis, prefix: str, tmp_path: Path
) -> None:
    fill(client, prefix)
    file = tmp_path / "a.backup"
    run("backup", file, prefix)
    ended = run("restore", file, prefix, url=f"unix://{tmp_path}/none.sock")
    assert_refused(ended, "the store cannot be reached", "start it, or correct storage.url")


def whole(client: redis.Redis, prefix: str, file: Path) -> bytes:
    fill(client, prefix)
    assert run("backup", file, prefix).status == 0
    return file.read_bytes()


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.999])
def test_a_file_that_was_cut_off_is_refused(client: redis.Redis, prefix: str, tmp_path: Path, part: float) -> None:
    file = tmp_path / "a.backup"
    text = whole(client, prefix, file)
    file.write_bytes(text[: int(len(text) * part)])
    assert_refused(run("restore", file, f"cut-{prefix}"), "a.backup")
    assert not contents(client, f"cut-{prefix}")


@pytest.mark.parametrize("place", [0, 20, 500, -6])
def test_a_damaged_file_is_refused(client: redis.Redis, prefix: str, tmp_path: Path, place: int) -> None:
    file = tmp_path / "a.backup"
    text = bytearray(whole(client, prefix, file))
    text[place] ^= 0xFF
    file.write_bytes(text)
    assert_refused(run("restore", file, f"damaged-{prefix}"), "a.backup")
    assert not contents(client, f"damaged-{prefix}")


HEAD = b"*4\r\n$13\r\ncrewel-backup\r\n$1\r\n1\r\n$1\r\n%d\r\n$1\r\n1\r\n" % FORMAT
SET = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n"
END = b"*2\r\n$3\r\nend\r\n$1\r\n%d\r\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "not a backup of Crewel"),
        (SET + END % 1, "not a backup of Crewel"),
        (HEAD, "cut off"),
        (HEAD + SET, "cut off"),
        (HEAD + SET + END % 2, "damaged"),
        (HEAD + SET + END % 1 + SET, "damaged"),
        (HEAD + b"nonsense\r\n", "not a backup"),
        (HEAD + b"*1\r\n$8\r\nFLUSHALL\r\n" + END % 1, "other commands"),
        (HEAD + b"*1\r\n$3\r\nSET\r\n" + END % 1, "other commands"),
        (HEAD.replace(b"$1\r\n1", b"$1\r\n2", 1) + END % 0, "newer version"),
        (HEAD.replace(b"%d\r\n" % FORMAT, b"%d\r\n" % (FORMAT + 1)) + END % 0, "newer version"),
        (HEAD.replace(b"%d\r\n" % FORMAT, b"%d\r\n" % (FORMAT - 1)) + END % 0, "not a backup of Crewel"),
    ],
)
def test_restore_refuses_a_file_with_other_contents(prefix: str, tmp_path: Path, text: bytes, words: str) -> None:
    file = tmp_path / "a.backup"
    file.write_bytes(gzip.compress(text))
    assert_refused(run("restore", file, prefix), "a.backup", words)


def test_an_interrupted_restore_is_noticed_by_the_next_server(client: redis.Redis, prefix: str, tmp_path: Path) -> None:
    """The format comes last."""
    client.set(prefix + "{crewel}:last", 7)
    ended = crewel(
        "serve", "--port=0", f"--set=storage.url={shared_store().url}", f"--set=storage.prefix={prefix}",
        directory=tmp_path,
    )  # fmt: skip
    assert_refused(ended, "interrupted restore")


def test_an_interrupted_restore_leaves_a_mark_until_it_is_repeated(
    client: redis.Redis, prefix: str, tmp_path: Path
) -> None:
    fill(client, prefix)
    file = tmp_path / "a.backup"
    run("backup", file, prefix)
    client.acl_setuser("ann", enabled=True, passwords=["+secret"], commands=["+@all", "-xadd"], keys=["*"])
    url = shared_store().url.replace("unix://", "unix://ann:secret@")
    assert_refused(run("restore", file, f"again-{prefix}", url=url), "xadd")
    assert contents(client, f"again-{prefix}")[b"format"] == (b"restoring", -1)
    assert_refused(run("backup", tmp_path / "b.backup", f"again-{prefix}"), "a restore has begun there")
    assert_refused(run("restore", file, f"again-{prefix}"), "--force")
    assert_done(run("restore", file, f"again-{prefix}", "--force"))
    assert restored(client, f"again-{prefix}") == contents(client, prefix)


def test_a_key_that_crewel_does_not_make_is_not_lost_silently(client: redis.Redis, prefix: str, tmp_path: Path) -> None:
    client.rpush(prefix + "{crewel}:list", 1)
    file = tmp_path / "a.backup"
    assert_refused(run("backup", file, prefix), "the key list is a list")
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_told_in_one_line(prefix: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sets = (f"--set=storage.url={shared_store().url}", f"--set=storage.prefix={prefix}")
    ended = crewel("backup", str(tmp_path / "none" / "a"), *sets, directory=tmp_path)
    assert_refused(ended, "No such file or directory")


def test_a_store_that_does_not_let_itself_be_copied_is_told_in_one_line(
    client: redis.Redis, prefix: str, tmp_path: Path
) -> None:
    client.acl_setuser("joe", enabled=True, passwords=["+secret"], commands=["+@all", "-sync", "-psync"], keys=["*"])
    url = shared_store().url.replace("unix://", "unix://joe:secret@")
    ended = run("backup", tmp_path / "a.backup", prefix, url=url)
    assert_refused(ended, "the store refuses to be copied")


# What is not there, and what is not replaced


def test_no_store_is_no_backup(tmp_path: Path) -> None:
    """As from cron, which does not run in the working directory of the server. Nothing is made."""
    ended = crewel("backup", "a.backup", directory=tmp_path)
    assert_refused(ended, f"{tmp_path / 'data'}: there is no store", "--set storage.data_dir=DIRECTORY")
    assert not list(tmp_path.iterdir())


def test_a_settings_file_elsewhere_does_not_move_the_data_directory(tmp_path: Path) -> None:
    (tmp_path / "crewel.toml").write_text("[http]\nport = 0\n")
    here = tmp_path / "here"
    here.mkdir()
    ended = crewel("backup", "a.backup", "--config=../crewel.toml", directory=here)
    assert_refused(ended, f"{here / 'data'}: there is no store", "storage.data_dir=./data is relative")
    assert "--config" not in ended.err


def test_a_prefix_under_which_nothing_is_kept_is_no_backup(prefix: str, tmp_path: Path) -> None:
    assert_refused(run("backup", tmp_path / "a.backup", prefix), "no server has stored anything there", prefix)
    assert not list(tmp_path.iterdir())


def test_an_empty_backup_is_not_restored(client: redis.Redis, prefix: str, tmp_path: Path) -> None:
    """With --force it would remove everything."""
    fill(client, prefix)
    before = contents(client, prefix)
    file = tmp_path / "a.backup"
    file.write_bytes(gzip.compress(HEAD + END % 0))
    assert_refused(run("restore", file, prefix, "--force"), "a.backup is empty")
    assert contents(client, prefix) == before


def test_leases_of_servers_are_not_part_of_a_backup(client: redis.Redis, prefix: str, tmp_path: Path) -> None:
    fill(client, prefix)
    client.set(prefix + "{crewel}:lease:abc", "{}")
    file = tmp_path / "a.backup"
    assert_done(run("backup", file, prefix), "9 keys")
    assert b"lease" not in gzip.decompress(file.read_bytes())


def test_a_backup_replaces_no_link_and_nothing_behind_it(client: redis.Redis, prefix: str, tmp_path: Path) -> None:
    fill(client, prefix)
    kept = tmp_path / "kept"
    kept.write_text("mine")
    link = tmp_path / "link"
    link.symlink_to(kept)
    assert_refused(run("backup", link, prefix), "link is a link: give the file itself", str(kept))
    assert link.is_symlink()
    assert kept.read_text() == "mine"


@pytest.mark.parametrize("kind", ["pipe", "directory"])
def test_a_backup_replaces_nothing_but_files(client: redis.Redis, prefix: str, tmp_path: Path, kind: str) -> None:
    fill(client, prefix)
    target = tmp_path / kind
    os.mkfifo(target) if kind == "pipe" else target.mkdir()
    before = target.lstat()
    assert_refused(run("backup", target, prefix), "is not a regular file")
    assert os.path.samestat(target.lstat(), before)


def test_a_device_stays_a_device(tmp_path: Path) -> None:
    sets = (f"--set=storage.url={shared_store().url}",)
    assert_refused(crewel("backup", "/dev/null", *sets, directory=tmp_path), "/dev/null is not a regular file")
    assert Path("/dev/null").is_char_device()
    assert not [path for path in Path("/dev").iterdir() if path.name.startswith(".null")]


# Stores that are slow, too small, or on a full disk


@pytest.fixture
def other_store(tmp_path: Path) -> Iterator[StoreProcess]:
    """A store of the test's own, in `store`."""
    (tmp_path / "store").mkdir()
    store = StoreProcess(tmp_path / "store")
    yield store
    store.close()


def test_a_store_that_stalls_does_not_end_a_restore(
    client: redis.Redis, prefix: str, other_store: StoreProcess, tmp_path: Path
) -> None:
    """As when its disk is slow to sync what came. A server gives it two seconds."""
    fill(client, prefix)
    file = tmp_path / "a.backup"
    run("backup", file, prefix)
    sets = (f"--set=storage.url={other_store.url}", f"--set=storage.prefix={prefix}")
    with other_store.client() as stalled:
        stalled.client_pause(600_000, all=False)  # what writes
        restoring = Running("restore", str(file), *sets, directory=tmp_path)
        until(
            lambda: (
                restoring.process.poll() is not None
                or any(each["name"] == "crewel/visitor" and int(each["idle"]) >= 3 for each in stalled.client_list())
            )
        )
        stalled.client_unpause()
        assert restoring.end() == (0, "")
        assert restored(stalled, prefix) == contents(client, prefix)


def test_a_backup_that_cannot_fit_is_refused_before_anything_changes(
    client: redis.Redis, prefix: str, other_store: StoreProcess, tmp_path: Path
) -> None:
    base = prefix + "{crewel}:"
    client.set(base + "format", FORMAT)
    client.set(base + "k:x", bytes(8_000_000))
    file = tmp_path / "a.backup"
    run("backup", file, prefix)
    with other_store.client() as small:
        small.set("live", 1)
        small.config_set("maxmemory", small.info("memory")["used_memory"] + 1_000_000)
        refused = run("restore", file, prefix, url=other_store.url)
        assert_refused(refused, "about 8 MiB or more", "has memory for 0 MiB", "storage.max_memory_bytes")
        assert small.keys() == [b"live"]
        small.set(base + "format", FORMAT)
        small.set(base + "last", 7)
        assert_refused(run("restore", file, prefix, "--force", url=other_store.url), "about 8 MiB or more")
        small.config_set("maxmemory", 8_400_000)  # from nine tenths of it on, a store counts as full
        assert_refused(run("restore", file, prefix, "--force", url=other_store.url), "has memory for 7 MiB")
        assert contents(small, prefix) == {b"format": (b"%d" % FORMAT, -1), b"last": (b"7", -1)}


@pytest.mark.parametrize("replaces", [False, True])
def test_a_backup_for_which_the_space_does_not_suffice_leaves_nothing(
    client: redis.Redis, prefix: str, other_store: StoreProcess, tmp_path: Path, replaces: bool
) -> None:
    """Short members take several times as much in the store as in the file. Where other data was, no server begins."""
    base = prefix + "{crewel}:"
    client.set(base + "format", FORMAT)
    client.zadd(base + "expiry", {f"m{number}": 0 for number in range(40_000)})
    file = tmp_path / "a.backup"
    run("backup", file, prefix)
    with other_store.client() as small:
        if replaces:
            small.set(base + "format", FORMAT)
        small.config_set("maxmemory", small.info("memory")["used_memory"] + 1_000_000)
        refused = run("restore", file, prefix, *(["--force"] if replaces else []), url=other_store.url)
        assert_refused(refused, "has no space for the backup, and keeps nothing of it", "storage.max_memory_bytes")
        assert contents(small, prefix) == ({b"format": (b"restoring", -1)} if replaces else {})


def test_a_store_on_a_full_disk_is_backed_up(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit for the size of files is met as a full disk; a shell lets a write beyond it fail."""
    program = tmp_path / "store-with-a-quota"
    program.write_text(f"#!/bin/sh\ntrap '' XFSZ\nexec {shlex.quote(PROGRAM)} \"$@\"\n")
    program.chmod(0o755)
    monkeypatch.setattr("tests.store_process.PROGRAM", str(program))
    (tmp_path / "store").mkdir()
    store = StoreProcess(tmp_path / "store", appendfsync="everysec")
    try:
        with store.client() as client:
            fill(client, prefix)
            resource.prlimit(store.pid, resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
            client.set("x", 1)
            until(lambda: client.info("persistence")["aof_last_write_status"] == "err")
            backed_up = run("backup", tmp_path / "a.backup", prefix, url=store.url)
            looked = crewel("doctor", "--json", f"--set=storage.url={store.url}", directory=tmp_path)
            resource.prlimit(store.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    finally:
        store.close()
    assert backed_up.status == 0
    assert "9 keys" in backed_up.out
    assert backed_up.err.startswith("crewel: the store could not note that it was backed up: ")
    found = {each["check"]: each for each in map(json.loads, looked.out.splitlines())}
    assert found["durability"]["state"] == "wrong"
    assert "MISCONF" in found["durability"]["found"]


# What a backup leaves that does not end by itself


@pytest.fixture
def silent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a store that takes connections and never answers, for longer than a test."""
    place = tmp_path_factory.mktemp("silent") / "store.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen()
        yield f"unix://{place}?socket_timeout={2 * LIMIT_S:g}"


def begin(file: Path, url: str) -> Running:
    """Start a backup of this store; it has begun when this returns."""
    running = Running("backup", str(file), f"--set=storage.url={url}", directory=file.parent)
    until(lambda: list(file.parent.glob(f".{file.name}-????????/crewel-backup.lock")))
    return running


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_backup_that_is_ended_by_a_signal_leaves_nothing(silent: str, tmp_path: Path, number: signal.Signals) -> None:
    running = begin(tmp_path / "a.backup", silent)
    assert running.end(number) == (128 + number, "")
    assert not list(tmp_path.iterdir())


def test_what_a_killed_backup_has_left_is_removed_by_the_next_one_to_its_file(
    client: redis.Redis, prefix: str, silent: str, tmp_path: Path
) -> None:
    """Not what belongs to one that runs, or to another file."""

    def unfinished() -> set[str]:
        return {path.name[: -len("-12345678")] for path in tmp_path.glob(".*")}

    fill(client, prefix)
    file, other = tmp_path / "a.backup", tmp_path / "a.backup-b"
    running = begin(file, silent)
    begin(other, silent).end(signal.SIGKILL)
    assert run("backup", file, prefix).status == 0
    assert unfinished() == {".a.backup", ".a.backup-b"}
    running.end(signal.SIGKILL)
    assert run("backup", file, prefix).status == 0
    assert unfinished() == {".a.backup-b"}
    assert run("backup", other, prefix).status == 0
    assert unfinished() == set()
