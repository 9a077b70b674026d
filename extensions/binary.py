"""Binary messages: bytes in `data`, as Z85 text on the wire.

The browser half is the official client's `BinaryExtension`. A message with `ext.binary` has `data` of the form
`{"data": "<Z85>", "last": true, "meta": {...}}`; services see a `Binary` instead, and may publish one. Without this
extension a server just relays the text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from crewel.bayeux.message import Fields, Message
from crewel.bayeux.z85 import decode_z85, encode_z85
from crewel.broker.session import Session
from crewel.extension import Extension


@dataclass(frozen=True, slots=True)
class Binary:
    """The `data` of a binary message: the bytes, whether they are the last of their transfer, and what describes them."""

    content: bytes
    last: bool = True
    meta: dict[str, Any] = field(default_factory=dict)


class BinaryExtension(Extension):
    """Turns Z85 text into `Binary` on the way in and back on the way out."""

    name = "binary"
    encodes = (Binary, bytes)

    def rcv(self, session: Session | None, message: Message) -> bool:
        """Decode. A message that claims to be binary and is not is refused (`404::message_deleted`)."""
        if "binary" not in message.ext:
            return True
        binary = _read(message.data)
        if binary is None:
            return False
        ext = {name: value for name, value in message.ext.items() if name != "binary"}
        message.fields["data"] = binary
        if ext:
            message.fields["ext"] = ext
        else:
            del message.fields["ext"]
        return True

    def send(self, session: Session | None, fields: Fields) -> bool:
        """Encode."""
        binary = fields.get("data")
        if isinstance(binary, Binary | bytes):
            if isinstance(binary, bytes):
                binary = Binary(binary)
            data: dict[str, Any] = {"data": encode_z85(binary.content), "last": binary.last}
            if binary.meta:
                data["meta"] = binary.meta
            fields["data"] = data
            fields["ext"] = {**fields.get("ext", {}), "binary": {}}
        return True


def _read(data: object) -> Binary | None:
    if not isinstance(data, dict) or not isinstance(data.get("data"), str):
        return None
    meta = data.get("meta")
    try:
        content = decode_z85(data["data"])
    except ValueError:
        return None
    return Binary(content, data.get("last", True) is True, meta if isinstance(meta, dict) else {})
