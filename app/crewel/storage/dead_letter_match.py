"""How what an operator asks for is compared with the values that the indexes of dead letters have."""

from __future__ import annotations

from crewel.bayeux.channel import parse


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
