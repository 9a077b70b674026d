"""`crewel top`: the overview of a server in a terminal."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from crewel.cli import output
from crewel.cli.admin_client import Admin
from crewel.cli.bayeux_client import AsJson
from crewel.standard_output import console

if TYPE_CHECKING:
    from rich.console import RenderableType

_BARS: Final = "▁▂▃▄▅▆▇█"
_SHOWN: Final = 60
"""Samples of a line of bars: five minutes."""
_LINES: Final = (
    ("published", "published /s"),
    ("delivered", "delivered /s"),
    ("redelivered", "sent again /s"),
    ("deadLetters", "dead letters /s"),
    ("refused", "refused /s"),
    ("waiting", "waiting"),
    ("sessions", "sessions"),
    ("p50", "acknowledged, p50 ms"),
    ("p99", "acknowledged, p99 ms"),
)
"""Columns of the samples, and what they are called here."""
_TIMES: Final = ("p50", "p99")
_PRESENCE: Final = ("connected", "away")
"""How a session stands at least."""


async def top(
    admin: Admin,
    once: Annotated[bool, typer.Option("--once", help="Print the overview once and end.")] = False,
    every: Annotated[float, typer.Option(min=1.0, help="Seconds between updates.")] = 5.0,
    as_json: AsJson = None,
) -> None:
    """Show the overview of the server until interrupted: rates, backlog, sessions, the store, and problems."""
    import asyncio

    if output.wants_json(as_json) or once or not sys.stdout.isatty():
        while True:
            overview = await admin.call("GET", "/overview")
            if output.wants_json(as_json):
                output.print_json(overview)
            else:
                _print(overview)
            if once:
                return
            await asyncio.sleep(every)
    from rich.live import Live

    with Live(console=console(), screen=True, auto_refresh=False) as live:
        while True:
            live.update(shown(await admin.call("GET", "/overview")), refresh=True)
            await asyncio.sleep(every)


def _print(overview: Mapping[str, Any]) -> None:
    console(soft_wrap=True).print(shown(overview))


def shown(overview: Mapping[str, Any]) -> "RenderableType":
    """The overview as a terminal shows it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from crewel.times import format_span, format_timestamp

    store, sessions = overview["store"], overview["sessions"]
    rates = Table("figure", "now", "the last five minutes", box=None, pad_edge=False)
    for column, name in _LINES:
        values = overview["samples"][column][-_SHOWN:]
        rates.add_row(name, figure(values[-1] if values else None, column), bars(values))
    lines = [
        Text(
            f"{overview['node']}   {format_timestamp(overview['at'])}   up {format_span(overview['uptimeMs'] // 1000)}",
            style="bold",
        ),
        rates,
        Text(f"sessions: {_conditions(sessions['conditions'])}"),
        Text(f"store: {_store(store)}"),
        *(_finding(finding) for finding in overview["findings"]),
        *([] if overview["findings"] else [Text("nothing is wrong", style="green")]),
        *(_over(each) for each in overview.get("over", ())),  # servers of before do not tell it
    ]
    return Group(*lines)


def _conditions(counts: Mapping[str, int]) -> str:
    """How many sessions stand how, in the words of the other lists: each is connected or away, and may be more than that."""
    there = [f"{counts[word]:,} {word}" for word in _PRESENCE if word in counts]
    more = [f"{count:,} {word}" for word, count in counts.items() if word not in _PRESENCE]
    return "; of these ".join(filter(None, (", ".join(there) or "none", ", ".join(more))))


def _store(store: Mapping[str, Any]) -> str:
    from crewel.times import format_timestamp

    if (since := store.get("unknownSince")) is not None:
        return f"{store['trouble']}; its memory and its dead letters are unknown since {format_timestamp(since)}"
    if not store["kept"]:
        return "none: nothing is stored"
    return f"ready, {store['usedMemory'] / 1_048_576:.0f} MiB, {store['letters']:,} dead letters"


def _finding(finding: Mapping[str, Any]) -> "RenderableType":
    from rich.text import Text

    from crewel.logs import escaped

    style = "bold red" if finding["level"] == "bad" else "yellow"
    text = f"{finding['level'].upper()} {finding['title']}: {finding['cause']}{_times(finding)}. {finding['advice']}"
    return Text(escaped(text), style=style)


def _times(finding: Mapping[str, Any]) -> str:
    """Since when it is so, and since when the client is away of the only receiver that it is about."""
    from crewel.times import format_timestamp

    receivers = finding.get("receivers", ())  # servers of before do not have them
    away = receivers[0]["awaySince"] if len(receivers) == 1 else None
    times = {"since": finding["since"], "its client is away since": away}
    said = "; ".join(f"{what} {format_timestamp(at)}" for what, at in times.items() if at is not None)
    return f" ({said})" if said else ""


def _over(past: Mapping[str, Any]) -> "RenderableType":
    from rich.text import Text

    from crewel.logs import escaped
    from crewel.times import format_span, format_timestamp

    lasted = format_span((past["until"] - past["since"]) // 1000)
    times = f"from {format_timestamp(past['since'])} to {format_timestamp(past['until'])}, for {lasted}"
    return Text(escaped(f"OVER {past['title']} {times}: {past['cause']}"), style="dim")


def bars(values: Sequence[float | None]) -> str:
    """The values as a line of bars, one a character, the highest as high as the line; a space for what is unknown."""
    most = max((value for value in values if value is not None), default=0)
    if not most:
        return "".join(" " if value is None else _BARS[0] for value in values)
    return "".join(" " if value is None else _BARS[min(int(value / most * 8), 7)] for value in values)


def figure(value: float | None, column: str) -> str:
    """The value of this column; of a long time only what it is at least."""
    from crewel.storage.streams import WIDE_MS

    if value is None:
        return "-"
    if column in _TIMES and value >= WIDE_MS:
        return f"≥ {value:,.0f}"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
