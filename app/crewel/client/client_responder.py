"""Functions of an application that answer the requests of a subscription: the answering side in a client.

`broker/responder.py` is the answering side of services on a server; `requests.py` asks.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from crewel.bayeux.answers import FAULT, UNTOLD, error_answer, failure, reply_channel
from crewel.bayeux.message import Fields
from crewel.client.arguments import check_function, check_whole
from crewel.client.callbacks import result_of
from crewel.client.client_message import Message
from crewel.client.errors import (
    ClientError,
    NotConnectedError,
    PayloadRefusedError,
    PublishRefused,
    TransportError,
    failure_of,
)
from crewel.client.publish_options import may_be_repeated
from crewel.client.subscription import Subscription
from crewel.client.traces import NO_TRACES, Traces

log = logging.getLogger("crewel.client")

OnRequest = Callable[[Message], Any]
"""What is called with each request; it returns the answer's data or a `Response`, or a coroutine that does."""
_TRIES: Final = 3
"""How often an answer is sent while it may not have arrived: a second one does no harm."""
_SAME: Final[Any] = object()


class Response(NamedTuple):
    """An answer that is ready to be published, `await client.publish(*response)`, or that a responder returns."""

    channel: str
    data: Any
    ext: Fields | None = None


def create_response(message: Message, data: Any = _SAME) -> Response:
    """The answer to a request, on its reply channel, with this data. Without data, it has the request's own, bytes and content
    type included, and its client properties, as xMsg has it. Raises ValueError if the message is no request."""
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
            response = self._failed(channel, message, error)
        await self._send(message, response)

    async def _send(self, message: Message, response: Response) -> None:
        try:
            try:
                await self._publish_with_retries(response)
            except Exception as error:
                if not _is_to_blame(response, error):
                    raise
                await self._publish_with_retries(self._failed(response.channel, message, error))
        except Exception as error:
            log.exception("the answer to a request on %s could not be sent", message.channel)
            self._traces.fail_processing(error)
            message.reject(*failure_of(error))
        else:
            message.settle()

    async def _publish_with_retries(self, response: Response) -> None:
        for left in reversed(range(_TRIES)):
            try:
                await self._publish(*response)
            except (TransportError, NotConnectedError, PublishRefused) as error:
                if not (left and may_be_repeated(error)):
                    raise
            else:
                return

    def _failed(self, channel: str, message: Message, error: Exception) -> Response:
        self._traces.fail_processing(error)
        code, text, data = failure(error)
        if (code, text) == (FAULT, UNTOLD):
            log.error("a responder on %s failed", message.channel, exc_info=error)
        return Response(channel, data, error_answer(code, text))


def _is_to_blame(response: Response, error: Exception) -> bool:
    """Whether JSON cannot say this answer, or the server does not take it, so that the requester gets the failure instead."""
    is_illegal = isinstance(error, PublishRefused) and error.error_code == "user.illegalArgument"
    return isinstance(error, TypeError | PayloadRefusedError) or (is_illegal and response.data is not None)
