"""What the `error` field of a Bayeux reply says, and what makes a whole payload worthless.

`BayeuxCode` is every `error` text that is fixed; `denied` makes those that carry a reason. `Fault` is everything that makes
a payload worthless as a whole, with what HTTP and WebSocket answer.
"""

from __future__ import annotations

from enum import Enum, StrEnum


class BayeuxCode(StrEnum):
    """The fixed `error` texts, `NNN:<arguments>:<text>`. Clients match on the three digits."""

    CHANNEL_MISSING = "400::channel_missing"
    SESSION_UNKNOWN = "402::session_unknown"
    HANDSHAKE_DENIED = "403::handshake_denied"
    SUBSCRIPTION_MISSING = "403::subscription_missing"
    SUBSCRIPTION_INVALID = "403::subscription_invalid"
    SUBSCRIBE_FAILED = "403::subscribe_failed"
    UNSUBSCRIBE_FAILED = "403::unsubscribe_failed"
    MESSAGE_DELETED = "404::message_deleted"
    CHANNEL_INVALID = "405::channel_invalid"
    MESSAGE_ID_INVALID = "405::message_id_invalid"
    INTERNAL_ERROR = "500::internal_error"

    @property
    def meaning(self) -> str:
        """When the server answers so, in one line."""
        return _MEANINGS[self]


_MEANINGS = {
    BayeuxCode.CHANNEL_MISSING: "The message has no `channel`, or unsubscribes from an unknown channel.",
    BayeuxCode.SESSION_UNKNOWN: "The `clientId` is unknown, has expired, or does not belong to this browser cookie"
    " or socket.",
    BayeuxCode.HANDSHAKE_DENIED: "The security policy refused the handshake.",
    BayeuxCode.SUBSCRIPTION_MISSING: "A subscribe or unsubscribe has no `subscription`.",
    BayeuxCode.SUBSCRIPTION_INVALID: "`subscription` is neither a channel name nor a list of them, or one name is invalid.",
    BayeuxCode.SUBSCRIBE_FAILED: "The session ended before the subscribe was decided, or the subscribe names a meta"
    " channel.",
    BayeuxCode.UNSUBSCRIBE_FAILED: "An unsubscribe names a meta channel.",
    BayeuxCode.MESSAGE_DELETED: "An extension or a listener of the application rejected the message.",
    BayeuxCode.CHANNEL_INVALID: "`channel` is not a valid channel name, or is a wildcard in a publish.",
    BayeuxCode.MESSAGE_ID_INVALID: "`id` contains other characters than letters and digits.",
    BayeuxCode.INTERNAL_ERROR: "The application failed while handling the message; the log has the cause.",
}


class Denied(StrEnum):
    """The texts of `403:<reason>:<text>`: what the policy or an authoriser refused."""

    SUBSCRIBE = "subscribe_denied"
    CREATE = "create_denied"
    PUBLISH_CREATE = "channel_create_denied"
    PUBLISH = "publish_denied"


DENIED_BY_POLICY = "denied_by_security_policy"
DENIED_BY_NOT_GRANTING = "denied_by_not_granting"


def denied(reason: str, what: Denied) -> str:
    """`403:<reason>:<what>`; a reason cannot smuggle a colon into the three-part form."""
    return f"403:{reason.replace(':', ' ')}:{what}"


class Fault(Enum):
    """What makes a whole payload worthless: HTTP status, WebSocket close code (0: the frame is ignored, because old clients
    send `[]` to keep a socket alive), and the words for both, short enough for a close frame."""

    EMPTY = 400, 0, "no message in the request"
    MALFORMED = 400, 1007, "not a JSON object or array of objects in UTF-8"
    TOO_DEEP = 400, 1008, "JSON nested too deeply"
    TOO_MANY = 400, 1008, "too many messages in one batch"
    HANDSHAKE_IN_BATCH = 400, 1007, "a handshake must be alone in its request"
    TOO_LARGE = 413, 1009, "request body too large"
    CHARSET = 415, 1007, "unknown charset"
    CODED = 415, 1007, "compressed request bodies are not accepted: send it without Content-Encoding"
    TOO_SLOW = 408, 1008, "request body did not arrive in time"

    def __init__(self, http_status: int, close_code: int, text: str) -> None:
        self.http_status = http_status
        self.close_code = close_code
        self.text = text
