"""An event loop whose clock stands still until a test moves it: half a minute of a session's life in no time."""

from __future__ import annotations

import asyncio


class ControlledLoop(asyncio.SelectorEventLoop):
    """A real event loop, but for `time()`. Tests are plain functions: they call the broker, `settle`, and look."""

    def __init__(self) -> None:
        self._now = 1000.0
        super().__init__()

    def time(self) -> float:
        """Seconds, as the test says."""
        return self._now

    def settle(self) -> None:
        """Run everything that is ready, and what becomes ready by that."""
        while True:
            self.call_soon(self.stop)
            self.run_forever()
            if not self._ready:  # type: ignore[attr-defined]
                return

    def advance(self, seconds: float) -> None:
        """Let this much time pass, with every timer ringing at its own moment."""
        end = self._now + seconds
        self.settle()
        while (timers := self._scheduled) and timers[0].when() <= end:  # type: ignore[attr-defined]
            self._now = max(self._now, timers[0].when())
            self.settle()
        self._now = end
        self.settle()

    def stall(self, seconds: float) -> None:
        """Let this much time pass in which nothing runs: every timer of it rings late, at its end."""
        self._now += seconds
        self.settle()
