"""What a report is told, small: one of each, or nothing at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

END = datetime(2026, 11, 20, 22, 30, tzinfo=UTC)
BEGIN = END - timedelta(hours=24)

Told = dict[str, Any]

NOTHING: Told = {
    "since": BEGIN,
    "until": END,
    "totals": {
        "letters": 0,
        "kept": 0,
        "poison": 0,
        "channels": 0,
        "sick": 0,
        "older": 0,
        "messages": 0,
        "codes": {},
        "findings": {},
        "redriven": {},
    },
    **{name: [] for name in ("triage", "incidents", "deaths", "poison", "failing_channels", "receivers", "times")},
    **{name: [] for name in ("settling", "channels", "backlog", "hours", "capacity")},
    "counts": dict.fromkeys(("incidents", "receivers", "capacity", "audit"), 0),
    "audit": None,
    "audited": None,
    "slots": {"deaths": "hour", "hours": "hour", "minutes": "minute"},
    "url": None,
}


def died(**fields: Any) -> Told:
    """A row of triage."""
    usual = {
        "letters": 3, "code": "user.update.error", "channel": "/orders/new", "receiver": "client/joe/1",
        "cause": "receiver", "template": "line <n> is wrong", "first_at": BEGIN, "last_at": END, "to_death_median_ms": 1500.0,
        "attempts_mean": 1.0, "sample_letter": "7-0", "sample_reason": "line 7 is wrong", "sample_body": '{"data":7}',
    }  # fmt: skip
    return {**usual, **fields}


def incident(**fields: Any) -> Told:
    """A row of incidents."""
    return {**died(), "channels": ["/orders/new"], "kept": 2, "other_codes": [], **fields}


def poison(**fields: Any) -> Told:
    """A row of poison messages."""
    usual = {
        "message_id": "17", "channel": "/orders/new", "receivers": 4, "takers": 3, "failures": 4,
        "codes": ["user.update.error"], "names": ["client/ann/1", "client/joe/1"], "last_at": END,
        "sample_reason": None, "sample_body": None, "why": "4 receivers rejected it, 3 took it", "dead_letters": ["7-0", "8-0"],
    }  # fmt: skip
    return {**usual, **fields}


def failing_channel(**fields: Any) -> Told:
    """A row of failing channels."""
    usual = {
        "channel": "/orders/new", "shape": "{n: text}", "earlier_shape": "{n: number}", "messages": 50,
        "publishers": ["client/shop/1"], "codes": ["user.update.error"], "first_at": BEGIN, "last_at": END,
        "sample_reason": "no number", "sample_body": '{"data":{"n":"7"}}', "dead_letters": ["9-0"],
        "why": "4 receivers reject 50 of 55 messages since the first of this shape",
    }  # fmt: skip
    return {**usual, **fields}


def receiver(*why: str, **fields: Any) -> Told:
    """A row of receivers, sick if it is said why."""
    usual = {
        "session": "client/joe/1", "settled": 10, "failed": 1, "excused": 0, "failure_rate": 0.001, "peers_failure_rate": None,
        "held_ms": 0, "polling_ms": 0, "redelivered": 0, "lag_median_ms": 20.0, "peers_lag_median_ms": None,
    }  # fmt: skip
    return {**usual, "is_sick": bool(why), "why": list(why), **fields}


def finding(name: str, **fields: Any) -> Told:
    """A row of the audit."""
    usual = {
        "finding": name, "log_id": 17, "channel": "/orders/new", "receiver": "client/joe/1", "pattern": "/orders/*",
        "evidence": ["16-0", "17-0"], "words": "It is gone",
    }  # fmt: skip
    return {**usual, **fields}


SOME: Told = {
    **NOTHING,
    "totals": {
        "letters": 3, "kept": 2, "poison": 1, "channels": 1, "sick": 1, "older": 2, "messages": 10,
        "codes": {"user.update.error": 3}, "findings": {"lost": 1}, "redriven": {},
    },
    "counts": {"incidents": 1, "receivers": 2, "capacity": 1, "audit": 1},
    "triage": [died()],
    "incidents": [incident()],
    "deaths": [{"minute": BEGIN, "code": "user.update.error", "letters": 3}],
    "poison": [poison()],
    "failing_channels": [failing_channel()],
    "times": [
        {"session": "client/joe/1", "what": "on hold", "begin": BEGIN, "end": END, "failed": 0},
        {"session": "client/joe/1", "what": "fails", "begin": BEGIN, "end": BEGIN + timedelta(minutes=1), "failed": 2},
    ],
    "receivers": [receiver("fails 40 % of its messages"), receiver(session="client/ann/1")],
    "settling": [{"minute": END, "count": 9, "p50_ms": 20.0, "p90_ms": 50.0, "p99_ms": None}],
    "channels": [{"channel": "/orders/new", "count": 9, "p50_ms": 20.0, "p90_ms": 50.0, "p99_ms": None}],
    "backlog": [{"minute": END, "owed": 9, "ended": 8, "waiting": 1}],
    "hours": [{"hour": END, "persistent": 9, "transient": 1}],
    "capacity": [
        {
            "hour": END, "channel": "/orders/new", "persistent": 9, "transient": 1, "deliveries": 8, "sessions": 2,
            "bytes": 700, "trend": 1.5,
        },
    ],
    "audit": [finding("lost")],
    "audited": END,
}  # fmt: skip
