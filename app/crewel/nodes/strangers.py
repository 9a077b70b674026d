"""Links whose other end has not proved that it belongs to the store: their number, their deadline, and what the log says.

Anything that reaches the port can open one, and anything may answer where a node is dialled. So each has a deadline, those that
others have opened have a cap, and those that failed are one line of the log a minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final, Protocol

log = logging.getLogger(__name__)

INTRODUCTION_S: Final = 3.0
"""When both ends of a link must have proved themselves. Nodes need milliseconds, unless one stands still."""
MOST: Final = 64
"""How many links may be in their introduction at a time: nodes that begin at once need one for each."""
QUIET_S: Final = 60.0
"""Seconds between two lines of the log."""


class Unproved(Protocol):
    """A link of a stranger."""

    def end(self) -> None:
        """Close it at once."""


class Strangers:
    """Those that one node has accepted, or those that it has dialled."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: float = MOST) -> None:
        self._loop = loop
        self._most = most
        self._links: dict[Unproved, str] = {}  # the oldest first, with their addresses
        self._refused: Counter[str] = Counter()  # address: links that the log has not mentioned
        self._reason = ""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many links are in their introduction."""
        return len(self._links)

    def came(self, link: Unproved, address: str) -> None:
        """A link has opened. If it is one too many, the oldest one of the address that has most is closed for it. So an address
        that opens very many keeps no other from coming."""
        if len(self._links) >= self._most:
            most, _ = Counter(self._links.values()).most_common(1)[0]
            oldest = next(each for each, its in self._links.items() if its == most)
            self.refused(oldest, f"more than {self._most} links that had not proved themselves")
            oldest.end()
        self._links[link] = address

    def left(self, link: Unproved) -> None:
        """It has proved itself, or has ended."""
        self._links.pop(link, None)

    def refused(self, link: Unproved, reason: str) -> None:
        """It failed to prove itself, for this reason. Nothing happens if that is known."""
        address = self._links.pop(link, None)
        if address is None:
            return
        if self._timer is None:
            log.warning("a link with another node was refused: %s (from %s)", reason, address)
            self._timer = self._loop.call_later(QUIET_S, self._summarise)
        else:
            self._refused[address] += 1
            self._reason = reason

    def close(self) -> None:
        """Say what has not been said, and nothing later."""
        if self._timer is not None:
            self._timer.cancel()
            self._summarise()
        if self._timer is not None:
            self._timer.cancel()

    def _summarise(self) -> None:
        self._timer = None
        refused = self._refused
        if not refused:
            return
        (most, count), *others = refused.most_common(2)
        log.warning(
            "%d more links with other nodes were refused within the last minute, %s; the last one: %s",
            refused.total(),
            f"{count} of them from {most}" if others else f"all from {most}",
            self._reason,
        )
        self._refused = Counter()
        self._timer = self._loop.call_later(QUIET_S, self._summarise)
