"""What happened to a server and the store does not have yet, in a file of `storage.data_dir`. It outlives an end of the server
that comes while the store is away.

The file is there during an outage only, and until the store has all of it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final

import orjson

from crewel.storage.store_files import write_whole

log: Final = logging.getLogger(__name__)


class UnwrittenEvents:
    """Those of one node. Its events are JSON objects, as the store gets them."""

    def __init__(self, directory: Path, node: str) -> None:
        self._path = directory / f"events-{node}.json"
        self._lock = Lock()
        self.events: Sequence[dict[str, Any]] = ()
        """What the file will have when it is saved."""

    def read(self) -> list[dict[str, Any]]:
        """What the run before this one has left; it blocks."""
        try:
            found = orjson.loads(self._path.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            log.warning("what happened before the start cannot be read from %s: %s", self._path, error)
            return []
        return found if isinstance(found, list) else []

    def save(self) -> None:
        """Write the file, or remove it if it would be empty; it blocks. Several threads may call this: the last one writes what
        is newest."""
        with self._lock:
            try:
                if self.events:
                    self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    write_whole(self._path, orjson.dumps(self.events))
                else:
                    self._path.unlink(missing_ok=True)
            except OSError as error:
                log.warning(
                    "what happens to the server is lost if it ends now: %s cannot be written: %s", self._path, error
                )
