"""The dispatcher of one session: the messages at its client, and what a failure does.

It decides and changes nothing else: `judge` and `overdue` answer what is to be done with each message, and who calls moves it.
What failures mean for the client as a whole, a pause or the end of its session, is decided by `conclude`, once the request
that reports them has been read to its end: what the same request acknowledges is settled first.
Times are seconds on one clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, NamedTuple

from crewel.delivery.dispatcher_states import TRANSITIONS, DispatcherEvent, DispatcherState, Holdback
from crewel.delivery.entry import Entry
from crewel.delivery.failed_attempts import FailedAttempts
from crewel.delivery.outcomes import NOT_OPEN, OnUserError, Outcome, Status, Verdict, outcome_of
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
    """A message that becomes a dead letter."""

    entry: Entry
    code: str
    reason: str
    attempts: int
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
    put_back: list[Entry] = field(default_factory=list)
    """They wait again, in their place."""
    unclaimed: list[Entry] = field(default_factory=list)
    """No listener of the client takes them, and it had not reported that before."""
    rejected: list[dict[str, Any]] = field(default_factory=list)
    """Statuses that did not count, as sent plus `reason`."""
    holdback: Holdback | None = None
    """The client has just been on hold; None also if it had been before."""


class Dispatcher:
    """One session's. `in_flight` is what the client was sent and has not acknowledged, by id, in the order of sending."""

    __slots__ = (
        "attempts",
        "failed_channels",
        "failures",
        "flushes",
        "holdback",
        "in_flight",
        "last_failure",
        "rejection",
        "reported",
        "rules",
        "state",
        "tries",
        "unclaimed",
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
        self.in_flight: dict[str, tuple[Entry, float]] = {}
        self.unclaimed: set[str] = set()
        """Ids of messages in flight that no listener of the client takes. Acknowledging their batch does not end them. When
        their time limit passes they are sent again, and that is no failure: the client has reported them."""
        self.flushes = False
        """Whether what waited while the client was away is being sent."""
        self.tries: dict[str, int] = {}
        """How often a message may have been sent before."""
        self.attempts: FailedAttempts | None = None
        """The attempts that failed; None as long as none has."""

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

    # What leaves, and what is acknowledged

    def send(self, entry: Entry, now: float) -> int:
        """The message leaves; returns how often it may have been sent before."""
        assert entry.origin is not None
        message_id = entry.origin.id
        if self.in_flight.pop(message_id, None) is not None:  # no reply has confirmed it
            self.tries[message_id] = self.tries.get(message_id, 0) + 1
            self.unclaimed.discard(message_id)
        self.in_flight[message_id] = (entry, now)
        return self.tries.get(message_id, 0) if self.tries else 0

    def acknowledge(self, entries: Iterable[Entry]) -> list[Entry]:
        """The client has got these; returns those that are settled by that. Of a message whose id it did not get, there
        will be no status."""
        if self.rules.settle is Settle.MESSAGE:
            return [entry for entry in entries if entry.origin is None and _id(entry) not in self.in_flight]
        if self.unclaimed:
            entries = [entry for entry in entries if _id(entry) not in self.unclaimed]
        settled = [entry for entry in entries if self._close(_id(entry)) is not None or entry.origin is None]
        if settled:
            self.failures = 0
        return settled

    def forget(self) -> list[Entry]:
        """Another client continues: it has received nothing. Returns what was in flight; each counts as sent once more."""
        entries = []
        for message_id, (entry, _) in self.in_flight.items():
            self.tries[message_id] = self.tries.get(message_id, 0) + 1
            entries.append(entry)
        self.in_flight.clear()
        self.unclaimed.clear()
        return entries

    def drop_body(self) -> None:
        """The client is away: keep of what is stored no more than its place, and let no wait for a status run out."""
        self.in_flight = {message_id: (entry.drop_body(), inf) for message_id, (entry, _) in self.in_flight.items()}

    def restart_wait(self, now: float) -> None:
        """The client is there again, and has time to report the statuses of its messages."""
        self.in_flight = {message_id: (entry, now) for message_id, (entry, _) in self.in_flight.items()}

    def close(self, entry: Entry) -> bool:
        """The message has ended in another way; whether the client had it."""
        return self._close(_id(entry)) is not None

    @property
    def opened(self) -> list[Entry]:
        """What the client has got and not settled, in the order of sending."""
        return [entry for entry, _ in self.in_flight.values()]

    def times_sent(self, message_id: str) -> int:
        """How often the message may have been sent by this server."""
        return self.tries.get(message_id, 0) + (message_id in self.in_flight)

    def open_beside(self, entries: Iterable[Entry]) -> int:
        """How many messages the client has that are none of these."""
        return len(self.in_flight.keys() - map(_id, entries))

    def _close(self, message_id: str) -> Entry | None:
        entry, _ = self.in_flight.pop(message_id, (None, 0.0))
        self.unclaimed.discard(message_id)
        if self.tries:
            self.tries.pop(message_id, None)
            if self.attempts is not None:
                self.attempts.forget(message_id)
        return entry

    # What the client says

    def judge(self, statuses: Iterable[Status], receiver: str, now: float, now_ms: int) -> Judgement:
        """What these statuses mean for their messages, successes first. `receiver` is the session's name; `now_ms` counts
        from 1970."""
        judgement = Judgement()
        for status in _failures_last(statuses):
            if status.id not in self.in_flight:
                judgement.rejected.append({**status.given, "reason": NOT_OPEN})
            elif status.verdict in (Verdict.WORKING, Verdict.UNCLAIMED):
                entry, _ = self.in_flight.pop(status.id)
                self.in_flight[status.id] = (entry, now)
                if status.verdict is Verdict.WORKING:
                    self.unclaimed.discard(status.id)
                elif status.id not in self.unclaimed:
                    self.unclaimed.add(status.id)
                    judgement.unclaimed.append(entry)
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
        entry = self._close(message_id)
        assert entry is not None
        judgement.settled.append(entry)
        self.failures = 0

    def _failed(self, status: Status, judgement: Judgement, receiver: str, now_ms: int) -> None:
        code, reason = status.code, status.reason
        self._remember(code, reason, self.in_flight[status.id][0].channel)
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
        attempts, tries = self.tries.get(message_id, 0) + 1, self.failed_before(message_id)
        entry = self._close(message_id)
        assert entry is not None
        judgement.dead_letters.append(FailedDelivery(entry, code, reason, attempts, given, tries))

    def failed_before(self, message_id: str) -> str:
        """The attempts at the message that have failed, as the store keeps them; empty if none is known."""
        return "" if self.attempts is None else self.attempts.text(message_id)

    def _put_back(self, message_id: str, judgement: Judgement, now_ms: int, code: str, reason: str) -> None:
        if self.attempts is None:
            self.attempts = FailedAttempts()
        self.attempts.add(message_id, now_ms, code, reason)
        entry, _ = self.in_flight.pop(message_id)
        self.unclaimed.discard(message_id)
        self.tries[message_id] = self.tries.get(message_id, 0) + 1
        judgement.put_back.append(entry)

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
        if self.in_flight and self.rules.ack_wait != inf:
            due = min(due, next(iter(self.in_flight.values()))[1] + self.rules.ack_wait)
        return due

    def resume(self, now: float) -> bool:
        """Whether the delay after a failure has ended by now."""
        if not 0 < self.waits_until <= now:
            return False
        self.waits_until = 0.0
        self.move(DispatcherEvent.RESUMED)
        return True

    def retry(self) -> bool:
        """Let the delay after a failure be over now; whether there was one."""
        return self.resume(self.waits_until)

    def overdue(self, now: float, now_ms: int) -> Judgement:
        """What the statuses that did not come in time mean for their messages; `now_ms` counts from 1970."""
        judgement = Judgement()
        reason = f"no status came within {self.rules.ack_wait:g} s"
        for message_id, (entry, sent) in list(self.in_flight.items()):
            if sent + self.rules.ack_wait > now:
                break
            if message_id in self.unclaimed:
                self._put_back(message_id, judgement, now_ms, NO_STATUS, UNCLAIMED)
                continue
            self._remember(NO_STATUS, reason, entry.channel)
            if self.rules.retries == 0:  # the client is there: one message is not worth its session
                self._dead_letter(message_id, NO_STATUS, reason, judgement)
            else:
                self._put_back(message_id, judgement, now_ms, NO_STATUS, reason)
                self.reported.append((Outcome.RETRY, NO_STATUS, reason, ""))
        return judgement


NO_DISPATCHER: Final = Dispatcher(Rules())
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


def _id(entry: Entry) -> str:
    """What the client calls the message. Memory may have no more of a stored one than its place."""
    return str(entry.position) if entry.origin is None else entry.origin.id
