"""What `crewel doctor --repair` does to the files of the server's own store: cuts off a tail that cannot be read, and writes a
manifest that is missing. It says what it will cut_off, asks, and keeps the bytes."""

import typer

from crewel.errors import CrewelError
from crewel.settings.lasting import Storage
from crewel.storage.embedded import holds_store, without_store
from crewel.storage.store_files import Damaged, StoreFiles, Tail, cut_off, examine


def repair_files(storage: Storage, *, is_sure: bool) -> None:
    """Mend the files of the store in `storage.data_dir`, as far as that can be done, and say what was done.

    Raises CrewelError where there is none, where it runs, and where only a backup helps.
    """
    from pathlib import Path

    directory = Path(storage.data_dir).absolute()
    if storage.url is not None or not holds_store(directory):
        raise CrewelError(f"{directory}: there is no store of a server to repair")
    files = StoreFiles(directory)
    try:
        with without_store(directory):
            if _write_missing_manifest(files, is_sure) | _cut_tails(files, is_sure):
                print("repaired: start the server, or look with `crewel doctor`")
            else:
                print("nothing to repair: all files can be read to their ends")
    except OSError as error:
        raise CrewelError(f"{error.filename or directory}: {error.strerror or error}") from None


def _tails(files: StoreFiles) -> list[Tail]:
    return [examine(file) for file in files.log_files if ".incr." in file.name]


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
        print("the manifest of the files is missing, and is made of the files that are there")
        _confirm(is_sure)
        print(*files.write_manifest(), sep="\n")
        return True
    return False


def _cut_tails(files: StoreFiles, is_sure: bool) -> bool:
    tails = _tails(files)
    damaged = [tail for tail in tails if tail.size]
    if not damaged:
        return False
    for tail in damaged:
        print(tail)
    if damaged != tails[-1:]:
        raise CrewelError("what comes after the damage lies in further files: this cannot be repaired, only restored")
    print("these bytes would be cut off, and kept in a file beside; what they hold is lost to the store")
    _confirm(is_sure)
    print(f"cut off, and kept in {cut_off(damaged[0])}")
    return True


def _confirm(is_sure: bool) -> None:
    if not is_sure:
        typer.confirm("Do it?", abort=True, err=True)
