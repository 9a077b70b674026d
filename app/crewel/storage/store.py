"""The store as the server sees it: opened, watched, asked.

`run` does steps that write, in order, on one connection; `reader` reads on others. The watcher notices when the store goes
away and when it is back, brings up a store of our own again, and looks at memory and disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from secrets import token_hex
from time import time
from typing import Any, NamedTuple

from redis.asyncio import ConnectionPool, Redis
from redis.exceptions import RedisError

from crewel.delivery.records import LogId
from crewel.errors import SettingsError, StoreError, StoreFull, StoreUnavailable
from crewel.event_loop import woken
from crewel.settings import Settings
from crewel.settings.store_location import Place, parse_store_address
from crewel.storage import store_load
from crewel.storage.confirmation import Marks
from crewel.storage.embedded import END_LIMIT_S, Embedded
from crewel.storage.keys import FORMAT, Keys
from crewel.storage.losses import Met, meet
from crewel.storage.primary import has_moved
from crewel.storage.script_step import Step, scripts
from crewel.storage.store_connection import (
    REPLICAS_MS,
    Command,
    Connection,
    Done,
    Reader,
    Writer,
    command_of,
    connected,
    not_copied,
    pack,
    pool_of,
    unavailable,
)
from crewel.storage.store_files import moment
from crewel.storage.store_info import StoreInfo
from crewel.storage.store_load import Load, LoadMeter
from crewel.storage.store_requirements import Loading, check_format, check_server, why_not
from crewel.storage.store_space import Space, room_of, why_full
from crewel.supervision import Supervisor

log = logging.getLogger(__name__)

_OPEN_LIMIT_S = 10.0  # until a store must have been reached for the first time
_EVERY_S = 1.0  # a look at a store that is up
_RETRY_S = 0.5  # an attempt to reach one that is not
_END_LIMIT_S = 10.0  # for what was asked for, when the server ends
_RETRY_OWN_S = 0.1  # the same for a store of our own
_DOUBT_S = 0.1  # a look for the primary while writes are refused


class Newest(NamedTuple):
    """The newest log id of the store as it was seen last."""

    at: float
    """When the store had said it, in seconds of the event loop."""
    id: LogId


_UNSEEN = Newest(inf, LogId(0))


class Store:
    """The one store. `open` it before use and `close` it after.

    What `is_up`, `is_full` and `trouble` say is what the last call or the last look found out.
    """

    reader: Redis
    """For reading. Its calls raise StoreError and never the library's own errors."""

    def __init__(self, settings: Settings, supervisor: Supervisor | None = None) -> None:
        """`supervisor` runs the watcher; without one, the store has its own."""
        self.supervisor = supervisor or Supervisor()
        self.keys = Keys(settings.storage.prefix)
        self.is_up = False
        self.is_full = False
        self.is_scarce = False
        """Whether its memory is more than half full, so that what accounts store has to be counted."""
        self.room = 0
        """Bytes that may be stored until it is full, about, while `is_scarce`. What is accepted is taken off."""
        self.until_look = inf
        """Bytes of messages that may come until the memory has to be looked at again (`look_soon`)."""
        self.why_full: str | None = None
        """Why nothing should be stored at the moment, by the last look."""
        self.owner_says: str | None = None
        """Why nothing should be stored, as the process says that owns the embedded store, where this one only shares it."""
        self.owner_trouble: str | None = None
        """Why the store cannot be used, as that process says."""
        self._home: Path | None = None
        self.trouble: str | None = "not opened yet"
        self.away_since: float | None = None
        """Since when it has been away after it was there, in seconds since 1970; None if it is there, or never was."""
        self._storage = settings.storage
        self._news = asyncio.Event()
        self._embedded = None if settings.storage.url else Embedded(settings.storage, self._news.set)
        self._space: Space | None = None
        connection = token_hex(8)
        self.marks = Marks(self.keys.copied(connection))
        """Those of what is written."""
        self._read_marks = Marks(self.keys.copied(f"{connection}-log"))  # of what was read, and confirmed by `confirm`
        self.newest = _UNSEEN
        """Looked at every second."""
        self.continues: set[str] = set()
        """Generations before the present one that have nothing confirmed that this one lacks."""
        self._load_meter = LoadMeter()
        self._compared = ""  # the generation that was compared last: nothing is written before
        self._is_doubted = False  # that the server at the other end is the primary
        self._further: dict[
            Connection, Callable[[str], None]
        ] = {}  # connections beside the writer's, and how each is closed
        self._writer = Writer(lambda: self._storage.replicas, self.marks, self._lose, self._doubt)
        self._pool: ConnectionPool | None = None
        self._last_client: tuple[str, int] | None = None
        self._history = ""  # of the store's writes: what it and its replicas have in common
        self.met = Met(LogId(0), "0-0", 0)
        """What the store had when a server first met this run of it, or this promotion."""
        self._watchers: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self._task: asyncio.Task[None] | None = None
        self._is_ending = False

    async def open(self) -> None:
        """Reach the store, starting one of our own if `storage.url` is not set, and check that it can be trusted.

        Raises SettingsError for what an operator must fix, StoreUnavailable if it cannot be reached in 10 s. A store that is
        still reading its file is waited for as long as that takes.
        """
        await asyncio.to_thread(scripts)  # which reads files, once
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        self._task = self.supervisor.start("watch over the store", self._watch)

    async def close(self) -> None:
        """Let what was asked for be answered, and end the store if it is our own."""
        self._is_ending = True
        self._news.set()
        shutdown = self.supervisor.shutdown
        if self._task is not None:
            await shutdown.within(_END_LIMIT_S, self._last_look(self._task), "the watch over the store")
        await shutdown.within(_END_LIMIT_S, self._writer.close(), "what the store was asked for")
        self._writer.disconnect()
        self.is_up = False
        if self._pool is not None:
            await self._pool.aclose()
        if self._embedded is not None:
            await self._embedded.close(shutdown.left(END_LIMIT_S))

    async def _last_look(self, watch: asyncio.Task[None]) -> None:
        await watch
        if self.is_up:
            await self._check_health()

    def cut(self) -> None:
        """Send nothing from now on, as if the process were killed: what was sent and not answered is uncertain. `close` is to
        follow."""
        self._is_ending, self.is_up = True, False
        self._writer.disconnect("the server was cut off")

    async def run(self, steps: Sequence[Step[Any]]) -> list[Any]:
        """Do the steps in order and return one result each: what its `parse` makes of the answer, or a StoreError.

        StoreUnavailable, StoreFull, Fenced: that step did nothing. StoreUncertain: it was sent, and its outcome is unknown.
        Once the store is up again, nothing that was uncertain before happens any more. Steps are not repeated, but for scripts
        that the store had forgotten. Cancelling the caller does not stop them.
        """
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.submit(steps, lambda results: None if future.done() else future.set_result(results))
        return await future

    async def look(self, *commands: Command) -> list[Any]:
        """Return the answers to commands that only read, in one exchange on the connection of the steps. It is for what is
        looked at every second: by `reader` that would cost many times as much. Raises StoreError."""
        answers = await self._writer.ask(commands)
        for answer in answers:
            if isinstance(answer, StoreError):
                raise answer
        return answers

    def submit(self, steps: Sequence[Step[Any]], done: Done) -> None:
        """Do the steps as `run` does, without a coroutine: `done` is called with the results, before this returns if the store
        is away. It must not raise. A store that is back takes nothing before it was met and its watchers know of it. An answer
        of the new run would count as one of the run before, and be missed as lost with that."""
        if not self.is_up:
            done(unavailable(steps))
            return

        def answered(answers: list[Any]) -> None:
            done([*map(self._parsed, steps, answers)])

        self._writer.submit([*map(command_of, steps)], answered, is_copied=True)

    def submit_along(self, steps: Sequence[Step[Any]], done: Done) -> None:
        """Do the steps together with what others ask for next, or alone if nothing comes soon. `done` is called as by
        `submit`."""
        if not self.is_up:
            done(unavailable(steps))
            return

        commands = [*map(command_of, steps)]
        self._writer.submit_along(commands, lambda answers: done([*map(self._parsed, steps, answers)]), is_copied=True)

    def _parsed(self, step: Step[Any], answer: Any) -> Any:
        if isinstance(answer, StoreError):
            if isinstance(answer, StoreFull) and not self.is_full:
                self._set_full(str(answer))
            return answer
        try:
            return step.result(answer)
        except StoreError as error:
            return error
        except Exception as error:
            log.exception("a reply of the store to %s could not be parsed", step.script)
            return StoreError(f"the reply of the store cannot be parsed: {error}")

    def confirm(self, connection: Connection, done: Callable[[StoreError | None], None]) -> None:
        """Ask whether replicas have all that this connection has read until now, as many as must have it; `done` is called with
        None if they do."""
        needed = self._storage.replicas
        if not needed:
            done(None)
            return
        commands = [pack(command_of(self._read_marks.step())), pack(("WAIT", needed, REPLICAS_MS))]

        def answered(answers: list[Any]) -> None:
            lack = not_copied(answers, needed)
            if lack is None:
                self._read_marks.confirm()
            done(lack)

        connection.exchange(commands, answered)

    async def connect_again(self, lost: Callable[[str], None]) -> Connection:
        """Return a further connection to the very store that the steps go to. `lost` is called with the reason when it is
        closed because it is of no use any more. Raises StoreUnavailable."""
        generation, pool = self.generation, self._pool
        if not self.is_up or pool is None:
            raise StoreUnavailable(self.trouble or "the store is not open")

        def close(reason: str) -> None:
            self._further.pop(connection, None)
            connection.close(reason)
            lost(reason)

        try:
            connection = await connected(pool, close)
        except (RedisError, OSError, TimeoutError) as error:
            raise StoreUnavailable(f"the store cannot be reached: {error}") from error
        said = await connection.ask(("INFO",))
        info = StoreInfo(said if isinstance(said, bytes) else b"")
        if f"{info.run_id}:{info.history}" == self.generation == generation:
            self._further = {each: how for each, how in self._further.items() if not each.is_closed} | {
                connection: close
            }
            return connection
        connection.close("another store is in its place")
        raise StoreUnavailable("another store is in its place")

    async def connect_to_replica(self, place: Place, lost: Callable[[str], None]) -> Connection:
        """Return a connection to the replica there; `lost` as `Connection` has it. Raises RedisError, OSError or
        TimeoutError."""
        return await connected(pool_of(parse_store_address(self.url).url(place), self._storage.prefix), lost)

    def look_soon(self) -> None:
        """Very much has come since the last look at the memory."""
        self.until_look = inf
        self._news.set()

    def watch(self, came: Callable[[], None], went: Callable[[], None]) -> None:
        """Call `went` whenever the store goes away from now on, before the steps that were under way get their answers. Call
        `came` whenever it is back, before it is asked for anything."""
        self._watchers.append((came, went))

    @property
    def generation(self) -> str:
        """Differs between two runs of the store, between two stores, and after a replica was promoted."""
        return f"{self._last_client[0]}:{self._history}" if self._last_client is not None else ""

    @property
    def history(self) -> str:
        """Names the sequence of writes that the store shares with its replicas."""
        return self._history

    @property
    def load(self) -> Load | None:
        """How busy the store was in the last minute; None before that is known."""
        return self._load_meter.load

    @property
    def keeps_everything(self) -> bool:
        """Whether a new run of the store has all that an earlier one had answered: of an embedded one, whichever process runs
        it. Of a store of others that is unknown: it may be a replica now, or may not have written its file in time."""
        return self.home is not None and self._storage.fsync == "always"

    @property
    def directory(self) -> os.PathLike[str] | None:
        """The data directory of a store of our own; None if the store is not the server's own."""
        return self._embedded.directory if self._embedded is not None else None

    @property
    def own_process(self) -> str:
        """The process of the store that this server has started, for an operator who has to end it; empty without one."""
        return "" if self._embedded is None else self._embedded.process_text

    @property
    def home(self) -> Path | None:
        """Where the files of an embedded store are, whether this process runs it or only shares it; None if it is a store of
        others."""
        return self._home if self._embedded is None else self._embedded.directory

    @property
    def why_ended(self) -> str:
        """Why the store of our own ended, until it is in use again; empty if it did not end, or is one of others."""
        return "" if self._embedded is None else self._embedded.why_ended

    @property
    def why_away(self) -> str | None:
        """Why the store cannot be used, as the process says that runs it, if that is another one; None while it can."""
        return None if self.trouble is None else self.owner_trouble or self.trouble

    def learn_of_owner(self, full: str | None, home: str | None, trouble: str | None) -> None:
        """The process that runs the embedded store, which this one shares, says why that is full, where it is, and why it
        cannot be used."""
        self.owner_says, self.owner_trouble = full, trouble
        self._home = None if home is None else Path(home)

    @property
    def url(self) -> str:
        """The `storage.url` by which other processes of this machine share the store; known once it is open."""
        return self._storage.url or self._embedded_url()

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _OPEN_LIMIT_S
        is_known = False  # that it reads its file
        while True:
            try:
                return await self._connect()
            except Loading as error:
                if not is_known:
                    log.info("%s", error)
                is_known = True
                deadline = loop.time() + _OPEN_LIMIT_S
            except StoreUnavailable:
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(0.02)

    async def _connect(self) -> None:
        """Reach the store and check it, once. Raises SettingsError or StoreUnavailable, whose text is `trouble` then."""
        try:
            if self._embedded is not None:
                await self._embedded.ensure()
            if self._pool is None:
                self._pool = pool_of(self.url, self._storage.prefix)
                self.reader = Reader(connection_pool=self._pool)
            elif self._storage.may_lose_by_fail_over:
                await (
                    self._pool.disconnect()
                )  # a former primary answers reads for some seconds, with what is old by then
            try:
                await self._writer.connect(self._pool)
            except (RedisError, OSError, TimeoutError) as error:
                raise self._why_not(error) from None
            await self._check()
            if not self._writer.is_connected:  # another caller has found out meanwhile
                raise StoreUnavailable(self.trouble or "the store has closed the connection")
        except (SettingsError, StoreError) as error:
            self.trouble = str(error)
            self._writer.disconnect()
            raise
        if self._embedded is not None:
            self._embedded.last_words = ""
        self.trouble = self.away_since = None
        self.is_up = True

    def _why_not(self, error: Exception) -> SettingsError | StoreUnavailable:
        why = why_not(error, is_own=self.home is not None)
        if self._embedded is not None and self._embedded.last_words and not isinstance(why, Loading):
            return StoreUnavailable(self._embedded.why_ended or "the store has ended")
        return why

    def _embedded_url(self) -> str:
        assert self._embedded is not None
        return self._embedded.url

    async def _check(self) -> None:
        said, client = await self._ask(("INFO",), ("CLIENT", "ID"))  # a store that reads its file answers these
        info = StoreInfo(said)
        if info.is_loading:
            raise Loading("the store is loading its file")
        # In this order: another server that starts at the same time writes the format before any of its keys.
        has_keys, found = await self._ask(("EXISTS", self.keys.last, self.keys.nodes), ("GET", self.keys.format))
        check_server(info, self._storage)
        await self._forget_last_client(info, client)
        self._history, self.newest = info.history, _UNSEEN
        await self._ask(*[("SCRIPT", "LOAD", script.text) for script in scripts().values()])
        check_format(found, is_empty=not has_keys)
        if found is None:
            await self._ask(("SET", self.keys.format, FORMAT, "NX"))
        await self._meet()
        await self._compare_with_marks()
        await self._compare_with_marker()
        await self._note_space(info)

    async def _meet(self) -> None:
        step = meet(self.keys, self.generation)
        (answer,) = await self._ask(command_of(step))
        self.met = step.result(answer)

    async def _compare_with_marks(self) -> None:
        """Note whether this generation has all that replicas had confirmed of the one before."""
        if self._compared == self.generation:
            return
        every = self.marks, self._read_marks
        (values,) = await self._ask(("MGET", *(marks.key for marks in every)))
        if self._compared and all(marks.are_in(value) for marks, value in zip(every, values, strict=True)):
            self.continues.add(self._compared)
        else:
            self.continues.clear()
        self._compared = self.generation

    async def _compare_with_marker(self) -> None:
        """Say what a store of our own does not have any more that was seen in it before, and note what it has."""
        if self._embedded is None:
            return
        (answer,) = await self._ask(("GET", self.keys.last))
        newest, seen = int(answer or 0), self._embedded.files.last.get(self._storage.prefix, 0)
        if newest < seen:
            since = f"{newest} of {moment(newest)}" if newest else "the first"
            log.error(
                "the store has lost messages that it had answered: those after %s, up to %d of %s or later",
                since,
                seen,
                moment(seen),
            )
        await self._note_contents(newest)

    async def _note_contents(self, newest: int) -> None:
        assert self._embedded is not None
        files, prefix = self._embedded.files, self._storage.prefix
        if files.last.get(prefix) == newest:
            return
        try:
            await asyncio.to_thread(files.note, prefix, newest)
        except OSError as error:
            log.warning("the marker of the store's contents could not be written to storage.data_dir: %s", error)

    async def _forget_last_client(self, info: StoreInfo, client: int) -> None:
        """Make sure that nothing happens any more that the last connection sent and got no answer to.

        A store that was stopped for a while reads it from the socket when it continues. Killing the connection from a later one
        comes either before, and then it is never read, or after. A store that has restarted has read nothing of it.
        """
        if self._last_client is not None and self._last_client[0] == info.run_id:
            await self._writer.ask([("CLIENT", "KILL", "ID", self._last_client[1])])
        self._last_client = (info.run_id, client)

    async def _ask(self, *commands: Command) -> list[Any]:
        answers = await self._writer.ask(commands)
        for answer in answers:
            if isinstance(answer, StoreUnavailable | StoreFull):
                raise StoreUnavailable(str(answer))
            if isinstance(answer, StoreError):
                raise SettingsError(f"storage.url: {answer}")
        return answers

    async def _watch(self) -> None:
        while not self._is_ending:
            if self.is_up:
                await self._check_health()
            else:
                await self._reconnect()
            await woken(self._news, self._pause())

    def _pause(self) -> float:
        if self.is_up:
            return _EVERY_S
        return _RETRY_S if self._embedded is None else _RETRY_OWN_S

    def _doubt(self) -> None:
        """A write was refused, or too few replicas have it: another server may be the primary by now."""
        if not self._is_doubted:
            self._is_doubted = True
            self._news.set()

    async def _check_place(self) -> bool:
        """See whether the primary is still the server that writes go to; False if it is not. Sentinels replace it some seconds
        before it learns of that itself."""
        self._is_doubted = False
        if self._pool is not None and await has_moved(self._pool, self._writer.place):
            self._writer.give_up("another server is the primary")
            return False
        await asyncio.sleep(_DOUBT_S)  # there may be doubt again at once
        return True

    async def _check_health(self) -> None:
        """See whether the store answers, and how much space it has left."""
        if self._is_doubted and not await self._check_place():
            return
        sections = ("INFO", "memory", "persistence", "replication", *store_load.SECTIONS)
        answer, newest = await self._writer.ask([sections, ("GET", self.keys.last)])
        if not isinstance(answer, StoreError):
            info = StoreInfo(answer)
            if self._has_changed(info):
                self._writer.give_up("another store is in its place")
                return
            self._load_meter.look(info, asyncio.get_running_loop().time())
            await self._note_space(info)
        if not isinstance(newest, StoreError):
            self.newest = Newest(asyncio.get_running_loop().time(), LogId(int(newest or 0)))
            if self._embedded is not None:
                await self._note_contents(self.newest.id)

    def _has_changed(self, info: StoreInfo) -> bool:
        """Whether the process at the other end does not have the writes any more that it had: it follows another, or did. One
        whose last replica has been gone for long begins a history without that."""
        if info.is_replica:
            return True
        if info.history != self._history and not info.has_changed_role:
            self._history = info.history
        return info.history != self._history

    async def _note_space(self, info: StoreInfo) -> None:
        self.is_scarce, self.room, self.until_look = room_of(info)
        if self._embedded is None:
            why = self.owner_says or why_full(info)
        else:
            await self._embedded.keep_link()
            space = self._space = self._space or Space(self._embedded.directory)
            why = await asyncio.to_thread(space.why_full, info)
            if space.should_rewrite(info, asyncio.get_running_loop().time()):
                log.info("asking the store to rewrite its file")
                await self._writer.ask([("BGREWRITEAOF",)])
        if why is None and self.is_full:
            why = await self._why_still_full()
        self._set_full(why)

    async def _why_still_full(self) -> str | None:
        """Why the store refuses writes, if its report does not tell: one that cannot write to its disk refuses PING as well."""
        try:
            await self.reader.ping()
        except StoreFull as error:
            return str(error)
        except StoreError:
            return self.why_full
        return None

    def _set_full(self, why: str | None) -> None:
        if why is not None and self.why_full is None:
            log.error("persistent publishes are refused: %s", why)
        elif why is None and self.why_full is not None:
            log.warning("the store has space again")
        self.why_full, self.is_full = why, why is not None

    async def _reconnect(self) -> None:
        before = self.trouble
        try:
            await self._connect()
        except SettingsError as error:
            if str(error) != before:
                log.error("the store cannot be used: %s", error)
        except StoreUnavailable:
            return
        else:
            log.warning("the store is back")
            for came, _ in self._watchers:
                try:
                    came()  # in the turn in which the store is up
                except Exception:
                    log.exception("a part of the server could not continue after the store came back")
            if self._embedded is not None:
                self._embedded.why_ended = ""

    def _lose(self, reason: str) -> None:
        """The writer calls this when its connection is gone."""
        self.trouble = reason
        if not self.is_up:
            return
        self.is_up, self.away_since = False, time()
        self._news.set()
        log.warning("the store is unavailable: %s", reason)
        for close in list(self._further.values()):
            close(reason)
        for _, went in self._watchers:
            asyncio.get_running_loop().call_soon(went)  # what it raises must not end the writer
