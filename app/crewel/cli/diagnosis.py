"""What `crewel doctor` examines and repairs: the store, the machine, and the files of the server.

To examine changes nothing. A repair cuts off a tail that cannot be read, or writes a manifest that is missing; it says what it
will cut, asks, and keeps the bytes.
"""

from __future__ import annotations

import asyncio
import math
import os
import resource
import shutil
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import typer

from crewel.check_result import CheckResult, State
from crewel.cli.host_checks import keys_of, of_access, of_memory
from crewel.cli.output import file_errors
from crewel.errors import CrewelError, StoreError, StoreFull
from crewel.security.tokens import token_file
from crewel.settings import Settings
from crewel.settings.storage import Storage
from crewel.settings.store_location import Place, StoreKind, StoreLocation
from crewel.settings.table import shown
from crewel.storage.account_shares import largest
from crewel.storage.admin_connection import AdminConnection, admin_connection
from crewel.storage.disk import FREE_DISK
from crewel.storage.embedded import holds_store, where_else, without_store
from crewel.storage.file_repair import cut_off
from crewel.storage.file_repair import examine as examine_tail
from crewel.storage.keys import FORMAT
from crewel.storage.losses import losses_of
from crewel.storage.primary import ask_sentinels, newest_primary
from crewel.storage.store_files import Damaged, StoreFiles, moment
from crewel.storage.store_info import StoreInfo
from crewel.storage.store_load import BUSY, SECTIONS, WAITING, LoadMeter
from crewel.storage.store_requirements import check_format, check_server
from crewel.storage.store_space import room_of

_FULL_FROM, _TIGHT_FROM = 0.9, 0.75  # of maxmemory
_ACCOUNTS = 3
_LOAD_S = 1.0  # that the load of the store is looked at
_REPLICA_S = 0.5  # that a replica has to take a connection
_FEW_DESCRIPTORS = 10_000
_TOO_FEW_DESCRIPTORS = 256
_CLOCK_WARNING_S, _CLOCK_WRONG_S = 0.5, 10.0


async def examine(settings: Settings) -> AsyncIterator[CheckResult]:
    """Yield what is found, the store first."""
    storage = settings.storage
    if not storage.enabled:
        yield CheckResult("store", State.WARNING, "switched off", "storage.enabled=true keeps answered messages")
    else:
        async for result in _of_store(settings):
            yield result
    if (why := settings.why_shorter_hold) is not None:
        yield CheckResult("waiting", State.WARNING, why, "lower cluster.hold_ms, or raise bayeux.max_interval_ms")
    yield _descriptors()
    for result in await asyncio.to_thread(lambda: [*_of_directory(storage), *of_access(settings)]):
        yield result
    if settings.security.policy == "jwt":
        yield await asyncio.to_thread(keys_of, settings.security)


async def _of_store(settings: Settings) -> AsyncIterator[CheckResult]:
    trial: str | None = None
    try:
        storage, trial = await asyncio.to_thread(_without_traces, settings.storage)
        async with admin_connection(storage) as connection:
            info = await connection.info()
            yield _store(settings, info, is_there=trial is None)
            for result in await _of_contents(connection, info):
                yield result
            if settings.cluster.tails == "replica":
                yield await _tails(info)
    except CrewelError as error:
        yield CheckResult("store", State.WRONG, str(error), "see storage.url, or store.log in storage.data_dir")
    finally:
        if trial is not None:
            await asyncio.to_thread(shutil.rmtree, trial, ignore_errors=True)


def _store(settings: Settings, info: StoreInfo, *, is_there: bool) -> CheckResult:
    data_dir = settings.storage.data_dir
    program, directory = f"{info.kind} {info.version}", Path(data_dir).absolute()
    if not is_there:
        found = f"there is no store in {directory}; {program} works, tried in a temporary directory"
        return CheckResult("store", State.WARNING, found, f"if a server has run: {where_else(data_dir)}")
    where = shown(settings, "storage.url") or f"the server's own in {directory}"
    return CheckResult("store", State.OK, f"{program}, {where}")


def _without_traces(storage: Storage) -> tuple[Storage, str | None]:
    """Where no store is, try one in a directory that is removed after: to look must not make anything."""
    if storage.url is not None or holds_store(Path(storage.data_dir)):
        return storage, None
    trial = tempfile.mkdtemp(prefix="crewel-doctor-")
    return storage.model_copy(update={"data_dir": trial}), trial


async def _of_contents(connection: AdminConnection, info: StoreInfo) -> list[CheckResult]:
    return [
        await _fitness(connection, info),
        await _fsync(connection),
        *await _fail_over(connection, info),
        *await _copy_delay(connection, info),
        *await _losses(connection),
        await _memory(connection, info),
        await _load(connection),
        *await _host_memory(connection, info),
        await _format(connection),
        await _clock(connection),
    ]


async def _fitness(connection: AdminConnection, info: StoreInfo) -> CheckResult:
    storage = connection.storage
    try:
        check_server(info, storage)
    except CrewelError as error:
        return CheckResult(
            "durability", State.WRONG, str(error), "change it: the server does not start on such a store"
        )
    try:
        await connection.ask("PING")  # which a store refuses that cannot write to its disk
    except StoreFull as error:
        return CheckResult(
            "durability",
            State.WRONG,
            str(error),
            "persistent publishes are refused: make room on the disk of the store",
        )
    if storage.durability == "managed":
        file = "has" if info.appends else "has no"
        found = f"storage.durability=managed: it {file} append-only file; Crewel cannot know what a crash or a fail-over loses"
        return CheckResult(
            "durability",
            State.UNKNOWN,
            found,
            "ask the provider of the store whether it keeps all confirmed writes",
        )
    return CheckResult("durability", State.OK, f"appends to a file, evicts nothing ({info.policy})")


async def _fsync(connection: AdminConnection) -> CheckResult:
    try:
        _, value = await connection.ask("CONFIG", "GET", "appendfsync")
    except (StoreError, ValueError):
        return CheckResult(
            "fsync", State.UNKNOWN, "the store does not report it", "see appendfsync in its configuration"
        )
    found = value.decode()
    if found == "always":
        return CheckResult("fsync", State.OK, "always: a crash loses nothing")
    if found == "everysec":
        meant = connection.storage.url is None and connection.storage.fsync == "everysec"
        return CheckResult("fsync", State.OK if meant else State.WARNING, "everysec: a crash may lose two seconds")
    return CheckResult("fsync", State.WRONG, f"{found}: a crash may lose half a minute", "set `appendfsync always`")


async def _fail_over(connection: AdminConnection, info: StoreInfo) -> list[CheckResult]:
    """Who may take the place of the store, and with what."""
    storage, location = connection.storage, connection.storage.location
    awaited = f"{info.replicas} replicas, {storage.replicas} of them awaited"
    lacking = CheckResult(
        "fail-over",
        State.WARNING,
        f"{awaited}: if one of the others is promoted, it may lack answered messages",
        f"storage.replicas={info.replicas} awaits all, and then needs each of them",
    )
    if location is None or not (location.can_fail_over or info.replicas):
        return []
    if location.kind is StoreKind.SENTINEL:
        return [await _sentinels(location), *([lacking] if storage.replicas < info.replicas else [])]
    found = [lacking if storage.replicas < info.replicas else CheckResult("fail-over", State.OK, awaited)]
    if location.kind is StoreKind.CLUSTER:
        found.append(await _slot(connection))
    return found


async def _copy_delay(connection: AdminConnection, info: StoreInfo) -> list[CheckResult]:
    """How long a promoted store waits before it copies itself to its replicas: until one has its copy, it takes no write."""
    if not info.requires_replicas:
        return []
    try:
        flat = await connection.ask("CONFIG", "GET", "repl-diskless-sync*")
        rows = dict(zip(flat[::2], flat[1::2], strict=True))
        delay = int(rows[b"repl-diskless-sync-delay"]) if rows[b"repl-diskless-sync"] == b"yes" else 0
    except (StoreError, KeyError, ValueError):
        advice = "see repl-diskless-sync-delay in its configuration"
        return [CheckResult("copy delay", State.UNKNOWN, "the store does not report it", advice)]
    if not delay:
        return [CheckResult("copy delay", State.OK, "none: a promoted replica is copied to the others at once")]
    found = f"{delay} s: after a fail-over, the new primary accepts no writes for so much longer"
    advice = "set `repl-diskless-sync-delay 0` in the configuration of all its servers"
    return [CheckResult("copy delay", State.WARNING, found, advice)]


async def _tails(info: StoreInfo) -> CheckResult:
    """Which replicas nodes on this machine can read."""
    places = info.replicas_at_hand
    reached = [
        place
        for place, is_reached in zip(places, await asyncio.gather(*map(_answers, places)), strict=True)
        if is_reached
    ]
    found = f"cluster.tails=replica: {len(reached)} of {info.replicas} replicas can be reached"
    if len(reached) == info.replicas > 0:
        return CheckResult("tails", State.OK, found)
    lacking = ", ".join(f"{host}:{port}" for host, port in places if (host, port) not in reached)
    advice = f"nodes read from the others, or from the primary; see {lacking or 'INFO replication of the primary'}"
    return CheckResult("tails", State.WARNING, found, advice)


async def _answers(place: Place) -> bool:
    try:
        async with asyncio.timeout(_REPLICA_S):
            _, writer = await asyncio.open_connection(*place)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def _sentinels(location: StoreLocation) -> CheckResult:
    answers = await ask_sentinels(location)
    states = [each for each in answers if not isinstance(each, Exception)]
    host, port = newest_primary(answers, location)
    agreeing = sum((str(each["ip"]), int(each["port"])) == (host, port) for each in states)
    found = f"{agreeing} of {len(answers)} sentinels name {host}:{port} as the primary of {location.service}"
    quorum = max(int(each["quorum"]) for each in states)
    if agreeing < max(quorum, len(answers) // 2 + 1):
        return CheckResult("sentinels", State.WRONG, found, "without a majority, the sentinels promote no replica")
    return CheckResult("sentinels", State.OK if agreeing == len(answers) else State.WARNING, found)


async def _slot(connection: AdminConnection) -> CheckResult:
    slot = int(await connection.ask("CLUSTER", "KEYSLOT", connection.keys.base))
    nodes = (await connection.ask("CLUSTER", "NODES")).decode()
    if f"[{slot}-" in nodes:
        advice = "move it as a whole (CLUSTER MIGRATESLOTS of Valkey 9), or with all servers stopped"
        return CheckResult("slot", State.WRONG, f"slot {slot}, which has all keys, is being moved key by key", advice)
    return CheckResult("slot", State.OK, f"slot {slot} has all keys")


async def _losses(connection: AdminConnection) -> list[CheckResult]:
    flat = await connection.ask("HGETALL", connection.keys.losses)
    lost = losses_of(dict(zip(flat[::2], flat[1::2], strict=True)))
    if lost is None:
        return []
    since, until = moment(lost.newest["from"]), moment(lost.newest["until"])
    found = f"the store lost answered messages {lost.times} times, {lost.messages} messages in all"
    return [
        CheckResult(
            "losses", State.WARNING, found, f"the last time from {since} to {until}; `crewel pipeline audit` has more"
        )
    ]


async def _memory(connection: AdminConnection, info: StoreInfo) -> CheckResult:
    used = f"{info.used_memory / 2**20:,.0f} MiB used"
    if not info.max_memory:
        return CheckResult("memory", State.OK, f"{used}, no limit")
    share = info.used_memory / info.max_memory
    found = f"{used} of {info.max_memory / 2**20:,.0f} ({share:.0%})"
    if room_of(info).is_scarce:
        most = await largest(connection.reader, connection.keys.message_shares, _ACCOUNTS)
        held = (f"{each.account or 'the server and clients without a name'} {each.bytes / 2**20:,.0f}" for each in most)
        found += f"; the most stored messages, in MiB: {', '.join(held)}" if most else ""
    if share >= _FULL_FROM:
        return CheckResult("memory", State.WRONG, found, "persistent publishes are refused: raise maxmemory")
    return CheckResult("memory", State.WARNING if share >= _TIGHT_FROM else State.OK, found)


async def _load(connection: AdminConnection) -> CheckResult:
    """How busy the store is, in a moment that is looked at."""
    meter = LoadMeter()
    for pause in (0.0, _LOAD_S):
        await asyncio.sleep(pause)
        meter.look(StoreInfo(await connection.ask("INFO", *SECTIONS)), time.monotonic())
    load = meter.load
    assert load is not None
    waiting = "" if math.isnan(load.waiting) else f", {load.waiting:.0%} of the time waiting for its disk"
    found = f"busy {load.busy:.0%} of a core{waiting}, {load.steps:,.0f} steps/s"
    if load.busy > BUSY:
        return CheckResult("load", State.WARNING, found, "one thread serves all nodes: see docs/how-to/cells.md")
    if load.waiting > WAITING:
        return CheckResult("load", State.WARNING, found, "a faster disk, or storage.fsync=everysec")
    return CheckResult("load", State.OK, found)


async def _host_memory(connection: AdminConnection, info: StoreInfo) -> list[CheckResult]:
    """What this machine does with the memory of the store, if the store is on it."""
    url = connection.storage.url
    if url is not None and not url.startswith("unix:"):
        return []
    try:
        _, turns_off = await connection.ask("CONFIG", "GET", "disable-thp")
    except (StoreError, ValueError):
        turns_off = b""
    return list(of_memory(info.used_memory, turns_off_huge_pages=turns_off == b"yes"))


async def _format(connection: AdminConnection) -> CheckResult:
    found = await connection.ask("GET", connection.keys.format)
    if found is None and not await connection.has_keys():
        return CheckResult("format", State.OK, f"nothing is stored under {connection.storage.prefix!r} yet")
    try:
        check_format(found, is_empty=False)
    except CrewelError as error:
        return CheckResult("format", State.WRONG, str(error))
    return CheckResult("format", State.OK, str(FORMAT))


async def _clock(connection: AdminConnection) -> CheckResult:
    before = time.time()
    seconds, micros = await connection.ask("TIME")
    after = time.time()
    store = int(seconds) + int(micros) / 1e6
    offset = max(before - store, store - after, 0.0)
    found = f"{offset:.3f} s apart from the store's"
    if offset < _CLOCK_WARNING_S:
        return CheckResult("clock", State.OK, found)
    state = State.WRONG if offset >= _CLOCK_WRONG_S else State.WARNING
    return CheckResult("clock", state, found, "message lifetimes are wrong by as much: set the clocks by NTP")


def _descriptors() -> CheckResult:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= _FEW_DESCRIPTORS:
        return CheckResult("descriptors", State.OK, "no limit" if soft == resource.RLIM_INFINITY else f"{soft:,}")
    state = State.WRONG if soft < _TOO_FEW_DESCRIPTORS else State.WARNING
    return CheckResult("descriptors", state, f"{soft:,}", f"each client needs one: ulimit -n, at most {hard:,} here")


def _of_directory(storage: Storage) -> Iterator[CheckResult]:
    directory = Path(storage.data_dir)
    found = _rights("data directory", directory, 0o700)
    if found is None:
        yield CheckResult("data directory", State.OK, f"the first start creates {directory.absolute()}")
        return
    yield found
    if storage.url is None and found.state is not State.UNKNOWN:
        yield _disk(directory, storage.log_max_bytes)
    token = _rights("admin token", token_file(storage.data_dir), 0o600)
    if token is not None:
        yield token


def _rights(check: str, path: Path, wanted: int) -> CheckResult | None:
    """What is found about the rights of a file or directory; None if it is not there."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        return CheckResult(check, State.UNKNOWN, f"this user may not read {path}", "run this as the user of the server")
    mode = stat.S_IMODE(status.st_mode)
    if os.geteuid() not in (status.st_uid, 0):  # root examines the server of another user
        return CheckResult(check, State.WRONG, f"{path} belongs to another user", "run the server as its owner")
    if mode & 0o077:
        return CheckResult(check, State.WRONG, f"{path} is open to others ({mode:o})", f"chmod {wanted:o} {path}")
    return CheckResult(check, State.OK, f"only its owner can access {path}")


def _disk(directory: Path, log_max_bytes: int) -> CheckResult:
    free = shutil.disk_usage(directory).free
    found = f"{free / 2**20:,.0f} MiB free"
    if free < FREE_DISK:
        return CheckResult(
            "disk", State.WRONG, found, "persistent publishes are refused: make room, see docs/how-to/disk.md"
        )
    if free < 2 * log_max_bytes:
        return CheckResult("disk", State.WARNING, found, "the store's file may grow to twice storage.log_max_bytes")
    return CheckResult("disk", State.OK, found)


# Repair


def repair_files(storage: Storage, *, is_sure: bool) -> None:
    """Repair the files of the store in `storage.data_dir`, as far as that can be done, and say what was done.

    Raises CrewelError where there is none, where it runs, and where only a backup helps.
    """
    directory = Path(storage.data_dir).absolute()
    if storage.url is not None or not holds_store(directory):
        raise CrewelError(f"{directory}: there is no store to repair")
    files = StoreFiles(directory)
    with file_errors(directory), without_store(directory):
        if _write_missing_manifest(files, is_sure) | _cut_tails(files, is_sure):
            print("repaired: start the server, or check with `crewel doctor`")
        else:
            print(f"nothing to repair: what was appended is readable to the end{_not_examined(files)}")


def _not_examined(files: StoreFiles) -> str:
    """The base files, in the store's own format, which only the store can read."""
    names = ", ".join(file.name for file in files.log_files if not _is_appended(file))
    return names and f"; {names} was not examined: if the store cannot read it, restore a backup"


def _is_appended(file: Path) -> bool:
    return ".incr." in file.name


def _write_missing_manifest(files: StoreFiles, is_sure: bool) -> bool:
    try:
        files.check()
    except Damaged as damaged:
        try:
            missing = [file for file in files.log_files if not file.exists()]
        except OSError:
            missing = []
        if missing or not any(files.directory.glob("appendonlydir/appendonly.aof.*.*.*")):
            raise CrewelError(f"{damaged}; this cannot be repaired, only restored") from None
        print("the manifest of the files is missing; the repair creates it from the existing files")
        _confirm(is_sure)
        print(*files.write_manifest(), sep="\n")
        return True
    return False


def _cut_tails(files: StoreFiles, is_sure: bool) -> bool:
    tails = [examine_tail(file) for file in files.log_files if _is_appended(file)]
    damaged = [tail for tail in tails if tail.size]
    if not damaged:
        return False
    for tail in damaged:
        print(tail)
    if damaged != tails[-1:]:
        raise CrewelError("data after the damage is in further files: this cannot be repaired, only restored")
    print("these bytes would be cut off, and kept in a separate file; the store loses their contents")
    _confirm(is_sure)
    print(f"cut off, and kept in {cut_off(damaged[0])}")
    return True


def _confirm(is_sure: bool) -> None:
    if not is_sure:
        typer.confirm("Do it?", abort=True, err=True)
