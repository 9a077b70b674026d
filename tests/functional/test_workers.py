"""`crewel serve --workers N`: a request reaches the worker that has its session, whatever worker accepted the connection."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import trustme

from crewel.workers.parent import _COME_BACK_S
from tests.admin.alert_rules import HERON, LATER, SOON, Alert, Story, said_by
from tests.cli.command import assert_refused, crewel
from tests.conftest import StartServer
from tests.functional.bayeux import Client, Message, data
from tests.functional.cluster import LONG, TOKEN
from tests.functional.frames import SocketClient
from tests.functional.people import Person
from tests.functional.wire import Connection, chunked, figures, request_bytes, until
from tests.ports import free_port
from tests.server_process import Server, processes
from tests.store_process import own_prefix, shared_store

LATE_S = 0.2
"""So late may this process see what another one has done."""
PERSISTENT: dict[str, Any] = {"ext": {"publish": {"persistent": True}}}


@contextmanager
def only(server: Server, number: int) -> Iterator[None]:
    """Connections that are opened in here are accepted by this worker (0 or 1): the other one is stopped."""
    other = processes(server)[1 - number]
    os.kill(other, signal.SIGSTOP)
    try:
        until(lambda: Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        yield
    finally:
        os.kill(other, signal.SIGCONT)


def opened_at(server: Server, number: int) -> Connection:
    """A connection that this worker has accepted."""
    with only(server, number):
        connection = Connection(server)
        assert connection.get("/health/live").status == 200
    return connection


def forwarded(server: Server) -> float:
    """How many requests and frames workers have forwarded to each other."""
    return sum(value for name, value in figures(server).items() if name.startswith("crewel_forwarded_total{"))


@pytest.fixture
def server(workers: Server) -> Server:
    """Two workers, of which these tests stop one now and then: its lease is longer than that."""
    return workers


@pytest.fixture
def person(server: Server) -> Person:
    """A client whose session is the first worker's."""
    made = Person(server)
    made._command = opened_at(server, 0)
    made._polling = opened_at(server, 0)
    made.be()
    made.subscribe("/a")
    return made


def connect(person: Person, **fields: Any) -> bytes:
    """The body of a connect of this session."""
    message = person.message("/meta/connect", connectionType="long-polling", advice={"timeout": 0}, **fields)
    return json.dumps([message]).encode()


def test_all_workers_are_one_server_to_operators(server: Server, tmp_path: Path) -> None:
    ended = crewel("nodes", "--url", server.base, "--json", directory=tmp_path, environ={"CREWEL_TOKEN": TOKEN})
    listed = [json.loads(line) for line in ended.out.splitlines()]
    assert {int(each["process"].split()[0]) for each in listed} == set(processes(server))
    names = sorted(each["node"] for each in listed)
    assert [name.rpartition("-")[2] for name in names] == ["1", "2"]
    found = figures(server)
    assert {name for name in found if name.startswith("crewel_nodes")} == {
        f'crewel_nodes{{worker="{number}"}}' for number in (1, 2)
    }
    with Connection(server) as connection:
        assert connection.get("/health/ready").json() == {"status": "ready"}


def test_a_request_reaches_the_worker_with_the_session(server: Server, person: Person) -> None:
    before = forwarded(server)
    connection = opened_at(server, 1)
    for _ in range(3):
        (reply,) = connection.post("/cometd", connect(person), person.all_headers()[1:]).messages
        assert reply["successful"] is True, reply
    assert forwarded(server) == before + 3


def test_a_connection_to_another_worker_delivers(server: Server, person: Person) -> None:
    person._polling = opened_at(server, 1)
    person.publish("/a", "stored", **PERSISTENT)
    person.publish("/a", "not stored")
    assert data(person.take_all()) == ["stored", "not stored"]


def test_requests_that_wait_behind_a_forwarded_one_are_answered_in_their_order(server: Server, person: Person) -> None:
    connection = opened_at(server, 1)
    headers = person.all_headers()
    connection.send(b"".join(request_bytes("POST", "/cometd", connect(person), headers) for _ in range(5)))
    for _ in range(5):
        assert connection.response().messages[-1]["successful"] is True


def test_a_request_as_long_as_it_may_be_is_forwarded(server: Server, person: Person) -> None:
    connection = opened_at(server, 1)
    text = "x" * 60_000
    body = json.dumps([person.message("/a", data=text)]).encode()
    connection.send(2 * request_bytes("POST", "/cometd", body, person.all_headers()))
    for _ in range(2):
        assert connection.response().messages[-1]["successful"] is True
    assert data(person.take_all()) == [text, text]


def test_a_chunked_request_is_forwarded(server: Server, person: Person) -> None:
    connection = opened_at(server, 1)
    body = connect(person)
    headers = [*person.all_headers(), ("Transfer-Encoding", "chunked")]
    connection.request("POST", "/cometd", chunked(body[:20], body[20:]), headers)
    assert connection.response().messages[-1]["successful"] is True
    assert connection.post("/cometd", connect(person), person.all_headers()[1:]).messages[-1]["successful"] is True


@pytest.mark.parametrize("deflates", [False, True])
def test_a_websocket_to_another_worker_delivers(server: Server, person: Person, *, deflates: bool) -> None:
    before = forwarded(server)
    headers = [("Cookie", f"BAYEUX_BROWSER={person.cookie}")]
    if deflates:
        headers.append(("Sec-WebSocket-Extensions", "permessage-deflate"))
    with only(server, 1):
        client = SocketClient(server, headers=headers)
    client.id = person.id
    assert client.connect(advice={"timeout": 0})["successful"] is True
    assert forwarded(server) == before + 1
    client.ask_connect()
    person.publish("/a", "x" * 1000)
    assert client.heard() == ["x" * 1000]


def test_a_session_that_no_worker_has_is_unknown_at_once(server: Server, person: Person) -> None:
    assert person.id is not None
    stranger = Person(server)
    for unknown in ("no-tag", person.id[:5] + "x" + person.id[6:], person.id[:-8] + "00000000"):
        stranger.id = unknown
        (reply,) = stranger.connect(advice={"timeout": 0})
        assert (reply["successful"], reply["error"][:3]) == (False, "402")


def test_two_sessions_of_two_workers_share_a_connection(server: Server, person: Person) -> None:
    other = Person(server)
    other._command = other._polling = opened_at(server, 1)
    other.be()
    shared = Connection(server)
    for each in (person, other, person, other):
        (reply,) = shared.post("/cometd", connect(each), each.all_headers()[1:]).messages
        assert reply["successful"] is True, reply


def test_a_worker_that_dies_is_replaced_and_its_sessions_live_on(start_server: StartServer) -> None:
    server = start_server("cluster.workers=2", LONG)
    person = Person(server)
    person._command = opened_at(server, 0)
    person._polling = opened_at(server, 0)
    person.be()
    person.subscribe("/a")
    other = Client(server)
    other._command = opened_at(server, 1)
    other.handshake()
    victim = processes(server)[0]
    os.kill(victim, signal.SIGKILL)
    person.forget_connections()
    other.publish("/a", 1, **PERSISTENT)
    messages: list[Message] = []
    while not messages:
        messages = person.take()
    assert data(messages) == [1]
    until(lambda: len(processes(server)) == 2, 60)
    assert victim not in processes(server)
    os.kill(server.pid, signal.SIGKILL)
    pids = processes(server)
    server.kill()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 60)


def test_a_socket_outlives_the_worker_of_its_session(start_server: StartServer) -> None:
    server = start_server("cluster.workers=2", LONG)
    person, publisher = Person(server), Client(server)
    person._command = person._polling = opened_at(server, 0)
    person.be()
    person.subscribe("/a")
    publisher._command = publisher._polling = opened_at(server, 1)
    publisher.handshake()
    with only(server, 1):
        client = SocketClient(server, headers=[("Cookie", f"BAYEUX_BROWSER={person.cookie}")])
    client.id = person.id
    assert client.connect(advice={"timeout": 0}, ext={"ack": person.batch})["successful"] is True
    held = client.ask_connect(ext={"ack": person.batch})
    os.kill(processes(server)[0], signal.SIGKILL)
    publisher.publish("/a", 1, **PERSISTENT)
    assert client.reply_to(held, 30)["successful"] is True
    assert client.heard() == [1]


def test_the_address_of_the_store_is_in_no_command_line_of_a_worker(tmp_path: Path) -> None:
    """It may hold a password, and all users of the machine can read command lines."""
    url = shared_store().url
    (tmp_path / "crewel.toml").write_text(f'[storage]\nurl = "{url}"\nprefix = "{own_prefix()}"\n')
    environ = {name: value for name, value in os.environ.items() if not name.startswith("CREWEL_")}
    command = [sys.executable, "-m", "crewel", "serve", "--port=0", "--workers=2"]
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline().startswith(b"ready ")
            pids = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
            lines = [line for pid in pids if "--inherited" in (line := Path(f"/proc/{pid}/cmdline").read_text())]
            assert len(lines) == 2
            assert not [line for line in lines if url in line]
        finally:
            parent.terminate()
    assert parent.returncode == 0


def test_the_next_worker_is_replaced_when_clients_of_the_one_before_had_time_to_come_back(
    start_server: StartServer,
) -> None:
    """A start takes a second of the processor, which they need."""
    server = start_server("cluster.workers=2", LONG)
    first, second = processes(server)
    os.kill(server.pid, signal.SIGHUP)
    until(lambda: first not in processes(server), 60)
    ended = monotonic()
    until(lambda: len(set(processes(server)) - {first, second}) == 2, 60)
    assert monotonic() - ended > _COME_BACK_S - LATE_S
    until(lambda: second not in processes(server), 60)
    assert server.close() == 0


def test_each_worker_takes_over_the_sessions_of_the_one_it_replaces(start_server: StartServer) -> None:
    """Else one would have all of them in the end, and the others none."""
    server = start_server("cluster.workers=2", LONG, "bayeux.max_interval_ms=60000")
    for number, count in enumerate((2, 1)):
        for _ in range(count):
            person = Person(server)
            person._command = person._polling = opened_at(server, number)
            person.be()
    first = processes(server)

    def by_worker() -> list[float]:
        found = figures(server)
        return [found[f'crewel_sessions{{worker="{number}"}}'] for number in (1, 2)]

    assert by_worker() == [2, 1]
    os.kill(server.pid, signal.SIGHUP)
    until(lambda: len(set(processes(server)) - set(first)) == 2 and not set(processes(server)) & set(first), 60)
    until(lambda: sum(by_worker()) == 3)
    assert by_worker() == [2, 1]


@pytest.mark.parametrize("advertises", [False, True])
def test_workers_with_fixed_ports_reach_each_other_before_and_after_a_reload(
    start_server: StartServer, *, advertises: bool
) -> None:
    """A successor runs beside the one that it replaces, so it cannot have its port."""
    address = f"127.0.0.1:{free_port()}"
    server = start_server(
        "cluster.workers=2", LONG, f"cluster.listen={address}", *[f"cluster.advertise={address}"] * advertises
    )

    def check() -> None:
        person = Person(server)
        person._command = person._polling = opened_at(server, 0)
        person.be()
        (reply,) = opened_at(server, 1).post("/cometd", connect(person), person.all_headers()[1:]).messages
        assert reply["successful"] is True, reply

    check()
    former = set(processes(server))
    os.kill(server.pid, signal.SIGHUP)
    until(lambda: len(set(processes(server)) - former) == 2 and not former & set(processes(server)), 60)
    check()


@pytest.mark.parametrize(
    ("sets", "why"),
    [
        (["storage.enabled=false"], "cluster.workers needs storage.enabled"),
        (["cluster.workers=0"], "cluster.workers"),
        (["cluster.advertise=a.example:7080"], "give cluster.listen a port too"),
    ],
)
def test_what_workers_cannot_do_is_refused(sets: list[str], why: str, tmp_path: Path) -> None:
    options = [f"--set={each}" for each in ["cluster.workers=2", *sets]]
    assert_refused(crewel("serve", "--port=0", *options, directory=tmp_path), why)


def test_an_encrypted_request_is_forwarded(start_server: StartServer, tmp_path: Path) -> None:
    authority, file = trustme.CA(), tmp_path / "both.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(file)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    server = start_server("cluster.workers=2", LONG, f"http.tls_cert={file}", f"http.tls_key={file}")

    def connection(number: int) -> Connection:
        with only(server, number):
            return Connection(server, tls=context, host="localhost")

    person = Person(server)
    person._command = person._polling = connection(0)
    person.be()
    reply = connection(1).post("/cometd", connect(person), person.all_headers()[1:]).messages[-1]
    assert reply["successful"] is True, reply


FRAGILE = """
from pathlib import Path

from crewel import Service

if Path("broken").exists():
    raise SystemExit("the service is broken")
fragile = Service("fragile")
"""


def test_a_worker_that_cannot_start_again_does_not_end_the_others(start_server: StartServer, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    (tmp_path / "fragile_service.py").write_text(FRAGILE)
    server = start_server("cluster.workers=2", LONG, f"admin.token={TOKEN}", service="fragile_service")
    healthy, victim = processes(server)
    story = Story()
    story.step(LATER, said_by(server))
    person = Person(server)
    person._command = person._polling = opened_at(server, 0)
    person.be()
    broken.touch()
    os.kill(victim, signal.SIGKILL)
    until(lambda: "has not started 5 times in a row" in server.stderr, 60)
    assert "1 of 2 serve" in server.stderr
    until(lambda: figures(server)['crewel_workers_failing{worker="1"}'] == 1)
    # The other worker takes its sessions over, as those of a node that is gone.
    gone = [
        Alert("CrewelWorkerIsDown", f"1 worker of {HERON} does not run"),
        Alert("CrewelNodeIsGone", f"{HERON} misses 1 node that shared its store within the last hour"),
    ]
    story.step(SOON, said_by(server), fires=gone)
    person.subscribe("/a")
    person.publish("/a", 1, **PERSISTENT)
    assert data(person.take()) == [1]
    connection = Connection(server)
    assert connection.get("/health/ready").status == 200
    seen = connection.get("/admin/api/overview", [("Authorization", f"Bearer {TOKEN}")]).json()
    assert "worker-failing" in [each["key"] for each in seen["findings"]]
    broken.unlink()
    until(lambda: figures(server).get('crewel_workers_failing{worker="2"}') == 0, 60)
    assert healthy in processes(server)
    until(lambda: "worker 2 serves again" in server.stderr)  # the parent logs it after it has sent the figure
    until(lambda: all(figures(server)[f'crewel_nodes{{worker="{number}"}}'] == 2 for number in (1, 2)))
    story.step(LATER, said_by(server))
    story.check(tmp_path)


def test_workers_that_do_not_start_end_their_parent(tmp_path: Path) -> None:
    ended = crewel("serve", "--port=0", "--workers=2", "--service=there.is.none", directory=tmp_path)
    assert ended.status == 1
    assert "there.is.none" in ended.err
    assert "before it served; its own message says why" in ended.err.splitlines()[-1]
    assert not ended.out
