"""Compare what mailboxes do, step by step, with an earlier state: the random runs of `tests/delivery` in both, by their seeds.

    .venv/bin/python bench/lockstep.py --before DIRECTORY --runs 1000    # a checkout of the earlier state

What a mailbox has in its queue, in the store only, at its client, and not stored is noted after each move of a run that changes
it, and each response with the number of its batch. A run is the same in both states if all of that is; `--show SEED` prints it
for one run.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parents[1]
STEPS: Final = 500
KINDS: Final = ("failing", "ranked")


def _field(mailbox: Any, name: str) -> Any:
    """A field of a mailbox: it has no underscore in the states before decision 0460."""
    return getattr(mailbox, name) if hasattr(mailbox, name) else getattr(mailbox, f"_{name}")


def _run(kind: str, seed: int, tell: Callable[[str], None]) -> None:
    """Do one run, and tell what is where after each of its moves."""
    sys.path.insert(0, str(Path.cwd()))
    from crewel.delivery.entry import place_of
    from tests.delivery import failing, ranked, receiver
    from tests.delivery.ledger import Broken

    class Told(ranked.RankedReceiver if kind == "ranked" else receiver.Receiver):  # type: ignore[misc]
        """A mailbox that tells what it has, if that has changed."""

        noted = ""

        def check(self) -> None:
            super().check()
            queue, dispatcher = (_field(self, name) for name in ("queue", "dispatcher"))
            waiting = [each.position or each.origin.id for each in queue]
            sent = [each.position or each.origin.id for each in self.sent()]
            is_open = sorted(dispatcher.messages.opened if hasattr(dispatcher, "messages") else dispatcher.in_flight)
            evicted = [each for each in self.durable.evicted if self.durable.find(place_of(each)) is not None]
            text = f"{self.durable.name} {waiting} {evicted} {sent} {is_open} {sorted(self.volatile)}\n"
            if text != self.noted:
                self.noted = text
                tell(text)

        def reply(self, count: int, now: float) -> tuple[int, list[str]]:
            said = super().reply(count, now)
            tell(f"{said}\n")
            return said

    try:
        run: Any = (ranked.RankedRun if kind == "ranked" else failing.FailingRun)(seed, receiver=Told)
        run.run(STEPS)
        tell(f"{run.ledger.ends} {len(run.ledger.letters)}\n")
    except Broken as broken:
        tell(f"{broken}\n")


def _child(kind: str, first: int, count: int) -> None:
    for seed in range(first, first + count):
        digest = hashlib.sha256()
        _run(kind, seed, lambda text, digest=digest: digest.update(text.encode()))  # type: ignore[misc]
        print(seed, digest.hexdigest(), flush=True)


def _start(state: Path, *arguments: str) -> subprocess.Popen[str]:
    """Run this script on the code and the tests of a state."""
    paths = {"PYTHONPATH": str(state / "app"), "PYTHONHASHSEED": "0"}
    command = [sys.executable, __file__, *arguments]
    return subprocess.Popen(command, cwd=state, env=os.environ | paths, stdout=subprocess.PIPE, text=True)


def main() -> None:
    """Compare the states, or do the runs of one."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--before", type=Path, help="a checkout of the earlier state")
    arguments.add_argument("--first", type=int, default=0, help="the first seed")
    arguments.add_argument("--runs", type=int, default=100, help="how many seeds of each kind")
    arguments.add_argument(
        "--show", metavar="SEED", type=int, help="print what happens in this run of the earlier state"
    )
    arguments.add_argument("--kind", choices=KINDS, default=KINDS[0], help="of that run")
    arguments.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.child is not None:
        return _child(given.child[0], *map(int, given.child[1:]))
    if given.show is not None:
        return _run(given.kind, given.show, sys.stdout.write)
    differing = 0
    for kind in KINDS:
        told = [
            _start(state, "--child", kind, str(given.first), str(given.runs)).communicate()[0].splitlines()
            for state in (given.before.resolve(), HERE)
        ]
        differs = [one.split()[0] for one, other in zip(*told, strict=True) if one != other]
        print(f"{kind}: {given.runs - len(differs)} of {given.runs} runs are the same", *differs)
        differing += len(differs)
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
