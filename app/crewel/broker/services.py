"""Services: an application written against the server, in one file.

A `Service` collects what its decorators are put on; `install` binds it to a broker. `load_services` finds the services of
a module for `crewel serve --service module`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from crewel.bayeux.channel import parse
from crewel.broker.responder import OnRequest, responder
from crewel.broker.service_registry import Background, RemoteCall
from crewel.errors import ServiceError
from crewel.security.policy import Authorizer, SecurityPolicy

if TYPE_CHECKING:
    from crewel.broker.broker import Broker

F = TypeVar("F", bound=Callable[..., Any])


class Service:
    """One application, or one part of it. It may be installed in any number of servers, one after the other or at once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.policy: SecurityPolicy | None = None
        """The security policy of the whole server; at most one service may bring one."""
        self.brokers: list[Broker] = []
        """Those of the servers that it is installed in and that have not ended."""
        self._bindings: list[Callable[[Broker], None]] = []

    @property
    def broker(self) -> Broker:
        """The broker of the server that this service is installed in. Raises ServiceError if there is none, or more than
        one; in that case, use what `attach` returned."""
        if len(self.brokers) != 1:
            servers = f"is installed in {len(self.brokers)} servers" if self.brokers else "is not installed in a server"
            raise ServiceError(f"the service {self.name!r} {servers}: `broker` needs exactly one")
        return self.brokers[0]

    def publish(
        self,
        channel: str,
        data: Any,
        *,
        ext: dict[str, Any] | None = None,
        lazy: bool = False,
        qos: dict[str, Any] | None = None,
    ) -> None:
        """Publish to all subscribers of the channel, as the server; `qos` as in `ext.publish`."""
        self.broker.publish(channel, data, ext=ext, lazy=lazy, qos=qos)

    async def send(
        self,
        to: str,
        channel: str,
        data: Any,
        *,
        ext: dict[str, Any] | None = None,
        qos: dict[str, Any] | None = None,
    ) -> str:
        """Send to a session, `client/joe/1`, or to all sessions of a subject, `client/joe`, as the server; return the message's
        id. Raises Refused if it cannot be delivered."""
        return await self.broker.send(to, channel, data, ext=ext, qos=qos)

    def listener(self, channel: str) -> Callable[[F], F]:
        """Call the function `(session, message)` for each message that a client publishes to this channel or pattern,
        before it is broadcast and answered. If it returns False, the message is refused (`404::message_deleted`). It may be
        async; the reply then waits for it."""
        pattern = _published(channel)
        return self._collect(lambda broker, function: _add(broker.runtime.services.listeners, pattern, function))

    def subscription(self, channel: str) -> Callable[[F], F]:
        """Call the function `(message)` for each message that was broadcast on this channel or pattern. It may be async;
        nothing waits for it."""
        pattern = _published(channel)
        return self._collect(lambda broker, function: _add(broker.runtime.services.subscribed, pattern, function))

    def responder(self, channel: str) -> Callable[[F], F]:
        """Answer each request on this channel or pattern with the result of the function `(message)`, which may be async. An
        exception with an `error_code` becomes an error answer with that code and its text, a `RemoteCallError` one with its
        data. The server logs any other exception and answers with an error without details. Other messages are ignored."""
        pattern = _pattern(channel)
        if pattern.startswith(("/service/", "/meta/")):
            raise ServiceError(f"requests need a broadcast channel, and {channel!r} is not one")

        def bind(broker: Broker, function: OnRequest) -> None:
            _add(broker.runtime.services.subscribed, pattern, responder(broker.publish, function))

        return self._collect(bind)

    def remote_call(self, target: str) -> Callable[[F], F]:
        """Answer `cometd.remoteCall(target, data)` with the result of the function `(session, data)`, which may be async. A
        `RemoteCallError` becomes a failure with its data; the server logs any other exception and answers with an internal
        error."""
        name = "/service/" + target.removeprefix("/")
        channel = _pattern(name)
        if channel.endswith("*") or "{" in channel:
            raise ServiceError(f"a remote call has one name: {target!r} is a pattern; pass the variable part as data")

        def bind(broker: Broker, function: RemoteCall) -> None:
            if channel in broker.runtime.services.calls:
                raise ServiceError(f"two services answer the remote call {target!r}")
            broker.runtime.services.calls[channel] = function

        return self._collect(bind)

    def on_session_added(self, function: F) -> F:
        """Call the function `(session)` when a handshake has been granted, before its reply; and at the start of the server
        for each session that is restored from the store."""
        return self._collect(lambda broker, added: broker.runtime.services.session_added.append(added))(function)

    def on_session_removed(self, function: F) -> F:
        """Call the function `(session, expired)` when a session has ended, before its subscriptions are removed. `expired` is
        true if no connect came in time."""
        return self._collect(lambda broker, removed: broker.runtime.services.session_removed.append(removed))(function)

    def on_dead_letter(self, function: F) -> F:
        """Call the function `(letter)`, with a `DeadLetter`, for each dead letter that this server has stored. It may be async;
        the next dead letter waits for it, a minute at most, and nothing else does."""
        return self._collect(lambda broker, hook: broker.runtime.services.dead_letter.append(hook))(function)

    def background(self, function: Background) -> Background:
        """Run the coroutine function `()` from the moment the server has opened its store until it ends, and then cancel it. If
        it raises an exception, the server logs it and runs the function again after a pause of 0.1 to 5 seconds; if it returns,
        it has ended. Each worker and each node runs it. Raises ServiceError if it is not a coroutine function."""
        if not iscoroutinefunction(function):
            raise ServiceError(f"background work is a coroutine function, `async def`, and {function!r} is not one")
        # Not a pair `on_start` and `on_stop`: applications would have to keep them in step, and a failure in one of them has no
        # clear meaning. No node is elected to run it either: work that must run once is a client.
        task = f"{self.name}.{getattr(function, '__name__', 'background')}"
        return self._collect(lambda broker, body: broker.runtime.services.background.append((task, body)))(function)

    def authorizer(self, channel: str) -> Callable[[Authorizer], Authorizer]:
        """Ask the function `(operation, channel, session, message)` about this channel or pattern: GRANT, IGNORE or
        Deny(reason)."""
        pattern = _pattern(channel)
        return self._collect(lambda broker, authorizer: broker.admission.guard.authorize(pattern, authorizer))

    def install(self, broker: Broker) -> None:
        """Bind everything to this broker, until it ends. Raises ServiceError if it is installed there already, or a second
        service brings a policy."""
        if broker in self.brokers:
            raise ServiceError(f"the service {self.name!r} is already installed in this server")
        if self.policy is not None:
            broker.set_policy(self.policy)
        self.brokers.append(broker)
        broker.runtime.life.on_close.append(lambda: self._left(broker))
        for bind in self._bindings:
            bind(broker)

    def _left(self, broker: Broker) -> None:
        self.brokers = [each for each in self.brokers if each is not broker]

    def _collect(self, bind: Callable[[Broker, Any], None]) -> Callable[[F], F]:
        def decorate(function: F) -> F:
            self._bindings.append(lambda broker: bind(broker, function))
            return function

        return decorate


def load_services(modules: Iterable[str]) -> list[Service]:
    """The services of these modules, in order. Raises ServiceError for a module that cannot be imported or holds none."""
    found: list[Service] = []
    for name in modules:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not f"{name}.".startswith(f"{error.name}."):  # it imports something that is missing
                raise ServiceError(f"the service module {name!r} cannot be imported: {error!r}") from error
            raise ServiceError(
                f"there is no service module {name!r}, neither in the working directory {Path.cwd()} nor on Python's path: give"
                " the name of a file without .py"
            ) from error
        except Exception as error:
            raise ServiceError(f"the service module {name!r} cannot be imported: {error!r}") from error
        services = [value for value in vars(module).values() if isinstance(value, Service)]
        if not services:
            raise ServiceError(
                f"the module {name!r} has no crewel.Service; write `{name.rpartition('.')[2]} = Service(...)`"
            )
        found.extend(service for service in services if service not in found)
    return found


def _pattern(name: str) -> str:
    channel = parse(name)
    if channel is None:
        raise ServiceError(f"{name!r} is not a channel name or pattern, such as /chat/** or /service/members")
    return channel.name


def _published(name: str) -> str:
    """A pattern for messages that are published, which those on meta channels are not."""
    pattern = _pattern(name)
    if pattern.startswith("/meta/"):
        raise ServiceError(
            f"nothing is published on {name!r}: see on_session_added, on_session_removed, and the policy for subscribes"
        )
    return pattern


def _add(table: dict[str, list[Any]], pattern: str, function: Callable[..., Any]) -> None:
    table.setdefault(pattern, []).append(function)
