"""The names of shared queues: of a subject, of what goes to one session of a subject only, and of a group.

The store knows by the name what a queue is for: what comes from `client/joe` may be open for several sessions at once, and
what comes from any other queue for one.
"""

from __future__ import annotations

from typing import Final

SUBJECT: Final = "client/"
"""What the queue of a subject begins with: it is called as the subject is."""
_ONE: Final = "one:client/"
_GROUP: Final = "group:"


def subject_queue(subject: str) -> str:
    """Where messages to a subject wait, each for all sessions of it that are there."""
    return f"{SUBJECT}{subject}"


def one_queue(subject: str) -> str:
    """Where messages to a subject wait that one of its sessions gets."""
    return f"{_ONE}{subject}"


def group_queue(pattern: str, group: str) -> str:
    """Where messages wait for a member of a group."""
    return f"{_GROUP}{pattern} {group}"


def is_exclusive(queue: str) -> bool:
    """Whether each message of the queue is open for one session at most, and goes to another one when that fails."""
    return queue.startswith((_GROUP, _ONE))


def group_of(queue: str) -> tuple[str, str] | None:
    """Pattern and name of the group that the queue is of; None if it is a subject's."""
    if not queue.startswith(_GROUP):
        return None
    pattern, _, group = queue.removeprefix(_GROUP).rpartition(" ")
    return pattern, group


def subject_of(queue: str) -> str:
    """The subject that the queue is of; empty if it is a group's."""
    return "" if queue.startswith(_GROUP) else queue.rpartition("/")[2]


def is_queue(receiver: str) -> bool:
    """Whether a dead letter is of a shared queue, and not of a session."""
    return receiver.startswith(_GROUP) or (receiver.startswith(SUBJECT) and receiver.count("/") == 1)
