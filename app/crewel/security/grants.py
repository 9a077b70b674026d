"""What somebody may do who has shown a token: the channels and patterns that were granted, and until when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from crewel.bayeux.channel import Channel, parse

__all__ = ["OPERATOR", "Grants"]


@dataclass(frozen=True, slots=True)
class Grants:
    """One token's content."""

    subject: str = ""
    """Who it is; empty for the admin token, which may take any name."""
    subscribe: frozenset[str] = frozenset()
    publish: frozenset[str] = frozenset()
    is_operator: bool = False
    expires_at: float | None = None
    """Seconds since 1970; None: never."""

    def may_subscribe(self, channel: Channel) -> bool:
        """Whether a pattern was granted that covers this channel or pattern."""
        return _covers(self.subscribe, channel)

    def may_publish(self, channel: Channel) -> bool:
        """Whether a pattern was granted that covers this channel."""
        return _covers(self.publish, channel)

    def has_expired(self, now: float) -> bool:
        """Whether they hold no more, `now` in seconds since 1970."""
        return self.expires_at is not None and self.expires_at <= now

    def as_json(self) -> dict[str, Any]:
        """What is stored with a session that survives the server."""
        return {
            "subject": self.subject,
            "subscribe": sorted(self.subscribe),
            "publish": sorted(self.publish),
            "operator": self.is_operator,
            "expires": self.expires_at,
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Grants:
        """What `as_json` stored."""
        return cls(
            stored["subject"],
            frozenset(stored["subscribe"]),
            frozenset(stored["publish"]),
            stored["operator"],
            stored["expires"],
        )


OPERATOR: Final = Grants("", frozenset({"/**"}), frozenset({"/**"}), is_operator=True)
"""What the admin token grants: everything that clients can be granted."""


def patterns(listed: Iterable[object]) -> frozenset[str]:
    """These texts as patterns. Raises ValueError for one that is none."""
    names = set()
    for text in listed:
        channel = parse(text) if isinstance(text, str) else None
        if channel is None:
            raise ValueError(f"{text!r} is not a channel or a pattern")
        names.add(channel.name)
    return frozenset(names)


def _covers(granted: frozenset[str], channel: Channel) -> bool:
    if granted.isdisjoint(channel.patterns):
        return False
    # `/a/**` as a name would be heard by `/a/*`, as a pattern it is the wider one.
    narrower = channel.name[:-1] if channel.name.endswith("/**") else ""
    return any(pattern in granted for pattern in channel.patterns if pattern != narrower)
