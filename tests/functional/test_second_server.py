"""Two servers and one store: the second is refused while the first lives, takes over when it is dead, and may be forced."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
import redis
from aiohttp import ClientSession, web

from crewel import server as crewel_server
from crewel.nodes.membership import Membership
from crewel.settings import Settings
from crewel.settings.storage import Cluster, Storage
from crewel.storage.keys import FORMAT
from tests.cli.command import Running, assert_refused, crewel
from tests.conftest import StartServer
from tests.faults.health import store_pid
from tests.functional.bayeux import Client
from tests.functional.wire import Address, readiness
from tests.patience import patience
from tests.server_process import Server
from tests.store_process import own_prefix, shared_store, until

OWN_STORE = "storage.url="
OTHER_MACHINE = {"node": "heron", "pid": 7, "host": "far", "machine": "x", "started": "1", "has_directory": False}


def publishes(server: Address) -> bool:
    """Whether the server takes a persistent message."""
    client = Client(server)
    client.handshake()
    message = client.message("/a", data=1, ext={"publish": {"persistent": True}})
    return client.send(message)[-1]["successful"] is True


def second(first: Server, *options: str) -> list[str]:
    return ["serve", *(f"--set={text}" for text in first.store_sets), "--set=log.level=warning", *options]


def test_a_second_server_of_one_address_is_refused_before_it_takes_the_store(
    start_server: StartServer, tmp_path: Path
) -> None:
    first = start_server(OWN_STORE)
    ended = crewel(*second(first, f"--port={first.port}"), directory=tmp_path)
    assert_refused(ended, "address already in use")
    assert publishes(first)
    assert readiness(first) == 200


@pytest.mark.parametrize("sets", [(OWN_STORE,), ()], ids=["own store", "separate store"])
def test_a_second_server_is_refused_while_the_first_lives(
    start_server: StartServer, tmp_path: Path, sets: tuple[str, ...]
) -> None:
    first = start_server(*sets, "cluster.lease_ms=4000")
    ended = crewel(*second(first, "--port=0"), directory=tmp_path)
    assert_refused(ended, "another server has the store", f"process {first.pid}", "crewel serve --take-over")
    assert publishes(first)
    assert readiness(first) == 200


@pytest.mark.parametrize("sets", [(OWN_STORE,), ()], ids=["own store", "separate store"])
def test_a_server_that_was_killed_is_followed_at_once(start_server: StartServer, sets: tuple[str, ...]) -> None:
    """The lease of the dead one would last for minutes."""
    first = start_server(*sets, "cluster.lease_ms=600000")
    assert publishes(first)
    first.kill()
    again = start_server(*first.store_sets, port=first.port)
    assert publishes(again)
    assert "waiting" not in again.stderr


def test_a_lease_is_renewed_as_soon_as_the_store_is_back(start_server: StartServer, tmp_path: Path) -> None:
    """The store may have been away for most of the lease, and other nodes take over as soon as it ends."""
    server = start_server(OWN_STORE, f"storage.data_dir={tmp_path / 'own'}", "cluster.lease_ms=600000")
    with redis.Redis(unix_socket_path=str(tmp_path / "own" / "store.sock")) as client:
        (lease,) = client.scan_iter("*lease:*")
        client.pexpire(lease, 300_000)

        def is_renewed() -> bool:
            with suppress(redis.ConnectionError):
                return int(client.pttl(lease)) > 300_000
            return False

        os.kill(store_pid(server), signal.SIGKILL)
        until(is_renewed)


def test_a_server_that_ended_in_order_leaves_no_lease(start_server: StartServer) -> None:
    first = start_server("cluster.lease_ms=600000")
    with shared_store().client() as client:
        prefix = first.store_sets[1].partition("=")[2]
        assert list(client.scan_iter(f"{prefix}*lease:*"))
        assert first.terminate() == 0
        assert not list(client.scan_iter(f"{prefix}*lease:*"))


@pytest.mark.parametrize("sets", [(OWN_STORE,), ()], ids=["own store", "separate store"])
def test_a_store_that_is_taken_ends_its_server_with_3(start_server: StartServer, sets: tuple[str, ...]) -> None:
    """It is idle, and learns of it all the same."""
    first = start_server(*sets, "cluster.lease_ms=1000")
    taker = start_server(*first.store_sets, arguments=["--take-over"])
    assert first.wait() == 3
    first.ended_by_test = True
    until(lambda: first.stderr.endswith("crewel: another server has taken the store\n"))  # a thread reads it
    assert "another server has taken over the store" in first.stderr
    assert f"process {first.pid}" in taker.stderr
    until(lambda: readiness(taker) == 200)  # a store of the first one's own has ended with it
    assert publishes(taker)


def leave_lease(client: redis.Redis, prefix: str, lasts_ms: int) -> str:
    """Put the lease of a server on another machine there; return its key."""
    base = prefix + "{crewel}:"
    client.set(base + "format", FORMAT)
    client.sadd(base + "nodes", "far")
    client.hset(base + "node:far", mapping={"name": "heron", "cursor": 0, "low": 0, "seq": 0, "epoch": 1})
    client.set(base + "lease:far", json.dumps(OTHER_MACHINE), px=lasts_ms)
    return base + "lease:far"


def test_the_lease_of_another_machine_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    prefix = own_prefix()
    sets = (f"--set=storage.url={shared_store().url}", f"--set=storage.prefix={prefix}")
    with shared_store().client() as client:
        lease = leave_lease(client, prefix, 600_000)
        running = Running("serve", "--port=0", *sets, directory=tmp_path)
        logged = iter(running.told, "")
        assert any("the store is leased to heron, process 7 on far: waiting up to" in line for line in logged)
        client.delete(lease)
    assert running.process.stdout is not None
    ready, _, url = running.process.stdout.readline().strip().partition(" ")
    assert ready == "ready"
    assert publishes(SimpleNamespace(port=urlsplit(url).port))
    assert running.end(signal.SIGTERM)[0] == 0


def test_a_server_on_another_machine_that_renews_its_lease_is_respected(tmp_path: Path) -> None:
    prefix = own_prefix()
    sets = (f"--set=storage.url={shared_store().url}", f"--set=storage.prefix={prefix}", "--set=log.level=warning")
    with shared_store().client() as client:
        lease = leave_lease(client, prefix, 60_000)
        with ThreadPoolExecutor(1) as starting:
            ended = starting.submit(crewel, "serve", "--port=0", *sets, directory=tmp_path)
            until(lambda: client.pexpire(lease, 60_000) and ended.done())
        assert_refused(ended.result(), "heron, process 7 on far")


def test_a_server_that_hangs_for_longer_than_its_lease_is_followed(start_server: StartServer) -> None:
    first = start_server("cluster.lease_ms=500")
    os.kill(first.pid, signal.SIGSTOP)
    taker = start_server(*first.store_sets)
    os.kill(first.pid, signal.SIGCONT)
    assert first.wait() == 3
    first.ended_by_test = True
    assert publishes(taker)


async def test_attach_serves_nothing_any_more_and_the_application_goes_on(tmp_path: Path) -> None:
    prefix = own_prefix()
    storage = Storage(url=shared_store().url, prefix=prefix, data_dir=str(tmp_path))
    app = web.Application()
    broker = crewel_server.attach(app, Settings(storage=storage, cluster=Cluster(lease_ms=300)))
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/cometd"
    handshake = [{"channel": "/meta/handshake", "id": "1"}]
    async with asyncio.timeout(60), ClientSession() as http:
        async with http.post(url, json=handshake) as answer:
            assert answer.status == 200
        taken_at = time.monotonic()
        with shared_store().client() as client:  # as another server takes it
            client.delete(broker.runtime.access.keys.node(broker.runtime.access.token))
            client.incr(broker.runtime.access.keys.epoch)
        while not broker.has_lost_store:
            await asyncio.sleep(0.01)
        assert time.monotonic() - taken_at < 5 * patience()
        async with http.post(url, json=handshake) as answer:
            assert answer.status == 503
        await runner.cleanup()


async def test_a_node_sweeps_when_it_knows_the_groups_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is due is published by a sweep, into the queues of the groups that the node knows."""
    app, join, while_joining = web.Application(), Membership.join, set[str]()
    storage = Storage(url=shared_store().url, prefix=own_prefix(), data_dir=str(tmp_path))
    broker = crewel_server.attach(app, Settings(storage=storage, cluster=Cluster(enabled=True, listen="127.0.0.1:0")))

    async def noted(membership: Membership) -> None:
        await join(membership)
        while_joining.update(broker.supervisor.restarts)

    monkeypatch.setattr(Membership, "join", noted)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        assert "sweeper" not in while_joining
        assert "sweeper" in broker.supervisor.restarts
    finally:
        await runner.cleanup()
