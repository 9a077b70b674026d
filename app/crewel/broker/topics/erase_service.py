"""The remote call `/service/erase`, for clients that are entitled to erase a topic."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from crewel.bayeux.channel import Channel, parse
from crewel.bayeux.message import Fields, Message
from crewel.broker.admission.guard import NOT_AUTHORIZED, Guard
from crewel.broker.handler_steps import finished
from crewel.broker.runtime import Runtime
from crewel.broker.service_registry import call_failure, read_call
from crewel.broker.session import Session
from crewel.broker.topics.server_topics import ServerTopics
from crewel.errors import StoreError
from crewel.qos.fields import Check, flag

ERASE_SERVICE: Final = "/service/erase"

audit = logging.getLogger("crewel.audit")


def _channel(value: object) -> Channel:
    channel = parse(value) if isinstance(value, str) else None
    if channel is None or channel.is_wildcard or not channel.is_broadcast or channel.is_reply:
        raise ValueError("the name of a channel, such as /news/sport")
    return channel


_CHECKS: Final[Mapping[str, Check]] = {"channel": _channel, "force": flag}


@dataclass(eq=False)
class EraseService:
    """Answers the remote call."""

    _guard: Guard
    _topics: ServerTopics

    async def erase(self, session: Session, data: Any) -> Fields:
        """Erase a topic, as `{"channel", "force": false}` says, and answer `{"channel", "state"}` with its state then. Raises
        RemoteCallError, whose data are `errorCode` and `message`."""
        asked = read_call(data, _CHECKS, "channel")
        channel: Channel = asked["channel"]
        force = asked.get("force", False)
        fields: Fields = {"channel": channel.name, "clientId": session.id, "data": None}
        if not await finished(self._guard.erase(session, channel, Message(fields, channel, None))):
            raise call_failure(
                NOT_AUTHORIZED, f"{channel.name} can be erased by operators, and by clients that may configure it"
            )
        audit.info("client: erase topic", extra={"who": session.name, "channel": channel.name, "force": force})
        try:
            if not await self._topics.endings.erase(channel.name, force=force):
                raise call_failure("user.illegalArgument", f"there is no topic {channel.name}")
            state = await self._topics.views.state(channel.name)
        except StoreError as error:
            raise call_failure(error.code, str(error)) from error
        return {"channel": channel.name, "state": state.value}


def offer_erase(runtime: Runtime, guard: Guard, topics: ServerTopics) -> None:
    """Let clients call it."""
    runtime.services.calls[ERASE_SERVICE] = EraseService(guard, topics).erase
    guard.admit(ERASE_SERVICE)
