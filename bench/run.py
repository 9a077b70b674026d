"""Measures Crewel, its peers and the floor, and writes bench/RESULTS.md.

    python bench/run.py                             everything, three rounds
    python bench/run.py --quick                     one short round, printed only
    python bench/run.py --cases A,B --peers crewel,faye --rounds 1 --seconds 3

Servers run one after the other, each on a core of its own with the meter on another. In
every round each case is asked of every server in turn, so that slow drifts of the machine
meet all of them alike. A choice of cases or peers is printed, and written only with --out.
"""

import argparse
import datetime as dt
import json
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import TypeVar

import report
from cases import CASES, Case
from peers import BENCH, BUILD, Missing, Peer, earlier, peers
from report import Run
from servers import Failed, build_meter, measure, raise_file_limit, running

_Entry = TypeVar("_Entry", Case, Peer)


def main() -> int:
    """Run the benchmark; 0 when everything that could be measured was."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are ended on the way out
    raise_file_limit()
    every = peers(options.set)
    if options.before is not None:
        every = (every[0], earlier(options.before, options.set))
    run = Run(
        command=shlex.join(["bench/run.py", *sys.argv[1:]]),
        date=dt.datetime.now(dt.UTC).date().isoformat(),
        seconds=options.seconds,
        rounds=options.rounds,
        cases=_chosen(options.cases, {case.letter: case for case in CASES}),
        peers=_chosen(options.peers, {peer.name: peer for peer in every}),
    )
    try:
        build_meter()
    except Missing as missing:
        print(f"The meter cannot be built: {missing}", file=sys.stderr)
        return 2
    _prepare(run)
    _rounds(run)
    text = report.render(run)
    print(f"\n{text}")
    out = options.out or (BENCH / "RESULTS.md" if _is_whole(options) else None)
    if out:
        report.write(run, out)
    return 1 if run.failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", help="letters, such as A,B; all by default")
    parser.add_argument("--peers", help="names, such as crewel,faye; all by default")
    parser.add_argument("--before", type=Path, help="measure Crewel alone, beside a checkout of an earlier state")
    parser.add_argument("--rounds", type=int, help="how often everything is measured (3)")
    parser.add_argument("--seconds", type=float, help="how long each measurement lasts (8)")
    parser.add_argument("--quick", action="store_true", help="one round of 3 s, printed only")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting for Crewel")
    parser.add_argument("--out", type=Path, help="write the report between the markers of this file")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.seconds = options.seconds or (3.0 if options.quick else 8.0)
    return options


def _is_whole(options: argparse.Namespace) -> bool:
    return not (options.quick or options.cases or options.peers or options.set or options.before)


def _chosen(names: str | None, table: dict[str, _Entry]) -> list[_Entry]:
    if not names:
        return list(table.values())
    unknown = [name for name in names.split(",") if name not in table]
    if unknown:
        sys.exit(f"Not known: {', '.join(unknown)}. There are {', '.join(table)}.")
    return [entry for name, entry in table.items() if name in names.split(",")]


def _prepare(run: Run) -> None:
    for peer in run.peers:
        try:
            _say(f"{peer.title}: making ready")
            peer.prepare()
            run.versions[peer.name] = peer.version()
        except Missing as missing:
            run.missing[peer.name] = str(missing)
            _say(f"{peer.title} is missing: {missing}")


def _rounds(run: Run) -> None:
    for number in range(1, run.rounds + 1):
        run.background.append(_busy_cores(1.0))
        for case in run.cases:
            # In another order each round: who comes after the other finds another machine (clock rate, closed connections).
            for peer in run.peers if number % 2 else reversed(run.peers):
                is_able = (peer.websocket or not case.websocket) and (peer.stores or not case.stores)
                if peer.name not in run.missing and is_able:
                    _one(run, case, peer, number)
    (BUILD / "results.json").write_text(
        json.dumps({f"{case} {peer}": rounds for (case, peer), rounds in run.figures.items()}, indent=1)
    )


def _one(run: Run, case: Case, peer: Peer, number: int) -> None:
    label = f"round {number}, case {case.letter}, {peer.title}"
    try:
        with running(peer) as server:
            result = measure(server, peer, case, run.seconds)
    except Failed as failure:
        run.failures.append(f"{label}: {failure}")
        _say(run.failures[-1])
        return
    figures = case.figures(result)
    run.figures.setdefault((case.letter, peer.name), []).append(figures)
    _say(
        f"{label}: " + ", ".join(f"{name} {value:.2f}" for name in case.columns if (value := figures[name]) is not None)
    )
    for complaint in result["complaints"]:
        _say(f"    {complaint}")


def _busy_cores(seconds: float) -> float:
    """How many cores are in use while nothing of ours runs."""

    def busy() -> float:
        words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        return (sum(map(int, words[:8])) - int(words[3]) - int(words[4])) / os.sysconf("SC_CLK_TCK")

    before = busy()
    time.sleep(seconds)
    return (busy() - before) / seconds


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
