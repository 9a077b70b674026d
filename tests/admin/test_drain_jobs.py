"""Jobs that drain: what an operator of some channels may drain is asked again for each session, when its turn comes."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.admin.job_resource import JOB_ROUTES
from crewel.security.grants import Role, Scope
from crewel.storage.job_store import Job
from tests.admin.test_rejecting_receivers import Operator
from tests.broker.stored_world import Receiver, StoredWorld, store

pytestmark = pytest.mark.store

JOE, ANN = "client/joe/1", "client/ann/1"
OF_ORDERS = Scope(parts=((Role.OPERATE, frozenset(("/orders/**",))),))


@pytest.fixture
def operator(stored: StoredWorld) -> Operator:
    return Operator(stored)


def begun(operator: Operator, scope: Scope, *sessions: str) -> str:
    """The id of a job that drains these sessions, and that no server has claimed yet."""
    told: dict[str, Any] = operator.get(JOB_ROUTES[0], scope, what="drain", sessions=list(sessions))
    return str(told["id"])


def worked_off(operator: Operator, job_id: str) -> Job:
    jobs, world = operator.admin.jobs, operator.world
    world.wait(jobs._look())
    world.settle()
    for _ in range(10):
        world.commit()
    job = world.wait(jobs.get(job_id))
    assert job is not None
    return job


def test_a_session_that_has_left_the_operators_channels_is_not_drained(stored: StoredWorld, operator: Operator) -> None:
    joe, ann = (Receiver(stored).started("/orders/new", name=name) for name in ("joe/1", "ann/1"))
    store(stored, "/orders/new", 1)
    job_id = begun(operator, OF_ORDERS, JOE, ANN)
    joe.subscribe("/payroll/x")
    store(stored, "/payroll/x", 2)
    job = worked_off(operator, job_id)
    assert (job.state, job.total, job.done, job.undone) == ("done", 2, 1, 1)
    assert job.errors[0]["message"] == f"there is no session {JOE} here"
    assert [letter.receiver for letter in stored.letters()] == [ANN]
    assert [each["data"] for each in joe.take()] == [1, 2]
    assert ann.take() == []
    whole = worked_off(operator, begun(operator, Scope(Role.OPERATE), JOE))
    assert (whole.done, whole.undone) == (2, 0)


def test_the_timeline_has_a_drain_of_a_job(stored: StoredWorld, operator: Operator) -> None:
    Receiver(stored).started("/orders/new", name="joe/1")
    store(stored, "/orders/new", 1, 2)
    assert worked_off(operator, begun(operator, Scope(Role.OPERATE), JOE)).done == 2
    events, _ = operator.admin.timelines.of(JOE) or ([], 0)
    assert [(each["what"], each["who"], each["messages"]) for each in events] == [("drained", "ann", 2)]
