"""Bronze: what the streams of the store hold, as it was read. Nothing is taken apart here, so nothing can go wrong."""

from __future__ import annotations

from typing import Final

from crewel.pipeline.schemas.table import Column, Layer, Table

STREAMS: Final = ("facts", "events", "dead")
"""The streams that the source reads, by their keys in the store. Dead letters are read in batches only: they leave."""

GAP: Final = ".gap"
"""Suffix of the key of a row for entries that were trimmed before they were read."""

LONGEST_PAYLOAD: Final = 16 * 1024 * 1024
"""Bytes; a longer payload is cut."""

_AT: Final = Column("at", "timestamp", "When the store accepted the entry: the milliseconds of its id.", "UTC")
_DATE: Final = Column("date", "date", "The day of the entry.", "UTC")

PLACE: Final = (
    Column("place", "string", "Id of the entry in its stream, `<ms>-<seq>`, for looking it up."),
    Column(
        "ms", "bigint", "First half of the place, by the store's clock. Facts are in the order of `ms`, `seq`.", "ms"
    ),
    Column("seq", "bigint", "Second half of the place."),
    _AT,
    _DATE,
)
"""The first columns of each silver table that is made from a stream."""

BYTES: Final = Column(
    "bytes",
    "double",
    "The row's share of the length of its entry's payload in the store, equal for all rows of an entry.",
    "bytes",
    nullable=True,
)
"""A column of each silver table with more than one row per entry."""

RAW: Final = Table(
    Layer.BRONZE,
    "raw",
    "Every entry of the streams, as it was read.",
    (
        Column(
            "key",
            "string",
            "The stream: `facts`, `events` or `dead`; or `facts.gap`, `events.gap` for entries that were trimmed before they"
            " were read.",
        ),
        Column("id", "string", "Id of the entry, `<ms>-<seq>`; for a gap, of the last entry before it."),
        Column("ms", "bigint", "First half of the id, by the store's clock.", "ms"),
        Column("seq", "bigint", "Second half of the id."),
        Column("t", "string", "Type of a fact; null otherwise.", nullable=True),
        Column(
            "payload",
            "string",
            "The JSON of the entry, its field `d`; for a dead letter, all fields as one JSON object of strings; for a gap, an"
            " object with `before`, the id of the first entry after it, and `lost`, the number of missing entries, or null."
            " Bytes that are not UTF-8 are replaced by U+FFFD. Null if there is no payload.",
            nullable=True,
        ),
        Column("is_text", "boolean", "Whether the payload was UTF-8."),
        Column(
            "is_whole",
            "boolean",
            f"Whether the payload is complete; a payload longer than {LONGEST_PAYLOAD} bytes is cut.",
        ),
        Column("bytes", "bigint", "Length of the payload in the store.", "bytes"),
        _AT,
        _DATE,
    ),
    key=("key", "id"),
)

BRONZE: Final = (RAW,)
