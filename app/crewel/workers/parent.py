"""The parent of the workers: it owns the listening sockets and the embedded store, and keeps N workers running.

It reads no request. A worker that dies is replaced, and the others take over its sessions at once. SIGHUP replaces the workers
one after another: the successor is ready before the old one ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from crewel.broker.cluster import LONGEST_PAUSE_MS
from crewel.errors import StoreTaken, WorkersFailed
from crewel.event_loop import unless, woken
from crewel.security.tokens import keep_token
from crewel.settings import Settings
from crewel.settings.sources import variable_of
from crewel.settings.storage import port_of
from crewel.storage.node_leases import lock_directory
from crewel.storage.store import Store
from crewel.supervision import FIRST_PAUSE_S
from crewel.transports.listener import bind
from crewel.workers import control_channel
from crewel.workers.control_channel import Inheritance, Situation, Streams

log = logging.getLogger(__name__)

_BACKLOG: Final = 4096
_END_LIMIT_S: Final = 30.0
_NOTE_LIMIT_S: Final = 2.0
_COME_BACK_S: Final = 2 * LONGEST_PAUSE_MS / 1000
"""Seconds that the clients of a replaced worker have to come back, before the next one is started."""
_STEADY_S: Final = 1.0  # one that has served for so long is replaced without a pause
_TRIES: Final = 5
"""So often in a row may a worker end before it serves, until operators see that it does not start. If no other one serves, the
parent gives up then."""
_LONGEST_PAUSE_S: Final = 60.0
_MOST_DOUBLED: Final = 16
_EVERY_S: Final = 1.0
_MOST_LEFT: Final = 256

Command = Callable[[Inheritance, list[str]], list[str]]
"""The command line of a worker: what it inherits, and the settings that its parent decides, as texts of `--set`."""


@dataclass(eq=False)
class _Process:
    """One process of a worker."""

    number: int
    process: asyncio.subprocess.Process
    streams: Streams
    ready: asyncio.Future[str]
    place: int = 0
    """From 0, and that of no other process: a successor runs beside the one that it replaces, and needs other ports."""
    noted: int = 0
    """Number of the last line that it has acted on."""
    since: float = 0.0
    """When it was ready (loop time)."""
    is_wanted: bool = True
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_serving(self) -> bool:
        """Whether it has been ready, and has not ended."""
        return self.ready.done() and not self.ended.is_set()

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)


class Parent:
    """One run of `crewel serve --workers N`."""

    def __init__(self, settings: Settings, command: Command) -> None:
        self._settings = settings
        self._command = command
        self._running: list[_Process] = []
        self._places: set[int] = set()  # of these, and of those that are being started
        self._left: deque[int] = deque(maxlen=_MOST_LEFT)  # processes that have ended, or are about to
        self._heir: int | None = None  # of what the next of these leaves
        self._line = 0
        self._has_started = False  # before, what keeps one worker from starting keeps all
        self._noted = asyncio.Condition()
        self._stop = asyncio.Event()
        self._wants_successors = False  # since a SIGHUP
        self._news = asyncio.Event()  # a signal has come, or the end
        self._failure: Exception | None = None
        self._failed: dict[int, int] = {}  # number of a worker: starts in a row that came to nothing
        self._tasks: set[asyncio.Task[None]] = set()
        self._sockets: list[socket.socket] = []
        self._store: Store | None = None

    async def run(self, on_ready: Callable[[str], None]) -> None:
        """Serve until SIGTERM or SIGINT. Raises OSError if the address cannot be had, SettingsError, StoreTaken, and
        WorkersFailed if a worker does not start."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        http = self._settings.http
        async with AsyncExitStack() as stack:
            self._sockets = await bind(http.host, http.port)
            for each in self._sockets:
                stack.callback(each.close)
                each.listen(_BACKLOG)
            await unless(self._stop, stack.enter_async_context(self._storing()))
            stack.push_async_callback(self._end_all)
            url = await self._start_all()
            if url is not None:
                on_ready(url)
                await self._watch()
        if self._failure is not None:
            raise self._failure

    @asynccontextmanager
    async def _storing(self) -> AsyncIterator[None]:
        """Run the embedded store, if it is that; and have the token that all workers read."""
        storage, token = self._settings.storage, self._settings.admin.token
        if token is None:
            with suppress(OSError):  # each worker reports it
                await asyncio.to_thread(keep_token, storage.data_dir)
        if storage.url:
            yield
            return
        self._store = store = Store(self._settings)
        await store.open()
        lock = None
        try:
            try:
                lock = await asyncio.to_thread(lock_directory, Path(store.directory or storage.data_dir))
            except StoreTaken as error:
                if not storage.take_over:
                    raise StoreTaken(error.owner, ": end it first") from None
                log.warning("taking the store from %s", error.owner)
            yield
        finally:
            await store.close()
            if lock is not None:
                os.close(lock)

    # Starting

    async def _start_all(self) -> str | None:
        """Start all workers; returns the URL that they serve, None if the parent is to end first."""
        for number in range(1, self._settings.cluster.workers + 1):
            if self._stop.is_set():
                return None
            try:
                await self._spawn(number)
            except OSError as error:
                raise WorkersFailed(number, error) from error
        ready = [each.ready for each in self._running]
        if not await self._unless_stopped(asyncio.wait(ready)):
            return None
        self._has_started = True
        self._send_situation()
        return ready[0].result()

    async def _spawn(self, number: int) -> _Process:
        """Raises OSError if the machine has no process, descriptor or memory for it."""
        place = min(set(range(len(self._places) + 1)) - self._places)
        self._places.add(place)
        ours, theirs = socket.socketpair()
        process = None
        try:
            with theirs:
                process = await self._process(number, place, theirs)
            streams = await control_channel.streams(ours)
        except OSError:
            self._places.remove(place)
            ours.close()
            if process is not None:
                process.kill()
            raise
        with suppress(ValueError):
            self._left.remove(process.pid)
        made = _Process(number, process, streams, asyncio.get_running_loop().create_future(), place)
        made.ready.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._running.append(made)
        self._own(self._listen(made))
        self._own(self._wait(made))
        self._send_situation()  # it waits for that before it serves
        return made

    async def _process(self, number: int, place: int, channel: socket.socket) -> asyncio.subprocess.Process:
        listeners = [each.fileno() for each in self._sockets]
        inherited = Inheritance(number, listeners, channel.fileno())
        return await asyncio.create_subprocess_exec(
            *self._command(inherited, self._decided(number, place)),
            env=os.environ | self._decided_secrets(),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=[*listeners, channel.fileno()],
            start_new_session=True,  # Ctrl-C at the terminal is for the parent
        )

    def _decided(self, number: int, place: int) -> list[str]:
        """What the settings of a worker are, whatever its sources say."""
        node, cluster = self._settings.node, self._settings.cluster
        host, _, port = cluster.listen.rpartition(":")
        advertise, advertised = cluster.advertise, port_of(cluster.advertise)
        if advertised is not None:
            advertise = f"{advertise.rpartition(':')[0]}:{advertised + place}"
        # Another address than that of an embedded store may hold a password: `_decided_secrets`.
        embedded = [] if self._store is None else [f"storage.url={self._store.url}"]
        return [
            *embedded,
            "cluster.workers=1",
            "cluster.enabled=true",
            f"cluster.listen={host}:{int(port) + place if int(port) else 0}",
            f"cluster.advertise={advertise}",
            f"node.name={node.name[:59]}-{number}",
            f"http.port={self._sockets[0].getsockname()[1]}",
        ]

    def _decided_secrets(self) -> dict[str, str]:
        """The variables of a worker for what its parent decides and no other user may see: all users of the machine can read a
        command line. They count more than crewel.toml, and an address in the parent's own command line is the same."""
        url = self._settings.storage.url
        return {variable_of("storage.url"): url} if url else {}

    def _own(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Talking

    async def _listen(self, worker: _Process) -> None:
        async for fields in control_channel.lines(worker.streams[0]):
            if "ready" in fields and not worker.ready.done():
                worker.since = asyncio.get_running_loop().time()
                worker.ready.set_result(fields["ready"])
            worker.noted = max(worker.noted, fields.get("noted", 0))
            async with self._noted:
                self._noted.notify_all()

    def _send_situation(self) -> None:
        """Let all workers know what the situation is."""
        self._line += 1
        serving = {str(each.number): each.process.pid for each in self._running if each.is_serving and each.is_wanted}
        situation = Situation(
            self._line,
            serving,
            list(self._left),
            self._heir,
            *self._store_says(),
            failing=self._failing(),
            workers=self._settings.cluster.workers,
        )
        for each in self._running:
            control_channel.send(each.streams[1], asdict(situation))

    def _store_says(self) -> tuple[str | None, str | None, str | None]:
        """Why the embedded store takes no more, where it is, and why it cannot be used; None for what does not hold."""
        store = self._store
        if store is None:
            return None, None, None
        home = None if store.directory is None else str(store.directory)
        return store.why_full, home, store.trouble

    def _failing(self) -> dict[str, int]:
        """The workers that do not start, and how often in a row they have not."""
        serving = {each.number for each in self._running if each.is_serving}
        return {str(each): count for each, count in self._failed.items() if count >= _TRIES and each not in serving}

    async def _send_situation_and_wait(self) -> None:
        """Let all workers know what the situation is, and wait until they have acted on it."""
        self._send_situation()
        line = self._line
        with suppress(TimeoutError):
            async with asyncio.timeout(_NOTE_LIMIT_S), self._noted:
                await self._noted.wait_for(lambda: all(each.noted >= line for each in self._running if each.is_serving))

    async def _unless_stopped(self, what: Coroutine[Any, Any, object]) -> bool:
        """Wait for this, or for the end; returns whether it is not the end."""
        await unless(self._stop, what)
        return not self._stop.is_set()

    # Running

    def _end(self) -> None:
        """End all workers, and then this process."""
        self._stop.set()
        self._news.set()

    def _hang_up(self) -> None:
        """Replace all workers."""
        self._wants_successors = True
        self._news.set()

    async def _watch(self) -> None:
        """Obey signals until the end."""
        said = self._store_says()
        while not self._stop.is_set():
            await woken(self._news, _EVERY_S)
            if self._wants_successors and not self._stop.is_set():
                self._wants_successors = False
                await self._replace_all()
            if (says := self._store_says()) != said:
                said = says
                self._send_situation()

    async def _replace_all(self) -> None:
        """Replace the workers one after another by processes that read the settings again."""
        log.info("replacing the workers")
        for old in [each for each in self._running if each.is_serving]:
            if self._stop.is_set():
                return
            if old.ended.is_set():
                continue  # it has died meanwhile, and is replaced by one that reads the settings as they are now
            try:
                new = await self._spawn(old.number)
            except OSError as error:
                log.error("cannot replace worker %d: it continues to run (%s)", old.number, error.strerror or error)
                return
            if not await self._unless_stopped(asyncio.wait([new.ready])):
                return
            if not new.is_serving:
                log.error("cannot replace worker %d: it continues to run", old.number)
                return
            old.is_wanted = False
            self._left.append(old.process.pid)
            # Else one worker may have all sessions in the end.
            self._heir = new.process.pid
            await self._send_situation_and_wait()
            old.send_signal(signal.SIGTERM)
            await self._until_ended(old)
            # The start of the next one takes a second of the processor, which its clients need now.
            await self._unless_stopped(asyncio.sleep(_COME_BACK_S))
            self._heir = None
            self._send_situation()
        log.info("all workers have been replaced")

    async def _wait(self, worker: _Process) -> None:
        """Wait until the process ends; replace it if it was to run."""
        status = await worker.process.wait()
        worker.ended.set()
        worker.streams[1].close()
        self._running.remove(worker)
        self._places.remove(worker.place)
        if worker.process.pid not in self._left:
            self._left.append(worker.process.pid)
        if not worker.ready.done():
            worker.ready.set_exception(WorkersFailed(worker.number, status))
        self._send_situation()
        if worker.is_wanted and not self._stop.is_set():
            await self._replace(worker, status)

    async def _replace(self, worker: _Process, status: int) -> None:
        number = worker.number
        if any(each.number == number and each.is_wanted for each in self._running):
            return  # it was to become the successor of one that serves
        lived = asyncio.get_running_loop().time() - worker.since if worker.since else 0.0
        self._failed[number] = 0 if lived >= _STEADY_S else self._failed.get(number, 0) + 1
        failure = None if worker.since else WorkersFailed(number, status)
        how = f"ended with status {status}"
        while not self._gives_up(number, failure) and await self._paused(number, how):
            try:
                new = await self._spawn(number)
            except OSError as error:
                self._failed[number] += 1
                failure = WorkersFailed(number, error)
                how = f"cannot be started ({error.strerror or error})"
            else:
                await self._until_serving(new)
                return

    def _gives_up(self, number: int, failure: WorkersFailed | None) -> bool:
        """Whether the parent ends with this failure of a worker: there is no other one, or none has started yet."""
        serving = any(each.is_serving for each in self._running)
        if failure is None or (self._has_started and (self._failed[number] < _TRIES or serving)):
            return False
        self._failure = failure
        self._end()
        return True

    async def _paused(self, number: int, how: str) -> bool:
        """Wait before the worker starts again; returns whether it still is to. `how`: what keeps it from serving."""
        failed = self._failed[number]
        pause = min(FIRST_PAUSE_S * 2.0 ** min(failed, _MOST_DOUBLED), _LONGEST_PAUSE_S) if failed else 0.0
        log.error("worker %d %s, and starts again in %.1f s", number, how, pause)
        if failed >= _TRIES:
            count, serving = self._settings.cluster.workers, sum(each.is_serving for each in self._running)
            log.error("worker %d has not started %d times in a row; %d of %d serve", number, failed, serving, count)
            self._send_situation()
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._stop.wait()
        return not self._stop.is_set()

    async def _until_serving(self, worker: _Process) -> None:
        with suppress(WorkersFailed):
            await asyncio.shield(worker.ready)
            if self._failed[worker.number] >= _TRIES:
                log.warning("worker %d serves again", worker.number)
            self._send_situation()

    async def _until_ended(self, worker: _Process) -> None:
        try:
            async with asyncio.timeout(_END_LIMIT_S):
                await worker.ended.wait()
        except TimeoutError:
            log.warning("worker %d has not ended within %g s of SIGTERM", worker.number, _END_LIMIT_S)
            worker.send_signal(signal.SIGKILL)
            await worker.ended.wait()

    async def _end_all(self) -> None:
        """End all workers at the same time."""
        self._stop.set()
        while running := list(self._running):
            for each in running:
                each.is_wanted = False
                each.send_signal(signal.SIGTERM)
            await asyncio.gather(*(self._until_ended(each) for each in running))
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
