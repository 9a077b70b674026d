"""The ledger in which applications count: a message is done when a listener has returned from it, and not when a client has
acknowledged it. Listeners come late, clients and servers are killed, topics erased."""

from __future__ import annotations

import asyncio
import random
from time import monotonic
from typing import Any

import pytest

from tests.admin.desk import TOKEN, Desk
from tests.conftest import StartServer
from tests.faults.audit import Audit
from tests.faults.conftest import IS_FULL, Tell, volume
from tests.faults.load import wait_for
from tests.faults.random_applications import BOX, CHANNELS, PLAIN, RandomApplications, Taken, everyone
from tests.faults.random_publisher import RandomPublisher
from tests.faults.test_ledger import everybody
from tests.interop.conftest import installed_clients  # noqa: F401 - they have to be there
from tests.server_process import Server

SEEDS = range(1, volume(200, 1) + 1) if IS_FULL else (6,)
"""The sixth kills the server, a Python client and a page, and erases a topic."""
BLOWS = 4
MESSAGES = 100_000  # the publisher is stopped after the last blow
LIMIT_S = 60
LOOK_S = 0.4
FORCED = "by force"
SETS = (
    f"admin.token={TOKEN}",
    "bayeux.timeout_ms=500",
    "bayeux.max_interval_ms=500",
    "bayeux.sweep_ms=50",
    "delivery.commit_ms=50",
    "delivery.queue_max_entries=10000",
)


def choose(names: list[str]) -> Any:
    """What says where a message goes: to a channel, or to one of these sessions."""

    def chosen(rng: random.Random) -> tuple[str, dict[str, Any]]:
        if rng.random() < 0.8:
            return rng.choice(CHANNELS), {}
        return BOX, {"destination": [{"to": f"client/{rng.choice(names)}"}]}

    return chosen


async def strike(server: Server, applications: list[RandomApplications], rng: random.Random) -> str:
    """Kill a process, or erase a topic; returns what was done."""
    if rng.random() < 0.3:
        channel, how = rng.choice(CHANNELS), rng.choice(("gently", FORCED))
        command = f"__cmd:topic{channel}/?eraseTopic" + ("=true" if how == FORCED else "")
        response = await asyncio.to_thread(Desk(server).ask, "POST", "/commands", {"command": command})
        assert response.status in (200, 400), response  # the topic may not exist yet
        return f"{channel} {how}" if response.status == 200 else "nothing"
    victims = [each for each in applications if PLAIN not in each.names]
    at = rng.randrange(len(victims) + 1)
    if at == len(victims):
        await asyncio.to_thread(server.kill)
        return "server"
    victims[at].kill()
    return victims[at].names[0]


class Witness:
    """What the applications know, against what the store says."""

    def __init__(self, audit: Audit, taken: Taken, *, was_forced: bool) -> None:
        self._was_forced = was_forced
        self._audit = audit
        self._taken = taken

    def check(self, names: list[str]) -> None:
        """Raises AssertionError with the first message that ended unheard."""
        for name in names:
            taken, rejected = (table.get(name, set()) for table in (self._taken.taken, self._taken.rejected))
            accounts = self._audit.of(f"client/{name}")
            assert len(accounts) == 1, f"{name} had {len(accounts)} sessions, and should have kept one"
            assert accounts[0].ends, f"{name} was owed nothing"
            for log_id, (reason, code) in accounts[0].ends.items():
                says_so = {"settled": taken, "dead": rejected}.get(reason, ())
                is_right = str(log_id) in says_so or (reason == "erased" and self._was_forced)
                story = self._audit.story(log_id)
                assert is_right, f"{log_id} ended for {name} as {reason} {code}, and no listener says so: {story}"


@pytest.mark.usefixtures("installed_clients")
@pytest.mark.parametrize("seed", SEEDS)
async def test_what_counts_as_done_was_taken_by_a_listener(seed: int, start_server: StartServer, tell: Tell) -> None:
    rng = random.Random(9000 + seed)
    server = await asyncio.to_thread(start_server, *SETS)
    taken = Taken()
    applications = everyone(server, taken, rng)
    names = [name for each in applications for name in each.names]
    publisher = RandomPublisher(server, random.Random(rng.random()), MESSAGES, pause_s=0.01, choose=choose(names))
    blows = []

    def troubles() -> list[BaseException]:
        return [each.trouble for each in (*applications, publisher) if each.trouble is not None]

    async with everybody(applications):
        await wait_for(lambda: all(each.is_ready for each in applications) or troubles(), LIMIT_S)
        assert not troubles()
        async with everybody([publisher]):
            for _ in range(BLOWS):
                await asyncio.sleep(rng.uniform(0.1, 0.8))
                blows.append(await strike(server, applications, rng))
                if blows[-1] == "server":
                    server = await asyncio.to_thread(start_server, *SETS, *server.store_sets, port=server.port)
        audit = await settled(server, applications, taken, blows)
        assert not troubles()
    Witness(audit, taken, was_forced=any(FORCED in blow for blow in blows)).check(names)
    tell(
        f"seed {seed}: killed or erased {', '.join(blows)}; {len(publisher.answered)} published, owed {audit.owed},"
        f" ends {dict(sorted(audit.ends.items()))}, each taken or rejected by a listener; {taken.copies} copies"
    )


async def settled(server: Server, applications: list[RandomApplications], taken: Taken, blows: list[str]) -> Audit:
    """What the store says when nothing waits for any listener any more."""
    deadline = monotonic() + LIMIT_S
    while True:
        await asyncio.sleep(LOOK_S)  # to look takes the processor from those who are to take what waits
        audit = await asyncio.to_thread(Audit, server)
        audit.check()
        if audit.is_read and not any(audit.waiting.values()):
            return audit
        if monotonic() > deadline:
            raise AssertionError(await asyncio.to_thread(what_waits, server, audit, applications, taken, blows))


def what_waits(
    server: Server, audit: Audit, applications: list[RandomApplications], taken: Taken, blows: list[str]
) -> str:
    """For which application what is not done yet, and how the server has it."""
    told = [f"done: {blows}, listeners are there: {[each.names for each in applications if each.is_ready]}"]
    for name in (name.removeprefix("client/") for name, ids in audit.waiting.items() if ids):
        ids = {str(log_id) for log_id in audit.waiting[f"client/{name}"]}
        view = Desk(server).get(f"/sessions/{name}")
        heard = ids & taken.taken.get(name, set())
        told.append(f"{name}: {len(ids)} wait, of them {len(heard)} taken and {view['unclaimed']} unclaimed: {view}")
    return "\n".join(told)
