"""A message and a delivery, as other threads than that of the event loop have them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from crewel.client import client_message, consumer
from crewel.client.client_message import DataT, Handling
from crewel.client.sync.background import Background, Fact


@dataclass(slots=True)
class Message(client_message.Message[DataT]):
    """A delivered message. What the application decides about it is carried out in the event loop before the call returns."""

    origin: client_message.Message[DataT] = field(kw_only=True, repr=False, compare=False)
    """The message as the event loop has it."""
    background: Background = field(kw_only=True, repr=False, compare=False)

    @classmethod
    def of(cls, origin: client_message.Message[DataT], background: Background) -> Self:
        """Return this message for other threads."""
        return cls(origin.channel, origin.data, origin.fields, origin=origin, background=background)

    # Written by tools/sync_client.py, as crewel.client.Message has it
    def settle(self) -> None:
        """It is done."""
        self._decide(self.origin.settle)

    def reject(self, code: str, text: str = "") -> None:
        """It cannot be done: `code` decides what the server does with it (docs/reference/errors.md). The arguments and
        errors are those of `crewel.client.Message.reject`."""
        self._decide(lambda: self.origin.reject(code, text))

    def working(self) -> None:
        """It takes longer: `ack_wait` starts again."""
        self._decide(self.origin.working)

    def defer(self) -> None:
        """Do not acknowledge it when the next message is requested; the application calls `settle` or `reject` later."""
        self._decide(self.origin.defer)

    def give_up(self) -> Handling | None:
        """Leave it to another listener, which has to end what is returned."""
        return self.background.call(self.origin.give_up)

    # End of what is written

    def _decide(self, decision: Callable[[], None]) -> None:
        hand_back(self)
        origin = self.origin
        try:
            self.background.call(decision)
        finally:
            self.is_settled, self.is_deferred = origin.is_settled, origin.is_deferred


@dataclass(slots=True)
class Delivery(Message[DataT]):
    """A message that a worker is processing. The first of the calls below decides what happens to it.

    `with message:` acknowledges the message when the block succeeds. If the block raises an exception, the client logs it, and
    retries the message while it has attempts left; then it rejects the message, which becomes a dead letter. The exception does
    not leave the block, so the worker continues with the next message. `KeyboardInterrupt` and `SystemExit` do leave the block;
    the message then stays open, and the server sends it again.
    """

    _block: AbstractContextManager[Any] = field(default_factory=nullcontext, init=False, repr=False, compare=False)
    """The span of its block."""

    @property
    def _delivery(self) -> consumer.Delivery[DataT]:
        assert isinstance(self.origin, consumer.Delivery)
        return self.origin

    # Written by tools/sync_client.py, as crewel.client.Delivery has it
    attempt = Fact[int]("_delivery", "attempt")
    """How often it was sent, this time included. Also counts the times when the worker ended before it came to the message."""
    failures = Fact[int]("_delivery", "failures")
    """How often this worker's code has raised an exception for it."""
    is_open = Fact[bool]("_delivery", "is_open")
    """Whether it has no end yet."""
    is_waiting = Fact[bool]("_delivery", "is_waiting")
    """Whether it waits for another attempt."""

    def acknowledge(self) -> None:
        """It is done: the server deletes it."""
        self._decide(self._delivery.acknowledge)

    def retry(self, after: float = 0.0) -> None:
        """Try the message again after `after` seconds, when its block has ended, behind the messages that this process has
        already fetched. Raises ValueError for a negative time, and RuntimeError in a transaction in which an `Inbox` has
        recorded the message."""
        self._decide(lambda: self._delivery.retry(after))

    # End of what is written

    def __enter__(self) -> Self:
        self._block = consumer.processing(self._delivery)  # the context of this thread, and not that of the event loop
        self._block.__enter__()
        self.background.call(lambda: consumer.block_begins(self._delivery))
        self.is_deferred = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._block.__exit__(kind, error, trace)
        hand_back(self)
        return self.background.call(lambda: consumer.block_ends(self._delivery, error))


def hand_back(shown: Message) -> None:
    """Let the event loop decide about the message: it has to know whether an inbox has recorded it."""
    shown.origin.recorded_in = shown.recorded_in
