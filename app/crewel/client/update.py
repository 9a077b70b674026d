"""The client's half of `update`: tells the server how each message fared in the application.

Statuses travel with the next connect. While one is held, which may be for long, they are published to `/service/update`
at once; those that gather meanwhile go together. Each is told until a reply has confirmed it (docs/client.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from crewel.bayeux.message import Fields
from crewel.client.errors import ClientError
from crewel.client.extension import Extension
from crewel.client.message import CONNECT, HANDSHAKE, is_delivery, is_successful, update_of
from crewel.client.settling import Handling, Ledger

log = logging.getLogger("crewel.client.update")

SERVICE: Final = "/service/update"
_ROOM: Final = 16_384
"""Most bytes of statuses in one message."""
_COLLECT_S: Final = 0.01
"""A moment in which statuses gather."""
_RETRY_S: Final = 1.0

Exchange = Callable[[list[Fields]], Awaitable[list[Fields]]]
"""Sends messages in one payload; their replies. Raises ClientError."""


class UpdateExtension(Extension):
    """`ext.update` of connects and their replies, and the bookkeeping of what was delivered."""

    def __init__(
        self, settle: str = "message", on_rejected: Callable[[Fields], None] | None = None, *, is_asked: bool = True
    ) -> None:
        self.is_granted = False
        """Whether the server of this session takes statuses."""
        self.is_asked = is_asked
        """Whether the application has asked for it. If not, a message is done when it is in the application's queues, and the
        server hears of those only that no listener takes."""
        self.by_batch = settle == "batch"
        """Whether acknowledging a batch settles what of it did not fail."""
        self._on_rejected = on_rejected
        self._news, self._settled = asyncio.Event(), asyncio.Event()
        self._connect: str | None = None
        self._ledger = self._new_ledger()

    def _new_ledger(self) -> Ledger:
        return Ledger(tells_ok=not self.by_batch, changed=self._noticed)

    def _noticed(self) -> None:
        self._news.set()
        self._settled.set()

    @property
    def may_acknowledge(self) -> bool:
        """Whether the last batch may be acknowledged: where that settles it, once the application is done with it, and the
        server knows of the messages that no listener takes, at the latest from the connect that acknowledges."""
        return self._is_done and (not self.by_batch or self._ledger.is_told(self._connect))

    @property
    def _is_done(self) -> bool:
        return not (self.is_granted and self.by_batch) or self._ledger.is_idle

    def outgoing(self, message: Fields) -> Fields:
        """Adds what waits to connects."""
        if message.get("channel") == HANDSHAKE:
            self.is_granted, self._connect = False, None
        elif message.get("channel") == CONNECT and self.is_granted:
            statuses = self._ledger.statuses
            if self._connect is not None:
                statuses.release(self._connect)  # it was not answered
            self._connect = message["id"]
            taken = statuses.take(self._connect, _ROOM)
            if taken:
                ext = message.get("ext")
                message["ext"] = {**(ext if isinstance(ext, dict) else {}), "update": taken}
            self._news.set()  # there may be more than fit, and this connect may be held
        return message

    def incoming(self, message: Fields) -> Fields:
        """Learns whether statuses are taken, and which of a connect's were."""
        if message.get("channel") == HANDSHAKE and is_successful(message):
            self._negotiated(message)
        elif message.get("channel") == CONNECT and message.get("id") == self._connect is not None:
            carrier, self._connect = self._connect, None
            self._answered(self._ledger, carrier, message)
        return message

    def _negotiated(self, reply: Fields) -> None:
        ext = reply.get("ext")
        session = ext.get("session") if isinstance(ext, dict) else None
        told = session if isinstance(session, dict) else {}
        self.is_granted = told.get("update") is True
        if self.is_granted and told.get("reconnected") is True:
            self._ledger.statuses.release()  # the same session: what it was not told, it is told now
        else:
            self._ledger = self._new_ledger()
        self._ledger.tells_unclaimed = told.get("unclaimed") is True
        if self.is_asked and not self.is_granted:
            log.warning("the server takes no statuses: it lacks `ack` or `update` in bayeux.extensions")

    def _answered(self, ledger: Ledger, carrier: object, reply: Fields) -> None:
        if not is_successful(reply):
            ledger.statuses.release(carrier)
            return
        ledger.statuses.confirm(carrier)
        rejected = update_of(reply).get("rejected")
        for status in rejected if isinstance(rejected, list) else []:
            log.debug("the server did not take the status %s", status)
            # That no listener takes a message is the client's word and not the application's, and the message has ended.
            if self._on_rejected is not None and status.get("state") != "UNCLAIMED":
                self._on_rejected(status)

    # Deliveries

    def repeats(self, fields: Fields) -> bool:
        """Whether this is a delivery that came before and is not to be heard again."""
        if not self.is_granted or not is_delivery(fields):
            return False
        update = update_of(fields)
        message_id = update.get("id")
        return isinstance(message_id, str) and not update.get("initial") and self._ledger.repeats(message_id)

    def begin(self, fields: Fields) -> Handling | None:
        """Begin with a delivery; None if nothing is to be told of it."""
        if not self.is_granted or not is_delivery(fields):
            return None
        message_id = update_of(fields).get("id")
        return self._ledger.begin(message_id) if isinstance(message_id, str) else None

    async def handled(self, timeout: float) -> None:
        """Wait until the application is done with the last batch, at most `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while not self._is_done:
                    self._settled.clear()
                    await self._settled.wait()
        except TimeoutError:
            return

    # Telling the server

    async def tell(self, exchange: Exchange) -> None:
        """Publish what waits whenever a connect is held; until cancelled."""
        while True:
            await self._news.wait()
            await asyncio.sleep(_COLLECT_S)
            self._news.clear()
            if self.is_granted and self._connect is not None:
                await self._tell_once(exchange)

    async def _tell_once(self, exchange: Exchange) -> None:
        ledger, carrier = self._ledger, object()
        taken = ledger.statuses.take(carrier, _ROOM)
        if not taken:
            return
        try:
            [reply] = await exchange([{"channel": SERVICE, "data": taken}])
        except ClientError as error:
            log.info("statuses were not answered, they go again: %s", error)
            ledger.statuses.release(carrier)
            await asyncio.sleep(_RETRY_S)
            self._news.set()
            return
        except BaseException:
            ledger.statuses.release(carrier)  # cancelled: the goodbye takes them along
            raise
        self._answered(ledger, carrier, reply)
        if is_successful(reply) and ledger.statuses.are_waiting:
            self._news.set()

    def last_words(self) -> list[Fields]:
        """What is to be published before the goodbye."""
        messages: list[Fields] = []
        while self.is_granted and (taken := self._ledger.statuses.take("goodbye", _ROOM)):
            messages.append({"channel": SERVICE, "data": taken})
        return messages
