"""Everything the client raises on purpose. Each class says what happened to what was asked."""

from __future__ import annotations

from typing import Any, Final

from crewel.bayeux.message import Fields
from crewel.client.client_message import DestinationState, Failure, destinations_of, ext_part
from crewel.errors import CrewelError, Fault
from crewel.errors.codes import is_below

_LONGEST_WAIT_MS: Final = 3_600_000
_IDENTICAL = "user.configuration.identicalClient"
_SECURITY: Final = "user.security"
_EXPIRED: Final = "user.security.authentication.expired"
_TEMPORARY: Final = ("resource.temporary", "resource.unavailable", "resource.noMoreSpace")
UNKNOWN_SESSION = frozenset({401, 402})
"""Codes that say "I do not know you" (Faye: 401)."""
WRONG_PATHS: Final = frozenset({404, 405})
"""HTTP statuses of a server that has nothing at this path."""
MISTAKES: Final = WRONG_PATHS | {407}
"""HTTP statuses that a repeat does not change: 407 is a proxy's that wants another name and password."""
INTERNAL_ERROR: Final = "user.update.internalError"
"""The code of an exception that brings none."""


class ClientError(CrewelError):
    """The root of the client's errors."""


class TransportError(ClientError):
    """The connection failed, was cut, or answered with an HTTP error. What was sent may have been accepted."""


class RequestTimeoutError(TransportError):
    """The reply did not arrive in time."""


class SocketClosedError(TransportError):
    """The WebSocket was closed. What is on its way may have been accepted, or may be why: `code` says which."""

    def __init__(self, code: int | None, reason: str = "") -> None:
        words = f": {reason}" if reason else ""
        super().__init__(f"the socket was closed with code {code}{words}")
        self.code = code
        self._reason = reason

    def is_about_a_batch_of(self, count: int) -> bool:
        """Whether the server closes because a payload has so many messages, which is more than it takes."""
        return self.code == Fault.TOO_MANY.close_code and self._reason.startswith(f"{Fault.TOO_MANY.text} ({count};")

    @property
    def is_about_a_payload(self) -> bool:
        """Whether the server closes for a payload that it cannot read, or that is too large."""
        return self.code in (1007, 1009)


class PayloadRefusedError(TransportError):
    """The server does not take this payload (400, 413), and took nothing of it: sending it again is of no use. The text says
    why, and which of several messages is to blame."""


class MessageTooLargeError(PayloadRefusedError):
    """The payload is larger than the server takes (`bayeux.max_message_bytes`). It was not sent, or not taken: sending it
    again is of no use."""


class UntrustedCertificateError(TransportError):
    """The server's certificate is not to be trusted: another authority has issued it, or it has expired, or it is for another
    host. Nothing was sent."""


class WrongAddressError(TransportError):
    """The server has nothing at this path (404, 405), or redirects to another address (301, 302, 303, 307, 308). The address is
    wrong, or a proxy in front of the server is. Opening a client does not try again; an open client does."""


class ProxyDeniedError(TransportError):
    """The proxy on the way to the server wants another name and password (407), or does not let clients through to it (403).
    Opening a client does not try again; an open client does."""


class UpgradeRefusedError(TransportError):
    """The server (or a proxy) answered the WebSocket upgrade with an ordinary HTTP response."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class NoReplyError(TransportError):
    """The response does not contain the reply to the request."""


class NotConnectedError(ClientError):
    """There was no session within the given time; nothing was sent."""


class DisconnectedError(ClientError):
    """The session has ended, and the client opens no other. The server may have accepted a request that was in transit."""


class SupersededError(DisconnectedError):
    """Another client has taken over the session, with its name or its `resume`."""


class TokenUnavailableError(ClientError):
    """The function that gives the client's token failed, took too long, or returned something else. The client asks again."""


class NegotiationError(ClientError):
    """Client and server have no transport in common."""


class MessageDroppedError(ClientError):
    """An extension of this client dropped the outgoing message."""


class NotEncodableError(ClientError, TypeError):
    """JSON cannot say what is in the message: NaN, Infinity, bytes, a set. The text names it and its place; nothing was
    sent."""


NEVER_TAKEN: Final = (PayloadRefusedError, MessageDroppedError, NotEncodableError)
"""The errors of a message that the server does not get, or does not take, however often it is sent."""


class OutboxFullError(ClientError):
    """The outbox has as many publishes, or bytes, as it may; this one is not in it."""


class SubscriptionEndedError(ClientError):
    """A message was requested from a subscription that has ended."""


class SubscriptionOverflowError(ClientError):
    """The queue of a subscription with the policy `close` was full."""


class RemoteCallFailedError(ClientError):
    """The remote procedure failed; `data` contains what it returned about the failure."""

    def __init__(self, target: str, data: Any) -> None:
        super().__init__(f"{target}: {data}")
        self.target = target
        self.data = data


class RemoteCallTimeoutError(ClientError):
    """The remote procedure was reached, as far as known, but did not answer in time."""


class AnswerTimeoutError(ClientError):
    """The request was published, but no answer arrived in time. The responder may still be working on it."""


class ErrorAnswer(ClientError):
    """The responder says that it failed: `error_code` and `message` say why, `data` perhaps more.

    A responder raises it. Where a request has raised it, `answer` is the message with all of it.
    """

    def __init__(
        self, error_code: str, message: str = "", *, data: Any = None, answer: Any = None, channel: str = ""
    ) -> None:
        words = f"{error_code} ({message})" if message else error_code
        super().__init__(f"{channel}: {words}" if channel else words)
        self.error_code, self.message, self.data = error_code, message, data
        self.answer = answer


class RefusedError(ClientError):
    """The server answered `successful: false`.

    `code` is the number of the `error` field (0 if it has none), `arguments`
    and `text` its other two parts, `reply` the whole answer. Where the server
    gives a dotted code, such as `user.illegalArgument`, that is `error_code`,
    and `message` are its words for people.
    """

    def __init__(self, reply: Fields) -> None:
        error = reply.get("error")
        self.reply = reply
        self.code, self.arguments, self.text = split_error(error if isinstance(error, str) else "")
        self.error_code, self.message = _dotted(reply, self.text)
        subject = reply.get("subscription", reply.get("channel"))
        words = f" ({self.message})" if self.message else ""
        super().__init__(f"{subject} was refused: {error if isinstance(error, str) else 'no reason given'}{words}")


class HandshakeRefused(RefusedError):
    """The server refused the handshake."""


class AccessDenied(HandshakeRefused):
    """The token is missing or invalid, or it does not permit the name."""

    @property
    def is_expired(self) -> bool:
        """Whether the token was valid once."""
        return self.error_code == _EXPIRED


class NameTaken(HandshakeRefused):
    """Another client uses this session. To take over a session, send its `resume` or a token of its subject."""

    @property
    def retry_after(self) -> float | None:
        """Seconds until the name is free, if its client is gone and does not come back; None: it is connected."""
        after = ext_part(self.reply, "session").get("retryAfter")
        return after / 1000 if type(after) is int and 0 <= after <= _LONGEST_WAIT_MS else None


class SubscribeRefused(RefusedError):
    """The server refused a subscription, or ended it later."""


class PublishRefused(RefusedError):
    """The server refused a publish. Code 402 means that the session is unknown or has ended."""

    @property
    def destinations(self) -> tuple[DestinationState, ...]:
        """The state of each destination: all are tried, and the error is that of the first one that failed."""
        return destinations_of(self.reply)


class NotStored(PublishRefused):
    """The server could not store a persistent message, or does not know whether it did. Publishing it again with the same
    `key` does no harm."""


class DestinationRefused(PublishRefused):
    """A destination of the message did not get it; the base class of the errors of a destination."""


class UnknownDestination(DestinationRefused):
    """The subject has no session. With `force_queuing`, the message would wait for one."""


class UnknownDestinationSession(DestinationRefused):
    """The session does not exist. A message to its subject can wait; a message to a session never does."""


class DestinationDenied(DestinationRefused):
    """The session exists but accepts no addressed messages: it logged in with `ptp: false`."""


class TopicReadonly(PublishRefused):
    """The topic accepts only one message, and already has it."""


class QueueOverflow(PublishRefused):
    """A queue that the message had to go into is full; nothing of it is there for this receiver."""


_KINDS: Final = (
    ("user.ptp.unknownDestinationSession", UnknownDestinationSession),
    ("user.ptp.unknownDestination", UnknownDestination),
    ("user.ptp.denied", DestinationDenied),
    ("user.ptp", DestinationRefused),
    ("user.publish.readonly", TopicReadonly),
    ("resource.overflow", QueueOverflow),
    ("resource", NotStored),
)
"""Codes and what is below them, and their classes; the first that fits counts."""


def handshake_refused(reply: Fields) -> HandshakeRefused:
    """The error for a handshake that was refused."""
    error = HandshakeRefused(reply)
    if is_below(error.error_code, _SECURITY):
        return AccessDenied(reply)
    return NameTaken(reply) if error.error_code == _IDENTICAL else error


def is_about_token(error: RefusedError | None) -> bool:
    """Whether the server does not take the token any more."""
    return error is not None and is_below(error.error_code, _SECURITY)


def is_of_session(error: RefusedError) -> bool:
    """Whether something was refused because the server does not know its session, or the token of that has expired. The server
    has not taken it; another session follows, or another token."""
    return error.code in UNKNOWN_SESSION or "token_expired" in error.arguments or error.error_code == _EXPIRED


def is_temporary(error: RefusedError) -> bool:
    """Whether the server may take the same later: a rate is exceeded, or the store is unavailable or full."""
    return any(is_below(error.error_code, code) for code in _TEMPORARY)


def publish_refused(reply: Fields) -> PublishRefused:
    """The error for a message that was refused."""
    error = PublishRefused(reply)
    kinds = (kind for code, kind in _KINDS if is_below(error.error_code, code))
    return next(kinds, PublishRefused)(reply)


def ended(reason: RefusedError | None) -> DisconnectedError:
    """The error for a session that the server ended, with the refusal as its cause."""
    error = DisconnectedError("the server ended the session")
    if reason is not None and reason.error_code == _IDENTICAL:
        error = SupersededError(
            "another client has taken the session over: one process at a time has it; give each a name of its own"
        )
    error.__cause__ = reason
    return error


def _dotted(reply: Fields, text: str) -> tuple[str, str]:
    """The dotted code and the words for people that a reply carries beside its `error`, or the code in that."""
    for part in ("publish", "session", "subscribe"):
        given = ext_part(reply, part)
        if isinstance(given.get("errorCode"), str):
            return given["errorCode"], given["message"] if isinstance(given.get("message"), str) else ""
    return (text, "") if "." in text and " " not in text else ("", "")


def split_error(error: str) -> tuple[int, tuple[str, ...], str]:
    """Code, arguments and text of a Bayeux `error` field: `"403:a,b:denied"` is `(403, ("a", "b"), "denied")`.

    What does not have this form is text altogether, with the code 0
    (Bayeux 1.0, 4.5 — error).
    """
    code, _, rest = error.partition(":")
    arguments, separator, text = rest.partition(":")
    if not (code.isascii() and code.isdigit() and separator):
        return 0, (), error
    return int(code), tuple(arguments.split(",")) if arguments else (), text


def said(error: BaseException) -> str:
    """The class and the text of an exception, for a log or another error. Its repr would not do: that of an error of an HTTP
    library shows the headers of the request, which may have a token."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def failure_of(error: BaseException) -> Failure:
    """The code and the text that report an exception: its `error_code`, if it has one, and what it says."""
    code = getattr(error, "error_code", None)
    return (code if isinstance(code, str) and code else INTERNAL_ERROR, str(error) or type(error).__name__)
