"""The server itself, as operators see it: its commands, its settings, and the alerts of the data pipeline."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter, itemgetter
from pathlib import Path
from time import time
from typing import Any, Final

from crewel.admin.call import Call
from crewel.admin.command import FLAG, Access, Command, of_list, union
from crewel.admin.example import Example
from crewel.admin.merges import Parts, Row
from crewel.admin.operation import Level
from crewel.admin.request_fields import json_field
from crewel.admin.route import Ask, Route
from crewel.admin.session_view import session_view
from crewel.delivery.dispatcher_states import DispatcherState
from crewel.errors import IllegalArgument, SettingsError
from crewel.event_loop import in_turns, sorted_in_turns
from crewel.settings.sources import change
from crewel.settings.table import declared, rows
from crewel.storage import dead_letter_store, nodes
from crewel.storage.dead_letter_records import DeadLetterFilter
from crewel.storage.streams import alerts
from crewel.times import format_timestamp
from crewel.topics import State
from crewel.version import VERSION

_YOUNG_GARBAGE: Final = 1  # generations of the collector; the thresholds bound how much is in the young ones
_ALL_GARBAGE: Final = 2
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


# Commands


def _uptime(call: Call) -> int:
    return int(call.admin.now() - call.admin.started)


async def _alive(call: Call) -> list[str]:
    state = call.admin.dispatchers.state
    named = call.admin.named()
    return await sorted_in_turns([session.name async for session in named if state(session) is DispatcherState.ALIVE])


async def _session_names(call: Call) -> list[str]:
    return await sorted_in_turns([session.name async for session in call.admin.named()])


async def _topics(call: Call) -> list[str]:
    """The topics that were published to and not erased since, in order."""
    views = await call.admin.topics.all()
    return [view.name for view in views if view.state in (State.ALIVE, State.UNREFERENCED)]


async def _subscriptions(call: Call) -> list[str]:
    named = call.admin.named()
    found = [f"{session.name} {channel}" async for session in named for channel in session.subscriptions]
    return await sorted_in_turns(found)


async def _count_subscriptions(call: Call) -> int:
    return sum([len(session.subscriptions) async for session in in_turns(call.admin.sessions())])


async def _count_dead_letters(call: Call) -> int:
    access = call.admin.access
    return 0 if not access.has_store else await dead_letter_store.count(access.store, DeadLetterFilter())


def _trouble(call: Call) -> str:
    return call.admin.access.trouble or "" if call.admin.access.has_store else ""


def _used_memory(_: Call) -> Coroutine[Any, Any, int]:
    return asyncio.to_thread(lambda: int(Path("/proc/self/statm").read_text("ascii").split()[1]) * _PAGE_BYTES)


async def _dump(call: Call) -> dict[str, Any]:
    admin = call.admin
    named = admin.named()
    return {
        "node": admin.node,
        "version": VERSION,
        "uptime": _uptime(call),
        "sessions": [session_view(admin, session, call.scope) async for session in named if session.is_live],
        "unnamed": sum([not session.name async for session in in_turns(admin.sessions())]),
        "topics": {name: admin.channels.count(name) for name in await sorted_in_turns(admin.channels)},
    }


_read = partial(Command, Level.NODE, Access.READ)
_operate = partial(Command, Level.NODE, Access.OPERATE)

_CLIENT_LIST: Final = _read("clientList", "Names of these subjects.", lambda c: c.admin.subjects(), join=union)
_TOPIC_LIST: Final = _read("topicList", "Names of these topics.", _topics, join=union)

NODE_COMMANDS: Final = (
    _read("version", "Version of the server.", lambda c: VERSION),
    _read("uptime", "Seconds since the server started.", _uptime),
    _read("serverTimestamp", "The server's clock.", lambda c: format_timestamp(time() * 1000)),
    _read("numNodes", "Number of nodes.", lambda c: 1, join=sum),
    _read("nodeList", "Names of the nodes.", lambda c: [c.admin.node], join=union),
    of_list(_CLIENT_LIST, "numClients", "Subjects that have sessions.", len),
    _CLIENT_LIST,
    of_list(_CLIENT_LIST, "clients", "These names on one line.", ",".join),
    _read("aliveCallbackClients", "Sessions whose client is connected.", _alive, join=union),
    _read(
        "numSessions",
        "Sessions, including those without a name.",
        lambda c: len(c.admin.sessions()),
        join=sum,
    ),
    _read(
        "sessionList",
        "Names of the sessions.",
        _session_names,
        join=union,
    ),
    of_list(_TOPIC_LIST, "numTopics", "Topics that were published to and not erased.", len),
    _TOPIC_LIST,
    of_list(_TOPIC_LIST, "topics", "These names on one line.", ",".join),
    _read(
        "numSubscriptions",
        "Subscriptions of all sessions.",
        _count_subscriptions,
        join=sum,
    ),
    _read(
        "subscriptionList",
        "Session and channel of each subscription, except of sessions without a name.",
        _subscriptions,
        join=union,
    ),
    _read("numPublish", "Published messages.", lambda c: c.admin.metrics.publishes, join=sum),
    _read("numUpdate", "Messages sent to a receiver.", lambda c: c.admin.metrics.deliveries, join=sum),
    _read(
        "numWaiting",
        "Stored messages that wait, once for each receiver.",
        lambda c: c.admin.broker.durability.waiting(),
        join=sum,
    ),
    _read("numDeadLetters", "Dead letters in the store.", _count_dead_letters),
    _read("lastError", "The error of the store; empty if there is none.", _trouble),
    _read("usedMem", "Memory of the server, in bytes.", _used_memory),
    _read(
        "freeMem",
        "Free memory of the machine, in bytes.",
        lambda c: os.sysconf("SC_AVPHYS_PAGES") * _PAGE_BYTES,
    ),
    _read("totalMem", "Memory of the machine, in bytes.", lambda c: os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES),
    _operate(
        "gc",
        "Collects young garbage now; returns the number of objects. With true, all garbage: the server answers nothing"
        " for 50 ms, or longer with many sessions.",
        lambda c: gc.collect(_ALL_GARBAGE if c.value else _YOUNG_GARBAGE),
        FLAG._replace(default=False),
    ),
    _read("dump", "All sessions and channels, as one object.", _dump),
)


# Resources


async def _alerts(ask: Ask) -> dict[str, Any]:
    """The alerts of sessions that are still on hold: the pipeline looks seldom, and this server knows at once."""
    admin = ask.admin
    found = await alerts(admin.store)
    held = {each.name async for each in admin.named() if each.mailbox.view().holdback is not None}
    return {"alerts": [{"session": each.session, **each.fields} for each in found if each.session in held]}


def _joined_alerts(parts: Sequence[Row], _: Mapping[str, Any]) -> Row:
    """Those of all nodes: a session is at one of them."""
    return {"alerts": sorted(chain.from_iterable(part["alerts"] for part in parts), key=itemgetter("session"))}


async def _nodes(ask: Ask) -> dict[str, Any]:
    """The servers of the store, as it has them at this instant."""
    access = ask.admin.access
    if not access.has_store:
        return {"nodes": []}
    found = await access.writing.ask(nodes.members(access.keys))
    return {
        "nodes": [
            {
                "node": each.name,
                "state": "ALIVE" if each.lives else "DEAD",
                "own": each.token == access.token,
                "sessions": each.sessions,
                "since": each.since // 1000,
                "process": "" if each.process is None else f"{each.process.pid} on {each.process.host}",
            }
            for each in sorted(found.nodes.values(), key=attrgetter("since"))
        ]
    }


async def _settings(ask: Ask) -> dict[str, Any]:
    return {"settings": rows(ask.admin.settings)}


async def _change_settings(ask: Ask) -> dict[str, Any]:
    settings = ask.admin.settings
    try:
        changed = change(settings, ask.fields)
    except SettingsError as error:
        raise IllegalArgument("settings", str(error)) from None
    for name, (before, after) in changed.items():
        with ask.action("change setting", about=name, before=before, after=after):
            pass  # it is done
    membership = ask.admin.membership
    others = 0 if membership is None else len(membership.registry.others())
    where = {"node": ask.admin.node, "unchanged": others} if others else {}
    return {"settings": [row for row in rows(settings) if row["name"] in ask.fields], **where}


NODE_ROUTES: Final = (
    Route(
        "GET",
        "/nodes",
        "List the servers that share the store.",
        _nodes,
        "`nodes`, a list, the oldest first. A node has `node` (its name), `state` (ALIVE, or DEAD until other nodes"
        " have taken over all its sessions), `own` (whether it sent this response), `sessions` (how many it has in the"
        " store), `since` (milliseconds since 1970) and `process`.",
        Example({}, {"nodes": [{"node": "heron", "state": "ALIVE", "own": True}]}),
    ),
    Route(
        "GET",
        "/alerts",
        "List the receivers that have been on hold for longer than the pipeline's limit.",
        _alerts,
        "`alerts`, a list in the order of the names. An alert has `session`, `since` and `raised` (milliseconds since 1970),"
        " `held_ms` (how long it had been on hold when the alert was raised), `code`, `who` and `reason`.",
        Example({}, {"alerts": [{"session": "client/bob/1", "who": "admin", "reason": "database is down"}]}),
        merge=Parts(_joined_alerts),
    ),
    Route(
        "GET",
        "/settings",
        "Show the settings in effect at the node or worker that answers.",
        _settings,
        "`settings`, a list: `name`, `value`, `unit`, `default`, `source` (default, toml, env, --set, or operator if it"
        " was changed while the server runs), `live` (whether it can change) and `why`. Secrets are ***.",
        Example({}, {"settings": [{"name": "bayeux.max_lazy_ms", "value": 5000, "source": "default", "live": True}]}),
    ),
    Route(
        "PATCH",
        "/settings",
        "Change settings while the server runs: all given settings, or none. They apply to the node or worker that answers,"
        " until it ends.",
        _change_settings,
        "`settings`, as above, of the given names. If there are other nodes or workers, also `node`: the name of the one that"
        " has changed, and `unchanged`: how many others keep their values.",
        Example({"bayeux.max_lazy_ms": 2000}, {"settings": [{"name": "bayeux.max_lazy_ms", "value": 2000}]}),
        body=tuple(json_field(each.name, each.why) for each in declared().values()),
    ),
)
