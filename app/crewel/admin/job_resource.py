"""Jobs as REST resources: begun, listed, shown, paused, resumed and stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from time import time
from typing import Any, Final

from crewel.admin.command import demand
from crewel.admin.dead_letter_resource import CHOICE, FOR_GOOD, REDRIVE_FIELDS, chosen_of
from crewel.admin.everywhere import sessions_of, waiting_elsewhere
from crewel.admin.example import SAMPLES, Example
from crewel.admin.jobs import Work, choice_of, filters_of, receiver_names
from crewel.admin.message_history import outcome_word
from crewel.admin.operation import About
from crewel.admin.request_fields import (
    PAGE,
    WITH_REASON,
    choice_field,
    count_text,
    cursor,
    list_field,
    number_field,
    page_fields,
    place,
    text_field,
)
from crewel.admin.role_scopes import refused
from crewel.admin.route import Ask, NotSeen, NotThere, Route
from crewel.admin.scope_coverage import covers_sessions
from crewel.broker.session import Session
from crewel.delivery.records import LogId
from crewel.errors import IllegalArgument
from crewel.qos.names import parse_name
from crewel.security.grants import Role
from crewel.storage import job_store
from crewel.storage.dead_letter_records import is_dead_id
from crewel.storage.job_store import STEERINGS, Job, JobState
from crewel.storage.message_facts import Fact, facts_of_job

_PORTION: Final = 100
_WAIT_MS: Final = 600_000
"""How long a redrive waits for room while nothing is moved, unless it is asked for something else."""
_MOST_WAIT_MS: Final = 604_800_000
_CLOCKS_MS: Final = 5000
"""How much the clocks of store and server may differ."""


def job_view(job: Job) -> dict[str, Any]:
    """The job as REST tells it. Times are milliseconds since 1970."""
    return {
        "id": job.id,
        "what": job.what,
        "state": job.state.value,
        "who": job.who,
        "reason": job.reason,
        "node": job.node,
        "began": job.began,
        "changed": job.changed,
        "changedBy": job.changed_by,
        "ended": job.ended,
        "choice": _choice_view(job.choice),
        "toChannel": job.to_channel,
        "rate": job.rate,
        "total": job.total,
        "done": job.done,
        "undone": job.undone,
        "errors": job.errors,
        "error": job.error,
        "waitForRoomMs": job.wait_ms,
        "waitsFor": receiver_names(job.room.get("only") or ()) if job.state is JobState.RUNNING else [],
    }


def _choice_view(choice: dict[str, Any]) -> dict[str, Any]:
    if "ids" in choice:
        return {"ids": len(choice["ids"])}
    if "sessions" in choice:
        return {"sessions": len(choice["sessions"]), "first": choice["sessions"][0]}
    return filters_of(choice)


def _session(value: object) -> str:
    name = parse_name(value) if isinstance(value, str) else None
    if name is None or not name.number:
        raise ValueError("the name of a session: client/joe/1")
    return name.relative


def _subject(value: object) -> str:
    name = parse_name(value) if isinstance(value, str) else None
    if name is None or name.number:
        raise ValueError("the name of a subject: joe or client/joe")
    return name.subject


async def _begin(ask: Ask) -> dict[str, Any]:
    fields = ask.fields
    work = Work(fields["what"])
    demand(ask.role, work.role)
    choice, total = await (_receivers(ask) if work is Work.DRAIN else _letters(ask, work.role))
    if "forGood" in fields:
        if work is not Work.DISCARD:
            raise IllegalArgument("forGood", "is only for discards of dead letters")
        choice |= {"forGood": fields["forGood"]}
    for name in () if work is Work.REDRIVE else ("toChannel", "rate", "waitForRoomMs"):
        if name in fields:
            raise IllegalArgument(name, "is only for redrives of dead letters")
    more = {
        "reason": fields.get("reason", ""),
        "to_channel": fields.get("toChannel", False),
        "rate": fields.get("rate"),
        "wait_ms": fields.get("waitForRoomMs", _WAIT_MS) if work is Work.REDRIVE else 0,
    }
    with ask.action(f"begin job: {work}", reason=more["reason"]) as action:
        job = await ask.admin.jobs.begin(work, ask.who, ask.role, choice, total, **more)
        action.about, action.count, action.details = job.id, total, _choice_view(job.choice)
    return job_view(job)


async def _letters(ask: Ask, needed: Role) -> tuple[dict[str, Any], int]:
    for name in ("sessions", "subject"):
        if name in ask.fields:
            raise IllegalArgument(name, "is only for drains of receivers")
    chosen = await chosen_of(ask, needed)
    return choice_of(chosen), await ask.admin.redrive.count(chosen)


async def _receivers(ask: Ask) -> tuple[dict[str, Any], int]:
    fields, admin = ask.fields, ask.admin
    if ("sessions" in fields) is ("subject" in fields):
        raise IllegalArgument("sessions", "is required, or `subject`, but not both")
    for each in CHOICE:
        if each.name in fields and each.name != "reason":
            raise IllegalArgument(each.name, "is only for redrives and discards of dead letters")
    if "subject" in fields:
        own = {session.name for session in admin.sessions_of(fields["subject"])}
        names = sorted(own.union(await sessions_of(admin.everywhere, fields["subject"], ask.who)))
    else:
        names = list(dict.fromkeys(fields["sessions"]))
    if not names and ask.covers_all:
        if "subject" in fields:
            raise IllegalArgument("subject", f"must have sessions, and {fields['subject']} has none")
        raise IllegalArgument("sessions", "must name an existing session")
    found = list(filter(None, map(admin.find, names)))
    if not ask.covers_all and not (names and len(found) == len(names) and all(map(ask.covers_session, found))):
        raise NotSeen("one of these sessions is not there, or the operator's roles do not cover it")
    if not ask.scope.allows(Work.DRAIN.role) and (len(found) < len(names) or not _covers(ask, found)):
        raise refused(Work.DRAIN.role, About.MANY)
    total = sum(each.mailbox.view().depth for each in found)
    for name in {*names} - {session.name for session in found}:
        total += await waiting_elsewhere(admin.everywhere, name, ask.who)
    return {"sessions": names, "within": sorted(ask.scope.patterns(Work.DRAIN.role))}, total


def _covers(ask: Ask, sessions: Iterable[Session]) -> bool:
    return covers_sessions(ask.scope, Work.DRAIN.role, sessions)


def _is_shown(ask: Ask, job: Job) -> bool:
    """Whether the operator sees the job; one of some channels sees their own, unless it began with a role for others."""
    within = job.choice.get("within") or job.choice.get("wanted", {}).get("within")
    return ask.covers_all or (job.who == ask.who and bool(within) and all(map(ask.covers, within)))


async def _list(ask: Ask) -> dict[str, Any]:
    store, fields = ask.admin.store, ask.fields
    count, state, after = fields.get("count", _PORTION), fields.get("state"), fields.get("after", "")
    ids = await job_store.newest(store)
    if after:
        ids = [each for each in ids if _order(each) < _order(after)]
    found: list[Job] = []

    def _is_wanted(job: Job) -> bool:
        return (state is None or job.state == state) and _is_shown(ask, job)

    while ids and len(found) <= count:
        portion, ids = ids[:_PORTION], ids[_PORTION:]
        found += [job for job in await job_store.get(store, portion) if _is_wanted(job)]
    page = found[:count]
    return {"jobs": [job_view(job) for job in page], "next": page[-1].id if len(found) > count else ""}


def _order(job_id: str) -> tuple[int, str]:
    """The place of a job in the list."""
    return int(job_id.partition("-")[0]), job_id


async def _found(ask: Ask) -> Job:
    job_id = ask.path["job"]
    job = await ask.admin.jobs.get(job_id) if is_dead_id(job_id) else None
    if job is None or not _is_shown(ask, job):
        raise NotThere(f"there is no job {job_id[:64]}, or it has been removed")
    return job


async def _show(ask: Ask) -> dict[str, Any]:
    job = await _found(ask)
    return job_view(job) | {"may": ask.may(lambda role: _may_steer(ask, job, role))}


def _may_steer(ask: Ask, job: Job, needed: Role) -> bool:
    """Whether the operator has this role for the job. For their own, which kept to their channels when it began, they need it
    on some channels. For those of others, which may be about all channels, they need it on all."""
    return ask.role >= needed if job.who == ask.who else ask.scope.allows(needed)


async def _letters_of(ask: Ask) -> dict[str, Any]:
    """The dead letters that the job has taken away, and how their messages ended."""
    job = await _found(ask)
    fields = ask.fields
    since_ms, sight = job.began - _CLOCKS_MS, ask.sight
    found = await facts_of_job(ask.admin.store, job.id, since_ms, ask.after(place), fields.get("count", PAGE), sight)
    rows = [row for fact in found.facts for row in _rows_of(fact)]
    answer: dict[str, Any] = {"states": {}, "partial": False, "readTo": None, "next": ask.following(found.next)}
    reasons: dict[LogId, str] = {}
    if job.what == Work.REDRIVE and not job.to_channel:
        outcomes = await ask.admin.jobs.outcomes(job, since_ms)
        while outcomes.is_partial and not sight.is_whole and not sight.is_spent(0, 1):
            outcomes = await ask.admin.jobs.outcomes(job, since_ms)
        reasons = outcomes.reasons
        # The time of the last fact is that of any message.
        is_told = sight.is_whole or outcomes.is_partial
        answer["partial"] = outcomes.is_partial
        answer["readTo"] = outcomes.read_to_ms if is_told else int(time() * 1000)
    for reason, number in Counter(reasons.values()).items():
        word = outcome_word(reason)
        answer["states"][word] = answer["states"].get(word, 0) + number
    return answer | {"letters": [row | {"state": _state_of(row["redrivenAs"], reasons)} for row in rows]}


def _state_of(redriven_as: str, reasons: Mapping[LogId, str]) -> str:
    reason = reasons.get(LogId(int(redriven_as))) if redriven_as else None
    return "" if reason is None else outcome_word(reason)


def _rows_of(fact: Fact) -> Iterable[dict[str, Any]]:
    fields = fact.fields
    if fact.type == "redriven":
        to = fields.get("session") or fields.get("channel", "")
        yield {
            "letter": fields["letter"],
            "message": fields["message"],
            "at": fact.at_ms,
            "redrivenAs": str(fields["id"]),
            "to": to,
        }
        return
    for letter, message, receiver in zip(fields["letters"], fields["messages"], fields["receivers"], strict=True):
        yield {"letter": letter, "message": message, "at": fact.at_ms, "redrivenAs": "", "to": receiver}


def _steering(verb: str) -> Callable[[Ask], Awaitable[dict[str, Any]]]:
    async def handle(ask: Ask) -> dict[str, Any]:
        job = await _found(ask)
        needed = Work(job.what).role if verb == "resume" else Role.OPERATE
        demand(ask.role, needed)
        if not _may_steer(ask, job, needed):
            raise refused(needed, About.MANY)
        with ask.action(f"{verb} job", about=job.id, reason=ask.fields.get("reason", "")):
            if not await ask.admin.jobs.steer(job.id, verb, ask.who):
                allowed = " or ".join(each.value for each in STEERINGS[verb].allowed)
                raise IllegalArgument("job", f"must be {allowed}, but is {(await _found(ask)).state.value}")
        return job_view(await _found(ask))

    return handle


_UNKNOWN: Final = {404: "There is no such job, or it has been removed."}
_JOB: Final = (
    f"`id`, `what` ({', '.join(Work)}), `state` ({', '.join(JobState)}), `who` (started it), `reason`, `node` (runs it),"
    " `began`, `changed`, `ended` (milliseconds since 1970, or null), `changedBy` (last operator),"
    " `choice` (the filters, or how many), `toChannel`, `rate`, `total`, `done`, `undone`, `errors`, `error`"
)
_MORE: Final = (
    "`total`: the number at its start. `undone`: how many remain; `errors`: `id`, `errorCode` and `message` of the first"
    " 20 of them. `error`: why it failed or waits. `waitForRoomMs`, `waitsFor`: how long a redrive waits for room, and the"
    " receivers whose queues are full."
)
_SUMMARIES: Final = {
    "pause": "Pause a job. Its completed work remains.",
    "resume": "Resume a paused job. A discard needs the role destroy.",
    "stop": "Stop a job permanently. Its completed work remains.",
}
_SAMPLE: Final = {"id": SAMPLES["job"], "what": Work.REDRIVE, "state": JobState.DONE, "who": "admin", "undone": 0}

JOB_ROUTES: Final = (
    Route(
        "POST",
        "/jobs",
        "Start a job, which the server runs: a redrive or discard of dead letters, or a drain of receivers.",
        _begin,
        f"The job: {_JOB}. {_MORE}",
        Example({"what": "redrive", "all": True, "rate": 50}, {"what": "redrive", "state": "running"}),
        body=(
            choice_field("what", "What it does (a discard needs the role destroy)", Work, f"one of {', '.join(Work)}"),
            *(each for each in CHOICE if each.name not in ("dryRun", "count")),
            *REDRIVE_FIELDS,
            number_field(
                "waitForRoomMs",
                "How long a redrive waits for room in full queues while nothing is moved, in milliseconds; 0: not at all.",
                0,
                _MOST_WAIT_MS,
                _WAIT_MS,
            ),
            FOR_GOOD,
            list_field("sessions", "The sessions whose queues become dead letters.", _session),
            text_field("subject", "Instead of `sessions`: all sessions of this subject.", _subject),
        ),
        role=Role.OPERATE,
        action="begin job",
        about=About.MANY,
    ),
    Route(
        "GET",
        "/jobs",
        "List the jobs, the newest first, a page at a time.",
        _list,
        f"`jobs`, a list; `next`, the cursor of the next page, empty if this is the last. A job has {_JOB}. {_MORE}",
        Example({"state": "done"}, {"jobs": [_SAMPLE], "next": ""}),
        query=(
            choice_field("state", "Only those in this state", JobState),
            *page_fields("jobs", place),
        ),
        about=About.MANY,
    ),
    Route(
        "GET",
        "/jobs/{job}/letters",
        "List the dead letters that a job redrove or discarded, in that order, a page at a time.",
        _letters_of,
        "`letters`, a list, each with `letter`, `message`, `at`, `redrivenAs` (the new id of the message; empty if it"
        " was discarded), `to` (its receiver; or the channel that it was redriven to) and `state`. `state` is waiting,"
        " acknowledged, dead letter, or another reason for the end of the message. It is empty if the dead letter was"
        " discarded, went to a channel, or has an unknown outcome. `states`: the number of each state in the whole job,"
        " by the facts up to `readTo`, milliseconds since 1970. `partial`: whether there are later facts; the next"
        " request continues with them, up to 100,000 messages of a job. `next`, the cursor of the next page, empty if"
        " this is the last: earlier pages may be short or empty, and a page may have more dead letters than requested.",
        Example({}, {"letters": [{"letter": SAMPLES["id"], "to": "client/joe/1"}], "next": ""}),
        query=(
            text_field("after", "`next` of the previous page.", cursor(place)),
            count_text("Approximate number of dead letters."),
        ),
        refusals=_UNKNOWN,
        about=About.MANY,
    ),
    Route(
        "GET",
        "/jobs/{job}",
        "Show one job.",
        _show,
        f"{_JOB}. Also `may`: the role that the operator has for the job. {_MORE}",
        Example({}, _SAMPLE),
        refusals=_UNKNOWN,
        about=About.MANY,
    ),
    *(
        Route(
            "POST",
            f"/jobs/{{job}}/{verb}",
            _SUMMARIES[verb],
            _steering(verb),
            "The job, as above.",
            Example({"reason": "too much load"}, {**_SAMPLE, "state": STEERINGS[verb].state}),
            body=(WITH_REASON,),
            role=Role.OPERATE,
            action=f"{verb} job",
            refusals=_UNKNOWN,
            about=About.MANY,
        )
        for verb in STEERINGS
    ),
)
