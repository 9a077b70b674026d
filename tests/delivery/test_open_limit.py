"""How many messages may be open at a client: the limit alone, on lists of entries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.delivery.batches import Batches
from crewel.delivery.dispatcher import Dispatcher, Judgement, Rules
from crewel.delivery.entry import Entry
from crewel.delivery.open_limit import OpenLimit
from crewel.delivery.outcomes import Status, read_statuses
from crewel.qos.connect import Settle
from crewel.qos.update import Origin
from tests.delivery.test_batches import close

MESSAGE = Rules(tells=True, settle=Settle.MESSAGE, retries=-1, delay=0.0)
SILENT = replace(MESSAGE, tells=False)


def entry(number: int | str, channel: str = "/a", *, has_origin: bool = True) -> Entry:
    made = Entry({"channel": channel, "data": number})
    made.origin = Origin(str(number), str(number)) if has_origin else None
    return made


def numbers(entries: list[Entry]) -> list[Any]:
    return [each.fields["data"] for each in entries]


class Desk:
    """A limit with what it looks at, and a queue."""

    def __init__(self, most: int, rules: Rules = MESSAGE) -> None:
        self.dispatcher, self.batches = Dispatcher(rules), Batches()
        self.limit = OpenLimit(most, self.dispatcher)
        self.queue: list[Entry] = []

    def wait(self, *entries: Entry) -> Desk:
        for each in entries:
            self.queue.append(each)
            self.limit.queued(each)
        return self

    def send(self) -> list[Any]:
        """What leaves in one response."""
        leaving = self.limit.leaving(self.queue, self.batches)
        self.queue = [each for each in self.queue if each not in leaving]
        self.batches.retain(leaving)
        close(self.batches)
        if self.dispatcher.rules.tells:
            for each in leaving:
                if each.origin is not None:
                    self.dispatcher.messages.send(each, 0.0)
        self.limit.left(self.queue)
        return numbers(leaving)

    def acknowledge(self) -> None:
        self.queue = self.batches.acknowledge(self.batches.number - 1, self.queue)

    def say(self, number: int, state: str) -> None:
        self.dispatcher.judge(read_statuses([{"id": str(number), "state": state}])[0], "client/joe/1", 1.0, 1)

    def lets_some_leave(self) -> bool:
        return self.limit.lets_some_leave(self.queue, self.batches)


def test_as_many_leave_as_may_be_open() -> None:
    desk = Desk(2).wait(entry(1), entry(2), entry(3))
    assert desk.lets_some_leave()
    assert desk.send() == [1, 2]
    assert desk.send() == []
    assert not desk.lets_some_leave()


def test_an_acknowledged_batch_does_not_make_room_where_each_message_has_its_status() -> None:
    desk = Desk(1).wait(entry(1), entry(2))
    desk.send()
    desk.acknowledge()
    assert not desk.lets_some_leave()
    desk.say(1, "OK")
    assert desk.lets_some_leave()
    assert desk.send() == [2]


@pytest.mark.parametrize("state", ["WORKING", "UNCLAIMED"])
def test_a_message_that_has_no_end_yet_stays_open(state: str) -> None:
    desk = Desk(1).wait(entry(1), entry(2))
    desk.send()
    desk.say(1, state)
    assert not desk.lets_some_leave()
    assert desk.send() == []


def test_what_is_open_goes_out_again_and_nothing_with_it() -> None:
    desk = Desk(2).wait(entry(1), entry(2), entry(3))
    desk.send()
    desk.queue = desk.batches.acknowledge(0, desk.queue)  # the reply was lost
    assert desk.lets_some_leave()
    assert desk.send() == [1, 2]
    assert not desk.lets_some_leave()


def test_an_open_message_that_waits_again_passes_those_that_do_not_fit() -> None:
    desk = Desk(1).wait(entry(1))
    first = desk.queue[0]
    desk.send()
    desk.acknowledge()
    desk.wait(entry(2), first)
    assert desk.lets_some_leave()
    assert desk.send() == [1]
    assert numbers(desk.queue) == [2]
    assert not desk.lets_some_leave()


class TestWithoutStatuses:
    def test_the_acknowledgement_of_the_batch_makes_room(self) -> None:
        desk = Desk(1, SILENT).wait(*(entry(each, has_origin=False) for each in (1, 2)))
        assert desk.send() == [1]
        assert desk.send() == []
        desk.acknowledge()
        assert desk.send() == [2]

    def test_what_is_to_be_sent_again_goes_first_and_takes_its_place(self) -> None:
        desk = Desk(2, SILENT).wait(*(entry(each, has_origin=False) for each in (1, 2, 3)))
        desk.send()
        desk.queue = desk.batches.acknowledge(0, desk.queue)
        assert desk.send() == [1, 2]
        assert not desk.lets_some_leave()


class TestAnswers:
    """A client that processes its one message may wait for an answer."""

    @pytest.mark.parametrize("rules", [MESSAGE, SILENT])
    @pytest.mark.parametrize("channel", ["/ret/abc/3000001", "/service/quotes"])
    def test_answers_pass_and_take_no_place(self, rules: Rules, channel: str) -> None:
        desk = Desk(1, rules).wait(entry(1), entry(2), entry("answer", channel))
        assert desk.send() == [1, "answer"]
        assert not desk.lets_some_leave()
        desk.wait(entry("late", channel))
        assert desk.lets_some_leave()
        assert desk.send() == ["late"]
        assert not desk.lets_some_leave()

    def test_open_answers_leave_the_room_as_it_is(self) -> None:
        desk = Desk(1).wait(entry("answer", "/ret/abc/3000001"))
        desk.send()
        assert "answer" in desk.dispatcher.messages.opened
        desk.wait(entry(1), entry(2))
        assert desk.send() == [1]

    def test_a_message_to_the_session_on_a_service_channel_is_none(self) -> None:
        addressed = entry(2, "/service/orders")
        addressed.to = "client/joe/1"
        desk = Desk(1).wait(entry(1), addressed)
        assert desk.send() == [1]

    def test_a_message_without_an_id_can_have_no_status(self) -> None:
        desk = Desk(1).wait(entry(1), entry("plain", has_origin=False))
        assert desk.send() == [1, "plain"]

    def test_a_message_that_is_sent_once_is_never_open(self) -> None:
        desk = Desk(1).wait(entry(1), entry("once").oneway())
        assert desk.send() == [1, "once"]


class Session(Desk):
    """The limit in a session whose client loses replies, fails messages, and is late."""

    def __init__(self, most: int) -> None:
        super().__init__(most, replace(MESSAGE, ack_wait=5.0))
        self.published = 0
        self.at_client: set[int] = set()
        """What the client has got and given no status."""
        self.first: list[int] = []
        self.settled: set[int] = set()
        self.now = 0.0

    def publish(self, _: int) -> None:
        self.published += 1
        self.wait(entry(self.published))

    def get(self, _: int) -> None:
        """The client gets a response and acknowledges it."""
        may_leave = self.lets_some_leave()
        got = self.send()
        assert bool(got) is may_leave
        self.acknowledge()
        self.first += [each for each in got if each not in self.first]
        self.at_client |= set(got)
        assert len(self.at_client) <= self.limit.most

    def lose(self, _: int) -> None:
        """A response is lost: what it carried goes out again."""
        self.send()
        self.queue = self.batches.acknowledge(self.batches.number - 2, self.queue)

    def settle(self, pick: int) -> None:
        if self.at_client:
            number = sorted(self.at_client)[pick % len(self.at_client)]
            self._carry_out(read_statuses([{"id": str(number), "state": "OK"}])[0])

    def fail(self, pick: int) -> None:
        if self.at_client:
            number = sorted(self.at_client)[pick % len(self.at_client)]
            self._carry_out(read_statuses([{"id": str(number), "errorCode": "communication.noConnection"}])[0])

    def _carry_out(self, statuses: list[Status]) -> None:
        self._move(self.dispatcher.judge(statuses, "client/joe/1", self.now, 1))

    def be_late(self, _: int) -> None:
        """Time passes: what has no status fails."""
        self.now += 10.0
        self._move(self.dispatcher.overdue(self.now, 0))

    def _move(self, judgement: Judgement) -> None:
        put_back = [each.entry for each in judgement.put_back]
        for each in (*judgement.settled, *put_back):
            self.queue = self.batches.take_out([each], self.queue)
            self.at_client.discard(each.fields["data"])
        self.settled |= set(numbers(judgement.settled))
        self.batches.unbatch()
        self.queue = sorted({*self.queue, *put_back}, key=lambda each: each.fields["data"])
        self.limit.left(self.queue)
        self.dispatcher.conclude(self.now)


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(("publish", "get", "lose", "settle", "fail", "be_late")), st.integers(0, 5))),
)
def test_never_are_more_open_than_asked_and_none_is_lost(most: int, steps: list[tuple[str, int]]) -> None:
    session = Session(most)
    for name, pick in steps:
        getattr(session, name)(pick)
    while len(session.settled) < session.published:
        session.get(0)
        session.settle(0)
    if most == 1:
        assert session.first == list(range(1, session.published + 1))
