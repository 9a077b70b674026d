"""Poison messages, from small frames."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from crewel.pipeline.transformations.poison import origins, poison
from tests.pipeline.frames import frame, silver, told

Rows = Sequence[Mapping[str, Any]]


def _poison(
    spark: SparkSession,
    letters: Rows = (),
    failed: Rows = (),
    ended: Rows = (),
    redriven: Rows = (),
) -> DataFrame:
    return poison(
        silver(
            spark,
            letters=letters,
            event_failed=failed,
            fact_ended=ended,
            fact_redriven=redriven,
            fact_published=[{"log_id": 1, "channel": "/a"}],
        )
    )


def test_a_message_that_two_receivers_rejected_is_poison(spark: SparkSession) -> None:
    dead = {"code": "user.update.error", "reason": "dead", "log_id": 1}
    failed = {"message_id": "1", "channel": "/a", "code": "user.update.error", "outcome": "letter"}
    letter = {"message_id": "1", "channel": "/a", "code": "user.update.error", "reason": "bad", "body": "{}"}
    found = _poison(
        spark,
        [{**letter, "receiver": "client/joe/1"}, {**letter, "receiver": "client/ann/1"}],
        [{**failed, "session": "client/joe/1"}, {**failed, "session": "client/ann/1"}],
        [{**dead, "receiver": "client/joe/1"}, {**dead, "receiver": "client/ann/1"}],
    )
    assert told(found, "message_id", "channel", "receivers", "failures", "codes", "names", "sample_reason") == [
        ("1", "/a", 2, 2, ["user.update.error"], ["client/ann/1", "client/joe/1"], "bad")
    ]


def test_a_message_that_one_rejected_twice_is_poison(spark: SparkSession) -> None:
    failed = {
        "message_id": "1",
        "channel": "/a",
        "session": "client/joe/1",
        "code": "communication.x",
        "outcome": "waits",
    }
    found = _poison(spark, failed=[failed, {**failed, "index": 1}, {**failed, "message_id": "2"}])
    assert told(found, "message_id", "receivers", "failures", "sample_body") == [("1", 1, 2, None)]


def test_who_holds_messages_back_rejects_none(spark: SparkSession) -> None:
    held = {"message_id": "1", "code": "user.update.holdback", "outcome": "held"}
    sunk = {"message_id": "1", "code": "user.update.holdback.sink"}
    found = _poison(
        spark,
        [{**sunk, "receiver": "client/joe/1"}],
        [{**held, "session": "client/joe/1"}, {**held, "session": "client/joe/1", "index": 1}],
        [{"log_id": 1, "reason": "dead", "code": sunk["code"], "receiver": "client/ann/1"}],
    )
    assert found.count() == 0


def test_a_message_that_dies_again_after_a_redrive_is_the_same(spark: SparkSession) -> None:
    dead = {"code": "user.x", "reason": "dead", "receiver": "client/joe/1"}
    redriven = [{"log_id": 5, "message_id": "1", "session": "client/joe/1"}]
    found = _poison(spark, ended=[{**dead, "log_id": 1}, {**dead, "log_id": 5}], redriven=redriven)
    assert told(found, "message_id", "channel", "receivers", "failures") == [("1", "/a", 1, 2)]


def test_sessions_that_ended_rejected_nothing(spark: SparkSession) -> None:
    letter = {"message_id": "1", "code": "communication.noConnection.dead"}
    dead = {"code": "communication.noConnection.dead", "reason": "dead", "log_id": 1}
    found = _poison(
        spark,
        [{**letter, "receiver": "client/joe/1"}, {**letter, "receiver": "client/ann/1"}],
        ended=[{**dead, "receiver": "client/joe/1"}, {**dead, "receiver": "client/ann/1"}],
    )
    assert found.count() == 0


def test_chains_of_redrives_lead_to_the_first_message(spark: SparkSession) -> None:
    rows = [{"log_id": each + 1, "message_id": str(each), "place": f"{each}-0"} for each in range(1, 20)]
    found = origins(frame(spark, "fact_redriven", rows))
    assert {*told(found, "origin")} == {("1",)}
    assert found.count() == 19
