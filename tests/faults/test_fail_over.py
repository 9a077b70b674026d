"""A replica takes the place of the primary under load: what was answered is there, or its loss is noticed and named."""

from __future__ import annotations

import asyncio
import random
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from time import monotonic, sleep

import orjson
import pytest
import redis

from tests.conftest import StartServer
from tests.faults.conftest import IS_FULL, Tell
from tests.faults.health import Health
from tests.faults.load import Load
from tests.faults.nodes import DEFAULTS, Nodes
from tests.faults.test_store_killed import only_resource
from tests.functional.bayeux import Client
from tests.patience import patience
from tests.server_process import Server
from tests.store_group import SERVICE, WatchedStore, info

RUNS = 10 if IS_FULL else 1
OF_DEFAULTS = 3 if IS_FULL else 0
"""So many runs of each kind have the default settings. With those, a test waits for held connects, up to 30 s each time."""
GOES_ON_S = 40.0
PUBLISHES = 50
STEADY_S = 1.0


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[WatchedStore]:
    """A primary with two replicas and three sentinels."""
    store = WatchedStore(tmp_path, appendfsync="everysec")
    yield store
    store.close()


def sets_of(seed: int) -> tuple[str, ...]:
    """The settings of a run, beyond those of its store."""
    return () if seed <= OF_DEFAULTS else ("bayeux.timeout_ms=1000",)


def figure(page: str, name: str) -> int:
    """Return a figure of the page of metrics."""
    found = re.search(rf"^{name} (\d+)", page, re.MULTILINE)
    assert found is not None, page
    return int(found[1])


async def metrics(server: Server) -> str:
    """Return the page of metrics."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    page = (await reader.read()).decode()
    writer.close()
    return page


@pytest.mark.parametrize("seed", range(1, RUNS + 1))
async def test_what_was_answered_survives_fail_overs(
    seed: int, watched: WatchedStore, start_server: StartServer, load: Load, tell: Tell
) -> None:
    """One by the death of the primary, one that an operator asks for. All replicas must have what is answered: the one that is
    promoted has it, too."""
    rng = random.Random(seed)
    server = await asyncio.to_thread(start_server, *sets_of(seed), f"storage.url={watched.url}", "storage.replicas=2")
    assert server.port is not None
    load.log = lambda: server.stderr
    await load.begin(server.port)
    async with Health(server) as health:
        await load.answers(20, 15)
        await asyncio.sleep(rng.uniform(0, 0.5))
        killed, before = monotonic(), watched.primary
        before.kill()
        await health.becomes(503, killed, 5)
        await asyncio.to_thread(watched.promoted_after, before)
        await asyncio.to_thread(before.start)
        await load.answers(20, GOES_ON_S)
        slowest = monotonic() - killed
        asked = monotonic()
        await asyncio.to_thread(watched.fail_over)
        await load.answers(20, GOES_ON_S)
        slowest = max(slowest, monotonic() - asked)
        await health.is_well(GOES_ON_S)
    await load.settle(40)
    only_resource(load)
    assert figure(await metrics(server), "crewel_lost_messages_total") == 0, server.stderr
    tell(
        f"seed {seed}: the primary killed, then a fail-over by an operator, 2 of 2 replicas awaited;"
        f" {load.ledger.answered_count} publishes answered, {load.ledger.refusals.total()} refused,"
        f" {load.ledger.duplicates} duplicates; publishing again after {slowest:.1f} s at most"
    )


@pytest.mark.full
@pytest.mark.parametrize("tails", ["primary", "replica"])
@pytest.mark.parametrize("seed", range(1, RUNS + 1))
async def test_what_two_nodes_answered_survives_fail_overs(
    seed: int, tails: str, watched: WatchedStore, start_server: StartServer, load: Load, tell: Tell
) -> None:
    """The same with two nodes behind a balancer. Their leases may end meanwhile, and each may take the other for dead."""
    rng = random.Random(200 + seed)
    sets = *sets_of(seed), "storage.replicas=2", f"cluster.tails={tails}"
    async with Nodes(start_server, 2, rng, *sets, common=DEFAULTS) as nodes:
        await nodes.begin(watched.url)
        load.log = nodes.logs
        await load.begin(nodes.port, subscribers=2, publishers=3)
        await load.answers(20, GOES_ON_S)
        await asyncio.sleep(rng.uniform(0, 0.5))
        load.watch_gaps()
        began, before = monotonic(), watched.primary
        before.kill()
        await asyncio.to_thread(watched.promoted_after, before)
        await asyncio.to_thread(before.start)
        await load.goes_on(monotonic(), GOES_ON_S)
        await load.answers(20, GOES_ON_S)
        slowest = monotonic() - began
        began = monotonic()
        await asyncio.to_thread(watched.fail_over)
        await load.goes_on(monotonic(), GOES_ON_S)
        await load.answers(20, GOES_ON_S)
        slowest = max(slowest, monotonic() - began)
        await load.settle(GOES_ON_S)
        unexpected = {error for error in load.ledger.refusals if error and "resource." not in error}
        assert not unexpected, unexpected
        for each in nodes.all:
            assert figure(await metrics(each.server), "crewel_lost_messages_total") == 0, nodes.logs()
            assert "the store has lost" not in each.server.stderr, (
                each.server.stderr
            )  # what another node took over is there
    tell(
        f"seed {seed}: two nodes with tails on the {tails}, the primary killed, then a fail-over by an operator, 2 of 2"
        f" replicas awaited; {load.ledger.answered_count} publishes answered, {load.ledger.refusals.total()} refused,"
        f" {load.ledger.duplicates} duplicates; publishing again after {slowest:.1f} s at most"
    )


@pytest.mark.parametrize("seed", range(1, RUNS + 1))
def test_a_planned_fail_over_takes_no_longer_than_the_store_itself(
    seed: int, watched: WatchedStore, start_server: StartServer, tell: Tell
) -> None:
    """The former primary accepts connections for some seconds more, and refuses all that is written."""
    server = start_server(*sets_of(seed), f"storage.url={watched.url}", "storage.replicas=1")
    publisher = Client(server).start()
    answered, refusals = [monotonic()], 0
    sleep(random.Random(seed).uniform(0.5, 1.5))
    switched = threading.Thread(target=lambda: switches.append(switch_of(watched)))
    switches: list[float] = []
    began = 0.0
    while not switches or answered[-1] < began + switches[0] + STEADY_S:
        if not began and len(answered) > PUBLISHES:
            began = monotonic()
            switched.start()
        assert not began or monotonic() < began + GOES_ON_S, server.stderr
        message = publisher.message("/planned", data=len(answered), ext={"publish": {"persistent": True}})
        reply = publisher.send(message)[-1]
        if reply["successful"]:
            answered.append(monotonic())
        else:
            refusals += 1
    switched.join()
    longest = max(later - before for before, later in pairwise(answered))
    tell(
        f"seed {seed}: SENTINEL FAILOVER; the store took a write that a replica has again after {switches[0]:.1f} s; publishes"
        f" were refused, or waited, for {longest:.1f} s, {refusals} of {len(answered) + refusals}"
    )
    assert longest <= switches[0] + 1.0 * patience(), server.stderr


def test_after_a_planned_fail_over_no_session_is_read_again(watched: WatchedStore, start_server: StartServer) -> None:
    """All replicas have what was answered, so the promoted one lacks nothing."""
    server = start_server(f"storage.url={watched.url}", "storage.replicas=2")
    publisher = Client(server).start()

    def publish() -> bool:
        message = publisher.message("/planned", data=1, ext={"publish": {"persistent": True}})
        return bool(publisher.send(message)[-1]["successful"])

    assert publish()
    switch_of(watched)
    end = monotonic() + GOES_ON_S
    while not ("no session is read again" in server.stderr and publish()):
        assert monotonic() < end, server.stderr
        sleep(0.05)
    assert "all sessions are read again" not in server.stderr


def switch_of(watched: WatchedStore) -> float:
    """Fail over as an operator does; returns how many seconds later a write to the new primary has reached a replica."""
    former, began = watched.primary, monotonic()
    with watched.sentinels[0].client() as client:
        client.execute_command("SENTINEL", "FAILOVER", SERVICE)
    while True:
        for each in watched.servers.values():
            with suppress(redis.RedisError):  # the sentinels close all connections of one that they promote
                if each is former or info(each)["role"] != "master":
                    continue
                with each.client() as client:
                    client.set("probe", 1)
                    if client.wait(1, 100):
                        return monotonic() - began
        sleep(0.02)


@pytest.mark.parametrize("seed", range(1, RUNS + 1))
async def test_all_that_a_promoted_replica_lacks_is_named(
    seed: int, watched: WatchedStore, start_server: StartServer, load: Load, tell: Tell
) -> None:
    """One replica is behind, the other one has all that is answered, and dies together with the primary."""
    rng = random.Random(100 + seed)
    server = await asyncio.to_thread(start_server, *sets_of(seed), f"storage.url={watched.url}", "storage.replicas=1")
    assert server.port is not None
    load.log = lambda: server.stderr
    await load.begin(server.port)
    primary = watched.primary
    behind, other = watched.replicas
    # Nor when it has started again: it has all that is answered, and on a busy machine the sentinels may miss the new primary.
    other.configure("replica-priority", 0)
    await load.answers(20, 15)
    behind.stop()
    cut = monotonic()
    with primary.client() as client:
        client.client_kill_filter(_type="replica")  # the one that is stopped does not come back
    await load.answers(20 + rng.randint(0, 20), 15)
    primary.kill()
    other.kill()
    load.ledger.excuse(cut - 0.5)
    behind.go_on()
    await asyncio.to_thread(watched.promoted_after, primary)
    await asyncio.to_thread(other.start)
    back = monotonic()
    await load.answers(20, GOES_ON_S)
    took = monotonic() - back
    await load.settle(40)
    only_resource(load)
    assert watched.primary is behind
    with behind.client() as client:
        facts = [orjson.loads(fact[b"d"]) for _, fact in client.xrange(f"{base(server)}facts") if fact[b"t"] == b"lost"]
    (fact,) = facts
    named = {
        log_id for first, last in zip(fact["first"], fact["last"], strict=True) for log_id in range(first, last + 1)
    }
    lost = {
        int(each.id)
        for each in load.ledger.published.values()
        if each.id is not None and fact["from"] < int(each.id) <= fact["until"]
    }
    assert lost
    assert lost <= named, "a loss that is not named"
    assert fact["messages"] == len(named)
    assert figure(await metrics(server), "crewel_lost_messages_total") == len(named)
    assert "the store has lost data that it had confirmed" in server.stderr
    tell(
        f"seed {seed}: a replica promoted that lacked the end; {len(lost)} answered publishes were lost, all named in the fact,"
        f" which names {len(named)}; {load.ledger.answered_count} answered, {load.ledger.duplicates} duplicates;"
        f" publishing again {took:.1f} s after the new primary had a replica"
    )


def base(server: Server) -> str:
    """Return what the keys of a server begin with."""
    prefix = next(text.partition("=")[2] for text in server.store_sets if text.startswith("storage.prefix="))
    return f"{prefix}{{crewel}}:"
