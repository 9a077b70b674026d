"""The server's own channels, `/__sys__*`: what is published there reaches the operators that listen and have room.

No queue overflows for it: what has no room is not sent, because operators read it again where it comes from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crewel.bayeux.channel import parse
from crewel.bayeux.codec import encode
from crewel.bayeux.message import Fields
from crewel.broker.addressing.channels import Channels
from crewel.broker.mailboxes.outbound import Outbound
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.delivery.entry import Entry
from crewel.qos.update import Origin


@dataclass(eq=False)
class OperatorChannels:
    """Publishes on them, for one broker."""

    _runtime: Runtime
    _channels: Channels
    _outbound: Outbound

    def is_heard(self, channel: str) -> bool:
        """Whether any session is subscribed to it. If none is, there is nothing to do."""
        return bool(self._channels.count(channel))

    def listening(self, channel: str, but: Session | None = None) -> list[Session]:
        """The operators that receive the channel and have room, without this one."""
        parsed = parse(channel)
        assert parsed is not None
        return [
            session
            for session in self._channels.subscribers(parsed)
            if session.is_operator and session is not but and session.mailbox.view().room
        ]

    def publish(self, channel: str, data: Any, listening: list[Session], properties: Fields | None = None) -> None:
        """Deliver this to them. Every receiver gets its origin, whether or not its session asked for that."""
        fields: Fields = {"channel": channel, "data": data}
        if not listening or not self._outbound.pipe.send(None, fields):
            return
        origin = Origin(*self._runtime.ids.stamp(), qos=encode({"clientProperties": properties}) if properties else b"")
        self._outbound.fan_out(Entry.with_origin(fields, origin), listening, None)
