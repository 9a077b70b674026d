"""What plugs into the client's message pipe, the pipe itself, and the client's own extensions for `ext.session` and `ext.ack`.

The interface is the official client's: an extension sees every message that
goes out and every message that comes in, may change it, and may drop it.

The server numbers each answer to a connect; the number in the next connect
says that everything up to there has arrived. Until it sees that number the
server keeps the messages and sends them again.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable

from crewel.bayeux.message import AWAITS, Fields
from crewel.client.arguments import check_methods, items
from crewel.client.client_message import CONNECT, HANDSHAKE, ext_part, is_queued, is_successful, with_ext

log = logging.getLogger("crewel.client")


class Extension:
    """Base of client extensions; both hooks let messages pass unchanged.

    A hook returns the message, changed in place or not, or None to drop it.
    A dropped request raises `MessageDroppedError` where it was made; a dropped
    reply never arrives. A hook that raises is logged and skipped.
    """

    def incoming(self, message: Fields) -> Fields | None:
        """Sees one received message before anything else of the client does."""
        return message

    def outgoing(self, message: Fields) -> Fields | None:
        """Sees one message before it is sent; a changed `id` is put back."""
        return message


def check_extension(name: str, value: object, verb: str = "is") -> None:
    """Raises TypeError for what cannot be an extension, such as the class of one."""
    check_methods(name, value, "an object with the methods incoming and outgoing", "incoming", "outgoing", verb=verb)


def checked(extensions: Iterable[Extension]) -> tuple[Extension, ...]:
    """The extensions of a client. Raises TypeError for what is none."""
    given = items("extensions", extensions, "a list of extensions")
    for each in given:
        check_extension("extensions", each, "has")
    return given


class Pipe:
    """The extensions in order: incoming first to last, outgoing last to first."""

    def __init__(self, extensions: tuple[Extension, ...] = ()) -> None:
        self._extensions = list(extensions)

    def add(self, extension: Extension) -> None:
        """Put an extension at the end."""
        self._extensions.append(extension)

    def remove(self, extension: Extension) -> None:
        """Take an extension out.

        Raises:
            ValueError: it is not in the pipe.
        """
        self._extensions.remove(extension)

    def incoming(self, message: Fields) -> Fields | None:
        """What is left of a received message, or None if one dropped it."""
        return _through([e.incoming for e in self._extensions], message)

    def outgoing(self, message: Fields) -> Fields | None:
        """What is left of a message to send, or None if one dropped it."""
        identity = message.get("id")
        passed = _through([e.outgoing for e in reversed(self._extensions)], message)
        if passed is not None and passed.get("id") != identity:
            # Replies are matched by id, so it is not an extension's to change.
            passed["id"] = identity
        return passed


def _through(hooks: list[Callable[[Fields], Fields | None]], message: Fields) -> Fields | None:
    for hook in hooks:
        try:
            passed = hook(message)
        except (Exception, SystemExit):  # that would end the loop which all synchronous clients share
            log.exception("an extension failed; the message passes without it")
            continue
        if passed is None:
            return None
        message = passed
    return message


class LoginExtension(Extension):
    """`ext.session`; empty if the application asks for nothing, for the server's answer has more than that."""

    def __init__(self, asked: Fields) -> None:
        self._asked = asked
        self.token: str | None = None
        """The token of the next handshake."""
        self.stored_secret: str | None = None
        """The secret that an earlier process has stored, until a login has shown whether it is still good."""
        self.reply: Fields = {}
        """What the server answered to the last handshake that it granted."""

    @property
    def resume(self) -> str | None:
        """What takes this session over, from here or from elsewhere; it is a secret."""
        return _text(self.reply.get("resume")) or _text(self._asked.get("resume")) or self.stored_secret

    def forget_stored_secret(self) -> bool:
        """Show the secret of the earlier process no more; whether it was shown."""
        was_shown = self.stored_secret is not None and self.stored_secret == self.resume
        self.stored_secret = None
        return was_shown

    @property
    def max_message_bytes(self) -> int | None:
        """The largest payload that the server takes, if known."""
        given = self.reply.get("maxMessageBytes")
        return given if isinstance(given, int) and given > 0 else None

    def outgoing(self, message: Fields) -> Fields:
        """Adds the field to handshakes."""
        if message.get("channel") == HANDSHAKE:
            # A client without a login of its own wants no session back either.
            asked = self._asked | ({} if self.token is None else {"token": self.token})
            if asked or self.stored_secret:
                if self.resume:
                    asked["resume"] = self.resume
                # For each attempt, so that only copies of this very request have the same.
                asked["nonce"] = secrets.token_hex(16)
            with_ext(message, "session", asked)
        return message

    def incoming(self, message: Fields) -> Fields:
        """Keeps the answer."""
        if message.get("channel") == HANDSHAKE and is_successful(message) and isinstance(message.get("ext"), dict):
            self.reply = ext_part(message, "session")
            self.stored_secret = None
        return message


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


class AckExtension(Extension):
    """`ext.ack`: `true` in the handshake, then in every connect the last batch seen. While `is_handled` says that the
    application is not done with that, it is the batch acknowledged before."""

    def __init__(self, is_handled: Callable[[], bool] = lambda: True) -> None:
        self._is_handled = is_handled
        self._acknowledged = self._acknowledging = 0
        self._connect: object = None
        self.enabled = False
        """Whether the server of this session acknowledges too."""
        self.batch = 0
        """The last batch that was handed over."""

    def outgoing(self, message: Fields) -> Fields:
        """Adds the field to handshakes and connects."""
        if message.get("channel") == HANDSHAKE:
            self.enabled, self.batch, self._acknowledged, self._acknowledging = False, 0, 0, 0
            with_ext(message, "ack", True)
        elif message.get("channel") == CONNECT and self.enabled:
            # A connect that was lost has reported nothing: what it said beside its acknowledgement may not have arrived either.
            self._connect = message.get("id")
            self._acknowledging = min(self.batch if self._is_handled() else self._acknowledged, self.batch)
            with_ext(message, "ack", self._acknowledging)
        return message

    def incoming(self, message: Fields) -> Fields:
        """Learns whether the server acknowledges, and the batch numbers."""
        ext = message.get("ext")
        if not isinstance(ext, dict) or not is_successful(message):
            return message
        if message.get("channel") == HANDSHAKE:
            self._negotiated(ext.get("ack"))
        elif message.get("channel") == CONNECT:
            if message.get("id") == self._connect:
                self._acknowledged = self._acknowledging
            if _is_batch(ext.get("ack")):
                self.batch = ext["ack"]
        return message

    def _negotiated(self, answer: object) -> None:
        # The second form comes from servers that deliver with the handshake reply: that was batch `batch`.
        if isinstance(answer, dict):
            self.enabled = answer.get("enabled") is True
            self.batch = answer["batch"] if _is_batch(answer.get("batch")) else 0
        else:
            self.enabled = answer is True


class BatchGate:
    """Buffers deliveries until the connect reply that closes their batch is there.

    `has_room` is asked with the deliveries of a batch before they are handed over. If it says no, the whole batch waits here,
    and the reply loses its batch number, so that no connect acknowledges it until `take_waiting` has handed it over. Meanwhile
    connects say that the client is busy. A server that understands this sends nothing, or what is new if the application waits
    for an answer: that waits behind the batch. A server that does not understand it sends the batch again, which takes the
    place of the one that waits. `is_awaited` knows the result of a remote call, which need not wait for a connect: sent again,
    it would come after its call has ended.
    """

    def __init__(
        self,
        ack: AckExtension,
        has_room: Callable[[list[Fields]], bool],
        is_awaited: Callable[[Fields], bool] = lambda fields: False,
    ) -> None:
        self._ack = ack
        self._has_room = has_room
        self._is_awaited = is_awaited
        self._buffered: list[Fields] = []
        self._waiting: list[Fields] | None = None
        self._number: int | None = None  # of the batch that waits
        self._opening = 0
        self.is_empty = True
        """Whether the last batch was empty, so that the server waits for the acknowledgement of no message."""

    @property
    def is_full(self) -> bool:
        """Whether a batch waits for room."""
        return self._waiting is not None

    @property
    def has_room(self) -> bool:
        """Whether the batch that waits has room now, or none waits."""
        return self._waiting is None or self._has_room(self._waiting)

    @property
    def is_opening(self) -> bool:
        """Whether deliveries that were announced with the handshake reply are still to come."""
        return self._opening > 0

    def expect(self, deliveries: int) -> None:
        """The handshake reply announced this many deliveries more, in frames of their own.

        They are the batch that the first connect acknowledges, which therefore has to wait for them.
        """
        if deliveries > 0:
            self._opening = deliveries

    def reset(self) -> None:
        """The connection or the session is gone: what is neither handed over nor acknowledged will be sent again."""
        self._buffered.clear()
        self._waiting = None
        if self._opening:
            self._opening, self._ack.batch = 0, 0

    def admit(self, payload: list[Fields], whole: bool) -> list[Fields]:
        """What to process now. `whole`: the payload is a complete HTTP response, not one frame of many."""
        if not self._ack.enabled or (whole and not any(_closes_batch(fields) for fields in payload)):
            return payload
        out: list[Fields] = []
        # Some servers put the connect reply first and its messages after it: within one payload order does not matter.
        for fields in sorted(payload, key=_closes_batch):
            if _closes_batch(fields):
                out += self._close(fields)
            elif not is_queued(fields) or self._is_awaited(fields):
                out.append(fields)
            else:
                out += self._buffer(fields)
        return out

    def _buffer(self, fields: Fields) -> list[Fields]:
        self._buffered.append(fields)
        if not self._opening or len(self._buffered) < self._opening:
            return []
        self._opening = 0
        batch, self._buffered = self._buffered, []
        return batch

    def _close(self, reply: Fields) -> list[Fields]:
        number = _batch_of(reply)
        self.is_empty = not self._buffered
        if self._waiting is not None and is_successful(reply):
            if number is None and not self._buffered:
                return [reply]  # to a connect that said that the client is busy
            if number is not None and _brings_new(reply):
                self._waiting, self._buffered, self._number = [*self._waiting, *self._buffered], [], number
                return [_without_batch(reply)]
        batch, self._buffered, self._waiting = self._buffered, [], None
        # All or nothing: the batch is acknowledged as a whole, when the application has read.
        if self._has_room(batch):
            return [*batch, reply]
        self._waiting, self._number = batch, number
        return [_without_batch(reply)]

    def take_waiting(self) -> list[Fields]:
        """The batch that waits, if there is room for it now: the next connect acknowledges it."""
        batch = self._waiting
        if batch is None or not self._has_room(batch):
            return []
        self._waiting = None
        if self._number is not None:
            self._ack.batch = self._number
        return batch


def _closes_batch(fields: Fields) -> bool:
    return fields.get("channel") == CONNECT


def _without_batch(reply: Fields) -> Fields:
    ext = reply.get("ext")
    if not isinstance(ext, dict):
        return reply
    return {**reply, "ext": {name: value for name, value in ext.items() if name != "ack"}}


def _batch_of(reply: Fields) -> int | None:
    ext = reply.get("ext")
    number = ext.get("ack") if isinstance(ext, dict) else None
    return number if _is_batch(number) else None


def _brings_new(reply: Fields) -> bool:
    ext = reply.get("ext")
    return isinstance(ext, dict) and ext.get("busy") == AWAITS


def _is_batch(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
