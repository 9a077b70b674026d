"""The page of a report: what a manager wants to know first, then the figures, then the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any, Final

from crewel.pipeline.report.plots import bars, columns, lines, number

__all__ = ["page"]

Rows = Sequence[Mapping[str, Any]]

_STYLE: Final = Path(__file__).parent / "report.css"
_MOST_SHOWN: Final = 25
_NONE: Final = "-"
_TROUBLES: Final = ("lost", "twice", "surplus", "both")


def page(told: Mapping[str, Any]) -> str:
    """Return the page. `told` has `since`, `until`, `totals`, the plots' rows `settling` and `hours`, and the rows of the
    tables `triage`, `poison`, `receivers`, `backlog`, `latency`, `capacity` and `audit`, the last one None if nobody has."""
    since, until = _moment(told["since"]), _moment(told["until"])
    parts = [
        f"<h1>What happened to the messages</h1><p class='time'>{since} to {until} (UTC)</p>",
        _summary(told),
        _died(told),
        _poison(told["poison"]),
        _receivers(told["receivers"]),
        _settling(told),
        _backlog(told["backlog"]),
        _capacity(told),
        _audit(told["audit"]),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Crewel: {since} to {until}</title><style>{_STYLE.read_text('utf-8')}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


# What a manager wants to know first


def _summary(told: Mapping[str, Any]) -> str:
    totals = told["totals"]
    audit = told["audit"]
    troubles = None if audit is None else sum(row["finding"] in _TROUBLES for row in audit)
    tiles = (
        _tile(
            totals["letters"],
            "messages died",
            "are dead letters: nobody gets them by itself",
            is_bad=bool(totals["letters"]),
        ),
        _tile(totals["poison"], "poison messages", "were rejected more than once", is_bad=bool(totals["poison"])),
        _tile(totals["sick"], "sick receivers", "fail, lag or are held back", is_bad=bool(totals["sick"])),
        _tile(
            "?" if troubles is None else troubles,
            "not accounted for",
            "run `crewel pipeline audit` to know" if troubles is None else "by the audit of every message",
            is_bad=bool(troubles),
        ),
    )
    return f'<div class="tiles">{"".join(tiles)}</div><ul class="words">{"".join(_sentences(told))}</ul>'


def _tile(figure: Any, name: str, words: str, *, is_bad: bool) -> str:
    shown = number(figure) if isinstance(figure, int) else figure
    state = "bad" if is_bad else "good" if figure != "?" else "open"
    return f'<div class="tile {state}"><b>{shown}</b><span>{escape(name)}</span><small>{_code(words)}</small></div>'


def _sentences(told: Mapping[str, Any]) -> Iterable[str]:
    for row in told["triage"][:1]:
        yield (
            f"<li>Most often died: <b>{escape(row['code'])}</b> on <code>{escape(row['channel'] or '(unknown)')}</code> at"
            f" <code>{escape(row['receiver'])}</code>, {number(row['letters'])} times. {_quoted(row['sample_reason'])}</li>"
        )
    for row in told["poison"][:1]:
        yield (
            f"<li>Worst message: <code>{escape(row['message_id'])}</code> on <code>{escape(row['channel'])}</code>, rejected"
            f" {number(row['failures'])} times by {number(row['receivers'])} receivers.</li>"
        )
    sick = [row for row in told["receivers"] if row["is_sick"]]
    for row in sick[:5]:
        yield f"<li><code>{escape(row['session'])}</code> {escape(', and '.join(row['why']))}.</li>"
    if not (told["triage"] or told["poison"] or sick):
        yield "<li>Nothing died, no message was rejected more than once, and no receiver is conspicuous.</li>"


# The sections


def _died(told: Mapping[str, Any]) -> str:
    by_code: Counter[str] = Counter()
    for row in told["triage"]:
        by_code[row["code"]] += row["letters"]
    return _section(
        "What died, and why",
        "Each dead letter is a message that one receiver did not take. Those of one row have a code, channel, receiver and the"
        " wording of the reason in common.",
        bars("Dead letters by code", by_code.most_common(10)),
        _table(
            told["triage"],
            ("Letters", lambda row: number(row["letters"]), True),
            ("Code", lambda row: _as_code(row["code"]), False),
            ("Channel", lambda row: _as_code(row["channel"]), False),
            ("Receiver", lambda row: _as_code(row["receiver"]), False),
            ("Reason", lambda row: escape(row["template"]), False),
            ("First", lambda row: _moment(row["first_at"]), False),
            ("Last", lambda row: _moment(row["last_at"]), False),
            ("Died after", lambda row: _duration(row["to_death_median_ms"]), True),
            ("Attempts", lambda row: _figure(row["attempts_mean"]), True),
            ("For example", lambda row: _example(row["sample_letter"], row["sample_body"]), False),
        ),
    )


def _poison(rows: Rows) -> str:
    return _section(
        "Poison messages",
        "Rejected by several receivers, or several times by one: more likely the message is at fault than who gets it.",
        _table(
            rows,
            ("Message", lambda row: _as_code(row["message_id"]), False),
            ("Channel", lambda row: _as_code(row["channel"]), False),
            ("Receivers", lambda row: number(row["receivers"]), True),
            ("Rejected", lambda row: number(row["failures"]), True),
            ("Codes", lambda row: "<br>".join(map(_as_code, row["codes"])), False),
            ("By", lambda row: "<br>".join(map(_as_code, row["names"])), False),
            ("Last", lambda row: _moment(row["last_at"]), False),
            ("Content", lambda row: _example(row["sample_reason"] or "", row["sample_body"] or ""), False),
        ),
    )


def _receivers(rows: Rows) -> str:
    sick = [row for row in rows if row["is_sick"]]
    return _section(
        "Sick receivers",
        f"Compared with their own past and with those who subscribe to the same. {number(len(rows) - len(sick))} others are"
        " as usual.",
        _table(
            sick,
            ("Receiver", lambda row: _as_code(row["session"]), False),
            ("What", lambda row: "<br>".join(map(escape, row["why"])), False),
            ("Settled", lambda row: number(row["settled"]), True),
            ("Failed", lambda row: number(row["failed"]), True),
            ("Rate", lambda row: _share(row["failure_rate"]), True),
            ("Peers", lambda row: _share(row["peers_failure_rate"]), True),
            ("Held back", lambda row: _duration(row["held_ms"]), True),
            ("Away", lambda row: _duration(row["polling_ms"]), True),
            ("Sent again", lambda row: number(row["redelivered"]), True),
            ("Lag", lambda row: _duration(row["lag_median_ms"]), True),
            ("Peers' lag", lambda row: _duration(row["peers_lag_median_ms"]), True),
        ),
    )


def _settling(told: Mapping[str, Any]) -> str:
    rows: Rows = told["settling"]
    series = {
        name: [(row["minute"], row[column]) for row in rows]
        for name, column in (("half", "p50_ms"), ("9 of 10", "p90_ms"), ("99 of 100", "p99_ms"))
    }
    return _section(
        "How long settling takes",
        "From the moment a message is stored until its receiver has answered, over all channels. Each point is a minute.",
        lines("How long settling takes", series, "ms"),
        _table(
            told["latency"],
            ("Minute", lambda row: _moment(row["minute"]), False),
            ("Channel", lambda row: _as_code(row["channel"]), False),
            ("Settled", lambda row: number(row["count"]), True),
            ("Half within", lambda row: _duration(row["p50_ms"]), True),
            ("9 of 10", lambda row: _duration(row["p90_ms"]), True),
            ("99 of 100", lambda row: _duration(row["p99_ms"]), True),
        ),
    )


def _backlog(rows: Rows) -> str:
    series = {
        "wait": [(row["minute"], row["waiting"]) for row in rows],
        "came to be owed": [(row["minute"], row["owed"]) for row in rows],
        "ended": [(row["minute"], row["ended"]) for row in rows],
    }
    return _section(
        "What waits",
        "Messages that receivers are owed and have not settled yet, at the end of each minute.",
        lines("What waits", series),
    )


def _capacity(told: Mapping[str, Any]) -> str:
    rows: Rows = told["hours"]
    series = {
        "stored": [(row["hour"], row["persistent"]) for row in rows],
        "not stored": [(row["hour"], row["transient"]) for row in rows],
    }
    return _section(
        "How much there is",
        "Messages by hour. Those that are not stored are known at `events.level=all` only.",
        columns("Messages by hour", series),
        _table(
            told["capacity"],
            ("Hour", lambda row: _moment(row["hour"]), False),
            ("Channel", lambda row: _as_code(row["channel"]), False),
            ("Stored", lambda row: number(row["persistent"]), True),
            ("Not stored", lambda row: number(row["transient"]), True),
            ("Deliveries", lambda row: number(row["deliveries"]), True),
            ("Receivers", lambda row: number(row["sessions"]), True),
            ("Bytes of facts", lambda row: number(row["bytes"]), True),
            ("Trend", lambda row: _trend(row["trend"]), True),
        ),
    )


def _audit(rows: Rows | None) -> str:
    if rows is None:
        body = "<p class='none'>Nobody has audited yet: <code>crewel pipeline audit</code>.</p>"
    elif not rows:
        body = "<p class='fine'>Every message that was owed has ended once, or waits.</p>"
    else:
        body = _table(
            rows,
            ("Finding", lambda row: f"<b>{escape(row['finding'])}</b>", False),
            ("Message", lambda row: _as_code(str(row["log_id"] or "")), False),
            ("Channel", lambda row: _as_code(row["channel"] or ""), False),
            ("Receiver", lambda row: _as_code(row["receiver"]), False),
            ("Subscription", lambda row: _as_code(row["pattern"] or ""), False),
            ("In words", lambda row: escape(row["words"]), False),
            ("Facts", lambda row: " ".join(map(_as_code, row["evidence"])), False),
        )
    return _section(
        "Is anything lost?", "What the last audit found: all that was owed, against all that became of it.", body
    )


# Pieces


def _section(title: str, words: str, *parts: str) -> str:
    return f"<section><h2>{escape(title)}</h2><p>{_code(words)}</p>{''.join(parts)}</section>"


def _table(rows: Rows, *columns: tuple[str, Callable[[Mapping[str, Any]], str], bool]) -> str:
    """Make a table; a column has a name, its text as HTML, and whether that is a number."""
    if not rows:
        return "<p class='fine'>There are none.</p>"
    head = "".join(f"<th{' class=n' if is_number else ''}>{escape(name)}</th>" for name, _, is_number in columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=n' if is_number else ''}>{text(row)}</td>" for _, text, is_number in columns)
        + "</tr>"
        for row in rows[:_MOST_SHOWN]
    )
    more = (
        f"<p class='more'>and {number(len(rows) - _MOST_SHOWN)} more rows in the tables</p>"
        if len(rows) > _MOST_SHOWN
        else ""
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'


def _example(head: str, body: str) -> str:
    if not head and not body:
        return ""
    return f"<details><summary>{escape(head) or 'show'}</summary><pre>{escape(body)}</pre></details>"


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"


def _duration(ms: float | None) -> str:
    if ms is None:
        return _NONE
    for unit, length in (("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= length:
            return f"{number(round(ms / length, 1))} {unit}"
    return f"{number(round(ms))} ms"


def _share(share: float | None) -> str:
    return _NONE if share is None else f"{share * 100:.0f} %"


def _trend(trend: float | None) -> str:
    return _NONE if trend is None else f"{(trend - 1) * 100:+.0f} %"


def _figure(value: float | None) -> str:
    return _NONE if value is None else number(value)


def _as_code(text: str) -> str:
    return f"<code>{escape(text)}</code>" if text else ""


def _quoted(text: str) -> str:
    return f"“{escape(text)}”" if text else ""


def _code(words: str) -> str:
    """Return words as HTML, with what stands in backticks as code."""
    texts = escape(words).split("`")
    return "".join(f"<code>{text}</code>" if at % 2 else text for at, text in enumerate(texts))
