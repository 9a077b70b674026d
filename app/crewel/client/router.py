"""Which local subscriptions receive a message, which of them the server knows, and messages that none receives.

The server has one subscription per channel name however many local ones there are, and it sends a message once however many of
its patterns match. Fanning out is the client's part.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

from crewel.bayeux.channel import parse
from crewel.bayeux.message import Fields
from crewel.client.client_message import DEAD_MESSAGE, Handling, Message, channel_name, is_delivery, update_of
from crewel.client.errors import SubscribeRefused
from crewel.client.subscription import Overflow, Progress, Subscription

log = logging.getLogger("crewel.client")

_MOST_MESSAGES: Final = {True: 10_000, False: 1000}
"""The bounds of unclaimed messages: of those that are open at the server as many as it leaves open, and of others fewer."""
_UNWANTED_REMEMBERED: Final = 10_000
"""How many channels are remembered that the application has unsubscribed: what still comes for them is dropped."""


@dataclass(slots=True)
class Interest:
    """One channel name: its local subscriptions, and whether the server of this session has confirmed it.

    `has_begun` says whether the session, as long as it is kept, has it. `may_exist` says whether it may: it was asked for, or
    one before it may not have been unsubscribed. `was_confirmed`: a session had it. `asked` is set when the question that is on
    its way to the server, if any, has its answer. `progress` is how far the channel's messages have come, for a subscription
    that asks for what it missed.
    """

    channel: str
    ext: Fields | None
    progress: Progress = field(default_factory=Progress)
    recovered: bool | None = None
    subscriptions: list[Subscription] = field(default_factory=list)
    confirmed: bool = False
    has_begun: bool = False
    may_exist: bool = False
    was_confirmed: bool = False
    refusal: Exception | None = None
    asked: asyncio.Event | None = None


class Router:
    """The local subscriptions by channel."""

    def __init__(self, unclaimed: Unclaimed | None = None, *, settles: bool = True) -> None:
        self.unclaimed = Unclaimed() if unclaimed is None else unclaimed
        """Messages that no subscription or listener receives."""
        self._settles = settles
        self._interests: dict[str, Interest] = {}
        self._listeners: dict[str, list[Subscription]] = {}
        self._fallbacks: dict[str, list[Subscription]] = {}
        self._erased: dict[str, list[Subscription]] = {}  # of erased topics, until the application has read the notice
        self._failed: dict[str, tuple[SubscribeRefused, Handling | None]] = {}
        self._unwanted: dict[str, None] = {}
        self._left: dict[str, None] = {}  # to be unsubscribed
        self._knows_all: bool | None = None
        self._is_over = False
        self._error: Exception | None = None
        self._room = asyncio.Event()

    def add(self, subscription: Subscription, ext: Fields | None) -> Interest:
        """Register a subscription; the first one of a channel brings the `ext` that its subscribe carries. Raises ValueError
        for a later one with other options: the server has one subscription for all of them. Raises SubscribeRefused, once, if
        the server has ended a subscription to this channel that was made by an earlier client of the session."""
        if subscription.channel in self._failed:
            error, handling = self._failed.pop(subscription.channel)
            if handling is not None:
                handling.end()
            raise error
        new = Interest(subscription.channel, ext, may_exist=subscription.channel in self._left)
        interest = self._interests.setdefault(subscription.channel, new)
        if _options(interest.ext) != _options(ext):
            raise ValueError(f"this client is subscribed to {subscription.channel} with other options")
        interest.subscriptions.append(subscription)
        if interest.confirmed:
            subscription.confirmed(interest.recovered, interest.progress.position)
        self._unwanted.pop(subscription.channel, None)
        self._left.pop(subscription.channel, None)
        self._deliver_unclaimed(subscription)
        return interest

    def add_listener(self, subscription: Subscription, *, is_last: bool = False) -> None:
        """Register a local listener; the client sends no subscribe for it. `is_last`: it receives only what no other does.
        After the end of the session it ends too."""
        listeners = self._fallbacks if is_last else self._listeners
        listeners.setdefault(subscription.channel, []).append(subscription)
        self._deliver_unclaimed(subscription)
        if self._is_over:
            subscription.end(self._error)

    def blame(self, error: Exception) -> None:
        """An exception leaves the block of the client: the message in whose loop it was raised has failed."""
        for interest in self._interests.values():
            for subscription in interest.subscriptions:
                subscription.blame(error)
        for table in (self._listeners, self._fallbacks, self._erased):
            for subscription in chain.from_iterable(table.values()):
                subscription.blame(error)

    def remove_listener(self, subscription: Subscription) -> None:
        """Forget it."""
        self.made_room()
        for table in (self._listeners, self._fallbacks):
            listeners = table.get(subscription.channel, [])
            if subscription in listeners:
                listeners.remove(subscription)
                if not listeners:
                    del table[subscription.channel]
        self._return_unread(subscription)

    def _deliver_unclaimed(self, subscription: Subscription) -> None:
        """Let a new subscription have what came before it."""
        for fields, handling, _ in self.unclaimed.take(subscription.channel):
            self._hand_over(fields, handling, [subscription])

    def _return_unread(self, subscription: Subscription) -> None:
        """What the subscription has not read waits for another, unless the application wants it no more."""
        for message in [] if subscription.is_unwanted or self._is_over else subscription.unread():
            handling = message.give_up()
            channel = parse(message.channel)
            if channel is None or self._receivers(channel.patterns):
                if handling is not None:
                    handling.end()  # another has it as well, and settles it
                continue
            if receivers := self._fallback_receivers(channel.patterns):
                self._hand_over(message.fields, handling, receivers)
            else:
                self.unclaimed.keep(message.fields, handling)

    def _hand_over(self, fields: Fields, handling: Handling | None, subscriptions: list[Subscription]) -> None:
        if handling is not None:
            handling.working()
        self._offer(fields, handling, subscriptions, retained=True)
        if handling is not None:
            handling.end()

    def remove(self, subscription: Subscription) -> Interest | None:
        """Forget a subscription; the channel's interest if that was its last one."""
        self.made_room()
        interest = self._interests.get(subscription.channel)
        if interest is None or subscription not in interest.subscriptions:
            self._return_unread(subscription)
            return None
        interest.subscriptions.remove(subscription)
        self._return_unread(subscription)
        if not all(each.is_ended for each in interest.subscriptions):  # as a full queue ends one
            return None
        if subscription.is_unwanted:
            self._unwanted[subscription.channel] = None
            if len(self._unwanted) > _UNWANTED_REMEMBERED:
                del self._unwanted[next(iter(self._unwanted))]
        if interest.may_exist:
            self._left[subscription.channel] = None
        return self._interests.pop(subscription.channel)

    @property
    def left(self) -> list[str]:
        """The channels without a local subscription of which the session may have one: they are to be unsubscribed."""
        return list(self._left)

    def take_left(self, channel: str) -> bool:
        """The channel is being unsubscribed now. Whether that is still wanted."""
        is_left = channel in self._left
        self._left.pop(channel, None)
        return is_left

    def leave_again(self, channels: Iterable[str]) -> None:
        """The unsubscribes may not have arrived. They are repeated, unless there is a local subscription again."""
        for channel in channels:
            interest = self._interests.get(channel)
            if interest is None:
                self._left[channel] = None
            else:
                interest.may_exist = True

    def refuse(self, interest: Interest, error: Exception) -> None:
        """The server refused this channel: all its local subscriptions end with `error`."""
        interest.refusal = error
        if self._interests.get(interest.channel) is interest:
            del self._interests[interest.channel]
        _end(interest.subscriptions, error)

    def fail(self, error: SubscribeRefused, handling: Handling | None) -> None:
        """The server has ended a subscription: its local ones end with `error`, behind what came before. If there are none yet,
        the next `add` raises it. The notice is settled when the application has seen it."""
        channel = str(error.reply.get("subscription"))
        interest = self._interests.pop(channel, None)
        if interest is None:
            log.warning("%s", error)
            self._failed[channel] = error, handling
            return
        interest.refusal = error
        for subscription in interest.subscriptions:
            subscription.fail(error, None if handling is None else handling.share())
        if handling is not None:
            handling.end()

    def end(self, error: Exception | None) -> None:
        """The session has ended for good: every subscription ends, with `error` unless the application ended it."""
        self._error = self._error if self._is_over else error
        self._is_over = True
        for interest in self._interests.values():
            _end(interest.subscriptions, error)
        for listeners in (*self._listeners.values(), *self._fallbacks.values(), *self._erased.values()):
            _end(listeners, error)
        self._interests.clear()
        self._erased.clear()
        self._listeners.clear()
        self._fallbacks.clear()
        self.unclaimed.stop()
        self.made_room()

    def unconfirmed(self) -> list[Interest]:
        """What the server does not know yet, and no request is asking for."""
        return [each for each in self._interests.values() if self.is_unconfirmed(each)]

    def is_unconfirmed(self, interest: Interest) -> bool:
        """Whether it still has local subscriptions, the server does not know it yet, and no request is asking for it."""
        is_wanted = self._interests.get(interest.channel) is interest
        return is_wanted and not interest.confirmed and interest.asked is None

    def forget_session(self) -> None:
        """The next session may know of no subscription."""
        for interest in self._interests.values():
            interest.confirmed = False

    def lose_session(self) -> None:
        """The session has ended, or another client had it: all subscriptions begin again."""
        for interest in self._interests.values():
            interest.confirmed = interest.has_begun = False

    def begin_session(self, *, is_reconnected: bool) -> None:
        """There is a session. If it is a new one, it knows of no subscription, and nothing waits for a listener any more. If it
        is one that another client had before, it may be subscribed to channels that this client does not know of."""
        if not is_reconnected:
            self.lose_session()
            self.unclaimed.clear()
            self._failed.clear()
            self._unwanted.clear()
            self._left.clear()
            self._knows_all = True
        elif self._knows_all is None:
            self._knows_all = False

    def is_unwanted(self, message: Message) -> bool:
        """Whether a message that nothing here receives comes of a subscription that the application has ended."""
        if message.subscription in self._unwanted:
            return True
        # The server names the subscription that a message comes by, but where that has ended the channel.
        channel = parse(message.subscription)
        if not self._knows_all or channel is None or message.subscription != message.channel:
            return False
        return any(pattern in self._unwanted for pattern in channel.patterns)

    def deliver(self, fields: Fields, *, retained: bool, handling: Handling | None = None) -> bool:
        """Offer a received message to every subscription to its channel; each has a part in its `handling`, if
        the application settles. Whether there was one."""
        channel = parse(fields["channel"])
        if channel is None:
            return True  # the server sent no valid channel: drop the message
        receivers = self._receivers(channel.patterns) or self._fallback_receivers(channel.patterns)
        if Message(channel.name, fields["data"], fields).is_erased:
            self._erase(channel.name)
        message = self._offer(fields, handling, receivers, retained=retained)
        for pattern in channel.patterns:
            if (interest := self._interests.get(pattern)) is not None and interest.progress:
                interest.progress.advance(message)
        return bool(receivers)

    def _erase(self, name: str) -> None:
        """The topic was erased, and the server has ended the subscription to its name. Its local subscribers receive all
        that still comes until the application has read the notice, which is their last message."""
        erased = self._interests.pop(name, None)
        if erased is not None:
            for subscription in erased.subscriptions:
                subscription.end_with_notice()
            self._erased[name] = erased.subscriptions

    def _offer(
        self, fields: Fields, handling: Handling | None, subscriptions: Iterable[Subscription], *, retained: bool
    ) -> Message:
        # Each subscription has a message of its own, which it may read as another type, and settles its part of the delivery:
        # the first failure counts, and the last one ends it.
        message = Message(channel_name(fields["channel"]), fields["data"], fields)
        for subscription in subscriptions:
            part = handling.share() if handling is not None and self._settles else None
            subscription.offer(Message(message.channel, message.data, fields, part), retained=retained)
        return message

    def has_room(self, batch: Iterable[Fields]) -> bool:
        """Whether no queue with the policy `hold` that this batch goes to is full."""
        channels = {fields["channel"] for fields in batch if is_delivery(fields)}
        parsed = [channel for channel in map(parse, channels) if channel is not None]
        return not any(_holds(subscription) for channel in parsed for subscription in self._receivers(channel.patterns))

    def made_room(self) -> None:
        """A full queue is full no more, or the application waits for an answer: look again whether there is room."""
        self._room.set()

    async def wait_for_room(self, is_over: Callable[[], bool], timeout: float) -> None:
        """Wait until this is true, which may change when a full queue is full no more; at most `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while not is_over():
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            return

    def _receivers(self, patterns: Iterable[str]) -> list[Subscription]:
        # The exact name first, then outwards, as the official client calls its listeners.
        receivers: list[Subscription] = []
        for pattern in reversed(tuple(patterns)):
            if pattern in self._interests:
                receivers += self._interests[pattern].subscriptions
            elif pattern in self._erased:
                receivers += self._still_erased(pattern)
            if pattern in self._listeners:
                receivers += self._listeners[pattern]
        return [each for each in receivers if not each.is_ended]

    def _still_erased(self, name: str) -> list[Subscription]:
        rest = [each for each in self._erased.pop(name) if not each.is_ended]
        if rest:
            self._erased[name] = rest
        return rest

    def _fallback_receivers(self, patterns: Iterable[str]) -> list[Subscription]:
        """Those that receive what nothing else receives."""
        fallbacks = self._fallbacks
        return [each for pattern in patterns for each in fallbacks.get(pattern, ())] if fallbacks else []


def _holds(subscription: Subscription) -> bool:
    return subscription.overflow is Overflow.HOLD and subscription.is_full and not subscription.is_ended


def _options(ext: Fields | None) -> object:
    return ext.get("subscribe") if ext is not None else None


def _end(subscriptions: list[Subscription], error: Exception | None) -> None:
    for subscription in subscriptions:
        subscription.end(error)


class UnclaimedMessage(NamedTuple):
    """A message that no listener takes."""

    fields: Fields
    handling: Handling | None
    """A listener that takes the message ends this for the client; None if the client reports no status for it."""
    since: float
    """When it came, by the clock of the loop."""


class Unclaimed:
    """The messages of one session that wait for a listener. After `limit_s`, if given, they are rejected."""

    def __init__(self, limit_s: float | None = None) -> None:
        self._limit_s = limit_s
        self._messages: dict[object, UnclaimedMessage] = {}
        self._channels: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._messages)

    def keep(self, fields: Fields, handling: Handling | None, since: float | None = None) -> None:
        """Keep a message that no listener takes; `since` is when its first copy came, if another did before."""
        if handling is not None and self._limit_s == 0:
            self._reject(handling)
            return
        loop = asyncio.get_running_loop()
        channel = fields["channel"]
        if not self._channels[channel]:
            what = "they are kept in memory" if handling is None else "they stay open at the server"
            log.warning("no listener takes the messages of %s: %s until one does", channel, what)
        self._messages[_key(fields, handling)] = UnclaimedMessage(
            fields, handling, loop.time() if since is None else since
        )
        self._channels[channel] += 1
        if handling is not None:
            handling.unclaimed()
        if len(self._messages) > _MOST_MESSAGES[handling is not None]:
            dropped = self._take_out(next(iter(self._messages)))
            log.error("too many messages without a listener: the oldest, of %s, is dropped", dropped.fields["channel"])
        self._set_timer(loop)

    def drop(self, fields: Fields) -> float | None:
        """Forget the message of which this is a copy; since when it was here."""
        key = update_of(fields).get("id")
        return self._take_out(key).since if isinstance(key, str) and key in self._messages else None

    def take(self, pattern: str) -> list[UnclaimedMessage]:
        """Those that a listener of this channel or wildcard receives, in their order; they are not here any more."""
        found = [key for key, each in self._messages.items() if _matches(pattern, each.fields["channel"])]
        return [self._take_out(key) for key in found]

    def clear(self) -> None:
        """Forget all: their session has ended."""
        self._messages.clear()
        self._channels.clear()
        self.stop()

    def stop(self) -> None:
        """Let no time run out any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take_out(self, key: object) -> UnclaimedMessage:
        message = self._messages.pop(key)
        channel = message.fields["channel"]
        self._channels[channel] -= 1
        if not self._channels[channel]:
            del self._channels[channel]
        return message

    # Time

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._limit_s is None or self._timer is not None:
            return
        # A server that takes no statuses takes no rejection either: its messages wait without limit.
        first = next((each for each in self._messages.values() if each.handling is not None), None)
        if first is not None:
            self._timer = loop.call_at(first.since + self._limit_s, self._expire)

    def _expire(self) -> None:
        assert self._limit_s is not None
        self._timer, loop = None, asyncio.get_running_loop()
        for key, each in list(self._messages.items()):
            if each.handling is None:
                continue
            if each.since + self._limit_s > loop.time():
                break
            self._take_out(key)
            self._reject(each.handling)
        self._set_timer(loop)

    def _reject(self, handling: Handling) -> None:
        handling.failed(DEAD_MESSAGE, f"no listener took it within {self._limit_s:g} s")
        handling.end()


def _key(fields: Fields, handling: Handling | None) -> object:
    return update_of(fields)["id"] if handling is not None else object()


def _matches(pattern: str, name: str) -> bool:
    channel = parse(name)
    return channel is not None and pattern in channel.patterns
