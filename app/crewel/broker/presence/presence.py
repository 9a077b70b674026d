"""The presence of channels at one server: sessions enter and leave, and subscribers get what changes.

`nodes.remote_presence` brings what other nodes announce of their sessions, and announces those that are here.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from crewel.bayeux.channel import PRESENCE, Channel, parse, presence_of
from crewel.broker.addressing.addressing import Addressing
from crewel.broker.presence.presence_bounds import PresenceBounds
from crewel.broker.presence.presence_set import OWN, Members, PresenceEntry, PresenceSet
from crewel.broker.publishing.publishing import Publishing
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.subscriptions.subscriptions import Subscriptions
from crewel.qos.names import ANONYMOUS, parse_name

_MOST_WAITING: Final = 100
"""Messages in the queue of a session beyond which it gets no changes."""


class Left(NamedTuple):
    """One session is not present on one channel any more."""

    channel: str
    session: str


Announcement = PresenceEntry | Left
"""What has changed of the sessions of one node."""


class Presence:
    """The presence of one broker's channels."""

    def __init__(
        self,
        runtime: Runtime,
        addressing: Addressing,
        subscriptions: Subscriptions,
        publishing: Publishing,
    ) -> None:
        self._runtime = runtime
        self._channels, self._broadcaster = addressing.channels, publishing.broadcaster
        self.entries = PresenceSet(secrets.token_hex(4))
        self.on_change: list[Callable[[Sequence[Announcement]], None]] = []
        """Called with what has changed of the sessions here, once in a turn of the event loop."""
        self._bounds = PresenceBounds(runtime, self.entries)
        self._present: dict[str, Session] = {}  # by its key
        self._keys: dict[Session, str] = {}
        self._announced: list[Announcement] = []
        self._behind: dict[Session, set[str]] = {}
        """Sessions that do not get the changes on these channels of changes for the time being."""
        self._is_flushing = False
        runtime.services.session_removed.append(self._removed)
        subscriptions.permissions.on_regrant.append(self._regrant)
        runtime.metrics.gauge("presences", lambda: self._bounds.total)

    # What sessions do

    def enter(self, session: Session, channel: Channel, data: bytes) -> str:
        """Let the session be present on the channel, or replace its data. Returns the id of the member. Raises Limited."""
        key = self._keys.get(session)
        present = {each.channel: each for each in self.entries.of_session(OWN, key)} if key is not None else {}
        former = present.get(channel.name)
        if former is None:
            self._bounds.check(session, len(present), channel.name)
        if key is None:
            key = session.name if session.durable is not None else f"~{secrets.token_hex(8)}"
            self._know(session, key)
        member = former or next(iter(present.values()), None)
        entry = PresenceEntry(
            channel.name,
            key,
            _member(session) if member is None else member.member,
            data,
            self._runtime.clock.microseconds(),
            session.durable is not None,
        )
        if former is None:
            self._bounds.came(session, key, channel.name)
        self._put(entry)
        return entry.member

    def leave(self, session: Session, channel: str) -> str | None:
        """Let the session not be present on the channel. Returns the id of the member; None if it was not."""
        key = self._keys.get(session)
        left = None if key is None else self._leave(key, channel)
        return None if left is None else left.member

    def is_present(self, session: Session, channel: str) -> bool:
        """Whether this session is present on the channel."""
        key = self._keys.get(session)
        return key is not None and any(each.channel == channel for each in self.entries.of_session(OWN, key))

    def members(self, channel: str) -> Members:
        """The members of the channel, after all changes that subscribers have been sent."""
        self._flush()
        return self.entries.on(channel)

    # What other nodes announce

    def announced(self, node: str, announcements: Sequence[Announcement]) -> None:
        """What has changed of the sessions of this node."""
        for each in announcements:
            if isinstance(each, PresenceEntry):
                self.entries.put(node, each)
            else:
                self.entries.take_out(node, each.session, each.channel)
        self._flush_soon()

    def has_all(self, node: str, entries: Sequence[PresenceEntry]) -> None:
        """The sessions of this node are present there, and nowhere else."""
        self.entries.replace(node, entries)
        self._flush_soon()

    def claim(self, session: Session) -> None:
        """The session has come from another node: what that has announced of it is this server's."""
        claimed = {
            each.channel: each for node in self.entries.nodes() for each in self.entries.of_session(node, session.name)
        }
        for entry in claimed.values():
            if not self.is_present(session, entry.channel):
                self._know(session, entry.session)
                self._bounds.came(session, entry.session, entry.channel)
                self._put(entry)

    def restored(self, session: Session) -> None:
        """The store has brought the session back: it has missed changes, and is present as before if this server still knows
        that."""
        if session.name in self._present:
            self._know(session, session.name)
        self._reset(session, session.subscriptions)

    def sweep(self) -> None:
        """Forget sessions that the store did not bring back, and the numbers of channels that are not in use."""
        if not self._runtime.access.phase.is_reloading:
            for key, session in list(self._present.items()):
                if not session.is_live:
                    self._forget(key, session)
        for session, names in list(self._behind.items()):
            if not session.is_live:
                del self._behind[session]
            elif _has_room(session):
                del self._behind[session]
                self._reset(session, names & session.subscriptions)
        self.entries.forget_unused(lambda channel: bool(self._channels.count(PRESENCE + channel)))

    # Inner

    def _know(self, session: Session, key: str) -> None:
        former = self._present.get(key)
        if former is not None and former is not session:
            self._keys.pop(former, None)
        self._present[key] = session
        self._keys[session] = key

    def _put(self, entry: PresenceEntry) -> None:
        self.entries.put(OWN, entry)
        self._announce(entry)

    def _leave(self, key: str, channel: str) -> PresenceEntry | None:
        left = self.entries.take_out(OWN, key, channel)
        if left is not None:
            self._bounds.left(key, channel)
            self._announce(Left(channel, key))
        return left

    def _announce(self, announcement: Announcement) -> None:
        if self.on_change:
            self._announced.append(announcement)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._runtime.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        for changes in self.entries.take_changes():
            name = PRESENCE + changes.channel
            if self._channels.count(name):
                channel = parse(name)
                assert channel is not None
                receivers = [each for each in self._channels.subscribers(channel) if self._hears(each, name)]
                self._broadcaster.deliver_here(channel, changes.wire(), receivers=receivers)
        announced, self._announced = self._announced, []
        if announced:
            for each in self.on_change:
                each(announced)

    def _hears(self, session: Session, name: str) -> bool:
        """Whether the session gets changes now. Its queue is for messages: one whose client takes none gets no changes until it
        does, and is then asked to list the members again."""
        if name in self._behind.get(session, ()):
            return False
        if _has_room(session):
            return True
        self._behind.setdefault(session, set()).add(name)
        return False

    @staticmethod
    def _reset(session: Session, names: Iterable[str]) -> None:
        for name in list(names):
            channel = parse(name)
            watched = None if channel is None else presence_of(channel)
            if watched is not None:
                session.deliver(name, {"channel": watched.name, "reset": True})

    def _removed(self, session: Session, _timed_out: bool) -> None:
        key = self._keys.get(session)
        if key is not None:
            self._forget(key, session)

    def _forget(self, key: str, session: Session) -> None:
        for entry in self.entries.of_session(OWN, key):
            self._leave(key, entry.channel)
        self._bounds.forget(key)
        del self._present[key]
        del self._keys[session]

    def _regrant(self, session: Session) -> None:
        """Another client continues the session: it leaves the channels that its token does not grant."""
        grants, key = session.grants, self._keys.get(session)
        if key is None or grants is None or grants.by_policy:
            return
        for entry in self.entries.of_session(OWN, key):
            channel = parse(entry.channel)
            if channel is None or not (grants.may_subscribe(channel) and grants.may_be_present(channel)):
                self._leave(key, entry.channel)


def _has_room(session: Session) -> bool:
    view = session.mailbox.view()
    return not view.is_absent and view.queued < _MOST_WAITING and view.room > 0


def _member(session: Session) -> str:
    """Its subject; a session without one is a member of its own."""
    name = parse_name(session.name)
    subject = session.subject or ("" if name is None or name.subject == ANONYMOUS else name.subject)
    return subject or f"{ANONYMOUS}/{secrets.token_hex(8)}"
