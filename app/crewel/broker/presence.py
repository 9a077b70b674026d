"""Who comes and goes: what operators receive on `/__sys__Login`, `/__sys__Logout` and `/__sys__UserList`.

Only sessions with a name of their own appear. A client that comes back to its session has not been away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from crewel.bayeux.channel import parse
from crewel.bayeux.codec import encode
from crewel.bayeux.message import Fields
from crewel.broker.channels import Channels
from crewel.broker.ids import Ids
from crewel.broker.names import Names
from crewel.broker.outbox.outbound import Outbound
from crewel.broker.registry import Registry
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.delivery.entry import Entry
from crewel.qos.names import ANONYMOUS, parse_name
from crewel.qos.update import Origin

LOGIN: Final = "/__sys__Login"
"""The subject whose session has logged in is the data."""
LOGOUT: Final = "/__sys__Logout"
"""The subject whose session has ended is the data."""
USER_LIST: Final = "/__sys__UserList"
"""All subjects that are there, in their order, whenever these are others than before."""


@dataclass(eq=False)
class Presence:
    """Tells the operators of one broker."""

    _runtime: Runtime
    _channels: Channels
    _outbound: Outbound
    _registry: Registry
    _ids: Ids
    _names: Names

    def __post_init__(self) -> None:
        self._system = {name: channel for name in (LOGIN, LOGOUT, USER_LIST) if (channel := parse(name)) is not None}
        self._registry.session_removed.append(self._removed)

    def logged_in(self, session: Session) -> None:
        """A new session has its name."""
        self._notify(session, LOGIN, is_here=True)

    def _removed(self, session: Session, _timed_out: bool) -> None:
        if session.name:
            self._notify(session, LOGOUT, is_here=False)

    def _notify(self, session: Session, channel: str, *, is_here: bool) -> None:
        """A session has come, or goes just now."""
        name = parse_name(session.name)
        if name is None or name.subject == ANONYMOUS:
            return
        if listening := self._listening(channel, session):
            absolute = name.absolute(self._runtime.settings.node.name)
            properties = {"__publicSessionId": name.number, "__absoluteName": absolute}
            self._publish(listening, channel, name.subject, properties)
        names = self._names
        if any(other is not session for other in names.of_subject(name.subject)):
            return
        if listening := self._listening(USER_LIST, session):
            present = [each for each in names.subjects() if each != ANONYMOUS and (is_here or each != name.subject)]
            self._publish(listening, USER_LIST, present, {})

    def _listening(self, channel: str, about: Session) -> list[Session]:
        """The operators that receive the channel and have room: no queue overflows for this."""
        most = self._runtime.settings.bayeux.max_queue_messages
        return [
            session
            for session in self._channels.subscribers(self._system[channel])
            if session.is_operator and session is not about and session.room(most)
        ]

    def _publish(self, listening: list[Session], channel: str, data: Any, properties: Fields) -> None:
        fields: Fields = {"channel": channel, "data": data}
        if not self._outbound.pipe.send(None, fields):
            return
        # Every receiver gets this, whether or not its session asked for it.
        origin = Origin(*self._ids.stamp(), qos=encode({"clientProperties": properties}) if properties else b"")
        self._outbound.fan_out(Entry.with_origin(fields, origin), listening, None)
