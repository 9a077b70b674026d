"""That the examples of the README do what it says, against a real server."""

import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import StartServer
from tests.house.source import ROOT
from tests.server_process import Server

LIMIT_S = 30
ADDRESS = "http://127.0.0.1:8080/cometd"
INTEROP = ROOT / "tests" / "interop"


def example(language: str, server: Server) -> str:
    """Return the README's example in this language, with the server's address in place of its own."""
    found = re.search(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert found
    assert ADDRESS in found[1]
    return found[1].replace(ADDRESS, server.url)


def test_the_python_example_hears_itself(start_server: StartServer, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", example("python", start_server())]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
    assert (ended.returncode, ended.stdout) == (0, "{'user': 'joe', 'chat': 'hello'}\n"), ended.stderr


def test_the_javascript_example_hears_itself(start_server: StartServer) -> None:
    """Under Node, where the client needs the browser's objects from cometd-nodejs-client and does not end by itself."""
    script = f"""
        import {{adapt}} from "cometd-nodejs-client";
        adapt();
        const log = console.log;
        console.log = (...words) => {{ log(...words); process.exit(0); }};
        {example("js", start_server())}
    """
    command = ["node", "--input-type=module", "--eval", script]
    ended = subprocess.run(command, cwd=INTEROP, capture_output=True, text=True, timeout=LIMIT_S)
    assert (ended.returncode, ended.stdout) == (0, "{ user: 'ann', chat: 'hello' }\n"), ended.stderr
