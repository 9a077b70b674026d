"""The queues of subjects and groups fill up as those of sessions do, and the page says so in the same words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from crewel.admin.group_resource import GROUP_ROUTES
from crewel.admin.overview_resource import overview
from crewel.admin.receiver_resource import RECEIVER_ROUTES
from crewel.admin.subject_resource import SUBJECT_ROUTES
from crewel.pages import figures
from tests.admin.test_rejecting_receivers import Operator
from tests.broker.addressing.post import Clerk, queue
from tests.broker.stored_world import Receiver, StoredWorld, ok, store

pytestmark = pytest.mark.store


@pytest.fixture
def world() -> Iterator[StoredWorld]:
    world = StoredWorld("ptp.group_queue_max_entries=100", "ptp.subject_queue_max_entries=5")
    yield world
    world.close()


def row(operator: Operator, kind: str, **asked: Any) -> dict[str, Any]:
    (view,) = operator.get(RECEIVER_ROUTES[0], kind=kind, **asked)["receivers"]
    return dict(view)


def metric(operator: Operator, cause: str) -> float:
    lines = operator.world.wait(figures(operator.world.broker)).decode().splitlines()
    (line,) = (each for each in lines if each.startswith(f'crewel_queues_in_trouble{{cause="{cause}"}}'))
    return float(line.split()[-1])


def test_a_group_whose_queue_grows_is_soon_full(world: StoredWorld) -> None:
    operator = Operator(world)
    member = Receiver(world).started(name="joe/1", settle="message", maxOpen=1)
    subscribed = member.say("/meta/subscribe", subscription="/jobs/*", ext={"subscribe": {"group": "workers"}})
    assert subscribed["successful"], subscribed
    clock = 1000.0
    operator.admin.backlog_trends._clock = lambda: clock
    for _ in range(5):
        store(world, "/jobs/a", *range(15))
        world.settle()
        world.wait(operator.admin.session_counter.take_anew())
        clock += 10
    view = row(operator, "group", cause="filling")
    assert (view["name"], view["conditions"]) == ("/jobs/* workers", ["soon full", "falling behind", "connected"])
    assert view["cause"].startswith("its queue will be full within a minute: ")
    shown = operator.get(GROUP_ROUTES[0], path={"channel": "jobs/*"}, name="workers")
    assert [each["kind"] for each in shown["causes"]] == ["filling", "slow"]
    assert "of 100 messages" in shown["causes"][0]["text"]
    finding = operator.findings()["soon-full"]
    assert finding["title"] == "Group workers on /jobs/* will be full soon"
    assert finding["link"] == "/groups/%2Fjobs%2F%2A/workers"
    assert (metric(operator, "filling"), metric(operator, "full")) == (1, 0)


def test_a_group_that_takes_less_than_comes_falls_behind_and_then_catches_up(world: StoredWorld) -> None:
    operator = Operator(world)
    member = Receiver(world).started(name="joe/1", settle="message", maxOpen=2)
    member.say("/meta/subscribe", subscription="/jobs/*", ext={"subscribe": {"group": "workers"}})
    clock, taken = 1000.0, member.take()
    operator.admin.backlog_trends._clock = lambda: clock

    def pass_by(comes: int, takes: int) -> None:
        nonlocal clock, taken
        for _ in range(5):
            store(world, "/jobs/a", *range(comes))
            for _ in range(takes):
                taken = member.take(*map(ok, taken))
                world.settle()
            world.commit()
            world.wait(operator.admin.session_counter.take_anew())
            clock += 10

    pass_by(12, 1)
    operator.admin.rates["group"].drop()
    view = row(operator, "group", condition="falling behind")
    assert (view["name"], view["conditions"][-1]) == ("/jobs/* workers", "connected")
    slow = next(each for each in view["causes"] if each["kind"] == "slow")
    assert slow["level"] == "warn"
    assert slow["perMinute"] > 20
    assert slow["takenPerMinute"] > 0
    assert f"it takes {slow['takenPerMinute']} a minute" in slow["text"]
    shown = operator.get(GROUP_ROUTES[0], path={"channel": "jobs/*"}, name="workers")
    assert slow in shown["causes"]
    finding = operator.findings()["behind"] if "behind" in operator.findings() else operator.findings()["soon-full"]
    assert "Group workers on /jobs/*" in finding["title"]
    assert metric(operator, "slow") + metric(operator, "filling") == 1
    assert finding["advice"].startswith("Start more members of the group")
    pass_by(0, 4)
    view = row(operator, "group", condition="catching up")
    assert view["causes"][0]["text"].startswith("it catches up: ")
    world.wait(world.broker.mailboxes.dispatchers.hold(member.session, "ann"))
    assert "falling behind" not in row(operator, "group")["conditions"]


def test_trouble_of_a_receiver_and_of_a_group_stays_in_view_after_its_end(world: StoredWorld) -> None:
    operator, dispatchers = Operator(world), world.broker.mailboxes.dispatchers
    member = Receiver(world).started(name="joe/1", settle="message", maxOpen=1)
    member.say("/meta/subscribe", subscription="/jobs/*", ext={"subscribe": {"group": "workers"}})
    store(world, "/jobs/a", 1, 2, 3)
    world.wait(dispatchers.hold(member.session, "ann", reason="lunch"))
    assert {"held", "group-empty"} <= operator.findings().keys()
    world.wait(dispatchers.activate(member.session))
    assert not {"held", "group-empty"} & operator.findings().keys()
    over = world.wait(overview(operator.admin, 0))["over"]
    assert {each["key"]: each["title"] for each in over} == {
        "held": "client/joe/1 was on hold",
        "members": "Group workers on /jobs/* had no member that takes messages",
    }
    assert {each["cause"] for each in over} == {
        "last seen: lunch, by ann",
        "last seen: all its members are away or on hold",
    }
    assert all(each["since"] <= each["until"] for each in over)


def test_a_subject_whose_queue_is_full_says_what_happens_to_further_messages(world: StoredWorld) -> None:
    operator, clerk = Operator(world), Clerk(world)
    for number in range(5):
        clerk.post(number, queue("client/ann"))
    assert clerk.ask(5, queue("client/ann"))["ext"]["publish"]["errorCode"] == "resource.overflow.queue.entries"
    view = row(operator, "subject", condition="full")
    text = "its queue is full: 5 of 5 messages; further ones are refused"
    assert (view["name"], view["cause"], view["conditions"]) == ("client/ann", text, ["full", "without a member"])
    shown = operator.get(SUBJECT_ROUTES[1], path={"subject": "ann"})
    assert [(each["kind"], each["text"]) for each in shown["causes"]] == [("full", text)]
    finding = operator.findings()["queue-full"]
    assert (finding["title"], finding["link"]) == ("client/ann is full", "/receivers/client/ann")
    assert metric(operator, "full") == 1
