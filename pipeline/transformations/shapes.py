"""How the JSON of facts and events is typed: for each table of silver, which entries it is made of and how.

Columns are expressions of Spark SQL. Fields that a server of long ago did not write are null, and have a value here that says
the same; a field that must be there and is not makes the entry corrupt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from crewel.pipeline.schemas import TABLES, Table
from crewel.storage.facts import FACTS as WRITTEN
from crewel.storage.facts import FactType

FACT_VERSIONS: Final = (1,)
"""The versions of facts that are understood. A fact that says nothing is of version 1."""


@dataclass(frozen=True, slots=True)
class Fact:
    """How a table is made of the facts of some types."""

    table: Table
    types: tuple[str, ...]
    ddl: str
    """The fields of the JSON."""
    sound: str
    """Whether the JSON `d` has what it must have."""
    rows: str
    """The rows of one fact: an array of structures with the columns of the table."""


@dataclass(frozen=True, slots=True)
class Event:
    """How a table is made of the events `e` of one type; the fields that its columns need must be there."""

    table: Table
    type: str
    columns: Mapping[str, str]


def _fact(name: str, types: str, sound: str, rows: str) -> Fact:
    first = types.split(maxsplit=1)[0]
    (written,) = (each for each in WRITTEN if each.name == first)
    return Fact(TABLES[f"fact_{name}"], tuple(types.split()), _ddl(written), sound, rows)


def _ddl(written: FactType) -> str:
    """The fields of the JSON, as the server says what it writes: `"ended[].ids"` is a field of the structures in `ended`."""
    fields = {name: field.type for name, field in written.fields.items()}
    for name in [name for name, kind in fields.items() if kind == "array<struct>"]:
        inner = [(each, each.removeprefix(f"{name}[].")) for each in fields if each.startswith(f"{name}[].")]
        fields[name] = f"array<struct<{', '.join(f'`{short}`: {fields.pop(each)}' for each, short in inner)}>>"
    return ", ".join(f"`{name}` {kind}" for name, kind in fields.items())


def _there(*fields: str) -> str:
    return " AND ".join(f"d.{field} IS NOT NULL" for field in fields)


def _one(**columns: str) -> str:
    return f"array({_struct(columns)})"


def _struct(columns: Mapping[str, str]) -> str:
    return "named_struct(" + ", ".join(f"'{name}', {text}" for name, text in columns.items()) + ")"


_TEXTS: Final = "array<string>"
_NO_TEXTS: Final = f"CAST(array() AS {_TEXTS})"
_GROUPS: Final = f"coalesce(d.`groups`, {_NO_TEXTS})"

FACTS: Final = (
    _fact(
        "published",
        "published",
        _there("first", "channels") + " AND NOT exists(d.channels, c -> c IS NULL)",
        "transform(d.channels, (c, i) -> named_struct('log_id', d.first + i, 'channel', c,"
        " 'scheduled_id', try_element_at(d.scheduled, CAST(d.first + i AS string))))",
    ),
    _fact(
        "scheduled",
        "scheduled",
        _there("id", "channel", "at"),
        _one(log_id="d.id", channel="d.channel", due="timestamp_millis(d.at)"),
    ),
    _fact(
        "cancelled",
        "cancelled",
        _there("ids", "channels") + " AND size(d.ids) = size(d.channels)",
        "zip_with(d.ids, d.channels, (i, c) -> named_struct('log_id', i, 'channel', c, 'who', d.who))",
    ),
    _fact(
        "addressed",
        "addressed",
        _there("id", "channel"),
        "concat("
        + ", ".join(
            f"transform(coalesce(d.{field}, {_NO_TEXTS}), r ->"
            f" named_struct('log_id', d.id, 'channel', d.channel, 'receiver', r, 'is_queue', {is_queue}))"
            for field, is_queue in (("sessions", "false"), ("queues", "true"))
        )
        + ")",
    ),
    _fact(
        "leased",
        "leased",
        _there("queue", "leases") + " AND NOT exists(d.leases, l -> l.session IS NULL OR l.ids IS NULL)",
        "flatten(transform(d.leases, l -> transform(l.ids, i ->"
        " named_struct('log_id', i, 'queue', d.queue, 'session', l.session))))",
    ),
    _fact(
        "returned",
        "returned",
        _there("queue", "ids"),
        "transform(d.ids, i -> named_struct('log_id', i, 'queue', d.queue))",
    ),
    _fact(
        "erased",
        "erased",
        _there("channel"),
        _one(channel="d.channel", messages="coalesce(d.messages, 0L)"),
    ),
    _fact(
        "sessions",
        "opened-session closed-session",
        _there("session"),
        _one(session="d.session", what="CASE t WHEN 'opened-session' THEN 'opened' ELSE 'closed' END"),
    ),
    _fact(
        "subscribed",
        "subscribed",
        _there("session", "patterns", "`from`"),
        # What was asked for a pattern may change while its subscription continues, and that of a group begins none.
        "transform(array_union(d.patterns, coalesce(map_keys(d.options), "
        + _NO_TEXTS
        + ")), p -> "
        + _struct(
            {
                "session": "d.session",
                "pattern": "p",
                "begins": "array_contains(d.patterns, p)",
                "from_id": "d.`from`",
                "options": "d.options[p]",
                "groups": _GROUPS,
            }
        )
        + ")",
    ),
    _fact(
        "unsubscribed",
        "unsubscribed",
        _there("session", "patterns", "`from`", "until") + " AND size(d.patterns) = size(d.`from`)",
        "zip_with(d.patterns, d.`from`, (p, i) -> "
        + _struct(
            {"session": "d.session", "pattern": "p", "from_id": "i", "until_id": "d.until", "groups": _GROUPS},
        )
        + ")",
    ),
    _fact(
        "ended",
        "ended",
        _there("ended") + " AND NOT exists(d.ended, e -> e.session IS NULL OR e.reason IS NULL OR e.ids IS NULL"
        " OR exists(e.ids, i -> i IS NULL))",
        "transform(flatten(transform(d.ended, e -> transform(e.ids, i ->"
        " named_struct('log_id', i, 'receiver', e.session, 'reason', e.reason, 'code', e.code, 'code_given', e.given)))),"
        " (r, n) -> named_struct('log_id', r.log_id, 'receiver', r.receiver, 'reason', r.reason, 'code', r.code,"
        " 'number', n, 'code_given', r.code_given))",
    ),
    _fact(
        "redriven",
        "redriven",
        _there("letter", "message", "id", "code"),
        _one(
            letter="d.letter",
            message_id="d.message",
            log_id="d.id",
            session="d.session",
            channel="d.channel",
            code="d.code",
            returns="coalesce(d.returns, 1L)",
            first="d.first",
        ),
    ),
    _fact(
        "discarded",
        "discarded",
        _there("letters"),
        "transform(d.letters, (l, n) -> named_struct('letter', l, 'who', d.who, 'first', get(d.firsts, n)))",
    ),
    _fact(
        "restored",
        "restored",
        _there("letters", "`as`", "firsts"),
        "transform(d.letters, (l, n) -> named_struct('letter', l, 'restored_as', get(d.`as`, n), 'who', d.who,"
        " 'first', get(d.firsts, n)))",
    ),
    _fact(
        "held",
        "held",
        _there("session", "since"),
        _one(
            session="d.session",
            who="coalesce(d.who, d.session)",
            since="timestamp_millis(d.since)",
            code="coalesce(d.code, '')",
            message_id="coalesce(d.id, '')",
            reason="coalesce(d.reason, '')",
            active="coalesce(d.active, false)",
            sink="coalesce(d.sink, false)",
        ),
    ),
    _fact("released", "released", _there("session"), _one(session="d.session")),
    _fact(
        "lost",
        "lost",
        _there("node", "`from`", "until", "messages", "fact", "met"),
        _one(
            node="d.node",
            from_id="d.`from`",
            until_id="d.until",
            messages="d.messages",
            kept="d.fact",
            met_ms="d.met",
            firsts="coalesce(d.first, CAST(array() AS array<bigint>))",
            lasts="coalesce(d.last, CAST(array() AS array<bigint>))",
        ),
    ),
)
"""How facts are typed."""

FACT_TYPES: Final = frozenset(name for fact in FACTS for name in fact.types)
"""The types of facts that are understood."""

GROUP_DDL: Final = (
    "v bigint, node string, token string, n bigint, `from` bigint, until bigint, lost bigint, events array<struct<"
    "type: string, at: bigint, session: string, channel: string, id: string, code: string, given: string, outcome: string,"
    " reliable: boolean, transport: string, reason: string, who: string, policy: string, count: bigint, sum: bigint,"
    " buckets: array<bigint>, published: bigint, delivered: bigint, opened: bigint, closed: bigint, silent: bigint,"
    " shape: string, sender: string>>"
)
"""The fields of a group of events, and of all events in it."""

RUN: Final = {"node": "d.node", "token": "d.token", "n": "d.n"}
"""The columns that describe the group."""

_HAPPENED: Final = {"happened": "timestamp_millis(e.at)"}
_TIMES: Final = {"since": "timestamp_millis(d.`from`)", "until": "timestamp_millis(d.until)"}


def _event(name: str, times: Mapping[str, str], *fields: str, **others: str) -> Event:
    columns = {**times, **{field: f"e.{field}" for field in fields}, **others}
    return Event(TABLES[f"event_{name}"], name, columns)


EVENTS: Final = (
    _event("opened", _HAPPENED, "session", "reliable", "transport"),
    _event("closed", _HAPPENED, "session", "reliable", "reason", code="coalesce(e.code, '')", silent_ms="e.silent"),
    _event("failed", _HAPPENED, "session", "channel", "code", "outcome", message_id="e.id", code_given="e.given"),
    _event("held", _HAPPENED, "session", "who", code="coalesce(e.code, '')", message_id="coalesce(e.id, '')"),
    _event("released", _HAPPENED, "session"),
    _event("overflow", _TIMES, "session", "policy", "count"),
    _event("redelivered", _TIMES, "session", "count"),
    _event("settled", _TIMES, "channel", "count", "buckets", sum_ms="e.sum"),
    _event("shape", _HAPPENED, "channel", "shape", "sender", "count", log_id="try_cast(e.id AS bigint)"),
    _event("traffic", _TIMES, "channel", "published", "delivered"),
    _event("visitors", _TIMES, "opened", "closed"),
)
"""How events are typed."""
