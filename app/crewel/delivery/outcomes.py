"""What a failure that a receiver reports means: one table, from the error code to the message's fate and the dispatcher's.

Codes are xmlBlaster's. Prefixes are taken by whole segments: `user.update.errorX` is not below `user.update.error`. The
table is printed in docs/explanation/guarantees.md.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

from crewel.errors.codes import is_below

INTERNAL_ERROR: Final = "user.update.internalError"
POISON: Final = "user.update.deadMessage"
"""What makes a dead letter of a message, even if another receiver could have it."""
"""What everything becomes that a receiver may not report."""

_REPORTABLE: Final = re.compile(r"(?:user|communication)(?:\.[A-Za-z0-9]+)+")
_MAX_CODE: Final = 128


class OnUserError(StrEnum):
    """What `user.*` does to a dispatcher, by the names of `delivery.on_user_error`."""

    CONTINUE = "continue"
    DEAD = "dead"


class Outcome(StrEnum):
    """What becomes of a message that its receiver could not take."""

    LETTER = "letter"
    HOLDBACK = "holdback"
    RETRY = "retry"
    SINK = "sink"
    SESSION_DEAD = "session dead"


class Row(NamedTuple):
    """One line of the table."""

    prefix: str
    """The code, or what stands above it; empty for any code."""
    on_user_error: OnUserError | None
    """The setting that this line is for; None: any."""
    outcome: Outcome
    message: str
    dispatcher: str


OUTCOMES: Final[tuple[Row, ...]] = (
    Row(
        "user.update.holdback",
        None,
        Outcome.HOLDBACK,
        "stays queued, in its place",
        "inactive: delivers nothing more until an operator activates it",
    ),
    Row(POISON, None, Outcome.LETTER, "dead letter", "continues"),
    Row(
        "user.security.authentication",
        None,
        Outcome.SESSION_DEAD,
        "dead letter, like all that is queued",
        "DEAD: the session is removed",
    ),
    Row("user", OnUserError.CONTINUE, Outcome.LETTER, "dead letter", "continues"),
    Row(
        "user",
        OnUserError.DEAD,
        Outcome.SINK,
        "dead letter, like all that is queued and all that arrives",
        "DEAD: rejects everything until a new handshake, kill or expiry",
    ),
    Row(
        "communication",
        None,
        Outcome.RETRY,
        "stays queued, in its place",
        "POLLING: redelivered after the delay, at most `retries` times in a row; then DEAD: what is queued becomes dead"
        " letters, and the session is removed",
    ),
)
"""The first line that fits counts. Every code that `reported_code` answers fits one."""


def reported_code(given: object) -> str:
    """The code as it counts: a receiver may report `user.…` and `communication.…`, of letters and digits and at most 128
    characters; all else becomes an internal error of the receiver."""
    if isinstance(given, str) and len(given) <= _MAX_CODE and _REPORTABLE.fullmatch(given):
        return given
    return INTERNAL_ERROR


def outcome_of(code: str, on_user_error: OnUserError = OnUserError.CONTINUE) -> Outcome:
    """What a code means that `reported_code` has answered."""
    for row in OUTCOMES:
        if is_below(code, row.prefix) and row.on_user_error in (None, on_user_error):
            return row.outcome
    raise ValueError(f"{code!r} is not a code that a receiver reports")
