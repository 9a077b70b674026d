"""The remote call `/service/presence`: clients enter channels, leave them, and list their members."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from crewel.bayeux.channel import PRESENCE, Channel, may_have_presence, parse
from crewel.bayeux.codec import encode
from crewel.bayeux.message import Fields, Message
from crewel.broker.admission.guard import NOT_AUTHORIZED, Guard
from crewel.broker.handler_steps import finished
from crewel.broker.presence.presence import Presence
from crewel.broker.runtime import Runtime
from crewel.broker.service_registry import call_failure, read_call
from crewel.broker.session import Session
from crewel.errors import DENIED_BY_POLICY, Denied, IllegalArgument, Limited, denied
from crewel.qos.fields import Check, one_of

PRESENCE_SERVICE: Final = "/service/presence"
ABSENT: Final = "user.presence.absent"
"""The code of an update of a session that is not present."""
_MANY: Final = 100
"""Members beyond which a list waits for its turn."""


def _channel(value: object) -> Channel:
    channel = parse(value) if isinstance(value, str) else None
    if channel is None or not may_have_presence(channel) or parse(PRESENCE + channel.name) is None:
        raise ValueError("the name of a channel, such as /room/7")
    return channel


_CHECKS: Final[Mapping[str, Check]] = {
    "channel": _channel,
    "action": one_of("enter", "update", "leave", "members"),
    "data": lambda value: value,
}


@dataclass(eq=False)
class PresenceService:
    """Answers the remote call. The calls of one session are done in their order."""

    _runtime: Runtime
    _guard: Guard
    _presence: Presence

    def __post_init__(self) -> None:
        self._own: WeakKeyDictionary[Session, asyncio.Lock] = WeakKeyDictionary()

    async def call(self, session: Session, data: Any) -> Fields:
        """Answer `{"channel", "action", "data"}`. Raises RemoteCallError, whose data are `errorCode` and `message`."""
        async with self._own.setdefault(session, asyncio.Lock()):
            asked = read_call(data, _CHECKS, "channel", "action")
            try:
                return await self._answer(session, asked["channel"], asked["action"], asked.get("data"))
            except (IllegalArgument, Limited) as error:
                raise call_failure(error.code, error.message) from None

    async def _answer(self, session: Session, channel: Channel, action: str, data: Any) -> Fields:
        if action == "leave":
            return {"channel": channel.name, "id": self._presence.leave(session, channel.name)}
        await self._check_right(session, channel)
        if action == "members":
            return await self._members(session, channel)
        if action == "update" and not self._presence.is_present(session, channel.name):
            raise call_failure(ABSENT, f"the session is not present on {channel.name}: enter first")
        return {"channel": channel.name, "id": self._presence.enter(session, channel, self._encoded(data))}

    def _encoded(self, data: Any) -> bytes:
        encoded, most = encode(data), self._runtime.settings.limits.max_presence_bytes
        if most and len(encoded) > most:
            text = f"has {len(encoded)} bytes as JSON, and may have {most} (limits.max_presence_bytes)"
            raise IllegalArgument("data", text)
        return encoded

    async def _check_right(self, session: Session, channel: Channel) -> None:
        fields: Fields = {"channel": PRESENCE_SERVICE, "clientId": session.id, "subscription": channel.name}
        service = parse(PRESENCE_SERVICE)
        assert service is not None
        reason = await finished(self._guard.presence(session, channel, Message(fields, service, None)))
        if reason is None and not session.is_live:
            reason = DENIED_BY_POLICY
        if reason is not None:
            raise call_failure(NOT_AUTHORIZED, f"{denied(reason, Denied.SUBSCRIBE)} ({channel.name}: presence)")

    async def _members(self, session: Session, channel: Channel) -> Fields:
        members = self._presence.members(channel.name)
        if len(members.members) > _MANY:
            await self._runtime.turns.rest(session.account.name if session.account is not None else None)
            members = self._presence.members(channel.name)
        return {
            "channel": channel.name,
            "epoch": members.epoch,
            "seq": members.seq,
            "sessions": members.sessions,
            "members": members.listed(),
        }


def offer_presence(runtime: Runtime, guard: Guard, presence: Presence) -> None:
    """Let clients call it."""
    runtime.services.calls[PRESENCE_SERVICE] = PresenceService(runtime, guard, presence).call
    guard.admit(PRESENCE_SERVICE)
