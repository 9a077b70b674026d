"""What the operator's page costs the server: processor time while no page is open, and while one is.

    .venv/bin/python bench/console.py [SESSIONS] [SECONDS]

A page asks for the overview every five seconds. The times are those of the server's process in /proc.
"""

import json
import os
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.server_process import Server  # noqa: E402

TOKEN = "the-admin-token-of-benches"
EVERY_S = 5


def processor_s(pid: int) -> float:
    """Return the seconds of processor time that the process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def overview(server: Server, after: int = 0) -> dict:
    """Return the overview, with the samples since this time."""
    request = urllib.request.Request(
        f"{server.base}/admin/api/overview?after={after}", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def open_sessions(server: Server, count: int) -> None:
    """Open reliable sessions that wait for nothing."""
    for number in range(count):
        handshake = {
            "channel": "/meta/handshake",
            "version": "1.0",
            "supportedConnectionTypes": ["long-polling"],
            "ext": {"ack": True, "session": {"name": f"joe{number}/1"}},
        }
        body = json.dumps([handshake]).encode()
        urllib.request.urlopen(
            urllib.request.Request(server.url, body, {"Content-Type": "application/json"}), timeout=30
        ).read()


def measure(server: Server, seconds: float, *, is_open: bool) -> str:
    """Return what the server takes in this time."""
    before, began, slowest, after = processor_s(server.pid), time.monotonic(), 0.0, 0
    while time.monotonic() - began < seconds:
        if is_open:
            asked = time.monotonic()
            told = overview(server, after)
            slowest = max(slowest, time.monotonic() - asked)
            after = int((told["samples"]["at"] or [after])[-1])
        time.sleep(EVERY_S)
    took, used = time.monotonic() - began, processor_s(server.pid) - before
    what = f"one page open (slowest answer {slowest * 1000:.0f} ms)" if is_open else "no page open"
    return f"{what}: {used:.2f} s of processor in {took:.0f} s, {used / took:.2%} of one core"


def main(sessions: int, seconds: float) -> None:
    """Measure both."""
    with tempfile.TemporaryDirectory() as directory:
        sets = (f"admin.token={TOKEN}", "bayeux.max_interval_ms=3600000")
        server = Server(["--port=0", *(f"--set={text}" for text in sets)], Path(directory))
        open_sessions(server, sessions)
        print(f"{overview(server)['sessions']['count']} sessions")
        time.sleep(EVERY_S)
        for is_open in (False, True):
            print(measure(server, seconds, is_open=is_open), flush=True)
        server.end_well()


if __name__ == "__main__":
    main(*(int(text) for text in (sys.argv[1:] or ["5000", "120"])))
