"""The records that pass between the engine and the store: what a publish puts into the log, what is read back, and what
one commit changes. Plain values; log ids are integers (microseconds, strictly increasing; 0 is before the first).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, NewType

from crewel.bayeux.channel import matches
from crewel.errors.codes import Explained
from crewel.qos.publish import NORMAL

LogId = NewType("LogId", int)
"""A place in the log, and the id of the message that lies there."""

SessionName = NewType("SessionName", str)
"""`client/joe/1`, or numbered by the store `client/joe/-7`, `client/anonymous/-7`: the name of a session without the node."""


BATCH_BLOCK: Final = 1000
"""Batch numbers that a session's record reserves at a time."""


class EndReason(Explained):
    """How a message can end for one receiver. Until then it waits."""

    SETTLED = "settled", "The receiver answered OK, by acknowledging the batch or by a status."
    DEAD = "dead", "It became a dead letter, with an error code."
    EXPIRED = "expired", "Its lifetime ended before it was delivered."
    ERASED = "erased", "Its topic was erased."
    DROPPED = "dropped", "The queue was full and its policy dropped the message, or an operator dropped it."
    FILTERED = (
        "filtered",
        "The subscription excludes it: by a filter, as the receiver's own message, or because a newer one took its place"
        " (`newestOnly`).",
    )
    LAPSED = (
        "lapsed",
        "It ended with an anonymous session, or is a message of the server itself and ended with any; or the last member of"
        " its group left.",
    )
    RETURNED = (
        "returned",
        "It returned to the queue of its subject or group, for another receiver; or another session of the subject has it,"
        " or has acknowledged it.",
    )


class NoLetter(Explained):
    """Why a message that was dropped has no dead letter."""

    FULL = (
        "full",
        "at the full queue of a session without a name, see delivery.queue_max_entries and delivery.letters_for_anonymous",
    )
    NO_MESSAGE = (
        "no message",
        "of the server itself, such as changes of presence, or of a subscription with updateOneway",
    )
    NOT_STORED = "not stored", "of a session that the store does not have"
    ENDED = "ended", "from another node, of a session that had ended"


class Submission(NamedTuple):
    """A persistent publish on its way into the log."""

    channel: str
    body: bytes
    """The message as its receivers get it, JSON, less the id that the log gives it."""
    sender: str = ""
    """Public name of the session that published; empty for the server itself and for back ends."""
    excluded: str = ""
    """Name of the session that must not receive it: a publisher that does not receive its own messages."""
    key: str = ""
    """Scope and key of an idempotent publish, in one text; empty if it has none."""
    qos: bytes = b""
    """What differs from the defaults of PublishQos, a JSON object, or empty."""
    history_max: int = 0
    """How many messages the history of its topic keeps; 0: it goes into no history."""
    forces_update: bool = True
    """Whether it is delivered although it says the same as the newest of the history."""
    is_only: bool = False
    """Whether it is refused if the history has a message already: the topic is readonly."""
    expires: int = 0
    """When it leaves the history, microseconds since 1970; 0: never."""
    groups: tuple[str, ...] = ()
    """The shared queues (`group:...`) that get it too, for one of their members each."""
    publisher_key: str = ""
    """The key as the publisher gave it, without its scope: what facts and operators call it by."""
    account: str = ""
    """The account that is charged for it, while room in the store is scarce; else empty."""
    is_due: bool = False
    """Whether it was scheduled: then its key is the id that it had in the list of those."""


@dataclass(frozen=True, slots=True)
class Logged:
    """A message in the log, or in an inbox."""

    id: LogId
    channel: str
    body: bytes
    sender: str = ""
    excluded: str = ""
    qos: bytes = b""
    redrive_of: str = ""
    """The dead letter that it was, if an operator has sent it again."""
    to: str = ""
    """Whom it was addressed to (`client/joe`, `client/joe/1`), if it was published point to point."""
    addressed: bytes = b""
    """JSON: the messages for each session, if it lies in their inboxes, and in the log for their nodes to learn of it."""
    node: str = ""
    """Name of the node that accepted it, where several share the store."""
    changed_by: str = ""
    """The token of the node that has changed the topic of this channel, if this is no message but the note of that."""


class Transient(NamedTuple):
    """A message that was never stored, for a dead letter to keep it."""

    id: str
    received: str
    """When it was accepted: nanoseconds since 1970, in digits."""
    channel: str
    body: bytes
    sender: str = ""
    qos: bytes = b""


class PendingMessage(NamedTuple):
    """What is known of a message that is pending for one receiver."""

    attempts: int = 0
    """How often it may have been sent before."""
    size: int = 0
    """Bytes of its body."""
    channel: str = ""
    priority: int = NORMAL
    expires: int = 0
    """When it goes out of all queues, microseconds since 1970; 0: never."""
    source: str = ""
    """The shared queue that it came from and may go back to: `client/joe`, a subject's, or `group:...`."""

    def is_about(self, channel: str) -> bool:
        """Of a notice: whether it tells something of a topic or subscription that messages of this channel come by."""
        return self.channel == channel or (self.channel.endswith("*") and matches(self.channel, channel))


@dataclass(slots=True)
class SessionRecord:
    """A session as the store has it."""

    name: SessionName
    login: dict[str, Any]
    """What the login fixed (clientId, cookie, ConnectQos, claims): JSON, opaque to the store."""
    own_cursor: LogId | None = None
    """How far it has accounted for the log, if it is being adopted; None: its owner's cursor counts."""
    batch: int = 0
    """Batch numbers up to this one are reserved."""
    ending: LogId | None = None
    """The last log id that it receives, once its end has begun."""
    subscriptions: dict[str, LogId] = field(default_factory=dict)
    """Pattern -> the id after which it holds."""
    options: dict[str, Any] = field(default_factory=dict)
    """Pattern -> what was asked for it in `ext.subscribe`, JSON; also of groups, which are no subscriptions of the log."""
    closed: list[tuple[str, LogId, LogId]] = field(default_factory=list)
    """Intervals that have an end, (pattern, from, until], and that the cursor had not passed."""
    pending: dict[LogId, PendingMessage] = field(default_factory=dict)
    inbox: dict[LogId, PendingMessage] = field(default_factory=dict)
    """Open messages whose bodies lie in the session's inbox and not in the log."""
    inbox_until: LogId = field(default=LogId(0), compare=False)
    """The newest id of the store when this was read, where that is known. An older message that is not in `inbox` has ended, or
    was for another session of the same name."""
    notices: dict[str, LogId] = field(default_factory=dict)
    """Channel -> place of the notice that its topic was erased, or pattern -> place of the notice that the server has ended
    the subscription, which the session has not settled."""
    failed: dict[str, str] = field(default_factory=dict)
    """Pattern -> why the server has ended the subscription, JSON, for those of the notices that tell that."""
    dispatch: dict[str, Any] | None = None
    """Why its dispatcher delivers nothing, if it does not (`Holdback`, or it rejects everything): JSON, opaque to the store."""
    death: tuple[str, str] | None = None
    """Code and reason, if its end was begun because its receiver failed for good."""
    owner_cursor: LogId | None = None
    """The cursor that the store has of its new owner, where that is known. If `own_cursor` is the same, the session is in step:
    the store need not have it."""

    awaited_since_ms: int = field(default=0, compare=False)
    """When a server first took it over since its client was there, milliseconds since 1970; 0: none has."""
    ends_ms: int = field(default=0, compare=False)
    """When it ends, as its client had gone before a server took it over; 0: it had not."""

    def share(self, same: dict[Any, Any]) -> None:
        """Let what is equal to something in `same` be that very thing, and put the rest there: a message that
        many sessions have queued is in memory once."""
        share = same.setdefault
        self.pending = {share(each, each): share(pending, pending) for each, pending in self.pending.items()}
        self.inbox = {share(each, each): share(pending, pending) for each, pending in self.inbox.items()}


DEAD_SESSION: Final = "communication.noConnection.dead"
"""The code of dead letters that a session leaves behind when it ends."""


@dataclass(frozen=True, slots=True)
class PendingDeadLetter:
    """A dead letter about to be stored. The store copies the body from the log or the inbox; `message` holds it only for
    a message that was never stored, and whose `id` is therefore 0."""

    session: SessionName
    id: LogId
    code: str
    reason: str
    attempts: int = 0
    message: Transient | None = None
    given: str = ""
    """The code as the receiver gave it, if another one counts."""
    tries: str = ""
    """The earlier attempts that failed, a JSON list, as `Attempts.text` writes it; empty if none is known."""


class Disposition(NamedTuple):
    """How messages ended for one session, all in one way, for the facts."""

    session: SessionName
    reason: EndReason
    ids: tuple[LogId, ...]

    def less(self, ids: Container[LogId]) -> Disposition:
        """The disposition without these messages."""
        return self._replace(ids=tuple(each for each in self.ids if each not in ids))


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit changes in one session's record."""

    name: SessionName
    opened: dict[LogId, PendingMessage]
    """Open in the log since the last commit. Attempts alone are not reported again."""
    settled: tuple[LogId, ...]
    """In the record, and no longer pending."""
    removed: tuple[LogId, ...]
    """In the inbox, and no longer pending."""
    forgotten: tuple[tuple[str, LogId], ...]
    """Closed intervals (pattern, from) that the cursor has passed."""
    caught_up: bool
    """The owner's cursor has reached the session's own one, `at`: forget that."""
    batch: int | None = None
    """Batch numbers are reserved up to this one from now on; None: as before."""
    noticed: tuple[str, ...] = ()
    """Channels whose notice that the topic was erased waits no more."""


class Settled(NamedTuple):
    """What many sessions have settled, all of them the same."""

    ids: tuple[LogId, ...]
    sessions: tuple[SessionName, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """One step of a node's durable state; applied once, in the order of `number`."""

    number: int
    cursor: LogId
    low: LogId
    """Nothing at or below it is needed any more by this node's sessions."""
    changes: tuple[Change, ...]
    ended: tuple[Disposition, ...]
    dead_letters: tuple[PendingDeadLetter, ...]
    settled: tuple[Settled, ...] = ()
    """Of sessions of which nothing else is said; it is not in `ended`."""
