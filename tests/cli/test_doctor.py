"""`crewel doctor`: what it finds in order, what it finds wrong, and how it ends."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from crewel.check_result import State
from crewel.cli import diagnosis, host_checks
from crewel.cli.doctor import _collect
from crewel.settings import load
from tests.cli.command import Ended, Running, crewel
from tests.conftest import StartServer
from tests.functional.wire import until
from tests.store_group import WatchedStore
from tests.store_process import StoreProcess, own_prefix, shared_store

CHECKS = [
    "store", "durability", "fsync", "memory", "load", "overcommit", "huge pages", "format", "clock", "descriptors",
    "data directory", "address",
]  # fmt: skip
OF_MACHINE = {"load", "descriptors", "overcommit", "huge pages"}
"""What depends on where the tests run."""


def examined(ended: Ended) -> dict[str, dict[str, str]]:
    """Return the findings by what was looked at."""
    return {finding["check"]: finding for finding in map(json.loads, ended.out.splitlines())}


def doctor(directory: Path, *sets: str) -> Ended:
    return crewel("doctor", "--json", *(f"--set={text}" for text in sets), directory=directory)


@pytest.fixture
def bad_store(tmp_path: Path) -> Iterator[StoreProcess]:
    """A store that forgets in every way, and is nearly full."""
    directory = tmp_path / "bad"
    directory.mkdir()
    store = StoreProcess(directory, appendonly="no", maxmemory_policy="allkeys-lru", maxmemory="1mb")
    yield store
    store.close()


def test_doctor_makes_nothing_where_no_server_has_run(tmp_path: Path) -> None:
    ended = doctor(tmp_path)
    assert (ended.status, ended.err) == (0, "")
    found = examined(ended)
    assert list(found) == CHECKS
    assert {finding["state"] for name, finding in found.items() if name not in OF_MACHINE | {"store"}} == {"ok"}
    assert found["store"]["state"] == "warning"
    assert found["store"]["found"].startswith(f"there is no store in {tmp_path / 'data'}; valkey 9")
    assert "storage.data_dir=./data is relative to the working directory" in found["store"]["advice"]
    assert not list(tmp_path.iterdir())


def test_requests_that_would_wait_longer_than_a_session_lives_are_reported(tmp_path: Path) -> None:
    found = examined(doctor(tmp_path, "cluster.workers=2", "bayeux.max_interval_ms=4000"))["waiting"]
    assert found["state"] == "warning"
    assert "requests wait for 2000 ms" in found["found"]
    assert "cluster.hold_ms" in found["advice"]


def test_the_store_of_a_server_is_not_looked_for_beside_its_settings_file(
    start_server: StartServer, tmp_path: Path
) -> None:
    """The data directory is relative to the working directory of the server, where another one is warned about."""
    (tmp_path / "crewel.toml").write_text("[security]\npolicy = 'open'\n")
    start_server("storage.url=", "storage.prefix=crewel:")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "data").mkdir(mode=0o700, parents=True)  # as a start that failed leaves it
    for directory, state in ((tmp_path, "ok"), (elsewhere, "warning")):
        ended = crewel("doctor", "--json", f"--config={tmp_path / 'crewel.toml'}", directory=directory)
        store = examined(ended)["store"]
        assert (ended.status, store["state"]) == (0, state)
        assert str(directory / "data") in store["found"]
        assert "--config" not in store["advice"]
    assert not list((elsewhere / "data").iterdir())


def test_a_running_server_is_not_disturbed(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server("storage.url=", "storage.prefix=crewel:")
    ended = doctor(tmp_path)
    found = examined(ended)
    assert ended.status == 0, ended
    assert {*CHECKS, "disk"} <= set(found)
    assert server.returncode is None
    assert "the store is unavailable" not in server.stderr


def test_a_doctor_that_is_ended_by_a_signal_leaves_no_store_that_it_has_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials, program = tmp_path / "trials", tmp_path / "store"
    trials.mkdir()
    program.write_text(f"#!/bin/sh\n: > '{tmp_path}/started'\nexec sleep 600\n")
    program.chmod(0o700)
    monkeypatch.setenv("TMPDIR", str(trials))
    running = Running("doctor", f"--set=storage.server_binary={program}", directory=tmp_path)
    until((tmp_path / "started").exists)
    assert list(trials.glob("crewel-doctor-*"))
    assert running.end(signal.SIGTERM) == (143, "")
    assert not list(trials.iterdir())


def test_doctor_prints_a_table_for_people(tmp_path: Path) -> None:
    ended = crewel("doctor", directory=tmp_path)
    heading, *rows = ended.out.splitlines()
    assert heading.split() == ["check", "state", "found", "advice"]
    assert [check for row in rows if (check := row.split("  ")[0])] == CHECKS  # a long cell has several lines


def test_a_store_without_persistence_is_wrong_with_advice(bad_store: StoreProcess, tmp_path: Path) -> None:
    ended = doctor(tmp_path, f"storage.url={bad_store.url}")
    found = examined(ended)
    assert ended.status == 1
    assert ended.err == ""
    assert "appendonly yes" in found["durability"]["found"]
    assert all(finding["advice"] for finding in found.values() if finding["state"] in ("wrong", "warning"))
    wrong = [name for name, finding in found.items() if finding["state"] == "wrong"]
    assert wrong == ["durability", "fsync", "memory"]
    assert found["fsync"]["advice"] == "set `appendfsync always`"
    assert "raise maxmemory" in found["memory"]["advice"]


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_fsync_every_second_is_fine_if_it_is_set(tmp_path: Path, fsync: str) -> None:
    found = examined(doctor(tmp_path, f"storage.fsync={fsync}"))["fsync"]
    assert found["found"].startswith(f"{fsync}: ")
    assert found["state"] == "ok"


def test_a_store_that_hides_its_configuration_is_unknown(tmp_path: Path) -> None:
    with shared_store().client() as client:
        client.acl_setuser("shy", enabled=True, passwords=["+secret"], commands=["+@all", "-config"], keys=["*"])
    url = shared_store().url.replace("unix://", "unix://shy:secret@")
    ended = doctor(tmp_path, f"storage.url={url}")
    found = examined(ended)
    assert (ended.status, found["fsync"]["state"]) == (0, "unknown")
    assert "secret" not in ended.out


def test_another_format_of_the_store_is_wrong(tmp_path: Path) -> None:
    with shared_store().client() as client:
        client.set("doctor:{crewel}:format", 99)
    found = examined(doctor(tmp_path, f"storage.url={shared_store().url}", "storage.prefix=doctor:"))
    assert found["format"]["state"] == "wrong"
    assert "use the newer version" in found["format"]["found"]


def test_an_unusable_store_is_wrong_and_the_rest_is_examined(tmp_path: Path) -> None:
    ended = doctor(tmp_path, "storage.server_binary=/none")
    found = examined(ended)
    assert ended.status == 1
    assert found["store"]["state"] == "wrong"
    assert found["store"]["found"] == "storage.server_binary /none: no such program"
    assert "descriptors" in found


def test_doctor_warns_that_the_store_is_switched_off(tmp_path: Path) -> None:
    ended = doctor(tmp_path, "storage.enabled=false")
    assert ended.status == 0
    assert examined(ended)["store"]["state"] == "warning"


def test_files_that_others_can_read_are_wrong(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    (tmp_path / "data" / "admin.token").write_text("secret\n")
    (tmp_path / "data" / "admin.token").chmod(0o640)
    found = examined(doctor(tmp_path))
    assert found["data directory"]["advice"] == "chmod 700 data"
    assert found["admin token"]["advice"] == "chmod 600 data/admin.token"
    assert found["admin token"]["state"] == found["data directory"]["state"] == "wrong"


@pytest.mark.parametrize(("limit", "state"), [(100, "wrong"), (1024, "warning"), (10_000, "ok")])
def test_few_descriptors_are_a_finding(tmp_path: Path, limit: int, state: str) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    ended = subprocess.run(
        ["/bin/sh", "-c", f'ulimit -Sn {limit}; exec "$@"', "sh", sys.executable, "-m", "crewel", "doctor", "--json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    found = examined(Ended(ended.returncode, ended.stdout, ended.stderr))["descriptors"]
    assert (found["state"], found["found"]) == (state, f"{limit:,}")
    assert state == "ok" or f"at most {hard:,} here" in found["advice"]


def test_a_managed_store_is_not_called_durable(bad_store: StoreProcess, tmp_path: Path) -> None:
    with bad_store.client() as client:
        client.config_set("maxmemory-policy", "noeviction")
    found = examined(doctor(tmp_path, f"storage.url={bad_store.url}", "storage.durability=managed"))
    assert found["durability"]["state"] == "unknown"
    assert "has no append-only file" in found["durability"]["found"]


def test_a_store_that_can_fail_over_is_shown_with_all_that_could_be_lost(tmp_path: Path) -> None:
    place = tmp_path / "stores"
    place.mkdir()
    stores = WatchedStore(place)
    prefix = own_prefix()
    sets = (f"storage.url={stores.url}", f"storage.prefix={prefix}")
    try:
        fact = json.dumps({"node": "heron", "from": 1_000_000, "until": 2_000_000})
        with stores.primary.client() as client:
            client.hset(f"{prefix}{{crewel}}:losses", mapping={"times": 1, "messages": 7, "newest": fact})
        found = examined(doctor(tmp_path, *sets, "storage.replicas=1", "cluster.tails=replica"))
        assert found["tails"]["state"] == "ok"
        assert "2 of 2 replicas can be reached" in found["tails"]["found"]
        assert (found["durability"]["state"], found["sentinels"]["state"]) == ("ok", "ok")
        assert found["sentinels"]["found"].startswith("3 of 3 sentinels name 127.0.0.1:")
        assert found["fail-over"]["state"] == "warning"
        assert "2 replicas, 1 of them awaited" in found["fail-over"]["found"]
        assert "7 messages in all" in found["losses"]["found"]
        assert found["copy delay"]["state"] == "ok"
        with stores.primary.client() as client:
            client.config_set("repl-diskless-sync-delay", 5)
        found = examined(doctor(tmp_path, *sets, "storage.replicas=2"))
        assert found["copy delay"]["state"] == "warning"
        assert found["copy delay"]["found"].startswith("5 s: ")
        assert "repl-diskless-sync-delay 0" in found["copy delay"]["advice"]
        for sentinel in stores.sentinels[1:]:
            sentinel.kill()
        for server in stores.servers.values():
            with server.client() as client:
                client.config_set("min-replicas-to-write", 0)
        found = examined(doctor(tmp_path, *sets, "storage.replicas=2"))
        assert found["sentinels"]["state"] == "wrong"
        assert "fail-over" not in found
        assert "min-replicas-to-write 1" in found["durability"]["found"]
    finally:
        stores.close()


@pytest.mark.parametrize(
    ("sets", "state", "words"),
    [
        (["http.host=127.0.0.1"], "ok", "only this machine reaches it"),
        (["http.host=0.0.0.0"], "wrong", "the server does not start"),
        (["http.host=0.0.0.0", "security.allow_open=true"], "warning", "every client may use any name"),
        (["http.host=0.0.0.0", "security.policy=jwt", "security.jwt_keys=keys"], "warning", "without TLS"),
        (
            [
                "http.host=0.0.0.0",
                "security.policy=jwt",
                "security.jwt_keys=keys",
                "http.trusted_proxies=10.0.0.0/8",
            ],
            "ok",
            "with a token (security.policy=jwt)",
        ),
    ],
    ids=["loopback", "refused", "open", "plain", "proxy"],
)
@pytest.mark.unit
def test_the_address_is_judged_by_who_can_reach_it(sets: list[str], state: str, words: str) -> None:
    [found] = host_checks.of_access(load(None, sets))
    assert (found.check, found.state) == ("address", state)
    assert words in found.found
    assert bool(found.advice) is (state != "ok")


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "state", "words"),
    [
        ("s" * 32, "ok", "verifies them"),
        ("secret", "wrong", "a secret has at least 32 bytes"),
        (None, "wrong", "cannot be read"),
    ],
)
def test_the_keys_of_tokens_are_examined(tmp_path: Path, text: str | None, state: str, words: str) -> None:
    file = tmp_path / "jwt.secret"
    if text is not None:
        file.write_text(text)
    settings = load(None, ["security.policy=jwt", f"security.jwt_keys={file}"])
    found = host_checks.keys_of(settings.security)
    assert (found.check, found.state, bool(found.advice)) == ("tokens", state, state != "ok")
    assert words in found.found


@pytest.mark.unit
@pytest.mark.parametrize(
    ("sets", "state", "advice"),
    [
        ([], "warning", "set http.trusted_proxies to the address of the proxy"),
        (["http.trusted_proxies=127.0.0.1"], "warning", "set bayeux.cookie_secure=true"),
        (["http.trusted_proxies=127.0.0.1", "bayeux.cookie_secure=true"], "ok", ""),
    ],
)
def test_the_cookie_behind_a_tls_proxy_is_examined(sets: list[str], state: str, advice: str) -> None:
    _, found = host_checks.of_access(load(None, ["http.public_url=https://chat.example.org", *sets]))
    assert (found.check, found.state, found.advice) == ("cookie", state, advice)


HTTPS = ["http.tls_cert=none.pem", "http.tls_key=none.pem"]
JSONP = ["bayeux.transports=long-polling,callback-polling"]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("sets", "state", "words"),
    [
        ([], None, ""),
        (["http.allowed_origins=https://app.example.net"], None, ""),
        (["http.allowed_origins=*"], None, ""),
        (["bayeux.cookie_same_site=none"], "warning", "over https only"),
        (["bayeux.cookie_partitioned=true"], "warning", "over https only"),
        ([*HTTPS, "bayeux.cookie_same_site=none"], "warning", "block"),
        ([*HTTPS, "bayeux.cookie_same_site=none", "bayeux.cookie_partitioned=true"], None, ""),
        ([*JSONP, "http.allowed_origins=https://app.example.net"], None, ""),
        ([*JSONP, "http.allowed_origins=*"], "warning", "callback-polling"),
    ],
)
def test_what_keeps_pages_of_other_sites_from_their_sessions_is_found(
    sets: list[str], state: str | None, words: str
) -> None:
    found = [each for each in host_checks.of_access(load(None, sets)) if each.check == "other sites"]
    assert [each.state for each in found] == ([] if state is None else [state])
    for each in found:
        assert words in each.found
        assert each.advice


@pytest.mark.unit
@pytest.mark.parametrize(
    ("days", "state", "words"),
    [
        (-1, "wrong", "expired on 2030-01-31"),
        (13, "warning", "valid until 2030-01-31"),
        (15, "ok", "valid until 2030-01-31"),
        (400, "wrong", "not valid before 2029-01-01"),
    ],
)
def test_a_certificate_that_ends_soon_is_a_finding(tmp_path: Path, days: int, state: str, words: str) -> None:
    since, until = datetime(2029, 1, 1, tzinfo=UTC), datetime(2030, 1, 31, tzinfo=UTC)
    file = tmp_path / "server.pem"
    file.write_bytes(trustme.CA().issue_cert("localhost", not_before=since, not_after=until).cert_chain_pems[0].bytes())
    found = host_checks.certificate_of(file, until - timedelta(days=days))
    assert (found.state, found.found) == (state, f"{file}: {words}")


@pytest.mark.unit
def test_a_file_without_a_certificate_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("no certificate")
    for name, words in (("key.pem", "no certificate in PEM"), ("none.pem", "No such file or directory")):
        found = host_checks.certificate_of(tmp_path / name, datetime.now(UTC))
        assert (found.state, found.found) == ("wrong", f"{tmp_path / name}: {words}")


@pytest.mark.unit
@pytest.mark.parametrize(
    ("mode", "used", "state"), [("0", 99, "ok"), ("0", 100, "warning"), ("1", 100, "ok"), ("2", 1, "warning")]
)
def test_a_store_that_could_not_fork_is_a_finding(mode: str, used: int, state: str) -> None:
    assert host_checks.overcommit_of(mode, used, available=100).state == state


@pytest.mark.unit
def test_huge_pages_are_a_finding_unless_the_store_turns_them_off() -> None:
    states = [
        host_checks.huge_pages_of(enabled, turns_off=turns_off).state
        for enabled in ("always [madvise] never", "[always] madvise never")
        for turns_off in (False, True)
    ]
    assert states == ["ok", "ok", "warning", "ok"]


def test_root_examines_the_files_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(tmp_path, 65534, 65534)
    owner = tmp_path.stat().st_uid
    states = []
    for user in (owner, 0, owner + 1):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        found = diagnosis._rights("data directory", tmp_path, 0o700)
        assert found is not None
        states.append(found.state)
    assert states == [State.OK, State.OK, State.WRONG]


def test_doctor_names_a_directory_that_it_may_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, stat = tmp_path / "data", Path.stat
    directory.mkdir(mode=0o700)

    def refused(path: Path, **options: bool) -> os.stat_result:
        if path.parent == directory:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refused)
    settings = load(overrides=[f"storage.data_dir={directory}"])
    found = {each.check: each for each in asyncio.run(_collect(settings))}
    assert found["store"].state is State.WRONG
    assert found["store"].found == f"{directory}: Permission denied: run this as the user of the server"
    assert found["data directory"].state is State.OK
    assert found["admin token"].state is State.UNKNOWN


@pytest.mark.unit
def test_a_credential_of_a_unit_is_there_only_while_the_unit_runs() -> None:
    file = "/run/credentials/crewel.service/jwt.secret"
    settings = load(overrides=["security.policy=jwt", f"security.jwt_keys={file}"])
    found = host_checks.keys_of(settings.security)
    assert (found.state, file in found.found, "only while it runs" in found.advice) == (State.WRONG, True, True)
