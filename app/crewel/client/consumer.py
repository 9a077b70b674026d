"""A worker's view of a channel: each message is acknowledged, rejected, retried, or comes again.

Theory of operation: a consumer has a session of its own, with a name, which waits at the server while the worker is away. It
takes messages from one subscription and hands each out as a `Delivery`. A message that is to be retried stays open at the
server; it waits here, and then goes to the end of the subscription's queue. If the process dies meanwhile, the server sends it
again at once: nothing but the time until the retry is lost.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from random import random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

from crewel.client.arguments import check_count, check_seconds
from crewel.client.callbacks import result_of
from crewel.client.client_message import HOLDBACK, DataT, Handling, Message, check_failure
from crewel.client.errors import INTERNAL_ERROR, SubscribeRefused, failure_of
from crewel.client.states import State
from crewel.client.subscription import Subscription, of_subscribe
from crewel.client.time_units import NO_LIMIT
from crewel.client.traces import NO_TRACES
from crewel.client.worker_options import PREFETCH, RETRIES, WorkerOptions
from crewel.errors.codes import Category, is_below

if TYPE_CHECKING:
    from crewel.client.client import Client

log = logging.getLogger("crewel.client.consumer")


@dataclass(slots=True)
class Delivery(Message[DataT]):
    """A message that a worker is processing. The first of the calls below decides what happens to it.

    `async with message:` acknowledges the message when the block succeeds. If the block raises an exception, the client logs
    it, and retries the message while it has attempts left; then it rejects the message, which becomes a dead letter. The
    exception does not leave the block, so the worker continues with the next message. A cancellation does leave the block; the
    message then stays open, and the server sends it again.
    """

    consumer: Consumer[Any] | None = field(default=None, repr=False)
    attempt: int = 1
    """How often it was sent, this time included. Also counts the times when the worker ended before it came to the message."""
    failures: int = 0
    """How often this worker's code has raised an exception for it."""
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)
    """Runs while it waits for another attempt."""
    _block: AbstractContextManager[Any] = field(default_factory=nullcontext, init=False, repr=False, compare=False)
    """The span of its block."""
    copies: list[Handling] = field(default_factory=list, repr=False)
    """Later deliveries of this message, sent again while the worker has it: what ends this one ends them."""

    @property
    def is_open(self) -> bool:
        """Whether it has no end yet."""
        return self.handling is not None

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for another attempt."""
        return self.timer is not None

    def acknowledge(self) -> None:
        """It is done: the server deletes it."""
        self.settle()

    def settle(self) -> None:
        """Acknowledge it: the server deletes it."""
        for copy in self._end():
            copy.end()

    def reject(self, code: str, text: str = "") -> None:
        """It cannot be done: `code` decides what the server does with it (docs/reference/errors.md). Raises RuntimeError in a
        transaction in which an `Inbox` has recorded the message, if the server would send it again."""
        check_failure(code, text)
        if code == HOLDBACK or is_below(code, Category.COMMUNICATION):
            self._check_not_recorded()
        for copy in self._end():
            copy.failed(code, text)
            copy.end()

    def retry(self, after: float = 0.0) -> None:
        """Try the message again after `after` seconds, when its block has ended, behind the messages that this process has
        already fetched. Raises ValueError for a negative time, and RuntimeError in a transaction in which an `Inbox` has
        recorded the message."""
        check_seconds("after", after)
        self._check_not_recorded()
        if self.is_open and self.consumer is not None and not self.is_waiting:
            self.defer()
            self.consumer.retry(self, after)

    def _check_not_recorded(self) -> None:
        if self.is_recorded:
            raise RuntimeError(
                f"the inbox has recorded message {self.id}: after the commit it counts as handled, and is not processed "
                "again; decide before is_first, or roll back the transaction first"
            )

    def _end(self) -> list[Handling]:
        first = self.give_up()
        if first is None:
            return []
        if self.consumer is not None:
            self.consumer.forget(self)
        return [first, *self.copies]

    async def __aenter__(self) -> Self:
        self._block = processing(self)
        self._block.__enter__()
        block_begins(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._block.__exit__(kind, error, trace)
        return block_ends(self, error)


def processing(delivery: Delivery[Any]) -> AbstractContextManager[Any]:
    """The span of the block of a delivery, if its client makes spans."""
    return (NO_TRACES if delivery.consumer is None else delivery.consumer.client.traces).processing(delivery)


def block_begins(delivery: Delivery[Any]) -> None:
    """`async with` it begins: the application decides what happens to it."""
    delivery.defer()
    if delivery.consumer is not None:
        delivery.consumer.block_begins(delivery)


def block_ends(delivery: Delivery[Any], error: BaseException | None) -> bool:
    """`async with` it ends: decide what the application has not decided. Returns whether the exception stays in the block."""
    if error is None and not delivery.is_waiting:
        delivery.acknowledge()
    elif isinstance(error, Exception):
        _failed(delivery, error)
    if delivery.consumer is not None:
        delivery.consumer.block_ends(delivery)
    return isinstance(error, Exception)


def _failed(delivery: Delivery[Any], error: Exception) -> None:
    code, text = failure_of(error)
    if not delivery.is_open or delivery.consumer is None or delivery.is_waiting:
        log.error(
            "message %s of %s: an exception after the message ended", delivery.id, delivery.channel, exc_info=error
        )
        return
    delivery.failures += 1  # and not `attempt`: a message that was fetched when the worker died has not failed
    if delivery.failures < delivery.consumer.attempts:
        delay = delivery.consumer.pause(delivery.failures)
        log.warning("message %s of %s failed, next attempt in %.1f s: %s", delivery.id, delivery.channel, delay, text)
        delivery.retry(delay)
    else:
        # An exception with a code of its own is meant for the server; any other is a fault of the program.
        trace = None if code != INTERNAL_ERROR else error
        log.error("message %s of %s is rejected: %s (%s)", delivery.id, delivery.channel, text, code, exc_info=trace)
        delivery.reject(code, text)


Handler = Callable[[Delivery[DataT]], object]
"""What is called with each message of a worker: a function or a coroutine function. What it returns is ignored."""


class Consumer(Generic[DataT]):
    """The messages of a channel, for a worker: `async for message in client.consume(…)`.

    The iteration begins with a login, and continues through broken connections and restarts of the server. It ends when the
    consumer or its client is closed, and raises what a subscription raises: `DisconnectedError` if another process has taken
    the session over, `SubscribeRefused`. If the session has ended, it raises that at once: the next worker gets the messages
    that were fetched.

    When you leave the consumer or its client, the session stays at the server and collects messages for the next worker with
    this name. That worker also gets the messages that were not acknowledged.
    """

    def __init__(
        self,
        client: Client,
        channel: str,
        *,
        data: Any = None,
        options: WorkerOptions,
    ) -> None:
        self.client = client
        """The session of its own that it has."""
        self.attempts = options.get("attempts", 1)
        """How often a message that raises an exception is tried."""
        self._channel, self._data, self._options = channel, data, of_subscribe(options)
        self._prefetch = options.get("prefetch", PREFETCH)
        self._backoff, ack_wait = options.get("backoff", RETRIES), options.get("ack_wait")
        self._ack_wait = math.inf if ack_wait is None or ack_wait == NO_LIMIT else ack_wait
        self._subscription: Subscription[DataT] | None = None
        self._open: dict[str, Delivery[DataT]] = {}
        self._blocks: dict[int, bool] = {}
        """The deliveries whose block has begun and not ended, and whether their next attempt is due."""
        self._room = asyncio.Event()
        self.retrying = 0
        """How many messages wait for another attempt."""
        self._is_stopped = self._is_closed = False
        self._entering = asyncio.Lock()
        self._login: asyncio.Timeout | None = None
        """The limit of the login that is under way: `stop` lets it expire."""

    @property
    def is_closed(self) -> bool:
        """Whether it has left the session, or is about to, or can get none because its login has failed."""
        return self._is_closed or (self._subscription is None and self.client.state is State.CLOSED)

    @property
    def fetched(self) -> int:
        """How many messages this process has fetched ahead."""
        return 0 if self._subscription is None else self._subscription.queued

    @property
    def invalid(self) -> int:
        """How many messages were rejected because their data has not the type that the worker asks for."""
        return 0 if self._subscription is None else self._subscription.invalid

    async def __aenter__(self) -> Self:
        async with self._entering:  # a client can be opened once: tasks that begin at the same time have one login
            if self._subscription is None and not self._is_stopped:
                try:
                    async with asyncio.timeout(None) as self._login:
                        await self._log_in()
                except TimeoutError:
                    if not self._is_stopped:
                        raise
                finally:
                    self._login = None
        return self

    async def _log_in(self) -> None:
        # Before the session: its queued messages then find their listener.
        subscription = await self.client.subscribe(
            self._channel, data=self._data, bound=self._prefetch, **self._options
        )
        subscription.is_of_worker, subscription.attempts = True, self.attempts
        subscription.on_end = self._room.set  # a wait for room ends with it
        await self.client.__aenter__()
        self._subscription = subscription
        if self._is_stopped:
            subscription.stop()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            self.blame(error)
        await self.close()

    def blame(self, error: Exception) -> None:
        """An exception leaves a block around this consumer: the message in whose loop it was raised has failed."""
        if self._subscription is not None:
            self._subscription.blame(error)

    async def close(self) -> None:
        """Leave the session; messages that are open stay open."""
        if self._is_closed:
            return
        self._is_closed = True
        self.stop()
        for delivery in self._open.values():
            if delivery.timer is not None:
                delivery.timer.cancel()  # it stays open, even if its block succeeds
        async with self._entering:
            if self._subscription is not None:
                await self.client.__aexit__(None, None, None)

    def stop(self) -> None:
        """Take no more messages: the iteration ends, and `run` ends when its handlers have ended. Call it in the handler of
        SIGTERM. The next worker gets the messages that were fetched and not handed out."""
        self._is_stopped = True
        self._room.set()
        if self._subscription is not None:
            self._subscription.stop()
        elif self._login is not None:
            self._login.reschedule(0)  # the server may be away without limit
            self._login = None

    async def run(self, handler: Handler[DataT], *, at_once: int = 1) -> None:
        """Call the function or coroutine function `handler(message)` for each message, at most `at_once` at the same time, and
        start the calls in the order of the messages. If the handler returns, its message is acknowledged; if it raises an
        exception, the message is retried or rejected, as with `async with message:`.

        Returns after `stop`, when the handlers have ended. If the call is cancelled, it cancels the handlers, and the server
        sends their messages again. Raises the errors of the iteration, and ValueError; after the handlers have ended, also what
        leaves the block `async with message:`.
        """
        check_count("at_once", at_once)
        tasks: set[asyncio.Task[None]] = set()
        faults: list[BaseException] = []

        def ended(task: asyncio.Task[None]) -> None:
            tasks.discard(task)
            fault = None if task.cancelled() else task.exception()
            if fault is not None:
                faults.append(fault)
                self.stop()

        try:
            async for message in self:
                message.defer()
                task = asyncio.create_task(_handle(handler, message), name=f"crewel-client {self._channel}")
                task.add_done_callback(ended)
                tasks.add(task)
                while len(tasks) >= at_once:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks:
                await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
        if faults:
            raise faults[0]

    async def batch(self, most: int, *, within: float = 0.0) -> list[Delivery[DataT]]:
        """Return up to `most` messages: the next one, and those that arrive within `within` seconds after it. Acknowledge or
        reject each of them when you have processed it. The list is empty after `stop` or `close`. If the call is cancelled, the
        next call returns what it has collected. Raises the errors of the iteration, and ValueError."""
        check_count("most", most)
        check_seconds("within", within)
        messages: list[Delivery[DataT]] = []
        try:
            with suppress(StopAsyncIteration):
                messages.append(await self._next_deferred())
                with suppress(TimeoutError, SubscribeRefused):  # the next call raises why the subscription has ended
                    async with asyncio.timeout(within):
                        while len(messages) < most and (within or self.fetched):
                            messages.append(await self._next_deferred())
        except BaseException:
            self.put_back(messages)
            raise
        return messages

    def put_back(self, messages: list[Delivery[DataT]]) -> None:
        """Hand out first what was handed out last: the application has not seen it."""
        for message in messages:
            message.attempt -= 1
        if self._subscription is not None:
            self._subscription.put_back(messages)

    async def _next_deferred(self) -> Delivery[DataT]:
        message = await anext(self)
        message.defer()
        return message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery[DataT]:
        if self._subscription is not None:
            self._subscription.settle_taken()
        if self._is_stopped:
            raise StopAsyncIteration
        if self._subscription is None:
            await self.__aenter__()
        if self._subscription is None:
            raise StopAsyncIteration  # it was stopped during the login
        while True:
            await self._wait_for_room(self._subscription)
            delivery = self._taken(await anext(self._subscription))
            if delivery is not None:
                self._subscription.hand_out(delivery)
                return delivery

    async def _wait_for_room(self, subscription: Subscription[DataT]) -> None:
        """As long as too many wait for another attempt, no new ones are taken: each of them takes a place at the server."""
        while self.retrying >= self._prefetch and not (self._is_stopped or subscription.is_ended):
            self._room.clear()
            await self._room.wait()

    def _taken(self, message: Message[DataT]) -> Delivery[DataT] | None:
        """What is handed out of a message that came; None if the worker has it already."""
        if isinstance(message, Delivery):
            message.attempt += 1
            message.is_deferred = False
            return message
        handling = message.give_up()
        if handling is not None and message.id in self._open:
            self._open[message.id].copies.append(handling)
            return None
        delivery: Delivery[DataT] = Delivery(message.channel, message.data, message.fields, handling)
        delivery.consumer, delivery.attempt = self, message.redeliver + 1
        if handling is not None and message.id is not None:
            handling.is_taken = True
            self._open[message.id] = delivery
        return delivery

    # For its deliveries

    def forget(self, delivery: Delivery[DataT]) -> None:
        """It has ended."""
        self._open.pop(delivery.id or "", None)
        self._stop_waiting(delivery)

    def pause(self, attempt: int) -> float:
        """Seconds until the attempt that follows this one."""
        return self._backoff.delay(attempt - 1, random())  # noqa: S311 - spreads load, guards nothing

    def retry(self, delivery: Delivery[DataT], after: float) -> None:
        """Give it out again after so many seconds. Within `ack_wait` the server learns that the work continues."""
        self._stop_waiting(delivery)
        delivery.working()
        step = min(after, self._ack_wait / 2)
        follow: Callable[[], None] = (
            (lambda: self._due(delivery)) if step == after else (lambda: self.retry(delivery, after - step))
        )
        delivery.timer = asyncio.get_running_loop().call_later(step, follow)
        self.retrying += 1

    def block_begins(self, delivery: Delivery[DataT]) -> None:
        """`async with` it has begun."""
        self._blocks[id(delivery)] = False

    def block_ends(self, delivery: Delivery[DataT]) -> None:
        """`async with` it has ended. If its next attempt was due, that begins now, unless the message has ended."""
        if self._blocks.pop(id(delivery), False) and delivery.is_waiting:
            self._offer_again(delivery)

    def _due(self, delivery: Delivery[DataT]) -> None:
        if id(delivery) in self._blocks:  # the end of the block would acknowledge what does not wait
            self._blocks[id(delivery)] = True
        else:
            self._offer_again(delivery)

    def _offer_again(self, delivery: Delivery[DataT]) -> None:
        self._stop_waiting(delivery)
        if self._subscription is not None:
            self._subscription.offer(delivery, retained=True)

    def _stop_waiting(self, delivery: Delivery[DataT]) -> None:
        timer, delivery.timer = delivery.timer, None
        if timer is not None:
            timer.cancel()
            self.retrying -= 1
            self._room.set()


async def _handle(handler: Handler[DataT], message: Delivery[DataT]) -> None:
    async with message:
        await result_of(handler, message)
