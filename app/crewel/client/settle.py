"""The client's half of `update`: which messages the application has settled, and how their statuses are reported.

Statuses travel with the next connect. While one is held, which may be for long, they are published to `/service/update`
at once; those that gather meanwhile go together. Each is sent until a reply has confirmed it (docs/client.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import orjson

from crewel.bayeux.message import Fields
from crewel.client.errors import ClientError
from crewel.client.extension import Extension
from crewel.client.message import (
    CONNECT,
    HANDSHAKE,
    Failure,
    Handling,
    is_delivery,
    is_successful,
    told_of,
    update_of,
    with_ext,
)

log = logging.getLogger("crewel.client.update")

_REMEMBERED: Final = 10_000
_LONGEST_CODE: Final = 200
_LONGEST_TEXT: Final = 500
SERVICE: Final = "/service/update"
_ROOM: Final = 16_384
"""Most bytes of statuses in one message."""
_COLLECT_S: Final = 0.01
"""A moment in which statuses gather."""
_RETRY_S: Final = 1.0
Exchange = Callable[[list[Fields]], Awaitable[list[Fields]]]
"""Sends messages in one payload; their replies. Raises ClientError."""


class Statuses:
    """What the server has to be told and has not confirmed: a status a message, and the request that carries it, if any."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Fields, object | None]] = {}

    @property
    def are_waiting(self) -> bool:
        """Whether there are some that no request carries."""
        return any(carrier is None for _, carrier in self._open.values())

    def put(self, status: Fields) -> None:
        """Note the status of a message. That it is in progress is no news once its end is known."""
        known = self._open.get(status["id"])
        if known is not None and not _is_end(status) and _is_end(known[0]):
            return
        self._open[status["id"]] = (status, None)

    def take(self, carrier: object, room: int) -> list[Fields]:
        """Those that no request carries, as many as fit into so many bytes, one at least; this request carries them now."""
        taken: list[Fields] = []
        for message_id, (status, by) in self._open.items():
            if by is None:
                room -= len(orjson.dumps(status)) + 1
                if room < 0 and taken:
                    break
                taken.append(status)
                self._open[message_id] = (status, carrier)
        return taken

    def is_waiting(self, message_id: str, carrier: object | None) -> bool:
        """Whether this message has a status that neither was confirmed nor is carried by this request."""
        known = self._open.get(message_id)
        return known is not None and (carrier is None or known[1] != carrier)

    def confirm(self, carrier: object) -> None:
        """A request was answered: what it carried is known to the server."""
        for message_id in [each for each, (_, by) in self._open.items() if by == carrier]:
            del self._open[message_id]

    def release(self, carrier: object | None = None) -> None:
        """A request came to nothing, as far as is known: what it carried goes again. Without `carrier`: all of them."""
        for message_id, (status, by) in self._open.items():
            if carrier is None or by == carrier:
                self._open[message_id] = (status, None)


class Ledger:
    """One session's messages: those in the application's hands, those settled OK (the latest), and what is to be told.

    `tells_ok`: success is reported too; without, the acknowledgement of its batch says it.
    """

    def __init__(self, *, tells_ok: bool, changed: Callable[[], None], remembered: int = _REMEMBERED) -> None:
        self.statuses = Statuses()
        self.tells_unclaimed = False
        """Whether the server understands that no listener takes a message. Without, such a message is at work."""
        self._tells_ok = tells_ok
        self._changed = changed
        self._remembered = remembered
        self._at_work: dict[str, Handling] = {}
        self._unclaimed: set[str] = set()
        self._named: set[str] = set()  # of these an acknowledgement says nothing any more
        self._done: dict[str, None] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in the application's hands; what no listener takes is not."""
        return self._at_work.keys() <= self._unclaimed

    def is_told(self, carrier: object | None) -> bool:
        """Whether the server knows of all messages that no listener takes, or learns of them with this request."""
        return not any(self.statuses.is_waiting(message_id, carrier) for message_id in self._unclaimed)

    def repeats(self, message_id: str) -> bool:
        """Whether a message that came again is not to be heard again; if it was settled, it is so once more."""
        if message_id in self._done:
            # The server sends it again, so it has not heard of it.
            self._ok(message_id)
            self._changed()
            return True
        return not self._tells_ok and message_id in self._at_work and message_id not in self._unclaimed

    def begin(self, message_id: str) -> Handling:
        """Begin with a message. One that comes again while it is in progress begins again."""

        def ended(handling: Handling, failure: Failure | None) -> None:
            if self._at_work.get(message_id) is handling:
                del self._at_work[message_id]
                self._unclaimed.discard(message_id)
            self._end(message_id, failure)
            self._changed()

        def tell(state: str) -> None:
            self._tell(message_id, state, is_last=self._at_work.get(message_id) is handling)

        self._done.pop(message_id, None)
        self._unclaimed.discard(message_id)
        handling = Handling(ended, tell)
        self._at_work[message_id] = handling
        return handling

    def _tell(self, message_id: str, state: str, *, is_last: bool) -> None:
        """Report a status of a message that has not ended. `is_last`: this copy is the last one that came."""
        if state == "UNCLAIMED":
            if not (is_last and self.tells_unclaimed):
                return
            self._unclaimed.add(message_id)
            self._named.add(message_id)
        elif is_last:
            self._unclaimed.discard(message_id)
        self.statuses.put({"id": message_id, "state": state})
        self._changed()

    def _end(self, message_id: str, failure: Failure | None) -> None:
        if failure is None:
            self._ok(message_id)
            return
        self._named.discard(message_id)
        if message_id not in self._done:
            code, text = failure
            self.statuses.put({"id": message_id, "errorCode": code[:_LONGEST_CODE], "message": text[:_LONGEST_TEXT]})

    def _ok(self, message_id: str) -> None:
        self._done.pop(message_id, None)
        self._done[message_id] = None
        if len(self._done) > self._remembered:
            del self._done[next(iter(self._done))]
        if self._tells_ok or message_id in self._named:
            self._named.discard(message_id)
            self.statuses.put({"id": message_id, "state": "OK"})


def _is_end(status: Fields) -> bool:
    return status.get("state") not in ("WORKING", "UNCLAIMED")


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
                with_ext(message, "update", taken)
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
        told = told_of(reply, "session")
        self.is_granted = told.get("update") is True
        if self.is_granted and told.get("reconnected") is True:
            self._ledger.statuses.release()  # the same session: what was not reported is reported now
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
