"""Which local subscriptions hear a message, and what the server was told of them.

The server has one subscription per channel name however many local ones there
are, and it sends a message once however many of its patterns match: fanning
out is the client's part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from crewel.bayeux.channel import parse
from crewel.bayeux.message import Fields
from crewel.client.message import Message, is_delivery
from crewel.client.settling import Handling
from crewel.client.subscribing import Progress
from crewel.client.subscription import Overflow, Subscription


@dataclass(slots=True)
class Interest:
    """One channel name: its local subscriptions, and whether the server of this session has confirmed it.

    `asked` is set when the question that is on its way to the server, if any, has been settled. `progress` is how far the
    channel's messages have come, for a subscription that asks for what it missed.
    """

    channel: str
    ext: Fields | None
    progress: Progress = field(default_factory=Progress)
    recovered: bool | None = None
    subscriptions: list[Subscription] = field(default_factory=list)
    confirmed: bool = False
    asked: asyncio.Event | None = None


class Router:
    """The local subscriptions by channel."""

    def __init__(self) -> None:
        self._interests: dict[str, Interest] = {}
        self._listeners: dict[str, list[Subscription]] = {}
        self._room = asyncio.Event()

    def add(self, subscription: Subscription, ext: Fields | None) -> Interest:
        """Register a subscription; the first one of a channel brings the `ext` that its subscribe carries. Raises ValueError
        for a later one with other options: the server has one subscription for all of them."""
        interest = self._interests.setdefault(subscription.channel, Interest(subscription.channel, ext))
        if _options(interest.ext) != _options(ext):
            raise ValueError(f"this client is subscribed to {subscription.channel} with other options")
        interest.subscriptions.append(subscription)
        if interest.confirmed:
            subscription.confirmed(interest.recovered, interest.progress.position)
        return interest

    def add_listener(self, subscription: Subscription) -> None:
        """Register one of which the server is told nothing."""
        self._listeners.setdefault(subscription.channel, []).append(subscription)

    def remove_listener(self, subscription: Subscription) -> None:
        """Forget it."""
        self.made_room()
        listeners = self._listeners.get(subscription.channel, [])
        if subscription in listeners:
            listeners.remove(subscription)
            if not listeners:
                del self._listeners[subscription.channel]

    def remove(self, subscription: Subscription) -> Interest | None:
        """Forget a subscription; the channel's interest if that was its last one."""
        self.made_room()
        interest = self._interests.get(subscription.channel)
        if interest is None or subscription not in interest.subscriptions:
            return None
        interest.subscriptions.remove(subscription)
        if interest.subscriptions:
            return None
        return self._interests.pop(subscription.channel)

    def refuse(self, interest: Interest, error: Exception) -> None:
        """The server refused this channel: all its local subscriptions end with `error`."""
        if self._interests.get(interest.channel) is interest:
            del self._interests[interest.channel]
        _end(interest.subscriptions, error)

    def end(self, error: Exception | None) -> None:
        """The session is over for good: every subscription ends, with `error` if it was not the application's wish."""
        for interest in self._interests.values():
            _end(interest.subscriptions, error)
        for listeners in self._listeners.values():
            _end(listeners, error)
        self._interests.clear()
        self._listeners.clear()
        self.made_room()

    def unconfirmed(self) -> list[Interest]:
        """What the server must be told of, and is not being told."""
        return [each for each in self._interests.values() if not each.confirmed and each.asked is None]

    def forget_session(self) -> None:
        """A new session knows of no subscription."""
        for interest in self._interests.values():
            interest.confirmed = False

    def deliver(self, fields: Fields, *, retained: bool, handling: Handling | None = None) -> None:
        """Offer a received message to every subscription that hears its channel; each has a part in its `handling`."""
        channel = parse(fields["channel"])
        if channel is None:
            return
        message = Message(channel.name, fields["data"], fields)
        for subscription in self._hearing(channel.patterns):
            if handling is not None:
                message = Message(channel.name, fields["data"], fields, handling.part())
            subscription.offer(message, retained=retained)
        for pattern in channel.patterns:
            if (interest := self._interests.get(pattern)) is not None and interest.progress:
                interest.progress.advance(message)
        if message.is_erased and (erased := self._interests.pop(channel.name, None)) is not None:
            _end(erased.subscriptions, None)  # the server has forgotten it with its topic

    def has_room(self, batch: Iterable[Fields]) -> bool:
        """Whether no queue with the policy `hold` that this batch goes to is full."""
        channels = {fields["channel"] for fields in batch if is_delivery(fields)}
        parsed = [channel for channel in map(parse, channels) if channel is not None]
        return not any(_holds(subscription) for channel in parsed for subscription in self._hearing(channel.patterns))

    def made_room(self) -> None:
        """A full queue is full no more."""
        self._room.set()

    async def wait_for_room(self, timeout: float) -> None:
        """Wait until no queue with the policy `hold` is full, at most `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while any(map(_holds, self._all())):
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            return

    def _all(self) -> Iterator[Subscription]:
        for interest in self._interests.values():
            yield from interest.subscriptions
        for listeners in self._listeners.values():
            yield from listeners

    def _hearing(self, patterns: Iterable[str]) -> list[Subscription]:
        # The exact name first, then outwards, as the official client calls its listeners.
        hearing: list[Subscription] = []
        for pattern in reversed(tuple(patterns)):
            if pattern in self._interests:
                hearing += self._interests[pattern].subscriptions
            if pattern in self._listeners:
                hearing += self._listeners[pattern]
        return hearing


def _holds(subscription: Subscription) -> bool:
    return subscription.overflow is Overflow.HOLD and subscription.is_full and not subscription.is_ended


def _options(ext: Fields | None) -> object:
    return ext.get("subscribe") if ext is not None else None


def _end(subscriptions: list[Subscription], error: Exception | None) -> None:
    for subscription in subscriptions:
        subscription.end(error)
