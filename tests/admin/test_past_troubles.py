"""What was wrong and is over: when that is so, how long it is shown, and how it reads."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.admin import past_troubles
from crewel.admin.cause_words import WORDS
from crewel.admin.level import Level
from crewel.admin.past_findings import Over, over
from crewel.admin.past_troubles import AGAIN_MS, BRIEF_MS, GOES_ON_AS, LETTERS, SHOWN_MS, PastTrouble, PastTroubles
from crewel.admin.receiver_condition import Cause

JOE = "client/joe/1"
START = 10_000_000


class Watch:
    """A server whose receivers are counted again and again."""

    def __init__(self) -> None:
        self.now = START
        self.past = PastTroubles(lambda: self.now)

    def count(self, *causes: Cause, name: str = JOE, is_there: bool = True, after_ms: int = 5000) -> None:
        """One receiver has these causes, some seconds after the count before."""
        self.now += after_ms
        self.past.note(name, "heron", causes)
        self.past.end_count(lambda _: is_there)

    def kinds(self) -> list[str]:
        return [each.kind for each in self.past.over()]


def cause(kind: str, level: Level = Level.BAD, text: str = "why", **details: Any) -> Cause:
    return Cause(kind, level, text, details)


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_a_trouble_that_a_count_does_not_find_any_more_is_over(watch: Watch) -> None:
    watch.count(cause("held", since=START - 60_000), cause("away", Level.INFO))
    watch.count(cause("held", text="out of paper", since=START - 60_000))
    assert watch.past.over() == []
    watch.count()
    assert watch.past.over() == [PastTrouble("held", JOE, "out of paper", START - 60_000, START + 15_000, "heron")]
    watch.now += SHOWN_MS - 1
    assert watch.kinds() == ["held"]
    watch.now += 1
    assert watch.kinds() == []


def test_a_trouble_began_when_it_was_seen_first_if_its_cause_does_not_say_it(watch: Watch) -> None:
    watch.count(cause("rejecting"))
    watch.count()
    assert [(each.since, each.until) for each in watch.past.over()] == [(START + 5000, START + 10_000)]


def test_what_is_new_comes_first_and_what_comes_back_at_once_has_not_ended(watch: Watch) -> None:
    watch.count(cause("held"), cause("full"))
    watch.count(cause("full"))
    watch.count()
    assert watch.kinds() == ["full", "held"]
    watch.count(cause("held"), after_ms=AGAIN_MS - 10_001)
    assert watch.kinds() == ["full"]
    watch.count()
    held, _ = watch.past.over()
    assert (held.kind, held.since) == ("held", START + 5000)
    watch.count(cause("held"), after_ms=AGAIN_MS)  # this one is another
    assert watch.kinds() == ["held", "full"]
    watch.count()
    assert watch.past.over()[0].since > START + AGAIN_MS


def test_a_warning_that_was_brief_was_none(watch: Watch) -> None:
    watch.count(cause("away", Level.WARN))
    watch.count(after_ms=BRIEF_MS - 1)
    assert watch.kinds() == []
    watch.count(cause("away", Level.WARN))
    watch.count(after_ms=BRIEF_MS)
    assert watch.kinds() == ["away"]


@pytest.mark.parametrize(("kind", "other"), [("full", "overflow"), ("slow", "recovering"), ("rejects", "rejecting")])
def test_a_trouble_goes_on_while_another_cause_tells_of_it(watch: Watch, kind: str, other: str) -> None:
    watch.count(cause(kind))
    for _ in range(9):
        watch.count(cause(other, Level.WARN))
    assert watch.kinds() == []
    watch.count()
    assert kind in watch.kinds()


def test_what_ends_with_its_receiver_says_so(watch: Watch) -> None:
    watch.count(cause("held"))
    watch.count(name="client/ann/1", is_there=False)
    (past,) = watch.past.over()
    assert past.has_ended
    assert over([past])[0].cause == "last seen: why; it has ended"


def test_sessions_without_a_name_and_other_causes_leave_nothing(watch: Watch) -> None:
    watch.count(cause("held"), name="")
    watch.count(cause("filling"), cause("nearly-full"), cause("busy", Level.INFO))
    watch.count()
    assert watch.kinds() == []


def test_the_memory_is_bounded(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_troubles, "MOST", 3)
    for number in range(5):
        watch.past.note(f"client/joe/{number}", "heron", [cause("held")])
    watch.count()
    watch.count()
    assert {each.name for each in watch.past.over()} == {f"client/joe/{number}" for number in range(3)}
    watch.count(cause("held"), name="client/ann/1")
    watch.count()
    assert len(watch.past.over()) == 3


def letters(*made_at: int, receiver: str = JOE, code: str = "user.update.error") -> dict[tuple[str, str], set[str]]:
    """Dead letters of one receiver with one code."""
    return {(receiver, code): {f"{each}-{number}" for number, each in enumerate(made_at)}}


def gone(count: int, since: int, until: int) -> PastTrouble:
    return PastTrouble(LETTERS, JOE, "user.update.error", since, until, letters=count)


def test_dead_letters_that_were_redriven_are_over_and_those_that_are_old_are_not(watch: Watch) -> None:
    old = letters(START - SHOWN_MS + AGAIN_MS, receiver="client/ann/1")
    watch.past.note_letters(letters(START - 1000, START - 1000, START) | old)
    watch.count()
    assert watch.kinds() == []  # counts of receivers say nothing of them
    watch.past.note_letters({})
    assert watch.past.over() == [gone(3, START - 1000, START + 5000)]


def test_all_dead_letters_that_went_are_counted_in_several_steps_and_rounds(watch: Watch) -> None:
    watch.past.note_letters(letters(START - 3000, START - 2000, START - 1000, START - 1000))
    watch.past.note_letters(letters(START - 3000, START - 2000))
    watch.past.note_letters({(JOE, "user.update.error"): {f"{START}-7"}})  # two went, and one came
    assert watch.kinds() == []  # there still are some
    watch.now += 1000
    watch.past.note_letters({})
    assert watch.past.over() == [gone(5, START - 3000, START + 1000)]
    watch.past.note_letters(letters(START + 1000, START + 1000))
    watch.now += 1000
    watch.past.note_letters({})
    assert watch.past.over() == [gone(7, START - 3000, START + 2000)]
    watch.past.note_letters(letters(START + SHOWN_MS))
    watch.now += SHOWN_MS
    watch.past.note_letters({})
    assert watch.past.over() == [gone(1, START + SHOWN_MS, START + SHOWN_MS + 2000)]  # the others are forgotten


def test_every_kind_has_words_and_is_a_cause() -> None:
    assert {kind for kind, words in WORDS.items() if words.was} == GOES_ON_AS.keys()
    for kind, words in WORDS.items():
        texts = [words.one, words.many] * bool(words.key) + [words.was, words.were] * (kind in GOES_ON_AS)
        assert all("{}" in text for text in texts), kind


def entries(*past: PastTrouble) -> list[Over]:
    return over(past)


def test_an_entry_names_the_receiver_and_leads_to_it() -> None:
    (one,) = entries(PastTrouble("held", JOE, "out of paper", 1, 2, "heron"))
    assert (one.title, one.cause, one.link) == (f"{JOE} was on hold", "last seen: out of paper", f"/receivers/{JOE}")
    assert one.as_json() == {
        "key": "held",
        "title": f"{JOE} was on hold",
        "cause": "last seen: out of paper",
        "link": f"/receivers/{JOE}",
        "count": 1,
        "since": 1,
        "until": 2,
        "nodes": ["heron"],
    }
    (group,) = entries(PastTrouble("members", "/jobs/* workers", "no session takes its messages", 1, 2))
    assert group.title == "Group workers on /jobs/* had no member that takes messages"
    assert (group.link, group.nodes) == ("/groups/%2Fjobs%2F%2A/workers", ())


def test_dead_letters_are_counted_and_lead_to_those_that_are_left() -> None:
    (one,) = entries(PastTrouble(LETTERS, JOE, "user.update.error", 1, 2, letters=7))
    assert (one.title, one.cause) == (f"{JOE} had 7 dead letters", "user.update.error")
    assert (one.link, one.count) == (f"/dead-letters?receiver={JOE}", 7)
    several = [PastTrouble(LETTERS, f"client/joe/{each}", "user.x", 1, 2, letters=2) for each in range(4)]
    (many,) = entries(*several)
    assert (many.title, many.count) == ("4 receivers had 8 dead letters", 8)
    assert many.link == "/dead-letters"


def test_the_dead_letters_of_one_receiver_are_one_entry_with_their_codes() -> None:
    codes = [PastTrouble(LETTERS, JOE, f"user.{each}", 9 - each, 20, letters=each) for each in range(1, 6)]
    (one,) = entries(*codes)
    assert (one.title, one.count, one.since) == (f"{JOE} had 15 dead letters", 15, 4)
    assert one.cause == "user.1, user.2, user.3 and 2 more"


def test_many_of_one_kind_are_one_entry_and_what_ended_last_comes_first() -> None:
    away = [PastTrouble("away", f"client/joe/{each}", "its client is away", each, 10 + each, "a") for each in range(5)]
    held = PastTrouble("held", JOE, "lunch", 3, 12, "b")
    unknown = PastTrouble("of a later version", JOE, "", 3, 99, "b")
    several, single = entries(*away, held, unknown)
    assert (several.title, several.count, several.link) == ("5 receivers were away", 5, "/receivers")
    assert several.cause.startswith("last seen: client/joe/4: its client is away; client/joe/3")
    assert several.cause.endswith("; and 2 more")
    assert (several.since, several.until, several.nodes) == (0, 14, ("a",))
    assert single.title == f"{JOE} was on hold"
