"""`crewel backup` and `crewel restore`: everything under one `storage.prefix`, into a file and back."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crewel.cli.options import Config, Overrides
from crewel.cli.progress import progress
from crewel.errors import CrewelError

if TYPE_CHECKING:
    from crewel.settings.lasting import Storage

File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]


def register(app: typer.Typer) -> None:
    """Add `backup` and `restore` to the command line."""
    app.command(name="backup")(backup)
    app.command(name="restore")(restore)


def backup(file: File, overrides: Overrides = None, config: Config = None) -> None:
    """Save what the store holds at this instant: messages, sessions, dead letters, facts. A server may go on meanwhile.

    The file holds secrets of sessions, and only its user can read it. One that is there already is replaced.
    """
    from crewel.settings import load

    storage = load(config, overrides or ()).storage
    with _clearly(file):
        asyncio.run(_backup(storage, file))


def restore(
    file: File,
    force: Annotated[bool, typer.Option("--force", help="Remove first what is there under this prefix.")] = False,
    overrides: Overrides = None,
    config: Config = None,
) -> None:
    """Put back what a backup holds. The server must be down, and the store empty under its prefix."""
    from crewel.settings import load

    storage = load(config, overrides or ()).storage
    with _clearly(file):
        asyncio.run(_restore(storage, file, force))


async def _backup(storage: "Storage", file: Path) -> None:
    from crewel.storage import backups
    from crewel.storage.snapshot import snapshot
    from crewel.storage.visits import visit

    directory = Path(tempfile.mkdtemp(prefix=f".{file.name}-", dir=file.parent))
    try:
        async with visit(storage) as visited:
            with progress("copying", "bytes") as show:
                async with snapshot(visited, directory, show) as reader:
                    with (directory / "whole").open("xb") as made, progress("writing", "keys") as show_keys:
                        await backups.write(reader, visited.keys, made, show_keys)
        (directory / "whole").chmod(0o600)
        (directory / "whole").replace(file)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _restore(storage: "Storage", file: Path, force: bool) -> None:
    from crewel.storage import backups
    from crewel.storage.visits import visit

    with progress("checking", "commands") as show:
        count = backups.check(file, show)
    async with visit(storage) as visited:
        await visited.require_fit()
        if await visited.is_in_use():
            raise CrewelError("a server is using this store: end it first")
        if await visited.has_keys():
            if not force:
                raise CrewelError(
                    f"the store has keys under {storage.prefix!r} already: --force removes them, another"
                    " storage.prefix leaves them"
                )
            await backups.clear(visited.reader, visited.keys)
        with progress("restoring", "commands", count) as show:
            await backups.apply(file, visited.reader, visited.keys, show)


@contextmanager
def _clearly(file: Path) -> Iterator[None]:
    """Turn what the machine refuses into one line."""
    try:
        yield
    except OSError as error:
        raise CrewelError(f"{error.filename or file}: {error.strerror or error}") from None
