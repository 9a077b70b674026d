"""What operators do to a session, for the table of commands and for REST alike."""

from __future__ import annotations

from typing import Any

from crewel.admin.calls import Call


async def set_active(call: Call) -> None:
    """Hold the session back, or let it be delivered to again."""
    await (activate(call) if call.value else hold(call))


async def activate(call: Call) -> None:
    """Deliver again, the held message in its old place."""
    await call.admin.dispatching.activate(call.session)


async def hold(call: Call, *, code: str = "", reason: str = "") -> None:
    """Deliver nothing more until somebody activates it."""
    await call.admin.dispatching.hold(call.session, call.who, code=code, reason=reason)


async def skip(call: Call) -> int:
    """Make the held message, or the first that waits, a dead letter."""
    return await call.admin.dispatching.skip(call.session)


async def drain(call: Call) -> int:
    """Make all that waits dead letters."""
    return await call.admin.dispatching.drain(call.session)


def retry(call: Call) -> bool:
    """Send again at once what the client could not take; whether that was waited with."""
    return call.admin.dispatching.retry(call.session)


async def clear(call: Call) -> int:
    """Drop all that waits."""
    return await call.admin.dispatching.clear(call.session)


async def remove(call: Call) -> int:
    """Drop the oldest so many."""
    return await call.admin.dispatching.remove(call.session, call.value)


async def peek(call: Call) -> list[dict[str, Any]]:
    """The oldest so many, as their receiver would get them."""
    return [entry.fields for entry in await call.admin.dispatching.peek(call.session, call.value)]


async def ping(call: Call) -> float:
    """Ask the client for a sign of life; the milliseconds that it took."""
    return await call.admin.ping(call.session)


def refresh(call: Call) -> str:
    """Let the session live as if its client had just come."""
    broker = call.admin.broker
    broker.timing.saw(call.session, broker.loop.time())
    return "OK"


def kill(call: Call) -> int:
    """End these sessions; how many it were."""
    for session in call.sessions:
        call.admin.broker.disconnect(session)
    return len(call.sessions)
