"""The failed attempts at a message: when each failed, and how. A message that is delivered at once has none."""

from __future__ import annotations

from typing import Final, NamedTuple

import orjson

MOST: Final = 20
"""Attempts at one message that are kept: the newest."""


class FailedAttempt(NamedTuple):
    """One attempt that failed."""

    at_ms: int
    """When it was known: milliseconds since 1970."""
    code: str
    reason: str


class FailedAttempts:
    """The failed attempts at the messages of one session, by message id, as far as this server knows them."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[str, list[FailedAttempt]] = {}

    def add(self, message_id: str, at_ms: int, code: str, reason: str) -> None:
        """One more has failed."""
        known = self._by_id.setdefault(message_id, [])
        known.append(FailedAttempt(at_ms, code, reason))
        del known[:-MOST]

    def forget(self, message_id: str) -> None:
        """The message has ended."""
        self._by_id.pop(message_id, None)

    def text(self, message_id: str) -> str:
        """The attempts as the store keeps them: a JSON list of `at`, `code` and `reason`; empty if none is known."""
        known = self._by_id.get(message_id)
        if not known:
            return ""
        return orjson.dumps([{"at": each.at_ms, "code": each.code, "reason": each.reason} for each in known]).decode()
