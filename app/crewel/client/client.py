"""The client an application sees: publish, subscribe, batch, remote call."""

from __future__ import annotations

import asyncio
import copy
import logging
import math
import secrets
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, Self, Unpack, overload

from crewel.bayeux.message import Fields
from crewel.client.arguments import check_function, check_kind, check_names, check_plain_function, check_wait
from crewel.client.callbacks import Callbacks, OnMessage
from crewel.client.client_extension import Extension, check_extension, checked
from crewel.client.client_message import (
    KEY_PROPERTY,
    DataT,
    Message,
    Reply,
    channel_name,
    ext_part,
    is_successful,
)
from crewel.client.client_presence import Presence
from crewel.client.client_responder import OnRequest, Responder
from crewel.client.config import INHERITED, Config, Options
from crewel.client.consumer import Consumer
from crewel.client.errors import (
    ClientError,
    PublishRefused,
    RemoteCallFailedError,
    RemoteCallTimeoutError,
    TransportError,
    publish_refused,
)
from crewel.client.outbox import Outbox
from crewel.client.payload import Payload, written
from crewel.client.publish_options import Batch, PublishOptions, check_retry_for, publication, retry_until_stored
from crewel.client.requests import Requests
from crewel.client.router import Router, Unclaimed
from crewel.client.session_loop import Session
from crewel.client.states import OnState, State
from crewel.client.subscription import (
    Overflow,
    ReceiveOptions,
    Release,
    SubscribeOptions,
    Subscription,
    of_subscribe,
    subscribe_ext,
)
from crewel.client.traces import NO_TRACES, Traces
from crewel.client.worker_options import WorkerOptions, check_worker, session_options
from crewel.errors import install_extra

log = logging.getLogger("crewel.client")

QUEUE_BOUND = 1000
"""How many messages of one subscription wait to be read, unless the application says otherwise."""


_OWN: Final = ("extensions", "on_state", "outbox")


class Client:
    """A Bayeux session as an asynchronous context manager.

    Entering it makes the handshake, and raises `TransportError`, `HandshakeRefused` or `NegotiationError` if that
    fails. The client then keeps the session alive. After a broken connection it asks for the same session. If the
    server no longer has that, the client opens a new one and subscribes to everything again. It calls the listeners
    of `on_state` at each change. Leaving it disconnects, unless `leave` is set: then the session stays at the server.

    `name`, `token`, `resume` and `persistent` identify the client; `session` has the other fields of `ext.session`.
    While the session of a `name` still counts as alive without a client, entering waits, at most as long as the
    server says. `resume_file` keeps the `resume` in a file of its owner, so that the next process does not wait.

    With `update`, the client reports the status of each message, and the server retries, puts on hold or keeps as a dead letter
    what failed. `settle` and the keywords beside it decide how. `Config` explains all keywords.
    """

    def __init__(
        self,
        url: str,
        *,
        extensions: Iterable[Extension] = (),
        on_state: OnState | None = None,
        outbox: Outbox | None = None,
        **options: Unpack[Options],
    ) -> None:
        check_names("Client", options, (*Options.__annotations__, *_OWN))
        if on_state is not None:
            check_plain_function("on_state", on_state)
        if outbox is not None:
            check_kind("outbox", outbox, 'an Outbox, such as Outbox("orders.outbox")', Outbox)
        config = Config(url, **options)
        self._config, self._extensions = config, checked(extensions)
        self._inherited: dict[str, Any] = {name: value for name, value in options.items() if name in INHERITED}
        self._consumers: list[Consumer[Any]] = []
        self.outbox = outbox
        """The outbox that keeps publishes while there is no session; None without one."""
        self._router = Router(Unclaimed(config.unclaimed_s), settles=config.update)
        self._session = Session(config, self._router, self._extensions)
        self.traces = _traces(is_on=config.traces)
        """Makes the spans of this client, if it has `traces`."""
        self.requests = Requests(self._session, traces=self.traces)
        """The requests that wait for answers, and how many answers came twice or too late."""
        self._callbacks = Callbacks(self.traces)
        if on_state is not None:
            self.on_state(on_state)

    @property
    def state(self) -> State:
        """The state of the session."""
        return self._session.life.state

    @property
    def client_id(self) -> str | None:
        """The session's id, which is a secret; another one after every handshake."""
        return self._session.connection.client_id

    @property
    def transport(self) -> str | None:
        """The transport in use."""
        return self._session.connection.transport

    @property
    def acknowledges(self) -> bool:
        """Whether deliveries of this session are acknowledged."""
        return self._session.connection.acknowledges

    @property
    def settles(self) -> bool:
        """Whether the server receives the status of each message of this session."""
        update = self._session.connection.update
        return update.is_granted and update.is_asked

    @property
    def unclaimed(self) -> int:
        """How many messages wait here for a listener."""
        return len(self._router.unclaimed)

    @property
    def name(self) -> str | None:
        """The public name that the server gave this session, if it was asked for one."""
        name = self._session.connection.login.reply.get("name")
        return name if isinstance(name, str) else None

    @property
    def resume(self) -> str | None:
        """The secret that takes this session over, for the client that continues it; another one after each handshake."""
        return self._session.connection.login.resume

    @property
    def login(self) -> Fields:
        """All that the server answered about this session: `reconnected`, `queued`, `durable` and more."""
        return dict(self._session.connection.login.reply)

    def on_state(self, listener: OnState) -> Callable[[], None]:
        """Call `listener` with every `Transition` of the session. Returns a function that removes the listener."""
        check_plain_function("listener", listener)
        self._session.life.listeners.append(listener)
        return lambda: self._session.life.listeners.remove(listener)

    def add_extension(self, extension: Extension) -> None:
        """Append an extension. If it must see the handshake, add it before you enter the client."""
        check_extension("extension", extension)
        self._session.connection.pipe.add(extension)

    def remove_extension(self, extension: Extension) -> None:
        """Remove an extension. Raises ValueError if the client does not have it."""
        self._session.connection.pipe.remove(extension)

    async def ready(self, timeout: float = 10.0) -> None:
        """Wait until requests can be sent. Raises NotConnectedError, DisconnectedError."""
        await self._session.life.ready(timeout)

    async def publish(
        self,
        channel: str,
        data: Any,
        ext: Fields | None = None,
        *,
        retry_for: float = 0.0,
        **options: Unpack[PublishOptions],
    ) -> Reply:
        """Publish one message, and return the server's reply. It has the `message_id` if you used one of the options.

        `PublishOptions` lists the options: `persistent`, `key`, `priority`, `to` and more. The server tries all destinations;
        `destinations` of the reply, or of the error, has the result of each.

        The call waits for a session if there is none. It sends the message once, unless you set `retry_for`: then it repeats
        the publish for that many seconds while the server or its store is unavailable. All attempts have the same `key`, a
        random one if you give none, so the server stores the message once. If all attempts fail, the call raises the last
        failure after which the message may be stored, or else the last one.

            reply = await client.publish("/orders/new", {"pizza": 4}, persistent=True, key="order-17", retry_for=30)

        Raises:
            NotStored: the message is persistent and could not be stored, or the result is unknown.
            UnknownDestination, UnknownDestinationSession, DestinationDenied, QueueOverflow: a destination did not get it.
            TopicReadonly: the topic accepts no second message.
            PublishRefused: the server refused it, with `code`, `arguments` and `text`; the base class of all the above.
            TransportError: there was no reply; the server may have accepted the message.
            NotConnectedError: there was no session in time; nothing was sent, or stored.
            ValueError: the channel cannot be published to, or `retry_for` is longer than a key is valid.
        """
        if not check_retry_for(retry_for):
            return await self._publish(publication(channel, data, ext, **options), asyncio.Event())
        message = publication(channel, copy.deepcopy(data), copy.deepcopy(ext), **options)
        message.setdefault("ext", {}).setdefault("publish", {}).setdefault("key", secrets.token_hex(16))
        return await retry_until_stored(lambda sent: self._publish(copy.deepcopy(message), sent), retry_for)

    async def enqueue(
        self, channel: str, data: Any, ext: Fields | None = None, **options: Unpack[PublishOptions]
    ) -> str:
        """Put one message into the outbox. The outbox publishes its messages in order as soon as there is a session, and
        repeats each publish until the server has replied. Returns the idempotency key, a random one if you give none. A second
        message with a key that is still queued is not added, and one with the key of a refused publish replaces that. Messages
        are persistent unless you set `persistent=False`. Receivers find the key as `message.idempotency_key`.

        Raises:
            OutboxFullError: the outbox is full.
            NotEncodableError: JSON cannot represent the data.
            DisconnectedError: the session has ended permanently.
            ClientError: the file of the outbox cannot be written, or the client has no outbox.
            ValueError: not a channel that can be published to, or not a key.
        """
        if self.outbox is None:
            raise ClientError("the client has no outbox: give it one, Client(url, outbox=Outbox(path))")
        key = options.get("key") or secrets.token_hex(16)
        if not isinstance(key, str):
            raise ValueError(f"key is a string, not {key!r}")  # noqa: TRY004 - as all arguments that do not fit
        properties = {**(options.get("properties") or {}), KEY_PROPERTY: key}
        own: PublishOptions = {"persistent": True, **options, "key": key, "properties": properties}
        message = publication(channel, data, ext, "enqueue", **own)
        with self.traces.sending("publish", message):  # which ends before it is sent: that may be in another process
            return await self.outbox.put(message)

    async def _publish(self, message: Fields, sent: asyncio.Event) -> Reply:
        with self.traces.sending("publish", message):
            await self._session.usable()
            sent.set()
            [reply] = await self._session.send([message])
            if not is_successful(reply):
                raise publish_refused(reply)
            return Reply(reply)

    def batch(self) -> Batch:
        """Publishes that travel in one payload: `async with client.batch() as batch: batch.publish(…)`."""
        return Batch(self._session.request, self.traces)

    async def cancel_scheduled(self, message_id: str) -> bool:
        """Cancel a message that this account has scheduled, by the `message_id` of the reply to its publish. Returns whether it
        was still scheduled: if not, it has been published or cancelled. Raises as `publish` does."""
        try:
            await self.publish("/service/cancelScheduled", message_id)
        except PublishRefused as error:
            if error.error_code != "user.schedule.absent":
                raise
            return False
        return True

    async def remote_call(self, target: str, data: Any = None, timeout: float = 10.0) -> Any:
        """Call the server's procedure `target`, and return its result, a JSON value. `timeout` is in seconds.

        Raises:
            RemoteCallFailedError: the procedure failed; `data` contains what it returned.
            RemoteCallTimeoutError: no result within `timeout`. If no service handles the call, the client logs this.
            PublishRefused: the call itself was refused.
            ValueError: `timeout` is no number of seconds.
        """
        check_wait("timeout", timeout)
        message = publication(f"/service/{target.removeprefix('/')}", data, {"service": {}})
        try:
            async with asyncio.timeout(timeout):
                answer = await self._call(message, timeout)
        except TimeoutError:
            raise RemoteCallTimeoutError(f"{target}: no result within {timeout:g} s") from None
        if answer.get("successful") is False:
            raise RemoteCallFailedError(target, answer["data"])
        return answer["data"]

    async def _call(self, message: Fields, timeout: float) -> Fields:
        # A result is awaited from here on only: the loss of an earlier session must not fail a call that waits for the next.
        await self._session.life.ready(timeout)
        connection = self._session.connection
        message["id"] = connection.next_id()
        with connection.exchanges.results.wait_for([message["id"]]) as (result,):
            try:
                [reply] = await self._session.request([message])
            except TransportError:
                if result.done():
                    return result.result()
                raise  # it is unknown whether it was sent
            if not is_successful(reply) and not result.done():
                raise publish_refused(reply)
            if ext_part(reply, "service").get("handled") is False:
                log.warning("nothing in the server answers %s", message["channel"])
            return await result

    async def request(
        self,
        channel: str,
        data: Any = None,
        timeout: float = 10.0,
        ext: Fields | None = None,
        **options: Unpack[PublishOptions],
    ) -> Message:
        """Publish a request, and return the first answer (docs/how-to/request-reply.md).

        `timeout` is in seconds from the call. It includes the wait for a session, and any time without a connection.

            answer = await client.request("/data/power", 7, timeout=5)
            print(answer.data)

        Raises:
            AnswerTimeoutError: no answer within `timeout`.
            ErrorAnswer: the responder reports a failure, with `error_code`, `message` and `data`.
            NotConnectedError: there was no session in time; nothing was sent.
            TransportError: it is unknown whether the request arrived, or the session that would get the answer was lost.
            PublishRefused, ValueError: as in `publish`.
        """
        return await self.requests.request(channel, data, timeout, ext, **options)

    async def reply(
        self,
        channel: str,
        callback: OnRequest,
        *,
        at_once: int = 1,
        is_addressed: bool = False,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription:
        """Answer the requests on a channel or a wildcard with the result of `callback(message)`, which may be a coroutine
        function.

        If the callback raises an exception with an `error_code`, the answer is an error with that code and its text. Any other
        exception becomes an error without details, and the client logs it. At most `at_once` requests are processed
        at the same time. With `is_addressed`, the client does not subscribe, and answers only requests that are addressed to
        this session or its subject. Raises the same errors as `subscribe`.
        """
        responder = Responder(callback, self.publish, at_once, self.traces)
        subscription = self.listen(channel) if is_addressed else await self.subscribe(channel, **options)
        self._callbacks.keep(responder.run_until_ended(subscription), channel)
        return subscription

    @overload
    async def subscribe(
        self,
        channel: str,
        callback: OnMessage[DataT] | None = None,
        *,
        data: type[DataT],
        **options: Unpack[ReceiveOptions],
    ) -> Subscription[DataT]: ...

    @overload
    async def subscribe(
        self, channel: str, callback: OnMessage | None = None, *, data: Any = None, **options: Unpack[ReceiveOptions]
    ) -> Subscription: ...

    async def subscribe(
        self, channel: str, callback: OnMessage | None = None, *, data: Any = None, **options: Unpack[ReceiveOptions]
    ) -> Subscription:
        """Subscribe to a channel or a wildcard. `ReceiveOptions` lists the options, such as `filter`, `history` and `bound`.

        If you call this before you enter the client, the client subscribes before its first connect, so that queued messages of
        the session find their listener. Entering the client then raises the error if the server refuses the subscription.

        Without `callback`, iterate over the returned subscription. With `callback`, the client calls it with one message after
        another. When the callback returns, its message is acknowledged. If it raises an exception, the client logs it, rejects
        the message with the exception's `error_code` if it has one, and continues with the next message.

            async for message in await client.subscribe("/orders/*", filter="data.pizza > `3`"):
                print(message.data)

        `data` is the type of the data, such as a pydantic model, a dataclass or a TypedDict: `message.data` then has this type.
        A message with other data is rejected with `user.update.illegalArgument` and what is wrong with it, is logged and
        counted in `invalid`, and does not reach the application.

        Raises:
            SubscribeRefused: the server refused.
            TransportError, NotConnectedError, DisconnectedError: the server was not reached, or did not reply.
            ValueError: the name is not a channel, or this client is subscribed to it with other options.
            TypeError: there is no such option, or `data` is no type that pydantic can read.
        """
        if callback is not None:
            check_function("callback", callback)
        check_names("subscribe", options, ReceiveOptions.__annotations__)
        payload = None if data is None else Payload(data)
        bound, overflow = options.get("bound", QUEUE_BOUND), options.get("overflow", Overflow.HOLD)
        subscription = self._subscription(channel, bound, overflow, self._release, payload)
        ext = subscribe_ext(options.get("ext"), **of_subscribe(options))
        written(ext)  # what JSON cannot represent is an error here, and not in the session that comes after an outage
        interest = self._router.add(subscription, ext)
        if self.state is not State.NEW:
            try:
                await self._session.subscriber.subscribe(interest)
            except BaseException:
                self._router.remove(subscription)
                raise
        if callback is not None:
            self._callbacks.call(callback, subscription)
        return subscription

    @overload
    def consume(
        self, channel: str, *, name: str, data: type[DataT], **options: Unpack[WorkerOptions]
    ) -> Consumer[DataT]: ...

    @overload
    def consume(self, channel: str, *, name: str, data: Any = None, **options: Unpack[WorkerOptions]) -> Consumer: ...

    def consume(self, channel: str, *, name: str, data: Any = None, **options: Unpack[WorkerOptions]) -> Consumer:
        """Return the messages of a channel or a wildcard for a worker that survives crashes and restarts
        (docs/reference/client.md). `Delivery` describes what the worker can do with a message.

            async for order in client.consume("/orders/*", name="worker/1"):
                async with order:
                    bake(order.data)

        The worker has a separate session with this `name`, which stays at the server while the worker is away. The secret of
        the session is kept in `resume_file`, by `resume_store`, or in the user's state directory, so that the next process
        continues at once, even after `kill -9`. At most `prefetch` messages are fetched ahead, and the server has at most
        `max_open` messages at the worker that are neither acknowledged nor rejected; 1: one message at a time. If the
        processing of a message raises an exception, the message is tried `attempts` times in all, with the pauses of
        `backoff`, and then rejected. If a message is neither acknowledged nor rejected within `ack_wait` seconds, the server
        counts this as a failure. `WorkerOptions` lists all options, those of a subscription included. `data` is the type of the
        data, as in `subscribe`: a message with other data becomes a dead letter, which says what is wrong with it.

        Raises ValueError or TypeError for an invalid argument. The iteration raises the errors of entering a client and of
        `subscribe`.
        """
        check_worker(name, options)
        if data is not None:
            Payload(data)  # a type that there is not is an error here, and not at the first message
        own: dict[str, Any] = {**session_options(self._config.url, name, options)}
        patience: dict[str, Any] = {} if self.outbox is None else {"open_timeout": math.inf}
        worker = Client(
            self._config.url,
            extensions=self._extensions,
            on_state=options.get("on_state"),
            **{**self._inherited, **patience, **own},
        )
        consumer: Consumer = Consumer(worker, channel, data=data, options=options)
        self._consumers = [*(each for each in self._consumers if not each.is_closed), consumer]
        return consumer

    def listen(
        self,
        channel: str,
        callback: OnMessage | None = None,
        *,
        bound: int = QUEUE_BOUND,
        overflow: Overflow = Overflow.HOLD,
        unclaimed: bool = False,
    ) -> Subscription:
        """Receive messages on a channel or a wildcard without a subscription at the server: those that are addressed to this
        session or its subject, and those that services deliver. With `unclaimed`, receive only messages that no other
        subscription or listener of this client takes. The other arguments are as in `subscribe`. Raises ValueError."""

        async def release(subscription: Subscription) -> None:
            self._router.remove_listener(subscription)

        if callback is not None:
            check_function("callback", callback)
        subscription = self._subscription(channel, bound, overflow, release)
        self._router.add_listener(subscription, is_last=unclaimed)
        if callback is not None:
            self._callbacks.call(callback, subscription)
        return subscription

    def presence(self, channel: str, *, enter: bool = True, data: Any = None) -> Presence:
        """Return the presence of a channel, for a block in which this session is present with these `data`, a JSON value.

            async with client.presence("/room", data={"name": "Joe"}) as presence:
                print(list(presence.members))
                async for change in presence:
                    print(change.event, change.member.id)

        With `enter=False`, the session sees the members and is not present. The server lets it do both where it may subscribe
        to the channel and has the grant `presence`. Raises ValueError for a name that is not a channel.
        """
        return Presence(self._session.life, channel, self.remote_call, self.subscribe, enters=enter, data=data)

    def _subscription(
        self, channel: str, bound: int, overflow: Overflow, release: Release, payload: Payload | None = None
    ) -> Subscription:
        name, made_room = channel_name(channel), self._router.made_room
        return Subscription(name, bound=bound, overflow=overflow, release=release, on_room=made_room, payload=payload)

    async def _release(self, subscription: Subscription) -> None:
        interest = self._router.remove(subscription)
        if interest is None or not interest.may_exist or self.state in (State.DISCONNECTING, State.CLOSED):
            return
        # Refused or unanswered, the local subscription is gone all the same: messages that still come are dropped.
        try:
            await self._session.usable()
            await self._session.subscriber.unsubscribe([subscription.channel])
        except ClientError as error:
            log.info("unsubscribe from %s: %s", subscription.channel, error)

    async def __aenter__(self) -> Self:
        self._session.life.begin()  # a second opening fails here, and closes nothing
        early = self._router.unconfirmed()
        try:
            if self.outbox is not None:
                await self.outbox.open()
        except BaseException:
            await self._session.close()  # and not the outbox, which another client may have
            raise
        try:
            # What the application publishes waits in the outbox, so nothing has to wait for a session.
            await self._session.open(is_awaited=self.outbox is None)
            if self.outbox is None:
                for interest in early:
                    if interest.subscriptions:  # else it was unsubscribed meanwhile
                        await self._session.subscriber.subscribe(interest)
            else:
                self.outbox.start(self._session.request, self.traces)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        leaves = False
        if isinstance(error, Exception):
            leaves = self._config.returns
            self._router.blame(error)
            for consumer in self._consumers:
                consumer.blame(error)
        async with AsyncExitStack() as closing:  # all of it, even if a cancellation interrupts one
            closing.push_async_callback(self._session.close, leaves=leaves)
            # Before the session closes, which sends the last statuses: what they would process now could not be acknowledged.
            closing.push_async_callback(self._callbacks.cancel)
            if self.outbox is not None:
                closing.push_async_callback(self.outbox.close, self._config.close_timeout)
            for consumer in reversed(self._consumers):
                closing.push_async_callback(consumer.close)


def _traces(*, is_on: bool) -> Traces:
    """What makes the spans of a client. Raises ClientError if OpenTelemetry is not installed."""
    if not is_on:
        return NO_TRACES
    try:
        from crewel.client.client_spans import Telemetry
    except ImportError as error:
        raise ClientError(f"traces needs OpenTelemetry (there is no {error.name}): {install_extra('otel')}") from error
    return Telemetry()
