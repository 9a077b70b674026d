"""Publishes that wait for the server, for programs without asyncio."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path

from crewel.client import outbox
from crewel.client.errors import ClientError
from crewel.client.outbox import MAX_BYTES, MAX_MESSAGES, RefusedPublish
from crewel.client.sync.background import Fact, background


class Outbox:
    """A bounded queue of publishes: `Client(url, outbox=Outbox("orders.outbox"))`, and `client.enqueue`.

    Without a path it is in memory, and ends with the process. A file is used by one process at a time. `on_refused` is called
    with each `RefusedPublish`, in the thread of the event loop.
    """

    # Written by tools/sync_client.py, as crewel.client.Outbox has it
    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        max_messages: int = MAX_MESSAGES,
        max_bytes: int = MAX_BYTES,
        on_refused: Callable[[RefusedPublish], None] | None = None,
    ) -> None:
        self._begin(outbox.Outbox(path, max_messages=max_messages, max_bytes=max_bytes, on_refused=on_refused))

    path = Fact[Path | None]("origin", "path")
    """Its file; None: it is in memory."""
    waiting = Fact[int]("origin", "waiting")
    """How many publishes the server has not answered yet."""
    failure = Fact[ClientError | None]("origin", "failure")
    """Why it sends no more: the client's session has ended."""

    def drained(self, timeout: float | None = None) -> None:
        """Wait until the server has replied to all publishes. Raises TimeoutError after `timeout` seconds (None or -1: no
        limit), the error that ended the session, and DisconnectedError if the client was closed before."""
        self._background.wait_for(lambda: self.origin.drained(timeout))

    def refused(self) -> list[RefusedPublish]:
        """Return the publishes that the server has refused, oldest first."""
        return self._background.wait_for(self.origin.refused)

    def forget_refused(self) -> None:
        """Delete them."""
        self._background.wait_for(self.origin.forget_refused)

    # End of what is written

    def _begin(self, origin: outbox.Outbox) -> None:
        self.origin = origin
        """The outbox as the event loop has it."""
        self._background = background()
