"""Topics and their histories, as operators see and treat them: their commands and their REST resources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from crewel.admin.administration import Administration
from crewel.admin.call import Call
from crewel.admin.command import COUNT, Access, Argument, Command, operation_commands, union
from crewel.admin.example import Example
from crewel.admin.merges import Pages, Row, merged
from crewel.admin.operation import About, Level, Operation
from crewel.admin.request_fields import PAGE, choice_field, count_text, flag_text, page_fields, pattern, text_field
from crewel.admin.route import Ask, NotThere, Route, operation_routes
from crewel.admin.scope_coverage import covers_channel, covers_session
from crewel.bayeux.channel import SYSTEM, Channel, parse
from crewel.broker.session import Session
from crewel.broker.topic_view import GroupState, TopicView, joined_groups
from crewel.broker.topics.references import channel_of
from crewel.errors import IllegalArgument
from crewel.event_loop import in_turns, sorted_in_turns
from crewel.qos.names import parse_name
from crewel.security.grants import Role
from crewel.topics import WORDS, State, joined, word_of


def _view(ask: Ask, view: TopicView) -> dict[str, Any]:
    """The topic as REST tells it, with the groups that the operator sees. Times are milliseconds."""
    settings = view.settings
    return {
        "channel": view.name,
        "state": view.state.value,
        "condition": _word_of(view),
        "history": {"entries": view.history, "maxEntries": settings.history_max},
        "readonly": settings.is_readonly,
        "destroyDelay": settings.destroy_delay_ms,
        "epoch": view.epoch or None,
        "newest": str(view.newest) if view.newest else None,
        "queued": view.queued,
        "subscribers": view.receivers,
        "exactSubscribers": view.subscribers,
        "groups": [group._asdict() for group in view.groups if ask.covers(group.pattern)],
        "diesIn": view.dies_in_ms,
        **({} if view.unreached is None else {"unreached": view.unreached, "failed": view.failed}),
    }


def _word_of(view: TopicView) -> str:
    return word_of(view.state, is_heard=bool(view.receivers or view.groups))


async def _past(admin: Administration, name: str, count: int | None, *, newest_first: bool) -> list[dict[str, Any]]:
    """The newest so many messages of the history, or all, as a subscriber would get them. Raises StoreError."""
    return admin.messages(await admin.subscriptions.histories.shown(channel_of(name), count, newest_first))


# Commands


def _of_view(read: Callable[[TopicView], Any], if_dead: Any) -> Callable[[Call], Awaitable[Any]]:
    """A property that is read off the topic as it is now; `if_dead` if nothing was ever published to it, or it has ended."""

    async def answer(call: Call) -> Any:
        view = await call.admin.topics.of(call.name)
        return if_dead if view is None else read(view)

    return answer


def _is_in(wanted: State) -> Callable[[Call], Awaitable[Any]]:
    """Whether the topic is in this state."""
    return _of_view(lambda view: view.state is wanted, wanted is State.DEAD)


def _subscribers(call: Call) -> list[Session]:
    """The sessions that receive from this channel, by its name or by a pattern; of a pattern, those subscribed to just that."""
    channel = channel_of(call.name)
    if channel.is_wildcard:
        return [session for session in call.admin.sessions() if channel.name in session.subscriptions]
    return list(call.admin.channels.subscribers(channel))


def _groups(call: Call) -> list[str]:
    patterns, scope = channel_of(call.name).patterns, call.scope
    groups = [group for group in call.admin.groups.states() if group.pattern in patterns]
    return sorted({group.name for group in groups if covers_channel(scope, Role.VIEW, group.pattern)})


async def _set_destroy_delay(call: Call) -> None:
    """Say how long the topic lives when nothing refers to it, in milliseconds. Raises StoreError."""
    channel, topics = channel_of(call.name), call.admin.topic_table
    asked = replace(topics.administered(channel), destroy_delay_ms=call.value, administrative=True)
    stored = topics.administer(channel, asked)
    if stored is not None:
        await stored


async def _unsubscribe_all(call: Call) -> int:
    """End all subscriptions to its very name; how many it were. Raises StoreError."""
    return await _unsubscribe(call, list(call.admin.sessions()))


async def _unsubscribe_one(call: Call) -> int:
    """End the one of the session of this name: 1, or 0 if it has none. Raises StoreError, IllegalArgument."""
    name = parse_name(call.value)
    session = call.admin.find(name.relative) if name is not None else None
    is_seen = session is not None and (
        call.name in session.subscriptions or covers_session(call.scope, Role.VIEW, session)
    )
    if session is None or not is_seen:
        raise IllegalArgument("command", f"is about the session {call.value}, which is not here")
    return await _unsubscribe(call, [session])


async def _unsubscribe(call: Call, sessions: Iterable[Session]) -> int:
    ended = 0
    async for session in in_turns(each for each in sessions if call.name in each.subscriptions):
        waiting = call.admin.subscriptions.of(session).unsubscribe([call.name])
        if waiting is not None:
            await waiting
        ended += 1
    return ended


def _delay(text: str) -> int:
    if text != "-1" and not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise ValueError(text)
    return int(text)


_read = partial(Command, Level.TOPIC, Access.READ)
_write = partial(Command, Level.TOPIC, Access.WRITE)
_operate = partial(Command, Level.TOPIC, Access.OPERATE)

TOPIC_COMMANDS: Final = (
    _read(
        "stateStr",
        f"{', '.join(State.__members__)}.",
        _of_view(lambda view: view.state.value, State.DEAD.value),
    ),
    *(
        _read(name, f"Whether it is {state.value}.", _is_in(state))
        for name, state in (
            ("isUnconfigured", State.UNCONFIGURED),
            ("isAlive", State.ALIVE),
            ("isUnreferenced", State.UNREFERENCED),
            ("isSoftErased", State.SOFTERASED),
            ("isDead", State.DEAD),
        )
    ),
    _read(
        "numSubscribers",
        "Sessions subscribed to it, by its name or a pattern.",
        lambda c: len(_subscribers(c)),
        join=sum,
    ),
    _read(
        "subscribers",
        "Names of these sessions, except those without a name.",
        lambda c: sorted_in_turns(session.name for session in _subscribers(c) if session.name),
        join=union,
    ),
    _read("groups", "Its consumer groups.", _groups, join=union),
    _read("numOfHistoryEntries", "Messages in its history.", _of_view(lambda view: view.history, 0)),
    _read(
        "historyMaxEntries",
        "Maximum number of messages in its history; 0: no history.",
        _of_view(lambda view: view.settings.history_max, 0),
    ),
    _read(
        "peekHistoryMessages",
        "The newest messages of the history, the newest first. The history keeps them.",
        lambda c: _past(c.admin, c.name, c.value, newest_first=True),
        COUNT._replace(default=1),
    ),
    _read(
        "numOfQueuedEntries",
        "Its messages in queues, once for each receiver.",
        _of_view(lambda view: view.queued, 0),
    ),
    _read(
        "readonly",
        "Whether it accepts only one message.",
        _of_view(lambda view: view.settings.is_readonly, False),
    ),
    _write(
        "destroyDelay",
        "How long it lives when nothing refers to it, in milliseconds; -1: no limit.",
        _of_view(lambda view: view.settings.destroy_delay_ms, None),
        Argument("milliseconds, or -1", _delay),
        _set_destroy_delay,
    ),
    _operate(
        "unSubscribeBySessionName",
        "Ends a session's subscription to exactly this channel, without a notice to its client; returns 1 or 0.",
        _unsubscribe_one,
        Argument("the name of a session: client/joe/1", str),
        join=sum,
    ),
    _operate(
        "unSubscribeAll",
        "Ends all subscriptions to exactly this channel; returns the number.",
        _unsubscribe_all,
        join=sum,
    ),
    *operation_commands(Level.TOPIC),
)


# Resources

_HISTORY: Final = "/history/{channel}"
_UNKNOWN: Final = {404: "There is no such topic: the channel has had no publish, or the topic has ended."}
_VIEW: Final = (
    "The topic: channel, state, condition (in plain words), history, readonly, destroyDelay, epoch, newest, queued,"
    " subscribers, groups and more. With `cluster.enabled` also `unreached`: how many nodes did not answer, `failed` of them"
    " because of an internal error."
)
_STATES: Final = [state.value for state in State if state is not State.DEAD]


def _as_one(views: list[Row]) -> Row:
    """What several nodes say of one topic."""
    known = max(views, key=lambda view: int(view["newest"] or 0))  # it has seen more of the history than the others
    groups = joined_groups([GroupState(**group) for group in view["groups"]] for view in views)
    one = merged(views, known, queued=sum, subscribers=sum, exactSubscribers=sum)
    state = joined(State(view["state"]) for view in views)
    condition = word_of(state, is_heard=bool(one["subscribers"] or groups))
    return {**one, "state": state.value, "condition": condition, "groups": [group._asdict() for group in groups]}


async def _list(ask: Ask) -> dict[str, Any]:
    """A page of the topics in the order of their names. Answers `next`, which is the cursor, empty on the last page."""
    fields, count = ask.fields, ask.fields.get("count", PAGE)
    views = await ask.admin.topics.all(with_shared=ask.request is not None)
    found = [view async for view in in_turns(views) if _is_wanted(view, fields) and ask.covers(view.name)]
    page = found[:count]
    return {
        "topics": [_view(ask, view) async for view in in_turns(page)],
        "next": page[-1].name if len(found) > count else "",
    }


def _is_wanted(view: TopicView, fields: dict[str, Any]) -> bool:
    within, state, condition, internal, after = (
        fields.get(name) for name in ("pattern", "state", "condition", "internal", "after")
    )
    channel = parse(view.name)
    return (
        (after is None or view.name > after)
        and (state is None or view.state.value == state)
        and (condition is None or _word_of(view) == condition)
        and (internal is None or view.name.startswith(SYSTEM) is internal)
        and (within is None or (channel is not None and within in channel.patterns))
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
    view = await ask.admin.topics.of(channel.name)
    if view is None:
        raise NotThere(f"there is no topic {channel.name}")
    return view


async def _show(ask: Ask) -> dict[str, Any]:
    view = await _found(ask)
    return _view(ask, view) | {"may": ask.may(lambda role: ask.covers(view.name, role))}


async def _history(ask: Ask) -> dict[str, Any]:
    view = await _found(ask)
    newest_first = ask.fields.get("newestFirst", True)
    messages = await _past(ask.admin, view.name, ask.fields.get("count", PAGE), newest_first=newest_first)
    return {"channel": view.name, "epoch": view.epoch or None, "entries": view.history, "messages": messages}


async def _call(ask: Ask, _: Operation) -> Call:
    return Call(ask.admin, ask.who, ask.scope, (await _found(ask)).name, fields=ask.fields)


async def _after(call: Call) -> dict[str, Any]:
    return {"channel": call.name, "state": (await call.admin.topics.state(call.name)).value}


TOPIC_ROUTES: Final = (
    Route(
        "GET",
        "/topics",
        "List the topics by channel, a page at a time.",
        _list,
        "`topics`, a list; `next`, the cursor of the next page, empty if this is the last. With `cluster.enabled`, a"
        " page with `state` or `condition` may be shorter.",
        Example({"pattern": "/kitchen/**"}, {"topics": [{"channel": "/kitchen/orders", "condition": "in use"}]}),
        query=(
            text_field("pattern", "Only those of this channel or pattern.", pattern),
            choice_field("state", "Only those in this state", _STATES),
            choice_field("condition", "Only those that stand so", WORDS.values()),
            flag_text("internal", "true: only the server's own, /__sys__…; false: only the others."),
            *page_fields("topics"),
        ),
        about=About.MANY,
        merge=Pages("topics", "channel", _as_one, joined=("state", "condition")),
    ),
    Route(
        "GET",
        Level.TOPIC.resource,
        "Show one topic.",
        _show,
        f"{_VIEW} `may`: the operator's highest role for it.",
        Example({}, {"channel": "/kitchen/orders", "history": {"maxEntries": 9}, "subscribers": 1}),
        refusals=_UNKNOWN,
        about=About.CHANNEL,
    ),
    Route(
        "GET",
        _HISTORY,
        "Read messages of a topic's history without removing them.",
        _history,
        "`channel`, `epoch`, `entries`: how many there are, and `messages` as a subscriber would receive them.",
        Example({"count": 2}, {"channel": "/kitchen/orders", "messages": [{"data": {"word": "pasta"}}]}),
        query=(
            count_text("At most this many of the newest messages."),
            flag_text("newestFirst", "false: the oldest of them first."),
        ),
        refusals=_UNKNOWN,
        about=About.CHANNEL,
    ),
    *operation_routes(
        Level.TOPIC, _call, _after, "`channel`, `state`: SOFTERASED while messages are waiting", _UNKNOWN
    ),
)
