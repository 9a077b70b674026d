"""An operator's page that has signed out stays so: after a restart, at every worker, and for its live feed."""

from __future__ import annotations

import json
import os
import signal
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest

from crewel.security.sign_in import code
from tests.cli.command import crewel
from tests.faults.health import store_pid
from tests.functional.bayeux import Client
from tests.functional.cluster import OPERATED, TOKEN
from tests.functional.people import Person, refusal
from tests.functional.test_workers import opened_at
from tests.functional.wire import Connection, Response, until
from tests.server_process import Server

pytestmark = pytest.mark.server

EXPIRED = "user.security.authentication.expired"
NOTICES = "/__sys__notices"


class Page:
    """An operator's page, over one connection at a time."""

    def __init__(self, connection: Connection, **given: str) -> None:
        self.connection = connection
        self.cookie = ""
        response = self.asks("POST", "/sign-in", given or {"token": TOKEN})
        assert response.status == 200, response.body
        [(name, morsel)] = SimpleCookie(response.header("Set-Cookie") or "").items()
        self.cookie = f"{name}={morsel.value}"

    def asks(self, method: str, path: str, body: Any = None, connection: Connection | None = None) -> Response:
        return asked(connection or self.connection, method, path, body, Cookie=self.cookie)

    def is_signed_in(self, connection: Connection | None = None) -> bool:
        status = self.asks("GET", "/me", connection=connection).status
        assert status in (200, 401)
        return status == 200

    def signs_out(self) -> None:
        assert self.asks("POST", "/sign-out").status == 200

    def feed_token(self) -> str:
        token = self.asks("POST", "/feed").json()["token"]
        assert isinstance(token, str)
        return token


def asked(connection: Connection, method: str, path: str, body: Any = None, **headers: str) -> Response:
    content = b"" if body is None else json.dumps(body).encode()
    connection.request(method, f"/admin/api{path}", content, headers)
    return connection.response()


def feed(server: Server, token: str, *, acknowledges: bool = False, at: int | None = None) -> Person:
    """A page that follows the live feed, at one worker if that is said."""
    person = Person(server)
    person.acknowledges = acknowledges
    if at is not None:
        person._command, person._polling = opened_at(server, at), opened_at(server, at)
    assert person.shake(token=token)["successful"] is True
    person.take()
    person.subscribe(NOTICES)
    return person


def has_ended(person: Client) -> bool:
    reply = person.connect(advice={"timeout": 0})[-1]
    return reply["successful"] is False and reply["advice"]["reconnect"] in ("none", "handshake")


def restarted(server: Server, directory: Path) -> Server:
    sets = [f"--set={each}" for each in server.store_sets]
    server.end_well()
    return Server([f"--port={server.port}", f"--set={OPERATED}", *sets], directory)


def test_a_page_that_signed_out_is_out_after_a_restart(tmp_path: Path) -> None:
    server = Server(["--port=0", f"--set={OPERATED}"], tmp_path)
    gone, stays = Page(Connection(server)), Page(Connection(server))
    gone.signs_out()
    assert not gone.is_signed_in()
    server = restarted(server, tmp_path)
    assert not gone.is_signed_in(Connection(server))
    assert stays.is_signed_in(Connection(server))
    server.end_well()


def test_a_restored_backup_takes_back_no_sign_out_and_no_use_of_a_code(tmp_path: Path) -> None:
    """What happened after the backup is not known any more: all that was issued before the restore holds no more."""
    server = Server(["--port=0", f"--set={OPERATED}", "--set=bayeux.max_interval_ms=600000"], tmp_path)
    sets = [f"--set={each}" for each in server.store_sets]
    page, stays, used = Page(Connection(server)), Page(Connection(server)), code(TOKEN)
    person = feed(server, page.feed_token(), acknowledges=True)
    file = str(tmp_path / "a.backup")
    assert crewel("backup", file, *sets, directory=tmp_path).status == 0
    page.signs_out()
    Page(Connection(server), code=used)
    server.end_well()
    assert crewel("restore", file, "--force", *sets, directory=tmp_path).status == 0
    server = Server([f"--port={server.port}", f"--set={OPERATED}", *sets], tmp_path)
    assert [each.is_signed_in(Connection(server)) for each in (page, stays)] == [False, False]
    again = asked(Connection(server), "POST", "/sign-in", {"code": used})
    assert (again.status, "before a restore" in again.json()["message"]) == (401, True)
    assert Page(Connection(server), code=code(TOKEN)).is_signed_in()
    person.forget_connections()
    until(lambda: has_ended(person))  # the backup has its session
    server.end_well()


def test_a_code_signs_in_once_also_across_a_restart(tmp_path: Path) -> None:
    server = Server(["--port=0", f"--set={OPERATED}"], tmp_path)
    used, fresh = code(TOKEN), code(TOKEN)
    Page(Connection(server), code=used)
    server = restarted(server, tmp_path)
    again = asked(Connection(server), "POST", "/sign-in", {"code": used})
    assert (again.status, "has been used" in again.json()["message"]) == (401, True)
    assert Page(Connection(server), code=fresh).is_signed_in()  # it was printed before the restart, and not used
    server.end_well()


def test_without_a_store_a_sign_in_and_a_code_end_with_the_server(tmp_path: Path) -> None:
    sets = [f"--set={each}" for each in (OPERATED, "storage.enabled=false")]
    server = Server(["--port=0", *sets], tmp_path)
    used = code(TOKEN)
    page, gone = Page(Connection(server), code=used), Page(Connection(server))
    gone.signs_out()
    assert (page.is_signed_in(), gone.is_signed_in()) == (True, False)
    assert asked(Connection(server), "POST", "/sign-in", {"code": used}).status == 401
    server.end_well()
    server = Server([f"--port={server.port}", *sets], tmp_path)
    assert not page.is_signed_in(Connection(server))
    assert not gone.is_signed_in(Connection(server))
    assert asked(Connection(server), "POST", "/sign-in", {"code": used}).status == 401
    server.end_well()


def test_all_workers_obey_a_sign_out_and_take_a_code_once(workers: Server) -> None:
    used = code(TOKEN)
    page = Page(opened_at(workers, 0), code=used)
    again = asked(opened_at(workers, 1), "POST", "/sign-in", {"code": used})
    assert (again.status, "has been used" in again.json()["message"]) == (401, True)
    assert [page.is_signed_in(opened_at(workers, number)) for number in (0, 1)] == [True, True]
    page.signs_out()
    assert [page.is_signed_in(opened_at(workers, number)) for number in (0, 1) * 2] == [False] * 4


def test_a_live_feed_ends_with_its_page_at_every_worker(workers: Server) -> None:
    page, other = Page(opened_at(workers, 0)), Page(opened_at(workers, 0))
    feeds = [feed(workers, page.feed_token(), at=number) for number in (0, 1)]
    remaining = feed(workers, other.feed_token(), at=1)
    unused = page.feed_token()
    page.signs_out()
    assert has_ended(feeds[0])  # at once, at the worker of the sign-out
    until(lambda: has_ended(feeds[1]))
    assert not has_ended(remaining)
    for number in (0, 1):
        late = Person(workers)
        late._command = opened_at(workers, number)
        assert refusal(late.shake(token=unused))[1] == EXPIRED


def test_a_stored_feed_of_a_page_that_signed_out_meanwhile_ends_after_a_restart(tmp_path: Path) -> None:
    """The session has `ext.ack`, so it outlives the server; its page signs out before its client is back."""
    server = Server(["--port=0", f"--set={OPERATED}", "--set=bayeux.max_interval_ms=600000"], tmp_path)
    page = Page(Connection(server))
    person = feed(server, page.feed_token(), acknowledges=True)
    server = restarted(server, tmp_path)
    person.forget_connections()
    assert not has_ended(person)
    page.connection = Connection(server)
    page.signs_out()
    assert has_ended(person)
    server.end_well()


def test_a_sign_out_without_the_store_is_reported_and_follows_once_it_is_back(tmp_path: Path) -> None:
    server = Server(["--port=0", f"--set={OPERATED}", "--set=storage.url="], tmp_path)  # a store of its own
    page, other = Page(Connection(server)), Page(Connection(server))
    assert page.is_signed_in()
    assert other.is_signed_in()
    store = store_pid(server)
    os.kill(store, signal.SIGSTOP)
    try:
        said = page.asks("POST", "/sign-out")
        assert (said.status, "store" in said.json()["message"]) == (503, True)
        assert not page.is_signed_in(Connection(server))  # this server knows
        assert other.is_signed_in(Connection(server))  # which the store had confirmed before
    finally:
        os.kill(store, signal.SIGCONT)
    until(lambda: any(b"spent:" in file.read_bytes() for file in (tmp_path / "data").rglob("*.aof")))
    server = restarted(server, tmp_path)
    assert not page.is_signed_in(Connection(server))
    server.end_well()
