"""How the messages of one session fare: in the application's hands, settled, and what the server has to be told of it.

Owns the bookkeeping of `update.py`; knows neither connection nor queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import orjson

from crewel.bayeux.message import Fields

INTERNAL_ERROR: Final = "user.update.internalError"
"""The code of an exception that brings none."""
_REMEMBERED: Final = 10_000
_LONGEST_CODE: Final = 200
_LONGEST_TEXT: Final = 500

Failure = tuple[str, str]
"""A dotted code, and words for people."""


class Statuses:
    """What the server has to be told and has not confirmed: a status a message, and the request that carries it, if any."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Fields, object | None]] = {}

    @property
    def are_waiting(self) -> bool:
        """Whether there are some that no request carries."""
        return any(carrier is None for _, carrier in self._open.values())

    def put(self, status: Fields) -> None:
        """Note how a message fares. That it is being worked on is no news once its end is known."""
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


class Handling:
    """One delivery in the application's hands. It ends when all who were given it are done; the first failure counts."""

    __slots__ = ("_ended", "_failure", "_left", "_tell")

    def __init__(self, ended: Callable[[Handling, Failure | None], None], tell: Callable[[str], None]) -> None:
        self._left = 1  # the client itself, which is handing it out
        self._failure: Failure | None = None
        self._ended = ended
        self._tell = tell

    def part(self) -> Part:
        """One more has to be done with it."""
        self._left += 1
        return Part(self)

    def failed(self, code: str, text: str) -> None:
        """Somebody could not do it."""
        if self._failure is None:
            self._failure = (code, text)

    def working(self) -> None:
        """Somebody is still at it."""
        if self._left:
            self._tell("WORKING")

    def unclaimed(self) -> None:
        """No listener takes it."""
        self._tell("UNCLAIMED")

    def claimed(self) -> None:
        """A listener takes it after all."""
        self._tell("WORKING")

    def end(self) -> None:
        """Somebody is done with it."""
        self._left -= 1
        if not self._left:
            self._ended(self, self._failure)


class Part:
    """What one subscription has to do with a message; it is done with it once."""

    __slots__ = ("_handling", "is_deferred", "is_done")

    def __init__(self, handling: Handling) -> None:
        self._handling = handling
        self.is_done = False
        self.is_deferred = False
        """Whether the application settles it by itself."""

    def settle(self) -> None:
        """It went well."""
        if not self.is_done:
            self.is_done = True
            self._handling.end()

    def reject(self, code: str, text: str) -> None:
        """It went wrong."""
        if not self.is_done:
            self._handling.failed(code, text)
            self.settle()

    def working(self) -> None:
        """It goes on."""
        if not self.is_done:
            self._handling.working()

    def give_up(self) -> Handling | None:
        """Hand it to another listener, which has to end the handling; None if it is done with."""
        if self.is_done:
            return None
        self.is_done = True
        return self._handling


class Ledger:
    """One session's messages: those in the application's hands, those settled OK (the latest), and what is to be told.

    `tells_ok`: what went well is told too; without, the acknowledgement of its batch says it.
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
        """Begin with a message. One that comes again while it is at work counts anew."""

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
        """Tell how a message fares that has not ended. `is_last`: this copy is the last one that came."""
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


def described(error: BaseException) -> Failure:
    """What the server is told of an exception: its `error_code`, if it has one, and what it says."""
    code = getattr(error, "error_code", None)
    return (code if isinstance(code, str) and code else INTERNAL_ERROR, str(error) or type(error).__name__)


def _is_end(status: Fields) -> bool:
    return status.get("state") not in ("WORKING", "UNCLAIMED")
