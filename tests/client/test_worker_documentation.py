"""That the examples of workers, outbox and inbox do what the page says, as they stand there."""

import asyncio
import re
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from crewel.client import Client
from tests.conftest import StartServer
from tests.functional.wire import figures, until
from tests.server_process import ROOT

ADDRESS = "http://127.0.0.1:8080/cometd"
DEAD = 'crewel_ended_total{reason="dead"}'
LIMIT_S = 60.0
pytestmark = pytest.mark.server


def example(word: str) -> str:
    """The block of the page that has this word."""
    page = (ROOT / "docs" / "reference" / "client.md").read_text("utf-8")
    [found] = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if word in block]
    return str(found)


def run(script: str, url: str, directory: Path) -> list[str]:
    """What it prints."""
    assert ADDRESS in script
    command = [sys.executable, "-W", "error", "-c", script.replace(ADDRESS, url)]
    environ = {"STATE_DIRECTORY": str(directory), "PYTHONPATH": str(ROOT / "app")}
    ended = subprocess.run(command, cwd=directory, env=environ, capture_output=True, text=True, timeout=LIMIT_S)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def wrapped(script: str, end: str) -> str:
    """An excerpt that awaits, as a program; this line is its last."""
    return f"import asyncio\n\nasync def main():\n{textwrap.indent(script + end, '    ')}\n\nasyncio.run(main())\n"


def test_the_example_of_a_worker_runs(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    assert run(example("class Busy"), server.url, tmp_path) == ["baked 2", "baked 4"]
    until(lambda: figures(server).get(DEAD) == 1, LIMIT_S)


def test_the_example_of_typed_data_runs(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    assert run(example("class Order(BaseModel)"), server.url, tmp_path) == ["5 and 1 wrong"]
    until(lambda: figures(server).get(DEAD) == 1, LIMIT_S)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, -signal.SIGINT)])
async def test_the_example_of_several_at_once_ends_well(
    start_server: StartServer, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    server = start_server()
    # A shell that starts the tests in the background has them, and what they start, ignore SIGINT.
    heeding = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    script = heeding + example("SIGTERM").replace(ADDRESS, server.url)
    environ = {"STATE_DIRECTORY": str(tmp_path), "PYTHONPATH": str(ROOT / "app")}
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert worker.stdout is not None
    try:
        async with asyncio.timeout(LIMIT_S), Client(server.url) as client:
            line = asyncio.create_task(worker.stdout.readline())
            while not line.done():  # until it has subscribed
                await client.publish("/orders/new", 2, persistent=True)
                await asyncio.wait([line], timeout=0.2)
            assert await line == b"baked 2\n"
            worker.send_signal(number)
            _, errors = await worker.communicate()
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.communicate()
    assert (worker.returncode, b"Task was destroyed" in errors, b"never awaited" in errors) == (status, False, False)


async def test_the_examples_of_outbox_and_inbox_run(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    worker = wrapped(example("inbox.create"), "        break\n")  # after the first message
    async with Client(server.url) as client:
        done = asyncio.create_task(asyncio.to_thread(run, worker, server.url, tmp_path))
        while not done.done():  # until it has subscribed
            await asyncio.to_thread(run, wrapped(example("enqueue"), ""), server.url, tmp_path)
            await asyncio.wait([done], timeout=0.2)
        await done
        assert client.state.value == "connected"
    with sqlite3.connect(tmp_path / "shop.db") as database:
        assert database.execute("SELECT * FROM bills").fetchall() == [(2,)]
    database.close()
