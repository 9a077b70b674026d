"""An entry: one message on its way to sessions. Queues hold references to it, and it is encoded once for all of them.

Messages wait for one receiver by priority, and within one priority by age: bodies in a queue of entries,
places in a sorted list of ranks. What is being sent again, at the queue's front, stays there: new messages go behind it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from sys import intern
from typing import Any, Final

from crewel.bayeux.channel import SYSTEM
from crewel.bayeux.codec import encode, encode_plain, reread
from crewel.bayeux.message import Fields
from crewel.delivery.fan_out_buffer import FanOutRecord
from crewel.delivery.records import Logged, LogId, PendingMessage
from crewel.errors import coded
from crewel.qos.publish import FOR_EVER, NORMAL, life_ends
from crewel.qos.update import ERASED, FAILED, POINT_TO_POINT, Origin, counts_down_to, own, shared


class Entry:
    """A message as its receivers get it. It does not change any more, for all its receivers share it; one that needs another
    form gets an entry of its own. What counts its body (`weight`) and the engine's record (`fan_out_record`) come later."""

    __slots__ = (
        "channel",
        "expires",
        "fan_out_record",
        "is_oneway",
        "lazy",
        "life_ends_ms",
        "origin",
        "position",
        "priority",
        "shared_json",
        "to",
        "weight",
        "wire",
    )

    def __init__(
        self,
        fields: Fields,
        *,
        lazy: bool = False,
        priority: int = NORMAL,
        expires: int = 0,
        to: str = "",
        origin: Origin | None = None,
    ) -> None:
        """Raises TypeError for fields that JSON cannot say: for the sender, and not when a response is made."""
        self.channel: str = fields["channel"]
        """The channel that it is delivered on."""
        self.lazy = lazy
        try:
            self.wire = encode_plain(fields)
            """Its JSON."""
        except TypeError:
            self.wire = encode(fields)
        self.position = LogId(0)
        """Its place in the log; 0 if it is not stored."""
        self.weight: object | None = None
        """What counts its body among all pending messages in memory; None until a queue takes it."""
        self.fan_out_record: FanOutRecord[Any] | None = None
        """What the engine has recorded of it, if it was taken for all receivers at once."""
        self.origin = origin
        """Where it comes from, for receivers that ask for it; None if there are none."""
        self.shared_json = b""
        """Its JSON for receivers that get its origin, less what is each receiver's own; empty until the first."""
        self.priority = priority
        self.expires = expires
        """When it goes out of all queues, microseconds since 1970; 0: never."""
        self.to = to
        """Whom it is addressed to, if it is point-to-point."""
        self.is_oneway = False
        """Whether no answer to it is expected: it is sent once, and has ended before."""
        self.life_ends_ms = 0
        """When its life ends, milliseconds since 1970, for receivers that get its remaining time; 0: never, or no receiver
        got it yet."""

    @classmethod
    def logged(
        cls,
        channel: str,
        position: LogId,
        body: bytes,
        *,
        lazy: bool = False,
        origin: Origin | None = None,
        priority: int = NORMAL,
        expires: int = 0,
        to: str = "",
    ) -> Entry:
        """A message that is JSON already. If it is stored, its receivers see its place in the log as its `id`, by which they
        know a duplicate; 0 is no place."""
        entry = cls.__new__(cls)
        entry.channel = channel
        entry.lazy = lazy
        entry.wire = b'%b,"id":"%d"}' % (body[:-1], position) if position else body
        entry.position = position
        entry.fan_out_record = None
        entry.origin = origin
        entry.shared_json = b""
        entry.weight = None
        entry.priority, entry.expires, entry.to = priority, expires, to
        entry.is_oneway, entry.life_ends_ms = False, 0
        return entry

    @classmethod
    def with_origin(cls, fields: Fields, origin: Origin) -> Entry:
        """A message whose receivers all get its origin, whether or not they asked for that."""
        entry = cls(fields, origin=origin)
        entry.wire = entry.updated()
        return entry

    @classmethod
    def read_back(cls, logged: Logged, known_expiry: int = 0) -> Entry:
        """A stored message as it was read from the log or an inbox. What an operator has sent again does not
        expire. `known_expiry`: when it goes out of all queues, microseconds since 1970, if that is known from elsewhere."""
        priority, expires = _priority_and_expiry(logged.qos, logged.id) if logged.qos else (NORMAL, 0)
        if logged.redrive_of:
            expires = 0
        expires = known_expiry or expires
        return cls.logged(
            logged.channel,
            logged.id,
            logged.body,
            origin=Origin.stored(logged.id, logged.sender, logged.qos, logged.redrive_of, logged.node),
            priority=priority,
            expires=expires,
            to=logged.to,
        )

    @classmethod
    def remembered(cls, logged: Logged, *, is_initial: bool) -> Entry:
        """A message of a history, for one receiver that has asked for it. It has no place in the log, for it is not delivered
        from the log: its id and its origin tell where it lies. `is_initial`: it comes because of a subscribe, and not because
        the receiver says what it has missed."""
        entry = cls.read_back(logged)
        assert entry.origin is not None
        entry.position, entry.origin = LogId(0), entry.origin._replace(is_initial=is_initial)
        return entry

    @classmethod
    def placeholder(cls, position: LogId) -> Entry:
        """What memory keeps of a stored message whose receiver is away: its place. It is never sent."""
        entry = cls.__new__(cls)
        entry.channel, entry.lazy, entry.wire = "", False, b""
        entry.position, entry.fan_out_record = position, None
        entry.origin, entry.shared_json, entry.weight = None, b"", None
        entry.priority, entry.expires, entry.to = NORMAL, 0, ""
        entry.is_oneway, entry.life_ends_ms = False, 0
        return entry

    def oneway(self) -> Entry:
        """A copy for a receiver whose acknowledgement is not expected: it has no place in the log, and is sent once."""
        copy = self._copy()
        copy.position, copy.is_oneway = LogId(0), True
        return copy

    def unrecorded(self) -> Entry:
        """A copy for a receiver that has it outside the fan-out record."""
        copy = self._copy()
        copy.fan_out_record = None
        return copy

    def _copy(self) -> Entry:
        copy = Entry.__new__(Entry)
        for name in Entry.__slots__:
            setattr(copy, name, getattr(self, name))
        return copy

    def drop_body(self) -> Entry:
        """What memory keeps of it while its receiver is away: all of a message that lies nowhere else."""
        if not self.position:
            return self
        kept = Entry.placeholder(self.position)
        # Its acknowledgement is counted on its channel, whose name all of a channel share here.
        kept.channel, kept.origin = intern(self.channel), self.origin
        kept.priority, kept.expires, kept.to = self.priority, self.expires, self.to
        return kept

    def updated(
        self,
        subscription: str = "",
        redeliver: int = 0,
        queue: tuple[int, int] | None = None,
        now_ms: int = 0,
        here: str = "",
    ) -> bytes:
        """Its JSON for a receiver that gets its origin: encoded once, but for what is this receiver's own. `now_ms` counts
        from 1970, for the rest of its life. `here` is the name of this node, which ends the route of a message."""
        if not self.shared_json:
            assert self.origin is not None
            self.shared_json = shared(self.wire, self.origin, here, now_ms)
            self.life_ends_ms = counts_down_to(self.origin)
        if self.to:
            subscription = POINT_TO_POINT
        if not subscription and not redeliver and queue is None and not self.life_ends_ms:
            return self.shared_json + b"}}}"
        remaining_ms = max(self.life_ends_ms - now_ms, 0) if self.life_ends_ms else None
        return own(self.shared_json, subscription, redeliver, queue, remaining_ms)

    def updated_copy(self, subscription: str, now_ms: int, here: str = "") -> Entry:
        """A copy for a receiver that gets the origin and sends no status; the arguments are those of `updated`."""
        copy = self._copy()
        copy.wire = self.updated(subscription, now_ms=now_ms, here=here)
        return copy

    def is_over(self, now: int) -> bool:
        """Whether it has to go out of all queues by now, microseconds since 1970."""
        return 0 < self.expires <= now

    @property
    def is_transient(self) -> bool:
        """Whether it is a message, and not stored."""
        return not (self.position or self.is_oneway or self.channel.startswith("/meta/"))

    @property
    def is_notice(self) -> bool:
        """Whether it reports what has happened to a topic or subscription: it is no message of it, and never makes a dead
        letter."""
        return self.origin is not None and bool(self.origin.state)

    @property
    def leaves_letter(self) -> bool:
        """Whether it becomes a dead letter where its receiver leaves any: not a message of the server about itself."""
        return not (self.is_oneway or self.is_notice or self.channel.startswith(SYSTEM))

    @property
    def fields(self) -> Fields:
        """The message as it will be read."""
        return reread(self.wire)


def notice_entry(notice: PendingMessage, place: LogId, why: str = "", stamp: tuple[str, str] | None = None) -> Entry:
    """The notice that a topic was erased, of which this is known; or, with `why` (`{"errorCode", "message"}` as JSON), that the
    server has ended the subscription to this pattern. That is the failed reply to a subscribe that no client sent, so that
    clients that know nothing of notices learn of it. `place` is where the store has it, 0 if nowhere: then its id and its time
    have to be given."""
    if why:
        entry = Entry(_failed_reply(notice.channel, reread(why.encode())), priority=notice.priority)
        entry.channel = notice.channel
    else:
        entry = Entry({"channel": notice.channel, "data": None}, priority=notice.priority)
    state = FAILED if why else ERASED
    entry.position, entry.origin = place, Origin.notice(place, state) if stamp is None else Origin(*stamp, state=state)
    return entry


def _failed_reply(pattern: str, told: Fields) -> Fields:
    return {
        "channel": "/meta/subscribe",
        "successful": False,
        "subscription": pattern,
        "error": coded(told["errorCode"], pattern, 429),
        "ext": {"subscribe": told},
    }


def priority_in(qos: bytes) -> int:
    """The priority of a message with which this is stored (PublishQos.as_stored)."""
    return _priority_and_expiry(qos, LogId(0))[0] if qos else NORMAL


def _priority_and_expiry(stored: bytes, received: LogId) -> tuple[int, int]:
    """Priority and expiry. What cannot be read counts as usual: the message waits, and fails when it is to be sent."""
    try:
        qos = reread(stored)
    except ValueError:
        return NORMAL, 0
    expires = life_ends(received, qos.get("lifeTime", FOR_EVER)) if qos.get("forceDestroy") else 0
    return qos.get("priority", NORMAL), expires


_SPAN: Final = 1 << 56
"""Beyond the places of one priority: microseconds since 1970 stay below it until the year 4253."""


def rank_of(place: LogId, priority: int) -> int:
    """A number by which places sort: what goes first has the lower one. Of the usual priority it is the place itself."""
    return place if priority == NORMAL else (NORMAL - priority) * _SPAN + place


def place_of(rank: int) -> LogId:
    """The place that has this rank."""
    return LogId(rank % _SPAN)


def priority_of(rank: int) -> int:
    """The priority that it tells."""
    return NORMAL - rank // _SPAN


class _NoEntries(list[Entry]):
    """The queue of all mailboxes without a message. What is put there would reach all of their clients, so that is an error."""

    __slots__ = ()

    def _refuse(self, *_: Any) -> Any:
        raise TypeError("all empty mailboxes share this queue: set the mailbox's queue to a new list instead")

    append = insert = extend = __setitem__ = __iadd__ = __imul__ = _refuse


NO_ENTRIES: Final[list[Entry]] = _NoEntries()
"""A queue without a message: most sessions have none for most of the time, and a list of their own would take 56 bytes."""


def insert(queue: list[Entry], entry: Entry, front: int) -> None:
    """Put the entry into the queue, behind all that has its priority or a higher one, and behind the `front` ones."""
    position = len(queue)
    while position > front and queue[position - 1].priority < entry.priority:
        position -= 1
    queue.insert(position, entry)


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """The entries by their priority; those of one priority stay as they are."""
    return sorted(entries, key=_descending)


def as_they_came(entries: Iterable[Entry]) -> list[Entry]:
    """Messages that are not stored, by priority and as they came. One without an origin, such as the answer to a remote call,
    cannot be put back: it stays behind the one before it."""
    places: list[tuple[int, int, int, Entry]] = []
    came = 0
    for entry in entries:
        came = came if entry.origin is None else int(entry.origin.received)
        places.append((-entry.priority, came, len(places), entry))
    return [entry for *_, entry in sorted(places)]


def least(queue: list[Entry], front: int) -> int | None:
    """The position of the entry that is dropped first, beyond the `front` ones: the oldest of the lowest priority that is no
    notice. None if there is none."""
    end = len(queue)
    while end > front:
        start = bisect_left(queue, _descending(queue[end - 1]), front, end, key=_descending)
        for position in range(start, end):
            if not queue[position].is_notice:
                return position
        end = start
    return None


def beyond(queue: list[Entry], front: int, priority: int) -> int:
    """The position of the first entry that has no higher priority than this, beyond the `front` ones."""
    return bisect_left(queue, -priority, min(front, len(queue)), key=_descending)


def comes_before(place: LogId, priority: int, queue: Iterable[Entry]) -> bool:
    """Whether a message of this place and priority goes before something that is stored and lies in the queue."""
    rank = rank_of(place, priority)
    return any(rank < rank_of(entry.position, entry.priority) for entry in queue if entry.position)


def _descending(entry: Entry) -> int:
    return -entry.priority
