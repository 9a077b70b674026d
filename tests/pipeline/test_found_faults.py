"""A real server under the load of stock clients, and faults that were planted among them: the report names each of them, and
the audit finds the planted loss and nothing else."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from crewel.pipeline.connection import Address
from crewel.pipeline.jobs import audit, report
from crewel.pipeline.schemas import FINDINGS, TABLES
from crewel.pipeline.tables import Tables
from tests.functional.wire import figures
from tests.interop.conftest import installed_clients  # noqa: F401 - a fixture
from tests.pipeline import forgetting
from tests.pipeline.report.reader import Reader
from tests.pipeline.scene import PATTERN, SHOPS, TICKS, Buyer, Played, healthy, play
from tests.server_process import Server

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("installed_clients")]

SETS = ("events.level=all", "events.flush_ms=100", "delivery.queue_max_entries=100000")
LOAD_S, CLEAN_S = 20.0, 5.0
LEAST = 2000
"""Messages of the load: more than there are faults among."""
GOOD, SICK, HELD = ("good/1", "good/2", "good/3"), "sick/1", "held/1"
POISON = 400
"""Number of the message that nobody can digest."""
HOLDS = 151
"""Of the one at which a receiver holds itself back."""
PASSING = {1000: "good/1", 1500: "good/3"}
"""Of those that a healthy receiver rejects, and all others take: the message is not the cause."""


def is_of_the_sick(number: int) -> bool:
    """Whether the sick receiver fails with this message."""
    return number % 7 == 3


def planted(number: int) -> dict[str, Any]:
    """What is wrong with a message."""
    if number == POISON:
        return {"code": "user.update.error", "why": f"cannot parse order {number}"}
    if number == HOLDS:
        return {"code": "user.update.holdback", "why": "the disk is full", "only": HELD}
    if number in PASSING:
        return {"code": "user.update.error", "why": "a passing trouble", "only": PASSING[number]}
    if is_of_the_sick(number):
        why = f"db{number} does not answer after {number * 7} ms"
        return {"code": "user.update.sickness", "why": why, "only": SICK}
    return {}


@dataclass
class Scene:
    """What was played, and what should be found."""

    address: Address
    played: Played
    waiting: int
    """How many messages wait for the one who is held."""
    lost: str | None
    """Id of the message that the server forgot."""


def _scene(directory: Path, *options: str, plays: Any, held: str | None = None) -> Scene:
    server = Server(["--port=0", *(f"--set={each}" for each in SETS), *options], directory)
    try:
        sets = dict(text.split("=", 1) for text in server.store_sets)
        address = Address(sets["storage.url"], sets["storage.prefix"])
        with address.client() as client:

            def open_of(name: str) -> int:
                fields = client.hkeys(address.keys.session(f"client/{name}"))
                return sum(key.startswith((b"o:", b"i:")) for key in fields)

            def is_over() -> bool:
                return figures(server)["crewel_waiting"] == (open_of(held) if held else 0)

            played = asyncio.run(plays(server.url, is_over))
            waiting = open_of(held) if held else 0
        note = directory / forgetting.NOTE
        return Scene(address, played, waiting, note.read_text() if note.exists() else None)
    finally:
        server.close()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    buyers = [
        Buyer(GOOD[0], "websocket", "9"),
        Buyer(GOOD[1], "long-polling", "9"),
        Buyer(GOOD[2], "websocket", "7"),
        Buyer(SICK, "long-polling", "8"),
        Buyer(HELD, "websocket", "9"),
    ]
    return _scene(
        tmp_path_factory.mktemp("server"),
        "--service=tests.pipeline.forgetting",
        plays=lambda url, is_over: play(url, buyers, LOAD_S, planted, is_over, HELD, least=LEAST),
        held=HELD,
    )


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    buyers = [Buyer(GOOD[0], "websocket", "9"), Buyer(GOOD[1], "long-polling", "8")]
    return _scene(
        tmp_path_factory.mktemp("clean"),
        plays=lambda url, is_over: play(url, buyers, CLEAN_S, healthy, is_over),
    )


def _audited(spark: SparkSession, scene: Scene, directory: Path) -> audit.Result:
    return audit.run(spark, audit.Options(address=scene.address, directory=directory))


def _reported(spark: SparkSession, scene: Scene, directory: Path) -> tuple[report.Result, dict[str, Any], str]:
    page = directory / "report.html"
    result = report.run(spark, report.Options(address=scene.address, directory=directory, html=page))
    return result, json.loads((directory / "report.json").read_text()), page.read_text()


def test_the_audit_finds_nothing_where_nothing_is_wrong(spark: SparkSession, clean: Scene, tmp_path: Path) -> None:
    result = _audited(spark, clean, tmp_path)
    assert result.counts == dict.fromkeys(FINDINGS, 0), result.findings
    assert (result.messages, result.is_clean, result.unread_until) == (len(clean.played.ids), True, None)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def audited(spark: SparkSession, scene: Scene, directory: Path) -> audit.Result:
    return _audited(spark, scene, directory)


def test_the_load_was_one(scene: Scene) -> None:
    assert len(scene.played.ids) > LEAST
    assert scene.lost, "the server has forgotten nothing: tests/pipeline/forgetting.py does not fit it any more"
    assert all(scene.played.channels[channel] > 100 for channel in SHOPS)


def test_the_audit_finds_the_forgotten_message_and_nothing_else(scene: Scene, audited: audit.Result) -> None:
    assert audited.counts == {**dict.fromkeys(FINDINGS, 0), "lost": 1}, audited.findings
    (finding,) = audited.findings
    assert (finding["log_id"], finding["receiver"]) == (int(scene.lost or 0), forgetting.RECEIVER)
    assert (finding["finding"], finding["pattern"]) == ("lost", PATTERN)
    assert finding["channel"] in SHOPS
    with scene.address.client() as client:
        facts = [client.xrange(scene.address.keys.facts, place, place)[0][1] for place in finding["evidence"]]
    assert sorted(fact[b"t"] for fact in facts) == [b"published", b"subscribed"]
    assert (audited.messages, audited.lost, audited.is_clean) == (len(scene.played.ids), 1, False)


def test_its_receiver_has_not_heard_it_and_all_others_have(scene: Scene) -> None:
    numbers = {log_id: number for number, log_id in scene.played.ids.items()}
    missing = {name: scene.played.ids.keys() - heard for name, heard in scene.played.heard.items() if name != HELD}
    victim = forgetting.RECEIVER.removeprefix("client/")
    assert missing == {**{name: set() for name in missing}, victim: {numbers[scene.lost or ""]}}


Reported = tuple[report.Result, dict[str, Any], str]


@pytest.fixture(scope="module")
def reported(spark: SparkSession, scene: Scene, audited: audit.Result, directory: Path) -> Reported:
    """The report's result, its JSON and its page."""
    return _reported(spark, scene, directory)


def test_the_report_names_the_poison_messages(scene: Scene, reported: Reported) -> None:
    result, told, page = reported
    assert result.poison == 1
    (row,) = told["poison"]
    assert told["failing_channels"] == []
    receivers = sorted(f"client/{name}" for name in (*GOOD, SICK))
    assert (row["message_id"], row["names"]) == (scene.played.ids[POISON], receivers)
    assert (row["receivers"], row["failures"]) == (len(receivers), len(receivers))
    assert row["sample_reason"] == f"cannot parse order {POISON}"
    assert scene.played.ids[POISON] in page


def test_the_report_names_the_sick_and_the_held_receiver_and_no_other(scene: Scene, reported: Reported) -> None:
    result, told, page = reported
    assert sorted(result.sick) == [f"client/{HELD}", f"client/{SICK}"]
    why = {row["session"]: row["why"] for row in told["receivers"]}
    rejected = sum(map(is_of_the_sick, scene.played.ids))
    assert [text.partition(" ")[0] for text in why[f"client/{SICK}"]] == ["fails", "rejected"]
    assert why[f"client/{SICK}"][1].startswith(f"rejected {rejected} messages, {rejected} of them taken by others")
    assert why[f"client/{HELD}"][0].endswith("and still is")
    assert f"client/{SICK}" in page


def test_the_report_tells_what_died_and_why(
    spark: SparkSession, scene: Scene, reported: Reported, directory: Path
) -> None:
    result, told, page = reported
    found: dict[tuple[str, str, str], int] = {}
    for row in told["triage"]:
        key = (row["code"], row["receiver"], row["template"])
        found[key] = found.get(key, 0) + row["letters"]
    sick = sum(map(is_of_the_sick, scene.played.ids))
    assert found == {
        ("user.update.sickness", f"client/{SICK}", "db<n> does not answer after <n> ms"): sick,
        **{("user.update.error", f"client/{name}", "cannot parse order <n>"): 1 for name in (*GOOD, SICK)},
        **{("user.update.error", f"client/{name}", "a passing trouble"): 1 for name in PASSING.values()},
    }
    assert result.letters == sum(found.values())
    assert "db&lt;n&gt; does not answer" in page
    assert Tables(spark, directory).read(TABLES["triage"]).count() == len(told["triage"])


def test_the_report_tells_how_much_there_was_and_how_long_it_took(scene: Scene, reported: Reported) -> None:
    _, told, _ = reported
    counts: dict[str, list[int]] = {}
    for row in told["capacity"]:
        before = counts.get(row["channel"], [0, 0])
        counts[row["channel"]] = [before[0] + row["persistent"], before[1] + row["transient"]]
    assert {channel: counts[channel] for channel in SHOPS} == {
        channel: [number, 0] for channel, number in scene.played.channels.items()
    }
    assert counts[TICKS] == [0, scene.played.ticks]
    assert sum(row["count"] for row in told["latency"]) == sum(row["settled"] for row in told["receivers"])
    assert told["backlog"][0]["waiting"] == scene.waiting + 1  # of who is held, and the one that was forgotten


def test_the_page_is_whole_and_needs_nothing_else(reported: Reported) -> None:
    reader = Reader(reported[2])
    assert {"svg", "polyline", "rect", "table"} <= reader.names
    assert not {"script", "link", "img", "src", "href"} & reader.names
