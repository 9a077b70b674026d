"""`crewel jobs`: work on many dead letters or receivers that the server does, and how to pause, resume and stop it."""

import sys
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from crewel.cli import output
from crewel.cli.admin_client import Admin, Named, Reason, command, given
from crewel.cli.bayeux_client import AsJson
from crewel.cli.output import progress
from crewel.errors import CrewelError
from crewel.logs import escaped

_OPEN: Final = ("running", "paused")
_DOING: Final = {
    "redrive": ("redriving", "dead letters"),
    "discard": ("discarding", "dead letters"),
    "drain": ("draining", "messages"),
}
_JOB: Final = "/jobs/{job}"
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0

app = typer.Typer(name="jobs", help="List, pause, resume and stop the jobs of operators.", no_args_is_help=True)

_Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of jobs.")]


def _named(job_id: str) -> Named:
    return Named({"job": job_id}, "id", job_id)


@command(app, "list")
async def _list(
    admin: Admin,
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help="Only jobs in this state: running, paused, stopped, done or failed."),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Print at most this many.")] = None,
    as_json: AsJson = None,
) -> None:
    """Print jobs, newest first."""
    headings = ("id", "what", "state", "done", "stayed", "of", "by", "began", "reason")
    await output.print_entries(admin.pages("/jobs", "jobs", given(state=state), count), headings, _row, as_json)


def _row(job: Mapping[str, Any]) -> tuple[Any, ...]:
    from crewel.times import format_timestamp

    numbers = (job["done"], job["undone"], job["total"])
    state = "waiting for room" if job.get("waitsFor") else job["state"]  # servers of before do not wait
    return job["id"], job["what"], state, *numbers, job["who"], format_timestamp(job["began"]), job["reason"]


@command(app)
async def show(admin: Admin, ids: _Ids, as_json: AsJson = None) -> None:
    """Show everything about jobs. `became`: the outcomes of redriven messages; with `becamePartial`, of the first 100,000."""
    for job_id in ids:
        job = await admin.call("GET", _JOB, about=_named(job_id))
        if job["what"] == "redrive" and not job["toChannel"]:
            job |= await _outcomes(admin, job_id)
        output.print_fields(job, "id", as_json)


async def _outcomes(admin: Admin, job_id: str) -> dict[str, Any]:
    """How the messages of a redrive ended. The server reads on with each call."""
    read_to = None
    while True:
        told = await admin.call("GET", f"{_JOB}/letters", {"count": 1}, about=Named({"job": job_id}))
        # An earlier server sends neither of these.
        is_over = not told.get("partial") or told.get("readTo") == read_to
        read_to = told.get("readTo")
        if is_over:
            return {"became": told.get("states", {})} | ({"becamePartial": True} if told.get("partial") else {})


def _add(verb: str, past: str, meaning: str) -> None:
    @command(app, verb, meaning)
    async def _(admin: Admin, ids: _Ids, reason: Reason = None, as_json: AsJson = None) -> None:
        for job_id in ids:
            job = await admin.call("POST", f"{_JOB}/{verb}", body=given(reason=reason), about=_named(job_id))
            output.print_answer(job, f"{job_id}: {past}, {job['done']:,} of {job['total']:,} done", as_json)


_add("pause", "paused", "Pause jobs. Completed work is not undone.")
_add("resume", "running", "Let paused jobs continue.")
_add("stop", "stopped", "Stop jobs permanently. Completed work is not undone.")


@command(app)
async def follow(
    admin: Admin, job_id: Annotated[str, typer.Argument(metavar="ID", help="Id of a job.")], as_json: AsJson = None
) -> None:
    """Show the progress of a job until it has ended; the exit status is 1 if it failed. An interrupt ends the command, not the
    job."""
    job = await followed(admin, await admin.call("GET", _JOB, about=_named(job_id)))
    output.print_answer(job, f"{job['state']}: {job['done']:,} done, {job['undone']:,} stayed", as_json)
    if job["state"] == "failed":  # one that was stopped has ended as an operator asked for
        raise CrewelError(f"the job {job_id} failed: {job['error']}")


async def followed(admin: Admin, job: dict[str, Any]) -> dict[str, Any]:
    """The job as it is at its end; meanwhile its progress is shown on a terminal. Raises CrewelError."""
    import asyncio

    pause, has_waited = _FIRST_PAUSE_S, False
    doing, things = _DOING[job["what"]]
    try:
        with progress(doing, things, job["total"] or None) as shown:
            while job["state"] in _OPEN:
                shown(job["done"] + job["undone"])
                if job.get("waitsFor") and not has_waited:
                    told = f"{escaped(job['error'])}; to end that: crewel jobs stop {job['id']}"
                    print(told, file=sys.stderr, flush=True)
                has_waited = bool(job.get("waitsFor"))
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
                job = await admin.call("GET", _JOB, about=_named(job["id"]))
            shown(job["done"] + job["undone"])
    except asyncio.CancelledError:
        print(f"the server continues with the job: crewel jobs follow {job['id']}, or stop", file=sys.stderr)
        raise
    except CrewelError as error:
        where = f"crewel jobs follow {job['id']}, with --url at another node"
        raise CrewelError(f"{error}; another node, or the next server, continues with the job: {where}") from None
    return job
