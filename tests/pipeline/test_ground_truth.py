"""What clients of a real server know, and what the tables say of it after server and job were killed: all counts are the same.
Beside 200,000 messages with a poison message and a failing receiver, the planted mixtures of faults are played, and the cause
of each of their dead letters is measured. Then eight kinds of losses are planted one after the other, and the audit names
each, and nothing else.

FAULTS=full publishes 200,000 messages and kills three times, or FAULT_VOLUME per cent of these messages.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import orjson
import pytest
import redis
from deltalake import DeltaTable
from pyspark.sql import functions as f

from crewel.client import Client, ClientError
from crewel.pipeline.connection import Address
from crewel.pipeline.few_rows import keep
from crewel.pipeline.jobs import audit, live, report
from crewel.pipeline.jobs.inputs import gather
from crewel.pipeline.schemas import FINDINGS, TABLES
from crewel.pipeline.source import register
from crewel.pipeline.tables import Tables
from crewel.pipeline.transformations.causes import causes, of_ids
from crewel.storage.keys import Keys
from tests.faults.conftest import IS_FULL, volume
from tests.faults.report import DID
from tests.pipeline.pipeline_job import PipelineJob, rows_of
from tests.pipeline.planted import MIXTURES
from tests.pipeline.played import GROUP, Play, key_of
from tests.server_process import Server
from tests.store_process import StoreProcess, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES, KILLS = volume(200_000, 300), 3 if IS_FULL else 1
LIMIT_S = 3600 if IS_FULL else 600
AT_ONCE, PREFETCH = 100, 200
MIXTURE_SHARES = 40
"""In so many parts the mixtures are published, evenly among the other messages."""
SHARE_S = 0.25
"""How long each part takes at least: an outage is known by what a receiver answers within some seconds."""
LEAST = 0.95
"""Precision and recall of each cause."""
PREFIX = "truth:"
SETS = (
    "events.level=all",
    "events.flush_ms=100",
    "delivery.queue_max_entries=1000000",
    "storage.facts_max_entries=10000000",
)
CHANNELS = ("/orders/berlin", "/orders/lima")
GOOD, SICK, AWAY = ("good/1", "good/2", "good/3"), "sick/1", "away/1"
POISON = 117
"""Number of a message that no receiver can take."""
FAILS, POISONED = "user.update.sickness", "user.update.error"
PLAYED = len(MIXTURES) * 5 * 20
"""Messages that receivers of the mixtures may hold at once."""
LEFT = 5
"""Messages that are published to the absent receiver."""

pytestmark = pytest.mark.timeout(2 * LIMIT_S)


def rejected_by(name: str, number: int) -> str | None:
    """The code with which a receiver rejects a message; None if it takes it."""
    if number == POISON:
        return POISONED
    return FAILS if name == SICK and number % 7 == 3 else None


@dataclass
class Truth:
    """What the clients know."""

    url: str
    directory: Path
    ids: dict[int, str] = field(default_factory=dict)
    """Number of a message -> its id, as it was answered."""
    mixed: dict[str, str] = field(default_factory=dict)
    """Key of a stored message of the mixtures -> its id."""
    heard: dict[str, set[int]] = field(default_factory=dict)
    """Receiver -> numbers of the messages that it answered."""
    acknowledged: int = 0
    """How often a receiver acknowledged, each message once."""
    limit: int = 0
    """How many messages may be published by now."""
    play: Play = field(default_factory=Play)
    """The mixtures of faults beside these messages."""

    async def publish(self) -> None:
        step = AT_ONCE * max(MESSAGES // AT_ONCE // MIXTURE_SHARES, 1)
        async with Client(self.url) as client:
            for first in range(0, MESSAGES, AT_ONCE):
                while first >= self.limit:
                    await asyncio.sleep(0.02)
                if first % step == 0:
                    await self.publish_mixtures(client, first / MESSAGES, min(first + step, MESSAGES) / MESSAGES)
                numbers = range(first, min(first + AT_ONCE, MESSAGES))
                # With the same key it is stored once, however often it is sent.
                ids = await stored(client, [(CHANNELS[each % 2], each, f"order-{each}") for each in numbers])
                self.ids |= dict(zip(numbers, ids, strict=True))

    async def publish_mixtures(self, client: Client, begin: float, end: float) -> None:
        for part in range(round(begin * MIXTURE_SHARES), round(end * MIXTURE_SHARES)):
            await asyncio.gather(
                self.publish_part(client, part / MIXTURE_SHARES, (part + 1) / MIXTURE_SHARES), asyncio.sleep(SHARE_S)
            )

    async def publish_part(self, client: Client, begin: float, end: float) -> None:
        messages = self.play.share(begin, end)
        for first in range(0, len(messages), AT_ONCE):
            some = [each for each in messages[first : first + AT_ONCE] if each.is_stored]
            ids = await stored(client, [(each.channel, each.data, each.key) for each in some])
            self.mixed |= {each.key: message for each, message in zip(some, ids, strict=True)}
        for each in messages:
            if not each.is_stored:
                with suppress(ClientError):  # the server is killed meanwhile: it is not published then
                    await client.publish(each.channel, each.data)

    async def receive(self, name: str) -> None:
        heard = self.heard.setdefault(name, set())
        async with Client(self.url) as client:
            options: dict[str, Any] = {"name": name, "resume_file": self.directory / name.replace("/", "-")}
            async for message in client.consume("/orders/*", prefetch=PREFETCH, **options):
                code = rejected_by(name, message.data)
                if code is None:
                    message.acknowledge()
                    self.acknowledged += 1
                else:
                    message.reject(code, f"cannot take order {message.data}")
                heard.add(message.data)
                if len(heard) == MESSAGES:
                    await asyncio.sleep(1)  # the last statuses are on their way
                    return

    async def leave(self) -> None:
        """A receiver that subscribes and goes, for which messages wait, some of them beside the log."""
        async with Client(self.url, name=AWAY, persistent=True, leave=True) as client:
            await client.subscribe("/away")

    async def publish_to_the_absent(self) -> None:
        async with Client(self.url) as client:
            for number in range(LEFT):
                await client.publish("/away", number, persistent=True)
                await client.publish("/other", number, persistent=True, to=f"client/{AWAY}", subscribable=False)


async def stored(client: Client, messages: list[tuple[str, Any, str]]) -> list[str]:
    """Publish messages, (channel, data, key), until they are stored; return their ids."""
    while messages:
        batch = client.batch()
        try:
            async with asyncio.timeout(30), batch:
                for channel, data, key in messages:
                    batch.publish(channel, data, persistent=True, key=key)
        except (ClientError, TimeoutError):
            await asyncio.sleep(0.2)
        else:
            assert all(reply.message_id for reply in batch.replies)
            return [str(reply.message_id) for reply in batch.replies]
    return []


async def played(truth: Truth, server: Server, restart: Callable[[], Server], jobs: Jobs) -> None:
    await truth.leave()
    rng = random.Random(3)
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        for name in (*GOOD, SICK):
            group.create_task(truth.receive(name))
        for mixture, names in truth.play.receivers.items():
            for name in names:
                group.create_task(truth.play.receive(truth.url, truth.directory, mixture, name))
        while len(truth.heard) < len(GOOD) + 1:
            await asyncio.sleep(0.05)
        while not await asyncio.to_thread(are_there, jobs.url, truth.play):
            await asyncio.sleep(0.2)
        await asyncio.sleep(1)
        group.create_task(truth.publish())
        for shot in range(1, KILLS + 1):
            jobs.start()
            await asyncio.to_thread(jobs.wait_until_at_work)
            truth.limit = MESSAGES * (shot + 1) // (KILLS + 1)
            while len(truth.ids) < MESSAGES * shot // (KILLS + 1):
                await asyncio.sleep(0.002)
            server.kill()
            await asyncio.sleep(rng.uniform(0, 2))
            jobs.kill()
            server = await asyncio.to_thread(restart)
    await truth.publish_to_the_absent()


def are_there(url: str, play: Play) -> bool:
    """Whether the store has a session of each receiver of the mixtures."""
    names = [Keys(PREFIX).session(name) for names in play.receivers.values() for name in names]
    with redis.Redis.from_url(url) as client:
        return client.exists(*names) == len(names)


class Jobs:
    """The live job, which is killed and started again."""

    def __init__(self, url: str, tables: Path) -> None:
        self.url, self._tables = url, tables
        self._job: PipelineJob | None = None

    def start(self) -> None:
        self._job = PipelineJob(self.url, PREFIX, self._tables)
        self._job.begin()

    def wait_until_at_work(self) -> None:
        """Wait until it has done a batch since it was started."""
        assert self._job is not None
        self._job.wait_for_batch(self._job.batch()[1] + 1)

    def kill(self) -> None:
        assert self._job is not None
        self._job.kill()
        self._job.close()

    def close(self) -> None:
        if self._job is not None:
            self._job.close()


@dataclass
class Scene:
    """What was played, and what it left."""

    truth: Truth
    address: Address
    store: StoreProcess
    tables: Path
    start: Callable[[], Server]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("truth")
    (directory / "store").mkdir()
    store = StoreProcess(directory / "store")
    arguments = [f"--set={text}" for text in (*SETS, f"storage.url={store.url}", f"storage.prefix={PREFIX}")]
    servers = [Server(["--port=0", *arguments], directory)]

    def restart() -> Server:
        servers.append(Server([f"--port={servers[0].port}", *arguments], directory))
        return servers[-1]

    tables = directory / "tables"
    jobs = Jobs(store.url, tables)
    truth = Truth(servers[0].url, directory)
    try:
        asyncio.run(played(truth, servers[0], restart, jobs))
        jobs.close()
        servers[-1].end_well()
        yield Scene(truth, Address(store.url, PREFIX), store, tables, restart)
    finally:
        jobs.close()
        for server in servers:
            server.close()
        store.close()


@pytest.fixture(scope="module")
def filled(spark: SparkSession, scene: Scene) -> Tables:
    register(spark, scene.address)
    live.run(spark, live.Options(address=scene.address, directory=scene.tables, once=True, upkeep_s=1))
    return Tables(spark, scene.tables)


def audited(spark: SparkSession, scene: Scene, directory: Path | None = None) -> audit.Result:
    return audit.run(spark, audit.Options(address=scene.address, directory=directory or scene.tables))


def test_all_counts_are_what_the_clients_know(
    scene: Scene, filled: Tables, record_property: Callable[[str, object], None]
) -> None:
    record_property(DID, f"{MESSAGES} messages, {len(GOOD) + 1} receivers, {KILLS} kills of server and job")
    truth = scene.truth
    assert len(truth.ids) == MESSAGES
    assert {name: len(heard) for name, heard in truth.heard.items()} == dict.fromkeys((*GOOD, SICK), MESSAGES)
    published = rows_of(scene.tables, TABLES["fact_published"], "log_id", "channel")
    orders = [str(row["log_id"]) for row in published if row["channel"] in CHANNELS]
    assert sorted(orders) == sorted(truth.ids.values())
    mixed = [str(row["log_id"]) for row in published if row["channel"].split("/")[1] in truth.play.messages]
    assert sorted(mixed) == sorted(truth.mixed.values())
    assert len(mixed) == truth.play.stored
    expected: Counter[tuple[str, str, str | None]] = Counter()
    for name in (*GOOD, SICK):
        for number in range(MESSAGES):
            code = rejected_by(name, number)
            expected[f"client/{name}", "settled" if code is None else "dead", code] += 1
    known = [f"client/{name}" for name in (*GOOD, SICK)]
    every = filled.read(TABLES["fact_ended"])
    ended = every.where(f.col("receiver").isin(known)).groupBy("receiver", "reason", "code").count().collect()
    assert {(row["receiver"], row["reason"], row["code"]): row["count"] for row in ended} == expected
    settled = filled.read(TABLES["event_settled"]).groupBy().sum("count").collect()[0][0]
    latency = filled.read(TABLES["latency"]).groupBy().sum("count").collect()[0][0]
    # A server that is killed takes the events of its last tenth of a second along; facts it does not. What its receivers
    # had then comes again, and they repeat what they had said of it, which may be an event for the second time.
    assert (
        0
        < latency
        == settled
        <= (truth.acknowledged + truth.play.acknowledged + KILLS * (len(truth.heard) * PREFETCH + PLAYED))
    )
    volumes = filled.read(TABLES["capacity"]).groupBy("channel").sum("persistent", "deliveries").collect()
    half = MESSAGES // 2
    assert {row[0]: tuple(row[1:]) for row in volumes if row[0] in CHANNELS} == dict.fromkeys(
        CHANNELS, (half, 4 * half)
    )
    backlog = filled.read(TABLES["backlog"]).orderBy("minute").collect()
    assert sum(row["owed"] - row["ended"] for row in backlog) == 2 * LEFT
    assert sum(row["ended"] for row in backlog) > 4 * MESSAGES
    assert backlog[-1]["waiting"] == 2 * LEFT


def test_other_programs_count_the_same(scene: Scene, filled: Tables) -> None:
    for name in ("raw", "fact_published", "fact_ended", "event_settled"):
        table = DeltaTable(scene.tables / TABLES[name].path)
        rows = duckdb.from_arrow(table.to_pyarrow_dataset()).count("*").fetchall()[0][0]
        assert rows == len(table.to_pandas()) == filled.read(TABLES[name]).count()


def test_the_ends_of_the_mixtures_are_what_their_receivers_said(scene: Scene, filled: Tables) -> None:
    """By DuckDB and by pandas: each delivery has one end, and it is the one that the receiver gave it."""
    play, mixed = scene.truth.play, scene.truth.mixed
    expected: Counter[tuple[str, str]] = Counter()
    for name, messages in play.messages.items():
        for receiver in play.receivers[name] if name != GROUP else ():
            for each in messages:
                expected[receiver, "dead" if receiver in each.codes else "settled"] += each.is_stored
    names = {receiver for receiver, _ in expected}
    table = DeltaTable(scene.tables / TABLES["fact_ended"].path)
    ended = duckdb.from_arrow(table.to_pyarrow_dataset())
    counted = ended.aggregate("receiver, reason, count(*) AS n, count(DISTINCT log_id) AS ids").fetchall()
    by_duckdb = {(receiver, reason): (n, ids) for receiver, reason, n, ids in counted if receiver in names}
    assert by_duckdb == {key: (number, number) for key, number in expected.items() if number}
    frame = table.to_pandas(columns=["receiver", "reason", "log_id"])
    by_pandas = frame[frame["receiver"].isin(names)].groupby(["receiver", "reason"])["log_id"].agg(["size", "nunique"])
    assert {key: tuple(row) for key, row in by_pandas.T.to_dict("list").items()} == by_duckdb
    # A group has one end for each message: whichever member gave it.
    ids = {int(mixed[each.key]) for each in play.messages[GROUP]}
    ends = frame[frame["log_id"].isin(ids) & frame["reason"].isin(["settled", "dead"])]
    assert sorted(ends["log_id"]) == sorted(ids)


def test_the_cause_of_each_dead_letter_of_the_mixtures_is_found(
    spark: SparkSession, scene: Scene, filled: Tables, record_property: Callable[[str, object], None]
) -> None:
    inputs = gather(spark, filled, scene.address)
    letters = {
        (row["message_id"], row["receiver"]): key
        for row in inputs.silver["letters"].select("message_id", "receiver", "body").collect()
        if (key := key_of(row["body"])) is not None
    }
    found = {
        (row["message_id"], row["receiver"]): row["cause"] for row in of_ids(causes(inputs.silver, keep)).collect()
    }
    inputs.forget()
    pairs: Counter[tuple[str, str]] = Counter()
    by_mixture: Counter[tuple[str, str, str]] = Counter()
    for letter, key in letters.items():
        planned = scene.truth.play.by_key[key]
        pair = (planned.causes[letter[1]], found.get(letter, "none"))
        pairs[pair] += 1
        by_mixture[planned.channel.split("/")[1], *pair] += 1
    print(*sorted(by_mixture.items()), sep="\n")
    figures = []
    for cause in ("message", "receiver", "channel"):
        right = pairs[cause, cause]
        planted_ones = sum(number for (true, _), number in pairs.items() if true == cause)
        named = sum(number for (_, told), number in pairs.items() if told == cause)
        figures.append(f"{cause}: {planted_ones}, precision {right / named:.3f}, recall {right / planted_ones:.3f}")
        assert right >= LEAST * max(named, planted_ones, 1), (cause, sorted(by_mixture.items()))
    record_property(DID, f"dead letters of {len(MIXTURES)} mixtures by cause: {'; '.join(figures)}")


def test_the_report_names_the_causes(spark: SparkSession, scene: Scene, filled: Tables) -> None:
    result = report.run(spark, report.Options(address=scene.address, directory=scene.tables))
    told = json.loads((scene.tables / "report.json").read_text())
    sick = sum(rejected_by(SICK, number) == FAILS for number in range(MESSAGES))
    mixed = sum(len(keys) for name, keys in scene.truth.play.rejected.items() if not name.startswith(f"client/{GROUP}"))
    assert sick + len(GOOD) + 1 + mixed <= result.letters
    why = {row["session"]: row["why"] for row in told["receivers"] if row["is_sick"]}
    assert sorted(why) == sorted(result.sick)
    # Others may really have been late or away for long, for a while, on a machine under load.
    blamed = [name for name, reasons in why.items() if any(each.startswith(("fails", "rejected")) for each in reasons)]
    receivers = [f"client/{name}" for name in (*GOOD, SICK)]
    assert [name for name in blamed if name in receivers] == [f"client/{SICK}"], why
    found: Counter[tuple[str, str, str]] = Counter()
    for row in told["triage"]:
        if row["receiver"] in receivers:
            found[row["receiver"], row["code"], row["cause"]] += row["letters"]
    assert found == {
        (f"client/{SICK}", FAILS, "receiver"): sick,
        **{(f"client/{name}", POISONED, "message"): 1 for name in (*GOOD, SICK)},
    }
    poison = {row["message_id"] for row in told["poison"]}
    assert scene.truth.ids[POISON] in poison
    assert poison <= {scene.truth.ids[POISON], *(scene.truth.mixed[key] for key in scene.truth.play.poison)}


# Planted losses


@contextmanager
def planted(scene: Scene) -> Iterator[tuple[Any, Keys]]:
    """Let the store be damaged; afterwards it is as it was."""
    with scene.store.client() as client:
        before = dumped(client)
        yield client, Keys(PREFIX)
        now = dumped(client)
        for key in now.keys() - before.keys():
            client.delete(key)
        for key, dump in before.items():
            if now.get(key) != dump:
                client.restore(key, 0, dump, replace=True)


def dumped(client: Any) -> dict[bytes, bytes]:
    """All keys with what they hold."""
    found: dict[bytes, bytes] = {}
    names = list(client.scan_iter(f"{PREFIX}*", count=1000))
    for keys in (names[first : first + 1000] for first in range(0, len(names), 1000)):
        pipe = client.pipeline(transaction=False)
        for key in keys:
            pipe.dump(key)
        found |= {key: dump for key, dump in zip(keys, pipe.execute(), strict=True) if dump is not None}
    return found


def fact_of(client: Any, keys: Keys, type_: str, holds: Callable[[Any], bool]) -> tuple[str, dict[bytes, bytes]]:
    """The first fact of a type that something holds for: its place and its fields."""
    start = "-"
    while entries := client.xrange(keys.facts, start, count=5000):
        for place, fields in entries:
            if fields[b"t"].decode() == type_ and holds(orjson.loads(fields[b"d"])):
                return place.decode(), fields
        start = f"({entries[-1][0].decode()}"
    raise AssertionError(type_)


def waiting(client: Any, keys: Keys, kind: bytes) -> bytes:
    """The first thing of a kind that waits for the absent receiver."""
    fields: list[bytes] = client.hkeys(keys.session(f"client/{AWAY}"))
    return min(field for field in fields if field.startswith(kind))


def remove_open(client: Any, keys: Keys) -> None:
    client.hdel(keys.session(f"client/{AWAY}"), waiting(client, keys, b"o:"))


def remove_from_inbox(client: Any, keys: Keys) -> None:
    client.hdel(keys.session(f"client/{AWAY}"), waiting(client, keys, b"i:"))


def remove_letter(client: Any, keys: Keys) -> None:
    """The newest one of a stored message, whose end is a fact: what is missing before the oldest may have been removed by the
    bounds of the store."""
    letters = client.xrevrange(keys.dead, count=1000)
    client.xdel(keys.dead, next(place for place, fields in letters if b"p" in fields))


def double_fact(client: Any, keys: Keys) -> None:
    _, fields = fact_of(client, keys, "ended", lambda fact: True)
    client.xadd(keys.facts, fields)


def remove_fact(client: Any, keys: Keys) -> None:
    place, _ = fact_of(client, keys, "ended", lambda fact: any(each["reason"] == "settled" for each in fact["ended"]))
    client.xdel(keys.facts, place)


def damage_fact(client: Any, keys: Keys) -> None:
    client.xadd(keys.facts, {"t": "ended", "d": b'{"ended": [{"sess'})


def trim(client: Any, keys: Keys) -> None:
    """So far that a message waits of which no fact tells any more."""
    place, _ = fact_of(client, keys, "published", lambda fact: "/away" in fact["channels"])
    ms, seq = place.split("-")
    client.xtrim(keys.facts, minid=f"{ms}-{int(seq) + 1}", approximate=False)


@pytest.mark.parametrize(
    ("plant", "from_tables", "named"),
    [
        (remove_open, True, {"lost": 1}),
        (remove_from_inbox, True, {"lost": 1}),
        (remove_letter, True, {"no letter": 1}),
        (double_fact, True, {"twice"}),
        (remove_fact, False, {"unknown"}),
        (damage_fact, True, {}),
        (trim, False, {"unknown"}),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_a_planted_loss_is_named_and_nothing_else(
    spark: SparkSession,
    scene: Scene,
    filled: Tables,
    tmp_path: Path,
    plant: Callable[[Any, Keys], None],
    from_tables: bool,
    named: dict[str, int] | set[str],
) -> None:
    with planted(scene) as (client, keys):
        plant(client, keys)
        found = audited(spark, scene, None if from_tables else tmp_path)
    counts = {name: count for name, count in found.counts.items() if count}
    assert counts.keys() == {*named}, found.findings
    if isinstance(named, dict):
        assert counts == named
    if plant is damage_fact:
        assert found.unread_until is not None
    if plant in (remove_fact, trim):
        assert found.unread > 0


def test_the_audit_has_no_false_alarm(spark: SparkSession, scene: Scene, filled: Tables) -> None:
    """Also after the losses were taken back, which come before it in this file."""
    clean = audited(spark, scene)
    assert (clean.counts, clean.unread, clean.unread_until) == (dict.fromkeys(FINDINGS, 0), 0, None), clean.findings
    assert clean.messages == MESSAGES + scene.truth.play.stored + 2 * LEFT


def test_a_loss_is_named_also_under_load_and_nothing_else(spark: SparkSession, scene: Scene, filled: Tables) -> None:
    """Clients publish and acknowledge while the audit reads facts and records."""
    server = scene.start()
    is_over = threading.Event()
    answered = 0

    async def load() -> None:
        nonlocal answered
        async with Client(scene.truth.url) as publisher, asyncio.TaskGroup() as group:

            async def take() -> None:
                async with Client(scene.truth.url) as client:
                    async for message in client.consume(
                        "/busy", name="busy/1", resume_file=scene.truth.directory / "busy"
                    ):
                        message.acknowledge()

            taking = group.create_task(take())
            while not is_over.is_set():
                await publisher.publish("/busy", answered, persistent=True)
                answered += 1
            taking.cancel()

    loading = threading.Thread(target=asyncio.run, args=(load(),))
    loading.start()
    try:
        until(lambda: answered > 100)
        clean = audited(spark, scene)
        with scene.store.client() as client:
            name = Keys(PREFIX).session(f"client/{AWAY}")
            taken = waiting(client, Keys(PREFIX), b"o:")
            entry: Any = client.hget(name, taken.decode())
            client.hdel(name, taken.decode())
            damaged = audited(spark, scene)
            client.hset(name, taken.decode(), entry)
    finally:
        is_over.set()
        loading.join(60)
        server.end_well()
    assert (clean.counts, clean.unread) == (dict.fromkeys(FINDINGS, 0), 0), clean.findings
    assert {name: count for name, count in damaged.counts.items() if count} == {"lost": 1}, damaged.findings
    assert damaged.findings[0]["receiver"] == f"client/{AWAY}"
    least = MESSAGES + scene.truth.play.stored
    assert least < clean.messages < damaged.messages <= least + 2 * LEFT + answered


def test_a_store_that_was_set_back_is_named(spark: SparkSession, scene: Scene, filled: Tables) -> None:
    """As with a backup: what came after it is in the tables, and the store does not know of it."""
    more = 50

    async def publish() -> None:
        async with Client(scene.truth.url) as client:
            for number in range(more):
                await client.publish("/away", number, persistent=True)

    with planted(scene):
        server = scene.start()
        asyncio.run(publish())
        server.end_well()
        live.run(spark, live.Options(address=scene.address, directory=scene.tables, once=True))
    found = audited(spark, scene)
    assert {name: count for name, count in found.counts.items() if count} == {"rolled back": 1}, found.findings
    assert f"{more} messages" in found.findings[0]["words"]
    assert found.unread == 0
