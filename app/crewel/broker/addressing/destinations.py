"""Messages to receivers by name: to a session, or to a subject and all its sessions, or one of them.

All destinations of a publish are tried, and the message has one id for all. A transient one goes straight into the queues of
those that are there. What is persistent, or may have to wait or go to another session, is stored in one step. It is in the
inboxes of sessions, and in the queues of subjects without a session.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

from crewel.bayeux.channel import Channel
from crewel.bayeux.codec import encode
from crewel.bayeux.message import Fields
from crewel.broker.addressing.channels import Channels
from crewel.broker.addressing.routes import Route, resolve_destination, without_store
from crewel.broker.addressing.session_names import Names
from crewel.broker.addressing.shared_queues import SharedQueues
from crewel.broker.handler_steps import Promise, Steps, result_of
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session, stored_of, unstored_of
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry
from crewel.delivery.records import Logged, LogId, NoLetter, PendingMessage, SessionName
from crewel.errors import BayeuxCode, Refused, StoreError, StoreUnavailable, StoreUncertain
from crewel.qos.names import one_queue, subject_of, subject_queue
from crewel.qos.publish import PublishQos
from crewel.qos.update import Origin
from crewel.storage import shared_queue_store
from crewel.storage.receivers import Receiver
from crewel.storage.script_step import REPEATABLE_S, Step
from crewel.storage.shared_queue_store import Addressed, Delivery, SendOutcome, Sent

_FULL: Final = "resource.overflow.queue.entries"
_GONE: Final = "user.ptp.unknownDestinationSession"
_CUT_OFF: Final = "resource.unavailable"
_UNREACHED: Final = "user.ptp.unknownDestination"


class DestinationState(NamedTuple):
    """What happened to a message for one of its destinations."""

    to: str
    """The name, without a node."""
    code: str = ""
    """Why it was not delivered; empty: it was delivered, or waits."""
    message: str = ""


class Sending(NamedTuple):
    """What happened to a message for all of them."""

    id: str
    states: list[DestinationState]


@dataclass(slots=True)
class _Outgoing:
    """A message on its way to the store, and who gets it when it is there."""

    channel: Channel
    body: bytes
    publisher: Session | None
    sender: str
    qos: PublishQos
    routes: list[Route]
    deliveries: list[Delivery] = field(default_factory=list)
    durables: dict[Any, DurableSession] = field(default_factory=dict)
    """The receivers among them by name: another one that is called so later has nothing of it."""
    key: str = ""
    """Scope and key of an idempotent publish; empty if it has none."""
    accepted: int = 0
    """Microseconds since 1970, by the clock that lives are counted by: the store's, which gives the id, may differ."""
    promise: Promise[Sending] = field(default_factory=Promise)

    @property
    def receivers(self) -> dict[Session, None]:
        """The sessions that get it although the store does not have them."""
        return dict.fromkeys(each for one in self.routes for each in unstored_of(one.sessions))


@dataclass(eq=False)
class Destinations:
    """Sends messages to those to whom they are addressed."""

    _runtime: Runtime
    _channels: Channels
    _mailboxes: Mailboxes
    _names: Names
    _shared_queues: SharedQueues

    def __post_init__(self) -> None:
        self._access, self._ids, self._cluster = self._runtime.access, self._runtime.ids, self._runtime.cluster
        self._outbound, self._dispatchers = self._mailboxes.outbound, self._mailboxes.dispatchers
        self._expiry = self._outbound.expiry
        self._sends = count(1)

    def send(
        self, publisher: Session | None, channel: Channel, fields: Fields, qos: PublishQos, key: str
    ) -> Steps[Sending]:
        """Send the message to all destinations that `qos` names. `key` is the scope and key of an idempotent publish: a
        repeat is answered as the first one was, and delivers nothing. Raises StoreError if it had to be stored and was not,
        and Refused if an extension takes the message out."""
        if not self._outbound.pipe.send(None, fields):
            raise Refused(BayeuxCode.MESSAGE_DELETED)
        names, has_store = self._names, self._access.has_store
        next_of = self._shared_queues.next_of
        remote: list[list[Receiver]] = [[] for _ in qos.destinations]
        if self._cluster.has_sessions:
            # A name is one session's, so what is found here is nowhere else.
            unknown = [each.to for each in qos.destinations if names.find(each.to.relative) is None]
            if unknown:
                there = yield from result_of(self._cluster.find(unknown))
                found = dict(zip(unknown, there, strict=True))
                remote = [found.get(each.to, []) for each in qos.destinations]
        routes = [
            resolve_destination(each, names, next_of, has_store=has_store, remote=there)
            for each, there in zip(qos.destinations, remote, strict=True)
        ]
        sender = "" if publisher is None else publisher.name
        is_stored = qos.persistent or self._must_wait(routes, qos)
        if is_stored and not has_store:
            if qos.persistent:
                raise StoreUnavailable("this server has no store")
            is_stored, routes = False, [without_store(each) for each in routes]
        outgoing = _Outgoing(channel, encode(fields), publisher, sender, qos, routes)
        sending = (yield from result_of(self._store(outgoing, key))) if is_stored else self._send_now(outgoing, key)
        if not (channel.is_broadcast and qos.subscribable):
            self._runtime.metrics.publishes += 1  # else its subscribers get it too, and it is counted there
        return sending

    @staticmethod
    def _must_wait(routes: Iterable[Route], qos: PublishQos) -> bool:
        """Whether the store has to have the message: it waits for a session, or would go back to wait."""
        wanted = zip(routes, qos.destinations, strict=True)
        return any(each.queue or (each.source and destination.force_queuing) for each, destination in wanted)

    # Those that are there

    def _send_now(self, outgoing: _Outgoing, key: str) -> Sending:
        ids = self._ids
        qos, routes = outgoing.qos, outgoing.routes
        keys = {each.to: f"{key} {each.to}" for each in routes} if key else {}
        firsts = {to: first for to, scoped in keys.items() if (first := ids.first_of(scoped)) is not None}
        message_id, received = ids.stamp()
        message_id = next(iter(firsts.values()), message_id)
        receivers = dict.fromkeys(each for one in routes if one.to not in firsts for each in one.sessions)
        remote = [each for one in routes if one.to not in firsts for each in one.remote]
        cut_off: set[str] = set()
        if receivers or remote:
            origin = Origin(message_id, received, outgoing.sender, qos.as_stored_addressed())
            entry = self._entry(outgoing, LogId(0), self._expiry.now(), origin)
            self._outbound.fan_out(entry, receivers, None)
            cut_off = self._deliver_elsewhere(outgoing.channel, entry, remote)
        states = []
        for one in routes:
            state = DestinationState(one.to) if one.to in firsts else _state(one, cut_off)
            if key and not state.code and one.to not in firsts:
                ids.remember(keys[one.to], message_id)
            states.append(state)
        return Sending(message_id, states)

    def _deliver_elsewhere(self, channel: Channel, entry: Entry, receivers: Iterable[Receiver]) -> set[str]:
        """Send the message to sessions of other nodes, if there are any. Returns the tokens of those that cannot be reached."""
        names: defaultdict[str, list[str]] = defaultdict(list)
        for each in dict.fromkeys(receivers):
            names[each.owner].append(each.name)
        return self._cluster.deliver(channel, entry, names) if names else set()

    def from_another_node(
        self, channel: Channel, wire: bytes, names: Iterable[str], origin: Origin, about: PendingMessage, to: str
    ) -> None:
        """A message for these sessions of this node, which another one has sent. `wire` is its JSON. A session that has ended
        meanwhile leaves nothing that a dead letter could be made for."""
        found = []
        for name in names:
            session = self._names.find(name)
            if session is None:
                self._runtime.metrics.left_no_letter(NoLetter.ENDED)
            elif session.takes_ptp:
                found.append(session)
        entry = Entry.logged(
            channel.name,
            LogId(0),
            wire,
            lazy=self._channels.is_lazy(channel),
            origin=origin,
            priority=about.priority,
            expires=about.expires,
            to=to,
        )
        self._outbound.fan_out(entry, found, None)

    def _entry(self, outgoing: _Outgoing, place: LogId, accepted: int, origin: Origin | None) -> Entry:
        """The message as its receivers get it; `accepted` is microseconds since 1970."""
        return Entry.logged(
            outgoing.channel.name,
            place,
            outgoing.body,
            lazy=self._channels.is_lazy(outgoing.channel),
            origin=origin,
            priority=outgoing.qos.priority,
            expires=outgoing.qos.expires(accepted),
            to=outgoing.routes[0].to,
        )

    # The store

    def _store(self, outgoing: _Outgoing, key: str) -> Promise[Sending]:
        access = self._access
        first: Sending | None = self._ids.addressed.first_of(key) if key else None
        if first is not None:  # the store forgets its keys when its clock is set ahead
            outgoing.promise.resolve(first)
            return outgoing.promise
        outgoing.key, outgoing.accepted = key, self._expiry.now()
        outgoing.deliveries = self._deliveries(outgoing.routes)
        outgoing.durables = {each.name: each for one in outgoing.routes for each in stored_of(one.sessions)}
        is_scarce = access.require_sessions() if outgoing.durables else access.require_writable()
        message = Addressed(
            outgoing.channel.name,
            outgoing.body,
            outgoing.sender,
            outgoing.qos.as_stored_addressed(),
            outgoing.qos.priority,
            outgoing.qos.expires(outgoing.accepted),
            outgoing.qos.key,
        )
        size = len(outgoing.body) * len(outgoing.deliveries)
        if is_scarce:
            message = message._replace(account=self._runtime.stored_shares.admit(outgoing.publisher, size))
        # Each has a key, so that it can be asked again what happened to it.
        step = shared_queue_store.send(
            access.keys,
            access.token,
            message,
            outgoing.deliveries,
            access.facts_max,
            key or f"ptp {access.token} {next(self._sends)}",
            [each.to for each in outgoing.routes if _has_unstored(each)],
        )

        access.writing.submit(step, partial(self._answered, outgoing, step), size=size)
        return outgoing.promise

    def _deliveries(self, routes: Iterable[Route]) -> list[Delivery]:
        """What the store has to put where; whom two destinations mean, gets the message once."""
        most = self._runtime.settings.ptp.subject_queue_max_entries
        wanted: dict[str, Delivery] = {}
        for each in routes:
            if each.queue:
                wanted.setdefault(each.queue, Delivery(each.to, "", each.queue, "", most, 0))
            for durable in stored_of(each.sessions):
                wanted.setdefault(durable.name, Delivery(each.to, durable.name, "", each.source, 0, 0))
            for there in each.remote:
                if there.is_stored:
                    wanted.setdefault(there.name, Delivery(each.to, there.name, "", each.source, 0, 0, is_elsewhere=1))
        return list(wanted.values())

    def _answered(self, outgoing: _Outgoing, step: Step[Sent], answer: Sent | StoreError) -> None:
        access = self._access
        if isinstance(answer, StoreError):
            outgoing.promise.resolve(answer)
            if isinstance(answer, StoreUncertain):
                # The publisher need not wait for it, but what is there must be known. Later than that it would be a second
                # message, and the first one is found when all sessions are read again.
                def known(late: Sent | StoreError) -> None:
                    if isinstance(late, Sent):
                        if not late.is_repeated:  # it is done just now, and who is called so now has it
                            outgoing.durables = dict(access.node.sessions)
                        self._stored(outgoing, late)
                        self._remembered(outgoing, late)

                access.writing.submit(step, known, retries=True, for_s=REPEATABLE_S, in_doubt=True)
            access.suspect(answer)
        elif answer.is_repeated:
            outgoing.promise.resolve(self._remembered(outgoing, answer))
        else:
            self._stored(outgoing, answer)
            outgoing.promise.resolve(self._remembered(outgoing, answer))

    def _remembered(self, outgoing: _Outgoing, sent: Sent) -> Sending:
        told = self._outcome(outgoing, sent)
        if outgoing.key and not all(each.code for each in told.states):
            self._ids.addressed.remember(outgoing.key, told)
        return told

    def _stored(self, outgoing: _Outgoing, sent: Sent) -> None:
        """The store has put the message where it belongs. Its receivers get it when they have had what came before it."""
        access = self._access
        access.answered.note(sent.prev, [sent.id])
        if sent.prev == access.node.cursor:
            access.node.skip(sent.id)
            self._take(outgoing, sent)
        else:
            access.in_place(sent.id, partial(self._take, outgoing, sent))

    def _take(self, outgoing: _Outgoing, sent: Sent) -> None:
        """All that the log has before the message was taken: queue it for the receivers that are there."""
        access = self._access
        there = [each for one in outgoing.routes for each in one.remote if not each.is_stored]
        has_origin = bool(self._dispatchers.updated or there)
        origin = Origin.stored(sent.id, outgoing.sender, outgoing.qos.as_stored_addressed()) if has_origin else None
        entry = self._entry(outgoing, sent.id, outgoing.accepted, origin)
        for delivery, outcome in zip(outgoing.deliveries, sent.outcomes, strict=False):
            if outcome is not SendOutcome.OK:
                continue
            if delivery.queue:
                self._shared_queues.filled_for_all(delivery.queue)
            else:
                known = access.node.sessions if delivery.is_elsewhere else outgoing.durables
                if (name := SessionName(delivery.receiver)) in known:
                    self._arrive(delivery, known[name], entry)
        receivers = [session for session in outgoing.receivers if session.is_live]
        if receivers:
            self._outbound.fan_out(entry, receivers, None)
        if there:
            self._deliver_elsewhere(outgoing.channel, entry, there)

    def take_addressed(self, logged: Logged, sessions: Mapping[SessionName, DurableSession]) -> None:
        """The log has a message that another node, or this one, has put into the inboxes of sessions of other nodes; it may be
        known to these."""
        for name, waiting in shared_queue_store.addressed(logged).items():
            if name in sessions and sessions[name].may_lack(logged.id):
                entry = Entry.read_back(logged, waiting.expires)
                self._arrive(Delivery(logged.to, name, "", waiting.source), sessions[name], entry)

    def _arrive(self, delivery: Delivery, durable: DurableSession, entry: Entry) -> None:
        if durable.connected is not None:
            waiting = PendingMessage(0, len(entry.wire), entry.channel, entry.priority, entry.expires, delivery.source)
            self._outbound.loader.on_inbox_message(durable, entry.position, waiting, entry)
        elif delivery.source:  # it is ending, and its end finds the message
            self._shared_queues.expect(durable, delivery.source)

    @staticmethod
    def _outcome(outgoing: _Outgoing, sent: Sent) -> Sending:
        outcomes = {
            delivery.queue or delivery.receiver: outcome
            for delivery, outcome in zip(outgoing.deliveries, sent.outcomes, strict=False)
        }
        state = partial(_repeated_state, sent) if sent.is_repeated else _stored_state
        return Sending(str(sent.id), [state(each, outcomes) for each in outgoing.routes])

    # What operators see

    def waiting(self, subject: str) -> int:
        """How many messages wait in the queues of the subject."""
        return sum(map(self._shared_queues.waiting, _queues(subject)))

    def awaited(self) -> set[str]:
        """The subjects that something waits for."""
        return {*map(subject_of, self._shared_queues.names())} - {""}

    async def peek(self, subject: str, count: int) -> list[Entry]:
        """The next messages that wait for the subject, at most so many. Raises StoreError."""
        entries: list[Entry] = []
        for queue in _queues(subject):
            entries += await self._shared_queues.peek(queue, count - len(entries))
        return entries

    async def channels(self, subject: str) -> AsyncIterator[str]:
        """The channels of all messages that wait for the subject; one may come more than once. Raises StoreError."""
        for queue in _queues(subject):
            async for channel in self._shared_queues.channels(queue):
                yield channel

    async def clear(self, subject: str) -> int:
        """Drop the messages that wait for the subject; returns how many. Raises StoreError."""
        shared, count = self._shared_queues, 0
        for queue in _queues(subject):
            count += await shared.drop(queue)
        return count


def _queues(subject: str) -> tuple[str, str]:
    return subject_queue(subject), one_queue(subject)


def _state(one: Route, cut_off: Collection[str] = ()) -> DestinationState:
    """What happened where nothing is stored; `cut_off` are the nodes that could not be reached."""
    if one.remote and not one.sessions and all(each.owner in cut_off for each in one.remote):
        return DestinationState(one.to, _CUT_OFF, f"the node of {one.to} cannot be reached at the moment")
    return DestinationState(one.to, one.code, one.message)


def _stored_state(one: Route, outcomes: dict[Any, SendOutcome]) -> DestinationState:
    """What happened to a message for one destination, from what the store says of each place where it was to lie."""
    if one.code:
        return _state(one)
    if outcomes.get(one.queue) is SendOutcome.FULL:
        return DestinationState(one.to, _FULL, f"too many messages wait for {one.to}")
    if SendOutcome.GONE not in outcomes.values():  # as of most
        return DestinationState(one.to)
    stored = [outcomes.get(name) for name in _stored_names(one)]
    if stored and stored.count(SendOutcome.GONE) == len(one.sessions) + len(one.remote):
        return DestinationState(one.to, _GONE, f"{one.to} has gone just now")
    return DestinationState(one.to)


def _repeated_state(sent: Sent, one: Route, outcomes: dict[Any, SendOutcome]) -> DestinationState:
    """What happened to a message that is sent once more, when it was sent first. The destination may have meant others then."""
    places = (one.queue, *_stored_names(one))
    if one.to in sent.reached or any(outcomes.get(place) is SendOutcome.OK for place in places):
        return DestinationState(one.to)
    state = _stored_state(one, outcomes)
    if state.code:
        return state
    return DestinationState(one.to, _UNREACHED, f"the first publish with this key did not reach {one.to}")


def _stored_names(one: Route) -> list[SessionName]:
    """The sessions that get it from the store."""
    here = [each.name for each in stored_of(one.sessions)]
    return [*here, *(each.name for each in one.remote if each.is_stored)]


def _has_unstored(one: Route) -> bool:
    """Whether a session gets it that the store does not have."""
    return bool(unstored_of(one.sessions) or [each for each in one.remote if not each.is_stored])
