"""Responders: functions that answer requests, and the answers of those who would rather send them by themselves."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, Final, NamedTuple

from crewel.bayeux.answers import FAULT, UNTOLD, error_answer, failure, reply_channel
from crewel.bayeux.message import Fields
from crewel.client.errors import ClientError, MessageTooLargeError, PublishRefused, TransportError
from crewel.client.message import Message
from crewel.client.settling import described
from crewel.client.subscriber import UNKNOWN_SESSION
from crewel.client.subscription import Subscription

log = logging.getLogger("crewel.client")

OnRequest = Callable[[Message], Any]
"""What is called with each request; it returns the answer's data, or a coroutine that does."""

_TRIES: Final = 3
"""How often an answer is sent of which nobody knows whether it arrived: a second one does no harm."""
_SAME: Final[Any] = object()


class Response(NamedTuple):
    """An answer that is ready to be published: `await client.publish(*response)`."""

    channel: str
    data: Any
    ext: Fields | None = None


def create_response(message: Message, data: Any = _SAME) -> Response:
    """The answer to a request, on its reply channel: with this data; or, as xMsg has it, with the request's own, and with its
    client properties. Raises ValueError if the message is no request."""
    channel = reply_channel(message.fields)
    if channel is None:
        raise ValueError(f"a message on {message.channel} that is no request has no answer")
    if data is not _SAME:
        return Response(channel, data)
    properties = copy.deepcopy(message.client_properties)
    ext = {"publish": {"clientProperties": properties}} if properties else None
    return Response(channel, copy.deepcopy(message.data), ext)


class Responder:
    """Answers the requests of one subscription with what a function returns. Messages that are no requests are let pass."""

    def __init__(self, answer: OnRequest, publish: Callable[..., Awaitable[Any]], at_once: int) -> None:
        if at_once < 1:
            raise ValueError("a responder works on 1 request at once, or more")
        self._answer = answer
        self._publish = publish
        self._places = asyncio.Semaphore(at_once)

    async def run(self, subscription: Subscription, count: int | None = None) -> int:
        """Answer until the subscription ends, or so many messages have come; how many came, when all is answered. Raises what
        ended the subscription, if that was not the application's wish."""
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

    async def keep_on(self, subscription: Subscription) -> None:
        """Answer until the subscription ends, whyever."""
        try:
            await self.run(subscription)
        except ClientError as error:
            log.warning("%s ended: %s", subscription.channel, error)

    async def _respond(self, message: Message) -> None:
        channel = reply_channel(message.fields)
        if channel is None:
            if message.is_erased:
                log.warning("%s was erased: its requests are heard no more", message.channel)
            message.settle()
            return
        try:
            result = self._answer(message)
            response = Response(channel, await result if isawaitable(result) else result)
        except Exception as error:  # noqa: BLE001 - whatever the application raises is the answer
            response = _failed(channel, message, error)
        await self._send(message, response)

    async def _send(self, message: Message, response: Response) -> None:
        try:
            await self._publish_surely(response)
        except (TypeError, MessageTooLargeError) as error:  # JSON cannot say it, or the server does not take it
            await self._send(message, _failed(response.channel, message, error))
        except Exception as error:
            log.exception("the answer to a request on %s could not be sent", message.channel)
            message.reject(*described(error))
        else:
            message.settle()

    async def _publish_surely(self, response: Response) -> None:
        for left in reversed(range(_TRIES)):
            try:
                await self._publish(*response)
            except (TransportError, PublishRefused) as error:
                is_sent = not isinstance(error, MessageTooLargeError)
                is_lost = is_sent and (isinstance(error, TransportError) or error.code in UNKNOWN_SESSION)
                if not (is_lost and left):
                    raise
            else:
                return


def _failed(channel: str, message: Message, error: Exception) -> Response:
    code, text, data = failure(error)
    if (code, text) == (FAULT, UNTOLD):
        log.error("a responder on %s failed", message.channel, exc_info=error)
    return Response(channel, data, error_answer(code, text))
