"""Plots as SVG: lines over time, columns over time, and bars. They take their colours from the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from typing import Final

Points = Sequence[tuple[datetime, float | None]]

_WIDTH, _HEIGHT = 860, 264
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 30, 40
_ROW = 26
_LABEL = 250
_MOST_COLOURS = 6
_TICKS: Final = 5
_STEPS: Final = (1, 2, 5, 10)
_MOST_TIMES: Final = 7
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_TIMES: Final = (
    *(count * _MINUTE for count in (1, 2, 5, 10, 15, 30)),
    *(count * _HOUR for count in (1, 2, 3, 6, 12)),
    *(count * _DAY for count in (1, 2, 7, 14, 30, 90, 365)),
)
"""Seconds that may lie between two times on an axis."""
_MS: Final = "ms"


def lines(title: str, series: Mapping[str, Points], unit: str = "", pause_s: float | None = None) -> str:
    """Draw a line for each name. It is interrupted where a value is None, and where there is none for longer than `pause_s`.
    With the unit `ms`, values are written in the unit of time that suits them."""
    times = sorted({at for points in series.values() for at, _ in points})
    values = [value for points in series.values() for _, value in points if value is not None]
    if not values:
        return nothing(title)
    scale = _Scale(times, max(values))
    radius = 3 if len(times) < 40 else 2 if len(times) < 120 else 1
    drawn = [scale.axes(unit, title)]
    for index, (name, points) in enumerate(series.items()):
        for run in _runs(points, pause_s):
            path = " ".join(f"{scale.x(at):.1f},{scale.y(value):.1f}" for at, value in run)
            drawn.append(f'<polyline class="line c{index % _MOST_COLOURS}" points="{path}"/>')
            # With more of them, no one could point at one; but what stands alone has no line.
            marks = run if len(times) < 120 or len(run) == 1 else ()
            drawn += [
                f'<circle class="dot c{index % _MOST_COLOURS}" cx="{scale.x(at):.1f}" cy="{scale.y(value):.1f}" r="{radius}">'
                f"<title>{escape(name)}: {_with(value, unit)}, {_clock(at, times)}</title></circle>"
                for at, value in marks
            ]
    return _legend(series) + _svg(title, _HEIGHT, drawn)


def columns(title: str, series: Mapping[str, Points], unit: str = "") -> str:
    """Draw for each moment a column, in which the names stand upon one another."""
    times = sorted({at for points in series.values() for at, _ in points})
    by_name = {name: dict(points) for name, points in series.items()}
    heights = [sum(found.get(at) or 0 for found in by_name.values()) for at in times]
    if not any(heights):
        return nothing(title)
    scale = _Scale(times, max(heights), is_columns=True)
    drawn = [scale.axes(unit, title)]
    for at in times:
        below = 0.0
        for index, (name, found) in enumerate(by_name.items()):
            value = found.get(at) or 0
            if value:
                top, foot = scale.y(below + value), scale.y(below)
                drawn.append(
                    f'<rect class="fill c{index % _MOST_COLOURS}" x="{scale.x(at) - scale.column / 2:.1f}" y="{top:.1f}"'
                    f' width="{scale.column:.1f}" height="{foot - top:.1f}"><title>{escape(name)}: {_with(value, unit)},'
                    f" {_clock(at, times)}</title></rect>"
                )
            below += value
    return _legend(series) + _svg(title, _HEIGHT, drawn)


def bars(title: str, rows: Sequence[tuple[str, float]], unit: str = "") -> str:
    """Draw a bar for each label, from above in the order given."""
    if not rows:
        return nothing(title)
    most = max(value for _, value in rows) or 1
    wide = _WIDTH - _LABEL - 90
    drawn = []
    for index, (label, value) in enumerate(rows):
        y = index * _ROW + 4
        width = max(wide * value / most, 1.5)
        drawn.append(
            f'<text class="label" x="{_LABEL - 8}" y="{y + 14}" text-anchor="end">{escape(_short(label, 38))}'
            f'<title>{escape(label)}</title></text><rect class="fill c0" x="{_LABEL}" y="{y}" width="{width:.1f}" height="18"'
            f' rx="2"/><text class="label" x="{_LABEL + width + 6:.1f}" y="{y + 14}">{_with(value, unit)}</text>'
        )
    return _svg(title, len(rows) * _ROW + 8, drawn)


def nothing(title: str) -> str:
    """Return what stands where there is nothing to draw."""
    return f'<p class="none">{escape(title)}: nothing in this period.</p>'


def number(value: float) -> str:
    """Return a number for people: 1,234 or 0.25."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2g}" if abs(value) < 1 else f"{value:.1f}"


def duration(ms: float) -> str:
    """Return a length of time for people: 20 ms, 1.5 s, 3 min, 2.1 h."""
    for unit, length in (("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= length:
            return f"{number(round(ms / length, 1))} {unit}"
    return f"{number(round(ms))} ms"


class _Scale:
    """Where a moment and a value are on the plot."""

    def __init__(self, times: Sequence[datetime], most: float, *, is_columns: bool = False) -> None:
        self._times = times
        self._step = _step(most)
        self._most = max(math.ceil(most / self._step), 1) * self._step
        self.column = 0.0
        wide = _WIDTH - _LEFT - _RIGHT
        self._begin, self._end = times[0].timestamp(), times[-1].timestamp()
        self._x0, self._wide = float(_LEFT), float(wide)
        if is_columns:
            smallest = min((b.timestamp() - a.timestamp() for a, b in pairwise(times)), default=1)
            slots = (self._end - self._begin) / smallest + 1
            slot = wide / max(slots, 6)  # a lonely column does not fill the plot
            self.column = max(slot * 0.8, 1.0)
            self._x0, self._wide = _LEFT + slot / 2, wide - slot

    def x(self, at: datetime) -> float:
        length = self._end - self._begin
        return self._x0 + (self._wide * (at.timestamp() - self._begin) / length if length else self._wide / 2)

    def y(self, value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - value / self._most)

    def axes(self, unit: str, title: str) -> str:
        """Draw both axes, with what they show."""
        parts = [
            f'<text class="tick" x="0" y="12">{escape(title if unit == _MS else unit)}</text>',
            f'<text class="tick" x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 4}" text-anchor="end">time (UTC)</text>',
        ]
        for tick in range(round(self._most / self._step) + 1):
            value = tick * self._step
            y = self.y(value)
            shown = _with(value, _MS) if unit == _MS and value else number(value)
            parts.append(
                f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
                f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{shown}</text>'
            )
        parts += [
            f'<line class="grid" x1="{self.x(at):.1f}" x2="{self.x(at):.1f}" y1="{_HEIGHT - _BOTTOM}"'
            f' y2="{_HEIGHT - _BOTTOM + 4}"/><text class="tick" x="{self.x(at):.1f}" y="{_HEIGHT - _BOTTOM + 18}"'
            f' text-anchor="middle">{_clock(at, self._times)}</text>'
            for at in _ticks(self._times[0], self._times[-1])
        ]
        return "".join(parts)


def _ticks(begin: datetime, end: datetime) -> list[datetime]:
    """Return some round times from begin to end."""
    first, last = begin.timestamp(), end.timestamp()
    step = next((each for each in _TIMES if (last - first) / each < _MOST_TIMES), _TIMES[-1])
    found = range(math.ceil(first / step) * step, math.floor(last / step) * step + 1, step)
    return [datetime.fromtimestamp(at, UTC) for at in found] or [begin]


def _step(most: float) -> float:
    """Return a round number, of which a few make up `most`."""
    raw = (most or 1) / _TICKS
    power: float = 10.0 ** math.floor(math.log10(raw))
    return next(power * step for step in _STEPS if power * step >= raw * 0.999)


def _runs(points: Points, pause_s: float | None) -> list[list[tuple[datetime, float]]]:
    runs: list[list[tuple[datetime, float]]] = [[]]
    for at, value in sorted(points, key=lambda point: point[0]):
        last = runs[-1]
        if value is None or (last and pause_s is not None and (at - last[-1][0]).total_seconds() > pause_s):
            runs.append([])
        if value is not None:
            runs[-1].append((at, value))
    return [run for run in runs if run]


def _svg(title: str, height: int, drawn: Sequence[str]) -> str:
    return (
        f'<div class="wide"><svg class="plot" viewBox="0 0 {_WIDTH} {height}" role="img"'
        f' aria-label="{escape(title, quote=True)}">{"".join(drawn)}</svg></div>'
    )


def _legend(series: Mapping[str, Points]) -> str:
    names = (
        f'<span><i class="key c{index % _MOST_COLOURS}"></i>{escape(name)}</span>' for index, name in enumerate(series)
    )
    return f'<p class="legend">{"".join(names)}</p>'


def _clock(at: datetime, times: Sequence[datetime]) -> str:
    """Return a time, with its day unless all times are of one."""
    if times[0].date() == times[-1].date():
        return f"{at:%H:%M}"
    return f"{at:%d %b}" if (times[-1] - times[0]).days >= _MOST_TIMES else f"{at:%d %b %H:%M}"


def _with(value: float, unit: str) -> str:
    if unit == _MS:
        return duration(value)
    return f"{number(value)} {unit}" if unit else number(value)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
