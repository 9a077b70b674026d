"""Who has failed messages that may go to one of several: none of them gets them again while others are there.

The store remembers it with the message while that lies in its queue; here it is remembered while somebody has the message.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from crewel.delivery.records import LogId

MOST: Final = 10_000
"""Messages of which it is remembered; the oldest give way, and are tried once more by all."""


class Failure(NamedTuple):
    """What is remembered of one message."""

    by: tuple[str, ...] = ()
    """Names of the sessions that have failed it."""
    code: str = "user.update.error"
    """What the last one said."""
    reason: str = "everybody who was there has failed it"


_NOBODY: Final = Failure()


class Failures:
    """The failures of one server."""

    def __init__(self) -> None:
        self._known: dict[LogId, Failure] = {}

    def of(self, place: LogId) -> Failure:
        """What is remembered of this message."""
        return self._known.get(place, _NOBODY)

    def note(self, place: LogId, failure: Failure) -> None:
        """Remember this of the message."""
        self._known.pop(place, None)
        while len(self._known) >= MOST:
            del self._known[next(iter(self._known))]
        self._known[place] = failure
