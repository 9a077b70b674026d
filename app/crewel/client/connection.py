"""Requests out and replies in, over whichever transport is in use.

Owns the transports, the ids, the extensions' pipe and what is still awaited
(`awaited.py`); knows nothing of when to handshake or to connect again:
`session_loop.py` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, Final

import aiohttp

from crewel.bayeux.channel import REPLIES
from crewel.bayeux.message import AWAITS, Fields
from crewel.client.awaited import Answers, Exchanges
from crewel.client.client_extension import AckExtension, BatchGate, Extension, LoginExtension, Pipe
from crewel.client.client_message import (
    CONNECT,
    HANDSHAKE,
    Handling,
    Message,
    is_delivery,
    is_failure,
    is_queued,
    is_successful,
)
from crewel.client.config import Config
from crewel.client.errors import (
    MessageDroppedError,
    NegotiationError,
    NoReplyError,
    RequestTimeoutError,
    SubscribeRefused,
    TransportError,
)
from crewel.client.router import Router
from crewel.client.settle import UpdateExtension
from crewel.client.transports import LongPolling, Transport, WebSocket, Wiring

_MAKERS: dict[str, Callable[[Wiring], Transport]] = {
    WebSocket.name: WebSocket,
    LongPolling.name: LongPolling,
}

_SERVICES: Final = "/service/"


class Connection:
    """One client's way to the server."""

    def __init__(
        self,
        config: Config,
        router: Router,
        extensions: tuple[Extension, ...],
        on_reply: Callable[[Fields], None],
        on_lost: Callable[[TransportError], None],
    ) -> None:
        self._config = config
        self._router = router
        self._on_reply = on_reply
        self._on_lost = on_lost
        self._ids = count(1)
        self._last_id = 0
        self.update = UpdateExtension(config.settles_by, config.on_rejected, is_asked=config.update)
        self._ack = AckExtension(lambda: self.update.may_acknowledge)
        self.login = LoginExtension(config.login)
        own = ((self._ack, config.ack), (self.update, config.reports))
        self.pipe = Pipe((*extensions, self.login, *(extension for extension, is_wanted in own if is_wanted)))
        self.exchanges = Exchanges(router.made_room)
        self.answers = Answers(router.made_room)
        self.gate = BatchGate(self._ack, router.has_room, self._is_awaited)
        self.client_id: str | None = None
        self._http: aiohttp.ClientSession | None = None
        self._transport: Transport | None = None
        self._arrived = asyncio.Event()

    @property
    def transport(self) -> str | None:
        """The `connectionType` in use."""
        return self._transport.name if self._transport is not None else None

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be sent before the transport in use is opened again."""
        return self._transport is not None and self._transport.is_lost

    @property
    def acknowledges(self) -> bool:
        """Whether this session's deliveries are acknowledged."""
        return self._ack.enabled

    @property
    def may_move(self) -> bool:
        """Whether another login for this session brings no message twice: a message that is not acknowledged comes again."""
        return not self._ack.enabled or self.gate.is_empty

    @property
    def busy(self) -> bool | str:
        """What connects say of the application as `ext.busy`. True: it has enough to do, so that the server is to send nothing.
        `AWAITS`: it waits for an answer, which may come with other messages that there is no room for."""
        if not self._ack.enabled or not (self.gate.is_full or not self.update.is_done):
            return False
        return AWAITS if self._awaits else True

    @property
    def _awaits(self) -> bool:
        return bool(self.answers or self.exchanges.results)

    async def wait_for_room(self, timeout: float) -> None:
        """Wait until the application has room for the batch that waits, at most `timeout` seconds, and hand it over."""
        if self.gate.is_full:
            await self._router.wait_for_room(lambda: self._awaits or self.gate.has_room, timeout)
            self._process(self.gate.take_waiting())

    def start(self) -> None:
        """Make the HTTP client that all transports share."""
        # Unsafe: the jar also keeps the cookies of hosts given as an IP address. Without its cookie a session
        # is unknown to the server from its second request on.
        jar = aiohttp.CookieJar(unsafe=True)
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._config.ssl or True),
            headers=dict(self._config.headers or {}),
            cookies=dict(self._config.cookies or {}),
            cookie_jar=jar,
            proxy=None if self._config.through is None else self._config.through.url,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        )

    async def use(self, name: str) -> None:
        """Change to this transport and make it ready. Raises TransportError."""
        if self._transport is None or self._transport.name != name:
            await self._drop_transport()
            assert self._http is not None, "start() comes first"
            wiring = Wiring(
                self._config.url,
                self._config.through,
                self._http,
                self._receive,
                self._lost,
                self._config.max_bytes,
                lambda: self.login.max_message_bytes,
            )
            self._transport = _MAKERS[name](wiring)
        await self.reopen()

    async def reopen(self) -> None:
        """Make the transport in use ready again. Raises TransportError."""
        if self._transport is not None:
            await self._transport.open(self._config.network_delay)

    async def close_transport(self) -> None:
        """Close the transport in use; it can be opened again."""
        self.gate.reset()
        if self._transport is not None:
            await self._transport.close()

    async def stop(self) -> None:
        """Close everything."""
        await self._drop_transport()
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def _drop_transport(self) -> None:
        transport, self._transport = self._transport, None
        self.gate.reset()
        if transport is not None:
            await transport.close()

    def next_id(self) -> str:
        """An id that no other message of this client has."""
        self._last_id = next(self._ids)
        return str(self._last_id)

    async def exchange(self, messages: list[Fields], timeout: float) -> list[Fields]:
        """Send messages in one payload; their replies in the same order, successful or not.

        Raises:
            TransportError: a reply did not come; the outcome is unknown.
            MessageDroppedError: an extension dropped one; nothing was sent.
        """
        transport = self._transport
        if transport is None:
            raise TransportError("there is no connection")
        # All are prepared before the first is sent: an extension may drop one of them.
        payload = [self._prepared(message, transport.name) for message in messages]
        with self.exchanges.replies.wait_for([fields["id"] for fields in payload]) as futures:
            await transport.send(payload, timeout)
            if not transport.streams and not all(future.done() for future in futures):
                raise NoReplyError("the response lacks a reply")
            try:
                async with asyncio.timeout(timeout):
                    return list(await asyncio.gather(*futures))
            except TimeoutError as error:
                # A socket that swallows requests is as good as closed, and the connect waits on it too.
                await self.close_transport()
                raise RequestTimeoutError(f"no reply within {timeout:g} s") from error

    def _prepared(self, message: Fields, transport: str) -> Fields:
        channel = message["channel"]
        fields: dict[str, Any] = {"id": self.next_id(), **message}
        if channel != HANDSHAKE:
            fields["clientId"] = self.client_id
        if channel == CONNECT:
            fields["connectionType"] = transport
        passed = self.pipe.outgoing(fields)
        if passed is None:
            raise MessageDroppedError(f"an extension dropped a message to {channel}")
        return passed

    async def opening_batch(self) -> None:
        """Wait for the deliveries that came with the handshake, if any. Raises TransportError."""
        if not self.gate.is_opening:
            return
        self._arrived.clear()
        try:
            async with asyncio.timeout(self._config.network_delay):
                await self._arrived.wait()
        except TimeoutError as error:
            await self.close_transport()
            raise RequestTimeoutError("messages announced by the handshake reply did not arrive") from error

    def _receive(self, payload: list[Fields], whole: bool) -> None:
        self._process(self.gate.admit(payload, whole))
        if self._ack.enabled:
            self.gate.expect(_announced(payload))
        self._signal()

    def _process(self, messages: list[Fields]) -> None:
        for fields in messages:
            passed = self.pipe.incoming(fields)
            if passed is not None:
                self._take(passed)

    def _take(self, fields: Fields) -> None:
        if is_delivery(fields):
            if not self.update.repeats(fields):
                self._deliver(fields, self.update.begin(fields))
            return
        if is_failure(fields):
            if not self.update.repeats(fields):
                self._router.fail(SubscribeRefused(fields), self.update.begin(fields))
            return
        if fields.get("channel") == HANDSHAKE and is_successful(fields):
            self.gate.reset()
            is_reconnected = self.login.reply.get("reconnected") is True
            self._router.begin_session(is_reconnected=is_reconnected)
            if not is_reconnected:
                self.exchanges.results.fail(TransportError("the session was lost"))
        self._on_reply(fields)
        self.exchanges.settle(fields)

    def _deliver(self, fields: Fields, handling: Handling | None) -> None:
        """Hand out a delivery, or keep it for a listener to come: it is done when a listener took it."""
        since = self._router.unclaimed.drop(fields)
        if not self._dispatch(fields, handling) and self._ack.enabled:
            self._router.unclaimed.keep(fields, handling, since)
        elif handling is not None:
            handling.end()

    def _dispatch(self, fields: Fields, handling: Handling | None) -> bool:
        """Whether a listener had it, or it needs none."""
        if self.exchanges.settle(fields) or self.answers.take(fields):
            return True
        message = Message(fields["channel"], fields["data"], fields)
        if message.is_erased and not self.update.is_asked:
            return True  # the notice of an erase, for which the application has not asked
        if self._router.deliver(fields, retained=self._ack.enabled, handling=handling):
            return True
        return message.is_erased or self._router.is_unwanted(message) or self._is_old_answer(fields)

    def _is_old_answer(self, fields: Fields) -> bool:
        """Whether this is a late answer to a request or remote call of this client, which no longer waits for it."""
        channel, message_id = fields["channel"], fields.get("id")
        if channel.startswith(_SERVICES) and isinstance(message_id, str) and message_id.isdecimal():
            return int(message_id) <= self._last_id
        return bool(channel.startswith(REPLIES))

    def _is_awaited(self, fields: Fields) -> bool:
        return self.exchanges.is_awaited_result(fields) or self.answers.is_awaited(fields)

    def _lost(self, error: TransportError) -> None:
        self.gate.reset()
        self._on_lost(error)
        self.exchanges.replies.fail(error)  # results may come over the next connection
        self._signal()

    def _signal(self) -> None:
        if not self.gate.is_opening:
            self._arrived.set()


def _announced(payload: list[Fields]) -> int:
    """How many deliveries a handshake reply announced that are not in the same payload."""
    announced = sum(fields["x-messages"] for fields in payload if isinstance(fields.get("x-messages"), int))
    return announced - sum(map(is_queued, payload)) if announced else 0


def common_transports(ours: Iterable[str], offered: object) -> list[str]:
    """Ours that the server lists, in our order; all of ours if it lists nothing.

    The handshake reply carries the server's full list, and choosing is the
    client's part.

    Raises:
        NegotiationError: there is none.
    """
    if not isinstance(offered, list):
        return list(ours)
    common = [name for name in ours if name in offered]
    if not common:
        raise NegotiationError(f"the server offers {offered}, this client {list(ours)}")
    return common
