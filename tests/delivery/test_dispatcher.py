"""One session's dispatcher: what its client has got and not settled, and what a failure does. Times are plain
numbers."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.delivery.dispatcher import NO_STATUS, Dispatcher, Judgement, Rules
from crewel.delivery.dispatcher import UNCLAIMED as NO_LISTENER
from crewel.delivery.dispatcher_states import DispatcherEvent, DispatcherState, Holdback
from crewel.delivery.entry import Entry
from crewel.delivery.outcomes import INTERNAL_ERROR, NOT_OPEN, OnUserError, read_statuses
from crewel.delivery.records import LogId
from crewel.delivery.sent_messages import id_of
from crewel.qos.connect import Settle
from crewel.qos.update import Origin

ALIVE, POLLING, DEAD = DispatcherState
JOE = "client/joe/1"
BATCH = Rules(tells=True, retries=2, delay=60.0)
MESSAGE = replace(BATCH, settle=Settle.MESSAGE)
HELD, GONE, AUTH = "user.update.holdback", "communication.noConnection", "user.security.authentication"
OK, WORKING, UNCLAIMED = "OK", "WORKING", "UNCLAIMED"


def entry(message_id: str, channel: str = "/a") -> Entry:
    made = Entry({"channel": channel, "data": message_id})
    made.origin = Origin(message_id, message_id)
    return made


def dispatcher(*ids: str, rules: Rules = MESSAGE, now: float = 0.0) -> Dispatcher:
    """One whose client was sent these."""
    made = Dispatcher(rules)
    made.observe(is_gone=False)
    for each in ids:
        send(made, each, now)
    return made


def send(made: Dispatcher, message_id: str, now: float, channel: str = "/a") -> int:
    """Let the message of this id leave; how often it may have been sent before."""
    return made.messages.send(entry(message_id, channel), now)


def tries(made: Dispatcher) -> dict[str, int]:
    """How often messages may have been sent before, if they were."""
    known = made.messages.opened | made.messages.waiting
    return {message_id: each.tries for message_id, each in known.items() if each.tries}


def unclaimed(made: Dispatcher) -> set[str]:
    """What no listener of the client takes."""
    found = {message_id for message_id, each in made.messages.opened.items() if each.is_unclaimed}
    assert made.messages.unclaimed == len(found)
    return found


@dataclass
class Judged(Judgement):
    """What one request means: for its messages, and whether it ends the session."""

    death: tuple[str, str] | None = None

    @classmethod
    def of(cls, made: Dispatcher, judgement: Judgement, now: float) -> "Judged":
        """The judgement, and what the dispatcher concludes at the end of the request."""
        parts = {each.name: getattr(judgement, each.name) for each in fields(judgement)}
        return cls(**parts, death=made.conclude(now))


def overdue(of: Dispatcher, now: float) -> Judged:
    """What it means that statuses have not come by now."""
    return Judged.of(of, of.overdue(now, 0), now)


def judge(of: Dispatcher, *statuses: tuple[str, str], now: float = 10.0) -> Judged:
    """What these (id, state or code) mean; a failure's words are `why`."""
    told = [
        {"id": message_id, "state": what}
        if what in (OK, WORKING, UNCLAIMED)
        else {"id": message_id, "errorCode": what, "message": "why"}
        for message_id, what in statuses
    ]
    return Judged.of(of, of.judge(read_statuses(told)[0], JOE, now, 5000), now)


def ids(entries: Iterable[Entry]) -> list[str]:
    return [each.origin.id for each in entries if each.origin is not None]


def put_back(judgement: Judgement) -> list[str]:
    return ids(each.entry for each in judgement.put_back)


def dead_letters(judgement: Judgement) -> list[tuple[str, str, str, int]]:
    return [(*ids([each.entry]), each.code, each.reason, each.attempts) for each in judgement.dead_letters]


class TestSending:
    def test_what_leaves_is_open_in_the_order_of_sending(self) -> None:
        assert ids(dispatcher("2", "1", "3").messages.entries) == ["2", "1", "3"]

    def test_the_first_time_a_message_was_not_sent_before(self) -> None:
        assert send(Dispatcher(BATCH), "1", 0.0) == 0

    def test_what_goes_out_again_without_an_answer_counts_how_often(self) -> None:
        made = dispatcher("1", "2")
        assert [send(made, "1", 1.0) for _ in range(3)] == [1, 2, 3]
        assert send(made, "3", 1.0) == 0
        assert ids(made.messages.entries) == ["2", "1", "3"]

    def test_settled_it_is_known_no_more(self) -> None:
        made = dispatcher("1")
        send(made, "1", 1.0)
        judge(made, ("1", OK))
        assert (ids(made.messages.entries), tries(made)) == ([], {})


class TestAcknowledging:
    def test_a_batch_settles_what_no_status_names(self) -> None:
        made = dispatcher("1", "2", rules=BATCH)
        sent = made.messages.entries
        assert ids(made.acknowledge(sent)) == ["1", "2"]
        assert not made.messages.opened

    def test_with_settle_message_it_settles_nothing(self) -> None:
        made = dispatcher("1", "2")
        assert made.acknowledge(made.messages.entries) == []
        assert ids(made.messages.entries) == ["1", "2"]

    @pytest.mark.parametrize("rules", [BATCH, MESSAGE])
    def test_a_message_of_unknown_origin_is_settled_for_no_status_can_name_it(self, rules: Rules) -> None:
        unknown = Entry({"channel": "/service/x"})
        assert dispatcher(rules=rules).acknowledge([unknown]) == [unknown]

    def test_what_is_open_no_more_is_not_settled_twice(self) -> None:
        made = dispatcher("1", rules=BATCH)
        sent = made.messages.entries
        judge(made, ("1", "user.no"))
        assert made.acknowledge(sent) == []

    def test_of_a_message_whose_receiver_was_away_the_place_is_enough(self) -> None:
        """Memory keeps no more of it (`Entry.placeholder`)."""
        place = Entry.placeholder(LogId(17))
        waits = dispatcher("17")
        assert waits.acknowledge([place]) == []
        assert list(waits.messages.opened) == ["17"]
        settles = dispatcher("17", rules=BATCH)
        assert settles.acknowledge([place]) == [place]
        assert not settles.messages.opened

    def test_success_ends_a_row_of_failures(self) -> None:
        made = dispatcher("1", "2", rules=BATCH)
        judge(made, ("1", GONE))
        assert made.failures == 1
        made.acknowledge([])
        assert made.failures == 1
        made.acknowledge(made.messages.entries)
        assert made.failures == 0


class TestStatuses:
    def test_ok_settles(self) -> None:
        made = dispatcher("1", "2", "3")
        assert ids(judge(made, ("3", OK), ("1", OK)).settled) == ["3", "1"]
        assert ids(made.messages.entries) == ["2"]

    def test_what_is_not_open_is_told_back_and_a_repeat_is_harmless(self) -> None:
        made = dispatcher("1")
        judgement = judge(made, ("1", OK), ("1", OK), ("7", "user.no"))
        assert ids(judgement.settled) == ["1"]
        assert judgement.rejected == [
            {"id": "1", "state": "OK", "reason": NOT_OPEN},
            {"id": "7", "errorCode": "user.no", "message": "why", "reason": NOT_OPEN},
        ]
        assert judgement.dead_letters == []

    def test_working_begins_the_restart_wait(self) -> None:
        made = dispatcher("1", "2", rules=replace(MESSAGE, ack_wait=5.0))
        assert made.next_at() == 5.0
        judge(made, ("1", WORKING), now=3.0)
        assert ids(made.messages.entries) == ["2", "1"]
        assert put_back(overdue(made, 5.0)) == ["2"]
        assert overdue(made, 7.9).put_back == []
        assert put_back(overdue(made, 8.0)) == ["1"]

    def test_a_status_names_single_messages_and_the_rest_is_untouched(self) -> None:
        made = dispatcher("1", "2", "3")
        judge(made, ("2", "user.no"))
        assert ids(made.messages.entries) == ["1", "3"]

    def test_open_messages_beside_others_are_counted(self) -> None:
        made = Dispatcher(MESSAGE)
        open_ones = [entry(each) for each in ("1", "2", "3")]
        for each in open_ones:
            made.messages.send(each, 0.0)
        assert made.messages.beside([open_ones[1], entry("9")]) == 2

    def test_the_last_failure_is_remembered(self) -> None:
        made = dispatcher("1", "2")
        assert made.last_failure is None
        judge(made, ("1", "user.no"), ("2", OK))
        assert made.last_failure == ("user.no", "why")

    def test_the_channels_of_failures_are_remembered_while_these_count(self) -> None:
        made = Dispatcher(replace(MESSAGE, retries=9, delay=0.0))
        for number, channel in enumerate(("/a", "/b", "/a", "/c"), start=1):
            send(made, str(number), 0.0, channel)
        judge(made, ("1", "communication.no"), ("2", "communication.no"))
        assert (made.failures, made.failed_channels) == (1, ("/a", "/b"))
        judge(made, ("3", "user.no"))
        assert made.failed_channels == ("/b", "/a")
        send(made, "1", 0.0)
        judge(made, ("1", OK))
        judge(made, ("4", "user.no"))
        assert (made.failures, made.failed_channels) == (0, ("/c",))

    def test_what_a_list_settles_is_settled_before_its_failures_count(self) -> None:
        made = dispatcher("1", "2", "3", rules=replace(MESSAGE, retries=1, delay=0.0))
        judge(made, ("1", GONE))
        judgement = judge(made, ("2", GONE), ("3", OK))
        assert (ids(judgement.settled), judgement.death, made.failures) == (["3"], None, 1)

    def test_of_one_message_the_first_failure_counts(self) -> None:
        made = dispatcher("1")
        judgement = judge(made, ("1", "user.no"), ("1", OK))
        assert dead_letters(judgement) == [("1", "user.no", "why", 1)]
        assert [each["state"] for each in judgement.rejected] == [OK]

    def test_an_acknowledgement_of_the_same_request_ends_the_row_of_failures_first(self) -> None:
        made = dispatcher("1", "2", rules=replace(BATCH, retries=1, delay=0.0))
        judge(made, ("1", GONE))
        send(made, "1", 0.0)
        rest = [made.messages.opened["2"].entry]
        made.judge(read_statuses([{"id": "1", "errorCode": GONE}])[0], JOE, 1.0, 0)
        assert ids(made.acknowledge(rest)) == ["2"]
        assert (made.conclude(1.0), made.failures) == (None, 1)

    def test_until_the_request_is_read_to_its_end_a_failure_of_the_client_changes_nothing(self) -> None:
        made = dispatcher("1", "2")
        made.judge(read_statuses([{"id": "1", "errorCode": AUTH}])[0], JOE, 1.0, 0)
        assert (made.state, made.is_paused, ids(made.messages.entries)) == (ALIVE, False, ["2"])
        assert made.conclude(1.0) == (AUTH, "")
        assert (made.state, made.conclude(1.0)) == (DEAD, None)


class TestLetters:
    @pytest.mark.parametrize("code", ["user.update.deadMessage", "user.anything"])
    def test_the_message_becomes_a_letter_and_all_else_goes_on(self, code: str) -> None:
        made = dispatcher("1", "2")
        judgement = judge(made, ("1", code))
        assert dead_letters(judgement) == [("1", code, "why", 1)]
        assert (judgement.put_back, judgement.death, made.rejection, made.is_paused) == ([], None, None, False)
        assert (made.state, made.failures) == (ALIVE, 0)

    def test_a_letter_has_how_often_the_message_was_sent(self) -> None:
        made = dispatcher("1")
        send(made, "1", 1.0)
        send(made, "1", 2.0)
        assert dead_letters(judge(made, ("1", "user.no"))) == [("1", "user.no", "why", 3)]
        assert tries(made) == {}


class TestHoldback:
    def test_the_message_waits_again_and_nothing_more_is_sent(self) -> None:
        made = dispatcher("1", "2")
        judgement = judge(made, ("1", HELD))
        assert put_back(judgement) == ["1"]
        assert made.holdback == Holdback(JOE, 5000, HELD, "1", "why")
        assert made.is_paused
        assert (made.failures, made.waits_until) == (0, 0.0)
        assert made.next_at() == inf

    def test_the_first_one_is_why(self) -> None:
        made = dispatcher("1", "2")
        assert put_back(judge(made, ("2", HELD), ("1", HELD))) == ["2", "1"]
        assert made.holdback is not None
        assert made.holdback.message_id == "2"

    def test_an_operators_holdback_is_not_replaced(self) -> None:
        made = dispatcher("1")
        made.holdback = held = Holdback("admin", 1)
        judge(made, ("1", HELD))
        assert made.holdback is held

    def test_what_is_open_can_still_be_settled(self) -> None:
        made = dispatcher("1", "2")
        judge(made, ("1", HELD))
        assert ids(judge(made, ("2", OK)).settled) == ["2"]
        assert made.is_paused

    def test_sent_again_the_message_says_so(self) -> None:
        made = dispatcher("1")
        judge(made, ("1", HELD))
        assert send(made, "1", 1.0) == 1

    @pytest.mark.parametrize("code", ["user.no", GONE])
    def test_another_failure_does_not_end_it(self, code: str) -> None:
        made = dispatcher("1", "2")
        judge(made, ("1", HELD), ("2", code))
        made.resume(1000.0)
        assert made.is_paused


class TestRetries:
    def test_a_failure_of_the_client_lets_messages_wait_for_the_delay(self) -> None:
        made = dispatcher("1", "2")
        judgement = judge(made, ("1", GONE), now=10.0)
        assert put_back(judgement) == ["1"]
        assert (made.state, made.is_paused, made.waits_until, made.failures) == (POLLING, True, 70.0, 1)
        assert made.next_at() == 70.0

    def test_when_it_is_over_messages_go_out_again(self) -> None:
        made = dispatcher("1")
        judge(made, ("1", GONE), now=10.0)
        assert not made.resume(69.9)
        assert made.is_paused
        assert made.resume(70.0)
        assert (made.is_paused, made.state, made.failures) == (False, ALIVE, 1)
        assert not made.resume(70.0)

    def test_pauses_grow_by_the_factor_up_to_the_longest(self) -> None:
        made = dispatcher("1", rules=replace(MESSAGE, retries=-1, delay=2.0, factor=3.0, max_delay=20.0))
        pauses = []
        for number in range(5):
            judge(made, ("1", GONE), now=number * 100.0)
            pauses.append(made.waits_until - number * 100.0)
            assert made.resume(made.waits_until)
            send(made, "1", number * 100.0 + 50)
        assert pauses == [2.0, 6.0, 18.0, 20.0, 20.0]
        assert made.rules.pause(5000) == 20.0

    @pytest.mark.parametrize(
        ("retries", "factor", "longest", "seconds"),
        [
            (0, 1.0, inf, 0),
            (3, 1.0, inf, 6),
            (3, 2.0, inf, 14),
            (3, 2.0, 3.0, 8),
            (1000, 1.0, inf, 2000),
            (-1, 1.0, 3.0, inf),
        ],
    )
    def test_all_pauses_are_what_an_absence_may_take(
        self, retries: int, factor: float, longest: float, seconds: float
    ) -> None:
        rules = replace(MESSAGE, retries=retries, delay=2.0, factor=factor, max_delay=longest)
        assert rules.all_pauses() == seconds

    def test_a_pause_can_be_ended_now(self) -> None:
        made = dispatcher("1")
        assert not made.resume(inf)
        judge(made, ("1", GONE), now=10.0)
        assert made.resume(inf)
        assert (made.is_paused, made.state, made.failures) == (False, ALIVE, 1)

    def test_without_a_delay_they_go_out_at_once(self) -> None:
        made = dispatcher("1", rules=replace(MESSAGE, delay=0.0))
        judgement = judge(made, ("1", GONE))
        assert put_back(judgement) == ["1"]
        assert (made.is_paused, made.failures, made.state, judgement.death) == (False, 1, ALIVE, None)

    def test_reports_of_one_turn_tell_of_the_same_trouble(self) -> None:
        made = dispatcher("1", "2", "3", rules=replace(MESSAGE, delay=0.0))
        assert put_back(judge(made, ("1", GONE), ("2", GONE), ("3", GONE))) == ["1", "2", "3"]
        assert made.failures == 1

    def test_reports_before_the_delay_has_ended_are_of_the_same_trouble(self) -> None:
        made = dispatcher("1", "2", "3")
        judge(made, ("1", GONE), now=10.0)
        assert put_back(judge(made, ("2", GONE), now=69.9)) == ["2"]
        assert (made.failures, made.waits_until) == (1, 70.0)
        judge(made, ("3", GONE), now=70.0)
        assert (made.failures, made.waits_until) == (2, 130.0)

    @pytest.mark.parametrize("retries", [0, 1, 3])
    def test_more_failures_in_a_row_than_retries_end_the_session(self, retries: int) -> None:
        made = dispatcher("1", rules=replace(MESSAGE, retries=retries))
        for number in range(retries):
            assert judge(made, ("1", GONE), now=number * 100.0).death is None
            assert made.resume(number * 100.0 + 60)
            send(made, "1", number * 100.0 + 60)
        judgement = judge(made, ("1", GONE), now=1000.0)
        assert judgement.death == (GONE, "why")
        assert put_back(judgement) == ["1"]
        assert (made.state, made.is_paused) == (DEAD, False)

    def test_retries_may_be_without_end(self) -> None:
        made = dispatcher("1", rules=replace(MESSAGE, retries=-1, delay=0.0))
        for _ in range(1000):
            assert judge(made, ("1", GONE)).death is None
            send(made, "1", 0.0)
        assert tries(made) == {"1": 1000}

    def test_any_ok_begins_the_row_anew(self) -> None:
        made = dispatcher("1", "2", "3", rules=replace(MESSAGE, retries=1, delay=0.0))
        judge(made, ("1", GONE))
        judge(made, ("2", OK))
        assert judge(made, ("3", GONE)).death is None

    def test_working_and_a_letter_do_not(self) -> None:
        made = dispatcher("1", "2", "3", "4", rules=replace(MESSAGE, retries=1, delay=0.0))
        judge(made, ("1", GONE))
        judge(made, ("2", WORKING), ("3", "user.no"))
        assert judge(made, ("4", GONE)).death == (GONE, "why")

    def test_each_message_that_waits_again_has_its_own_code(self) -> None:
        made = dispatcher("1", "2", "3")
        again = judge(made, ("1", GONE), ("2", HELD), ("3", "user.no")).put_back
        assert [(*ids([each.entry]), each.code, each.reason) for each in again] == [
            ("1", GONE, "why"),
            ("2", HELD, "why"),
        ]


class TestDeath:
    def test_a_client_that_may_not_go_on_is_dead_at_once(self) -> None:
        made = dispatcher("1", "2", rules=replace(MESSAGE, retries=-1))
        judgement = judge(made, ("1", AUTH))
        assert dead_letters(judgement) == [("1", AUTH, "why", 1)]
        assert judgement.death == (AUTH, "why")
        assert made.state is DEAD
        assert ids(made.messages.entries) == ["2"]  # who ends the session ends these

    def test_the_first_reason_counts(self) -> None:
        made = dispatcher("1", "2", rules=replace(MESSAGE, retries=0))
        assert judge(made, ("1", AUTH), ("2", GONE)).death == (AUTH, "why")

    @pytest.mark.parametrize("event", [each for each in DispatcherEvent if each is not DispatcherEvent.REVIVED])
    def test_death_is_final(self, event: DispatcherEvent) -> None:
        made = dispatcher("1")
        judge(made, ("1", AUTH))
        made.move(event)
        assert made.state is DEAD


class TestSink:
    REJECTING = replace(MESSAGE, on_user_error=OnUserError.DEAD)

    def test_a_code_that_does_not_count_stays_with_the_letter_and_with_the_sink(self) -> None:
        made = dispatcher("1", "2", rules=self.REJECTING)
        judgement = judge(made, ("1", "resource.exhausted"))
        assert [(each.code, each.given) for each in judgement.dead_letters] == [(INTERNAL_ERROR, "resource.exhausted")]
        assert made.rejection == (INTERNAL_ERROR, "why", "resource.exhausted")

    def test_with_on_user_error_dead_a_user_error_makes_a_sink(self) -> None:
        made = dispatcher("1", "2", rules=self.REJECTING)
        judgement = judge(made, ("1", "user.no"))
        assert dead_letters(judgement) == [("1", "user.no", "why", 1)]
        assert (made.rejection, made.state, judgement.death) == (("user.no", "why", ""), DEAD, None)

    @pytest.mark.parametrize("code", [HELD, "user.update.deadMessage", GONE])
    def test_what_has_a_line_of_its_own_does_not(self, code: str) -> None:
        made = dispatcher("1", rules=self.REJECTING)
        judge(made, ("1", code))
        assert made.rejection is None

    def test_a_new_handshake_ends_it(self) -> None:
        made = dispatcher("1", rules=self.REJECTING)
        judge(made, ("1", "user.no"))
        made.revive(MESSAGE)
        assert (made.rejection, made.state, made.rules) == (None, ALIVE, MESSAGE)


class TestTakeOver:
    def test_what_was_open_goes_out_again_and_counts_as_sent_once_more(self) -> None:
        made = dispatcher("1", "2")
        send(made, "1", 1.0)
        assert ids(made.messages.put_all_back()) == ["2", "1"]
        assert (ids(made.messages.entries), tries(made)) == ([], {"1": 2, "2": 1})
        assert send(made, "1", 2.0) == 2
        assert made.messages.put_all_back()
        assert tries(made) == {"1": 3, "2": 1}

    def test_statuses_of_the_client_before_do_not_count(self) -> None:
        made = dispatcher("1")
        made.messages.put_all_back()
        assert judge(made, ("1", OK)).rejected == [{"id": "1", "state": "OK", "reason": NOT_OPEN}]

    def test_a_new_handshake_ends_the_delay_and_the_row_of_failures(self) -> None:
        made = dispatcher("1")
        judge(made, ("1", GONE))
        made.revive(BATCH)
        assert (made.state, made.is_paused, made.failures, made.rules) == (ALIVE, False, 0, BATCH)

    def test_a_holdback_stays(self) -> None:
        made = dispatcher("1")
        judge(made, ("1", HELD))
        made.revive(BATCH)
        assert made.is_paused


class TestEndsOfOtherKinds:
    def test_what_has_ended_otherwise_is_open_no_more(self) -> None:
        made = dispatcher("1", "2")
        made.messages.close("1")
        assert ids(made.messages.entries) == ["2"]
        made.messages.close("1")
        made.messages.close(id_of(Entry({"channel": "/a"})))  # of unknown origin
        assert ids(made.messages.entries) == ["2"]

    def test_how_often_it_was_sent_is_forgotten_with_it(self) -> None:
        made = dispatcher("1", "2")
        made.messages.put_all_back()
        made.messages.close("1")
        assert tries(made) == {"2": 1}


class TestAckWait:
    RULES = replace(MESSAGE, ack_wait=5.0)

    def test_nothing_is_due_while_nothing_is_open_or_there_is_no_limit(self) -> None:
        assert dispatcher(rules=self.RULES).next_at() == inf
        assert dispatcher("1").next_at() == inf
        assert dispatcher("1").overdue(1e9, 0) == Judgement()

    def test_the_oldest_decides_when_to_look(self) -> None:
        made = dispatcher("1", rules=self.RULES, now=1.0)
        send(made, "2", 3.0)
        assert made.next_at() == 6.0

    def test_the_end_of_a_delay_may_come_first(self) -> None:
        made = dispatcher("1", "2", rules=replace(self.RULES, delay=1.0))
        judge(made, ("1", GONE), now=2.0)
        assert made.next_at() == 3.0

    def test_only_what_is_overdue_is_judged(self) -> None:
        made = dispatcher("1", rules=self.RULES)
        send(made, "2", 1.0)
        assert made.overdue(4.9, 0) == Judgement()
        judgement = overdue(made, 5.0)
        assert put_back(judgement) == ["1"]
        assert ids(made.messages.entries) == ["2"]

    def test_a_missing_answer_counts_as_a_failure_of_the_client(self) -> None:
        made = dispatcher("1", "2", rules=self.RULES)
        judgement = overdue(made, 5.0)
        assert put_back(judgement) == ["1", "2"]
        assert (made.failures, made.waits_until, made.state) == (1, 65.0, POLLING)
        assert made.last_failure == (NO_STATUS, "no status came within 5 s")

    def test_too_many_end_the_session(self) -> None:
        made = dispatcher("1", rules=replace(self.RULES, retries=1, delay=0.0))
        assert overdue(made, 5.0).death is None
        send(made, "1", 5.0)
        assert overdue(made, 10.0).death == (NO_STATUS, "no status came within 5 s")

    def test_without_retries_the_message_becomes_a_letter_and_the_session_lives(self) -> None:
        made = dispatcher("1", "2", rules=replace(self.RULES, retries=0))
        judgement = overdue(made, 5.0)
        assert [each[:2] for each in dead_letters(judgement)] == [("1", NO_STATUS), ("2", NO_STATUS)]
        assert (judgement.put_back, judgement.death, made.failures, made.is_paused) == ([], None, 0, False)

    def test_what_was_buried_in_time_cannot_be_settled_late(self) -> None:
        made = dispatcher("1", rules=replace(self.RULES, retries=0))
        overdue(made, 5.0)
        assert judge(made, ("1", OK)).rejected


class TestState:
    def test_before_the_first_connect_it_polls(self) -> None:
        assert Dispatcher(BATCH).state is POLLING

    def test_a_dispatcher_is_alive_while_its_client_is_there(self) -> None:
        made = Dispatcher(BATCH)
        seen = [made.observe(is_gone=is_gone) for is_gone in (False, True, True, False)]
        assert seen == [ALIVE, POLLING, POLLING, ALIVE]

    @pytest.mark.parametrize("is_gone", [False, True])
    def test_after_a_failure_it_polls_whoever_is_there(self, *, is_gone: bool) -> None:
        made = dispatcher("1")
        judge(made, ("1", GONE))
        assert made.observe(is_gone=is_gone) is POLLING

    @pytest.mark.parametrize("is_gone", [False, True])
    def test_dead_it_stays_dead(self, *, is_gone: bool) -> None:
        made = dispatcher("1")
        judge(made, ("1", AUTH))
        assert made.observe(is_gone=is_gone) is DEAD

    def test_a_holdback_is_no_state(self) -> None:
        made = dispatcher("1")
        judge(made, ("1", HELD))
        assert made.observe(is_gone=False) is ALIVE


outcomes = st.sampled_from([OK, WORKING, HELD, GONE, AUTH, "user.no", "no.code", "send", "forget", "wait", "resume"])
rules = st.builds(
    Rules,
    tells=st.just(True),
    settle=st.just(Settle.MESSAGE),
    ack_wait=st.sampled_from([3.0, inf]),
    retries=st.integers(-1, 2),
    delay=st.sampled_from([0.0, 2.0]),
    on_user_error=st.sampled_from(OnUserError),
)


class TestNothingIsLost:
    @given(rules, st.lists(st.tuples(st.sampled_from("12345"), outcomes), max_size=30))
    def test_whatever_is_said_each_message_is_in_one_place(self, asked: Rules, script: list[tuple[str, str]]) -> None:
        """Waiting, open, settled or dead-lettered; and only a message that was sent and is open leaves for one of these."""
        made, now = Dispatcher(asked), 0.0
        places: dict[str, str] = dict.fromkeys("12345", "waiting")
        for message_id, what in script:
            now += 1.0
            before = dict(places)
            judgement = Judgement()
            if what == "send":
                if places[message_id] == "waiting":
                    send(made, message_id, now)
                    places[message_id] = "open"
            elif what == "forget":
                places |= dict.fromkeys(ids(made.messages.put_all_back()), "waiting")
            elif what == "resume":
                made.resume(now)
            else:
                judgement = overdue(made, now) if what == "wait" else judge(made, (message_id, what), now=now)
            self._move(judgement, before, places)
            assert {each for each, place in places.items() if place == "open"} == set(made.messages.opened)
            assert set(tries(made)) <= {each for each, place in places.items() if place in ("waiting", "open")}
            assert made.next_at() == inf or made.next_at() > 0

    @staticmethod
    def _move(judgement: Judgement, before: dict[str, Any], places: dict[str, str]) -> None:
        for place, entries in (
            ("settled", judgement.settled),
            ("dead_letters", [each.entry for each in judgement.dead_letters]),
            ("waiting", [each.entry for each in judgement.put_back]),
        ):
            for message_id in ids(entries):
                assert before[message_id] == "open"
                before[message_id] = places[message_id] = place


def test_while_the_client_is_away_memory_keeps_the_places_of_what_is_stored() -> None:
    made = dispatcher("t")
    stored = Entry.logged("/a", LogId(17), b'{"channel":"/a"}', origin=Origin.stored(LogId(17), "", b""))
    made.messages.send(stored, 0.0)
    made.messages.drop_body()
    assert [(each.wire == b"", each.position) for each in made.messages.entries] == [(False, 0), (True, 17)]
    assert [each.position for each in judge(made, ("17", OK)).settled] == [17]


def test_no_wait_runs_out_while_the_client_is_away() -> None:
    made = dispatcher("t", rules=replace(MESSAGE, ack_wait=5.0, retries=0))
    made.messages.drop_body()
    assert made.next_at() == inf
    assert overdue(made, 100.0).dead_letters == []
    made.messages.restart_wait(100.0)
    assert made.next_at() == 105.0
    assert [each.code for each in overdue(made, 105.0).dead_letters] == [NO_STATUS]


class TestUnclaimed:
    """No listener of the client takes a message: it stays open until one does."""

    def test_an_acknowledgement_does_not_settle_it(self) -> None:
        made = dispatcher("1", "2", rules=BATCH)
        judgement = judge(made, ("1", UNCLAIMED))
        assert (ids(judgement.unclaimed), judgement.settled, unclaimed(made)) == (["1"], [], {"1"})
        assert ids(made.acknowledge([entry("1"), entry("2")])) == ["2"]
        assert ids(judge(made, ("1", OK)).settled) == ["1"]
        assert not unclaimed(made)

    def test_saying_it_again_is_no_news(self) -> None:
        made = dispatcher("1")
        judge(made, ("1", UNCLAIMED))
        assert judge(made, ("1", UNCLAIMED)).unclaimed == []

    @pytest.mark.parametrize("what", [WORKING, GONE, HELD, "user.no"])
    def test_any_other_word_of_it_ends_that(self, what: str) -> None:
        made = dispatcher("1")
        judge(made, ("1", UNCLAIMED), ("1", what))
        assert not unclaimed(made)

    def test_a_copy_that_is_sent_and_another_client_begin_anew(self) -> None:
        made = dispatcher("1", "2")
        judge(made, ("1", UNCLAIMED), ("2", UNCLAIMED))
        send(made, "1", 5.0)
        assert unclaimed(made) == {"2"}
        made.messages.put_all_back()
        assert not unclaimed(made)

    @pytest.mark.parametrize("retries", [0, 2])
    def test_when_its_wait_is_over_it_is_sent_again_and_nothing_has_failed(self, retries: int) -> None:
        made = dispatcher("1", "2", rules=replace(MESSAGE, retries=retries, ack_wait=20.0))
        judge(made, ("1", UNCLAIMED), now=10.0)
        assert made.next_at() == 20.0
        judge(made, ("2", OK), now=15.0)
        assert made.next_at() == 30.0
        judgement = overdue(made, 30.0)
        assert (put_back(judgement), judgement.dead_letters, judgement.death) == (["1"], [], None)
        assert (made.failures, made.waits_until, unclaimed(made)) == (0, 0.0, set())

    def test_sent_again_it_has_nothing_of_an_earlier_failure_of_another_message(self) -> None:
        made = dispatcher("1", "2", rules=replace(MESSAGE, ack_wait=20.0))
        judge(made, ("1", "user.no"), ("2", UNCLAIMED), now=10.0)
        (again,) = overdue(made, 30.0).put_back
        assert (again.code, again.reason) == (NO_STATUS, NO_LISTENER)
