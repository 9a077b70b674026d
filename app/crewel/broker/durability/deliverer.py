"""From a message that the engine has taken for a session to the queue of the session: past its filters, as room is left."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

from crewel.bayeux.channel import Channel
from crewel.broker.mailboxes.outbound import Outbound
from crewel.broker.session import Session
from crewel.broker.subscriptions.options import MatchResult, SubscriptionOptions
from crewel.broker.writing.store_access import StoreAccess
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry
from crewel.delivery.records import EndReason
from crewel.fair_turns import PORTION_S

LogMessage = tuple[Channel, Entry, Session | None, str, str, bytes]
"""A message of the log: its channel, what is queued, the publisher, which does not receive it, the name of the session that
does not either, its sender, and qualities."""


class Deliverer:
    """Hands messages of the log to sessions that the store has."""

    def __init__(self, access: StoreAccess, outbound: Outbound, options: SubscriptionOptions) -> None:
        self._access = access
        self._outbound = outbound
        self._options = options

    def hand_over(self, durable: DurableSession, message: LogMessage) -> None:
        """Hand a message to a session, if it has no filter that says otherwise."""
        filtered = self._options.filtered
        if filtered and durable.connected in filtered:
            self._choose(durable, message)
        else:
            self.deliver(durable, message[1], message[3])

    def hand_over_rest(self, durables: list[DurableSession], message: LogMessage) -> Iterator[None]:
        """Hand a message to many sessions, a few at a time. By now one may have ended, or the message may have ended for it."""
        step, at = self._outbound.fan_outs.step, 0
        while at < len(durables):
            at = self.hand_over_some(durables, range(at, min(at + step, len(durables))), message, is_late=True)
            yield

    def hand_over_some(
        self, durables: list[DurableSession], places: range, message: LogMessage, *, is_late: bool = False
    ) -> int:
        """Hand a message to the sessions at these places, as far as a portion of this turn reaches with their filters; the
        place of the next."""
        entry, excluded = message[1], message[3]
        filtered, until = self._options.filtered, 0.0
        for at in places:
            durable = durables[at]
            if is_late and not is_open(durable, entry):
                continue
            if not (filtered and durable.connected in filtered):
                self.deliver(durable, entry, excluded)
            elif until and perf_counter() >= until:
                return at
            else:
                until = until or perf_counter() + PORTION_S
                self._choose(durable, message)
        return places.stop

    def _choose(self, durable: DurableSession, message: LogMessage) -> None:
        channel, entry, _, excluded, sender, qos = message
        session: Session = durable.connected
        match = self._options.match(session, channel, entry, sender, qos)
        if match is MatchResult.YES:
            self.deliver(durable, entry, excluded)
        elif match is MatchResult.NO or durable.name == excluded:
            self._end(durable, entry, EndReason.FILTERED)
        else:
            self._end(durable, entry)
            self._outbound.enqueue(session, entry.oneway())

    def deliver(self, durable: DurableSession, entry: Entry, excluded: str) -> None:
        """Queue a message for a session, or leave its body in the store while the client is away or on hold. The session of
        the name `excluded` does not receive it."""
        session: Session | None = durable.connected
        if durable.name == excluded:
            self._end(durable, entry, EndReason.FILTERED)
        elif session is not None:  # else it is ending
            self._outbound.enqueue(session, entry)

    def _end(self, durable: DurableSession, entry: Entry, reason: EndReason = EndReason.SETTLED) -> None:
        durable.end_message(entry.position, reason)
        self._access.node.mark_dirty(durable)  # since it was taken, a commit may have stored it as pending


def is_open(durable: DurableSession, entry: Entry) -> bool:
    """Whether the message, which was taken for the session and has not been queued yet, is still open for it. A message
    that the session has not reached yet is open."""
    if durable.is_fenced:
        return False
    record = entry.fan_out_record
    if record is not None and durable.applied_number < record.number:
        return True
    return durable.find(entry.position) is not None
