"""What to do about a finding: words, and commands that a shell and Spark understand."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest

from crewel.pipeline.jobs.redrive import chosen, searchable
from crewel.pipeline.report.advice import meaning, now, of_audit, of_channels, of_died, of_poison, of_sick
from crewel.pipeline.schemas import FINDINGS
from tests.pipeline.frames import frame, time
from tests.pipeline.report.told import BEGIN, NOTHING, failing_channel, incident, poison, receiver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("user.update.error", "The receiver's code failed on this message."),
        ("communication.timeout.of.mine", "A call took too long."),
        ("user.nobody.knows.it", ""),
        ("nothing", ""),
        ("", ""),
    ],
)
def test_a_code_means_what_it_or_the_one_above_it_means(code: str, words: str) -> None:
    assert meaning(code) == words


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("user.update.error", "Its program rejects"),
        ("communication.timeout", "could not be reached"),
        ("resource.overflow.queue.entries", "did not keep up"),
        ("internal.unknown", "fault of the server"),
        ("something.else", "Fix the cause"),
    ],
)
def test_what_to_do_about_what_died_depends_on_the_code(code: str, words: str) -> None:
    (advice,) = of_died([incident(code=code)])
    assert words in advice.words


@pytest.mark.parametrize(
    "code", ["user.update.error", "communication.timeout", "resource.overflow.queue.entries", "internal.unknown", "x"]
)
def test_dead_letters_that_are_gone_are_not_to_be_redriven(code: str) -> None:
    (advice,) = of_died([incident(code=code, kept=0)])
    assert advice.command == ""
    assert "redrive its" not in advice.words
    assert "redrive the" not in advice.words
    assert advice.words.endswith(". These dead letters are gone: redriven, discarded or dropped.")


def test_dead_letters_of_which_no_one_knows_whether_they_are_there_can_be_redriven() -> None:
    (advice,) = of_died([incident(kept=None)])
    assert advice.command.startswith("crewel pipeline redrive")


def test_what_can_be_redriven_comes_before_what_is_gone_and_instead_of_it() -> None:
    gone = [incident(kept=0, code=f"user.{number}") for number in range(3)]
    found = list(of_died([*gone, incident(kept=0), incident(kept=2)]))
    assert ["redrive" in each.command for each in found] == [True, False, False]
    assert "error_code = 'user.update.error'" in found[0].command
    assert len(list(of_died([incident(kept=0), incident(kept=2)]))) == 1


@pytest.mark.parametrize("cause", ["message", "channel"])
def test_what_no_receiver_will_take_is_not_to_be_redriven(cause: str) -> None:
    assert list(of_died([incident(cause=cause)])) == []


@pytest.mark.parametrize(
    "channel", ["/orders/new", "/o'brien's", '/a "quoted" $HOME `x`', "/back\\slash'", "/wow!", ""]
)
def test_the_command_chooses_what_the_row_tells_of(spark: SparkSession, channel: str) -> None:
    (advice,) = of_died([incident(channels=[channel] if channel else [])])
    words = shlex.split(advice.command)
    assert words[:4] == ["crewel", "pipeline", "redrive", "--dry-run"]
    assert "!" not in advice.command or "'" in advice.command
    row = {"code": "user.update.error", "receiver": "client/joe/1", "channel": channel}
    rows = [{**row, "ms": 1}, {**row, "ms": 2, "code": "other"}, {**row, "ms": 3, "receiver": "client/ann/1"}]
    found = chosen(searchable(frame(spark, "letters", rows)), words[words.index("--where") + 1])
    assert [each["place"] for each in found.collect()] == ["1-0"]


@pytest.mark.parametrize(
    ("why", "command"),
    [
        ("fails 40 % of its messages", "crewel sessions show joe/1"),
        ("rejected 9 messages, 8 of them taken by others", "crewel dead-letters redrive --receiver joe/1"),
        ("rejected 9 messages", "crewel dead-letters redrive --receiver joe/1"),
        ("on hold for 61 % of the time, and still is", "crewel sessions activate joe/1"),
        ("absent for 90 % of the time", "crewel sessions show joe/1"),
        ("takes 9.7 min, usually 20 ms: slow or away", "crewel sessions show joe/1"),
        ("takes up to 3.5 min for 4 of its messages: slow or away", "crewel sessions show joe/1"),
        ("31 % of its messages are redelivered", "crewel sessions show joe/1"),
    ],
)
def test_each_reason_of_a_failing_receiver_has_a_command(why: str, command: str) -> None:
    (advice,) = of_sick([[receiver(why)]])
    assert advice.command == command


@pytest.mark.parametrize("why", ["rejected 9 messages, 8 of them taken by others", "rejected 9 messages"])
def test_a_failing_receiver_whose_dead_letters_are_gone_has_none_to_redrive(why: str) -> None:
    (advice,) = of_sick([[receiver(why)]], gone={"client/joe/1"})
    assert advice.command == "crewel sessions show joe/1"
    assert "redrive them" not in advice.words
    assert "gone: redriven, discarded or dropped. Its state" in advice.words


@pytest.mark.parametrize("why", ["rejected 9 messages, 8 of them taken by others", "rejected 9 messages", "fails 40 %"])
@pytest.mark.parametrize("code", ["user.update.error", "something.else"])
def test_only_reasons_that_the_page_shows_are_referred_to(why: str, code: str) -> None:
    def words(**fields: Any) -> str:
        rows = [incident(code=code, **fields), incident(receiver="client/other/1", code=code, **fields)]
        found = now({**NOTHING, "receivers": [receiver(why)], "incidents": rows})
        return " ".join(each.words for each in found)

    assert words().count("reasons under “Dead letters”") == 2
    assert "reason" not in words(kept=0, sample_reason="")


def test_dead_letters_of_a_receiver_are_gone_if_none_of_its_incidents_has_any() -> None:
    def commands(*kept: int | None) -> list[str]:
        found = now(
            {
                **NOTHING,
                "receivers": [receiver("rejected 9 messages")],
                "incidents": [incident(kept=each) for each in kept],
            }
        )
        return [each.command for each in found]

    assert commands(0, 0) == ["crewel sessions show joe/1"]
    redrive = ["crewel dead-letters redrive --receiver joe/1"]
    assert commands() == commands(0, 2) == commands(None, 0) == redrive


def test_one_incident_at_three_receivers_is_one_row_of_what_to_do(spark: SparkSession) -> None:
    names = [f"client/r{number}/1" for number in range(3)]
    other = incident(receiver="client/other/1", template="the disk is full")
    (advice, different) = of_died([*(incident(receiver=name, channels=["/a", "/b"]) for name in names), other])
    assert advice.words.startswith("`client/r0/1`, `client/r1/1` and `client/r2/1`: Its program rejects")
    assert different.words.startswith("`client/other/1`: ")
    words = shlex.split(advice.command)
    rows = [{"code": "user.update.error", "receiver": name, "ms": at} for at, name in enumerate((*names, "client/x/1"))]
    found = chosen(searchable(frame(spark, "letters", rows)), words[words.index("--where") + 1])
    assert sorted(each["receiver"] for each in found.collect()) == names


def test_receivers_that_fail_alike_are_one_row_and_others_their_own() -> None:
    names = [f"client/r{number}/1" for number in range(3)]
    why = "rejected 48 messages; everything from 2026-11-20 04:50:10 to 04:50:40"
    sick = [receiver(why, session=name) for name in (*names, "client/x/1", "client/y/1")]
    incidents = [*(incident(receiver=name) for name in names), incident(receiver="client/x/1", template="no disk")]
    alike, *rest = now({**NOTHING, "receivers": sick, "incidents": incidents})
    assert alike.words.startswith(f"`{names[0]}`, `{names[1]}` and `{names[2]}`, for one reason. The first one {why}.")
    assert alike.command.splitlines() == [f"crewel dead-letters redrive --receiver r{number}/1" for number in range(3)]
    assert [each.words.partition(":")[0] for each in rest] == ["`client/x/1`", "`client/y/1`"]


def test_nothing_waits_for_a_receiver_whose_session_has_ended() -> None:
    (advice,) = of_sick([[receiver("absent for 90 % of the time")]])
    assert "wait for it" not in advice.words
    assert "until its session ended: what waits for a named session then becomes dead letters" in advice.words


def test_messages_that_all_receivers_reject_may_show_a_fault_of_what_these_share() -> None:
    names = [f"client/r{number}/1" for number in range(5)]
    (advice,) = of_sick([[receiver("rejected 110 messages", session=name) for name in names]])
    assert "no other receiver gets" not in advice.words
    assert "few or no other receivers accept" in advice.words
    assert "what it depends on, such as a database" in advice.words


def test_a_receiver_that_acknowledges_late_may_have_been_away() -> None:
    (advice,) = of_sick([[receiver("takes 9.7 min, usually 20 ms: slow or away")]])
    assert "its client was away" in advice.words


def test_a_group_without_members_needs_one_and_has_no_session_to_show() -> None:
    names = ["group:/jobs/* workers", "group:/jobs/* others"]
    why = "has no member that takes messages; 2 queued since 2026-11-20 22:10:00"
    rows = [receiver(why, session=name) for name in names]
    one, both = of_sick([rows[:1], rows])
    assert one.words.startswith(f"`{names[0]}`: {why}. Start a member")
    assert (one.command, both.command) == ("", "")


def test_a_receiver_that_is_no_longer_on_hold_is_not_to_be_activated() -> None:
    (advice,) = of_sick([[receiver("on hold for 61 % of the time")]])
    assert advice.command == "crewel sessions show joe/1"


def test_each_finding_of_the_audit_has_words_once() -> None:
    found = list(of_audit(FINDINGS))
    assert len(found) == len(FINDINGS)


def test_poison_is_not_sent_again_but_discarded() -> None:
    (advice,) = of_poison([poison()])
    assert advice.command == "crewel dead-letters discard 7-0 8-0"
    assert "4 receivers rejected it, 3 took it" in advice.words
    (advice,) = of_poison([poison(dead_letters=[])])
    assert advice.command == ""


@pytest.mark.parametrize(
    ("receivers", "what"),
    [
        (10, "its dead letters"),
        (40, "its dead letters, but at most 10 of each message; the next report names the others"),
    ],
)
def test_of_many_dead_letters_of_one_message_only_some_are_discarded(receivers: int, what: str) -> None:
    (advice,) = of_poison([poison(receivers=receivers, dead_letters=[f"{number}-0" for number in range(10)])])
    assert advice.words.endswith(f"; this discards {what}:")


def test_poison_messages_with_the_same_evidence_are_one_row() -> None:
    rows = [poison(message_id=str(number), dead_letters=[f"{number}-0", f"{number}-1"]) for number in range(13)]
    other = poison(message_id="99", why="client/joe/1 rejected it", receivers=1, takers=0)
    alike, alone = of_poison([*rows, other])
    assert alike.words.startswith(
        "`0` on `/orders/new`, `1` on `/orders/new`, `2` on `/orders/new` and 10 more: of each, 4"
    )
    assert "this discards the dead letters of the first 3:" in alike.words
    assert alike.command.splitlines() == [f"crewel dead-letters discard {number}-0 {number}-1" for number in range(3)]
    assert alone.words.startswith("`99` on `/orders/new`: client/joe/1 rejected it. Check its content")
    (two,) = of_poison(rows[:2])
    assert "Check their content, and fix their publisher" in two.words
    assert "this discards their dead letters:" in two.words


def test_the_dead_letters_of_a_changed_publisher_are_chosen_by_channel_and_time(spark: SparkSession) -> None:
    (advice,) = of_channels([failing_channel()])
    assert "`client/shop/1` changed: the data is `{n: text}`, and was `{n: number}` before" in advice.words
    (without,) = of_channels([failing_channel(dead_letters=[])])
    assert (without.command, without.words.rpartition(". ")[2]) == ("", "It has no dead letters any more.")
    redrive = advice.command
    assert "discard" not in redrive, "receivers may have rejected others of the channel for their own reasons"
    ms = round(BEGIN.timestamp() * 1000)
    rows = [{"channel": "/orders/new", "ms": ms + each, "died": time(ms + each)} for each in (-1, 0, 1)]
    words = shlex.split(redrive)
    found = chosen(searchable(frame(spark, "letters", rows)), words[words.index("--where") + 1])
    assert [each["ms"] - ms for each in found.collect()] == [0, 1]
