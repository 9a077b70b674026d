"""What updates cost: sessions that get the origin of their messages, beside those that are not, and beside an earlier
state of the server.

    python bench/updates.py --before DIRECTORY     medians of 7, written into bench/RESULTS.md (about 6 minutes)
    python bench/updates.py --before DIRECTORY --quick

DIRECTORY is a checkout of the earlier state (`git worktree add DIRECTORY COMMIT`). The servers run side by side on one
core and are asked in turn; the meter has the other core. Costs are processor time of the server for each delivery, over
long-polling, 1,000 clients in 10 rooms.
"""

import argparse
import datetime as dt
import json
import os
import shlex
import statistics
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from cases import CASES, Case
from durable import BENCH, spread, write
from peers import Peer, peers
from servers import CORES, METER, Server, build_meter, raise_file_limit, running

MARKER = "updates"


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of delivering, on one server."""

    name: str
    server: str
    case: str
    flags: tuple[str, ...]


ARMS = (
    Arm("plain, before", "before", "A", ()),
    Arm("plain", "now", "A", ()),
    Arm("ack, before", "before", "B", ("--ack",)),
    Arm("ack", "now", "B", ("--ack",)),
    Arm("update", "now", "B", ("--update",)),
)
TARGETS = (("plain", "plain, before", 1.08), ("ack", "ack, before", 1.08), ("update", "ack", 1.3))


def cost(server: Server, case: Case, flags: tuple[str, ...], seconds: float) -> float:
    """Microseconds of the server for one delivery."""
    options = case.options | {"pid": server.pid, "port": server.port, "warmup": 1, "seconds": seconds, "limit": 60}
    command = [str(METER), *(word for name, value in options.items() for word in (f"--{name}", str(value))), *flags]
    os.sched_setaffinity(0, {CORES[0]})
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    step = json.loads(done.stdout)["steps"][0]
    if step["lost"] or step["duplicates"]:
        raise SystemExit(f"{step['lost']} lost and {step['duplicates']} twice: the figures would mean nothing")
    return float(step["cpu_us_per_delivery"])


def measure(before: Path, rounds: int, seconds: float) -> dict[str, list[float]]:
    """The costs of each arm, by round; every other round goes the other way round."""
    (crewel,) = (peer for peer in peers([]) if peer.name == "crewel")
    cases = {case.letter: case for case in CASES}
    costs: dict[str, list[float]] = {arm.name: [] for arm in ARMS}
    with ExitStack() as stack:
        servers = {
            "now": stack.enter_context(running(crewel)),
            "before": stack.enter_context(running(_of(crewel, before))),
        }
        for number in range(rounds):
            for arm in ARMS if number % 2 else reversed(ARMS):
                costs[arm.name].append(cost(servers[arm.server], cases[arm.case], arm.flags, seconds))
    return costs


def _of(crewel: Peer, checkout: Path) -> Peer:
    command = ["env", f"PYTHONPATH={checkout.resolve() / 'app'}", *crewel.command()]
    return replace(crewel, name="crewel-before", command=lambda: command)


def report(costs: dict[str, list[float]], seconds: float) -> str:
    """The section of bench/RESULTS.md."""
    lines = [
        f"<!-- {MARKER} -->",
        "## Updates",
        "",
        f"`python {shlex.join(['bench/updates.py', '--before', 'DIRECTORY'])}` on {dt.datetime.now(dt.UTC).date()}, medians of"
        f" {len(costs['plain'])} interleaved rounds of {seconds:g} s; µs of the server for each delivery.",
        "",
        "| sessions | µs | beside | ratio | target |",
        "|---|---|---|---|---|",
    ]
    for name, other, most in TARGETS:
        ratio = statistics.median(a / b for a, b in zip(costs[name], costs[other], strict=True))
        verdict = "met" if ratio <= most else "MISSED"
        lines.append(
            f"| {name} | {spread(costs[name])} | {other}: {spread(costs[other])} | {ratio:.2f} | {most} {verdict} |"
        )
    return "\n".join([*lines, f"<!-- /{MARKER} -->"])


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="bench/updates.py", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the earlier state")
    parser.add_argument("--quick", action="store_true", help="three short rounds, printed only")
    options = parser.parse_args()
    if not (options.before / "app" / "crewel").is_dir():
        sys.exit(f"--before: {options.before} is not a checkout of Crewel")
    raise_file_limit()
    build_meter()
    rounds, seconds = (3, 1.5) if options.quick else (7, 4.0)
    text = report(measure(options.before, rounds, seconds), seconds)
    print(text)
    if not options.quick:
        write(text, BENCH / "RESULTS.md", MARKER)


if __name__ == "__main__":
    main()
