"""Messages as they leave. Those of sessions that receive their origin have one encoding that all share, and what is each
session's own."""

from __future__ import annotations

from dataclasses import dataclass

from crewel.bayeux.channel import parse
from crewel.broker.mailboxes.expiry import Expiry
from crewel.broker.mailboxes.timers import Timers
from crewel.broker.mailboxes.unsendable import dead_letter_unsendable
from crewel.broker.pipe import Pipe
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session, SessionPart
from crewel.delivery.entry import Entry
from crewel.qos.names import group_of


@dataclass(eq=False)
class OnewayUpdates(SessionPart):
    """Adds the origin to the messages of a session that acknowledges nothing (updateOneway)."""

    _updated: set[Session]
    _expiry: Expiry
    _node: str
    """The name of this node."""

    def send(self, session: Session, entries: list[Entry]) -> list[Entry]:
        """The messages with `ext.update`, in the encoding that all receivers share. A message
        that cannot be encoded so is dropped: the session sends no status for it."""
        if session not in self._updated:
            return entries  # a later login of the session has not asked for it
        now_ms = self._expiry.now() // 1000
        encoded = []
        for entry in entries:
            try:
                has_origin = entry.origin is not None
                subscription = _subscription(session, entry.channel, "")
                encoded.append(entry.updated_copy(subscription, now_ms, self._node) if has_origin else entry)
            except Exception as error:  # noqa: BLE001 - one message that cannot be encoded must not block those behind it
                dead_letter_unsendable(session, entry, error)
        return encoded


class Departures:
    """The messages of responses, ready for the wire."""

    def __init__(self, runtime: Runtime, pipe: Pipe, timers: Timers, expiry: Expiry) -> None:
        self.pipe = pipe
        self.timers = timers
        self._expiry = expiry
        self._loop = runtime.loop
        self._metrics = runtime.metrics
        self._settings = runtime.settings.bayeux
        self._node = runtime.settings.node.name

    def take(self, session: Session) -> list[bytes]:
        """Return the messages that leave now."""
        mailbox = session.mailbox
        entries = taken = mailbox.take(self._settings.max_response_bytes, session.asked.burst)
        if not entries:
            return []
        try:
            if session.has_senders:
                entries = self.pipe.departing(session, entries)
            count = len(entries)
            self._metrics.deliveries += count
            if mailbox.tells:
                return self.encode(session, entries)
            return [entries[0].wire] if count == 1 else [entry.wire for entry in entries]
        except Exception as error:  # noqa: BLE001 - what fails once would fail at each connect
            for entry in taken:
                dead_letter_unsendable(session, entry, error)
            return []

    def encode(self, session: Session, entries: list[Entry]) -> list[bytes]:
        """These messages leave in one response: their JSON. Messages that have no id of their own, such as the answer to a
        remote call, stay as they are: no status can be reported for them."""
        now, now_ms = self._loop.time(), self._expiry.now() // 1000
        size, attempts, next_at = session.mailbox.told(entries, now)
        parts = []
        failed: list[tuple[Entry, Exception]] = []
        for index, entry in enumerate(entries):
            if entry.origin is None:
                parts.append(entry.wire)
                continue
            redeliver, source = attempts[index]
            try:
                subscription, flush = _subscription(session, entry.channel, source), (index, size)
                parts.append(entry.updated(subscription, redeliver, flush if size else None, now_ms, self._node))
            except Exception as error:  # noqa: BLE001 - one message that cannot be encoded must not block those behind it
                failed.append((entry, error))
        for entry, cause in failed:
            dead_letter_unsendable(session, entry, cause)
        self.timers.at(session, next_at)
        return parts


def _subscription(session: Session, name: str, source: str) -> str:
    """The pattern by which the session receives from the channel, or that of its group if it has the message from there. Empty
    if the pattern is the channel itself, or if the message was sent without a subscription."""
    group = group_of(source) if source else None
    if group is not None:
        return group[0] if group[0] != name else ""
    if name in session.subscriptions:
        return ""
    channel = parse(name)
    patterns = () if channel is None else channel.patterns
    return next((pattern for pattern in patterns if pattern in session.subscriptions), "")
