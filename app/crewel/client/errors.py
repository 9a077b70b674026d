"""Everything the client raises on purpose.

CrewelError
└── ClientError
    ├── TransportError           the message did not arrive, or its answer did not: the outcome is unknown
    │   ├── RequestTimeoutError  no answer in time
    │   ├── UpgradeRefusedError  an HTTP answer instead of a WebSocket
    │   └── NoReplyError         an answer that does not hold the reply
    ├── NotConnectedError        there was no session in time; nothing was sent
    ├── DisconnectedError        the session is over: closed by the application, or ended by the server
    ├── NegotiationError         client and server have no transport in common
    ├── MessageDroppedError      an extension of this client dropped the message; nothing was sent
    ├── SubscriptionEndedError   no more messages will come
    ├── SubscriptionOverflowError  a queue with the policy `close` was full
    ├── RemoteCallFailedError    the remote procedure answered with a failure
    ├── RemoteCallTimeoutError   the remote procedure did not answer in time
    └── RefusedError             the server answered `successful: false`
        ├── HandshakeRefused
        ├── SubscribeRefused
        └── PublishRefused
"""

from __future__ import annotations

from typing import Any

from crewel.bayeux.message import Fields
from crewel.errors import CrewelError


class ClientError(CrewelError):
    """The root of the client's errors."""


class TransportError(ClientError):
    """The connection failed, was cut, or answered with an HTTP error. What was sent may have been accepted."""


class RequestTimeoutError(TransportError):
    """No answer came in time."""


class UpgradeRefusedError(TransportError):
    """The server (or a proxy) answered the WebSocket upgrade with an ordinary HTTP response."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class NoReplyError(TransportError):
    """The response does not hold the reply to the request."""


class NotConnectedError(ClientError):
    """There was no session within the time the caller gave; nothing was sent."""


class DisconnectedError(ClientError):
    """The session is over and the client will not make another. A request that was on its way may have been accepted."""


class NegotiationError(ClientError):
    """Client and server have no transport in common."""


class MessageDroppedError(ClientError):
    """An extension of this client dropped the outgoing message."""


class SubscriptionEndedError(ClientError):
    """A message was asked of a subscription that has ended."""


class SubscriptionOverflowError(ClientError):
    """The queue of a subscription with the policy `close` was full."""


class RemoteCallFailedError(ClientError):
    """The remote procedure answered with a failure; `data` is what it says about it."""

    def __init__(self, target: str, data: Any) -> None:
        super().__init__(f"{target}: {data}")
        self.target = target
        self.data = data


class RemoteCallTimeoutError(ClientError):
    """The remote procedure was reached, as far as known, but did not answer in time."""


class RefusedError(ClientError):
    """The server answered `successful: false`.

    `code` is the number of the `error` field (0 if it has none), `arguments`
    and `text` its other two parts, `reply` the whole answer.
    """

    def __init__(self, reply: Fields) -> None:
        error = reply.get("error")
        self.reply = reply
        self.code, self.arguments, self.text = split_error(error if isinstance(error, str) else "")
        subject = reply.get("subscription", reply.get("channel"))
        super().__init__(f"{subject} was refused: {error if isinstance(error, str) else 'no reason given'}")


class HandshakeRefused(RefusedError):
    """The server gave no session."""


class SubscribeRefused(RefusedError):
    """The server refused a subscription."""


class PublishRefused(RefusedError):
    """The server refused a message. 402: it does not know the session (any more)."""


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
