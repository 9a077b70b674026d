"""The error tree: each class says what was not done, and whether it may be tried again; and the texts for the wire.

`BayeuxCode` is every `error` text that is fixed; `denied` makes those that carry a reason. `Fault` is everything that makes
a payload worthless as a whole, with what HTTP and WebSocket answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from math import ceil
from typing import Any, Final

from crewel.errors.codes import Explained, coded

_TOO_MANY_REQUESTS: Final = 429


class CrewelError(Exception):
    """The root of everything that Crewel raises on purpose."""

    exit_status = 1
    """Of the command that ends by it."""


class SettingsError(CrewelError):
    """A setting has an unknown name or an impossible value; the text says which and what was expected."""


class ServiceError(CrewelError):
    """A service module cannot be imported, holds no service, or declares something impossible."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """A message for which its payload is refused: its place among the others, what a reply echoes of it, and the reason."""

    index: int
    fields: dict[str, Any]
    refusal: IllegalArgument


class PayloadError(CrewelError):
    """A whole request or frame is refused; the text says why, with `detail` also where, or what the limit is. If only some of
    its messages are to blame, these are `flaws`, and `others` are the rest of its elements."""

    def __init__(self, fault: Fault, detail: str = "", flaws: Sequence[Flaw] = (), others: Sequence[Any] = ()) -> None:
        place = f"message {flaws[0].index + 1} of {len(flaws) + len(others)}: " if flaws else ""
        super().__init__(f"{place}{fault.text} ({detail})" if detail else fault.text)
        self.fault, self.flaws, self.others = fault, flaws, others

    @property
    def is_answerable(self) -> bool:
        """Whether replies can say which messages are refused, and the others can be processed; if so, or if there are none at
        all, a socket stays open."""
        return all("channel" in flaw.fields and "id" in flaw.fields for flaw in self.flaws) and (
            bool(self.flaws) or not self.fault.close_code
        )


class Refused(CrewelError):
    """One message is refused; `error` is the text of its reply. Where it has a dotted code, `code` is that, and `message`
    is for people to read."""

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


class Limited(Refused):
    """A limit is reached. `limit` is the name of its setting, `wait_ms` the milliseconds after which to try again, and
    `message` says which in words. `code` distinguishes a rate, which recovers with time, from a cap, below which something must
    end."""

    RATE = "resource.temporary.unavailable"
    CAP = "resource.exhaust"

    def __init__(self, limit: str, why: str, wait_s: float, code: str = RATE) -> None:
        self.limit = limit
        self.wait_ms = max(ceil(wait_s * 1000), 1)
        super().__init__(
            coded(code, limit, _TOO_MANY_REQUESTS), code, f"{limit}: {why}; try again in {self.wait_ms} ms"
        )


class RemoteCallError(CrewelError):
    """Raised by a remote call to answer `successful: false` with `data` (any JSON value)."""

    def __init__(self, data: Any) -> None:
        super().__init__(str(data))
        self.data = data


class NotReached(CrewelError):
    """A client that was asked for a sign of life gave none in time."""

    code = "communication.noConnection"


class StoreTaken(CrewelError):
    """Another server that lives has the store; the text says which, and what can be done."""

    def __init__(self, owner: str, advice: str = "") -> None:
        super().__init__(f"another server has the store: {owner}{advice}")
        self.owner = owner


class StoreLost(CrewelError):
    """Another server has taken the store from this one while it ran."""

    exit_status = 3


class WorkersFailed(CrewelError):
    """A worker does not start; what it said about the cause, if anything, stands before this on standard error."""

    def __init__(self, number: int, end: int | OSError) -> None:
        """`end` is the status of its process, or the reason why there was none."""
        if isinstance(end, OSError):
            super().__init__(f"worker {number} cannot be started: {end.strerror or end}")
            return
        how = f"status {end}" if end >= 0 else f"signal {-end}"
        super().__init__(f"worker {number} ended with {how} before it served; its own message says why")


class LinkError(CrewelError):
    """Another node says what a node cannot say, or does not prove that it belongs to this store."""


class StoreError(CrewelError):
    """The store did not do a step. `code` is the dotted code that a client reads."""

    code = "resource.unavailable"


class StoreUnavailable(StoreError):
    """The store cannot be asked. Nothing was done, so that the step may be tried again."""


class StoreUncertain(StoreUnavailable):
    """The store was asked and did not answer in time: the step was done, or it was not."""


class NodeFailed(StoreUncertain):
    """Another node has failed to do what it was asked, or its answer cannot be read: a fault of the program at one of both."""

    code = "internal"


class StoreFull(StoreError):
    """The store is at the limit of its memory or of its disk. It refused the step as a whole; nothing was done."""

    code = "resource.noMoreSpace"


class Fenced(StoreError):
    """The session, or this node itself, belongs to another token by now. Nothing was done."""


class Behind(StoreError):
    """The store has lost something that it had answered: it restarted without its last writes."""


class BayeuxCode(Explained):
    """The fixed `error` texts, `NNN:<arguments>:<text>`, and when the server answers so. Clients match on the three digits."""

    CHANNEL_MISSING = "400::channel_missing", "The message has no `channel`, or unsubscribes from an unknown channel."
    SESSION_UNKNOWN = (
        "402::session_unknown",
        "The `clientId` is missing, unknown or expired, or does not belong to this browser cookie, this page's origin or this"
        " socket: send a handshake.",
    )
    HANDSHAKE_DENIED = "403::handshake_denied", "The security policy refused the handshake."
    SUBSCRIPTION_MISSING = "403::subscription_missing", "A subscribe or unsubscribe has no `subscription`."
    SUBSCRIPTION_INVALID = (
        "403::subscription_invalid",
        "`subscription` is neither a channel name nor a list of them, or one name is invalid: in a subscribe also one with a"
        " segment `.` or `..`.",
    )
    SUBSCRIBE_FAILED = (
        "403::subscribe_failed",
        "The session ended before the subscribe was decided, or the subscribe names a meta channel.",
    )
    UNSUBSCRIBE_FAILED = "403::unsubscribe_failed", "An unsubscribe names a meta channel."
    MESSAGE_DELETED = "404::message_deleted", "An extension or a listener of the application rejected the message."
    CHANNEL_INVALID = (
        "405::channel_invalid",
        "`channel` is not a valid channel name, or, in a publish, is a wildcard or has a segment `.` or `..`.",
    )
    NO_TRANSPORT = (
        "405::no_transport",
        "A handshake names transports in `supportedConnectionTypes`, and the server offers none of them.",
    )
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


REFUSED_HEADER: Final = "Crewel-Refused"
"""The header of a response that refuses a payload, with the name of the fault. A proxy's 400 does not have it."""


class Fault(Enum):
    """What makes a whole payload worthless: HTTP status, WebSocket close code, and the words for both, short enough for a close
    frame. Code 0: the frame is ignored, because old clients send `[]` to keep a socket alive."""

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
