"""The subscribers of a channel, while nothing changes: looked up once for many messages, and handed each at the cost of one for
all.

Whatever is unusual about a message or about one of its receivers goes the general way, in `Intake`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from crewel.bayeux.channel import Channel
from crewel.broker.channels import Channels
from crewel.broker.durability.access import StoreAccess
from crewel.broker.outbox.outbound import Outbound
from crewel.broker.session import Session
from crewel.broker.subscriptions.options import SubscriptionOptions
from crewel.delivery.dispatcher import NO_DISPATCHER
from crewel.delivery.durable import Durable
from crewel.delivery.entry import Entry
from crewel.delivery.recent import Audience, Recent
from crewel.delivery.records import Waiting

_MOST_CHANNELS: Final = 10_000


class Subscribers(NamedTuple):
    """The subscribers of a channel."""

    audience: Audience
    """The sessions that the store has, for the engine."""
    reliable: list[tuple[Session, Durable]]
    """The same."""
    others: list[Session]


@dataclass(eq=False)
class Audiences:
    """The subscribers of channels, as long as they stay the same."""

    _channels: Channels
    _outbound: Outbound
    _options: SubscriptionOptions
    _access: StoreAccess
    _deliver: Callable[[Durable, Entry, str], None]
    _known: dict[str, Subscribers] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._version: tuple[Recent | None, int, int] = (None, 0, 0)

    def of(self, channel: Channel) -> Subscribers | None:
        """The subscribers that get every message of the channel; None if one of them has to be asked about each."""
        node, channels = self._access.node, self._channels
        filtered = self._options.filtered
        if not node.holds_still or (filtered and not filtered.keys().isdisjoint(channels.subscribers(channel))):
            return None
        version = (node.recent, node.recent.version, channels.version)
        if version != self._version or len(self._known) >= _MOST_CHANNELS:
            self._known.clear()
            self._version = version
        subscribers = self._known.get(channel.name)
        if subscribers is None and (subscribers := self._found(channel)) is not None:
            self._known[channel.name] = subscribers
        return subscribers

    def _found(self, channel: Channel) -> Subscribers | None:
        reliable, others = [], []
        for session in self._channels.subscribers(channel):
            if session.durable is None:
                others.append(session)
            elif session.durable.holder is session:
                reliable.append((session, session.durable))
            else:
                return None
        audience = self._access.node.audience(channel.patterns, [durable for _, durable in reliable])
        return None if audience is None else Subscribers(audience, reliable, others)

    def take(self, subscribers: Subscribers, entry: Entry, waiting: Waiting) -> bool:
        """Take the next message of the log, and queue it for those whom the store has; False if it was taken before."""
        node = self._access.node
        entry.taken = node.take_for(subscribers.audience, entry.position, waiting)
        if entry.taken is None:
            return False
        outbound, lazy = self._outbound, entry.lazy
        fan_outs = outbound.fan_outs
        most = fan_outs.at_once
        if fan_outs.waiting and entry.channel in fan_outs.waiting:
            fan_outs.add(entry.channel, self._queue(subscribers.reliable, 0, entry))
            return True
        for index, (session, durable) in enumerate(subscribers.reliable):
            if index == most:
                fan_outs.add(entry.channel, self._queue(subscribers.reliable, most, entry))
                break
            if not (
                session.queue
                or session.retained
                or session.is_absent
                or session.dispatcher is not NO_DISPATCHER
                or durable.parked
                or lazy
            ):
                outbound.enqueue_first(session, entry)
            elif self._is_usual(session, durable, node.recent.size):
                outbound.enqueue(session, entry)
            else:
                self._deliver(durable, entry, "")
        return True

    def _queue(self, reliable: list[tuple[Session, Durable]], start: int, entry: Entry) -> Iterator[None]:
        """Queue a message that was taken for the sessions from `start` on, a few at a time. By now one may have ended, may be
        another client's, or the message may have ended for it."""
        outbound, recent = self._outbound, self._access.node.recent
        step = outbound.fan_outs.step
        for at in range(start, len(reliable), step):
            for _, durable in reliable[at : at + step]:
                session: Session | None = durable.holder
                if session is None or not is_owed(durable, entry):
                    continue
                if self._is_usual(session, durable, recent.size):
                    outbound.enqueue(session, entry)
                else:
                    self._deliver(durable, entry, "")
            yield

    @staticmethod
    def _is_usual(session: Session, durable: Durable, ahead: int) -> bool:
        """Whether the next message goes into the session's queue whatever its bounds say, with at most so many bytes not
        booked, this one included."""
        if session.is_absent or session.is_paused or session.rejects_all or durable.parked:
            return False
        bounds = session.bounds
        return bounds is None or (
            len(session.queue) + session.retained < bounds.max_entries
            and durable.booked_size + ahead <= bounds.max_bytes
        )


def is_owed(durable: Durable, entry: Entry) -> bool:
    """Whether the message, which was taken for the session and has not been queued yet, is still open for it. A message
    that the session has not reached yet is open."""
    if durable.is_fenced:
        return False
    taken = entry.taken
    if taken is not None and durable.upto < taken.number:
        return True
    return durable.find(entry.position) is not None
