"""The ledger of receivers that fail: nothing is lost, nothing crossed, and the sums are exact.

`make test` does as many random runs as fit into a quarter of a second, `make faults` 1,000, and CREWEL_RUNS tells any number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

from crewel.delivery.batches import Batches
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry
from crewel.delivery.pending_dead_letters import PendingDeadLetters
from crewel.delivery.records import EndReason, LogId, PendingDeadLetter, PendingMessage
from crewel.delivery.sent_messages import id_of
from tests.delivery.failing import FailingRun, FailingStore
from tests.delivery.receiver import Receiver
from tests.delivery.receiving import ReceivingServer
from tests.delivery.seeded import PORTION, expect_broken, run_count, run_portion
from tests.delivery.store_model import SessionRow

RUNS = run_count(20, 1000)
STEPS = 500
MOST_SEEDS = 2000
"""Runs in which a rule taken out must have been noticed."""

pytestmark = pytest.mark.uncounted


@pytest.mark.parametrize("first", range(0, RUNS, PORTION))
def test_what_was_owed_has_ended_once_or_waits_however_receivers_fail(first: int) -> None:
    run_portion(lambda seed: FailingRun(seed).run(STEPS), first, RUNS)


# One rule taken out each: a run that finds nothing wrong with these would prove nothing.


class LeavesInTheBatch(Receiver):
    def _take_back(self, entries: Collection[Entry]) -> None:
        pass


class KeepsBatchesOfWhatWaits(Receiver):
    def _recall(self, entries: Iterable[Entry] = ()) -> None:
        batches, self._batches = self._batches, Batches()
        super()._recall(entries)
        self._batches = batches


class ForgetsWhatIsQueued(Receiver):
    def _recall(self, entries: Iterable[Entry] = ()) -> None:
        super()._recall(entries)
        self._queue = [each for each in self._queue if each in entries]


class SendsWhatHasEnded(Receiver):
    def _take_out_many(self, gone: Collection[Entry]) -> None:
        for entry in gone:
            self._dispatcher.messages.close(id_of(entry))


class DropsWhatIsAtTheClient(Receiver):
    def forget_stored(self, place: LogId) -> None:
        self.durable.forget_evicted(place)


class GoesOnAsItIs(Receiver):
    def _pause(self, *, is_paused: bool) -> None:
        self._is_paused = is_paused


class BuriesWithoutAnEnd(DurableSession):
    def dead_letter(self, letter: PendingDeadLetter) -> None:
        self.dead_letters = self.dead_letters or PendingDeadLetters()
        self.dead_letters.add(letter, PendingMessage())


class TakesWhatArrivesTwice(DurableSession):
    def arrived(self, log_id: LogId, waiting: PendingMessage) -> bool:
        self._stored_inbox.pop(log_id, None)
        return super().arrived(log_id, waiting)


class BoxesNothing(DurableSession):
    def end_message(self, log_id: LogId, reason: EndReason = EndReason.SETTLED) -> bool:
        return log_id in self.pending and super().end_message(log_id, reason)


class KeepsWhatIsRejected(ReceivingServer):
    def _offer(self, receiver: Receiver, entry: Entry) -> bool:
        if receiver._dispatcher.rejection is not None:
            return False
        return super()._offer(receiver, entry)


class ForgetsWhatIsOnItsWay(FailingStore):
    def _untold(self, row: SessionRow, told: set[LogId]) -> tuple[LogId, ...]:
        return ()


class MovesTwice(FailingStore):
    def redrive(self, token: str, letter: PendingDeadLetter) -> LogId | None:
        self._moved.clear()
        return super().redrive(token, letter)


@pytest.mark.parametrize(
    ("rule", "parts", "first"),
    [
        ("what waits again is in no batch", {"receiver": LeavesInTheBatch}, 28),
        ("what waits in the store is in no batch", {"receiver": KeepsBatchesOfWhatWaits}, 1238),
        ("what is not stored stays in memory", {"receiver": ForgetsWhatIsQueued}, 26),
        ("what has ended leaves queue and batches", {"receiver": SendsWhatHasEnded}, 0),
        ("what is dropped leaves the dispatcher", {"receiver": DropsWhatIsAtTheClient}, 6),
        ("after a pause the oldest comes first", {"receiver": GoesOnAsItIs}, 11985),
        ("a letter is an end", {"durable": BuriesWithoutAnEnd}, 31),
        ("what arrives again is known", {"durable": TakesWhatArrivesTwice}, 29),
        ("what lies in the inbox can end", {"durable": BoxesNothing}, 37),
        ("a dispatcher that rejects everything makes dead letters", {"server": KeepsWhatIsRejected}, 34),
        ("what is on its way ends with its session", {"store": ForgetsWhatIsOnItsWay}, 2216),
        ("a letter is moved once", {"store": MovesTwice}, 29),
    ],
)
def test_each_rule_taken_out_is_noticed(rule: str, parts: dict[str, Any], first: int) -> None:
    expect_broken(lambda seed: FailingRun(seed, **parts).run(STEPS), first, MOST_SEEDS)
