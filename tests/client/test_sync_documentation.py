"""That the example without asyncio does what it says, as it stands on the page."""

import subprocess
import sys
from pathlib import Path

from tests.client.support import LIMIT_S
from tests.server_process import ROOT, Server
from tests.terminals import blocks

ADDRESS = "http://127.0.0.1:8080/cometd"


def test_the_example_without_asyncio_runs(server: Server, tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "python.md"
    script = next(each.text for each in blocks(page) if "crewel.client.sync" in each.text)
    assert ADDRESS in script
    command = [sys.executable, "-W", "error", "-c", script.replace(ADDRESS, server.url)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("{'pizza': 4}\n", "", 0)
