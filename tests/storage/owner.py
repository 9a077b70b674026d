"""A server as the store sees it: a token that asks for steps, and looks at what they have done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crewel.delivery.records import (
    Change,
    Commit,
    Disposition,
    LogId,
    PendingDeadLetter,
    PendingMessage,
    SessionName,
    SessionRecord,
    Submission,
)
from crewel.errors import StoreError
from crewel.storage import log, node_leases, session_store
from crewel.storage.script_step import Step
from crewel.storage.store import Store
from tests.storage.reading import read_facts

JOE = SessionName("client/joe/1")
ANN = SessionName("client/ann/1")
FACTS_MAX = 1_000
LETTERS_MAX = 1_000

PROCESS = node_leases.Owner("heron", 1, "host", machine="", started="", has_directory=False)


class Owner:
    """One run of a server. Its methods raise what the store refuses."""

    def __init__(self, store: Store, token: str) -> None:
        self.store = store
        self.keys = store.keys
        self.token = token
        self.number = 0

    async def do(self, step: Step[Any]) -> Any:
        (answer,) = await self.store.run([step])
        if isinstance(answer, StoreError):
            raise answer
        return answer

    async def publish(self, *channels: str, **fields: Any) -> list[LogId]:
        submissions = [Submission(channel, b'{"channel":"%b"}' % channel.encode(), **fields) for channel in channels]
        return (await self.append(submissions)).ids

    async def append(self, submissions: Sequence[Submission], **options: int) -> log.Appended:
        return await self.do(log.append(self.keys, self.token, submissions, FACTS_MAX, **options))

    async def login(self, name: str = JOE, max_sessions: int = -1, **login: Any) -> session_store.LoggedIn:
        return await self.do(session_store.login(self.keys, self.token, name, login, max_sessions, FACTS_MAX))

    async def subscribe(
        self, *patterns: str, name: str = JOE, options: Mapping[str, bytes] | None = None
    ) -> dict[str, LogId]:
        step = session_store.subscribe(self.keys, self.token, name, patterns, FACTS_MAX, options or {})
        return await self.do(step)

    async def unsubscribe(self, *patterns: str, name: str = JOE) -> dict[str, tuple[LogId, LogId]]:
        return await self.do(session_store.unsubscribe(self.keys, self.token, name, patterns, FACTS_MAX))

    async def close(self, name: str = JOE, death: tuple[str, str] | None = None) -> LogId:
        return await self.do(session_store.close(self.keys, self.token, name, FACTS_MAX, death))

    async def hold(self, dispatch: bytes | None, name: str = JOE) -> None:
        await self.do(session_store.hold(self.keys, self.token, name, dispatch, FACTS_MAX))

    async def end(
        self,
        ended: Sequence[Disposition] = (),
        letters: Sequence[PendingDeadLetter] = (),
        name: SessionName = JOE,
        returning: Mapping[LogId, int] | None = None,
    ) -> session_store.SessionEnd:
        bounds = (FACTS_MAX, LETTERS_MAX)
        return await self.do(session_store.end(self.keys, self.token, name, ended, letters, *bounds, returning or {}))

    async def spill(self, *ids: LogId, name: str = JOE) -> list[LogId]:
        return await self.do(session_store.spill(self.keys, self.token, name, ids))

    async def trim(self) -> int:
        return await self.do(log.trim(self.keys, self.token))

    async def adopt(self, count: int = 1000) -> list[SessionRecord]:
        return (await self.do(node_leases.adopt(self.keys, self.token, count))).records

    async def adopt_all(self, count: int = 1000) -> dict[str, SessionRecord]:
        records = {}
        while adopted := await self.adopt(count):
            records.update({record.name: record for record in adopted})
        return records

    async def commit(
        self,
        cursor: int,
        *changes: Change,
        low: int | None = None,
        ended: Sequence[Disposition] = (),
        letters: Sequence[PendingDeadLetter] = (),
    ) -> list[SessionName]:
        """Apply the next commit; returns the sessions that are fenced."""
        self.number += 1
        return await self.apply(self.next_commit(cursor, *changes, low=low, ended=ended, letters=letters))

    def next_commit(
        self,
        cursor: int,
        *changes: Change,
        low: int | None = None,
        ended: Sequence[Disposition] = (),
        letters: Sequence[PendingDeadLetter] = (),
    ) -> Commit:
        low = cursor if low is None else low
        return Commit(self.number, LogId(cursor), LogId(low), changes, tuple(ended), tuple(letters))

    async def apply(self, commit: Commit) -> list[SessionName]:
        fenced = []
        for step in self.steps(commit):
            fenced += (await self.do(step)).fenced
        return fenced

    def steps(self, commit: Commit) -> list[Step[log.Committed]]:
        return log.commit(self.keys, self.token, commit, FACTS_MAX, LETTERS_MAX)

    # What the store has

    async def nodes(self) -> set[str]:
        tokens: Any = await self.store.reader.smembers(self.keys.nodes)
        return {token.decode() for token in tokens}

    async def record(self, name: str = JOE) -> dict[str, str]:
        return await self.hash(self.keys.session(name))

    async def node(self) -> dict[str, str]:
        return await self.hash(self.keys.node(self.token))

    async def hash(self, key: str) -> dict[str, str]:
        found: Any = await self.store.reader.hgetall(key)
        return {field.decode(): value.decode() for field, value in found.items()}

    async def facts(self, kind: str) -> list[dict[str, Any]]:
        return [fact.fields for fact in await read_facts(self.store, count=100_000) if fact.type == kind]

    async def dead_letter(
        self, *letters: PendingDeadLetter, letters_max: int = LETTERS_MAX, letters_max_bytes: int = 0
    ) -> list[str]:
        """Store letters of sessions that this server owns; returns their dead ids."""
        self.number += 1
        commit = self.next_commit(int((await self.node())["cursor"]), letters=letters)
        (step,) = log.commit(self.keys, self.token, commit, FACTS_MAX, letters_max, letters_max_bytes)
        return (await self.do(step)).letters

    async def letters(self) -> list[dict[str, str]]:
        found: Any = await self.store.reader.xrange(self.keys.dead)
        return [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in found]

    async def log_ids(self) -> list[LogId]:
        return [entry.id for entry in await log.read(self.store, LogId(0), 1_000_000)]


async def started(store: Store, token: str = "a") -> Owner:
    """Return a server that has registered itself, and has no sessions."""
    owner = Owner(store, token)
    await owner.do(node_leases.claim(store.keys, token, "heron", PROCESS, 0))
    return owner


def change(
    name: str = JOE,
    opened: Sequence[int] = (),
    settled: Sequence[int] = (),
    removed: Sequence[int] = (),
    forgotten: Sequence[tuple[str, int]] = (),
    caught_up: bool = False,
    batch: int | None = None,
) -> Change:
    """Return a change of one session; what is opened was never sent and has 10 bytes."""
    return Change(
        SessionName(name),
        {LogId(each): PendingMessage(0, 10) for each in opened},
        tuple(map(LogId, settled)),
        tuple(map(LogId, removed)),
        tuple((pattern, LogId(since)) for pattern, since in forgotten),
        caught_up,
        batch,
    )


async def owner_of(store: Store, *names: str) -> Owner:
    """Return an owner with these sessions."""
    owner = await started(store)
    for name in names:
        await owner.login(name)
    return owner
