"""The dispatcher of one session: the messages at its client, and what a failure does.

It decides and changes nothing else: `judge` and `overdue` answer what is to be done with each message, and the caller moves it.
`conclude` decides what failures mean for the client as a whole, a pause or the end of its session. That is once the request
that reports them has been read to its end: what the same request acknowledges is settled first. Times are seconds on one clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, NamedTuple

from crewel.delivery.dispatcher_states import TRANSITIONS, DispatcherEvent, DispatcherState, Holdback
from crewel.delivery.entry import Entry
from crewel.delivery.outcomes import NOT_OPEN, OnUserError, Outcome, Status, Verdict, outcome_of
from crewel.delivery.sent_messages import FailedAttempt, SentMessages, id_of
from crewel.qos.connect import Settle

NO_STATUS = "communication.responseTimeout"
"""The code of a message whose status did not come in time."""
UNCLAIMED = "no listener of the client takes it"
"""Why a message is sent again that no listener takes."""

_MOST_REMEMBERED: Final = 100
"""Channels of failures that a dispatcher remembers."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the login has asked for, or the server has configured."""

    tells: bool = False
    """Whether the client receives the origin of its messages, and answers with statuses."""
    settle: Settle = Settle.BATCH
    ack_wait: float = inf
    """How long a sent message waits for its status."""
    retries: int = 0
    """How often in a row the client may fail before it is given up; -1: without limit."""
    delay: float = 60.0
    """Seconds between the first failure and the first retry."""
    factor: float = 1.0
    """How many times as long as the one before each further pause of a row is."""
    max_delay: float = inf
    on_user_error: OnUserError = OnUserError.CONTINUE
    gives_up: float = inf
    """How long the client may be gone before it is given up, if its login sets that."""

    def pause(self, failures: int) -> float:
        """Seconds until the next retry, after so many failures in a row (1, 2, ...)."""
        # The exponent is bounded: 10.0**1000 is an OverflowError, not infinity.
        return min(self.delay * self.factor ** min(failures - 1, 64), self.max_delay)

    def all_pauses(self) -> float:
        """Seconds that all retries take together."""
        if self.retries < 0:
            return inf
        growing = min(self.retries, 64)
        return sum(map(self.pause, range(1, growing + 1))) + (self.retries - growing) * self.pause(65)


class FailedDelivery(NamedTuple):
    """A message that its receiver has failed, or that becomes a dead letter in another way."""

    entry: Entry
    code: str
    reason: str
    attempts: int = 0
    given: str = ""
    """The code as the receiver gave it, if another one counts."""
    tries: str = ""
    """The earlier attempts, as the store keeps them."""


class Rejection(NamedTuple):
    """Why all that comes for a session becomes dead letters."""

    code: str
    reason: str
    given: str = ""
    """The code as the receiver gave it, if another one counts."""


@dataclass(slots=True)
class Judgement:
    """What is to be done with messages."""

    settled: list[Entry] = field(default_factory=list)
    dead_letters: list[FailedDelivery] = field(default_factory=list)
    put_back: list[FailedDelivery] = field(default_factory=list)
    """They wait again, in their place. Nothing has failed if the reason is `UNCLAIMED`."""
    unclaimed: list[Entry] = field(default_factory=list)
    """No listener of the client takes them, and it had not reported that before."""
    rejected: list[dict[str, Any]] = field(default_factory=list)
    """Statuses that did not count, as sent plus `reason`."""
    holdback: Holdback | None = None
    """The client has just been on hold; None also if it had been before."""


class Dispatcher:
    """One session's."""

    __slots__ = (
        "failed_channels",
        "failures",
        "flushes",
        "holdback",
        "last_failure",
        "messages",
        "rejection",
        "reported",
        "rules",
        "state",
        "waits_until",
    )

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.state = DispatcherState.POLLING
        self.holdback: Holdback | None = None
        self.rejection: Rejection | None = None
        """Set if all that comes becomes dead letters."""
        self.waits_until = 0.0
        """When the delay after a failure has ended; 0 if there is none."""
        self.failures = 0
        """Failures in a row."""
        self.last_failure: tuple[str, str] | None = None
        self.failed_channels: tuple[str, ...] = ()
        """The channels of the failures that still count, that of `last_failure` at the end; "" stands for more of them."""
        self.reported: list[tuple[Outcome, str, str, str]] = []
        """Failures (outcome, code, reason, code as given if another one counts) that concern more than their message, and that
        `conclude` has yet to look at."""
        self.messages = SentMessages()
        """What the client was sent and has not settled, and messages that wait again."""
        self.flushes = False
        """Whether what waited while the client was away is being sent."""

    @property
    def is_paused(self) -> bool:
        """Whether nothing is sent: it is on hold, or waits after a failure."""
        return self.holdback is not None or self.waits_until > 0

    def observe(self, *, is_gone: bool) -> DispatcherState:
        """Its state, now that the client is there or gone. After a failure it waits, whether or not the client is there."""
        if not self.waits_until:
            self.move(DispatcherEvent.GONE if is_gone else DispatcherEvent.CONNECTED)
        return self.state

    def revive(self, rules: Rules) -> None:
        """The client has sent a handshake again. A holdback stays."""
        self.rules = rules
        self.move(DispatcherEvent.REVIVED)
        self.rejection, self.waits_until, self.failures = None, 0.0, 0
        self.reported = []

    def move(self, event: DispatcherEvent) -> None:
        """Go to the state that the table names, if it names one."""
        self.state = TRANSITIONS[self.state].get(event, self.state)

    # What is acknowledged

    def acknowledge(self, entries: Iterable[Entry]) -> list[Entry]:
        """The client has got these; returns those that are settled by that. Of a message whose id it did not get, there
        will be no status."""
        messages = self.messages
        if self.rules.settle is Settle.MESSAGE:
            return [entry for entry in entries if entry.origin is None and id_of(entry) not in messages.opened]
        if messages.unclaimed:
            opened = messages.opened
            entries = [each for each in entries if (known := opened.get(id_of(each))) is None or not known.is_unclaimed]
        settled = [entry for entry in entries if messages.close(id_of(entry)) is not None or entry.origin is None]
        if settled:
            self.failures = 0
        return settled

    # What the client says

    def judge(self, statuses: Iterable[Status], receiver: str, now: float, now_ms: int) -> Judgement:
        """What these statuses mean for their messages, successes first. `receiver` is the session's name; `now_ms` counts
        from 1970."""
        judgement = Judgement()
        for status in _failures_last(statuses):
            known = self.messages.opened.get(status.id)
            if known is None:
                judgement.rejected.append({**status.given, "reason": NOT_OPEN})
            elif status.verdict in (Verdict.WORKING, Verdict.UNCLAIMED):
                if self.messages.hear(status.id, now, is_unclaimed=status.verdict is Verdict.UNCLAIMED):
                    judgement.unclaimed.append(known.entry)
            elif status.verdict is Verdict.OK:
                self._settled(status.id, judgement)
            else:
                self._failed(status, judgement, receiver, now_ms)
        return judgement

    def conclude(self, now: float) -> tuple[str, str] | None:
        """What the failures reported since the last call mean for the client: it may be paused, or reject everything. Returns
        code and reason if its session has to end."""
        reported, self.reported = self.reported, []
        death: tuple[str, str] | None = None
        has_failed = False
        for outcome, code, reason, given in reported:
            is_fatal = outcome is Outcome.SESSION_DEAD
            if outcome is Outcome.REJECT_ALL:
                self.rejection = Rejection(code, reason, given)
                self.move(DispatcherEvent.DIED)
            elif outcome is Outcome.RETRY and not has_failed:  # several reports of one request report the same trouble
                has_failed = True
                is_fatal = self._fail(now)
            if is_fatal:
                death = death or (code, reason)
                self.move(DispatcherEvent.DIED)
        return death

    def _settled(self, message_id: str, judgement: Judgement) -> None:
        entry = self.messages.close(message_id)
        assert entry is not None
        judgement.settled.append(entry)
        self.failures = 0

    def _failed(self, status: Status, judgement: Judgement, receiver: str, now_ms: int) -> None:
        code, reason = status.code, status.reason
        self._remember(code, reason, self.messages.opened[status.id].entry.channel)
        outcome = outcome_of(code, self.rules.on_user_error)
        if outcome is Outcome.HOLDBACK:
            self._put_back(status.id, judgement, now_ms, code, reason)
            if self.holdback is None:
                self.holdback = judgement.holdback = Holdback(receiver, now_ms, code, status.id, reason)
            return
        if outcome is Outcome.RETRY:
            self._put_back(status.id, judgement, now_ms, code, reason)
        else:
            self._dead_letter(status.id, code, reason, judgement, status.original)
        if outcome is not Outcome.DEAD_LETTER:
            self.reported.append((outcome, code, reason, status.original))

    def _remember(self, code: str, reason: str, channel: str) -> None:
        self.last_failure = (code, reason)
        before = self.failed_channels if self.is_in_trouble or self.reported else ()
        if channel not in before:
            self.failed_channels = (*before, channel) if len(before) < _MOST_REMEMBERED else ("", channel)
        elif before[-1] != channel:
            self.failed_channels = (*(each for each in before if each != channel), channel)

    @property
    def is_in_trouble(self) -> bool:
        """Whether failures of the client have an effect that has not ended."""
        is_held = self.holdback is not None or self.rejection is not None
        return is_held or self.failures > 0 or self.waits_until > 0

    def _dead_letter(self, message_id: str, code: str, reason: str, judgement: Judgement, given: str = "") -> None:
        attempts, tries = self.messages.times_sent(message_id), self.messages.failed(message_id)
        entry = self.messages.close(message_id)
        assert entry is not None
        judgement.dead_letters.append(FailedDelivery(entry, code, reason, attempts, given, tries))

    def _put_back(self, message_id: str, judgement: Judgement, now_ms: int, code: str, reason: str) -> None:
        entry = self.messages.put_back(message_id, FailedAttempt(now_ms, code, reason))
        judgement.put_back.append(FailedDelivery(entry, code, reason))

    def _fail(self, now: float) -> bool:
        """One more failure in a row, unless it reports the same trouble as the last one. Whether that is one too many."""
        if self.waits_until > now:
            return False
        self.failures += 1
        if 0 <= self.rules.retries < self.failures:
            return True
        if self.rules.delay:
            self.move(DispatcherEvent.FAILED)
            self.waits_until = now + self.rules.pause(self.failures)
        return False

    # What time does

    def next_at(self) -> float:
        """When `overdue` or `resume` has something to do; infinite if never."""
        due = self.waits_until or inf
        if self.messages.opened and self.rules.ack_wait != inf:
            due = min(due, next(iter(self.messages.opened.values())).sent_at + self.rules.ack_wait)
        return due

    def resume(self, now: float) -> bool:
        """Whether the delay after a failure has ended by now."""
        if not 0 < self.waits_until <= now:
            return False
        self.waits_until = 0.0
        self.move(DispatcherEvent.RESUMED)
        return True

    def overdue(self, now: float, now_ms: int) -> Judgement:
        """What the statuses that did not come in time mean for their messages; `now_ms` counts from 1970."""
        judgement = Judgement()
        reason = f"no status came within {self.rules.ack_wait:g} s"
        for message_id, known in list(self.messages.opened.items()):
            if known.sent_at + self.rules.ack_wait > now:
                break
            if known.is_unclaimed:
                self._put_back(message_id, judgement, now_ms, NO_STATUS, UNCLAIMED)
                continue
            self._remember(NO_STATUS, reason, known.entry.channel)
            if self.rules.retries == 0:  # the client is there: one message is not worth its session
                self._dead_letter(message_id, NO_STATUS, reason, judgement)
            else:
                self._put_back(message_id, judgement, now_ms, NO_STATUS, reason)
                self.reported.append((Outcome.RETRY, NO_STATUS, reason, ""))
        return judgement


NO_RULES: Final = Rules()
"""What a session goes by whose failures do nothing."""
NO_DISPATCHER: Final = Dispatcher(NO_RULES)
"""The dispatcher of every session that needs none. It is shared: nothing is sent through it, so it stays empty and active."""


def _failures_last(statuses: Iterable[Status]) -> list[Status]:
    """The statuses of one list in the order in which they count: a failure may end the session, and what the list settles is
    settled before. Of one message the first failure counts, whatever follows it."""
    failures: list[Status] = []
    others: list[Status] = []
    failed: set[str] = set()
    for status in statuses:
        if status.verdict is Verdict.FAILED:
            failed.add(status.id)
        (failures if status.id in failed else others).append(status)
    return others + failures
