"""Jobs at work: redrives, discards and drains of many, which the server works off in slices.

The store has each job and how far it is. This server claims what it has begun, and what servers left that are no more: a job
survives the page that began it and the server that ran it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from time import time
from typing import TYPE_CHECKING, Any, Final

from crewel.admin.dead_letter_filters import ATTRIBUTES
from crewel.admin.everywhere import drain_elsewhere
from crewel.admin.receiver_condition import listed
from crewel.admin.scope_coverage import covers_session
from crewel.broker.dead_letters.redrive import Chosen, Limits, Report
from crewel.broker.dead_letters.room import Room, room_of
from crewel.errors import Fenced, StoreError
from crewel.event_loop import woken
from crewel.qos.names import shown_name
from crewel.security.grants import Role, Scope, role_of
from crewel.storage import job_store
from crewel.storage.dead_letter_records import DeadLetterFilter
from crewel.storage.job_outcomes import JobOutcomes
from crewel.storage.job_store import STEERINGS, Job, JobState

if TYPE_CHECKING:
    from crewel.admin.server_view import ServerView

log = logging.getLogger(__name__)

_EVERY_S: Final = 2.0
"""Between two looks for jobs of servers that are no more."""
_SLICE: Final = 500
"""Dead letters that one slice works on at most."""
_SLICE_S: Final = 0.5
_PAUSE_S: Final = 1.0
"""Before the store is asked again that was away, and between two looks at a job that waits for its rate."""
_MOST_ERRORS: Final = 20
_NAMED: Final = 3
_MOST_KNOWN: Final = 8
"""Jobs whose outcomes are remembered."""
_ANY: Final = asdict(DeadLetterFilter())
"""What a filter has that asks for nothing."""
_LATER: Final = "resource.unavailable"
"""The code of dead letters that the store will move as soon as it answers, and count."""


class Work(StrEnum):
    """What a job does."""

    REDRIVE = "redrive"
    DISCARD = "discard"
    DRAIN = "drain"

    @property
    def role(self) -> Role:
        """The role that it needs."""
        return Role.DESTROY if self is Work.DISCARD else Role.OPERATE


@dataclass
class _Place:
    """How far a job is."""

    after: str
    undone: int
    errors: list[dict[str, str]]
    room: Room | None = None
    done: int = 0
    """What the next save adds to what the steps of the work have counted."""
    wait_s: float = 0.0
    is_last: bool = False
    error: str = field(default="", init=False)

    def failed(self, what: str, code: str, message: str) -> None:
        """Something could not be done."""
        self.undone += 1
        if len(self.errors) < _MOST_ERRORS:
            self.errors.append({"id": what, "errorCode": code, "message": message})


class Jobs:
    """The jobs of one server."""

    def __init__(self, admin: ServerView) -> None:
        self._admin = admin
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._news = asyncio.Event()
        self._outcomes: dict[str, JobOutcomes] = {}
        self.on_change: list[Callable[[str], None]] = []
        """Called with the id of a job that has begun, was steered, or has ended."""

    async def run_forever(self) -> None:
        """Work off the jobs of this server until cancelled."""
        while True:
            with suppress(StoreError):
                await self._look()
            await woken(self._news, _EVERY_S)

    async def begin(self, work: Work, who: str, role: Role, choice: Mapping[str, Any], total: int, **more: Any) -> Job:
        """Enter a job and begin it; `choice` is what `Chosen.as_choice` or the names of sessions say. Raises StoreError."""
        access, now = self._admin.access, int(time() * 1000)
        job = Job(
            f"{now}-{secrets.randbelow(10**6)}",
            what=work.value,
            who=who,
            role=role.word,
            choice=dict(choice),
            total=total,
            began=now,
            state=JobState.RUNNING,
            node=self._admin.node,
            changed=now,
            changed_by="",
            ended=None,
            after="",
            done=0,
            undone=0,
            errors=[],
            error="",
            **more,
        )
        await access.writing.ask(job_store.begin(access.keys, access.token, self._admin.node, job))
        self._changed(job.id)
        return job

    async def get(self, job_id: str) -> Job | None:
        """The job with this id. Raises StoreError."""
        found = await job_store.get(self._admin.store, [job_id])
        return found[0] if found else None

    async def outcomes(self, job: Job, since_ms: int) -> JobOutcomes:
        """How the messages ended that the job has redriven since this time; each call reads on. Raises StoreError."""
        self._outcomes[job.id] = known = self._outcomes.pop(job.id, None) or JobOutcomes(job.id, since_ms)
        if len(self._outcomes) > _MOST_KNOWN:
            del self._outcomes[next(iter(self._outcomes))]
        await known.read_on(self._admin.store)
        return known

    async def steer(self, job_id: str, verb: str, who: str) -> bool | None:
        """Pause, resume or stop a job. False if its state does not allow it, None if there is none. Raises StoreError."""
        access, now = self._admin.access, int(time() * 1000)
        steered: bool | None = await access.writing.ask(job_store.steer(access.keys, job_id, STEERINGS[verb], who, now))
        if steered:
            self._changed(job_id)
        return steered

    def _changed(self, job_id: str) -> None:
        self._news.set()
        for changed in self.on_change:
            changed(job_id)

    async def _look(self) -> None:
        """Begin to work off what is this server's."""
        access = self._admin.access
        if access.trouble is not None or self._admin.life.is_draining or not await job_store.has_open(access.store):
            return
        for job_id in await access.writing.ask(job_store.claim(access.keys, access.token, self._admin.node)):
            if job_id not in self._runs:
                self._runs[job_id] = self._admin.broker.spawn(self._continue(job_id, access.token))

    async def _continue(self, job_id: str, token: str) -> None:
        try:
            job = await self.get(job_id)
            if job is not None:
                await self._work_off(job, token)
        except Fenced:
            log.info("another server continues the job %s", job_id)
        except StoreError as error:
            log.warning("the job %s waits for the store: %s", job_id, error)
        finally:
            del self._runs[job_id]

    async def _work_off(self, job: Job, token: str) -> None:
        room = room_of(job.wait_ms / 1000, job.room) if job.wait_ms else None
        place = _Place(job.after, job.undone, job.errors, room)
        if job.rate and job.after:
            place.wait_s = 1 / job.rate  # else each resumption would send one at once
        while not self._admin.life.is_draining:
            if not await self._has_waited(job, token, place):
                return
            ended = None
            place.error, place.wait_s = "", 0.0
            try:
                await _WORKS[Work(job.what)](self, job, place)
            except StoreError as error:
                place.error, place.wait_s = str(error), _PAUSE_S
            except Exception as error:
                log.exception("the job %s failed", job.id)
                place.error, ended = f"{type(error).__name__}: {error}", JobState.FAILED
            if place.is_last:
                ended = JobState.DONE
            if not await self._save(job, token, place, ended):
                return

    async def _has_waited(self, job: Job, token: str, place: _Place) -> bool:
        """Wait as long as the work asks for; False if the job does not run any more. Raises Fenced."""
        while place.wait_s > 0:
            pause = min(place.wait_s, _PAUSE_S)
            place.wait_s -= pause
            await asyncio.sleep(pause)
            if not await self._save(job, token, place, None):
                return False
        return True

    async def _save(self, job: Job, token: str, place: _Place, ended: JobState | None) -> bool:
        """Note how far the job is; whether it still runs. Raises Fenced."""
        access = self._admin.access
        step = job_store.save(
            access.keys,
            token,
            job.id,
            int(time() * 1000),
            after=place.after,
            undone=place.undone,
            errors=place.errors,
            done=place.done,
            error=place.error,
            room=None if place.room is None else place.room.as_json(),
            ended=ended,
        )
        place.done = 0
        state = await access.writing.ask(step)
        if state is ended:
            await self._ended(job.id)
        return state is JobState.RUNNING

    async def _ended(self, job_id: str) -> None:
        self._admin.forget_groups()
        job = await self.get(job_id)
        if job is not None:
            role = role_of(job.role)
            with self._admin.audit.action(
                job.who, role, f"end of job: {job.what}", about=job.id, reason=job.reason
            ) as action:
                action.count, action.details = job.done, {"state": job.state.value, "undone": job.undone}
            self._changed(job_id)

    # What jobs do: each works on a slice, and notes how far it is

    async def _redrive(self, job: Job, place: _Place) -> None:
        room = place.room
        limits = Limits(_SLICE, _SLICE_S, job.rate, self._is_ending, job.id, room)
        report = await self._admin.redrive.redrive(chosen(job, place.after), limits, to_channel=job.to_channel)
        _advance(place, report)
        if room is None:
            return
        start = room.next_walk(report.done, self._admin.now(), is_at_end=place.is_last)
        if start is not None:
            place.after, place.is_last, place.wait_s = start, False, max(place.wait_s, _PAUSE_S)
        if room.waits_for and not place.is_last:
            place.error = f"waiting for room in the queue of {named_receivers(room.waits_for)}"

    async def _discard(self, job: Job, place: _Place) -> None:
        limits = Limits(_SLICE, _SLICE_S, None, self._is_ending, job.id)
        keeps = not job.choice.get("forGood", False)
        report = await self._admin.redrive.discard(chosen(job, place.after), limits, job.who, keeps=keeps)
        _advance(place, report)

    async def _drain(self, job: Job, place: _Place) -> None:
        names = job.choice["sessions"]
        number = int(place.after or 0)
        if number < len(names):
            drained = await self._drained(names[number], job)
            if drained is None:
                place.failed(names[number], "user.illegalArgument", f"there is no session {names[number]} here")
            else:
                place.done = drained
            place.after = str(number + 1)
        place.is_last = number + 1 >= len(names)

    async def _drained(self, name: str, job: Job) -> int | None:
        """Drain the session, wherever it is; how many became dead letters. None if there is no such session, or the roles with
        which the job began do not cover it any more: it may have subscribed to other channels since."""
        within = job.choice.get("within")
        scope = Scope(parts=((Role.OPERATE, frozenset(within)),)) if within else Scope(Role.OPERATE)
        session = self._admin.find(name)
        if session is None:
            return await drain_elsewhere(self._admin.everywhere, name, job.who, scope)
        if not covers_session(scope, Role.OPERATE, session):
            return None
        # Without patience: a crash would leave them waiting, and the job done.
        return await self._admin.taken_out(session, "drained", job.who, self._admin.dispatchers.drain(session), None)

    def _is_ending(self) -> bool:
        return self._admin.life.is_draining


_WORKS: Final = {Work.REDRIVE: Jobs._redrive, Work.DISCARD: Jobs._discard, Work.DRAIN: Jobs._drain}  # noqa: SLF001


def receiver_names(queues: Iterable[str]) -> list[str]:
    """Receivers as operators name them."""
    return list(map(shown_name, queues))


def named_receivers(queues: Sequence[str]) -> str:
    """Some of them in words."""
    return listed(receiver_names(queues), _NAMED)


def choice_of(chosen: Chosen) -> dict[str, Any]:
    """What a job has of the dead letters that it works on, as JSON."""
    given = {name: value for name, value in asdict(chosen.wanted).items() if value != _ANY[name]}
    if chosen.ids is not None:
        return {"ids": list(chosen.ids), "wanted": given}
    return {"wanted": given, "after": chosen.after}


def filters_of(choice: Mapping[str, Any]) -> dict[str, Any]:
    """The filters of what `choice_of` has made, by the names of the fields of a request."""
    names = {attribute: name for name, attribute in ATTRIBUTES.items()}
    return {names.get(name, name): value for name, value in choice["wanted"].items()}


def chosen(job: Job, after: str) -> Chosen:
    """The dead letters behind this place that the job works on."""
    ids, wanted = (
        job.choice.get("ids"),
        DeadLetterFilter(**job.choice.get("wanted", {})),
    )  # jobs of before have ids alone
    if ids is not None:
        return Chosen(wanted, ids=tuple(ids[ids.index(after) + 1 :] if after else ids))
    return Chosen(wanted, after or job.choice["after"])


def _advance(place: _Place, report: Report) -> None:
    for each in report.undone:
        if each.code != _LATER:
            place.failed(each.dead_id, each.code, each.message)
    place.wait_s, place.is_last = report.wait_s, not report.next
    place.after = report.next or place.after
