"""A dead letter as the store has it, and which ones are wanted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from crewel.bayeux.channel import parse
from crewel.bayeux.codec import reread

_DEAD_ID: Final = re.compile(r"\d{1,15}-\d{1,15}", re.ASCII)


@dataclass(frozen=True, slots=True)
class StoredLetter:
    """A dead letter: one message, one receiver."""

    dead_id: str
    """Its own id, `<milliseconds of the store's clock>-<number>`."""
    id: str
    """Id of the message, as its receiver saw it."""
    received: str
    """When the message was accepted: nanoseconds, in digits."""
    receiver: str
    """Name of the session, `client/joe/1`."""
    channel: str
    """Empty if nothing is left of the message."""
    code: str
    reason: str
    attempts: int
    """How often it may have been delivered."""
    returns: int
    """How often it came back: was sent again by an operator, and died again."""
    sender: str
    qos: bytes
    body: bytes
    """The message as JSON, less its id."""
    is_persistent: bool
    """Whether the store had the message."""
    redrive_of: str
    """Dead id of the letter that it was before; empty if it was none."""
    to: str = ""
    """Whom the message was addressed to (`client/joe`, `client/joe/1`); empty if it was to all who are subscribed."""
    is_partial: bool = False
    """Whether it was stored by an older version, and does not say whether the message was addressed to somebody."""


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which letters are wanted; what is empty asks for nothing."""

    code: str = ""
    """This code and all below it: `user.update`."""
    receiver: str = ""
    """A session, `client/joe/1`, or all of a subject, `client/joe`."""
    channel: str = ""
    """A channel, or a pattern."""
    since_ms: int = 0
    """Not older, milliseconds since 1970."""
    until: str = ""
    """Dead id of the newest one that is wanted."""

    @property
    def kinds(self) -> dict[str, str]:
        """What is asked for, by the kind of index that knows."""
        asked = {"code": self.code, "receiver": self.receiver, "channel": self.channel}
        return {kind: text for kind, text in asked.items() if text}

    def has(self, letter: StoredLetter) -> bool:
        """Whether code, receiver and channel are wanted."""
        return all(fits(kind, text, getattr(letter, kind)) for kind, text in self.kinds.items())


def is_dead_id(text: str) -> bool:
    """Whether a text looks like a dead id."""
    return _DEAD_ID.fullmatch(text) is not None


def shared_texts(fields: Mapping[bytes, bytes]) -> list[bytes]:
    """Return the names of the texts that an entry of `dead` refers to."""
    return [fields[name] for name in (b"bh", b"qh") if name in fields]


def letter_of(
    place: bytes, fields: Mapping[bytes, bytes], texts: Mapping[bytes, bytes] = MappingProxyType({})
) -> StoredLetter:
    """Return the letter that an entry of `dead` holds; `texts` are those that it refers to, by name."""

    def shared(name: bytes, reference: bytes) -> bytes:
        return texts.get(fields[reference], b"") if reference in fields else fields.get(name, b"")

    def text(name: bytes) -> str:
        return fields.get(name, b"").decode()

    receiver, qos = text(b"receiver"), shared(b"qos", b"qh")
    return StoredLetter(
        place.decode(),
        text(b"id"),
        text(b"received"),
        receiver,
        text(b"channel"),
        text(b"code"),
        text(b"reason"),
        int(fields.get(b"attempts", 0)),
        int(fields.get(b"n", 0)),
        text(b"sender"),
        qos,
        shared(b"body", b"bh"),
        b"p" in fields,
        text(b"r"),
        text(b"t") or _destination(qos, receiver),
        not (b"p" in fields or b"w" in fields),
    )


def _destination(qos: bytes, receiver: str) -> str:
    """The destination by which this receiver got the message, if its qos names any: the session itself, or its subject."""
    if b'"destination"' not in qos:
        return ""
    names = [str(each["to"]) for each in reread(qos).get("destination", [])]  # it may be the name of a client property
    own = (each for each in names if each == receiver or receiver.startswith(f"{each}/"))
    return next(own, names[0] if names else "")


def beginning(kind: str, text: str) -> tuple[str, str]:
    """Return the value that is asked for, and what others that may be wanted begin with. Either may be empty: then there is no
    one value, or all may be wanted."""
    if not text:
        return "", ""
    if kind == "channel":
        channel = parse(text)
        name = channel.name if channel is not None else text
        return ("", name.rstrip("*")) if channel is not None and channel.is_wildcard else (name, name)
    return text, text + ("." if kind == "code" else "/")


def fits(kind: str, text: str, value: str) -> bool:
    """Whether a code, a receiver or a channel is what `text` asks for."""
    if kind == "channel":
        channel, asked = parse(value), parse(text)
        return channel is not None and asked is not None and asked.name in channel.patterns
    return value == text or value.startswith(beginning(kind, text)[1])
