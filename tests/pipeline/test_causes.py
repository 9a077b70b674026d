"""Whose fault rejections are, from small frames: the message's, the receiver's or the publisher's."""

import json
from collections import Counter
from typing import NamedTuple

import pytest
from pyspark.sql import Row, SparkSession

from crewel.pipeline.few_rows import keep
from crewel.pipeline.transformations.causes import causes
from crewel.pipeline.transformations.channels import failing_channels
from crewel.pipeline.transformations.expected import origins
from crewel.pipeline.transformations.poison import poison
from tests.pipeline.frames import frame, told
from tests.pipeline.rejections import USUAL, Scene

pytestmark = pytest.mark.timeout(400)
"""All scenes are computed at the first test, by some twenty small jobs of Spark."""

NAMES = [f"client/r{number}/1" for number in range(20)]
THREE = [f"client/three{number}/1" for number in range(3)]
SICK_OF_THREE = THREE[:2]
TOTALS = [f"client/total{number}/1" for number in range(3)]
TWO = ["client/both/1", "client/both/2"]
PAIR_OF_FAILING = ["client/bad/1", "client/bad/2"]


def _one_of_twenty_fails_and_one_message_is_bad(scene: Scene) -> None:
    for number in range(1, 150):
        if number == 100:
            scene.publish(number, "/a", rejected=NAMES, reason="cannot parse")
            continue
        refusing = [NAMES[0]] if number % 7 == 0 else [NAMES[5]] if number == 120 else []
        scene.publish(number, "/a", [name for name in NAMES if name not in refusing], refusing)


def _a_publisher_sends_texts_from_now_on(scene: Scene) -> None:
    for number in range(2900, 3050):
        refusing, taking = (NAMES[:4], NAMES[4:6]) if number >= 3000 else ([], NAMES[:6])
        if number == 2950:  # what a single one rejects shows the shape that all others took
            refusing, taking = [NAMES[6]], NAMES[:6]
        body = '{"data":{"n":"7"}}' if number >= 3000 else USUAL
        scene.publish(number, "/orders", taking, refusing, body=body, sender="client/shop/1")


def _two_fail_alike(scene: Scene) -> None:
    good = [f"client/good{number}/1" for number in range(4)]
    for number in range(4001, 4021):
        refusing = [] if number % 2 else PAIR_OF_FAILING
        scene.publish(number, "/two", [*good, *(PAIR_OF_FAILING if number % 2 else ())], refusing)


def _two_get_channels_alone(scene: Scene) -> None:
    for number in range(1, 41):
        scene.publish(5000 + number, "/joe", ["client/joe/1"])
        scene.publish(5100 + number, "/ann", ["client/ann/1"])
    scene.publish(5050, "/joe", rejected=["client/joe/1"])
    for number in range(5200, 5210):
        scene.publish(number, "/ann", rejected=["client/ann/1"])


def _one_takes_another_channel_meanwhile(scene: Scene) -> None:
    for number in range(20):
        scene.publish(6000 + 2 * number, "/well", ["client/eve/1"])
        scene.publish(6001 + 2 * number, "/other", rejected=["client/eve/1"])


def _two_of_three_fail(scene: Scene) -> None:
    for number in range(6500, 6620):
        refusing = SICK_OF_THREE if number >= 6560 else []
        scene.publish(number, "/three", [name for name in THREE if name not in refusing], refusing)


def _a_publisher_changes_and_nothing_tells_the_earlier_shape(scene: Scene) -> None:
    """A consumer group gets the messages as well. One of the changed ones still waits."""
    for number in range(6700, 6820):
        changed = number >= 6772
        body = json.dumps({"data": {"n": number, ("sum" if changed else "total"): 1}})
        took, rejected = ([], TOTALS) if changed else (TOTALS, [])
        rejected = [] if number == 6800 else rejected
        scene.publish(number, "/totals", took, rejected, body=body, sender="client/till/1", ms=number)
        group = {"receiver": "group:/totals sums", "is_queue": True}
        scene.addressed.append({"log_id": number, "channel": "/totals", **group})


def _a_lone_receiver_looks_the_same(scene: Scene) -> None:
    for number in range(6900, 6940):
        took, rejected = (["client/lone/1"], []) if number < 6920 else ([], ["client/lone/1"])
        scene.publish(number, "/lone", took, rejected, sender="client/till/1", ms=number)


def _two_publishers_at_one_moment(scene: Scene) -> None:
    """Whatever has changed, it is not one of them."""
    for number in range(6950, 6990):
        took, rejected = (TWO, []) if number < 6970 else ([], TWO)
        scene.publish(number, "/both", took, rejected, sender=f"client/till/{number % 2}", ms=number)


def _dead_letters_are_redriven(scene: Scene) -> None:
    for name, first in (("client/taken/1", 7000), ("client/again/1", 7100)):
        scene.publish(first, "/redriven", rejected=[name])
        for number in range(1, 4):
            scene.publish(first + number, "/redriven", [name])
        scene.redriven.append({"log_id": first + 50, "message_id": str(first), "session": name, "place": f"{first}-0"})
    scene.took(7050, "client/taken/1")
    scene.rejected(7150, "client/again/1", channel="/redriven")


def _a_transient_dead_letter_is_redriven(scene: Scene) -> None:
    """Its first id is no number."""
    name, first = "client/brief/1", "9-0-n1"
    scene.failed.append(
        {"message_id": first, "session": name, "channel": "/brief", "code": "user.update.error", "outcome": "letter"}
    )
    scene.redriven.append({"log_id": 9850, "message_id": first, "session": name, "place": "9850-0"})
    scene.took(9850, name)


def _failures_are_tried_again(scene: Scene) -> None:
    for number in range(8001, 8006):
        scene.publish(number, "/tried", ["client/tried/1"] if number > 8002 else ())
    failed = {"session": "client/tried/1", "channel": "/tried", "code": "communication.x", "outcome": "waits"}
    scene.failed += [{**failed, "message_id": each, "index": at} for at, each in enumerate(("8001", "8001", "8002"))]


def _nothing_is_rejected(scene: Scene) -> None:
    codes = ("user.update.holdback", "user.update.holdback.sink", "communication.noConnection.dead")
    for at, code in enumerate(codes):
        scene.publish(9000 + at, "/gone", rejected=["client/gone/1", "client/gone/2"], code=code)
    held = {"message_id": "9000", "session": "client/gone/1", "code": "user.update.holdback", "outcome": "held"}
    scene.failed += [{**held, "index": at} for at in (0, 1)]


class Found(NamedTuple):
    """What was made of all scenes together: no receiver and no channel is in two of them."""

    counts: Counter[tuple[str, str]]
    """How many rejections of each receiver have each cause."""
    poison: dict[str, Row]
    channels: dict[str, Row]
    either: Counter[tuple[str, str]]
    """How many rejections of each receiver its publisher may have caused as well."""

    def of(self, *names: str) -> dict[tuple[str, str], int]:
        """The counts of some receivers."""
        return {key: number for key, number in self.counts.items() if key[0] in names}


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Found:
    scene = Scene()
    for each in (
        _one_of_twenty_fails_and_one_message_is_bad,
        _a_publisher_sends_texts_from_now_on,
        _two_fail_alike,
        _two_get_channels_alone,
        _one_takes_another_channel_meanwhile,
        _two_of_three_fail,
        _a_publisher_changes_and_nothing_tells_the_earlier_shape,
        _a_lone_receiver_looks_the_same,
        _two_publishers_at_one_moment,
        _dead_letters_are_redriven,
        _a_transient_dead_letter_is_redriven,
        _failures_are_tried_again,
        _nothing_is_rejected,
    ):
        each(scene)
    scene.publish(9900, "/first", rejected=["client/first/1"])
    made = scene.tables(spark)
    caused = causes(made, keep)
    return Found(
        Counter((row["receiver"], row["cause"]) for row in caused.select("receiver", "cause").collect()),
        {row["message_id"]: row for row in poison(caused).collect()},
        {row["channel"]: row for row in failing_channels(caused, made).collect()},
        Counter((row["receiver"], row["either"]) for row in caused.where("either != ''").collect()),
    )


def test_the_failing_receiver_of_twenty_is_the_cause_and_so_is_the_bad_message(found: Found) -> None:
    assert found.of(*NAMES) == {
        **{(name, "message"): 1 for name in NAMES},
        **{(name, "receiver"): 1 for name in NAMES[5:7]},
        (NAMES[0], "receiver"): sum(number % 7 == 0 for number in range(1, 150)),
        **{(name, "channel"): 50 for name in NAMES[:4]},
    }
    bad = found.poison["100"]
    assert (bad["channel"], bad["receivers"], bad["takers"], bad["sample_reason"]) == ("/a", 20, 0, "cannot parse")
    assert bad["why"] == "20 receivers rejected it, none took it"
    lone = found.poison["5050"]
    assert lone["why"] == "client/joe/1 rejected it, and took 40 other messages"
    assert lone["dead_letters"] == ["5050-0"]
    assert found.poison.keys() == {"100", "5050", "7100", "8001"}


def test_a_publisher_that_changed_is_the_cause_of_what_most_receivers_reject(found: Found) -> None:
    row = found.channels["/orders"]
    assert (row["shape"], row["publishers"], row["names"]) == ("{n: text}", ["client/shop/1"], NAMES[:4])
    assert (row["messages"], row["published"], row["earlier"], row["receivers"]) == (50, 50, 100, 4)
    assert row["why"] == (
        "4 receivers reject 50 of 50 messages since the first of this shape; at most 2 took one of them; the channel had"
        " 100 before"
    )
    assert row["earlier_shape"] == "{n: number}"
    assert found.channels.keys() == {"/orders", "/totals"}


def test_what_all_take_up_to_one_message_and_none_from_there_on_is_the_publisher(found: Found) -> None:
    row = found.channels["/totals"]
    assert found.of(*TOTALS) == {(name, "channel"): 47 for name in TOTALS}
    assert (row["shape"], row["earlier_shape"], row["publishers"]) == (
        "{n: number, sum: number}",
        None,
        ["client/till/1"],
    )
    assert row["why"] == (
        "3 receivers took it until 1970-01-01 00:00:06, and reject 47 of 48 messages since, all of one publisher; none took"
        " them; the channel had 72 before"
    )
    assert found.of(*TWO) == {(name, "receiver"): 20 for name in TWO}, "of two publishers, none has changed"


def test_of_a_lone_receiver_either_side_may_have_changed(found: Found) -> None:
    assert found.of("client/lone/1") == {("client/lone/1", "receiver"): 20}
    assert found.either == {("client/lone/1", "client/till/1"): 20}


def test_two_failing_receivers_make_no_message_poison(found: Found) -> None:
    assert found.of(*PAIR_OF_FAILING) == {(name, "receiver"): 10 for name in PAIR_OF_FAILING}


def test_alone_on_a_channel_who_rejects_many_is_the_cause_and_of_one_the_message_is(found: Found) -> None:
    assert found.of("client/joe/1", "client/ann/1") == {
        ("client/joe/1", "message"): 1,
        ("client/ann/1", "receiver"): 10,
    }


def test_who_takes_other_channels_and_rejects_all_of_its_own_is_the_cause(found: Found) -> None:
    assert found.of("client/eve/1") == {("client/eve/1", "receiver"): 20}


def test_two_of_three_that_fail_are_the_cause_and_the_publisher_has_not_changed(found: Found) -> None:
    assert found.of(*THREE) == {(name, "receiver"): 60 for name in SICK_OF_THREE}


def test_what_was_taken_after_a_redrive_is_no_finding_and_what_died_again_is_one(found: Found) -> None:
    assert found.of("client/taken/1", "client/again/1", "client/brief/1") == {("client/again/1", "message"): 1}
    assert (found.poison["7100"]["receivers"], found.poison["7100"]["failures"]) == (1, 2)


def test_a_failure_that_is_tried_again_counts_from_the_second_on(found: Found) -> None:
    assert found.of("client/tried/1") == {("client/tried/1", "message"): 1}
    row = found.poison["8001"]
    assert (row["failures"], row["sample_body"], row["dead_letters"]) == (2, None, [])


def test_who_has_taken_nothing_says_nothing_of_a_message(found: Found) -> None:
    assert found.of("client/first/1") == {("client/first/1", "unclear"): 1}


def test_holdbacks_and_ends_of_sessions_reject_nothing(found: Found) -> None:
    assert found.of("client/gone/1", "client/gone/2") == {}


def test_chains_of_redrives_lead_to_the_first_message(spark: SparkSession) -> None:
    rows = [{"log_id": each + 1, "message_id": str(each), "place": f"{each}-0"} for each in range(1, 20)]
    chains = origins(frame(spark, "fact_redriven", rows), 5)
    assert {*told(chains, "origin")} == {("1",)}
    assert chains.count() == 19
