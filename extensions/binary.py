"""Binary messages: bytes in `data`, as Z85 text on the wire (reference 5.6).

The browser half is the official client's `BinaryExtension`. A message with `ext.binary` has `data` of the form
`{"data": "<Z85>", "last": true, "meta": {...}}`; services see a `Binary` instead, and may publish one. Without this
extension a server just relays the text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from crewel.bayeux.message import Fields, Message
from crewel.broker.session import Session
from crewel.extension import Extension

_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES: Final = {character: value for value, character in enumerate(_ALPHABET)}
_PADDING: Final = _ALPHABET[-1]


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


def encode_z85(content: bytes) -> str:
    """Z85 without padding: a last group of n bytes becomes n + 1 characters."""
    missing = -len(content) % 4
    padded = content + bytes(missing)
    characters = []
    for start in range(0, len(padded), 4):
        value = int.from_bytes(padded[start : start + 4], "big")
        characters.append("".join(_ALPHABET[value // 85**power % 85] for power in (4, 3, 2, 1, 0)))
    text = "".join(characters)
    return text[: len(text) - missing]


def decode_z85(text: str) -> bytes:
    """The bytes of Z85 without padding. Raises ValueError for a foreign character, a group of one character, or a group
    beyond 32 bits."""
    missing = -len(text) % 5
    if missing == 4:
        raise ValueError("Z85 text cannot end in a group of one character")
    padded = text + _PADDING * missing
    content = bytearray()
    try:
        for start in range(0, len(padded), 5):
            value = 0
            for character in padded[start : start + 5]:
                value = value * 85 + _VALUES[character]
            content += value.to_bytes(4, "big")
    except (KeyError, OverflowError):
        raise ValueError("not Z85 text") from None
    return bytes(content[: len(content) - missing])
