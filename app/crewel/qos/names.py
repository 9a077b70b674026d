"""Names of sessions and of shared queues: their grammar, and the one form under which a session is kept.

`client/joe/1` is the session 1 of the subject `joe`. The client chooses a positive number and comes back with it; without
one the server numbers the session, downwards from -1. `/node/heron/` in front tells where it is and is not part of it.

A shared queue is of a subject, of one session of a subject, or of a consumer group. The store reads from the name how a queue
is consumed. A message of `client/joe` may be open for several sessions at once, one of any other queue for one session.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from crewel.bayeux.channel import DOT_SEGMENTS

ANONYMOUS: Final = "anonymous"
"""The subject of sessions that gave no name. No login can ask for it."""

MAX_NUMBER: Final = 2**53 - 1
"""Largest number of a session, of either sign: what a browser can count."""

MAX_SUBJECT: Final = 255
"""Longest subject in characters, as OpenID Connect bounds `sub`."""

# What `Grants.identity` gives to those that cannot be called by a name is no subject.
_SUBJECT: Final = rf"(?!__(?:admin|[0-9a-f]{{32}})(?:/|\Z))[A-Za-z0-9._@+|:=-]{{1,{MAX_SUBJECT}}}"
SUBJECT_RULE: Final = f"1 to {MAX_SUBJECT} of A-Z a-z 0-9 . _ @ + | : = -"
"""The grammar of subjects, for people."""
_MAX_FILE_NAME: Final = 200  # file systems take 255 bytes, and callers add a few
_NAME: Final = re.compile(
    r"(?:/node/(?P<node>[A-Za-z0-9._-]{0,64})/(?=client/))?"
    rf"(?:client/)?(?P<subject>{_SUBJECT})(?:/(?:session/)?(?P<number>-?[0-9]{{1,16}}))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Name:
    """A session, or with the number 0 a subject."""

    subject: str
    number: int = 0
    node: str = ""
    """The node that the name was given with; it informs and decides nothing."""

    @property
    def relative(self) -> str:
        """Without the node, `client/joe/1` or `client/joe`: what sessions are kept and compared by."""
        return f"client/{self.subject}/{self.number}" if self.number else f"client/{self.subject}"

    def absolute(self, node: str) -> str:
        """With the node that has the session: `/node/heron/client/joe/1`."""
        return f"/node/{node}/{self.relative}"

    @property
    def has_dot_segment(self) -> bool:
        """Whether the subject is `.` or `..`. No client can log in with such a name or address it; what older versions stored
        under one can be read."""
        return self.subject in DOT_SEGMENTS

    @property
    def is_chosen(self) -> bool:
        """Whether the client chose the number, so that it can come back with it."""
        return self.number > 0

    @property
    def is_numbered(self) -> bool:
        """Whether the server chose the number."""
        return self.number < 0


def parse_name(text: str) -> Name | None:
    """The name that this text says, or None if it says none. Beside the absolute form it takes `client/joe/1`,
    `client/joe/session/1`, `joe/1` and the subject alone; the number 0 is none."""
    found = _NAME.fullmatch(text)
    if found is None:
        return None
    number = int(found["number"] or 0)
    return Name(found["subject"], number, found["node"] or "") if abs(number) <= MAX_NUMBER else None


def is_name_for_login(text: str) -> bool:
    """Whether a client can log in with this name: a subject, or a session with a number other than 0."""
    found = _NAME.fullmatch(text)
    return found is not None and (found["number"] is None or 0 < abs(int(found["number"])) <= MAX_NUMBER)


def is_subject(text: str) -> bool:
    """Whether this can be the name of a subject."""
    return re.fullmatch(_SUBJECT, text, re.ASCII) is not None and text not in DOT_SEGMENTS


def as_file_name(text: str) -> str:
    """A name of a file or directory that stands for this text and no other: percent-encoded, and cut if it is very long."""
    name = quote(text, safe="@")
    if len(name) <= _MAX_FILE_NAME:
        return name
    mark = sha256(text.encode()).hexdigest()[:32]
    return f"{name[: _MAX_FILE_NAME - len(mark) - 1]}-{mark}"


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


def group_called(shown: str) -> tuple[str, str] | None:
    """Pattern and name of the group that people call `/jobs/* workers`; None if this is what a session or a subject is
    called."""
    pattern, _, group = shown.rpartition(" ")
    return (pattern, group) if shown.startswith("/") else None


def shown_name(queue: str) -> str:
    """What people call the receiver of this queue: `/jobs/* workers` a group, and a subject as the queue. A session, which has
    no shared queue, keeps its name."""
    group = group_of(queue)
    return queue if group is None else " ".join(group)


def queue_of(shown: str) -> str:
    """The shared queue of the group or subject that people call so; empty if it is a session."""
    group = group_called(shown)
    if group is not None:
        return group_queue(*group)
    return shown if is_queue(shown) else ""


def subject_of(queue: str) -> str:
    """The subject that the queue is of; empty if it is a group's."""
    return "" if queue.startswith(_GROUP) else queue.rpartition("/")[2]


def is_queue(receiver: str) -> bool:
    """Whether a dead letter is of a shared queue, and not of a session."""
    return receiver.startswith(_GROUP) or (receiver.startswith(SUBJECT) and receiver.count("/") == 1)
