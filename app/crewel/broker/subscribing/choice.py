"""Whether a session wants one message of a channel that it hears."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import Any

from crewel.bayeux.channel import Channel
from crewel.bayeux.codec import reread
from crewel.broker.sessions import Session
from crewel.delivery.entry import Entry
from crewel.metrics import Metrics
from crewel.qos.filters import BUDGET_MINIMUM, MAX_STEPS, Filter, FilterBudget, FilterFailed, FilterTooCostly

log = logging.getLogger(__name__)


class Heard(Enum):
    """How one message reaches a session, by the options of its subscriptions."""

    NO = "not at all"
    YES = "as others"
    ONEWAY = "without waiting for its answer"


class Budgets:
    """What the filters of each session may cost. Sessions whose filters are conditions have no budget: they need none."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        self.metrics = metrics
        self._clock = clock
        self._of: dict[Session, FilterBudget] = {}

    def allowance(self, session: Session) -> int:
        """The steps that the session's filters may take for one message."""
        now = self._clock()
        budget = self._of.get(session)
        if budget is None:
            budget = self._of[session] = FilterBudget(now)
        return budget.allowance(now)

    def spend(self, session: Session, steps: int) -> None:
        """The session's filters have taken so many."""
        self._of[session].spend(steps)

    def exceeded(self, session: Session, expression: Filter, channel: str) -> None:
        """The session is delivered a message that it could not judge; the first time, the log says so."""
        self.metrics.filters_over_budget += 1
        budget = self._of[session]
        if not budget.is_reported:
            budget.is_reported = True
            log.warning(
                "a filter of %s takes more than its budget, so the session gets messages of %s unfiltered: %.200s",
                session.name or "an anonymous session",
                channel,
                expression.text,
            )

    def forget(self, session: Session) -> None:
        """The session has ended."""
        self._of.pop(session, None)


class Question:
    """One message that sessions with filters are asked about: it is read once, and each expression is evaluated once, however
    many sessions have it."""

    __slots__ = (
        "_asking",
        "_budgets",
        "_document",
        "_is_over",
        "_left",
        "_verdicts",
        "channel",
        "entry",
        "qos",
        "sender",
    )

    def __init__(self, channel: Channel, entry: Entry, sender: str, qos: bytes, budgets: Budgets) -> None:
        self.channel = channel
        self.entry = entry
        self.sender = sender
        self.qos = qos
        self._budgets = budgets
        self._document: dict[str, Any] | None = None
        self._verdicts: dict[str, bool] = {}
        self._asking: Session | None = None  # whose filters are being evaluated, and what they have left
        self._left = 0
        self._is_over = False

    def passes(self, expression: Filter, session: Session) -> bool:
        """Whether the expression is true for the message. One that fails is not; a message that cannot be judged within the
        session's budget passes, so that it is not lost."""
        verdict = self._verdicts.get(expression.text)
        if verdict is None:
            verdict = self._evaluated(expression) if expression.is_cheap else None
            if verdict is None:
                verdict = self._within_budget(expression, session)
        return verdict

    def _evaluated(self, expression: Filter) -> bool | None:
        try:
            verdict = expression.accepts(self._read(), BUDGET_MINIMUM)
        except FilterTooCostly:
            return None
        except FilterFailed:
            verdict = self._failed()
        self._verdicts[expression.text] = verdict
        return verdict

    def _within_budget(self, expression: Filter, session: Session) -> bool:
        if self._asking is not session:
            self._asking = session
            self._left = self._budgets.allowance(session)
            self._is_over = False
        allowed = self._left
        is_judged = True
        try:
            verdict = expression.accepts(self._read(), allowed)
        except FilterTooCostly:
            if not self._is_over:
                self._is_over = True
                self._budgets.exceeded(session, expression, self.channel.name)
            verdict, is_judged = True, allowed == MAX_STEPS  # with more to spend, another session may judge it
        except FilterFailed:
            verdict = self._failed()
        self._left -= expression.spent
        self._budgets.spend(session, expression.spent)
        if is_judged:
            self._verdicts[expression.text] = verdict
        return verdict

    def _failed(self) -> bool:
        self._budgets.metrics.filter_failures += 1
        return False

    def _read(self) -> dict[str, Any]:
        if self._document is None:
            self._document = {
                "data": reread(self.entry.wire).get("data"),
                "channel": self.channel.name,
                "clientProperties": reread(self.qos).get("clientProperties", {}) if self.qos else {},
                "sender": self.sender,
            }
        return self._document
