"""Subscriptions that the server ends: a filter takes more than its budget.

The message that could not be judged is delivered, and then the subscription ends. Its session gets a notice of that behind its
queue; the notice is kept in the store like the notice that a topic was erased.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, Protocol

from crewel.bayeux.codec import encode, reread
from crewel.broker.mailboxes.outbound import Outbound
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.subscriptions.options import SubscriptionOptions
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry, notice_entry
from crewel.delivery.records import LogId, PendingMessage
from crewel.qos.filters import Filter
from crewel.qos.publish import NORMAL
from crewel.qos.update import FAILED

log = logging.getLogger(__name__)

TOO_COSTLY: Final = "resource.exhaust"
_SHOWN: Final = 20
"""Warnings in a minute: one client may have thousands of sessions."""
_QUIET_S: Final = 60.0
_LONGEST: Final = 200
"""Characters of a filter that are shown."""


class StoredSubscriptions(Protocol):
    """The subscriptions of sessions that the store has."""

    def erase(
        self, session: Session, durable: DurableSession, channel: str, *, ends: bool, tells: bool, why: str
    ) -> asyncio.Future[Any]:
        """End the subscription, and send the notice of that."""


class SubscriptionFailures:
    """Ends them, and lets their sessions know."""

    def __init__(
        self,
        runtime: Runtime,
        outbound: Outbound,
        options: SubscriptionOptions,
        subscriptions: StoredSubscriptions,
    ) -> None:
        self._loop = runtime.loop
        self._turns = runtime.turns
        self._quiet_until = 0.0
        self._reported = 0
        self._metrics = runtime.metrics
        self._ids = runtime.ids
        self._outbound = outbound
        self._options = options
        self._access = runtime.access
        self._subscriptions = subscriptions
        self._ending: dict[tuple[Session, str], dict[str, str]] = {}

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
        if session.mailbox.durable is None:
            del self._ending[session, pattern]
            self._options.leave(session, pattern)
            self._notify(session, pattern, encode(failure).decode())
            self._report(session, pattern, failure)
            return

        def ended(done: asyncio.Future[None]) -> None:
            del self._ending[session, pattern]
            # A subscription that the store could not end continues, until the next message cannot be judged.
            if not done.cancelled() and done.exception() is None:
                self._report(session, pattern, failure)

        step = self._subscriptions.erase(
            session, session.mailbox.durable, pattern, ends=True, tells=True, why=encode(failure).decode()
        )
        step.add_done_callback(ended)

    def _notify(self, session: Session, pattern: str, why: str) -> None:
        """The notice of a session that the store does not have."""
        notice = PendingMessage(channel=pattern)
        priorities = [each.priority for each in session.mailbox.in_memory() if notice.is_about(each.channel)]
        notice = notice._replace(priority=min([NORMAL, *priorities]))
        self._outbound.enqueue(session, notice_entry(notice, LogId(0), why, self._ids.stamp()))

    def _report(self, session: Session, pattern: str, failure: dict[str, str]) -> None:
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

    def unreported(self, session: Session) -> dict[str, dict[str, str]]:
        """Pattern -> `{"errorCode", "message"}` of the subscriptions that have failed, of which the session has not settled
        the notice."""
        if session.mailbox.durable is not None:
            waiting = {each.channel for each in session.mailbox.durable.notices.values()}
            return {
                name: reread(why.encode()) for name, why in session.mailbox.durable.failed.items() if name in waiting
            }
        return {
            each.channel: reread(each.wire)["ext"]["subscribe"] for each in session.mailbox.queue if _is_failure(each)
        }

    def has_notices(self, session: Session) -> bool:
        """Whether there are some, or one is about to fail, or a notice of an erased topic waits; at little cost."""
        if self._ending:
            return True
        if session.mailbox.durable is not None:
            return bool(session.mailbox.durable.failed or session.mailbox.durable.notices)
        return any(entry.is_notice for entry in session.mailbox.queue)

    def withdraw_erased(self, session: Session, names: Iterable[str]) -> None:
        """The session has subscribed to these names again. A notice that has not left yet, that the topic was erased, would
        seem to be about the new subscriptions."""
        durable = session.mailbox.durable
        for name in names:
            session.mailbox.drop_where(
                lambda entry: entry.is_notice and entry.channel == name and not _is_failure(entry)  # noqa: B023 - called at once
            )
            if durable is None or name in durable.failed:
                continue
            places = [place for place, each in durable.notices.items() if each.channel == name]
            if any(str(place) in session.mailbox.dispatcher.in_flight for place in places):
                continue  # the client has it
            if places:
                durable.forget_notice(name)
                self._access.node.mark_dirty(durable)

    def refusal(self, session: Session, pattern: str) -> dict[str, str] | None:
        """The session subscribes to this pattern. If it cannot know yet that its subscription to it has failed, it has to
        learn that first, and not by a notice that seems to be of the new one: `{"errorCode", "message"}` of a refusal, once."""
        if why := self._ending.get((session, pattern)):
            return _refusal(why)  # and the notice comes
        why = self.unreported(session).get(pattern)
        if why is None:
            return None
        durable = session.mailbox.durable
        if durable is None:
            session.mailbox.drop_where(lambda entry: _is_failure(entry) and entry.channel == pattern)
        else:
            [place] = [place for place, each in durable.notices.items() if each.channel == pattern]
            if str(place) in session.mailbox.dispatcher.in_flight:
                return None  # its client has it, and knows it if it comes again
            is_unsent = durable.is_evicted(place) or any(entry.position == place for entry in session.mailbox.queue)
            for entry in [each for each in session.mailbox.in_memory() if each.position == place]:
                session.mailbox.take_out(entry)
                session.mailbox.drop(entry)
            durable.forget_notice(pattern)
            self._access.node.mark_dirty(durable)
            if not is_unsent:
                return None
        return _refusal(why)


def _refusal(why: dict[str, str]) -> dict[str, str]:
    return {**why, "message": f"{why['message']}; subscribe again"}


def _is_failure(entry: Entry) -> bool:
    return entry.origin is not None and entry.origin.state == FAILED
