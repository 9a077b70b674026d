"""Publishes for back ends: the messages of one request, each of which is answered as a publish is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from crewel.bayeux.channel import Kind
from crewel.bayeux.message import Message
from crewel.bayeux.replies import Reply
from crewel.broker.admission.limiter import Limiter
from crewel.broker.handler_steps import Promise, Steps, complete, outcome_of, resume, start
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.payers import payers_of
from crewel.broker.publishing.publish_handler import Publisher, channel_of, not_stored
from crewel.broker.refusals import refusal
from crewel.broker.runtime import Runtime
from crewel.broker.session import Event, Session
from crewel.delivery.pending_dead_letters import Payers
from crewel.errors import DENIED_BY_POLICY, BayeuxCode, Denied, Refused, StoreError, denied
from crewel.security.grants import Grants


@dataclass(eq=False)
class BackendPublisher:
    """Publishes for back ends."""

    _runtime: Runtime
    _mailboxes: Mailboxes
    _limits: Limiter
    _publisher: Publisher

    def __post_init__(self) -> None:
        self._outbound, self._pressure, self._host = (
            self._mailboxes.outbound,
            self._mailboxes.pressure,
            self._mailboxes.host,
        )
        self._turns = self._runtime.turns

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
            overload = await self._overload(elements, payers_of(session))
            waiting: list[Reply | asyncio.Task[Reply]] = []
            until = self._turns.portion()
            for element in elements:
                if waiting and perf_counter() >= until:
                    await self._turns.rest(address)
                    until = self._turns.portion()
                waiting.append(await self._begin(session, element, overload))
            return [await each if isinstance(each, asyncio.Task) else each for each in waiting]
        finally:
            session.move(Event.DISCONNECT)

    async def _overload(self, elements: list[Any], payers: Payers) -> Refused | None:
        """Wait until these may be published. The refusal of those on channels with far too much pending."""
        relief = self._pressure.relief(map(channel_of, elements), payers) if self._pressure.is_on else None
        try:
            if relief is not None:
                await relief
        except StoreError as error:
            return not_stored(error)
        return None

    async def _begin(self, session: Session, element: Any, overload: Refused | None) -> Reply | asyncio.Task[Reply]:
        """The reply; or, once the message is on its way to the store, a promise of it. Whatever else must be
        waited for comes first, so that messages that follow do not overtake this one: also its destinations, before it is
        published."""
        message: Message | None = None
        try:
            if type(element) is not dict:
                raise Refused(BayeuxCode.CHANNEL_MISSING)
            message = Message.read(element)
            if overload is not None and self._pressure.delays(message.channel.name, payers_of(session)):
                raise overload
            outcome = self._publish(session, message)
            if isinstance(outcome, dict):
                return outcome
            pending, reply = start(outcome)
            is_last = not _has_two_parts(message)
            while pending is not None and not (is_last and isinstance(pending, Promise)):
                is_last |= isinstance(pending, Promise)  # the destinations have it
                pending, reply = resume(outcome, await outcome_of(pending))
            if pending is not None:
                return asyncio.ensure_future(_end(outcome, pending, message))
            assert reply is not None
        except Exception as error:  # noqa: BLE001 - it becomes the reply
            return refusal(element, message, error)
        return reply

    def _publish(self, session: Session, message: Message) -> Reply | Steps[Reply]:
        if message.channel.kind is Kind.META:
            raise Refused(denied(DENIED_BY_POLICY, Denied.PUBLISH))
        if not self._outbound.pipe.rcv(session, message):
            raise Refused(BayeuxCode.MESSAGE_DELETED)
        return self._publisher.publish(session, message)


def _has_two_parts(message: Message) -> bool:
    """Whether the message goes to destinations first, and then to subscribers."""
    asked = message.ext.get("publish")
    if not message.channel.is_broadcast or type(asked) is not dict:
        return False
    return bool(asked.get("destination")) and asked.get("subscribable") is not False


async def _end(steps: Steps[Reply], pending: Awaitable[Any], message: Message) -> Reply:
    try:
        return await complete(steps, pending)
    except Exception as error:  # noqa: BLE001 - it becomes the reply
        return refusal(message.fields, message, error)
