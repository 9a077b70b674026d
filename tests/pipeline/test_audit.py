"""The audit on small ledgers: what adds up says nothing, and what does not is found, with its evidence."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from crewel.pipeline.connection import Address
from crewel.pipeline.jobs.audit import Options, run, unread_facts
from crewel.pipeline.jobs.inputs import Inputs
from crewel.pipeline.schemas import FINDINGS
from crewel.pipeline.source.positions import EntryId, Extent
from crewel.pipeline.transformations.audit import Records, audit, of_schedule, set_back, without_letter
from tests.admin.desk import SETS, Desk, Receiver, publish
from tests.conftest import StartServer
from tests.functional.wire import until
from tests.pipeline.frames import frame, of_rows, silver, told

JOE, ANN, QUEUE = "client/joe/1", "client/ann/1", "client/joe"
Rows = list[dict[str, Any]]

UPTO = (5000, 0)
"""Where the first reading of the facts ended, in all of these ledgers."""


def _published(log_id: int, ms: int | None = None, channel: str = "/a/b") -> dict[str, Any]:
    return {"ms": log_id // 1000 if ms is None else ms, "log_id": log_id, "channel": channel}


def _ended(
    log_id: int, receiver: str = JOE, ms: int = 4000, reason: str = "settled", number: int = 0
) -> dict[str, Any]:
    return {"ms": ms, "log_id": log_id, "receiver": receiver, "reason": reason, "number": number}


def _holds(
    session: str = JOE, pattern: str = "/a/*", since: int = 0, until: int | None = None, **more: Any
) -> dict[str, Any]:
    return {"session": session, "pattern": pattern, "from_id": since, "until_id": until, "subscribed": "1-0", **more}


class Ledger:
    """Audits rows of facts and records."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.waiting: list[tuple[str, int]] = []
        self.cursors: list[tuple[str, int]] = [(JOE, 9_000_000), (ANN, 9_000_000)]
        self.subscriptions: list[tuple[str, str, int, int | None]] = []

    def findings(
        self, gap_ms: int | None = None, loss: DataFrame | None = None, **facts: Rows
    ) -> list[tuple[Any, ...]]:
        """Return (finding, log id, receiver, evidence) of all that is found."""
        make = partial(of_rows, self._spark)
        records = Records(
            make(self.waiting, "receiver STRING, log_id BIGINT"),
            make(self.cursors, "session STRING, cursor BIGINT"),
            make(self.subscriptions, "session STRING, pattern STRING, from_id BIGINT, until_id BIGINT"),
        )
        found = audit(silver(self._spark, **facts), records, UPTO, gap_ms, loss).collect()
        assert all(row["words"] for row in found)
        return sorted((row["finding"], row["log_id"], row["receiver"], row["evidence"]) for row in found)


@pytest.fixture
def ledger(spark: SparkSession) -> Ledger:
    return Ledger(spark)


def test_what_adds_up_is_not_mentioned(ledger: Ledger) -> None:
    """All ways in which a message is owed and ends or waits, at once."""
    ids = {
        name: 1000 * (10 + at)
        for at, name in enumerate(("settled", "open", "beyond", "leased", "queued", "again", "late"))
    }
    ledger.cursors = [(JOE, ids["open"])]
    ledger.waiting = [(JOE, ids["open"]), (QUEUE, ids["queued"])]
    published = [_published(ids[name]) for name in ("settled", "open", "beyond")]
    asked = {"receiver": QUEUE, "is_queue": True, "channel": "/a/b"}
    found = ledger.findings(
        # Two patterns of one session: it is owed each message once.
        intervals=[_holds(), _holds(pattern="/**", since=5), _holds(ANN, since=ids["settled"], until=ids["settled"])],
        fact_published=[*published, _published(8_000_000, 8000), _published(1, 1, "/other"), _published(9, 1, "")],
        fact_addressed=[
            {**asked, "ms": 100, "log_id": ids["leased"]},
            {**asked, "ms": 100, "log_id": ids["queued"]},
            {**asked, "ms": 100, "log_id": ids["again"]},
            {**asked, "ms": 100, "log_id": ids["late"], "receiver": JOE, "is_queue": False},
        ],
        fact_leased=[
            {"ms": 200, "log_id": ids["leased"], "queue": QUEUE, "session": JOE},
            {"ms": 200, "log_id": ids["again"], "queue": QUEUE, "session": JOE},
            {"ms": 400, "log_id": ids["again"], "queue": QUEUE, "session": JOE},
        ],
        fact_returned=[{"ms": 300, "log_id": ids["again"], "queue": QUEUE}],
        fact_ended=[
            _ended(ids["settled"]),
            _ended(ids["leased"]),
            _ended(ids["again"], reason="returned", ms=300),
            _ended(ids["again"]),
            _ended(ids["late"], ms=6000),  # while the records were read
        ],
    )
    assert found == []


@dataclass(frozen=True)
class Case:
    """A small ledger, and what is found in it."""

    facts: Mapping[str, Rows]
    found: Sequence[tuple[Any, ...]] = ()
    waiting: Sequence[tuple[str, int]] = ()
    has_cursors: bool = True


GROUP = "group:/a workers"
CASES: Mapping[str, Case] = {
    # A record that was read late has it, or the facts have its end; a record that was read early has neither.
    "what was published while the records were read is no surplus": Case(
        {
            "intervals": [_holds(), _holds(ANN)],
            "fact_published": [_published(8_000_000, 8000), _published(8_000_001, 8000)],
            "fact_ended": [_ended(8_000_001, ms=8001)],
        },
        waiting=[(JOE, 8_000_000)],
    ),
    "what was owed and is nowhere is lost": Case(
        {
            "intervals": [_holds()],
            "fact_published": [_published(20_000), _published(21_000)],
            "fact_addressed": [
                {"ms": 30, "log_id": 30_000, "receiver": JOE, "channel": "/x"},
                {"ms": 31, "log_id": 31_000, "receiver": QUEUE, "is_queue": True, "channel": "/x"},
            ],
            "fact_redriven": [{"ms": 40, "log_id": 40_000, "session": JOE, "letter": "1-0"}],
            "fact_ended": [_ended(21_000)],
        },
        [
            ("lost", 20_000, JOE, ["1-0", "20-0"]),
            ("lost", 30_000, JOE, ["30-0"]),
            ("lost", 31_000, QUEUE, ["31-0"]),
            ("lost", 40_000, JOE, ["40-0"]),
        ],
    ),
    "what a session was owed that is gone is lost": Case(
        {"intervals": [_holds(until=25_000)], "fact_published": [_published(20_000), _published(26_000)]},
        [("lost", 20_000, JOE, ["1-0", "20-0"])],
        has_cursors=False,
    ),
    "ends without a debt, second ends and ghosts": Case(
        {
            "intervals": [_holds()],
            "fact_published": [_published(20_000), _published(21_000)],
            "fact_ended": [
                _ended(20_000),
                _ended(21_000),
                _ended(21_000, number=1, reason="dead"),
                _ended(21_000, ANN, number=2),
            ],
        },
        [
            ("both", 20_000, JOE, ["1-0", "20-0", "4000-0"]),
            ("surplus", 21_000, ANN, ["4000-0"]),
            ("surplus", 99_000, JOE, []),
            ("twice", 21_000, JOE, ["1-0", "21-0", "4000-0"]),
        ],
        waiting=[(JOE, 20_000), (JOE, 99_000)],
    ),
    "a message that was leased again may end again": Case(
        {
            "fact_addressed": [{"ms": 20, "log_id": 20_000, "receiver": QUEUE, "is_queue": True, "channel": "/a"}],
            "fact_leased": [
                {"log_id": 20_000, "queue": QUEUE, "session": JOE, "ms": 21},
                {"log_id": 20_000, "queue": QUEUE, "session": JOE, "ms": 23},
            ],
            "fact_returned": [{"ms": 22, "log_id": 20_000, "queue": QUEUE}],
            "fact_ended": [_ended(20_000, ms=22, reason="returned"), _ended(20_000)],
        },
    ),
    "what a filter excludes has ended, and what it does not is not to be lost": Case(
        {
            "intervals": [_holds(options='{"filter":"data.n > `1`"}')],
            "fact_published": [_published(each) for each in (20_000, 21_000, 22_000)],
            "fact_ended": [_ended(20_000, reason="filtered"), _ended(21_000)],
        },
        [("lost", 22_000, JOE, ["1-0", "22-0"])],
    ),
    "what was given to a group is audited at its queue and its members": Case(
        {
            "fact_addressed": [
                {"ms": 20, "log_id": each, "receiver": GROUP, "is_queue": True, "channel": "/a"}
                for each in (20_000, 21_000, 22_000, 23_000)
            ],
            "fact_leased": [
                {"queue": GROUP, "ms": 30, "log_id": 20_000, "session": JOE},
                {"queue": GROUP, "ms": 30, "log_id": 21_000, "session": ANN},
            ],
            "fact_ended": [_ended(20_000), _ended(23_000, GROUP, reason="lapsed")],
        },
        [("lost", 21_000, ANN, ["30-0"]), ("lost", 22_000, GROUP, ["20-0"])],
    ),
}


def _own(value: Any, number: int) -> Any:
    """Give the receivers, channels and groups of a case names of its own."""
    if not isinstance(value, str):
        return value
    return re.sub(r"^(client/[a-z]+|(?:group:)?/[ax](?=[/ ]|$))", rf"\g<1>{number}", value)


def test_what_each_small_ledger_has_is_found_and_nothing_else(ledger: Ledger) -> None:
    """One audit does for all: nothing is owed or ends across receivers."""
    ledger.cursors = []
    facts: dict[str, Rows] = defaultdict(list)
    expected: dict[str, list[tuple[Any, ...]]] = {}
    for number, (name, case) in enumerate(CASES.items()):
        for table, rows in case.facts.items():
            facts[table] += [{key: _own(value, number) for key, value in row.items()} for row in rows]
        ledger.waiting += [(_own(receiver, number), log_id) for receiver, log_id in case.waiting]
        if case.has_cursors:
            ledger.cursors += [(_own(receiver, number), 9_000_000) for receiver in (JOE, ANN)]
        expected[name] = [
            (finding, log_id, _own(receiver, number), *more) for finding, log_id, receiver, *more in case.found
        ]
    found = ledger.findings(**facts)
    owners = {
        _own(receiver, number): name for number, name in enumerate(CASES) for receiver in (JOE, ANN, QUEUE, GROUP)
    }
    by_case: dict[str, list[tuple[Any, ...]]] = {name: [] for name in CASES}
    for each in found:
        by_case[owners[each[2]]].append(each)
    assert by_case == expected


def test_what_has_to_do_with_a_gap_is_unknown_and_never_lost(ledger: Ledger) -> None:
    """The gap ends at 50: messages of before may have ended in it, and so may subscriptions."""
    ledger.subscriptions = [(ANN, "/a/*", 0, None)]
    found = ledger.findings(
        50,
        intervals=[_holds(JOE), _holds(ANN)],
        fact_published=[_published(20_000), _published(60_000)],
        fact_ended=[_ended(10_000), _ended(20_000, ANN)],
    )
    # The record says that Ann is still subscribed; of Joe nobody knows.
    assert [each[:3] for each in found] == [("lost", 60_000, ANN), ("unknown", None, JOE), ("unknown", None, JOE)]


def test_facts_that_the_store_has_lost_do_not_count_and_are_named(spark: SparkSession, ledger: Ledger) -> None:
    published = [_published(20_000), _published(40_000), _published(41_000)]
    gone = of_rows(spark, [("40-0", 40, 0), ("41-0", 41, 0)], "place STRING, ms BIGINT, seq BIGINT")
    loss = set_back(gone, frame(spark, "fact_published", published))
    names = ("node", "from_id", "until_id", "messages", "met_ms")
    assert told(loss, *names) == [("the store", 40_000, 41_000, 2, 42)]
    assert told(set_back(gone.where("false"), frame(spark, "fact_published", published)), *names) == []
    ledger.waiting = [(JOE, 20_000)]
    found = ledger.findings(
        None, loss, intervals=[_holds()], fact_published=published, fact_ended=[_ended(20_000, ms=41)]
    )
    assert found == [("rolled back", 40_000, "the store", ["40-0"])]


def test_facts_beyond_the_end_of_a_store_that_was_set_back_are_not_missing(spark: SparkSession) -> None:
    """The store has 1 to 3, said so of three that it ever had, and lost 4 and 5; the tables have all five."""
    places = [(f"{each}-0", each, 0) for each in range(1, 6)]
    raw = of_rows(spark, places, "place STRING, ms BIGINT, seq BIGINT").withColumn("key", f.lit("facts"))
    inputs = cast(
        "Inputs",
        SimpleNamespace(raw=raw, silver=silver(spark), sources=SimpleNamespace(tables=SimpleNamespace(forgotten=0))),
    )
    stream = Extent(EntryId(3, 0), 3, 3, EntryId(1, 0))
    gone = of_rows(spark, places[3:], "place STRING, ms BIGINT, seq BIGINT")
    assert unread_facts(inputs, stream, gone) == (0, None)
    replaced = of_rows(spark, [*places[3:], places[2]], "place STRING, ms BIGINT, seq BIGINT")
    assert unread_facts(inputs, stream, replaced) == (1, 1), "another entry took the place of the third, unread"


def test_a_dead_letter_that_is_gone_without_a_fact_is_found(spark: SparkSession) -> None:
    dead = [_ended(each, ms=each // 1000, reason="dead") for each in (9_000, 10_000, 20_000, 20_001, 30_000, 6_000_000)]
    letters = [(10, "10000", JOE), (20, "20001", ANN), (30, "30000", JOE)]
    tables = silver(
        spark,
        fact_ended=[
            *dead,
            _ended(40_000, ms=40, reason="dead"),
            _ended(40_001, ms=40, reason="dead"),
            _ended(50_000, ms=50),
        ],
        fact_discarded=[{"ms": 100, "letter": "40-0"}],
        fact_redriven=[{"ms": 100, "letter": "20-1", "message_id": "20000", "log_id": 1, "session": JOE}],
    )
    there = of_rows(spark, letters, "ms BIGINT, message_id STRING, receiver STRING")
    # Of the two of 20 one was redriven, of the two of 40 one discarded. That of 9 is older than all letters.
    found = without_letter(tables, there, UPTO)
    assert [(row[0], row[1] // 1000) for row in told(found, "finding", "log_id")] == [
        ("no letter", 20),
        ("no letter", 40),
    ]


def test_scheduled_messages_that_are_nowhere_and_those_that_came_twice_are_found(spark: SparkSession) -> None:
    """One is published, one cancelled, one listed; one is nowhere, and one was published twice. The last came later."""
    tables = silver(
        spark,
        fact_scheduled=[
            *({"ms": each, "log_id": each * 1000, "channel": "/a"} for each in (20, 30, 40, 50, 60)),
            {"ms": 6000, "log_id": 6_000_000, "channel": "/a"},
        ],
        fact_published=[
            _published(100_000) | {"scheduled_id": 20_000},
            *(_published(each) | {"scheduled_id": 60_000} for each in (200_000, 300_000)),
            _published(400_000),
        ],
        fact_cancelled=[{"ms": 70, "log_id": 30_000, "channel": "/a"}],
    )
    listed = of_rows(spark, [(40_000,)], "log_id BIGINT")
    found = of_schedule(tables, listed, UPTO, None)
    assert sorted(told(found, "finding", "log_id", "receiver")) == [
        ("lost", 50_000, "scheduled"),
        ("twice", 60_000, "scheduled"),
    ]
    assert told(of_schedule(tables, listed, UPTO, 50), "finding") == [("twice",)], "facts of that time are missing"


def test_a_dead_letter_of_one_session_of_a_subject_is_found_by_the_name_of_the_subject(spark: SparkSession) -> None:
    tables = silver(spark, fact_ended=[_ended(each, f"one:{QUEUE}", each // 1000, "dead") for each in (20_000, 30_000)])
    there = of_rows(spark, [(10, "10000", JOE), (20, "20000", QUEUE)], "ms BIGINT, message_id STRING, receiver STRING")
    found = without_letter(tables, there, UPTO)
    assert told(found, "log_id", "receiver") == [(30_000, QUEUE)]


def test_dead_letters_of_a_time_that_the_store_has_lost_need_not_be_there(spark: SparkSession) -> None:
    """One died in the lost time. Another one was redriven then, so it is there again, and a third one is missing."""
    loss = {"node": "heron", "from_id": 1, "until_id": 2, "kept": "1000-0", "met_ms": 3000}
    facts = {
        "fact_ended": [_ended(each, ms=each // 1000, reason="dead") for each in (20_000, 30_000, 2_000_000)],
        "fact_redriven": [{"ms": 2100, "letter": "20-0", "message_id": "20000", "log_id": 1, "session": JOE}],
        "fact_discarded": [{"ms": 2100, "letter": "30-0"}],
    }
    there = of_rows(spark, [(10, "10000", JOE), (20, "20000", JOE)], "ms BIGINT, message_id STRING, receiver STRING")
    told_by_a_server = silver(spark, **facts, fact_lost=[{**loss, "ms": 3050}])
    assert told(without_letter(told_by_a_server, there, UPTO), "log_id") == [(30_000,)]
    shown = frame(spark, "fact_lost", [{**loss, "ms": 1001}])
    assert told(without_letter(silver(spark, **facts), there, UPTO, shown), "log_id") == [(30_000,)]


def test_a_dead_letter_that_was_restored_must_be_there(spark: SparkSession) -> None:
    """Of three that were discarded and restored, one is there, one was discarded again, and one is gone without a fact."""
    dead = [_ended(each, ms=each // 1000, reason="dead") for each in (20_000, 30_000, 40_000)]
    tables = silver(
        spark,
        fact_ended=dead,
        fact_discarded=[
            *({"ms": 100, "letter": letter} for letter in ("20-0", "30-0", "40-0")),
            {"ms": 300, "letter": "201-0", "first": "30-0"},
        ],
        fact_restored=[
            {"ms": 200, "letter": letter, "restored_as": new, "first": letter}
            for letter, new in (("20-0", "200-0"), ("30-0", "201-0"), ("40-0", "202-0"))
        ],
    )
    letters = [(10, "10000", JOE), (200, "20000", JOE)]
    there = of_rows(spark, letters, "ms BIGINT, message_id STRING, receiver STRING")
    found = without_letter(tables, there, UPTO)
    assert [row[1] // 1000 for row in told(found, "finding", "log_id")] == [40]


def _subscribe(receiver: Receiver, options: dict[str, Any]) -> None:
    asked = receiver.message("/meta/subscribe", subscription="/orders", ext={"subscribe": options})
    assert receiver.post(asked).messages[-1]["successful"], options


def test_a_server_with_filters_and_groups_adds_up_and_what_a_member_loses_is_found(
    spark: SparkSession, address: Address, start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(*SETS, f"storage.url={address.url}", f"storage.prefix={address.prefix}")
    asked: dict[str, dict[str, Any]] = {
        "some/1": {"filter": "data > `2`"},
        "others/1": {"filter": "data < `0`"},
        "worker/1": {"group": "workers"},
        "worker/2": {"group": "workers"},
        "oneway/1": {"updateOneway": True},
        "newest/1": {"newestOnly": True},
        "plain/1": {},
    }
    receivers = {name: Receiver(server).be(name, persistent=True) for name in asked}
    for name, options in asked.items():
        _subscribe(receivers[name], options)
    publish(server, "/orders", 5)
    receivers["oneway/1"].take_all()
    for name in ("some/1", "worker/1", "plain/1"):
        taken = receivers[name].take_all()
        receivers[name].reject(taken[:1])
        receivers[name].accept(taken[1:])
    _subscribe(receivers["some/1"], {"filter": "data > `7`"})
    publish(server, "/orders", 5, 5)
    receivers["plain/1"].disconnect()
    with address.client() as client:
        record = address.keys.session("client/worker/2")
        names: list[bytes] = client.hkeys(record)
        fields = [each for each in names if each[:2] in (b"o:", b"i:")]
        client.hdel(record, fields[0])
    result = run(spark, Options(address=address, directory=tmp_path))
    assert (result.messages, result.unread) == (10, 0)
    assert result.counts == {**dict.fromkeys(FINDINGS, 0), "lost": 1}, result.findings
    (finding,) = result.findings
    assert (finding["finding"], finding["receiver"]) == ("lost", "client/worker/2")
    assert finding["log_id"] == int(fields[0][2:])


def test_scheduled_messages_of_a_server_add_up_and_one_that_is_gone_is_found(
    spark: SparkSession, address: Address, start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(*SETS, f"storage.url={address.url}", f"storage.prefix={address.prefix}")
    desk, publisher, ids = Desk(server), Receiver(server).be(), []
    for after_ms in (1, 3_600_000, 3_600_000):
        asked = {"publish": {"persistent": True, "deliverAfter": after_ms}}
        ids.append(publisher.publish("/orders", 1, ext=asked)[-1]["ext"]["publish"]["id"])
    desk.post("/scheduled-messages/cancel", {"ids": ids[1:2]})
    until(lambda: desk.get(f"/messages/{ids[0]}")["schedule"]["publishedAs"])
    result = run(spark, Options(address=address, directory=tmp_path))
    assert (result.messages, result.unread) == (1, 0)
    assert result.counts == dict.fromkeys(FINDINGS, 0), result.findings
    with address.client() as client:
        client.zrem(address.keys.scheduled, ids[2])
    result = run(spark, Options(address=address, directory=tmp_path))
    assert [(each["finding"], each["log_id"]) for each in result.findings] == [("lost", int(ids[2]))]


def test_what_the_store_lost_is_one_finding_and_no_defect(ledger: Ledger) -> None:
    """Facts of the lost time were read, and the store has neither the messages nor what happened to others then."""
    kept, gone = 1_000_000, 2_000_000
    ledger.waiting = [(JOE, kept)]  # its end was lost with the rest
    found = ledger.findings(
        intervals=[_holds(), _holds(ANN, subscribed="2500-0", since=gone)],
        fact_published=[_published(kept), _published(gone), _published(3_100_000)],
        fact_ended=[_ended(kept, ms=2000), _ended(3_100_000)],
        fact_lost=[
            {
                "ms": 3050,
                "node": "heron",
                "from_id": kept,
                "until_id": gone,
                "messages": 1,
                "kept": "1000-0",
                "met_ms": 3000,
            }
        ],
    )
    assert found == [("rolled back", kept, "heron", ["3050-0"])]
