"""A receiver that rejects messages is never well: on its page, in lists, in the overview and in the metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from crewel.admin.administration import Administration
from crewel.admin.dead_letter_resource import DEAD_LETTER_ROUTES
from crewel.admin.overview_resource import overview
from crewel.admin.receiver_facts import at_rest, others_text
from crewel.admin.receiver_resource import RECEIVER_ROUTES
from crewel.admin.rejections import CURED
from crewel.admin.route import Ask
from crewel.admin.session_resource import SESSION_ROUTES
from crewel.security.grants import Role, Scope
from crewel.storage.taken_elsewhere import Taken
from crewel.transports.forwarded import Client
from tests.broker.stored_world import Receiver, StoredWorld, failed, ok, store

pytestmark = pytest.mark.store

ALL = Scope(Role.VIEW)
JOE = "client/joe/1"


class Operator:
    def __init__(self, world: StoredWorld) -> None:
        self.world, self.admin = world, Administration(world.broker)

    def get(self, route: Any, scope: Scope = ALL, path: dict[str, str] | None = None, **fields: Any) -> Any:
        ask = Ask(self.admin, "ann", None, path or {}, fields, Client(None, "", ""), scope, None)
        return self.world.wait(route.handler(ask))

    def receiver(self, scope: Scope = ALL) -> dict[str, Any]:
        found = self.get(RECEIVER_ROUTES[0], scope, kind="session", sort="trouble", contains="joe")["receivers"]
        (view,) = found
        (row,) = self.get(SESSION_ROUTES[0], scope, contains="joe")["sessions"]
        names = ("conditions", "cause", "causes", "since", "trouble")
        assert {name: view[name] for name in names} == {name: row[name] for name in names}
        return dict(view)

    def findings(self) -> dict[str, Any]:
        self.world.wait(self.admin.session_counter.take_anew())
        self.admin.new_dead_letters._recent.drop()
        self.admin.new_dead_letters._counted.drop()
        told = self.world.wait(overview(self.admin, 0))
        return {each["key"]: each for each in told["findings"]}


@pytest.fixture
def operator(stored: StoredWorld) -> Operator:
    return Operator(stored)


def rejecting(receiver: Receiver, messages: Iterable[Any]) -> None:
    receiver.take(*(failed(each, "user.update.error", "no such dish") for each in messages))


def test_a_receiver_that_rejects_all_says_so_with_what_others_do(stored: StoredWorld, operator: Operator) -> None:
    joe = Receiver(stored).started("/a", name="joe/1", settle="message")
    ann = Receiver(stored).started("/a", name="ann/1", settle="message")
    store(stored, "/a", 1, 2, 3, 4)
    ann.take(*map(ok, ann.take()[:3]))
    rejecting(joe, joe.take())
    stored.commit()
    view = operator.receiver()
    assert view["conditions"] == ["rejects messages", "connected"]
    assert view["cause"] == (
        "it rejects all its messages, 4 of 4: user.update.error: no such dish (other receivers took 3 of the newest 4)"
    )
    (cause,) = view["causes"]
    assert (cause["kind"], cause["level"], cause["rule"], cause["count"], cause["of"]) == (
        "rejects",
        "bad",
        "all",
        4,
        4,
    )
    assert (cause["othersTook"], cause["othersOf"], cause["since"]) == (3, 4, view["since"])
    assert at_rest(operator.admin, joe.session) is None
    found = operator.findings()
    assert (found["rejects"]["title"], found["rejects"]["cause"]) == (f"{JOE} rejects messages", view["cause"])
    assert found["rejects"]["since"] == cause["since"]
    assert "letters" not in found, "the finding about the receiver says it"
    # It takes messages again, by acknowledging batches.
    store(stored, "/a", *range(CURED))
    joe.take(*map(ok, joe.take()))
    assert operator.receiver()["conditions"] == ["connected"]
    found = operator.findings()
    assert "rejects" not in found
    assert found["letters"]["title"] == f"4 dead letters of the last hour of {JOE}"
    assert found["letters"]["since"] is not None
    operator.admin.rejections.tidy()
    assert stored.broker.mailboxes.events.on_settled == []


def test_what_a_receiver_acknowledges_by_batch_counts_as_taken(stored: StoredWorld, operator: Operator) -> None:
    joe = Receiver(stored).started("/a", "/b", name="joe/1")
    store(stored, "/a", *range(3))
    rejecting(joe, joe.take())
    store(stored, "/b", *range(30))
    joe.take()
    joe.take()
    (cause,) = operator.receiver()["causes"]
    assert (cause["rule"], cause["channels"], cause["count"], cause["of"]) == ("one kind", ["/a"], 3, 3)
    store(stored, "/a", 7, 8)
    joe.take()
    joe.take()
    (cause,) = operator.receiver()["causes"]
    assert (cause["rule"], cause["level"], cause["count"], cause["of"]) == ("few", "info", 3, 35)


def test_an_operator_of_some_channels_sees_what_is_rejected_of_these(stored: StoredWorld, operator: Operator) -> None:
    joe = Receiver(stored).started("/a", "/secret", name="joe/1")
    store(stored, "/secret", *range(3))
    rejecting(joe, joe.take())
    assert joe.say("/meta/unsubscribe", subscription="/secret")["successful"]
    stored.commit()
    some = Scope(parts=((Role.VIEW, frozenset({"/a"})),))
    assert operator.receiver()["conditions"] == ["rejects messages", "connected"]
    seen = operator.receiver(some)
    assert (seen["conditions"], seen["causes"], seen["trouble"]) == (["connected"], [], 0)
    store(stored, "/a", *range(3))
    rejecting(joe, joe.take())
    seen = operator.receiver(some)
    assert seen["cause"] == "it rejects all messages of /a, 3 of 3: user.update.error: no such dish"
    assert "othersTook" not in seen["causes"][0]


def test_each_message_of_a_report_keeps_its_own_reason(stored: StoredWorld, operator: Operator) -> None:
    joe = Receiver(stored).started("/a", "/secret", name="joe/1", settle="message")
    store(stored, "/a", 1)
    store(stored, "/secret", 2)
    first, second = joe.take()
    joe.take(failed(first, "user.update.error", "no such dish"), failed(second, "user.update.error", "pay is 5000"))
    assert joe.say("/meta/unsubscribe", subscription="/secret")["successful"]
    stored.commit()
    letters = operator.get(DEAD_LETTER_ROUTES[0])["letters"]
    assert {each["channel"]: each["reason"] for each in letters} == {"/a": "no such dish", "/secret": "pay is 5000"}
    seen = operator.receiver(Scope(parts=((Role.VIEW, frozenset({"/a"})),)))
    assert seen["cause"] == "it rejected its last message: user.update.error: no such dish"


def test_the_reason_of_an_earlier_code_is_not_lost(stored: StoredWorld, operator: Operator) -> None:
    joe = Receiver(stored).started("/a", name="joe/1", settle="message")
    store(stored, "/a", 1, 2, 3)
    codes = ("user.update.error", "user.update.error", "user.update.noMenu")
    joe.take(*(failed(each, code, f"why {code[-6:]}") for each, code in zip(joe.take(), codes, strict=True)))
    stored.commit()
    cause = operator.receiver()["cause"]
    assert cause == "it rejects all its messages, 3 of 3: user.update.error: why .error and 1 more code"


def test_the_end_of_a_session_ends_what_is_said_of_it(stored: StoredWorld, operator: Operator) -> None:
    joe = Receiver(stored).started("/a", name="joe/1")
    store(stored, "/a", 1)
    rejecting(joe, joe.take())
    assert JOE in operator.admin.rejections
    joe.say("/meta/disconnect")
    assert JOE not in operator.admin.rejections


def test_a_queue_that_grows_is_said_to_be_full_soon(stored: StoredWorld, operator: Operator) -> None:
    Receiver(stored).started("/a", name="joe/1", queue={"maxEntries": 100})
    clock = 1000.0
    operator.admin.backlog_trends._clock = lambda: clock
    for _ in range(5):
        store(stored, "/a", *range(15))
        stored.wait(operator.admin.session_counter.take_anew())
        clock += 10
    counted = operator.admin.session_counter.last
    assert counted.causes["filling"] == 1
    assert operator.findings()["soon-full"]["title"] == f"{JOE} will be full soon"
    assert "soon full" in operator.receiver()["conditions"]


@pytest.mark.parametrize(
    ("taken", "text"),
    [
        (None, ""),
        (Taken(0, 0, 9), ""),  # there was no other receiver
        (Taken(0, 2, 1200), " (other receivers took none of the newest 1,200)"),
        (Taken(3, 0, 4), " (other receivers took 3 of the newest 4)"),
    ],
)
def test_what_others_did_is_said_if_there_are_others(taken: Taken | None, text: str) -> None:
    assert others_text(taken) == text


def test_a_hold_does_not_hide_that_a_receiver_rejects(stored: StoredWorld, operator: Operator) -> None:
    joe = Receiver(stored).started("/a", name="joe/1", settle="message")
    store(stored, "/a", 1, 2, 3, 4)
    rejecting(joe, joe.take())
    stored.commit()
    stored.wait(stored.broker.mailboxes.dispatchers.hold(joe.session, "ann", reason="lunch"))
    held = operator.findings()["held"]
    assert held["cause"] == "lunch, by ann; it rejects all its messages, 4 of 4: user.update.error: no such dish"
    assert held["receivers"][0]["cause"] == held["cause"]
