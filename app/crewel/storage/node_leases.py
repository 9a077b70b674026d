"""The servers of a store: the lease of the one that runs, and how the next one adopts its sessions.

While a lease lasts, no other server takes the sessions of its owner. A server renews its lease as long as it lives. One that
was killed leaves a lease behind; a server on the same machine need not wait for its end, because the lease names the process.
The lock on the data directory proves the same where nothing else does, as in a container that was started again.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from crewel import processes
from crewel.delivery.records import BATCH_BLOCK, LogId, SessionName, SessionRecord
from crewel.errors import StoreTaken
from crewel.storage.embedded import unusable
from crewel.storage.keys import Keys
from crewel.storage.log import waiting_of
from crewel.storage.script_step import Step, nothing
from crewel.storage.store import Store

_LOCK: Final = "server.lock"


@dataclass(frozen=True, slots=True)
class Owner:
    """What a lease says of the server that has it."""

    node: str
    """The server's `node.name`."""
    pid: int
    host: str
    machine: str
    """Which boot of which machine, and which namespace of processes; empty where that is unknown."""
    started: str
    """When the process started, by the clock of its machine: another process may have the same number later."""
    has_directory: bool
    """Whether it holds the lock on the data directory of its own store."""

    def __str__(self) -> str:
        return f"{self.node}, process {self.pid} on {self.host}"

    @property
    def is_here(self) -> bool:
        """Whether its process runs, or ran, on this machine: then it is known whether it lives."""
        return self.process.is_here

    @property
    def is_dead(self) -> bool:
        """Whether its process has ended for certain. False if it lives, and if nothing can be known from here."""
        return self.process.is_dead

    @property
    def process(self) -> processes.ProcessId:
        """The process."""
        return processes.ProcessId(self.pid, self.machine, self.started)


class Membership(NamedTuple):
    """What a server tells that shares its store with others."""

    tag: str
    """What the `clientId`s of its sessions end with."""
    link: str
    """Where other nodes reach it."""


ALONE: Final = Membership("", "")
"""The server shares its store with no other."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """Another server has a lease."""

    token: str
    owner: Owner
    lasts: float
    """Seconds until the lease ends, unless it is renewed."""


def this_process(node: str, *, has_directory: bool) -> Owner:
    """Return what a lease says of this process."""
    pid, machine, started = processes.this_process()
    return Owner(node, pid, socket.gethostname(), machine, started, has_directory)


def claim(
    k: Keys,
    token: str,
    node_name: str,
    owner: Owner,
    lasts_ms: int,
    dead: Iterable[str] = (),
    membership: Membership = ALONE,
) -> Step[LogId | Claimed]:
    """Register a starting server under a token that no server had before, unless another server has a lease; those of `dead`
    tokens do not count. Returns the newest log id, its cursor until it adopts sessions that are further behind; or whose lease
    it was; a node counts no leases of other nodes. `lasts_ms` 0: it has no lease, and asks for none."""
    keys = (k.last, k.nodes, k.node(token), k.epoch, k.lease(token), k.tags, k.secret)
    fixed = (token, node_name, k.base, lasts_ms, orjson.dumps(asdict(owner)))
    return Step("boot", keys, (*fixed, *membership, secrets.token_hex(32), *dead), _claimed)


def renew(k: Keys, token: str, owner: Owner, lasts_ms: int) -> Step[None]:
    """Let the lease last for so long from now on; 0 ends it. Raises Fenced if another server has taken the sessions."""
    return Step("renew", (k.node(token), k.lease(token)), (lasts_ms, orjson.dumps(asdict(owner))), nothing)


def _claimed(answer: Any) -> LogId | Claimed:
    if isinstance(answer, int):
        return LogId(answer)
    token, owner, lasts_ms = answer
    return Claimed(token.decode(), Owner(**orjson.loads(owner)), lasts_ms / 1000)


async def epoch(store: Store, token: str | None = None) -> int:
    """Return the number of the last start of a server, or of the start of this one; 0 if the store knows of none. Raises
    StoreError."""
    keys, reader = store.keys, store.reader
    found: Any = await (reader.get(keys.epoch) if token is None else reader.hget(keys.node(token), "epoch"))
    return int(found or 0)


async def last_commit(store: Store, token: str) -> int:
    """Return the number of the last commit of this server that the store has applied; 0 if it knows of none. Raises
    StoreError."""
    found: Any = await store.reader.hget(store.keys.node(token), "seq")
    return int(found or 0)


class Slice(NamedTuple):
    """Sessions that have come to an heir."""

    finished: list[str]
    """Dead nodes of which no session is left: `nodes.release` them after the next commit."""
    records: list[SessionRecord]
    """The sessions as they were left."""


def adopt(k: Keys, token: str, count: int) -> Step[Slice]:
    """Take over sessions of all other servers, at most so many. An empty slice: there are no more.

    No commit of this server may be under way meanwhile: it would not know what the sessions need of the log. Must not be
    repeated after an unknown outcome, because the sessions that it took would be unknown: start again under another token.
    Raises Fenced if the server has been superseded itself.
    """
    return Step("adopt", (k.nodes, k.node(token), k.own(token)), (k.base, token, count, BATCH_BLOCK), _slice)


def _slice(answer: Any) -> Slice:
    cursor, *sessions = answer
    return Slice([], adopted(sessions, LogId(int(cursor))))


def adopted(answer: list[Any], cursor: LogId | None = None) -> list[SessionRecord]:
    """Return the sessions of an answer that has for each its name, how far it has accounted for the log, `batch`, and the
    record as HGETALL gives it. `cursor` is that of their new owner in the store."""
    flat = iter(answer)
    return [
        filled(SessionRecord(SessionName(name.decode()), {}, LogId(int(at)), int(batch), owner_cursor=cursor), record)
        for name, at, batch, record in zip(flat, flat, flat, flat, strict=True)
    ]


def filled(record: SessionRecord, flat: list[bytes]) -> SessionRecord:
    """Return the record with what a session's hash says, as HGETALL gives it: field, value, field, value."""
    fields = iter(flat)
    owner, away = b"", b""
    for field, value in zip(fields, fields, strict=True):
        kind, key = field[:2], field[2:]
        if kind == b"o:":
            record.pending[LogId(int(key))] = waiting_of(value)
        elif kind == b"s:":
            record.subscriptions[key.decode()] = LogId(int(value))
        elif kind == b"i:":
            record.inbox[LogId(int(key))] = waiting_of(value)
        elif kind == b"n:":
            place, _, why = value.partition(b" ")
            record.notices[key.decode()] = LogId(int(place))
            if why:
                record.failed[key.decode()] = why.decode()
        elif kind == b"p:":
            record.options[key.decode()] = orjson.loads(value)
        elif kind == b"c:":
            pattern, _, since = key.rpartition(b" ")
            record.closed.append((pattern.decode(), LogId(int(since)), LogId(int(value))))
        elif field == b"r":
            record.login = orjson.loads(value)
        elif field == b"ending":
            record.ending = LogId(int(value))
        elif field == b"death":
            code, reason = orjson.loads(value)
            record.death = (code, reason)
        elif field == b"d":
            record.dispatch = orjson.loads(value)
        elif field == b"owner":
            owner = value
        elif field == b"away":
            away = value
    token, _, times = away.partition(b" ")
    if times and token == owner:  # else it was written for an earlier owner
        record.awaited_since_ms, record.ends_ms = map(int, times.split())
    return record


def lock_directory(directory: Path) -> int:
    """Return the lock on this directory: an open file, which the system closes when the process ends.

    Raises StoreTaken, with the number of its process, if another server has it; SettingsError if the file cannot be made.
    """
    try:
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable(directory, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(lock, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(lock)
        raise StoreTaken(f"process {owner}, which serves from {directory}") from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    return lock
