"""What tells rejected messages from those that the same receiver took: the time, a field or a value, and nothing where nothing
does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from crewel.pipeline.few_rows import keep
from crewel.pipeline.transformations.distinctions import Limits, _witnessed, distinctions
from crewel.storage.data_shape import shape_of
from tests.pipeline.frames import of_rows, silver, time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

STEP_MS = 20
REJECTED = "log_id BIGINT, receiver STRING, last_at TIMESTAMP, channel STRING, sender STRING, shape STRING, body STRING"
RANDOM_SETS = 20


class Sheet:
    """Who took which messages, and who rejected them."""

    def __init__(self) -> None:
        self.rejected: list[tuple[Any, ...]] = []
        self.ended: list[dict[str, Any]] = []
        self.published: list[dict[str, Any]] = []
        self.samples: list[dict[str, Any]] = []
        self.next = 1

    def message(
        self,
        channel: str,
        data: Any,
        rejected: Iterable[str] = (),
        took: Iterable[str] = (),
        *,
        is_sampled: bool = False,
    ) -> datetime:
        """One message, 20 ms after the one before it; return its time."""
        number, self.next = self.next, self.next + 1
        ms, body = number * STEP_MS, json.dumps({"channel": channel, "data": data})
        about = (channel, "client/shop/1", shape_of(body.encode()))
        self.published.append({"log_id": number, "channel": channel})
        self.ended += [{"log_id": number, "receiver": name, "reason": "settled", "ms": ms} for name in took]
        self.rejected += [(number, name, time(ms), *about, body) for name in rejected]
        if is_sampled:
            self.samples.append({"log_id": number, "channel": channel, "sender": about[1], "shape": about[2]})
        return time(ms)

    def common(self, spark: SparkSession) -> dict[str, list[str]]:
        """What is said of each receiver."""
        caused = of_rows(spark, self.rejected, REJECTED)
        made = silver(spark, fact_ended=self.ended, fact_published=self.published, event_shape=self.samples)
        return {row["receiver"]: row["common"] for row in distinctions(caused, caused, made, keep).collect()}


def usual(number: int) -> dict[str, Any]:
    return {"order": number, "amount": 10 + number * 37 % 90, "country": ("CH", "DE", "FR", "IT")[number % 4]}


def _split(number: int, of: int, name: str, *others: str) -> dict[str, list[str]]:
    """Every so many messages are rejected by one, and all others take it."""
    return {"rejected": [name], "took": [*others]} if number % of == 0 else {"took": [name, *others]}


@pytest.fixture(scope="module")
def told(spark: SparkSession) -> dict[str, Any]:
    """All scenes, computed at once, and the times of the outages."""
    sheet, times = Sheet(), dict[str, Any]()
    random = Random(7)
    for number in range(400):
        is_out = 150 <= number < 230
        at = sheet.message("/outage", usual(number), **_split(0 if is_out else 1, 2, "outage"))
        times.setdefault("outage", []).extend([at] if is_out else [])
    for number in range(400):  # the others reject at random
        is_italian = usual(number)["country"] == "IT" and number % 5 == 0
        flaky = [name for name in ("flaky/1", "flaky/2") if random.random() < 0.08]
        took = [
            name
            for name in ("value", "flaky/1", "flaky/2")
            if name not in flaky and not (is_italian and name == "value")
        ]
        sheet.message("/value", usual(number), [*flaky, *(["value"] if is_italian else [])], took)
    for number in range(400):
        is_out = 100 <= number < 160
        is_italian = usual(number)["country"] == "IT" and number % 5 == 0
        flaky = ["third"] if number % 9 == 1 else []
        refused = ["both"] if is_out or is_italian else []
        took = [name for name in ("third", "both") if name not in (*flaky, *refused)]
        at = sheet.message("/both", usual(number), [*flaky, *refused], took)
        times.setdefault("both", []).extend([at] if is_out else [])
    for number in range(300):
        has_note = number % 10 == 3
        data = {**usual(number), "note": f"gift {number}"} if has_note else usual(number)
        sheet.message("/shape", data, **_split(0 if has_note else 1, 2, "shape"), is_sampled=number % 10 == 5)
    for number in range(400):
        channel = "/mixed/1" if number % 4 == 0 else "/mixed/0"
        sheet.message(channel, usual(number), **_split(0 if number % 8 == 0 else 1, 2, "mixed"))
    for number in range(300):
        amount = 900 + number * 7 % 90 if number % 6 == 0 else 10 + number * 7 % 880
        refused = ["range"] if amount >= 900 else ["fourth"] if number % 7 == 1 else []
        sheet.message("/range", {"amount": amount}, refused, {"range", "fourth"} - {*refused})
    for number in range(200):
        sheet.message("/ever", usual(number), **_split(0, 1, "ever"))
    for number in range(RANDOM_SETS):
        _random_set(sheet, Random(number), f"set{number}")
    return {"times": times, "common": sheet.common(spark)}


def _stretch(times: list[datetime]) -> str:
    return f"everything from {times[0]:%Y-%m-%d %H:%M:%S} to {times[-1]:%H:%M:%S}"


def test_the_time_of_an_outage_is_said_and_nothing_that_all_messages_have(told: dict[str, Any]) -> None:
    assert told["common"]["outage"] == [_stretch(told["times"]["outage"])]


def test_the_value_that_is_rejected_is_said_with_both_rates(told: dict[str, Any]) -> None:
    (words,) = told["common"]["value"]
    assert words.startswith("country IT on /value in 100 % of them, in ")
    assert words.endswith(" others that it took")


def test_beside_an_outage_what_remains_is_compared(told: dict[str, Any]) -> None:
    outage, value = told["common"]["both"]
    assert outage.startswith("78 % of them: everything from")
    assert outage.endswith(_stretch(told["times"]["both"]).removeprefix("everything"))
    assert value.startswith("country IT on /both in 100 % of them, in ")


def test_samples_tell_a_shape_that_is_rejected(told: dict[str, Any]) -> None:
    shape = "{amount: number, country: text, note: text, order: number}"
    assert told["common"]["shape"] == [f"shape {shape} on /shape in 100 % of them, in 0 % of 30 others that it took"]


def test_the_channel_is_known_of_all_that_was_taken(told: dict[str, Any]) -> None:
    assert told["common"]["mixed"] == ["channel /mixed/1 in 100 % of them, in 14 % of 350 others that it took"]


def test_a_range_of_numbers_is_said_if_what_was_taken_lies_outside(told: dict[str, Any]) -> None:
    (words,) = told["common"]["range"]
    assert words.startswith("amount from 900 to 98")
    assert " on /range in 100 % of them, in 0 % of " in words


def test_of_many_dead_letters_of_a_receiver_some_are_compared_with(spark: SparkSession) -> None:
    """Ten each of two channels, of which another one took all."""
    sheet = Sheet()
    for number in range(20):
        sheet.message(f"/{number % 2}", {"n": f"no. {number}"}, ["many"], ["other"])
    caused = of_rows(spark, sheet.rejected, REJECTED)
    made = silver(spark, fact_ended=sheet.ended)
    found = _witnessed(caused, made["fact_ended"], made, Limits(shown=3))
    rows = found.where("name = 'n'").collect()
    assert {(row["receiver"], row["within"], row["known"]) for row in rows} == {("other", "/0", 3), ("other", "/1", 3)}


def test_who_rejects_at_random_or_everything_has_nothing_that_tells(told: dict[str, Any]) -> None:
    """Also where another receiver rejects by a value, and shows only messages that have it."""
    assert told["common"].keys() & {"flaky/1", "flaky/2", "third", "fourth", "ever"} == set()


def _random_set(sheet: Sheet, random: Random, name: str) -> None:
    """Some fields, of which none has to do with who rejects what; a receiver that does reject by one; and a random one."""
    odds = [random.random() for _ in range(8)]
    kinds = {
        f"f{at}": random.choice(
            (
                lambda: "same",
                lambda odds=odds[at]: "yes" if random.random() < odds else "no",
                lambda: random.choice("abc"),
                lambda: random.randrange(1000),
                lambda: round(random.gauss(500, 50)),
                lambda odds=odds[at]: "there" if random.random() < odds else None,
            )
        )
        for at in range(random.randrange(2, 8))
    }
    rates = {each: random.choice((0.02, 0.1, 0.3, 0.6)) for each in (f"{name}/a", f"{name}/b")}
    picked, channels = random.choice([*kinds]), random.randrange(1, 4)
    wanted = None
    for number in range(300):
        data = {field: value for field, draw in kinds.items() if (value := draw()) is not None}
        wanted = data.get(picked) if wanted is None else wanted
        refused = [each for each, rate in rates.items() if random.random() < rate]
        refused += [f"{name}/picky"] if data.get(picked) == wanted else []
        took = [each for each in (*rates, f"{name}/picky") if each not in refused]
        channel = f"/{name}/{min(random.randrange(channels), random.randrange(channels))}"
        sheet.message(channel, data, refused, took, is_sampled=number % 10 == 0)


def test_where_nothing_distinguishes_nothing_is_claimed(told: dict[str, Any]) -> None:
    common = {name: words for name, words in told["common"].items() if name.startswith("set")}
    assert {name: words for name, words in common.items() if not name.endswith("picky")} == {}
    assert common, "those that do reject by a value are found"
