"""One local subscription: what it may ask for, and a bounded queue between the connection and the application.

The connection never waits for a queue: a client that stops reading answers
also stops its heartbeat, and the server ends its session. So a full queue has
a policy, `Overflow`, and every message that it costs is counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from enum import Enum
from threading import Thread
from types import TracebackType
from typing import Any, Final, Generic, Self, TypedDict, Unpack, cast

from crewel.bayeux.message import Fields
from crewel.client.arguments import check_fields, check_kind, check_names, check_seconds, check_whole
from crewel.client.client_message import DataT, Handling, Message
from crewel.client.errors import INTERNAL_ERROR, SubscriptionEndedError, SubscriptionOverflowError, failure_of
from crewel.client.payload import ILLEGAL, Payload
from crewel.client.time_units import NO_LIMIT
from crewel.qos.subscribe import HISTORY, SUBSCRIBE

log = logging.getLogger("crewel.client")

CALLER: Final = ContextVar[Thread | None]("crewel-client-caller", default=None)
"""The thread for which the loop works, of a program without asyncio."""
Position = Mapping[str, Mapping[str, str]]
"""How far a receiver is: `{"/a": {"epoch": "…", "id": "…"}}`. Both texts are opaque."""


class SubscribeOptions(TypedDict, total=False):
    """The options of a subscription (docs/reference/subscriptions.md). If an option is missing or None, the server's default
    applies."""

    history: int | None
    newest_first: bool | None
    initial_update: bool | None
    since: Position | None
    """The `position` of an earlier subscription; `recovered` says whether all that followed it comes."""
    filter: str | None
    group: str | None
    local: bool | None
    notify: bool | None
    multi_subscribe: bool | None
    update_oneway: bool | None
    newest_only: bool | None
    persistent: bool | None


class ReceiveOptions(SubscribeOptions, total=False):
    """The options of a subscription, and of its queue in the client."""

    bound: int
    """How many messages wait in the queue, at most; 1,000 unless you say otherwise."""
    overflow: Overflow
    """What happens to a message if the queue is full; `Overflow.HOLD` unless you say otherwise."""
    ext: Fields | None
    """More of the `ext` of the subscribe."""


def of_subscribe(options: SubscribeOptions) -> SubscribeOptions:
    """Those of the options, of a subscription or of a worker, that the server is asked for."""
    asked = {name: value for name, value in options.items() if name in SubscribeOptions.__annotations__}
    return cast("SubscribeOptions", asked)


def subscribe_ext(ext: Fields | None, **options: Unpack[SubscribeOptions]) -> Fields | None:
    """The `ext` of a subscribe with these options; None if there is nothing to say. Raises TypeError for an option that
    there is not, and for an `ext` that is not a dict."""
    if ext is not None:
        check_fields("ext", ext)
    check_names("subscribe", options, SubscribeOptions.__annotations__)
    given: dict[str, Any] = dict(options)
    history = HISTORY.write({name: given.pop(name, None) for name in HISTORY.wire_names})
    asked: Fields = SUBSCRIBE.write(given)
    if history:
        asked["history"] = history
    elif "since" in asked:
        asked.setdefault("initialUpdate", False)  # a channel that it does not name begins now
    if not asked:
        return ext
    before = ext.get("subscribe") if ext is not None else None
    return {**(ext or {}), "subscribe": {**(before if isinstance(before, dict) else {}), **asked}}


class Progress:
    """How far a receiver is in the histories of some channels.

    In a queue the higher priorities go first. So a message says that all older ones of its priority and above have come, and
    nothing of those below. Only messages of the lowest priority that was seen move the place. What a newer one has overtaken is
    then asked for again, with some that have come already.
    """

    def __init__(self) -> None:
        self._places: dict[str, dict[str, str]] = {}
        self._lowest: dict[str, int] = {}
        self._before: tuple[Message, dict[str, str], int | None] | None = None
        """The message of the last step, and the place and the lowest priority before it."""

    def __bool__(self) -> bool:
        return bool(self._places)

    @property
    def position(self) -> dict[str, dict[str, str]]:
        """The position, for `since`."""
        return {channel: dict(place) for channel, place in self._places.items()}

    def begin(self, position: Position) -> None:
        """Be there, in the histories that this position names, and stay where it was in all others."""
        self._before = None
        for channel, place in position.items():
            self._places[channel] = dict(place)
            self._lowest.pop(channel, None)

    def advance(self, message: Message) -> None:
        """Move on to this message, if it is one of a history: neither an old one of it, nor one that no history keeps."""
        place = self._places.get(message.channel)
        if place is None or message.id is None:
            return
        if message.is_initial or message.is_addressed or message.is_erased or message.life_time == 0:
            return
        lowest = self._lowest.get(message.channel)
        if lowest is None or message.priority <= lowest:
            self._before = message, dict(place), lowest
            self._lowest[message.channel] = message.priority
            place["id"] = message.id

    def step_back(self, message: Message) -> None:
        """Be where it was before this message, if that was the last step."""
        if self._before is None or self._before[0] is not message:
            return
        _, self._places[message.channel], lowest = self._before
        self._before = None
        if lowest is None:
            del self._lowest[message.channel]
        else:
            self._lowest[message.channel] = lowest


class Overflow(Enum):
    """What happens to a message if the queue is full."""

    HOLD = "hold"
    """With acknowledgement: its batch waits beside the queue, is not acknowledged, and the server sends no more until there is
    room. Nothing is lost, and the client's other subscriptions wait too. Without acknowledgement: as `drop-oldest`."""
    DROP_OLDEST = "drop-oldest"
    """The oldest message of the queue makes room."""
    DROP_NEWEST = "drop-newest"
    """The message itself is dropped."""
    CLOSE = "close"
    """The subscription ends; what is queued can still be read, then `SubscriptionOverflowError` is raised."""


Release = Callable[["Subscription[Any]"], Awaitable[None]]
"""What ends a subscription where it is registered."""


def _begins(message: Message[Any]) -> bool:
    """Whether the application receives a message whose turn has come. Not if a later copy has a turn of its own, or if an
    earlier copy has ended while this one waited."""
    handling = message.handling
    if handling is None or handling.is_taken or message.is_erased:
        return True
    if handling.is_superseded:
        message.give_up()
        return False
    if handling.is_over and not message.is_initial:
        handling.is_skipped = True
        message.settle()
        return False
    return True


class Subscription(Generic[DataT]):
    """Iterate over it (`async for message in subscription`), or call `receive`.

    In a client with `update`, asking for a message settles the one before, as
    does leaving the block of `async with subscription` without an exception.

    The iteration ends after `unsubscribe` and when the application closes the client. It raises when the subscription was lost:
    `SubscribeRefused` if the server refused it in a new session or has ended it, because its filter is too expensive. It raises
    `DisconnectedError` if the server ended the session for good. Leaving it as a context manager unsubscribes.

    The notice that its topic is erased (`message.is_erased`) is the last message
    of a subscription to just this channel; wildcards continue.
    """

    def __init__(
        self,
        channel: str,
        *,
        bound: int,
        overflow: Overflow,
        release: Release,
        on_room: Callable[[], None],
        payload: Payload | None = None,
    ) -> None:
        check_whole("bound", bound)
        check_kind("overflow", overflow, "a member of Overflow, such as Overflow.HOLD", Overflow)
        if bound < 1:
            raise ValueError("the bound of a queue is at least 1")
        self.channel = channel
        """The channel or wildcard as the server knows it."""
        self.bound = bound
        """How many messages wait to be read, at most."""
        self.overflow = overflow
        """What happens to a message if the queue is full."""
        self.dropped = 0
        """How many messages the policy has cost so far."""
        self.invalid = 0
        """How many messages were rejected because their data has not the type of the subscription."""
        self._payload = payload
        self._queue: deque[Message[Any]] = deque()
        self._taken: Message[Any] | None = None
        self._taker: object = None
        self._changed = asyncio.Event()
        self._ended = self._is_stopped = False
        self._ends_with_notice = False
        self.attempts = 1
        """How often a message is sent before an exception that ends its loop is its last one."""
        self.is_of_worker = False
        """Whether what is unread stays open at the server if the session ends: another worker may have it already."""
        self._leaves_unread = False
        self._error: Exception | None = None
        self._failure: Handling | None = (
            None  # the notice that the server has ended it, until the application has seen the error
        )
        self._release = release
        self.is_unwanted = False
        """Whether the application has unsubscribed it: what still comes for it alone is not wanted any more."""
        self._on_room = on_room
        self.on_end: Callable[[], None] = lambda: None
        """Called when it ends, for whatever reason."""
        self.recovered: bool | None = None
        """Whether all that was missed since the position came or comes; None if no position was given."""
        self._progress = Progress()

    @property
    def position(self) -> Position:
        """The position after the last message that the application received, for `since` of a later subscription."""
        return self._progress.position

    def confirmed(self, recovered: bool | None, position: Position) -> None:
        """The server has it, from this position on."""
        self.recovered = recovered
        # What the queue still holds came before a position that was recovered.
        known = self._progress.position if recovered else {}
        self._progress.begin({channel: place for channel, place in position.items() if channel not in known})

    @property
    def queued(self) -> int:
        """How many messages wait to be read."""
        return len(self._queue)

    @property
    def is_full(self) -> bool:
        """Whether the next message meets the policy."""
        return self._is_stopped or len(self._queue) >= self.bound

    @property
    def is_ended(self) -> bool:
        """Whether no more messages will come."""
        return self._ended

    def offer(self, message: Message, *, retained: bool = False) -> None:
        """Queue a message, or apply the policy. `retained`: the server keeps it until its batch is acknowledged."""
        if self._ended:
            return
        if self._ends_with_notice:
            self._offer_last(message)
            return
        if self.is_full and not (retained and self.overflow is Overflow.HOLD):
            self._overflow(message)
            return
        # A held batch was let in because there was room at its start: the bound is exceeded by one batch at most.
        self._queue.append(message)
        self._changed.set()

    def end_with_notice(self) -> None:
        """Its topic was erased. The notice of that, which comes next or is here, ends it when the application has read it;
        what else comes is read before."""
        self._ends_with_notice = True

    def _offer_last(self, message: Message) -> None:
        has_notice = bool(self._queue) and self._queue[-1].is_erased
        if not has_notice:
            self._queue.append(message)
        elif message.is_erased:
            message.settle()
        else:
            self._queue.insert(len(self._queue) - 1, message)
        self._changed.set()

    def _overflow(self, message: Message) -> None:
        if self._replaces(message):
            return
        self.dropped += 1
        if self._is_stopped:
            return  # the message would not be read, so nothing makes room for it
        if self.overflow is Overflow.CLOSE:
            error = SubscriptionOverflowError(f"{self.channel}: more than {self.bound} messages unread")
            message.reject(INTERNAL_ERROR, str(error))
            self.end(error)
        elif self.overflow is Overflow.DROP_NEWEST:
            message.settle()
        else:
            self._queue.popleft().settle()
            self._queue.append(message)

    def _replaces(self, message: Message) -> bool:
        """Whether it takes the place of an earlier copy that waits here: a copy needs no room of its own."""
        if message.handling is None or not message.handling.is_copy:
            return False
        for at, each in enumerate(self._queue):
            if each.handling is not None and each.handling.is_superseded and each.id == message.id:
                self._queue[at] = message
                each.give_up()
                return True
        return False

    def stop(self) -> None:
        """Hand out no more. With `Overflow.HOLD`, what comes from now on is not taken: the session's next client gets it."""
        self._is_stopped = True
        self._changed.set()

    def put_back(self, messages: Sequence[Message]) -> None:
        """Queue again, before all others, what was handed out last, and what the application has not seen."""
        if any(message is self._taken for message in messages):
            self._taken = None
        if self._leaves_unread:
            return
        for message in reversed(messages):
            self._progress.step_back(message)
            message.is_deferred = False
            self._queue.appendleft(message)
        self._changed.set()

    def unread(self) -> list[Message]:
        """Take back what the application has not read."""
        messages = list(self._queue)
        self._queue.clear()
        return messages

    def end(self, error: Exception | None = None) -> None:
        """No more messages; what is queued can still be read, then `error` is raised. A worker raises it at once."""
        if self._ended:
            return
        self._finish(error)
        if self.is_of_worker and error is not None:
            self._leaves_unread = True
            self._queue.clear()

    def _finish(self, error: Exception | None) -> None:
        if not self._ended:
            self._ended, self._error = True, error
            self._changed.set()
            self.on_end()

    def fail(self, error: Exception, notice: Handling | None) -> None:
        """The server has ended it: what is queued can still be read, then `error` is raised, and the notice is settled."""
        self._failure = notice
        self._finish(error)

    def _settle_failure(self) -> None:
        notice, self._failure = self._failure, None
        if notice is not None:
            notice.end()

    async def receive(self, timeout: float | None = None, *, defer: bool = False) -> Message[DataT]:
        """The next message. `timeout` is in seconds; None or -1: without limit. `defer`: you settle the message yourself, as
        after its `defer`.

        Raises:
            TimeoutError: none came within `timeout` seconds.
            SubscriptionEndedError: it was unsubscribed, or the client was closed.
            ValueError: `timeout` is no number of seconds.
        """
        if timeout == NO_LIMIT:
            timeout = None
        if timeout is not None:
            check_seconds("timeout", timeout)
        try:
            async with asyncio.timeout(timeout):
                message = await anext(self)
                if defer:
                    message.defer()
                return message
        except StopAsyncIteration:
            raise SubscriptionEndedError(f"{self.channel}: no more messages will come") from None
        except TimeoutError:
            raise TimeoutError(f"{self.channel}: no message within {timeout:g} s") from None

    async def unsubscribe(self) -> None:
        """End the subscription; the last one of its channel unsubscribes at the server.

        What is unread counts as settled: the application does not want it any more.
        """
        self.is_unwanted = True
        for message in self._queue:
            message.settle()
        await self._leave()

    async def _leave(self) -> None:
        self._settle_failure()
        self.end()
        await self._release(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[DataT]:
        self.settle_taken()
        while True:
            while self._is_stopped or not self._queue:
                if self._is_stopped:
                    raise StopAsyncIteration
                if self._ended:
                    self._settle_failure()
                    raise self._error or StopAsyncIteration
                self._changed.clear()
                await self._changed.wait()
            # No await from here on: a cancelled reader has not taken a message.
            message = self._next()
            if not _begins(message):
                continue
            self._progress.advance(message)
            if self._payload is None or self._is_readable(message, self._payload):
                self.hand_out(message)
                return message

    def _is_readable(self, message: Message[Any], payload: Payload) -> bool:
        """Whether its data has the type of the subscription; any other message is rejected."""
        fault = None if message.is_erased else payload.read(message)
        if fault is None:
            return True
        self.invalid += 1
        # A transient message without `update` has no id, and its data alone can name it.
        named = (
            f"message {message.id}" if message.id is not None else f"the message {message.fields.get('data')!r:.100}"
        )
        rejected = "is rejected" if message.handling is not None else "is dropped"
        log.error("%s of %s %s: %s", named, message.channel, rejected, fault)
        if message.handling is not None:
            message.reject(ILLEGAL, fault)
        return False

    def _next(self) -> Message[Any]:
        was_full = self.is_full
        message = self._queue.popleft()
        if self._ends_with_notice and message.is_erased:
            self.end()
        if was_full and not self.is_full:
            self._on_room()
        return message

    def hand_out(self, message: Message) -> None:
        """The application has this message, until it asks for the next one."""
        self._taken, self._taker = message, _caller()

    def settle_taken(self) -> None:
        """The application is done with what it has, unless it will report that itself."""
        taken, self._taken = self._taken, None
        if taken is not None and not taken.is_deferred:
            taken.settle()

    def blame(self, error: Exception) -> None:
        """An exception leaves a block around this subscription. If it was raised where the last message was taken, and before
        the next one was requested, the processing of the message has failed. The message is rejected, as one of a callback is,
        or stays open for the next process while it has attempts left. What is deferred, or recorded by an inbox, is left
        alone."""
        taken = self._taken
        if taken is None or taken.handling is None or taken.is_deferred or taken.is_recorded:
            return
        # Of a group, it is not known what a task itself has raised, and what has only cancelled it; no task cancels a thread.
        is_group = isinstance(error, BaseExceptionGroup) and isinstance(self._taker, asyncio.Task)
        has_raised = self._taker is _caller() and not is_group
        raised = error if has_raised else _end_of(self._taker, error)
        if raised is None:
            return
        self._taken = None
        code, text = failure_of(raised)
        if taken.redeliver + 1 < self.attempts:
            log.warning("message %s of %s failed, and stays for the next process: %s", taken.id, taken.channel, text)
        else:
            log.error("message %s of %s is rejected: %s (%s)", taken.id, taken.channel, text, code)
            taken.reject(code, text)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            if isinstance(error, Exception):
                self.blame(error)
            await self._leave()  # what is unread waits for another
            return
        self.settle_taken()
        await self.unsubscribe()


def _caller() -> object:
    """What runs the program here: its thread if it has no asyncio, else the task."""
    return CALLER.get() or asyncio.current_task()


def _end_of(taker: object, error: BaseException) -> BaseException | None:
    """The exception with which this task has ended, if it is this one, or one of a group of them."""
    if isinstance(taker, asyncio.Task) and taker.done() and not taker.cancelled() and taker.exception() is error:
        return error
    parts = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return next((found for each in parts if (found := _end_of(taker, each)) is not None), None)
