"""The Extension interface and its pipe.

An extension sees every message of the server; a part, which an extension adds to a session, sees that session's. Incoming
hooks run in the order of registration, outgoing ones in the reverse. A hook that answers False deletes the message; one
that raises is logged and counts as True, so that a broken extension does not stop the traffic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from crewel.bayeux.encodable import encoded
from crewel.bayeux.message import Fields, Message
from crewel.delivery.entry import Entry

if TYPE_CHECKING:
    from crewel.broker.broker import Broker
    from crewel.broker.sessions import Session

__all__ = ["Extension", "Pipe", "SessionPart"]

log = logging.getLogger(__name__)

_MetaHook = tuple[Callable[..., Any], str | None]
"""A hook for meta messages, and the field of `ext` that its extension acts on."""

META_CHANNELS: Final = frozenset(
    f"/meta/{name}" for name in ["handshake", "connect", "disconnect", "subscribe", "unsubscribe"]
)
_FAILED: Final = "an extension failed in %s: the message goes on"


class Extension:
    """The base of server extensions; override what you need. `ext` values live under `name` by convention."""

    name = ""
    field: ClassVar[str | None] = None
    """The field of `ext` that it acts on. Meta messages without it do not come to an extension that names one; None sees
    every meta message."""
    meta_channels: ClassVar[frozenset[str] | None] = None
    """The meta channels whose messages come to it; None is all of them."""
    encodes: ClassVar[tuple[type, ...]] = ()
    """Types of `data` that JSON cannot say and that its `send` makes JSON of."""

    def installed(self, broker: Broker) -> None:
        """Called once, before the first message."""

    def restored(self, session: Session) -> None:
        """A session came back from the store: give it what its handshake had brought."""

    def rcv(self, session: Session | None, message: Message) -> bool:
        """A publish came in. `session` is None if it is unknown: this runs before the session is checked."""
        return True

    def rcv_meta(self, session: Session | None, message: Message) -> bool:
        """A meta message came in; on a handshake `session` is the one that will be, should it be granted."""
        return True

    def send(self, session: Session | None, fields: Fields) -> bool:
        """A message goes out: to all its subscribers (`session` None, once a message and not once a subscriber), to one
        session, or the acknowledgement of a publish (it has `successful`). `fields` may be changed."""
        return True

    def send_meta(self, session: Session | None, reply: Fields, message: Message) -> bool:
        """A meta reply goes out: for a connect, when it is released and not when it is held. `message` is its request."""
        return True


class SessionPart:
    """What an extension keeps for one session; override what you need."""

    is_plain: ClassVar[bool] = False
    """Whether it has a short way for the connects of a waiting client, `takes` and `answer`. It is used while the session
    has no other part."""

    def takes(self, session: Session, ext: Fields) -> bool:
        """A connect came that says nothing but this in `ext`, while nothing waits for the session. True: all is done that
        `rcv_meta` would do. False: nothing is done, and `rcv_meta` will be asked."""
        return False

    def answer(self, session: Session) -> bytes:
        """What the reply to such a connect says in `ext`: the JSON, less the braces around it."""
        return b""

    def rcv(self, session: Session, message: Message) -> bool:
        """A publish of this session came in."""
        return True

    def rcv_meta(self, session: Session, message: Message) -> bool:
        """A meta message of this session came in."""
        return True

    def send(self, session: Session, entries: list[Entry]) -> list[Entry]:
        """These entries leave for the client in one response: the ones that shall, in their order. An entry is shared by
        all its receivers: replace, never change."""
        return entries

    def send_meta(self, session: Session, reply: Fields, message: Message) -> bool:
        """A meta reply to this session goes out."""
        return True


class Pipe:
    """The extensions of a server, cut down to the hooks that each of them overrides."""

    def __init__(self, extensions: Iterable[Extension]) -> None:
        self.extensions = list(extensions)
        self._encodes = tuple(kind for each in self.extensions for kind in each.encodes)
        self._rcv = [each.rcv for each in self._overriding("rcv")]
        self._rcv_meta, self._rcv_meta_elsewhere = self._meta(self._overriding("rcv_meta"), "rcv_meta")
        self._send = [each.send for each in self._overriding("send")][::-1]
        self._send_meta, self._send_meta_elsewhere = self._meta(self._overriding("send_meta")[::-1], "send_meta")

    def require_encodable(self, fields: Fields) -> None:
        """Raise TypeError if the server was given a message to send that JSON cannot say: its receivers would hear null for
        what is no number. `data` that an extension encodes is left to it."""
        if isinstance(fields["data"], self._encodes):
            fields = {**fields, "data": None}
        encoded(fields, "")

    def _overriding(self, hook: str) -> list[Extension]:
        return [each for each in self.extensions if getattr(type(each), hook) is not getattr(Extension, hook)]

    @staticmethod
    def _meta(extensions: list[Extension], hook: str) -> tuple[dict[str, list[_MetaHook]], list[_MetaHook]]:
        """The hooks for each meta channel that any extension names, and those for all others."""
        names = META_CHANNELS.union(*(each.meta_channels or () for each in extensions))
        hooks: dict[str, list[_MetaHook]] = {
            name: [
                (getattr(each, hook), each.field)
                for each in extensions
                if each.meta_channels is None or name in each.meta_channels
            ]
            for name in names
        }
        return hooks, [(getattr(each, hook), each.field) for each in extensions if each.meta_channels is None]

    def sees_plain(self, channel: str) -> bool:
        """Whether an extension wants to see messages without `ext` on this meta channel, or the replies to them."""
        hooks = [
            *self._rcv_meta.get(channel, self._rcv_meta_elsewhere),
            *self._send_meta.get(channel, self._send_meta_elsewhere),
        ]
        return any(field is None for _, field in hooks)

    def rcv(self, session: Session | None, message: Message) -> bool:
        """Whether the publish goes on."""
        if self._rcv and not _agree(self._rcv, session, message):
            return False
        return session is None or not session.parts or _agree([part.rcv for part in session.parts], session, message)

    def rcv_meta(self, session: Session | None, message: Message) -> bool:
        """Whether the meta message goes on."""
        ext, name = message.fields.get("ext"), message.channel.name
        hooks = self._rcv_meta[name] if name in self._rcv_meta else self._rcv_meta_elsewhere  # noqa: SIM401 - not a call
        for hook, field in hooks:
            if field is None or (type(ext) is dict and field in ext):
                try:
                    if hook(session, message) is False:
                        return False
                except Exception:
                    log.exception(_FAILED, hook)
        # Read only now: an extension may have added a part while it handled the handshake.
        if session is not None:
            for part in session.parts:
                try:
                    if part.rcv_meta(session, message) is False:
                        return False
                except Exception:
                    log.exception(_FAILED, part.rcv_meta)
        return True

    def send(self, session: Session | None, fields: Fields) -> bool:
        """Whether the message goes out."""
        if not self._send:
            return True
        passes = _agree(self._send, session, fields)
        if "ext" in fields and type(fields["ext"]) is not dict:
            log.error(
                "an extension made of ext what is no object in a message on %s: it is left out", fields["channel"]
            )
            del fields["ext"]
        return passes

    def send_meta(self, session: Session | None, reply: Fields, message: Message) -> bool:
        """Whether the reply goes out."""
        if session is not None:
            for part in session.parts_out:
                try:
                    if part.send_meta(session, reply, message) is False:
                        return False
                except Exception:
                    log.exception(_FAILED, part.send_meta)
        ext, name = message.fields.get("ext"), message.channel.name
        hooks = self._send_meta[name] if name in self._send_meta else self._send_meta_elsewhere  # noqa: SIM401 - not a call
        for hook, field in hooks:
            if field is None or (type(ext) is dict and field in ext):
                try:
                    if hook(session, reply, message) is False:
                        return False
                except Exception:
                    log.exception(_FAILED, hook)
        return True

    def departing(self, session: Session, entries: list[Entry]) -> list[Entry]:
        """The entries that leave in one response, as the session's parts leave them."""
        for part in session.parts_out:
            try:
                sent = part.send(session, entries)
                if not (part.is_plain or (isinstance(sent, list) and all(isinstance(each, Entry) for each in sent))):
                    raise TypeError("expected the list of the entries that leave")
                entries = sent
            except Exception:
                log.exception("a session part failed in send: the messages go out unchanged")
        return entries


def _agree(hooks: Iterable[Callable[..., Any]], *arguments: object) -> bool:
    """Whether none of the hooks deletes the message."""
    for hook in hooks:
        try:
            if hook(*arguments) is False:
                return False
        except Exception:
            log.exception(_FAILED, hook)
    return True
