"""A real server with clients under load, and faults that were planted: the report names each of them, and the audit finds the
planted loss and nothing else."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from crewel.client import Client
from crewel.pipeline.connection import Address
from crewel.pipeline.jobs import audit, report
from crewel.pipeline.schemas import FINDINGS, TABLES
from crewel.pipeline.tables import Tables
from tests.server_process import Server
from tests.store_process import until

CHANNEL = "/orders/new"
MESSAGES = 60
POISON = 20
"""Number of the message that nobody can digest."""
GOOD, SICK, HELD = ("good/1", "good/2", "good/3"), "sick/1", "held/1"


@dataclass
class Scene:
    """What was played, and what should be found."""

    address: Address
    poison: str
    lost: str

    @property
    def record(self) -> str:
        return self.address.keys.session(f"client/{HELD}")


async def _play(url: str) -> str:
    """Publish to receivers of which some are not well; return the id of the poison message."""
    async with contextlib.AsyncExitStack() as stack:
        shop = await stack.enter_async_context(Client(url))
        heard = []
        for name in (*GOOD, SICK, HELD):
            client = await stack.enter_async_context(Client(url, update=True, name=name, leave=True, persistent=True))
            subscription = await client.subscribe("/orders/*")
            heard.append(asyncio.create_task(_receive(name, subscription)))
        await (await stack.enter_async_context(Client(url, name="plain/1"))).subscribe("/**")
        poison = ""
        for number in range(MESSAGES):
            reply = await shop.publish(CHANNEL, {"number": number}, persistent=True)
            if number == POISON:
                poison = str(reply.message_id)
            await shop.publish("/ticks", number)
        await asyncio.wait_for(asyncio.gather(*heard[:-1]), 30)
        heard[-1].cancel()
        await asyncio.sleep(0.2)  # the last statuses go
    return poison


async def _receive(name: str, subscription: Any) -> None:
    for count in range(MESSAGES):
        message = await subscription.receive(timeout=30)
        number = message.data["number"]
        if name == HELD:
            message.reject("user.update.holdback", "the disk is full")
        elif number == POISON:
            message.reject("user.update.error", f"cannot parse order {number}")
        elif name == SICK and number % 3 == 1:
            message.reject("user.update.sickness", f"db{number} does not answer after {number * 7} ms")
        else:
            message.settle()
        if name == HELD and count == 0:
            return


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    server = Server(
        ["--port=0", "--set=events.level=all", "--set=events.flush_ms=100"], tmp_path_factory.mktemp("server")
    )
    try:
        sets = dict(text.split("=", 1) for text in server.store_sets)
        address = Address(sets["storage.url"], sets["storage.prefix"])
        poison = asyncio.run(_play(server.url))
        with address.client() as client:
            record = address.keys.session(f"client/{HELD}")
            until(lambda: sum(key.startswith(b"o:") for key in client.hkeys(record)) == MESSAGES)
            until(
                lambda: not any(key.startswith(b"o:") for key in client.hkeys(address.keys.session(f"client/{SICK}")))
            )
            opened = sorted(key.decode() for key in client.hkeys(record) if key.startswith(b"o:"))
            lost = opened[MESSAGES // 2]
        yield Scene(address, poison, lost.removeprefix("o:"))
    finally:
        server.close()


def _audit(spark: SparkSession, scene: Scene, directory: Path) -> audit.Result:
    return audit.run(spark, audit.Options(address=scene.address, directory=directory))


@pytest.fixture(scope="module")
def audits(
    spark: SparkSession, scene: Scene, tmp_path_factory: pytest.TempPathFactory
) -> tuple[audit.Result, audit.Result]:
    """What the audit finds before and after the message was dropped."""
    directory = tmp_path_factory.mktemp("audits")
    before = _audit(spark, scene, directory)
    with scene.address.client() as client:
        assert client.hdel(scene.record, f"o:{scene.lost}") == 1
    return before, _audit(spark, scene, directory)


def test_the_audit_finds_nothing_where_nothing_is_lost(audits: tuple[audit.Result, audit.Result]) -> None:
    result = audits[0]
    assert result.counts == dict.fromkeys(FINDINGS, 0), result.findings
    assert (result.messages, result.is_clean, result.unread_until) == (MESSAGES, True, None)


def test_the_audit_finds_the_dropped_message_and_nothing_else(
    scene: Scene, audits: tuple[audit.Result, audit.Result]
) -> None:
    result = audits[1]
    assert result.counts == {**dict.fromkeys(FINDINGS, 0), "lost": 1}, result.findings
    (finding,) = result.findings
    assert (finding["finding"], str(finding["log_id"]), finding["receiver"]) == ("lost", scene.lost, f"client/{HELD}")
    assert (finding["channel"], finding["pattern"]) == (CHANNEL, "/orders/*")
    with scene.address.client() as client:
        facts = [client.xrange(scene.address.keys.facts, place, place)[0][1] for place in finding["evidence"]]
    assert sorted(fact[b"t"] for fact in facts) == [b"published", b"subscribed"]
    assert result.lost == 1
    assert not result.is_clean


@pytest.fixture(scope="module")
def reported(
    spark: SparkSession, scene: Scene, audits: object, tmp_path_factory: pytest.TempPathFactory
) -> tuple[report.Result, dict[str, Any], str, Tables]:
    """The report's result, its JSON, its page and its tables."""
    directory = tmp_path_factory.mktemp("report")
    page = directory / "report.html"
    result = report.run(spark, report.Options(address=scene.address, directory=directory, html=page))
    return result, json.loads((directory / "report.json").read_text()), page.read_text(), Tables(spark, directory)


def test_the_report_names_the_poison_message(
    scene: Scene, reported: tuple[report.Result, dict[str, Any], str, Tables]
) -> None:
    result, told, page, _ = reported
    assert result.poison == 1
    (row,) = told["poison"]
    receivers = sorted(f"client/{name}" for name in (*GOOD, SICK))
    assert (row["message_id"], row["channel"], row["names"]) == (scene.poison, CHANNEL, receivers)
    assert (row["receivers"], row["failures"]) == (len(receivers), len(receivers))
    assert row["sample_reason"] == f"cannot parse order {POISON}"
    assert scene.poison in page


def test_the_report_names_the_sick_and_the_held_receiver(
    reported: tuple[report.Result, dict[str, Any], str, Tables],
) -> None:
    result, told, page, _ = reported
    assert result.sick == sorted([f"client/{SICK}", f"client/{HELD}"]) or set(result.sick) == {
        f"client/{SICK}",
        f"client/{HELD}",
    }
    why = {row["session"]: row["why"] for row in told["receivers"]}
    assert [text.partition(" ")[0] for text in why[f"client/{SICK}"]] == ["fails"]
    assert why[f"client/{HELD}"][0].endswith("and is so now")
    assert why[f"client/{GOOD[0]}"] == []
    assert f"client/{SICK}" in page


def test_the_report_tells_what_died_and_why(reported: tuple[report.Result, dict[str, Any], str, Tables]) -> None:
    result, told, page, tables = reported
    found = {(row["code"], row["receiver"], row["template"]): row["letters"] for row in told["triage"]}
    sick = sum(number % 3 == 1 and number != POISON for number in range(MESSAGES))
    assert found == {
        ("user.update.sickness", f"client/{SICK}", "db<n> does not answer after <n> ms"): sick,
        **{("user.update.error", f"client/{name}", "cannot parse order <n>"): 1 for name in (*GOOD, SICK)},
    }
    assert result.letters == sick + len(GOOD) + 1
    assert "db&lt;n&gt; does not answer" in page
    assert tables.read(TABLES["triage"]).count() == len(found)


def test_the_report_tells_how_much_there_was_and_how_long_it_took(
    reported: tuple[report.Result, dict[str, Any], str, Tables],
) -> None:
    _, told, _, _ = reported
    counts = {row["channel"]: (row["persistent"], row["transient"]) for row in told["capacity"]}
    assert counts[CHANNEL] == (MESSAGES, 0)
    assert counts["/ticks"] == (0, MESSAGES)
    assert sum(row["count"] for row in told["latency"]) == sum(row["settled"] for row in told["receivers"])
    assert told["backlog"][0]["waiting"] == MESSAGES  # of who is held


def test_the_page_is_whole_and_needs_nothing_else(reported: tuple[report.Result, dict[str, Any], str, Tables]) -> None:
    class Reader(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []
            self.names: set[str] = set()

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.names |= {tag, *(name for name, _ in attrs)}
            if tag not in {"meta", "br"}:
                self.open.append(tag)

        def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.names |= {tag, *(name for name, _ in attrs)}

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

    reader = Reader()
    reader.feed(reported[2])
    assert reader.open == []
    assert {"svg", "polyline", "rect", "table"} <= reader.names
    assert not {"script", "link", "img", "src", "href"} & reader.names
