"""The frame of those who do random things on threads of their own while a test shoots at the server."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod


class AtWork(ABC):
    """At work from `start` until `stop` returns; `trouble` is what went wrong, if anything. Whoever inherits says in `work`
    what is done, looks at `is_ending`, and waits by `pause`."""

    def __init__(self) -> None:
        self.trouble: BaseException | None = None
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._is_ending.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    @property
    def is_done(self) -> bool:
        """Whether the work is done, or something went wrong."""
        return not self._thread.is_alive()

    @property
    def is_ending(self) -> bool:
        """Whether it has to end."""
        return self._is_ending.is_set()

    def pause(self, seconds: float) -> bool:
        """Wait, but not when it has to end; whether it has."""
        return self._is_ending.wait(seconds)

    @abstractmethod
    def work(self) -> None:
        """Do what has to be done."""

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - the test tells it
            self.trouble = error
