"""`sys.exit()` in a function that the client's event loop calls ends neither the loop nor the program that waits for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.support import LIMIT_S
from tests.server_process import Server

PROGRAM = """
import sys, threading
from crewel.client import Extension, State
from crewel.client.sync import Client, Outbox

class Exits(Extension):
    def incoming(self, message):
        return sys.exit(3) if message["channel"] == "/meta/connect" else message

def leave(_=None):
    called.set()
    sys.exit(3)

called = threading.Event()
"""
PUBLISHES = "client.publish('/exits', 1); print('published')"
CASES = {
    "on_state": f"with Client(URL, on_state=lambda t: t.new is State.CONNECTED and leave()) as client: {PUBLISHES}",
    "extension": f"with Client(URL, extensions=[Exits()]) as client: {PUBLISHES}",
    "on_refused": f"""
with Client(URL, outbox=Outbox(on_refused=leave)) as client:
    client.enqueue('/exits', 'x' * 70_000)
    assert called.wait({LIMIT_S})
    {PUBLISHES}
""",
}


@pytest.mark.parametrize("case", CASES)
def test_sys_exit_in_a_function_of_the_loop_lets_the_program_continue(
    server: Server, tmp_path: Path, case: str
) -> None:
    program = f"URL = {server.url!r}\n{PROGRAM}{CASES[case]}"
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment
    )
    assert (ended.returncode, ended.stdout) == (0, "published\n"), ended.stderr
    assert "SystemExit: 3" in ended.stderr  # in the log
