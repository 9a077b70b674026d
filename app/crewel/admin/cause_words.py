"""What is said of each cause of trouble at receivers, and what to do about it. From this one table, lists, the page of a
receiver, the overview, the terminal and past troubles have their words.

Pure. A new cause of `receiver_condition` has a row here. What to do may depend on what else is wrong with the receiver, for the
obstacle of its messages comes first. A queue that is full while its client is away needs the client, not a faster one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from crewel.admin.level import Level
from crewel.admin.receiver_condition import Cause

BY_OPERATOR: Final = "by an operator"
"""On hold, and no message is."""
REFUSED: Final = "with a token that is refused"
"""Its client tries to log in with one."""
SKIPPED: Final = "for a message that has left its queue"
GROUP: Final = "group"
SUBJECT: Final = "subject"
"""What the receiver is, if it is no session."""
USUAL: Final = ""
_THEN: Final = "it takes what waits, which makes room. Then redrive its dead letters, if there are any."
_MORE: Final = "or make them process messages faster, or raise"
_ROOM: Final[Mapping[str, str]] = {
    GROUP: f"Start more members of the group, {_MORE} ptp.group_queue_max_entries. Redrive its dead letters when there is"
    " room.",
    SUBJECT: f"Start more sessions of the subject, {_MORE} ptp.subject_queue_max_entries.",
    "held": f"Release it when it may go on: {_THEN}",
    "token": f"Give its client a new token: when it has logged in, {_THEN}",
    "away": f"Start its client: {_THEN}",
    "retry": f"Repair what its client needs: {_THEN}",
    USUAL: "Make its client process messages faster, share its work in a consumer group, or raise queue.maxEntries of its"
    " login. Redrive its dead letters when there is room. Draining does not help: what is drained needs the same room again.",
}
"""What to do about a queue that is full, or will be."""
_STARTED_TOO: Final = frozenset({"held", "rejecting", "rejects", "unclaimed"})
"""If its client is away too, it has to be started for these causes."""


@dataclass(frozen=True, slots=True)
class Words:
    """How a cause reads."""

    key: str = ""
    """That of its finding; empty if it is in none."""
    one: str = ""
    """What is said of one receiver that has it, and of several."""
    many: str = ""
    was: str = ""
    """What is said of one when it has ended, and of several; empty if its end is not noted."""
    were: str = ""
    advice: Mapping[str, str] = field(default_factory=dict)
    """What to do, by what else holds of the receiver: another of its causes, or one of the marks above. The first that holds
    counts."""


WORDS: Final[Mapping[str, Words]] = {
    "rejecting": Words(
        "rejecting",
        "{} rejects everything",
        "{} reject everything",
        "{} rejected everything",
        "{} rejected everything",
        {USUAL: "Repair its client and let it log in again, or end the session. Then redrive its dead letters."},
    ),
    "rejects": Words(
        "rejects",
        "{} rejects messages",
        "{} reject messages",
        "{} rejected messages",
        "{} rejected messages",
        {
            USUAL: "Repair its client. If other receivers reject these messages too, look at what the publisher sends. Then"
            " redrive its dead letters."
        },
    ),
    "held": Words(
        "held",
        "{} is on hold",
        "{} are on hold",
        "{} was on hold",
        "{} were on hold",
        {
            BY_OPERATOR: "Release the receiver when the reason is gone.",
            SKIPPED: "The message that was held was skipped, or has left the queue otherwise. Release the receiver.",
            USUAL: "Read the message that is held. If its cause is gone, release the receiver. If not, skip the message, then"
            " release.",
        },
    ),
    "full": Words("queue-full", "{} is full", "{} are full", "{} was full", "{} were full", _ROOM),
    "token": Words(
        "token-expired",
        "{} has an expired token",
        "{} have an expired token",
        "{} had an expired token",
        "{} had an expired token",
        {
            REFUSED: "Give its client a new token: it tries again with the one that is refused.",
            USUAL: "Give its client a new token. It logs in again automatically, if it can get one. Until then, it gets"
            " nothing.",
        },
    ),
    "refused": Words(
        "login-refused",
        "A login as {} was refused",
        "Logins of {} were refused",
        "Logins as {} were refused",
        "Logins of {} were refused",
        {
            USUAL: "Give its client a token or a name that holds. Any client can ask for a name: see where the login came from."
        },
    ),
    "members": Words(
        was="{} had no member that takes messages",
        were="{} had no member that takes messages",
        advice={
            GROUP: "Start a worker of the group, or release one that is on hold.",
            USUAL: "Start a session of the subject, or release one that is on hold.",
        },
    ),
    "retry": Words(
        "retrying",
        "{} waits to retry",
        "{} wait to retry",
        "{} waited to retry",
        "{} waited to retry",
        {USUAL: "Repair what its client needs. Its messages go to it again automatically, or at once with Retry now."},
    ),
    "unclaimed": Words(
        "unclaimed",
        "{} has messages that no listener takes",
        "{} have messages that no listener takes",
        "{} had messages that no listener took",
        "{} had messages that no listener took",
        {USUAL: "Start the part of its client that listens to these channels, or skip the messages."},
    ),
    "filling": Words("soon-full", "{} will be full soon", "{} will be full soon", advice=_ROOM),
    "away": Words(
        "away",
        "{} is away",
        "{} are away",
        "{} was away",
        "{} were away",
        {
            "token": "Give its client a new token, and start it.",
            USUAL: "Start its client: it takes what waits. The messages wait until the session ends.",
        },
    ),
    "slow": Words(
        "behind",
        "{} falls behind",
        "{} fall behind",
        "{} fell behind",
        "{} fell behind",
        {
            GROUP: "Start more members of the group, or make them process messages faster.",
            SUBJECT: "Start more sessions of the subject, or make them process messages faster.",
            USUAL: "Make its client faster, let it take more messages at a time, or share its work in a consumer group.",
        },
    ),
    "recovering": Words(
        "catches-up",
        "{} catches up",
        "{} catch up",
        advice={USUAL: "Nothing needs to be done, unless it is too slow."},
    ),
    "overflow": Words(
        "turned-away",
        "{} has turned messages away",
        "{} have turned messages away",
        advice={
            "away": "Start its client before you redrive its dead letters: without it, its queue is full again.",
            USUAL: "Redrive its dead letters, if there are any: there is room again. If it is full often, make its client"
            " process messages faster, or raise queue.maxEntries of its login.",
        },
    ),
    "nearly-full": Words("nearly-full", "{} is nearly full", "{} are nearly full", advice=_ROOM),
}
"""By the kind of the cause. What is no trouble, as a busy client, has no words."""


def advice_of(cause: Cause, causes: Sequence[Cause], what: str = "") -> str:
    """What to do about one of the causes of a receiver; empty if that is nothing. `what`: `GROUP`, `SUBJECT`, or a session."""
    if cause.level is Level.INFO or cause.kind not in WORDS:
        return ""
    kinds = {each.kind for each in causes if each.kind != cause.kind}
    holds = {*kinds, what, *_marks(cause), USUAL}
    text = _first(WORDS[cause.kind].advice, holds)
    return f"{text} Its client is away: start it, too." if cause.kind in _STARTED_TOO and "away" in kinds else text


def usual_advice(kind: str, what: str = "") -> str:
    """What to do about several receivers that have a cause of this kind."""
    return _first(WORDS[kind].advice, {what, USUAL})


def _first(advice: Mapping[str, str], holds: Collection[str]) -> str:
    return next(text for other, text in advice.items() if other in holds)


def _marks(cause: Cause) -> list[str]:
    if cause.kind == "held" and "waits" in cause.details:
        return [SKIPPED]
    if cause.kind == "held" and not cause.details["id"]:
        return [BY_OPERATOR]
    return [REFUSED] if cause.kind == "token" and "refused" in cause.details else []
