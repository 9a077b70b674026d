"""The channels that the server knows, who is subscribed to each, and what holds for some of them.

A message consults one key for each pattern that can match it (`Channel.patterns`). Wildcards stand last in a pattern, so
looking the patterns up is the same as walking a trie, and needs no tree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Final

from crewel.bayeux.channel import Channel, parse
from crewel.broker.cluster import Cluster
from crewel.broker.session import Session
from crewel.broker.topic import Topic
from crewel.delivery.changes import Changes
from crewel.errors import SettingsError

IDLE_SWEEPS: Final = 3
"""A channel without subscribers is forgotten after this many sweeps in a row."""


_LOOKED_AT: Final = 20_000
"""Channels that one sweep looks at."""


class Known:
    """A channel or pattern in use."""

    __slots__ = ("idle_sweeps", "subscribers", "topic")

    def __init__(self) -> None:
        self.subscribers: dict[Session, None] = {}
        """A set that keeps its order."""
        self.idle_sweeps = 0
        self.topic: Topic | None = None
        """What is published on it makes a topic, which `Topics` puts here: so a publish finds both in one look-up."""


class Channels:
    """Channels by name; wildcard patterns are channels like others."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        self._cluster = cluster or Cluster()
        self._known: dict[str, Known] = {}
        self._round: Iterator[tuple[str, Known]] = iter(())
        self._lazy: set[str] = set()
        self.subscriptions = 0
        """How many there are, of all sessions, with those that the store is just asked for."""
        self.asked: dict[Session, int] = {}
        """How many subscriptions the store is just asked for, by session. Each subscribe asks whether there are any, so it
        costs no call."""
        self.changes: Changes[Session] = Changes()
        """The sessions that have subscribed or unsubscribed last."""

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def create(self, name: str) -> Known:
        """The channel of this name, which is known from now on, until it has been idle for `IDLE_SWEEPS` sweeps."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = Known()
        else:
            known.idle_sweeps = 0
        return known

    def subscribe(self, session: Session, name: str) -> None:
        """Add the session to the subscribers of this channel or pattern; twice is once."""
        self.changes.note(session)
        subscribers = self.create(name).subscribers
        if not subscribers:
            self._cluster.wants(name)
        subscribers[session] = None
        self.add_grouped(session, name)

    def unsubscribe(self, session: Session, name: str) -> None:
        """Take the session out; nothing happens if it was not subscribed."""
        self.changes.note(session)
        known = self._known.get(name)
        if known is not None and session in known.subscribers:
            del known.subscribers[session]
            if not known.subscribers:
                self._cluster.gives_up(name)
        self.remove_grouped(session, name)

    def add_grouped(self, session: Session, name: str) -> None:
        """The session is subscribed to this channel or pattern as a member of groups: it counts, and is no subscriber here."""
        if name not in session.subscriptions:
            session.subscriptions.add(name)
            self._count(session, 1)

    def remove_grouped(self, session: Session, name: str) -> None:
        """It is a member of none of them any more."""
        if name in session.subscriptions:
            session.subscriptions.remove(name)
            self._count(session, -1)

    def _count(self, session: Session, difference: int) -> None:
        self.subscriptions += difference
        if session.account is not None:
            session.account.subscriptions += difference

    def ask(self, session: Session, names: Iterable[str]) -> Callable[[], None]:
        """Count subscriptions to these names as if the session had them, while the store is asked for them: until the function
        that this returns is called. A second call of that does nothing."""
        count, account = sum(name not in session.subscriptions for name in names), session.account

        def add(difference: int) -> None:
            self.subscriptions += difference
            if account is not None:
                account.subscriptions += difference
            self.asked[session] = self.asked.get(session, 0) + difference
            if not self.asked[session]:
                del self.asked[session]

        def answered() -> None:
            nonlocal count
            add(-count)
            count = 0

        add(count)
        return answered

    def forget_unused(self, name: str) -> None:
        """Forget a channel at once if it has no subscribers and no topic."""
        known = self._known.get(name)
        if known is not None and not known.subscribers and known.topic is None:
            del self._known[name]

    def unsubscribe_all(self, session: Session) -> None:
        """Take the session out of every channel."""
        for name in list(session.subscriptions):
            self.unsubscribe(session, name)

    def subscribers(self, channel: Channel) -> Collection[Session]:
        """The sessions that receive a message on this channel, each once however many of its subscriptions match. None
        receives from a meta or service channel by subscription, not even by `/**`."""
        if not channel.is_broadcast:
            return ()
        known = self._known
        found: dict[Session, None] | None = None
        for pattern in channel.patterns:
            entry = known.get(pattern)
            if entry is not None and entry.subscribers:
                found = entry.subscribers if found is None else found | entry.subscribers
        return found if found is not None else ()

    def is_subscriber(self, session: Session, channel: Channel) -> bool:
        """Whether `subscribers` has the session."""
        entries = map(self._known.get, channel.patterns if channel.is_broadcast else ())
        return any(entry is not None and session in entry.subscribers for entry in entries)

    def most_subscribers(self, channel: Channel) -> int:
        """How many `subscribers` has, or more: some may be counted once for each of their subscriptions."""
        entries = map(self._known.get, channel.patterns if channel.is_broadcast else ())
        return sum(len(entry.subscribers) for entry in entries if entry is not None)

    def count(self, name: str) -> int:
        """How many sessions are subscribed to exactly this channel or pattern."""
        known = self._known.get(name)
        return len(known.subscribers) if known is not None else 0

    def sweep(self) -> None:
        """Forget the channels that have been without subscribers for `IDLE_SWEEPS` sweeps. One sweep looks at so many, the next
        one at others."""
        looked_at = list(islice(self._round, _LOOKED_AT))
        if not looked_at:
            self._round = iter(list(self._known.items()))
            looked_at = list(islice(self._round, _LOOKED_AT))
        for name, known in looked_at:
            if self._known.get(name) is not known:
                continue
            if known.subscribers:
                known.idle_sweeps = 0
                continue
            known.idle_sweeps += 1
            if known.idle_sweeps >= IDLE_SWEEPS:
                del self._known[name]

    def make_lazy(self, patterns: Iterable[str]) -> None:
        """Let what is published to these channels, or to channels that these patterns match, wait for other messages."""
        self._lazy.update(_valid(pattern) for pattern in patterns)

    def is_lazy(self, channel: Channel) -> bool:
        """Whether what is published to it is lazy."""
        return bool(self._lazy) and not self._lazy.isdisjoint(channel.patterns)


def _valid(pattern: str) -> str:
    channel = parse(pattern)
    if channel is None:
        raise SettingsError(f"{pattern!r} is not a channel name or pattern, such as /chat/** or /news/sport")
    return channel.name
