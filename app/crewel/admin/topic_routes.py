"""The REST resources of topics and of their histories."""

from __future__ import annotations

from typing import Any, Final

from crewel.admin.routes import Ask, NotThere, Route, flag_text, number_text, text_field
from crewel.admin.topic_facts import past, topic_json
from crewel.bayeux.channel import Channel, parse
from crewel.broker.topics.topic import TopicView
from crewel.qos.fields import one_of
from crewel.topics.lifecycle import State

_PAGE: Final = 100
_MOST: Final = 1000
_ONE: Final = "/topics/{channel}"
_HISTORY: Final = "/history/{channel}"
_UNKNOWN: Final = {404: "There is no such topic: nothing was ever published to the channel, or it has died."}
_TOPIC: Final = (
    "The topic: channel, state, history, readonly, destroyDelay, epoch, newest, queued, subscribers, groups and more."
)
_STATES: Final = [state.value for state in State if state is not State.DEAD]


def _pattern(value: object) -> str:
    channel = parse(value) if isinstance(value, str) else None
    if channel is None:
        raise ValueError("a channel or a pattern such as /chat/**")
    return channel.name


async def _list(ask: Ask) -> dict[str, Any]:
    """A page of the topics in the order of their names. Answers `next`, which is the cursor, empty on the last page."""
    broker, fields = ask.admin.broker, ask.fields
    count = fields.get("count", _PAGE)
    found = [view for view in await broker.topics.views() if _is_wanted(view, fields)]
    page = found[:count]
    return {
        "topics": [topic_json(broker, view) for view in page],
        "next": page[-1].name if len(found) > count else "",
    }


def _is_wanted(view: TopicView, fields: dict[str, Any]) -> bool:
    pattern, state, after = (fields.get(name) for name in ("pattern", "state", "after"))
    channel = parse(view.name)
    return (
        (after is None or view.name > after)
        and (state is None or view.state.value == state)
        and (pattern is None or (channel is not None and pattern in channel.patterns))
    )


def _channel(ask: Ask) -> Channel:
    """The channel that the path names."""
    name = "/" + ask.path["channel"]
    channel = parse(name)
    if channel is None or channel.is_wildcard:
        raise NotThere(f"there is no topic {name}: it is not the name of a channel")
    return channel


async def _found(ask: Ask) -> TopicView:
    """The topic that the path names."""
    channel = _channel(ask)
    view = await ask.admin.broker.topics.view(channel.name)
    if view is None:
        raise NotThere(f"there is no topic {channel.name}")
    return view


async def _show(ask: Ask) -> dict[str, Any]:
    return topic_json(ask.admin.broker, await _found(ask))


async def _erase(ask: Ask) -> dict[str, Any]:
    channel, topics = _channel(ask), ask.admin.broker.topics
    force = ask.fields.get("force", False)
    ask.admin.note(ask.who, "erase topic", channel=channel.name, force=force)
    if not await topics.erase(channel.name, force=force):
        raise NotThere(f"there is no topic {channel.name}")
    return {"channel": channel.name, "state": (await topics.state(channel.name)).value}


async def _history(ask: Ask) -> dict[str, Any]:
    view = await _found(ask)
    newest_first = ask.fields.get("newestFirst", True)
    messages = await past(ask.admin.broker, view.name, ask.fields.get("count", _PAGE), newest_first=newest_first)
    return {"channel": view.name, "epoch": view.epoch or None, "entries": view.history, "messages": messages}


async def _clear(ask: Ask) -> dict[str, Any]:
    view = await _found(ask)
    ask.admin.note(ask.who, "clear history", channel=view.name)
    return {"channel": view.name, "cleared": await ask.admin.broker.topics.clear(view.name)}


TOPIC_ROUTES: Final = (
    Route(
        "GET",
        "/topics",
        "The topics, in the order of their channels, a page at a time.",
        _list,
        "`topics`, a list; `next`, the cursor of the next page, empty if this is the last.",
        query=(
            text_field("pattern", "Only those of this channel or pattern.", _pattern),
            text_field("state", f"Only those in this state: {', '.join(_STATES)}.", one_of(*_STATES)),
            text_field("after", "The `next` of the page before."),
            number_text("count", "Most topics in the page.", 1, _MOST, _PAGE),
        ),
    ),
    Route("GET", _ONE, "One topic.", _show, _TOPIC, refusals=_UNKNOWN),
    Route(
        "DELETE",
        _ONE,
        "Erase a topic: its history and settings go, its subscribers are told, and subscriptions to its name end. What waits"
        " in queues is delivered.",
        _erase,
        "`channel`, and the `state` that it has now: SOFTERASED while something waits, else DEAD.",
        query=(flag_text("force", "true: what waits in queues is not delivered."),),
        refusals=_UNKNOWN,
    ),
    Route(
        "GET",
        _HISTORY,
        "Messages of a topic's history; they stay.",
        _history,
        "`channel`, `epoch`, `entries`: how many there are, and `messages` as a subscriber would get them.",
        query=(
            number_text("count", "Most messages, of the newest.", 1, _MOST, _PAGE),
            flag_text("newestFirst", "false: the oldest of them first."),
        ),
        refusals=_UNKNOWN,
    ),
    Route(
        "DELETE",
        _HISTORY,
        "Empty a topic's history. Who is subscribed hears nothing of it.",
        _clear,
        "`channel`, and `cleared`: how many messages it were.",
        refusals=_UNKNOWN,
    ),
)
