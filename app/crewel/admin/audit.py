"""The audit: who did what, to what, to how many, why, and how it ended; also what was refused.

The log says at once what begins (`crewel.audit`); the store keeps one entry for each action, written when it has ended, in a
bounded stream. While the store is unavailable entries wait, up to a bound; the log has them in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from logging import getLogger, makeLogRecord
from time import time
from typing import Any, Final

from crewel.broker.runtime import Runtime
from crewel.broker.writing.store_access import StoreAccess
from crewel.errors import CrewelError
from crewel.errors.codes import SECURITY, is_below
from crewel.security.grants import Role
from crewel.storage import audit_stream

log = getLogger("crewel.audit")
"""What operators do, one line for each action. Never a secret."""

_MOST_WAITING: Final = 1000
"""Entries that wait for the store at most."""
_QUIET_S: Final = 60.0
"""Seconds between two entries of the same refusal."""
_MOST_REFUSED: Final = 1000
"""Distinct refusals that are remembered."""
_TAKEN: Final = frozenset(vars(makeLogRecord({}))) | {"message", "asctime"}
"""The names that a record of the log has for itself."""


class Outcome(StrEnum):
    """How an action ended."""

    DONE = "done"
    REFUSED = "refused"
    """The operator may not do it."""
    FAILED = "failed"
    """It was begun, and an error or the operator's leaving ended it."""


@dataclass
class Action:
    """One thing that an operator does. What is known at its end only is set while it lasts."""

    who: str
    role: Role | None
    what: str
    about: str = ""
    """The session, subject, channel or job that it is done to."""
    reason: str = ""
    count: int | None = None
    """How many messages, sessions or dead letters it was done to."""
    details: dict[str, Any] = field(default_factory=dict)
    asked_ms: int = field(default_factory=lambda: int(time() * 1000))
    """When the operator asked for it: it may have waited for the store since."""


class Audit:
    """The audit of one server."""

    def __init__(self, runtime: Runtime, access: StoreAccess) -> None:
        self._runtime = runtime
        self._access = access
        self._waiting = 0
        self._refused: dict[tuple[str, str], tuple[float, int]] = {}
        """By who and what: until when it is not written again, and how often it was refused meanwhile."""

    @contextmanager
    def action(
        self, who: str, role: Role | None, what: str, *, about: str = "", reason: str = "", **details: Any
    ) -> Iterator[Action]:
        """Log an action that begins, and write its entry when it has ended."""
        action = Action(who, role, what, about, reason, details=details)
        named = {name: value for name, value in (("about", about), ("reason", reason)) if value}
        log.info("operator: %s", what, extra=_in_one_line({"who": who, **named, **details}))
        try:
            yield action
        except CrewelError as error:
            code = getattr(error, "code", "") or "internal.unknown"
            self._write(action, Outcome.REFUSED if is_below(code, SECURITY) else Outcome.FAILED, code)
            raise
        except BaseException:  # a cancelled request too: what it did meanwhile stays done
            self._write(action, Outcome.FAILED, "")
            raise
        self._write(action, Outcome.DONE)

    def done(self, who: str, role: Role | None, what: str, **details: Any) -> None:
        """Log and write an action that has ended."""
        with self.action(who, role, what, **details):
            pass

    def refused(self, who: str, role: Role | None, what: str, code: str, **details: Any) -> None:
        """Write that something was refused: once a minute for each operator and action, with how often it was, so that refusals
        do not push everything else out."""
        now, key = self._runtime.loop.time(), (who, what)
        quiet_until, left_out = self._refused.get(key, (0.0, 0))
        if now < quiet_until:
            self._refused[key] = (quiet_until, left_out + 1)
            return
        self._refused.pop(key, None)  # so that the oldest is the first
        if len(self._refused) >= _MOST_REFUSED:
            del self._refused[next(iter(self._refused))]
        self._refused[key] = (now + _QUIET_S, 0)
        log.info("refused to an operator: %s", what, extra=_in_one_line({"who": who, "errorCode": code, **details}))
        self._write(Action(who, role, what, count=left_out + 1, details=details), Outcome.REFUSED, code)

    def _write(self, action: Action, outcome: Outcome, code: str = "") -> None:
        access, settings = self._access, self._runtime.settings
        if not access.has_store or self._waiting >= _MOST_WAITING:
            return
        entry = {
            "at": action.asked_ms,
            "node": settings.node.name,
            "who": action.who,
            "role": "" if action.role is None else action.role.word,
            "what": action.what,
            "about": action.about,
            "count": action.count,
            "reason": action.reason,
            "outcome": outcome.value,
            "errorCode": code,
            "details": action.details,
        }
        step = audit_stream.write(access.keys, entry, settings.admin.audit_max_entries)
        self._waiting += 1
        access.writing.submit(step, self._written, retries=True)

    def _written(self, _: object) -> None:
        self._waiting -= 1


def _in_one_line(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, with texts escaped that would break the line or steer a terminal. Logging refuses names that its records have
    for themselves: they get an underscore."""
    return {
        f"{name}_" if name in _TAKEN else name: ascii(value)
        if isinstance(value, str) and not value.isprintable()
        else value
        for name, value in fields.items()
    }
