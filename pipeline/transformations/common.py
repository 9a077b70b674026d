"""Words that several tables have: moments and lengths of time."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f


def duration(ms: Column) -> Column:
    """Return milliseconds as a length of time for people: 20 ms, 1.5 s, 3 min, 2.1 h, as `report.plots.duration` does."""

    def words(length: int, unit: str) -> Column:
        value = f.round(ms / length, 1)
        text = f.when(value >= 100, f.format_string("%,.0f", value)).otherwise(f.format_string("%.1f", value))
        return f.concat(f.regexp_replace(text, r"\.0$", ""), f.lit(f" {unit}"))

    # What is rounded up to 60 s is 1 min.
    return (
        f.when(f.round(ms) < 1000, f.format_string("%.0f ms", ms))
        .when(f.round(ms / 1000, 1) < 60, words(1000, "s"))
        .when(f.round(ms / 60_000, 1) < 60, words(60_000, "min"))
        .otherwise(words(3_600_000, "h"))
    )


def clock(at: str) -> Column:
    """Return a time to the second, with its date."""
    return f.date_format(at, "yyyy-MM-dd HH:mm:ss")


def stretch(begin: str, end: str) -> Column:
    """Return a stretch of time in words, to the second: `from 2026-11-20 04:50:10 to 04:50:40`."""
    is_one_day = f.to_date(begin) == f.to_date(end)
    until = f.when(is_one_day, f.date_format(end, "HH:mm:ss")).otherwise(clock(end))
    return f.concat(f.lit("from "), clock(begin), f.lit(" to "), until)
