"""The engine, the servers and the store with one rule of the scheme taken out each.

`test_interleavings.py` shows that each is noticed: a run that finds nothing wrong with these would prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Set
from typing import Any, NamedTuple

from crewel.delivery.changes import Changes
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.fan_out_buffer import FanOutBuffer, FanOutRecord, SubscriberSet
from crewel.delivery.log_consumer import LogConsumer
from crewel.delivery.records import (
    Change,
    Commit,
    Disposition,
    LogId,
    PendingDeadLetter,
    PendingMessage,
    SessionName,
    SessionRecord,
    Settled,
)
from crewel.delivery.subscription_request import SubscriptionRequest
from crewel.errors import StoreFull
from tests.delivery.server_model import Request, Server
from tests.delivery.store_model import NodeRow, SessionRow, StoreModel, ends_of

FAR = LogId(10**9)


class Mutation(NamedTuple):
    """One rule taken out."""

    rule: str
    node: type[LogConsumer] = LogConsumer
    durable: type[DurableSession] = DurableSession
    server: type[Server] = Server
    store: Callable[[], StoreModel] = StoreModel
    first: int = 0
    """The seed to begin with, so that it is noticed soon."""


# Rules of the node


class PassesPending(LogConsumer):
    def subscribing(self, durable: DurableSession, patterns: Collection[str]) -> SubscriptionRequest:
        pending = super().subscribing(durable, patterns)
        pending.cursor = FAR
        return pending


class SeesNothingPending(LogConsumer):
    def answered(self, pending: SubscriptionRequest, intervals: Any) -> list[LogId]:
        pending.seen.clear()
        return super().answered(pending, intervals)


class GivesAgainWhatIsSeen(LogConsumer):
    def _forget_seen(self, durable: DurableSession, missed: Collection[LogId]) -> None:
        pass


class NeedsNothingOpen(LogConsumer):
    def _low_watermarks(self) -> Iterable[LogId]:
        return ()


class ForgetsWhatIsDirty(LogConsumer):
    def mark_dirty(self, durable: DurableSession) -> None:
        if len(durable) % 3:
            super().mark_dirty(durable)


class LooksForHoldersInTheLog(LogConsumer):
    def holders(self, log_id: LogId) -> Iterator[DurableSession]:
        self._outside_log.clear()
        return super().holders(log_id)


class LooksForHoldersOfBefore(LogConsumer):
    def holders(self, log_id: LogId) -> Iterator[DurableSession]:
        return (each for each in super().holders(log_id) if each not in self._dirty)


class LooksForHoldersOutsideCommits(LogConsumer):
    def holders(self, log_id: LogId) -> Iterator[DurableSession]:
        under_way = [each for each in self._todo if each not in self._first_needed]
        return (each for each in super().holders(log_id) if each not in under_way)


class EndsInOneStep(LogConsumer):
    def committed(self, commit: Commit) -> list[DurableSession]:
        super().committed(commit)
        return [each for each in self.closing if each.ending is not None]


class LeavesAtOnce(LogConsumer):
    def leave(self, durable: DurableSession) -> None:
        self.drop(durable)


class StartsAtTheEnd(LogConsumer):
    @staticmethod
    def starting_cursor(records: Iterable[SessionRecord], last: LogId) -> LogId:
        return last


class TakesNothingClosing(LogConsumer):
    def _take_hidden(
        self, log_id: LogId, patterns: Collection[str], waiting: PendingMessage, found: Set[DurableSession]
    ) -> list[DurableSession]:
        for durable, group in self._requests.items():
            if durable not in found:
                for pending in group:
                    pending.seen.append((log_id, patterns, waiting))
        return []


class LetsSubscribesOverrule(LogConsumer):
    def _ends_soon(self, pending: SubscriptionRequest, pattern: str, since: LogId) -> bool:
        return False


class CommitsBeforeApplying(LogConsumer):
    def _bulk_acknowledgements(self) -> tuple[Settled, ...]:
        self.fan_out.clear()
        return ()


class PassesAppliedSessions(LogConsumer):
    def __init__(self, last: LogId) -> None:
        super().__init__(last)
        self.fan_out = ForgetsAppliedSessions()


class PassesWhoLacks(LogConsumer):
    def __init__(self, last: LogId) -> None:
        super().__init__(last)
        self.fan_out = ForgetsWhoLacks()


class RecordsForAppliedSessions(LogConsumer):
    def acknowledged(self, durable: DurableSession, log_id: LogId, record: FanOutRecord[DurableSession] | None) -> None:
        if record is not None:
            record.unacknowledged.discard(durable)
        else:
            super().acknowledged(durable, log_id, record)


class AppliesInSilence(LogConsumer):
    def _regroup(self, durable: DurableSession) -> None:
        super()._regroup(durable)
        durable.dirty_on_acknowledge = False


class KeepsSubscriberSets(LogConsumer):
    def mark_dirty(self, durable: DurableSession) -> None:
        super().mark_dirty(durable)
        self.fan_out.changes = Silent()


class Silent(Changes[DurableSession]):
    """Changes that nothing is noted in."""

    def note(self, item: DurableSession) -> None:
        pass


class TakesForAllButThoseThatClose(LogConsumer):
    def take_closing(
        self,
        subscribers: SubscriberSet[DurableSession],
        log_id: LogId,
        patterns: Collection[str],
        waiting: PendingMessage,
    ) -> list[DurableSession]:
        return []


class TakesForAllBesideOthers(LogConsumer):
    @property
    def is_stable(self) -> bool:
        return True


class MovesToWhereverItIs(LogConsumer):
    def _last_part(self) -> Commit | None:
        self._target = self.cursor
        return super()._last_part()


class MovesWithoutWhoIsAhead(LogConsumer):
    def _last_part(self) -> Commit | None:
        ahead, self._uncommitted = self._uncommitted, {}
        commit = super()._last_part()
        self._uncommitted |= ahead
        return commit


class NeedsWhatIsOpenNow(LogConsumer):
    def _low_watermarks(self) -> Iterable[LogId]:
        for durable in self._first_needed:
            self._first_needed[durable] = durable.first_needed or FAR
        return super()._low_watermarks()


class ForgetsWhatItWithholds(LogConsumer):
    def _withheld_dead_letters(self) -> Commit | None:
        return None


class WithholdsNothing(LogConsumer):
    def _begin(self) -> bool:
        begun = super()._begin()
        self._withholds = False
        return begun


class RestsBetweenLetters(LogConsumer):
    def commit(self) -> Commit | None:
        commit = super().commit()
        self.has_more = self.is_divided
        return commit


class PassesAppliedInSteps(FanOutBuffer[DurableSession]):
    def discard(self, upto: int, others: Set[DurableSession]) -> list[Settled]:
        return super().discard(upto, others & self.applied.keys())


class AppliesInStepsAndPasses(LogConsumer):
    def __init__(self, last: LogId) -> None:
        super().__init__(last)
        self.fan_out = PassesAppliedInSteps()


class ForgetsWhoIsLeftBehind(LogConsumer):
    def apply_in_steps(self) -> Iterator[None]:
        yield from super().apply_in_steps()
        self._discarded = []


class CountsWhatHasGone(LogConsumer):
    def drop(self, durable: DurableSession) -> None:
        letters, durable.dead_letters = durable.dead_letters, None
        super().drop(durable)
        durable.dead_letters = letters


# Rules of the session


class WithholdsWithoutOpening(DurableSession):
    def take_change(self, cursor: LogId, committed: LogId) -> Change | None:
        letters, self.dead_letters = self.dead_letters, None
        change = super().take_change(cursor, committed)
        self.dead_letters = letters
        return change


class OpensWhatWasSpilled(DurableSession):
    def _open_changes(self, through: LogId) -> tuple[dict[LogId, PendingMessage], tuple[LogId, ...], tuple[LogId, ...]]:
        opened, settled, removed = super()._open_changes(through)
        if self.dead_letters is not None:
            kept = self.dead_letters.withheld_messages
            opened |= {each: kept[each] for each in kept if each in self._stored_inbox}
        return opened, settled, removed


class ReleasesAhead(DurableSession):
    def take_ended(
        self, through: LogId | None = None, most: int = 0
    ) -> tuple[list[Disposition], list[PendingDeadLetter]]:
        return super().take_ended(FAR if most else through, most)


class NeedsNothingForLetters(DurableSession):
    @property
    def first_needed(self) -> LogId | None:
        return next(iter(self.pending), None)


class SettlesBeforeItTakes(DurableSession):
    def apply_pending(self) -> None:
        acknowledged, self.acknowledged = self.acknowledged, []
        for log_id in acknowledged:
            self.applied.pop(log_id, None)
        super().apply_pending()


class SettlesAllThatWasTaken(DurableSession):
    def _apply(self, fan_out: FanOutBuffer[DurableSession]) -> None:
        for record in fan_out.records:
            record.unacknowledged.discard(self)
        super()._apply(fan_out)


class AppliesAgain(DurableSession):
    def _apply(self, fan_out: FanOutBuffer[DurableSession]) -> None:
        self.applied_number = 0
        super()._apply(fan_out)


class TakesForEverybody(DurableSession):
    def _apply(self, fan_out: FanOutBuffer[DurableSession]) -> None:
        for record in fan_out.records:
            if self not in record.subscribers.sessions:
                record.unacknowledged.add(self)
        super()._apply(fan_out)


class SettlesForEverybody(DurableSession):
    def _apply(self, fan_out: FanOutBuffer[DurableSession]) -> None:
        for record in fan_out.records:
            if self not in record.unacknowledged:
                record.subscribers = SubscriberSet({**record.subscribers.sessions, self: self.name})
        super()._apply(fan_out)


class ForgetsAppliedSessions(FanOutBuffer[DurableSession]):
    def sessions_to_apply(self) -> dict[DurableSession, None]:
        self.applied.clear()
        return super().sessions_to_apply()

    def discard(self, upto: int, others: Set[DurableSession]) -> list[Settled]:
        self.applied.clear()
        return super().discard(upto, others)


class ForgetsWhoLacks(FanOutBuffer[DurableSession]):
    def sessions_to_apply(self) -> dict[DurableSession, None]:
        return dict(self.applied)


class BelievesInSubscriptions(DurableSession):
    def receives_all(self, patterns: Collection[str], cursor: LogId) -> bool:
        return True


class PassesItsOwnCursor(DurableSession):
    def take_change(self, cursor: LogId, committed: LogId) -> Change | None:
        return super().take_change(max(cursor, self.own_cursor), committed)


class ForgetsIntervalsEarly(DurableSession):
    def take_change(self, cursor: LogId, committed: LogId) -> Change | None:
        return super().take_change(cursor, FAR)


class EndsAhead(DurableSession):
    def last_reportable(self, cursor: LogId) -> LogId:
        return FAR


class WantsAgainWhatEndedAhead(DurableSession):
    def wants(self, patterns: Collection[str], log_id: LogId) -> bool:
        stored, inbox = self._stored, self._stored_inbox
        self._stored, self._stored_inbox = {}, {}
        wanted = super().wants(patterns, log_id)
        self._stored, self._stored_inbox = stored, inbox
        return wanted


class IgnoresItsOwnCursor(DurableSession):
    @classmethod
    def adopted(cls, record: SessionRecord) -> DurableSession:
        durable = super().adopted(record)
        durable.own_cursor = LogId(0)
        return durable


class EvictsOutOfOrder(DurableSession):
    def evict(self, log_id: LogId) -> None:
        self.evicted.insert(0, log_id)


# Rules of the server


class GivesUpOnUnsubscribe(Server):
    """Takes an unsubscribe of which it knows nothing for one that was not done."""

    def disconnected(self) -> list[Request]:
        in_doubt = super().disconnected()
        for request in [each for each in self.later if each.kind == "unsubscribe"]:
            self.later.remove(request)
            request.then(StoreFull("nobody knows"))
        return in_doubt


class GivesUpOnSubscribe(Server):
    """Takes a subscribe of which it knows nothing for one that was not done."""

    def disconnected(self) -> list[Request]:
        before = [*self.later]
        in_doubt = super().disconnected()
        asked = [id(each) for each in in_doubt]
        for request in [each for each in self.later if each not in before and id(each) not in asked]:
            self.later.remove(request)
            request.then(StoreFull("nobody knows"))
        return in_doubt


class CommitsAnew(Server):
    """Makes another commit when it does not know whether the last one was applied."""

    def disconnected(self) -> list[Request]:
        in_doubt = super().disconnected()
        for request in [each for each in self.later if each.kind == "commit"]:
            self.later.remove(request)
            self.is_committing = False
            self.serving._number -= 1
        return in_doubt


class SpillsEarly(Server):
    """Lets the log go on before the store has copied what is open."""

    def spill(self, durable: DurableSession, ids: list[LogId]) -> None:
        super().spill(durable, ids)
        self.serving.spilled(durable, ids)


class FreesNamesEarly(Server):
    """Lets a client log in under the name of a session whose end is not answered."""

    def _end(self, durable: DurableSession) -> None:
        super()._end(durable)
        self.busy.discard((durable.name, ""))


# Rules of the store


class FencesNobody(StoreModel):
    def _is_owner(self, token: str, name: SessionName) -> bool:
        return name in self.contents.sessions


class ForgetsOwnCursors(StoreModel):
    def _place_of(self, record: SessionRecord, theirs: NodeRow, mine: NodeRow) -> LogId | None:
        return theirs.cursor


class TakesTheAdoptersCursor(StoreModel):
    def _place_of(self, record: SessionRecord, theirs: NodeRow, mine: NodeRow) -> LogId | None:
        return mine.cursor


class AdoptsWithoutLowering(StoreModel):
    def _lower(self, mine: NodeRow, theirs: NodeRow) -> None:
        pass


class CountsNoCommits(StoreModel):
    def commit(self, token: str, commit: Commit) -> list[SessionName]:
        self._node(token).number = commit.number - 1
        return super().commit(token, commit)


class AnswersARepetitionAlone(StoreModel):
    def commit(self, token: str, commit: Commit) -> list[SessionName]:
        is_repeated = self._node(token).number == commit.number
        return [] if is_repeated else super().commit(token, commit)


class NotesForOthers(StoreModel):
    """Writes facts and letters of sessions that the server does not own."""

    def commit(self, token: str, commit: Commit) -> list[SessionName]:
        applied = self._node(token).number == commit.number
        fenced = super().commit(token, commit)
        if not applied:
            self.contents.ended += [each for each in ends_of(commit) if each.session in fenced]
        return fenced


class SpillsNothing(StoreModel):
    def _box(self, row: SessionRow, log_id: LogId, waiting: PendingMessage) -> None:
        row.record.inbox[log_id] = waiting


class LeavesWhatWasSpilled(StoreModel):
    """Removes a settled message from where the server believes it to be only."""

    def _change(self, row: SessionRow, change: Change, cursor: LogId) -> None:
        inbox = {each: row.record.inbox[each] for each in change.settled if each in row.record.inbox}
        bodies = {each: row.bodies[each] for each in inbox}
        super()._change(row, change, cursor)
        row.record.inbox |= inbox
        row.bodies |= bodies


class TrimsTooMuch(StoreModel):
    def trim(self, token: str) -> int:
        for node in self.contents.nodes.values():
            node.low = LogId(node.low + 1)
        return super().trim(token)


class TrimsForItself(StoreModel):
    def trim(self, token: str) -> int:
        nodes, low = self.contents.nodes, self._node(token).low
        lows = {token: node.low for token, node in nodes.items()}
        for node in nodes.values():
            node.low = low
        trimmed = super().trim(token)
        for other, node in nodes.items():
            node.low = lows[other]
        return trimmed


class UnsubscribesOnce(StoreModel):
    """Says nothing when it is asked again about a subscription that has ended."""

    def unsubscribe(self, token: str, name: SessionName, patterns: Iterable[str]) -> dict[str, tuple[LogId, LogId]]:
        held = [each for each in patterns if each in self._fence(token, name).record.subscriptions]
        return super().unsubscribe(token, name, held)


class SubscribesAnew(StoreModel):
    def subscribe(self, token: str, name: SessionName, patterns: Iterable[str]) -> dict[str, LogId]:
        patterns = [*patterns]
        for each in patterns:
            self._fence(token, name).record.subscriptions.pop(each, None)
        return super().subscribe(token, name, patterns)


class ClosesAgain(StoreModel):
    def close(self, token: str, name: SessionName) -> LogId:
        self._fence(token, name).record.ending = None
        return super().close(token, name)


class ReusesBatches(StoreModel):
    def adopt(self, token: str, count: int) -> list[SessionRecord]:
        records = super().adopt(token, count)
        for record in records:
            record.batch -= 1000
            self.contents.sessions[record.name].record.batch -= 1000
        return records


MUTATIONS = (
    Mutation("no commit passes a pending subscribe", node=PassesPending, first=13),
    Mutation("what is taken while a subscribe is pending is remembered", node=SeesNothingPending, first=2),
    Mutation("what one subscription has found another does not give again", node=GivesAgainWhatIsSeen, first=57),
    Mutation("an unsubscribe decides about a subscribe before it", node=LetsSubscribesOverrule, first=24),
    Mutation("low is what open messages need, not the cursor", node=NeedsNothingOpen, first=32),
    Mutation("every changed session is in the commit", node=ForgetsWhatIsDirty, first=18),
    Mutation("a session with something outside the log is found by it", node=LooksForHoldersInTheLog, first=44),
    Mutation("a session that has changed since the last commit is found", node=LooksForHoldersOfBefore, first=32),
    Mutation("a session that waits for its part of a commit is found", node=LooksForHoldersOutsideCommits, first=40),
    Mutation("a session ends when the cursor has passed its last entry", node=EndsInOneStep),
    Mutation("what is open for an ending session keeps the log", node=LeavesAtOnce, first=1777),
    Mutation("a node starts at the lowest cursor of its sessions", node=StartsAtTheEnd, first=2),
    Mutation("closed intervals are taken until they are passed", node=TakesNothingClosing),
    Mutation("a commit applies first what was taken for many", node=CommitsBeforeApplying, first=2),
    Mutation("a subscriber set follows what has changed", node=KeepsSubscriberSets, first=32),
    Mutation("what is taken for a subscriber set is taken for closed intervals too", node=TakesForAllButThoseThatClose),
    Mutation(
        "nothing is taken for a subscriber set while subscriptions close", node=TakesForAllBesideOthers, first=969
    ),
    Mutation("the cursor goes to where a divided commit began", node=MovesToWhereverItIs, first=2),
    Mutation("what has ended ahead of the cursor is told when it moves", node=MovesWithoutWhoIsAhead),
    Mutation("what has ended keeps the log until it is told", node=NeedsWhatIsOpenNow, first=18),
    Mutation("dead letters that are withheld are stored", node=ForgetsWhatItWithholds, first=316),
    Mutation("letters beyond what a commit may have are withheld", node=WithholdsNothing),
    Mutation("commits follow each other while letters are withheld", node=RestsBetweenLetters),
    Mutation("a session that applied in steps is not passed", node=AppliesInStepsAndPasses, first=18),
    Mutation("a session that is discarded in steps has settled", node=ForgetsWhoIsLeftBehind, first=355),
    Mutation("letters of a session that has gone are not counted", node=CountsWhatHasGone, first=48),
    Mutation("the message of a letter that is withheld is open", durable=WithholdsWithoutOpening),
    Mutation("what was spilled is not opened a second time", durable=OpensWhatWasSpilled, first=386),
    Mutation("a letter that is withheld waits for the cursor", durable=ReleasesAhead, first=25),
    Mutation("a letter that is not told keeps its message in the log", durable=NeedsNothingForLetters, first=54),
    Mutation("what was taken is applied before what was acknowledged", durable=SettlesBeforeItTakes, first=44),
    Mutation("nothing is settled but what was acknowledged", durable=SettlesAllThatWasTaken, first=32),
    Mutation("a session that has applied a message settles it itself", node=RecordsForAppliedSessions, first=48),
    Mutation("a session that has applied a message is not passed", node=PassesAppliedSessions, first=6931),
    Mutation("a session with an open record is not passed", node=PassesWhoLacks, first=444),
    Mutation("a session that settles what it has applied is in the commit", node=AppliesInSilence, first=602),
    Mutation("what a session has applied it does not apply again", durable=AppliesAgain, first=60),
    Mutation("a message is applied by its subscribers only", durable=TakesForEverybody, first=18),
    Mutation("a message is settled by its subscribers only", durable=SettlesForEverybody, first=18),
    Mutation("in a subscriber set are only sessions that receive all", durable=BelievesInSubscriptions, first=1),
    Mutation("`at` stays until the node has reached it", durable=PassesItsOwnCursor, first=116),
    Mutation("an adopted session takes nothing up to `at`", durable=IgnoresItsOwnCursor, first=116),
    Mutation("an interval is forgotten when the stored cursor has passed it", durable=ForgetsIntervalsEarly, first=9),
    Mutation("an end is told when the cursor is there", durable=EndsAhead, first=24),
    Mutation("what ended ahead of the cursor is not taken again", durable=WantsAgainWhatEndedAhead, first=2),
    Mutation("evicted messages come in the order of the log", durable=EvictsOutOfOrder, first=20),
    Mutation("an unsubscribe in doubt is asked again", server=GivesUpOnUnsubscribe, first=15),
    Mutation("a subscribe in doubt is taken back", server=GivesUpOnSubscribe, first=15),
    Mutation("a commit in doubt is repeated as it was", server=CommitsAnew, first=49),
    Mutation("a name is free when the end of its session is answered", server=FreesNamesEarly, first=1240),
    Mutation("spilled messages are let go when they are copied", server=SpillsEarly, first=26),
    Mutation("only its owner changes a session", store=FencesNobody),
    Mutation("`at` is kept when a session is adopted again", store=ForgetsOwnCursors, first=2),
    Mutation("`at` is the cursor of the dead node", store=TakesTheAdoptersCursor, first=2),
    Mutation("adopting lowers low", store=AdoptsWithoutLowering, first=40),
    Mutation("a commit is applied once", store=CountsNoCommits, first=13),
    Mutation("a repeated commit names the sessions of others again", store=AnswersARepetitionAlone, first=1368),
    Mutation("ends that a stranger tells are not noted", store=NotesForOthers, first=41),
    Mutation("spilling copies the body", store=SpillsNothing, first=13),
    Mutation("what has settled leaves the inbox too", store=LeavesWhatWasSpilled, first=563),
    Mutation("the log is trimmed up to low", store=TrimsTooMuch, first=18),
    Mutation("the log is trimmed to the low of all nodes", store=TrimsForItself, first=90),
    Mutation("an unsubscribe asked again answers the same", store=UnsubscribesOnce, first=9),
    Mutation("a subscription that holds keeps its beginning", store=SubscribesAnew, first=4),
    Mutation("a session closes once", store=ClosesAgain, first=25),
    Mutation("batch numbers are never used twice", store=ReusesBatches),
)
