"""The members of each chat room, with their names.

A table and its bounds. It knows no session object and sends nothing: sessions are their ids,
and what follows from a change is the caller's to tell.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much the table may hold; what goes beyond is refused."""

    rooms: int = 1000
    members: int = 500
    rooms_per_session: int = 16


class Rooms:
    """The members of each room, in the order they came. A room exists while somebody is in it."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._rooms: dict[str, dict[str, str]] = {}
        self._visits: dict[str, set[str]] = {}

    def has_place(self, room: str, session_id: str) -> bool:
        """Tell whether the session is in the room, or may still enter it."""
        members = self._rooms.get(room)
        if members is None:
            return len(self._rooms) < self._bounds.rooms and self._may_visit(session_id)
        if session_id in members:
            return True
        return len(members) < self._bounds.members and self._may_visit(session_id)

    def enter(self, room: str, session_id: str, name: str) -> bool:
        """Note the session as a member called `name`; tell whether that changed the list of names.

        Several sessions may use one name: a person with two windows, or one whose old window has
        not expired yet. The list shows the name once.
        """
        before = self.names(room)
        self._rooms.setdefault(room, {})[session_id] = name
        self._visits.setdefault(session_id, set()).add(room)
        return self.names(room) != before

    def leave(self, room: str, session_id: str) -> str | None:
        """Take the session out of the room; return the name it had there, None if it was not in."""
        members = self._rooms.get(room, {})
        name = members.pop(session_id, None)
        if name is None:
            return None
        if not members:
            del self._rooms[room]
        visited = self._visits[session_id]
        visited.discard(room)
        if not visited:
            del self._visits[session_id]
        return name

    def visited_by(self, session_id: str) -> list[str]:
        """Return the rooms the session is in."""
        return sorted(self._visits.get(session_id, ()))

    def names(self, room: str) -> list[str]:
        """Return the names in the room, each once, oldest member first."""
        return list(dict.fromkeys(self._rooms.get(room, {}).values()))

    def name_of(self, room: str, session_id: str) -> str | None:
        """Return the name of the session in the room, None if it is not a member."""
        return self._rooms.get(room, {}).get(session_id)

    def sessions_in(self, room: str) -> list[str]:
        """Return the sessions in the room, oldest member first."""
        return list(self._rooms.get(room, {}))

    def sessions_named(self, room: str, names: Iterable[str]) -> list[str]:
        """Return the sessions that go by one of `names` in the room."""
        wanted = set(names)
        return [session for session, name in self._rooms.get(room, {}).items() if name in wanted]

    def _may_visit(self, session_id: str) -> bool:
        return len(self._visits.get(session_id, ())) < self._bounds.rooms_per_session
