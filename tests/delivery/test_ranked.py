"""Messages leave by priority and age, and none when its life is over, whatever happens between any two steps.

`make test` does as many random runs as fit into a quarter of a second, `make faults` 1,000, and CREWEL_RUNS tells any number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from crewel.delivery.batches import Batches
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry, insert
from crewel.delivery.log_consumer import LogConsumer
from crewel.delivery.records import LogId, SessionRecord
from tests.delivery.ranked import RankedReceiver, RankedRun, RankedServer
from tests.delivery.seeded import PORTION, expect_broken, run_count, run_portion

RUNS = run_count(20, 1000)
STEPS = 500
MOST_SEEDS = 500
"""Runs in which a rule taken out must have been noticed."""

pytestmark = pytest.mark.uncounted


@pytest.mark.parametrize("first", range(0, RUNS, PORTION))
def test_order_and_lives_hold_whatever_happens(first: int) -> None:
    run_portion(lambda seed: RankedRun(seed).run(STEPS), first, RUNS)


def test_a_count_of_what_waits_holds_for_no_other_queue() -> None:
    """A run in which two queues have as many messages of each kind, and not as many that are stored."""
    RankedRun(6038).run(STEPS)


# One rule taken out each: a run that finds nothing wrong with these would prove nothing.

# Order


class EvictsByAge(DurableSession):
    def _rank(self, log_id: LogId) -> int:
        return log_id


class ComesBackByAge(DurableSession):
    @classmethod
    def adopted(cls, record: SessionRecord) -> DurableSession:
        durable = super().adopted(record)
        durable.evicted = sorted(each for each in (*record.pending, *record.inbox))
        return durable


class EvictsWhatGoesFirst(DurableSession):
    def has_evicted_before(self, log_id: LogId, priority: int) -> bool:
        return bool(self.evicted)


class EvictsNothingThatArrives(DurableSession):
    def has_evicted_before(self, log_id: LogId, priority: int) -> bool:
        return False


class TakesAllThatWasRead(DurableSession):
    def load(self, ids: Iterable[LogId]) -> list[LogId]:
        taken = [each for each in ids if self.is_evicted(each) and self.find(each)]
        for each in taken:
            self.forget_evicted(each)
        return taken


class QueuesAtTheEnd(RankedReceiver):
    def load(self, entry: Entry) -> int:
        done = super().load(entry)
        self._queue = [*(each for each in self._queue if each is not entry), entry]
        return done


class OvertakesWhatIsSentAgain(RankedReceiver):
    def load(self, entry: Entry) -> int:
        done = super().load(entry)
        self._queue = [each for each in self._queue if each is not entry]
        insert(self._queue, entry, 0)
        return done


class RecallsAsItCame(RankedReceiver):
    def _recall(self, entries: Iterable[Entry] = ()) -> None:
        came = list(dict.fromkeys(each for each in (*entries, *self._queue) if not each.position))
        super()._recall(entries)
        self._queue = came


class GoesOnAsItIs(RankedReceiver):
    def _pause(self, *, is_paused: bool) -> None:
        self._is_paused = is_paused


class SendsAgainAsItWasSent(Batches):
    def acknowledge(
        self, batch: int | None, queue: list[Entry], acknowledged: list[Entry] | None = None, *, is_busy: bool = False
    ) -> list[Entry]:
        after = super().acknowledge(batch, queue, acknowledged, is_busy=is_busy)
        return [*self.unacknowledged, *after[self.resending :]] if self.must_resend else after


class SendsAgainInBatches(RankedReceiver):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._batches = SendsAgainAsItWasSent()


# Lives


class SendsWhatIsOver(RankedReceiver):
    def depart(self) -> None:
        pass

    def _is_due(self, now: int) -> bool:
        return False


class ForgetsWhatIsSentAgain(Batches):
    def expire(self, now: int, queue: list[Entry], *, is_away: bool) -> tuple[list[Entry], list[Entry]]:
        gone = [entry for entry in queue if entry.is_over(now)]
        return [entry for entry in queue if not entry.is_over(now)], gone


class ForgetsBatches(RankedReceiver):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._batches = ForgetsWhatIsSentAgain()


class LeavesLettersOfWhatIsOver(RankedServer):
    def _end_open(self, durable: DurableSession) -> None:
        super(RankedServer, self)._end_open(durable)


class ForgetsLives(DurableSession):
    def _note_expiry(self, expires: int) -> None:
        pass


class KnowsTheLastLife(DurableSession):
    def _note_expiry(self, expires: int) -> None:
        self.expiry = max(self.expiry, expires)


class ForgetsOldLives(DurableSession):
    @classmethod
    def adopted(cls, record: SessionRecord) -> DurableSession:
        durable = super().adopted(record)
        durable.expiry = 0
        return durable


class LooksOnce(DurableSession):
    def expired(self, now: int) -> list[LogId]:
        found = super().expired(now)
        self.expiry = 0
        return found


class ExpiresEarly(DurableSession):
    def expired(self, now: int) -> list[LogId]:
        return super().expired(now + 300)


class LooksAtTheLogOnly(DurableSession):
    def expired(self, now: int) -> list[LogId]:
        return [each for each in super().expired(now) if each in self.pending]


class ForgetsWhoHasLives(LogConsumer):
    def mark_dirty(self, durable: DurableSession) -> None:
        expiry, durable.expiry = durable.expiry, 0
        super().mark_dirty(durable)
        durable.expiry = expiry


@pytest.mark.parametrize(
    ("rule", "parts", "first"),
    [
        ("what is evicted goes by priority", {"durable": EvictsByAge}, 43),
        ("what comes back goes by priority", {"durable": ComesBackByAge}, 21),
        ("what goes before all that is evicted is queued", {"durable": EvictsWhatGoesFirst}, 236),
        ("what goes behind something evicted is evicted", {"durable": EvictsNothingThatArrives}, 39),
        ("what was read goes behind what came meanwhile", {"durable": TakesAllThatWasRead}, 98),
        ("what is queued goes by priority", {"receiver": QueuesAtTheEnd}, 16),
        ("what is sent again stays in front", {"receiver": OvertakesWhatIsSentAgain}, 104),
        ("what is not stored waits again by priority", {"receiver": RecallsAsItCame}, 32),
        ("after a pause all is in order", {"receiver": GoesOnAsItIs}, 53),
        ("what is sent again goes by priority", {"receiver": SendsAgainInBatches}, 251),
        ("nothing leaves when its life is over", {"receiver": SendsWhatIsOver}, 25),
        ("what is over leaves its batch", {"receiver": ForgetsBatches}, 129),
        ("what is over is no letter", {"server": LeavesLettersOfWhatIsOver}, 23),
        ("what is taken has a life", {"durable": ForgetsLives}, 4),
        ("the shortest life counts", {"durable": KnowsTheLastLife}, 33),
        ("what comes back has a life", {"durable": ForgetsOldLives}, 32),
        ("who has more lives is looked at again", {"durable": LooksOnce}, 110),
        ("nothing goes before its time", {"durable": ExpiresEarly}, 21),
        ("what lies in the inbox has a life", {"durable": LooksAtTheLogOnly}, 99),
        ("who comes back with lives is known", {"node": ForgetsWhoHasLives}, 4),
    ],
)
def test_each_rule_taken_out_is_noticed(rule: str, parts: dict[str, Any], first: int) -> None:
    expect_broken(lambda seed: RankedRun(seed, **parts).run(STEPS), first, MOST_SEEDS)
