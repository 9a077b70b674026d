"""What is wrong, from figures: each finding with its cause, its advice and where to look."""

from __future__ import annotations

import pytest

from crewel.admin.findings import CHECKS, EmptyGroup, Figures, findings
from crewel.admin.level import Level
from crewel.admin.session_counts import SessionCounts

HELD = SessionCounts(on_hold=[(1, "client/joe/1", "user.update.holdback: out of paper")], on_hold_count=1)
MANY_HELD = SessionCounts(on_hold=[(1, "client/joe/1", "by ann"), (2, "client/sue/1", "by ann")], on_hold_count=2)
VERY_MANY_HELD = SessionCounts(on_hold=[(1, f"client/{number}/1", "by ann") for number in range(5)], on_hold_count=7)
AWAY = SessionCounts(away=[(1200, "client/joe/1")], away_count=1, away_waiting=1200)
MANY_AWAY = SessionCounts(away=[(9, "client/a b/1"), (1, "client/sue/1")], away_count=2, away_waiting=10)

CASES = [
    (Figures(concerns={"store": "it does not answer"}), "not-ready-store", Level.BAD, "/", "it does not answer"),
    (Figures(counted=HELD), "held", Level.BAD, "/receivers/client/joe/1", "out of paper"),
    (
        Figures(counted=MANY_HELD),
        "held",
        Level.BAD,
        "/receivers?held=true",
        "client/joe/1: by ann; client/sue/1: by ann",
    ),
    (
        Figures(counted=VERY_MANY_HELD),
        "held",
        Level.BAD,
        "/receivers?held=true",
        "client/2/1: by ann; and 4 more",
    ),
    (
        Figures(dead_letters_made=3, dead_letter_codes=[("user.update.error", 3)]),
        "letters",
        Level.BAD,
        "/dead-letters?since=1h",
        "user.update",
    ),
    (Figures(failing_workers={"2": 7}), "worker-failing", Level.BAD, "/", "worker 2: 7 times"),
    (Figures(messages_dropped=7), "messages-dropped", Level.BAD, "/receivers?sort=waiting", "has no name"),
    (Figures(dead_letters_dropped=1), "letters-dropped", Level.BAD, "/dead-letters", "delivery.dead_letters_max"),
    (
        Figures(empty_groups=[EmptyGroup("/jobs/*", "workers", 7, 2)]),
        "group-empty",
        Level.BAD,
        "/topics?pattern=/jobs/%2A",
        "workers on /jobs/*: 7 messages queued, 2 members, away or on hold",
    ),
    (
        Figures(counted=SessionCounts(full=[(1.0, "client/joe/1")], full_count=1)),
        "queue-full",
        Level.BAD,
        "/receivers/client/joe/1",
        "the queue of client/joe/1 is full",
    ),
    (
        Figures(counted=SessionCounts(full=[(0.9, "client/joe/1")], full_count=1)),
        "queue-full",
        Level.WARN,
        "/receivers/client/joe/1",
        "90%",
    ),
    (Figures(counted=AWAY), "away", Level.WARN, "/receivers/client/joe/1", "1,200 messages"),
    (Figures(counted=MANY_AWAY), "away", Level.WARN, "/receivers?state=POLLING&sort=waiting", "9 messages"),
    (
        Figures(now_ms=500_000, counted=SessionCounts(behind=[(20_000, 29, "client/slow/1")], behind_count=1)),
        "behind",
        Level.WARN,
        "/receivers/client/slow/1",
        "has waited for 8 min: 29 messages",
    ),
    (
        Figures(now_ms=7_500_000, counted=SessionCounts(behind=[(20_000, 1, "client/slow/1")], behind_count=2)),
        "behind",
        Level.WARN,
        "/receivers?state=ALIVE&sort=oldest",
        "client/slow/1 is connected, and its oldest message has waited for 2 h 4 min",
    ),
    (Figures(store_used=90, store_most=100), "store-nearly-full", Level.WARN, "/dead-letters", "90%"),
    (Figures(facts_lost=5), "pipeline-behind", Level.WARN, "/", "5 entries"),
]


@pytest.mark.parametrize(("figures", "key", "level", "link", "cause"), CASES, ids=[case[1] + case[2] for case in CASES])
def test_finding_names_cause_advice_and_view(figures: Figures, key: str, level: Level, link: str, cause: str) -> None:
    [found] = findings(figures)
    assert (found.key, found.level, found.link) == (key, level, link)
    assert cause in found.cause
    assert found.advice.endswith((".", "meanwhile."))
    assert found.as_json()["title"]


@pytest.mark.parametrize(
    "figures",
    [
        Figures(),
        Figures(store_used=84, store_most=100),
        Figures(store_used=90),
    ],
)
def test_nothing_is_wrong(figures: Figures) -> None:
    assert findings(figures) == []


def test_every_check_is_tried_and_bad_ones_come_first() -> None:
    assert {key.partition("-")[0] for _, key, *_ in CASES} >= {
        "not",
        "held",
        "letters",
        "group",
        "queue",
        "away",
        "behind",
        "store",
        "pipeline",
    }
    assert len(CHECKS) == len({key for _, key, *_ in CASES})
    both = Figures(counted=SessionCounts(full=[(0.9, "a")], full_count=1), dead_letters_dropped=1, facts_lost=1)
    assert [each.level for each in findings(both)] == [Level.BAD, Level.WARN, Level.WARN]
