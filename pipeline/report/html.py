"""The page of a report: what a manager wants to know first, then each question with its figures, its rows, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any, Final

from crewel.pipeline.report import advice, slots
from crewel.pipeline.report.links import Links
from crewel.pipeline.report.pieces import (
    Rows,
    advices,
    as_code,
    closed,
    duration,
    example,
    figure,
    folded,
    moment,
    quoted,
    section,
    several,
    share,
    table,
    tile,
    trend,
)
from crewel.pipeline.report.plots import Span, columns, lines, number, strips
from crewel.storage.streams import BUCKETS_MS

_STYLE: Final = Path(__file__).parent / "report.css"
TROUBLES: Final = ("lost", "twice", "surplus", "both", "no letter", "damaged table")
"""Findings of the audit that count as not accounted for, the most urgent first."""
_TROUBLE_KINDS: Final = ("on hold", "absent", "fails")
"""What a receiver's time can be of, as in the table `receiver_times`."""
_MOST_CODES: Final = 5
_MOST_GROUPS: Final = 5
"""Sentences about failing receivers, of which each is about one incident."""
_MOST_NAMES: Final = 3
"""Names in one sentence."""
_OTHERS: Final = "other codes"
_UNKNOWN: Final = (
    " Of those that are gone, only the code is known; `crewel dead-letters bin` lists those discarded within a day."
)
_PAUSE_S: Final = 600.0
"""After so long without anything a line is interrupted."""


def page(told: Mapping[str, Any]) -> str:
    """Return the page. `told` has `since`, `until`, `totals`; the plots' rows `settling`, `hours`, `deaths` and `times`;
    `channels`, the rows of the table `latency` over all of the time; and those of the tables `triage`, `incidents`, `poison`,
    `failing_channels`, `receivers`, `backlog`, `capacity` and `audit`, the last one None if no one has, and `audited`, when
    that was. `counts` has how many rows each of these tables has, of which the page may get the first only. `slots` has the
    names of how long a point of `minutes` and a bar of `hours` and `deaths` stand for. `url` is the address of the server,
    scheme, host and port, if names are to be links to the pages of the operator."""
    since, until = moment(told["since"]), moment(told["until"])
    links = Links(told["url"])
    parts = [
        f"<h1>What happened to the messages</h1><p class='time'>{since} to {until} (UTC)</p>",
        _tiles(told),
        advices(advice.now(told)),
        f'<section><h2>In short</h2><ul class="words">{"".join(_sentences(told, links))}</ul></section>',
        _died(told, links),
        _receivers(told, links),
        _channels(told["failing_channels"], told["totals"]["channels"], links),
        _poison(told["poison"], told["totals"]["poison"], links),
        _audit(told, links),
        _backlog(told["backlog"], told["slots"]["minutes"]),
        _settling(told, links),
        _capacity(told, links),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Crewel: {since} to {until}</title><style>{_STYLE.read_text('utf-8')}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


# What a manager wants to know first


def _tiles(told: Mapping[str, Any]) -> str:
    letters, kept, poison, sick, channels = (
        told["totals"][name] for name in ("letters", "kept", "poison", "sick", "channels")
    )
    findings: Mapping[str, int] = told["totals"]["findings"]
    troubles = None if told["audit"] is None else sum(findings.get(name, 0) for name in TROUBLES)
    audited = (
        "run `crewel pipeline audit` to find out"
        if troubles is None
        else f"by the audit of every message, {moment(told['audited'])}"
    )
    tiles = (
        tile(
            letters,
            "dead letter" if letters == 1 else "dead letters",
            f"{number(kept)} of them {'is' if kept == 1 else 'are'} in the store until redriven or discarded"
            if letters
            else "no receiver failed to take a message",
            is_bad=bool(letters),
        ),
        tile(
            poison,
            "poison message" if poison == 1 else "poison messages",
            "the cause of their rejections" if poison else "no message is the cause of rejections",
            is_bad=bool(poison),
        ),
        tile(
            sick,
            "failing receiver" if sick == 1 else "failing receivers",
            "fail, lag, are absent or on hold" if sick else "all are normal",
            is_bad=bool(sick),
        ),
        tile(
            channels,
            "failing channel" if channels == 1 else "failing channels",
            "carry data that most receivers reject" if channels else "no publisher is the cause of rejections",
            is_bad=bool(channels),
        ),
        tile("?" if troubles is None else troubles, "not accounted for", audited, is_bad=bool(troubles)),
    )
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _sentences(told: Mapping[str, Any], links: Links) -> Iterable[str]:
    messages = told["totals"]["messages"]
    settled = sum(row["count"] for row in told["settling"])
    if messages or settled:
        published = several(messages, "message was", "messages were")
        yield f"<li>{published} published, and {several(settled, 'delivery', 'deliveries')} acknowledged.</li>"
    else:
        yield "<li>Nothing was published in this period.</li>"
    if older := told["totals"]["older"]:
        yield (
            f"<li>{several(older, 'dead letter', 'dead letters')} from before this period"
            f" {'is' if older == 1 else 'are'} not shown: see <code>--from</code>.</li>"
        )
    if redriven := told["totals"]["redriven"]:
        letters = several(sum(redriven.values()), "dead letter was", "dead letters were")
        yield f"<li>{letters} redriven: {', '.join(f'{number(count)} {fate}' for fate, count in redriven.items())}.</li>"
    for row, *others in advice.by_incident(told["incidents"])[:1]:
        words, rows = advice.meaning(row["code"]), [row, *others]
        channels = dict.fromkeys(channel for each in rows for channel in each["channels"])
        receivers = dict.fromkeys(each["receiver"] for each in rows)
        yield (
            f"<li>Largest incident: {as_code(row['code'])}"
            f"{f' ({escape(words[0].lower() + words[1:-1])})' if words else ''}, on"
            f" {_first(map(links.channel, channels)) or as_code('(unknown)')} at {_first(map(links.receiver, receivers))},"
            f" {several(sum(each['letters'] for each in rows), 'time', 'times')}. {quoted(row['sample_reason'])}</li>"
        )
    for row in told["failing_channels"][:3]:
        yield f"<li>Channel {links.channel(row['channel'])}: {escape(row['why'])}.</li>"
    for row in told["poison"][:1]:
        message, channel = links.message(row["message_id"]), links.channel(row["channel"])
        yield f"<li>Worst message: {message} on {channel}: {escape(row['why'])}.</li>"
    sick = [row for row in told["receivers"] if row["is_sick"]]
    groups = advice.alike(sick, told["incidents"])[:_MOST_GROUPS]
    for group in groups:
        names = _first(links.receiver(row["session"]) for row in group)
        one = "" if len(group) == 1 else ", for one reason. The first one"
        yield f"<li>{names}{one} {escape(', and '.join(group[0]['why']))}.</li>"
    if (more := told["totals"]["sick"] - sum(map(len, groups))) > 0:
        yield f"<li>and {several(more, 'more receiver is', 'more receivers are')} failing.</li>"
    if not (told["triage"] or told["poison"] or told["failing_channels"] or sick):
        yield "<li>There are no dead letters, and no message, channel or receiver is failing.</li>"


def _first(names: Iterable[str]) -> str:
    """Return names, given as HTML, in words."""
    return advice.listed([*names], _MOST_NAMES)


# The sections


def _died(told: Mapping[str, Any], links: Links) -> str:
    rows: Rows = told["incidents"]
    incidents = [_at_all(each) for each in advice.by_incident(rows)]
    by_code: Counter[str] = Counter(told["totals"]["codes"])
    shown = [code for code, _ in by_code.most_common(_MOST_CODES)]
    series: dict[str, Counter[datetime]] = {code: Counter() for code in (*shown, _OTHERS)}
    for row in told["deaths"]:
        series[row["code"] if row["code"] in shown else _OTHERS][row["minute"]] += row["letters"]
    over_time = {code: [*counts.items()] for code, counts in series.items() if counts}
    numbers = ", ".join(f"{as_code(code)} {number(count)}" for code, count in by_code.most_common(10))
    return section(
        "Dead letters",
        "A dead letter is a message that one receiver did not take. The server keeps it until an operator redrives or"
        " discards it. The dead letters of one row share code, cause and the wording of the reason, and follow one another"
        f" within 10 minutes.{_UNKNOWN if any(row['kept'] == 0 and not row['sample_reason'] for row in rows) else ''}",
        f"<p>By code: {numbers}.</p>" if numbers else "",
        columns(f"Dead letters by {told['slots']['deaths']}", over_time, "dead letters") if by_code else "",
        table(
            incidents,
            ("Dead letters", lambda row: _kept(row, links), True),
            ("Code", lambda row: _explained(row["code"]) + _others(row["other_codes"]), False),
            (
                "Receivers, channels",
                lambda row: "<br>".join(
                    (folded(map(links.receiver, row["receivers"])), folded(map(links.channel, row["channels"])))
                ),
                False,
            ),
            ("Cause", lambda row: escape(row["cause"] or "-"), False),
            ("Reason", lambda row: _reason(row, links), False),
            ("First, last", lambda row: f"{moment(row['first_at'])}<br>{moment(row['last_at'])}", False),
            (
                "After, attempts",
                lambda row: f"{duration(row['to_death_median_ms'])}<br>{figure(row['attempts_mean'])}",
                True,
            ),
            none="There are no dead letters.",
            of=told["counts"]["incidents"] - len(rows) + len(incidents),
        ),
    )


def _at_all(rows: Rows) -> dict[str, Any]:
    """One row for an incident at several receivers; the time until death and the attempts are those of the first."""
    channels = dict.fromkeys(channel for row in rows for channel in row["channels"])
    kept = [row["kept"] for row in rows]
    return {
        **rows[0],
        "receivers": list(dict.fromkeys(row["receiver"] for row in rows)),
        "channels": [*channels],
        "letters": sum(row["letters"] for row in rows),
        "kept": None if None in kept else sum(kept),
        "other_codes": list(dict.fromkeys(code for row in rows for code in row["other_codes"])),
        "first_at": min(row["first_at"] for row in rows),
        "last_at": max(row["last_at"] for row in rows),
    }


def _kept(row: Mapping[str, Any], links: Links) -> str:
    """How many died; those that are still there, the operator can see."""
    receiver = row["receiver"] if len(row["receivers"]) == 1 else ""
    link = links.letters(f"{number(row['kept'])} kept", receiver, row["code"]) if row["kept"] else ""
    return number(row["letters"]) + (f"<br>{link}" if link else "")


def _reason(row: Mapping[str, Any], links: Links) -> str:
    if not row["sample_letter"]:
        return escape(row["template"])
    content = f"{row['sample_letter']}\n{row['sample_body']}"
    return f"{escape(row['template'])}<br>{example('show', content, links.letter('this dead letter', row['sample_letter']))}"


def _others(codes: list[str]) -> str:
    return f"<small>also {', '.join(map(as_code, codes))}</small>" if codes else ""


def _explained(code: str) -> str:
    words = advice.meaning(code)
    return as_code(code) + (f"<small>{escape(words)}</small>" if words else "")


def _poison(rows: Rows, number_of_all: int, links: Links) -> str:
    return section(
        "Poison messages",
        "More receivers rejected the message than took it, also if only those count that are not failing themselves.",
        table(
            rows,
            ("Message", lambda row: links.message(row["message_id"]), False),
            ("Channel", lambda row: links.channel(row["channel"]), False),
            ("Evidence", lambda row: escape(row["why"]), False),
            ("Rejected", lambda row: several(row["failures"], "time", "times"), True),
            ("Codes", lambda row: folded(map(as_code, row["codes"])), False),
            ("By", lambda row: folded(map(links.receiver, row["names"])), False),
            ("Last", lambda row: moment(row["last_at"]), False),
            ("Content", lambda row: example(row["sample_reason"] or "", row["sample_body"] or ""), False),
            none="No message is the cause of rejections.",
            of=number_of_all,
        ),
    )


def _channels(rows: Rows, number_of_all: int, links: Links) -> str:
    return section(
        "Failing channels",
        "Most receivers reject its messages, and took those before: their publisher changed what it sends.",
        table(
            rows,
            ("Channel", lambda row: links.channel(row["channel"]), False),
            ("Evidence", lambda row: escape(row["why"]), False),
            ("Data", lambda row: as_code(row["shape"] or "?"), False),
            ("Data before", lambda row: as_code(row["earlier_shape"] or "?"), False),
            ("Publishers", lambda row: folded(map(links.receiver, row["publishers"])) or "?", False),
            ("Codes", lambda row: folded(map(as_code, row["codes"])), False),
            ("First, last", lambda row: f"{moment(row['first_at'])}<br>{moment(row['last_at'])}", False),
            ("Content", lambda row: example(row["sample_reason"] or "", row["sample_body"] or ""), False),
            none="No publisher is the cause of rejections.",
            of=number_of_all,
        ),
    )


def _receivers(told: Mapping[str, Any], links: Links) -> str:
    rows: Rows = told["receivers"]
    sick = [row for row in rows if row["is_sick"]]
    spans: dict[str, list[Span]] = {row["session"]: [] for row in sick}
    for row in told["times"]:
        words = several(row["failed"], "failure", "failures") if row["failed"] else ""
        spans[row["session"]].append(Span(row["begin"], row["end"] or told["until"], row["what"], words))
    strip = {session: found for session, found in spans.items() if found}
    others = told["counts"]["receivers"] - told["totals"]["sick"]
    as_usual = f"{several(others, 'other is', 'others are')} normal." if sick else ""
    return section(
        "Failing receivers",
        "Compared with their own past, and with receivers of the same patterns. An absence is known if the session expired;"
        f" one that ends with the client's return is not recorded, and shows as lag. {as_usual}",
        strips("Failing receivers over time", strip, _TROUBLE_KINDS, told["since"], told["until"]) if strip else "",
        table(
            sick,
            ("Receiver", lambda row: links.receiver(row["session"]), False),
            ("Reason", lambda row: "<br>".join(map(escape, row["why"])), False),
            ("Acknowledged", lambda row: number(row["settled"]), True),
            ("Failed", lambda row: number(row["failed"] - row["excused"]), True),
            (
                "Rate, of peers",
                lambda row: f"{share(row['failure_rate'])}<br>{share(row['peers_failure_rate'])}",
                True,
            ),
            ("On hold", lambda row: duration(row["held_ms"], is_sum=True), True),
            ("Absent until expiry", lambda row: duration(row["polling_ms"], is_sum=True), True),
            ("Redelivered", lambda row: number(row["redelivered"]), True),
            (
                "Lag, of peers",
                lambda row: f"{duration(row['lag_median_ms'])}<br>{duration(row['peers_lag_median_ms'])}",
                True,
            ),
            none=f"None of {several(others, 'receiver', 'receivers')} is failing."
            if rows
            else "There were no receivers.",
            of=told["totals"]["sick"],
        ),
    )


def _settling(told: Mapping[str, Any], links: Links) -> str:
    rows: Rows = told["settling"]
    series = {
        name: [(row["minute"], row[column]) for row in rows]
        for name, column in (("half within", "p50_ms"), ("9 of 10 within", "p90_ms"), ("99 of 100 within", "p99_ms"))
    }
    slot = told["slots"]["minutes"]
    is_drawn = not rows or any(row["p50_ms"] is not None for row in rows)
    return closed(
        "Time to acknowledgement",
        _slowest(rows, slot),
        f"From storing a message to its acknowledgement, over all channels. Each point is {_one(slot)}. A line is interrupted"
        f" where it is {_within(None)}.",
        lines("Time to acknowledgement", series, "ms", pause_s=_pause(slot)) if is_drawn else "",
        table(
            told["channels"],
            ("Channel", lambda row: links.channel(row["channel"]), False),
            ("Acknowledged", lambda row: number(row["count"]), True),
            ("Half within", lambda row: _within(row["p50_ms"]), True),
            ("9 of 10 within", lambda row: _within(row["p90_ms"]), True),
            ("99 of 100 within", lambda row: _within(row["p99_ms"]), True),
            none="",
        ),
    )


def _slowest(rows: Rows, slot: str) -> str:
    """The longest time to acknowledgement in words; empty if nothing was acknowledged."""
    bounds = [row["p99_ms"] for row in rows]
    if None in bounds:
        return f"more than 1 of 100 took {_within(None)} in the slowest {slot}"
    return f"99 of 100 within {duration(max(bounds))} in the slowest {slot}" if bounds else ""


def _within(ms: float | None) -> str:
    """The upper bound of a time to acknowledgement. None is that of the last bucket, which has none."""
    return f"over {duration(BUCKETS_MS[-1])}" if ms is None else duration(ms)


def _one(slot: str) -> str:
    """A slot with its article; 5 minutes need none."""
    return slot if slot[0].isdigit() else f"{'an' if slot == 'hour' else 'a'} {slot}"


def _pause(slot: str) -> float:
    """After so many seconds without anything a line is interrupted."""
    seconds = next(each.seconds for each in slots.ALL if each.name == slot)
    return max(_PAUSE_S, 2.5 * seconds)


def _backlog(rows: Rows, slot: str) -> str:
    series = {
        "pending at the end": [(row["minute"], row["waiting"]) for row in rows],
        "became pending": [(row["minute"], row["owed"]) for row in rows],
        "ended": [(row["minute"], row["ended"]) for row in rows],
    }
    finding = ""
    if rows:
        newest = max(rows, key=lambda row: row["minute"])
        most = max(row["waiting"] for row in rows)
        finding = f"{number(newest['waiting'])} pending at the end, {number(most)} at most"
    return closed(
        "Backlog",
        finding,
        f"Deliveries that became pending in {_one(slot)}, that ended in it, and that were pending at its end. A line that"
        " grows and does not come down is a receiver that does not keep up.",
        lines(f"Deliveries by {slot}", series, "messages"),
    )


def _capacity(told: Mapping[str, Any], links: Links) -> str:
    rows: Rows = told["hours"]
    series = {
        "stored": [(row["hour"], row["persistent"]) for row in rows],
        "transient": [(row["hour"], row["transient"]) for row in rows],
    }
    stored, transient = (sum(row[name] for row in rows) for name in ("persistent", "transient"))
    return closed(
        "Volume",
        f"{number(stored)} stored, {number(transient)} transient",
        f"Messages by {told['slots']['hours']}. Transient messages are counted with `events.level=all` only.",
        columns(f"Messages by {told['slots']['hours']}", series, "messages"),
        table(
            told["capacity"],
            ("Hour", lambda row: moment(row["hour"]), False),
            ("Channel", lambda row: links.channel(row["channel"]), False),
            ("Stored", lambda row: number(row["persistent"]), True),
            ("Transient", lambda row: number(row["transient"]), True),
            ("Deliveries", lambda row: number(row["deliveries"]), True),
            ("Receivers", lambda row: number(row["sessions"]), True),
            ("Bytes of facts", lambda row: number(row["bytes"]), True),
            ("Trend", lambda row: trend(row["trend"]), True),
            none="",
            of=told["counts"]["capacity"],
        ),
    )


def _audit(told: Mapping[str, Any], links: Links) -> str:
    rows: Rows | None = told["audit"]
    if rows is None:
        body = "<p class='none'>There was no audit yet.</p><pre>crewel pipeline audit</pre>"
    else:
        body = table(
            rows,
            ("Finding", lambda row: f"<b>{escape(row['finding'])}</b>", False),
            ("Message", lambda row: links.message(str(row["log_id"] or "")), False),
            ("Channel", lambda row: links.channel(row["channel"] or ""), False),
            ("Receiver", lambda row: links.receiver(row["receiver"]), False),
            ("Subscription", lambda row: links.pattern(row["pattern"] or ""), False),
            ("In words", lambda row: escape(row["words"]), False),
            ("Facts", lambda row: " ".join(map(as_code, row["evidence"])), False),
            none="Every pending delivery has ended once, or waits.",
            of=told["counts"]["audit"],
        )
    when = "" if rows is None else f" of {moment(told['audited'])}"
    return section(
        "Is anything lost?", f"Findings of the last audit{when}: every delivery compared with its end.", body
    )
