"""What the administration of one server knows beside the broker: since when sessions are there, and how pings went.

Sessions are found by their public names. Their `clientId`s are secrets and appear nowhere here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Mapping
from heapq import merge
from itertools import islice
from time import perf_counter, time
from typing import Any
from weakref import WeakKeyDictionary

from crewel.admin.jobs import Jobs
from crewel.admin.metrics_history import MetricsHistory
from crewel.admin.new_dead_letters import NewDeadLetters
from crewel.admin.server_metrics import ServerMetrics
from crewel.admin.server_timeline import ServerTimeline
from crewel.admin.server_view import ServerView
from crewel.admin.session_counts import SessionCounter, SessionCounts
from crewel.broker.broker import Broker
from crewel.broker.session import Session
from crewel.broker.sessions.login_refusals import RefusedLogins
from crewel.delivery.dispatcher import FailedDelivery
from crewel.event_loop import Turns, in_turns, sorted_in_turns
from crewel.security.masks import masked_message
from crewel.security.sign_in import SignIns
from crewel.storage.fact_index import FactIndex


class Administration(ServerView):
    """The administration of one broker: what its parts know of the server, the parts, and what operators do."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.started = self.now()
        self.pings: WeakKeyDictionary[Session, float] = WeakKeyDictionary()
        """The round trip of the last ping, in milliseconds."""
        self.sign_ins = SignIns(self.admin_token, broker.sessions.sign_outs)
        self.session_counter = SessionCounter(self)
        self.metrics_history = MetricsHistory(self, self._count, self.queued)
        self.fact_index = FactIndex()
        self.new_dead_letters = NewDeadLetters(self)
        self.jobs = Jobs(self)
        self.events.on_event.append(self.timelines.add)
        self.refusals.on_refused.append(self._login_refused)
        self.events.on_overflow.append(self._turned_away)
        self.events.on_event.append(self._forget_rejections)
        self.events.on_rejected.append(self._note_rejection)
        self.metrics_history.on_sample.append(self.rejections.tidy)
        self.server_metrics = ServerMetrics(self, self._in_trouble)
        self.server_timeline = ServerTimeline(self, self.metrics_history)

    @property
    def unknown_since(self) -> int | None:
        """Since when the store cannot be used, so that what only it knows is missing: milliseconds since 1970; None while it
        can."""
        if not self.access.has_store or self.access.trouble is None:
            return None
        return self.server_timeline.since("store") or int(time() * 1000)

    def queued(self) -> int:
        """How many messages wait for subjects and groups, as far as this node knows."""
        return sum(map(self.queues.waiting, self.queues.names()))

    async def _count(self) -> SessionCounts:
        counted = await self.session_counter.take_anew()
        await self.new_dead_letters.note()
        return counted

    async def _in_trouble(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """How many sessions are in trouble, by the kind of each cause, and how many queues of subjects and groups. The samples
        of the last hour count them, as seldom as very many need; a server that takes none counts them now."""
        has_samples = self.metrics_history.newest_ms > 0
        counted = self.session_counter.last if has_samples else await self.session_counter.take()
        return counted.causes, {kind: each.count for kind, each in counted.queues.items()}

    def _turned_away(self, name: str, policy: str, count: int) -> None:
        self.turned_away.add(name, policy, count)
        if name:
            self.timelines.add("overflow", name, {"policy": policy}, count)

    def _forget_rejections(self, what: str, name: str, _: dict[str, Any]) -> None:
        if what == "closed":
            self.rejections.forget(name)

    def _note_rejection(self, name: str, rejected: FailedDelivery) -> None:
        entry = rejected.entry
        message_id = entry.origin.id if entry.origin is not None else ""
        self.rejections.add(name, entry.channel, message_id, rejected.code, rejected.reason)

    def _login_refused(self, refused: RefusedLogins) -> None:
        """Strangers choose the names: only sessions that there are have it in their timeline."""
        if self.find(refused.name) is not None:
            fields = {"code": refused.code, "reason": refused.reason, "from": refused.address}
            self.timelines.add("refused", refused.name, fields)

    @property
    def masks(self) -> frozenset[str]:
        """Names of fields that operators do not see, in lower case."""
        return frozenset(name.lower() for name in self.settings.admin.mask)

    def messages(self, delivered: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Messages as operators see them: with masks."""
        masks = self.masks
        return [masked_message(fields, masks) for fields in delivered]

    async def named(self) -> AsyncIterator[Session]:
        """All sessions that have a name, with turns for others. The others cannot be distinguished."""
        async for session in in_turns(self.sessions()):
            if session.name:
                yield session

    def subjects(self) -> list[str]:
        """The subjects that have sessions here, in order."""
        return self.names.subjects()

    async def all_subjects(self, after: str = "") -> AsyncIterator[str]:
        """The subjects beyond this one that have sessions here, have addressed messages waiting, or are blocked, in order, with
        turns for others."""
        with_sessions, turns = self.names.subjects(), Turns()
        further = {*self.destinations.awaited(), *self.names.blocked}
        others = await sorted_in_turns([each for each in further if each > after and not self.names.of_subject(each)])
        for subject in merge(islice(with_sessions, bisect_right(with_sessions, after), None), others):
            yield subject
            await turns.rest()

    def has_subject(self, subject: str) -> bool:
        """Whether it is one of these."""
        return self.is_blocked(subject) or bool(self.sessions_of(subject) or self.waiting_for(subject))

    async def ping(self, session: Session) -> float:
        """The round trip to the client in milliseconds. Raises CrewelError with the code communication.noConnection."""
        started = perf_counter()  # finer than the loop's clock
        await self.dispatchers.pings.ping(session)
        took = self.pings[session] = round((perf_counter() - started) * 1000, 3)
        return took

    def end(self, session: Session, who: str) -> bool:
        """End the session for this operator, whom its timeline then names."""
        if session.name:
            self.timelines.add("killed", session.name, {"who": who})
        self.broker.disconnect(session)
        return True

    async def kill(self, sessions: Iterable[Session], who: str) -> int:
        """End these sessions; how many they were."""
        ended = 0
        async for session in in_turns(sessions):
            self.end(session, who)
            ended += 1
        return ended

    def refresh(self, session: Session) -> str:
        """Let the session live as long as if its client had connected now."""
        self.times.saw(session, self.now())
        return "OK"

    async def block(self, subject: str, sessions: Iterable[Session], who: str) -> int:
        """Refuse logins of the subject until the server ends, and end these sessions of it; how many they were. Raises
        StoreUnavailable if another node may still accept them."""
        await self.set_blocked(subject, is_blocked=True)
        return await self.kill(sessions, who)

    async def set_blocked(self, subject: str, *, is_blocked: bool) -> None:
        """Refuse logins of the subject at all nodes, or accept them again. Raises StoreUnavailable as `block` does."""
        if self.membership is None:
            self.names.block(subject, is_blocked=is_blocked)
        else:
            await self.membership.subjects.block(subject, is_blocked=is_blocked)
