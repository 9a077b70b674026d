"""Whether a session wants one message of a channel that it hears."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from crewel.bayeux.channel import Channel
from crewel.bayeux.codec import reread
from crewel.delivery.entry import Entry
from crewel.delivery.filters import Filter, FilterFailed

__all__ = ["Heard", "Question"]


class Heard(Enum):
    """How one message reaches a session, by the options of its subscriptions."""

    NO = "not at all"
    YES = "as others"
    ONEWAY = "without waiting for its answer"


class Question:
    """One message that sessions with filters are asked about: it is read once, and each expression is evaluated once, however
    many sessions have it."""

    __slots__ = ("_document", "_failed", "_verdicts", "channel", "entry", "qos", "sender")

    def __init__(self, channel: Channel, entry: Entry, sender: str, qos: bytes, failed: Callable[[], None]) -> None:
        """`failed` is called for each expression that cannot be evaluated."""
        self.channel = channel
        self.entry = entry
        self.sender = sender
        self.qos = qos
        self._failed = failed
        self._document: dict[str, Any] | None = None
        self._verdicts: dict[str, bool] = {}

    def passes(self, expression: Filter) -> bool:
        """Whether the expression is true for the message. One that fails is not."""
        verdict = self._verdicts.get(expression.text)
        if verdict is None:
            verdict = self._verdicts[expression.text] = self._evaluated(expression)
        return verdict

    def _evaluated(self, expression: Filter) -> bool:
        if self._document is None:
            self._document = {
                "data": reread(self.entry.wire).get("data"),
                "channel": self.channel.name,
                "clientProperties": reread(self.qos).get("clientProperties", {}) if self.qos else {},
                "sender": self.sender,
            }
        try:
            return expression.accepts(self._document)
        except FilterFailed:
            self._failed()
            return False
