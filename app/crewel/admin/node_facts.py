"""What operators are told of the server and of its channels."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Coroutine
from importlib.metadata import version
from pathlib import Path
from time import time
from typing import Any, Final

from crewel.admin.calls import Call
from crewel.admin.moments import shown
from crewel.admin.session_facts import session_view
from crewel.bayeux.channel import parse
from crewel.broker.sessions import Session
from crewel.delivery.states import DispatcherState
from crewel.storage import dead_letters
from crewel.storage.dead_letters import DeadLetterFilter
from crewel.topics.lifecycle import State

VERSION: Final = version("crewel")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def uptime(call: Call) -> int:
    """Seconds since the server started."""
    return int(call.admin.broker.loop.time() - call.admin.started)


def clock(_: Call) -> str:
    """The server's time."""
    return shown(time() * 1000)


def clients(call: Call) -> list[str]:
    """The subjects that have sessions, in order."""
    return call.admin.subjects()


def sessions(call: Call) -> list[str]:
    """The names of all sessions that have one, in order."""
    return sorted(session.name for session in call.admin.named())


def alive(call: Call) -> list[str]:
    """The sessions whose clients are there, in order."""
    state = call.admin.dispatching.state
    return sorted(session.name for session in call.admin.named() if state(session) is DispatcherState.ALIVE)


async def topics(call: Call) -> list[str]:
    """The topics that are to be seen: those that were published to and not erased since. In order."""
    views = await call.admin.broker.topics.views()
    return [view.name for view in views if view.state in (State.ALIVE, State.UNREFERENCED)]


async def count_topics(call: Call) -> int:
    """How many topics are to be seen."""
    return len(await topics(call))


async def topics_line(call: Call) -> str:
    """Their names in one line."""
    return ",".join(await topics(call))


def count_subscriptions(call: Call) -> int:
    """How many subscriptions all sessions have together."""
    return sum(len(session.subscriptions) for session in call.admin.broker.sessions.values())


def subscriptions(call: Call) -> list[str]:
    """`client/joe/1 /chat/demo`, one for each subscription of a session that has a name, in order."""
    return sorted(f"{session.name} {channel}" for session in call.admin.named() for channel in session.subscriptions)


def hearers(call: Call) -> list[Session]:
    """Who hears this channel, by its name or by a pattern; of a pattern, who is subscribed to just that."""
    channel = parse(call.name)
    assert channel is not None
    if channel.is_wildcard:
        return [session for session in call.admin.broker.sessions.values() if channel.name in session.subscriptions]
    return list(call.admin.broker.channels.subscribers(channel))


def waiting(call: Call) -> int:
    """How many stored messages wait, counted once for each receiver."""
    durability = call.admin.broker.durability
    return 0 if durability is None else durability.waiting()


async def count_letters(call: Call) -> int:
    """How many dead letters the store has. Raises StoreError."""
    durability = call.admin.broker.durability
    return 0 if durability is None else await dead_letters.count(durability.store, DeadLetterFilter())


def trouble(call: Call) -> str:
    """What is wrong with the store; empty if all is well."""
    durability = call.admin.broker.durability
    return "" if durability is None else durability.trouble or ""


def used_memory(_: Call) -> Coroutine[Any, Any, int]:
    """Bytes that this process has in memory."""
    return asyncio.to_thread(_resident)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * _PAGE


def free_memory(_: Call) -> int:
    """Bytes of the machine that nobody uses."""
    return os.sysconf("SC_AVPHYS_PAGES") * _PAGE


def total_memory(_: Call) -> int:
    """Bytes of the machine."""
    return os.sysconf("SC_PHYS_PAGES") * _PAGE


def collect(_: Call) -> int:
    """Look for garbage now; how many objects it was."""
    return gc.collect()


def dump(call: Call) -> dict[str, Any]:
    """Everything at once: the server, its sessions and its channels."""
    admin, broker = call.admin, call.admin.broker
    return {
        "node": admin.node,
        "version": VERSION,
        "uptime": uptime(call),
        "sessions": [session_view(admin, session) for session in admin.named()],
        "unnamed": sum(not session.name for session in broker.sessions.values()),
        "topics": {name: broker.channels.count(name) for name in sorted(broker.channels)},
    }
