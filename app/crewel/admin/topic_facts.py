"""What operators are told of a topic, and do to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

from crewel.admin.calls import Call
from crewel.admin.node_facts import hearers
from crewel.bayeux.channel import Channel, parse
from crewel.broker.broker import Broker
from crewel.broker.sessions import Session
from crewel.broker.topics.topic import TopicView
from crewel.errors import IllegalArgument
from crewel.qos.names import parse_name
from crewel.topics.lifecycle import State


def topic_json(broker: Broker, view: TopicView) -> dict[str, Any]:
    """The topic as REST tells it. Times are milliseconds."""
    channel = _channel(view.name)
    settings = view.settings
    return {
        "channel": view.name,
        "state": view.state.value,
        "history": {"entries": view.history, "maxEntries": settings.history_max},
        "readonly": settings.is_readonly,
        "destroyDelay": settings.destroy_delay_ms,
        "epoch": view.epoch or None,
        "newest": str(view.newest) if view.newest else None,
        "queued": view.queued,
        "subscribers": len(broker.channels.subscribers(channel)),
        "exactSubscribers": view.subscribers,
        "groups": [group._asdict() for group in broker.groups.states() if group.pattern in channel.patterns],
        "diesIn": view.dies_in_ms,
    }


def of_view(read: Callable[[TopicView], Any], if_dead: Any) -> Callable[[Call], Awaitable[Any]]:
    """A property that is read off the topic as it is now; `if_dead` if nothing was ever published to it, or it has died."""

    async def answer(call: Call) -> Any:
        view = await call.admin.broker.topics.view(call.name)
        return if_dead if view is None else read(view)

    return answer


state = of_view(lambda view: view.state.value, State.DEAD.value)
"""Where the topic is in its life."""


def is_in(wanted: State) -> Callable[[Call], Awaitable[Any]]:
    """Whether the topic is in this state."""
    return of_view(lambda view: view.state is wanted, wanted is State.DEAD)


def subscribers(call: Call) -> list[str]:
    """The names of the sessions that hear it, in order."""
    return sorted(session.name for session in hearers(call) if session.name)


def groups(call: Call) -> list[str]:
    """The groups that hear it, in order."""
    patterns = _channel(call.name).patterns
    return sorted({group.name for group in call.admin.broker.groups.states() if group.pattern in patterns})


async def past(broker: Broker, name: str, count: int | None, *, newest_first: bool) -> list[dict[str, Any]]:
    """The newest so many messages of the history, or all, as a subscriber would get them. Raises StoreError."""
    return await broker.subscribing.past(_channel(name), count, newest_first)


async def peek(call: Call) -> list[dict[str, Any]]:
    """The newest so many messages of the history, the newest first. Raises StoreError."""
    return await past(call.admin.broker, call.name, call.value, newest_first=True)


async def clear(call: Call) -> int:
    """Empty the history; how many messages it were. Raises StoreError."""
    return await call.admin.broker.topics.clear(call.name)


async def erase(call: Call) -> bool:
    """End the topic: at once, or when what waits in queues is delivered. Whether there was one. Raises StoreError."""
    return await call.admin.broker.topics.erase(call.name, force=bool(call.value))


async def set_destroy_delay(call: Call) -> None:
    """Say how long the topic lives when nothing refers to it, in milliseconds. Raises StoreError."""
    channel, topics = _channel(call.name), call.admin.broker.topics
    asked = replace(topics.administered(channel), destroy_delay_ms=call.value, administrative=True)
    stored = topics.administer(channel, asked)
    if stored is not None:
        await stored


async def unsubscribe_all(call: Call) -> int:
    """End all subscriptions to its very name; how many it were. Raises StoreError."""
    return await _unsubscribe(call, list(call.admin.broker.sessions.values()))


async def unsubscribe_one(call: Call) -> int:
    """End the one of the session of this name: 1, or 0 if it has none. Raises StoreError, IllegalArgument."""
    name = parse_name(call.value)
    session = call.admin.find(name.relative) if name is not None else None
    if session is None:
        raise IllegalArgument("command", f"is about the session {call.value}, which is not here")
    return await _unsubscribe(call, [session])


async def _unsubscribe(call: Call, sessions: Iterable[Session]) -> int:
    broker, ended = call.admin.broker, 0
    for session in [each for each in sessions if call.name in each.subscriptions]:
        if session.durable is None or broker.durability is None:
            broker.subscribing.leave(session, call.name)
        else:
            await broker.durability.membership.unsubscribe(session, session.durable, [call.name])
        ended += 1
    return ended


def _channel(name: str) -> Channel:
    channel = parse(name)
    assert channel is not None
    return channel
