"""What operators are told of a subject, and do to what waits for it: its sessions, and the queue of what is addressed to it."""

from __future__ import annotations

from typing import Any

from crewel.admin.administration import Administration
from crewel.admin.calls import Call
from crewel.admin.operations import kill
from crewel.admin.session_facts import login_date
from crewel.admin.session_facts import uptime as session_uptime
from crewel.broker.subscribing.past import told


def subject_view(admin: Administration, subject: str) -> dict[str, Any]:
    """The subject as REST tells it."""
    sessions = admin.broker.logins.names.of_subject(subject)
    return {
        "name": f"client/{subject}",
        "subject": subject,
        "sessions": sorted(session.name for session in sessions),
        "blocked": subject in admin.broker.logins.names.blocked,
        "queued": admin.broker.destinations.waiting(subject),
        "maxEntries": admin.broker.settings.ptp.subject_queue_max_entries,
    }


def names(call: Call) -> list[str]:
    """The names of its sessions, in order."""
    return sorted(session.name for session in call.sessions)


def numbers(call: Call) -> str:
    """The numbers of its sessions, in order."""
    return ",".join(map(str, sorted(int(session.name.rpartition("/")[2]) for session in call.sessions)))


def creation_date(call: Call) -> str:
    """Since when this server has the first of its sessions; empty if it has none."""
    return login_date(call) if call.sessions else ""


def uptime(call: Call) -> int:
    """Seconds since then; 0 if it has none."""
    return session_uptime(call) if call.sessions else 0


def queued(call: Call) -> int:
    """How many messages wait until one of its sessions is there."""
    return call.admin.broker.destinations.waiting(call.subject)


async def peek(call: Call) -> list[dict[str, Any]]:
    """The first so many of them, as a session would get them. Raises StoreError."""
    entries = await call.admin.broker.destinations.peek(call.subject, call.value)
    return [told(entry, with_origin=True) for entry in entries]


async def clear(call: Call) -> int:
    """Drop them all; how many it were. Raises StoreError."""
    return await call.admin.broker.destinations.clear(call.subject)


def is_blocked(call: Call) -> bool:
    """Whether its logins are refused."""
    return call.subject in call.admin.broker.logins.names.blocked


def set_blocked(call: Call) -> None:
    """Refuse its logins from now on, until the server ends, or admit them again."""
    blocked = call.admin.broker.logins.names.blocked
    (blocked.add if call.value else blocked.discard)(call.subject)


def block_and_kill(call: Call) -> int:
    """Refuse its logins and end its sessions; how many it were."""
    call.admin.broker.logins.names.blocked.add(call.subject)
    return kill(call)
