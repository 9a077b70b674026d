"""What the installed services listen to, and how they are called."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from inspect import isawaitable
from typing import Any

from crewel.bayeux.channel import Channel
from crewel.bayeux.message import Accepted, Fields, Message
from crewel.bayeux.replies import Reply
from crewel.broker.dead_letter import DeadLetter
from crewel.broker.handler_steps import Steps
from crewel.broker.session import Session
from crewel.errors import IllegalArgument, RemoteCallError
from crewel.qos.fields import Check, read_fields

log = logging.getLogger(__name__)

Listener = Callable[[Session, Message], Any]
Subscribed = Callable[[Accepted], Any]
Background = Callable[[], Coroutine[Any, Any, None]]
RemoteCall = Callable[[Session, Any], Any]


class ServiceRegistry:
    """The functions of services, by channel or pattern. `spawn` runs those that have to be waited for."""

    def __init__(self, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._spawn = spawn
        self.listeners: dict[str, list[Listener]] = {}
        self.subscribed: dict[str, list[Subscribed]] = {}
        self.calls: dict[str, RemoteCall] = {}
        self.answers: dict[str, Callable[[Session, Message], Reply | Steps[Reply]]] = {}
        """Service channels that are answered in the reply to the publish itself."""
        self.session_added: list[Callable[[Session], Any]] = []
        self.session_removed: list[Callable[[Session, bool], Any]] = []
        self.dead_letter: list[Callable[[DeadLetter], Any]] = []
        self.background: list[tuple[str, Background]] = []
        """What runs as long as the server, with the name of its task."""

    def call_subscribed(self, channel: Channel, fields: Fields, sender: str = "") -> None:
        """Call the functions of services that receive this channel."""
        message = Accepted(fields, channel, sender)
        for pattern in channel.patterns:
            for function in self.subscribed.get(pattern, ()):
                self.call(function, message)

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function of a service; its failure is its own."""
        try:
            result = function(*arguments)
        except Exception:
            log.exception("a service failed in %s", getattr(function, "__qualname__", function))
        else:
            if result is not None and isawaitable(result):
                self._spawn(_waited(result))


def read_call(data: Any, checks: Mapping[str, Check], *required: str) -> Fields:
    """Return the checked fields of the data of a remote call. Raises RemoteCallError for a wrong one, or if one is missing."""
    try:
        asked = read_fields(data, checks, "data")
        for name in required:
            if name not in asked:
                raise IllegalArgument(name, "is missing")
    except IllegalArgument as error:
        raise call_failure(error.code, error.message) from None
    return asked


def call_failure(code: str, message: str) -> RemoteCallError:
    """What a remote call raises that fails with this dotted code."""
    return RemoteCallError({"errorCode": code, "message": message})


async def _waited(awaitable: Any) -> None:
    await awaitable
