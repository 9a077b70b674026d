"""What the sections of the page are put together from: tables, tiles, advice, and values as people write them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, Final

from crewel.pipeline.report.advice import Advice
from crewel.pipeline.report.plots import duration as _of_ms
from crewel.pipeline.report.plots import number

Rows = Sequence[Mapping[str, Any]]
Column = tuple[str, Callable[[Mapping[str, Any]], str], bool]
"""Name of a column, its text as HTML, and whether that is a number."""

MOST_SHOWN: Final = 10
"""Rows of a table that are seen at once."""
MOST_ADVICES: Final = 5
"""What to do that is seen at once."""
MOST_KEPT: Final = 100
"""Rows that the page has, the others on demand."""
_MOST_LINES: Final = 4
_MORE: Final = "<input type='checkbox' class='unfold' aria-label='the whole row'>"
"""On a phone a row is a card. With more columns than these it is closed, and shows the first three until this is checked."""
_NONE: Final = "-"


def section(title: str, words: str, *parts: str) -> str:
    """Make a section of the page."""
    return f"<section><h2>{escape(title)}</h2><p>{code(words)}</p>{''.join(parts)}</section>"


def closed(title: str, short: str, words: str, *parts: str) -> str:
    """Make a section of the page that is opened on demand, and says its finding in short until then."""
    head = f"<summary><h2>{escape(title)}</h2>{f'<small>{escape(short)}</small>' if short else ''}</summary>"
    return f"<section class='closed'><details>{head}<p>{code(words)}</p>{''.join(parts)}</details></section>"


def tile(figure: int | str, name: str, words: str, *, is_bad: bool) -> str:
    """Make one of the large figures at the top; one that is a text is not known."""
    shown = number(figure) if isinstance(figure, int) else figure
    state = "bad" if is_bad else "good" if isinstance(figure, int) else "open"
    return f'<div class="tile {state}"><b>{shown}</b><span>{escape(name)}</span><small>{code(words)}</small></div>'


def table(rows: Rows, *columns: Column, none: str = "There are none.", of: int | None = None) -> str:
    """Make a table of the first rows, others to open, and say how many more there are; or say `none`, if that says anything.
    `of` is the number of all rows, if these are the first ones only."""
    if not rows:
        return f"<p class='fine'>{code(none)}</p>" if none else ""
    rest = rows[MOST_SHOWN:MOST_KEPT]
    number_of_all = len(rows) if of is None else of
    left = number_of_all - MOST_SHOWN - len(rest)
    more = f"<p class='more'>and {number(left)} more in the tables</p>" if left > 0 else ""
    if rest:
        summary = f"the next {number(len(rest))}" if left > 0 else f"{number(len(rest))} more"
        more = f"<details class='rest'><summary>{summary}</summary>{_rows(rest, columns)}{more}</details>"
    return _rows(rows[:MOST_SHOWN], columns) + more


def _rows(rows: Rows, columns: Sequence[Column]) -> str:
    head = "".join(f"<th{' class=n' if is_number else ''}>{escape(name)}</th>" for name, _, is_number in columns)
    more = _MORE if len(columns) > _MOST_LINES else ""
    body = "".join(
        "<tr>"
        + "".join(
            _cell(name, text(row), "" if at else more, is_number=is_number)
            for at, (name, text, is_number) in enumerate(columns)
        )
        + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(name: str, text: str, more: str, *, is_number: bool) -> str:
    # On a phone there is no head, and each cell bears its name beside its lines.
    lines = text.replace("<br>", "</span><span>")
    shown = f"<span>{lines}</span>" if text else ""
    # There, what is not known takes no line.
    kinds = " ".join(kind for kind, holds in (("n", is_number), ("nil", text == _NONE)) if holds)
    kind = f' class="{kinds}"' if kinds else ""
    return f'<td data-name="{escape(name, quote=True)}"{kind}>{shown}{more}</td>'


def advices(found: Iterable[Advice]) -> str:
    """Make the box that tells what to do, with the commands to copy; nothing if there is nothing to do."""
    rows = [f"<li>{code(words)}{f'<pre>{escape(command)}</pre>' if command else ''}</li>" for words, command in found]
    if not rows:
        return ""
    first, rest = f"<ol>{''.join(rows[:MOST_ADVICES])}</ol>", rows[MOST_ADVICES:]
    if rest:
        more = f"<ol start='{MOST_ADVICES + 1}'>{''.join(rest)}</ol>"
        first += f"<details class='rest'><summary>{number(len(rest))} more</summary>{more}</details>"
    return f'<section class="do"><h2>What to do now</h2>{first}</section>'


def example(head: str, body: str, link: str = "") -> str:
    """Make something to open, that shows one message, and a link to it if there is one."""
    if not head and not body:
        return link
    return f"<details><summary>{escape(head) or 'show'}</summary><pre>{escape(body)}</pre>{link}</details>"


def folded(names: Iterable[str]) -> str:
    """Return some names, given as HTML: the first one, and the others to open."""
    first, *others = [*names] or [""]
    if not others:
        return first
    rest = "".join(f"<div>{each}</div>" for each in others)
    return f"{first}<br><details><summary>{number(len(others))} more</summary>{rest}</details>"


def several(count: int, one: str, more: str) -> str:
    """Return a number with its noun."""
    return f"{number(count)} {one if count == 1 else more}"


def moment(at: datetime) -> str:
    """Return a time to the minute."""
    return f"{at:%Y-%m-%d %H:%M}"


def duration(ms: float | None, *, is_sum: bool = False) -> str:
    """Return a length of time in the unit that suits it; a dash for none, and for a sum of nothing."""
    return _NONE if ms is None or (is_sum and not ms) else _of_ms(ms)


def share(value: float | None) -> str:
    """Return a share as per cent."""
    if value is None:
        return _NONE
    return f"{value * 100:.0f} %" if value >= 0.01 or not value else f"{value * 100:.2g} %"


def trend(value: float | None) -> str:
    """Return how much more or less it is."""
    return _NONE if value is None else f"{(value - 1) * 100:+.0f} %"


def figure(value: float | None) -> str:
    """Return a number, or a dash where there is none."""
    return _NONE if value is None else number(value)


def as_code(text: str) -> str:
    """Return a name as HTML."""
    return f"<code>{escape(text)}</code>" if text else ""


def quoted(text: str) -> str:
    """Return what someone has said, as HTML."""
    return f"“{escape(text)}”" if text else ""


def code(words: str) -> str:
    """Return words as HTML, with what stands in backticks as code."""
    texts = escape(words, quote=False).split("`")
    return "".join(f"<code>{text}</code>" if at % 2 else text for at, text in enumerate(texts))
