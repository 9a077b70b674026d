"""What receivers report of messages, and what a failure means: one table, from the error code to the outcome for the message
and for the dispatcher.

Statuses come as `ext.update` of a connect, or as the data of `/service/update`.

Codes are xmlBlaster's. Prefixes are taken by whole segments: `user.update.errorX` is not below `user.update.error`. The
table is printed in docs/explanation/guarantees.md.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple

from crewel.bayeux.codec import encode
from crewel.errors.codes import MAX_CODE, is_below, is_reportable

INTERNAL_ERROR: Final = "user.update.internalError"
"""What everything becomes that a receiver may not report."""
POISON: Final = "user.update.deadMessage"
"""What makes a dead letter of a message, even if another receiver could have it."""


class OnUserError(StrEnum):
    """What `user.*` does to a dispatcher, by the names of `delivery.on_user_error`."""

    CONTINUE = "continue"
    DEAD = "dead"


class Outcome(StrEnum):
    """What happens to a message that its receiver could not take."""

    DEAD_LETTER = "dead letter"
    HOLDBACK = "holdback"
    RETRY = "retry"
    REJECT_ALL = "reject all"
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


_HOLDBACK: Final = (
    None,
    Outcome.HOLDBACK,
    "stays queued, in its place",
    "inactive: delivers nothing more until an operator activates it",
)

OUTCOMES: Final[tuple[Row, ...]] = (
    Row("user.update.holdback", *_HOLDBACK),
    Row("communication.user.holdback", *_HOLDBACK),  # xmlBlaster's server throws it for the same
    Row(POISON, None, Outcome.DEAD_LETTER, "dead letter", "continues"),
    Row(
        "user.security.authentication",
        None,
        Outcome.SESSION_DEAD,
        "dead letter, like all that is queued",
        "DEAD: the session is removed",
    ),
    Row("user", OnUserError.CONTINUE, Outcome.DEAD_LETTER, "dead letter", "continues"),
    Row(
        "user",
        OnUserError.DEAD,
        Outcome.REJECT_ALL,
        "dead letter, like all queued and new messages",
        "DEAD: rejects everything until a new handshake, kill or expiry",
    ),
    Row(
        "communication",
        None,
        Outcome.RETRY,
        "stays queued, in its place",
        "POLLING: redelivered after the delay, at most `retries` times in a row; then DEAD: queued messages become dead "
        "letters, and the session is removed",
    ),
)
"""The first line that fits counts. Every code that `reported_code` answers fits one."""


def reported_code(given: object) -> str:
    """The code as it counts: what a receiver may not report becomes an internal error of the receiver."""
    return given if isinstance(given, str) and is_reportable(given) else INTERNAL_ERROR


def code_given(given: object) -> str:
    """What dead letters keep of a code that does not count as it was given, at most as long as a code. A longer one ends in
    `…`; what is no string is kept as JSON. Empty if the code counts as it is, or was null."""
    if given is None or (isinstance(given, str) and is_reportable(given)):
        return ""
    text = given if isinstance(given, str) else encode(given).decode()
    return text if len(text) <= MAX_CODE else f"{text[: MAX_CODE - 1]}…"


def outcome_of(code: str, on_user_error: OnUserError = OnUserError.CONTINUE) -> Outcome:
    """What a code means that `reported_code` has answered."""
    for row in OUTCOMES:
        if is_below(code, row.prefix) and row.on_user_error in (None, on_user_error):
            return row.outcome
    raise ValueError(f"{code!r} is not a code that a receiver reports")


MAX_REASON: Final = 1024
"""Most characters of a receiver's words that a dead letter or a holdback keeps."""
MAX_STATUSES: Final = 10_000
NOT_OPEN: Final = "no message of this id is open"


class Verdict(Enum):
    """What a status says."""

    OK = "the message is settled"
    WORKING = "it is being worked on: its wait begins again"
    UNCLAIMED = "no listener of the receiver takes it: it stays open until one does"
    FAILED = "the receiver could not take it"


_STATES: Final = {each.name: each for each in (Verdict.OK, Verdict.WORKING, Verdict.UNCLAIMED)}
"""What `state` may say; a failure has an `errorCode` instead."""


class Status(NamedTuple):
    """What is said of one message."""

    id: str
    verdict: Verdict
    code: str
    """Of a failure: as it counts."""
    reason: str
    given: dict[str, Any]
    """As it was sent, for the reply that says that it did not count."""
    original: str = ""
    """Of a failure: the code as given, if another one counts."""


def read_statuses(given: object) -> tuple[list[Status], list[dict[str, Any]]]:
    """The statuses in their order; and those that make no sense, as sent plus `reason`."""
    if not isinstance(given, list) or len(given) > MAX_STATUSES:
        return [], [{"reason": f"must be a list of at most {MAX_STATUSES} statuses"}]
    statuses: list[Status] = []
    rejected: list[dict[str, Any]] = []
    for each in given:
        status = _read(each)
        if isinstance(status, str):
            rejected.append({**(each if isinstance(each, dict) else {"status": each}), "reason": status})
        else:
            statuses.append(status)
    return statuses, rejected


def _read(given: object) -> Status | str:
    """The status, or what is wrong with it."""
    if not isinstance(given, dict):
        return "must be an object with `id`, and `errorCode` or `state`"
    message_id, state = given.get("id"), given.get("state")
    if not isinstance(message_id, str):
        return "id must be that of a delivered message, a string"
    if "errorCode" in given:
        reason = given.get("message")
        words = reason[:MAX_REASON] if isinstance(reason, str) else ""
        code = given["errorCode"]
        return Status(message_id, Verdict.FAILED, reported_code(code), words, given, code_given(code))
    if isinstance(state, str) and state in _STATES:
        return Status(message_id, _STATES[state], "", "", given)
    return "state must be OK, WORKING or UNCLAIMED, unless there is an errorCode"
