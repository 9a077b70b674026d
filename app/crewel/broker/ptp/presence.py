"""Who comes and goes: what operators hear on `/__sys__Login`, `/__sys__Logout` and `/__sys__UserList`.

Only sessions with a name of their own are told of. Someone who comes back to its session has not been away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from crewel.bayeux.channel import parse
from crewel.bayeux.codec import encode
from crewel.bayeux.message import Fields
from crewel.broker.sessions import Session
from crewel.delivery.entry import Entry
from crewel.qos.names import ANONYMOUS, parse_name
from crewel.qos.update import Origin

if TYPE_CHECKING:
    from crewel.broker.broker import Broker

LOGIN: Final = "/__sys__Login"
"""The subject whose session has logged in is the data."""
LOGOUT: Final = "/__sys__Logout"
"""The subject whose session has ended is the data."""
USER_LIST: Final = "/__sys__UserList"
"""All subjects that are there, in their order, whenever these are others than before."""


class Presence:
    """Tells the operators of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._channels = {name: channel for name in (LOGIN, LOGOUT, USER_LIST) if (channel := parse(name)) is not None}
        broker.registry.session_removed.append(self._removed)

    def logged_in(self, session: Session) -> None:
        """A new session has its name."""
        self._tell(session, LOGIN, is_here=True)

    def _removed(self, session: Session, _timed_out: bool) -> None:
        if session.name:
            self._tell(session, LOGOUT, is_here=False)

    def _tell(self, session: Session, channel: str, *, is_here: bool) -> None:
        """A session has come, or goes just now."""
        name = parse_name(session.name)
        if name is None or name.subject == ANONYMOUS:
            return
        if listening := self._listening(channel, session):
            absolute = name.absolute(self._broker.settings.node.name)
            properties = {"__publicSessionId": name.number, "__absoluteName": absolute}
            self._publish(listening, channel, name.subject, properties)
        names = self._broker.logins.names
        if any(other is not session for other in names.of_subject(name.subject)):
            return
        if listening := self._listening(USER_LIST, session):
            others = {*names.subjects()} - {name.subject}
            self._publish(listening, USER_LIST, sorted(others | {name.subject} if is_here else others), {})

    def _listening(self, channel: str, about: Session) -> list[Session]:
        """The operators that hear the channel and have room: no queue overflows for this."""
        most = self._broker.settings.bayeux.max_queue_messages
        return [
            session
            for session in self._broker.channels.subscribers(self._channels[channel])
            if session.is_operator and session is not about and session.room(most)
        ]

    def _publish(self, listening: list[Session], channel: str, told: Any, properties: Fields) -> None:
        broker = self._broker
        fields: Fields = {"channel": channel, "data": told}
        if not broker.outbound.pipe.send(None, fields):
            return
        entry = Entry(fields)
        # Everybody who hears it is told this, whether or not the session asked for it.
        entry.origin = Origin(*broker.ids.stamp(), qos=encode({"clientProperties": properties}) if properties else b"")
        entry.wire = entry.updated()
        broker.outbound.fan_out(entry, listening, None)
