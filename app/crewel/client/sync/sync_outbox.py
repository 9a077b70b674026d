"""Publishes that wait for the server, for programs without asyncio."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path

from crewel.client import outbox
from crewel.client.errors import ClientError
from crewel.client.outbox import MAX_BYTES, MAX_MESSAGES, RefusedPublish
from crewel.client.sync.background import background


class Outbox:
    """A bounded queue of publishes: `Client(url, outbox=Outbox("orders.outbox"))`, and `client.enqueue`.

    Without a path it is in memory, and ends with the process. A file is used by one process at a time. `on_refused` is called
    with each `RefusedPublish`, in the thread of the event loop.
    """

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        max_messages: int = MAX_MESSAGES,
        max_bytes: int = MAX_BYTES,
        on_refused: Callable[[RefusedPublish], None] | None = None,
    ) -> None:
        self.origin = outbox.Outbox(path, max_messages=max_messages, max_bytes=max_bytes, on_refused=on_refused)
        """The outbox as the event loop has it."""
        self._background = background()

    @property
    def path(self) -> Path | None:
        """Its file; None: it is in memory."""
        return self.origin.path

    @property
    def waiting(self) -> int:
        """How many publishes the server has not answered yet."""
        return self.origin.waiting

    @property
    def failure(self) -> ClientError | None:
        """Why it sends no more: the client's session has ended."""
        return self.origin.failure

    def drained(self, timeout: float | None = None) -> None:
        """Wait until the server has replied to all publishes. Raises TimeoutError after `timeout` seconds, and the error that
        ended the session."""
        self._background.wait_for(self.origin.drained(timeout))

    def refused(self) -> list[RefusedPublish]:
        """Return the publishes that the server has refused, oldest first."""
        return self._background.wait_for(self.origin.refused())

    def forget_refused(self) -> None:
        """Delete them."""
        self._background.wait_for(self.origin.forget_refused())
