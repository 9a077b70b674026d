"""Gathers the events of this server and writes them, one group at a time and off the hot path (`storage.streams` says what
they hold).

The parts of the broker call a method here, which adds to a list or to a count. There is never more than one group under
way, and a group holds `events.max_group` events at most: what is beyond is counted and lost, and the group tells how much.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import add
from time import time
from typing import Any, Final

from crewel.broker.mailboxes.shape_samples import ShapeSamples
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.delivery.dispatcher import UNCLAIMED, FailedDelivery, Judgement
from crewel.delivery.dispatcher_states import Holdback
from crewel.delivery.entry import Entry
from crewel.errors import StoreError
from crewel.storage import streams
from crewel.storage.streams import BUCKETS_MS, EVENTS, SCHEMA, Level

log = logging.getLogger(__name__)

_LEVEL_OF: Final = {each.name: each.level for each in EVENTS}
_CLOSE_TIMEOUT_S: Final = 1.0

Fields = dict[str, Any]


@dataclass(eq=False)
class Events:
    """The events of one broker. Without a store there are none."""

    _runtime: Runtime
    _level: Level | None = field(default=None, init=False)
    traffic: dict[str, list[int]] | None = field(default=None, init=False)
    """What was published and not stored, by channel: how often, and to how many. None unless that is written; then nothing
    need be counted."""
    _settled: dict[str, list[int]] | None = field(default=None, init=False)
    """By channel: the buckets, and the milliseconds that all took together."""
    acknowledged: list[Entry] = field(default_factory=list, init=False)
    """What receivers acknowledge; before adding to it, look at `tick`."""
    _ticks: list[tuple[float, list[Entry]]] = field(default_factory=list, init=False)
    latencies: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_MS) + 1), init=False)
    """How many acknowledgements took how long since the start, by bucket."""
    _shapes: ShapeSamples = field(default_factory=ShapeSamples, init=False)
    _list: list[Fields] = field(default_factory=list, init=False)
    _overflows: Counter[tuple[str, str]] = field(default_factory=Counter, init=False)
    _redelivered: Counter[str] = field(default_factory=Counter, init=False)
    _lost: int = field(default=0, init=False)
    _token: str = field(default="", init=False)
    _number: int = field(default=0, init=False)
    _since: int = field(default=0, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    on_event: list[Callable[[str, str, Fields], None]] = field(default_factory=list, init=False)
    """Called at once with what happens to a session that has a name, whatever the level: the type, the session's name, and
    the fields of the event. It happens seldom: failures, holds, ends."""

    on_rejected: list[Callable[[str, FailedDelivery], None]] = field(default_factory=list, init=False)
    """Called at once with the name of a session and a message that it has rejected for good, with code and reason."""

    on_overflow: list[Callable[[str, str, int], None]] = field(default_factory=list, init=False)
    """Called before each group with the session's name, the policy of its queue, and how many messages that has turned away
    since the last group."""

    on_settled: list[Callable[[Session, Iterable[Entry], str], None]] = field(default_factory=list, init=False)
    """Called with messages that a session has acknowledged, or has failed with this code; it is empty otherwise. Not called for
    the short way of a session's only part."""

    def __post_init__(self) -> None:
        self.tick = -1.0
        """When that was settled which is put into `acknowledged`; loop time, s."""
        self._visitors = [0, 0]

    def start(self) -> None:
        """There is a store: begin."""
        self._runtime.services.session_added.append(self._opened)
        self._runtime.services.session_removed.append(self._closed)
        self._since = _now_ms()
        self._obey()
        self._task = self._runtime.supervisor.start("events", self._run)

    async def close(self) -> None:
        """Write what there is, if the store takes it at once."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            with suppress(TimeoutError):
                async with asyncio.timeout(self._runtime.supervisor.shutdown.left(_CLOSE_TIMEOUT_S)):
                    await self.flush()

    def _obey(self) -> None:
        """Look at the setting, which may change."""
        self._level = level = Level(self._runtime.settings.events.level)
        if level is not Level.ALL:
            self.traffic = None
        elif self.traffic is None:
            self.traffic = {}
        if not level.includes(Level.RELIABLE):
            self._settled = None
        elif self._settled is None:
            self._settled = {}

    # What happens

    def _opened(self, session: Session) -> None:
        peer = session.peer
        self._happened("opened", session.name, {"transport": "" if peer is None else peer.transport})
        if peer is not None and self._is_wanted(session, 0):  # without, the store has brought it back, and it continues
            self._note("opened", session=session.name, reliable=session.acknowledges, transport=peer.transport)

    def _closed(self, session: Session, expired: bool) -> None:
        death = session.mailbox.view().death
        reason = "dead" if death is not None else "expired" if expired else "disconnected"
        code = death[0] if death is not None else ""
        self._happened("closed", session.name, {"reason": reason, "code": code})
        if not self._is_wanted(session, 1):
            return
        silent = max(round((self._runtime.loop.time() - session.last_seen) * 1000), 0) if session.last_seen else 0
        fields = {"reliable": session.acknowledges, "reason": reason, "code": code, "silent": silent}
        self._note("closed", session=session.name, **fields)

    def _is_wanted(self, session: Session, place: int) -> bool:
        if session.acknowledges:
            return self._level is not Level.FAILURES
        if self._level is not Level.ALL:
            return False
        if not session.name:
            self._visitors[place] += 1
        return bool(session.name)

    def judged(self, session: Session, judgement: Judgement) -> None:
        """A receiver has reported what happened to messages, or their statuses did not come in time."""
        if judgement.settled:
            self.settled(session, judgement.settled)
        for each in judgement.dead_letters:
            self._failed(session, each.entry, each.code, "letter", each.given)
            for follow in self.on_rejected if session.name else ():
                follow(session.name, each)
        if judgement.put_back:
            outcome = "held" if session.mailbox.view().holdback is not None else "waits"
            for each in judgement.put_back:
                if each.reason is not UNCLAIMED:  # of that the client has reported no failure
                    self._failed(session, each.entry, each.code, outcome)
            self.redelivered(session.name, len(judgement.put_back))

    def _failed(self, session: Session, entry: Entry, code: str, outcome: str, given: str = "") -> None:
        message_id = entry.origin.id if entry.origin is not None else ""
        fields = {"channel": entry.channel, "id": message_id, "code": code, "outcome": outcome}
        fields |= {"given": given} if given else {}
        self._happened("failed", session.name, fields)
        for follow in self.on_settled:
            follow(session, [entry], code)
        self._note("failed", session=session.name, **fields)

    def held(self, session: Session, holdback: Holdback) -> None:
        """A session is put on hold."""
        fields = {"who": holdback.who, "code": holdback.code, "id": holdback.message_id}
        self._happened("held", session.name, {**fields, "reason": holdback.reason})
        self._note("held", session=session.name, **fields)

    def released(self, session: Session) -> None:
        """A session is activated."""
        self._happened("released", session.name, {})
        self._note("released", session=session.name)

    def died(self, session: Session, waiting: int, cause: str) -> None:
        """A session ends while messages wait for it. Followers learn of it before its end; no event is written."""
        self._happened("died", session.name, {"waiting": waiting, "reason": cause})

    def lost(self, session: Session) -> None:
        """The client of a session is away. No event is written."""
        self._happened("lost", session.name, {})

    def token_expired(self, session: Session) -> None:
        """The token of a session's client has expired. No event is written."""
        self._happened("expired", session.name, {})

    def back(self, session: Session) -> None:
        """It is there again. No event is written."""
        self._happened("back", session.name, {})

    def _happened(self, name: str, session: str, fields: Fields) -> None:
        if session:
            for follow in self.on_event:
                follow(name, session, fields)

    def overflow(self, name: str, policy: str) -> None:
        """A queue was full."""
        if self._level is not None and len(self._overflows) < self._runtime.settings.events.max_group:
            self._overflows[name, policy] += 1

    def redelivered(self, name: str, count: int) -> None:
        """So many messages leave again for the session of this name, or wait to."""
        if self._settled is not None and len(self._redelivered) < self._runtime.settings.events.max_group:
            self._redelivered[name] += count

    def settled(self, session: Session, entries: Iterable[Entry]) -> None:
        """These have been settled just now. Their places in the log are microseconds, so that they tell since when they were
        there."""
        for follow in self.on_settled:
            follow(session, entries, "")
        if self._settled is None:
            return
        now_us = int(time() * 1_000_000)
        for entry in entries:
            self._took(entry, now_us - entry.position)

    def turn(self, now: float) -> None:
        """What is put into `acknowledged` from now on was settled at this time of the loop's clock (s)."""
        self.tick, self.acknowledged = now, []
        self._ticks.append((now, self.acknowledged))

    def fold(self) -> None:
        """Sum up what was acknowledged."""
        ticks, self._ticks, self.tick = self._ticks, [], -1.0
        if self._settled is None:
            return
        since_us = (time() - self._runtime.loop.time()) * 1_000_000
        for now, entries in ticks:
            now_us = int(since_us + now * 1_000_000)
            for entry, same in groupby(entries):  # many acknowledge the same in one turn of the loop
                self._took(entry, now_us - entry.position, len([*same]))

    def _took(self, entry: Entry, time_us: int, count: int = 1) -> None:
        assert self._settled is not None
        if not entry.position or not entry.channel:
            return  # not stored, or of a topic without a name
        buckets = self._settled.get(entry.channel)
        if buckets is None:
            if len(self._settled) >= self._runtime.settings.events.max_group:
                self._lost += count
                return
            buckets = self._settled[entry.channel] = [0] * (len(BUCKETS_MS) + 2)
            self._shapes.add(entry)
        took_ms = max(time_us // 1000, 0)  # the store's clock may be ahead
        buckets[bisect_left(BUCKETS_MS, took_ms)] += count
        buckets[-1] += took_ms * count

    def fan_out(self, channel: str) -> Callable[[int], None]:
        """A message that is not stored was published; what this returns is called with the number of receivers of each part of
        its way out."""
        messages = 1

        def received(receivers: int) -> None:
            nonlocal messages
            if self.traffic is not None:
                self.published(channel, receivers, messages)
            messages = 0

        return received

    def published(self, channel: str, receivers: int, messages: int = 1) -> None:
        """A message that is not stored was published. Only to be called while there is `traffic`."""
        assert self.traffic is not None
        counts = self.traffic.get(channel)
        if counts is not None:
            counts[0] += messages
            counts[1] += receivers
        elif len(self.traffic) < self._runtime.settings.events.max_group:
            self.traffic[channel] = [messages, receivers]
        else:
            self._lost += messages

    def _note(self, name: str, **fields: Any) -> None:
        if self._level is None or not self._level.includes(_LEVEL_OF[name]):
            return
        if len(self._list) >= self._runtime.settings.events.max_group:
            self._lost += 1
            return
        self._list.append({"type": name, "at": _now_ms(), **fields})

    # Groups

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._runtime.settings.events.flush_ms / 1000)
            self._obey()
            await self.flush()

    async def flush(self) -> None:
        """Write a group of what has happened, if anything has; it is lost if the store does not take it."""
        access = self._runtime.access
        if not access.has_store:
            return
        await self._note_shapes()
        group = self._group(access.token)
        if group is None:
            return
        step = streams.write(access.keys, group, self._runtime.settings.events.max_bytes)
        try:
            await access.writing.ask(step, unordered=True)
        except StoreError as error:
            self._runtime.metrics.events_lost += len(group["events"])
            self._shapes.forget()
            log.debug("a group of events is lost: %s", error)

    def last_shape(self, channel: str) -> str | None:
        """The shape of the data that was acknowledged last of this channel; None if no sample says it."""
        return self._shapes.last_of(channel)

    async def _note_shapes(self) -> None:
        """Note which channels have data of another shape than before."""
        self.fold()
        async for found in self._shapes.changed(self._runtime.loop.time()):
            buckets = (self._settled or {}).get(found["channel"], [0])
            self._note("shape", **found, count=sum(buckets[:-1]))

    def _group(self, token: str) -> Fields | None:
        events = self._taken()
        most = self._runtime.settings.events.max_group
        lost, self._lost = self._lost + max(len(events) - most, 0), 0
        self._runtime.metrics.events_lost += lost
        if not events and not lost:
            return None
        if token != self._token:
            self._token, self._number = token, 0
        self._number += 1
        since, self._since = self._since, _now_ms()
        return {
            "v": SCHEMA,
            "node": self._runtime.settings.node.name,
            "token": self._token,
            "n": self._number,
            "from": since,
            "until": self._since,
            "lost": lost,
            "events": events[:most],
        }

    def _taken(self) -> list[Fields]:
        """All that has happened since the last group."""
        events, self._list = self._list, []
        overflows, self._overflows = self._overflows, Counter()
        for (name, policy), count in overflows.items():
            for follow in self.on_overflow:
                follow(name, policy, count)
        events += [
            {"type": "overflow", "session": name, "policy": policy, "count": count}
            for (name, policy), count in overflows.items()
        ]
        redelivered, self._redelivered = self._redelivered, Counter()
        events += [{"type": "redelivered", "session": name, "count": count} for name, count in redelivered.items()]
        self.fold()
        if self._settled:
            settled, self._settled = self._settled, {}
            for name, (*buckets, total) in settled.items():
                self.latencies = list(map(add, self.latencies, buckets))
                events.append(
                    {"type": "settled", "channel": name, "count": sum(buckets), "sum": total, "buckets": buckets}
                )
        if self.traffic:
            traffic, self.traffic = self.traffic, {}
            events += [
                {"type": "traffic", "channel": name, "published": published, "delivered": delivered}
                for name, (published, delivered) in traffic.items()
            ]
        if any(self._visitors):
            opened, closed = self._visitors
            self._visitors = [0, 0]
            events.append({"type": "visitors", "opened": opened, "closed": closed})
        return events


def _now_ms() -> int:
    return int(time() * 1000)
