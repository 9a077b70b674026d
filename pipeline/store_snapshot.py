"""The records of the store as they are: which messages wait for which receiver, how far each session has read the log, and its
subscriptions.

They are read one after the other while the server continues; `transformations/audit.py` explains why that is good enough.
Cursors are read before the records: what a record had to have by then, it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import redis
from pyspark.sql import DataFrame, SparkSession

from crewel.errors import StoreUnavailable
from crewel.pipeline.connection import Address, patiently
from crewel.pipeline.transformations.audit import Records
from crewel.storage.keys import RESTORING, Keys

_PORTION: Final = 500
_UNKNOWN_OWNER: Final = 0
"""The cursor of a session whose owner began after the cursors were read: all of the log waits for it."""

_WAITING: Final = pa.schema([("receiver", pa.string()), ("log_id", pa.int64())])
_CURSORS: Final = pa.schema([("session", pa.string()), ("cursor", pa.int64())])
_SUBSCRIPTIONS: Final = pa.schema(
    [
        ("session", pa.string()),
        ("pattern", pa.string()),
        ("from_id", pa.int64()),
        ("until_id", pa.int64()),
    ]
)
_SCHEDULED: Final = pa.schema([("log_id", pa.int64())])


@dataclass(slots=True)
class Snapshot:
    """What was read, as rows."""

    waiting: list[tuple[str, int]] = field(default_factory=list)
    cursors: list[tuple[str, int]] = field(default_factory=list)
    subscriptions: list[tuple[str, str, int, int | None]] = field(default_factory=list)
    scheduled: list[tuple[int]] = field(default_factory=list)
    """The ids of scheduled messages."""

    def add_session(self, name: str, record: Mapping[str, str], cursors: Mapping[str, int]) -> None:
        """Add the record of a session."""
        if "owner" not in record:
            return
        at = record.get("at")
        cursor = cursors.get(record["owner"], _UNKNOWN_OWNER) if at is None else int(at)
        self.cursors.append((name, cursor))
        for key, text in record.items():
            kind, _, rest = key.partition(":")
            if kind in ("o", "i"):
                self.waiting.append((name, int(rest)))
            elif kind == "s":
                self.subscriptions.append((name, rest, int(text), None))
            elif kind == "c":
                pattern, _, since = rest.rpartition(" ")
                self.subscriptions.append((name, pattern, int(since), int(text)))

    def schedule(self, spark: SparkSession) -> DataFrame:
        """Return the scheduled messages as the audit wants them."""
        return spark.createDataFrame(_table(self.scheduled, _SCHEDULED))

    def frames(self, spark: SparkSession) -> Records:
        """Return it as the audit wants it."""
        return Records(
            *(
                spark.createDataFrame(_table(rows, schema))
                for rows, schema in (
                    (self.waiting, _WAITING),
                    (self.cursors, _CURSORS),
                    (self.subscriptions, _SUBSCRIPTIONS),
                )
            )
        )


def require_whole(address: Address) -> None:
    """Raise StoreUnavailable if a restore has begun there and is not complete: what is missing would look lost."""
    with address.client() as client:
        if patiently(lambda: client.get(address.keys.format)) == RESTORING.encode():
            raise StoreUnavailable(
                "a restore of the store has begun and is not complete: there is only a part of its data"
            )


def take(address: Address) -> Snapshot:
    """Read the records. Raises StoreUnavailable."""
    with address.client() as client:
        return patiently(lambda: _taken(client, address.keys))


def _taken(client: redis.Redis, keys: Keys) -> Snapshot:
    snapshot = Snapshot()
    cursors = _cursors(client, keys)
    prefix = keys.session("")
    for portion in _portions(_scan(client, prefix)):
        for key, record in zip(portion, _all(client, "HGETALL", portion), strict=True):
            snapshot.add_session(key.removeprefix(prefix), record, cursors)
    prefix = keys.queue("")
    for portion in _portions(_scan(client, prefix)):
        for key, places in zip(portion, _all(client, "ZRANGE", portion, 0, -1), strict=True):
            ids = {int(_text(place).rpartition(":")[2]) for place in places}
            snapshot.waiting += [(key.removeprefix(prefix), each) for each in sorted(ids)]
    listed: Any = client.zrange(keys.scheduled, 0, -1)
    snapshot.scheduled = [(int(each),) for each in listed]
    return snapshot


def _cursors(client: redis.Redis, keys: Keys) -> dict[str, int]:
    """Return the cursor of each run of a server."""
    found: Any = client.smembers(keys.nodes)
    tokens = sorted(map(_text, found))
    read = _all(client, "HGET", [keys.node(token) for token in tokens], "cursor")
    return {token: int(cursor) for token, cursor in zip(tokens, read, strict=True) if cursor is not None}


def _scan(client: redis.Redis, prefix: str) -> Iterator[str]:
    """Yield the keys that begin so, each once. Those that are there all the while are among them."""
    seen: set[str] = set()
    for key in client.scan_iter(re.sub(r"([*?\[\]\\])", r"\\\1", prefix) + "*", count=1000):
        name = _text(key)
        if name not in seen:
            seen.add(name)
            yield name


def _all(client: redis.Redis, command: str, keys: Iterable[str], *arguments: str | int) -> list[Any]:
    pipe: Any
    with client.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.execute_command(command, key, *arguments)
        answers: list[Any] = pipe.execute()
    return [{_text(k): _text(v) for k, v in each.items()} if isinstance(each, dict) else each for each in answers]


def _portions(names: Iterable[str]) -> Iterator[list[str]]:
    portion: list[str] = []
    for name in names:
        portion.append(name)
        if len(portion) == _PORTION:
            yield portion
            portion = []
    if portion:
        yield portion


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _table(rows: list[Any], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    return pa.table(
        [pa.array(list(column), each.type) for column, each in zip(columns, schema, strict=True)], schema=schema
    )
