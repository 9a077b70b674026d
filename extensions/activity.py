"""Activity: a session whose user does nothing for too long is disconnected.

A client connects as long as it lives, so a connect says nothing of its user; every other message does. Set the
time with `activity.max_inactivity_ms`.
"""

from __future__ import annotations

from crewel.bayeux.message import Message
from crewel.broker.broker import Broker
from crewel.broker.session import Session
from crewel.extension import Extension

CONNECT = "/meta/connect"
_LAST_ACTIVITY = "crewel.activity"


class ActivityExtension(Extension):
    """Disconnects a session on the first connect after `activity.max_inactivity_ms` without another message."""

    name = "activity"

    def installed(self, broker: Broker) -> None:
        """Remember the broker, for its clock and its settings."""
        self._broker = broker

    def rcv(self, session: Session | None, message: Message) -> bool:
        """A publish is activity."""
        self._mark(session)
        return True

    def rcv_meta(self, session: Session | None, message: Message) -> bool:
        """So is every meta message but a connect, which only asks how long ago the last one was."""
        if message.channel.name != CONNECT:
            self._mark(session)
        elif session is not None and session.is_live and self._idle(session) > self._max_idle:
            session.disconnect()
        return True

    @property
    def _max_idle(self) -> float:
        return self._broker.settings.activity.max_inactivity_ms / 1000

    def _mark(self, session: Session | None) -> None:
        if session is not None:
            session.attributes[_LAST_ACTIVITY] = self._broker.loop.time()

    def _idle(self, session: Session) -> float:
        now = self._broker.loop.time()
        last: float = session.attributes.setdefault(_LAST_ACTIVITY, now)
        return now - last
