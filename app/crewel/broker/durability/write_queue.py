"""The queue of what is written to the store: one group of steps at a time, whose answers are handed out in their order.

What is published goes into the log, whose part of a broker makes the step and takes the answer: `Log`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from crewel.broker.handler_steps import resolve
from crewel.delivery.pending_dead_letters import MAX_DEAD_LETTER_COST
from crewel.delivery.records import Submission
from crewel.errors import StoreError, StoreFull, StoreUnavailable, StoreUncertain
from crewel.storage.log import Appended
from crewel.storage.script_step import REMEMBERED_MS, Step
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
REPEATABLE_S: Final = REMEMBERED_MS / 1000 - 20.0
"""How long a step with a key of its own may be asked again: some seconds less than the store remembers it, for a connection
whose end is noticed late, and for the time that the store takes."""
_MOST_STEPS: Final = 256
_PAUSE: Final = 0.2  # seconds before a step is asked again that has to be answered some time


class Log(Protocol[T]):
    """What the queue needs of the log; `T` is what a publisher wants to find again."""

    def append_step(self, submissions: list[Submission]) -> Step[Appended]:
        """Return the step that appends these."""

    def appended(self, pending: list[T], answer: Appended | StoreError) -> Awaitable[None] | None:
        """Take what the store has answered to such a step. What is returned must be waited for before the answers that
        follow."""


class _Request(Generic[T]):
    """One step, and who wants its answer."""

    __slots__ = ("done", "doubted_at", "retries_until", "size", "step", "unordered")

    def __init__(
        self,
        step: Step[T],
        done: Callable[[T | StoreError], None],
        *,
        retries_until: float,
        doubted_at: float,
        size: int,
        unordered: bool,
    ) -> None:
        self.step = step
        self.done = done
        self.retries_until = retries_until
        """By the loop's clock; 0 if it is asked once."""
        self.doubted_at = doubted_at
        """Since when the store may have done it without an answer; infinite if it has not, as far as is known."""
        self.size = size
        self.unordered = unordered

    def asked(self) -> Step[T]:
        return self.step

    def answered(self, answer: T | StoreError) -> None:
        self.done(answer)


class Publishes(Generic[T]):
    """Publishes that go into the log together, each with what its publisher wants to find again."""

    __slots__ = ("_log", "pending", "size", "submissions")
    retries_until, unordered = 0.0, False

    def __init__(self, log: Log[T]) -> None:
        self._log = log
        self.size = 0
        """Bytes of their bodies."""
        self.submissions: list[Submission] = []
        self.pending: list[T] = []

    def asked(self) -> Step[Appended]:
        """The step that appends them all."""
        return self._log.append_step(self.submissions)

    def answered(self, answer: Appended | StoreError) -> Awaitable[None] | None:
        """Tell all publishers; what is returned must be waited for, and then all have their answer."""
        return self._log.appended(self.pending, answer)


class _Probe(Publishes[T]):
    """A group whose answer a task waits for."""

    __slots__ = ("_done",)

    def __init__(self, log: Log[T], done: asyncio.Future[None]) -> None:
        super().__init__(log)
        self._done = done

    def answered(self, answer: Appended | StoreError) -> Awaitable[None] | None:
        rest = super().answered(answer)
        if rest is not None:
            return self._finish(rest)
        resolve(self._done, None)
        return None

    async def _finish(self, rest: Awaitable[None]) -> None:
        try:
            await rest
        finally:
            resolve(self._done, None)


class _Turn(Generic[T]):
    """Work that needs no step, and has its place among the steps."""

    __slots__ = ("_found", "_has_looked", "_look", "_work")
    retries_until, size, unordered = 0.0, 0, False

    def __init__(self, look: Callable[[], T], work: Callable[[T], Awaitable[None] | None]) -> None:
        self._look = look
        self._work = work
        self._has_looked = False
        self._found: T

    def asked(self) -> None:
        """It asks the store for nothing. What it works on was there before the store is asked for what comes behind it."""
        self._found = self._look()
        self._has_looked = True

    def answered(self, _: object) -> Awaitable[None] | None:
        """Do it."""
        if not self._has_looked:  # a step before it could not be made, and the store was asked for nothing
            self.asked()
        return self._work(self._found)


class WriteQueue(Generic[T]):
    """The queue. It is closed until `open` gives it a store."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop, log: Log[T]) -> None:
        self._store = store
        self._loop = loop
        self._log = log
        self._queue: deque[_Request[Any] | Publishes[T] | _Turn[Any]] = deque()
        self._is_busy = False
        self._asked: Sequence[_Request[Any] | Publishes[T] | _Turn[Any]] = ()  # until all are answered
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

    def publish(self, submission: Submission, pending: T) -> None:
        """Put one more publish into the last group, or begin a new one."""
        group, size = self._queue[-1] if self._queue else None, len(submission.body)
        if (
            not isinstance(group, Publishes)
            or len(group.submissions) >= MOST_PUBLISHES
            or (group.submissions and group.size + size > MOST_BYTES)
        ):
            group = Publishes(self._log)
            self._queue.append(group)
        group.size += size
        group.submissions.append(submission)
        group.pending.append(pending)
        if not self._is_busy:
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
                step,
                done,
                retries_until=now + for_s if retries else 0.0,
                doubted_at=now if in_doubt else math.inf,
                size=size,
                unordered=unordered,
            )
        )
        self._wake()

    async def asked_again(self) -> None:
        """Wait until the store does what it is asked to, and all that had to be asked again was asked once more since then.
        Raises StoreError."""
        await self.ask(self._store.mark, retries=True)
        await asyncio.sleep(_PAUSE)  # and then all that was in a pause is in the queue
        await self.ask(self._store.mark, retries=True)

    def probe(self) -> None:
        """Append nothing: the answer shows what has been appended without our knowing."""
        self._queue.append(Publishes(self._log))
        self._wake()

    def probe_and_wait(self) -> asyncio.Future[None]:
        """Append nothing, as `probe` does. The future is done when all that had been appended by then was taken, or failed."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._queue.append(_Probe(self._log, done))
        self._wake()
        return done

    def in_turn(self, look: Callable[[], N], work: Callable[[N], Awaitable[None] | None]) -> None:
        """Do `work` when all has been answered that was asked for before, with what `look` returned before the store was asked
        for anything behind it. What `work` returns must be waited for before the next answer is handed out.

        It does not wait for unordered steps that follow the last ordered one, and is done at once if there is no ordered one:
        on a slow line it would wait longer than it takes to read the log."""
        turn, place = _Turn(look, work), len(self._queue)
        while place and self._queue[place - 1].unordered:
            place -= 1
        if not place and all(each.unordered for each in self._asked):
            self._loop.call_soon(self._take_turn, turn)
        else:
            self._queue.insert(place, turn)
            self._wake()

    def _take_turn(self, turn: _Turn[Any]) -> None:
        if self._turn is not None:
            self._queue.appendleft(turn)
            self._wake()
        elif (awaited := turn.answered(None)) is not None:
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
        if self._is_busy and self._idle is None:
            self._idle = self._loop.create_future()
        return self._idle

    def _wake(self) -> None:
        if not self._is_busy:
            self._is_busy = True
            self._loop.call_soon(self._ask)  # and what comes in the same turn goes with it

    def _ask(self) -> None:
        queue = self._queue
        requests = [queue.popleft()]
        size = requests[0].size
        is_turn = type(requests[0]) is _Turn  # all before it is answered: it need not wait for what is behind it
        while queue and not is_turn and len(requests) < _MOST_STEPS and size + queue[0].size <= MOST_BYTES:
            requests.append(queue.popleft())
            size += requests[-1].size

        steps: list[Step[Any]] = []

        def answered(answers: list[Any]) -> None:
            if len(answers) == len(requests):  # as nearly always: no turn is among them
                handed: Iterator[tuple[Any, Any]] = zip(requests, answers, strict=True)
            else:
                found = iter(answers)
                handed = ((each, None if isinstance(each, _Turn) else next(found)) for each in requests)
            if self._turn is None:
                self._hand_over(handed)
            else:
                self._task = self._loop.create_task(self._hand_over_later(self._turn, handed))

        store = self._store
        store.until_look -= size
        if store.until_look < 0:
            store.look_soon()
        self._asked = requests
        try:
            steps += [step for each in requests if (step := each.asked()) is not None]
            if steps:
                store.submit(steps, answered)
            else:
                answered([])
        except Exception as error:
            log.exception("a request to the store failed")
            answered([StoreError(f"the store could not be asked: {error}")] * len(requests))

    def _hand_over(self, answers: Iterator[tuple[_Request[Any] | Publishes[T] | _Turn[Any], Any]]) -> None:
        for request, answer in answers:
            if request.retries_until and self._is_asked_again(request, answer):
                continue
            try:
                awaited = request.answered(answer)
            except Exception:
                log.exception("a reply of the store could not be processed")
                continue
            if awaited is not None:
                self._task = self._loop.create_task(self._hand_over_later(awaited, answers))
                return
        self._is_busy, self._asked = False, ()
        if self._queue:
            self._wake()
        elif self._idle is not None:
            resolve(self._idle, None)
            self._idle = None

    def _is_asked_again(self, request: _Request[Any] | Publishes[T] | _Turn[Any], answer: Any) -> bool:
        """Whether the store will be asked again; if not, this is what comes of the step."""
        assert isinstance(request, _Request)
        now = self._loop.time()
        if isinstance(answer, StoreUncertain):
            request.doubted_at = min(request.doubted_at, now)
        if isinstance(answer, StoreUnavailable | StoreFull) and not self.is_closed and now < request.retries_until:
            self._ask_later(request)
            return True
        if now >= request.doubted_at + REPEATABLE_S and self._is_remembered(request.step):
            self._on_forgotten(request.doubted_at)
        return False

    def _is_remembered(self, step: Step[Any]) -> bool:
        """Whether the store remembers for a while that it has done this. Any other step may be asked again at any time."""
        begin = self._store.keys.once("")
        return any(key.startswith(begin) for key in step.keys)

    async def _hand_over_later(
        self, awaited: Awaitable[None], answers: Iterator[tuple[_Request[Any] | Publishes[T] | _Turn[Any], Any]]
    ) -> None:
        try:
            await awaited
        except Exception:
            log.exception("a reply of the store could not be processed")
        finally:
            self._hand_over(answers)

    def _ask_later(self, request: _Request[Any]) -> None:
        def again() -> None:
            self._queue.append(request)
            self._wake()

        self._after_pause(again)

    def _after_pause(self, function: Callable[[], None]) -> None:
        def call() -> None:
            self._paused.discard(timer)
            function()

        timer = self._loop.call_later(_PAUSE, call)
        self._paused.add(timer)
