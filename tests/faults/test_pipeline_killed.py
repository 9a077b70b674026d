"""The live job is killed as a whole between any two steps, and the store is killed and started again meanwhile: bronze, silver
and gold hold each event once."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import redis

from crewel.pipeline.schemas import RAW, TABLES
from crewel.storage.keys import Keys
from tests.faults.conftest import IS_FULL, Tell
from tests.faults.pipeline_job import PipelineJob, rows_of
from tests.store_process import StoreProcess

KILLS = 10 if IS_FULL else 2
EVENTS_A_SECOND = 2000
TICK_S = 0.05
PREFIX = "crewel:"


class Writer:
    """Writes facts and events as a server does, so many a second, some of which nobody can understand. Each has an id that is
    known before, so that one whose answer was lost can be written again."""

    def __init__(self, store: StoreProcess) -> None:
        self.added: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self._store = store
        self._keys = Keys(PREFIX)
        self._log_id = 0
        self._group = 0
        self._rng = random.Random(7)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._is_over.is_set():
            ms = time.time_ns() // 1_000_000
            entries = [
                (key, f"{ms}-{seq}", fields)
                for seq, (key, fields) in enumerate(self._entries(round(EVENTS_A_SECOND * TICK_S)), 1)
            ]
            self._add(entries)
            due = max(due + TICK_S, time.monotonic() - 1)
            self._is_over.wait(max(due - time.monotonic(), 0.002))

    def _add(self, entries: list[tuple[str, str, dict[str, bytes | str]]]) -> None:
        while True:
            try:
                with self._store.client() as client:
                    pipe = client.pipeline(transaction=False)
                    for key, place, fields in entries:
                        pipe.xadd(key, fields, id=place)
                    for answer in pipe.execute(raise_on_error=False):
                        if isinstance(answer, redis.ResponseError) and "equal or smaller" in str(answer):
                            continue  # it is there since the attempt before
                        if isinstance(answer, Exception):
                            raise answer
                    return
            except (redis.ConnectionError, redis.TimeoutError, redis.exceptions.BusyLoadingError):
                time.sleep(0.05)

    def _entries(self, number: int) -> Iterator[tuple[str, dict[str, bytes | str]]]:
        for _ in range(number):
            dice = self._rng.random()
            if dice < 0.5:
                yield self._published(self._rng.randint(1, 3))
            elif dice < 0.99:
                yield self._ended(self._rng.randint(1, 3))
            elif dice < 0.995:
                yield self._failed()
            else:
                yield self._odd()

    def _published(self, number: int) -> tuple[str, dict[str, bytes | str]]:
        first = self._log_id + 1
        self._log_id += number
        self.counts["published"] += number
        return self._fact("published", {"first": first, "channels": ["/a/b"] * number})

    def _ended(self, number: int) -> tuple[str, dict[str, bytes | str]]:
        self.counts["ended:settled"] += number
        first = self.counts["ended:settled"]
        ended = [{"session": "client/joe/1", "reason": "settled", "ids": [first - i for i in range(number)]}]
        return self._fact("ended", {"ended": ended})

    def _failed(self) -> tuple[str, dict[str, bytes | str]]:
        self._group += 1
        self.counts["failed"] += 1
        self.counts["settled"] += 2
        self.added["events"] += 1
        failed = {
            "type": "failed", "at": 1, "session": "client/joe/1", "channel": "/a/b", "id": "1", "code": "user.update.error",
            "outcome": "letter",
        }  # fmt: skip
        settled = {"type": "settled", "channel": "/a/b", "count": 2, "sum": 3, "buckets": [2] + [0] * 17}
        group = {"v": 1, "node": "n", "token": "t", "n": self._group, "from": 1, "until": 2, "lost": 0}
        return self._keys.events, {"d": orjson.dumps({**group, "events": [failed, settled]})}

    def _odd(self) -> tuple[str, dict[str, bytes | str]]:
        self.counts["corrupt"] += 1
        self.added["facts"] += 1
        text = self._rng.choice((b"{", b"\xff\xfe", b'{"first":1}', b'{"v":9,"first":1,"channels":[]}', b"[" * 5000))
        return self._keys.facts, {"t": "published", "d": text}

    def _fact(self, type_: str, fields: dict[str, object]) -> tuple[str, dict[str, bytes | str]]:
        self.added["facts"] += 1
        return self._keys.facts, {"t": type_, "d": orjson.dumps(fields)}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreProcess]:
    directory = tmp_path / "store"
    directory.mkdir()
    store = StoreProcess(directory)
    yield store
    store.close()


@pytest.mark.timeout(1200)
def test_each_event_is_there_once_however_often_the_job_is_killed(
    store: StoreProcess, tmp_path: Path, tell: Tell
) -> None:
    tables = tmp_path / "tables"
    rng = random.Random(1)
    writer = Writer(store)
    moments: Counter[str] = Counter()
    processes = done = 0
    try:
        for shot in range(KILLS):
            job = PipelineJob(store.url, PREFIX, tables)
            try:
                job.wait_for_batch(done + rng.randint(0, 2))
                if shot % 3 == 1:
                    store.kill()
                    time.sleep(rng.uniform(0.2, 2))
                    store.start()
                    job.wait_for_batch(job.batch()[0] + 1)
                time.sleep(rng.uniform(0, 3))
                processes += job.kill()
                begun, done = job.batch()
                moments["within a batch" if begun > done else "between batches"] += 1
                done += 1
            finally:
                job.close()
    finally:
        writer.stop()
    job = PipelineJob(store.url, PREFIX, tables, "once")
    try:
        job.finish(300)
    finally:
        job.close()

    entries = sum(writer.added.values())
    places = [(row["key"], row["id"]) for row in rows_of(tables, RAW, "key", "id")]
    assert Counter(key for key, _ in places) == writer.added
    assert len({*places}) == entries
    for name, what in (("fact_published", "published"), ("fact_ended", "ended:settled")):
        logs = [row["log_id"] for row in rows_of(tables, TABLES[name], "log_id")]
        assert sorted(logs) == [*range(1, writer.counts[what] + 1)], name
    groups = [row["n"] for row in rows_of(tables, TABLES["event_groups"], "n")]
    assert sorted(groups) == [*range(1, writer.counts["failed"] + 1)]
    assert len(rows_of(tables, TABLES["corrupt"], "place")) == writer.counts["corrupt"]

    gold: Counter[str] = Counter()
    for row in rows_of(tables, TABLES["minutes"], "what", "count"):
        gold[row["what"]] += row["count"]
    assert gold == writer.counts
    assert _figures(store) == writer.counts
    tell(
        f"{KILLS} kills of {processes} processes ({', '.join(f'{number} {when}' for when, number in sorted(moments.items()))}),"
        f" {entries} entries, {sum(writer.counts.values())} rows: each once in bronze, silver, gold and the store's figures"
    )


def _figures(store: StoreProcess) -> Counter[str]:
    found: Counter[str] = Counter()
    with store.client() as client:
        for key in client.scan_iter(match=f"{Keys(PREFIX).base}pipeline:minute:*", count=1000):
            for what, count in client.hgetall(key).items():
                found[what.decode()] += int(count)
    return found
