"""What happened to a server in the last day: starts and stops, outages, take-overs, refused logins. The store keeps it over
restarts.

What lasts is known here alone until it has ended; then it is written, with its beginning and its end. While the store takes
nothing, events wait for it. Meanwhile a file has both, for the next start (`unwritten_events`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Final

from crewel.admin.metrics_history import MetricsHistory
from crewel.broker.sessions.login_refusals import RefusedLogins
from crewel.errors import StoreError
from crewel.storage import server_events
from crewel.storage.disk import FREE_DISK, look_at_disk
from crewel.storage.store_connection import CLOSED
from crewel.storage.unwritten_events import UnwrittenEvents
from crewel.version import VERSION

if TYPE_CHECKING:
    from crewel.admin.server_view import ServerView

Event = dict[str, Any]

_MOST_WAITING: Final = 200
"""Events that wait for the store at most."""
_REFUSALS_MS: Final = 60_000
"""Refused logins of this time are one event for each cause."""
_TOGETHER_MS: Final = 30_000
"""Events of one kind of several nodes that begin within this time are shown as one."""
_FLAPS_MS: Final = 5000
"""An outage that begins so soon after the one before, for one of its reasons, belongs to it; and so late do other nodes notice
one."""
_REASONS: Final = 3
"""Reasons of one outage that are kept: the first, and the last ones."""
_NAMES: Final = {"store": "store outage", "task": "task failed", "descriptors": "out of file descriptors"}
"""What lasts while a server is not ready, by what that is about."""
_NO_CHANGE: Final = "it is the same one"
_CHANGED: Final = "it was started again, or another one has taken over"
_RESTARTED: Final = "the server started it again"
_LOST: Final = "store lost data"


@dataclass
class _Outage:
    """Something that lasts."""

    what: str
    since: int
    reasons: list[str] = field(default_factory=list)
    generation: str = ""
    """Of the store, when it began."""

    def note(self, why: str) -> bool:
        """This is why, as far as is known now: whether that is news. A closed connection is only the first sign of what turns
        out to be so."""
        known, before = [] if self.reasons == [CLOSED] else self.reasons, self.reasons
        if why and why not in known:
            self.reasons = [*known[:1], *[*known[1:], why][-_REASONS + 1 :]] if known else [why]
        return self.reasons != before

    def as_event(self, node: str) -> Event:
        """What is known of it while it lasts."""
        return {"at": self.since, "until": None, "node": node, "what": self.what, "why": self.reasons}


class ServerTimeline:
    """That of one server."""

    def __init__(self, admin: ServerView, metrics_history: MetricsHistory) -> None:
        self._admin, self._access, self._metrics_history = admin, admin.access, metrics_history
        self._outages: dict[str, _Outage] = {}
        self._recent: deque[Event] = deque(maxlen=_MOST_WAITING)
        self._unwritten: list[Event] = []
        settings = admin.settings
        self._file = UnwrittenEvents(Path(settings.storage.data_dir), settings.node.name)
        self._has_stopped = False
        self._refusals_at = 0
        self._losses = 0, 0

    async def start(self) -> None:
        """Follow what happens from now on. The start of the server is the first event."""
        admin = self._admin
        if self._access.has_store:
            self._access.store.watch(self._store_is_back, self._store_is_gone)
        self._metrics_history.on_sample.append(self.look)
        if admin.membership is not None:
            admin.membership.registry.on_take_over.append(self._took_over)
        self.add("started", version=VERSION, after=await self._ended_before())

    async def stop(self) -> None:
        """The server ends."""
        self._note_refusals()
        self.add("stopped")
        self._has_stopped = True
        if self._access.has_store and (self._access.trouble is not None or self._outages):
            self._keep()
            await asyncio.to_thread(self._file.save)

    async def _ended_before(self) -> str:
        """How the run before this one has ended: `stop`, or `crash` if it noted no stop; empty if none is known. What it could
        not write is noted now."""
        if not self._access.has_store:
            return ""
        try:
            events = await self._stored()
        except StoreError:
            return ""
        left = self._file.events = await asyncio.to_thread(self._file.read)
        known = {(each["node"], each["what"], each["at"]) for each in events}
        for each in left:
            if (each["node"], each["what"], each["at"]) not in known:
                self._add(self._ended(each))
        own = [each for each in (*events, *left) if each["node"] == self._admin.node]
        own = [each for each in own if each["what"] in ("started", "stopped")]
        last = max(own, key=lambda each: each["at"], default={"what": ""})
        return {"started": "crash", "stopped": "stop"}.get(last["what"], "")

    def _ended(self, left: Event) -> Event:
        """What the run before has left: if it lasted then, until now."""
        event = dict(left)
        details = self._is_other_store(event.pop("generation", ""))
        return event | details | {"until": int(time() * 1000)} if event["until"] is None else event

    # What happens

    def add(self, what: str, *, at: int | None = None, until: int | None = None, **details: Any) -> None:
        """This has happened, just now or in this time (milliseconds since 1970)."""
        now = int(time() * 1000)
        event = {"at": now if at is None else at, "until": until, "node": self._admin.node, "what": what, **details}
        if event["until"] is None:
            event["until"] = event["at"]
        self._add(event)
        if self._outages:
            self._save()

    def _add(self, event: Event) -> None:
        self._recent.append(event)
        if self._access.has_store and len(self._unwritten) < _MOST_WAITING:
            self._unwritten.append(event)
            step = server_events.write(self._access.keys, event)
            self._access.writing.submit(step, partial(self._written, event), retries=True)

    def _written(self, event: Event, answer: str | StoreError) -> None:
        if isinstance(answer, StoreError):
            return  # the server ends
        self._unwritten.remove(event)
        if self._file.events and not self._unwritten:
            self._save()

    def _keep(self) -> None:
        """Let the file have what the store does not have."""
        lasting = (each.as_event(self._admin.node) | {"generation": each.generation} for each in self._outages.values())
        self._file.events = [*self._unwritten, *lasting]

    def _save(self) -> None:
        if self._access.has_store and not self._has_stopped:  # the store goes with the server: that is no outage
            self._keep()
            self._admin.broker.spawn(asyncio.to_thread(self._file.save))

    def _took_over(self, sessions: int, nodes: list[str], is_planned: bool) -> None:
        self.add("took over", sessions=sessions, of=nodes, planned=is_planned)

    def _store_is_gone(self) -> None:
        self._begin("store", self._access.trouble or "")

    def _store_is_back(self) -> None:
        self._end("store")

    def look(self) -> None:
        """Look at what keeps the server from being ready, and at the logins that were refused."""
        now = int(time() * 1000)
        for about, read in self._admin.life.concerns.items():
            why = read()
            if why is not None:
                self._begin(about, why)
            elif about in self._outages:
                self._end(about)
        self._note_losses()
        if now - self._refusals_at >= _REFUSALS_MS:
            self._refusals_at = now
            self._note_refusals()

    def _note_losses(self) -> None:
        """Note what the store has lost since the last look. An outage alone loses nothing that was answered."""
        metrics = self._admin.metrics
        (times, messages), self._losses = self._losses, (metrics.store_losses, metrics.lost_messages)
        if metrics.store_losses > times:
            self.add(_LOST, count=metrics.lost_messages - messages)

    def _note_refusals(self) -> None:
        for each in self._admin.refusals.take_causes():
            self.add(**_refusal(each))

    def _begin(self, about: str, why: str) -> None:
        outage = self._outages.get(about)
        is_new = outage is None
        if outage is None:
            generation = self._access.store.generation if about == "store" else ""
            what = _NAMES.get(about, f"not ready: {about}")
            outage = self._outages[about] = _Outage(what, int(time() * 1000), generation=generation)
        if outage.note(why) or is_new:
            self._save()
        if about == "store" and (home := self._store().home) is not None:
            self._admin.broker.spawn(self._note_disk(outage, home))

    async def _note_disk(self, outage: _Outage, home: Path) -> None:
        """Add that the disk of an embedded store is full: the store itself may say no more than that it has ended."""
        disk = await asyncio.to_thread(look_at_disk, home)
        if disk is not None and disk.free < FREE_DISK and outage.note(f"the disk of {disk.directory} is full"):
            self._save()

    def _end(self, about: str) -> None:
        outage = self._outages.pop(about, None)
        if outage is None:
            return
        if about == "store":  # it may have been back before it was looked at again
            outage.note(self._store().why_ended)
        details = {"why": outage.reasons, **self._is_other_store(outage.generation)}
        self.add(outage.what, at=outage.since, until=int(time() * 1000), **details)
        self._save()

    def _is_other_store(self, before: str) -> dict[str, str]:
        """Whether the store is the one that it was before an outage; empty if it was not one of the store."""
        if not before:
            return {}
        changed = _CHANGED if self._store().home is None else _RESTARTED
        return {"store": _NO_CHANGE if self._store().generation == before else changed}

    def _store(self) -> Any:
        return self._access.store

    # What is shown

    def since(self, about: str) -> int | None:
        """Since when this keeps the server from being ready: milliseconds since 1970; None while all is well."""
        outage = self._outages.get(about)
        return None if outage is None else outage.since

    async def events(self) -> tuple[list[Event], bool]:
        """The events of the last day as each node has noted them, those that last with `until` None; and whether all are there.
        While the store cannot be read, only those since this server started are."""
        try:
            events, is_whole = await self._stored(), True
        except StoreError:
            events, is_whole = [], False
        lasting = [each.as_event(self._admin.node) for each in self._outages.values()]
        refused = self._admin.refusals.causes  # they are written once a minute
        unwritten = [{"node": self._admin.node, **_refusal(each)} for each in refused]
        return [*events, *self._recent, *unwritten, *lasting], is_whole

    async def _stored(self) -> list[Event]:
        return await server_events.last_day(self._admin.store, int(time() * 1000)) if self._access.has_store else []


def _refusal(refused: RefusedLogins) -> Event:
    return {
        "what": "logins refused",
        "at": refused.since,
        "until": refused.at,
        "code": refused.code,
        "reason": refused.reason,
        "count": refused.count,
        "name": refused.name,
        "address": refused.address,
    }


def together(events: Iterable[Event]) -> list[Event]:
    """Events of one or several nodes, the newest first: what several nodes say of one thing is one event with `nodes`; what one
    has said twice, once. Pure."""
    known: dict[tuple[str, str, str, int], Event] = {}
    for event in events:
        known[event["node"], event["what"], event.get("code", ""), event["at"]] = event
    found: list[Event] = []
    near: dict[tuple[str, str | None], list[Event]] = {}
    for event in sorted(known.values(), key=lambda each: each["at"]):
        kind = event["what"], event.get("code")
        near[kind] = [each for each in near.get(kind, ()) if _is_near(each, event)]
        same = next((each for each in reversed(near[kind]) if _is_same(each, event)), None)
        if same is None:
            same = {**event, "nodes": [event["node"]]}
            found.append(same)
            near[kind].append(same)
        else:
            _join(same, event)
    return sorted(found, key=lambda each: each["at"], reverse=True)


def _is_near(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether the times of two events of one kind, of which the first began earlier, let them be one for an operator. If not,
    they never do for an event that begins later than the second."""
    end = one["until"] or other["at"]  # if it lasts
    if one["what"] == "logins refused":
        return bool(other["at"] - end <= 2 * _REFUSALS_MS)
    if "why" in other:
        return bool(other["at"] - end <= _FLAPS_MS)
    return bool(one["what"] != "took over" and other["at"] - one["at"] <= _TOGETHER_MS)


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two events of one kind that are near are one for an operator. Several nodes note one thing at about the same
    time, and a store that fails again and again for one reason has one outage."""
    if other["what"] == "logins refused" or other["node"] not in one["nodes"]:
        return True
    reasons = one.get("why", []), other.get("why", [])
    return "why" in other and (not all(reasons) or not set(reasons[0]).isdisjoint(reasons[1]))


def _join(same: Event, event: Event) -> None:
    if event["node"] not in same["nodes"]:
        same["nodes"].append(event["node"])
    elif "why" in event:
        same["times"] = same.get("times", 1) + 1
    if same["what"] in ("logins refused", _LOST):
        same["count"] += event["count"]
    if same["what"] == "logins refused":
        same.update({name: event[name] for name in ("reason", "name", "address")})
    if "why" in event:
        same["why"] = list(dict.fromkeys([*same.get("why", []), *event["why"]]))
    ends = same["until"], event["until"]
    same["until"] = None if None in ends else max(ends)
