"""What a check works with: clients of the server on one transport, channels of its own, raw HTTP. `Trial` ends them all."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import aiohttp

from crewel.conformance.verdicts import WEBSOCKET, Failed, Gone, Untested, expect
from crewel.conformance.wires import Fields, Response, Site, request, wire

_T = TypeVar("_T")

MAX_CONNECTS: Final = 200
"""Connects of one client, at most: there are servers that hold none."""
HELD_S: Final = 120.0
"""The longest wait for the reply to a connect that the server may hold."""
_GOODBYE_S: Final = 1.0


class Client:
    """One Bayeux client, which does what it is asked to and nothing more."""

    def __init__(self, site: Site, transport: str, agent: aiohttp.ClientSession | None = None) -> None:
        self._limit_s = site.limit_s
        self.transport = transport
        self.client_id = ""
        self._hold_s: float | None = None
        """How long the server holds a connect, by the advice of the handshake."""
        self.arrived: list[Fields] = []
        """Every message that came, in order."""
        self.deliveries: list[Fields] = []
        """Those of them that are no replies."""
        self._wire = wire(site, transport, self._take, self._break, agent)
        self._ids = itertools.count(1)
        self._waiting: list[tuple[str, str | None, asyncio.Future[Fields]]] = []
        self._news = asyncio.Event()
        self._connects: list[asyncio.Task[Any]] = []
        self._requests: list[asyncio.Task[None]] = []
        self._is_silent = False

    async def close(self) -> None:
        """End the session, if there is one, without a word about how it went. Held connects are answered then; a connection
        is broken only if they are not: there are servers that do not survive it."""
        if self.client_id and not self._is_silent:
            with suppress(Failed, Gone):
                await self.send(self.message("/meta/disconnect"), limit_s=_GOODBYE_S)
        if self._requests:
            await asyncio.wait(self._requests, timeout=_GOODBYE_S)
        await _end(self._connects + self._requests)
        await self._wire.close()

    # Requests

    def message(self, channel: str, **fields: Any) -> Fields:
        """A message with an id of its own and the client's `clientId`; a field that is given as None is left out."""
        made = {"channel": channel, "id": f"c{next(self._ids)}", "clientId": self.client_id or None, **fields}
        return {name: value for name, value in made.items() if value is not None or name == "data"}

    async def send(
        self, *messages: Fields, limit_s: float | None = None, written: asyncio.Event | None = None
    ) -> list[Fields]:
        """Send one payload and return the replies, in the order of the messages. Raises Failed if one is missing."""
        loop = asyncio.get_running_loop()
        own = [(each["channel"], each.get("id"), loop.create_future()) for each in messages]
        self._waiting += own
        post = asyncio.create_task(self._wire.post(messages, written))
        self._requests.append(post)
        limit = limit_s or self._limit_s
        try:
            async with asyncio.timeout(limit):
                # Not cancelled by a time-out: that would break the connection.
                await asyncio.shield(post)
                if self.transport != WEBSOCKET:
                    for channel, number, future in own:
                        expect(
                            future.done(), f"a reply to {channel} with id {number!r} in the response", self.arrived[-3:]
                        )
                return [await future for _, _, future in own]
        except TimeoutError:
            missing = ", ".join(channel for channel, _, future in own if not future.done() or future.cancelled())
            raise Failed(f"expected a reply to {missing} within {limit:g} s, got none") from None
        finally:
            self._waiting = [each for each in self._waiting if each not in own]

    async def abort(self) -> None:
        """Break its connections, as a page does that is closed."""
        self._is_silent = True
        await _end(self._requests)
        await self._wire.close()

    async def try_to_send(self, *messages: Fields) -> None:
        """Send one payload of which the server may make what it likes."""
        with suppress(Failed, TimeoutError):
            async with asyncio.timeout(self._limit_s):
                await self._wire.post(messages)

    async def ask(self, channel: str, **fields: Any) -> Fields:
        """Send one message and return its reply."""
        return (await self.send(self.message(channel, **fields)))[0]

    async def handshake(self, **fields: Any) -> Fields:
        """Return the reply to a handshake, and be the session that it made."""
        fields = {"version": "1.0", "minimumVersion": "1.0", "supportedConnectionTypes": [self.transport]} | fields
        reply = await self.ask("/meta/handshake", **{"clientId": None} | fields)
        if reply.get("successful") is True and isinstance(reply.get("clientId"), str):
            self.client_id = reply["clientId"]
        advice = reply.get("advice")
        timeout = advice.get("timeout") if isinstance(advice, dict) else None
        if isinstance(timeout, int | float):
            self._hold_s = timeout / 1000
        return reply

    def connect_message(self, **fields: Any) -> Fields:
        """A connect of this transport."""
        return self.message("/meta/connect", **{"connectionType": self.transport} | fields)

    async def connect(self, limit_s: float | None = None, **fields: Any) -> Fields:
        """Return the reply to a connect."""
        return (await self.send(self.connect_message(**fields), limit_s=limit_s))[0]

    async def begin(self) -> Self:
        """Handshake. Raises Untested if the server refuses it."""
        reply = await self.handshake()
        if not self.client_id:
            raise Untested(f"the handshake fails: {reply.get('error', reply)}")
        return self

    async def open(self) -> Self:
        """Handshake, and connect once without being held. Raises Untested if the server does not even do that: only the
        checks of the connect fail by it."""
        await self.begin()
        try:
            reply = await self.connect(advice={"timeout": 0})
        except Failed as failed:
            raise Untested(f"the first connect fails: {failed}") from None
        if reply.get("successful") is not True:
            raise Untested(f"the first connect fails: {reply.get('error', reply)}")
        return self

    async def subscribe(self, *channels: str) -> None:
        """Subscribe, one request for each. Raises Untested if it is refused."""
        for channel in channels:
            reply = await self.ask("/meta/subscribe", subscription=channel)
            if reply.get("successful") is not True:
                raise Untested(f"subscribing to {channel} is refused: {reply.get('error', reply)}")

    async def publish(self, channel: str, data: Any, **fields: Any) -> Fields:
        """Return the reply to a publish. Raises Untested if it is refused."""
        reply = await self.ask(channel, data=data, **fields)
        if reply.get("successful") is not True:
            raise Untested(f"publishing to {channel} is refused: {reply.get('error', reply)}")
        return reply

    # What is delivered

    def poll(self) -> None:
        """Connect again and again from now on, so that the server can deliver."""
        self._connects.append(asyncio.create_task(self._poll()))

    async def _poll(self) -> None:
        for _ in range(MAX_CONNECTS):
            reply = await self.connect(limit_s=HELD_S)
            if reply.get("successful") is not True:
                return

    def require_hold_beyond_limit(self) -> None:
        """Raise Untested if the limit does not tell a connect that is held from one that is answered at once."""
        if self._hold_s is not None and self._hold_s <= self._limit_s:
            raise Untested(
                f"the server answers every connect within {self._hold_s:g} s, and the limit is {self._limit_s:g} s"
            )

    async def hold(self) -> asyncio.Task[Fields]:
        """Send a connect, and return when the server holds it. Raises Untested if it is answered at once."""
        task = await self.begin_connect()
        if task.done():
            raise Untested("the server does not hold the connect")
        return task

    async def begin_connect(self) -> asyncio.Task[Fields]:
        """Send a connect that the server may hold, and return when the server has it."""
        written = asyncio.Event()
        task = asyncio.create_task(self._held(written))
        self._connects.append(task)
        async with asyncio.timeout(self._limit_s):
            await written.wait()
        # A server reads what was written before; one request later it has it.
        await self.ask("/meta/unsubscribe", subscription="/conformance/not/subscribed")
        return task

    async def _held(self, written: asyncio.Event) -> Fields:
        return (await self.send(self.connect_message(), limit_s=HELD_S, written=written))[0]

    async def until(self, met: Callable[[], object], what: str) -> None:
        """Wait until this holds. Raises Failed."""
        try:
            async with asyncio.timeout(self._limit_s):
                while not met():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise Failed(
                f"expected {what} within {self._limit_s:g} s, got {self.deliveries[-3:] or 'nothing'}"
            ) from None

    def data_on(self, channel: str) -> list[Any]:
        """The data that was delivered on a channel."""
        return [each.get("data") for each in self.deliveries if each.get("channel") == channel]

    async def receives(self, channel: str, data: Any) -> Fields:
        """Wait for this data on this channel, and return the message. Raises Failed."""
        await self.until(lambda: data in self.data_on(channel), f"{data!r} on {channel}")
        return next(each for each in self.deliveries if each.get("channel") == channel and each.get("data") == data)

    def _take(self, message: Fields) -> None:
        self.arrived.append(message)
        for channel, number, future in self._waiting:
            is_reply = message.get("channel") == channel and message.get("id") == number and "data" not in message
            if is_reply and not future.done():
                future.set_result(message)
                break
        else:
            self.deliveries.append(message)
        self._news.set()

    def _break(self, failed: Failed) -> None:
        for _, _, future in self._waiting:
            if not future.done():
                future.set_exception(failed)
                future.exception()  # of several, the sender awaits the first


async def _end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Trial:
    """One check on one transport."""

    def __init__(self, site: Site, transport: str, root: str, expiry_s: float | None) -> None:
        self.site = site
        self.transport = transport
        self.root = root
        """A channel that no other check uses."""
        self.expiry_s = expiry_s
        """How long the operator says that a silent session lives at most; None: unknown."""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    def client(self, transport: str = "", agent: aiohttp.ClientSession | None = None) -> Client:
        """A client without a session."""
        made = Client(self.site, transport or self.transport, agent)
        self._stack.push_async_callback(made.close)
        return made

    async def open(self, *subscriptions: str) -> Client:
        """A client that is connected, subscribed to these, and connects again as long as the check runs if there are any."""
        made = await self.client().open()
        await made.subscribe(*subscriptions)
        if subscriptions:
            made.poll()
        return made

    async def agent(self) -> aiohttp.ClientSession:
        """A user agent, whose cookies several clients may share."""
        return await self._stack.enter_async_context(self.site.session())

    async def http(
        self, body: bytes | None, content_type: str | None = "application/json", *, path: str = "", method: str = "POST"
    ) -> Response:
        """A raw request of a user agent of its own. Raises Failed if nothing is answered in time."""
        agent = await self.agent()
        headers = {"Content-Type": content_type} if content_type else None
        return await self.within(request(agent, method, self.site.url + path, body, headers), "an HTTP response")

    async def within(self, awaited: Awaitable[_T], what: str) -> _T:
        """What is awaited, within the limit. Raises Failed."""
        try:
            async with asyncio.timeout(self.site.limit_s):
                return await awaited
        except TimeoutError:
            raise Failed(f"expected {what} within {self.site.limit_s:g} s, got none") from None
