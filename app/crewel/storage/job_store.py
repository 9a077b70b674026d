"""Jobs: work of operators on many things, as records in the store that one server at a time works off.

A job has one owner, the token of a run of a server. When that is no more, another one claims its running jobs and continues at
the place that was saved. `done` is counted by the steps that do the work, in the same instant: it is exact whatever happens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

import orjson

from crewel.errors import StoreError
from crewel.storage.keys import Keys
from crewel.storage.script_step import Step
from crewel.storage.store import Store

MOST: Final = 1000
"""Jobs that are kept."""
MOST_OPEN: Final = 100
"""Jobs that may run or be paused at a time."""


class JobState(StrEnum):
    """Where a job stands."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    """An operator has ended it before its end."""
    DONE = "done"
    """All is done that could be."""
    FAILED = "failed"
    """It cannot continue."""


class Steering(NamedTuple):
    """What an operator wants of a job: the state that follows, and those that allow it."""

    state: JobState
    allowed: tuple[JobState, ...]


STEERINGS: Final[Mapping[str, Steering]] = {
    "pause": Steering(JobState.PAUSED, (JobState.RUNNING, JobState.PAUSED)),
    "resume": Steering(JobState.RUNNING, (JobState.PAUSED, JobState.RUNNING)),
    "stop": Steering(JobState.STOPPED, (JobState.RUNNING, JobState.PAUSED)),
}
"""What operators may do to a job."""


class TooManyJobs(StoreError):
    """As many jobs are open as may be."""

    code = "resource.exhaust"


@dataclass(frozen=True, slots=True)
class Job:
    """One job, as the store has it. Times are milliseconds since 1970."""

    id: str
    what: str
    who: str
    reason: str
    role: str
    choice: dict[str, Any]
    """What it works on, as the request chose it."""
    to_channel: bool
    rate: float | None
    total: int
    """How many there were when it began."""
    began: int
    state: JobState
    node: str
    """The server that runs it, or did."""
    changed: int
    changed_by: str
    """The operator who paused, resumed or stopped it last; empty if none did."""
    ended: int | None
    after: str
    """The place behind which it continues."""
    done: int
    undone: int
    """How many could not be done, and stayed."""
    errors: list[dict[str, str]]
    """Why, of the first of them."""
    error: str
    """Why it has failed, or what it waits for."""
    wait_ms: int = 0
    """How long a redrive waits for room while nothing is moved; 0: it does not."""
    room: dict[str, Any] = field(default_factory=dict)
    """The receivers without room, as the server that runs it needs them to continue."""


_FIXED: Final = ("what", "who", "reason", "role", "choice", "to_channel", "rate", "total", "began")


def begin(k: Keys, token: str, node: str, job: Job) -> Step[None]:
    """Enter a job that begins, run by this server. Raises Fenced, StoreFull, TooManyJobs."""
    fixed = orjson.dumps({name: getattr(job, name) for name in _FIXED})
    keys = (k.node(token), k.jobs, k.open_jobs, k.job(job.id))
    state = ("state", JobState.RUNNING.value, "owner", token, "node", node, "changed", job.began)
    fields = ("d", fixed, *state, "wait", job.wait_ms)  # the last one apart: servers of before do not read it
    return Step("begin_job", keys, (k.base, job.id, job.began, MOST, MOST_OPEN, *fields), _begun)


def _begun(answer: Any) -> None:
    if answer != b"begun":
        raise TooManyJobs(f"{MOST_OPEN} jobs are open, which is the limit: stop some, or wait")


def claim(k: Keys, token: str, node: str) -> Step[list[str]]:
    """Take the running jobs of servers that are no more. Returns the ids of all running jobs of this one. Raises Fenced."""
    return Step("claim_jobs", (k.node(token), k.open_jobs), (k.base, token, node), _texts)


def _texts(answer: Any) -> list[str]:
    return [each.decode() for each in answer]


def save(
    k: Keys,
    token: str,
    job_id: str,
    now_ms: int,
    *,
    after: str,
    undone: int,
    errors: Sequence[Mapping[str, str]],
    done: int = 0,
    error: str = "",
    room: Mapping[str, Any] | None = None,
    ended: JobState | None = None,
) -> Step[JobState]:
    """Note how far a job is, and with `ended` that it is at its end. `done` more are done than the steps of the work have
    counted. Returns its state, which operators may have changed.
    Raises Fenced if another server runs it."""
    fields = ("after", after, "undone", undone, "errors", orjson.dumps(errors), "error", error)
    end = "" if ended is None else ended.value
    more = () if room is None else ("room", orjson.dumps(room))
    arguments = (token, job_id, end, now_ms, done, *fields, *more)
    return Step("save_job", (k.open_jobs, k.job(job_id)), arguments, lambda answer: JobState(answer.decode()))


def steer(k: Keys, job_id: str, steering: Steering, who: str, now_ms: int) -> Step[bool | None]:
    """Pause, resume or stop a job. False if its state does not allow it, None if there is no such job."""
    arguments = (job_id, steering.state.value, who, now_ms, *(each.value for each in steering.allowed))
    return Step(
        "steer_job", (k.open_jobs, k.job(job_id)), arguments, lambda answer: None if answer is None else bool(answer)
    )


async def has_open(store: Store) -> bool:
    """Return whether any job runs or is paused. Raises StoreError."""
    (found,) = await store.look(("EXISTS", store.keys.open_jobs))
    return bool(found)


async def get(store: Store, job_ids: Sequence[str]) -> list[Job]:
    """Return those of these jobs that there are. Raises StoreError."""
    pipeline = store.reader.pipeline(transaction=False)
    for job_id in job_ids:
        pipeline.hgetall(store.keys.job(job_id))
    found = await pipeline.execute() if job_ids else []
    return [_job(job_id, fields) for job_id, fields in zip(job_ids, found, strict=True) if b"d" in fields]


async def newest(store: Store) -> list[str]:
    """Return the ids of all jobs that are kept, the newest first. Raises StoreError."""
    found: Any = await store.reader.zrevrange(store.keys.jobs, 0, -1)
    return [each.decode() for each in found]


def _job(job_id: str, fields: Mapping[bytes, bytes]) -> Job:
    def text(name: bytes) -> str:
        return fields.get(name, b"").decode()

    def number(name: bytes) -> int:
        return int(fields.get(name, 0))

    return Job(
        job_id,
        **orjson.loads(fields[b"d"]),
        state=JobState(text(b"state")),
        node=text(b"node"),
        changed=number(b"changed"),
        changed_by=text(b"changedBy"),
        ended=number(b"ended") or None,
        after=text(b"after"),
        done=number(b"done"),
        undone=number(b"undone"),
        errors=orjson.loads(fields.get(b"errors", b"[]")),
        error=text(b"error"),
        wait_ms=number(b"wait"),
        room=orjson.loads(fields.get(b"room", b"{}")),
    )
