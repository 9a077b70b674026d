"""Requests and their responders (xMsg's syncPublish; docs/how-to/request-reply.md).

Each request has a reply channel of its own, `/ret/<ID>/<LDDDDDD>`: the ID is the session's, L says that Python asks, D counts.
The client receives all of them by one subscription, `/ret/<ID>/*`, which the server confirms before the first request goes out.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Container
from typing import Any, Final, NamedTuple, Unpack

from crewel.bayeux.answers import FAULT, UNTOLD, error_answer, error_of, failure, reply_channel
from crewel.bayeux.channel import REPLIES
from crewel.bayeux.message import Fields
from crewel.client.arguments import check_function, check_whole
from crewel.client.callbacks import result_of
from crewel.client.client_message import Message, is_successful
from crewel.client.errors import (
    UNKNOWN_SESSION,
    AnswerTimeoutError,
    ClientError,
    DisconnectedError,
    ErrorAnswer,
    NotConnectedError,
    PayloadRefusedError,
    PublishRefused,
    SubscribeRefused,
    TransportError,
    failure_of,
    publish_refused,
)
from crewel.client.publish_options import PublishOptions, publication
from crewel.client.router import Interest
from crewel.client.session_loop import Session
from crewel.client.states import ENDING, Event, Transition
from crewel.client.subscription import Subscription
from crewel.client.traces import NO_TRACES, Traces

log = logging.getLogger("crewel.client")

PYTHON: Final = 3
"""The language in the names of reply channels, as xMsg numbers them."""
SERIALS: Final = 1_000_000
"""How many serial numbers there are; after the last comes the first again."""
OnRequest = Callable[[Message], Any]
"""What is called with each request; it returns the answer's data or a `Response`, or a coroutine that does."""
_TRIES: Final = 3
"""How often an answer is sent while it is unknown whether it arrived: a second one does no harm."""
_SAME: Final[Any] = object()


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
        if timeout <= 0:
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


class Response(NamedTuple):
    """An answer that is ready to be published, `await client.publish(*response)`, or that a responder returns."""

    channel: str
    data: Any
    ext: Fields | None = None


def create_response(message: Message, data: Any = _SAME) -> Response:
    """The answer to a request, on its reply channel: with this data; or, as xMsg has it, with the request's own, bytes and
    content type included, and with its client properties. Raises ValueError if the message is no request."""
    channel = reply_channel(message.fields)
    if channel is None:
        raise ValueError(f"the message on {message.channel} is not a request, and takes no answer")
    if data is not _SAME:
        return Response(channel, data)
    ext: Fields = {}
    if "binary" in message.ext:  # it says that the data is bytes, which are sent as they came
        ext["binary"] = message.ext["binary"]
    if message.client_properties:
        ext["publish"] = {"clientProperties": message.client_properties}
    return Response(channel, copy.deepcopy(message.data), copy.deepcopy(ext) or None)


class Responder:
    """Answers the requests of one subscription with what a function returns. Messages that are no requests are let pass."""

    def __init__(
        self, answer: OnRequest, publish: Callable[..., Awaitable[Any]], at_once: int, traces: Traces = NO_TRACES
    ) -> None:
        check_function("callback", answer)
        check_whole("at_once", at_once)
        if at_once < 1:
            raise ValueError("a responder processes at least 1 request at once")
        self._answer = answer
        self._publish = publish
        self._traces = traces
        self._places = asyncio.Semaphore(at_once)

    async def run(self, subscription: Subscription, count: int | None = None) -> int:
        """Answer until the subscription ends, or so many messages have come; how many came, when all is answered. Raises what
        ended the subscription, unless the application ended it."""
        failure, came = None, 0
        async with asyncio.TaskGroup() as group:
            try:
                while came != count:
                    await self._places.acquire()
                    message = await self._next(subscription)
                    message.defer()  # it is settled when it has been answered, and not by asking for the next one
                    group.create_task(self._respond(message)).add_done_callback(lambda _: self._places.release())
                    came += not message.is_erased
            except StopAsyncIteration:
                pass
            except ClientError as error:
                failure = error
        if failure is not None:
            raise failure
        return came

    async def _next(self, subscription: Subscription) -> Message:
        try:
            return await anext(subscription)
        except BaseException:
            self._places.release()
            raise

    async def run_until_ended(self, subscription: Subscription) -> None:
        """Answer until the subscription ends, whyever."""
        try:
            await self.run(subscription)
        except ClientError as error:
            log.warning("%s ended: %s", subscription.channel, error)

    async def _respond(self, message: Message) -> None:
        with self._traces.processing(message):
            await self._answer_to(message)

    async def _answer_to(self, message: Message) -> None:
        channel = reply_channel(message.fields)
        if channel is None:
            if message.is_erased:
                log.warning("%s was erased: no more requests will arrive", message.channel)
            message.settle()
            return
        try:
            result = await result_of(self._answer, message)
            response = result._replace(channel=channel) if isinstance(result, Response) else Response(channel, result)
        except Exception as error:  # noqa: BLE001 - whatever the application raises is the answer
            response = _failed(channel, message, error)
        await self._send(message, response)

    async def _send(self, message: Message, response: Response) -> None:
        try:
            try:
                await self._publish_with_retries(response)
            except Exception as error:
                if not _is_to_blame(response, error):
                    raise
                await self._publish_with_retries(_failed(response.channel, message, error))
        except Exception as error:
            log.exception("the answer to a request on %s could not be sent", message.channel)
            message.reject(*failure_of(error))
        else:
            message.settle()

    async def _publish_with_retries(self, response: Response) -> None:
        for left in reversed(range(_TRIES)):
            try:
                await self._publish(*response)
            except (TransportError, PublishRefused) as error:
                is_taken = not isinstance(error, PayloadRefusedError)
                is_lost = is_taken and (isinstance(error, TransportError) or error.code in UNKNOWN_SESSION)
                if not (is_lost and left):
                    raise
            else:
                return


def _is_to_blame(response: Response, error: Exception) -> bool:
    """Whether JSON cannot say this answer, or the server does not take it, so that the requester gets the failure instead."""
    is_illegal = isinstance(error, PublishRefused) and error.error_code == "user.illegalArgument"
    return isinstance(error, TypeError | PayloadRefusedError) or (is_illegal and response.data is not None)


def _failed(channel: str, message: Message, error: Exception) -> Response:
    code, text, data = failure(error)
    if (code, text) == (FAULT, UNTOLD):
        log.error("a responder on %s failed", message.channel, exc_info=error)
    return Response(channel, data, error_answer(code, text))
