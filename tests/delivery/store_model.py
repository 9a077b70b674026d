"""A small model of the store: each method is what one script does, in one atomic step, on plain values.

`tests/storage/test_interleavings.py` compares it step by step with the scripts on a real store. `snapshot` and `lose` stand
for a store that comes back without its newest writes; the clock, from which log ids are made, goes on all the same.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from crewel.delivery.records import (
    BATCH_BLOCK,
    Change,
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
from crewel.errors import Behind, Fenced, StoreUnavailable
from tests.delivery.ledger import Broken

START = LogId(0)


def ends_of(commit: Commit) -> list[Disposition]:
    """How messages ended, session by session."""
    alike = [Disposition(name, EndReason.SETTLED, each.ids) for each in commit.settled for name in each.sessions]
    return [*alike, *commit.ended]


@dataclass
class NodeRow:
    """What `node:<token>` and `own:<token>` hold."""

    cursor: LogId
    low: LogId
    number: int = 0
    own: set[SessionName] = field(default_factory=set)
    fenced: list[SessionName] = field(default_factory=list)
    """What the last commit was answered with."""


@dataclass
class SessionRow:
    """What `s:<session>` and `inbox:<session>` hold."""

    owner: str
    record: SessionRecord
    bodies: dict[LogId, Logged] = field(default_factory=dict)


@dataclass
class Contents:
    """All keys, and what the newest steps have written into `facts` and `dead`."""

    last: LogId = START
    log: dict[LogId, Logged] = field(default_factory=dict)
    nodes: dict[str, NodeRow] = field(default_factory=dict)
    sessions: dict[SessionName, SessionRow] = field(default_factory=dict)
    ended: list[Disposition] = field(default_factory=list)
    letters: list[PendingDeadLetter] = field(default_factory=list)


class StoreModel:
    """The store. Its methods raise Fenced and Behind as the scripts' answers do."""

    def __init__(self) -> None:
        self.contents = Contents()
        self.clock = 0
        self.chosen: set[SessionName] | None = None
        """The sessions that `adopt` may take for its slice; the scripts take any."""
        self._saved = copy.deepcopy(self.contents)

    # Losing what was not synced

    def snapshot(self) -> None:
        """Everything up to here is on the disk."""
        self._saved = copy.deepcopy(self.contents)

    def lose(self) -> None:
        """The store dies, and comes back with what was on the disk."""
        self.contents = copy.deepcopy(self._saved)

    # The log

    def append(self, token: str, submissions: Sequence[Submission]) -> tuple[LogId, list[LogId]]:
        self._node(token)
        prev = self.contents.last
        ids = []
        for each in submissions:
            self.clock += 1
            log_id = LogId(max(self.contents.last + 1, self.clock))
            self.contents.last = log_id
            self.contents.log[log_id] = Logged(log_id, each.channel, each.body, each.sender, each.excluded, each.qos)
            ids.append(log_id)
        return prev, ids

    def read(self, after: LogId, count: int) -> list[Logged]:
        # a dict keeps the order of the log
        return [logged for log_id, logged in self.contents.log.items() if log_id > after][:count]

    def last(self) -> LogId:
        return self.contents.last

    def trim(self, token: str) -> int:
        self._node(token)
        low = min(node.low for node in self.contents.nodes.values())
        gone = [log_id for log_id in self.contents.log if log_id <= low]
        for log_id in gone:
            del self.contents.log[log_id]
        return len(gone)

    # Nodes

    def boot(self, token: str) -> LogId:
        last = self.contents.last
        self.contents.nodes[token] = NodeRow(last, last)
        return last

    def adopt(self, token: str, count: int) -> list[SessionRecord]:
        mine = self._node(token)
        records: list[SessionRecord] = []
        if not mine.own:
            mine.cursor = min([mine.cursor, *(each.cursor for each in self.contents.nodes.values() if each.own)])
        for other, node in sorted(self.contents.nodes.items()):
            if other == token:
                continue
            self._lower(mine, node)
            names = sorted(node.own if self.chosen is None else node.own & self.chosen)
            for name in names[: count - len(records)]:
                records.append(self._move(name, node, mine, token))
            if not node.own:
                del self.contents.nodes[other]
        return records

    def _move(self, name: SessionName, theirs: NodeRow, mine: NodeRow, token: str) -> SessionRecord:
        row = self.contents.sessions[name]
        row.owner = token
        theirs.own.remove(name)
        mine.own.add(name)
        place = self._place_of(row.record, theirs, mine)
        row.record.own_cursor = None if place == mine.cursor else place
        row.record.batch += BATCH_BLOCK
        return replace(copy.deepcopy(row.record), own_cursor=place, owner_cursor=mine.cursor)

    def _place_of(self, record: SessionRecord, theirs: NodeRow, mine: NodeRow) -> LogId:
        return theirs.cursor if record.own_cursor is None else record.own_cursor

    def _lower(self, mine: NodeRow, theirs: NodeRow) -> None:
        mine.low = min(mine.low, theirs.low)

    # Sessions

    def login(self, token: str, name: SessionName) -> int:
        node = self._node(token)
        row = self.contents.sessions.get(name)
        if row is None:
            self.contents.sessions[name] = SessionRow(token, SessionRecord(name, {}, batch=BATCH_BLOCK))
            node.own.add(name)
            return 0
        if self._fence(token, name).record.ending is not None:
            raise StoreUnavailable
        row.record.batch += BATCH_BLOCK
        return row.record.batch - BATCH_BLOCK

    def subscribe(self, token: str, name: SessionName, patterns: Iterable[str]) -> dict[str, LogId]:
        record = self._fence(token, name).record
        if record.ending is not None:
            return {}
        return {each: record.subscriptions.setdefault(each, self.contents.last) for each in patterns}

    def unsubscribe(self, token: str, name: SessionName, patterns: Iterable[str]) -> dict[str, tuple[LogId, LogId]]:
        """Asked again, it answers the same: the newest interval of a pattern that is closed already."""
        record = self._fence(token, name).record
        intervals = {}
        for each in patterns:
            since = record.subscriptions.pop(each, None)
            past = [(start, until) for pattern, start, until in record.closed if pattern == each]
            if since is not None:
                self._end_interval(record, each, since)
                intervals[each] = (since, self.contents.last)
            elif past:
                intervals[each] = max(past)
        return intervals

    def close(self, token: str, name: SessionName, death: tuple[str, str] | None = None) -> LogId:
        record = self._fence(token, name).record
        if record.ending is None:
            record.ending = self.contents.last
            record.death = death
            for each, since in record.subscriptions.items():
                self._end_interval(record, each, since)
            record.subscriptions.clear()
        return record.ending

    def _end_interval(self, record: SessionRecord, pattern: str, since: LogId) -> None:
        if since < self.contents.last:
            record.closed.append((pattern, since, self.contents.last))

    def end(
        self, token: str, name: SessionName, ended: Sequence[Disposition], letters: Sequence[PendingDeadLetter]
    ) -> None:
        if name not in self.contents.sessions:
            return  # it was done before
        row = self._fence(token, name)
        self._note(row, ended, letters)
        del self.contents.sessions[name]
        for node in self.contents.nodes.values():
            node.own.discard(name)

    def spill(self, token: str, name: SessionName, ids: Iterable[LogId]) -> list[LogId]:
        """Asked again, it answers the same: those of the ids that lie in the inbox now."""
        row = self._fence(token, name)
        for log_id in ids:
            waiting = row.record.pending.pop(log_id, None)
            if waiting is not None:
                self._box(row, log_id, waiting)
        return [each for each in ids if each in row.record.inbox]

    def _box(self, row: SessionRow, log_id: LogId, waiting: PendingMessage) -> None:
        row.bodies[log_id] = self.contents.log[log_id]
        row.record.inbox[log_id] = waiting

    def commit(self, token: str, commit: Commit) -> list[SessionName]:
        node = self._node(token)
        if node.number == commit.number:
            return node.fenced
        if node.number != commit.number - 1:
            raise Behind
        node.number, node.cursor, node.low = commit.number, commit.cursor, commit.low
        ends = ends_of(commit)
        names = {*(each.name for each in commit.changes), *(each.session for each in ends)}
        fenced = sorted(each for each in names if not self._is_owner(token, each))
        for name in names.difference(fenced):
            row = self.contents.sessions[name]
            ended = [each for each in ends if each.session == name]
            self._note(row, ended, [each for each in commit.dead_letters if each.session == name])
        for change in commit.changes:
            if change.name not in fenced:
                self._change(self.contents.sessions[change.name], change, commit.cursor)
        node.fenced = fenced
        return fenced

    def _change(self, row: SessionRow, change: Change, cursor: LogId) -> None:
        record = row.record
        record.pending |= change.opened
        for log_id in (*change.settled, *change.removed):
            # a spill may have been under way when it settled: it is gone from wherever it lies
            record.pending.pop(log_id, None)
            record.inbox.pop(log_id, None)
            row.bodies.pop(log_id, None)
        record.closed = [each for each in record.closed if each[2] > cursor or each[:2] not in change.forgotten]
        if change.caught_up:
            record.own_cursor = None
        if change.batch is not None:
            record.batch = max(record.batch, change.batch)

    def _note(self, row: SessionRow, ended: Iterable[Disposition], letters: Iterable[PendingDeadLetter]) -> None:
        """Facts and letters."""
        self.contents.ended += ended
        for letter in letters:
            if not (letter.message or row.bodies.get(letter.id) or self.contents.log.get(letter.id)):
                raise Broken(f"the letter of {letter.id} to {letter.session} has no body")
            self.contents.letters.append(letter)

    # Fencing

    def _node(self, token: str) -> NodeRow:
        node = self.contents.nodes.get(token)
        if node is None:
            raise Fenced
        return node

    def _is_owner(self, token: str, name: SessionName) -> bool:
        row = self.contents.sessions.get(name)
        return row is not None and row.owner == token

    def _fence(self, token: str, name: SessionName) -> SessionRow:
        if not self._is_owner(token, name):
            raise Fenced
        return self.contents.sessions[name]

    # For who looks on

    def take_notes(self) -> tuple[list[Disposition], list[PendingDeadLetter]]:
        """What was written into facts and letters since this was asked last."""
        contents = self.contents
        ended, letters = contents.ended, contents.letters
        contents.ended, contents.letters = [], []
        return ended, letters

    def sessions(self) -> dict[SessionName, tuple[str, SessionRecord]]:
        return {name: (row.owner, row.record) for name, row in self.contents.sessions.items()}

    def cursor(self, token: str) -> LogId:
        return self.contents.nodes[token].cursor

    def has_body(self, name: SessionName, log_id: LogId) -> bool:
        record = self.contents.sessions[name]
        return (record.bodies if log_id in record.record.inbox else self.contents.log).get(log_id) is not None
