"""That the examples of docs/how-to/point-to-point.md do what they say, as they stand there."""

import asyncio
import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from crewel.client import Client, UnknownDestinationSession
from tests.client.support import LIMIT_S
from tests.client.test_documentation import ADDRESS
from tests.conftest import StartServer
from tests.functional.wire import figures, until
from tests.server_process import ROOT
from tests.terminals import blocks as blocks_of

FILE = ROOT / "docs" / "how-to" / "point-to-point.md"
PAGE = FILE.read_text("utf-8")


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


def members(url: str) -> list[list[str]]:
    """Return the commands that join the group in each tab of the page."""
    tabs = {each.language: each.text for each in blocks_of(FILE)}  # the last block of each language
    assert ADDRESS in tabs["js"]
    script = tabs["js"].replace(ADDRESS, url).replace('"/extensions/', f'"{(ROOT / "extensions").as_uri()}/')
    return [
        [sys.executable, "-c", f"{tabs['python']}\nimport asyncio\nasyncio.run(cook({url!r}, 1))"],
        ["node", "--input-type=module", "--eval", f'import {{adapt}} from "cometd-nodejs-client";\nadapt();\n{script}'],
        ["bash", "-c", f"exec {tabs['sh']}"],
    ]


async def test_a_member_of_each_tab_gets_orders(start_server: StartServer, tmp_path: Path) -> None:
    url = start_server().url
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = os.environ | {"CREWEL_URL": url, "XDG_STATE_HOME": str(tmp_path), "PATH": path, "PYTHONUNBUFFERED": "1"}
    cooks = [
        await asyncio.create_subprocess_exec(
            *command, cwd=ROOT / "tests" / "interop", env=environ, stdout=asyncio.subprocess.PIPE
        )
        for command in members(url)
    ]
    try:
        async with asyncio.timeout(6 * LIMIT_S), Client(url) as shop:
            lines = [asyncio.create_task(cook.stdout.readline()) for cook in cooks if cook.stdout is not None]
            while not all(line.done() for line in lines):  # until all have subscribed
                await shop.publish("/orders/pizza", {"pizzas": 1})
                await asyncio.wait(lines, timeout=0.2, return_when=asyncio.ALL_COMPLETED)
            assert all(b"pizzas" in line.result() for line in lines)
    finally:
        for cook in cooks:
            with suppress(ProcessLookupError):
                cook.kill()
            await cook.wait()
