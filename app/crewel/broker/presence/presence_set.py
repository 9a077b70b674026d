"""The members of all channels, as one server knows them, and what changes in the eyes of clients.

Each node has its own entries, `OWN` those of this server. A member has one place for each of its sessions, whichever nodes have
announced that. What has changed is computed when the changes are taken: so what returns to what it was is no change.
Pure: no clock, no session, nothing is sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from orjson import Fragment

from crewel.bayeux.channel import PRESENCE
from crewel.bayeux.codec import encode

OWN: Final = ""
"""Stands for this server among the tokens of nodes."""


class PresenceEntry(NamedTuple):
    """One session that is present on one channel."""

    channel: str
    session: str
    """Names the session in the cluster: its name if the store has it, else a random key."""
    member: str
    data: bytes
    """JSON."""
    at: int
    """When the data were set, in microseconds since 1970. A member shows the newest."""
    is_stored: bool
    """Whether the session outlives its node."""


class MemberState(NamedTuple):
    """A member as clients see it."""

    sessions: int
    data: bytes


class Change(NamedTuple):
    """One member has changed."""

    kind: str
    """`join`, `update` or `leave`."""
    member: str
    seen: MemberState | None
    """None: it has left."""

    def as_json(self) -> dict[str, Any]:
        """The change as clients get it."""
        shown: dict[str, Any] = {"change": self.kind, "id": self.member}
        return shown if self.seen is None else shown | _shown(self.seen)


class Changes(NamedTuple):
    """What has changed on one channel."""

    channel: str
    epoch: str
    seq: int
    changes: list[Change]

    def wire(self) -> bytes:
        """The message to the subscribers of the channel of changes."""
        data = {
            "channel": self.channel,
            "epoch": self.epoch,
            "seq": self.seq,
            "changes": [each.as_json() for each in self.changes],
        }
        return encode({"channel": PRESENCE + self.channel, "data": data})


class Members:
    """The members of one channel."""

    __slots__ = ("channel", "epoch", "members", "seq", "sessions", "touched")

    def __init__(self, channel: str, epoch: str) -> None:
        self.channel = channel
        self.epoch = epoch
        self.seq = 0
        """Number of the last message of changes."""
        self.sessions = 0
        """How many sessions are present."""
        self.members: dict[str, dict[str, dict[str, PresenceEntry]]] = {}
        """By id, session and node."""
        self.touched: dict[str, MemberState | None] = {}
        """Members that may have changed since the last message: what clients have seen of them."""

    def seen(self, member: str) -> MemberState | None:
        """The member as clients see it; None if it is not here."""
        sessions = self.members.get(member)
        if sessions is None:
            return None
        newest = max((entry for nodes in sessions.values() for entry in nodes.values()), key=_newness)
        return MemberState(len(sessions), newest.data)

    def listed(self) -> list[dict[str, Any]]:
        """All members, as clients get them: `id`, `sessions` and `data`."""
        listed = []
        for member in self.members:
            seen = self.seen(member)
            assert seen is not None
            listed.append({"id": member, **_shown(seen)})
        return listed

    def touch(self, member: str) -> None:
        """The member is about to change."""
        if member not in self.touched:
            self.touched[member] = self.seen(member)

    def put(self, node: str, entry: PresenceEntry) -> None:
        """This node has this entry."""
        self.touch(entry.member)
        nodes = self.members.setdefault(entry.member, {}).setdefault(entry.session, {})
        self.sessions += not nodes
        nodes[node] = entry

    def take_out(self, node: str, entry: PresenceEntry) -> None:
        """This node has this entry no more."""
        self.touch(entry.member)
        sessions = self.members[entry.member]
        nodes = sessions[entry.session]
        del nodes[node]
        if not nodes:
            self.sessions -= 1
            del sessions[entry.session]
            if not sessions:
                del self.members[entry.member]

    def take_changes(self) -> list[Change]:
        """What clients have not seen yet."""
        touched, self.touched = self.touched, {}
        return [change for member, before in touched.items() if (change := self._change(member, before)) is not None]

    def _change(self, member: str, before: MemberState | None) -> Change | None:
        now = self.seen(member)
        if now == before:
            return None
        return Change("leave" if now is None else "join" if before is None else "update", member, now)


class PresenceSet:
    """All entries, as one server knows them."""

    def __init__(self, life: str) -> None:
        """`life` differs for each life of the server."""
        self._life = life
        self._opened = 0
        self._channels: dict[str, Members] = {}
        self._touched: dict[str, Members] = {}
        self._entries: defaultdict[str, dict[str, dict[str, PresenceEntry]]] = defaultdict(
            dict
        )  # by node, session, channel

    def __iter__(self) -> Iterator[Members]:
        """The channels that have members."""
        return (each for each in self._channels.values() if each.members)

    def on(self, channel: str) -> Members:
        """The members of the channel. Its numbers continue until `forget_unused`."""
        members = self._channels.get(channel)
        if members is None:
            self._opened += 1
            members = self._channels[channel] = Members(channel, f"{self._life}-{self._opened}")
        return members

    def sessions(self, channel: str) -> int:
        """How many sessions are present on the channel."""
        members = self._channels.get(channel)
        return 0 if members is None else members.sessions

    def put(self, node: str, entry: PresenceEntry) -> None:
        """This node has this entry, in place of one of the same session on the same channel."""
        self.take_out(node, entry.session, entry.channel)
        members = self.on(entry.channel)
        members.put(node, entry)
        self._touched[entry.channel] = members
        self._entries[node].setdefault(entry.session, {})[entry.channel] = entry

    def take_out(self, node: str, session: str, channel: str) -> PresenceEntry | None:
        """This node has no entry of this session on this channel any more. Returns the one that it had."""
        sessions = self._entries.get(node, {})
        entry = sessions.get(session, {}).pop(channel, None)
        if entry is not None:
            if not sessions[session]:
                del sessions[session]
            members = self._channels[channel]
            members.take_out(node, entry)
            self._touched[channel] = members
        return entry

    def of_node(self, node: str) -> list[PresenceEntry]:
        """All entries of this node."""
        return [entry for channels in self._entries.get(node, {}).values() for entry in channels.values()]

    def of_session(self, node: str, session: str) -> list[PresenceEntry]:
        """The entries of this session at this node."""
        return list(self._entries.get(node, {}).get(session, {}).values())

    def nodes(self) -> list[str]:
        """The tokens of the other nodes that have entries."""
        return [node for node, entries in self._entries.items() if node != OWN and entries]

    def replace(self, node: str, entries: Iterable[PresenceEntry]) -> None:
        """This node has these entries, and no others."""
        kept = {(each.session, each.channel): each for each in entries}
        for each in self.of_node(node):
            if (each.session, each.channel) not in kept:
                self.take_out(node, each.session, each.channel)
        for each in kept.values():
            self.put(node, each)
        if not self._entries[node]:
            del self._entries[node]

    def take_changes(self) -> list[Changes]:
        """What clients have not seen yet, by channel; each has its number from now on."""
        touched, self._touched = self._touched, {}
        taken = []
        for members in touched.values():
            if changes := members.take_changes():
                members.seq += 1
                taken.append(Changes(members.channel, members.epoch, members.seq, changes))
        return taken

    def forget_unused(self, is_watched: Callable[[str], bool]) -> None:
        """Forget the numbers of channels without members that are not watched."""
        for name in [name for name, each in self._channels.items() if not each.members and not each.touched]:
            if not is_watched(name):
                del self._channels[name]


def _newness(entry: PresenceEntry) -> tuple[int, str]:
    return entry.at, entry.session


def _shown(seen: MemberState) -> dict[str, Any]:
    return {"sessions": seen.sessions, "data": Fragment(seen.data)}
