"""The figures of the README, taken from the last run of the benchmark: bench/RESULTS.md."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

RESULTS: Final = Path(__file__).parents[1] / "bench" / "RESULTS.md"
SERVERS: Final = (
    "Crewel",
    "CometD Java",
    "Faye",
    "cometd-nodejs-server",
    "socket.io",
    "mosquitto",
    "NATS",
    "Centrifugo",
)
_CASES: Final = (
    ("CPU per delivery, µs: long-polling", "A", "CPU µs per delivery"),
    ("the same, acknowledged", "B", "CPU µs per delivery"),
    ("p99 latency, ms, at 20,000 of these per second", "B", "p99 ms"),
    ("deliveries per second that one core sustains", "D", "sustained deliveries/s"),
    ("CPU per delivery, µs: WebSocket", "C", "CPU µs per delivery"),
)
"""What the README says of a case, its letter, and the column of its table."""
_SOCKETS: Final = ("WebSocket, in a run of its own", "plain fan-out")
"""What it says of a line of `bench/sockets.py`, and how that line begins."""
_FIGURE: Final = re.compile(r"(?:^|, )([A-Za-z][\w. -]*?) ([\d.,]+) \(")


def rows(results: str) -> Iterator[tuple[str, ...]]:
    """Yield what was measured, and the figure of each server. Raises KeyError if the results lack one of Crewel."""
    for words, letter, column in _CASES:
        case = _table(results, rf"{letter}\. ")
        head = next(case)
        found = {line[0]: line[head.index(column)].partition(" ")[0] for line in case}
        yield (words, found["Crewel"], *(found.get(server, "") for server in SERVERS[1:]))
    words, first = _SOCKETS
    (line,) = (line for line in _table(results, "WebSockets beside others") if line[0].startswith(first))
    found = {"Crewel": line[1].partition(" ")[0], **dict(_FIGURE.findall(line[2]))}
    yield (words, *(found.get(server, "") for server in SERVERS))


def _table(results: str, heading: str) -> Iterator[list[str]]:
    """Yield the lines of the first table of a section, cell by cell."""
    sections = re.split(r"^## ", results, flags=re.MULTILINE)
    (section,) = (each for each in sections if re.match(heading, each))
    for line in section.splitlines():
        if line.startswith("|") and not line.startswith("| ---"):
            yield [cell.strip() for cell in line.strip("|").split("|")]
