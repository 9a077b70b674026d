"""What died and why, from small frames."""

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from crewel.pipeline.transformations.triage import GONE, deaths, died, incidents, judged, redriven, template, triage
from tests.pipeline.frames import of_rows, silver, time, told

TEMPLATES = [
    ("order 17 of 'Joe' failed", "order <n> of '<text>' failed"),
    ("can't reach db-3", "can't reach db-<n>"),
    ('no "Müller" here', 'no "<text>" here'),
    ("row 6f1c2d3e-0a1b-4c5d-8e9f-001122334455 is bad", "row <id> is bad"),
    ("client/joe/1 does not answer", "<session> does not answer"),
    ("since 2026-11-20T08:00:01.5Z nothing", "since <time> nothing"),
    ("at 0xdeadbeef", "at <id>"),
    ("etag 9f86d081884c7d65", "etag <id>"),
    ("took 1,024.5 ms", "took <n> ms"),
    ("two\n  lines ", "two lines"),
    ("", ""),
]


def _triage(spark: SparkSession, **rows: Any) -> DataFrame:
    return triage(_judged(spark, **rows))


def _judged(spark: SparkSession, *rejected: tuple[list[str], str, str, list[str]], **rows: Any) -> DataFrame:
    found = [(["8000"], "client/joe", "message", ["user.x", "user.y"]), *rejected]
    causes = of_rows(spark, found, "ids ARRAY<STRING>, receiver STRING, cause STRING, codes ARRAY<STRING>")
    return judged(died(silver(spark, **rows)), causes)


def test_reasons_become_templates(spark: SparkSession) -> None:
    found = of_rows(spark, [(reason,) for reason, _ in TEMPLATES], "reason STRING")
    rows = found.select("reason", template(f.col("reason")).alias("template")).collect()
    assert {row["reason"]: row["template"] for row in rows} == dict(TEMPLATES)


def test_letters_of_one_template_are_one_row(spark: SparkSession) -> None:
    shape = {"code": "user.update.error", "channel": "/a", "receiver": "client/joe/1"}
    letters = [
        {**shape, "place": "1000-0", "reason": "bad row 1", "attempts": 1, "received_ns": 900_000_000, "body": "{}"},
        {
            **shape,
            "place": "3000-0",
            "reason": "bad row 2",
            "attempts": 4,
            "received_ns": 1_000_000_000,
            "body": '{"x":1}',
        },
        {**shape, "place": "2000-0", "reason": "away", "received_ns": 2_500_000_000},
    ]
    found = _triage(spark, letters=letters)
    rows = {row["template"]: row for row in found.collect()}
    assert rows.keys() == {"bad row <n>", "away"}
    row = rows["bad row <n>"]
    assert (row["letters"], row["attempts_mean"], row["attempts_max"]) == (2, 2.5, 4)
    assert (row["first_at"], row["last_at"]) == (
        time(1000).astimezone().replace(tzinfo=None),
        time(3000).astimezone().replace(tzinfo=None),
    )
    assert (row["sample_letter"], row["sample_reason"], row["sample_body"]) == ("3000-0", "bad row 2", '{"x":1}')
    assert (row["to_death_median_ms"], row["to_death_max_ms"]) == (100.0, 2000.0)
    assert rows["away"]["to_death_max_ms"] == 0.0  # the clock of the server was ahead of the store's


def test_a_restored_letter_has_died_before_it_was_discarded(spark: SparkSession) -> None:
    letter = {"place": "900000-0", "died": time(60_000), "received_ns": 59_000_000_000, "code": "user.x"}
    row = _triage(spark, letters=[letter]).collect()[0]
    at = time(60_000).astimezone().replace(tzinfo=None)
    assert (row["first_at"], row["last_at"], row["sample_letter"]) == (at, at, "900000-0")
    assert row["to_death_max_ms"] == 1000.0


@pytest.mark.parametrize("receiver", ["client/joe", "one:client/joe"])
def test_deaths_whose_letter_has_gone_come_from_the_facts(spark: SparkSession, receiver: str) -> None:
    dead = {"receiver": receiver, "reason": "dead", "code": "user.x"}
    ended = [
        {**dead, "ms": 9, "log_id": 7000},
        {**dead, "ms": 9, "log_id": 8000},
        {**dead, "reason": "settled", "log_id": 9},
    ]
    letters = [{"code": "user.x", "receiver": "client/joe", "message_id": "7000", "reason": "bad", "channel": "/a"}]
    published = [{"log_id": 7000, "channel": "/a"}, {"log_id": 8000, "channel": "/b"}]
    found = _triage(spark, letters=letters, fact_ended=ended, fact_published=published)
    assert told(found, "channel", "cause", "template", "letters", "to_death_max_ms") == [
        ("/a", None, "bad", 1, 0.0),
        ("/b", "message", GONE, 1, 1.0),
    ]


def test_an_outage_on_several_channels_is_one_incident_and_one_after_a_pause_is_another(spark: SparkSession) -> None:
    shape = {"code": "user.x", "receiver": "client/joe", "reason": "no database 7"}
    letters = [
        {**shape, "ms": at * 60_000 + 1, "channel": f"/{at % 3}", "message_id": str(8000 * (at == 30) + at)}
        for at in (0, 5, 9, 30)
    ]
    letters[-1]["message_id"] = "8000"
    found = incidents(_judged(spark, letters=letters))
    assert told(found, "letters", "kept", "channels", "cause", "other_codes") == [
        (1, 1, ["/0"], "message", ["user.y"]),
        (3, 3, ["/0", "/2"], None, []),
    ]


def test_dead_letters_that_are_gone_are_of_the_incident_of_those_that_are_left(spark: SparkSession) -> None:
    """Of what died together, some were redriven and accepted, some discarded; a poison message died for itself."""
    rejected = [(["1", "2", "3"], each, "receiver", ["user.x"]) for each in ("printer", "two", "gone")]
    poison = (["8"], "printer", "message", ["user.x"])
    letters = [
        {"receiver": receiver, "code": "user.x", "reason": reason, "ms": 4, "message_id": message_id}
        for receiver, reason, message_id in (
            ("printer", "out of ink", "1"),
            ("two", "out of ink", "1"),
            ("two", "paper jam", "4"),
        )
    ]
    dead = {"reason": "dead", "code": "user.x"}
    ended = [
        {**dead, "receiver": receiver, "log_id": log_id, "ms": 3 + log_id}
        for receiver in ("printer", "two", "gone")
        for log_id in (2, 3, 5, 6, 8)
    ]
    ended.append({**dead, "receiver": "printer", "log_id": 7, "ms": 3_600_000})
    found = incidents(_judged(spark, *rejected, poison, letters=letters, fact_ended=ended))
    assert told(found, "receiver", "template", "cause", "letters", "kept", "sample_reason") == [
        ("gone", GONE, "receiver", 5, 0, ""),
        ("printer", GONE, "message", 1, 0, ""),
        ("printer", GONE, None, 1, 0, ""),
        ("printer", "out of ink", "receiver", 5, 1, "out of ink"),
        ("two", GONE, "receiver", 5, 0, ""),
        ("two", "out of ink", "receiver", 1, 1, "out of ink"),
        ("two", "paper jam", None, 1, 1, "paper jam"),
    ]


def test_what_became_of_redriven_dead_letters_is_counted(spark: SparkSession) -> None:
    again = [
        {"ms": log_id, "letter": f"{log_id}-0", "log_id": log_id, "session": "client/joe/1"} for log_id in range(1, 7)
    ]
    # To a queue, of which a member gave it back before another one accepted it; and to a channel.
    again += [{"ms": 7, "letter": "7-0", "log_id": 7, "session": "client/joe"}, {"ms": 8, "letter": "8-0", "log_id": 8}]
    reasons = {1: "settled", 2: "settled", 3: "dead", 4: "expired", 6: "settled", 8: "settled"}
    ended = [{"log_id": each, "reason": reason, "receiver": "client/joe/1"} for each, reason in reasons.items()]
    ended += [{"log_id": 7, "reason": reason, "number": at} for at, reason in enumerate(("returned", "settled"))]
    tables = silver(spark, fact_redriven=again, fact_ended=ended)
    assert redriven(tables, time(1), time(5)) == {"acknowledged": 2, "came back": 1, "ended otherwise": 1, "pending": 1}
    assert redriven(tables, time(6), time(8)) == {"acknowledged": 2, "published again": 1}
    assert redriven(tables, time(9), time(9)) == {}


def test_dead_letters_are_counted_by_minute_and_code(spark: SparkSession) -> None:
    letters = [{"ms": each, "code": "user.x"} for each in (1, 59_999, 60_000)] + [{"ms": 2, "code": "user.y"}]
    found = deaths(died(silver(spark, letters=letters)))
    assert [row[1:] for row in told(found, "minute", "code", "letters")] == [
        ("user.x", 2),
        ("user.y", 1),
        ("user.x", 1),
    ]
