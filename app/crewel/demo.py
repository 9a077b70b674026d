"""The server half of the chat at /chat/, on the channels of CometD's own chat demo.

Clients publish and subscribe /chat/<room> directly. This half keeps the members of each room (/service/members), broadcasts
their names on /members/<room>, and carries private messages (/service/privatechat). What a client sends is checked here and
refused whole if it is not as it should be. Texts are passed on as they are, for it is the page that must not take them for
markup.

Members of rooms are in memory only. After a restart of the server the store brings sessions back, with their subscriptions, and
the rooms are empty. Each page joins again when its connection comes back, or when it receives a list that it is not in. To join
twice changes nothing.

`Rooms` is the table of members and its bounds. It knows no session object and sends nothing: sessions are their ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from crewel import Message, Service, Session
from crewel.bayeux.channel import Channel
from crewel.security.policy import GRANT, Deny, Operation, Verdict

MAX_NAME = 64
"""Characters of a member's name."""
MAX_TEXT = 4000
"""Characters of a private message."""
MAX_PEERS = 32
"""Addressees of one private message."""

_ROOM = re.compile(r"/chat/([A-Za-z0-9_.~-]{1,64})")


@dataclass(frozen=True, slots=True)
class Membership:
    """A valid publish on /service/members."""

    room: str
    user: str
    leaves: bool

    @classmethod
    def read(cls, data: Any) -> Membership | None:
        """Return what `{"user", "room", "membership"?}` says, None if it is not that."""
        if not isinstance(data, dict):
            return None
        room, user = read_room(data.get("room")), read_name(data.get("user"))
        if room is None or user is None:
            return None
        return cls(room, user, data.get("membership") == "leave")


@dataclass(frozen=True, slots=True)
class Whisper:
    """A valid publish on /service/privatechat."""

    room: str
    user: str
    chat: str
    peers: tuple[str, ...]

    @classmethod
    def read(cls, data: Any) -> Whisper | None:
        """Return what `{"room", "user", "chat", "peer": "a,b"}` says, None if it is not that."""
        if not isinstance(data, dict):
            return None
        room, user = read_room(data.get("room")), read_name(data.get("user"))
        chat, peers = data.get("chat"), read_peers(data.get("peer"))
        if room is None or user is None or peers is None:
            return None
        if not isinstance(chat, str) or not 0 < len(chat) <= MAX_TEXT:
            return None
        return cls(room, user, chat, peers)


def read_room(value: Any) -> str | None:
    """Return the room that a channel like `/chat/demo` names, None for anything else."""
    match = _ROOM.fullmatch(value) if isinstance(value, str) else None
    return match[1] if match else None


def read_name(value: Any) -> str | None:
    """Return a member's name; None if it is no text, empty, too long, or could not be addressed."""
    if not isinstance(value, str) or len(value) > MAX_NAME:
        return None
    name = value.strip()
    return name if name and "," not in name and name.isprintable() else None


def read_peers(value: Any) -> tuple[str, ...] | None:
    """Return the names in `joe,sue`, each once; None if one is no name or they are too many."""
    if not isinstance(value, str) or len(value) > MAX_PEERS * (MAX_NAME + 2):
        return None
    names = tuple(dict.fromkeys(read_name(part) for part in value.split(",")))
    if None in names or len(names) > MAX_PEERS:
        return None
    return tuple(name for name in names if name is not None)


class Chat:
    """The chat's listeners, bound to one service and one table of rooms."""

    def __init__(self, service: Service, rooms: Rooms) -> None:
        self._service = service
        self._rooms = rooms

    def members(self, session: Session, message: Message) -> bool:
        """Enter or leave a room; refuse what is malformed or beyond the bounds."""
        membership = Membership.read(message.data)
        if membership is None:
            return False
        if membership.leaves:
            self._leave(membership.room, session.id)
            return True
        self._take_out_the_lost(membership.room)
        if not self._rooms.has_place(membership.room, session.id):
            return False
        if self._rooms.enter(membership.room, session.id, membership.user):
            self._tell_names(membership.room)
        else:
            # Nothing new for the others, but the asker may have missed the last list.
            names = self._rooms.names(membership.room)
            session.deliver(f"/members/{membership.room}", names)
        return True

    def whisper(self, session: Session, message: Message) -> bool:
        """Bring a private message to the named members of the room and back to its sender."""
        whisper = Whisper.read(message.data)
        if whisper is None:
            return False
        channel = f"/chat/{whisper.room}"
        receivers = self._rooms.sessions_named(whisper.room, whisper.peers)
        user = self._rooms.name_of(whisper.room, session.id) or whisper.user
        data = {"chat": whisper.chat, "user": user, "scope": "private", "peer": ",".join(whisper.peers)}
        for receiver in dict.fromkeys([*receivers, session.id]):
            self._deliver(receiver, channel, data)
        self._tell_unknown(session, whisper)
        return True

    def authorize(self, operation: Operation, channel: Channel, session: Session, message: Message) -> Verdict | Deny:
        """Let clients receive the lists of members, but not make them up."""
        return Deny("members_are_told_by_the_server") if operation is Operation.PUBLISH else GRANT

    def gone(self, session: Session, expired: bool) -> None:
        """Take a session that ended out of all its rooms, and announce it for one that could not."""
        for room in self._rooms.visited_by(session.id):
            name = self._leave(room, session.id)
            if expired and name is not None:
                text = f"{name} has gone silent"
                notice = {"user": name, "membership": "leave", "chat": text}
                self._service.publish(f"/chat/{room}", notice)

    def _take_out_the_lost(self, room: str) -> None:
        """A session that the store has lost, or whose client continues under another clientId, ends without a message."""
        for session_id in self._rooms.sessions_in(room):
            if self._service.broker.session(session_id) is None:
                self._leave(room, session_id)

    def _leave(self, room: str, session_id: str) -> str | None:
        name = self._rooms.leave(room, session_id)
        if name is not None:
            self._tell_names(room)
        return name

    def _tell_names(self, room: str) -> None:
        self._service.publish(f"/members/{room}", self._rooms.names(room))

    def _tell_unknown(self, session: Session, whisper: Whisper) -> None:
        known = self._rooms.names(whisper.room)
        missing = [name for name in whisper.peers if name not in known]
        if missing:
            text = f"Nobody here is called {', '.join(missing)}"
            notice = {"chat": text, "user": "server", "scope": "error"}
            session.deliver(f"/chat/{whisper.room}", notice)

    def _deliver(self, session_id: str, channel: str, data: dict[str, str]) -> None:
        receiver = self._service.broker.session(session_id)
        if receiver is not None:
            receiver.deliver(channel, data)


def chat_service() -> Service:
    """Return the chat as a service, with rooms of its own, ready to be installed in a server."""
    service = Service("chat")
    chat = Chat(service, Rooms())
    service.listener("/service/members")(chat.members)
    service.listener("/service/privatechat")(chat.whisper)
    service.authorizer("/members/*")(chat.authorize)
    service.on_session_removed(chat.gone)
    return service


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much the table may hold; what goes beyond is refused."""

    rooms: int = 1000
    members: int = 500
    rooms_per_session: int = 16


class Rooms:
    """The members of each room, in the order they came. A room exists while someone is in it."""

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
