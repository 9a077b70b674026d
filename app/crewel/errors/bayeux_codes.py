"""What the `error` field of a Bayeux reply says, and what makes a whole payload worthless.

`BayeuxCode` is every `error` text that is fixed; `denied` makes those that carry a reason. `Fault` is everything that makes
a payload worthless as a whole, with what HTTP and WebSocket answer.
"""

from __future__ import annotations

from enum import Enum, StrEnum

from crewel.errors.codes import Explained


class BayeuxCode(Explained):
    """The fixed `error` texts, `NNN:<arguments>:<text>`, and when the server answers so. Clients match on the three digits."""

    CHANNEL_MISSING = "400::channel_missing", "The message has no `channel`, or unsubscribes from an unknown channel."
    SESSION_UNKNOWN = (
        "402::session_unknown",
        "The `clientId` is unknown, has expired, or does not belong to this browser cookie or socket.",
    )
    HANDSHAKE_DENIED = "403::handshake_denied", "The security policy refused the handshake."
    SUBSCRIPTION_MISSING = "403::subscription_missing", "A subscribe or unsubscribe has no `subscription`."
    SUBSCRIPTION_INVALID = (
        "403::subscription_invalid",
        "`subscription` is neither a channel name nor a list of them, or one name is invalid.",
    )
    SUBSCRIBE_FAILED = (
        "403::subscribe_failed",
        "The session ended before the subscribe was decided, or the subscribe names a meta channel.",
    )
    UNSUBSCRIBE_FAILED = "403::unsubscribe_failed", "An unsubscribe names a meta channel."
    MESSAGE_DELETED = "404::message_deleted", "An extension or a listener of the application rejected the message."
    CHANNEL_INVALID = "405::channel_invalid", "`channel` is not a valid channel name, or is a wildcard in a publish."
    MESSAGE_ID_INVALID = "405::message_id_invalid", "`id` contains other characters than letters and digits."
    INTERNAL_ERROR = "500::internal_error", "The application failed while handling the message; the log has the cause."


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
