"""Requests and the wait for their answers (xMsg's syncPublish; docs/how-to/request-reply.md); `client_responder.py` answers.

Each request has a reply channel of its own, `/ret/<ID>/<LDDDDDD>`: the ID is the session's, L says that Python asks, D counts.
The client receives all of them by one subscription, `/ret/<ID>/*`, which the server confirms before the first request goes out.
"""

from __future__ import annotations

import asyncio
import copy
import random
import secrets
from collections.abc import Container
from typing import Any, Final, Unpack

from crewel.bayeux.answers import error_of
from crewel.bayeux.channel import REPLIES
from crewel.bayeux.message import Fields
from crewel.client.arguments import check_time
from crewel.client.client_message import Message, is_successful
from crewel.client.errors import (
    AnswerTimeoutError,
    ClientError,
    DisconnectedError,
    ErrorAnswer,
    NotConnectedError,
    SubscribeRefused,
    TransportError,
    publish_refused,
)
from crewel.client.publish_options import PublishOptions, publication
from crewel.client.router import Interest
from crewel.client.session_loop import Session
from crewel.client.states import ENDING, Event, Transition
from crewel.client.traces import NO_TRACES, Traces

PYTHON: Final = 3
"""The language in the names of reply channels, as xMsg numbers them."""
SERIALS: Final = 1_000_000
"""How many serial numbers there are; after the last comes the first again."""


class Serials:
    """The last parts of reply channels, `LDDDDDD`: each is another one, in turn, and none is given that is in use.

    They begin anywhere: an ID may outlive its client, and an answer to the one before must not answer the next.
    """

    def __init__(self, first: int | None = None) -> None:
        self._next = random.randrange(SERIALS) if first is None else first  # noqa: S311 - it need not be secret

    def take(self, prefix: str, used: Container[str]) -> str:
        """The next channel below `prefix` that is not among those used. Raises ClientError if all are."""
        for _ in range(SERIALS):
            channel = f"{prefix}{PYTHON}{self._next:06}"
            self._next = (self._next + 1) % SERIALS
            if channel not in used:
                return channel
        raise ClientError(f"{SERIALS} requests are waiting for their answers")


class Requests:
    """The requests of one client."""

    def __init__(self, session: Session, first: int | None = None, traces: Traces = NO_TRACES) -> None:
        self._session, self._traces = session, traces
        self._answers = session.connection.answers
        self._serials = Serials(first)
        # Other servers give no ID: a random one keeps the clients apart.
        self._own_id = secrets.token_hex(16)
        self._subscribed: tuple[str | None, Interest] | None = None
        session.life.listeners.append(self._moved)

    @property
    def pending(self) -> int:
        """How many wait for their answer."""
        return len(self._answers)

    @property
    def duplicates(self) -> int:
        """How many answers came to requests that had one, and were dropped."""
        return self._answers.duplicates

    @property
    def late(self) -> int:
        """How many answers came that no request waited for, or not any more, and were dropped."""
        return self._answers.late

    @property
    def reply_id(self) -> str:
        """The ID of this session's reply channels; one of our own where the server gives none, and knows no owners."""
        return self._server_id or self._own_id

    @property
    def _server_id(self) -> str | None:
        given = self._session.connection.login.reply.get("replyId")
        return given if isinstance(given, str) and given else None

    async def request(
        self, channel: str, data: Any, timeout: float, ext: Fields | None, **options: Unpack[PublishOptions]
    ) -> Message:
        """Publish, and return the answer; see `Client.request`."""
        check_time("timeout", timeout)
        if not timeout > 0:  # which NaN is not
            raise ValueError("a request waits for longer than 0 seconds")
        if options.get("reply_to") is not None:
            raise ValueError("the reply channel of a request is the client's own choice")
        message = publication(channel, copy.deepcopy(data), copy.deepcopy(ext), "request", **options)
        with self._traces.sending("request", message):
            return _checked(channel, await self._ask_within(timeout, message))

    async def _ask_within(self, timeout: float, message: Fields) -> Fields:
        sent = asyncio.Event()
        try:
            async with asyncio.timeout(timeout):
                return await self._ask(message, sent)
        except TimeoutError:
            if not sent.is_set():
                raise NotConnectedError(f"no session within {timeout:g} s") from self._session.life.failure
            raise AnswerTimeoutError(f"{message['channel']}: no answer within {timeout:g} s") from None

    async def _ask(self, message: Fields, sent: asyncio.Event) -> Fields:
        prefix = await self._subscribe()
        # No await from here until it is sent: another session would have another ID.
        reply_to = self._serials.take(prefix, self._answers)
        _name(message, reply_to, is_known=self._server_id is not None)
        sent.set()
        with self._answers.wait_for([reply_to]) as (answer,):
            try:
                [reply] = await self._session.send([message])
            except TransportError:
                if answer.done():
                    return answer.result()
                raise  # it is unknown whether it was sent
            if not is_successful(reply) and not answer.done():
                raise publish_refused(reply)
            return await answer

    async def _subscribe(self) -> str:
        """What the reply channels of this session begin with, once the server has confirmed that this client receives them."""
        life, connection = self._session.life, self._session.connection
        while True:
            await life.settled()
            if life.is_ending:
                raise DisconnectedError("the session has ended") from life.failure
            client_id, prefix = connection.client_id, f"{REPLIES}{self.reply_id}/"
            if self._subscribed is None or self._subscribed[0] != client_id:
                self._subscribed = client_id, Interest(f"{prefix}*", None)
            interest = self._subscribed[1]
            if interest.confirmed:
                return prefix
            try:
                await self._session.subscriber.subscribe(interest)
            except SubscribeRefused:
                self._subscribed = None
                if connection.client_id == client_id:
                    raise  # else it was asked in a session that has another ID

    def _moved(self, step: Transition) -> None:
        """Let requests fail that no answer can reach any more."""
        if step.new in ENDING:
            self._answers.fail(DisconnectedError("the session has ended"))
        elif step.event is Event.HANDSHAKEN:
            self._answers.fail(TransportError("the session was lost"), except_prefix=f"{REPLIES}{self.reply_id}/")


def _name(message: Fields, reply_to: str, *, is_known: bool) -> None:
    """Say where the answer is awaited: in `ext.publish`, from which the server makes `ext.replyTo`; or in that at once, for a
    server that does not."""
    ext: Fields = message.setdefault("ext", {})
    if is_known:
        ext["publish"] = {**ext.get("publish", {}), "replyTo": reply_to}
    else:
        ext["replyTo"] = reply_to


def _checked(channel: str, fields: Fields) -> Message:
    answer = Message(fields["channel"], fields["data"], fields)
    failed = error_of(fields)
    if failed is not None:
        raise ErrorAnswer(*failed, data=answer.data, answer=answer, channel=channel)
    return answer
