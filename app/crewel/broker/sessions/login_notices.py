"""Notices of logins and logouts: what operators receive on `/__sys__Login`, `/__sys__Logout` and `/__sys__UserList`.

Only sessions with a name of their own appear. A client that comes back to its session has not been away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from crewel.broker.addressing.session_names import Names
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.sessions.operator_channels import OperatorChannels
from crewel.qos.names import ANONYMOUS, parse_name

LOGIN: Final = "/__sys__Login"
"""The subject whose session has logged in is the data."""
LOGOUT: Final = "/__sys__Logout"
"""The subject whose session has ended is the data."""
USER_LIST: Final = "/__sys__UserList"
"""All subjects that are there, in their order, whenever these are others than before."""


@dataclass(eq=False)
class LoginNotices:
    """Tells the operators of one broker."""

    _runtime: Runtime
    _operators: OperatorChannels
    _names: Names

    def __post_init__(self) -> None:
        self._runtime.services.session_removed.append(self._removed)

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
        if listening := self._operators.listening(channel, session):
            absolute = name.absolute(self._runtime.settings.node.name)
            properties = {"__publicSessionId": name.number, "__absoluteName": absolute}
            self._operators.publish(channel, name.subject, listening, properties)
        names = self._names
        if any(other is not session for other in names.of_subject(name.subject)):
            return
        if listening := self._operators.listening(USER_LIST, session):
            present = [each for each in names.subjects() if each != ANONYMOUS and (is_here or each != name.subject)]
            self._operators.publish(USER_LIST, present, listening)
