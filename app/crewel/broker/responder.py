"""Functions of services that answer requests: the answer goes to the channel that the request names."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

from crewel.bayeux.answers import FAULT, UNTOLD, error_answer, failure, reply_channel
from crewel.bayeux.message import Accepted

log = logging.getLogger(__name__)

OnRequest = Callable[[Accepted], Any]
"""What answers a request: returns the answer's data, or an awaitable of it."""
Publish = Callable[..., None]
"""Publishes as the server: `publish(channel, data, ext=None)`."""


def responder(publish: Publish, answer: OnRequest) -> Callable[[Accepted], Awaitable[None] | None]:
    """Subscribe a function that answers the requests on a channel. Other messages pass."""

    def respond(message: Accepted) -> Awaitable[None] | None:
        reply_to = reply_channel(message.fields)
        if reply_to is None:
            return None
        try:
            result = answer(message)
        except Exception as error:  # noqa: BLE001 - whatever the application raises is the answer
            _fail(publish, reply_to, message, error)
            return None
        if isawaitable(result):
            return _answer_later(publish, reply_to, message, result)
        _answer(publish, reply_to, message, result)
        return None

    return respond


async def _answer_later(publish: Publish, reply_to: str, message: Accepted, pending: Awaitable[Any]) -> None:
    try:
        result = await pending
    except Exception as error:  # noqa: BLE001 - whatever the application raises is the answer
        _fail(publish, reply_to, message, error)
    else:
        _answer(publish, reply_to, message, result)


def _answer(publish: Publish, reply_to: str, message: Accepted, data: Any) -> None:
    try:
        publish(reply_to, data)
    except TypeError as error:  # JSON cannot say it
        _fail(publish, reply_to, message, error)


def _fail(publish: Publish, reply_to: str, message: Accepted, error: Exception) -> None:
    code, text, data = failure(error)
    if (code, text) == (FAULT, UNTOLD) and data is None:
        log.error("a responder on %s failed", message.channel.name, exc_info=error)
    try:
        publish(reply_to, data, ext=error_answer(code, text))
    except TypeError as unsaid:  # JSON cannot say what the error carries
        _fail(publish, reply_to, message, unsaid)
