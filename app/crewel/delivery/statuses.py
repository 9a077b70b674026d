"""What clients say of the messages that they were delivered: `ext.update` of a connect, or the data of `/service/update`
(design, section 3.4)."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NamedTuple

from crewel.delivery.outcomes import reported_code

MAX_REASON: Final = 1024
"""Most characters of a receiver's words that a letter or a holdback keeps."""
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
        return Status(message_id, Verdict.FAILED, reported_code(given["errorCode"]), words, given)
    if isinstance(state, str) and state in _STATES:
        return Status(message_id, _STATES[state], "", "", given)
    return "state must be OK, WORKING or UNCLAIMED, unless there is an errorCode"
