"""Timestamps: every message that leaves says when it left."""

from __future__ import annotations

from email.utils import formatdate

from crewel.bayeux.message import Fields, Message
from crewel.broker.session import Session
from crewel.extension import Extension


class TimestampExtension(Extension):
    """Sets the top-level `timestamp` of deliveries, acknowledgements and meta replies, in the form of the browser's half
    (`Fri, 20 Nov 2026 07:00:07 GMT`)."""

    name = "timestamp"

    def send(self, session: Session | None, fields: Fields) -> bool:
        """Stamp a delivery or the acknowledgement of a publish."""
        fields["timestamp"] = formatdate(usegmt=True)
        return True

    def send_meta(self, session: Session | None, reply: Fields, message: Message) -> bool:
        """Stamp a meta reply when it leaves."""
        reply["timestamp"] = formatdate(usegmt=True)
        return True
