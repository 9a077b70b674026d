"""Queues that are not one session's: of subjects without a session, of what one of several sessions gets, of groups.

The store has them. Here is known that there are messages in them and which sessions may have them. Each is leased to a session
as soon as one is there that has room for it. A leased message lies in the inbox of one session, and knows its queue.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from operator import attrgetter
from time import time
from typing import Final

from crewel.broker.addressing.consumer_groups import ConsumerGroups
from crewel.broker.addressing.failures import Failures
from crewel.broker.addressing.lease_room import AHEAD, lease_room
from crewel.broker.addressing.queue_listeners import AddressingListener
from crewel.broker.addressing.session_names import Names
from crewel.broker.addressing.shared_queue import SharedQueue
from crewel.broker.mailboxes.ends import Ends
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session, State, stored_of, unstored_of
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry
from crewel.delivery.records import DEAD_SESSION, EndReason, LogId, PendingDeadLetter, PendingMessage, SessionName
from crewel.errors import StoreError, StoreFull, StoreUnavailable, StoreUncertain
from crewel.event_loop import in_turns
from crewel.qos.connect import Bounds
from crewel.qos.names import Name, group_of, is_exclusive, one_queue, subject_of, subject_queue
from crewel.storage import receivers, shared_queue_store
from crewel.storage.shared_queue_store import Discarded, Lease, Leased, Member, StoredQueue
from crewel.times import format_span

log = logging.getLogger(__name__)

FULL: Final = "resource.overflow.queue.entries"
_PAUSE_S: Final = 0.2  # before the store is asked again that was away
_LOOK_S: Final = 1.0  # between looks at a queue that sessions of other nodes may empty
_MOST_LOOKS: Final = 200  # in one sweep, at queues without a session here


@dataclass(eq=False)
class SharedQueues:
    """The shared queues of one broker."""

    _runtime: Runtime
    _mailboxes: Mailboxes
    _names: Names
    _groups: ConsumerGroups
    _listener: AddressingListener
    _known: dict[str, SharedQueue] = field(default_factory=dict, init=False)
    blocked: set[str] = field(default_factory=set, init=False)
    """Queues with messages for which no session that is there has room."""
    _expected: dict[DurableSession, set[str]] = field(default_factory=dict, init=False)
    """Queues to look at when these sessions have ended."""

    def __post_init__(self) -> None:
        self._access = self._runtime.access
        self._outbound = self._mailboxes.outbound
        self._settings = self._runtime.settings
        self._loop = self._runtime.loop
        self._metrics = self._runtime.metrics
        self._spawn = self._runtime.spawn
        self.failures = Failures()
        self._turns = count(1)
        self._metrics.count("queued", self._queued)

    async def _queued(self) -> int:
        return sum([queue.count async for queue in in_turns(self._known.values())])

    # What is in them

    def restore(self, found: Iterable[StoredQueue]) -> None:
        """Know what the store has, and lease what can be leased."""
        for queue in self._known.values():
            queue.count, queue.is_asked = 0, False
        for stored in found:
            queue = self._queue(stored.name)
            queue.count = stored.size
            queue.touched_at = self._loop.time() - max(0.0, time() - stored.touched / 1_000_000)
        is_serving = self._access.phase.is_reloading  # and more may have come since this was read
        for queue in list(self._known.values()):
            if is_serving:
                self._ask(queue)
            else:
                self.schedule_lease(queue.name)

    async def keep_groups(self) -> None:
        """Tell the store which groups keep their messages without members, before it is read. Raises StoreError."""
        access = self._access
        await access.writing.ask(
            shared_queue_store.keep(access.keys, access.token, [*self._groups.kept], access.facts_max)
        )

    async def load_again(self) -> None:
        """Something may be there of which this server knows nothing: look where that is so."""
        try:
            found = await shared_queue_store.queues(self._access.store)
        except StoreError as error:
            log.warning("the shared queues cannot be read at the moment: %s", error)
        else:
            for stored in found:
                if self.waiting(stored.name) != stored.size:
                    self.refresh(stored.name)

    def _queue(self, name: str) -> SharedQueue:
        queue = self._known.get(name)
        if queue is None:
            queue = self._known[name] = SharedQueue(name, self._loop.time())
        return queue

    def names(self) -> list[str]:
        """The queues in which something waits."""
        return [queue.name for queue in self._known.values() if queue.count]

    async def stored(self) -> list[str]:
        """The queues in which something waits, as the store has it. Raises StoreError."""
        return self.names()

    def waiting(self, name: str) -> int:
        """How many messages wait in the queue."""
        queue = self._known.get(name)
        return 0 if queue is None else queue.count

    def bounds(self, name: str) -> Bounds:
        """How much may wait in the queue."""
        ptp, bytes_max = self._settings.ptp, self._settings.delivery.queue_max_bytes
        return Bounds(ptp.subject_queue_max_entries if subject_of(name) else ptp.group_queue_max_entries, bytes_max)

    def filled(self, name: str, count: int = 1) -> None:
        """The store has put so many messages into the queue."""
        queue = self._queue(name)
        queue.count += count
        queue.touched_at = self._loop.time()
        self.schedule_lease(name)

    def filled_for_all(self, name: str) -> None:
        """The store has put one message into the queue, which a session of another node may get too."""
        self.filled(name)
        self._runtime.cluster.announce(name)

    def returned(self, name: str) -> None:
        """The store may have put something back into the queue: it is for whatever session has room, of any node."""
        self.refresh(name)
        self._runtime.cluster.announce(name)

    def announced(self, names: Iterable[str]) -> None:
        """Another node says that there is something in these queues."""
        for name in names:
            if self.members(name):
                self.refresh(name)

    def filled_groups(self, names: Iterable[str], log_id: LogId) -> None:
        """The store has put this message into the queue of each of these groups. Where too many wait already it becomes a dead
        letter."""
        most = self._settings.ptp.group_queue_max_entries
        for name in names:
            self.filled(name)
            self._bound(name, log_id, most)

    def _bound(self, name: str, log_id: LogId, most: int) -> None:
        if self.waiting(name) > most:
            self.dead_letter(name, [log_id], FULL, f"more than {most} messages wait for the group")

    def expired(self, name: str, removed: int, left: int) -> None:
        """The store has taken so many messages out of the queue because their life had ended, and so many are left."""
        self._queue(name).count = left
        self._metrics.ended[EndReason.EXPIRED] += removed

    def swept(self, name: str, removed: int, left: int) -> None:
        """The store has taken so many messages out of the queue because their life had ended. The step has no place in the
        order of the log: another node may have put something into it since."""
        self.expired(name, removed, left)
        self._ask(self._queue(name))

    async def peek(self, name: str, count: int, start: int = 0) -> list[Entry]:
        """The next messages of the queue behind the first `start`, at most so many. Raises StoreError."""
        return await self._read(name, count, start) if self._may_have(name) else []

    async def channels(self, name: str) -> AsyncIterator[str]:
        """The channels of all messages in the queue; one may come more than once. Raises StoreError."""
        if self._may_have(name):
            async for channel in shared_queue_store.channels(self._access.store, name):
                yield channel

    def _may_have(self, name: str) -> bool:
        """Whether something may wait in the queue."""
        return self.waiting(name) > 0

    async def _read(self, name: str, count: int, start: int) -> list[Entry]:
        found = await shared_queue_store.peek(self._access.store, name, count, start)
        return [Entry.read_back(logged) for logged in found]

    async def drop(self, name: str) -> int:
        """Drop the messages in the queue; returns how many. Raises StoreError."""
        dropped = 0
        while self.waiting(name) and (count := await self.discard(name, None, EndReason.DROPPED)):
            dropped += count
        return dropped

    async def discard(self, name: str, ids: list[LogId] | None, reason: EndReason, *, retries: bool = False) -> int:
        """End these messages of the queue, or all, at most so many as one step takes; returns how many. `retries`: the store is
        asked until it has answered, and then it may have been done before. Raises StoreError."""
        access = self._access
        step = shared_queue_store.discard(access.keys, access.token, name, ids, access.facts_max, reason=reason)

        def answered(count: int | StoreError) -> int | StoreError:
            if not isinstance(count, StoreError):
                self._discarded(name, reason, count)
            return count

        discarded: int = await access.writing.ask(step, then=answered, retries=retries)
        return discarded

    def _discarded(self, name: str, reason: EndReason, count: int) -> None:
        queue = self._queue(name)
        queue.count = max(0, queue.count - count)
        self._metrics.ended[reason] += count

    # Who may have them

    def members(self, name: str) -> list[Session]:
        """The sessions that may have messages of the queue."""
        if group_of(name) is not None:
            return self._groups.members(name)
        return [each for each in self._names.of_subject(subject_of(name)) if each.takes_ptp]

    def next_of(self, sessions: Iterable[Session]) -> Session:
        """The one of these, which have equally much to do, that has waited longest for a message: it gets the next one."""
        session = min(sessions, key=attrgetter("turn"))
        session.take_turn(next(self._turns))
        return session

    def is_able(self, session: Session) -> bool:
        """Whether the session's client is there, and gets messages."""
        view = session.mailbox.view()
        return session.is_live and not (view.is_absent or view.is_blocked)

    def may_take(self, session: Session) -> bool:
        """Whether the session gets messages, and its client is there or is expected back."""
        return self._counts(session) and not session.mailbox.view().is_blocked

    def _counts(self, session: Session | None) -> bool:
        """Whether a message that all others have failed waits for this member. It does if its client is there, or if this
        server restored the session and the client has had no time to come. Else one member that is back first would decide for
        all."""
        return session is not None and session.is_live and not self.is_gone(session)

    def is_gone(self, session: Session) -> bool:
        """Whether its client is gone; after a restart, whether it has not come in time."""
        return session.mailbox.view().is_absent and self._mailboxes.times.is_gone(session, self._loop.time())

    def _room(self, session: Session, name: str) -> int:
        return lease_room(session, name, session.mailbox.view().depth) if self.is_able(session) else 0

    def _rooms(self, name: str, sessions: Iterable[Session]) -> list[Member]:
        """What each may get. Of those with the same room the store takes the first: that is the one that has waited longest
        for a message."""
        in_turn = stored_of(sorted(sessions, key=attrgetter("turn")))
        return [Member(each.name, self._room(each.connected, name)) for each in in_turn]

    # Leases

    def on_connect(self, session: Session) -> None:
        """The session, which has a name, is there, or there again, or takes messages again: let it have the messages that wait
        for it."""
        self._seek(session)

    def _seek(self, session: Session) -> None:
        if self._known:
            for name in self.names_for(session):
                self.schedule_lease(name)

    def joined(self, name: str) -> None:
        """A session has joined the group that has this queue."""
        queue = self._queue(name)
        if queue.count:
            self.schedule_lease(name)
        elif queue.is_asked:
            queue.lease_again = True
        else:  # what waited when the last member ended is still there if the store learns of this one first
            self._look(queue)

    def names_for(self, session: Session) -> tuple[str, ...]:
        """The queues that have, or may have, messages for this session, which has a name."""
        subject = session.name.split("/")[1]
        return (subject_queue(subject), one_queue(subject), *self._groups.queues_of(session))

    def on_capacity(self, session: Session) -> None:
        """The session may have room again."""
        if not self.blocked:
            return
        for name in self.names_for(session):
            if name in self.blocked:
                self.schedule_lease(name)

    def schedule_lease(self, name: str) -> None:
        """Let the store lease the messages in the queue to those that have room."""
        queue = self._known.get(name)
        if queue is None or not queue.count or not self._access.serves_sessions:
            return  # while sessions are read again, `restore` follows, which looks at all queues
        if queue.is_asked:
            queue.lease_again = True
            return
        queue.lease_again = False
        sessions = self.members(name)
        if not sessions and group_of(name) is not None:
            if name in self._groups.kept:
                pass  # it waits for the next member, of whichever node
            elif name in self._groups.elsewhere:
                queue.count = 0  # it is for sessions of other nodes
            else:
                self.end_queue(name)
            return
        members = self._rooms(name, sessions)
        if any(member.room for member in members):
            self._lease(queue, members)
        elif not members and _receivers(sessions):
            queue.is_asked = True
            self._spawn(self._hand_over(queue))
        elif members:
            self.blocked.add(name)

    def _lease(self, queue: SharedQueue, members: list[Member], *, unordered: bool = False, after: str = "") -> None:
        access = self._access
        queue.is_asked = True
        queue.lease_again = queue.lease_again and bool(after)  # there may be news in front of that place
        sessions = access.node.sessions
        asked = {
            member.name: durable
            for member in members
            if (durable := sessions.get(member.name)) is not None and self._counts(durable.connected)
        }
        rooms = [member for member in members if member.name in asked]
        now = self._runtime.clock.microseconds()
        step = shared_queue_store.lease(access.keys, access.token, queue.name, rooms, access.facts_max, now, after)

        def answered(answer: Lease | StoreError) -> None:
            if isinstance(answer, StoreUncertain):
                again = shared_queue_store.leased_before(step)
                found = partial(self._leased, queue, asked, is_repeat=True)
                access.writing.submit(again, found, retries=True, in_doubt=True)
            else:
                self._leased(queue, asked, answer)

        access.writing.submit(step, answered, unordered=unordered)

    def _leased(
        self,
        queue: SharedQueue,
        asked: Mapping[SessionName, DurableSession],
        answer: Lease | StoreError,
        *,
        is_repeat: bool = False,
    ) -> None:
        """`is_repeat`: the store was asked before and did not answer. What it says is what was then."""
        if isinstance(answer, StoreError):
            queue.is_asked = False
            if isinstance(answer, StoreUnavailable | StoreFull):
                self._loop.call_later(_PAUSE_S, self.refresh, queue.name)
            return  # else the sessions are another server's by now, or all is read again
        self.expired(queue.name, answer.expired, answer.left)
        self.blocked.discard(queue.name)
        for leased in answer.leased:
            if leased.id <= self._access.node.cursor:
                self._arrive(queue.name, leased, asked)
            else:
                self._access.in_place(leased.id, partial(self._arrive, queue.name, leased, asked))
        newest = max((leased.id for leased in answer.leased), default=LogId(0))
        self._access.in_place(newest, partial(self._after_lease, queue, asked, answer, is_repeat=is_repeat))

    def _after_lease(
        self, queue: SharedQueue, asked: Mapping[SessionName, DurableSession], answer: Lease, *, is_repeat: bool
    ) -> None:
        """All that was leased has come, and taken its room: ask for another lease, where there is reason to."""
        queue.is_asked = False
        may_ask = self._access.serves_sessions
        members = self._rooms(queue.name, self.members(queue.name)) if answer.after and may_ask else []
        if is_repeat:
            self._look(queue)
        elif any(member.room for member in members):
            self._lease(queue, members, after=answer.after)
        elif answer.left and (answer.leased or queue.lease_again or not asked):
            self.schedule_lease(queue.name)
        elif answer.left:
            self.blocked.add(queue.name)
        elif queue.lease_again:
            self._found_empty(queue)
        queue.lease_again = queue.is_asked and queue.lease_again

    def expect(self, durable: DurableSession, name: str) -> None:
        """A message of this queue has gone to a session that is ending or has ended: there it is requeued without a notice."""
        leaving, node = self._access.leaving, self._access.node
        if durable.name in leaving or node.sessions.get(durable.name) is durable:
            self._expected.setdefault(durable, set()).add(name)
        self.refresh(name)

    def take_expected(self, durable: DurableSession) -> set[str]:
        """The queues from which messages have gone to this session, which has ended, without a notice; asked for once."""
        return self._expected.pop(durable, set())

    def _found_empty(self, queue: SharedQueue) -> None:
        """Another lease was wanted before the store answered that nothing is left."""

    def _arrive(self, name: str, leased: Leased, asked: Mapping[SessionName, DurableSession]) -> None:
        if leased.receiver not in asked:
            return  # another session of its name has nothing of it
        durable = asked[leased.receiver]
        session: Session | None = durable.connected
        if session is None:
            self.expect(durable, name)
            return
        session.take_turn(next(self._turns))
        place = leased.id
        pending = PendingMessage(leased.attempts, leased.size, leased.channel, leased.priority, leased.expires, name)
        self.keep(session, durable, place, pending)
        if not leased.failed:
            return
        failure = self.failures.of(place)
        counting = {each.name for each in stored_of(self.members(name)) if self._counts(each.connected)}
        all_failed = session.name in leased.failed and counting <= set(leased.failed)
        if all_failed and failure.is_final_for(session.name):
            Ends(session.mailbox).dead_letter_stored(place, failure.code, failure.reason, failure.given)
        else:
            self.failures.note(place, failure._replace(by=leased.failed))

    def keep(self, session: Session, durable: DurableSession, place: LogId, waiting: PendingMessage) -> None:
        """A session that is connected has this message now, or still. Of one that it was to give back, its dispatcher may
        remember some of the attempts."""
        if waiting.attempts:
            waiting = waiting._replace(attempts=max(waiting.attempts - session.mailbox.view().attempts(place), 0))
        self._outbound.loader.on_inbox_message(durable, place, waiting)

    async def _hand_over(self, queue: SharedQueue) -> None:
        """Send the waiting messages to sessions that acknowledge nothing; they have ended by that."""
        try:
            while queue.count and _receivers(self.members(queue.name)):
                entries = await self.peek(queue.name, AHEAD)
                candidates = _receivers(self.members(queue.name))  # others than before, or none any more
                if not entries:
                    queue.count = 0
                if not (entries and candidates):
                    break
                for entry in entries:
                    receivers = [self.next_of(candidates)] if is_exclusive(queue.name) else candidates
                    self._outbound.fan_out(entry, receivers, None)
                places = [entry.position for entry in entries]
                # Until it is done: they have been sent, and must not be sent again.
                if not await self.discard(queue.name, places, EndReason.SETTLED, retries=True):
                    queue.count, queue.lease_again = 0, True
        except StoreError as error:
            log.warning("what waits for %s cannot be sent at the moment: %s", queue.name, error)
            self._loop.call_later(_PAUSE_S, self.refresh, queue.name)
        finally:
            queue.is_asked = False
        if queue.lease_again:
            self._look(queue)

    def refresh(self, name: str) -> None:
        """The store may have put something into the queue: let it say how much there is, and lease what can be leased."""
        queue = self._queue(name)
        queue.touched_at = self._loop.time()
        self._ask(queue)

    def _ask(self, queue: SharedQueue) -> None:
        if self._asks(queue):
            self._lease(queue, self._rooms(queue.name, self.members(queue.name)))

    def _look(self, queue: SharedQueue, *, unordered: bool = False) -> None:
        """Ask the store how much is in the queue, and for a lease only if that is anything. A subject may have very many
        sessions, and mostly nothing waits for them. `unordered`: what is read from the log meanwhile does not wait."""
        if self._asks(queue):
            queue.looked_at = self._loop.time()
            self._lease(queue, [], unordered=unordered)

    def _asks(self, queue: SharedQueue) -> bool:
        """Whether the store can be asked now. If it is being asked already, it will be asked once more."""
        if not self._access.serves_sessions:
            return False
        if queue.is_asked:
            queue.count += 1  # more or less: the next answer tells
            queue.lease_again = True
        return not queue.is_asked

    # What no session will have

    def end_queue(self, name: str) -> None:
        """The last member of the group is gone, and so are the messages that wait for it: by the same step of the store, unless
        it came later."""
        access = self._access
        step = shared_queue_store.discard(
            access.keys, access.token, name, None, access.facts_max, reason=EndReason.LAPSED
        )

        def answered(count: int | StoreError) -> None:
            if not isinstance(count, StoreError):
                self._discarded(name, EndReason.LAPSED, self._lapsed(name, count))
                self._queue(name).count = 0
                if count == shared_queue_store.MOST_DISCARDED:
                    self.end_queue(name)

        access.writing.submit(step, answered, retries=True)

    def _lapsed(self, name: str, count: int) -> int:
        """How many messages the end of the group has ended, of which the store has found so many just now."""
        return max(count, self.waiting(name))

    def dead_letter(self, name: str, ids: list[LogId] | None, code: str, reason: str) -> None:
        """Make dead letters of these messages of the queue, or of all."""
        access, delivery = self._access, self._settings.delivery
        most = access.facts_max, delivery.dead_letters_max, delivery.dead_letters_max_bytes
        step = shared_queue_store.dead_letter(access.keys, access.token, name, ids, *most, code=code, reason=reason)

        def answered(discarded: Discarded | StoreError) -> None:
            if isinstance(discarded, StoreError):
                return
            self._discarded(name, EndReason.DEAD, discarded.count)
            letter = PendingDeadLetter(SessionName(name), LogId(0), code, reason)
            self._listener.letters_stored([letter] * discarded.count, discarded.letters)
            if ids is None and discarded.count == shared_queue_store.MOST_DISCARDED:
                self.dead_letter(name, None, code, reason)

        access.writing.submit(step, answered, retries=True)

    def sweep(self) -> None:
        """Make dead letters of what has waited for a subject for so long that no session will come, and forget queues without
        messages."""
        for name in list(self.blocked):  # room may have come about without a notice
            self.schedule_lease(name)
        idle = self._settings.ptp.subject_idle_ms / 1000
        now = self._loop.time()
        for queue in list(self._known.values()):
            if queue.is_asked:
                continue
            if not queue.count:
                del self._known[queue.name]
                self.blocked.discard(queue.name)
            elif queue.touched_at + idle <= now and subject_of(queue.name) and not self.members(queue.name):
                queue.touched_at = now  # asked for once
                reason = f"no session of {subject_of(queue.name)} has begun for {format_span(idle)}"
                self._spawn(self._abandon(queue.name, reason))
            else:
                self._sweep_filled(queue, now)

    def _sweep_filled(self, queue: SharedQueue, now: float) -> None:
        """Something waits in the queue, and sessions may come for it."""

    async def _abandon(self, name: str, reason: str) -> None:
        """Make dead letters of the queue of a subject."""
        self.dead_letter(name, None, DEAD_SESSION, reason)


class CommonQueues(SharedQueues):
    """The shared queues of one broker where other nodes fill and empty them too: the store knows what this one has not learnt
    yet."""

    _looks_left = _MOST_LOOKS

    async def stored(self) -> list[str]:
        """The queues in which something waits, as the store has it: also those that no session here may have. Raises
        StoreError."""
        return [stored.name for stored in await shared_queue_store.queues(self._access.store)]

    def _may_have(self, name: str) -> bool:
        """The store knows."""
        return self._access.has_store

    def _counts(self, session: Session | None) -> bool:
        """Each does while other nodes live: it is not known of their members either whether they are there."""
        return self._runtime.cluster.has_receivers or super()._counts(session)

    def _bound(self, name: str, log_id: LogId, most: int) -> None:
        if self.waiting(name) * 2 > most:  # this server learns later of what others have put into it
            self._spawn(self._count_and_bound(name, log_id, most))

    async def _count_and_bound(self, name: str, log_id: LogId, most: int) -> None:
        with suppress(StoreError):
            self._queue(name).count = await shared_queue_store.size(self._access.store, name)
        super()._bound(name, log_id, most)

    def _seek(self, session: Session) -> None:
        for name in self.names_for(session):
            self._look(self._queue(name))  # another node may have filled it

    def _found_empty(self, queue: SharedQueue) -> None:
        """Look again: the step may have come before what another node has put into the queue."""
        self._look(queue)

    def _lapsed(self, name: str, count: int) -> int:
        """Nothing if the store has found nothing: other nodes have members, and it is theirs."""
        return count and super()._lapsed(name, count)

    def sweep(self) -> None:
        """Sweep as a single node does; of the queues without a session here, look at so many at most."""
        self._looks_left = _MOST_LOOKS
        super().sweep()

    def _sweep_filled(self, queue: SharedQueue, now: float) -> None:
        """Announce and look again: the announcement before may have been lost. Queues without a session here take turns, for
        there may be very many, and a session that comes looks at its own."""
        if queue.looked_at + _LOOK_S > now:
            return
        is_idle = not self.members(queue.name)
        if is_idle:
            if not self._looks_left:
                return
            self._looks_left -= 1
            self._known[queue.name] = self._known.pop(queue.name)  # its next turn comes after those of all others
        self._runtime.cluster.announce(queue.name)
        self._look(queue, unordered=is_idle)

    async def _abandon(self, name: str, reason: str) -> None:
        """Make dead letters of the queue of a subject, unless a session of it is at another node."""
        with suppress(StoreError):
            found = await receivers.find(self._access.store, Name(subject_of(name)), ())
            if not any(each.takes_ptp for each in found):
                await super()._abandon(name, reason)


def _receivers(sessions: Iterable[Session]) -> list[Session]:
    """The sessions that get messages although they acknowledge none: their clients are there."""
    return [each for each in unstored_of(sessions) if each.is_live and each.state is State.CONNECTED]
