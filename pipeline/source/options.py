"""The options of the source, as people write them: texts. None of them holds a secret, for Spark shows them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from crewel.errors import SettingsError
from crewel.pipeline.connection import PATIENCE_S
from crewel.pipeline.schemas import STREAMS
from crewel.pipeline.source.positions import BEGIN, END, EntryId


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name, what it is if it is not given, and what it does."""

    name: str
    default: str
    meaning: str


OPTIONS: Final = (
    Option("streams", "facts,events", f"Which streams to read: {', '.join(STREAMS)}. Dead letters in batches only."),
    Option(
        "start",
        "earliest",
        "Where to begin: `earliest`, `latest`, a time (milliseconds since 1970, or as `2026-11-20T08:00:00Z`, or a day), or"
        " the id of an entry, after which it begins. A stream with a checkpoint continues from it.",
    ),
    Option("end", "latest", "Where a batch ends: `latest`, a time, before which it ends, or the id of its last entry."),
    Option(
        "failOnDataLoss",
        "true",
        "Whether a stream ends with an error if entries were trimmed before they were read; `false`: a row records the gap.",
    ),
    Option("maxRows", "0", "Most entries of a batch of a stream; 0: all that there are."),
    Option(
        "partitions", "8", "In how many parts at most what there is of a stream is read, each by a task of its own."
    ),
    Option("prefix", "", "What the store's keys begin with; empty: as the settings say."),
    Option("patience", f"{PATIENCE_S:.0f}", "Seconds for which a store that is away is waited for."),
    Option(
        "notePositions",
        "false",
        "Whether a stream tells the server how far it is, so that the server keeps what was not read. For one job only.",
    ),
)
"""All options."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options, understood."""

    streams: tuple[str, ...]
    start: EntryId
    """After this entry; END for what comes from now on."""
    end: EntryId
    fails_on_loss: bool
    max_rows: int
    partitions: int
    prefix: str
    patience_s: float
    notes_positions: bool


def parsed(given: Mapping[str, str]) -> Options:
    """Return the options that were given, by any case of their letters, and else their defaults. Raises SettingsError."""
    texts = {option.name.lower(): option.default for option in OPTIONS}
    for name, text in given.items():
        if name.lower() not in texts:
            nearest = difflib.get_close_matches(name, [option.name for option in OPTIONS], 1)
            raise SettingsError(f"option {name}: no such option" + (f"; did you mean {nearest[0]}?" if nearest else ""))
        texts[name.lower()] = text.strip()
    return Options(
        _streams(texts["streams"]),
        _place("start", texts["start"], {"earliest": BEGIN, "latest": END}),
        _place("end", texts["end"], {"latest": END}),
        _truth("failOnDataLoss", texts["failondataloss"]),
        _number("maxRows", texts["maxrows"], 0),
        _number("partitions", texts["partitions"], 1),
        texts["prefix"],
        float(_number("patience", texts["patience"], 0)),
        _truth("notePositions", texts["notepositions"]),
    )


def _streams(text: str) -> tuple[str, ...]:
    streams = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    if not {*streams} <= {*STREAMS}:
        raise SettingsError(f"option streams: {text!r}; there are {', '.join(STREAMS)}")
    return streams


def _number(name: str, text: str, least: int) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise SettingsError(f"option {name}: {text!r} is no whole number from {least} on")
    return int(text)


def _truth(name: str, text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise SettingsError(f"option {name}: {text!r} is neither true nor false")
    return text.lower() == "true"


def _place(name: str, text: str, words: Mapping[str, EntryId]) -> EntryId:
    """Return the id of the last entry that comes before a place."""
    if text in words:
        return words[text]
    if text.isascii() and text.isdigit():
        return EntryId.before(int(text))
    try:
        return EntryId.parse(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        expected = ", ".join((*words, "a time", "the id of an entry"))
        raise SettingsError(f"option {name}: {text!r} is none of these: {expected}") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return EntryId.before(max(round(moment.timestamp() * 1000), 0))
