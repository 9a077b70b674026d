"""Messages as sessions get them that receive their origin: the one encoding that all share, and what is each session's own."""

from __future__ import annotations

from dataclasses import dataclass

from crewel.bayeux.channel import parse
from crewel.broker.mailboxes.expiry import Expiry
from crewel.broker.mailboxes.timers import Timers
from crewel.broker.mailboxes.unsendable import dead_letter_unsendable
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


@dataclass(eq=False)
class Updates:
    """Encodes what leaves for such sessions."""

    _runtime: Runtime
    _timers: Timers
    _expiry: Expiry

    def __post_init__(self) -> None:
        self._loop = self._runtime.loop
        self._node = self._runtime.settings.node.name

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
        self._timers.at(session, next_at)
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
