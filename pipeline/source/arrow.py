"""Entries become batches of Arrow with the columns of `raw`. Nothing that an entry holds can make it fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from crewel.pipeline.schemas import GAP, LONGEST_PAYLOAD
from crewel.pipeline.source.losses import Gap
from crewel.pipeline.source.pages import Entry
from crewel.storage.data_shape import shape_of

SCHEMA: Final = pa.schema(
    [
        ("key", pa.string()),
        ("id", pa.string()),
        ("ms", pa.int64()),
        ("seq", pa.int64()),
        ("t", pa.string()),
        ("payload", pa.string()),
        ("is_text", pa.bool_()),
        ("is_whole", pa.bool_()),
        ("bytes", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("date", pa.date32()),
    ]
)
"""As Spark wants it for `raw`; a test holds the two together."""

SHAPE: Final = "shape"
"""What a dead letter gets beside its own fields, whose names are other ones: the shape of its data, as events have it."""

LARGEST: Final = 2**63 - 1
"""What a column says of a half of an id that is larger than that."""

_NAME, _VALUE, _SECOND_NAME, _SECOND_VALUE = (itemgetter(i) for i in range(4))


def batch_of(stream: str, entries: Sequence[Entry]) -> pa.RecordBatch:
    """Return entries of a stream as rows."""
    types, payloads = _letters(entries) if stream == "dead" else _records(entries)
    sizes = pc.binary_length(pa.array(payloads, pa.binary()))
    is_whole = None
    if (pc.max(sizes).as_py() or 0) > LONGEST_PAYLOAD:
        is_whole = pc.fill_null(pc.less_equal(sizes, LONGEST_PAYLOAD), True)
        payloads = [payload and payload[:LONGEST_PAYLOAD] for payload in payloads]
    texts, is_text = _as_text(payloads)
    return _rows(stream, [entry[0] for entry in entries], _as_text(types)[0], texts, is_text, is_whole, sizes)


def gap_row(gap: Gap) -> pa.RecordBatch:
    """Return the row that reports a gap."""
    told = orjson.dumps({"before": None if gap.before is None else str(gap.before), "lost": gap.lost})
    sizes = pa.array([len(told)], pa.int32())
    return _rows(
        gap.stream + GAP,
        [str(gap.after).encode()],
        pa.array([None], pa.string()),
        pa.array([told.decode()]),
        None,
        None,
        sizes,
    )


def _records(entries: Sequence[Entry]) -> tuple[list[bytes | None], list[bytes | None]]:
    """Return types and payloads of facts or events: `t` and `d`, or `d` alone; whatever else there is counts for nothing."""
    fields = [entry[1] for entry in entries]
    lengths = {*map(len, fields)}
    # All entries of a page nearly always look alike, and then no entry needs a step of its own.
    if lengths == {4} and {*map(_NAME, fields)} == {b"t"} and {*map(_SECOND_NAME, fields)} == {b"d"}:
        return [*map(_VALUE, fields)], [*map(_SECOND_VALUE, fields)]
    if lengths == {2} and {*map(_NAME, fields)} == {b"d"}:
        return [None] * len(fields), [*map(_VALUE, fields)]
    found = [dict(zip(each[::2], each[1::2], strict=False)) for each in fields]
    return [each.get(b"t") for each in found], [each.get(b"d") for each in found]


def _letters(entries: Sequence[Entry]) -> tuple[list[bytes | None], list[bytes | None]]:
    """Return the fields of dead letters, each letter a JSON object of texts, with the shape of its data beside them."""
    payloads: list[bytes | None] = []
    for _, fields in entries:
        values = dict(zip(fields[::2], fields[1::2], strict=False))
        texts = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in values.items()}
        body = values.get(b"body")
        payloads.append(orjson.dumps({**texts, SHAPE: shape_of(body)} if body else texts))
    return [None] * len(payloads), payloads


_SHARED: Final = {b"bh": b"body", b"qh": b"qos"}


def shared_texts(entries: Sequence[Entry]) -> list[bytes]:
    """Return the names of the texts that these dead letters refer to, each once."""
    names = {
        value: None
        for _, fields in entries
        for name, value in zip(fields[::2], fields[1::2], strict=False)
        if name in _SHARED
    }
    return list(names)


def with_texts(entries: Sequence[Entry], texts: Mapping[bytes, bytes]) -> list[Entry]:
    """Return these dead letters with the texts that they refer to, by name. One that has gone meanwhile, and its text with it,
    is left out."""
    whole: list[Entry] = []
    for place, fields in entries:
        pairs = [
            (_SHARED[name], texts.get(value)) if name in _SHARED else (name, value)
            for name, value in zip(fields[::2], fields[1::2], strict=False)
        ]
        if all(value is not None for _, value in pairs):
            whole.append((place, [text for pair in pairs for text in pair]))
    return whole


def _as_text(values: list[bytes | None]) -> tuple[pa.Array, pa.Array | None]:
    """Return values as text, and which of them were; None says that all were."""
    try:
        return pa.array(values, pa.binary()).cast(pa.string()), None
    except pa.ArrowInvalid:
        texts = [None if value is None else value.decode(errors="replace") for value in values]
        is_text = [
            value is None or text is None or text.encode() == value for value, text in zip(values, texts, strict=True)
        ]
        return pa.array(texts, pa.string()), pa.array(is_text)


def _rows(
    key: str,
    ids: list[bytes],
    types: pa.Array,
    payloads: pa.Array,
    is_text: pa.Array | None,
    is_whole: pa.Array | None,
    sizes: pa.Array,
) -> pa.RecordBatch:
    number = len(ids)
    places = pa.array(ids, pa.binary()).cast(pa.string())
    halves = pc.split_pattern(places, "-").flatten()
    ms, seq = (_integers(halves, half) for half in (0, 1))
    at = pc.multiply(ms, 1000).cast(pa.timestamp("us", "UTC"))
    yes: Any = None if is_text is not None and is_whole is not None else pa.array([True] * number)
    columns = [
        pa.array([key] * number, pa.string()),
        places,
        ms,
        seq,
        types,
        payloads,
        yes if is_text is None else is_text,
        yes if is_whole is None else is_whole,
        pc.fill_null(sizes, 0).cast(pa.int64()),
        at,
        at.cast(pa.date32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _integers(halves: pa.Array, half: int) -> pa.Array:
    """Return every second number; one that a signed column cannot hold becomes the largest that it can."""
    texts = halves.take(pa.array(np.arange(half, len(halves), 2)))
    return pc.min_element_wise(texts.cast(pa.uint64()), pa.scalar(LARGEST, pa.uint64())).cast(pa.int64())
