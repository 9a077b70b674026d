"""The error tree and the code tables.

CrewelError
├── SettingsError        a setting has an unknown name or an impossible value
├── ServiceError         a service module cannot be loaded or is declared wrongly
├── PayloadError         a whole request or frame is refused; carries its `Fault`
├── Refused              one Bayeux message is refused; carries the `error` text of its reply
│   └── IllegalArgument      because one of its fields has a wrong type or value; names the field
├── RemoteCallError      a remote call answers with a failure that its caller may read
└── StoreError           the store did not do a step; has a dotted `code`
    ├── StoreUnavailable     it cannot be asked: nothing was done
    │   └── StoreUncertain       it was asked and did not answer: nobody knows
    ├── StoreFull            its memory or its disk is at the limit: refused, nothing was done
    ├── Fenced               the session, or this node, belongs to another token by now: nothing was done
    └── Behind               it has lost what it had answered

`BayeuxCode` is every `error` text that is fixed; `denied` makes those that carry a reason. `Fault` is everything that makes
a payload worthless as a whole, with what HTTP and WebSocket answer.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple

__all__ = [
    "CODES",
    "DENIED_BY_NOT_GRANTING",
    "DENIED_BY_POLICY",
    "BayeuxCode",
    "Behind",
    "CrewelError",
    "Denied",
    "Fault",
    "Fenced",
    "IllegalArgument",
    "PayloadError",
    "Refused",
    "RemoteCallError",
    "ServiceError",
    "SettingsError",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "StoreUncertain",
    "coded",
    "denied",
    "status_of",
]


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
    BayeuxCode.CHANNEL_MISSING: "The message has no `channel`, or unsubscribes from a channel that the server does not know.",
    BayeuxCode.SESSION_UNKNOWN: "The `clientId` is unknown, gone, or not the one of this browser cookie or socket.",
    BayeuxCode.HANDSHAKE_DENIED: "The security policy refused the handshake.",
    BayeuxCode.SUBSCRIPTION_MISSING: "A subscribe or unsubscribe without `subscription`.",
    BayeuxCode.SUBSCRIPTION_INVALID: "`subscription` is neither a channel name nor a list of them, or one name is invalid.",
    BayeuxCode.SUBSCRIBE_FAILED: "The session ended while the subscribe was being decided, or it names a meta channel.",
    BayeuxCode.UNSUBSCRIBE_FAILED: "Nobody can unsubscribe from a meta channel.",
    BayeuxCode.MESSAGE_DELETED: "An extension or a listener of the application vetoed the message.",
    BayeuxCode.CHANNEL_INVALID: "`channel` breaks the grammar of channel names, or is a wildcard in a publish.",
    BayeuxCode.MESSAGE_ID_INVALID: "`id` is not made of letters and digits.",
    BayeuxCode.INTERNAL_ERROR: "The application failed while it handled the message; the log has the cause.",
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


_STATUS_OF: Final = (
    ("user.ptp", 404),
    ("user.security", 403),
    ("user.publish.readonly", 409),
    ("user", 400),
    ("resource.overflow", 413),
    ("resource", 503),
)


def status_of(code: str) -> int:
    """The three digits that stand for a dotted code, which are an HTTP status as well; 500 for what is nobody's fault but
    the server's."""
    for prefix, status in _STATUS_OF:
        if code == prefix or code.startswith(f"{prefix}."):
            return status
    return 500


CODES: Final = {
    "user.illegalArgument": "A field has a wrong type or value, does not exist, or asks for what this server does not offer.",
    "user.configuration.identicalClient": "Another client is the session, or has just taken it over.",
    "user.configuration.maxSession": "The subject has as many sessions as the login allows.",
    "user.security.authentication.accessDenied": "There is no token, or one that does not hold, or for another subject.",
    "user.security.authentication.expired": "The token has expired.",
    "resource.unavailable": "The store cannot be asked, or did not answer: with a `key`, try again.",
    "resource.noMoreSpace": "The memory or the disk of the store is full.",
    "resource.overflow.queue.entries": "The queue of the receiver is full; in dead letters only.",
    "resource.overflow.queue.bytes": "The queue of the receiver is full; in dead letters only.",
    "communication.noConnection.dead": "The receiver's session has ended; in dead letters only.",
}
"""The dotted codes that this server uses, and when."""


def coded(code: str, argument: str = "", status: int | None = None) -> str:
    """`NNN:<argument>:<dotted code>`, the `error` text of a dotted code; an argument cannot smuggle in a colon."""
    return f"{status_of(code) if status is None else status}:{argument.replace(':', ' ')[:128]}:{code}"


class _Answer(NamedTuple):
    http_status: int
    close_code: int
    text: str


class Fault(Enum):
    """What makes a whole payload worthless: HTTP status, WebSocket close code (0: the frame is ignored, because old clients
    send `[]` to keep a socket alive), and the words for both."""

    EMPTY = _Answer(400, 0, "no message in the request")
    MALFORMED = _Answer(400, 1007, "not a JSON object or array of objects in UTF-8")
    TOO_DEEP = _Answer(400, 1008, "JSON nested too deeply")
    TOO_MANY = _Answer(400, 1008, "too many messages in one batch")
    HANDSHAKE_IN_BATCH = _Answer(400, 1007, "a handshake must be alone in its request")
    TOO_LARGE = _Answer(413, 1009, "request body too large")
    CHARSET = _Answer(415, 1007, "unknown charset")
    TOO_SLOW = _Answer(408, 1008, "request body did not arrive in time")

    @property
    def http_status(self) -> int:
        """The status that a long-polling request is answered with."""
        return self.value.http_status

    @property
    def close_code(self) -> int:
        """The code that a WebSocket is closed with; 0 ignores the frame."""
        return self.value.close_code

    @property
    def text(self) -> str:
        """The words for the peer; short enough for a close frame."""
        return self.value.text


class CrewelError(Exception):
    """The root of everything that Crewel raises on purpose."""


class SettingsError(CrewelError):
    """A setting has an unknown name or an impossible value; the text says which and what was expected."""


class ServiceError(CrewelError):
    """A service module cannot be imported, holds no service, or declares something impossible."""


class PayloadError(CrewelError):
    """A whole request or frame is refused."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.text)
        self.fault = fault


class Refused(CrewelError):
    """One message is refused; `error` is the text of its reply. Where it has a dotted code, `code` is that, and `message`
    is for who reads it."""

    def __init__(self, error: str, code: str = "", message: str = "") -> None:
        super().__init__(error)
        self.error = error
        self.code = code
        self.message = message


class IllegalArgument(Refused):
    """A field has a wrong type or value; `message` says what was expected of `field`."""

    def __init__(self, field: str, message: str) -> None:
        code = "user.illegalArgument"
        super().__init__(coded(code, field), code, f"{field[:128]}: {message}")
        self.field = field
        self.expected = message


class RemoteCallError(CrewelError):
    """Raised by a remote call to answer `successful: false` with `data` (any JSON value)."""

    def __init__(self, data: Any) -> None:
        super().__init__(str(data))
        self.data = data


class StoreError(CrewelError):
    """The store did not do a step. `code` is the dotted code that a client reads."""

    code = "resource.unavailable"


class StoreUnavailable(StoreError):
    """The store cannot be asked. Nothing was done, so that the step may be tried again."""


class StoreUncertain(StoreUnavailable):
    """The store was asked and did not answer in time: the step was done, or it was not."""


class StoreFull(StoreError):
    """The store is at the limit of its memory or of its disk. It refused the step as a whole; nothing was done."""

    code = "resource.noMoreSpace"


class Fenced(StoreError):
    """The session, or this node itself, belongs to another token by now. Nothing was done."""


class Behind(StoreError):
    """The store has lost something that it had answered: it restarted without its last writes."""
