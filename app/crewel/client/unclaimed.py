"""Messages that no listener of the application takes: kept in their order until one does.

In a client that settles they stay open at the server meanwhile, so its queue bounds them, and the end of the client loses none.
Elsewhere they are acknowledged, and are here only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final, NamedTuple

from crewel.bayeux.channel import parse
from crewel.bayeux.message import Fields
from crewel.client.message import update_of
from crewel.client.settling import Handling

log = logging.getLogger("crewel.client")

DEAD_MESSAGE: Final = "user.update.deadMessage"
_MOST: Final = {True: 10_000, False: 1000}
"""How many are kept: of those that are open at the server as many as it leaves open, and of others fewer."""


class Kept(NamedTuple):
    """One message."""

    fields: Fields
    handling: Handling | None
    """A listener that takes the message ends this for the client; None if the client reports no status for it."""
    since: float
    """When it came, by the clock of the loop."""


class Unclaimed:
    """The messages of one session that wait for a listener. After `limit_s`, if given, they are rejected."""

    def __init__(self, limit_s: float | None = None) -> None:
        self._limit_s = limit_s
        self._kept: dict[object, Kept] = {}
        self._channels: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, fields: Fields, handling: Handling | None, since: float | None = None) -> None:
        """Keep a message that no listener takes; `since` is when its first copy came, if another did before."""
        if handling is not None and self._limit_s == 0:
            self._reject(handling)
            return
        loop = asyncio.get_running_loop()
        channel = fields["channel"]
        if not self._channels[channel]:
            what = "they are kept in memory" if handling is None else "they stay open at the server"
            log.warning("no listener takes the messages of %s: %s until one does", channel, what)
        self._kept[_key(fields, handling)] = Kept(fields, handling, loop.time() if since is None else since)
        self._channels[channel] += 1
        if handling is not None:
            handling.unclaimed()
        if len(self._kept) > _MOST[handling is not None]:
            dropped = self._take_out(next(iter(self._kept)))
            log.error("too many messages without a listener: the oldest, of %s, is dropped", dropped.fields["channel"])
        self._set_timer(loop)

    def drop(self, fields: Fields) -> float | None:
        """Forget the message of which this is a copy; since when it was here."""
        key = update_of(fields).get("id")
        return self._take_out(key).since if isinstance(key, str) and key in self._kept else None

    def take(self, pattern: str) -> list[Kept]:
        """Those that a listener of this channel or wildcard hears, in their order; they are not here any more."""
        found = [key for key, kept in self._kept.items() if _hears(pattern, kept.fields["channel"])]
        return [self._take_out(key) for key in found]

    def clear(self) -> None:
        """Forget all: their session is over."""
        self._kept.clear()
        self._channels.clear()
        self.stop()

    def stop(self) -> None:
        """Let no time run out any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take_out(self, key: object) -> Kept:
        kept = self._kept.pop(key)
        channel = kept.fields["channel"]
        self._channels[channel] -= 1
        if not self._channels[channel]:
            del self._channels[channel]
        return kept

    # Time

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._limit_s is not None and self._timer is None and self._kept:
            due = next(iter(self._kept.values())).since + self._limit_s
            self._timer = loop.call_at(due, self._expire)

    def _expire(self) -> None:
        assert self._limit_s is not None
        self._timer, loop = None, asyncio.get_running_loop()
        for key, kept in list(self._kept.items()):
            if kept.since + self._limit_s > loop.time():
                break
            if kept.handling is not None:
                self._take_out(key)
                self._reject(kept.handling)
        self._set_timer(loop)

    def _reject(self, handling: Handling) -> None:
        handling.failed(DEAD_MESSAGE, f"no listener took it within {self._limit_s:g} s")
        handling.end()


def _key(fields: Fields, handling: Handling | None) -> object:
    return update_of(fields)["id"] if handling is not None else object()


def _hears(pattern: str, name: str) -> bool:
    channel = parse(name)
    return channel is not None and pattern in channel.patterns
