"""What the store keeps of a dead letter, and which dead letters are wanted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from crewel.bayeux.codec import reread
from crewel.storage.data_shape import shape_of
from crewel.storage.dead_letter_matching import fits, has_field, likeness_of, shape_of_reason

_DEAD_ID: Final = re.compile(r"\d{1,15}-\d{1,15}", re.ASCII)


@dataclass(frozen=True, slots=True)
class StoredDeadLetter:
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
    """How often it was redriven by an operator and became a dead letter again."""
    sender: str
    qos: bytes
    body: bytes
    """The message as JSON, less its id."""
    is_persistent: bool
    """Whether the store had the message."""
    redrive_of: str
    """Dead id of the dead letter that it was before; empty if it was none."""
    to: str = ""
    """The destination of the message (`client/joe`, `client/joe/1`); empty if it went to all subscribers."""
    given: str = ""
    """The code as the receiver gave it, if another one counts."""
    tries: bytes = b""
    """The earlier attempts that failed, and the redrives between them: a JSON list of `at`, and `code` and `reason` or
    `redrivenAs`; empty if none is known."""
    is_edited: bool = False
    """Whether an operator has changed the message, and sent it again."""
    first: str = ""
    """Dead id that it had before it was discarded and restored; empty if it was not."""
    edited_as: str = ""
    """Log id of the edited message that was sent in its place before it was restored; empty if none was."""


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Which dead letters are wanted; what is empty asks for nothing."""

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
    contains: str = ""
    """Text in body, options, reason, sender, message id or the code as given, in any case (ASCII)."""

    like: str = ""
    """The likeness of its data, as groups of dead letters name it."""
    reason: str = ""
    """The reason, whatever its numbers are."""
    field: str = ""
    """A field of the data and its exact value: `order=100`."""
    within: Sequence[str] = ()
    """Only those of channels that one of these patterns covers; empty: of all."""
    returns: int | None = None
    """How often the message was redriven before, and failed again; None: any number of times."""

    @property
    def kinds(self) -> dict[str, str]:
        """What is asked for, by the kind of index that knows."""
        asked = {"code": self.code, "receiver": self.receiver, "channel": self.channel}
        return {kind: text for kind, text in asked.items() if text}

    @property
    def is_read(self) -> bool:
        """Whether only the dead letters themselves know what is asked for, and no index."""
        texts = self.contains or self.like or self.reason or self.field
        return bool(texts or self.within) or self.returns is not None

    def is_within(self, letter: StoredDeadLetter) -> bool:
        """Whether its channel is one of those within which dead letters are wanted."""
        return not self.within or any(fits("channel", pattern, letter.channel) for pattern in self.within)

    def has(self, letter: StoredDeadLetter) -> bool:
        """Whether code, receiver, channel and text are wanted."""
        if not self.is_within(letter):
            return False
        texts = letter.reason, letter.sender, letter.id, letter.given
        needle, words = self.contains.encode().lower(), "\0".join(texts).encode()
        if needle and not any(needle in text.lower() for text in (letter.body, letter.qos, words)):
            return False
        if self.like and likeness_of(shape_of(letter.body)) != self.like:
            return False
        if self.reason and shape_of_reason(letter.reason) != shape_of_reason(self.reason):
            return False
        if self.field and not has_field(letter.body, self.field):
            return False
        if self.returns not in (None, letter.returns):
            return False
        return all(fits(kind, text, getattr(letter, kind)) for kind, text in self.kinds.items())


def is_dead_id(text: str) -> bool:
    """Whether a text looks like a dead id."""
    return _DEAD_ID.fullmatch(text) is not None


def place_of(dead_id: str) -> tuple[int, int]:
    """When the dead letter was made, in milliseconds since 1970, and its number among those of that time: their order."""
    milliseconds, _, number = dead_id.partition("-")
    return int(milliseconds), int(number)


def shared_texts(fields: Mapping[bytes, bytes]) -> list[bytes]:
    """Return the names of the texts that an entry of `dead` refers to."""
    return [fields[name] for name in (b"bh", b"qh") if name in fields]


def dead_letter_of(
    place: bytes, fields: Mapping[bytes, bytes], texts: Mapping[bytes, bytes] = MappingProxyType({})
) -> StoredDeadLetter:
    """Return the dead letter that an entry of `dead` holds; `texts` are those that it refers to, by name."""

    def shared(name: bytes, reference: bytes) -> bytes:
        return texts.get(fields[reference], b"") if reference in fields else fields.get(name, b"")

    def text(name: bytes) -> str:
        return fields.get(name, b"").decode()

    receiver, qos = text(b"receiver"), shared(b"qos", b"qh")
    return StoredDeadLetter(
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
        text(b"g"),
        fields.get(b"h", b""),
        fields.get(b"e") == b"1",
        text(b"u"),
        text(b"a"),
    )


def _destination(qos: bytes, receiver: str) -> str:
    """The destination by which this receiver got the message, if its qos names any: the session itself, or its subject."""
    if b'"destination"' not in qos:
        return ""
    names = [str(each["to"]) for each in reread(qos).get("destination", [])]  # it may be the name of a client property
    own = (each for each in names if each == receiver or receiver.startswith(f"{each}/"))
    return next(own, names[0] if names else "")
