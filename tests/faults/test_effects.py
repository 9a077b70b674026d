"""One effect of each message, while the server and the worker are killed again and again.

The publisher has an outbox, the worker consumes and notes each message in the transaction of its effect. A message may be
delivered many times; the table of effects has it once.
"""

import asyncio
import os
import random
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from crewel.client import BackoffRule, Client, Outbox
from tests.conftest import StartServer
from tests.faults.conftest import IS_FULL, Tell
from tests.server_process import ROOT

KILLS = 100 if IS_FULL else 3
BETWEEN = 5
"""How many effects there are between two kills, at least."""
LIMIT_S = 120.0
QUICK = BackoffRule(initial=0.05, factor=1.5, maximum=0.3)
WORKER = """
import asyncio, sqlite3, sys
from crewel.client import BackoffRule, Client, Inbox

async def main(url, file):
    database = sqlite3.connect(file)
    inbox = Inbox("worker")
    quick = BackoffRule(initial=0.05, factor=1.5, maximum=0.3)
    async with Client(url, backoff=quick, open_timeout=600) as client:
        async for message in client.consume("/effects/*", name="worker/1"):
            async with message:
                with database:
                    if inbox.is_first(database, message):
                        database.execute("INSERT INTO effects VALUES (?)", (message.data,))

asyncio.run(main(*sys.argv[1:]))
"""


class Shop:
    """What the worker does, as its database shows it."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "shop.db"
        self._directory = directory
        with closing(sqlite3.connect(self.file)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("CREATE TABLE effects (number INTEGER)")
            database.execute(
                "CREATE TABLE crewel_inbox (receiver TEXT, message_id TEXT, handled_at TEXT,"
                " PRIMARY KEY (receiver, message_id))"
            )

    def effects(self) -> list[int]:
        """The numbers that had an effect, in order."""
        with closing(sqlite3.connect(self.file)) as database:
            return [number for (number,) in database.execute("SELECT number FROM effects ORDER BY number")]

    async def worker(self, url: str) -> asyncio.subprocess.Process:
        """Start the worker."""
        environ = {**os.environ, "PYTHONPATH": str(ROOT / "app"), "STATE_DIRECTORY": str(self._directory / "state")}
        command = [sys.executable, "-c", WORKER, url, str(self.file)]
        return await asyncio.create_subprocess_exec(*command, env=environ, stderr=asyncio.subprocess.DEVNULL)

    async def reach(self, count: int) -> None:
        """Wait until there are so many effects."""
        async with asyncio.timeout(LIMIT_S):
            while len(self.effects()) < count:
                await asyncio.sleep(0.02)


@pytest.mark.timeout(1500 if IS_FULL else 600)
async def test_each_message_has_one_effect(start_server: StartServer, tmp_path: Path, tell: Tell) -> None:
    rng, shop, server = random.Random(7), Shop(tmp_path), start_server()
    worker = await shop.worker(server.url)
    outbox, number, kills = Outbox(tmp_path / "outbox"), 0, {"server": 0, "worker": 0, "both": 0}
    async with Client(server.url, outbox=outbox, backoff=QUICK, close_timeout=LIMIT_S) as client:
        await client.ready(LIMIT_S)

        async def publish(count: int) -> None:
            nonlocal number
            for _ in range(count):
                await client.enqueue("/effects/a", number, key=f"effect-{number}")
                number += 1

        await publish(1)
        while not shop.effects():  # until the worker has subscribed
            await publish(1)
            await asyncio.sleep(0.2)
        unseen = number - len(shop.effects())  # before its session there was nothing to wait in
        for _ in range(KILLS):
            which = rng.choice(list(kills))
            kills[which] += 1
            before = len(shop.effects())
            await publish(20)
            await shop.reach(before + BETWEEN)
            if which != "server":
                worker.send_signal(signal.SIGKILL)
                await worker.wait()
            if which != "worker":
                server.kill()
                await publish(3)  # while it is away
                server = await asyncio.to_thread(start_server, *server.store_sets, port=server.port or 0)
            if which != "server":
                worker = await shop.worker(server.url)
        await outbox.drained(LIMIT_S)
        await publish(1)
        async with asyncio.timeout(LIMIT_S):
            while shop.effects()[-1] != number - 1 or len(shop.effects()) < number - unseen:
                await asyncio.sleep(0.05)
    worker.kill()
    await worker.wait()
    effects = shop.effects()
    assert len(effects) == len(set(effects)), "a message had two effects"
    assert effects[-(number - unseen) :] == list(range(unseen, number))
    tell(
        f"{KILLS} kills: {kills['server']} of the server, {kills['worker']} of the worker, {kills['both']} of both;"
        f" {len(effects)} messages, each with one effect"
    )
