"""What only a look at every session tells: states, transports, and the receivers that are in trouble, by cause; and the queues
of subjects and groups that are.

It is taken when a page asks, in turns of the event loop, and kept for some seconds: many pages cost what one costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from crewel.admin.cached_result import CachedResult
from crewel.admin.cause_words import GROUP, SUBJECT, advice_of
from crewel.admin.client_connection import transport_of
from crewel.admin.level import Level
from crewel.admin.paging import First
from crewel.admin.receiver_condition import Cause, Condition, causes_of, conditions_of
from crewel.admin.receiver_facts import (
    at_rest,
    awaited_queues,
    queue_causes,
    session_facts,
    shared_facts,
    stopped_since,
)
from crewel.delivery.dispatcher_states import DispatcherState
from crewel.event_loop import in_turns
from crewel.qos.names import queue_of

if TYPE_CHECKING:
    from crewel.admin.server_view import ServerView

_KEPT_S: Final = 4.0
NAMED: Final = 5
"""Receivers of one cause that are named."""
_ANONYMOUS: Final = "client/anonymous/"
_NEVER: Final = 10**15
_STATES: Final = {Condition.CONNECTED: DispatcherState.ALIVE, Condition.AWAY: DispatcherState.POLLING}
"""Where the dispatcher of a session that is at rest stands."""


@dataclass(frozen=True, slots=True)
class Named:
    """One receiver in trouble."""

    name: str
    text: str
    """Its cause."""
    since: int | None
    """Milliseconds since 1970; None if that is not known."""
    waiting: int
    node: str
    is_bad: bool = True
    """Whether messages are stuck or lost."""
    advice: str = ""
    """What to do about it."""
    away_since: int | None = None
    """Since when its client is away, of one that is full, or soon: milliseconds since 1970."""


@dataclass
class Trouble:
    """The receivers whose most urgent cause is of one kind."""

    count: int = 0
    waiting: int = 0
    """Their messages, all together."""
    named: list[Named] = field(default_factory=list)
    """Some of them: bad ones first, then those with the earliest time, and those with the most messages."""

    @property
    def since(self) -> int | None:
        """When the first of those that are named began to have it."""
        return min((each.since for each in self.named if each.since is not None), default=None)

    def join(self, other: Trouble) -> Trouble:
        """Both together."""
        named = sorted([*self.named, *other.named], key=_urgency)[:NAMED]
        return Trouble(self.count + other.count, self.waiting + other.waiting, named)


def _urgency(each: Named) -> tuple[bool, int, int, str]:
    return not each.is_bad, each.since or _NEVER, -each.waiting, each.name


@dataclass
class SessionCounts:
    """All sessions at one time, except those of operators' pages."""

    count: int = 0
    states: dict[str, int] = field(default_factory=dict)
    conditions: dict[str, int] = field(default_factory=dict)
    """How they stand, in plain words. Each is connected or away, and may be something else as well."""
    transports: dict[str, int] = field(default_factory=dict)
    """By the connection type in use; `none` for those that hold no connect at the moment."""
    unnamed: int = 0
    """Sessions to which their client gave no name."""
    pages: int = 0
    """Operators' pages, which have a session for their live feed."""
    waiting: int = 0
    """Messages that wait, are sent or are open, once for each session."""
    causes: dict[str, int] = field(default_factory=dict)
    """How many are in trouble, by the kind of each of their causes."""
    troubles: dict[str, Trouble] = field(default_factory=dict)
    """Those in trouble, by the kind of their most urgent cause."""
    queues: dict[str, Trouble] = field(default_factory=dict)
    """Subjects and consumer groups whose queue is full, or soon or nearly so, by the kind of the cause. All nodes that share
    the store count the same."""

    @property
    def connected(self) -> int:
        """How many have their client there."""
        return self.conditions.get(Condition.CONNECTED, 0)

    @property
    def held(self) -> int:
        """How many are on hold."""
        return self.conditions.get(Condition.ON_HOLD, 0)


class SessionCounter:
    """Counts the sessions of one server."""

    def __init__(self, admin: ServerView) -> None:
        self._admin = admin
        self._kept = CachedResult(self._count, _KEPT_S)
        self.last = SessionCounts()
        """The last one, however old it is."""

    async def take(self) -> SessionCounts:
        """The last one, if it is new enough; else a new one."""
        return await self._kept.get()

    async def take_anew(self) -> SessionCounts:
        """A new one, which is the last one from now on."""
        self._kept.drop()
        return await self._kept.get()

    async def _count(self) -> SessionCounts:
        admin, counted = self._admin, SessionCounts()
        states, transports, conditions = Counter[str](), Counter[str](), Counter[str]()
        kinds = Counter[str]()
        found = _Troubles()
        resting = Counter[Condition]()
        admin.backlog_trends.begin()
        async for session in in_turns(admin.sessions()):
            if not session.is_live:
                continue
            if session.grants is not None and session.grants.is_feed:
                counted.pages += 1
                continue
            counted.count += 1
            counted.unnamed += not session.name or session.name.startswith(_ANONYMOUS)
            transports[transport_of(session) or "none"] += 1
            if (condition := at_rest(admin, session)) is not None:
                resting[condition] += 1
                if condition is Condition.CONNECTED and not session.subscriptions:
                    conditions[Condition.UNSUBSCRIBED.value] += 1
                continue
            facts = session_facts(admin, session)
            if session.name:
                admin.backlog_trends.note(session.name, facts.share, facts.waiting, is_stopped=facts.is_stopped)
            causes = causes_of(facts)
            kinds.update({each.kind for each in causes if each.level is not Level.INFO})
            counted.waiting += facts.waiting
            states[admin.dispatchers.state(session).value] += 1
            conditions.update(each.value for each in conditions_of(facts, causes))
            found.add(session.name, admin.node, facts.waiting, causes)
            admin.past_troubles.note(session.name, admin.node, causes)
        for condition, count in resting.items():
            states[_STATES[condition].value] += count
            conditions[condition.value] += count
        counted.troubles = found.as_dict()
        counted.queues = await self._queues()
        admin.past_troubles.end_count(self._is_there)
        counted.states, counted.transports, counted.conditions = dict(states), dict(transports), dict(+conditions)
        counted.causes = dict(kinds)
        self.last = counted
        return counted

    async def _queues(self) -> dict[str, Trouble]:
        admin, found = self._admin, _Troubles()
        knows_all = admin.membership is None  # other nodes may have members that take messages
        async for name, queue, waiting, sessions in in_turns(awaited_queues(admin)):
            facts = shared_facts(admin, queue, waiting, sessions)
            facts.stopped_since = stopped_since(admin, facts, sessions)
            admin.backlog_trends.note(queue, facts.share, waiting)
            causes = causes_of(facts)
            of_queue = queue_causes(causes)
            found.add(name, "", waiting, of_queue, GROUP if facts.is_group else SUBJECT)
            admin.past_troubles.note(name, "", causes if knows_all else of_queue)
        return found.as_dict()

    def _is_there(self, name: str) -> bool:
        """Whether there is a receiver of this name. One that has gone may have moved to another node."""
        return bool(queue_of(name)) or self._admin.find(name) is not None or self._admin.membership is not None


class _Troubles:
    """Receivers in trouble while they are counted, by the kind of their most urgent cause."""

    def __init__(self) -> None:
        self._found: dict[str, Trouble] = {}
        self._named: dict[str, First[Named]] = {}

    def add(self, name: str, node: str, waiting: int, causes: Sequence[Cause], what: str = "") -> None:
        if not causes or causes[0].level is Level.INFO:
            return
        cause = causes[0]
        trouble = self._found.setdefault(cause.kind, Trouble())
        trouble.count += 1
        trouble.waiting += waiting
        since, is_bad = cause.details.get("since"), cause.level is Level.BAD
        advice, away_since = advice_of(cause, causes, what), cause.details.get("awaySince")
        others = [each.text for each in causes[1:] if each.level is Level.BAD]
        named = Named(name, "; ".join([cause.text, *others]), since, waiting, node, is_bad, advice, away_since)
        self._named.setdefault(cause.kind, First(NAMED, _urgency)).add(named)

    def as_dict(self) -> dict[str, Trouble]:
        for kind, some in self._named.items():
            self._found[kind].named = some.items()
        return self._found


def as_view(counted: SessionCounts) -> dict[str, Any]:
    """The sessions as an overview has them."""
    return {
        "count": counted.count + counted.pages,
        "unnamed": counted.unnamed,
        "pages": counted.pages,
        "states": counted.states,
        "conditions": counted.conditions,
        "transports": counted.transports,
        "held": counted.held,
        "waiting": counted.waiting,
    }
