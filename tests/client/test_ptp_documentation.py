"""That the examples of docs/how-to/point-to-point.md do what they say, as they stand there."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from crewel.client import Client, UnknownDestinationSession
from tests.client.support import LIMIT_S
from tests.client.test_documentation import ADDRESS
from tests.conftest import StartServer
from tests.functional.wire import figures, until
from tests.server_process import ROOT

PAGE = (ROOT / "docs" / "how-to" / "point-to-point.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    """The code blocks of the page in this language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def objects(block: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in block.replace(",\n ", ", ").splitlines()]


def test_the_script_prints_what_the_page_says(start_server: StartServer, tmp_path: Path) -> None:
    script = blocks("python")[0]
    assert ADDRESS in script
    server = start_server()
    command = [sys.executable, "-W", "error", "-c", script.replace(ADDRESS, server.url)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == blocks("text")[0]
    until(lambda: figures(server).get('crewel_ended_total{reason="settled"}') == 1)  # joe has had it


async def test_the_wire_looks_as_the_page_shows_it(start_server: StartServer) -> None:
    asked, answered = objects(blocks("json")[0])
    async with asyncio.timeout(LIMIT_S), Client(start_server().url) as client:
        with pytest.raises(UnknownDestinationSession) as raised:
            await client.publish(str(asked["channel"]), asked["data"], ext=asked["ext"])  # type: ignore[arg-type]
        told = raised.value.reply
        told["ext"]["publish"]["id"] = answered["ext"]["publish"]["id"]  # type: ignore[index]
        assert told == answered | {"id": told["id"]}


async def test_a_group_shares_its_messages(start_server: StartServer) -> None:
    (asked,) = objects(blocks("json")[1])
    pattern, group = str(asked["subscription"]), asked["ext"]["subscribe"]["group"]  # type: ignore[index]
    url = start_server().url
    async with asyncio.timeout(LIMIT_S), Client(url) as one, Client(url) as other, Client(url) as shop:
        heard: list[list[int]] = [[], []]
        enough = asyncio.Event()

        def note(cook: int, number: int) -> None:
            heard[cook].append(number)
            if sum(map(len, heard)) == 10:
                enough.set()

        await one.subscribe(pattern, lambda message: note(0, message.data), group=group)
        await other.subscribe(pattern, lambda message: note(1, message.data), group=group)
        for number in range(10):
            await shop.publish("/orders/pizza", number)
        await enough.wait()
        assert sorted(heard[0] + heard[1]) == list(range(10))
        assert min(map(len, heard)) > 0
