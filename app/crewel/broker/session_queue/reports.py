"""What mailboxes report, and who gets it: the commits of the node, the counters, and the ids of new dead letters."""

from __future__ import annotations

from dataclasses import dataclass

from crewel.broker.durability.access import StoreAccess
from crewel.broker.ids import Ids
from crewel.broker.runtime import Runtime
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry
from crewel.delivery.records import EndReason, Transient
from crewel.qos.update import Origin


@dataclass(eq=False)
class MailboxReports:
    """The listener of all mailboxes of a broker (`MailboxListener`)."""

    _runtime: Runtime
    _access: StoreAccess
    _ids: Ids

    def has_changed(self, durable: DurableSession) -> None:
        """The next commit has to look at this session."""
        self._access.node.mark_dirty(durable)

    def transients_ended(self, reason: EndReason, count: int) -> None:
        """So many messages that the store does not have ended in this way, of a session that acknowledges."""
        self._runtime.metrics.ended[reason] += count

    def left_no_letter(self) -> None:
        """A message ended that should have become a dead letter, and cannot become one."""
        self._runtime.metrics.dropped["noLetter"] += 1

    def as_transient(self, entry: Entry) -> Transient:
        """A message that the store does not have, as the record of its dead letter holds it."""
        origin = entry.origin or Origin(*self._ids.stamp())
        return Transient(origin.id, origin.received, entry.channel, entry.wire, origin.sender, origin.qos)
