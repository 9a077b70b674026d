"""The real scripts on a real store, behind the small interface of the random interleavings (tests/delivery)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import orjson
import redis
from redis.exceptions import NoScriptError

from crewel.delivery.records import (
    Commit,
    Disposition,
    EndReason,
    Logged,
    LogId,
    PendingDeadLetter,
    SessionName,
    SessionRecord,
    Submission,
)
from crewel.errors import StoreUncertain
from crewel.storage import log, node_leases, session_store
from crewel.storage.keys import Keys
from crewel.storage.script_step import Step, scripts
from tests.delivery.ledger import Broken
from tests.storage.owner import PROCESS
from tests.store_process import own_prefix

BOUND = 1_000_000
"""Of facts and letters: none is lost."""


class RealStore:
    """The scripts, under a prefix of its own. `breaks` tells when the connection is lost between the parts of a commit."""

    def __init__(self, client: redis.Redis, breaks: random.Random | None = None) -> None:
        self.keys = Keys(own_prefix())
        self._client: Any = client
        self._breaks = breaks
        self._facts_read = self._letters_read = b"0"
        self._in_log: set[LogId] = set()
        self._in_inbox: dict[SessionName, set[LogId]] = {}
        self._cursors: dict[str, LogId] = {}
        self._saved: dict[bytes, bytes] = {}

    def do(self, step: Step[Any]) -> Any:
        """Run one script."""
        script = scripts()[step.script]
        try:
            answer = self._client.evalsha(script.sha, len(step.keys), *step.keys, *step.arguments)
        except NoScriptError:
            answer = self._client.eval(script.text, len(step.keys), *step.keys, *step.arguments)
        return step.result(answer)

    # The steps

    def append(self, token: str, submissions: Sequence[Submission]) -> tuple[LogId, list[LogId]]:
        appended: log.Appended = self.do(log.append(self.keys, token, submissions, BOUND))
        return appended.prev, appended.ids

    def read(self, after: LogId, count: int) -> list[Logged]:
        found = self._client.xrange(self.keys.log, f"({after}-0", "+", count)
        return [log.logged(_id(place), fields) for place, fields in found]

    def trim(self, token: str) -> int:
        return int(self.do(log.trim(self.keys, token)))

    def boot(self, token: str) -> LogId:
        return LogId(self.do(node_leases.claim(self.keys, token, "heron", PROCESS, 0)))

    def adopt(self, token: str, count: int) -> list[SessionRecord]:
        return self.do(node_leases.adopt(self.keys, token, count)).records

    def login(self, token: str, name: SessionName) -> int:
        return int(self.do(session_store.login(self.keys, token, name, {}, -1, BOUND)).batch)

    def subscribe(self, token: str, name: SessionName, patterns: Sequence[str]) -> dict[str, LogId]:
        return dict(self.do(session_store.subscribe(self.keys, token, name, patterns, BOUND)))

    def unsubscribe(self, token: str, name: SessionName, patterns: Sequence[str]) -> dict[str, tuple[LogId, LogId]]:
        return dict(self.do(session_store.unsubscribe(self.keys, token, name, patterns, BOUND)))

    def close(self, token: str, name: SessionName) -> LogId:
        return LogId(self.do(session_store.close(self.keys, token, name, BOUND)))

    def end(
        self, token: str, name: SessionName, ended: Sequence[Disposition], letters: Sequence[PendingDeadLetter]
    ) -> None:
        self.do(session_store.end(self.keys, token, name, ended, letters, BOUND, BOUND))

    def spill(self, token: str, name: SessionName, ids: Sequence[LogId]) -> list[LogId]:
        return list(self.do(session_store.spill(self.keys, token, name, ids)))

    def commit(self, token: str, commit: Commit) -> list[SessionName]:
        fenced: set[SessionName] = set()
        steps = log.commit(self.keys, token, commit, BOUND, BOUND)
        count = len(steps)
        if self._breaks is not None and self._breaks.random() < 0.3:
            count = self._breaks.randrange(len(steps))
        for step in steps[:count]:
            fenced.update(self.do(step).fenced)
        if count < len(steps):
            raise StoreUncertain("the connection was lost half-way")
        return sorted(fenced)

    # Losing what was not synced

    def snapshot(self) -> None:
        self._saved = {key: self._client.dump(key) for key in self._all_keys()}

    def lose(self) -> None:
        if found := self._all_keys():
            self._client.delete(*found)
        for key, value in self._saved.items():
            self._client.restore(key, 0, value)

    def _all_keys(self) -> list[bytes]:
        return list(self._client.scan_iter(f"{self.keys.base}*", count=1000))

    # For who looks on

    def take_notes(self) -> tuple[list[Disposition], list[PendingDeadLetter]]:
        ended = []
        for place, fields in self._client.xrange(self.keys.facts, b"(" + self._facts_read):
            self._facts_read = place
            if fields[b"t"] == b"ended":
                ended += _ended(fields[b"d"])
        letters = []
        for place, fields in self._client.xrange(self.keys.dead, b"(" + self._letters_read):
            self._letters_read = place
            letters.append(_letter(fields))
        return ended, letters

    def sessions(self) -> dict[SessionName, tuple[str, SessionRecord]]:
        """What all of it is like now; `cursor` and `has_body` tell of the same moment."""
        tokens = [token.decode() for token in self._client.smembers(self.keys.nodes)]
        owned = self._asked([("hget", self._record_of(token), "cursor") for token in tokens])
        self._cursors = {token: LogId(int(cursor)) for token, cursor in zip(tokens, owned, strict=True)}
        found = self._asked([("smembers", self.keys.own(token)) for token in tokens])
        names = [SessionName(name.decode()) for group in found for name in sorted(group)]
        records = self._asked([("hgetall", self.keys.session(name)) for name in names])
        boxes = self._asked([("hkeys", self.keys.inbox(name)) for name in names])
        self._in_inbox = {name: {LogId(int(each)) for each in box} for name, box in zip(names, boxes, strict=True)}
        self._in_log = {_id(place) for place, _ in self._client.xrange(self.keys.log)}
        return {name: _record(name, fields) for name, fields in zip(names, records, strict=True)}

    def _record_of(self, token: str) -> str:
        """The key of what the store knows of a server."""
        return self.keys.node(token)

    def _asked(self, commands: Sequence[tuple[str, ...]]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        return list(pipeline.execute())

    def cursor(self, token: str) -> LogId:
        return self._cursors[token]

    def has_body(self, name: SessionName, log_id: LogId) -> bool:
        return log_id in self._in_inbox[name] or log_id in self._in_log


def _id(place: bytes) -> LogId:
    return LogId(int(place.partition(b"-")[0]))


def _ended(text: bytes) -> list[Disposition]:
    return [
        Disposition(SessionName(each["session"]), EndReason(each["reason"]), tuple(each["ids"]))
        for each in orjson.loads(text)["ended"]
    ]


def _letter(fields: dict[bytes, bytes]) -> PendingDeadLetter:
    letter = PendingDeadLetter(
        SessionName(fields[b"receiver"].decode()),
        LogId(int(fields[b"id"])),
        fields[b"code"].decode(),
        fields[b"reason"].decode(),
        int(fields[b"attempts"]),
    )
    if not fields[b"body"]:
        raise Broken(f"the letter of {letter.id} to {letter.session} has no body")
    return letter


def _record(name: SessionName, fields: dict[bytes, bytes]) -> tuple[str, SessionRecord]:
    at = fields.get(b"at")
    record = SessionRecord(name, {}, None if at is None else LogId(int(at)), int(fields[b"batch"]))
    flat = [text for pair in fields.items() for text in pair]
    return fields[b"owner"].decode(), node_leases.filled(record, flat)
