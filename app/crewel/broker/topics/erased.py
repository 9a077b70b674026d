"""What sessions see of a topic that is erased: literal subscriptions end, subscribers that asked for it get a notice, and by
force the backlog ends as well. All of it is done in portions: there may be many sessions, and much may wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from crewel.bayeux.channel import Channel
from crewel.broker.ptp.naming import group_of
from crewel.broker.sessions import Session
from crewel.broker.topics.references import channel_of, in_memory
from crewel.broker.turns import Turns
from crewel.delivery.durable import Durable
from crewel.delivery.entry import erased_notice
from crewel.delivery.records import EndReason, LogId, Waiting
from crewel.qos.publish import NORMAL
from crewel.qos.update import ERASED, Origin

if TYPE_CHECKING:
    from crewel.broker.broker import Broker

log = logging.getLogger(__name__)

_SESSIONS_AT_ONCE: Final = 16
"""Sessions that get the notice before the store has answered for them."""
_ENDS_AT_ONCE: Final = 1000
"""Messages of one session that end in one step."""
_DISCARDED_AT_ONCE: Final = 500
"""Messages of a shared queue that end in one step of the store."""
_UNCOMMITTED: Final = 2000
"""Messages that have ended and are not committed yet."""


async def take_leave(broker: Broker, name: str, groups: Iterable[str]) -> None:
    """End the subscriptions to the very name of the topic, and send a notice to the subscribers that asked for it. Wildcard
    subscriptions stay, and receive the next topic of this name. Members of these groups (by their queues) get the notice
    when the backlog of their group is empty: `leave_group`."""
    broker.outbound.fan_outs.finish(name)  # what was published before the end is heard before it
    channel = channel_of(name)
    members = {session for queue in groups for session in broker.groups.members(queue)}
    under_way: list[asyncio.Future[None]] = []
    turns = Turns()
    for session in list(broker.channels.subscribers(channel)):
        tells = session not in members and _wants_notice(broker, session, channel)
        under_way += _part(broker, session, name, ends=_hears_alone(broker, session, name), tells=tells)
        if len(under_way) >= _SESSIONS_AT_ONCE:
            await _answered(name, under_way)
            under_way = []
        await turns.rest()
    await _answered(name, under_way)


async def leave_group(broker: Broker, queue: str, name: str) -> None:
    """The group has no backlog of the topic any more: its members get the notice, and if it is a group on this very name,
    they leave it."""
    of, channel = group_of(queue), channel_of(name)
    ends = of is not None and of[0] == name
    under_way: list[asyncio.Future[None]] = []
    for session in broker.groups.members(queue):
        under_way += _part(broker, session, name, ends=ends, tells=_wants_notice(broker, session, channel))
    await _answered(name, under_way)


def _hears_alone(broker: Broker, session: Session, name: str) -> bool:
    """Whether the session is subscribed to this very name, and not as a member of a group."""
    return name in session.subscriptions and all(pattern != name for pattern, _ in broker.groups.of(session))


def _wants_notice(broker: Broker, session: Session, channel: Channel) -> bool:
    """Whether the session receives the origin of messages, and asked for the notice that the topic was erased."""
    if session.dispatcher is None or not session.dispatcher.rules.tells:
        return False
    hearing = [each for each in channel.patterns if each in session.subscriptions]
    return any(broker.subscribing.wants_notice(session, each) for each in hearing)


def _part(broker: Broker, session: Session, name: str, *, ends: bool, tells: bool) -> list[asyncio.Future[None]]:
    """Part the session from the topic. What has to be waited for, raises StoreError."""
    if not session.is_live or not (ends or tells):
        return []
    if session.durable is not None:
        return [broker.durability.subscriptions.erase(session, session.durable, name, ends=ends, tells=tells)]
    if ends:
        broker.subscribing.leave(session, name)
    if tells:
        waiting = [each.priority for each in in_memory(broker, session) if each.channel == name]
        notice = Waiting(channel=name, priority=min([NORMAL, *waiting]))
        origin = Origin(*broker.ids.stamp(), state=ERASED)
        broker.outbound.enqueue(session, erased_notice(notice, LogId(0), origin))
    return []


async def _answered(name: str, under_way: list[asyncio.Future[None]]) -> None:
    for failure in await asyncio.gather(*under_way, return_exceptions=True):
        if failure is not None:
            log.warning("a subscription to the erased topic %s could not be ended: %s", name, failure)


async def end_messages(broker: Broker, name: str, upto: LogId) -> int:
    """End the messages of the topic that wait for a session, wherever they are; of those in the log, no later ones than this.
    Returns how many. Some are committed before others end."""
    broker.outbound.fan_outs.finish(name)
    turns, total, untold = Turns(), 0, 0
    sessions = {session.durable: session for session in broker.sessions.values() if session.durable is not None}
    for session in list(broker.sessions.values()):
        total += _end_transients(broker, session, name)
        await turns.rest()
    for durable in list(broker.access.node.sessions.values()):
        while places := _places(durable, name, upto):
            _end_stored(broker, durable, sessions.get(durable), places)
            total += len(places)
            untold += len(places)
            if untold >= _UNCOMMITTED:
                await broker.durability.committed()
                untold = 0
            await turns.rest()
        await turns.rest()
    return total


def _end_transients(broker: Broker, session: Session, name: str) -> int:
    waiting = [each for each in in_memory(broker, session) if each.channel == name and not each.is_notice]
    if waiting:
        broker.dispatchers.unsettled.end_many(session, (), waiting, EndReason.ERASED)
        session.note_retained()
    return len(waiting)


def _end_stored(broker: Broker, durable: Durable, session: Session | None, places: set[LogId]) -> None:
    if session is not None and session.durable is durable:
        broker.dispatchers.unsettled.end_many(session, places, (), EndReason.ERASED)
        session.note_retained()
    else:
        durable.end_many(places, EndReason.ERASED)
        broker.access.node.touch(durable)


def _places(durable: Durable, name: str, upto: LogId) -> set[LogId]:
    """The places of messages of this topic that are open for a session, as many as end in one step."""
    found: set[LogId] = set()
    for waiting in (durable.open, durable.inbox):
        for place, each in waiting.items():
            if each.channel == name and place <= upto:
                found.add(place)
                if len(found) == _ENDS_AT_ONCE:
                    return found
    return found


async def end_shared(broker: Broker, name: str, upto: LogId) -> int:
    """End the messages of the topic up to this one that wait for a subject or a group; returns how many. Raises StoreError."""
    count = 0
    for queue in broker.shared.names():
        start = 0
        while entries := await broker.shared.peek(queue, _DISCARDED_AT_ONCE, start):
            places = [entry.position for entry in entries if entry.channel == name and entry.position <= upto]
            ended = await broker.shared.discard(queue, places, EndReason.ERASED) if places else 0
            count += ended
            start += len(entries) - ended
    return count
