"""The page of a report: whole, by itself, in plain words, also where there is nothing to tell."""

from __future__ import annotations

from datetime import timedelta

import pytest

from crewel.pipeline.report.advice import now
from crewel.pipeline.report.html import page
from crewel.pipeline.report.links import Links
from crewel.pipeline.transformations.triage import GONE
from tests.pipeline.report.reader import Reader
from tests.pipeline.report.told import (
    BEGIN,
    END,
    NOTHING,
    SOME,
    Told,
    died,
    failing_channel,
    finding,
    incident,
    poison,
    receiver,
)


@pytest.mark.parametrize("told", [NOTHING, SOME], ids=["nothing", "some"])
def test_the_page_is_whole_and_needs_nothing_else(told: Told) -> None:
    text = page(told)
    assert not {"script", "link", "img", "src", "href"} & Reader(text).names
    assert "url(" not in text
    assert "None" not in text


def test_an_empty_report_advises_only_an_audit() -> None:
    text = Reader(page(NOTHING)).text
    for words in (
        "Nothing was published in this period.",
        "There are no dead letters, and no message, channel or receiver is failing.",
        "There are no dead letters.",
        "There were no receivers.",
        "Time to acknowledgement: nothing in this period.",
        "Messages by hour: nothing in this period.",
        "There was no audit yet.",
    ):
        assert words in text
    assert "There was no audit yet. crewel pipeline audit" in text
    assert "What to do" not in text


def test_what_to_do_comes_before_all_sections_and_has_the_commands() -> None:
    text = page(SOME)
    head = text[: text.index("<h2>Dead letters</h2>")]
    assert text.count("What to do now") == head.count("What to do now") == 1
    for command in ("crewel dead-letters discard 7-0 8-0", "crewel sessions show joe/1"):
        assert f"<pre>{command}" in head
    assert head.index("What to do now") < head.index("In short")
    assert head.index("Lost: A guaranteed message") < head.index("crewel dead-letters discard")


def test_the_dead_letters_of_a_receiver_that_is_named_already_are_not_named_again() -> None:
    other = incident(receiver="client/ann/1")
    commands = [each.command for each in now({**SOME, "incidents": [incident(), other]})]
    redrives = [each for each in commands if each.startswith("crewel pipeline redrive")]
    assert ["client/joe/1" in each for each in redrives if "receiver" in each] == [False]
    assert "crewel sessions show joe/1" in commands


def test_dead_letters_that_the_advice_on_their_receiver_is_not_about_have_their_own() -> None:
    def redrives(why: str, code: str) -> list[str]:
        found = now({**NOTHING, "receivers": [receiver(why)], "incidents": [incident(code=code)]})
        return [each.command for each in found if each.command.startswith("crewel pipeline redrive")]

    overflow = "resource.overflow.queue.entries"
    for why in (
        "takes 9.7 min, usually 20 ms: slow or away",
        "absent for 90 % of the time",
        "fails 40 % of its messages",
    ):
        assert len(redrives(why, overflow)) == 1, why
    assert redrives("fails 40 % of its messages", "user.update.error") == []
    assert redrives("rejected 9 messages", overflow) == [], "that redrives them all"


def test_the_page_tells_which_absences_are_known() -> None:
    text = Reader(page(SOME)).text
    assert "Absent until expiry" in text
    assert "one that ends with the client's return is not recorded" in text


def test_names_link_to_the_page_of_the_operator_if_its_address_is_given() -> None:
    text = page({**SOME, "url": "https://mq.example"})
    for place, words in (
        ("receivers/client/joe/1", "<code>client/joe/1</code>"),
        ("topics/orders/new", "<code>/orders/new</code>"),
        ("topics?pattern=%2Forders%2F%2A", "<code>/orders/*</code>"),
        ("message/17", "<code>17</code>"),
        ("dead-letters/7-0", "this dead letter"),
        ("dead-letters?receiver=client%2Fjoe%2F1&amp;code=user.update.error", "2 kept"),
    ):
        assert f'<a href="https://mq.example/admin/#/{place}">{words}</a>' in text
    Reader(text)


@pytest.mark.parametrize("name", ["client/joe", "group:/a workers", "silver/fact_ended", '"><script>'])
def test_what_has_no_page_is_no_link(name: str) -> None:
    assert "<a" not in Links("https://mq.example").receiver(name)
    assert "script>" not in Links("https://mq.example").receiver(name)


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        (
            {"deaths": "day", "hours": "week", "minutes": "hour"},
            ("Dead letters by day", "Messages by week", "is an hour", "Deliveries by hour"),
        ),
        ({"deaths": "15 minutes", "hours": "day", "minutes": "5 minutes"}, ("by 15 minutes", "by day", "is 5 minutes")),
    ],
)
def test_plots_say_what_a_bar_and_a_point_stand_for(slots: dict[str, str], words: tuple[str, ...]) -> None:
    text = page({**SOME, "slots": slots})
    assert [each for each in words if each not in text] == []


def test_what_happened_is_said_first_in_words() -> None:
    text = Reader(page(SOME)).text
    for words in (
        "10 messages were published, and 9 deliveries acknowledged.",
        "2 dead letters from before this period are not shown: see --from .",
        "Largest incident: user.update.error (the receiver's code failed on this message), on /orders/new"
        " at client/joe/1 , 3 times. “line 7 is wrong”",
        "Channel /orders/new : 4 receivers reject 50 of 55 messages since the first of this shape.",
        "Worst message: 17 on /orders/new : 4 receivers rejected it, 3 took it.",
        "client/joe/1 fails 40 % of its messages.",
        "Findings of the last audit of 2026-11-20 22:30",
    ):
        assert words in text


def test_one_incident_at_several_receivers_is_one_sentence() -> None:
    names = [f"client/r{number}/1" for number in range(5)]
    why = "rejected 48 messages; everything from 2026-11-20 04:50:10 to 04:50:40"
    sick = [receiver(why, session=name) for name in names] + [receiver("on hold", session="client/held/1")]
    later = incident(receiver=names[0], first_at=END + timedelta(minutes=20), last_at=END + timedelta(minutes=30))
    incidents = [*(incident(receiver=name, channels=["/a", "/b"]) for name in names), later]
    totals = {**SOME["totals"], "sick": 9}
    told = {**SOME, "totals": totals, "receivers": sick, "incidents": incidents, "times": []}
    text = Reader(page(told)).text
    short = text.partition("In short")[2].partition("Dead letters A dead letter")[0]
    one = "client/r0/1 , client/r1/1 , client/r2/1 and 2 more"
    assert f", on /a and /b at {one}, 15 times. “line 7 is wrong”" in short
    assert (
        f"{one}, for one reason. The first one {why}. client/held/1 on hold. and 3 more receivers are failing." in short
    )
    assert short.count("client/r") == 2 * 3


def test_the_tile_tells_how_many_died_and_how_many_the_store_has() -> None:
    assert "3 dead letters 2 of them are in the store until redriven or discarded" in Reader(page(SOME)).text
    one = {**SOME, "totals": {**SOME["totals"], "kept": 1}}
    assert "3 dead letters 1 of them is in the store until redriven or discarded" in Reader(page(one)).text


def test_what_became_of_redriven_dead_letters_is_one_sentence() -> None:
    def short(**fates: int) -> str:
        told = {**NOTHING, "totals": {**NOTHING["totals"], "redriven": {**fates}}}
        return Reader(page(told)).text.partition("In short")[2].partition("Dead letters A dead letter")[0]

    assert "redriven" not in short()
    assert "12 dead letters were redriven: 11 acknowledged, 1 came back." in short(
        **{"acknowledged": 11, "came back": 1}
    )
    assert "1 dead letter was redriven: 1 pending." in short(pending=1)


def test_other_reasons_of_the_same_messages_are_shown() -> None:
    told = {**SOME, "incidents": [incident(other_codes=["user.db"])]}
    assert "also user.db" in Reader(page(told)).text


def test_one_is_not_called_several() -> None:
    told = {
        **SOME,
        "totals": {
            "letters": 1,
            "kept": 1,
            "poison": 1,
            "channels": 1,
            "sick": 1,
            "older": 1,
            "messages": 1,
            "codes": {},
            "findings": {},
            "redriven": {},
        },
        "triage": [died(letters=1)],
        "incidents": [incident(letters=1)],
        "settling": [{**SOME["settling"][0], "count": 1}],
        "poison": [poison(failures=1)],
    }
    text = Reader(page(told)).text
    for words in (
        "1 dead letter",
        "1 message was published, and 1 delivery acknowledged.",
        ", 1 time.",
        "1 failing channel",
    ):
        assert words in text
    assert "1 dead letter from before this period is not shown" in text


def test_nothing_that_clients_wrote_is_taken_for_html() -> None:
    evil = "<script>alert('x')</script>"
    told = {
        **SOME,
        "incidents": [
            incident(
                code=evil,
                channels=[evil],
                other_codes=[evil],
                receiver=evil,
                template=evil,
                sample_reason=evil,
                sample_body=evil,
                sample_letter=evil,
            )
        ],
        "poison": [
            poison(
                message_id=evil,
                channel=evil,
                why=evil,
                codes=[evil],
                names=[evil],
                sample_reason=evil,
                sample_body=evil,
                dead_letters=[evil],
            )
        ],
        "deaths": [{"minute": BEGIN, "code": evil, "letters": 1}],
        "failing_channels": [
            failing_channel(
                channel=evil,
                shape=evil,
                earlier_shape=evil,
                publishers=[evil],
                why=evil,
                codes=[evil],
                sample_reason=evil,
                sample_body=evil,
            )
        ],
        "times": [{**SOME["times"][0], "session": evil}],
        "receivers": [receiver(evil, session=evil)],
        "channels": [{**SOME["channels"][0], "channel": evil}],
        "capacity": [{**SOME["capacity"][0], "channel": evil}],
        "audit": [finding(evil, channel=evil, receiver=evil, pattern=evil, words=evil, evidence=[evil])],
    }
    assert "script" not in Reader(page(told)).names


def test_of_long_tables_ten_rows_are_seen_and_the_others_on_demand() -> None:
    incidents = [incident(receiver=f"client/r{number}/1", template=f"{number}") for number in range(140)]
    page_of = page({**SOME, "incidents": incidents, "counts": {**SOME["counts"], "incidents": 5000}})
    text = Reader(page_of).text
    at_once, _, rest = page_of[page_of.index("<h2>Dead letters</h2>") :].partition("<details class='rest'>")
    assert "client/r9/1" in at_once
    assert "client/r10/1" not in at_once
    assert "client/r99/1" in rest
    assert "client/r100/1" not in rest
    assert "the next 90" in text
    assert "and 4,900 more in the tables" in text
    few = Reader(page({**SOME, "incidents": incidents[:12], "counts": {**SOME["counts"], "incidents": 12}})).text
    assert "2 more" in few
    assert "more in the tables" not in few


def test_an_incident_at_several_receivers_is_one_row() -> None:
    names = [f"client/r{number}/1" for number in range(3)]
    rows = [incident(receiver=names[0], kept=3), *(incident(receiver=name, channels=["/b"]) for name in names[1:])]
    other = incident(receiver="client/other/1", template="the disk is full", letters=7)
    counts = {**SOME["counts"], "incidents": 4}
    made = page({**SOME, "incidents": [other, *rows], "counts": counts, "url": "http://localhost:8080"})
    table = made[made.index("<h2>Dead letters</h2>") :].partition("</section>")[0]
    assert table.count("<tr>") == 1 + 2, "a head, and two rows"
    assert "more in the tables" not in table
    text = Reader(table).text
    assert text.index("9 7 kept") < text.index("7 2 kept"), "the largest comes first"
    assert "client/r0/1 2 more client/r1/1 client/r2/1 /orders/new 1 more /b" in text
    assert 'dead-letters?code=user.update.error"' in table
    assert "dead-letters?receiver=client%2Fother%2F1&amp;code=" in table
    unknown = page({**SOME, "incidents": [rows[0], incident(receiver=names[1], kept=None)], "counts": counts})
    assert "kept" not in Reader(unknown).text.partition("By code")[2]


def test_where_no_reason_is_known_the_page_says_where_discarded_ones_are() -> None:
    words = "Of those that are gone, only the code is known; crewel dead-letters bin lists those discarded within a day"
    gone = incident(kept=0, template=GONE, sample_letter="", sample_reason="", sample_body="")
    row = page({**SOME, "incidents": [gone], "poison": [], "failing_channels": []})
    assert words in Reader(row).text
    assert "<summary>show</summary>" not in row, "there is nothing to show"
    assert words not in Reader(page(SOME)).text


def test_what_is_no_finding_is_closed_and_says_its_figure() -> None:
    made = page(SOME)
    rest = made[made.index("<h2>Backlog</h2>") :]
    assert rest.count("<section") == 2
    for words in (
        "Backlog 1 pending at the end, 1 at most",
        "Time to acknowledgement more than 1 of 100 took over 1 h in the slowest minute From",
        "Volume 9 stored, 1 transient",
    ):
        assert words in Reader(made).text


def test_the_slowest_minute_is_one_of_more_than_an_hour_if_there_is_one() -> None:
    """Of these no bound is known, and nothing is drawn."""
    (row,) = SOME["settling"]
    quick, slow, slower = (dict.fromkeys(("p50_ms", "p90_ms", "p99_ms"), ms) for ms in (20.0, 2000.0, None))

    def words(*rows: Told) -> str:
        text = Reader(page({**SOME, "settling": [{**row, **each} for each in rows]})).text
        return text.partition("Time to acknowledgement ")[2]

    assert words().startswith("From")
    assert words(slow, quick).startswith("99 of 100 within 2 s in the slowest minute From")
    for rows in ((slower,), (slow, slower)):
        assert words(*rows).startswith("more than 1 of 100 took over 1 h in the slowest minute From")
        assert "nothing in this period" not in words(*rows)
    assert "/orders/new 9 20 ms 50 ms over 1 h" in words(row)


def test_the_backlog_at_the_end_is_that_of_the_newest_slot_in_any_order() -> None:
    rows = [
        {"minute": END, "owed": 0, "ended": 22, "waiting": 0},
        {"minute": BEGIN, "owed": 22, "ended": 0, "waiting": 22},
    ]
    for backlog in (rows, rows[::-1]):
        assert "Backlog 0 pending at the end, 22 at most" in Reader(page({**SOME, "backlog": backlog})).text


def test_the_five_most_urgent_things_to_do_are_seen_and_the_others_on_demand() -> None:
    channels = [failing_channel(channel=f"/c{number}") for number in range(3)]
    sick = [receiver("on hold", session=f"client/r{number}/1") for number in range(3)]
    made = page({**NOTHING, "failing_channels": channels, "receivers": sick, "poison": [poison()]})
    box = made[made.index("What to do now") : made.index("In short")]
    at_once, _, rest = box.partition("<details class='rest'><summary>2 more</summary><ol start='6'>")
    assert (at_once.count("<li>"), rest.count("<li>")) == (5, 2)


def test_on_a_phone_a_row_of_many_columns_is_closed_until_it_is_opened() -> None:
    rows = page({**SOME, "incidents": [incident()] * 12, "counts": {**SOME["counts"], "incidents": 12}}).split("<tr>")
    for row in rows:
        is_wide = row.count("<td") > 4
        assert row.count("<input type='checkbox' class='unfold' aria-label='the whole row'>") == is_wide
        assert row.partition("</td>")[0].endswith("'>") == is_wide, "it is in the first cell"


def test_the_names_of_one_row_are_folded_behind_the_first() -> None:
    names = [f"client/r{number}/1" for number in range(10)]
    channels = [f"/orders/{number}" for number in range(10)]
    page_of = page({**SOME, "poison": [poison(names=names)], "incidents": [incident(channels=channels)]})
    Reader(page_of)
    for first, last in (("client/r0/1", "client/r9/1"), ("/orders/0", "/orders/9")):
        folded = f"<code>{first}</code></span><span><details><summary>9 more</summary><div><code>"
        assert folded in page_of
        assert f"<div><code>{last}</code></div></details>" in page_of


def test_counts_are_of_all_rows_and_not_of_those_that_the_page_has() -> None:
    totals = {**SOME["totals"], "sick": 2000, "codes": {"user.update.error": 9000, "user.db": 2}}
    text = Reader(page({**SOME, "totals": totals, "counts": {**SOME["counts"], "receivers": 7000}})).text
    for words in (
        "2,000 failing receivers",
        "and 1,999 more receivers are failing.",
        "5,000 others are normal.",
        "9,000",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("audit", "findings", "shown"),
    [
        (None, {}, "?"),
        ([], {}, "0"),
        ([finding("unknown")], {"unknown": 1}, "0"),
        ([finding("twice")], {"twice": 3000, "lost": 2, "unknown": 1}, "3,002"),
    ],
)
def test_only_what_does_not_add_up_counts_as_not_accounted_for(
    audit: list[Told] | None, findings: dict[str, int], shown: str
) -> None:
    told = {**SOME, "audit": audit, "totals": {**SOME["totals"], "findings": findings}}
    assert f"{shown} not accounted for" in Reader(page(told)).text


def test_a_sum_of_nothing_is_no_figure_and_a_small_share_is_one() -> None:
    text = Reader(page(SOME)).text
    assert "0.1 %" in text
    assert "- - 0 20 ms -" in text, "on hold, absent, redelivered, lag, and no lag of peers"
