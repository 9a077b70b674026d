"""A dead letter as applications and operators see it (xmlBlaster's dead messages). It is read once from what the store keeps,
and shown as a plain object, as JSON, or as a message on the live channel."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from crewel.bayeux.codec import encode, reread
from crewel.bayeux.message import Fields
from crewel.delivery.entry import Entry
from crewel.qos.update import Origin
from crewel.security.masks import masked, masked_ext, masked_properties

if TYPE_CHECKING:
    from crewel.storage.dead_letter_records import StoredDeadLetter


CHANNEL: Final = "/__sys__deadMessage"
"""Where dead letters are shown live, to operators."""
_SENDER: Final = "client/__sys__"  # the server itself; no client can be called so


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message that one receiver rejected or could not get."""

    dead_id: str
    """By which commands name the dead letter."""
    id: str
    """The id of the message."""
    channel: str
    receiver: str
    """Absolute name of the session that it was for: `/node/heron/client/joe/1`."""
    code: str
    """Dotted error code."""
    reason: str
    attempts: int
    """How often it may have been sent."""
    data: Any
    ext: Fields
    """What else its publisher put into `ext`."""
    sender: str
    """Public name of the session that published it; empty for the server and for back ends."""
    received: str
    """When it was accepted: nanoseconds since 1970, in digits."""
    qos: Fields
    """What its publish asked for, less what is as usual."""
    is_persistent: bool
    redrive_of: str = ""
    """The dead letter that it was, if it was sent again and came back; empty otherwise."""
    returns: int = 0
    """How often it has come back."""
    to: str = ""
    """Whom the message was addressed to (`client/joe`, `client/joe/1`); empty if it was to all subscribers."""
    given: str = ""
    """The code as the receiver gave it, if `code` is what it counts as; empty otherwise."""
    tries: bytes = b""
    """The failed attempts and redrives, as the store keeps them; empty if this dead letter tells all."""
    is_edited: bool = False
    """Whether an operator has changed the message."""
    restored_from: str = ""
    """The dead id that it had first, if it was discarded and restored; empty otherwise."""
    edited_as: str = ""
    """The id of the edited message that was sent in its place before it was restored; empty if none was."""

    @classmethod
    def read(cls, stored: StoredDeadLetter, node: str) -> DeadLetter:
        """The dead letter that the store keeps so; `node` is the name of this server."""
        body, qos = _object(stored.body), _object(stored.qos)
        ext = body.get("ext")
        return cls(
            stored.dead_id,
            stored.id,
            stored.channel,
            f"/node/{node}/{stored.receiver}",
            stored.code,
            stored.reason,
            stored.attempts,
            body.get("data"),
            {name: value for name, value in ext.items() if name != "update"} if isinstance(ext, dict) else {},
            stored.sender,
            stored.received,
            qos,
            stored.is_persistent,
            stored.redrive_of,
            stored.returns,
            stored.to,
            stored.given,
            stored.tries,
            stored.is_edited,
            stored.first,
            stored.edited_as,
        )

    def masked(self, names: Collection[str]) -> DeadLetter:
        """The dead letter without the values of the fields of its data that have these names, given in lower case."""
        if not names:
            return self
        return replace(
            self,
            data=masked(self.data, names),
            ext=masked_ext(self.ext, names),
            qos=masked_properties(self.qos, names),
        )

    def as_json(self) -> Fields:
        """The object that a webhook receives."""
        fields: Fields = {
            "id": self.dead_id,
            "message": self.id,
            "channel": self.channel,
            "receiver": self.receiver,
            "errorCode": self.code,
            "reason": self.reason,
            "attempts": self.attempts,
            "data": self.data,
            "ext": self.ext,
            "sender": self.sender,
            "rcvTimestamp": self.received,
            "persistent": self.is_persistent,
            "qos": self.qos,
        }
        if self.to:
            fields["to"] = self.to
        if self.given:
            fields["errorCodeGiven"] = self.given
        if self.tries:
            fields["history"] = self.history()
        if self.is_edited:
            fields["edited"] = True
        if self.restored_from:
            fields["restoredFrom"] = self.restored_from
        if self.edited_as:
            fields["editedAs"] = self.edited_as
        return fields | ({"redriveOf": self.redrive_of, "returns": self.returns} if self.redrive_of else {})

    def history(self) -> list[Fields]:
        """The attempts that failed and the redrives between them, the oldest first; the last one made the dead letter."""
        told: list[Fields] = [
            {"at": each["at"], "redrivenAs": each["redrivenAs"]}
            if "redrivenAs" in each
            else {"at": each["at"], "errorCode": each["code"], "reason": each["reason"]}
            for each in orjson.loads(self.tries or b"[]")
        ]
        redrives = [at for at, each in enumerate(told) if "redrivenAs" in each]
        known = len(told) - (redrives[-1] + 1 if redrives else 0)
        if self.attempts > known:  # the last attempt was rejected for good, and is the dead letter itself
            made = (
                int(self.dead_id.partition("-")[0])
                if not self.restored_from
                else int(self.restored_from.partition("-")[0])
            )
            told.append({"at": made, "errorCode": self.code, "reason": self.reason})
        return told

    def properties(self) -> Fields:
        """The clientProperties of the message on the live channel."""
        qos = {**self.qos, "sender": self.sender}
        if self.is_persistent:
            qos["persistent"] = True
        fields: Fields = {
            "__oid": self.channel,
            "__key": {"oid": self.channel},
            "__qos": qos,
            "__rcvTimestamp": self.received,
            "__deadMessageReason": self.reason,
            "__receiver": self.receiver,
            "__errorCode": self.code,
            "__attempts": self.attempts,
            "__deadId": self.dead_id,
        }
        if self.given:
            fields["__errorCodeGiven"] = self.given
        return fields | ({"__redriveOf": self.redrive_of, "__returns": self.returns} if self.redrive_of else {})

    def fields(self) -> Fields:
        """The message on the live channel, less what `entry` adds."""
        fields: Fields = {"channel": CHANNEL, "data": self.data}
        return fields | ({"ext": self.ext} if self.ext else {})

    def entry(self, fields: Fields, message_id: str, received: str) -> Entry:
        """The message on the live channel. Every subscriber receives its origin, whether or not the session
        asked for that: what makes it a dead letter stands nowhere else."""
        origin = Origin(message_id, received, _SENDER, encode({"clientProperties": self.properties()}))
        return Entry.with_origin(fields, origin)


def _object(stored: bytes) -> Fields:
    """The object that was stored; an empty one if nothing is left of it, or it is none: operators must see the dead letter."""
    try:
        fields = reread(stored)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
