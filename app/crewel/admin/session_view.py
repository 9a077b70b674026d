"""A session as operators see it."""

from __future__ import annotations

from math import inf
from typing import Any

from crewel.admin.administration import Administration
from crewel.admin.client_connection import address_of, program_of, transport_of
from crewel.admin.receiver_facts import standing_of
from crewel.admin.receiver_resource import last_failure
from crewel.admin.scope_coverage import covered
from crewel.admin.server_view import oldest_of
from crewel.broker.mailboxes.session_times import outlook
from crewel.broker.session import Session
from crewel.security.grants import Scope


def session_view(admin: Administration, session: Session, scope: Scope) -> dict[str, Any]:
    """The session as REST tells it to an operator with these roles. Times are milliseconds since 1970."""
    dispatchers = admin.dispatchers
    mailbox = session.mailbox.view()
    held = mailbox.holdback
    max_entries, max_bytes, policy = admin.bounds(session)
    return {
        "name": session.name,
        "id": f"/node/{admin.node}/{session.name}",
        "node": admin.node,
        "subject": subject_of(session),
        **standing_of(admin, session, covered(scope)),
        "state": dispatchers.state(session).value,
        "active": held is None,
        "holdback": None if held is None else held.as_json() | {"waits": mailbox.has_held},
        "waiting": mailbox.depth,
        "waitingBytes": mailbox.size,
        "oldest": oldest_of(session),
        "inFlight": mailbox.at_client,
        "unclaimed": mailbox.unclaimed,
        "maxEntries": max_entries,
        "maxBytes": max_bytes,
        "onOverflow": policy,
        "subscriptions": sorted(session.subscriptions),
        "subscriptionOptions": admin.subscriptions.options.as_json(session),
        "failedSubscriptions": admin.subscriptions.failures.unreported(session),
        "ptp": session.takes_ptp,
        "lastFailure": last_failure(session, scope),
        "reliable": session.acknowledges,
        **session.promises(),
        "operator": session.is_operator,
        "transport": transport_of(session),
        "address": address_of(session),
        "client": program_of(session),
        "loggedIn": int(admin.clock_ms(session.added_at)),
        "expires": None if session.expires_at == inf else int(admin.clock_ms(session.expires_at)),
        "ends": _ends(admin, session),
        "retry": _retry(admin, session),
        "qos": _qos_of(admin, session),
        "pingMs": admin.pings.get(session),
    }


def subject_of(session: Session) -> str:
    """`joe` of `client/joe/1`."""
    return session.name.split("/")[1]


def _qos_of(admin: Administration, session: Session) -> dict[str, Any]:
    """The options of its login, as in effect."""
    max_entries, max_bytes, policy = admin.bounds(session)
    settings = admin.settings
    rules, asked, burst = admin.dispatchers.rules(session), session.asked, session.asked.burst
    return {
        "name": session.name,
        "ack": session.acknowledges,
        "update": rules.tells,
        "settle": rules.settle.value,
        "ackWait": _ms(rules.ack_wait),
        "maxOpen": asked.max_open,
        "pingInterval": asked.ping_interval_ms,
        "burst": {
            "maxEntries": burst.max_entries,
            "maxBytes": burst.max_bytes or settings.bayeux.max_response_bytes,
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


def _ends(admin: Administration, session: Session) -> dict[str, Any] | None:
    """When the session ends unless its client comes, and why; None while it is connected."""
    ends_at, why = outlook(session, admin.times, admin.now())
    return None if ends_at == inf else {"at": int(admin.clock_ms(ends_at)), "why": why}


def _retry(admin: Administration, session: Session) -> dict[str, int] | None:
    """When what its client could not take goes to it again, and the how-manieth time of how many (-1: any number)."""
    view = session.mailbox.view()
    if not view.waits_until:
        return None
    return {"at": int(admin.clock_ms(view.waits_until)), "number": view.failures, "of": view.rules.retries}


def _ms(seconds: float) -> int:
    return -1 if seconds == inf else round(seconds * 1000)
