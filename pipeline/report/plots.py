"""Plots as SVG: lines over time, columns over time, and bars. They take their colours from the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from itertools import pairwise
from typing import Final

__all__ = ["bars", "columns", "lines", "number"]

Points = Sequence[tuple[datetime, float | None]]

_WIDTH, _HEIGHT = 860, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 34
_ROW = 26
_LABEL = 250
_MOST_COLOURS = 6
_TICKS: Final = 5
_STEPS: Final = (1, 2, 5, 10)


def lines(title: str, series: Mapping[str, Points], unit: str = "") -> str:
    """Draw a line for each name. Where a value is None, the line is interrupted."""
    times = sorted({at for points in series.values() for at, _ in points})
    values = [value for points in series.values() for _, value in points if value is not None]
    if not values:
        return nothing(title)
    scale = _Scale(times, max(values))
    drawn = [scale.axes(unit)]
    for index, (name, points) in enumerate(series.items()):
        for run in _runs(points):
            path = " ".join(f"{scale.x(at):.1f},{scale.y(value):.1f}" for at, value in run)
            drawn.append(f'<polyline class="line c{index % _MOST_COLOURS}" points="{path}"/>')
            marks = run if len(run) < 120 else ()  # with more of them, nobody could point at one
            drawn += [
                f'<circle class="dot c{index % _MOST_COLOURS}" cx="{scale.x(at):.1f}" cy="{scale.y(value):.1f}"'
                f' r="{3 if len(run) < 40 else 2}"><title>{escape(name)}: {number(value)}{_unit(unit)}, {_clock(at, times)}'
                "</title></circle>"
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
    drawn = [scale.axes(unit)]
    for at in times:
        below = 0.0
        for index, (name, found) in enumerate(by_name.items()):
            value = found.get(at) or 0
            if value:
                top, foot = scale.y(below + value), scale.y(below)
                drawn.append(
                    f'<rect class="fill c{index % _MOST_COLOURS}" x="{scale.x(at) - scale.column / 2:.1f}" y="{top:.1f}"'
                    f' width="{scale.column:.1f}" height="{foot - top:.1f}"><title>{escape(name)}: {number(value)}'
                    f"{_unit(unit)}, {_clock(at, times)}</title></rect>"
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
            f' rx="2"/><text class="label" x="{_LABEL + width + 6:.1f}" y="{y + 14}">{number(value)}{_unit(unit)}</text>'
        )
    return _svg(title, len(rows) * _ROW + 8, drawn)


def nothing(title: str) -> str:
    """Return what stands where there is nothing to draw."""
    return f'<p class="none">{escape(title)}: nothing in this time.</p>'


def number(value: float) -> str:
    """Return a number for people: 1,234 or 0.25."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2g}" if abs(value) < 1 else f"{value:.1f}"


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

    def axes(self, unit: str) -> str:
        parts = []
        for tick in range(round(self._most / self._step) + 1):
            value = tick * self._step
            y = self.y(value)
            parts.append(
                f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
                f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{number(value)}{_unit(unit)}</text>'
            )
        count = min(len(self._times), 6)
        shown = [self._times[round(at * (len(self._times) - 1) / max(count - 1, 1))] for at in range(count)]
        parts += [
            f'<text class="tick" x="{self.x(at):.1f}" y="{_HEIGHT - 10}" text-anchor="middle">'
            f"{_clock(at, self._times)}</text>"
            for at in dict.fromkeys(shown)
        ]
        return "".join(parts)


def _step(most: float) -> float:
    """Return a round number, of which a few make up `most`."""
    raw = (most or 1) / _TICKS
    power: float = 10.0 ** math.floor(math.log10(raw))
    return next(power * step for step in _STEPS if power * step >= raw * 0.999)


def _runs(points: Points) -> list[list[tuple[datetime, float]]]:
    runs: list[list[tuple[datetime, float]]] = [[]]
    for at, value in sorted(points, key=lambda point: point[0]):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((at, value))
    return [run for run in runs if run]


def _svg(title: str, height: int, drawn: Sequence[str]) -> str:
    return (
        f'<svg class="plot" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title, quote=True)}">'
        + "".join(drawn)
        + "</svg>"
    )


def _legend(series: Mapping[str, Points]) -> str:
    names = (
        f'<span><i class="key c{index % _MOST_COLOURS}"></i>{escape(name)}</span>' for index, name in enumerate(series)
    )
    return f'<p class="legend">{"".join(names)}</p>'


def _clock(at: datetime, times: Sequence[datetime]) -> str:
    is_one_day = times[0].date() == times[-1].date()
    return f"{at:%H:%M}" if is_one_day else f"{at:%d %b %H:%M}"


def _unit(unit: str) -> str:
    return f" {unit}" if unit else ""


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
