"""Plots as SVG: lines over time, columns over time, bars, and strips of time. They take their colours from the page.

Each is drawn twice, for a screen or paper and for a phone, and the page shows the one that fits: text that shrinks with
the plot could not be read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from typing import Final, NamedTuple

Points = Sequence[tuple[datetime, float | None]]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Sizes in pixels."""

    name: str
    width: int
    height: int
    left: int
    right: int
    times: int
    """Fewer times than this are on an axis."""
    label: int
    """Width of the names beside bars and strips; 0: they stand above."""
    letters: int
    """Letters of such a name."""


_LAYOUTS: Final = (
    _Layout("broad", 860, 264, 64, 24, 7, 250, 38),
    _Layout("slim", 340, 220, 52, 10, 3, 0, 44),
)
_TOP, _BOTTOM = 30, 40
_ROW, _NAME_ROW = 26, 18
_LETTER = 7
"""Width of a letter of an axis, at most."""
_MOST_COLOURS = 6
_TICKS: Final = 5
_STEPS: Final = (1, 2, 5, 10)
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_TIMES: Final = (
    *(count * _MINUTE for count in (1, 2, 5, 10, 15, 30)),
    *(count * _HOUR for count in (1, 2, 3, 6, 12)),
    *(count * _DAY for count in (1, 2, 7, 14, 30, 90, 365)),
)
"""Seconds that may lie between two times on an axis."""
_MOST_DAYS: Final = 7
_MS: Final = "ms"
_UNITS: Final = ((_MS, 1), ("s", 1000), ("min", 60_000), ("h", 3_600_000))
"""Of durations, with their milliseconds."""
_DURATIONS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(count * length for length in (1000, 60_000) for count in (1, 2, 5, 10, 15, 20, 30)),
    *(count * 3_600_000 for count in (1, 2, 3, 6, 12)),
    *(count * 86_400_000 for count in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
)
"""Milliseconds that may lie between two durations on an axis."""


class Span(NamedTuple):
    """A part of a strip."""

    begin: datetime
    end: datetime
    what: str
    words: str = ""
    """What is said of it beside `what` and its times."""


def lines(title: str, series: Mapping[str, Points], unit: str = "", pause_s: float | None = None) -> str:
    """Draw a line for each name. It is interrupted where a value is None, and where there is none for longer than `pause_s`.
    With the unit `ms`, values are written in the unit of time that suits them."""
    times = sorted({at for points in series.values() for at, _ in points})
    values = [value for points in series.values() for _, value in points if value is not None]
    if not values:
        return nothing(title)
    radius = 3 if len(times) < 40 else 2 if len(times) < 120 else 1

    def draw(layout: _Layout) -> str:
        scale = _Scale(layout, times, max(values), unit)
        drawn = [scale.axes(title)]
        for index, (name, points) in enumerate(series.items()):
            for run in _runs(points, pause_s):
                path = " ".join(f"{scale.x(at):.1f},{scale.y(value):.1f}" for at, value in run)
                drawn.append(f'<polyline class="line c{index % _MOST_COLOURS}" points="{path}"/>')
                # With more of them, no one could point at one; but what stands alone has no line.
                marks = run if len(times) < 120 or len(run) == 1 else ()
                drawn += [
                    f'<circle class="dot c{index % _MOST_COLOURS}" cx="{scale.x(at):.1f}" cy="{scale.y(value):.1f}"'
                    f' r="{radius}"><title>{escape(name)}: {_with(value, unit)}, {_clock(at, times)}</title></circle>'
                    for at, value in marks
                ]
        return _svg(title, layout, layout.height, drawn)

    return _legend(series) + _in_all(draw)


def columns(title: str, series: Mapping[str, Points], unit: str = "") -> str:
    """Draw for each moment a column, in which the names stand upon one another."""
    times = sorted({at for points in series.values() for at, _ in points})
    by_name = {name: dict(points) for name, points in series.items()}
    heights = [sum(found.get(at) or 0 for found in by_name.values()) for at in times]
    if not any(heights):
        return nothing(title)

    def draw(layout: _Layout) -> str:
        scale = _Scale(layout, times, max(heights), unit, is_columns=True)
        drawn = [scale.axes(title)]
        for at in times:
            below = 0.0
            for index, (name, found) in enumerate(by_name.items()):
                value = found.get(at) or 0
                if value:
                    top, foot = scale.y(below + value), scale.y(below)
                    drawn.append(
                        f'<rect class="fill c{index % _MOST_COLOURS}" x="{scale.x(at) - scale.column / 2:.1f}"'
                        f' y="{top:.1f}" width="{scale.column:.1f}" height="{foot - top:.1f}"><title>{escape(name)}:'
                        f" {_with(value, unit)}, {_clock(at, times)}</title></rect>"
                    )
                below += value
        return _svg(title, layout, layout.height, drawn)

    return _legend(series) + _in_all(draw)


def strips(title: str, rows: Mapping[str, Sequence[Span]], kinds: Sequence[str], begin: datetime, end: datetime) -> str:
    """Draw for each name its time from begin to end, on which its spans lie. `kinds` are what a span can be of."""
    if not rows or begin >= end:
        return nothing(title)
    times = [begin, end]
    length = (end - begin).total_seconds()

    def draw(layout: _Layout) -> str:
        wide = layout.width - layout.label - layout.right

        def x(at: datetime) -> float:
            return layout.label + wide * (min(max(at, begin), end) - begin).total_seconds() / length

        drawn = []
        for index, (label, spans) in enumerate(rows.items()):
            name, y = _named(layout, index, label)
            drawn.append(f'{name}<rect class="rest" x="{layout.label}" y="{y}" width="{wide}" height="18" rx="2"/>')
            for span in sorted(spans, key=lambda each: kinds.index(each.what)):
                width = max(x(span.end) - x(span.begin), 2.0)
                words = f"{span.what}{span.words and ', '}{span.words}"
                drawn.append(
                    f'<rect class="fill c{kinds.index(span.what) % _MOST_COLOURS}" x="{x(span.begin):.1f}" y="{y}"'
                    f' width="{width:.1f}" height="18"><title>{escape(words)}: {_clock(span.begin, times)} to'
                    f" {_clock(span.end, times)}</title></rect>"
                )
        foot = len(rows) * _row(layout) + 4
        drawn += [_time(layout, x(at), foot + 14, _clock(at, times)) for at in _ticks(begin, end, layout.times)]
        return _svg(title, layout, foot + 22, drawn)

    return _legend(kinds) + _in_all(draw)


def nothing(title: str) -> str:
    """Return what stands where there is nothing to draw."""
    return f'<p class="none">{escape(title)}: nothing in this period.</p>'


def number(value: float) -> str:
    """Return a number for people: 1,234 or 0.25."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2g}" if abs(value) < 1 else f"{value:.1f}"


def duration(ms: float) -> str:
    """Return a length of time for people: 20 ms, 1.5 s, 3 min, 2.1 h. `transformations.common.duration` does the same in
    tables."""
    # What is rounded up to 60 s is 1 min.
    for (unit, length), (_, longer) in pairwise(_UNITS):
        value = round(ms / length, 0 if unit == _MS else 1)
        if value * length < longer:
            return f"{number(value)} {unit}"
    unit, length = _UNITS[-1]
    return f"{number(round(ms / length, 1))} {unit}"


class _Scale:
    """Where a moment and a value are on the plot."""

    def __init__(
        self, layout: _Layout, times: Sequence[datetime], most: float, unit: str, *, is_columns: bool = False
    ) -> None:
        self._layout = layout
        self._times = times
        self._unit = unit
        self._step = _step_ms(most) if unit == _MS else _step(most)
        self._most = max(math.ceil(most / self._step), 1) * self._step
        self.column = 0.0
        wide = layout.width - layout.left - layout.right
        self._begin, self._end = times[0].timestamp(), times[-1].timestamp()
        self._x0, self._wide = float(layout.left), float(wide)
        if is_columns:
            smallest = min((b.timestamp() - a.timestamp() for a, b in pairwise(times)), default=1)
            slots = (self._end - self._begin) / smallest + 1
            slot = wide / max(slots, 6)  # a lonely column does not fill the plot
            self.column = max(slot * 0.8, 1.0)
            self._x0, self._wide = layout.left + slot / 2, wide - slot

    def x(self, at: datetime) -> float:
        length = self._end - self._begin
        return self._x0 + (self._wide * (at.timestamp() - self._begin) / length if length else self._wide / 2)

    def y(self, value: float) -> float:
        return _TOP + (self._layout.height - _TOP - _BOTTOM) * (1 - value / self._most)

    def axes(self, title: str) -> str:
        """Draw both axes, with what they show."""
        layout, unit = self._layout, self._unit
        end, foot = layout.width - layout.right, layout.height - _BOTTOM
        parts = [
            f'<text class="tick" x="0" y="12">{escape(title if unit == _MS else unit)}</text>',
            f'<text class="tick" x="{end}" y="{layout.height - 4}" text-anchor="end">time (UTC)</text>',
        ]
        for tick in range(round(self._most / self._step) + 1):
            value = tick * self._step
            y = self.y(value)
            shown = self._duration(value) if unit == _MS and value else number(value)
            parts.append(
                f'<line class="grid" x1="{layout.left}" x2="{end}" y1="{y:.1f}" y2="{y:.1f}"/>'
                f'<text class="tick" x="{layout.left - 8}" y="{y + 4:.1f}" text-anchor="end">{shown}</text>'
            )
        parts += [
            f'<line class="grid" x1="{self.x(at):.1f}" x2="{self.x(at):.1f}" y1="{foot}" y2="{foot + 4}"/>'
            + _time(layout, self.x(at), foot + 18, _clock(at, self._times))
            for at in _ticks(self._times[0], self._times[-1], layout.times)
        ]
        return "".join(parts)

    def _duration(self, ms: float) -> str:
        """Return a duration on the axis. All are in one unit: the longest in which none needs more than one decimal."""
        unit, length = next(
            (unit, length)
            for unit, length in reversed(_UNITS)
            if length == 1 or (length <= self._most and self._step * 10 % length == 0)
        )
        return f"{number(ms / length)} {unit}"


def _in_all(draw: Callable[[_Layout], str]) -> str:
    return "".join(f'<div class="{layout.name}">{draw(layout)}</div>' for layout in _LAYOUTS)


def _row(layout: _Layout) -> int:
    return _ROW if layout.label else _ROW + _NAME_ROW


def _named(layout: _Layout, index: int, label: str) -> tuple[str, int]:
    """Return the name of a bar or strip, drawn beside it or above it, and where that begins."""
    top = index * _row(layout) + 4
    short = f"{escape(_short(label, layout.letters))}<title>{escape(label)}</title></text>"
    if layout.label:
        return f'<text class="label" x="{layout.label - 8}" y="{top + 14}" text-anchor="end">{short}', top
    return f'<text class="label" x="0" y="{top + 12}">{short}', top + _NAME_ROW


def _time(layout: _Layout, x: float, y: float, words: str) -> str:
    """Write a time below the axis: centred at x, or beside it where half of it would lie outside the plot."""
    half = len(words) * _LETTER / 2
    anchor = "start" if x < half else "end" if x > layout.width - half else "middle"
    return f'<text class="tick" x="{x:.1f}" y="{y}" text-anchor="{anchor}">{words}</text>'


def _ticks(begin: datetime, end: datetime, most: int) -> list[datetime]:
    """Return some round times from begin to end, fewer than `most`."""
    first, last = begin.timestamp(), end.timestamp()
    step = next((each for each in _TIMES if (last - first) / each < most), _TIMES[-1])
    found = range(math.ceil(first / step) * step, math.floor(last / step) * step + 1, step)
    return [datetime.fromtimestamp(at, UTC) for at in found] or [begin]


def _step(most: float) -> float:
    """Return a round number, of which a few make up `most`."""
    raw = (most or 1) / _TICKS
    power: float = 10.0 ** math.floor(math.log10(raw))
    return next(power * step for step in _STEPS if power * step >= raw * 0.999)


def _step_ms(most: float) -> int:
    """Return a round duration, of which a few make up `most` milliseconds."""
    return next((each for each in _DURATIONS if each >= most / _TICKS * 0.999), _DURATIONS[-1])


def _runs(points: Points, pause_s: float | None) -> list[list[tuple[datetime, float]]]:
    runs: list[list[tuple[datetime, float]]] = [[]]
    for at, value in sorted(points, key=lambda point: point[0]):
        last = runs[-1]
        if value is None or (last and pause_s is not None and (at - last[-1][0]).total_seconds() > pause_s):
            runs.append([])
        if value is not None:
            runs[-1].append((at, value))
    return [run for run in runs if run]


def _svg(title: str, layout: _Layout, height: int, drawn: Sequence[str]) -> str:
    return (
        f'<svg class="plot" viewBox="0 0 {layout.width} {height}" role="img"'
        f' aria-label="{escape(title, quote=True)}">{"".join(drawn)}</svg>'
    )


def _legend(names: Iterable[str]) -> str:
    keys = (
        f'<span><i class="key c{index % _MOST_COLOURS}"></i>{escape(name)}</span>' for index, name in enumerate(names)
    )
    return f'<p class="legend">{"".join(keys)}</p>'


def _clock(at: datetime, times: Sequence[datetime]) -> str:
    """Return a time, with its day unless all times are of one."""
    if times[0].date() == times[-1].date():
        return f"{at:%H:%M}"
    return f"{at:%d %b}" if (times[-1] - times[0]).days >= _MOST_DAYS else f"{at:%d %b %H:%M}"


def _with(value: float, unit: str) -> str:
    if unit == _MS:
        return duration(value)
    return f"{number(value)} {unit}" if unit else number(value)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
