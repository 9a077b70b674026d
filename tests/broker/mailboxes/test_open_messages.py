"""What a session has not settled, wherever it lies: it is moved and counted without anything lost, doubled or out of order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
import pytest

from crewel.bayeux.message import Fields
from crewel.broker.dead_letters.redrive import Chosen, Limits
from crewel.broker.mailboxes.ends import Ends
from crewel.delivery.entry import Entry
from tests.broker.stored_world import MESSAGE, MakeStored, Receiver, StoredWorld, data, failed, ok, origin, store
from tests.work import instructions

HELD, GONE = "user.update.holdback", "communication.noConnection"


def hold(world: StoredWorld, client: Receiver) -> None:
    world.wait(world.broker.mailboxes.dispatchers.hold(client.session, "admin"))


def activate(world: StoredWorld, client: Receiver) -> None:
    world.wait(world.broker.mailboxes.dispatchers.activate(client.session))
    world.settle()


def waiting(world: StoredWorld, client: Receiver) -> int:
    return client.session.mailbox.view().depth


def test_a_message_that_a_busy_client_has_no_room_for_is_no_failure(stored: StoredWorld, joe: Receiver) -> None:
    store(stored, "/a", 0)
    (first,) = joe.take()
    store(stored, "/a", 1)
    joe.reconnect(advice={"timeout": 0})
    assert data(joe.take()) == [1]  # it had not acknowledged it: it has no room
    metrics = stored.broker.metrics
    assert (metrics.resends, metrics.resends_busy) == (0, 1)
    assert joe.take(ok(first)) == []


class TestOrder:
    def test_what_is_held_back_goes_before_what_the_client_did_not_get(
        self, stored: StoredWorld, joe: Receiver
    ) -> None:
        store(stored, "/a", 0)
        (held,) = joe.take()
        store(stored, "/a", 1, 2, 3)
        joe.reconnect(advice={"timeout": 0})  # its reply is lost
        assert joe.take(failed(held, HELD)) == []
        store(stored, "/a", 4)
        request = joe.reconnect()
        activate(stored, joe)
        assert data(joe.heard(request)) == [0, 1, 2, 3, 4]

    def test_unstored_messages_that_are_held_back_go_first(self, stored: StoredWorld, joe: Receiver) -> None:
        stored.broker.publish("/a", 0)
        (held,) = joe.take()
        for number in (1, 2, 3):
            stored.broker.publish("/a", number)
        joe.reconnect(advice={"timeout": 0})  # its reply is lost
        assert joe.take(failed(held, HELD)) == []
        stored.broker.publish("/a", 4)
        request = joe.reconnect()
        activate(stored, joe)
        assert data(joe.heard(request)) == [0, 1, 2, 3, 4]

    def test_what_has_no_origin_stays_where_it_is(self, stored: StoredWorld) -> None:
        client = Receiver(stored)
        assert client.handshake(ext={"ack": True, "session": {"name": "eve/1"}})["successful"]
        client.take()
        client.subscribe("/b")
        stored.broker.publish("/b", 1)
        Receiver(stored).started("/b", name="joe/1")  # from here on messages have origins
        stored.broker.publish("/b", 2)
        hold(stored, client)
        stored.broker.publish("/b", 3)
        activate(stored, client)
        assert data(client.take()) == [1, 2, 3]

    def test_what_is_put_back_from_the_middle_keeps_its_place(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started(
            "/a", dispatcher={"retries": -1, "delay": 1000}, burst={"maxEntries": 3}, **MESSAGE
        )
        store(stored, "/a", *range(7))
        messages = joe.take()
        assert data(messages) == [0, 1, 2]
        joe.tell(failed(messages[2], GONE), ok(messages[0]), failed(messages[1], GONE))
        stored.advance(1.1)
        assert [data(joe.take()) for _ in range(3)] == [[1, 2, 3], [4, 5, 6], []]

    def test_a_message_that_comes_while_bodies_are_read_comes_behind_them(
        self, stored: StoredWorld, joe: Receiver
    ) -> None:
        hold(stored, joe)
        store(stored, "/a", *range(250))
        activate(stored, joe)
        got: list[Any] = []
        for number in range(250, 260):
            got += data(joe.take())
            store(stored, "/a", number)
        while more := data(joe.take()):
            got += more
        assert got == list(range(260))

    def test_held_back_while_bodies_are_read_they_wait_again(self, stored: StoredWorld, joe: Receiver) -> None:
        hold(stored, joe)
        store(stored, "/a", 1, 2, 3)
        dispatchers, session = stored.broker.mailboxes.dispatchers, joe.session
        request = joe.reconnect()
        releasing = stored.loop.create_task(dispatchers.activate(session))
        stored.loop.run_until_complete(_turns(2))  # the bodies are asked for
        again = stored.loop.create_task(dispatchers.hold(session, "admin"))
        stored.settle()
        assert releasing.done()
        assert again.done()
        if not request.is_held:  # they were quicker, all of them
            assert data(joe.heard(request)) == [1, 2, 3]
            return
        assert waiting(stored, joe) == 3
        activate(stored, joe)
        assert data(joe.heard(request)) == [1, 2, 3]


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class TestSettledBesideTheQueue:
    def test_what_is_settled_while_it_waits_to_go_out_again_is_not_sent(
        self, stored: StoredWorld, joe: Receiver
    ) -> None:
        store(stored, "/a", 1, 2)
        first, _ = joe.take()
        joe.ack = 1  # as if the reply had been lost
        hold(stored, joe)
        assert joe.take() == []
        activate(stored, joe)
        assert "ext" not in joe.tell(ok(first))
        assert data(joe.take()) == [2]
        assert waiting(stored, joe) == 1

    def test_what_is_dropped_while_it_is_open_can_not_end_again(self, stored: StoredWorld, joe: Receiver) -> None:
        (place,) = store(stored, "/a", 1)
        (message,) = joe.take()
        stored.wait(stored.broker.mailboxes.dispatchers.clear(joe.session))
        assert joe.tell(failed(message, "user.no"))["ext"]["update"]["rejected"]
        assert stored.ended() == [("client/joe/1", "dropped", int(place))]
        assert stored.letters() == []


class TestBounds:
    def bounded(self, world: StoredWorld, most: int, policy: str = "deadMessage", **session: Any) -> Receiver:
        queue = {"maxEntries": most, "onOverflow": policy}
        return Receiver(world).started("/a", queue=queue, **{**MESSAGE, **session})

    def test_what_is_open_and_waits_again_counts_once(self, stored: StoredWorld) -> None:
        joe = self.bounded(stored, 5)
        store(stored, "/a", 0)
        (held,) = joe.take()
        store(stored, "/a", 1, 2, 3)
        joe.reconnect(advice={"timeout": 0})  # its reply is lost
        joe.take(failed(held, HELD))
        hold(stored, joe)
        activate(stored, joe)
        hold(stored, joe)
        store(stored, "/a", 4)
        assert stored.letters() == []
        store(stored, "/a", 5)
        assert [each.body for each in stored.letters()] == [b'{"channel":"/a","data":5}']

    def test_what_has_ended_while_it_was_evicted_counts_no_more(self, stored: StoredWorld) -> None:
        joe = self.bounded(stored, 3)
        store(stored, "/a", 1, 2, 3)
        messages = joe.take()
        joe.ack = 1
        hold(stored, joe)
        joe.take()
        joe.tell(*map(ok, messages))
        assert waiting(stored, joe) == 0
        store(stored, "/a", 4, 5, 6)
        assert stored.letters() == []

    def test_drop_oldest_makes_room_and_what_was_dropped_is_open_no_more(self, stored: StoredWorld) -> None:
        joe = self.bounded(stored, 3, "dropOldest", ackWait=1000)
        ids = store(stored, "/a", 1, 2, 3)
        joe.take()
        joe.ack = 1
        hold(stored, joe)
        assert joe.take() == []
        store(stored, "/a", 4)
        assert waiting(stored, joe) == 3
        stored.advance(5)
        assert [each for each in stored.ended() if each[2] == int(ids[0])] == [("client/joe/1", "dropped", int(ids[0]))]

    def test_drop_oldest_leaves_what_is_at_the_client(self, stored: StoredWorld) -> None:
        joe = self.bounded(stored, 2, "dropOldest")
        store(stored, "/a", 1, 2)
        messages = joe.take()
        store(stored, "/a", 3)
        assert [each[1] for each in stored.ended()] == ["dropped"]
        joe.take(*map(ok, messages))
        assert [each[1] for each in stored.ended()] == ["dropped", "settled", "settled"]

    def test_disconnect_ends_the_session(self, stored: StoredWorld) -> None:
        joe = self.bounded(stored, 2, "disconnect")
        store(stored, "/a", 1, 2)
        joe.take()
        store(stored, "/a", 3)
        assert not joe.is_known
        assert len(stored.letters()) + sum(each[1] == "dropped" for each in stored.ended()) == 3


class TestLetters:
    def test_of_a_message_that_was_never_stored_the_letter_keeps_everything(
        self, stored: StoredWorld, joe: Receiver
    ) -> None:
        eve = Receiver(stored).started(name="eve/1")
        eve.publish("/a", {"n": 1}, ext={"publish": {"key": "k"}})
        (message,) = joe.take()
        joe.tell(failed(message, "user.no", "because"))
        (letter,) = stored.letters()
        assert (letter.id, letter.received) == (origin(message)["id"], origin(message)["rcvTimestamp"])
        assert (letter.code, letter.reason, letter.attempts) == ("user.no", "because", 1)
        assert (letter.sender, letter.is_persistent) == ("client/eve/1", False)
        assert orjson.loads(letter.body) == {"channel": "/a", "data": {"n": 1}}

    def test_those_of_one_turn_are_each_in_a_letter_of_their_own(self, stored: StoredWorld, joe: Receiver) -> None:
        for number in range(3):
            stored.broker.publish("/a", number)
        joe.tell(*(failed(each, "user.no") for each in joe.take()))
        assert len({each.id for each in stored.letters()}) == 3

    def test_what_the_server_says_of_itself_only_ends(self, stored: StoredWorld, joe: Receiver) -> None:
        entry = Entry({"channel": "/__sys__Event", "data": 1})
        stored.broker.mailboxes.outbound.enqueue(joe.session, entry)
        before = stored.broker.metrics.dropped["noLetter"]
        assert stored.wait(stored.broker.mailboxes.dispatchers.drain(joe.session)) == 1
        assert stored.letters() == []
        assert stored.broker.metrics.dropped["noLetter"] == before + 1

    def test_a_session_that_the_store_does_not_have_leaves_none(self, stored: StoredWorld, joe: Receiver) -> None:
        kept = joe.session.durable
        assert kept is not None
        joe.session.leave_store()
        stored.broker.publish("/a", 1)
        assert Ends(joe.session.mailbox).dead_letter_one("", "user.no", "") is True
        joe.session.join_store(kept)
        assert stored.letters() == []

    def test_what_arrives_at_a_full_queue_of_the_servers_own_makes_none_either(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", queue={"maxEntries": 1}, **MESSAGE)
        store(stored, "/a", 1)
        stored.broker.deliver(joe.session, "/__sys__Event", 2)
        assert stored.letters() == []
        assert stored.broker.metrics.dropped["noLetter"] == 1

    def test_a_stored_message_at_a_full_queue_ends_too(self, stored: StoredWorld) -> None:
        stored.broker.admission.admin.know("secret")
        joe = Receiver(stored).started("/__sys__x", token="secret", queue={"maxEntries": 1}, **MESSAGE)
        store(stored, "/__sys__x", 1, 2)
        assert waiting(stored, joe) == 1
        assert stored.letters() == []
        assert [each[1] for each in stored.ended()] == ["dropped"]

    def test_the_message_that_is_held_back_is_skipped_though_it_is_not_stored(
        self, stored: StoredWorld, joe: Receiver
    ) -> None:
        for number in (1, 2):
            stored.broker.publish("/a", number)
        first, second = joe.take()
        joe.take(ok(first), failed(second, HELD))
        stored.broker.publish("/a", 3)
        dispatchers = stored.broker.mailboxes.dispatchers
        assert stored.wait(dispatchers.skip(joe.session)) == 1
        assert [each.id for each in stored.letters()] == [origin(second)["id"]]
        assert stored.wait(dispatchers.skip(joe.session)) == 1
        assert stored.wait(dispatchers.skip(joe.session)) == 0
        assert [each.attempts for each in stored.letters()] == [1, 0]

    def test_a_skip_by_id_leaves_the_other_messages(self, stored: StoredWorld, joe: Receiver) -> None:
        for number in (1, 2, 3):
            stored.broker.publish("/a", number)
        first, second, _ = joe.take()
        joe.take(failed(first, HELD))
        dispatchers = stored.broker.mailboxes.dispatchers
        named = [origin(second)["id"], origin(second)["id"], "no-id"]
        assert [stored.wait(dispatchers.skip(joe.session, each)) for each in named] == [1, 0, 0]
        assert [each.id for each in stored.letters()] == [origin(second)["id"]]
        assert joe.session.mailbox.view().depth == 2


class TestTelling:
    def test_the_pattern_by_which_it_is_heard_is_told_if_it_is_not_the_channel(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", "/b/*", **MESSAGE)
        store(stored, "/a", 1)
        store(stored, "/b/c", 2)
        exact, matched = joe.take()
        assert "subscription" not in origin(exact)
        assert origin(matched)["subscription"] == "/b/*"

    def test_the_backlog_is_told_while_it_is_flushed(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started("/a", burst={"maxEntries": 2}, **MESSAGE)
        stored.sweep_after(15)
        store(stored, "/a", 1, 2, 3)
        messages = [*joe.take(), *joe.take()]
        assert [origin(each).get("queue") for each in messages] == [
            {"index": 0, "size": 3},
            {"index": 1, "size": 3},
            {"index": 0, "size": 1},
        ]
        store(stored, "/a", 4)
        (message,) = joe.take()
        assert "queue" not in origin(message)

    def test_an_answer_to_a_remote_call_has_no_origin_and_is_settled_by_its_batch(self, stored: StoredWorld) -> None:
        joe = Receiver(stored).started(**MESSAGE)
        stored.broker.deliver(joe.session, "/service/x", 1)
        (message,) = joe.take()
        assert "ext" not in message
        assert joe.take() == []
        assert waiting(stored, joe) == 0


class TestRedriven:
    def letter(self, world: StoredWorld, joe: Receiver, value: Any = 1) -> None:
        store(world, "/a", value)
        *_, message = joe.take()
        joe.take(failed(message, "user.no"))
        assert len(world.letters()) == 1

    def redrive(self, world: StoredWorld) -> None:
        redriving = world.broker.dead_letters.redrive
        report = world.wait(redriving.redrive(Chosen(ids=[each.dead_id for each in world.letters()]), Limits()))
        world.settle()
        assert report.done == 1

    def test_a_letter_comes_again_and_says_which_it_was(self, stored: StoredWorld, joe: Receiver) -> None:
        self.letter(stored, joe)
        (letter,) = stored.letters()
        self.redrive(stored)
        (again,) = joe.take()
        assert again["data"] == 1
        assert origin(again)["id"] != letter.id
        assert origin(again)["clientProperties"]["__redriveOf"] == letter.dead_id

    def test_a_held_connect_is_answered_with_it(self, stored: StoredWorld, joe: Receiver) -> None:
        self.letter(stored, joe)
        request = joe.reconnect()
        self.redrive(stored)
        assert data(joe.heard(request)) == [1]

    def test_a_redriven_message_comes_after_what_is_older(self, stored: StoredWorld, joe: Receiver) -> None:
        self.letter(stored, joe, "letter")
        hold(stored, joe)
        store(stored, "/a", 2, 3)
        self.redrive(stored)
        store(stored, "/a", 4)
        activate(stored, joe)
        assert data(joe.take()) == [2, 3, "letter", 4]

    def test_settled_it_leaves_the_inbox_although_nothing_is_published(
        self, stored: StoredWorld, joe: Receiver
    ) -> None:
        self.letter(stored, joe)
        self.redrive(stored)
        (again,) = joe.take()
        joe.tell(ok(again))
        assert stored.inbox(joe.session) == []
        assert [each[1] for each in stored.ended()] == ["dead", "settled"]

    def test_failed_again_it_is_a_letter_that_has_come_back(self, stored: StoredWorld, joe: Receiver) -> None:
        self.letter(stored, joe)
        self.redrive(stored)
        (again,) = joe.take()
        joe.tell(failed(again, "user.again"))
        (letter,) = stored.letters()
        assert (letter.code, letter.returns) == ("user.again", 1)

    def test_a_sink_makes_a_letter_of_it_at_once(self, make_stored: MakeStored) -> None:
        world = make_stored("delivery.on_user_error=dead")
        joe = Receiver(world).started("/a", **MESSAGE)
        self.letter(world, joe)
        self.redrive(world)
        (letter,) = world.letters()
        assert letter.returns == 1

    def test_a_redriven_message_survives_a_crash(
        self, stored: StoredWorld, make_stored: MakeStored, joe: Receiver
    ) -> None:
        self.letter(stored, joe)
        hold(stored, joe)
        self.redrive(stored)
        stored.crash()
        joe.world = after = make_stored(prefix=stored.prefix)
        activate(after, joe)
        assert data(joe.take()) == [1]

    def test_whose_receiver_is_away_it_waits_for(self, stored: StoredWorld, joe: Receiver) -> None:
        self.letter(stored, joe)
        stored.sweep_after(15)
        self.redrive(stored)
        assert waiting(stored, joe) == 1
        assert data(joe.take()) == [1]


@pytest.mark.parametrize("operation", ["drop", "dead_letter_all"])
def test_the_end_of_all_that_waits_costs_each_message_the_same(make_stored: MakeStored, operation: str) -> None:
    costs = {}
    for count in (100, 400):
        world = make_stored()
        joe = Receiver(world).started("/a", name="joe/1")
        for number in range(count):
            world.broker.publish("/a", number)
            store(world, "/a", number)
        mailbox = joe.session.mailbox
        ends = {
            "drop": partial(Ends(mailbox).drop_first, 2 * count),
            "dead_letter_all": partial(Ends(mailbox).dead_letter_all, 0, "user.x", ""),
        }
        costs[count] = instructions(ends[operation])
        assert joe.session.mailbox.view().depth == 0
    assert costs[400] < 4.4 * costs[100], costs


@pytest.mark.parametrize("is_acknowledged", [False, True])
@pytest.mark.parametrize("report", [ok, partial(failed, code="user.update.x"), partial(failed, code=HELD)])
def test_many_statuses_cost_each_message_the_same(
    make_stored: MakeStored, report: Callable[[Fields], Fields], is_acknowledged: bool
) -> None:
    costs = {}
    for count in (100, 400):
        world = make_stored()
        joe = Receiver(world).started("/a", **MESSAGE, queue={"maxEntries": 2000})
        for number in range(count):
            world.broker.publish("/a", number)
        opened = joe.take()
        assert len(opened) == count
        if is_acknowledged:
            joe.take()
        for number in range(count):
            world.broker.publish("/a", number)
        statuses = [*map(report, opened)]
        dispatchers = world.broker.mailboxes.dispatchers
        costs[count] = instructions(partial(dispatchers.handle_statuses, joe.session, statuses))
        assert waiting(world, joe) == (2 * count if report(opened[0]).get("errorCode") == HELD else count)
    assert costs[400] < 5 * costs[100], costs
