"""The section of RESULTS.md that a measurement writes, and what all of them have alike: command line, table, verdicts."""

import argparse
import datetime as dt
import os
import re
import shlex
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "RESULTS.md"
TARGETS = ("target", "measured:", "verdict", "in figures")


@dataclass(frozen=True, slots=True)
class Figure:
    """One target and what was measured: a row of a table with the columns TARGETS."""

    target: str
    measured: str
    is_met: bool
    detail: str

    def row(self) -> tuple[str, str, str, str]:
        """The cells of the row."""
        return self.target, self.measured, verdict(is_met=self.is_met), self.detail


@dataclass(frozen=True, slots=True)
class Section:
    """What a script writes between its markers. `stated` says what was measured; the command, the date and the load of the
    machine stand around it. A column whose title ends with a colon has figures."""

    marker: str
    title: str
    stated: str
    columns: Sequence[str]
    rows: Iterable[Sequence[str]]
    notes: Sequence[str] = ()
    """Lines before the table."""
    conclusion: str = ""

    def render(self) -> str:
        """The whole section as Markdown."""
        command = shlex.join(["python", f"bench/{Path(sys.argv[0]).name}", *sys.argv[1:]])
        load = f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        titles = [title.removesuffix(":") for title in self.columns]
        ruler = ["---:" if title.endswith(":") else "---" for title in self.columns]
        lines = [
            f"<!-- {self.marker} -->",
            f"## {self.title}",
            "",
            f"`{command}` on {dt.datetime.now(dt.UTC).date()}: {self.stated} Load average of the machine at the end, this meter"
            f" included: {load}.",
            *self.notes,
            "",
            *(f"| {' | '.join(cells)} |" for cells in (titles, ruler, *self.rows)),
            *(["", self.conclusion] if self.conclusion else ()),
            f"<!-- /{self.marker} -->",
        ]
        return "\n".join(lines)

    def publish(self, *, is_part: bool) -> None:
        """Print the section and, unless it is only a part, put it into RESULTS.md, at the end when it is new."""
        text = self.render()
        print(text)
        if is_part:
            return
        whole = RESULTS.read_text()
        begin, end = re.escape(f"<!-- {self.marker} -->"), re.escape(f"<!-- /{self.marker} -->")
        written, count = re.subn(f"{begin}.*{end}", lambda _: text, whole, flags=re.DOTALL)
        RESULTS.write_text(written if count else f"{whole.rstrip()}\n\n{text}\n")


def parser(doc: str | None, quick: str = "") -> argparse.ArgumentParser:
    """The command line of a script; `quick` says what its option --quick does."""
    made = argparse.ArgumentParser(prog=f"bench/{Path(sys.argv[0]).name}", description=(doc or "").partition("\n")[0])
    if quick:
        made.add_argument("--quick", action="store_true", help=f"{quick}, printed only")
    return made


def verdict(*, is_met: bool) -> str:
    """What a report says of a target."""
    return "met" if is_met else "MISSED"


def spread(values: list[float]) -> str:
    """The median with its range."""
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})" if values else "none"
