"""Subscriptions of sessions that the store has, and the end of such sessions: what they are to receive of the log, from where
and to where.

The store decides in its own order. Until it has answered, the engine remembers what is taken meanwhile, and keeps its cursor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from crewel.broker.addressing.queue_listeners import LettersListener
from crewel.broker.addressing.requeue import Requeue
from crewel.broker.handler_steps import resolve
from crewel.broker.mailboxes.backlog_loader import BacklogLoader
from crewel.broker.mailboxes.expiry import Expiry
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.subscriptions.options import Choices, SubscriptionOptions, as_stored, group_of
from crewel.broker.writing.write_queue import BYTES_A_LETTER
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.pending_dead_letters import MAX_DEAD_LETTER_COST, cost_of
from crewel.delivery.records import DEAD_SESSION, EndReason, LogId, PendingDeadLetter, PendingMessage
from crewel.delivery.subscription_request import SubscriptionRequest
from crewel.errors import StoreError, StoreUnavailable, StoreUncertain
from crewel.storage import session_store as stored_sessions
from crewel.storage.keys import Keys
from crewel.storage.session_store import Erased, SessionEnd

if TYPE_CHECKING:
    import asyncio

_MADE_AT_ONCE: Final = 1000
"""Messages of an ending session of which dead letters are made at once: about two milliseconds."""
_MOST_MADE: Final = 10 * MAX_DEAD_LETTER_COST
"""Cost of the pending dead letters of an account above which its ending sessions make no more: memory holds few of them."""


class Beginning(NamedTuple):
    """What comes before all that a new subscription receives."""

    ask: Callable[[Callable[[], None]], None]
    """Asks the store for it, right behind the subscribe, and calls this function when the answers are there."""
    begin: Callable[[Mapping[str, LogId]], None]
    """Is called after that, with the ids after which the subscriptions hold."""


@dataclass(eq=False)
class SubscriptionStore:
    """Asks the store about subscriptions and ends. What a question was about stays with the node that asked it: another one
    may be there when the answer comes, with everything read again."""

    _runtime: Runtime
    _expiry: Expiry
    _requeue: Requeue
    _options: SubscriptionOptions
    _backlog: BacklogLoader
    _listener: LettersListener
    _in_doubt: Counter[DurableSession] = field(default_factory=Counter, init=False)
    """It is unknown yet what the store did about subscriptions of these."""

    def __post_init__(self) -> None:
        self._access = self._runtime.access

    def subscribe(
        self,
        session: Session,
        durable: DurableSession,
        wanted: Mapping[str, Choices],
        beginning: Beginning | None = None,
    ) -> asyncio.Future[Any]:
        """Subscribe where the store can see it, and let the session want this of which pattern; it receives nothing of the log
        for those of a group. `beginning`: what comes before the session receives anything by the others. The future raises
        StoreError, and then nothing has changed."""
        if (refused := self._refused(durable)) is not None:
            return refused
        node = self._access.node
        pending_patterns = [pattern for pattern, choices in wanted.items() if not group_of(choices)]
        options = {pattern: as_stored(choices) for pattern, choices in wanted.items() if choices}
        pending = node.subscribing(durable, pending_patterns)
        step = stored_sessions.subscribe(*self._me(), durable.name, pending_patterns, self._access.facts_max, options)
        counted = self._options.ask(session, wanted)

        def answered(answer: dict[str, LogId] | StoreError) -> None:
            counted()
            if isinstance(answer, StoreUncertain):
                # what held before stays
                self._take_back(durable, [each for each in wanted if each not in session.subscriptions], pending)
            elif isinstance(answer, StoreError):
                node.answered(pending, {})
            else:
                if beginning is not None:
                    beginning.begin(answer)
                self._owe(
                    durable, node.answered(pending, {pattern: (since, None) for pattern, since in answer.items()})
                )
                if session.is_live and durable.connected is session:
                    for pattern, choices in wanted.items():
                        self._options.enter(session, pattern, choices)

        if beginning is None:
            return self._access.writing.ask(step, then=answered)
        done: asyncio.Future[Any] = self._runtime.loop.create_future()
        answers: list[dict[str, LogId] | StoreError] = []

        def ready() -> None:
            answered(answers[0])
            resolve(done, answers[0])

        self._access.writing.submit(step, answers.append)
        beginning.ask(ready)
        return done

    def unsubscribe(self, session: Session, durable: DurableSession, patterns: list[str]) -> asyncio.Future[Any]:
        """End these subscriptions. The future raises StoreError, and then they stay; after StoreUncertain they end as soon
        as the store can say where."""
        if (refused := self._refused(durable)) is not None:
            return refused
        node = self._access.node
        pending = node.unsubscribing(durable, patterns)

        def answered(answer: dict[str, tuple[LogId, LogId]] | StoreError) -> None:
            if isinstance(answer, StoreUncertain):
                self._take_back(durable, patterns, pending)
            elif isinstance(answer, StoreError):
                self._owe(durable, node.unanswered(pending))
            else:
                self._owe(durable, node.answered(pending, answer))
                for pattern in patterns:
                    self._options.leave(session, pattern)

        return self._access.writing.ask(self._unsubscribe_step(durable, patterns), then=answered)

    def erase(
        self, session: Session, durable: DurableSession, channel: str, *, ends: bool, tells: bool, why: str = ""
    ) -> asyncio.Future[Any]:
        """The topic of this channel was erased; or, with `why`, the subscription to this pattern fails. `ends`: the session's
        subscription to it ends, but not for a group for which something waits. `tells`: the session gets the notice, behind
        all that came before. The future raises StoreError, and then nothing has changed."""
        if (refused := self._refused(durable)) is not None:
            return refused
        done: asyncio.Future[Any] = self._runtime.loop.create_future()
        node = self._access.node
        pending = node.unsubscribing(durable, [channel] if ends else [])
        me = self._me()
        step = stored_sessions.erased(
            *me, durable.name, channel, self._access.facts_max, ends=ends, notifies=tells, why=why
        )
        doubts = 0

        def answered(answer: Erased | StoreError) -> None:
            nonlocal doubts
            if isinstance(answer, StoreUncertain):
                doubts = 1
                self._in_doubt[durable] += 1
                self._access.writing.submit(step, answered, retries=True)
                return
            self._in_doubt -= Counter({durable: doubts})
            if isinstance(answer, StoreError):
                self._owe(durable, node.unanswered(pending))
            else:
                self._erased(session, durable, pending, channel, answer, why)
                if ends and not answer.stays:
                    self._options.leave(session, channel)
            resolve(done, answer if isinstance(answer, StoreError) else None)

        self._access.writing.submit(step, answered)
        return done

    def _erased(
        self,
        session: Session,
        durable: DurableSession,
        pending: SubscriptionRequest,
        channel: str,
        answer: Erased,
        why: str,
    ) -> None:
        node = self._access.node
        self._owe(durable, node.answered(pending, {} if answer.interval is None else {channel: answer.interval}))
        if not answer.notice:
            return
        if answer.prev == node.cursor:
            node.skip(answer.notice)
        elif answer.prev > node.cursor:
            self._access.writing.probe()
        if durable.connected is session:
            self._backlog.on_notice(session, channel, answer.notice, why)

    def _take_back(self, durable: DurableSession, patterns: list[str], pending: SubscriptionRequest) -> None:
        """It is unknown whether the store has these subscriptions: end them. The cursor waits until the store says from where
        to where they held; and what the client asks for meanwhile is refused, for it would be ended as well."""
        self._in_doubt[durable] += 1
        node = self._access.node

        def answered(answer: dict[str, tuple[LogId, LogId]] | StoreError) -> None:
            self._in_doubt -= Counter([durable])
            if durable.connected is not None:
                for pattern in patterns:
                    self._options.leave(durable.connected, pattern)
            intervals = {} if isinstance(answer, StoreError) else answer
            self._owe(durable, node.answered(pending, intervals))

        self._access.writing.submit(self._unsubscribe_step(durable, patterns), answered, retries=True)

    def _refused(self, durable: DurableSession) -> asyncio.Future[Any] | None:
        """The refusal of a step for a session of which the store has not said yet what it did before."""
        if durable not in self._in_doubt and not self._access.phase.is_reloading:
            return None
        refused: asyncio.Future[Any] = self._runtime.loop.create_future()
        refused.set_exception(StoreUnavailable("the store has not yet answered the previous request"))
        return refused

    def _me(self) -> tuple[Keys, str]:
        return self._access.keys, self._access.token

    def _unsubscribe_step(self, durable: DurableSession, patterns: list[str]) -> Any:
        return stored_sessions.unsubscribe(*self._me(), durable.name, patterns, self._access.facts_max)

    def _owe(self, durable: DurableSession, ids: Iterable[LogId]) -> None:
        for log_id in ids:
            durable.evict(log_id)
        if durable.connected is not None:
            self._backlog.load_if_waiting(durable.connected)

    def end(self, durable: DurableSession) -> None:
        """The session has ended. What is open for it ends with it, once the log has been read as far as the session receives
        it."""
        durable.connected = None
        if self._access.phase.is_adopting:
            return  # what is read may say that it lives: then it ends once more
        node = self._access.node
        pending = node.unsubscribing(durable, node.patterns(durable))

        def closed(answer: LogId | StoreError) -> None:
            if isinstance(answer, StoreError):
                node.unanswered(pending)
                node.drop(durable)
                self._access.changed([durable.name])
                return
            node.answered(pending, {pattern: (since, answer) for pattern, since in pending.since.items()})
            node.ending(durable, answer)
            if answer > node.cursor:
                self._access.writing.probe()  # the newest id may be in no log: other nodes send past it

        step = stored_sessions.close(*self._me(), durable.name, self._access.facts_max, durable.death)
        self._access.writing.submit(step, closed, retries=True)

    def end_stored(self, durable: DurableSession) -> None:
        """The second step of an end: everything of the session leaves the store."""
        death = durable.death or (DEAD_SESSION, "the session has ended")
        makes_letters = durable.is_named or self._runtime.settings.delivery.letters_for_anonymous
        makes_letters = makes_letters or durable.death is not None  # what a receiver reports always makes dead letters
        node = self._access.node
        returning = self._requeue.of(durable)
        if makes_letters and self._letters_first(durable, returning, death):
            return
        node.leave(durable)
        durable.expire(durable.expired(self._expiry.now()))
        returning = self._requeue.of(durable)
        ids = [*durable.pending, *durable.inbox]
        if makes_letters:
            self._make_letters(durable, ids, death)
        else:
            for log_id in ids:
                if log_id not in returning:
                    durable.end_message(log_id, EndReason.LAPSED)
        ended, letters = durable.take_ended()
        for each in ended:
            self._runtime.metrics.ended[each.reason] += len(each.less(returning).ids)
        delivery = self._runtime.settings.delivery
        bounds = (self._access.facts_max, delivery.dead_letters_max)
        attempts = {log_id: pending.attempts for log_id, pending in returning.items()}
        step = stored_sessions.end(
            *self._me(), durable.name, ended, letters, *bounds, attempts, delivery.dead_letters_max_bytes
        )
        leaving = self._access.leaving
        leaving[durable.name] = letters

        def has_left(left: SessionEnd | StoreError) -> None:
            if isinstance(left, StoreError) and self._access.phase.is_adopting:
                return  # memory alone has some of these dead letters: the session gets them when it has been read again
            if leaving.get(durable.name) is letters:
                del leaving[durable.name]
            node.drop(durable)
            self._access.changed([durable.name])
            if not isinstance(left, StoreError):
                self._count_ended(durable, letters, returning, left)
                self._requeue.ended(durable, returning, left.returned)

        self._access.writing.submit(step, has_left, retries=True, size=len(letters) * BYTES_A_LETTER)

    def _letters_first(
        self, durable: DurableSession, returning: Mapping[LogId, PendingMessage], death: tuple[str, str]
    ) -> bool:
        """Whether the session has more dead letters than fit into the step that ends it. Then commits store them before, so
        many at a time: each with the end of its message, so that a server that takes over makes the others."""
        node, made = self._access.node, durable.dead_letters
        cost, ids = 0 if made is None else made.cost, []
        for log_id, pending in (*durable.pending.items(), *durable.inbox.items()):
            if log_id not in returning:
                cost += cost_of(pending)
                ids.append(log_id)
        if cost <= MAX_DEAD_LETTER_COST:
            return False
        if made is None and node.fan_out.dead_letters.most(durable.payers) < _MOST_MADE:
            durable.expire(durable.expired(self._expiry.now()))
            self._make_letters(durable, ids[:_MADE_AT_ONCE], death)
            node.mark_dirty(durable)
        return True  # and this is asked again after the next commit: one comes, while dead letters are pending

    @staticmethod
    def _make_letters(durable: DurableSession, ids: Iterable[LogId], death: tuple[str, str]) -> None:
        for log_id in ids:
            pending = durable.find(log_id)
            if pending is not None:
                tries = (durable.tries or {}).get(log_id, "")
                durable.dead_letter(PendingDeadLetter(durable.name, log_id, *death, pending.attempts, tries=tries))

    def _count_ended(
        self,
        durable: DurableSession,
        letters: list[PendingDeadLetter],
        returning: Mapping[LogId, PendingMessage],
        left: SessionEnd,
    ) -> None:
        """Count how those messages of a session have ended about which the store has decided, and show the dead letters."""
        gone = {*left.returned, *left.lapsed}
        made = [letter for letter in letters if letter.id not in gone]
        # What was sent again and had not reached this server, the store has made dead letters of.
        beyond = max(len(left.letters) - len(made), 0)
        ended = self._runtime.metrics.ended
        ended[EndReason.DEAD] += beyond + sum(letter.id in returning for letter in made)
        ended[EndReason.LAPSED] += len(left.lapsed)
        ended[EndReason.RETURNED] += len(left.returned)
        made += [PendingDeadLetter(durable.name, LogId(0), DEAD_SESSION, "", 0)] * beyond
        self._listener.letters_stored(made, left.letters)
