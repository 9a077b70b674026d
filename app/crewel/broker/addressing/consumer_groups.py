"""Groups of consumers: of each message that its members receive, one member gets it, and another one when that fails.

A group is the members that have subscribed to one pattern under one name. A message for a group is stored in the group's
queue by the step that publishes it; the shared queues lease it to a member. The group ends with its last member.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from crewel.bayeux.channel import Channel, parse
from crewel.broker.service_registry import ServiceRegistry
from crewel.broker.session import Session
from crewel.broker.topic_view import GroupState
from crewel.qos.names import group_of, group_queue
from crewel.settings import Settings


class GroupsListener(Protocol):
    """Gets what happens to groups, which are named by their queues."""

    def waiting(self, name: str) -> int:
        """How many messages wait in a queue."""

    def first_here(self, queue: str) -> None:
        """The group gets its first member at this node."""

    def none_here(self, queue: str) -> None:
        """The group has lost the last one."""

    def joins(self, session: Session, queue: str) -> None:
        """A session that was no member has joined the group."""

    def left(self, queue: str) -> None:
        """A member has left the group."""


class ConsumerGroups:
    """The groups of one broker. They are known by the queue in which their messages wait."""

    def __init__(self, services: ServiceRegistry, listener: GroupsListener, kept: Iterable[str] = ()) -> None:
        """`kept` are the queues of the groups that do not end with their last member: a rule for topics names them."""
        self._listener = listener
        self.kept = dict.fromkeys(kept)
        self._members: dict[str, dict[Session, None]] = {}
        self.by_pattern: dict[str, tuple[str, ...]] = {}
        """The queues of the groups on each pattern. Each plain publish asks whether there are any, so it costs no call."""
        self.version = 0
        """How often `by_pattern` has changed."""
        self._of: dict[Session, dict[str, None]] = {}
        self.counted: dict[Session, dict[str, int]] = {}
        """The queues of the groups that count for a session: of those that it is in, and of those that it is about to join. The
        number is one for the first, and one for each request that the second come from. Each handshake asks whether there are
        any, so it costs no call."""
        self.elsewhere: dict[str, int] = {}
        """The queues of groups that have members at other nodes, as far as is known, and how often one of these has said it."""
        for queue in self.kept:
            self._appear(queue)
        services.session_removed.append(self._removed)

    def on(self, channel: Channel) -> tuple[str, ...]:
        """The queues of the groups that receive this channel."""
        known = self.by_pattern
        if known.keys().isdisjoint(channel.patterns):
            return ()
        return tuple(queue for pattern in channel.patterns for queue in known.get(pattern, ()))

    # Members

    def join(self, session: Session, pattern: str, group: str) -> None:
        """The session is a member from now on; twice is once."""
        queue = group_queue(pattern, group)
        members = self._members.get(queue)
        if members is None:
            members = self._members[queue] = {}
            if queue not in self.elsewhere and queue not in self.kept:
                self._appear(queue)
            self._listener.first_here(queue)
        if session in members:
            return
        members[session] = None
        self._of.setdefault(session, {})[queue] = None
        self._count(session, queue)
        self._listener.joins(session, queue)

    def leave(self, session: Session, pattern: str, group: str) -> None:
        """The session is a member no more of this group. What it has got it may still settle."""
        queue = group_queue(pattern, group)
        if queue in self._of.get(session, ()):
            self._leave(session, queue)
            self._listener.left(queue)

    @contextmanager
    def joining(self, session: Session, queues: Collection[str]) -> Iterator[None]:
        """Count these groups as if the session were in them, while the store is asked to let it join."""
        for queue in queues:
            self._count(session, queue)
        try:
            yield
        finally:
            for queue in queues:
                self._count_no_more(session, queue)

    def _count(self, session: Session, queue: str) -> None:
        counted = self.counted.setdefault(session, {})
        if queue not in counted:
            _add_to_accounts(session, 1)
        counted[queue] = counted.get(queue, 0) + 1

    def _count_no_more(self, session: Session, queue: str) -> None:
        counted = self.counted.get(session)
        if counted is None:
            return  # the session has ended
        counted[queue] -= 1
        if not counted[queue]:
            del counted[queue]
            _add_to_accounts(session, -1)
        if not counted:
            del self.counted[session]

    def _removed(self, session: Session, _timed_out: bool) -> None:
        for queue in self.queues_of(session):
            self._leave(session, queue)
            self._listener.left(queue)
        self.counted.pop(session, None)

    def set_aside(self, session: Session) -> None:
        """The session is taken out without having ended: the store will bring it back."""
        for queue in self.queues_of(session):
            self._leave(session, queue)
        self.counted.pop(session, None)

    def _leave(self, session: Session, queue: str) -> None:
        queues, members = self._of[session], self._members[queue]
        del queues[queue], members[session]
        self._count_no_more(session, queue)
        if not queues:
            del self._of[session]
        if members:
            return
        del self._members[queue]
        self._listener.none_here(queue)
        if queue not in self.elsewhere and queue not in self.kept:
            self._vanish(queue)

    def add_elsewhere(self, queue: str) -> None:
        """The group that has this queue has a member at another node."""
        said = self.elsewhere.get(queue, 0)
        self.elsewhere[queue] = said + 1
        if not said and queue not in self._members and queue not in self.kept:
            self._appear(queue)

    def remove_elsewhere(self, queue: str) -> None:
        """It has none there any more."""
        del self.elsewhere[queue]
        if queue not in self._members and queue not in self.kept:
            self._vanish(queue)

    def _appear(self, queue: str) -> None:
        self.version += 1
        pattern = _pattern_of(queue)
        self.by_pattern[pattern] = (*self.by_pattern.get(pattern, ()), queue)

    def _vanish(self, queue: str) -> None:
        self.version += 1
        pattern = _pattern_of(queue)
        rest = tuple(each for each in self.by_pattern[pattern] if each != queue)
        if rest:
            self.by_pattern[pattern] = rest
        else:
            del self.by_pattern[pattern]

    # Who is what

    def queues(self) -> list[str]:
        """The queues of all groups, with members here or elsewhere."""
        return list({**self._members, **dict.fromkeys(self.elsewhere), **self.kept})

    def members(self, queue: str) -> list[Session]:
        """The members of the group that has this queue."""
        return list(self._members.get(queue, ()))

    def with_members(self) -> list[str]:
        """The queues of the groups that have a member here."""
        return list(self._members)

    def of(self, session: Session) -> list[tuple[str, str]]:
        """The groups that the session is in: pattern and name."""
        return [found for queue in self.queues_of(session) if (found := group_of(queue)) is not None]

    def count(self, session: Session) -> int:
        """How many groups the session is in, or about to join."""
        return len(self.counted.get(session, ()))

    def new(self, session: Session, queues: Iterable[str]) -> int:
        """How many of these groups, each by its queue, do not count for the session yet."""
        return len({*queues}.difference(self.counted.get(session, ())))

    def queues_of(self, session: Session) -> list[str]:
        """The queues of these groups."""
        return list(self._of.get(session, ()))

    def states(self) -> list[GroupState]:
        """All groups with members here, and those that are kept, by pattern and name."""
        return sorted(
            GroupState(*of, self._listener.waiting(queue), [session.name for session in self.members(queue)])
            for queue in {**self._members, **self.kept}
            if (of := group_of(queue)) is not None
        )


def _add_to_accounts(session: Session, difference: int) -> None:
    for account in (session.account, session.subject_account):
        if account is not None:
            account.groups += difference


def _pattern_of(queue: str) -> str:
    of = group_of(queue)
    return "" if of is None else of[0]


def kept_groups(settings: Settings) -> list[str]:
    """The queues of the groups that keep their messages while they have no member."""
    rules = ((parse(pattern), rule) for pattern, rule in settings.topics.items())
    return [group_queue(channel.name, name) for channel, rule in rules if channel for name in rule.groups.keep]
