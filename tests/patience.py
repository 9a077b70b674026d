"""How much longer a limit of time is on a machine that has other work, tests that run beside this one, say, or on a slow one.

`python -m tests.patience` prints how long a fixed computation takes, in seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

_REFERENCE_S: Final = 0.0150
"""How long the computation takes where the limits of time were set: two virtual processors of 2025, both busy."""


def patience() -> float:
    """What to multiply a limit by that holds for a test with the machine to itself; at least the number of testers."""
    testers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max(1.0, testers, os.getloadavg()[0] / (os.cpu_count() or 1))


def slowness() -> float:
    """What to multiply a limit by that holds on the machine of the reference: how much longer this one takes for the same work
    while all its processors are busy, at least 1."""
    command = [sys.executable, "-m", "tests.patience"]
    each = [
        subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True)
        for _ in range(os.cpu_count() or 1)
    ]
    return max(1.0, *(float(process.communicate(timeout=60)[0]) / _REFERENCE_S for process in each))


def _work() -> None:
    """What servers do all day: read JSON, write it, and look things up."""
    message = {"channel": "/a/b", "data": {"n": 1, "text": "x" * 40, "list": [1, 2, 3]}, "id": "12", "ext": {"ack": 3}}
    kept = {}
    for number in range(1500):
        read = json.loads(json.dumps({**message, "id": str(number)}))
        kept[read["id"]] = [kept.get(name) for name in sorted(read)]


def _seconds() -> float:
    began = perf_counter()
    _work()
    return perf_counter() - began


if __name__ == "__main__":
    print(median(_seconds() for _ in range(50)))
