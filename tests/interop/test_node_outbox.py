"""The outbox of `@crewel/client` in a file, in a Node.js process that is killed while it publishes."""

from __future__ import annotations

import random
import re
import subprocess
from itertools import groupby
from pathlib import Path

import pytest

from crewel.client.sync import Client
from tests.conftest import StartServer
from tests.interop.peers import HERE
from tests.server_process import ROOT

LIMIT_S = 60
KILLS = 10
SEED = 66


def program(url: str, path: Path, run: int, most: str = "") -> subprocess.Popen[str]:
    command = ["node", "drivers/outbox.mjs", url, str(path), str(run), *([most] if most else [])]
    return subprocess.Popen(command, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def killed(url: str, path: Path, run: int, after: int) -> list[int]:
    """Kill the program when the outbox has answered so many publishes; return those."""
    with program(url, path, run) as process:
        assert process.stdout is not None
        answered = [int(process.stdout.readline()) for _ in range(after)]
        process.kill()
        rest = process.stdout.read()
        answered += [int(line) for line in rest.splitlines() if rest.endswith("\n") or line != rest.splitlines()[-1]]
    return answered


@pytest.mark.usefixtures("installed_clients")
def test_what_the_outbox_has_answered_arrives_once_and_in_order_over_ten_kills(
    start_server: StartServer, tmp_path: Path
) -> None:
    server, path, drawn = start_server(), tmp_path / "orders.outbox", random.Random(SEED)
    with Client(server.url) as receiver:
        subscription = receiver.subscribe("/kills/a")
        answered = [killed(server.url, path, run, drawn.randint(1, 120)) for run in range(KILLS)]
        ended = program(server.url, path, KILLS, "20").communicate(timeout=LIMIT_S)[0].splitlines()
        assert ended[-2].startswith("refused user.illegalArgument wrong"), ended
        assert ended[-1].startswith("drained 0 "), ended
        answered.append([int(line) for line in ended[:-2]])
        received: list[list[int]] = []
        while received[-1:] != [[KILLS, 19]]:
            received.append(subscription.receive(timeout=LIMIT_S).data)
    runs = {run: [number for _, number in group] for run, group in groupby(received, lambda each: each[0])}
    assert [run for run, _ in groupby(received, lambda each: each[0])] == list(runs)  # each run is in one piece
    for run, expected in enumerate(answered):
        # What it was about to publish when it was killed may have come, too.
        assert runs[run] == list(range(len(runs[run])))
        assert set(expected) <= set(runs[run])
    assert [each.name for each in tmp_path.iterdir() if "outbox." in each.name] == []


@pytest.mark.usefixtures("installed_clients")
def test_a_second_process_is_refused_by_name(start_server: StartServer, tmp_path: Path) -> None:
    server, path = start_server(), tmp_path / "orders.outbox"
    with program(server.url, path, 0) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "0\n"
        with program(server.url, path, 1) as second:
            told = second.communicate(timeout=LIMIT_S)[0]
        assert told == f"OutboxInUseError: the outbox {path} is in use: one process at a time sends what is in it\n"
        assert second.returncode == 1
        first.kill()
        first.communicate()
    with program(server.url, path, 2, "1") as third:
        assert "drained 0" in third.communicate(timeout=LIMIT_S)[0]
    assert third.returncode == 0


@pytest.mark.usefixtures("installed_clients")
def test_the_script_of_the_documentation_runs(start_server: StartServer, tmp_path: Path) -> None:
    """docs/how-to/node.md, from a checkout in place of the package."""
    page = (ROOT / "docs" / "how-to" / "node.md").read_text("utf-8")
    (script,) = re.findall(r'^```js title="order.mjs"\n(.*?)^```$', page, re.DOTALL | re.MULTILINE)
    server = start_server()
    for here, there in (
        ("http://127.0.0.1:8080/cometd", server.url),
        ("@crewel/client", str(ROOT / "extensions" / "connect.js")),
        ("orders.outbox", str(tmp_path / "orders.outbox")),
    ):
        assert here in script
        script = script.replace(here, there)
    with Client(server.url) as receiver:
        subscription = receiver.subscribe("/orders/today")
        command = ["node", "--input-type=module", "--eval", script]
        ended = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=LIMIT_S)
        assert (ended.returncode, ended.stdout) == (0, "kept\nsent\n"), ended.stderr
        assert f"```console\n$ node order.mjs\n{ended.stdout}```" in page
        assert subscription.receive(timeout=LIMIT_S).data == {"pizzas": 2}
