"""A redrive is killed as a whole at any moment, and continued by its name: each dead letter is sent again once."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
import redis

from crewel.storage.keys import Keys
from tests.admin.desk import SETS, TOKEN, Desk, Receiver, publish
from tests.conftest import StartServer
from tests.faults.conftest import IS_FULL
from tests.faults.report import DID
from tests.functional.bayeux import Message
from tests.pipeline.pipeline_job import Job
from tests.store_process import until

KILLS = 20 if IS_FULL else 2
LETTERS = 900 if IS_FULL else 300
RATE = 25
"""Letters a second, so few that a job is killed on its way."""
AGAIN = 25
"""So many of those that were sent again die anew meanwhile, at most."""
JOB = "again"
CODE = "user.update.error"


@pytest.mark.timeout(1200)
def test_each_letter_is_sent_again_once_however_often_the_redrive_is_killed(
    start_server: StartServer, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    server = start_server(*SETS, "http.keepalive_ms=3600000")  # jobs start slowly on a busy machine
    desk, joe = Desk(server), Receiver(server).be("joe/1")
    joe.subscribe("/orders/new")
    publish(server, "/orders/new", LETTERS)
    messages = joe.take_all()
    for first in range(0, LETTERS, 100):
        joe.reject(messages[first : first + 100])
    sets = dict(text.split("=", 1) for text in server.store_sets)
    environ = {
        "CREWEL_STORAGE__URL": sets["storage.url"],
        "CREWEL_STORAGE__PREFIX": sets["storage.prefix"],
        "CREWEL_TOKEN": TOKEN,
    }
    where = f"error_code = '{CODE}' and channel like '/orders/%'"
    tables = tmp_path / "tables"
    options = ["--dir", str(tables), "--url", server.url, "--where", where, "--job", JOB, "--rate", str(RATE), "--json"]
    keys = Keys(sets["storage.prefix"])
    heard: list[int] = []
    died_anew: list[int] = []
    rng = random.Random(2)
    with redis.Redis.from_url(sets["storage.url"]) as client:
        until(lambda: client.xlen(keys.dead) == LETTERS)

        def redriven() -> list[str]:
            facts: list[tuple[bytes, dict[bytes, bytes]]] = client.xrange(keys.facts)  # type: ignore[assignment]
            return [orjson.loads(fields[b"d"])["letter"] for _, fields in facts if fields[b"t"] == b"redriven"]

        def settle(messages: list[Message]) -> None:
            """Say of all that comes, also with the answer to what is said, that it is well, or of the first that it is not."""
            while messages:
                heard.extend(message["data"] for message in messages)
                again = messages[: AGAIN - len(died_anew)]
                died_anew.extend(message["data"] for message in again)
                statuses = [
                    {
                        "id": message["ext"]["update"]["id"],
                        **({"errorCode": CODE} if message in again else {"state": "OK"}),
                    }
                    for message in messages
                ]
                messages = joe.say(*statuses)

        def job() -> Job:
            return Job(["crewel", "pipeline", "redrive", *options], tmp_path / "redrive.log", environ)

        sent = processes = 0
        for shot in range(KILLS):
            killed = job()
            try:
                kept = tables / "redrives" / JOB / "_SUCCESS"
                wanted = sent + rng.randint(1, LETTERS // KILLS // 2)
                killed.wait_for(kept.exists if shot == 0 else lambda wanted=wanted: len(redriven()) >= wanted)  # type: ignore[misc]
                processes += killed.kill()
            finally:
                killed.close()
            sent = len(redriven())
            settle(joe.take_all())
        last = job()
        try:
            last.finish(300)
        finally:
            last.close()
        result = orjson.loads((tmp_path / "redrive.log").read_text().splitlines()[-1])
        settle(joe.take_all())
        letters = redriven()
    assert len(letters) == len({*letters}) == LETTERS
    assert sorted(heard) == [*range(LETTERS)]
    assert (result["chosen"], result["redriven"] + result["gone"], result["stayed"]) == (LETTERS, LETTERS, [])
    assert died_anew
    until(lambda: sorted(each["data"] for each in desk.letters("count=100")) == sorted(died_anew))
    record_property(
        DID,
        f"{KILLS} kills of {processes} processes after which the same job went on: {LETTERS} letters sent again, each once;"
        f" {len(died_anew)} of them died again meanwhile and stayed",
    )
