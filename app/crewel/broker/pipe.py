"""The extensions of a server, as messages pass them.

Incoming hooks run in the order of registration, outgoing ones in the reverse. A hook that answers False deletes the message;
one that raises is logged and counts as True, so that a broken extension does not stop the traffic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final, Protocol, TypeVar

from crewel.bayeux.codec import encoded
from crewel.bayeux.message import Fields, Message
from crewel.broker.session import Session
from crewel.delivery.entry import Entry

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

_MetaHook = tuple[Callable[..., Any], str | None]
"""A hook for meta messages, and the field of `ext` that its extension acts on."""

META_CHANNELS: Final = frozenset(
    f"/meta/{name}" for name in ["handshake", "connect", "disconnect", "subscribe", "unsubscribe"]
)
_FAILED: Final = "an extension failed in %s: the message continues"


def does_nothing(hook: F) -> F:
    """Mark the hook of a base class: an extension that does not override it is not called."""
    hook.does_nothing = True  # type: ignore[attr-defined]
    return hook


class Hooks(Protocol):
    """An extension, as the pipe sees it; `crewel.Extension` says what each hook is for."""

    field: ClassVar[str | None]
    meta_channels: ClassVar[frozenset[str] | None]
    encodes: ClassVar[tuple[type, ...]]

    def restored(self, session: Session) -> None:
        """A session came back from the store."""

    def rcv(self, session: Session | None, message: Message) -> bool:
        """A publish came in."""

    def rcv_meta(self, session: Session | None, message: Message) -> bool:
        """A meta message came in."""

    def send(self, session: Session | None, fields: Fields) -> bool:
        """A message goes out."""

    def send_meta(self, session: Session | None, reply: Fields, message: Message) -> bool:
        """A meta reply goes out."""


class Pipe:
    """The extensions of a server, cut down to the hooks that each of them overrides."""

    def __init__(self, extensions: Iterable[Hooks]) -> None:
        self.extensions = list(extensions)
        self._encodes = tuple(kind for each in self.extensions for kind in each.encodes)
        self._rcv = [each.rcv for each in self._overriding("rcv")]
        self._rcv_meta, self._rcv_meta_elsewhere = self._meta(self._overriding("rcv_meta"), "rcv_meta")
        self._send = [each.send for each in self._overriding("send")][::-1]
        self.sends = bool(self._send)
        """Whether an extension wants to see what goes out: else there is no need to call `send`."""
        self._send_meta, self._send_meta_elsewhere = self._meta(self._overriding("send_meta")[::-1], "send_meta")
        self.sees_bare_connects = self.sees_plain("/meta/connect")
        """Whether an extension wants to see connects that say nothing but what they must, or the replies to them."""

    def require_encodable(self, fields: Fields) -> None:
        """Raise TypeError if the server was given a message to send that JSON cannot say: its receivers would get null for
        what is no number. `data` that an extension encodes is left to it."""
        if isinstance(fields["data"], self._encodes):
            fields = {**fields, "data": None}
        encoded(fields, "")

    def _overriding(self, hook: str) -> list[Hooks]:
        return [each for each in self.extensions if not hasattr(getattr(type(each), hook), "does_nothing")]

    @staticmethod
    def _meta(extensions: list[Hooks], hook: str) -> tuple[dict[str, list[_MetaHook]], list[_MetaHook]]:
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
        """Whether the publish continues."""
        if self._rcv and not _agree(self._rcv, session, message):
            return False
        return session is None or not session.parts or _agree([part.rcv for part in session.parts], session, message)

    def rcv_meta(self, session: Session | None, message: Message) -> bool:
        """Whether the meta message continues."""
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
                "an extension replaced ext by a value that is not an object, in a message on %s: ext is left out",
                fields["channel"],
            )
            del fields["ext"]
        return passes

    def send_meta(self, session: Session | None, reply: Fields, message: Message) -> bool:
        """Whether the reply goes out."""
        if session is not None and session.parts:
            for part in session.parts[::-1]:  # last in, first out
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
        for part in session.parts[::-1]:
            try:
                sent = part.send(session, entries)
                if not (isinstance(sent, list) and all(isinstance(each, Entry) for each in sent)):
                    raise TypeError("expected the list of outgoing entries")
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
