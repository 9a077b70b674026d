"""The queue of what is written to the store: one group of steps at a time, whose answers are handed out in their order.

What is published goes into the log, whose part of a broker makes the step and takes the answer: `Log`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final, Generic, Protocol, TypeVar

from crewel.broker.handler_steps import resolve
from crewel.delivery.pending_dead_letters import MAX_DEAD_LETTER_COST
from crewel.delivery.records import Submission
from crewel.errors import StoreError, StoreFull, StoreUnavailable, StoreUncertain
from crewel.event_loop import TURN_S, Turns
from crewel.storage.log import Appended
from crewel.storage.script_step import REPEATABLE_S, Step
from crewel.storage.store import Store

log = logging.getLogger(__name__)

T = TypeVar("T")
N = TypeVar("N")

MOST_PUBLISHES: Final = 256
"""Publishes that one step carries at most."""
MOST_BYTES: Final = 2**20
"""Bytes of the publishes that the store is asked to append in one turn of the loop: to write them takes a few milliseconds."""
BYTES_A_LETTER: Final = MOST_BYTES // MAX_DEAD_LETTER_COST
"""What a dead letter counts among them, so that the ends of many sessions at once do not look like an outage of the store."""
_MOST_STEPS: Final = 256
_NOT_PROCESSED: Final = "a reply of the store could not be processed"
_PAUSE: Final = 0.2  # seconds before a step is asked again that has to be answered some time


class Log(Protocol[T]):
    """What the queue needs of the log; `T` is what a publisher wants to find again."""

    def append_step(self, submissions: list[Submission]) -> Step[Appended]:
        """Return the step that appends these."""

    def appended(self, pending: list[T], answer: Appended | StoreError) -> Awaitable[None] | None:
        """Take what the store has answered to such a step. What is returned must be waited for before the answers that
        follow."""


class _Request:
    """A place in the queue: what the store is asked for there, and who takes its answer."""

    __slots__ = ("asks", "done", "doubted_at", "group", "retries_until", "size", "step", "unordered")

    def __init__(
        self,
        step: Callable[[], Step[Any] | None],
        done: Callable[[Any], Awaitable[None] | None],
        *,
        group: _Group[Any] | None = None,
        asks: bool = True,
        size: int = 0,
        retries_until: float = 0.0,
        doubted_at: float = math.inf,
        unordered: bool = False,
    ) -> None:
        self.step = step
        """Called when the store is asked; returns the step."""
        self.done = done
        """Gets the answer, or the StoreError. What it returns must be waited for before the answers that follow."""
        self.group = group
        """What further publishes join, while nothing follows."""
        self.asks = asks
        """Whether the store is asked for anything: if not, there is no step and no answer."""
        self.size = size
        self.retries_until = retries_until
        """By the loop's clock; 0 if it is asked once."""
        self.doubted_at = doubted_at
        """Since when the store may have done it without an answer; infinite if it has not, as far as is known."""
        self.unordered = unordered


_Group = tuple[list[Submission], list[T]]
"""Publishes that go into the log together, and what each publisher wants to find again."""
_Round = Generator[list[Step[Any]] | Awaitable[None], Any, None]
"""It yields the steps that the store is asked for, and gets the answers; then what must be waited for between two of them."""


class WriteQueue(Generic[T]):
    """The queue. It is closed until `open` gives it a store."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop, log: Log[T]) -> None:
        self._store = store
        self._loop = loop
        self._log = log
        self._queue: deque[_Request] = deque()
        self._round: _Round | None = None
        self._asked: Sequence[_Request] = ()  # until all are answered
        self._idle: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None  # that keeps answers waiting
        self._turn: asyncio.Task[None] | None = None  # work that does not wait for what is under way
        self._paused: set[asyncio.TimerHandle] = set()
        self._on_forgotten: Callable[[float], None]
        self.is_closed = True

    def open(self, store: Store, on_forgotten: Callable[[float], None]) -> None:
        """Ask this store from now on. `on_forgotten` is called with the time since when a step was in doubt, when that ends so
        late that the store may have forgotten what it has done of it."""
        self._store, self._on_forgotten, self.is_closed = store, on_forgotten, False

    # What is put into it

    def publish(self, submission: Submission, pending: T) -> None:
        """Put one more publish into the last group, or begin a new one."""
        last, size = self._queue[-1] if self._queue else None, len(submission.body)
        group: _Group[T] | None = None if last is None else last.group
        if (
            last is None
            or group is None
            or len(group[0]) >= MOST_PUBLISHES
            or (group[0] and last.size + size > MOST_BYTES)
        ):
            group = [], []
            last = _Request(
                partial(self._log.append_step, group[0]), partial(self._log.appended, group[1]), group=group
            )
            self._queue.append(last)
        last.size += size
        group[0].append(submission)
        group[1].append(pending)
        if self._round is None:
            self._wake()

    def submit(
        self,
        step: Step[Any],
        done: Callable[[Any], None],
        *,
        retries: bool = False,
        for_s: float = math.inf,
        in_doubt: bool = False,
        size: int = 0,
        unordered: bool = False,
    ) -> None:
        """Ask the store; `done` gets the answer, or the StoreError. `retries`: ask again until the store has answered, at
        most for `for_s` seconds, for a step that may be repeated; before that only a refusal comes back as an error.
        `in_doubt`: the store may have done it, for it was asked before and gave no answer. `size`: what it counts of
        `MOST_BYTES`. `unordered`: neither the step nor its answer depends on what is taken from the log meanwhile."""
        now = self._loop.time() if retries or in_doubt else 0.0
        self._queue.append(
            _Request(
                lambda: step,
                done,
                size=size,
                retries_until=now + for_s if retries else 0.0,
                doubted_at=now if in_doubt else math.inf,
                unordered=unordered,
            )
        )
        self._wake()

    async def asked_again(self) -> None:
        """Wait until the store does what it is asked to, and all that had to be asked again was asked once more since then.
        Raises StoreError."""
        await self.ask(self._store.marks.step(), retries=True)
        await asyncio.sleep(_PAUSE)  # and then all that was in a pause is in the queue
        await self.ask(self._store.marks.step(), retries=True)

    def probe(self) -> asyncio.Future[None]:
        """Append nothing: the answer shows what has been appended without our knowing. The future is done when all that had
        been appended by then was taken, or failed."""
        done: asyncio.Future[None] = self._loop.create_future()
        taken = partial(self._log.appended, [])
        self._queue.append(_Request(partial(self._log.append_step, []), partial(_tell, taken, done)))
        self._wake()
        return done

    def in_turn(self, look: Callable[[], N], work: Callable[[N], Awaitable[None] | None]) -> None:
        """Do `work` when all has been answered that was asked for before. It gets what `look` returned before the store was
        asked for anything behind it. What `work` returns must be waited for before the next answer is handed out.

        It does not wait for unordered steps that follow the last ordered one, and is done at once if there is no ordered one.
        On a slow line it would wait longer than it takes to read the log."""
        found: list[N] = []

        def done(_: object) -> Awaitable[None] | None:
            # If a step before it could not be made, the store was asked for nothing.
            return work(found[0] if found else look())

        turn, place = _Request(lambda: found.append(look()), done, asks=False), len(self._queue)
        while place and self._queue[place - 1].unordered:
            place -= 1
        if not place and all(each.unordered for each in self._asked):
            self._loop.call_soon(self._take_turn, turn)
        else:
            self._queue.insert(place, turn)
            self._wake()

    def _take_turn(self, turn: _Request) -> None:
        if self._turn is not None:
            self._queue.appendleft(turn)
            self._wake()
        elif (awaited := turn.done(None)) is not None:
            self._turn = self._loop.create_task(self._finish_turn(awaited))

    async def _finish_turn(self, awaited: Awaitable[None]) -> None:
        try:
            await awaited
        finally:
            self._turn = None

    def probe_later(self) -> None:
        """Call `probe` after a pause."""
        self._after_pause(self.probe)

    def ask(
        self,
        step: Step[Any],
        *,
        retries: bool = False,
        then: Callable[[Any], Any] | None = None,
        unordered: bool = False,
    ) -> asyncio.Future[Any]:
        """Ask the store; the future has the answer, or raises the StoreError. `then` is called with either like the function of
        `submit`, and the future has what it returns instead of the answer."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def answered(answer: Any) -> None:
            result = answer if then is None else then(answer)
            resolve(future, answer if isinstance(answer, StoreError) else result)

        self.submit(step, answered, retries=retries, unordered=unordered)
        return future

    async def close(self) -> None:
        """Wait for what is under way and in the queue. What retries and finds no store is given up."""
        self.is_closed = True
        for timer in self._paused:
            timer.cancel()
        for waited in (self._turn, self.under_way):
            if waited is not None:
                await asyncio.wait([waited])

    @property
    def under_way(self) -> asyncio.Future[None] | None:
        """Done when nothing is under way and in the queue any more; None if that is so."""
        if self._round is not None and self._idle is None:
            self._idle = self._loop.create_future()
        return self._idle

    # Its rounds

    def _wake(self) -> None:
        if self._round is None:
            self._round = self._next_round()
            self._loop.call_soon(self._go_on)  # and what comes in the same turn goes with it

    def _next_round(self) -> _Round:
        """Ask the store for what is first in the queue, and hand out the answers in their order. What is first and asks for
        nothing goes alone: all before it is answered, so it need not wait for what is behind it."""
        queue, store = self._queue, self._store
        requests = self._asked = [queue.popleft()]
        size = requests[0].size
        while queue and requests[0].asks and len(requests) < _MOST_STEPS and size + queue[0].size <= MOST_BYTES:
            requests.append(queue.popleft())
            size += requests[-1].size
        store.until_look -= size
        if store.until_look < 0:
            store.look_soon()
        steps: list[Step[Any]] = []
        answers: Iterator[Any]
        try:
            for request in requests:
                if (step := request.step()) is not None:
                    steps.append(step)  # noqa: PERF401 - a comprehension is a call more
        except Exception as error:  # noqa: BLE001 - it is logged, and becomes the answer
            answers = repeat(_not_asked(error))
        else:
            answers = iter((yield steps))
        if self._turn is not None:
            yield self._turn
        turns = Turns(TURN_S, is_urgent=True) if len(requests) > 1 else None
        for request in requests:
            if turns is not None and turns.is_over():
                yield turns.end()  # the end of a session among many messages takes a millisecond
            answer = next(answers) if request.asks else None
            if request.retries_until and self._is_asked_again(request, answer):
                continue
            try:
                rest = request.done(answer)
            except Exception:
                log.exception(_NOT_PROCESSED)
                continue
            if rest is not None:
                yield rest
        self._round, self._asked = None, ()
        if queue:
            self._wake()
        elif self._idle is not None:
            resolve(self._idle, None)
            self._idle = None

    def _go_on(self, result: Any = None) -> None:
        """Continue the round with what it has waited for, up to what it waits for next."""
        assert self._round is not None
        try:
            wanted = self._round.send(result)
        except StopIteration:
            return
        if not isinstance(wanted, list):
            self._task = self._loop.create_task(self._go_on_later(wanted))
        elif not wanted:
            self._go_on([])
        else:
            try:
                self._store.submit(wanted, self._go_on)
            except Exception as error:  # noqa: BLE001 - it is logged, and becomes the answer
                self._go_on([_not_asked(error)] * len(wanted))

    async def _go_on_later(self, awaited: Awaitable[None]) -> None:
        try:
            await awaited
        except Exception:
            log.exception(_NOT_PROCESSED)
        finally:
            self._go_on()

    def _is_asked_again(self, request: _Request, answer: Any) -> bool:
        """Whether the store will be asked again; if not, this is what comes of the step."""
        now = self._loop.time()
        if isinstance(answer, StoreUncertain):
            request.doubted_at = min(request.doubted_at, now)
        if isinstance(answer, StoreUnavailable | StoreFull) and not self.is_closed and now < request.retries_until:
            self._ask_later(request)
            return True
        if now >= request.doubted_at + REPEATABLE_S and self._is_remembered(request.step()):
            self._on_forgotten(request.doubted_at)
        return False

    def _is_remembered(self, step: Step[Any] | None) -> bool:
        """Whether the store remembers for a while that it has done this. Any other step may be asked again at any time."""
        begin = self._store.keys.once("")
        return step is not None and any(key.startswith(begin) for key in step.keys)

    def _ask_later(self, request: _Request) -> None:
        def again() -> None:
            self._queue.append(request)
            self._wake()

        self._after_pause(again)

    def _after_pause(self, function: Callable[[], object]) -> None:
        def call() -> None:
            self._paused.discard(timer)
            function()

        timer = self._loop.call_later(_PAUSE, call)
        self._paused.add(timer)


def _tell(
    taken: Callable[[T], Awaitable[None] | None], done: asyncio.Future[None], answer: T
) -> Awaitable[None] | None:
    """Call `taken` with the answer, and resolve `done` when all that comes of it has happened."""
    rest = taken(answer)
    if rest is not None:
        return _then(rest, done)
    resolve(done, None)
    return None


async def _then(rest: Awaitable[None], done: asyncio.Future[None]) -> None:
    try:
        await rest
    finally:
        resolve(done, None)


def _not_asked(error: Exception) -> StoreError:
    log.error("a request to the store failed", exc_info=error)
    return StoreError(f"the store could not be asked: {error}")
