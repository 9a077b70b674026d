"""The subscribers of channels, found once for many messages: a persistent message is then taken for all of them at the cost of
one.

What is known of a channel follows the sessions that change, so that a subscribe among 100,000 subscribers costs the next
publish a copy and no new look-up. What is unusual about a message or one of its receivers goes the general way, in
`LogAppender`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from crewel.bayeux.channel import Channel
from crewel.broker.addressing.channels import Channels
from crewel.broker.durability.deliverer import Deliverer, is_open
from crewel.broker.mailboxes.offers import READY, UNSURE
from crewel.broker.mailboxes.outbound import Outbound
from crewel.broker.session import Session, stored_of, unstored_of
from crewel.broker.subscriptions.options import SubscriptionOptions
from crewel.broker.writing.store_access import StoreAccess
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry
from crewel.delivery.fan_out_buffer import FanOutBuffer, SubscriberSet
from crewel.delivery.records import PendingMessage, SessionName

_MOST_CHANNELS: Final = 10_000
_FEW: Final = 4
"""If more than one of so many subscribers has changed, and more than are looked up at once, all are looked up again."""


class Subscribers:
    """The subscribers of a channel. What is known of them by the given versions must not change any more: messages on their
    way refer to it."""

    __slots__ = ("fan_out", "index_version", "others", "set_version", "subscriber_set", "unusual")

    def __init__(self, fan_out: FanOutBuffer[DurableSession], set_version: int, index_version: int) -> None:
        self.fan_out = fan_out
        self.set_version = set_version
        self.index_version = index_version
        self.subscriber_set: SubscriberSet[DurableSession] = SubscriberSet({})
        """The sessions that the store has and that receive every message, for the engine."""
        self.others: dict[Session, None] = {}
        """The sessions that the store has not."""
        self.unusual: dict[DurableSession, None] = {}
        """The sessions that have to be asked about each message."""


@dataclass(eq=False)
class SubscriberCache:
    """What is known of the channels that messages were published to."""

    _channels: Channels
    _outbound: Outbound
    _options: SubscriptionOptions
    _access: StoreAccess
    _deliverer: Deliverer
    _known: dict[str, Subscribers] = field(default_factory=dict, init=False)

    def of(self, channel: Channel) -> Subscribers | None:
        """The subscribers that get every message of the channel. None if one of them has to be asked about each, or if there
        are so many that they have to be looked up before (`look_up`)."""
        node, channels = self._access.node, self._channels
        filtered = self._options.filtered
        if not node.is_stable or (filtered and not filtered.keys().isdisjoint(channels.subscribers(channel))):
            return None
        known, fan_out = self._known.get(channel.name), node.fan_out
        if (
            known is None
            or known.set_version != fan_out.changes.version
            or known.index_version != channels.changes.version
            or known.fan_out is not fan_out
            or known.unusual
        ):
            known = self._renewed(channel, known)
        return known

    def look_up(self, channel: Channel) -> Iterator[None]:
        """Look up the subscribers of a channel, a few at a step. Those that change between the steps are looked at again
        by `of`."""
        found = self._begun()
        fan_out = self._outbound.fan_outs
        sessions = list(self._channels.subscribers(channel))
        members: dict[DurableSession, SessionName] = {}
        for start in range(0, len(sessions), fan_out.step):
            self._sort(channel, sessions[start : start + fan_out.step], members, found)
            yield
        found.subscriber_set = SubscriberSet(members)
        self._keep(channel, found)
        yield

    def _begun(self) -> Subscribers:
        fan_out = self._access.node.fan_out
        return Subscribers(fan_out, fan_out.changes.version, self._channels.changes.version)

    def _keep(self, channel: Channel, found: Subscribers) -> None:
        if len(self._known) >= _MOST_CHANNELS:
            self._known.clear()
        self._known[channel.name] = found

    def _sort(
        self,
        channel: Channel,
        sessions: Iterable[Session],
        members: dict[DurableSession, SessionName],
        found: Subscribers,
    ) -> None:
        """Put each of these sessions where it belongs, if it is a subscriber."""
        node, channels = self._access.node, self._channels
        subscribed = [each for each in sessions if channels.is_subscriber(each, channel)]
        found.others.update(dict.fromkeys(unstored_of(subscribed)))
        for durable in stored_of(subscribed):
            if durable.connected is not None and node.receives_all(durable, channel.patterns):
                members[durable] = durable.name
            else:
                found.unusual[durable] = None

    def _renewed(self, channel: Channel, known: Subscribers | None) -> Subscribers | None:
        changed = None if known is None else self._changed(known)
        most, at_once = self._channels.most_subscribers(channel), self._outbound.fan_outs.looked_up
        if known is None or changed is None or len(changed) > min(most, max(at_once, most // _FEW)):
            if most > at_once:
                self._known.pop(channel.name, None)
                return None
            for _ in self.look_up(channel):
                pass
            known = self._known[channel.name]
        elif changed:
            known = self._follow(channel, known, changed)
        return None if known.unusual else known

    def _changed(self, known: Subscribers) -> dict[Session | DurableSession, None] | None:
        """Which sessions may have changed, of the store or of the index; None: nothing is known any more."""
        fan_out = self._access.node.fan_out
        if known.fan_out is not fan_out:
            return None
        of_store, of_index = fan_out.changes.since(known.set_version), self._channels.changes.since(known.index_version)
        if of_store is None or of_index is None:
            return None
        return dict.fromkeys([*of_store, *of_index, *known.unusual])

    def _follow(self, channel: Channel, known: Subscribers, changed: Iterable[Session | DurableSession]) -> Subscribers:
        """What is known now, where these have changed."""
        found = self._begun()
        members = dict(known.subscriber_set.sessions)
        found.others, found.unusual = dict(known.others), dict(known.unusual)
        sessions = dict.fromkeys(each.connected if isinstance(each, DurableSession) else each for each in changed)
        sessions.pop(None, None)
        for durable in (*(each for each in changed if isinstance(each, DurableSession)), *stored_of(sessions)):
            members.pop(durable, None)
            found.unusual.pop(durable, None)
        for session in sessions:
            found.others.pop(session, None)
        self._sort(channel, sessions, members, found)
        found.subscriber_set = SubscriberSet(members)
        self._keep(channel, found)
        return found

    def take(
        self, channel: Channel, entry: Entry, pending: PendingMessage, unfinished: deque[Iterator[None]]
    ) -> Subscribers | None:
        """Take the next message of the log for its subscribers, and queue it for those whom the store has. None if that must
        be done in another way: they are not known (`of`), or the message was taken before. What takes too long for one
        turn, and must be done before the next message is taken, is added to `unfinished`."""
        subscribers = self.of(channel)
        if subscribers is None:
            return None
        node = self._access.node
        members = subscribers.subscriber_set
        entry.fan_out_record = node.take_for(members, entry.position, pending)
        if entry.fan_out_record is None:
            return None
        outbound = self._outbound
        fan_outs = outbound.fan_outs
        most, slow = fan_outs.at_once, fan_outs.step
        ready: list[Session] = []
        if fan_outs.pending and entry.channel in fan_outs.pending:
            most = 0
        for index, durable in enumerate(members.sessions):
            if index >= most:
                fan_outs.add(entry.channel, self._queue(members.sessions, index, entry))
                break
            session: Session = durable.connected
            answer = session.mailbox.offer_at_once(entry)
            if answer == READY:
                ready.append(session)
            elif answer != UNSURE:
                outbound.came(session, entry, answer)
            elif slow:
                slow -= 1
                self._deliverer.deliver(durable, entry, "")
            else:
                unfinished.append(self._queue(members.sessions, index, entry, most))
                if len(members.sessions) > most:
                    fan_outs.add(entry.channel, self._queue(members.sessions, most, entry))
                break
        if ready:
            outbound.make_ready(ready)
        if node.closing:
            closing = node.take_closing(members, entry.position, channel.patterns, pending)
            steps = self._queue(closing, 0, entry.unrecorded())
            if len(closing) > most:
                fan_outs.add(entry.channel, steps)
            elif len(closing) > slow:  # before the next one, so that a message of another channel does not overtake it
                unfinished.append(steps)
            else:
                for _ in steps:
                    pass
        return subscribers

    def _queue(
        self, durables: Iterable[DurableSession], start: int, entry: Entry, stop: int | None = None
    ) -> Iterator[None]:
        """Queue a message that was taken for the sessions from `start` to `stop`, a few at a time. By now one may have ended,
        may be another client's, or the message may have ended for it."""
        step = self._outbound.fan_outs.step
        rest = islice(durables, start, stop)
        while portion := tuple(islice(rest, step)):
            for durable in portion:
                session: Session | None = durable.connected
                if session is None or not is_open(durable, entry):
                    continue
                self._deliverer.deliver(durable, entry, "")
            yield
