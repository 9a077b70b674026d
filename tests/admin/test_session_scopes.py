"""Which sessions belong to an operator of some channels."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from crewel.admin.role_scopes import role_on_queue
from crewel.admin.scope_coverage import covers_session, shows_failure
from crewel.broker.mailboxes.mailbox import Mailbox
from crewel.broker.mailboxes.mailbox_view import MailboxView
from crewel.delivery.dispatcher import Dispatcher, Rules
from crewel.delivery.dispatcher_states import Holdback
from crewel.delivery.entry import Entry
from crewel.delivery.outcomes import read_statuses
from crewel.qos.connect import Settle
from crewel.qos.update import Origin
from crewel.security.grants import Role, scope_of

SCOPE = scope_of(["view:/a/**"])
RULES = Rules(tells=True, settle=Settle.MESSAGE, retries=9, delay=0.0)


class Queue:
    """A mailbox with these messages, which counts those that are looked at."""

    def __init__(self, *channels: str) -> None:
        self._dispatcher = Dispatcher(RULES)
        self.waiting = channels
        self.read = 0
        self._ledger = self

    def view(self) -> MailboxView:
        return MailboxView(cast("Mailbox", self))

    def channels(self) -> Iterator[str]:
        for each in self.waiting:
            self.read += 1
            yield each

    def find(self, place: int) -> None:
        return None

    def _in_memory(self) -> dict[Entry, None]:
        return {}

    def _transients(self) -> list[Entry]:
        return [Entry({"channel": "/a/x"}, origin=Origin("waits", "0"))]


def session(queue: Queue, *subscriptions: str) -> Any:
    return SimpleNamespace(subscriptions=dict.fromkeys(subscriptions), mailbox=queue)


def covers(queue: Queue, *subscriptions: str) -> bool:
    return covers_session(SCOPE, Role.VIEW, session(queue, *(subscriptions or ("/a/x",))))


def test_a_look_ends_with_the_first_channel_that_is_not_covered() -> None:
    hidden = Queue("/a/x", "/a/x")
    assert not covers(hidden, "/a/x", "/b")
    assert not covers_session(SCOPE, Role.VIEW, session(hidden))
    assert hidden.read == 0
    mixed = Queue("/a/x", "/b", "/a/x")
    assert not covers(mixed)
    assert mixed.read == 2
    assert covers(Queue("/a/x", "/a/y"))


def failed(*failures: tuple[str, str]) -> Queue:
    """The queue of a client that has reported these: a channel, and a code or OK."""
    queue = Queue()
    for number, (channel, code) in enumerate(failures):
        entry = Entry({"channel": channel})
        entry.origin = Origin(str(number), str(number))
        queue._dispatcher.messages.send(entry, 0.0)
        status = {"id": str(number), **({"state": code} if code == "OK" else {"errorCode": code})}
        queue._dispatcher.judge(read_statuses([status])[0], "client/joe/1", 1.0, 1000)
        queue._dispatcher.conclude(1.0)
    return queue


@pytest.mark.parametrize(
    ("failures", "is_covered", "is_shown"),
    [
        ([("/b", "user.no")], True, False),
        ([("/b", "user.no"), ("/a/x", "user.no")], True, True),
        ([("/b", "communication.no")], False, False),
        ([("/b", "communication.no"), ("/a/x", "communication.no")], False, True),
        ([("/a/x", "communication.no")], True, True),
        ([("/b", "communication.no"), ("/a/x", "OK")], True, False),
        ([("/b", "user.update.holdback")], False, False),
    ],
)
def test_a_failure_is_of_its_channel_and_so_is_what_it_has_done(
    failures: list[tuple[str, str]], is_covered: bool, is_shown: bool
) -> None:
    queue = failed(*failures)
    assert (covers(queue), shows_failure(SCOPE, session(queue))) == (is_covered, is_shown)


def test_a_holdback_of_unknown_cause_is_not_covered_unless_its_message_waits() -> None:
    queue = Queue()
    queue._dispatcher.holdback = Holdback("client/joe/1", 1, "user.update.holdback", "gone", "why")
    assert not covers(queue)
    queue._dispatcher.holdback = queue._dispatcher.holdback._replace(message_id="waits")
    assert covers(queue)
    queue._dispatcher.holdback = queue._dispatcher.holdback._replace(message_id="")
    assert covers(queue)


@pytest.mark.parametrize(
    ("channels", "role", "read"),
    [
        ([], Role.DESTROY, 0),
        (["/a/x"] * 3000, Role.DESTROY, 3000),
        (["/a/x"] * 3000 + ["/v/x", "/a/x"], Role.VIEW, 3002),
        (["/v/x", "/b", "/a/x"], None, 2),
    ],
)
async def test_a_queue_of_any_length_is_read_once_for_all_roles(
    channels: list[str], role: Role | None, read: int
) -> None:
    seen: list[str] = []

    async def of(subject: str) -> AsyncIterator[str]:
        for each in channels:
            seen.append(each)
            yield each

    admin: Any = SimpleNamespace(destinations=SimpleNamespace(channels=of))
    scope = scope_of(["destroy:/a/**", "view:/v/*"])
    assert (await role_on_queue(admin, scope, "joe", Role.DESTROY), len(seen)) == (role, read)
