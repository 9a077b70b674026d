"""Queues that are not one session's: of subjects of which nobody is there, of what one of several sessions gets, of groups.

The store has them. Here is known that there are messages in them and who may have them; and each is leased to somebody as
soon as somebody is there who has room for it. A leased message lies in the inbox of one session, and knows its queue.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from math import inf
from time import time
from typing import TYPE_CHECKING, Final

from crewel.broker.ptp.naming import group_of, is_exclusive, one_queue, subject_of, subject_queue
from crewel.broker.sessions import Session, State
from crewel.delivery.durable import Durable
from crewel.delivery.entry import Entry
from crewel.delivery.records import EndReason, LogId, Waiting
from crewel.errors import StoreError, StoreUnavailable
from crewel.errors.dotted import is_below
from crewel.storage import shared_queues
from crewel.storage.shared_queues import Lease, Leased, Member

if TYPE_CHECKING:
    from crewel.broker.broker import Broker
    from crewel.broker.durability.durability import Durability

__all__ = ["SharedQueue", "SharedQueues"]

log = logging.getLogger(__name__)

_AHEAD: Final = 100
"""Messages of a group that one member has at a time, unless its login said how many it takes at once."""
_AT_ONCE: Final = 500
_FAILURES: Final = 10_000  # messages of which is remembered who has failed them
_LETTER: Final = "user.update.deadMessage"
_NOBODY: Final = "user.update.error"


class SharedQueue:
    """What is known of one of them."""

    __slots__ = ("count", "is_asked", "is_rung", "name", "touched_at")

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.count = 0
        """How many messages wait in it."""
        self.touched_at = now
        """Loop time (s) at which the last one came."""
        self.is_asked = False
        """Whether the store is just being asked to lease some."""
        self.is_rung = False
        """Whether there was reason meanwhile to ask it again."""


class SharedQueues:
    """The shared queues of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: dict[str, SharedQueue] = {}
        self._failed: dict[LogId, tuple[tuple[str, ...], str, str]] = {}
        """Who has failed a message that was leased, and code and reason of the last failure."""
        self.starving: set[str] = set()
        """Queues with messages for which nobody who is there has room."""
        broker.registry.session_added.append(self.here)

    # What is in them

    async def load(self) -> None:
        """Find out what the store has, and lease what can be leased. Raises StoreError."""
        found = await shared_queues.queues(self._durability().store)
        for queue in self._known.values():
            queue.count, queue.is_asked = 0, False
        for stored in found:
            queue = self._queue(stored.name)
            queue.count = stored.size
            queue.touched_at = self._broker.loop.time() - max(0.0, time() - stored.touched / 1_000_000)
        for name in list(self._known):
            self.ring(name)

    def _durability(self) -> Durability:
        durability = self._broker.durability
        if durability is None:
            raise StoreUnavailable("this server has no store")
        return durability

    def _queue(self, name: str) -> SharedQueue:
        queue = self._known.get(name)
        if queue is None:
            queue = self._known[name] = SharedQueue(name, self._broker.loop.time())
        return queue

    def names(self) -> list[str]:
        """The queues in which something waits."""
        return [queue.name for queue in self._known.values() if queue.count]

    def waiting(self, name: str) -> int:
        """How many messages wait in the queue."""
        queue = self._known.get(name)
        return 0 if queue is None else queue.count

    def filled(self, name: str, count: int = 1) -> None:
        """The store has put so many messages into the queue."""
        queue = self._queue(name)
        queue.count += count
        queue.touched_at = self._broker.loop.time()
        self.ring(name)

    def left(self, name: str, count: int) -> None:
        """The store has taken something out of the queue, and so many messages are left."""
        self._queue(name).count = count

    async def peek(self, name: str, count: int) -> list[Entry]:
        """The next messages of the queue, at most so many. Raises StoreError."""
        if not self.waiting(name):
            return []
        found = await shared_queues.peek(self._durability().store, name, count)
        return [Entry.read_back(logged) for logged in found]

    async def drop(self, name: str) -> int:
        """Drop what waits in the queue; returns how many messages. Raises StoreError."""
        dropped = 0
        while self.waiting(name) and (count := await self.discard(name, None, EndReason.DROPPED)):
            dropped += count
        return dropped

    async def discard(self, name: str, ids: list[LogId] | None, reason: EndReason) -> int:
        """End these messages of the queue, or all, at most so many as one step takes; returns how many. Raises StoreError."""
        durability = self._durability()
        step = shared_queues.discard(
            durability.store.keys, durability.token, name, ids, durability.facts_max, reason=reason
        )
        count: int = await durability.writing.ask(step)
        self._discarded(name, reason, count)
        return count

    def _discarded(self, name: str, reason: EndReason, count: int) -> None:
        queue = self._queue(name)
        queue.count = max(0, queue.count - count)
        self._broker.metrics.ended[reason] += count

    # Who may have them

    def members(self, name: str) -> list[Session]:
        """The sessions that may have messages of the queue."""
        if group_of(name) is not None:
            return self._broker.groups.members(name)
        return [each for each in self._broker.logins.names.of_subject(subject_of(name)) if each.takes_ptp]

    def _is_able(self, session: Session) -> bool:
        """Whether the session's client is there, and gets messages."""
        dispatcher = session.dispatcher
        is_sink = dispatcher is not None and dispatcher.sink is not None
        return session.is_live and not (session.is_absent or session.is_paused or is_sink)

    def _room(self, session: Session, name: str) -> int:
        bounds, durable = session.bounds, session.durable
        if bounds is None or durable is None or not self._is_able(session):
            return 0
        room = bounds.max_entries - self._broker.dispatching.unsettled.count(session)
        if is_exclusive(name):
            leased = sum(is_exclusive(waiting.source) for waiting in durable.inbox.values())
            room = min(room, (session.burst.max_entries or _AHEAD) - leased)
        return max(0, min(room, _AT_ONCE))

    def _rooms(self, name: str, sessions: Iterable[Session]) -> list[Member]:
        return [Member(each.durable.name, self._room(each, name)) for each in sessions if each.durable is not None]

    # Leases

    def here(self, session: Session) -> None:
        """The session is there, or there again, or takes messages again: let it have what waits for it."""
        if not self._known or not session.name:
            return
        subject = session.name.split("/")[1]
        for name in (subject_queue(subject), one_queue(subject), *self._broker.groups.queues_of(session)):
            self.ring(name)

    def freed(self) -> None:
        """Somebody has room again."""
        for name in list(self.starving):
            self.ring(name)

    def ring(self, name: str) -> None:
        """Let the store lease what waits in the queue to those who have room."""
        queue, durability = self._known.get(name), self._broker.durability
        if queue is None or not queue.count or durability is None or durability.is_superseded:
            return
        if queue.is_asked:
            queue.is_rung = True
            return
        queue.is_rung = False
        sessions = self.members(name)
        if not sessions and group_of(name) is not None:
            self._lapse(name)
            return
        members = self._rooms(name, sessions)
        if any(member.room for member in members):
            self._lease(durability, queue, members)
        elif not members and any(map(_can_hear, sessions)):
            queue.is_asked = True
            self._broker.spawn(self._hand_over(queue))
        elif members:
            self.starving.add(name)

    def _lease(self, durability: Durability, queue: SharedQueue, members: list[Member]) -> None:
        queue.is_asked = True
        step = shared_queues.lease(durability.store.keys, durability.token, queue.name, members, durability.facts_max)
        durability.writing.submit(step, partial(self._leased, queue), insists=True)

    def _leased(self, queue: SharedQueue, answer: Lease | StoreError) -> None:
        queue.is_asked = False
        if isinstance(answer, StoreError):
            return  # the sessions are another server's by now, or all is read again
        queue.count = answer.left
        self.starving.discard(queue.name)
        for leased in answer.leased:
            self._arrive(queue.name, leased)
        if answer.left and (answer.leased or queue.is_rung):
            self.ring(queue.name)
        elif answer.left:
            self.starving.add(queue.name)
        queue.is_rung = queue.is_asked and queue.is_rung

    def _arrive(self, name: str, leased: Leased) -> None:
        session = self._broker.logins.names.find(leased.receiver)
        if session is None or session.durable is None:
            return  # it is ending, and what its inbox has goes back then
        dispatching, place = self._broker.dispatching, leased.id
        waiting = Waiting(leased.attempts, leased.size, leased.channel, leased.priority, leased.expires, name)
        dispatching.arrived(session, place, waiting)
        if not leased.failed:
            return
        _, code, reason = self._failed.pop(place, ((), _NOBODY, "everybody who was there has failed it"))
        if {each.durable.name for each in self.members(name) if each.durable is not None} <= set(leased.failed):
            dispatching.unsettled.bury_stored(session, place, code, reason)
        else:
            self._remember(place, leased.failed, code, reason)

    def _remember(self, place: LogId, failed: tuple[str, ...], code: str, reason: str) -> None:
        while len(self._failed) >= _FAILURES:
            del self._failed[next(iter(self._failed))]
        self._failed[place] = (failed, code, reason)

    async def _hand_over(self, queue: SharedQueue) -> None:
        """Send what waits to sessions that acknowledge nothing; it has ended by that."""
        try:
            while (hearing := [each for each in self.members(queue.name) if _can_hear(each)]) and queue.count:
                entries = await self.peek(queue.name, _AHEAD)
                for entry in entries:
                    self._broker.outbound.fan_out(entry, hearing[:1] if is_exclusive(queue.name) else hearing, None)
                count = await self.discard(queue.name, [entry.position for entry in entries], EndReason.SETTLED)
                if not count:
                    queue.count = 0
        finally:
            queue.is_asked = False

    # Back into them

    def passes_on(self, session: Session, entry: Entry, code: str, reason: str, attempts: int = 0) -> bool:
        """The session has failed a message, which its dispatcher has counted so many attempts of and forgotten. Whether
        another one gets it now: if it may go to any of several, and one is there that has not failed it before. What is to be
        a dead letter becomes one at once."""
        durable, place = session.durable, entry.position
        waiting = durable.inbox.get(place) if durable is not None and place else None
        if durable is None or waiting is None or not is_exclusive(waiting.source) or is_below(code, _LETTER):
            return False
        failed = (*self._failed.get(place, ((),))[0], durable.name)
        if not self._has_others(waiting.source, failed):
            return False
        self._remember(place, failed, code, reason)
        durable.attempted(place, attempts)
        self._give_back(session, [place], failed=True)
        return True

    def relieve(self, session: Session) -> None:
        """The session gets nothing for the time being: let others have what it has not settled, where there are others."""
        durable = session.durable
        if durable is None or not durable.inbox:
            return
        places = [
            place
            for place, waiting in durable.inbox.items()
            if is_exclusive(waiting.source)
            and self._has_others(waiting.source, (*self._failed.get(place, ((),))[0], durable.name))
        ]
        if places:
            self._give_back(session, places, failed=False)

    def _has_others(self, name: str, but: Iterable[str]) -> bool:
        return any(
            each.durable is not None and each.durable.name not in but and self._is_able(each)
            for each in self.members(name)
        )

    def _give_back(self, session: Session, places: list[LogId], *, failed: bool) -> None:
        durable, durability, unsettled = session.durable, self._durability(), self._broker.dispatching.unsettled
        assert durable is not None
        sources = {place: durable.inbox[place].source for place in places}
        attempts = {}
        for place in places:
            attempts[place] = unsettled.attempts(session, place)
            unsettled.forget_stored(session, place)
            durable.give_back(place)
        durability.node.touch(durable)

        def answered(count: int | StoreError) -> None:
            if not isinstance(count, StoreError):
                self._broker.metrics.ended[EndReason.RETURNED] += len(sources)
                for name in dict.fromkeys(sources.values()):
                    self._look(name)

        step = shared_queues.put_back(
            durability.store.keys, durability.token, durable.name, attempts, durability.facts_max, failed=failed
        )
        durability.writing.submit(step, answered, insists=True)

    def _look(self, name: str) -> None:
        """The store may have put something into the queue: let it say how much there is, and lease what can be leased."""
        queue = self._queue(name)
        queue.touched_at = self._broker.loop.time()
        if queue.is_asked:
            queue.count += 1  # more or less: the next answer tells
            queue.is_rung = True
        else:
            self._lease(self._durability(), queue, self._rooms(name, self.members(name)))

    def returning(self, durable: Durable) -> dict[LogId, Waiting]:
        """What of an ending session goes back into shared queues. A group whose last member this is gets nothing back: nobody
        would take it from there."""
        return {
            place: waiting
            for place, waiting in durable.inbox.items()
            if waiting.source and (group_of(waiting.source) is None or self.members(waiting.source))
        }

    def ended(self, returning: Mapping[LogId, Waiting], returned: Iterable[LogId]) -> None:
        """A session has ended, and the store has put these messages of it back into their queues, unless others still have
        them. Of those that are not among `returning`, this server had not known."""
        if any(place not in returning for place in returned):
            self._broker.spawn(self._load_again())
        for name in dict.fromkeys(returning[place].source for place in returned if place in returning):
            self._look(name)

    async def _load_again(self) -> None:
        try:
            await self.load()
        except StoreError as error:
            log.warning("the shared queues cannot be read at the moment: %s", error)

    # What nobody will have

    def _lapse(self, name: str) -> None:
        """Nobody will come for what waits in the queue."""
        durability = self._durability()
        step = shared_queues.discard(
            durability.store.keys, durability.token, name, None, durability.facts_max, reason=EndReason.LAPSED
        )

        def answered(count: int | StoreError) -> None:
            if not isinstance(count, StoreError):
                # With the last member of a group the store has let lapse what waited.
                self._discarded(name, EndReason.LAPSED, max(count, self.waiting(name) if group_of(name) else 0))
                if count == shared_queues.MOST_DISCARDED:
                    self._lapse(name)

        durability.writing.submit(step, answered, insists=True)

    def sweep(self) -> None:
        """Let lapse what has waited for a subject for so long that nobody will come, and forget queues without messages."""
        idle = self._broker.settings.ptp.subject_idle_ms / 1000
        now = self._broker.loop.time()
        for queue in list(self._known.values()):
            if queue.is_asked:
                continue
            if not queue.count:
                del self._known[queue.name]
                self.starving.discard(queue.name)
            elif queue.touched_at + idle <= now and subject_of(queue.name) and not self.members(queue.name):
                queue.touched_at = inf  # asked for once
                self._lapse(queue.name)


def _can_hear(session: Session) -> bool:
    """Whether the session gets messages although it acknowledges none: its client is there."""
    return session.is_live and session.durable is None and session.state is State.CONNECTED
