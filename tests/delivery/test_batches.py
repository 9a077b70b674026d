"""Batches: what is sent is kept until it is acknowledged.

`Link` is one session and its client with a network between them that loses replies and lets connects overtake each other;
the properties at the end drive it at random.
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.delivery.batches import FIRST_RESEND_DELAY, MAX_RESEND_DELAY, Batches
from crewel.delivery.entry import Entry
from crewel.delivery.records import LogId


def entries(*numbers: int) -> list[Entry]:
    return [Entry({"channel": "/a", "data": number}) for number in numbers]


def numbers_of(queue: list[Entry]) -> list[int]:
    return [entry.fields["data"] for entry in queue]


def close(batches: Batches) -> int:
    """Let a reply go out, as the mailbox does: its number."""
    if batches.must_resend:
        batches.unbatch()
    batches.number += 1
    return batches.number - 1


def sent(batches: Batches, queue: list[Entry]) -> int:
    """Let these leave in one connect reply; the batch number that the reply tells."""
    batches.retain(queue)
    return close(batches)


def living(**expiries: int) -> list[Entry]:
    """Messages by name, with the time at which they go out of all queues."""
    return [Entry({"channel": "/a", "data": name}, expires=expires) for name, expires in expiries.items()]


def test_numbers_continue_in_the_block_that_the_store_has_reserved() -> None:
    batches = Batches()
    batches.continue_from(3000)
    first = entries(1)
    assert sent(batches, first) == 2001
    assert batches.reserve_at == 2501
    assert batches.acknowledge(1007, []) == first, "the number of an earlier server acknowledges nothing"


class TestHandingOver:
    def test_all_that_is_open_is_handed_over_once(self) -> None:
        batches = Batches()
        assert batches.hand_over() == []
        sent(batches, entries(1, 2))
        assert numbers_of(batches.hand_over()) == [1, 2]
        sent(batches, entries(3))
        sent(batches, entries(4, 5))
        assert numbers_of(batches.hand_over()) == [3, 4, 5]
        assert (batches.unacknowledged, batches.hand_over()) == ([], [])

    def test_handing_over_is_progress(self) -> None:
        batches = Batches()
        for _ in range(4):
            sent(batches, entries(1))
            batches.acknowledge(0, [])
        assert batches.resend_delay() > 0
        batches.hand_over()
        assert batches.resend_delay() == 0


@pytest.mark.parametrize(
    ("connects", "in_hand", "is_busy"), [(1, 0, False), (1, 1, False), (1, 2, True), (2, 0, True), (2, 1, True)]
)
def test_a_client_with_others_in_hand_or_that_repeats_itself_is_busy(
    connects: int, in_hand: int, is_busy: bool
) -> None:
    batches = Batches()
    for number in range(connects):
        sent(batches, entries(number))
        batches.acknowledge(0, [])
    batches.note_busy(in_hand)
    assert batches.is_busy is is_busy


def test_all_that_is_open_is_acknowledged_at_once() -> None:
    batches = Batches()
    for number in range(4):
        sent(batches, entries(number))
        batches.acknowledge(0, [])
    assert batches.resend_delay() > 0
    batches.reset()
    sent(batches, entries(5, 6))
    assert numbers_of(batches.hand_over()) == [5, 6]
    assert batches.unacknowledged == []
    assert batches.resend_delay() == 0, "it is progress"


class TestExpiring:
    def test_what_is_queued_and_over_goes(self) -> None:
        queue, gone = Batches().expire(10, living(a=0, b=10, c=11), is_away=False)
        assert (numbers_of(queue), numbers_of(gone)) == (["a", "c"], ["b"])

    @pytest.mark.parametrize(("is_away", "left"), [(True, ["c"]), (False, ["a", "b", "c"])])
    def test_what_was_sent_goes_only_if_the_client_is_away(self, left: list[str], *, is_away: bool) -> None:
        batches = Batches()
        sent(batches, living(a=5))
        sent(batches, living(b=10, c=0))
        queue, gone = batches.expire(10, [], is_away=is_away)
        assert (queue, [*left, *numbers_of(gone)]) == ([], ["c", "a", "b"] if is_away else ["a", "b", "c"])
        assert numbers_of(batches.unacknowledged) == left

    def test_what_goes_out_again_goes_once(self) -> None:
        batches = Batches()
        sent(batches, living(a=5, b=0))
        sent(batches, living(c=0))
        queue = batches.acknowledge(0, living(d=0, e=5))
        queue, gone = batches.expire(10, queue, is_away=False)
        assert (numbers_of(queue), numbers_of(gone)) == (["b", "c", "d"], ["a", "e"])
        assert batches.resending == 2
        assert numbers_of(batches.acknowledge(None, queue)) == ["b", "c", "d"]

    def test_when_all_of_that_is_over_nothing_goes_out_again(self) -> None:
        batches = Batches()
        sent(batches, living(a=5))
        queue = batches.acknowledge(0, living(b=0))
        queue, _ = batches.expire(10, queue, is_away=False)
        assert not batches.must_resend
        assert numbers_of(batches.acknowledge(0, queue)) == ["b"]


class TestAcknowledging:
    def test_numbers_start_at_one_and_every_reply_takes_the_next(self) -> None:
        batches = Batches()
        assert [sent(batches, []), sent(batches, entries(1)), sent(batches, [])] == [1, 2, 3]

    def test_what_is_acknowledged_is_forgotten(self) -> None:
        batches = Batches()
        batch = sent(batches, entries(1, 2))
        assert len(batches) == 2
        assert batches.acknowledge(batch, []) == []
        assert len(batches) == 0
        assert not batches.must_resend

    def test_what_is_not_acknowledged_goes_back_before_younger_entries(self) -> None:
        batches = Batches()
        sent(batches, [])
        sent(batches, entries(1, 2))
        assert numbers_of(batches.acknowledge(1, entries(3))) == [1, 2, 3]
        assert batches.must_resend
        assert len(batches) == 0  # they count as queued again

    def test_what_goes_back_of_several_batches_is_in_order_and_before_all_that_was_not_sent(self) -> None:
        batches = Batches()
        for number, priority in enumerate((5, 9, 1, 9)):
            sent(batches, [Entry({"channel": "/a", "data": number}, priority=priority)])
        unsent = [Entry({"channel": "/a", "data": "new"}, priority=9)]
        assert numbers_of(batches.acknowledge(0, unsent)) == [1, 3, 0, 2, "new"]

    def test_a_later_acknowledgement_covers_the_batches_before_it(self) -> None:
        batches = Batches()
        for number in (1, 2, 3):
            sent(batches, entries(number))
        assert numbers_of(batches.acknowledge(2, entries(4))) == [3, 4]

    def test_what_a_busy_client_does_not_acknowledge_stays_there(self) -> None:
        batches = Batches()
        for number in (1, 2):
            sent(batches, entries(number))
        for _ in range(9):
            assert numbers_of(batches.acknowledge(1, entries(3), is_busy=True)) == [3]
        assert (len(batches), batches.must_resend, batches.futile) == (1, False, 0)
        assert numbers_of(batches.acknowledge(1, entries(3))) == [2, 3]

    def test_what_a_busy_client_acknowledges_of_a_resend_is_not_sent_again(self) -> None:
        batches = Batches()
        for number in (1, 2):
            sent(batches, entries(number))
        queue = batches.acknowledge(0, entries(3))
        assert numbers_of(batches.acknowledge(1, queue, is_busy=True)) == [2, 3]
        assert batches.must_resend

    @pytest.mark.parametrize("batch", [None, 0, -1, 2, 3, 10**9])
    def test_nothing_and_a_batch_that_was_never_sent_acknowledge_nothing(self, batch: int | None) -> None:
        batches = Batches()
        assert sent(batches, entries(1)) == 1
        assert numbers_of(batches.acknowledge(batch, [])) == [1]

    def test_an_entry_belongs_to_the_last_reply_that_held_it(self) -> None:
        batches = Batches()
        first = sent(batches, entries(1))
        second = sent(batches, batches.acknowledge(0, []))
        assert numbers_of(batches.acknowledge(first, [])) == [1]
        third = sent(batches, entries(1))
        assert batches.acknowledge(third, []) == []
        assert (first, second, third) == (1, 2, 3)

    def test_who_got_a_reply_without_the_resend_has_not_got_what_was_to_be_sent_again(self) -> None:
        """While a session is paused its connects are answered with nothing."""
        batches = Batches()
        sent(batches, entries(1, 2))
        queue = batches.acknowledge(0, [])
        empty = close(batches)
        assert numbers_of(batches.acknowledge(empty, queue)) == [1, 2]

    def test_a_resend_that_a_newer_connect_overtakes_is_not_sent_if_that_acknowledges_it(self) -> None:
        """The reply came late: the connect that asked for the resend is replaced by one that has the acknowledgement."""
        batches = Batches()
        batch = sent(batches, entries(1))
        queue = batches.acknowledge(0, entries(2))
        assert numbers_of(queue) == [1, 2]
        assert numbers_of(batches.acknowledge(batch, queue)) == [2]

    def test_a_newer_connect_that_acknowledges_nothing_leaves_the_resend_as_it_is(self) -> None:
        batches = Batches()
        sent(batches, entries(1))
        queue = batches.acknowledge(0, entries(2))
        assert numbers_of(batches.acknowledge(0, [*queue, *entries(3)])) == [1, 2, 3]
        assert batches.must_resend

    def test_what_a_resend_had_no_room_for_belongs_to_no_batch(self) -> None:
        """The client got batch 2; that says nothing of the entry that only the lost batch 1 carried."""
        batches = Batches()
        sent(batches, entries(1, 2))
        queue = batches.acknowledge(0, [])
        assert batches.retain(queue[:1]) == 1
        assert numbers_of(batches.acknowledge(close(batches), queue[1:])) == [2]

    def test_the_entries_that_leave_again_are_counted(self) -> None:
        batches = Batches()
        assert batches.retain(entries(1, 2)) == 0
        close(batches)
        queue = batches.acknowledge(0, entries(3))
        assert batches.retain(queue) == 2
        assert len(batches) == 3


class TestStored:
    """Messages of the log among those that are not stored."""

    @staticmethod
    def queue(*places: int) -> list[Entry]:
        """A stored entry for each place; a 0 makes one that is not stored."""
        return [Entry.logged("/a", LogId(each), b'{"data":0}') if each else Entry({"channel": "/a"}) for each in places]

    def test_what_is_acknowledged_is_returned(self) -> None:
        batches = Batches()
        batch = sent(batches, self.queue(11, 0, 12))
        acknowledged: list[Entry] = []
        assert batches.acknowledge(batch, [], acknowledged) == []
        assert [each.position for each in acknowledged] == [11, 0, 12]

    def test_only_the_batches_that_the_client_has_are_returned(self) -> None:
        batches = Batches()
        first = sent(batches, self.queue(11))
        sent(batches, self.queue(12))
        acknowledged: list[Entry] = []
        assert [each.position for each in batches.acknowledge(first, [], acknowledged)] == [12]
        assert [each.position for each in acknowledged] == [11]

    def test_what_was_sent_after_a_batch_is_beyond_it(self) -> None:
        batches = Batches()
        first = sent(batches, self.queue(11))
        second = sent(batches, self.queue(12, 13))
        assert [each.position for each in batches.sent_after(first)] == [12, 13]
        assert batches.sent_after(second) == []

    def test_what_goes_out_again_lies_at_the_front_of_the_queue(self) -> None:
        batches = Batches()
        sent(batches, self.queue(11, 12))
        assert batches.resending == 0
        batches.acknowledge(None, [])
        assert batches.resending == 2

    def test_memory_keeps_the_places_of_stored_messages_and_all_of_the_others(self) -> None:
        batches = Batches()
        sent(batches, self.queue(11, 0))
        batches.drop_body()
        stored, kept = batches.acknowledge(None, [])
        assert (stored.position, stored.wire) == (11, b"")
        assert kept.wire == b'{"channel":"/a"}'

    def test_what_was_sent_can_be_forgotten(self) -> None:
        batches = Batches()
        batch = sent(batches, self.queue(11))
        assert [each.position for each in batches.reset()] == [11]
        assert batches.acknowledge(batch, []) == []

    def test_what_the_queue_has_again_is_forgotten_there(self) -> None:
        batches = Batches()
        sent(batches, self.queue(11))
        batches.acknowledge(None, [])
        assert batches.reset() == []
        assert (batches.resending, len(batches)) == (0, 0)


class TestTakingOut:
    """An entry ends, or waits again, before its batch is acknowledged."""

    @staticmethod
    def outcome(batches: Batches, queue: list[Entry]) -> tuple[list[int], list[int]]:
        """What the last batch still settles, and what the queue has."""
        acknowledged: list[Entry] = []
        rest = batches.acknowledge(batches.number - 1, queue, acknowledged)
        return numbers_of(acknowledged), numbers_of(rest)

    def test_its_batch_settles_it_no_more(self) -> None:
        batches, some = Batches(), entries(1, 2, 3)
        sent(batches, some)
        queue = entries(4)
        assert batches.take_out([some[1]], queue) is queue
        assert len(batches) == 2
        assert self.outcome(batches, queue) == ([1, 3], [4])

    def test_a_batch_of_which_nothing_is_left_is_forgotten(self) -> None:
        batches, some = Batches(), entries(1, 2)
        sent(batches, some[:1])
        sent(batches, some[1:])
        batches.take_out([some[0]], [])
        assert numbers_of(batches.unacknowledged) == [2]
        batches.take_out([some[1]], [])
        assert len(batches) == 0
        assert self.outcome(batches, []) == ([], [])

    def test_from_what_goes_out_again_it_is_taken_too(self) -> None:
        batches, some = Batches(), entries(1, 2)
        sent(batches, some)
        queue = batches.acknowledge(0, entries(3))
        queue = batches.take_out([some[0]], queue)
        assert (numbers_of(queue), batches.resending, batches.must_resend) == ([2, 3], 1, True)
        queue = batches.take_out([some[1]], queue)
        assert (numbers_of(queue), batches.resending, batches.must_resend) == ([3], 0, False)
        assert numbers_of(batches.acknowledge(None, queue)) == [3]

    def test_in_no_batch_it_is_taken_from_the_queue(self) -> None:
        batches, some = Batches(), entries(1, 2, 3)
        sent(batches, some[:1])
        assert numbers_of(batches.take_out([some[1]], some[1:])) == [3]
        assert len(batches) == 1

    def test_a_stored_one_that_was_read_anew_is_the_same(self) -> None:
        batches = Batches()
        queue = TestStored.queue(11, 0, 12)
        again, _, other = TestStored.queue(11, 0, 12)
        assert [each.position for each in batches.take_out([again], queue)] == [0, 12]
        sent(batches, queue)
        batches.take_out([other], [])
        assert [each.position for each in batches.unacknowledged] == [11, 0]

    def test_a_stored_one_of_which_memory_has_the_place_only_is_the_same(self) -> None:
        batches = Batches()
        first, second = TestStored.queue(11, 12)
        sent(batches, [first, second])
        batches.drop_body()
        batches.take_out([first], [])
        assert [each.position for each in batches.unacknowledged] == [12]

    def test_those_that_are_not_stored_are_all_different(self) -> None:
        batches = Batches()
        first, second = TestStored.queue(0, 0)
        assert batches.take_out([first], [first, second]) == [second]


class TestLifting:
    def test_what_goes_out_again_belongs_to_no_batch_any_more(self) -> None:
        batches = Batches()
        batch = sent(batches, entries(1))
        queue = batches.acknowledge(0, entries(2))
        batches.unbatch()
        assert (batches.must_resend, batches.resending, batches.unacknowledged) == (False, 0, [])
        assert numbers_of(batches.acknowledge(batch, queue)) == [1, 2]

    def test_what_is_at_the_client_stays_in_its_batch(self) -> None:
        batches = Batches()
        sent(batches, entries(1))
        batches.unbatch()
        assert numbers_of(batches.unacknowledged) == [1]


class TestResendDelay:
    def test_the_first_resend_is_at_once_then_the_pause_doubles(self) -> None:
        batches = Batches()
        queue = entries(1)
        delays = []
        for _ in range(10):
            sent(batches, queue)
            queue = batches.acknowledge(0, [])
            delays.append(batches.resend_delay())
        assert delays == pytest.approx([0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5])
        assert delays[1] == FIRST_RESEND_DELAY
        assert delays[-1] == MAX_RESEND_DELAY

    def test_the_resend_delay_stays_bounded(self) -> None:
        batches = Batches()
        queue = entries(1)
        for _ in range(3000):
            sent(batches, queue)
            queue = batches.acknowledge(None, [])
        assert batches.resend_delay() == MAX_RESEND_DELAY

    def test_new_messages_do_not_hurry_a_client_that_acknowledges_nothing(self) -> None:
        batches = Batches()
        queue: list[Entry] = []
        for number in range(5):
            sent(batches, [*queue, *entries(number)])
            queue = batches.acknowledge(0, [])
        assert batches.resend_delay() == pytest.approx(0.8)

    def test_overtaken_connects_neither_lengthen_nor_end_the_pause(self) -> None:
        batches = Batches()
        queue = entries(1)
        for _ in range(3):
            sent(batches, queue)
            queue = batches.acknowledge(0, [])
        for _ in range(5):
            queue = batches.acknowledge(0, queue)
            assert batches.resend_delay() == pytest.approx(0.2)

    def test_progress_of_any_kind_ends_it(self) -> None:
        batches = Batches()
        queue = entries(1)
        for _ in range(4):
            sent(batches, queue)
            queue = batches.acknowledge(0, [])
        assert batches.resend_delay() > 0
        batches.acknowledge(sent(batches, queue), [])
        assert batches.resend_delay() == 0

    def test_a_client_that_was_sent_nothing_owes_nothing(self) -> None:
        batches = Batches()
        for _ in range(9):
            sent(batches, [])
            assert batches.acknowledge(0, []) == []
        assert batches.resend_delay() == 0

    @pytest.mark.parametrize("network_s", [0.0, 0.001, 0.05])
    @pytest.mark.parametrize("is_busy", [False, True])
    def test_a_client_that_never_acknowledges_makes_at_most_15_connects_in_30_seconds(
        self, network_s: float, is_busy: bool
    ) -> None:
        """Handshake, a first connect that is answered at once, and one that is held until something comes: here at once."""
        batches = Batches()
        sent(batches, [])
        queue, clock, connects = entries(1), 0.0, 1
        while clock < 30:
            connects += 1
            queue = batches.acknowledge(0, queue)
            clock += batches.resend_delay() + network_s
            sent(batches, queue)
            queue = entries(connects) if is_busy else []
        assert 5 < connects <= 15


class Link:
    """A session and its client. The client acknowledges the last reply it got (as CometD's does), or whatever it likes."""

    def __init__(self) -> None:
        self.batches = Batches()
        self.queue: list[Entry] = []
        self.published = 0
        self.last_ack = 0
        self.got: list[tuple[int, list[int]]] = []
        """The replies that arrived: number and content."""
        self.times_sent: dict[int, int] = {}
        self.acknowledged: set[int] = set()
        self.resent_after_acknowledgement: list[int] = []

    def publish(self) -> None:
        self.published += 1
        self.queue.append(entries(self.published)[0])

    def connect(self) -> None:
        """A connect arrives at the server; it may be held, or overtaken by the next."""
        self.queue = self.batches.acknowledge(self.last_ack, self.queue)
        for batch, content in self.got:
            if batch == self.last_ack:
                self.acknowledged.update(content)

    def reply(self, limit: int, arrives: bool) -> None:
        """The server answers the connect with at most `limit` entries; the network may lose the answer."""
        leaving, self.queue = self.queue[:limit], self.queue[limit:]
        self.batches.retain(leaving)
        batch, content = close(self.batches), numbers_of(leaving)
        self.resent_after_acknowledgement += [number for number in content if number in self.acknowledged]
        for number in content:
            self.times_sent[number] = self.times_sent.get(number, 0) + 1
        if arrives:
            self.got.append((batch, content))
            self.last_ack = batch

    @property
    def heard(self) -> list[int]:
        """What the application heard: each number when it first came."""
        return list(dict.fromkeys(number for _, content in self.got for number in content))


steps = st.lists(
    st.tuples(st.sampled_from(["publish", "reply", "overtaken"]), st.integers(1, 4), st.booleans()), max_size=40
)


def run(link: Link, script: list[tuple[str, int, bool]]) -> None:
    for what, limit, arrives in script:
        if what == "publish":
            link.publish()
        else:
            link.connect()
            if what == "reply":
                link.reply(limit, arrives)


class TestNothingIsLost:
    @given(steps)
    def test_the_application_hears_everything_in_order(self, script: list[tuple[str, int, bool]]) -> None:
        link = Link()
        run(link, script)
        for _ in range(link.published + 1):
            link.connect()
            link.reply(4, arrives=True)
        assert link.heard == list(range(1, link.published + 1))

    @given(steps)
    def test_nothing_is_sent_again_that_was_acknowledged(self, script: list[tuple[str, int, bool]]) -> None:
        link = Link()
        run(link, script)
        assert link.resent_after_acknowledgement == []

    @given(steps.map(lambda script: [(what, limit, True) for what, limit, _ in script]))
    def test_without_losses_everything_is_sent_once(self, script: list[tuple[str, int, bool]]) -> None:
        link = Link()
        run(link, script)
        assert set(link.times_sent.values()) <= {1}

    @given(steps)
    def test_each_reply_is_in_order_and_the_numbers_rise(self, script: list[tuple[str, int, bool]]) -> None:
        link = Link()
        run(link, script)
        assert all(content == sorted(content) for _, content in link.got)
        assert all(before < after for (before, _), (after, _) in pairwise(link.got))

    @given(steps, st.lists(st.none() | st.integers(-2, 80), min_size=1))
    def test_whatever_a_client_acknowledges_what_it_never_named_is_kept(
        self, script: list[tuple[str, int, bool]], claims: list[int | None]
    ) -> None:
        """A client may lie; it can lose only what was in the batches that it says it has."""
        link = Link()
        named: set[int] = set()
        held_by: dict[int, list[int]] = {}
        for position, (what, limit, _) in enumerate(script):
            if what == "publish":
                link.publish()
                continue
            claim = claims[position % len(claims)]
            link.queue = link.batches.acknowledge(claim, link.queue)
            if claim is not None:
                named.update(number for batch, held in held_by.items() if batch <= claim for number in held)
            leaving, link.queue = link.queue[:limit], link.queue[limit:]
            link.batches.retain(leaving)
            held_by[close(link.batches)] = numbers_of(leaving)
        kept = numbers_of(link.batches.acknowledge(None, link.queue))
        assert set(range(1, link.published + 1)) - named <= set(kept)
        assert kept == sorted(kept)
