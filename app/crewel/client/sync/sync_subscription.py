"""One local subscription, for a loop or for threads."""

from __future__ import annotations

from typing import Generic, Self

from crewel.client import client_message, subscription
from crewel.client.client_message import DataT
from crewel.client.subscription import Overflow, Position
from crewel.client.sync.background import Block, Fact
from crewel.client.sync.sync_message import Message


class Subscription(Block[subscription.Subscription[DataT]], Generic[DataT]):
    """Iterate over it (`for message in subscription`), or call `receive`.

    In a client with `update`, asking for a message settles the one before, as does leaving the block of `with subscription`
    without an exception. Threads that share a subscription call
    `receive(defer=True)` and settle each message themselves: another one may ask before `message.defer()`.

    The iteration ends after `unsubscribe` and when the application closes the client. It raises when the subscription was lost:
    `SubscribeRefused` if the server refused it in a new session or has ended it, because its filter is too expensive. It raises
    `DisconnectedError` if the server ended the session for good. Leaving it as a context manager unsubscribes.

    The notice that its topic is erased (`message.is_erased`) is the last message of a subscription to just this channel;
    wildcards continue.
    """

    # Written by tools/sync_client.py, as crewel.client.Subscription has it
    channel = Fact[str]("_origin", "channel")
    """The channel or wildcard as the server knows it."""
    bound = Fact[int]("_origin", "bound")
    """How many messages wait to be read, at most."""
    overflow = Fact[Overflow]("_origin", "overflow")
    """What happens to a message if the queue is full."""
    dropped = Fact[int]("_origin", "dropped")
    """How many messages the policy has cost so far."""
    invalid = Fact[int]("_origin", "invalid")
    """How many messages were rejected because their data has not the type of the subscription."""
    recovered = Fact[bool | None]("_origin", "recovered")
    """Whether all that was missed since the position came or comes; None if no position was given."""

    @property
    def position(self) -> Position:
        """The position after the last message that the application received, for `since` of a later subscription."""
        return self._background.call(lambda: self._origin.position)

    queued = Fact[int]("_origin", "queued")
    """How many messages wait to be read."""
    is_full = Fact[bool]("_origin", "is_full")
    """Whether the next message meets the policy."""
    is_ended = Fact[bool]("_origin", "is_ended")
    """Whether no more messages will come."""

    def receive(self, timeout: float | None = None, *, defer: bool = False) -> Message[DataT]:
        """The next message. The arguments and errors are those of `crewel.client.Subscription.receive`."""
        return self._shown(self._background.take(lambda: self._origin.receive(timeout, defer=defer), self._put_back))

    def unsubscribe(self) -> None:
        """End the subscription; the last one of its channel unsubscribes at the server. The arguments and errors are those
        of `crewel.client.Subscription.unsubscribe`."""
        self._background.wait_for(self._origin.unsubscribe)

    # End of what is written

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message[DataT]:
        try:
            return self._shown(self._background.take(self._origin.__anext__, self._put_back))
        except StopAsyncIteration:
            raise StopIteration from None

    def _put_back(self, origin: client_message.Message[DataT]) -> None:
        self._origin.put_back([origin])

    def _shown(self, origin: client_message.Message[DataT]) -> Message[DataT]:
        return Message.of(origin, self._background)
