"""Sessions by the second in which the sweep looks at them next, so that a sweep costs as much as what is due.

A timing wheel with an exact removal: a session that ends leaves memory at once, however far away its second is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from crewel.broker.session import Session


class TimingWheel:
    """The sessions of one server. Each is in one second at most."""

    def __init__(self) -> None:
        self._seconds = defaultdict[int, dict[Session, None]](dict)

    def put(self, session: Session, at: float) -> None:
        """Let the session be due at the begin of the second of this loop time (s), and at no other time."""
        if session.due is not None:
            del session.due[session]
        session.due = seconds = self._seconds[int(at)]
        seconds[session] = None

    def put_all(self, sessions: list[Session], at: float) -> None:
        """The same for several that are in the wheel, without a call for each."""
        seconds = self._seconds[int(at)]
        for session in sessions:
            if session.due is not None:
                del session.due[session]
            session.due = seconds
            seconds[session] = None

    def forget(self, session: Session) -> None:
        """Let the session be due no more."""
        if session.due is not None:
            del session.due[session]
            session.due = None

    def due(self, now: float) -> Iterator[Session]:
        """The sessions whose second has begun by this loop time (s): second by second, and within one as they were put there.
        Each stays due until it is put elsewhere. Others may be put and forgotten meanwhile."""
        for second in sorted(second for second in self._seconds if second <= now):
            yield from list(self._seconds.get(second, ()))
            if not self._seconds.get(second, True):
                del self._seconds[second]
