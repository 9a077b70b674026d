"""What the server sends: messages, what the application does with one, and replies."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic

from typing_extensions import TypeVar

from crewel.bayeux.channel import parse, why_invalid
from crewel.bayeux.message import Fields
from crewel.bayeux.z85 import decode_z85
from crewel.client.arguments import check_text
from crewel.qos.update import ERASED, POINT_TO_POINT

HANDSHAKE = "/meta/handshake"
CONNECT = "/meta/connect"
DISCONNECT = "/meta/disconnect"
SUBSCRIBE = "/meta/subscribe"
UNSUBSCRIBE = "/meta/unsubscribe"
ValueT = TypeVar("ValueT")
UsualT = TypeVar("UsualT")
DataT = TypeVar("DataT", default=Any)
"""The type of the data of a message; Any, unless its subscription names one."""

log = logging.getLogger("crewel.client")

CONTENT_TYPE: Final = "contentType"
"""The property that says what the data is."""
KEY_PROPERTY: Final = "idempotencyKey"
"""The client property in which receivers find the key of an outbox."""
SendPayload = Callable[[list[Fields]], Awaitable[list[Fields]]]
"""Sends messages in one payload; their replies. Raises ClientError."""
DEAD_MESSAGE: Final = "user.update.deadMessage"
HOLDBACK: Final = "user.update.holdback"
Failure = tuple[str, str]
"""A dotted code, and words for people."""
_RETRY: Final = (
    "`client.consume` gives messages that can be retried one by one; here, `reject` with a code of communication, such as "
    "communication.noConnection, lets the server send this message and all after it again, after `delay`"
)


class Handling:
    """One delivery in the application's hands. It ends when all its subscriptions are done; the first failure counts."""

    __slots__ = (
        "_ended",
        "_failure",
        "_left",
        "_report",
        "is_copy",
        "is_over",
        "is_skipped",
        "is_superseded",
        "is_taken",
    )

    def __init__(self, ended: Callable[[Handling, Failure | None], None], report: Callable[[str], None]) -> None:
        self._left = 1  # the client itself, which is handing it out
        self._failure: Failure | None = None
        self._ended = ended
        self._report = report
        self.is_copy = False
        """Whether an earlier copy had not ended when this one came."""
        self.is_superseded = False
        """Whether the message has come again since, and that copy has a turn of its own."""
        self.is_over = False
        """Whether an earlier copy has ended since this one came."""
        self.is_skipped = False
        """Whether a subscription has left it out, because an earlier copy has ended."""
        self.is_taken = False
        """Whether a worker has it: what ends it there ends its copies."""

    def share(self) -> Handling:
        """One more has to be done with it."""
        self._left += 1
        return self

    def failed(self, code: str, text: str) -> None:
        """A subscription rejected it."""
        if self._failure is None:
            self._failure = (code, text)

    def working(self) -> None:
        """A subscription still works on it."""
        if self._left:
            self._report("WORKING")

    def unclaimed(self) -> None:
        """No listener takes it."""
        self._report("UNCLAIMED")

    def end(self) -> None:
        """A subscription is done with it."""
        self._left -= 1
        if not self._left:
            self._ended(self, self._failure)


@dataclass(slots=True)
class Message(Generic[DataT]):
    """A delivered message. `fields` is everything the server sent, `data` its opaque payload.

    In a client with `update` the application settles it (docs/reference/client.md): by asking for the next one, or with the
    methods here, of which the first one counts. Elsewhere they do nothing.
    """

    channel: str
    data: DataT
    fields: Fields
    handling: Handling | None = field(default=None, repr=False, compare=False)
    """What the client keeps of it until it is settled; None: it is, or there is nothing to settle."""
    is_deferred: bool = field(default=False, repr=False, compare=False)
    """Whether only the application settles it, with `settle` or `reject`."""
    is_settled: bool = field(default=False, repr=False, compare=False)
    """Whether it was settled, or left to another listener."""
    recorded_in: Any = field(default=None, repr=False, compare=False)
    """The database connection with which an inbox has recorded it; None: no inbox has seen it."""

    @property
    def ext(self) -> Fields:
        """The message's `ext`; empty if it has none."""
        ext = self.fields.get("ext")
        return ext if isinstance(ext, dict) else {}

    @property
    def is_recorded(self) -> bool:
        """Whether an inbox has recorded it in a transaction that is still open, as sqlite3 and aiosqlite say it, or psycopg."""
        in_transaction = getattr(self.recorded_in, "in_transaction", None)
        if in_transaction is not None:
            return bool(in_transaction)
        status = getattr(getattr(self.recorded_in, "info", None), "transaction_status", None)
        return getattr(status, "name", "") in ("ACTIVE", "INTRANS")

    @property
    def id(self) -> str | None:
        """The message's id, which stays the same if it is delivered again; None for a transient message without `update`."""
        message_id = self.fields.get("id", self.update.get("id"))
        return message_id if isinstance(message_id, str) else None

    @property
    def update(self) -> Fields:
        """The fields of `ext.update`, without default values; empty in a client without `update`."""
        return update_of(self.fields)

    def _value(self, name: str, kind: type[ValueT], usual: UsualT) -> ValueT | UsualT:
        """This field of `update`; `usual` if the server does not say it."""
        given = self.update.get(name)
        return given if isinstance(given, kind) else usual

    @property
    def sender(self) -> str | None:
        """The public name of the session that published it, if known."""
        return self._value("sender", str, None)

    @property
    def redeliver(self) -> int:
        """How often it may have been sent before."""
        return self._value("redeliver", int, 0)

    @property
    def priority(self) -> int:
        """0 to 9; the higher ones come first."""
        return self._value("priority", int, 5)

    @property
    def life_time(self) -> float | None:
        """How long it was published for, in seconds; None: without limit."""
        given = self._value("lifeTime", int, -1)
        return None if given < 0 else given / 1000

    @property
    def remaining_life(self) -> float | None:
        """How much of that was left when it was sent, in seconds; None: without limit."""
        given = self._value("remainingLife", int, None)
        return None if given is None else given / 1000

    @property
    def received_ns(self) -> int | None:
        """When the server accepted it, in nanoseconds since 1970, unique for each message of a server; None if unknown."""
        digits = self._value("rcvTimestamp", str, "")
        return int(digits) if digits.isascii() and digits.isdigit() else None

    @property
    def subscription(self) -> str:
        """The channel or wildcard that it was delivered for; `__subId:PtP` if it was addressed to this session."""
        return self._value("subscription", str, self.channel)

    @property
    def is_addressed(self) -> bool:
        """Whether it was addressed to this session or its subject, if the server reports this."""
        return self.subscription == POINT_TO_POINT

    @property
    def state(self) -> str:
        """`OK`, or `ERASED` for the notice that the topic is gone."""
        return self._value("state", str, "OK")

    @property
    def is_erased(self) -> bool:
        """Whether this is no message but the notice that the topic is gone. A subscription to just its name ends with it."""
        return self.state == ERASED

    @property
    def reply_to(self) -> str | None:
        """The channel on which its publisher waits for an answer, if it does."""
        asked = self.ext.get("replyTo")
        return self._value("replyTo", str, asked if isinstance(asked, str) else None)

    @property
    def backlog(self) -> tuple[int, int] | None:
        """Its place in the response, and how many are left, while what waited during an absence is sent; else None."""
        match self.update.get("queue"):
            case {"index": int(index), "size": int(size)}:
                return index, size
        return None

    @property
    def is_persistent(self) -> bool:
        """Whether it was stored before it was answered."""
        return self.update.get("persistent") is True

    @property
    def is_initial(self) -> bool:
        """Whether it is from a history, and old."""
        return self.update.get("initial") is True

    @property
    def client_properties(self) -> Fields:
        """The properties that the publisher added, and those of the server: `__redriveOf`, or the fields of a dead letter."""
        return self._value("clientProperties", dict, {})

    @property
    def content_type(self) -> str | None:
        """The media type of the data, if the publisher set it. For data other than bytes, it needs a client with `update`."""
        binary = self._binary
        given = self.client_properties if binary is None else binary.get("meta")
        found = given.get(CONTENT_TYPE) if isinstance(given, dict) else None
        return found if isinstance(found, str) else None

    @property
    def content(self) -> bytes | None:
        """The bytes that were published; None if the data is not bytes, or damaged."""
        binary = self._binary
        try:
            return None if binary is None else decode_z85(binary["data"])
        except ValueError:
            return None

    @property
    def _binary(self) -> Fields | None:
        data: Any = self.fields.get("data")  # as it came: `self.data` may be of the type that its subscription asks for
        is_binary = "binary" in self.ext and isinstance(data, dict) and isinstance(data.get("data"), str)
        return data if is_binary else None

    @property
    def idempotency_key(self) -> str | None:
        """The key under which an outbox published it, which is the same for all repeats."""
        found = self.client_properties.get(KEY_PROPERTY)
        return found if isinstance(found, str) else None

    def settle(self) -> None:
        """It is done."""
        handling = self.give_up()
        if handling is not None:
            handling.end()

    def reject(self, code: str, text: str = "") -> None:
        """It cannot be done: `code` decides what the server does with it (docs/reference/errors.md).

        In a client without `update` this has no effect, and a warning in the log names what is missing."""
        check_failure(code, text)
        if self.handling is not None:
            self.handling.failed(code, text)
            self.settle()
        elif not self.is_settled:
            log.warning(
                "reject had no effect on the message of %s, because nothing waits for its outcome: rejecting needs "
                "Client(..., update=True) and a server that supports it",
                self.channel,
            )

    def dead_letter(self, reason: str = "") -> None:
        """Make the message a dead letter, which an operator can read and send again, and continue with the next message."""
        self.reject(DEAD_MESSAGE, reason)

    def hold(self, reason: str = "") -> None:
        """Keep the message in the queue, and put the session on hold: the server sends nothing more until an operator activates
        the session. This process still gets the messages that it has already fetched."""
        self.reject(HOLDBACK, reason)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say what to use in the place of a method that only a `Delivery` has."""
            hint = f": {_RETRY}" if name == "retry" else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    def working(self) -> None:
        """It takes longer: `ack_wait` starts again."""
        if self.handling is not None:
            self.handling.working()

    def defer(self) -> None:
        """Do not acknowledge it when the next message is requested; the application calls `settle` or `reject` later."""
        self.is_deferred = True

    def give_up(self) -> Handling | None:
        """Leave it to another listener, which has to end what is returned."""
        handling, self.handling = self.handling, None
        self.is_settled = handling is not None or self.is_settled
        return handling


def check_failure(code: object, text: object) -> None:
    """Raises TypeError for what no status can report, while the message is still open: an exception, for example."""
    check_text("code", code)
    check_text("text", text)


def update_of(fields: Fields) -> Fields:
    """The `ext.update` of a delivery or reply; empty if it has none."""
    return ext_part(fields, "update")


def with_ext(message: Fields, part: str, value: Any) -> Fields:
    """The message, in which this part of `ext` is set."""
    ext = message.get("ext")
    message["ext"] = {**(ext if isinstance(ext, dict) else {}), part: value}
    return message


def is_delivery(fields: Fields) -> bool:
    """Whether this is a message for the application.

    `data` distinguishes a delivered message from the answer to a publish on the same
    channel; meta channels carry answers only.
    """
    channel = fields.get("channel")
    return isinstance(channel, str) and not channel.startswith("/meta/") and "data" in fields


def is_failure(fields: Fields) -> bool:
    """Whether this is the notice of a subscription that the server ended: a failed reply to a subscribe that was never sent."""
    return fields.get("channel") == SUBSCRIBE and "id" not in fields and fields.get("successful") is False


def is_queued(fields: Fields) -> bool:
    """Whether this comes out of the session's queue, in its order and to be acknowledged."""
    return is_delivery(fields) or is_failure(fields)


def is_successful(reply: Fields) -> bool:
    """Whether `successful` is JSON `true`; anything else is a refusal."""
    return reply.get("successful") is True


def channel_name(channel: str) -> str:
    """The name without a trailing slash. Raises ValueError if it is none, TypeError if it is not even a text."""
    if not isinstance(channel, str):
        raise TypeError(f"channel is a str, such as '/chat/demo', not {channel!r}")
    parsed = parse(channel)
    if parsed is None:
        raise ValueError(f"not a channel name: {channel!r}: {why_invalid(channel)}")
    return parsed.name


@dataclass(frozen=True, slots=True)
class DestinationState:
    """The delivery status of one destination of a publish."""

    to: str
    """The address, as it was given."""
    state: str
    """`OK`, or another word if it did not get the message."""
    error_code: str = ""
    """Why not, as a dotted code."""

    @property
    def is_ok(self) -> bool:
        """Whether the message is on its way there, or waits for it."""
        return self.state == "OK"


class Reply(dict[str, Any]):
    """The server's reply to a publish: its fields, the id of the message, and the status of each destination."""

    @property
    def message_id(self) -> str | None:
        """The message's id; None if the server was not asked for it, by `persistent` or anything else in `ext.publish`."""
        message_id = ext_part(self, "publish").get("id")
        return message_id if isinstance(message_id, str) else None

    @property
    def destinations(self) -> tuple[DestinationState, ...]:
        """The status of each destination, in the order of the publish; empty if it had none."""
        return destinations_of(self)


def ext_part(reply: Fields, part: str) -> Fields:
    """This part of a reply's `ext`; empty if it has none."""
    ext = reply.get("ext")
    given = ext.get(part) if isinstance(ext, dict) else None
    return given if isinstance(given, dict) else {}


def destinations_of(reply: Fields) -> tuple[DestinationState, ...]:
    """The status of each destination, as the reply to a publish has it, successful or not."""
    given = ext_part(reply, "publish").get("destinations")
    return tuple(_state(each) for each in given if isinstance(each, dict)) if isinstance(given, list) else ()


def _state(given: Fields) -> DestinationState:
    to, state, error_code = (given.get(name) for name in ("to", "state", "errorCode"))
    return DestinationState(
        to if isinstance(to, str) else "",
        state if isinstance(state, str) else "",
        error_code if isinstance(error_code, str) else "",
    )
