"""What the administration asks of its server: its name, its store, its sessions, subjects, queues and topics, and what has
happened to receivers lately.

It alone knows where the broker has its parts. `Administration` is this with parts of its own. Jobs, counts, histories and the
facts of receivers get it as this, and so know no other part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, ValuesView
from functools import partial
from time import time
from typing import Final

from crewel.admin.audit import Audit
from crewel.admin.backlog_trends import BacklogTrends
from crewel.admin.cached_result import CachedResult
from crewel.admin.everywhere import Everywhere
from crewel.admin.past_troubles import PastTroubles
from crewel.admin.rejections import Rejections
from crewel.admin.timeline import Timelines
from crewel.admin.turned_away import TurnedAway
from crewel.broker.broker import Broker
from crewel.broker.session import Session
from crewel.delivery.dispatcher_states import DispatcherState
from crewel.delivery.records import LogId
from crewel.errors import StoreError, StoreUnavailable, StoreUncertain
from crewel.nodes.membership import Membership
from crewel.storage.dead_letter_groups import GROUPED, count_by
from crewel.storage.recent_rates import KINDS, RecentRates, recent_rates
from crewel.storage.store import Store
from crewel.storage.taken_elsewhere import Taken, taken_elsewhere

_KEPT_S: Final = 5.0
_PATIENCE_S: Final = 5.0
"""For the store's answer to what operators ask for."""
_MOST_NOTED: Final = 100
"""Subscriptions of a session that its timeline notes with an event."""
_MOST_LOOKED_UP: Final = 100
"""Receivers that reject messages, of which is looked up what others took."""


def oldest_of(session: Session) -> int | None:
    """When the oldest of its stored messages was published: milliseconds since 1970; None without one."""
    place = session.mailbox.view().oldest
    return None if place is None else place // 1000


class ServerView:
    """One server, as the parts of its administration see it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.settings = broker.settings
        self.access = broker.runtime.access
        """The way to the store, if the server has one."""
        self.life = broker.runtime.life
        self.metrics = broker.metrics
        self.events, self.times = broker.mailboxes.events, broker.mailboxes.times
        self.now = broker.loop.time
        """The loop's clock: seconds."""
        self.dispatchers = broker.mailboxes.dispatchers
        """What operators may do with a session's queue."""
        self.redrive = broker.dead_letters.redrive
        self.refusals = broker.sessions.refusals
        """Of logins."""
        self.limits, self.admin_token = broker.admission.limits, broker.admission.admin
        self.topics = broker.topics.views
        """The topics as they are now."""
        self.topic_table = broker.topics.table
        """What topics are configured to be."""
        self.erase_topic, self.clear_history = broker.topics.endings.erase, self.topic_table.clear
        self.names = broker.addressing.names
        self.channels = broker.addressing.channels
        self.subscriptions = broker.subscriptions
        self.presence = broker.presence
        self.destinations = broker.addressing.destinations
        self.groups = broker.addressing.groups
        self.queues = broker.addressing.shared_queues
        """The queues of subjects and groups."""
        self.membership: Membership | None = None
        """The other nodes, if the server shares its store."""
        self.everywhere: Everywhere | None = None
        """Does at all nodes what is done for operators; None: there is this one."""
        self.dead_letters_counted = CachedResult(lambda: count_by(self.store, kinds=GROUPED), 0.0)
        """Very many dead letters by each kind: as new as it can be for what it costs."""
        self.rates = {kind: CachedResult(partial(self._rates, kind), _KEPT_S) for kind in KINDS}
        """The rates of receivers, groups and topics, by kind."""
        self.turned_away = TurnedAway(self._oldest)
        self.rejections = Rejections(self._follow_settled)
        self.timelines = Timelines(channels_of=self._channels_of)
        self.backlog_trends = BacklogTrends()
        self.past_troubles = PastTroubles(lambda: int(time() * 1000))
        self._taken_elsewhere = CachedResult(self._look_elsewhere, _KEPT_S)
        self.audit = Audit(broker.runtime, self.access)

    def _channels_of(self, name: str, message_id: str) -> tuple[frozenset[str], str]:
        session = self.find(name)
        if session is None or len(session.subscriptions) > _MOST_NOTED:
            return frozenset(), ""
        waiting = session.mailbox.view().find(LogId(int(message_id))) if message_id.isdecimal() else None
        return frozenset(session.subscriptions), "" if waiting is None else waiting.channel

    def _rates(self, kind: str) -> Awaitable[RecentRates]:
        return recent_rates(self.store, kind, int(time() * 1000))

    def forget_groups(self) -> None:
        """Dead letters were moved: what is known of their groups does not hold any more."""
        self.dead_letters_counted.drop()

    def _oldest(self, name: str) -> int | None:
        session = self.find(name)
        return None if session is None else oldest_of(session)

    def _follow_settled(self, is_wanted: bool) -> None:
        followers = self.events.on_settled
        if is_wanted:
            followers.append(self.rejections.settled)
        else:
            followers.remove(self.rejections.settled)

    async def taken_by_others(self) -> Mapping[str, Taken]:
        """How many of the newest messages that a receiver rejects others have taken, by its name; empty where the store does
        not say."""
        if not self.access.has_store:
            return {}
        try:
            return await self._taken_elsewhere.get()
        except StoreError:
            return {}

    async def _look_elsewhere(self) -> Mapping[str, Taken]:
        known = ((name, self.rejections.of(name)) for name in self.rejections.names[-_MOST_LOOKED_UP:])
        return await taken_elsewhere(self.store, {name: each.ids for name, each in known if each is not None})

    @property
    def node(self) -> str:
        """The server's name."""
        return self.settings.node.name

    @property
    def store(self) -> Store:
        """The store. Raises StoreUnavailable if there is none, or if it is known to be away. A store that hangs would be waited
        for, and a browser with so many requests under way makes no others."""
        if not self.access.has_store:
            raise StoreUnavailable("this server has no store, and so no dead letters")
        if (why := self.access.store.why_away) is not None:
            raise StoreUnavailable(why if why.startswith("the store") else f"the store cannot be used: {why}")
        return self.access.store

    def find(self, name: str) -> Session | None:
        """The session of this name, `client/joe/1`."""
        return self.names.find(name)

    def sessions(self) -> ValuesView[Session]:
        """All sessions here, also those without a name."""
        return self.broker.sessions.by_id.values()

    def sessions_of(self, subject: str) -> list[Session]:
        """Those of the subject here."""
        return list(self.names.of_subject(subject))

    def waiting_for(self, subject: str) -> int:
        """How many messages wait for a session of the subject."""
        return self.destinations.waiting(subject)

    def is_blocked(self, subject: str) -> bool:
        """Whether logins of the subject are refused."""
        return subject in self.names.blocked

    def takes(self, session: Session) -> bool:
        """Whether messages go to the session at present: its client is there, and it is not on hold."""
        return self.dispatchers.state(session) is DispatcherState.ALIVE and session.mailbox.view().holdback is None

    async def taken_out(
        self, session: Session, what: str, who: str, work: Awaitable[int], patience_s: float | None = _PATIENCE_S
    ) -> int:
        """Take messages out of the queue of a session, as its timeline then says; how many they were. What is said to be out is
        so in the store: else a crash would bring it back. Raises StoreUncertain as `settled` does."""
        count = await work
        if count:
            self.timelines.add(what, session.name, {"who": who, "messages": count})
            await self.settled(session, patience_s)
        return count

    async def settled(self, session: Session, patience_s: float | None = _PATIENCE_S) -> None:
        """Wait until the store has what has ended at the session, and all its dead letters, of which many are stored in turns.
        Raises StoreUncertain if the store does not answer for so long; None: it waits."""
        durable = session.durable
        if durable is None:
            return
        is_done = False
        while not is_done:
            withheld = durable.withholds  # the commit that takes the last of them may be under way
            try:
                async with asyncio.timeout(patience_s):
                    if not await self.broker.durability.committed():
                        return
            except TimeoutError:
                raise StoreUncertain(
                    "the store has not answered yet: it is done as soon as the store answers"
                ) from None
            is_done = not (withheld or durable.withholds)

    def bounds(self, session: Session) -> tuple[int, int | None, str]:
        """Most messages that may wait for the session, most bytes (None: as many as the messages have), and what happens
        beyond."""
        view = session.mailbox.view()
        most = view.max_entries or self.settings.bayeux.max_queue_messages
        return most, view.max_bytes, view.policy.value

    def clock_ms(self, loop_time: float) -> float:
        """Milliseconds since 1970 of a loop time."""
        return (time() + loop_time - self.now()) * 1000
