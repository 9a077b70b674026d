"""That the examples of docs/how-to/scheduled-messages.md do what they say, as they stand there."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

from crewel.client import Client
from tests.client.support import LIMIT_S
from tests.client.test_documentation import ADDRESS
from tests.conftest import StartServer
from tests.server_process import ROOT

PAGE = (ROOT / "docs" / "how-to" / "scheduled-messages.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    """The code blocks of the page in this language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_script_prints_what_the_page_says(start_server: StartServer, tmp_path: Path) -> None:
    (script,) = blocks("python")
    assert ADDRESS in script
    command = [sys.executable, "-W", "error", "-c", script.replace(ADDRESS, start_server().url)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == list(re.findall(r"It prints `(.*?)`, `(.*?)` and then `(.*?)`\.", PAGE)[0])


async def test_the_wire_looks_as_the_page_shows_it(start_server: StartServer) -> None:
    asked, answered = (json.loads(line) for line in blocks("json")[0].splitlines())
    async with asyncio.timeout(LIMIT_S), Client(start_server().url) as client:
        reply = await client.publish(asked["channel"], asked["data"], ext=asked["ext"])
        told = answered["ext"]["publish"] | {name: reply["ext"]["publish"][name] for name in ("id", "deliverAt")}
        assert reply["ext"] == {"publish": told}
