"""Plots: axes with units and round times, and lines that are interrupted where nothing is known."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from crewel.pipeline.report.plots import Span, _ticks, columns, duration, lines, number, strips

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
MINUTE_MS = 60_000


def minutes(*values: float | None, step: int = 1) -> list[tuple[datetime, float | None]]:
    return [(NOON + timedelta(minutes=at * step), value) for at, value in enumerate(values)]


def broad(drawn: str) -> str:
    """The drawing for a screen, without the one for a phone."""
    head, _, rest = drawn.partition('<div class="broad">')
    return head + rest.partition('<div class="slim">')[0]


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0 ms"),
        (20, "20 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (1500, "1.5 s"),
        (90_000, "1.5 min"),
        (7_200_000, "2 h"),
    ],
)
def test_a_length_of_time_has_the_unit_that_suits_it(ms: float, words: str) -> None:
    assert duration(ms) == words


@pytest.mark.parametrize(
    ("value", "words"), [(1234, "1,234"), (0.25, "0.25"), (2.53, "2.5"), (1234.5, "1,234"), (0, "0")]
)
def test_a_number_is_written_for_people(value: float, words: str) -> None:
    assert number(value) == words


@pytest.mark.parametrize(
    ("length", "count", "first"),
    [
        (timedelta(0), 1, "12:07"),
        (timedelta(minutes=3), 4, "12:07"),
        (timedelta(minutes=30), 6, "12:10"),
        (timedelta(hours=24), 4, "18:00"),
        (timedelta(days=40), 5, "00:00"),
    ],
)
def test_an_axis_has_a_few_round_times(length: timedelta, count: int, first: str) -> None:
    begin = NOON + timedelta(minutes=7)
    found = _ticks(begin, begin + length, 7)
    assert (len(found), f"{found[0]:%H:%M}") == (count, first)
    assert all(begin <= at <= begin + length for at in found)


def test_both_axes_say_what_they_show() -> None:
    drawn = lines("Messages by minute", {"a": minutes(1, 2)}, "messages")
    assert ">messages</text>" in drawn
    assert ">time (UTC)</text>" in drawn
    drawn = lines("Time to settle", {"a": minutes(100, 2500)}, "ms")
    assert ">Time to settle</text>" in drawn
    assert ">2.5 s</text>" in drawn


@pytest.mark.parametrize(
    ("most_ms", "shown"),
    [
        (1, ["1 ms"]),
        (90, ["20 ms", "40 ms", "60 ms", "80 ms", "100 ms"]),
        (2500, ["0.5 s", "1 s", "1.5 s", "2 s", "2.5 s"]),
        (50_000, ["10 s", "20 s", "30 s", "40 s", "50 s"]),
        (70_000, ["15 s", "30 s", "45 s", "60 s", "75 s"]),
        (9.7 * MINUTE_MS, ["2 min", "4 min", "6 min", "8 min", "10 min"]),
        (14 * MINUTE_MS, ["5 min", "10 min", "15 min"]),
        (33.3 * MINUTE_MS, ["10 min", "20 min", "30 min", "40 min"]),
        (50 * MINUTE_MS, ["10 min", "20 min", "30 min", "40 min", "50 min"]),
        (70 * MINUTE_MS, ["15 min", "30 min", "45 min", "60 min", "75 min"]),
        (95 * MINUTE_MS, ["20 min", "40 min", "60 min", "80 min", "100 min"]),
        (150 * MINUTE_MS, ["0.5 h", "1 h", "1.5 h", "2 h", "2.5 h"]),
        (200 * MINUTE_MS, ["1 h", "2 h", "3 h", "4 h"]),
        (50 * 60 * MINUTE_MS, ["12 h", "24 h", "36 h", "48 h", "60 h"]),
        (9 * 24 * 60 * MINUTE_MS, ["48 h", "96 h", "144 h", "192 h", "240 h"]),
    ],
)
def test_an_axis_of_durations_has_a_few_round_ones(most_ms: float, shown: list[str]) -> None:
    drawn = broad(lines("x", {"a": minutes(0, most_ms)}, "ms"))
    ticks = [text.rpartition(">")[2] for text in drawn.split("</text>") if 'text-anchor="end">' in text]
    assert [each for each in ticks if each != "time (UTC)"] == ["0", *shown]


def test_a_line_is_interrupted_where_nothing_is_known_and_after_a_pause() -> None:
    assert broad(lines("x", {"a": minutes(1, 2, None, 3, 4)})).count("<polyline") == 2
    far = [*minutes(1, 2), *((at + timedelta(hours=1), value) for at, value in minutes(3, 4))]
    assert broad(lines("x", {"a": far})).count("<polyline") == 1
    assert broad(lines("x", {"a": far}, pause_s=600)).count("<polyline") == 2


def test_a_point_alone_is_seen_however_many_there_are() -> None:
    many = minutes(*(None if at % 2 else at for at in range(300)))
    assert broad(lines("x", {"a": many})).count("<circle") == 150
    assert broad(lines("x", {"a": minutes(*range(300))})).count("<circle") == 0


@pytest.mark.parametrize(
    "drawn",
    [
        lines("x", {}),
        lines("x", {"a": minutes(None)}),
        columns("x", {"a": minutes(0)}),
        strips("x", {}, ["a"], NOON, NOON),
    ],
)
def test_where_there_is_nothing_to_draw_that_is_said(drawn: str) -> None:
    assert drawn == '<p class="none">x: nothing in this period.</p>'


def test_names_are_text() -> None:
    drawn = lines("<x>", {"<b>": minutes(1)}) + columns("<x>", {"<b>": minutes(1)})
    assert "<b>" not in drawn
    assert "<x>" not in drawn


def test_each_plot_is_there_for_a_screen_and_for_a_phone() -> None:
    span = Span(NOON, NOON + timedelta(minutes=1), "a")
    for drawn in (
        lines("x", {"a": minutes(1)}),
        columns("x", {"a": minutes(1)}),
        strips("x", {"name": [span]}, ["a"], NOON, NOON + timedelta(hours=1)),
    ):
        assert [drawn.count(f'<div class="{name}"><svg') for name in ("broad", "slim")] == [1, 1]


def test_a_strip_has_its_spans_where_they_were_and_ends_with_the_time() -> None:
    hour = timedelta(hours=1)
    spans = [Span(NOON - hour, NOON + hour, "b"), Span(NOON + hour, NOON + 9 * hour, "a", "3 <times>")]
    drawn = broad(strips("x", {"<joe>": spans}, ["a", "b"], NOON, NOON + 2 * hour))
    assert "<title>a, 3 &lt;times&gt;: 13:00 to 21:00</title>" in drawn
    assert "<title>b: 11:00 to 13:00</title>" in drawn
    assert "<joe>" not in drawn
    wide = (860 - 250 - 24) / 2
    assert f'c0" x="{250 + wide:.1f}" y="4" width="{wide:.1f}"' in drawn
    assert f'c1" x="250.0" y="4" width="{wide:.1f}"' in drawn


@pytest.mark.parametrize("hours", [2, 24, 100])
def test_each_time_of_an_axis_lies_within_the_plot(hours: int) -> None:
    """On a phone a strip begins at its edge, and ends near the other one."""
    begin, end = NOON, NOON + timedelta(hours=hours)
    drawn = strips("x", {"joe": [Span(begin, end, "a")]}, ["a"], begin, end)
    drawn += lines("x", {"a": [(begin, 1), (end, 2)]}) + columns("x", {"a": [(begin, 1), (end, 2)]})
    plots = drawn.split("<svg")[1:]
    assert len(plots) == 3 * 2
    for plot in plots:
        (width,) = re.findall(r'viewBox="0 0 (\d+) ', plot)
        times = re.findall(r'class="tick" x="([\d.]+)" y="\d+" text-anchor="(\w+)">([^<]*\d:\d\d)</text>', plot)
        assert times
        for x, anchor, words in times:
            length = len(words) * 7
            left = float(x) - length * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
            assert 0 <= left <= int(width) - length, (width, words)
