"""The report: medians of the rounds, ratios to Crewel, and a verdict for each target."""

import math
import platform
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cases import CASES, COLUMN_TITLES, TARGETS, Case, Figures, Target
from peers import Peer, output_of, peers

_WORDS = {"server", "case", "target", "verdict"}  # columns to be read, not compared
BEGIN, END = "<!-- results -->", "<!-- /results -->"


@dataclass(slots=True)
class Run:
    """Everything one run of the benchmark found out."""

    command: str
    date: str
    seconds: float
    rounds: int
    cases: Sequence[Case]
    peers: Sequence[Peer]
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    figures: dict[tuple[str, str], list[Figures]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    background: list[float] = field(default_factory=list)

    def median(self, case: str, peer: str, figure: str) -> float | None:
        """The median over the rounds; None when most rounds did not get that far."""
        rounds = self.figures.get((case, peer))
        if not rounds:
            return None
        values = [value if (value := r.get(figure)) is not None else math.inf for r in rounds]
        middle = statistics.median(values)
        return None if math.isinf(middle) else middle

    def worst(self, case: str, peer: str, figure: str) -> float:
        """The highest value of any round: for losses, of which one round is one too many."""
        return max((r.get(figure) or 0.0 for r in self.figures.get((case, peer), [])), default=0.0)


def write(run: Run, path: Path) -> None:
    """Put the report between the markers of a file, and leave the rest of the file as it is."""
    block = f"{BEGIN}\n\n{render(run)}\n{END}"
    text = path.read_text() if path.exists() else f"# Results\n\n{BEGIN}\n{END}\n"
    path.write_text(re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: block, text, flags=re.DOTALL))


def render(run: Run) -> str:
    """The whole report as Markdown."""
    parts = [_circumstances(run), "## Targets\n\n" + _verdicts(run)]
    parts += [f"## {case.letter}. {case.title}\n\n{case.question}\n\n{_table(run, case)}" for case in run.cases]
    return "\n".join(parts)


def _table_of(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    ruler = ["---" if words else "---:" for words in (title in _WORDS for title in head)]
    lines = ["| " + " | ".join(row) + " |" for row in (head, ruler, *rows)]
    return "\n".join(lines) + "\n"


# ---- figures ----


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if value == int(value) and abs(value) < 1000:
        return str(int(value))
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def _with_spread(run: Run, case: str, peer: str, figure: str) -> str:
    values = [v for r in run.figures.get((case, peer), []) if (v := r.get(figure)) is not None]
    text = _number(run.median(case, peer, figure))
    if len(values) < 2:
        return text
    return f"{text} ({_number(min(values))} to {_number(max(values))})"


def _ratio(mine: float | None, other: float | None) -> str:
    return f"{mine / other:.2f}" if mine is not None and other else "-"


_WORST = {"lost", "duplicates", "errors"}


def _cell(run: Run, case: str, peer: str, figure: str, first: bool) -> str:
    if figure in _WORST:
        return _number(run.worst(case, peer, figure))
    if first:
        return _with_spread(run, case, peer, figure)
    return _number(run.median(case, peer, figure))


def _title(case: Case, column: str) -> str:
    if column == "cpu_us" and case.letter in "EG":
        return {"E": "CPU µs per message", "G": "CPU µs per client"}[case.letter]
    return COLUMN_TITLES[column]


def _table(run: Run, case: Case) -> str:
    lead = case.columns[0]
    mine = run.median(case.letter, "crewel", lead)
    head = ["server", *(_title(case, column) for column in case.columns), "Crewel to it"]
    rows = []
    for peer in run.peers:
        if (case.letter, peer.name) not in run.figures:
            continue
        cells = [_cell(run, case.letter, peer.name, column, column == lead) for column in case.columns]
        own = peer.name == "crewel"
        rows.append([peer.title, *cells, "" if own else _ratio(mine, run.median(case.letter, peer.name, lead))])
    return _table_of(head, rows)


# ---- verdicts ----


def _verdicts(run: Run) -> str:
    chosen = {case.letter for case in run.cases}
    rows = [_verdict(run, target) for target in TARGETS if target.case in chosen]
    met = sum(row[-1] == "met" for row in rows)
    return f"{met} of {len(rows)} met.\n\n" + _table_of(["case", "target", "measured", "verdict"], rows)


def _verdict(run: Run, target: Target) -> list[str]:
    case = next(case for case in CASES if case.letter == target.case)
    what = _title(case, target.figure)
    titles = {peer.name: peer.title for peer in peers([])}
    bound = "at least" if target.at_least else "at most"
    limit = f"{target.limit:,.2f} x {titles[target.peer]}" if target.peer else _number(target.limit)
    asked = f"{what}: {bound} {limit}"
    measured = _measured(run, target)
    if measured is None:
        reached = bool(run.figures.get((target.case, "crewel"))) and not target.peer
        return [target.case, asked, "not reached" if reached else "-", "MISSED" if reached else "not measured"]
    met = measured >= target.limit if target.at_least else measured <= target.limit
    return [target.case, asked, "0 there" if measured == math.inf else _number(measured), "met" if met else "MISSED"]


def _measured(run: Run, target: Target) -> float | None:
    if not run.figures.get((target.case, "crewel")):
        return None
    if target.figure in _WORST:
        return run.worst(target.case, "crewel", target.figure)
    mine = run.median(target.case, "crewel", target.figure)
    if not target.peer:
        return mine
    other = run.median(target.case, target.peer, target.figure)
    if mine is None or other is None:
        return None
    return mine / other if other else math.inf


# ---- circumstances ----


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _kernel() -> str:
    return ".".join(platform.release().split(".")[:2])


def _memory_gib() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal"):
            return int(line.split()[1]) / 1024 / 1024
    return 0.0


def _circumstances(run: Run) -> str:
    cores = len(re.findall(r"^processor", Path("/proc/cpuinfo").read_text(), re.MULTILINE))
    lines = [
        f"`{run.command}`, {run.date}: {run.rounds} {'rounds' if run.rounds > 1 else 'round'},"
        f" {run.seconds:g} s a measurement, medians"
        + (" (in brackets the lowest and the highest round)." if run.rounds > 1 else "."),
        "",
        f"- Machine: {_processor()}, {cores} cores, {_memory_gib():.0f} GiB, Linux {_kernel()};"
        f" the server on one core, the meter on another ({output_of('cc', '--version')}).",
        f"- Processor use by others, of {cores} cores, before each round: "
        + (", ".join(f"{share:.2f}" for share in run.background) or "not known")
        + ".",
    ]
    for peer in run.peers:
        what = run.missing.get(peer.name)
        text = f"**missing**: {what}" if what else run.versions.get(peer.name, "?")
        lines.append(f"- {peer.title}: {text}" + (f"; {peer.note}" if peer.note else "") + ".")
    lines += [f"- Not measured: {failure}." for failure in run.failures]
    return "\n".join(lines) + "\n"
