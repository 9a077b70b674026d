"""What operators are told of a session and of a subject."""

from __future__ import annotations

from math import inf
from typing import Any

from crewel.admin.administration import Administration
from crewel.admin.calls import Call
from crewel.admin.moments import shown
from crewel.broker.outlook import outlook
from crewel.broker.sessions import Session, State
from crewel.delivery.states import DispatcherState


def session_view(admin: Administration, session: Session) -> dict[str, Any]:
    """The session as REST tells it. Times are milliseconds since 1970."""
    dispatching = admin.dispatching
    held = dispatching.holdback(session)
    max_entries, max_bytes, policy = bounds(admin, session)
    return {
        "name": session.name,
        "id": _absolute(admin, session),
        "subject": subject_of(session),
        "state": dispatching.state(session).value,
        "active": held is None,
        "holdback": None if held is None else held.as_json(),
        "waiting": dispatching.waiting(session),
        "waitingBytes": dispatching.waiting_bytes(session),
        "unclaimed": dispatching.unclaimed(session),
        "maxEntries": max_entries,
        "maxBytes": max_bytes,
        "onOverflow": policy,
        "subscriptions": sorted(session.subscriptions),
        "subscriptionOptions": admin.broker.subscribing.told(session),
        "ptp": session.takes_ptp,
        "lastFailure": _failure(session),
        "reliable": session.is_reliable,
        "update": session.dispatcher is not None and session.dispatcher.rules.tells,
        "durable": session.durable is not None,
        "operator": session.is_operator,
        "transport": _transport(session),
        "loggedIn": int(admin.clock_ms(session.added_at)),
        "expires": _expires_ms(admin, session),
        "ends": _ends(admin, session),
        "retry": _retry(admin, session),
        "qos": _qos(admin, session),
        "pingMs": admin.pings.get(session),
    }


def subject_of(session: Session) -> str:
    """`joe` of `client/joe/1`."""
    return session.name.split("/")[1]


def identity(call: Call) -> str:
    """`/node/heron/client/joe/1`."""
    return _absolute(call.admin, call.session)


def number(call: Call) -> int:
    """Its number, which is below 0 if the server has made it."""
    return int(call.session.name.rpartition("/")[2])


def login_date(call: Call) -> str:
    """Since when this server has the first of these sessions."""
    return shown(call.admin.clock_ms(min(session.added_at for session in call.sessions)))


def uptime(call: Call) -> int:
    """Seconds since then."""
    return int(call.admin.broker.loop.time() - min(session.added_at for session in call.sessions))


def qos(call: Call) -> dict[str, Any]:
    """How the session is served, by the names of `ext.session`: what its login asked for as far as it has it, and for the rest
    what the server has configured."""
    return _qos(call.admin, call.session)


def _qos(admin: Administration, session: Session) -> dict[str, Any]:
    max_entries, max_bytes, policy = bounds(admin, session)
    settings = admin.broker.settings
    rules, asked = admin.dispatching.rules(session), session.asked
    return {
        "name": session.name,
        "ack": session.is_reliable,
        "update": rules.tells,
        "settle": rules.settle.value,
        "ackWait": _ms(rules.ack_wait),
        "pingInterval": asked.ping_interval_ms,
        "burst": {
            "maxEntries": session.burst.max_entries,
            "maxBytes": session.burst.max_bytes or settings.bayeux.max_response_bytes,
        },
        "ptp": session.takes_ptp,
        "persistent": asked.persistent,
        "timeout": session.grace_ms,
        "maxSessions": asked.max_sessions,
        "dispatcher": {
            "retries": rules.retries,
            "delay": _ms(rules.delay),
            "factor": rules.factor,
            "maxDelay": _ms(rules.max_delay),
            "absence": asked.dispatcher is not None and asked.dispatcher.absence,
        },
        "queue": {"maxEntries": max_entries, "maxBytes": max_bytes, "onOverflow": policy},
    }


def subscription_dump(call: Call) -> dict[str, list[dict[str, Any]]]:
    """What the session is subscribed to, and what each subscription asks for beyond all messages of its channel."""
    plain: dict[str, list[dict[str, Any]]] = {channel: [] for channel in sorted(call.session.subscriptions)}
    return plain | call.admin.broker.subscribing.told(call.session)


def bounds(admin: Administration, session: Session) -> tuple[int, int | None, str]:
    """Most messages that may wait, most bytes (None: as many as the messages have), and what happens beyond."""
    if session.bounds is not None:
        return session.bounds.max_entries, session.bounds.max_bytes, session.bounds.policy.value
    most = admin.broker.settings.bayeux.max_queue_messages
    ends = session.ends_when_full or session.is_reliable
    return session.queue_limit or most, None, "disconnect" if ends else "dropOldest"


def is_connected(call: Call) -> bool:
    """Whether a connect is held or a socket open."""
    return _transport(call.session) is not None


def state(call: Call) -> str:
    """ALIVE, POLLING or DEAD."""
    return call.admin.dispatching.state(call.session).value


def is_active(call: Call) -> bool:
    """Whether messages go to the session, as far as operators are concerned."""
    return call.admin.dispatching.holdback(call.session) is None


def holdback(call: Call) -> dict[str, Any] | None:
    """Who holds the session back since when, and why; None if nobody does."""
    held = call.admin.dispatching.holdback(call.session)
    return None if held is None else held.as_json()


def expire_date(call: Call) -> str:
    """When the session ends unless its client comes; empty while a connect is held."""
    expires = _expires_ms(call.admin, call.session)
    return "" if expires is None else shown(expires)


def polling_since(call: Call) -> str:
    """The date since which nothing goes to the client, for it is gone or has failed; empty while it is there."""
    session, broker = call.session, call.admin.broker
    if call.admin.dispatching.state(session) is DispatcherState.ALIVE:
        return ""
    dispatcher = session.dispatcher
    if dispatcher is not None and dispatcher.waits_until > 0:
        since = dispatcher.waits_until - dispatcher.rules.pause(dispatcher.failures)
    elif session.state is State.CONNECTED:
        away = (broker.timing.pause_ms(session) + broker.settings.bayeux.max_interval_ms) / 1000
        rested_at = session.expires_at - (session.grace_ms / 1000 if session.grace_ms is not None else away)
        since = rested_at + away
    else:  # no connect has come yet
        since = session.added_at
    return shown(call.admin.clock_ms(since))


def is_stalled(call: Call) -> bool:
    """Whether the client has failed, and is left alone for a while."""
    dispatcher = call.session.dispatcher
    return dispatcher is not None and dispatcher.waits_until > 0


def last_failure(call: Call) -> str:
    """What the client has reported last that was not OK; empty if nothing."""
    dispatcher = call.session.dispatcher
    return "" if dispatcher is None or dispatcher.last_failure is None else ": ".join(dispatcher.last_failure)


def forget_failure(call: Call) -> str:
    """Forget it."""
    if call.session.dispatcher is not None:
        call.session.dispatcher.last_failure = None
    return "OK"


def failures(call: Call) -> int:
    """How often in a row the client itself has failed."""
    return 0 if call.session.dispatcher is None else call.session.dispatcher.failures


def _absolute(admin: Administration, session: Session) -> str:
    return f"/node/{admin.node}/{session.name}"


def _failure(session: Session) -> dict[str, str] | None:
    if session.dispatcher is None or session.dispatcher.last_failure is None:
        return None
    code, reason = session.dispatcher.last_failure
    return {"code": code, "reason": reason}


def _transport(session: Session) -> str | None:
    """How its client is connected at the moment; None if no connect is held and no socket open."""
    if session.socket is not None:
        return session.socket.transport
    return None if session.held is None else session.held.peer.transport


def _ends(admin: Administration, session: Session) -> dict[str, Any] | None:
    """When the session ends unless its client comes, and why; None while it is connected."""
    broker = admin.broker
    ends_at, why = outlook(session, broker.timing, broker.loop.time())
    return None if ends_at == inf else {"at": int(admin.clock_ms(ends_at)), "why": why}


def _retry(admin: Administration, session: Session) -> dict[str, int] | None:
    """When what its client could not take goes to it again, and the how-manieth time of how many (-1: any number)."""
    dispatcher = session.dispatcher
    if dispatcher is None or not dispatcher.waits_until:
        return None
    at = int(admin.clock_ms(dispatcher.waits_until))
    return {"at": at, "number": dispatcher.failures, "of": dispatcher.rules.retries}


def _ms(seconds: float) -> int:
    return -1 if seconds == inf else round(seconds * 1000)


def _expires_ms(admin: Administration, session: Session) -> int | None:
    return None if session.expires_at == inf else int(admin.clock_ms(session.expires_at))
