"""Subscriptions that the server ends: a filter takes more than its budget.

The message that could not be judged is delivered, and then the subscription ends. Its session gets a notice of that behind its
queue; the notice is kept in the store like the notice that a topic was erased.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from functools import partial
from typing import Final

from crewel.bayeux.codec import encode
from crewel.broker.mailboxes.notices import Failure, Notices
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.subscriptions.subscribers import Subscribers, Waiting
from crewel.qos.filters import Filter

log = logging.getLogger(__name__)

TOO_COSTLY: Final = "resource.exhaust"
_SHOWN: Final = 20
"""Warnings in a minute: one client may have thousands of sessions."""
_QUIET_S: Final = 60.0
_LONGEST: Final = 200
"""Characters of a filter that are shown."""


class SubscriptionFailures:
    """Ends them, and lets their sessions know."""

    def __init__(self, runtime: Runtime, subscribers: Subscribers) -> None:
        self._loop = runtime.loop
        self._turns = runtime.turns
        self._quiet_until = 0.0
        self._reported = 0
        self._metrics = runtime.metrics
        self._subscribers = subscribers
        self._ending: dict[tuple[Session, str], Failure] = {}

    def exceeded(self, session: Session, pattern: str, expression: Filter, allowed: int, budget: str) -> None:
        """A filter of the subscription cannot judge a message with the steps that it was allowed: the subscription ends."""
        self._metrics.filters_over_budget += 1
        if (session, pattern) in self._ending:
            return
        message = (
            f"the subscription has ended, its filter is too expensive: a message on {pattern} takes more than {allowed} steps,"
            f" and allowed are {budget}: {expression.text[:_LONGEST]}"
        )
        self._ending[session, pattern] = {"errorCode": TOO_COSTLY, "message": message}
        # This message is being handed out at the moment, and has to reach the session by the subscription.
        address = session.account.name if session.account is not None else None
        self._turns.later(address, partial(self._end, session, pattern))

    def _end(self, session: Session, pattern: str) -> None:
        failure = self._ending[session, pattern]
        if not session.is_live or pattern not in session.subscriptions:
            del self._ending[session, pattern]
            return
        waiting = self._subscribers.of(session).part(pattern, ends=True, tells=True, why=encode(failure).decode())

        def ended(done: Waiting) -> None:
            del self._ending[session, pattern]
            # A subscription that the store could not end continues, until the next message cannot be judged.
            if done is None or not (done.cancelled() or done.exception()):
                self._report(session, pattern, failure)

        if waiting is None:
            ended(None)
        else:
            waiting.add_done_callback(ended)

    def _report(self, session: Session, pattern: str, failure: Failure) -> None:
        now = self._loop.time()
        if now >= self._quiet_until:
            self._reported, self._quiet_until = 0, now + _QUIET_S
        self._reported += 1
        if self._reported > _SHOWN:
            return
        if self._reported == _SHOWN:
            log.warning("more subscriptions have ended in this minute: crewel_filters_over_budget_total counts them")
            return
        log.warning(
            "a subscription of %s to %s has ended: %s",
            session.name or "an anonymous session",
            pattern,
            failure["message"],
        )

    def unreported(self, session: Session) -> dict[str, Failure]:
        """The subscriptions that have failed, by pattern, of which the session has not settled the notice."""
        return Notices(session.mailbox).failures()

    def has_notices(self, session: Session) -> bool:
        """Whether there are some, or one is about to fail, or a notice of an erased topic waits; at little cost."""
        return bool(self._ending) or session.mailbox.view().has_notices

    def withdraw_erased(self, session: Session, names: Collection[str]) -> None:
        """The session has subscribed to these names again. A notice that has not left yet, that the topic was erased, would
        seem to be about the new subscriptions."""
        if session.mailbox.view().has_notices:
            Notices(session.mailbox).withdraw_erased(names)

    def refusal(self, session: Session, names: Iterable[str]) -> tuple[str, Failure] | None:
        """The session subscribes to these patterns. If it cannot know yet that its subscription to one of them has failed, it
        has to learn that first: a notice would seem to be of the new one. Returns the first such pattern, and `{"errorCode",
        "message"}` of a refusal, once."""
        if not self.has_notices(session):
            return None
        notices = Notices(session.mailbox)
        failures = notices.failures()
        for name in names:
            if why := self._ending.get((session, name)):
                return name, _refusal(why)  # and the notice comes
            why = failures.get(name)
            if why is not None and notices.withdraw_failure(name):
                return name, _refusal(why)
        return None


def _refusal(why: Failure) -> Failure:
    return {**why, "message": f"{why['message']}; subscribe again"}
