"""One message that filters are asked about, and what the filters of a session, an address and a subject may cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson

from crewel.bayeux.channel import Channel
from crewel.broker.admission.limiter import FILTER_RATE, FILTERS
from crewel.broker.payers import charged
from crewel.broker.session import Session
from crewel.delivery.entry import Entry
from crewel.limits import Account
from crewel.metrics import Metrics
from crewel.qos.filters import (
    ACCOUNT_MINIMUM,
    ACCOUNT_RATE,
    ACCOUNT_STEPS,
    BUDGET_MINIMUM,
    BUDGET_RATE,
    MAX_STEPS,
    Filter,
    FilterBudget,
    FilterFailed,
    FilterTooCostly,
)

_OF_MESSAGE: Final = f"{MAX_STEPS} for a message"
_OF_SESSION: Final = f"{BUDGET_RATE} a second for a session"
_OF_ACCOUNT: Final = (
    f"{ACCOUNT_STEPS} for a message and {ACCOUNT_RATE} a second for all sessions of one address or subject"
)

Exceeded = Callable[[Session, str, Filter, int, str], None]
"""Called with the session, the pattern of its subscription, the filter, how many steps that was allowed, and the budget that it
is beyond in words."""


class Budgets:
    """What filters may cost. Sessions whose filters are conditions have no budget: they need none."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        self.metrics = metrics
        self._clock = clock
        self._of: dict[Session, FilterBudget] = {}

    def of_session(self, session: Session) -> int:
        """The steps that the session's filters may take for one message."""
        now = self._clock()
        budget = self._of.get(session)
        if budget is None:
            budget = self._of[session] = FilterBudget(now)
        return budget.allowance(now)

    def of_account(self, account: Account) -> int:
        """The steps that the filters of all its sessions may take for one message."""
        now = self._clock()
        available = account.bucket(FILTERS, FILTER_RATE, now).available(FILTER_RATE, now)
        return max(ACCOUNT_MINIMUM, min(ACCOUNT_STEPS, available))

    def spend(self, session: Session, accounts: tuple[Account, ...], steps: int) -> None:
        """The session's filters have taken so many."""
        self._of[session].spend(steps)
        for account in accounts:
            account.bucket(FILTERS, FILTER_RATE, self._clock()).spend(steps)

    def forget(self, session: Session) -> None:
        """The session has ended."""
        self._of.pop(session, None)


class FilterContext:
    """One message that sessions with filters are asked about: it is read once, and each expression is evaluated once, however
    many sessions have it. `exceeded` is called with each session whose filter cannot judge it within the budgets."""

    __slots__ = (
        "_asking",
        "_budgets",
        "_document",
        "_exceeded",
        "_left",
        "_left_of",
        "_verdicts",
        "channel",
        "entry",
        "qos",
        "sender",
    )

    def __init__(
        self, channel: Channel, entry: Entry, sender: str, qos: bytes, budgets: Budgets, exceeded: Exceeded
    ) -> None:
        self.channel = channel
        self.entry = entry
        self.sender = sender
        self.qos = qos
        self._budgets = budgets
        self._document: dict[str, Any] | None = None
        self._exceeded = exceeded
        self._verdicts: dict[bytes, bool | None] = {}  # by form; None: no session's budget suffices
        self._asking: Session | None = None  # whose filters are being evaluated, and what they have left
        self._left = 0
        self._left_of: dict[Account, int] = {}

    def passes(self, expression: Filter, session: Session, pattern: str) -> bool:
        """Whether the expression, of the session's subscription to this pattern, is true for the message. One that fails is
        not. A message that cannot be judged within the budgets of the session and its accounts passes, so that it is not
        lost, and the subscription fails."""
        if expression.form in self._verdicts:
            verdict = self._verdicts[expression.form]
            if verdict is None:
                self._exceeded(session, pattern, expression, MAX_STEPS, _OF_MESSAGE)
                return True
            return verdict
        verdict = self._evaluated(expression) if expression.is_cheap else None
        return self._within_budget(expression, session, pattern) if verdict is None else verdict

    def _evaluated(self, expression: Filter) -> bool | None:
        try:
            verdict = expression.accepts(self._read(), BUDGET_MINIMUM)
        except FilterTooCostly:
            return None
        except FilterFailed:
            verdict = self._failed()
        self._verdicts[expression.form] = verdict
        return verdict

    def _within_budget(self, expression: Filter, session: Session, pattern: str) -> bool:
        if self._asking is not session:
            self._asking = session
            self._left = self._budgets.of_session(session)
        accounts = tuple(charged(session))
        shared = min(map(self._of_account, accounts), default=MAX_STEPS)
        allowed = min(self._left, shared)
        verdict: bool | None
        try:
            verdict = expression.accepts(self._read(), allowed)
        except FilterTooCostly:
            budget = _OF_ACCOUNT if shared < self._left else _OF_MESSAGE if allowed == MAX_STEPS else _OF_SESSION
            self._exceeded(session, pattern, expression, allowed, budget)
            verdict = None
        except FilterFailed:
            verdict = self._failed()
        self._left -= expression.spent
        for account in accounts:
            self._left_of[account] -= expression.spent
        self._budgets.spend(session, accounts, expression.spent)
        if verdict is not None or allowed == MAX_STEPS:  # with more to spend, another session may judge it
            self._verdicts[expression.form] = verdict
        return verdict is not False

    def _of_account(self, account: Account) -> int:
        left = self._left_of.get(account)
        if left is None:
            left = self._left_of[account] = self._budgets.of_account(account)
        return max(left, 0)

    def _failed(self) -> bool:
        self._budgets.metrics.filter_failures += 1
        return False

    def _read(self) -> dict[str, Any]:
        if self._document is None:
            self._document = {
                "data": orjson.loads(self.entry.wire).get("data"),
                "channel": self.channel.name,
                "clientProperties": orjson.loads(self.qos).get("clientProperties", {}) if self.qos else {},
                "sender": self.sender,
            }
        return self._document
