"""How a receiver stands, and why: each cause in plain words, the most urgent first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crewel.admin.backlog_trends import Trend
from crewel.admin.cause_words import WORDS
from crewel.admin.level import Level
from crewel.admin.receiver_condition import CAUSES, TROUBLES, Condition, Facts, causes_of, conditions_of, trouble_of
from crewel.admin.rejections import Rejected
from crewel.admin.turned_away import Overflow
from crewel.broker.sessions.login_refusals import RefusedLogins
from crewel.delivery.dispatcher import Rejection
from crewel.delivery.dispatcher_states import Holdback

NOW = 10_000_000
NOW_AND_THEN = Rejected(NOW - 480_000, NOW, 116, 0, "user.update.error", "no such dish", 1, ("/a",), ("/a",), 116)
TURNED_AWAY = Overflow(NOW - 9000, NOW - 1000, 600, "deadMessage")
REFUSED = RefusedLogins("user.security.authentication.expired", "the token has expired", "a", "10.1.2.3", 5, 9, 3)

BEHIND: dict[str, Any] = {
    "waiting": 4078,
    "max_entries": 40_000,
    "oldest": NOW - 61_000,
    "at_client": 10,
    "max_open": 10,
}

CASES: list[tuple[dict[str, Any], str, Level, str, dict[str, Any]]] = [
    (
        {"rejection": Rejection("user.update.error", "no such dish")},
        "rejecting",
        Level.BAD,
        "all its messages become dead letters: user.update.error: no such dish",
        {},
    ),
    (
        {"rejected": NOW_AND_THEN},
        "rejects",
        Level.BAD,
        "it rejects all its messages, 116 of 116, 14 a minute: user.update.error: no such dish",
        {
            "since": NOW - 480_000,
            "at": NOW,
            "count": 116,
            "of": 116,
            "code": "user.update.error",
            "rule": "all",
            "perMinute": 14,
        },
    ),
    (
        {"waiting": 640, "max_entries": 1000, "trend": Trend(NOW + 420_000, 51.4)},
        "filling",
        Level.BAD,
        "its queue will be full in 7 minutes: 640 of 1,000 messages, 51 messages more a minute",
        {"fullAt": NOW + 420_000, "perMinute": 51, "share": 0.64},
    ),
    ({"holdback": Holdback("ann", 7, reason="lunch")}, "held", Level.BAD, "lunch, by ann", {"since": 7, "who": "ann"}),
    (
        {"waiting": 640, "max_entries": 1000, "trend": Trend(NOW + 420_000, 51.4), "is_away": True},
        "filling",
        Level.BAD,
        "its queue will be full in 7 minutes, and its client is away: 640 of 1,000 messages, 51 messages more a minute",
        {"fullAt": NOW + 420_000},
    ),
    ({"holdback": Holdback("ann", 7)}, "held", Level.BAD, "held by ann", {"since": 7, "who": "ann"}),
    (
        {"holdback": Holdback("client/joe/1", 7, "user.update.holdback", "5", "out of paper")},
        "held",
        Level.BAD,
        "user.update.holdback: out of paper",
        {"since": 7, "id": "5"},
    ),
    (
        {"waiting": 10, "max_entries": 10, "overflow": TURNED_AWAY, "is_away": True, "away_since": 4},
        "full",
        Level.BAD,
        "its queue is full: 10 of 10 messages, and its client is away; 600 messages became dead letters",
        {"count": 600, "awaySince": 4},
    ),
    (
        {"token_expired_at": 12, "refused": REFUSED},
        "token",
        Level.BAD,
        "its token has expired, and its client has tried 3 times to log in with one that is refused",
        {"since": 12, "refused": 3, "at": 9},
    ),
    (
        {"waiting": 10, "max_entries": 10, "policy": "dropOldest"},
        "full",
        Level.BAD,
        "its queue is full: 10 of 10 messages; further ones push older ones out, or are dropped",
        {},
    ),
    (
        {"waiting": 10, "max_entries": 10, "overflow": TURNED_AWAY},
        "full",
        Level.BAD,
        "its queue is full: 10 of 10 messages; 600 messages became dead letters",
        {"since": NOW - 9000, "at": NOW - 1000, "count": 600},
    ),
    (
        {"waiting": 3, "max_entries": 10, "waiting_bytes": 900, "max_bytes": 900},
        "full",
        Level.BAD,
        "its queue is full: the bytes that it may have; further ones are refused",
        {},
    ),
    (
        {"token_expired_at": 12},
        "token",
        Level.BAD,
        "its token has expired",
        {"since": 12},
    ),
    (
        {"refused": REFUSED, "is_away": True, "waiting": 1, "max_entries": 10},
        "refused",
        Level.BAD,
        "3 logins of its name were refused: user.security.authentication.expired: the token has expired",
        {"from": "10.1.2.3", "count": 3, "since": 5, "at": 9},
    ),
    (
        {"members": Condition.UNATTENDED, "is_group": True, "waiting": 2},
        "members",
        Level.BAD,
        "no session takes its messages",
        {},
    ),
    ({"members": Condition.UNATTENDED, "waiting": 2}, "members", Level.WARN, "no session takes its messages", {}),
    ({"members": Condition.AWAY}, "members", Level.INFO, "all its members are away or on hold", {}),
    (
        {"retry_at": 99, "failure": ("communication.timeout", "no oven"), "tries": (2, 5)},
        "retry",
        Level.WARN,
        "communication.timeout: no oven",
        {"next": 99, "number": 2, "of": 5},
    ),
    (
        {"unclaimed": 2, "waiting": 2, "max_entries": 9},
        "unclaimed",
        Level.WARN,
        "no listener of its client takes 2 messages",
        {"count": 2},
    ),
    ({"is_away": True, "away_since": 4}, "away", Level.INFO, "its client is away", {"since": 4}),
    ({"is_away": True, "waiting": 1, "max_entries": 9}, "away", Level.WARN, "its client is away", {}),
    (
        {"waiting": 9, "max_entries": 90, "oldest": NOW - 60_000, "at_client": 2, "max_open": 2},
        "slow",
        Level.WARN,
        "its oldest message waits: 2 messages sent and not acknowledged, of at most 2",
        {"since": NOW - 60_000},
    ),
    (
        BEHIND | {"trend": Trend(None, 539.6, NOW - 240_000)},
        "slow",
        Level.WARN,
        "it takes less than comes: 540 messages more a minute, 4,078 wait;"
        " 10 messages sent and not acknowledged, of at most 10",
        {"since": NOW - 240_000, "oldest": NOW - 61_000, "perMinute": 540},
    ),
    (
        BEHIND | {"trend": Trend(None, -1800.2, NOW - 30_000)},
        "recovering",
        Level.WARN,
        "it catches up: 1,800 messages fewer a minute, 4,078 wait, 2 minutes to go",
        {"since": NOW - 30_000, "oldest": NOW - 61_000, "perMinute": -1800},
    ),
    (
        BEHIND | {"oldest": None, "at_client": 0, "trend": Trend(None, 20, NOW - 60_000)},
        "slow",
        Level.WARN,
        "it takes less than comes: 20 messages more a minute, 4,078 wait",
        {"since": NOW - 60_000, "oldest": None, "perMinute": 20},
    ),
    (
        {"waiting": 5, "max_entries": 10, "overflow": TURNED_AWAY},
        "overflow",
        Level.WARN,
        "its queue was full: 600 messages became dead letters; it has room again, 5 of 10 messages",
        {"count": 600},
    ),
    ({"waiting": 9, "max_entries": 10}, "nearly-full", Level.WARN, "its queue is at 90% of its bound", {"share": 0.9}),
    (
        {"waiting": 9, "max_entries": 90, "at_client": 2, "max_open": 2, "is_at_limit": True},
        "busy",
        Level.INFO,
        "its client is busy: 2 messages sent and not acknowledged, of at most 2",
        {"count": 2},
    ),
    (
        {"waiting": 1, "max_entries": 90, "at_client": 1, "sent_at": NOW - 10_000},
        "busy",
        Level.INFO,
        "its client is busy: 1 message sent and not acknowledged",
        {"since": NOW - 10_000},
    ),
    ({"is_unsubscribed": True}, "unsubscribed", Level.INFO, "it has no subscriptions", {}),
]


@pytest.mark.parametrize(("given", "kind", "level", "text", "details"), CASES, ids=[each[1] for each in CASES])
def test_each_cause_has_its_words_and_its_times(
    given: dict[str, Any], kind: str, level: Level, text: str, details: dict[str, Any]
) -> None:
    found = next(each for each in causes_of(Facts(NOW, **given)) if each.kind == kind)
    assert found.level is level
    assert found.text.startswith(text)
    assert details.items() <= found.details.items()
    assert found.as_json() == {"kind": kind, "level": level.value, "text": found.text, **found.details}


def test_each_cause_is_tried_and_those_that_may_be_trouble_have_words() -> None:
    assert {each[1] for each in CASES} == {each.kind for each in CAUSES}
    assert {kind for _, kind, level, *_ in CASES if level is not Level.INFO} == set(TROUBLES) == WORDS.keys()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"waiting": 7, "max_entries": 10, "oldest": NOW - 59_000, "at_client": 7, "sent_at": NOW - 9000},
        {"refused": REFUSED},  # another client of its name, while its own is there
        {"members": Condition.CONNECTED, "waiting": 3, "max_entries": 9},
    ],
)
def test_a_receiver_that_is_well_has_no_cause(given: dict[str, Any]) -> None:
    facts = Facts(NOW, **given)
    assert causes_of(facts) == []
    assert conditions_of(facts, []) == [Condition.CONNECTED]
    assert trouble_of(facts, []) == facts.waiting


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "it has no subscriptions: it takes only what is addressed to it"),
        ({"takes_ptp": False}, "it has no subscriptions: it only publishes"),
    ],
)
def test_a_session_without_subscriptions_is_no_receiver_in_trouble(given: dict[str, Any], text: str) -> None:
    facts = Facts(NOW, is_unsubscribed=True, **given)
    (cause,) = causes = causes_of(facts)
    assert (cause.kind, cause.text, cause.level) == ("unsubscribed", text, Level.INFO)
    assert conditions_of(facts, causes) == [Condition.UNSUBSCRIBED, Condition.CONNECTED]
    assert trouble_of(facts, causes) == 0
    away = Facts(NOW, is_away=True, is_unsubscribed=True)
    assert conditions_of(away, causes_of(away)) == [Condition.AWAY]


def test_words_say_what_is_wrong_and_whether_its_client_is_there() -> None:
    held = {"holdback": Holdback("ann", 7), "waiting": 9, "max_entries": 9}
    away = Facts(NOW, is_away=True, refused=REFUSED, **held)
    assert [each.kind for each in causes_of(away)] == ["held", "full", "refused", "away"]
    assert conditions_of(away, causes_of(away)) == [Condition.ON_HOLD, Condition.FULL, Condition.AWAY]
    there = Facts(NOW, **held)
    assert conditions_of(there, causes_of(there)) == [Condition.ON_HOLD, Condition.FULL, Condition.CONNECTED]


REJECTED = Rejected(NOW - 30_000, NOW, 5, 0, "user.update.error", "no", 1, ("/a",), ("/a",), 5)
OF_TENTH = {"taken": 4, "rejected": 3, "whole": (), "whole_rejected": 0}


def test_the_most_urgent_cause_decides_the_order_and_then_what_waits() -> None:
    facts = [
        Facts(NOW, waiting=1, max_entries=9, members=Condition.AWAY, is_group=True),
        Facts(NOW, waiting=1, max_entries=9, holdback=Holdback("ann", 7)),
        Facts(NOW, waiting=9, max_entries=9),
        Facts(NOW, rejected=REJECTED, waiting=1),
        Facts(NOW, rejected=REJECTED._replace(**OF_TENTH), waiting=7),  # what is bad comes first
        Facts(NOW, waiting=5, max_entries=9, is_away=True),
        Facts(NOW, waiting=4, max_entries=9, is_away=True),
        Facts(NOW, waiting=600, max_entries=999),
        Facts(NOW, is_away=True),  # nothing waits for it
    ]
    numbers = [trouble_of(each, causes_of(each)) for each in facts]
    assert numbers == sorted(numbers, reverse=True)
    assert len(set(numbers)) == len(numbers)


OF_ONE_KIND = {"taken": 900, "channels": ("/a", "/b"), "rejected": 7}


@pytest.mark.parametrize(
    ("given", "level", "rule", "text"),
    [
        ({}, Level.BAD, "all", "it rejects all its messages, 5 of 5: user.update.error: no"),
        (
            {"rejected": 2, "whole_rejected": 2},
            Level.INFO,
            "few",
            "it rejected its last 2 messages: user.update.error: no",
        ),
        (
            {"rejected": 1, "whole_rejected": 1},
            Level.INFO,
            "few",
            "it rejected its last message: user.update.error: no",
        ),
        (OF_ONE_KIND, Level.BAD, "one kind", "it rejects all messages of /a, 5 of 5"),
        (
            OF_ONE_KIND | {"whole": ("/a", "/b", "/c", "/d")},
            Level.BAD,
            "one kind",
            "of /a, /b and 2 more channels, 5 of 5",
        ),
        ({"is_part": True}, Level.BAD, "one kind", "it rejects all messages of /a, 5 of 5"),
        (
            {"taken": 44, "whole": (), "whole_rejected": 0},
            Level.WARN,
            "more than a tenth",
            "it rejects 5 of 49 messages",
        ),
        ({"taken": 45, "whole": (), "whole_rejected": 0}, Level.INFO, "few", "it rejected 5 of 50 messages"),
        (
            {"rejected": 1, "taken": 1, "whole": (), "whole_rejected": 0},
            Level.INFO,
            "few",
            "it rejected 1 of 2 messages",
        ),
        ({"codes": 3}, Level.BAD, "all", "5 of 5: user.update.error: no and 2 more codes"),
    ],
)
def test_a_receiver_that_rejects_is_never_well(given: dict[str, Any], level: Level, rule: str, text: str) -> None:
    facts = Facts(NOW, rejected=REJECTED._replace(**given))
    (cause,) = causes_of(facts)
    assert (cause.level, cause.details["rule"]) == (level, rule)
    assert text in cause.text
    assert conditions_of(facts, [cause]) == [Condition.REJECTS, Condition.CONNECTED]


def test_a_receiver_whose_client_has_failed_for_good_is_not_said_to_reject_some() -> None:
    facts = Facts(NOW, rejected=REJECTED, rejection=Rejection("user.update.error", "no"))
    assert [each.kind for each in causes_of(facts)] == ["rejecting"]


@pytest.mark.parametrize(
    ("minutes", "level"), [(10, Level.BAD), (11, Level.WARN), (30, Level.WARN), (31, None), (0.2, Level.BAD)]
)
def test_a_queue_is_full_soon_within_half_an_hour(minutes: float, level: Level | None) -> None:
    trend = Trend(NOW + int(minutes * 60_000), 9.0)
    found = {each.kind: each.level for each in causes_of(Facts(NOW, waiting=90, max_entries=100, trend=trend))}
    assert found == ({"nearly-full": Level.WARN} if level is None else {"filling": level})
    assert "filling" not in [each.kind for each in causes_of(Facts(NOW, waiting=100, max_entries=100, trend=trend))]


def test_what_is_trouble_comes_before_what_is_not() -> None:
    few = REJECTED._replace(taken=900, whole=(), whole_rejected=0)
    facts = Facts(NOW, rejected=few, is_away=True, waiting=3, max_entries=9)
    assert [(each.kind, each.level) for each in causes_of(facts)] == [("away", Level.WARN), ("rejects", Level.INFO)]


def test_words_and_their_table_are_in_the_order_of_the_causes() -> None:
    words = [each.condition.value for each in CAUSES if each.condition is not None]
    assert [each.value for each in Condition if each.value in words] == words
    table = (
        (Path(__file__).parents[2] / "docs/how-to/console.md").read_text("utf-8").partition("| state | meaning |")[2]
    )
    rows = [line.split("`")[1] for line in table.partition("\n\n")[0].splitlines() if line.startswith("| `")]
    assert rows == [each.value for each in Condition if each.value in rows]


def test_of_several_causes_the_bad_ones_come_first() -> None:
    empty = Facts(NOW, members=Condition.AWAY, is_group=True, waiting=9, max_entries=9, stopped_since=NOW - 5000)
    causes = causes_of(empty)
    assert [(each.kind, each.level) for each in causes] == [("members", Level.BAD), ("full", Level.BAD)]
    assert causes[0].details == {"since": NOW - 5000}
    subject = Facts(NOW, members=Condition.AWAY, waiting=9, max_entries=9)
    assert [(each.kind, each.level) for each in causes_of(subject)] == [("full", Level.BAD), ("members", Level.WARN)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, [Condition.BEHIND, Condition.CONNECTED]),
        ({"trend": Trend(NOW + 60_000, 9, NOW)}, [Condition.SOON_FULL, Condition.BEHIND, Condition.CONNECTED]),
        ({"trend": Trend(None, -9, NOW)}, [Condition.CATCHING_UP, Condition.CONNECTED]),
        ({"oldest": NOW - 59_999, "trend": Trend(None, 900, 7)}, [Condition.CONNECTED]),  # what waits is new
        ({"oldest": None, "trend": Trend(None, 19, 7)}, [Condition.CONNECTED]),
        ({"oldest": None, "trend": Trend(None, 20, NOW - 59_999)}, [Condition.CONNECTED]),
        ({"oldest": None}, [Condition.CONNECTED]),
        ({"is_away": True}, [Condition.AWAY]),
        ({"holdback": Holdback("ann", 7)}, [Condition.ON_HOLD, Condition.CONNECTED]),
        ({"retry_at": 99}, [Condition.RETRYING, Condition.CONNECTED]),
        ({"members": Condition.CONNECTED}, [Condition.BEHIND, Condition.CONNECTED]),
        ({"members": Condition.AWAY}, [Condition.AWAY]),
        ({"members": Condition.UNATTENDED}, [Condition.UNATTENDED]),
    ],
)
def test_a_receiver_that_takes_less_than_comes_is_never_just_connected(given: dict[str, Any], words: list[Any]) -> None:
    facts = Facts(NOW, **(BEHIND | given))
    assert conditions_of(facts, causes_of(facts)) == words
