"""What makes the broker's promise hold: persistent messages are in the store before they are answered, and the messages
that wait for a reliable session survive this process.

Owns the sessions that the store has, and the commits. The engine decides which messages wait for which receiver; this module
asks the store, reads its clock, and moves bodies. What all parts of the broker share of the store is `StoreAccess`, which this
opens and renews."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from math import inf, nan
from time import time
from typing import Any, Final, NamedTuple

from crewel.broker.addressing.addressing import Addressing
from crewel.broker.durability.acknowledgements import Acknowledgements
from crewel.broker.durability.inheritance import Inheritance, newest_outside_log
from crewel.broker.durability.lease import StoreLease
from crewel.broker.durability.log_appender import LogAppender
from crewel.broker.durability.log_listeners import DurabilityListener
from crewel.broker.durability.log_tail import LogTail
from crewel.broker.durability.log_trimmer import LogTrimmer
from crewel.broker.durability.loss_detector import LossDetector
from crewel.broker.durability.slow_store import SlowStore
from crewel.broker.handler_steps import resolve
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.payers import payers_with_address
from crewel.broker.runtime import Runtime
from crewel.broker.session import Event, Session
from crewel.broker.subscriptions.subscriptions import Subscriptions
from crewel.broker.topics.server_topics import ServerTopics
from crewel.broker.topics.topic_changes import TopicChanges
from crewel.broker.writing.store_phase import StorePhase
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry
from crewel.delivery.log_consumer import MAX_CHANGES, LogConsumer
from crewel.delivery.records import (
    BATCH_BLOCK,
    Commit,
    Disposition,
    EndReason,
    LogId,
    PendingDeadLetter,
    PendingMessage,
    SessionName,
    SessionRecord,
)
from crewel.errors import Behind, Fenced, StoreError, StoreTaken, StoreUnavailable
from crewel.event_loop import in_turns, woken
from crewel.storage import log as stored_log
from crewel.storage import node_leases
from crewel.storage import session_store as stored_sessions
from crewel.storage.session_store import LoggedIn
from crewel.storage.shared_queue_store import queues as stored_queues
from crewel.storage.store import Store

log = logging.getLogger(__name__)

_ADOPTED_AT_ONCE: Final = 1000
_MOST_SHARED: Final = 200_000
"""Ids, and what is known of messages, that are remembered to be shared by the sessions that are adopted."""
_CLOSE_TIMEOUT: Final = 3.0  # seconds
_ANSWERS_S: Final = 10.0  # that the store has for what is under way when the server ends
_RELOAD_PAUSE: Final = 0.5
_NOTED_AT_ONCE: Final = 500  # sessions whose clients have gone or come


class _Former(NamedTuple):
    """A session before the store was read again."""

    patterns: set[str]
    """What it was subscribed to."""
    groups: list[tuple[str, str]]
    """What it was a member of."""
    transients: list[Entry]
    """The messages that waited for it, and only memory has."""
    session: Session


@dataclass(eq=False)
class Durability:
    """The durable half of one broker. `start` before anything is served; `close` when nothing is served any more."""

    _runtime: Runtime
    _mailboxes: Mailboxes
    _addressing: Addressing
    _topics: ServerTopics
    _subscriptions: Subscriptions
    _listener: DurabilityListener
    _awaiting_commit: list[asyncio.Future[bool]] = field(default_factory=list, init=False)
    """For the commit of all that has happened before."""
    _is_recovering: bool = field(default=False, init=False)
    _epoch: int = field(default=0, init=False)  # which start of a server on this store this is
    _generation: str = field(default="", init=False)  # of the store that the sessions were read from
    _slow: SlowStore = field(default_factory=SlowStore, init=False)
    _away: dict[SessionName, int] = field(default_factory=dict, init=False)
    """By sessions whose clients have gone or come, which the store does not know yet: when they end, ms since 1970, or 0."""
    _committed_at: float = field(default=nan, init=False)
    """When the store last knew all that had ended: seconds since 1970."""
    _asked_at: float = field(default=0.0, init=False)  # the last commit, or when the store came back meanwhile
    _read_at: float = field(default=inf, init=False)  # of the last claim: what was done before it has been read
    _is_to_read: bool = field(default=False, init=False)  # again, because it has forgotten a step
    _under_way: Commit | None = field(default=None, init=False)  # was asked for, and is not applied for certain

    def __post_init__(self) -> None:
        runtime, mailboxes, addressing, options = (
            self._runtime,
            self._mailboxes,
            self._addressing,
            self._subscriptions.options,
        )
        self._access, self._ids, self._clock = runtime.access, runtime.ids, runtime.clock
        self.backlog, self._dispatchers = mailboxes.outbound.loader, mailboxes.dispatchers
        self._events, self._pressure = mailboxes.events, mailboxes.pressure
        self._shared_queues = addressing.shared_queues
        self.stored = self._subscriptions.stored
        topics = self._topics.table
        self.topic_changes = TopicChanges(runtime, topics, self._topics.endings)
        self.appender = LogAppender(runtime, mailboxes, addressing, topics, self.topic_changes, options)
        self.acknowledgements = Acknowledgements(runtime, mailboxes, addressing.shared_queues)
        self.trimmer = LogTrimmer(self._access, self._runtime.settings, self._runtime.metrics)
        self._runtime.metrics.gauge("last_commit_timestamp_seconds", lambda: self._committed_at)
        self.lease = StoreLease(self._access, runtime.settings, runtime.supervisor, runtime.cluster)
        ahead = self.appender.ahead
        self.tail = LogTail(self._access, runtime.settings, ahead, self.appender.take_ahead, runtime.metrics)
        self._hurry = asyncio.Event()  # set when the next commit should not wait for its time
        self.inheritance = Inheritance(runtime, self.appender, addressing.destinations, self.topic_changes, self)
        self._losses = LossDetector(self._access, self._runtime.settings.node.name, self._runtime.metrics)
        self._closing = asyncio.Event()

    # Life

    async def start(self, store: Store) -> None:
        """Take over what earlier servers have left in this store, read what their sessions have missed, and continue with it.
        Raises StoreError if the store cannot be used, StoreTaken if a server that lives has it."""
        self._access.open(store, self._suspect, self._step_is_forgotten)
        self._access.enter(StorePhase.STARTING)
        try:
            await self._load()
        except BaseException:
            await self.lease.end()
            raise
        self._access.writing.probe()  # for what a server that lived appended before its last session was taken
        self._access.store.watch(self._store_is_back, lambda: None)
        start = self._runtime.supervisor.start
        self._committing = start("commits", self._commit_forever)
        self._tending = start("upkeep of the log", self.trimmer.run_forever)
        self._counting = start("what accounts have in the store", self._runtime.stored_shares.run_forever)
        self._runtime.cluster.follow_log(self._runtime.supervisor, self.tail.run_forever)

    async def close(self) -> None:
        """Commit what is open, and leave the sessions to the next server."""
        shutdown = self._runtime.supervisor.shutdown
        self._closing.set()
        self._hurry.set()
        self.backlog.close()
        self._tending.cancel()
        self._counting.cancel()
        await asyncio.wait([self._committing, self._tending, self._counting], timeout=shutdown.left(_CLOSE_TIMEOUT))
        self._committing.cancel()
        if not self._access.phase.is_superseded and self._access.store.is_up:
            with suppress(StoreError, TimeoutError):
                async with asyncio.timeout(shutdown.left(_CLOSE_TIMEOUT)):
                    await self._commit()
        self._answer_awaiting(self._awaiting_commit, is_committed=False)
        await self._events.close()
        await shutdown.within(_ANSWERS_S, self._access.writing.close(), "what the store was asked for")
        await self.lease.end()

    async def _load(self) -> None:
        self._access.token = secrets.token_hex(8)
        self._generation = self._access.store.generation
        last = await self.lease.claim()
        self._read_at = self._runtime.loop.time()
        self._clock.continue_from(last)
        self._epoch = await node_leases.epoch(self._access.store, self._access.token)
        await self._shared_queues.keep_groups()
        cursor, stored, newest, count = last, None, LogId(0), 0
        kept: list[SessionRecord] = []
        same: dict[Any, Any] = {}
        sent: dict[Any, Any] = {}
        is_first = not self._access.phase.is_reloading
        if is_first:
            self._begin_again(last)
        async with aclosing(self._adopted()) as slices:
            async for adopted in slices:
                for record in adopted:
                    record.share(_bound(same))
                cursor, stored = min(cursor, LogConsumer.starting_cursor(adopted, last)), adopted[0].owner_cursor
                newest, count = max(newest, newest_outside_log(adopted)), count + len(adopted)
                if is_first:  # while the store moves the next ones
                    async for record in in_turns(adopted, is_urgent=True):
                        self.restore(record, _bound(sent))
                else:
                    kept += adopted
        # All that must be read is read before: between the old sessions and the new ones no client must come to a closed door.
        topics = await self._topics.table.stored()
        queues = await stored_queues(self._access.store)
        before, ended, unstored = dict[SessionName, _Former](), list[DurableSession](), list[PendingDeadLetter]()
        if not is_first:
            await self._losses.count_sessions(self._access.node.sessions.keys() - {record.name for record in kept})
            unstored = self._unstored()
            before, ended = self._set_aside()
            self._begin_again(last)
        for record in kept:
            former = before.get(record.name)
            self.restore(record, _bound(sent), None if former is None else former.session)
        self._access.node.begin_at(cursor, stored)
        self._access.enter(StorePhase.CATCHING_UP if self._access.phase.is_reloading else StorePhase.SERVING)
        self._keep(unstored)
        self._continue(before)
        self._end_once_more(ended)
        # Nor is anything delivered from an inbox before what the log has in front of it.
        await self.appender.read_up_to(max(last, newest))
        for durable in self._access.node.sessions.values():
            durable.place_notices()  # behind what was missed, too
        await self._topics.table.restore(topics)
        self._shared_queues.restore(queues)
        where = "" if self._access.store.directory is None else f" in {self._access.store.directory}"
        log.info("the store%s has %d sessions; the log is read up to %d", where, count, last)

    def _begin_again(self, last: LogId) -> None:
        """Begin with no sessions."""
        self._away.clear()  # the store awaits the clients of all
        self._access.node = LogConsumer(last)
        self.appender.begin_again()
        self._under_way = None

    async def _adopted(self) -> AsyncGenerator[list[SessionRecord], None]:
        """The sessions of servers before this one, or of nodes that are dead, a slice at a time; the store moves the next slice
        while the caller has one."""
        following = asyncio.ensure_future(self._next_records())
        try:
            while adopted := await following:
                following = asyncio.ensure_future(self._next_records())
                yield adopted
        finally:
            following.cancel()

    async def _next_records(self) -> list[SessionRecord]:
        """Take over the next sessions of servers before this one, or of nodes that are dead."""
        return await self.inheritance.next_slice(_ADOPTED_AT_ONCE, self.lease.own)

    def restore(
        self, record: SessionRecord, sent: dict[PendingMessage, PendingMessage], former: Session | None = None
    ) -> DurableSession:
        """Give a session of the store to the engine and to the broker. `sent` is shared by sessions that were sent the same.
        `former`: what it was in this server before it was read again."""
        durable = DurableSession.adopted(record, sent)
        self._access.node.add(durable)
        if record.ending is None:
            self._listener.restore(durable, record, former)
        return durable

    async def _reload(self, error: Fenced | None = None) -> None:
        """The store is not where it was answered to be, or another node has this one's sessions: forget what memory says, and
        begin with what the store has."""
        self._ids.stored.forget()
        self._ids.addressed.forget()
        self._losses.begin(self._generation)
        try:
            while not self._closing.is_set():
                self._access.enter(StorePhase.READING)
                try:
                    await self._losses.compare(self._generation, is_fenced=error is not None)
                    await self._find_commit()
                    await self._load()
                except StoreTaken:
                    self._give_way()
                    return
                except StoreError as again:
                    log.warning("the store cannot be read yet: %s", again)
                    await asyncio.sleep(_RELOAD_PAUSE)
                else:
                    if self._access.store.generation == self._generation:  # and has not changed again meanwhile
                        self._access.writing.probe()  # for what was appended while the old node was still there
                        return
        finally:
            phase = self._access.phase
            # If the server ends before sessions are replaced, those in memory are not to be committed under the new token.
            if phase.is_reloading and not (phase.is_adopting and self._closing.is_set()):
                self._access.enter(StorePhase.SERVING)

    async def _find_commit(self) -> None:
        """If the store has applied the commit that is under way, and only the answer was lost, it has its dead letters."""
        commit = self._under_way
        if commit and commit.number == await node_leases.last_commit(self._access.store, self._access.token):
            self._under_way = None

    def _unstored(self) -> list[PendingDeadLetter]:
        """The dead letters that only memory has, for their messages were never stored: of all sessions, and of the commit and
        the ends that the store has not confirmed."""
        asked = [] if self._under_way is None else [self._under_way.dead_letters]
        letters = [each for each in chain(*asked, *self._access.leaving.values()) if each.message is not None]
        for durable in self._access.node.sessions.values():
            if durable.dead_letters is not None:
                letters += durable.dead_letters.unstored
        return letters

    def _keep(self, unstored: list[PendingDeadLetter]) -> None:
        """Let dead letters that only memory had before be pending in the sessions that are back."""
        node = self._access.node
        for letter in unstored:
            if (durable := node.sessions.get(letter.session)) is not None:
                durable.dead_letter(letter)
                node.mark_dirty(durable)

    def _set_aside(self) -> tuple[dict[SessionName, _Former], list[DurableSession]]:
        """Let go of all sessions, in one turn with what the store brings back, so that no client comes to a closed door.
        Returns what each was, and those that had ended."""
        before, ended = {}, []
        durables = list(self._access.node.sessions.values())
        for durable in durables:
            self._access.node.drop(durable)
            session, durable.connected = durable.connected, None
            if session is None:
                ended.append(durable)
                continue
            groups = self._addressing.groups.of(session)
            self._listener.set_aside(session)
            before[durable.name] = _Former(set(durable.since), groups, session.mailbox.view().transients(), session)
            session.mailbox.clear()  # a request that waits for something answers without them
        self._access.changed([*self._access.leaving, *(durable.name for durable in durables)])
        self._access.leaving.clear()  # what was asked for them hits no session under the new token
        return before, ended

    def _continue(self, before: dict[SessionName, _Former]) -> None:
        """Sessions are what they were, also in what only memory knew. One whose subscriptions the store has not as its client
        knows it ends: it has to handshake again, or it would wait for messages that never come."""
        sessions = self._access.node.sessions
        for durable in [sessions[name] for name in before if name in sessions]:
            former = before[durable.name]
            if durable.connected is None:
                continue
            durable.connected.remember(former.session)
            for entry in former.transients:
                self._mailboxes.outbound.enqueue(durable.connected, entry)
            groups = self._addressing.groups.of(durable.connected)
            if set(durable.since) != former.patterns or set(groups) != set(former.groups):
                log.warning(
                    "the subscriptions of a session in the store differ from those of its client: the session ends"
                )
                self._runtime.metrics.lost_sessions += 1
                self._listener.end(durable.connected, Event.SILENCE)

    def _end_once_more(self, ended: list[DurableSession]) -> None:
        """End the sessions that had ended before they were read, or while they were: the store refuses the steps that were to
        end them by then."""
        for former in ended:
            durable = self._access.node.sessions.get(former.name)
            if durable is not None and durable.connected is not None:
                durable.death = former.death
                self._listener.end(durable.connected, Event.ENDED)

    def _forget(self, durable: DurableSession) -> None:
        self._access.node.drop(durable)
        self._access.changed([durable.name])
        session, durable.connected = durable.connected, None
        if session is not None:
            session.leave_store()
            self._listener.end(session, Event.SILENCE)

    # Sessions

    async def login(
        self, name: str, facts: dict[str, Any], max_sessions: int, newcomer: Session | None = None
    ) -> LoggedIn:
        """Store a session, or what a new login of it fixed. Raises StoreError: `TooManySessions`, Fenced, or that the store
        cannot be asked. A name that ends in a slash is numbered by the store. A session that is new to the store gets its
        durable half with the answer, if it is this `newcomer`. The next answer may be about a message in its inbox. After
        StoreUncertain the store may have a session that memory lacks, until `recall` or the next start (decision 0010)."""
        if self._access.phase.is_superseded or self._access.phase.is_reloading:
            raise StoreUnavailable(self._access.trouble)
        if name in self._access.leaving:
            raise StoreUnavailable("the session of this name is ending")
        access = self._access

        def answered(answer: LoggedIn | StoreError) -> LoggedIn | StoreError:
            if newcomer is not None and isinstance(answer, LoggedIn) and answer.is_new:
                durable = DurableSession(answer.name)
                durable.inbox_until = answer.last
                self._attach(newcomer, answer, durable)
            return answer

        step = stored_sessions.login(access.keys, access.token, name, facts, max_sessions, access.facts_max)
        answer: LoggedIn = await self._access.writing.ask(step, then=answered)
        return answer

    async def recall(self, session: Session, answer: LoggedIn) -> None:
        """Attach the session to one that the store has since a login whose answer was lost: dead letters may have been sent
        again to it, of which memory knows nothing. Raises StoreError."""
        access = self._access

        def answered(record: SessionRecord | StoreError) -> SessionRecord | StoreError:
            if isinstance(record, SessionRecord) and answer.name not in access.node.sessions:
                self._attach(session, answer, DurableSession.adopted(record))
            return record

        step = stored_sessions.recall(access.keys, access.token, answer.name, answer.batch + BATCH_BLOCK)
        await access.writing.ask(step, then=answered)

    def _attach(self, session: Session, answer: LoggedIn, durable: DurableSession) -> None:
        durable.reserved(answer.batch + BATCH_BLOCK)
        self._access.node.add(durable)
        self.hand_to(session, durable)

    def renew(self, session: Session, answer: LoggedIn) -> None:
        """The store has given a session that it had a new login: the batches of the client before it count no more."""
        durable = self.half_of(session, answer.name, "the session has just ended")
        durable.reserved(answer.batch + BATCH_BLOCK)
        self.hand_to(session, durable)

    def half_of(self, session: Session, name: SessionName, otherwise: str) -> DurableSession:
        """What the engine has of the session, which the store has under this name. Raises StoreUnavailable, with why, if it
        has nothing of it any more."""
        sessions = self._access.node.sessions
        if name not in sessions or sessions[name].connected is not session:
            raise StoreUnavailable(f"{name}: {otherwise}")
        return sessions[name]

    def hand_to(self, session: Session, durable: DurableSession) -> None:
        """Let this session hold the durable half: a new one, one that came back, or one that it takes over."""
        durable.connected = session
        durable.payers = payers_with_address(session)
        session.join_store(durable)
        self._access.node.fan_out.changes.note(durable)

    # Messages

    async def waiting(self) -> int:
        """How many messages wait for a receiver, counted once for each. Others have their turn meanwhile."""
        return sum([len(durable) async for durable in in_turns(self._access.node.sessions.values())])

    # Who is away

    def on_connect(self, session: Session) -> asyncio.Future[None] | None:
        """A connect has come. The messages that wait for it and are not in memory are on their way; the future
        says when they are there."""
        if session.mailbox.view().is_absent:
            if session.durable is not None:
                self._away[session.durable.name] = 0
            self._dispatchers.back(session)
        return self.backlog.load(session)

    def note_away(self, session: Session, seconds: float) -> None:
        """The client has gone, and the session ends in so many seconds, also if another server has it by then."""
        if session.durable is not None:
            self._away[session.durable.name] = int((self._runtime.clock() + seconds) * 1000)

    async def _store_away(self) -> None:
        while self._away and not self._access.phase.is_reloading:
            some = dict(islice(self._away.items(), _NOTED_AT_ONCE))
            await self._access.writing.ask(
                stored_sessions.away(self._access.keys, self._access.token, some), retries=True
            )
            for name, ends_ms in some.items():
                if self._away.get(name) == ends_ms:  # else it has changed meanwhile
                    del self._away[name]

    # Commits

    async def _commit_forever(self) -> None:
        while not self._closing.is_set():
            await woken(self._hurry, self._runtime.settings.delivery.commit_ms / 1000)
            try:
                await self._commit()
            except (Behind, Fenced) as error:
                await self._lost(error)
            except StoreError as error:
                log.warning("a commit was refused, and will be retried: %s", error)

    def commit_soon(self) -> None:
        """Do not wait for the time of the next commit."""
        self._hurry.set()

    async def committed(self) -> bool:
        """Wait until the store knows how all has ended that has ended so far, or has its dead letter withheld. Return False if
        nothing is committed any more. It does not wait for the dead letters: in a flood some are withheld all the time."""
        if self._closing.is_set() or self._access.phase.is_superseded:
            return False
        done: asyncio.Future[bool] = self._runtime.loop.create_future()
        self._awaiting_commit.append(done)
        self._hurry.set()
        return await done

    def _answer_awaiting(self, awaiting: list[asyncio.Future[bool]], *, is_committed: bool) -> None:
        self._awaiting_commit = [each for each in self._awaiting_commit if each not in awaiting]
        for done in awaiting:
            resolve(done, is_committed)

    async def _commit(self) -> None:
        if self._away:
            await self._store_away()
        awaiting: list[asyncio.Future[bool]] = []
        has_more = True
        while has_more:
            if self._under_way is None and not self._access.node.is_divided:
                # What has ended by now is part of the commit that begins, or one that follows.
                awaiting = list(self._awaiting_commit)
            has_more = await self._commit_once()
            node, is_reloading = self._access.node, self._access.phase.is_reloading  # then nothing is committed
            if not (is_reloading or self._under_way or node.is_divided or node.has_withheld_only):
                self._answer_awaiting(awaiting, is_committed=True)
            if has_more:
                await asyncio.sleep(0)  # others have their turn
        if self._awaiting_commit and not self._access.phase.is_reloading:
            self._hurry.set()

    async def _commit_once(self) -> bool:
        """Make the next commit, if there is anything to say; True if another one should follow."""
        self._pressure.update()
        if not (self._access.phase.is_reloading or self._under_way):
            await self._book()
        commit = await self._next_commit()
        node = self._access.node
        self._events.fold()
        if commit is None:
            if not self._access.phase.is_reloading:
                self._committed_at = time()
            return False
        self._under_way = commit
        delivery = self._runtime.settings.delivery
        bounds = (self._access.facts_max, delivery.dead_letters_max, delivery.dead_letters_max_bytes)
        steps = stored_log.commit(self._access.keys, self._access.token, commit, *bounds)
        self._asked_at = self._runtime.loop.time()
        try:
            ask = self._access.writing.ask
            answers = await asyncio.gather(*(ask(step, retries=True, unordered=True) for step in steps))
        except (Behind, Fenced):
            if self._access.node is node:
                raise
        else:
            now = self._runtime.loop.time()
            self._slow.took(now - self._asked_at, self._runtime.settings.storage.slow_ms / 1000, now)
            dead_ids = [dead_id for answer in answers for dead_id in answer.letters]
            if commit.dead_letters or dead_ids:
                self._listener.letters_stored(commit.dead_letters, dead_ids)
            if self._access.node is node:  # and not another, with what was read again meanwhile
                await self._committed(commit, [name for answer in answers for name in answer.fenced])
                return node.has_more
        return False

    async def _next_commit(self) -> Commit | None:
        """The commit that is under way, or the next one, looked for in turns; None if there is nothing to say."""
        while not self._access.phase.is_reloading:
            node = self._access.node
            commit = self._under_way or node.commit()
            if commit is not None or not node.is_divided:
                return commit
            await asyncio.sleep(0)  # others have their turn
        return None

    async def _book(self) -> None:
        """Apply in turns what the next commit says of many sessions."""
        node = self._access.node
        if node.fan_out.deliveries > MAX_CHANGES:
            for _ in node.apply_in_steps():
                await asyncio.sleep(0)  # others have their turn

    async def _committed(self, commit: Commit, fenced: list[SessionName]) -> None:
        node = self._access.node
        self._under_way, self._committed_at = None, time()
        self._access.low = commit.low
        self.count(commit.ended)
        for alike in commit.settled:
            self._runtime.metrics.ended[EndReason.SETTLED] += len(alike.ids) * len(alike.sessions)
        for durable in [node.sessions[name] for name in fenced if name in node.sessions]:
            log.warning("a session now belongs to another server")
            self._forget(durable)
        async for durable in in_turns(node.committed(commit), is_urgent=True):
            if self._access.node is not node:
                return  # all was read again meanwhile, and these ends are looked for again
            self.stored.end_stored(durable)

    def count(self, ended: Iterable[Disposition]) -> None:
        """Count how messages ended."""
        for each in ended:
            self._runtime.metrics.ended[each.reason] += len(each.ids)

    def _store_is_back(self) -> None:
        self._asked_at = self._runtime.loop.time()
        self.lease.renew_soon()
        store, is_reading = self._access.store, self._access.phase.is_reloading or self._is_recovering
        if store.generation == self._generation or store.keeps_everything:
            self._access.writing.probe()
        elif self._generation in store.continues and not is_reading:
            log.warning("another store is in its place, and has all that was confirmed: no session is read again")
            self._generation = store.generation
            self._access.writing.probe()
        else:
            self._losses.store_changed()
            self._suspect(Behind("the store has restarted, or another one is in its place"))

    def _step_is_forgotten(self, doubted_at: float) -> None:
        """The store may have done this step without an answer, and have forgotten it. What it has done shows in it."""
        if doubted_at >= self._read_at and not (self._is_to_read or self._closing.is_set()):
            self._is_to_read = True
            self._runtime.spawn(self._read_again(self._access.node))

    async def _read_again(self, node: LogConsumer) -> None:
        """Read all sessions, once the store knows all that memory knows, and has answered the other steps that are asked again:
        it would refuse them afterwards."""
        try:
            while self._access.node is node and not (self._closing.is_set() or self._access.phase.is_superseded):
                with suppress(StoreError):
                    await self._access.writing.asked_again()
                    await self.committed()
                    if self._access.node is node:
                        await self._lost(Behind("the store was asked again for longer than it remembers steps"))
                await asyncio.sleep(_RELOAD_PAUSE)
        finally:
            self._is_to_read = False

    def _suspect(self, error: StoreError) -> None:
        self._access.is_suspected = True  # from this moment on: what is acknowledged now may come again
        self._runtime.spawn(self._lost(error))

    async def _lost(self, error: StoreError) -> None:
        """The store does not know this node as it was. Another server has taken over, and this one must not fight it; or
        the store has lost something, and then what it has counts."""
        if self._is_recovering:
            return  # it learns the same from the next step that it asks for
        self._is_recovering = self._access.is_suspected = True
        try:
            await self._find_out(error)
        except StoreError as again:
            log.warning("the store (%s) does not report its owner: %s", error, again)  # the next commit asks again
        finally:
            self._is_recovering = self._access.is_suspected = False

    async def _find_out(self, error: StoreError) -> None:
        phase, store = self._access.phase, self._access.store
        if phase.is_superseded or phase.is_adopting or self._closing.is_set():
            return
        if isinstance(error, Fenced) and await node_leases.epoch(store, self._access.token):
            return  # what it refused was asked before the sessions were read again, under the former token
        if await self._runtime.cluster.is_replaced(store, self._epoch):
            self._give_way()
        else:
            await self._reload(error if isinstance(error, Fenced) else None)

    def _give_way(self) -> None:
        self._access.enter(StorePhase.SUPERSEDED)
        self._answer_awaiting(self._awaiting_commit, is_committed=False)
        log.critical("another server has taken over the store: this server has stopped serving")
        for durable in list(self._access.node.sessions.values()):
            self._forget(durable)
        self._listener.superseded()


def _bound(same: dict[Any, Any]) -> dict[Any, Any]:
    """What is shared so far, or nothing if it has become too much to be remembered."""
    if len(same) > _MOST_SHARED:
        same.clear()
    return same
