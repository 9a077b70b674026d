"""`crewel backup` and `crewel restore`: everything under one `storage.prefix`, into a file and back."""

import fcntl
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from crewel.cli.bayeux_client import Config, Overrides, finished
from crewel.cli.output import file_errors, progress
from crewel.errors import CrewelError

if TYPE_CHECKING:
    from crewel.cli.output import Show
    from crewel.settings import Settings
    from crewel.settings.storage import Storage
    from crewel.storage.admin_connection import AdminConnection
    from crewel.storage.backups import Contents
    from crewel.storage.store_connection import Reader

File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup file.")]
_LOCK: Final = "crewel-backup.lock"
"""A file in the directory of an unfinished backup, locked for as long as its process runs."""
_WHOLE: Final = "whole"
"""The file there that gets the name of the target."""


def backup(file: File, overrides: Overrides = None, config: Config = None) -> None:
    """Save the store at one instant: messages, sessions, dead letters, facts. The server may be running. The file contains
    the secrets of sessions, and only its owner can read it. Replaces an existing file, but no device or link. Fails if the
    store is missing or empty."""
    from crewel.settings import load

    settings = load(config, overrides or ())
    with file_errors(file):
        contents = finished(_backup(settings, file))
        print(f"{file}: {contents}; {file.stat().st_size:,} bytes, from {_place(settings)}")


def restore(
    file: File,
    force: Annotated[bool, typer.Option("--force", help="Replace the data under this prefix.")] = False,
    overrides: Overrides = None,
    config: Config = None,
) -> None:
    """Restore a backup. No server may use the prefix, and the store must be empty under it."""
    from crewel.settings import load

    settings = load(config, overrides or ())
    with file_errors(file):
        contents = _checked(file)  # not in a loop, which would let a signal wait
        finished(_restore(settings.storage, file, contents, force))
        print(f"{file}: {contents}; into {_place(settings)}")


async def _backup(settings: "Settings", file: Path) -> "Contents":
    from crewel.errors import StoreError
    from crewel.storage import backups
    from crewel.storage.admin_connection import admin_connection
    from crewel.storage.backup_record import note_backup
    from crewel.storage.store_files import sync_directory

    storage = settings.storage
    _check_source(storage)
    _check_target(file)
    with _unfinished(file) as directory:
        try:
            async with admin_connection(storage) as connection:
                began = time()
                contents = await _copy(connection, directory)
                _check_target(file)
                (directory / _WHOLE).replace(file)
                sync_directory(file.parent)
                try:
                    await note_backup(connection.reader, connection.keys, began)
                except StoreError as error:  # no reason to doubt the file
                    print(f"crewel: the store could not note that it was backed up: {error}", file=sys.stderr)
        except backups.BackupError as error:
            raise CrewelError(f"{_place(settings)}: {error}") from None
    return contents


@contextmanager
def _unfinished(file: Path) -> Iterator[Path]:
    """A directory for what is not a whole backup yet, beside the target, so that the rename stays within one file system. What
    backups to this target left that were killed is removed first."""
    _remove_leftovers(file)
    directory = Path(tempfile.mkdtemp(prefix=f".{file.name}-", dir=file.parent))
    try:
        with (directory / "unlocked").open("xb") as lock:
            with suppress(OSError):  # on a file system without locks, nothing is known to be a leftover
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # It has this name only while it is locked: another backup never takes this directory for a leftover.
                (directory / "unlocked").rename(directory / _LOCK)
            yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _remove_leftovers(file: Path) -> None:
    """Remove what backups to this target left that were killed. One that runs holds its lock."""
    # `mkdtemp` adds eight characters: after a longer name that begins alike, there are more.
    for lock in file.parent.glob(f".{escape(file.name)}-????????/{_LOCK}"):
        with suppress(OSError), lock.open("r+b") as left:
            fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent)


async def _copy(connection: "AdminConnection", directory: Path) -> "Contents":
    """Write the backup to a file in this directory."""
    from crewel.storage.backups import snapshot

    with progress("copying", "bytes") as show:
        async with snapshot(connection, directory, show) as reader:
            with (directory / _WHOLE).open("xb") as made, progress("writing", "keys") as show_keys:
                os.fchmod(made.fileno(), 0o600)
                return await _write(reader, connection.storage, made, show_keys)


async def _write(reader: "Reader", storage: "Storage", made: BinaryIO, show: "Show") -> "Contents":
    from crewel.storage import backups
    from crewel.storage.keys import Keys

    contents = await backups.write(reader, Keys(storage.prefix), made, show)
    made.flush()
    os.fsync(made.fileno())  # before the rename: a crash leaves the old file or the whole new one
    return contents


@contextmanager
def _set_aside(directory: Path) -> Iterator[None]:
    """Move the files of a store away that cannot be read, so that it starts empty. If what is done then fails, move them back:
    a server would take the empty store for a new one."""
    from crewel.storage.embedded import without_store
    from crewel.storage.store_files import StoreFiles

    files = StoreFiles(directory.absolute())
    with without_store(directory):
        aside = files.set_aside()
    try:
        yield
    except BaseException:
        with without_store(directory):
            files.put_back(aside)
        raise
    if aside is not None:
        print(f"crewel: the damaged files of the store are now in {aside}", file=sys.stderr)


def _forget_newest(storage: "Storage") -> None:
    """What the store held before is not missing in it: it was replaced."""
    from crewel.storage.store_files import StoreFiles

    files = StoreFiles(Path(storage.data_dir).absolute())
    files.read_marker()
    files.note(storage.prefix, 0)


def _check_source(storage: "Storage") -> None:
    """Refuse a directory without a store: opening it would make one, and save nothing."""
    from crewel.storage.embedded import holds_store, where_else

    if storage.url is None and not holds_store(Path(storage.data_dir)):
        raise CrewelError(f"{Path(storage.data_dir).absolute()}: there is no store: {where_else(storage.data_dir)}")


def _check_target(file: Path) -> None:
    """Refuse to replace what is no regular file; a link is not followed."""
    try:
        mode = file.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise CrewelError(f"{file} is a link: give the file itself, {file.resolve()}")
    if not stat.S_ISREG(mode):
        raise CrewelError(f"{file} is not a regular file, and stays unchanged")


def _place(settings: "Settings") -> str:
    """Return where the store is, without the password that its address may hold."""
    from crewel.settings.table import shown

    where = shown(settings, "storage.url") or Path(settings.storage.data_dir).absolute()
    return f"the store {where}, prefix {settings.storage.prefix!r}"


def _checked(file: Path) -> "Contents":
    from crewel.storage import backups

    with progress("checking", "commands") as show:
        return backups.check(file, show)


async def _restore(storage: "Storage", file: Path, contents: "Contents", force: bool) -> None:
    from crewel.storage.store_files import Damaged

    try:
        await _apply(storage, file, contents, force)
    except Damaged:
        if not force:
            raise
        with _set_aside(Path(storage.data_dir)):
            await _apply(storage, file, contents, force)
    if storage.url is None:
        _forget_newest(storage)


async def _apply(storage: "Storage", file: Path, contents: "Contents", force: bool) -> None:
    from crewel.errors import StoreFull
    from crewel.storage import backups
    from crewel.storage.admin_connection import PATIENT_LIMIT_S, admin_connection

    async with admin_connection(storage, PATIENT_LIMIT_S) as connection:
        await connection.require_fit()
        await backups.require_unused(connection)
        has_keys = await connection.has_keys()
        if has_keys and not force:
            raise CrewelError(
                f"the store has keys under {storage.prefix!r} already: --force removes them, another"
                " storage.prefix leaves them"
            )
        await backups.require_room(connection, contents, has_keys=has_keys)
        await backups.begin_restore(connection, is_empty=not has_keys)
        if has_keys:
            await backups.clear(connection.reader, connection.keys)
        try:
            with progress("restoring", "commands", contents.commands) as show:
                await backups.apply(file, connection.reader, connection.keys, show)
        except StoreFull:
            await backups.take_back(connection, was_empty=not has_keys)
            raise CrewelError(
                f"the store has no space for the backup, and keeps nothing of it: {backups.MORE_SPACE}"
            ) from None
