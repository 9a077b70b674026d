"""`crewel backup` and `crewel restore`: everything under one `storage.prefix`, into a file and back."""

import asyncio
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from crewel.cli.bayeux_client import Config, Overrides
from crewel.cli.output import file_errors, progress
from crewel.errors import CrewelError

if TYPE_CHECKING:
    from crewel.cli.output import Show
    from crewel.settings import Settings
    from crewel.settings.storage import Storage
    from crewel.storage.backups import Contents
    from crewel.storage.store_connection import Reader

File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup file.")]


def backup(file: File, overrides: Overrides = None, config: Config = None) -> None:
    """Save the store at one instant: messages, sessions, dead letters, facts. The server may be running. The file contains
    the secrets of sessions, and only its owner can read it. Replaces an existing file, but no device or link. Fails if the
    store is missing or empty."""
    from crewel.settings import load

    settings = load(config, overrides or ())
    with file_errors(file):
        contents = asyncio.run(_backup(settings, file))
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
        contents = asyncio.run(_restore(settings.storage, file, force))
        print(f"{file}: {contents}; into {_place(settings)}")


async def _backup(settings: "Settings", file: Path) -> "Contents":
    from crewel.errors import StoreError
    from crewel.storage import backups
    from crewel.storage.admin_connection import admin_connection
    from crewel.storage.backup_record import note_backup
    from crewel.storage.backups import snapshot
    from crewel.storage.store_files import sync_directory

    storage = settings.storage
    _check_source(storage)
    _check_target(file)
    # Beside the target, so that the rename stays within one file system.
    directory = Path(tempfile.mkdtemp(prefix=f".{file.name}-", dir=file.parent))
    try:
        async with admin_connection(storage) as connection:
            began = time()
            with progress("copying", "bytes") as show:
                async with snapshot(connection, directory, show) as reader:
                    with (directory / "whole").open("xb") as made, progress("writing", "keys") as show_keys:
                        os.fchmod(made.fileno(), 0o600)
                        contents = await _write(reader, storage, made, show_keys)
            _check_target(file)
            (directory / "whole").replace(file)
            sync_directory(file.parent)
            try:
                await note_backup(connection.reader, connection.keys, began)
            except StoreError as error:  # no reason to doubt the file
                print(f"crewel: the store could not note that it was backed up: {error}", file=sys.stderr)
    except backups.BackupError as error:
        raise CrewelError(f"{_place(settings)}: {error}") from None
    else:
        return contents
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _write(reader: "Reader", storage: "Storage", made: BinaryIO, show: "Show") -> "Contents":
    from crewel.storage import backups
    from crewel.storage.keys import Keys

    contents = await backups.write(reader, Keys(storage.prefix), made, show)
    made.flush()
    os.fsync(made.fileno())  # before the rename: a crash leaves the old file or the whole new one
    return contents


def _set_aside(directory: Path) -> None:
    """Move the files of a store away that cannot be read, so that it starts empty."""
    from crewel.storage.embedded import without_store
    from crewel.storage.store_files import StoreFiles

    with without_store(directory):
        aside = StoreFiles(directory.absolute()).set_aside()
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


async def _restore(storage: "Storage", file: Path, force: bool) -> "Contents":
    from crewel.storage import backups
    from crewel.storage.store_files import Damaged

    with progress("checking", "commands") as show:
        contents = backups.check(file, show)
    try:
        await _apply(storage, file, contents.commands, force)
    except Damaged:
        if not force:
            raise
        _set_aside(Path(storage.data_dir))
        await _apply(storage, file, contents.commands, force)
    if storage.url is None:
        _forget_newest(storage)
    return contents


async def _apply(storage: "Storage", file: Path, commands: int, force: bool) -> None:
    from crewel.storage import backups
    from crewel.storage.admin_connection import admin_connection

    async with admin_connection(storage) as connection:
        await connection.require_fit()
        await backups.require_unused(connection)
        has_keys = await connection.has_keys()
        if has_keys and not force:
            raise CrewelError(
                f"the store has keys under {storage.prefix!r} already: --force removes them, another"
                " storage.prefix leaves them"
            )
        await backups.begin_restore(connection, is_empty=not has_keys)
        if has_keys:
            await backups.clear(connection.reader, connection.keys)
        with progress("restoring", "commands", commands) as show:
            await backups.apply(file, connection.reader, connection.keys, show)
