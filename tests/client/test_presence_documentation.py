"""That the examples of docs/how-to/presence.md do what they say, as they stand there."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

from crewel.client import Client
from tests.client.support import LIMIT_S
from tests.client.test_documentation import ADDRESS
from tests.conftest import StartServer
from tests.server_process import ROOT

PAGE = (ROOT / "docs" / "how-to" / "presence.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    """The code blocks of the page in this language."""
    return [
        dedent(f"{indent}{block}")
        for indent, block in re.findall(rf"^( *)```{language}\n\1(.*?)^\1```", PAGE, re.DOTALL | re.MULTILINE)
    ]


def test_the_script_prints_what_the_page_says(start_server: StartServer, tmp_path: Path) -> None:
    script = blocks("python")[0]
    assert ADDRESS in script
    server = start_server()
    command = [sys.executable, "-W", "error", "-c", script.replace(ADDRESS, server.url)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == blocks("text")[0]


async def test_the_indicator_shows_typing_until_there_was_no_key_for_a_while(start_server: StartServer) -> None:
    names: dict[str, Any] = {}
    exec(blocks("python")[1], names)
    names["PAUSE_S"] = 0.3
    server = await asyncio.to_thread(start_server)
    joe, ann = Client(server.url), Client(server.url)
    own, seen = joe.presence("/room", data={"name": "Joe"}), ann.presence("/room", enter=False)
    async with asyncio.timeout(LIMIT_S), joe, ann, own, seen:
        typing = names["Typing"](own, "Joe")
        await typing.key()
        await typing.key()
        assert (await anext(seen)).member.data == {"name": "Joe", "typing": True}
        assert (await anext(seen)).member.data == {"name": "Joe"}


async def test_what_was_read_last_outlives_its_reader(start_server: StartServer) -> None:
    names: dict[str, Any] = {}
    exec(blocks("python")[2], names)
    server = await asyncio.to_thread(start_server)
    async with asyncio.timeout(LIMIT_S):
        async with Client(server.url) as client:
            assert await names["last_read"](client, "/room", "joe") is None
            for read in ("17", "18"):
                await names["mark_read"](client, "/room", "joe", read)
        async with Client(server.url) as later:
            assert await names["last_read"](later, "/room", "joe") == "18"
