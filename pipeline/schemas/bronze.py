"""Bronze: what the streams of the store hold, as it was read. Nothing is taken apart here, so nothing can go wrong."""

from __future__ import annotations

from typing import Final

from crewel.pipeline.schemas.table import Column, Layer, Table

STREAMS: Final = ("facts", "events", "dead")
"""The streams that the source reads, by their keys in the store. Dead letters are read in batches only: they leave."""

GAP: Final = ".gap"
"""What ends the key of a row that tells of entries that were trimmed before they were read."""

LONGEST_PAYLOAD: Final = 16 * 1024 * 1024
"""Bytes; of what is longer the beginning is kept."""

_AT: Final = Column("at", "timestamp", "When the store took the entry: its id's milliseconds.", "UTC")
_DATE: Final = Column("date", "date", "The day of the entry.", "UTC")

PLACE: Final = (
    Column("place", "string", "Id of the entry of the stream, `<ms>-<seq>`: evidence that can be looked up."),
    Column(
        "ms", "bigint", "First half of the place, by the store's clock. Facts are in the order of `ms`, `seq`.", "ms"
    ),
    Column("seq", "bigint", "Second half of the place."),
    _AT,
    _DATE,
)
"""The columns that begin each table of silver that is made from a stream."""

BYTES: Final = Column(
    "bytes",
    "double",
    "The row's part of the length of its entry's payload in the store, of which all rows of an entry have the same; null in"
    " what was written before there was this column.",
    "bytes",
    nullable=True,
)
"""A column of each table of silver that has more than one row an entry."""

RAW: Final = Table(
    Layer.BRONZE,
    "raw",
    "Each entry of the streams, as it was read.",
    (
        Column(
            "key",
            "string",
            "Which stream: `facts`, `events` or `dead`; or `facts.gap`, `events.gap`: entries of it were trimmed before they"
            " were read.",
        ),
        Column("id", "string", "Id of the entry, `<ms>-<seq>`; of a gap, of what was read last before it."),
        Column("ms", "bigint", "First half of the id, by the store's clock.", "ms"),
        Column("seq", "bigint", "Second half of the id."),
        Column("t", "string", "Type of a fact; null otherwise.", nullable=True),
        Column(
            "payload",
            "string",
            "The JSON of the entry, its field `d`; of a dead letter all fields as one JSON object of texts; of a gap an"
            " object with `before`, the id of the first entry after it, and `lost`, how many are missing, or null. What is"
            " not UTF-8 is replaced by U+FFFD. Null if there is none.",
            nullable=True,
        ),
        Column("is_text", "boolean", "Whether the payload was UTF-8."),
        Column(
            "is_whole", "boolean", f"Whether the payload is all of it; longer than {LONGEST_PAYLOAD} bytes it is cut."
        ),
        Column("bytes", "bigint", "Length of the payload in the store.", "bytes"),
        _AT,
        _DATE,
    ),
    key=("key", "id"),
)

BRONZE: Final = (RAW,)
