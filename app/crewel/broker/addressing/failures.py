"""Which sessions have failed a message that may go to one of several.

The store remembers failures with the message while that lies in its queue; here they are remembered while a session has it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from crewel.delivery.records import LogId

MOST: Final = 10_000
"""Messages of which it is remembered; the oldest are forgotten, and are tried once more by all."""


class Failure(NamedTuple):
    """What is remembered of one message."""

    by: tuple[str, ...] = ()
    """Names of the sessions that have failed it."""
    code: str = ""
    """What the last one said."""
    reason: str = ""
    given: str = ""
    """The code as it was given, if another one counts."""
    again: frozenset[str] | None = None
    """Those that would try the message again. None: it is not known what any of them said."""

    def is_final_for(self, name: str) -> bool:
        """Whether the message becomes a dead letter when all have failed it, and it comes back to this session."""
        return self.again is not None and name not in self.again


_NO_FAILURE: Final = Failure()


class Failures:
    """The failures of one server."""

    def __init__(self) -> None:
        self._known: dict[LogId, Failure] = {}

    def of(self, place: LogId) -> Failure:
        """What is remembered of this message."""
        return self._known.get(place, _NO_FAILURE)

    def note(self, place: LogId, failure: Failure) -> None:
        """Remember this of the message."""
        self._known.pop(place, None)
        while len(self._known) >= MOST:
            del self._known[next(iter(self._known))]
        self._known[place] = failure
