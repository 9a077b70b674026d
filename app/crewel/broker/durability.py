"""What makes the broker's promise hold: persistent messages are in the store before they are answered, and what a reliable
session is owed survives this process.

Owns the node (`delivery.node`), the queue of writes, and the sessions that the store has. The engine decides what is owed;
this module asks the store, reads its clock, and moves bodies. `Refills` brings back bodies that are not in memory, `Upkeep`
keeps the log within its bounds.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from crewel.bayeux.channel import Channel, parse
from crewel.bayeux.message import Fields
from crewel.broker.overflow import Overflow
from crewel.broker.refills import Refills
from crewel.broker.sessions import Event, Session
from crewel.broker.upkeep import Upkeep
from crewel.broker.writing import Writing
from crewel.delivery.durable import Durable
from crewel.delivery.entry import Entry
from crewel.delivery.node import Node
from crewel.delivery.records import (
    BATCH_BLOCK,
    Commit,
    Ended,
    EndReason,
    Letter,
    LogId,
    SessionName,
    SessionRecord,
    Submission,
)
from crewel.errors import Behind, Fenced, StoreError, StoreFull, StoreUnavailable, StoreUncertain
from crewel.storage import log as stored_log
from crewel.storage import sessions as stored_sessions
from crewel.storage.log import Appended
from crewel.storage.sessions import LoggedIn
from crewel.storage.store import Store

if TYPE_CHECKING:
    from crewel.broker.broker import Broker

__all__ = ["Durability", "Outgoing", "Published"]

log = logging.getLogger(__name__)

_ADOPTED_AT_ONCE: Final = 1000
_READ_AT_ONCE: Final = 1000
_CLOSE_TIMEOUT: Final = 3.0  # seconds
_RELOAD_PAUSE: Final = 0.5
_SUPERSEDED: Final = "another server has taken over the store"
DEAD_SESSION: Final = "communication.noConnection.dead"


@dataclass(frozen=True, slots=True)
class Published:
    """What a persistent publish is answered with."""

    id: str
    is_repeated: bool = False
    """Whether its key had been published before: the id is the first one's, and nothing was delivered again."""


class Outgoing:
    """A persistent publish of this node between its acceptance and its answer."""

    __slots__ = ("answer", "channel", "excluded", "heard", "lazy", "submission")

    def __init__(
        self,
        channel: Channel,
        submission: Submission,
        answer: asyncio.Future[Published],
        excluded: Session | None,
        heard: Fields | None,
        *,
        lazy: bool,
    ) -> None:
        self.channel = channel
        self.submission = submission
        self.answer = answer
        self.excluded = excluded
        """The session that does not hear it, if any."""
        self.heard = heard
        """The message as the services of this server hear it, if any do."""
        self.lazy = lazy


class Durability:
    """The durable half of one broker. `start` before anything is served; `close` when nothing is served any more."""

    def __init__(self, broker: Broker, store: Store) -> None:
        self._broker = broker
        self.store = store
        self.settings = broker.settings
        self.token = ""
        self.node = Node(LogId(0))
        self.low = LogId(0)
        """Nothing at or below this is needed by this node, by its last commit."""
        self.is_superseded = False
        """Whether another server has taken the store over: this one keeps to what is transient."""
        self.writing: Writing[Outgoing] = Writing(store, broker.loop, self._append, self._appended)
        self.refills = Refills(self, broker)
        self.upkeep = Upkeep(self)
        self.overflow = Overflow(self, broker)
        self._loops: list[asyncio.Task[None]] = []
        self._closing = asyncio.Event()
        self._is_recovering = False
        self._heard = LogId(0)  # what is not beyond it has reached those who do not acknowledge

    @property
    def trouble(self) -> str | None:
        """Why persistent messages are refused at the moment; None while all is well."""
        if self.is_superseded:
            return _SUPERSEDED
        return self.store.trouble

    # Life

    async def start(self) -> None:
        """Take over what earlier servers have left in the store, read what their sessions have missed, and go on with it.
        Raises StoreError if the store cannot be used."""
        await self._load()
        self.store.watch(self.writing.look, lambda: None)
        self._loops = [self._broker.spawn(self._commit_forever()), self._broker.spawn(self.upkeep.run_forever())]

    async def close(self) -> None:
        """Commit what is open, and leave the sessions to the next server."""
        self._closing.set()
        committing, tending = self._loops
        tending.cancel()
        await asyncio.wait([committing, tending], timeout=_CLOSE_TIMEOUT)
        committing.cancel()
        if not self.is_superseded and self.store.is_up:
            with suppress(StoreError, TimeoutError):
                await asyncio.wait_for(self._commit(), _CLOSE_TIMEOUT)
        await self.writing.close()

    async def _load(self) -> None:
        keys = self.store.keys
        self.token = secrets.token_hex(8)
        last = await self.writing.ask(stored_sessions.boot(keys, self.token, self.settings.node.name))
        records: list[SessionRecord] = []
        while adopted := await self.writing.ask(stored_sessions.adopt(keys, self.token, _ADOPTED_AT_ONCE)):
            records += adopted
        self.node = Node(Node.starting_cursor(records, last))
        for record in records:
            self._restore(record)
        await self._read_up_to(last)
        log.info("the store has %d sessions; the log is read up to %d", len(records), last)

    def _restore(self, record: SessionRecord) -> None:
        durable = Durable.adopted(record)
        self.node.add(durable)
        if record.ending is None:
            self._broker.logins.restore(durable, record)

    async def _reload(self) -> None:
        """The store is not where it was answered to be: forget what memory says, and begin with what the store has."""
        log.error("the store has lost what it had answered: all sessions are read again")
        while not self._closing.is_set():
            for durable in list(self.node.sessions.values()):
                self.node.drop(durable)
                session, durable.holder = durable.holder, None
                if session is not None:
                    self._broker.set_aside(session)
            try:
                await self._load()
            except StoreError as error:
                log.warning("the store cannot be read yet: %s", error)
                await asyncio.sleep(_RELOAD_PAUSE)
            else:
                return

    def _forget(self, durable: Durable) -> None:
        self.node.drop(durable)
        session, durable.holder = durable.holder, None
        if session is not None:
            session.durable = None
            self._broker.remove(session, Event.SILENCE)

    # Sessions

    async def login(self, name: str, facts: dict[str, Any], max_sessions: int) -> LoggedIn:
        """Store a session, or what a new login of it fixed. Raises StoreError: `TooManySessions`, Fenced, or that the store
        cannot be asked. A name that ends in a slash is numbered by the store."""
        step = stored_sessions.login(
            self.store.keys, self.token, name, facts, max_sessions, self.settings.storage.facts_max_entries
        )
        answer: LoggedIn = await self._asked(step)
        return answer

    def attach(self, session: Session, answer: LoggedIn) -> Durable:
        """Give the session that the store has just made its durable half."""
        durable = Durable(answer.name)
        durable.batch = answer.batch + BATCH_BLOCK
        self.node.add(durable)
        self.hand_to(session, durable)
        return durable

    def hand_to(self, session: Session, durable: Durable) -> None:
        """Let this session hold the durable half: a new one, one that came back, or one that it takes over."""
        durable.holder = session
        session.durable = durable
        session.name = durable.name
        if session.batches is not None:
            session.batches.number = durable.batch - BATCH_BLOCK + 1

    async def subscribe(self, session: Session, patterns: list[str]) -> None:
        """Subscribe where the store can see it. Raises StoreError, and then nothing has changed."""
        durable = _durable(session)
        pending = self.node.subscribing(durable, patterns)
        step = stored_sessions.subscribe(
            self.store.keys, self.token, durable.name, patterns, self.settings.storage.facts_max_entries
        )
        done: asyncio.Future[None] = self._broker.loop.create_future()

        def answered(answer: dict[str, LogId] | StoreError) -> None:
            if isinstance(answer, StoreUncertain):
                self._take_back(durable, patterns, pending)
            elif isinstance(answer, StoreError):
                self.node.answered(pending, {})
            else:
                owed = self.node.answered(pending, {pattern: (since, None) for pattern, since in answer.items()})
                self._owe(durable, owed)
                if session.is_live:
                    for pattern in patterns:
                        self._broker.channels.subscribe(session, pattern)
            self._finish(done, answer)

        self._submit(step, answered)
        await done

    async def unsubscribe(self, session: Session, patterns: list[str]) -> None:
        """End these subscriptions. Raises StoreError, and then they go on."""
        durable = _durable(session)
        pending = self.node.unsubscribing(durable, patterns)
        done: asyncio.Future[None] = self._broker.loop.create_future()

        def answered(answer: dict[str, tuple[LogId, LogId]] | StoreError) -> None:
            if isinstance(answer, StoreError):
                self._owe(durable, self.node.unanswered(pending))
            else:
                self._owe(durable, self.node.answered(pending, answer))
                for pattern in patterns:
                    self._broker.channels.unsubscribe(session, pattern)
            self._finish(done, answer)

        self._submit(self._unsubscribe_step(durable, patterns), answered)
        await done

    def _take_back(self, durable: Durable, patterns: list[str], pending: Any) -> None:
        """Nobody knows whether the store has these subscriptions, and the client was told that it has none: end them. The
        cursor waits until the store says from where to where they held."""

        def answered(answer: dict[str, tuple[LogId, LogId]] | StoreError) -> None:
            intervals = {} if isinstance(answer, StoreError) else answer
            self._owe(durable, self.node.answered(pending, intervals))

        self._submit(self._unsubscribe_step(durable, patterns), answered, insists=True)

    def _unsubscribe_step(self, durable: Durable, patterns: list[str]) -> Any:
        return stored_sessions.unsubscribe(
            self.store.keys, self.token, durable.name, patterns, self.settings.storage.facts_max_entries
        )

    def _owe(self, durable: Durable, ids: Iterable[LogId]) -> None:
        for log_id in ids:
            durable.park(log_id)
        if durable.parked and durable.holder is not None:
            self.refills.ring(durable.holder)

    def end(self, durable: Durable) -> None:
        """The session is over. What is open for it ends with it, once the log has been read as far as it is owed."""
        durable.holder = None
        pending = self.node.unsubscribing(durable, self.node.patterns(durable))

        def closed(answer: LogId | StoreError) -> None:
            if isinstance(answer, StoreError):
                self.node.unanswered(pending)
                self.node.drop(durable)
                return
            self.node.answered(pending, {pattern: (since, answer) for pattern, since in pending.since.items()})
            self.node.ending(durable, answer)

        step = stored_sessions.close(self.store.keys, self.token, durable.name, self.settings.storage.facts_max_entries)
        self._submit(step, closed, insists=True)

    def _bury(self, durable: Durable) -> None:
        """The second step of an end: everything of the session leaves the store."""
        makes_letters = durable.is_named or self.settings.delivery.letters_for_anonymous
        self.node.leave(durable)
        for log_id in [*durable.open, *durable.inbox]:
            if makes_letters:
                waiting = durable.open.get(log_id) or durable.inbox[log_id]
                durable.bury(Letter(durable.name, log_id, DEAD_SESSION, "the session has ended", waiting.attempts))
            else:
                durable.settle(log_id, EndReason.LAPSED)
        ended, letters = durable.take_ended()
        self.count(ended)
        bounds = (self.settings.storage.facts_max_entries, self.settings.delivery.dead_letters_max)
        step = stored_sessions.end(self.store.keys, self.token, durable.name, ended, letters, *bounds)
        self._submit(step, lambda _: self.node.drop(durable), insists=True)

    # Messages

    def publish(self, outgoing: Outgoing) -> asyncio.Future[Published]:
        """Put a message into the log, and then into the queues of its receivers. Raises StoreError, or the future does;
        after StoreUncertain it may have been published all the same."""
        if self.is_superseded:
            raise StoreUnavailable(_SUPERSEDED)
        if self.store.is_full:
            raise StoreFull("the store is full")
        self.writing.publish(outgoing.submission, outgoing)
        return outgoing.answer

    def _append(self, submissions: list[Submission]) -> Any:
        return stored_log.append(self.store.keys, self.token, submissions, self.settings.storage.facts_max_entries)

    async def _appended(self, group: list[Outgoing], answer: Appended | StoreError) -> None:
        if isinstance(answer, StoreError):
            for outgoing in group:
                self._finish(outgoing.answer, answer)
            self._look_at(answer)
            return
        if answer.prev < self.node.cursor:
            self._look_at(Behind("the log is shorter than it was"))
        elif answer.prev > self.node.cursor:
            await self._read_up_to(answer.prev)
        for outgoing, log_id, is_repeated in zip(group, answer.ids, answer.repeated, strict=True):
            if not is_repeated:
                self._take_own(outgoing, log_id)
            if not outgoing.answer.done():
                outgoing.answer.set_result(Published(str(log_id), is_repeated))

    def _take_own(self, outgoing: Outgoing, log_id: LogId) -> None:
        submission = outgoing.submission
        entry = Entry.logged(submission.channel, log_id, submission.body, lazy=outgoing.lazy)
        self._take(outgoing.channel, entry, outgoing.excluded, submission.excluded)
        self._broker.metrics.stored_publishes += 1
        if outgoing.heard is not None:
            self._broker.tell_hearers(outgoing.channel, outgoing.heard)

    async def _read_up_to(self, last: LogId) -> None:
        """Take what lies between the cursor and there: messages whose publisher's answer was lost, or of another server."""
        while self.node.cursor < last:
            entries = await stored_log.read(self.store, self.node.cursor, _READ_AT_ONCE)
            for logged in entries:
                if logged.id > last:
                    return
                channel = parse(logged.channel)
                assert channel is not None
                self._take(channel, Entry.logged(logged.channel, logged.id, logged.body), None, logged.excluded)
            if len(entries) < _READ_AT_ONCE:
                self.node.cursor = max(self.node.cursor, last)

    def _take(self, channel: Channel, entry: Entry, publisher: Session | None, excluded: str) -> None:
        """Hand the next message of the log to everybody who hears its channel, less its publisher if that is excluded."""
        subscribers = self._broker.channels.subscribers(channel)
        durables = [session.durable for session in subscribers if session.durable is not None]
        taken = self.node.take(entry.position, channel.patterns, len(entry.wire), durables)
        if durables:
            subscribers = [session for session in subscribers if session.durable is None]
        if entry.position > self._heard:  # after a reload, what was taken before comes once more
            self._heard = entry.position
            self._broker.outbound.fan_out(entry, subscribers, publisher)
        for durable in taken:
            self._deliver(durable, entry, excluded)

    def _deliver(self, durable: Durable, entry: Entry, excluded: str) -> None:
        session: Session | None = durable.holder
        if durable.name == excluded:
            durable.settle(entry.position, EndReason.FILTERED)
        elif session is None:
            return  # it is ending
        elif not self.overflow.has_room(session, durable, entry):
            return
        elif durable.parked or session.is_absent or durable in self.refills.running:
            durable.park(entry.position)
            self.refills.ring(session)
        else:
            self._broker.outbound.enqueue(session, entry)

    def settle(self, durable: Durable, ids: Iterable[LogId]) -> None:
        """The receiver has acknowledged these."""
        for log_id in ids:
            durable.settle(log_id)
        self.node.touch(durable)

    def waiting(self) -> int:
        """How many messages wait for a receiver, counted once for each."""
        return sum(len(durable) for durable in self.node.sessions.values())

    # Who is away

    def here(self, session: Session, durable: Durable) -> asyncio.Future[None] | None:
        """A connect has come. What waits for it and is not in memory is on its way; the future says when it is there."""
        if session.is_absent:
            session.is_absent = False
            kept = [entry for entry in session.queue if not entry.position]
            stored = [entry.position for entry in session.queue if entry.position]
            if session.batches is not None:
                sent = session.batches.forget()
                kept = [entry for entry in sent if not entry.position] + kept
                stored += [entry.position for entry in sent if entry.position]
            session.queue, session.retained = kept, 0
            session.urgent = bool(kept)
            for log_id in stored:
                durable.park(log_id)
        return self.refills.wanted(session)

    def gone(self, session: Session) -> None:
        """The client has been away for long: memory keeps of what is stored no more than the ids."""
        session.is_absent = True
        session.queue = [Entry.placeholder(each.position) if each.position else each for each in session.queue]
        if session.batches is not None:
            session.batches.shed()

    # Commits

    async def _commit_forever(self) -> None:
        while not self._closing.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self.settings.delivery.commit_ms / 1000)
            try:
                await self._commit()
            except (Behind, Fenced) as error:
                await self._lost(error)
            except StoreError as error:
                log.warning("a commit was refused, and will be tried again: %s", error)

    async def _commit(self) -> None:
        commit = self.node.commit()
        if commit is None:
            return
        bounds = (self.settings.storage.facts_max_entries, self.settings.delivery.dead_letters_max)
        steps = stored_sessions.commit(self.store.keys, self.token, commit, *bounds)
        answers = await asyncio.gather(*(self.writing.ask(step, insists=True) for step in steps))
        self._committed(commit, [name for answer in answers for name in answer.fenced])

    def _committed(self, commit: Commit, fenced: list[SessionName]) -> None:
        self.low = commit.low
        self.count(commit.ended)
        for name in fenced:
            durable = self.node.sessions.get(name)
            if durable is not None:
                log.warning("a session belongs to another server by now")
                self._forget(durable)
        for durable in self.node.committed(commit):
            self._bury(durable)

    def count(self, ended: Iterable[Ended]) -> None:
        """Count how messages ended."""
        for each in ended:
            self._broker.metrics.ended[each.reason] += len(each.ids)

    def _look_at(self, error: StoreError) -> None:
        if isinstance(error, Fenced | Behind):
            self._broker.spawn(self._lost(error))

    async def _lost(self, error: StoreError) -> None:
        """The store does not know this node as it was. Another server has taken over, and this one must not fight it; or
        the store has lost something, and then what it has counts."""
        if self.is_superseded or self._is_recovering or self._closing.is_set():
            return
        self._is_recovering = True
        try:
            others = await stored_sessions.nodes(self.store)
            if others - {self.token}:
                self._give_way()
            else:
                await self._reload()
        except StoreError as again:
            log.warning("the store (%s) does not say who has it: %s", error, again)  # the next commit asks again
        finally:
            self._is_recovering = False

    def _give_way(self) -> None:
        self.is_superseded = True
        log.critical("another server has taken over the store: persistent messages and acknowledged sessions end here")
        for durable in list(self.node.sessions.values()):
            self._forget(durable)

    # The store's answers

    def _submit(self, step: Any, done: Any, *, insists: bool = False) -> None:
        self.writing.submit(step, done, insists=insists)

    async def _asked(self, step: Any) -> Any:
        if self.is_superseded:
            raise StoreUnavailable(_SUPERSEDED)
        return await self.writing.ask(step)

    def _finish(self, future: asyncio.Future[Any], answer: Any) -> None:
        if future.done():
            return
        if isinstance(answer, StoreError):
            future.set_exception(answer)
        else:
            future.set_result(None)


def _durable(session: Session) -> Durable:
    assert session.durable is not None
    return session.durable
