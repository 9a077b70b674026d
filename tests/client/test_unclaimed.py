"""Messages that no listener takes: what the client keeps, tells and hands to a late listener."""

import asyncio
import logging
from typing import Any

import pytest

from crewel.bayeux.message import Fields
from crewel.client import Client, Message, Overflow
from crewel.client import router as router_module
from crewel.client.client_extension import AckExtension
from crewel.client.client_message import DEAD_MESSAGE, Handling
from crewel.client.config import Config
from crewel.client.router import Router, Unclaimed
from crewel.client.settle import Ledger
from crewel.client.subscription import Subscription
from tests.client.support import LIMIT_S
from tests.client.test_router import no_release, subscribed
from tests.client.test_update import World, delivery, ok

URL = "http://localhost/cometd"
UNDERSTOOD = {"update": True, "reconnected": False, "unclaimed": True}


def unclaimed(*ids: str) -> list[Fields]:
    return [{"id": message_id, "state": "UNCLAIMED"} for message_id in ids]


class Desk:
    """A router with the bookkeeping of one session."""

    def __init__(self, limit_s: float | None = None, *, reports_ok: bool = True) -> None:
        self.ledger = Ledger(reports_ok=reports_ok, changed=lambda: None)
        self.ledger.reports_unclaimed = True
        self.router = Router(Unclaimed(limit_s))

    def come(self, message_id: str, channel: str = "/a") -> Handling:
        """Deliver a message as the connection does."""
        fields = delivery(message_id) | {"channel": channel}
        handling = self.ledger.begin(message_id)
        since = self.router.unclaimed.drop(fields)
        if self.router.deliver(fields, retained=True, handling=handling):
            handling.end()
        else:
            self.router.unclaimed.keep(fields, handling, since)
        return handling

    def told(self) -> list[Fields]:
        """The statuses of the next request."""
        return self.ledger.statuses.take(object(), 100_000)

    def listener(self, channel: str, *, is_last: bool = False) -> Subscription:
        made = Subscription(
            channel, bound=10, overflow=Overflow.HOLD, release=no_release, on_room=self.router.made_room
        )
        self.router.add_listener(made, is_last=is_last)
        return made


async def ids(subscription: Subscription) -> list[str | None]:
    """The ids of what is queued, each settled."""
    found = []
    while subscription.queued:
        message = await subscription.receive(1)
        message.settle()
        found.append(message.id)
    return found


async def test_a_message_without_a_listener_is_told_as_unclaimed_and_goes_to_the_first_that_comes() -> None:
    desk = Desk()
    for number in ("1", "2", "3"):
        desk.come(number, "/b" if number == "2" else "/a")
    assert desk.told() == unclaimed("1", "2", "3")
    late = subscribed(desk.router, "/a")
    assert desk.told() == [{"id": each, "state": "WORKING"} for each in ("1", "3")]
    assert await ids(late) == ["1", "3"]
    assert desk.told() == ok("1", "3")
    assert await ids(desk.listener("/**")) == ["2"]
    assert len(desk.router.unclaimed) == 0


async def test_a_copy_replaces_the_message_and_is_heard_once() -> None:
    desk = Desk()
    for number in ("1", "2", "1"):
        desk.come(number)
    assert await ids(subscribed(desk.router, "/a")) == ["2", "1"]


async def test_each_channel_is_logged_once_until_a_listener_comes(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    for number in ("1", "2"):
        desk.come(number)
    warnings = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert warnings == ["no listener takes the messages of /a: they stay open at the server until one does"]


async def test_after_its_time_a_message_is_rejected() -> None:
    desk = Desk(0.05)
    desk.come("1")
    desk.come("1")  # a copy has no more time
    assert desk.told() == unclaimed("1")
    async with asyncio.timeout(LIMIT_S):
        while len(desk.router.unclaimed):
            await asyncio.sleep(0.01)
    reason = "no listener took it within 0.05 s"
    assert desk.told() == [{"id": "1", "errorCode": DEAD_MESSAGE, "message": reason}]
    assert not subscribed(desk.router, "/a").queued


async def test_without_time_it_is_rejected_at_once() -> None:
    desk = Desk(0.0)
    desk.come("1")
    [status] = desk.told()
    assert status["errorCode"] == DEAD_MESSAGE


async def test_a_message_that_cannot_be_rejected_waits_without_limit_and_keeps_no_other_waiting() -> None:
    desk = Desk(0.05)
    desk.router.unclaimed.keep({"channel": "/a", "data": 1}, None)
    desk.come("1")
    async with asyncio.timeout(LIMIT_S):
        while len(desk.router.unclaimed) > 1:
            await asyncio.sleep(0.01)
    assert [each["id"] for each in desk.told()] == ["1"]
    assert desk.router.unclaimed._timer is None  # it would be due again at once


async def test_the_last_listener_hears_what_nothing_else_hears() -> None:
    desk = Desk()
    desk.come("1", "/b")
    rest = desk.listener("/**", is_last=True)
    first = subscribed(desk.router, "/a")
    desk.come("2", "/a")
    desk.come("3", "/b")
    assert (await ids(first), await ids(rest)) == (["2"], ["1", "3"])


async def test_what_a_failed_reader_has_not_read_goes_to_the_next_one() -> None:
    desk = Desk()
    reader = subscribed(desk.router, "/a")
    for number in ("1", "2", "3"):
        desk.come(number)
    taken = await reader.receive(1)
    desk.router.remove(reader)
    assert await ids(subscribed(desk.router, "/a")) == ["2", "3"]
    taken.settle()
    assert [each["id"] for each in desk.told() if each["state"] == "OK"] == ["2", "3", "1"]


async def test_a_message_that_two_heard_is_settled_by_the_one_that_stays() -> None:
    desk = Desk()
    gone, stays = subscribed(desk.router, "/a"), subscribed(desk.router, "/a")
    desk.come("1")
    desk.router.remove(gone)
    assert await ids(stays) == ["1"]
    assert [each["state"] for each in desk.told()] == ["OK"]


async def test_what_still_comes_for_an_unsubscribed_channel_is_not_wanted() -> None:
    router = Router()
    router.begin_session(is_reconnected=False)
    for channel in ("/a", "/b/*"):
        reader = subscribed(router, channel)
        reader.is_unwanted = True
        router.remove(reader)

    def is_unwanted(channel: str, **update: Any) -> bool:
        fields = delivery("1", **update) | {"channel": channel}
        return router.is_unwanted(Message(channel, 1, fields))

    assert is_unwanted("/a")
    assert is_unwanted("/b/c", subscription="/b/*")
    assert is_unwanted("/b/c")
    assert not is_unwanted("/a", subscription="/**")  # of another client that had the session before
    assert not is_unwanted("/a", subscription="__subId:PtP")
    assert not is_unwanted("/c")
    subscribed(router, "/a")
    assert not is_unwanted("/a")
    router.begin_session(is_reconnected=True)
    assert is_unwanted("/b/c")
    router.begin_session(is_reconnected=False)
    assert not is_unwanted("/b/c")


async def test_no_more_channels_are_remembered_than_the_last_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_module, "_UNWANTED_REMEMBERED", 2)
    router = Router()
    for number in range(4):
        reader = subscribed(router, f"/a/{number}")
        reader.is_unwanted = True
        router.remove(reader)
    messages = [Message(f"/a/{number}", 1, delivery("1") | {"channel": f"/a/{number}"}) for number in range(4)]
    assert [router.is_unwanted(each) for each in messages] == [False, False, True, True]


async def test_in_a_session_of_another_client_a_wildcard_that_ended_says_nothing_of_names() -> None:
    router = Router()
    router.begin_session(is_reconnected=True)
    reader = subscribed(router, "/b/*")
    reader.is_unwanted = True
    router.remove(reader)
    assert not router.is_unwanted(Message("/b/c", 1, delivery("1") | {"channel": "/b/c"}))


async def test_a_subscription_that_a_full_queue_has_ended_takes_nothing() -> None:
    desk = Desk()
    full = subscribed(desk.router, "/a", bound=1, overflow=Overflow.CLOSE)
    for number in ("1", "2", "3"):
        desk.come(number)
    assert await ids(full) == ["1"]
    assert await ids(subscribed(desk.router, "/a")) == ["3"]


async def test_elsewhere_no_more_than_a_thousand_are_kept() -> None:
    router = Router()
    for number in range(1002):
        router.unclaimed.keep({"channel": "/a", "data": number}, None)
    late = subscribed(router, "/a", bound=2000)
    assert (await late.receive(1)).data == 2
    assert late.queued == 999


# By batch: the acknowledgement settles what no status names


async def test_by_batch_a_connect_acknowledges_when_it_tells_of_all_that_has_no_listener() -> None:
    async with World("batch") as world:
        world.shake(UNDERSTOOD)
        handling = world.update.begin(delivery("1"))
        assert handling is not None
        handling.unclaimed()
        assert world.connect() == unclaimed("1")
        assert world.update.may_acknowledge
        handling.working()
        assert not world.update.may_acknowledge
        handling.end()
        world.answer()
        assert world.connect() == ok("1")  # its batch is acknowledged, and would not settle it any more
        assert world.update.may_acknowledge


async def test_by_batch_it_does_not_while_another_request_tells_of_it() -> None:
    async with World("batch") as world:
        world.shake(UNDERSTOOD)
        world.connect()
        handling = world.update.begin(delivery("1"))
        assert handling is not None
        handling.unclaimed()
        told, _ = await world.told()
        assert told == unclaimed("1")
        assert world.connect() == []
        assert not world.update.may_acknowledge


async def test_a_server_that_does_not_understand_is_told_nothing_and_its_batch_is_not_acknowledged() -> None:
    async with World("batch") as world:
        handling = world.update.begin(delivery("1"))
        assert handling is not None
        handling.unclaimed()
        assert world.connect() == []
        assert not world.update.may_acknowledge


async def test_that_it_has_ended_meanwhile_is_no_news_for_the_application() -> None:
    rejected: list[Fields] = []
    async with World(on_rejected=rejected.append) as world:
        world.connect()
        reasons = [{**each, "reason": "no message of this id is open"} for each in (*unclaimed("1"), *ok("2"))]
        world.answer(ext={"update": {"rejected": reasons}})
        assert [each["id"] for each in rejected] == ["2"]


def test_what_a_lost_connect_acknowledged_is_not_taken_as_told() -> None:
    is_handled = True
    ack = AckExtension(lambda: is_handled)

    def connect(number: int) -> Any:
        return ack.outgoing({"channel": "/meta/connect", "id": str(number)})["ext"]["ack"]

    def answer(number: int, batch: int) -> None:
        ack.incoming({"channel": "/meta/connect", "id": str(number), "successful": True, "ext": {"ack": batch}})

    ack.outgoing({"channel": "/meta/handshake"})
    ack.incoming({"channel": "/meta/handshake", "successful": True, "ext": {"ack": True}})
    assert connect(1) == 0
    answer(1, 1)
    assert connect(2) == 1
    answer(2, 2)
    assert connect(3) == 2  # and no answer
    is_handled = False
    assert connect(4) == 1


# Settings


def test_the_time_for_listeners_is_checked() -> None:
    with pytest.raises(ValueError, match="unclaimed_timeout is a number of seconds, or -1 for no limit, not 'x'"):
        Config(URL, update=True, unclaimed_timeout="x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unclaimed_timeout needs update"):
        Client(URL, unclaimed_timeout=5)
    assert Config(URL, update=True, unclaimed_timeout=-1).unclaimed_s is None
    assert Config(URL, update=True, unclaimed_timeout=0).unclaimed_s == 0


def test_a_session_that_waits_for_its_client_reports() -> None:
    reporting = {"update": True, "settle": "batch", "ackWait": -1}
    assert Config(URL, name="joe/1").login.items() >= {"name": "joe/1", **reporting}.items()
    assert Config(URL, resume="x").login["update"]
    assert Config(URL, resume_file="x").login["update"]
    assert Config(URL, token="x").login == {}  # which shows the token, and nothing else
    assert Config(URL, session={"name": "joe/1", "settle": "message"}).login == {"name": "joe/1", "settle": "message"}
    assert Config(URL, session={"name": "joe/1", "update": False}).login["update"] is False
