"""The script of faults: what happens to which request, in order. Pure.

A line is `WHEN: WHAT`. WHEN is `after 3 connects`, `next subscribe`, `every 5 connects` or `then`; WHAT is one of `FAULTS` or
`ok`. Rules apply one after the other; `then` applies to everything after it, and `every` from its place to the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

OPERATIONS: Final = ("handshake", "connect", "subscribe", "unsubscribe", "disconnect", "request")
"""The operations that a rule can count; `request` is any of them."""

FAULTS: Final = {
    "unknown client": "the session is forgotten; the client is advised to handshake",
    "unknown client, disconnect": "the session is forgotten; the client must stop",
    "authentication invalid": "the token is treated as revoked",
    "authentication missing": "as if there were no Authorization header",
    "handshake denied": "a handshake is denied",
    "invalid replay id": "a subscribe is refused because of its replay id",
    "replay id not found": "a subscribe is refused because its map lacks the channel",
    "server busy": "a subscribe is denied because the server is busy",
    "daily limit": "a connect is refused because of the events of the day",
    "concurrent limit": "a handshake is denied because there are too many clients",
    "unknown channel": "a subscribe is refused because the channel does not exist",
    "delay": "the answer comes 30 s later",
    "reset": "the connection is reset",
    "drop": "the connection is closed without an answer",
    "half body": "the connection ends in the middle of the body",
    "502 page": "a page in HTML with status 502",
    "503 page": "a page in HTML with status 503",
}
"""The faults by name."""

OF_TRANSPORT: Final = frozenset(("delay", "reset", "drop", "half body", "502 page", "503 page"))
"""Those that happen to the HTTP exchange, whatever is in it."""

PAGES: Final = {"502 page": (502, "Bad Gateway"), "503 page": (503, "Service Unavailable")}
"""Those that are a page in HTML: its status and its words."""

_RULE: Final = re.compile(r"(?:(after|every) (\d+) (\w+?)s?|next (\w+)|(then))\s*:\s*(.+)")


@dataclass(slots=True)
class Rule:
    """One line."""

    kind: str
    """`after`, `every`, `next` or `then`."""
    count: int
    operation: str
    fault: str
    seen: int = 0

    def takes(self, operation: str) -> bool:
        """Whether the rule counts this operation."""
        return self.operation in ("request", operation)


class Script:
    """A script, and how far it has come."""

    def __init__(self, text: str = "") -> None:
        self._rules = [_read(line) for line in _lines(text)]
        self._at = 0

    @property
    def is_over(self) -> bool:
        """Whether no rule is left that has not applied."""
        return all(rule.kind in ("then", "every") for rule in self._rules[self._at :])

    def fault_of(self, operation: str) -> str | None:
        """The fault that this operation, which has just come, meets; None for none."""
        if self._at >= len(self._rules):
            return None
        rule = self._rules[self._at]
        if rule.kind == "then":
            return None if rule.fault == "ok" else rule.fault
        if not rule.takes(operation):
            return None
        rule.seen += 1
        if rule.kind == "every":
            return rule.fault if rule.seen % rule.count == 0 and rule.fault != "ok" else None
        if rule.seen <= rule.count:
            return None
        self._at += 1
        return None if rule.fault == "ok" else rule.fault


def _lines(text: str) -> Iterable[str]:
    return (line for line in (each.partition("#")[0].strip() for each in text.splitlines()) if line)


def _read(line: str) -> Rule:
    found = _RULE.fullmatch(re.sub(r"\s+", " ", line))
    if found is None:
        raise ValueError(
            f"{line!r} is not a rule: expected, for example, `after 3 connects: unknown client`, `next subscribe: reset`"
        )
    kind, count, counted, following, _, fault = found.groups()
    operation = counted or following or "request"
    if operation not in OPERATIONS:
        raise ValueError(f"{line!r}: there is no operation {operation!r}; known are {', '.join(OPERATIONS)}")
    require_fault(fault)
    if kind is None:
        kind, count = ("next", 0) if following else ("then", 0)
    if kind == "every" and int(count) < 1:
        raise ValueError(f"{line!r}: `every` needs a number of at least 1")
    return Rule(kind, int(count), operation, fault)


def require_fault(name: str) -> str:
    """The name, if there is such a fault. Raises ValueError."""
    if name != "ok" and name not in FAULTS:
        raise ValueError(f"there is no fault {name!r}; known are {', '.join(sorted(FAULTS))}")
    return name
