"""Publishing without a session: back ends that send messages and hear none.

They are asked about like everybody else: the policy, the authorisers and the listeners see a session that holds what the
token grants, and that nobody can deliver to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from crewel.bayeux.channel import Kind
from crewel.bayeux.message import Message
from crewel.bayeux.replies import Reply
from crewel.broker.handler_steps import Promise, Steps, Then, complete, outcome_of, resume, start
from crewel.broker.inbound import refusal
from crewel.broker.limiter import Limiter
from crewel.broker.outbox.outbound import Outbound
from crewel.broker.publish_handler import PublishHandler
from crewel.broker.session import Event, Host, Session
from crewel.errors import DENIED_BY_POLICY, BayeuxCode, Denied, Refused, denied
from crewel.event_loop import TURN_S
from crewel.security.grants import Grants


@dataclass(eq=False)
class BackendPublisher:
    """Publishes for back ends."""

    _outbound: Outbound
    _limits: Limiter
    _publish_handler: PublishHandler
    _host: Host

    async def post(self, grants: Grants, elements: list[Any], address: str | None = None) -> list[Reply]:
        """Publish these messages, which came from this address, in their order, and answer each as a publish is answered;
        what is to be stored waits for the store together. Raises Limited, and has published nothing, if the first is one too
        many."""
        session = Session(self._host, "")
        session.authenticate(grants)
        session.use_name(f"client/{grants.identity}")
        self._limits.post(session, address)
        session.move(Event.GRANTED)
        try:
            waiting = []
            until = perf_counter() + TURN_S
            for element in elements:
                if perf_counter() >= until:
                    await asyncio.sleep(0)
                    until = perf_counter() + TURN_S
                waiting.append(await self._begin(session, element))
            return [await each if isinstance(each, asyncio.Task) else each for each in waiting]
        finally:
            session.move(Event.DISCONNECT)

    async def _begin(self, session: Session, element: Any) -> Reply | asyncio.Task[Reply]:
        """The reply; or, once the message is on its way to the store, what waits for that. Whatever else must be waited for
        comes first, so that messages that follow do not overtake this one."""
        message: Message | None = None
        try:
            if type(element) is not dict:
                raise Refused(BayeuxCode.CHANNEL_MISSING)
            message = Message.read(element)
            outcome = self._publish(session, message)
            if isinstance(outcome, dict):
                return outcome
            pending, reply = start(outcome)
            while pending is not None and not isinstance(pending, Promise):
                pending, reply = resume(outcome, await outcome_of(pending))
            if pending is not None:
                return asyncio.ensure_future(_end(outcome, pending, message))
            assert reply is not None
        except Exception as error:  # noqa: BLE001 - it becomes the reply
            return refusal(element, message, error)
        return reply

    def _publish(self, session: Session, message: Message) -> Reply | Steps[Reply] | Then[Reply]:
        if message.channel.kind is Kind.META:
            raise Refused(denied(DENIED_BY_POLICY, Denied.PUBLISH))
        if not self._outbound.pipe.rcv(session, message):
            raise Refused(BayeuxCode.MESSAGE_DELETED)
        return self._publish_handler.publish(session, message)


async def _end(steps: Steps[Reply] | Then[Reply], pending: Awaitable[Any], message: Message) -> Reply:
    try:
        return await complete(steps, pending)
    except Exception as error:  # noqa: BLE001 - it becomes the reply
        return refusal(message.fields, message, error)
