"""Dead letters that are redriven or discarded because an operator asks for it.

Each dead letter is moved by one step of the store. Whenever this ends, a dead letter is in exactly one place, and what is left
is what is not done. A call works on so many dead letters, or for so long, and answers where to continue."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from crewel.bayeux.channel import parse
from crewel.broker.addressing.consumer_groups import ConsumerGroups
from crewel.broker.addressing.session_names import Names
from crewel.broker.addressing.shared_queues import SharedQueues
from crewel.broker.dead_letters.bin import DeadLetterWork
from crewel.broker.dead_letters.room import Room
from crewel.broker.mailboxes.backlog_loader import BacklogLoader
from crewel.delivery.entry import priority_in
from crewel.delivery.records import PendingMessage, SessionName
from crewel.errors import IllegalArgument, StoreUncertain
from crewel.qos.connect import Bounds
from crewel.qos.names import is_queue
from crewel.storage import dead_letter_bin, dead_letter_store
from crewel.storage.dead_letter_records import DeadLetterFilter, StoredDeadLetter
from crewel.storage.dead_letter_store import Redriven, RedriveOutcome

_AT_ONCE: Final = 64
"""Dead letters whose steps are under way together."""
_PER_SECOND: Final = 10  # portions, where there is a rate
_READ: Final = 500
_PATIENCE_S: Final = 5.0  # for the store's answer to what it was asked


class Undone(NamedTuple):
    """A dead letter that stayed where it was, or that there is none of."""

    dead_id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which dead letters: these, of the channels within which they are wanted; or all that are wanted, after this place."""

    wanted: DeadLetterFilter = field(default_factory=DeadLetterFilter)
    after: str = ""
    ids: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one call does."""

    count: int = 1000
    """Dead letters at most."""
    seconds: float = 5.0
    rate: float | None = None
    """Maximum number of dead letters per second."""
    is_interrupted: Callable[[], bool] = lambda: False
    """Asked between dead letters: whether the call was given up."""
    job_id: str = ""
    """The job that the call is part of, which counts what is done; empty if it is of none."""
    room: Room | None = None
    """What is done about receivers without room; None: their dead letters stay."""


@dataclass(slots=True)
class Report:
    """What one call did."""

    done: int = 0
    undone: list[Undone] = field(default_factory=list)
    next: str = ""
    """The place to continue after; empty if nothing is left to do."""
    wait_s: float = 0.0
    """How long to wait before continuing, for the rate."""


@dataclass(slots=True)
class _Free:
    """The bounds of one receiver, and the messages that wait for it."""

    bounds: Bounds
    waiting: int
    size: int

    def take(self, size: int) -> bool:
        """Let one more message wait, of so many bytes; False if there is no room for it."""
        if self.bounds.exceeded(self.waiting, self.size + size) is not None:
            return False
        self.waiting += 1
        self.size += size
        return True


class _Try(NamedTuple):
    """A dead letter that is to be moved."""

    letter: StoredDeadLetter
    receiver: str
    place: str
    """That behind which it lies."""
    future: asyncio.Future[Redriven] | None
    """The store's answer; None: it was not asked, for there is no room."""


@dataclass(eq=False)
class DeadLetterRedrive(DeadLetterWork):
    """Redrives and discards."""

    _loader: BacklogLoader
    _names: Names
    _groups: ConsumerGroups
    _shared_queues: SharedQueues
    on_redriven: list[Callable[[StoredDeadLetter, str, Redriven], None]] = field(default_factory=list, init=False)
    """Called with a dead letter that was moved, its receiver (empty: its channel), and the outcome."""

    async def count(self, chosen: Chosen) -> int:
        """How many dead letters are chosen, at this moment. Raises StoreError, ValueError for an `until` that is no dead id."""
        if chosen.ids is not None:
            return (await self.receivers_of(chosen, chosen.ids)).total()
        return await dead_letter_store.count(self.access.store, chosen.wanted)

    async def receivers_of(self, chosen: Chosen, ids: Sequence[str]) -> Counter[str]:
        """How many of these dead letters each receiver has. Raises StoreError."""
        letters = await dead_letter_store.get(self.access.store, ids)
        return Counter(each.receiver for each in filter(chosen.wanted.is_within, letters))

    def room(self, receiver: str) -> int | None:
        """How many messages more may wait for this receiver, by their number; None if this server does not know it."""
        if not is_queue(receiver) and self._names.find(receiver) is None:
            return None
        free = self._free(receiver, {})
        return max(free.bounds.max_entries - free.waiting, 0) if free.size <= free.bounds.max_bytes else 0

    async def redrive(self, chosen: Chosen, limits: Limits, *, to_channel: bool = False) -> Report:
        """Send dead letters again: to their receivers, or to all subscribers of their channels and the groups there; those of
        addressed messages to their destinations then. Raises StoreError, ValueError for a place that is no dead id."""
        loop, report = self._runtime.loop, Report()
        start, asked, before = loop.time(), 0, chosen.after
        portion = _AT_ONCE if limits.rate is None else max(1, min(_AT_ONCE, int(limits.rate / _PER_SECOND)))
        # What an earlier walk has moved is not missing.
        names_missing = limits.room is None or limits.room.only is None
        found = self._portions(chosen, limits.count, portion, report, names_missing=names_missing)
        async with aclosing(found) as portions:
            async for letters in portions:
                asked += await self._send(letters, before, report, limits, to_channel=to_channel)
                before = report.next
                due = 0.0 if limits.rate is None else start + asked / limits.rate - loop.time()
                if limits.is_interrupted() or loop.time() + due > start + limits.seconds:
                    report.wait_s = max(0.0, due)
                    break
                await asyncio.sleep(due)  # zero lets others have their turn
        return report

    async def edit(self, letter: StoredDeadLetter, body: bytes, who: str, *, to_channel: bool = False) -> Redriven:
        """Send this body in place of the dead letter's, as `redrive` sends it; the bin keeps the dead letter. Raises
        StoreError; IllegalArgument if it cannot be sent."""
        receiver = letter.to if to_channel else letter.receiver
        room = self._free(receiver, {}) if receiver else None
        if room is not None and not room.take(len(body)):
            raise IllegalArgument("id", _undone(letter, RedriveOutcome.FULL, receiver).message)
        asked = self._ask(replace(letter, body=body), receiver, room, "", who)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                answer = await asyncio.shield(asked)
        except TimeoutError:
            raise StoreUncertain("the store has not answered yet: it may still send the dead letter") from None
        if answer.outcome is not RedriveOutcome.MOVED:
            raise IllegalArgument("id", _undone(letter, answer.outcome, receiver).message)
        await self.access.writing.probe()
        return answer

    async def discard(self, chosen: Chosen, limits: Limits, who: str, *, keeps: bool = True) -> Report:
        """Move dead letters into the bin, or with `keeps` false remove them for good, from the bin too. Raises as `redrive`
        does; StoreFull if there is no room for the bin."""
        loop, report = self._runtime.loop, Report()
        start = loop.time()
        async with aclosing(self._portions(chosen, limits.count, _READ, report, with_bin=not keeps)) as portions:
            async for letters in portions:
                ids = [letter.dead_id for letter in letters]
                access = self.access
                step = dead_letter_store.discard(
                    access.keys, access.token, ids, access.facts_max, who, limits.job_id, keeps=keeps
                )
                discarded = await access.writing.ask(step)
                self._runtime.metrics.letters_discarded += discarded
                report.done += discarded
                if limits.is_interrupted() or loop.time() > start + limits.seconds:
                    break
        return report

    async def _portions(
        self,
        chosen: Chosen,
        count: int,
        portion: int,
        report: Report,
        *,
        with_bin: bool = False,
        names_missing: bool = True,
    ) -> AsyncGenerator[list[StoredDeadLetter], None]:
        """The chosen dead letters, a few at a time; `with_bin`, those chosen by id may be in the bin; `names_missing`, those
        that are not there are reported. While one portion is worked on, `report.next` is the place after it."""
        if chosen.ids is not None:
            async for letters, missing in self._by_id(chosen, chosen.ids, count, portion, report, with_bin=with_bin):
                report.undone += map(_gone, missing) if names_missing else ()
                yield letters
            return
        place, left = chosen.after, count
        while left > 0:
            page = await dead_letter_store.page(self.access.store, chosen.wanted, place, min(left, _READ))
            left -= len(page.letters)
            for start in range(0, len(page.letters), portion):
                letters = page.letters[start : start + portion]
                is_last = start + portion >= len(page.letters)
                report.next = page.next if is_last else letters[-1].dead_id
                yield letters
            report.next = place = page.next
            if not place:
                return

    async def _by_id(
        self, chosen: Chosen, ids: Sequence[str], count: int, portion: int, report: Report, *, with_bin: bool
    ) -> AsyncGenerator[tuple[list[StoredDeadLetter], list[str]], None]:
        for start in range(0, min(count, len(ids)), portion):
            end = min(start + portion, count)
            asked = ids[start:end]
            letters = await dead_letter_store.get(self.access.store, asked)
            if with_bin:
                letters += [each.letter for each in await dead_letter_bin.get(self.access.store, asked)]
            letters = list(filter(chosen.wanted.is_within, letters))
            there = {letter.dead_id for letter in letters}
            report.next = asked[-1] if end < len(ids) else ""
            yield letters, [dead_id for dead_id in asked if dead_id not in there]

    async def _send(
        self, letters: list[StoredDeadLetter], before: str, report: Report, limits: Limits, *, to_channel: bool
    ) -> int:
        """Have the store move these dead letters, which come after this place, all at once and each for itself. Returns of how
        many it was asked: what is passed over or has no room costs nothing of the rate."""
        room = limits.room
        leaving = None if room is None or not room.may_leave else room
        tries: list[_Try] = []
        free: dict[str, _Free] = {}
        without: set[str] = set()
        for place, letter in zip([before, *(each.dead_id for each in letters)], letters, strict=False):
            receiver = letter.to if to_channel else letter.receiver
            if receiver in without or (room is not None and room.passes_over(receiver)):
                continue
            bounds = self._free(receiver, free) if receiver else None
            if bounds is None or bounds.take(len(letter.body)):
                tries.append(_Try(letter, receiver, place, self._ask(letter, receiver, bounds, limits.job_id)))
                continue
            tries.append(_Try(letter, receiver, place, None))
            if leaving is not None:
                without.add(receiver)
        await self._answered(tries, report, leaving)
        return sum(each.future is not None for each in tries)

    async def _answered(self, tries: list[_Try], report: Report, room: Room | None) -> None:
        """Wait for the store's answers, and report them; leave in `room` what has none."""
        asked = [each.future for each in tries if each.future is not None]
        if asked:
            done, _ = await asyncio.wait(asked, timeout=_PATIENCE_S)
            failures = [failure for future in done if (failure := future.exception()) is not None]
            if failures:
                raise failures[0]
        for each in tries:
            if each.future is not None and not each.future.done():
                text = "the store does not answer; the dead letter is sent as soon as it does"
                report.undone.append(Undone(each.letter.dead_id, "resource.unavailable", text))
                continue
            outcome = RedriveOutcome.FULL if each.future is None else each.future.result().outcome
            if outcome is RedriveOutcome.MOVED:
                report.done += 1
            elif room is not None and room.is_about(outcome):
                room.leave(each.receiver, each.place)
            else:
                self._runtime.metrics.letters_redriven[outcome.value] += each.future is None  # else it is counted
                report.undone.append(_undone(each.letter, outcome, each.receiver))
        if asked:  # what was sent again lies in queues then, behind all that is older
            await self.access.writing.probe()

    def _free(self, receiver: str, rooms: dict[str, _Free]) -> _Free:
        """What may still wait for this receiver. What one that is here has got since the last commit, the store does not
        know yet."""
        if receiver not in rooms and is_queue(receiver):
            rooms[receiver] = _Free(self._shared_queues.bounds(receiver), self._shared_queues.waiting(receiver), 0)
        elif receiver not in rooms:
            session = self._names.find(receiver)
            view = None if session is None else session.mailbox.view()
            if view is not None and view.bounds is not None:
                rooms[receiver] = _Free(view.bounds, view.depth, view.size)
            else:
                delivery = self._runtime.settings.delivery
                rooms[receiver] = _Free(Bounds(delivery.queue_max_entries, delivery.queue_max_bytes), 0, 0)
        return rooms[receiver]

    def _ask(
        self, letter: StoredDeadLetter, receiver: str, room: _Free | None, job_id: str, editor: str = ""
    ) -> asyncio.Future[Redriven]:
        """Have the store move one dead letter: to this receiver, which has this room, or without one to the channel. With an
        `editor` its body is one that the store does not have."""
        access = self.access
        channel = None if receiver else parse(letter.channel)
        groups = self._groups.on(channel) if channel is not None else ()
        step = dead_letter_store.redrive(
            access.keys,
            access.token,
            letter,
            access.facts_max,
            to_channel=receiver != letter.receiver,
            max_entries=0 if room is None else room.bounds.max_entries,
            max_bytes=0 if room is None else room.bounds.max_bytes,
            job_id=job_id,
            body=letter.body if editor else b"",
            who=editor,
            is_elsewhere=self._runtime.cluster.may_have(SessionName(receiver)),
            groups=groups,
        )

        def answered(answer: Any) -> Any:
            # At once, and not when the future is awaited: what was moved must be known in any case.
            if isinstance(answer, Redriven):
                self._runtime.metrics.letters_redriven[answer.outcome.value] += 1
            if isinstance(answer, Redriven) and answer.outcome is RedriveOutcome.MOVED:
                if room is not None:
                    self._arrived(letter, receiver, answer)
                self._shared_queues.filled_groups(groups, answer.id)
                for follow in self.on_redriven:
                    follow(letter, receiver, answer)
            return answer

        return access.writing.ask(step, retries=True, then=answered)

    def _arrived(self, letter: StoredDeadLetter, receiver: str, moved: Redriven) -> None:
        if is_queue(receiver):
            self._shared_queues.filled_for_all(receiver)
            return
        durable = self._runtime.access.node.sessions.get(SessionName(receiver))

        def take() -> None:
            if (
                durable is not None and durable.connected is not None
            ):  # else it is ending, and its end finds the message
                pending = PendingMessage(0, moved.size, letter.channel, priority_in(letter.qos))
                self._loader.on_inbox_message(durable, moved.id, pending)

        self._runtime.access.in_place(moved.id, take)


def _gone(dead_id: str) -> Undone:
    return Undone(dead_id, "user.illegalArgument", "there is no such dead letter, or it has been removed")


def _undone(letter: StoredDeadLetter, outcome: RedriveOutcome, receiver: str) -> Undone:
    """Why a dead letter was not moved to this receiver."""
    match outcome:
        case RedriveOutcome.NO_RECEIVER:
            text = f"there is no session {receiver}"
            if letter.to in ("", receiver):
                further = "" if letter.to else "; it can be sent to its channel instead"
            else:
                further = f"; it can be sent to its channel instead, which reaches {letter.to} only"
            return Undone(letter.dead_id, "user.ptp.unknownDestinationSession", text + further)
        case RedriveOutcome.FULL:
            text = f"the queue of {receiver} is full"
            return Undone(letter.dead_id, "resource.overflow.queue.entries", text)
        case RedriveOutcome.EMPTY:
            return Undone(letter.dead_id, "user.message.invalid", "nothing is left of its message")
        case _:
            return _gone(letter.dead_id)
