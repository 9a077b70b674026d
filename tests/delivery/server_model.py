"""A small model of what the broker does with the engine: it asks the store, hears the answers, and moves messages.

A request waits in `requests` until the store executes it, and its answer in `answers` until the server looks at it;
`interleaving.Run` decides when either happens, if ever. A subscribe of which nobody knows whether it was done is taken back
by an unsubscribe; what is in `REPEATED` is asked again until it is known.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry
from crewel.delivery.fan_out_buffer import FanOutRecord, SubscriberSet
from crewel.delivery.log_consumer import LogConsumer
from crewel.delivery.records import (
    BATCH_BLOCK,
    Commit,
    Disposition,
    EndReason,
    Logged,
    LogId,
    PendingDeadLetter,
    PendingMessage,
    SessionName,
    SessionRecord,
    Submission,
)
from crewel.errors import Behind, Fenced, StoreError, StoreFull, StoreUncertain
from tests.delivery.ledger import MATCHING, Broken, Ledger
from tests.delivery.store_model import ends_of

BOUND = 8
"""Open messages that a session may have; what arrives beyond them is dead-lettered or dropped."""
REPEATED = frozenset({"commit", "unsubscribe", "close", "end", "hold", "redrive"})


@dataclass
class Request:
    """One step that a server asks the store for; `then` takes the result, or the error."""

    kind: str
    arguments: tuple[Any, ...]
    then: Callable[[Any], None]
    in_doubt: Callable[[], None] | None = None
    """What is done about an unknown outcome, if it is not repeated."""
    was_in_doubt: bool = False


class Server:
    """One process, with what it has in memory."""

    def __init__(
        self, token: str, last: LogId, ledger: Ledger, node: type[LogConsumer], durable: type[DurableSession]
    ) -> None:
        self.token = token
        self.last = last
        self.ledger = ledger
        self.node_class = node
        self.durable_class = durable
        self.node: LogConsumer | None = None
        """None while it adopts."""
        self.records: dict[SessionName, SessionRecord] = {}
        self.requests: deque[Request] = deque()
        self.answers: deque[tuple[Request, Any]] = deque()
        self.later: list[Request] = []
        """To be asked again after an unknown outcome."""
        self.busy: set[tuple[SessionName, str]] = set()
        """Subscriptions that are being changed, and (with "") sessions that come or go."""
        self.unanswered: set[SessionName] = set()
        """Sessions whose login was not answered: the store may have them, and what is redriven to them."""
        self.is_committing = False
        self.applying: Iterator[None] = iter(())
        """The steps that come before the next commit."""
        self.is_asleep = False
        self.is_gone = False
        self._received: dict[DurableSession, set[LogId]] = {}
        self._newest: dict[tuple[DurableSession, str], LogId] = {}
        self._subscriber_sets: dict[str, tuple[int, SubscriberSet[DurableSession]]] = {}
        """By channel, who gets all that comes, and since which version of `LogConsumer.fan_out`."""
        self._sent: dict[DurableSession, list[tuple[LogId, FanOutRecord[DurableSession] | None]]] = {}
        """What the client of a session was sent at once, and has not acknowledged."""
        self._answered: defaultdict[SessionName, set[LogId]] = defaultdict(set)
        """What the clients of this server have said that they have got."""
        self._late: set[DurableSession] = set()
        """Sessions that may find older messages after newer ones, for an outcome was unknown."""

    @property
    def serving(self) -> LogConsumer:
        """The node of a server that has adopted all there was."""
        assert self.node is not None
        return self.node

    @property
    def sessions(self) -> list[DurableSession]:
        """Those that neither come nor go."""
        present = self.serving.sessions.values()
        return [each for each in present if each.ending is None and (each.name, "") not in self.busy]

    def serve(self) -> None:
        """All has been adopted."""
        self.node = self.node_class(self.last)
        self.node.max_changes = 2  # few sessions stand for many: commits are divided
        self.node.max_dead_letters = self.node.max_applied = 1
        for record in self.records.values():
            durable = self.durable_class.adopted(record)
            self.node.add(durable)
            self._received[durable] = {*durable.pending, *durable.inbox}
            self._late.add(durable)
        stored = next((record.owner_cursor for record in reversed(self.records.values())), None)
        self.node.begin_at(self.node_class.starting_cursor(self.records.values(), self.last), stored)

    def _ask(self, kind: str, *arguments: Any, then: Callable[[Any], None], in_doubt: Any = None) -> None:
        self.requests.append(Request(kind, arguments, then, in_doubt))

    def disconnected(self) -> list[Request]:
        """The connection is lost: nobody knows what became of these."""
        in_doubt = [*(request for request, _ in self.answers), *self.requests]
        self.answers.clear()
        self.requests.clear()
        for request in in_doubt:
            self._doubt(request)
        return in_doubt

    def _doubt(self, request: Request) -> None:
        if request.kind in REPEATED:
            request.was_in_doubt = True
            self.later.append(request)
        elif request.in_doubt is not None:
            request.in_doubt()

    def hear(self, request: Request, answer: Any) -> None:
        """The answer has come. A refusal says nothing of what was done before, when the outcome was unknown."""
        if isinstance(answer, StoreUncertain):
            self._doubt(request)
        elif request.was_in_doubt and isinstance(answer, StoreFull):
            self.later.append(request)
        else:
            request.then(answer)

    # Sessions

    def login(self, name: SessionName) -> None:
        self._begin(name, "")

        def answered(answer: int | StoreError) -> None:
            self.busy.discard((name, ""))
            self.unanswered.discard(name)
            if not isinstance(answer, StoreError):
                durable = self.serving.sessions.get(name)
                if durable is None:
                    durable = self.durable_class(name)
                    self.serving.add(durable)
                    self._received[durable] = set()
                durable.reserved(answer + BATCH_BLOCK)
                self._logged_in(durable)

        def in_doubt() -> None:
            self.busy.discard((name, ""))
            self.unanswered.add(name)

        self._ask("login", name, then=answered, in_doubt=in_doubt)

    def _logged_in(self, durable: DurableSession) -> None:
        """A client has the session, with batch numbers of its own."""

    def reserve(self, durable: DurableSession) -> None:
        durable.batch += BATCH_BLOCK
        self.serving.mark_dirty(durable)

    def close(self, durable: DurableSession) -> None:
        self._begin(durable.name, "")
        node = self.serving
        pending = node.unsubscribing(durable, node.patterns(durable))

        def answered(until: LogId | StoreError) -> None:
            if isinstance(until, StoreError):
                self._lost(durable)
                self._expect(durable, node.unanswered(pending))
            else:
                self._expect(
                    durable, node.answered(pending, {each: (since, until) for each, since in pending.since.items()})
                )
                node.ending(durable, until)

        death = () if durable.death is None else (durable.death,)
        self._ask("close", durable.name, *death, then=answered)

    def _end(self, durable: DurableSession) -> None:
        self._begin(durable.name, "")
        self.serving.leave(durable)
        self._end_open(durable)
        ended, letters = durable.take_ended()

        def answered(_: Any) -> None:
            self.busy.discard((durable.name, ""))
            self.serving.drop(durable)

        self._ask("end", durable.name, ended, letters, then=answered)

    def _end_open(self, durable: DurableSession) -> None:
        for number, log_id in enumerate([*durable.pending, *durable.inbox]):
            if number % 2:
                durable.dead_letter(
                    PendingDeadLetter(durable.name, log_id, "communication.noConnection.dead", "the session has ended")
                )
            else:
                durable.end_message(log_id, EndReason.LAPSED)

    def _lost(self, durable: DurableSession) -> None:
        """Another server has this session."""
        self.serving.drop(durable)

    def _begin(self, name: SessionName, pattern: str) -> None:
        self.busy.add((name, pattern))

    # Subscriptions

    def subscribe(self, durable: DurableSession, pattern: str) -> None:
        self._begin(durable.name, pattern)
        node = self.serving
        pending = node.subscribing(durable, [pattern])

        def answered(answer: dict[str, LogId] | StoreError) -> None:
            self.busy.discard((durable.name, pattern))
            known = {} if isinstance(answer, StoreError) else answer
            self._expect(durable, node.answered(pending, {each: (since, None) for each, since in known.items()}))

        def taken_back(answer: dict[str, tuple[LogId, LogId]] | StoreError) -> None:
            self.busy.discard((durable.name, pattern))
            self._expect(durable, node.answered(pending, {} if isinstance(answer, StoreError) else answer))

        take_back = Request("unsubscribe", (durable.name, [pattern]), taken_back, was_in_doubt=True)

        def in_doubt() -> None:
            self._late.add(durable)
            if pattern in durable.since:  # it held before, and goes on
                self.busy.discard((durable.name, pattern))
                self._expect(durable, node.answered(pending, {}))
                return
            self.later.append(take_back)

        self._ask("subscribe", durable.name, [pattern], then=answered, in_doubt=in_doubt)

    def unsubscribe(self, durable: DurableSession, pattern: str) -> None:
        self._begin(durable.name, pattern)
        node = self.serving
        self._late.add(durable)
        pending = node.unsubscribing(durable, [pattern])

        def answered(answer: dict[str, tuple[LogId, LogId]] | StoreError) -> None:
            self.busy.discard((durable.name, pattern))
            if isinstance(answer, StoreError):
                self._expect(durable, node.unanswered(pending))
            else:
                self._expect(durable, node.answered(pending, answer))

        self._ask("unsubscribe", durable.name, [pattern], then=answered)

    def _expect(self, durable: DurableSession, ids: Iterable[LogId]) -> None:
        for log_id in ids:
            self._receive(durable, log_id)
            durable.evict(log_id)

    # Messages

    def publish(self, submissions: list[Submission]) -> None:
        self._ask("append", submissions, then=self._refused)

    def trim(self) -> None:
        self._ask("trim", then=self._refused)

    def _refused(self, answer: Any) -> None:
        """A server that the store knows no more gives up."""
        self.is_gone = self.is_gone or isinstance(answer, Fenced | Behind)

    def take(self, logged: Logged, *, is_bounded: bool) -> None:
        patterns = MATCHING[logged.channel]
        node = self.serving
        known = Entry.read_back(logged)
        waiting = PendingMessage(0, len(logged.body), logged.channel, known.priority, known.expires)
        # As the log appender does: a message that expires is taken session by session, for each has to know when.
        is_usual = is_bounded and logged.id % 4 and not known.expires
        subscriber_set = self._subscriber_set(logged.channel) if is_usual else None
        record = None if subscriber_set is None else node.take_for(subscriber_set, logged.id, waiting)
        if subscriber_set is not None and record is not None:
            for durable in subscriber_set.sessions:
                self._came(durable, logged)
                self._send(durable, logged, record)
            for durable in node.take_closing(subscriber_set, logged.id, patterns, waiting):
                self._came(durable, logged)
                self._deliver(durable, logged, is_bounded=is_bounded)
            return
        hearing = [each for each in node.sessions.values() if not each.since.keys().isdisjoint(patterns)]
        for durable in node.take(logged.id, patterns, waiting, hearing):
            self._came(durable, logged)
            self._deliver(durable, logged, is_bounded=is_bounded)

    def _subscriber_set(self, channel: str) -> SubscriberSet[DurableSession] | None:
        """As `SubscriberCache` has it."""
        node, patterns = self.serving, MATCHING[channel]
        if not node.is_stable:
            return None
        version, former = self._subscriber_sets.get(channel, (-1, None))
        changed = node.fan_out.changes.since(version) if former is not None else None
        members = dict(former.sessions) if changed is not None and former is not None else {}
        for durable in changed or ():
            members.pop(durable, None)
        looked_at = dict.fromkeys(node.sessions.values() if changed is None else changed)
        hearing = [each for each in looked_at if not each.since.keys().isdisjoint(patterns)]
        hearing = [each for each in hearing if node.sessions.get(each.name) is each]
        if not all(node.receives_all(each, patterns) for each in hearing):
            return None
        if former is None or changed is None or changed:
            former = SubscriberSet({each: each.name for each in (*members, *hearing)})
        self._subscriber_sets[channel] = (node.fan_out.changes.version, former)
        return former

    def _came(self, durable: DurableSession, logged: Logged) -> None:
        self._receive(durable, logged.id)
        newest = self._newest.get((durable, logged.channel), 0)
        if newest > logged.id and durable not in self._late:
            raise Broken(f"{logged.id} came to {durable.name} after {newest} of the same channel")
        self._newest[durable, logged.channel] = logged.id

    def _send(
        self, durable: DurableSession, logged: Logged, record: FanOutRecord[DurableSession] | None = None
    ) -> None:
        """It goes out at once, and nobody looks at the session."""
        self._sent.setdefault(durable, []).append((logged.id, record))

    def acknowledge(self) -> None:
        """The clients acknowledge what they were sent at once."""
        for durable, sent in self._sent.items():
            for log_id, record in sent:
                self.serving.acknowledged(durable, log_id, record)
                self._answered[durable.name].add(log_id)
        self._sent.clear()

    def _compare(self, ended: Iterable[Disposition]) -> None:
        """What was acknowledged has ended, and nothing else is settled."""
        for each in ended:
            if each.reason is EndReason.SETTLED and (others := set(each.ids) - self._answered[each.session]):
                raise Broken(f"{sorted(others)} are settled for {each.session}, which has not acknowledged them")
        for durable in self.serving.sessions.values():
            if still := self._answered[durable.name].intersection(durable.pending):
                raise Broken(f"{sorted(still)} are open for {durable.name}, which has acknowledged them")

    def _deliver(self, durable: DurableSession, logged: Logged, *, is_bounded: bool) -> None:
        if is_bounded and len(durable) > BOUND:
            durable.dead_letter(
                PendingDeadLetter(durable.name, logged.id, "resource.overflow.queue.entries", "the queue is full")
            )
        elif len(durable) % 2:
            durable.evict(logged.id)

    def _receive(self, durable: DurableSession, log_id: LogId) -> None:
        if durable.is_fenced:
            return  # nothing that happens to it counts
        if log_id in self._received[durable]:
            raise Broken(f"{log_id} came to {durable.name} twice")
        self._received[durable].add(log_id)
        self.ledger.delivered(durable.name, self.token, log_id)

    def load(self, durable: DurableSession, count: int) -> None:
        ids = durable.load(durable.first_evicted(count))
        if ids != [each for each in durable.in_order() if each in ids] or not all(
            each in durable.pending or each in durable.inbox for each in ids
        ):
            raise Broken(f"{ids} were loaded for {durable.name}, of {[*durable.pending, *durable.inbox]}")

    def settle(self, durable: DurableSession, log_id: LogId) -> None:
        if not durable.end_message(log_id):
            raise Broken(f"{log_id} was open for {durable.name} and could not be settled")
        self._answered[durable.name].add(log_id)
        self.serving.mark_dirty(durable)

    def dead_letter(self, durable: DurableSession, log_id: LogId) -> None:
        durable.dead_letter(
            PendingDeadLetter(durable.name, log_id, "user.update.deadMessage", "the receiver does not want it")
        )
        self.serving.mark_dirty(durable)

    def spill(self, durable: DurableSession, ids: list[LogId]) -> None:
        def answered(answer: list[LogId] | StoreError) -> None:
            if not isinstance(answer, StoreError):
                self.serving.spilled(durable, answer)

        self._ask("spill", durable.name, ids, then=answered)

    # Commits

    def book(self) -> None:
        """Do one step of what comes before a commit, or begin with it."""
        if not self.is_committing and next(self.applying, self) is self:
            self.applying = self.serving.apply_in_steps()

    def commit(self) -> None:
        if self.is_committing:
            return
        node = self.serving
        for _ in self.applying:
            pass
        was_divided = node.is_divided
        self._look_for_holders(node)
        commit = node.commit()
        self._compare([] if commit is None else ends_of(commit))
        self._look_after_letters(node, commit)
        if commit is None and not (was_divided or node.is_divided):
            self._look_for_more(node)
        if commit is not None:
            self.is_committing = True
            self._ask("commit", commit, then=lambda answer: self._committed(commit, answer))

    def _look_for_holders(self, node: LogConsumer) -> None:
        """Each session that has something pending is among those that may have it. No session is asked: it would apply its
        records."""
        for durable in node.sessions.values():
            records = [each for each in node.fan_out.records if each.number > durable.applied_number]
            ahead = [each.id for each in records if durable in each.unacknowledged]
            for log_id in (*durable.applied, *durable.applied_inbox, *durable.notices, *ahead):
                if durable not in node.holders(log_id):
                    raise Broken(f"{log_id} is open for {durable.name}, which is not among those that may have it")

    def _look_after_letters(self, node: LogConsumer, commit: Commit | None) -> None:
        """No commit has more letters than it may, the next one follows at once while there are more, and all are counted."""
        if commit is not None and len(commit.dead_letters) > node.max_dead_letters:
            raise Broken(f"{len(commit.dead_letters)} letters are in one commit")
        if commit is not None and node._withholding and not node.has_more:
            raise Broken("letters are withheld, and no commit follows at once")
        pending = sum(
            each.dead_letters.due + each.dead_letters.withheld for each in node.sessions.values() if each.dead_letters
        )
        if node.fan_out.dead_letters.size != pending:
            raise Broken(f"{pending} letters are pending, and {node.fan_out.dead_letters.size} are counted")

    def _look_for_more(self, node: LogConsumer) -> None:
        """There is nothing to commit: then the store knows of all that has ended up to the cursor."""
        for durable in node.sessions.values():
            letters = durable.dead_letters
            # A letter may wait behind one that the cursor has not passed.
            is_blocked = letters is not None and letters.withheld and letters._letters[0].id > node._committed
            withheld = letters.withheld_messages.keys() if letters is not None and is_blocked else set()
            ended = durable._stored.keys() - durable.pending.keys() - withheld
            if late := [each for each in ended if each <= node._committed]:
                raise Broken(f"{late} have ended for {durable.name}, and no commit tells it")

    def _committed(self, commit: Commit, answer: list[SessionName] | StoreError) -> None:
        self.is_committing = False
        if isinstance(answer, StoreError):
            self.is_gone = True
            return
        for name in answer:
            if name in self.serving.sessions:
                self._lost(self.serving.sessions[name])
        for durable in self.serving.committed(commit):
            self._end(durable)
