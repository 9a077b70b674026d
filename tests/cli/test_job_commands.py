"""`crewel jobs`, as it is typed."""

from __future__ import annotations

import json
import select

import pytest

from crewel.storage.keys import Keys
from tests.cli.operators import LIMIT_S, Post
from tests.functional.wire import until
from tests.store_process import shared_store


def test_who_follows_a_job_that_waits_reads_at_once_why(post: Post) -> None:
    """It has waited since before the command began."""
    joe = post.receiver("joe/1", "/a/b", queue={"maxEntries": 1})
    for _ in range(2):
        post.letters(joe, "/a/b", 1)
    job = post.desk.post("/jobs", {"what": "redrive", "all": True})
    until(lambda: post.desk.get(f"/jobs/{job['id']}")["waitsFor"])
    with post.start("jobs", "follow", job["id"]) as following:
        said, _, _ = select.select([following.stderr], [], [], LIMIT_S)
        post.desk.post(f"/jobs/{job['id']}/stop")
        out, err = following.communicate(timeout=LIMIT_S)
    assert said
    assert err == f"waiting for room in the queue of client/joe/1; to end that: crewel jobs stop {job['id']}\n"
    assert (following.returncode, json.loads(out)["state"]) == (0, "stopped")


@pytest.mark.parametrize("state", ["failed", "stopped"])
def test_a_followed_job_that_failed_ends_the_command_with_1(post: Post, state: str) -> None:
    """A stop is what an operator asked for."""
    job = post.desk.post("/jobs", {"what": "redrive", "all": True})["id"]
    until(lambda: post.desk.get(f"/jobs/{job}")["ended"] is not None)
    key = Keys(post.server.store_sets[1].partition("=")[2]).job(job)
    with shared_store().client() as client:
        client.hset(key, mapping={"state": state, "error": "KeyError: \x1b[2J'x'"})
    ended = post.run("jobs", "follow", job)
    assert json.loads(ended.out)["state"] == state
    why = f"crewel: the job {job} failed: KeyError: \\x1b[2J'x'\n"
    assert (ended.status, ended.err) == ((1, why) if state == "failed" else (0, ""))
