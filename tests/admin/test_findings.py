"""What is wrong, from figures: each finding with its cause, its advice and where to look."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from crewel.admin.backlog_trends import Trend
from crewel.admin.cause_words import GROUP, SUBJECT, WORDS, advice_of, usual_advice
from crewel.admin.figures import Concern, EmptyGroup, Figures, as_json, figures_as_one, from_json
from crewel.admin.findings import CHECKS, Finding, findings
from crewel.admin.level import Level
from crewel.admin.receiver_condition import TROUBLES, Condition, Facts, causes_of
from crewel.admin.receiver_facts import standing
from crewel.admin.session_counts import Named, SessionCounts, Trouble
from crewel.bayeux.codec import encode, reread
from crewel.broker.sessions.login_refusals import RefusedLogins
from crewel.delivery.dispatcher_states import Holdback
from crewel.storage.dead_letter_groups import Pair
from crewel.storage.disk import Disk

REFUSED = RefusedLogins("user.security.authentication.expired", "the token has expired", "a", "10.1.2.3", 5, 9, 3)


def counted(kind: str, *named: Named, count: int = 0) -> SessionCounts:
    """Sessions of which these have a cause of this kind."""
    trouble = Trouble(count or len(named), sum(each.waiting for each in named), list(named))
    return SessionCounts(troubles={kind: trouble})


def one(text: str, number: int = 1, *, node: str = "a", is_bad: bool = True, waiting: int = 3) -> Named:
    return Named(f"client/joe/{number}", text, 1000 + number, waiting, node, is_bad)


def disk(percent: int) -> Disk:
    return Disk("/var/lib/crewel", 1 << 40, (100 - percent) << 30, percent << 30, 7 << 20)


WORKERS = Named("/jobs/* workers", "its queue is full", None, 9, "")
HELD = counted("held", one("user.update.holdback: out of paper"))
VERY_MANY_HELD = counted("held", *(one("by ann", number) for number in range(5)), count=7)
AWAY = counted("away", one("its client is away", is_bad=False, waiting=1200))
FULL_OF_MESSAGES = counted("full", one("its queue is full: 9 of 9 messages; 600 messages became dead letters"))
DOWN = {"store": Concern("it does not answer", 12, ("a",))}

CASES = [
    (Figures(concerns=DOWN), "not-ready-store", Level.BAD, "/timeline", "it does not answer"),
    (Figures(failing_workers={"2": 7}), "worker-failing", Level.BAD, "/timeline", "worker 2: 7 times"),
    (
        Figures(disk=disk(80)),
        "disk-filling",
        Level.WARN,
        "/?show=store",
        "20 GiB are left on the disk of /var/lib/crewel",
    ),
    (Figures(store_busy=0.61), "store-busy", Level.WARN, "/?show=store", "one thread for all nodes"),
    (Figures(store_waiting=0.51), "store-waits-for-disk", Level.WARN, "/?show=store", "until the disk has it"),
    (Figures(disk=disk(90)), "disk-nearly-full", Level.BAD, "/?show=store", "the store's file has 7 MiB"),
    (Figures(counted=HELD), "held", Level.BAD, "/receivers/client/joe/1", "out of paper"),
    (
        Figures(counted=VERY_MANY_HELD),
        "held",
        Level.BAD,
        "/receivers?kind=session&cause=held",
        "client/joe/0, client/joe/1, client/joe/2 and 4 more: by ann",
    ),
    (
        Figures(counted=FULL_OF_MESSAGES),
        "queue-full",
        Level.BAD,
        "/receivers/client/joe/1",
        "600 messages became dead letters",
    ),
    (Figures(counted=AWAY), "away", Level.WARN, "/receivers/client/joe/1", "its client is away"),
    *(
        (
            Figures(counted=counted(kind, one("why"), one("why", 2))),
            key,
            Level.BAD,
            f"/receivers?kind=session&cause={kind}",
            "client/joe/2: why",
        )
        for kind, key in (
            ("rejecting", "rejecting"),
            ("rejects", "rejects"),
            ("filling", "soon-full"),
            ("token", "token-expired"),
            ("refused", "login-refused"),
            ("retry", "retrying"),
            ("unclaimed", "unclaimed"),
            ("slow", "behind"),
            ("overflow", "turned-away"),
            ("nearly-full", "nearly-full"),
        )
    ),
    (
        Figures(dead_letters_made=3, dead_letter_pairs=[Pair("client/joe/1", "user.update.error", 3, 7)]),
        "letters",
        Level.BAD,
        "/dead-letters?since=1h&receiver=client/joe/1&code=user.update.error",
        "user.update",
    ),
    (
        Figures(counted=SessionCounts(queues={"full": Trouble(1, 9, [WORKERS])})),
        "queue-full",
        Level.BAD,
        "/groups/%2Fjobs%2F%2A/workers",
        "its queue is full",
    ),
    (
        Figures(counted=replace(FULL_OF_MESSAGES, queues={"full": Trouble(1, 9, [WORKERS])})),
        "queue-full",
        Level.BAD,
        "/receivers?cause=full",
        "; Group workers on /jobs/*: its queue is full",
    ),
    (Figures(messages_dropped=7), "messages-dropped", Level.BAD, "/receivers?sort=waiting", "has no name"),
    (Figures(dead_letters_dropped=1), "letters-dropped", Level.BAD, "/dead-letters", "delivery.dead_letters_max"),
    (
        Figures(empty_groups=[EmptyGroup("/jobs/*", "workers", 7, 2)]),
        "group-empty",
        Level.BAD,
        "/groups/%2Fjobs%2F%2A/workers",
        "7 messages queued, 2 members, away or on hold",
    ),
    (
        Figures(empty_groups=[EmptyGroup("/jobs/*", "workers", 7, 0), EmptyGroup("/tasks", "clerks", 1, 0)]),
        "group-empty",
        Level.BAD,
        "/receivers?kind=group&cause=members",
        "workers on /jobs/*: 7 messages queued, no member; and 1 more",
    ),
    (Figures(store_used=90, store_most=100), "store-nearly-full", Level.WARN, "/dead-letters", "90%"),
    (Figures(facts_lost=5), "pipeline-behind", Level.WARN, "/?show=store", "5 entries"),
]


@pytest.mark.parametrize(("figures", "key", "level", "link", "cause"), CASES, ids=[case[1] + case[2] for case in CASES])
def test_finding_names_cause_advice_and_view(figures: Figures, key: str, level: Level, link: str, cause: str) -> None:
    [found] = findings(figures)
    assert (found.key, found.level, found.link) == (key, level, link)
    assert cause in found.cause
    assert found.advice.endswith((".", "meanwhile."))
    assert found.as_json()["title"]


@pytest.mark.parametrize(
    "figures",
    [
        Figures(),
        Figures(store_used=84, store_most=100),
        Figures(store_used=90),
        Figures(disk=disk(79)),
        Figures(store_busy=0.6, store_waiting=0.5),
    ],
)
def test_nothing_is_wrong(figures: Figures) -> None:
    assert findings(figures) == []


def test_a_queue_of_the_store_that_all_nodes_count_is_one() -> None:
    whole = Figures(counted=SessionCounts(queues={"full": Trouble(1, 9, [WORKERS])}))
    told = from_json(reread(encode(as_json(whole))))
    assert figures_as_one(told, [Figures(), told], []).counted.queues == whole.counted.queues


def test_every_check_is_tried_and_bad_ones_come_first() -> None:
    found = {each.key for figures, *_ in CASES for each in findings(figures)}
    assert found == {key for _, key, *_ in CASES}
    assert len(found) == len(CHECKS) + 12 + 2  # one check has thirteen kinds of receivers, two have two findings
    both = Figures(counted=AWAY, dead_letters_dropped=1, facts_lost=1)
    assert [each.level for each in findings(both)] == [Level.BAD, Level.WARN, Level.WARN]


def test_groups_without_members_are_receivers_in_trouble_which_no_other_finding_has() -> None:
    empty = [EmptyGroup("/jobs/*", "workers", 7, 2, 1001, "client/joe/1: lunch"), EmptyGroup("/tasks", "clerks", 1, 0)]
    full = SessionCounts(queues={"full": Trouble(1, 9, [WORKERS])})
    (found,) = findings(Figures(empty_groups=empty, counted=full))
    assert (found.key, found.count, found.since) == ("group-empty", 2, 1001)
    assert [(each["name"], each["title"], each["since"]) for each in found.as_json()["receivers"]] == [
        ("/jobs/* workers", "Group workers on /jobs/*", 1001),
        ("/tasks clerks", "Group clerks on /tasks", None),
    ]
    two = SessionCounts(queues={"full": Trouble(2, 18, [WORKERS, replace(WORKERS, name="/x cooks")])})
    assert [each.count for each in findings(Figures(empty_groups=empty, counted=two))] == [2, 1]


def test_findings_about_receivers_have_the_order_of_the_list() -> None:
    troubles = {kind: Trouble(1, 1, [one("why")]) for kind in reversed(TROUBLES) if WORDS[kind].key}
    found = [each.key for each in findings(Figures(counted=SessionCounts(troubles=troubles)))]
    assert found == [WORDS[kind].key for kind in TROUBLES if WORDS[kind].key]


def test_titles_name_one_receiver_or_count_them_and_say_since_when_and_where() -> None:
    (single,) = findings(Figures(counted=AWAY))
    assert (single.title, single.since, single.nodes) == ("client/joe/1 is away, 1,200 messages waiting", 1001, ("a",))
    (several,) = findings(Figures(counted=counted("full", one("x"), one("y", 2, node="b"))))
    assert (several.title, several.since, several.nodes) == ("2 receivers are full", 1001, ("a", "b"))
    (unnamed,) = findings(Figures(counted=counted("away", Named("", "its client is away", None, 1, "a"))))
    assert (unnamed.title, unnamed.link) == ("a client without a name is away, 1 message waiting", "/receivers")


@pytest.mark.parametrize(
    ("figures", "title", "advice"),
    [
        (Figures(concerns=DOWN), "The store cannot be used", "Look at the store and its log"),
        (Figures(concerns=DOWN, disk=disk(70)), "The store cannot be used", "/var/lib/crewel/store.log says why"),
        (
            Figures(
                concerns={"store": Concern("no answer within 3 s")},
                disk=disk(70),
                store_process="valkey-server, process 77",
            ),
            "The store cannot be used",
            "or end its process (valkey-server, process 77) by kill -KILL, which also ends a stopped one.",
        ),
        (Figures(concerns=DOWN, disk=disk(100)), "The disk of the store is full", "Make room on the disk of /var/lib"),
        (
            Figures(concerns={"store": Concern("the disk of storage.data_dir x has 3 MiB left")}, disk=disk(70)),
            "The disk of the store was full",
            "It has room now, and the server continues automatically.",
        ),
        (
            Figures(concerns={"store": Concern("the memory of the store is full: 9 of 9 MiB")}, disk=disk(10)),
            "The store is full",
            "raise storage.max_memory_bytes",
        ),
    ],
)
def test_a_store_that_cannot_be_used_has_the_words_for_what_it_lacks(figures: Figures, title: str, advice: str) -> None:
    (found,) = findings(figures)  # and no second one about the same disk
    assert found.title == title
    assert advice in found.advice
    assert "storage.url" not in found.advice


OVERFLOW = Pair("client/joe/1", "resource.overflow.queue.entries", 600, 9)
REJECTED = Pair("client/joe/1", "user.update.error", 116, 1002)
OTHER = Pair("client/ann/1", "user.update.noMenu", 2, 7)


def letters(*pairs: Pair, made: int = 0, **figures: Any) -> Finding | None:
    """The finding about dead letters, if there are these."""
    made = made or sum(each.letters for each in pairs)
    found = findings(Figures(dead_letters_made=made, dead_letters_since=5, dead_letter_pairs=list(pairs), **figures))
    return next((each for each in found if each.key == "letters"), None)


def test_dead_letters_are_grouped_by_receiver_and_code_since_the_first() -> None:
    both = letters(REJECTED, OTHER)
    assert both is not None
    assert (both.title, both.count, both.since) == ("118 dead letters of the last hour", 118, 7)
    assert both.cause == "client/joe/1: 116 with user.update.error; client/ann/1: 2 with user.update.noMenu"
    single = letters(OTHER)
    assert single is not None
    assert (single.title, single.cause) == ("2 dead letters of the last hour of client/ann/1", "user.update.noMenu")
    many = letters(*(Pair(f"client/joe/{number}", "user.update.error", 9, 9) for number in range(5)), made=70_000)
    assert many is not None
    assert (many.title, many.since) == ("70,000 dead letters of the last hour", 5)
    assert many.cause.startswith("of the newest 45: client/joe/0: 9 with user.update.error; ")
    assert many.cause.endswith("; and 2 more groups")


def test_dead_letters_that_another_finding_explains_are_not_said_again() -> None:
    rejects = counted("rejects", one("it rejects all its messages"))
    assert letters(REJECTED, counted=rejects) is None
    assert letters(REJECTED._replace(since=-9000), counted=rejects) is not None, "some are older than its cause"
    rest = letters(REJECTED, OTHER, counted=rejects)
    assert rest is not None
    assert (rest.count, rest.cause, rest.since) == (2, "user.update.noMenu (118 with those above)", 7)
    assert letters(OVERFLOW, counted=FULL_OF_MESSAGES) is None
    assert letters(OVERFLOW) is not None, "of a queue that was drained since"
    mixed = letters(OVERFLOW, REJECTED, counted=FULL_OF_MESSAGES)
    assert mixed is not None
    assert mixed.count == 116


def test_figures_of_several_nodes_have_one_finding_for_each_cause() -> None:
    a = Figures(
        counted=counted("held", one("by ann")),
        concerns=DOWN,
        dead_letters_made=3,
        messages_dropped=1,
        failing_workers={"2": 7},
        disk=disk(100),
    )
    b = Figures(
        counted=counted("held", one("by ben", 2, node="b"), one("by ben", 3, node="b"), count=9),
        concerns={"store": Concern("connection refused", 7, ("b",))},
        dead_letters_made=3,
        messages_dropped=2,
        failing_workers={"2": 7},
    )
    told = reread(encode([as_json(each) for each in (a, b)]))
    own, *others = map(from_json, told)
    joined = figures_as_one(own, others, [])
    found = {each.key: each for each in findings(joined)}
    assert set(found) == {"not-ready-store", "held", "letters", "messages-dropped", "worker-failing"}
    held, store = found["held"], found["not-ready-store"]
    assert (held.title, held.count, held.nodes) == ("10 receivers are on hold", 10, ("a", "b"))
    assert held.cause == "client/joe/1: by ann; client/joe/2: by ben; client/joe/3: by ben; and 7 more"
    assert (store.since, store.nodes, store.cause) == (7, ("a", "b"), "it does not answer")
    assert (found["letters"].count, found["messages-dropped"].count) == (3, 3)


def test_figures_of_a_node_of_another_version_are_read() -> None:
    assert from_json({"later": 1, "facts_lost": 5}).facts_lost == 5
    with pytest.raises(ValueError, match="facts_lost"):
        from_json({"facts_lost": "many"})


FULL = {"waiting": 9, "max_entries": 9}
HELD_MESSAGE = {"holdback": Holdback("client/joe/1", 7, "user.update.holdback", "5")}


@pytest.mark.parametrize(
    ("facts", "begins"),
    [
        ({"holdback": Holdback("ann", 7, reason="lunch")}, "Release the receiver when"),
        (HELD_MESSAGE, "Read the message that is held."),
        (
            HELD_MESSAGE | {"is_held_gone": True},
            "The message that was held was skipped, or has left the queue otherwise.",
        ),
        (FULL | {"is_away": True}, "Start its client: it takes what waits, which makes room. Then redrive"),
        (FULL | {"is_away": True, "trend": Trend(60_000, 9), "waiting": 5}, "Start its client: it takes"),
        (
            FULL,
            "Make its client process messages faster, share its work in a consumer group, or raise queue.maxEntries",
        ),
        (FULL | {"members": Condition.CONNECTED, "is_group": True}, "Start more members of the group"),
        (FULL | {"members": Condition.CONNECTED}, "Start more sessions of the subject"),
        ({"token_expired_at": 7, "refused": REFUSED}, "Give its client a new token: it tries again with"),
        ({"token_expired_at": 7}, "Give its client a new token. It logs in again"),
    ],
)
def test_the_advice_fits_what_is_known_of_the_cause(facts: dict[str, Any], begins: str) -> None:
    known = Facts(10, **facts)
    causes = causes_of(known)
    what = "" if known.members is None else GROUP if known.is_group else SUBJECT
    advice = advice_of(causes[0], causes, what)
    assert advice.startswith(begins)
    assert standing(known, causes)["causes"][0]["advice"] == advice  # the page of the receiver says the same
    named = Named("client/joe/1", causes[0].text, 7, 9, "oak", advice=advice)
    figures = Figures(counted=SessionCounts(troubles={causes[0].kind: Trouble(1, 9, [named])}))
    assert findings(figures)[0].advice == advice
    other = replace(named, advice="another one", name="client/ann/1")
    figures = Figures(counted=SessionCounts(troubles={causes[0].kind: Trouble(2, 9, [named, other])}))
    several = findings(figures_as_one(from_json(reread(encode(as_json(figures)))), [], []))[0]
    assert several.advice == usual_advice(causes[0].kind)


@pytest.mark.parametrize("stop", [HELD_MESSAGE, {"token_expired_at": 7}, {"is_away": True}])
def test_the_advice_for_a_full_queue_is_never_to_drain_it(stop: dict[str, Any]) -> None:
    causes = causes_of(Facts(10, **FULL, **stop))
    full = next(each for each in causes if each.kind == "full")
    assert "takes what waits, which makes room. Then redrive" in advice_of(full, causes)
    assert "rain" not in advice_of(full, causes)


def test_an_absent_client_is_to_be_started_whatever_else_is_wrong() -> None:
    causes = causes_of(Facts(10, is_away=True, **HELD_MESSAGE))
    assert advice_of(causes[0], causes).endswith("Its client is away: start it, too.")


def test_a_finding_about_several_receivers_has_each_with_its_time_and_its_view() -> None:
    later = one("its queue is full: 5 of 5 messages", 2)
    (found,) = findings(Figures(counted=counted("full", one("its queue is full: 9 of 9 messages"), later)))
    rows = found.as_json()["receivers"]
    assert [(each["link"], each["since"], each["cause"]) for each in rows] == [
        ("/receivers/client/joe/1", 1001, "its queue is full: 9 of 9 messages"),
        ("/receivers/client/joe/2", 1002, "its queue is full: 5 of 5 messages"),
    ]


def test_dead_letters_beside_those_of_another_finding_add_up() -> None:
    rest = letters(OVERFLOW, OTHER, counted=FULL_OF_MESSAGES)
    assert rest is not None
    assert (rest.title, rest.cause) == (
        "2 other dead letters of the last hour of client/ann/1",
        "user.update.noMenu (602 with those above)",
    )
    group = letters(Pair("group:/jobs/* workers", "user.update.error", 2, 7))
    assert group is not None
    assert group.title == "2 dead letters of the last hour of Group workers on /jobs/*"
