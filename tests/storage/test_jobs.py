"""Jobs in the store: one owner at a time, and counts that are exact."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crewel.errors import Fenced
from crewel.storage import dead_letter_store, job_store
from crewel.storage.job_store import STEERINGS, Job, JobState, TooManyJobs
from crewel.storage.store import Store
from tests.storage.dead_lettered import letter
from tests.storage.owner import FACTS_MAX, JOE, Owner, started

RUNNING = Job(
    "1-1",
    what="redrive",
    who="ann",
    reason="a test",
    role="operate",
    choice={"ids": ["1-0"]},
    to_channel=False,
    rate=None,
    total=3,
    began=1000,
    state=JobState.RUNNING,
    node="heron",
    changed=1000,
    changed_by="",
    ended=None,
    after="",
    done=0,
    undone=0,
    errors=[],
    error="",
)


async def begin(owner: Owner, job: Job = RUNNING) -> None:
    await owner.do(job_store.begin(owner.keys, owner.token, "heron", job))


async def one(owner: Owner, job_id: str = "1-1") -> Job:
    [job] = await job_store.get(owner.store, [job_id])
    return job


async def save(owner: Owner, ended: JobState | None = None, done: int = 0) -> JobState:
    errors = [{"id": "1-0", "errorCode": "x", "message": "no"}]
    step = job_store.save(
        owner.keys, owner.token, "1-1", 2000, after="7-0", undone=1, errors=errors, done=done, ended=ended
    )
    state: JobState = await owner.do(step)
    return state


async def steer(owner: Owner, verb: str, job_id: str = "1-1") -> bool | None:
    steered: bool | None = await owner.do(job_store.steer(owner.keys, job_id, STEERINGS[verb], "joe", 1500))
    return steered


async def test_a_job_is_read_as_it_was_begun(store: Store) -> None:
    owner = await started(store)
    await begin(owner)
    await begin(owner)  # a repeated call changes nothing
    assert await one(owner) == RUNNING
    assert await job_store.newest(store) == ["1-1"]
    assert await job_store.has_open(store)
    assert await job_store.get(store, ["2-2"]) == []


async def test_a_job_is_saved_and_ends(store: Store) -> None:
    owner = await started(store)
    await begin(owner)
    assert await save(owner, done=2) is JobState.RUNNING
    job = await one(owner)
    assert (job.after, job.undone, job.done, len(job.errors), job.ended) == ("7-0", 1, 2, 1, None)
    assert await save(owner, JobState.DONE) is JobState.DONE
    job = await one(owner)
    assert (job.state, job.ended) == (JobState.DONE, 2000)
    assert not await job_store.has_open(store)
    assert await steer(owner, "stop") is False


async def test_operators_steer_a_job_and_its_runner_learns_of_it(store: Store) -> None:
    owner = await started(store)
    await begin(owner)
    assert await steer(owner, "pause")
    assert await save(owner, JobState.DONE) is JobState.PAUSED  # it ends when it is resumed
    assert await owner.do(job_store.claim(owner.keys, owner.token, "heron")) == []
    assert await steer(owner, "resume")
    assert await owner.do(job_store.claim(owner.keys, owner.token, "heron")) == ["1-1"]
    assert await steer(owner, "stop")
    assert await save(owner, JobState.DONE) is JobState.STOPPED
    job = await one(owner)
    assert (job.state, job.changed_by, job.ended) == (JobState.STOPPED, "joe", 1500)
    assert await steer(owner, "resume") is False
    assert await steer(owner, "stop", "9-9") is None


async def test_the_next_server_claims_running_jobs_and_the_former_is_fenced(store: Store) -> None:
    former = await started(store)
    await begin(former)
    later = await started(store, "b")
    assert await later.do(job_store.claim(later.keys, later.token, "crane")) == []  # the former lives
    await later.adopt_all()
    assert await later.do(job_store.claim(later.keys, later.token, "crane")) == ["1-1"]
    assert (await one(later)).node == "crane"
    with pytest.raises(Fenced):
        await save(former)
    with pytest.raises(Fenced):
        await begin(former, replace(RUNNING, id="2-2"))


async def test_old_jobs_leave_and_open_ones_stay(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_store, "MOST", 3)
    monkeypatch.setattr(job_store, "MOST_OPEN", 3)
    owner = await started(store)
    await begin(owner)
    for number in range(2, 7):
        await begin(owner, replace(RUNNING, id=f"{number}-1", began=number * 1000))
        await owner.do(job_store.steer(owner.keys, f"{number}-1", STEERINGS["stop"], "joe", 1))
    assert await job_store.newest(store) == ["6-1", "5-1", "1-1"]
    assert not await store.reader.exists(store.keys.job("2-1"))
    for number in (7, 8):
        await begin(owner, replace(RUNNING, id=f"{number}-1", began=number * 1000))
    with pytest.raises(TooManyJobs):
        await begin(owner, replace(RUNNING, id="9-1", began=9000))


async def test_what_a_job_does_is_counted_by_the_step_that_does_it(store: Store) -> None:
    owner = await started(store)
    await owner.login(JOE)
    ids = await owner.dead_letter(*(letter() for _ in range(4)))
    await begin(owner)
    step = dead_letter_store.discard(owner.keys, owner.token, ids[:2], FACTS_MAX, "ann", "1-1")
    assert await owner.do(step) == 2
    [stored] = await dead_letter_store.get(store, ids[2:3])
    step = dead_letter_store.redrive(owner.keys, owner.token, stored, FACTS_MAX, job_id="1-1")
    await owner.do(step)
    await owner.do(step)  # asked again, it answers the same and counts nothing
    assert (await one(owner)).done == 3
