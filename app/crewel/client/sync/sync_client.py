"""The client an application without asyncio sees: publish, subscribe, batch, remote call."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, Self, Unpack, overload
from weakref import WeakSet

from crewel.bayeux.message import Fields
from crewel.client import client, client_message, outbox
from crewel.client.arguments import check_count, check_function, check_kind
from crewel.client.client import QUEUE_BOUND
from crewel.client.client_extension import Extension
from crewel.client.client_message import DataT, Reply
from crewel.client.config import Options
from crewel.client.errors import ClientError
from crewel.client.publish_options import PublishOptions
from crewel.client.requests import Requests
from crewel.client.states import OnState, State
from crewel.client.subscription import Overflow, ReceiveOptions, SubscribeOptions
from crewel.client.sync.background import Fact, background
from crewel.client.sync.sync_batch import Batch
from crewel.client.sync.sync_consumer import Consumer, check_result
from crewel.client.sync.sync_message import Message
from crewel.client.sync.sync_outbox import Outbox
from crewel.client.sync.sync_presence import Presence
from crewel.client.sync.sync_subscription import Subscription
from crewel.client.threads import ProgramExit, in_thread
from crewel.client.worker_options import WorkerOptions

log = logging.getLogger("crewel.client")

OnMessage = Callable[[Message[DataT]], object]
"""What is called with each message of a subscription, in a thread of that subscription."""


class Client:
    """A Bayeux session as a context manager: `with Client(url) as client:`; or call `open`, and `close` when you are done.

    Names, arguments and errors are those of `crewel.client.Client`, which explains them. Each call waits for its result. All
    threads may use a client. Listeners of `on_state` and extensions run in the thread of the event loop, so they must not wait.
    Callbacks and handlers of messages run in threads of their own, and may. A client that is still open at the end of the
    process is closed then.
    """

    # Written by tools/sync_client.py, as crewel.client.Client has it
    def __init__(
        self,
        url: str,
        *,
        extensions: Iterable[Extension] = (),
        on_state: OnState | None = None,
        outbox: Outbox | None = None,
        **options: Unpack[Options],
    ) -> None:
        own = _origin_of(outbox)
        self._begin(client.Client(url, extensions=extensions, on_state=on_state, outbox=own, **options), outbox)

    state = Fact[State]("_origin", "state")
    """The state of the session."""
    client_id = Fact[str | None]("_origin", "client_id")
    """The session's id, which is a secret; another one after every handshake."""
    transport = Fact[str | None]("_origin", "transport")
    """The transport in use."""
    acknowledges = Fact[bool]("_origin", "acknowledges")
    """Whether deliveries of this session are acknowledged."""
    settles = Fact[bool]("_origin", "settles")
    """Whether the server receives the status of each message of this session."""
    unclaimed = Fact[int]("_origin", "unclaimed")
    """How many messages wait here for a listener."""
    name = Fact[str | None]("_origin", "name")
    """The public name that the server gave this session, if it was asked for one."""
    resume = Fact[str | None]("_origin", "resume")
    """The secret that takes this session over, for the client that continues it; another one after each handshake."""
    login = Fact[Fields]("_origin", "login")
    """All that the server answered about this session: `reconnected`, `queued`, `durable` and more."""
    requests = Fact[Requests]("_origin", "requests")
    """The requests that wait for answers, and how many answers came twice or too late."""

    def on_state(self, listener: OnState) -> Callable[[], None]:
        """Call `listener` with every `Transition` of the session. Returns a function that removes the listener."""
        remove = self._background.call(lambda: self._origin.on_state(listener))
        return lambda: self._background.call(remove)

    def add_extension(self, extension: Extension) -> None:
        """Append an extension. If it must see the handshake, add it before you enter the client."""
        self._background.call(lambda: self._origin.add_extension(extension))

    def remove_extension(self, extension: Extension) -> None:
        """Remove an extension. Raises ValueError if the client does not have it."""
        self._background.call(lambda: self._origin.remove_extension(extension))

    def ready(self, timeout: float = 10.0) -> None:
        """Wait until requests can be sent. Raises NotConnectedError, DisconnectedError."""
        self._background.wait_for(lambda: self._origin.ready(timeout))

    def publish(
        self,
        channel: str,
        data: Any,
        ext: Fields | None = None,
        *,
        retry_for: float = 0.0,
        **options: Unpack[PublishOptions],
    ) -> Reply:
        """Publish one message, and return the server's reply. The arguments and errors are those of
        `crewel.client.Client.publish`."""
        return self._background.wait_for(
            lambda: self._origin.publish(channel, data, ext, retry_for=retry_for, **options)
        )

    def enqueue(self, channel: str, data: Any, ext: Fields | None = None, **options: Unpack[PublishOptions]) -> str:
        """Put one message into the outbox, and return its idempotency key. The arguments and errors are those of
        `crewel.client.Client.enqueue`."""
        return self._background.wait_for(lambda: self._origin.enqueue(channel, data, ext, **options))

    def batch(self) -> Batch:
        """Publishes that travel in one payload: `with client.batch() as batch: batch.publish(…)`. The arguments and errors
        are those of `crewel.client.Client.batch`."""
        return Batch(self._background, self._origin.batch())

    def cancel_scheduled(self, message_id: str) -> bool:
        """Cancel a message that this account has scheduled, by the `message_id` of the reply to its publish. Returns whether it
        was still scheduled: if not, it has been published or cancelled. Raises as `publish` does."""
        return self._background.wait_for(lambda: self._origin.cancel_scheduled(message_id))

    def remote_call(self, target: str, data: Any = None, timeout: float = 10.0) -> Any:
        """Call the server's procedure `target`, and return its result, a JSON value. The arguments and errors are those of
        `crewel.client.Client.remote_call`."""
        return self._background.wait_for(lambda: self._origin.remote_call(target, data, timeout))

    def request(
        self,
        channel: str,
        data: Any = None,
        timeout: float = 10.0,
        ext: Fields | None = None,
        **options: Unpack[PublishOptions],
    ) -> client_message.Message:
        """Publish a request, and return the first answer (docs/how-to/request-reply.md). The arguments and errors are
        those of `crewel.client.Client.request`."""
        return self._background.wait_for(lambda: self._origin.request(channel, data, timeout, ext, **options))

    def reply(
        self,
        channel: str,
        callback: OnMessage,
        *,
        at_once: int = 1,
        is_addressed: bool = False,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription:
        """Answer the requests on a channel or a wildcard with the result of `callback(message)`, at most `at_once` at the
        same time, each in a thread. The arguments and errors are those of `crewel.client.Client.reply`."""
        check_count("at_once", at_once)
        called = self._in_threads(callback, at_once, is_answer=True)
        return Subscription(
            self._background,
            self._background.wait_for(
                lambda: self._origin.reply(channel, called, at_once=at_once, is_addressed=is_addressed, **options)
            ),
        )

    @overload
    def subscribe(
        self,
        channel: str,
        callback: OnMessage[DataT] | None = None,
        *,
        data: type[DataT],
        **options: Unpack[ReceiveOptions],
    ) -> Subscription[DataT]: ...

    @overload
    def subscribe(
        self, channel: str, callback: OnMessage | None = None, *, data: Any = None, **options: Unpack[ReceiveOptions]
    ) -> Subscription: ...

    def subscribe(
        self, channel: str, callback: OnMessage | None = None, *, data: Any = None, **options: Unpack[ReceiveOptions]
    ) -> Subscription:
        """Subscribe to a channel or a wildcard, before or after you open the client. A `callback` runs in a thread of this
        subscription, with one message after another. If it raises SystemExit, the client logs it, the message stays
        open, and the next one follows. The arguments and errors are those of `crewel.client.Client.subscribe`."""
        called = None if callback is None else self._in_threads(callback, 1)
        return Subscription(
            self._background,
            self._background.wait_for(lambda: self._origin.subscribe(channel, called, data=data, **options)),
        )

    @overload
    def consume(
        self, channel: str, *, name: str, data: type[DataT], **options: Unpack[WorkerOptions]
    ) -> Consumer[DataT]: ...

    @overload
    def consume(self, channel: str, *, name: str, data: Any = None, **options: Unpack[WorkerOptions]) -> Consumer: ...

    def consume(self, channel: str, *, name: str, data: Any = None, **options: Unpack[WorkerOptions]) -> Consumer:
        """Return the messages of a channel or a wildcard for a worker that survives crashes and restarts
        (docs/reference/client.md). The arguments and errors are those of `crewel.client.Client.consume`."""
        made = self._background.call(lambda: self._origin.consume(channel, name=name, data=data, **options))
        return Consumer(self._background, made, Client.of(made.client))

    def listen(
        self,
        channel: str,
        callback: OnMessage | None = None,
        *,
        bound: int = QUEUE_BOUND,
        overflow: Overflow = Overflow.HOLD,
        unclaimed: bool = False,
    ) -> Subscription:
        """Receive messages on a channel or a wildcard without a subscription at the server. A `callback` runs in a thread.
        The arguments and errors are those of `crewel.client.Client.listen`."""
        called = None if callback is None else self._in_threads(callback, 1)
        return Subscription(
            self._background,
            self._background.call(
                lambda: self._origin.listen(channel, called, bound=bound, overflow=overflow, unclaimed=unclaimed)
            ),
        )

    def presence(self, channel: str, *, enter: bool = True, data: Any = None) -> Presence:
        """Return the presence of a channel, for a block in which this session is present with these `data`, a JSON value.
        The arguments and errors are those of `crewel.client.Client.presence`."""
        return Presence(
            self._background, self._background.call(lambda: self._origin.presence(channel, enter=enter, data=data))
        )

    # End of what is written

    def _begin(self, origin: client.Client, outbox: Outbox | None = None) -> None:
        self._origin, self._background = origin, background()
        self._pools: WeakSet[ThreadPoolExecutor] = WeakSet()  # a pool ends when no callback needs it
        self.outbox = outbox
        """The outbox that keeps publishes while there is no session; None without one."""

    @classmethod
    def of(cls, origin: client.Client) -> Self:
        """Return this client for programs without asyncio. It must have been made for the loop of all synchronous clients."""
        made = cls.__new__(cls)
        cls._begin(made, origin)
        return made

    def open(self) -> Self:
        """Make the handshake, as entering does. Raises TransportError, HandshakeRefused, NegotiationError."""
        self._background.wait_for(self._origin.__aenter__)
        _OPEN.add(self)
        return self

    def close(self) -> None:
        """Disconnect, as leaving does. Callbacks that still run are not awaited; their messages stay open."""
        self.__exit__(None, None, None)

    def _in_threads(
        self, callback: OnMessage, most: int, *, is_answer: bool = False
    ) -> Callable[[client_message.Message], Any]:
        """A coroutine function that calls the callback in one of so many threads. SystemExit there ends no program: a message
        stays open; a request, whose answer is what the callback returns, fails."""
        check_function("callback", callback)
        if iscoroutinefunction(callback):
            raise TypeError("callback is a plain function here; crewel.client.Client calls coroutine functions")
        pool = ThreadPoolExecutor(most, thread_name_prefix="crewel-client-callback")
        self._pools.add(pool)

        async def call(received: client_message.Message) -> object:
            try:
                result = await in_thread(pool, callback, Message.of(received, self._background))
                return check_result("callback", result)
            except ProgramExit as end:
                log.error("a callback of %s raised %s, which does not end the program", received.channel, end)
                if is_answer:
                    raise RuntimeError(f"the callback raised {end}") from end.error
                received.defer()
                return None

        return call

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _OPEN.discard(self)
        try:
            self._background.leave(lambda: self._origin.__aexit__(kind, error, trace))
        finally:
            for pool in list(self._pools):
                pool.shutdown(wait=False, cancel_futures=True)


def _origin_of(given: Outbox | None) -> outbox.Outbox | None:
    if given is None:
        return None
    check_kind("outbox", given, 'an Outbox of crewel.client.sync, such as Outbox("orders.outbox")', Outbox)
    return given.origin


_OPEN: WeakSet[Client] = WeakSet()


def _close_all() -> None:
    """Let the server know that the sessions have ended; after a fork, those of the parent are not this process's."""
    for each in list(_OPEN):
        with suppress(ClientError, RuntimeError):
            each.close()


atexit.register(_close_all)
