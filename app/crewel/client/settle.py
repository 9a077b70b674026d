"""The client's half of `update`: which messages the application has finished, and how their statuses are reported.

Statuses travel with the next connect. While one is held, which may be for long, they are published to `/service/update`
at once; those that gather meanwhile go together. Each is sent until a reply has confirmed it (docs/reference/client.md).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Final

import orjson

from crewel.bayeux.answers import MAX_CODE, MAX_TEXT
from crewel.bayeux.message import Fields
from crewel.client.client_extension import Extension
from crewel.client.client_message import (
    CONNECT,
    HANDSHAKE,
    Failure,
    Handling,
    SendPayload,
    ext_part,
    is_queued,
    is_successful,
    update_of,
    with_ext,
)
from crewel.client.errors import INTERNAL_ERROR, ClientError
from crewel.errors.codes import is_reportable

log = logging.getLogger("crewel.client.update")

_REMEMBERED: Final = 10_000
SERVICE: Final = "/service/update"
_ROOM: Final = 16_384
"""Most bytes of statuses in one message, or half of what the server takes."""
_COLLECT_S: Final = 0.01
"""A moment in which statuses gather."""
_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 8.0
_HALVES: Final = re.compile("[\ud800-\udfff]")


class Statuses:
    """Statuses that the server has not confirmed: one for each message, and the request that carries it, if any."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Fields, object | None]] = {}

    @property
    def are_waiting(self) -> bool:
        """Whether there are some that no request carries."""
        return any(request is None for _, request in self._open.values())

    def put(self, status: Fields) -> None:
        """Note the status of a message. That it is in progress is no news once its end is known."""
        known = self._open.get(status["id"])
        if known is not None and not _is_end(status) and _is_end(known[0]):
            return
        self._open[status["id"]] = (status, None)

    @property
    def unsent_failures(self) -> dict[str, Fields]:
        """Those that say that a message has failed, and that no request carries, by the ids of their messages."""
        return {
            message_id: status
            for message_id, (status, request) in self._open.items()
            if request is None and "errorCode" in status
        }

    def take(self, request: object, room: int) -> list[Fields]:
        """Those that no request carries, as many as fit into so many bytes, one at least; this request carries them now."""
        taken: list[Fields] = []
        for message_id, (status, by) in self._open.items():
            if by is None:
                room -= len(orjson.dumps(status)) + 1
                if room < 0 and taken:
                    break
                taken.append(status)
                self._open[message_id] = (status, request)
        return taken

    def is_waiting(self, message_id: str, request: object | None) -> bool:
        """Whether this message has a status that neither was confirmed nor is carried by this request."""
        known = self._open.get(message_id)
        return known is not None and (request is None or known[1] != request)

    def confirm(self, request: object) -> None:
        """A request was answered: what it carried is known to the server."""
        for message_id in [each for each, (_, by) in self._open.items() if by == request]:
            del self._open[message_id]

    def release(self, request: object | None = None) -> None:
        """A request came to nothing, as far as is known: what it carried goes again. Without `request`: all of them."""
        for message_id, (status, by) in self._open.items():
            if request is None or by == request:
                self._open[message_id] = (status, None)


class Ledger:
    """One session's messages: those in the application's hands, those settled OK (the latest), and the statuses to report.

    `reports_ok`: success is reported too; without, the acknowledgement of its batch says it.
    """

    def __init__(self, *, reports_ok: bool, changed: Callable[[], None]) -> None:
        self.statuses = Statuses()
        self.reports_unclaimed = False
        """Whether the server understands that no listener takes a message. Without, such a message is at work."""
        self._reports_ok = reports_ok
        self._changed = changed
        self._in_progress: dict[str, Handling] = {}
        self._unclaimed: set[str] = set()
        self._named: set[str] = set()  # of these an acknowledgement says nothing any more
        self._resent: set[str] = set()  # those in progress at a login: the server sends each of them once more
        self._failed: dict[str, Fields] = {}  # before a login, of which the server then knew nothing
        self._done: dict[str, None] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in the application's hands; what no listener takes is not."""
        return self._in_progress.keys() <= self._unclaimed

    def is_reported(self, request: object | None) -> bool:
        """Whether the server knows of all messages that no listener takes, or learns of them with this request."""
        return not any(self.statuses.is_waiting(message_id, request) for message_id in self._unclaimed)

    def log_in_again(self) -> None:
        """This client has logged in to its session again, for example with its next token. What was not reported is reported
        now. The server sends all open messages again, and the application has those that are in progress, or has rejected
        them."""
        self._failed = self.statuses.unsent_failures
        self.statuses.release()
        self._resent = self._in_progress.keys() - self._unclaimed

    def repeats(self, message_id: str, *, is_initial: bool = False) -> bool:
        """Whether a message that came again is not to be delivered again; if it was settled, that is reported again. One of a
        history (`is_initial`) comes again after a login only."""
        if message_id in self._resent:
            self._resent.remove(message_id)
            return True
        if message_id in self._failed:
            # It was not open when the server got the status after the login, if it has got it.
            self.statuses.put(self._failed.pop(message_id))
            self._changed()
            return True
        if is_initial:
            return False
        if message_id in self._done:
            # The server sends it again, so it does not know.
            self._ok(message_id)
            self._changed()
            return True
        return not self._reports_ok and message_id in self._in_progress and message_id not in self._unclaimed

    def begin(self, message_id: str, *, is_initial: bool = False) -> Handling:
        """Begin with a message. One that comes again while it is in progress begins again, in the place of the copy before; one
        of a history (`is_initial`) takes no place."""

        def ended(handling: Handling, failure: Failure | None) -> None:
            self._resent.discard(message_id)  # the server may send it again because it has failed
            latest = self._in_progress.get(message_id)
            if latest is handling:
                del self._in_progress[message_id]
                self._unclaimed.discard(message_id)
            elif latest is not None:
                latest.is_over = True
            # The copy that ended before the others were left out has reported the end of the message.
            if not handling.is_skipped or message_id in self._done:
                self._end(message_id, failure)
            self._changed()

        def report(state: str) -> None:
            self._report(message_id, state, is_last=self._in_progress.get(message_id) is handling)

        self._done.pop(message_id, None)
        self._unclaimed.discard(message_id)
        handling, before = Handling(ended, report), self._in_progress.get(message_id)
        if before is not None and not is_initial:
            before.is_superseded = handling.is_copy = True
        self._in_progress[message_id] = handling
        return handling

    def _report(self, message_id: str, state: str, *, is_last: bool) -> None:
        """Report a status of a message that has not ended. `is_last`: this copy is the last one that came."""
        if state == "UNCLAIMED":
            if not (is_last and self.reports_unclaimed):
                return
            self._unclaimed.add(message_id)
            self._named.add(message_id)
            self._resent.discard(message_id)
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
            if not is_reportable(code):
                log.warning(
                    "the server counts the code %r as %s: codes of receivers begin with user. or communication.",
                    code,
                    INTERNAL_ERROR,
                )
            self.statuses.put(
                {"id": message_id, "errorCode": _encodable(code[:MAX_CODE]), "message": _encodable(text[:MAX_TEXT])}
            )

    def _ok(self, message_id: str) -> None:
        self._done.pop(message_id, None)
        self._done[message_id] = None
        if len(self._done) > _REMEMBERED:
            del self._done[next(iter(self._done))]
        if self._reports_ok or message_id in self._named:
            self._named.discard(message_id)
            self.statuses.put({"id": message_id, "state": "OK"})


def _encodable(text: str) -> str:
    """The text as JSON can have it: the name of a file that is no UTF-8, in the words of an exception, has half a character."""
    return _HALVES.sub("\N{REPLACEMENT CHARACTER}", text)


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
        server gets the statuses of those only that no listener takes."""
        self.by_batch = settle == "batch"
        """Whether acknowledging a batch settles what of it did not fail."""
        self._on_rejected = on_rejected
        self._has_unsent, self._settled = asyncio.Event(), asyncio.Event()
        self._connect: str | None = None
        self._refusals = 0  # of statuses in a row
        self._room = _ROOM
        self._ledger = self._new_ledger()

    def _new_ledger(self) -> Ledger:
        return Ledger(reports_ok=not self.by_batch, changed=self._on_change)

    def _on_change(self) -> None:
        self._has_unsent.set()
        self._settled.set()

    @property
    def may_acknowledge(self) -> bool:
        """Whether the last batch may be acknowledged. Where that settles it, the application must be done with it. The server
        must know of the messages that no listener takes, at the latest from the connect that acknowledges."""
        return self.is_done and (not self.by_batch or self._ledger.is_reported(self._connect))

    @property
    def is_done(self) -> bool:
        """Whether the application is done with the last batch, where acknowledging that settles it."""
        return not (self.is_granted and self.by_batch) or self._ledger.is_idle

    def outgoing(self, message: Fields) -> Fields:
        """Adds the queued statuses to connects."""
        if message.get("channel") == HANDSHAKE:
            self.is_granted, self._connect = False, None
        elif message.get("channel") == CONNECT and self.is_granted:
            statuses = self._ledger.statuses
            if self._connect is not None:
                statuses.release(self._connect)  # it was not answered
            self._connect = message["id"]
            taken = statuses.take(self._connect, self._room)
            if taken:
                with_ext(message, "update", taken)
            self._has_unsent.set()  # there may be more than fit, and this connect may be held
        return message

    def incoming(self, message: Fields) -> Fields:
        """Learns whether statuses are taken, and which of a connect's were."""
        if message.get("channel") == HANDSHAKE and is_successful(message):
            self._negotiated(message)
        elif message.get("channel") == CONNECT and message.get("id") == self._connect is not None:
            request, self._connect = self._connect, None
            self._answered(self._ledger, request, message)
        return message

    def _negotiated(self, reply: Fields) -> None:
        given = ext_part(reply, "session")
        self.is_granted = given.get("update") is True
        if self.is_granted and given.get("reconnected") is True:
            self._ledger.log_in_again()
        else:
            self._ledger = self._new_ledger()
        limit = given.get("maxMessageBytes")
        self._room = min(_ROOM, limit // 2) if isinstance(limit, int) else _ROOM
        self._ledger.reports_unclaimed = given.get("unclaimed") is True
        if self.is_asked and not self.is_granted:
            log.warning("the server takes no statuses: it lacks `ack` or `update` in bayeux.extensions")

    def _answered(self, ledger: Ledger, request: object, reply: Fields) -> None:
        if not is_successful(reply):
            ledger.statuses.release(request)
            return
        ledger.statuses.confirm(request)
        rejected = update_of(reply).get("rejected")
        for status in rejected if isinstance(rejected, list) else []:
            log.debug("the server did not take the status %s", status)
            # That no listener takes a message is the client's word and not the application's, and the message has ended.
            if self._on_rejected is not None and status.get("state") != "UNCLAIMED":
                try:
                    self._on_rejected(status)
                except (Exception, SystemExit):  # either would end the task that reports
                    log.exception("on_rejected failed")

    # Deliveries

    def repeats(self, fields: Fields) -> bool:
        """Whether this is a delivery that came before and is not to be delivered again."""
        if not self.is_granted or not is_queued(fields):
            return False
        update = update_of(fields)
        message_id, is_initial = update.get("id"), update.get("initial") is True
        if is_initial and not update.get("redeliver"):
            return False  # sent for the first time: another subscription has asked for the history
        return isinstance(message_id, str) and self._ledger.repeats(message_id, is_initial=is_initial)

    def begin(self, fields: Fields) -> Handling | None:
        """Begin with a delivery; None if no status is to be reported."""
        if not self.is_granted or not is_queued(fields):
            return None
        update = update_of(fields)
        message_id, is_initial = update.get("id"), update.get("initial") is True
        return self._ledger.begin(message_id, is_initial=is_initial) if isinstance(message_id, str) else None

    async def handled(self, timeout: float) -> None:
        """Wait until the application is done with the last batch, at most `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while not self.is_done:
                    self._settled.clear()
                    await self._settled.wait()
        except TimeoutError:
            return

    # Reporting to the server

    async def publish_statuses(self, exchange: SendPayload) -> None:
        """Publish the queued statuses whenever a connect is held; until cancelled."""
        while True:
            await self._has_unsent.wait()
            # Statuses of one batch settle within moments: together they cost one request.
            await asyncio.sleep(_COLLECT_S)
            self._has_unsent.clear()
            if self.is_granted and self._connect is not None:
                await self._publish_once(exchange)

    async def _publish_once(self, exchange: SendPayload) -> None:
        ledger, request = self._ledger, object()
        taken = ledger.statuses.take(request, self._room)
        if not taken:
            return
        try:
            [reply] = await exchange([{"channel": SERVICE, "data": taken}])
        except ClientError as error:
            log.info("statuses were not answered, and are sent again: %s", error)
            ledger.statuses.release(request)
            await self._try_again(_RETRY_S)
            return
        except BaseException:
            ledger.statuses.release(request)  # cancelled: the disconnect takes them along
            raise
        self._answered(ledger, request, reply)
        if not is_successful(reply):
            log.warning("the server refused statuses; they are sent again: %s", reply.get("error"))
            wait = min(_RETRY_S * 2**self._refusals, _LONGEST_RETRY_S)
            self._refusals += 1
            await self._try_again(wait)
            return
        self._refusals = 0
        if ledger.statuses.are_waiting:
            self._has_unsent.set()

    async def _try_again(self, wait: float) -> None:
        await asyncio.sleep(wait)
        self._has_unsent.set()

    def final_statuses(self) -> list[Fields]:
        """What is to be published before the disconnect."""
        messages: list[Fields] = []
        self._ledger.statuses.release()  # what carries them may come to nothing; to send them twice does no harm
        while self.is_granted and (taken := self._ledger.statuses.take("disconnect", self._room)):
            messages.append({"channel": SERVICE, "data": taken})
        return messages

    def report_refused(self, replies: list[Fields]) -> None:
        """Log which of the last statuses the server did not take. It delivers those messages again, or makes dead letters of
        them."""
        for reply in replies:
            if reply.get("channel") == SERVICE and not is_successful(reply):
                log.error("the server refused the last statuses of the session: %s", reply.get("error"))

    def report_unanswered(self, messages: list[Fields]) -> None:
        """Log how many of the last statuses the server may not have. It delivers those messages again, unless it has."""
        lost = sum(len(message["data"]) for message in messages if message["channel"] == SERVICE)
        if lost:
            log.warning("the last statuses of %d messages were not answered: the server may deliver these again", lost)
