"""The store as the server sees it: order, outages, space, and what is refused at the start."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import TimeoutError as NoAnswer

from crewel.delivery.records import Submission
from crewel.errors import Behind, Fenced, SettingsError, StoreError, StoreFull, StoreUnavailable, StoreUncertain
from crewel.settings import Settings
from crewel.storage import dead_letter_groups, log, message_shares, shared_queue_store
from crewel.storage.admin_connection import admin_connection
from crewel.storage.script_step import Script, Step, scripts
from crewel.storage.store import Store
from crewel.storage.store_connection import no_connection
from tests.ports import free_port
from tests.storage.conftest import OpenStore, StartStore, settings_for, until
from tests.storage.owner import started
from tests.storage.steps import count, fill, known
from tests.store_process import StoreProcess

LIMIT_S = 30


@pytest.fixture(autouse=True)
def _scripts_of_the_tests() -> Iterator[None]:
    with known():
        yield


def at(process: StoreProcess, prefix: str) -> Settings:
    """Return settings for this store and prefix."""
    return settings_for(f"storage.url={process.url}", f"storage.prefix={prefix}")


def prefix_of(store: Store) -> str:
    """Return the prefix that a store was opened with."""
    return store.keys.base.partition("{")[0]


class Watch:
    """What a store told about its coming and going."""

    def __init__(self, store: Store) -> None:
        self.told: list[str] = []
        store.watch(lambda: self.told.append("came"), lambda: self.told.append("went"))


# Steps


async def test_steps_are_done_in_order_and_each_has_its_result(store: Store) -> None:
    key = store.keys.names
    assert await store.run([count(key), count(key), count(key, str)]) == [1, 2, "3"]
    assert await store.run([]) == []


async def test_callers_are_served_in_the_order_in_which_they_asked(store: Store) -> None:
    calls = [asyncio.create_task(store.run([count(store.keys.names)] * 2)) for _ in range(100)]
    results = [number for answer in await asyncio.gather(*calls) for number in answer]
    assert results == list(range(1, 201))


async def test_a_caller_that_is_cancelled_stops_nobody_else(store: Store) -> None:
    first = asyncio.create_task(store.run([count(store.keys.names)]))
    second = asyncio.create_task(store.run([count(store.keys.names)]))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == [2]
    with pytest.raises(asyncio.CancelledError):
        await first


@pytest.mark.parametrize(("error", "result"), [(each, each) for each in (Fenced, Behind)] + [(ValueError, StoreError)])
async def test_parser_error_is_the_result_of_its_step_alone(
    store: Store, error: type[Exception], result: type[StoreError]
) -> None:
    def refuse(answer: object) -> None:
        raise error(str(answer))

    key = store.keys.names
    first, refused, last = await store.run([count(key), count(key, refuse), count(key)])
    assert (first, last) == (1, 3)
    assert type(refused) is result


async def test_a_script_that_fails_is_told_with_its_words(store: Store) -> None:
    (result,) = await store.run([Step("test_fail", (store.keys.names,), (), int)])
    assert type(result) is StoreError
    assert "wrong number of arg" in str(result).lower()
    assert store.is_up


async def test_scripts_that_the_store_forgot_are_loaded_again(start_store: StartStore, open_store: OpenStore) -> None:
    process = start_store()
    store = await open_store(f"storage.url={process.url}")
    key = store.keys.names
    for round_number in range(3):
        with process.client() as client:
            client.script_flush()
        assert await store.run([count(key)] * 3) == [3 * round_number + number for number in (1, 2, 3)]


async def test_forgotten_script_is_loaded_and_run_once(store: Store) -> None:
    """Nothing but the repeated step is sent again."""
    forgotten = b"#!lua\nreturn redis.call('INCRBY', KEYS[1], 100)"
    scripts()["test_count"] = Script(forgotten, b"0" * 40)
    key = store.keys.names
    first, refused, last = await store.run([fill(key + "l", 1), count(key), fill(key + "l", 1)])
    assert (first, last) == (1, 2)
    assert type(refused) is StoreError


async def test_an_argument_that_cannot_be_sent_is_the_trouble_of_its_caller_alone(store: Store) -> None:
    wrong = Step("test_fill", (store.keys.log,), (object(),), int)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        await store.run([wrong])
    assert await store.run([count(store.keys.names)]) == [1]


async def test_many_steps_go_in_several_writes(store: Store) -> None:
    calls = [asyncio.create_task(store.run([count(store.keys.names)] * 600)) for _ in range(5)]
    assert [answer[-1] for answer in await asyncio.gather(*calls)] == [600, 1200, 1800, 2400, 3000]


async def test_errors_of_the_reader_are_ours(store: Store) -> None:
    await store.reader.set(store.keys.last, 7)
    assert await store.reader.get(store.keys.last) == b"7"
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await store.reader.xlen(store.keys.last)
    pipeline = store.reader.pipeline()
    pipeline.get(store.keys.last)
    pipeline.xlen(store.keys.last)
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await pipeline.execute()


# Outages


async def test_a_store_that_is_gone_is_noticed_and_its_return_too(
    start_store: StartStore, open_store: OpenStore
) -> None:
    process = start_store(appendfsync="always")
    store = await open_store(f"storage.url={process.url}")
    watch = Watch(store)
    assert await store.run([count(store.keys.names)]) == [1]
    process.kill()
    await until(lambda: not store.is_up)
    (refused,) = await store.run([count(store.keys.names)])
    assert type(refused) is StoreUnavailable
    with pytest.raises(StoreUnavailable):
        await store.reader.get(store.keys.names)
    assert store.trouble
    await asyncio.to_thread(process.start)
    await until(lambda: watch.told == ["went", "came"])
    assert (store.is_up, store.trouble) == (True, None)
    assert await store.run([count(store.keys.names)]) == [2]
    assert await store.reader.get(store.keys.names) == b"2"


async def test_a_store_that_is_lost_just_after_it_was_checked_is_sought_again(
    start_store: StartStore, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another caller may find that the connection is gone before whoever checked it goes on."""
    process = start_store()
    store = await open_store(f"storage.url={process.url}")
    check, checks = store._check, 0

    async def check_and_lose() -> None:
        nonlocal checks
        await check()
        checks += 1
        if checks == 1:
            store._writer.give_up("lost at once")

    monkeypatch.setattr(store, "_check", check_and_lose)
    store._writer.give_up("lost")
    await until(lambda: checks > 1 and store.is_up)
    assert await store.run([count(store.keys.names)]) == [1]


async def test_a_store_that_ended_meanwhile_is_known_to_have_done_nothing(
    start_store: StartStore, open_store: OpenStore
) -> None:
    """The connection's end has come: then nothing is sent, and nothing is uncertain."""
    process = start_store()
    store = await open_store(f"storage.url={process.url}")
    await asyncio.to_thread(process.kill)
    await until(lambda: not store.is_up)
    (refused,) = await store.run([count(store.keys.names)])
    assert type(refused) is StoreUnavailable


async def test_a_store_that_is_back_answers_nothing_before_its_watchers_know(store: Store) -> None:
    """An answer of the new run that came sooner would count as one of the run before, and be named as lost with that."""
    watch = Watch(store)
    sooner: list[Any] = []
    store._writer.give_up("lost")
    async with asyncio.timeout(LIMIT_S):
        while "came" not in watch.told:
            store.submit(
                [count(store.keys.names)],
                lambda results: None if "came" in watch.told else sooner.append(type(results[0])),
            )
            await asyncio.sleep(0)
    assert set(sooner) == {StoreUnavailable}
    assert await store.reader.get(store.keys.names) is None, "and nothing was done"


async def test_a_watcher_that_fails_keeps_no_other_from_knowing(store: Store) -> None:
    def fails() -> None:
        raise ValueError("no part of the store")

    store.watch(fails, lambda: None)
    watch = Watch(store)
    store._writer.give_up("lost")
    await until(lambda: watch.told == ["went", "came"])
    assert await store.run([count(store.keys.names)]) == [1]


async def test_watchers_hear_of_an_outage_before_pending_callers(store: Store) -> None:
    watch = Watch(store)
    heard: asyncio.Future[tuple[list[str], list[Any]]] = asyncio.get_running_loop().create_future()
    store.submit([count(store.keys.names)], lambda results: heard.set_result((list(watch.told), results)))
    store._writer.give_up("lost")
    async with asyncio.timeout(LIMIT_S):
        told, results = await heard
    assert told == ["went"]
    assert isinstance(results[0], StoreUnavailable)


async def test_step_sent_to_a_hanging_store_is_uncertain_and_never_runs_later(
    start_store: StartStore, open_store: OpenStore
) -> None:
    process = start_store()
    store = await open_store(f"storage.url={process.url}")
    key = store.keys.names
    watch = Watch(store)
    process.stop()
    sent = await store.run([count(key)] * 3)
    assert [type(result) for result in sent] == [StoreUncertain] * 3
    (refused,) = await store.run([count(key)])
    assert type(refused) is StoreUnavailable
    process.go_on()
    await until(lambda: store.is_up)
    (before,) = await store.run([count(key)])
    assert before in {1, 4}
    assert await store.run([count(key)] * 2) == [before + 1, before + 2]
    assert watch.told == ["went", "came"]


class Proxy:
    """Stands between the server and the store, and lets the answers through only as long as it is told to."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.answers = asyncio.Event()
        self.answers.set()
        self.port = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self._target)
        try:
            await asyncio.gather(self._pass(reader, back, None), self._pass(there, writer, self.answers))
        except ConnectionError:
            pass
        finally:
            back.close()
            writer.close()

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event | None) -> None:
        while chunk := await source.read(65536):
            if gate is not None and not gate.is_set():
                raise ConnectionAbortedError  # the answer is lost with its connection
            sink.write(chunk)
            await sink.drain()
        sink.write_eof()


async def test_a_connection_that_is_lost_before_the_answer_leaves_it_uncertain(
    server: StoreProcess, open_store: OpenStore
) -> None:
    async with Proxy(str(server.socket)).running() as proxy:
        store = await open_store(f"storage.url=redis://127.0.0.1:{proxy.port}")
        key = store.keys.names
        assert await store.run([count(key)]) == [1]
        assert await store.run([count(key)]) == [2]  # and the first look of the watcher, which went between, is over
        proxy.answers.clear()
        sent = await store.run([count(key), count(key)])
        assert [type(result) for result in sent] == [StoreUncertain] * 2
        proxy.answers.set()
        await until(lambda: store.is_up)
        assert await store.run([count(key)]) == [5]
        await store.close()


# Space


async def test_a_full_store_refuses_what_fills_it_and_takes_what_relieves_it(
    start_store: StartStore, open_store: OpenStore
) -> None:
    store = await open_store(f"storage.url={start_store(maxmemory='8mb').url}")
    key = store.keys.log
    assert not store.is_full
    results: list[Any] = []
    while not results or not isinstance(results[-1], StoreFull):
        results += await store.run([fill(key, 100_000)])
        assert len(results) < 100
    assert store.is_full
    assert results[-1].code == "resource.noMoreSpace"
    assert all(isinstance(result, int) for result in results[:-1])
    assert await store.run([fill(key, 10, relieving=True)]) == [len(results)]
    await store.reader.delete(key)
    await until(lambda: not store.is_full)
    assert await store.run([fill(key, 10)]) == [1]


async def test_a_store_counts_as_full_from_nine_tenths_on(start_store: StartStore, open_store: OpenStore) -> None:
    process = start_store(maxmemory="100mb")
    store = await open_store(f"storage.url={process.url}")
    assert not store.is_full
    with process.client() as client:
        used = client.info("memory")["used_memory"]
        client.config_set("maxmemory", int(used / 0.91))
    await until(lambda: store.is_full)
    assert isinstance((await store.run([fill(store.keys.log, 10)]))[0], int)
    with process.client() as client:
        client.config_set("maxmemory", int(used / 0.5))
    await until(lambda: not store.is_full)


async def test_a_store_that_cannot_write_its_snapshot_stays_full_until_it_can(
    start_store: StartStore, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Its report of itself does not say that it refuses writes. Administrators reach it all the same."""
    process = start_store()
    store = await open_store(f"storage.url={process.url}")
    in_its_place = process.directory / "dump.rdb"
    in_its_place.mkdir()
    with process.client() as client:
        client.config_set("save", "3600 1")
        client.bgsave()
        await until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
    (refused,) = await store.run([fill(store.keys.log, 10)])
    assert isinstance(refused, StoreFull)
    for _ in range(3):
        await store._check_health()
        assert store.is_full
        assert "MISCONF" in (store.why_full or "")
    assert "has space again" not in caplog.text
    async with admin_connection(at(process, prefix_of(store)).storage) as administrator:
        assert (await administrator.info()).appends
    in_its_place.rmdir()
    with process.client() as client:
        client.bgsave()
    await until(lambda: not store.is_full)
    assert await store.run([fill(store.keys.log, 10)]) == [1]


async def test_steps_wait_for_replicas(start_store: StartStore, open_store: OpenStore) -> None:
    process = start_store()
    store = await open_store(f"storage.url={process.url}", "storage.replicas=1")
    key = store.keys.names
    (answer,) = await store.run([count(key)])
    assert type(answer) is StoreUncertain
    assert "0 of 1 replicas" in str(answer)
    assert store.is_up
    assert await store.reader.get(key) == b"1"


async def test_a_step_that_a_replica_has_is_answered(
    start_store: StartStore, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = str(free_port())
    process = start_store(port=port, repl_diskless_sync_delay="0")
    replica = start_store(replicaof=f"127.0.0.1 {port}")
    with replica.client() as client:
        await until(lambda: client.info("replication")["master_link_status"] == "up")
    store = await open_store(f"storage.url={process.url}", "storage.replicas=1")
    assert await store.run([count(store.keys.names)]) == [1]
    monkeypatch.setattr("crewel.storage.store._OPEN_LIMIT_S", 0.2)
    with pytest.raises(StoreUnavailable, match="replica"):
        await open_store(f"storage.url={replica.url}")


async def test_what_another_connection_wrote_is_not_answered_before_a_replica_has_it(
    start_store: StartStore, open_store: OpenStore
) -> None:
    """As a publish that is repeated on a new connection: it is found in the store, and WAIT would wait for nothing."""
    port = str(free_port())
    process = start_store(port=port, repl_diskless_sync_delay="0")
    replica = start_store(replicaof=f"127.0.0.1 {port}")
    with replica.client() as client:
        await until(lambda: client.info("replication")["master_link_status"] == "up")
    first = await open_store(f"storage.url={process.url}", "storage.replicas=1")
    second = await open_store(f"storage.url={process.url}", "storage.replicas=1")
    nothing: Step[int] = Step("trim_facts", (second.keys.facts,), (10**9,), int)
    assert await second.run([nothing]) == [0]
    replica.stop()
    try:
        (written,) = await first.run([count(first.keys.names)])
        (found,) = await second.run([nothing])
    finally:
        replica.go_on()
    assert type(written) is type(found) is StoreUncertain
    assert await second.run([nothing]) == [0]


# The start


@pytest.mark.parametrize(
    ("options", "words"),
    [({"appendonly": "no"}, "appendonly yes"), ({"maxmemory_policy": "volatile-ttl"}, "volatile-ttl")],
)
async def test_a_store_that_may_forget_is_refused(
    start_store: StartStore, open_store: OpenStore, options: dict[str, str], words: str
) -> None:
    with pytest.raises(SettingsError, match=words):
        await open_store(f"storage.url={start_store(**options).url}")


async def test_a_store_that_starts_to_forget_is_not_used_any_more(
    start_store: StartStore, open_store: OpenStore
) -> None:
    process = start_store()
    store = await open_store(f"storage.url={process.url}")
    with process.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.client_kill_filter(_type="normal", skipme=True)
    await until(lambda: store.trouble and "allkeys-lru" in store.trouble)
    assert not store.is_up
    with process.client() as client:
        client.config_set("maxmemory-policy", "noeviction")
    await until(lambda: store.is_up)


@pytest.mark.parametrize(("found", "words"), [("3", "use the newer version"), ("0", "no release of Crewel")])
async def test_another_format_is_refused(server: StoreProcess, store: Store, found: str, words: str) -> None:
    await store.reader.set(store.keys.format, found)
    prefix = prefix_of(store)
    other = Store(at(server, prefix))
    with pytest.raises(SettingsError, match=words):
        await other.open()


async def test_keys_without_a_format_are_refused(server: StoreProcess, store: Store) -> None:
    await store.reader.delete(store.keys.format)
    await store.reader.set(store.keys.last, 1)
    other = Store(at(server, prefix_of(store)))
    with pytest.raises(SettingsError, match="interrupted restore"):
        await other.open()


async def test_a_server_that_starts_at_the_same_time_on_an_empty_store_is_no_interrupted_restore(
    server: StoreProcess, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = f"{prefix_of(store)}together:"
    first, second = Store(at(server, prefix)), Store(at(server, prefix))
    forget = Store._forget_last_client

    async def start_the_other(starting: Store, *about: Any) -> None:
        """The second one has found an empty store: the first one starts, and writes, before the second goes on."""
        if starting is second:
            await first.open()
            await first.reader.set(first.keys.last, 1)
        await forget(starting, *about)

    monkeypatch.setattr(Store, "_forget_last_client", start_the_other)
    await second.open()
    assert first.is_up
    assert second.is_up
    await first.close()
    await second.close()


async def test_the_format_is_written_once(server: StoreProcess, store: Store) -> None:
    assert await store.reader.get(store.keys.format) == b"2"
    other = Store(at(server, prefix_of(store)))
    await other.open()
    await other.close()


async def test_a_wrong_password_is_told_at_once(start_store: StartStore, open_store: OpenStore) -> None:
    process = start_store(requirepass="right")
    assert (await open_store(f"storage.url={process.url}?password=right")).is_up
    for wrong in ("?password=wrong", ""):
        with pytest.raises(SettingsError, match="does not accept the user or the password"):
            await open_store(f"storage.url={process.url}{wrong}")


async def test_a_user_that_may_not_do_what_is_needed_is_told_at_once(
    start_store: StartStore, open_store: OpenStore
) -> None:
    process = start_store()
    with process.client() as client:
        client.acl_setuser("joe", enabled=True, passwords=["+secret"], commands=["+@all", "-script"], keys=["*"])
    url = process.url.replace("unix://", "unix://joe:secret@")
    with pytest.raises(SettingsError, match=r"storage\.url: the store answered: .*script"):
        await open_store(f"storage.url={url}")


async def test_the_rights_that_the_documentation_names_are_enough(
    start_store: StartStore, open_store: OpenStore
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "storage.md").read_text("utf-8")
    (rights,) = re.findall(r"^~crewel:\* .*$", page, re.MULTILINE)
    process = start_store()
    with process.client() as client:
        client.execute_command("ACL", "SETUSER", "joe", "on", ">secret", *rights.split())
    url = process.url.replace("unix://", "unix://joe:secret@")
    store = await open_store(f"storage.url={url}", "storage.prefix=crewel:")
    owner, queue = await started(store), "group:/a workers"
    (log_id,) = (await owner.append([Submission("/a", b"{}", groups=(queue,))])).ids
    # What is read otherwise than by single commands and by steps.
    assert [*await log.fetch(store, [log_id])] == [log_id]
    assert (await message_shares.count(store)).accounts
    assert [channel async for channel in shared_queue_store.channels(store, queue)] == ["/a"]
    assert (await dead_letter_groups.count_by(store)).letters == 0


async def test_a_store_that_nobody_answers_for_is_given_up_in_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("crewel.storage.store._OPEN_LIMIT_S", 0.2)
    store = Store(settings_for(f"storage.url=unix://{tmp_path}/none.sock"))
    with pytest.raises(
        StoreUnavailable,
        match=f"cannot be reached: no such file or directory at {tmp_path}/none.sock; start it, or correct storage.url$",
    ):
        await store.open()
    assert not store.is_up


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            NoConnection("Error 111 connecting to localhost:6379. Connect call failed ('::1', 6379)."),
            "connection refused at localhost:6379",
        ),
        (
            NoConnection(
                "Error Multiple exceptions: [Errno 111] Connect call failed ('::1', 6379, 0, 0) connecting to heron:6379."
            ),
            "connection refused at heron:6379",
        ),
        (
            NoConnection("Error while reading from heron:6379 : (104, 'Connection reset by peer')"),
            "connection reset by peer at heron:6379",
        ),
        (NoAnswer("Timeout connecting to server"), "no answer in time"),
        (
            NoConnection("Error -2 connecting to nowhere:6379. Name or service not known."),
            "Error -2 connecting to nowhere:6379. Name or service not known",
        ),
        (TimeoutError(), "no answer in time"),
        (NoConnection("No connection available."), "No connection available"),
    ],
)
def test_why_there_is_no_connection_is_said_in_words(error: Exception, words: str) -> None:
    assert no_connection(error) == words


async def test_a_store_that_comes_late_is_waited_for(start_store: StartStore) -> None:
    process = start_store()
    process.kill()
    store = Store(at(process, "late:"))
    opening = asyncio.create_task(store.open())
    await asyncio.sleep(0.1)
    assert not opening.done()
    await asyncio.to_thread(process.start)
    await opening
    assert store.is_up
    await store.close()


async def test_a_closed_store_answers_what_was_asked_before_and_nothing_after(server: StoreProcess) -> None:
    store = Store(at(server, "closed:"))
    await store.open()
    last = asyncio.create_task(store.run([count(store.keys.names)]))
    await asyncio.sleep(0)
    await store.close()
    assert await last == [1]
    (refused,) = await store.run([count(store.keys.names)])
    assert type(refused) is StoreUnavailable


async def test_a_store_that_reads_its_file_for_longer_than_the_limit_is_waited_for(
    start_store: StartStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers INFO meanwhile, and refuses the rest: that is no outage, however long it takes."""
    # A tenth of a second a key, with a look at what clients ask in between.
    process = start_store(key_load_delay="100000", loading_process_events_interval_bytes="1024")
    with process.client() as client:
        for number in range(15):
            client.set(f"k{number}", os.urandom(2000))  # which does not shrink
        client.bgrewriteaof()  # of a file that is no snapshot, it looks at what clients ask after 1,024 commands only
        await until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
    process.kill()
    starting = asyncio.create_task(asyncio.to_thread(process.start))

    def is_loading() -> bool:
        with process.client() as client, suppress(redis.ConnectionError):
            return bool(client.info("persistence")["loading"])
        return False

    await until(is_loading)
    monkeypatch.setattr("crewel.storage.store._OPEN_LIMIT_S", 0.2)
    store = Store(at(process, "loading:"))
    await store.open()
    try:
        assert await store.reader.strlen("k14") == 2000
    finally:
        await store.close()
        await starting
