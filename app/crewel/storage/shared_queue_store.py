"""Shared queues: messages for a subject without a connected session, for one of the members of a group, or for one of the
sessions of a subject. And messages to certain receivers, which go past the log.

A queue's name says its kind. `client/joe` is of a subject, whose messages several sessions may have at the same time. All other
queues, such as `group:/a/* workers`, give each message to one session at a time. A message that a session has from a queue lies
in its inbox and knows that queue (`PendingMessage.source`). It goes back there under its own id, and in its own place.

`queues`, `size`, `channels` and `peek` read, and raise StoreError; all else are steps, which may be repeated and raise Fenced.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

import orjson

from crewel.delivery.records import EndReason, Logged, LogId, PendingMessage, SessionName
from crewel.qos.publish import NORMAL
from crewel.storage.keys import Keys
from crewel.storage.log import logged, unpacked, waiting_of
from crewel.storage.script_step import REMEMBERED_MS, Step, scripts
from crewel.storage.store import Store

MOST_DISCARDED: Final = 1000
"""Messages that one step discards at most."""

_TOGETHER: Final = 500  # queues whose sizes are read in one round trip
_CHANNELS_OF: Final = 500  # messages whose channels the store looks up in one call
_CHANNELS_OF_BYTES: Final = 1024 * 1024  # of these messages


class Addressed(NamedTuple):
    """A message for certain receivers."""

    channel: str
    body: bytes
    """The message as its receivers get it, JSON, less its id."""
    sender: str = ""
    qos: bytes = b""
    """What differs from the defaults of PublishQos, a JSON object, or empty."""
    priority: int = NORMAL
    expires: int = 0
    """When it goes out of all queues, microseconds since 1970; 0: never."""
    publisher_key: str = ""
    """The idempotency key as its publisher gave it, without its scope."""
    account: str = ""
    """The account that is charged for it, while room in the store is scarce; else empty."""


class Delivery(NamedTuple):
    """One receiver of it: the inbox of a session, or a shared queue."""

    to: str
    """Whom it is addressed to, `client/joe` or `client/joe/1`."""
    receiver: SessionName | str = ""
    """The session; empty if it is a queue."""
    queue: str = ""
    source: str = ""
    """The shared queue that it may go back to from the session; empty if it may not."""
    max_entries: int = 0
    """What the receiver may have waiting; 0: any number."""
    max_bytes: int = 0
    """Bytes that a session may have waiting; 0: any number."""
    is_elsewhere: int = 0
    """1: this server does not have the session; 0: it has. What another node has to know lies in the log."""


class SendOutcome(StrEnum):
    """What happened to one delivery."""

    OK = "ok"
    GONE = "gone"
    """The session is not in the store, or its end has begun."""
    FULL = "full"
    """The receiver has as much waiting as it may have."""
    OTHER = "other"
    """A repeat has this delivery, and what it repeats had not."""


_OUTCOMES: Final = {each.value.encode(): each for each in SendOutcome}


class Sent(NamedTuple):
    """What happened to a message."""

    prev: LogId
    """The newest id before it. A reader whose cursor it is has missed nothing, and can continue at `id`."""
    id: LogId
    is_repeated: bool
    """Whether its key was sent before: all is as the first time, and nothing was done."""
    outcomes: list[SendOutcome]
    """One a delivery, in their order."""
    reached: frozenset[str] = frozenset()
    """The destinations, as they are addressed, that any delivery has reached; of a repeat, those that the first call did."""


class Member(NamedTuple):
    """A session that may be leased messages to."""

    name: SessionName
    room: int
    """How many it may get now."""


class Leased(NamedTuple):
    """A message that lies in the inbox of a session now."""

    receiver: SessionName
    id: LogId
    size: int
    """Bytes of its body."""
    channel: str
    attempts: int
    priority: int
    expires: int
    failed: tuple[str, ...]
    """The sessions that have failed it. If the receiver is among them, all members were: there is no other to try."""


class Lease(NamedTuple):
    """What a queue has given away."""

    leased: list[Leased]
    left: int
    """How many messages still wait in it."""
    expired: int
    """How many have gone because their life had ended."""
    after: str = ""
    """The place behind which another call has to continue: this one has looked at very many messages that have expired, or that
    none of the members may have. Empty: there is none."""


class Requeued(NamedTuple):
    """What happened to messages in the inbox of a session that gave them back."""

    returned: int
    """How many have left it: they lie in their queues again, or other sessions of their subject have them, or had."""
    stay: tuple[LogId, ...] = ()
    """The others: their groups have no members any more, or no other one; or none that has not failed them where the session
    tries again."""


class StoredQueue(NamedTuple):
    """A shared queue that is not empty."""

    name: str
    size: int
    touched: int
    """When something was put there last, microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Discarded:
    """What was taken out of a queue for good."""

    count: int
    letters: list[str]
    """The dead ids of the dead letters that were made."""


def send(
    k: Keys,
    token: str,
    message: Addressed,
    deliveries: Sequence[Delivery],
    facts_max: int,
    key: str = "",
    beside: Sequence[str] = (),
) -> Step[Sent]:
    """Put a message into inboxes and shared queues, under one id; into each that can take it. There may be no deliveries: then
    only an id is given. The destinations in `beside` get it past the store.

    The key is scope and key of an idempotent publish in one text. A repeat with the same key answers for two minutes what the
    first one did, if that has reached any; without one the step itself can be repeated. Raises StoreFull.
    """
    keys = (k.node(token), k.last, k.facts, k.once(f"send {key or secrets.token_hex(12)}"), k.log)
    arguments: list[bytes | str | int] = [k.base, facts_max, REMEMBERED_MS, message.channel, message.body]
    arguments += (message.sender, message.qos, message.priority, message.expires)
    arguments.append(orjson.dumps(message.publisher_key) if message.publisher_key else b"")
    arguments += (orjson.dumps(beside) if beside else b"", message.account)
    for each in deliveries:
        arguments += each
    return Step("send", keys, tuple(arguments), _sent)


def _sent(answer: Any) -> Sent:
    prev, log_id, is_repeated, outcomes, reached = answer
    found = [_OUTCOMES[each] for each in outcomes]
    return Sent(LogId(prev), LogId(log_id), bool(is_repeated), found, frozenset(each.decode() for each in reached))


def addressed(logged: Logged) -> dict[SessionName, PendingMessage]:
    """Return the sessions of a message that was sent past the log to other nodes: no other session gets it."""
    return {SessionName(name): waiting_of(text.encode()) for name, text in orjson.loads(logged.addressed).items()}


def lease(
    k: Keys, token: str, queue: str, members: Sequence[Member], facts_max: int, now: int = 0, after: str = ""
) -> Step[Lease]:
    """Give messages of a queue to sessions of this server, the best first, up to a thousand: each to the one that has most room
    and has not failed it. What all of them have failed goes to the first, whatever its room; but a subject's message waits for
    another session. Messages that have expired by `now` end: microseconds since 1970, by the clock that their expiry is of.
    `after`, of an answer: it begins there."""
    keys = (k.node(token), k.facts, k.once(f"lease {secrets.token_hex(12)}"))
    arguments: list[bytes | str | int] = [k.base, token, facts_max, REMEMBERED_MS, queue, now, after]
    for each in members:
        arguments += each
    return Step("lease_queued", keys, tuple(arguments), _leased)


def leased_before(step: Step[Lease]) -> Step[Lease]:
    """What a `lease` whose answer was lost has done, if it was done; else nothing is leased."""
    return step._replace(arguments=step.arguments[:7])  # less the members


def _leased(answer: Any) -> Lease:
    found = orjson.loads(answer)
    return Lease([_one_leased(each) for each in found["leased"]], found["left"], found["expired"], found["after"])


def _one_leased(fields: dict[str, Any]) -> Leased:
    return Leased(
        SessionName(fields["receiver"]),
        LogId(int(fields["id"])),
        fields["size"],
        fields["channel"],
        fields["attempts"],
        fields["priority"],
        int(fields["expires"]),
        tuple(fields["failed"].split()),
    )


def requeue(
    k: Keys,
    token: str,
    name: str,
    attempts: Mapping[LogId, int],
    facts_max: int,
    *,
    failed: bool,
    tries_again: bool = False,
) -> Step[Requeued]:
    """Requeue messages of a session's inbox, into the queues that they came from; `attempts` says for each how often it may
    have been sent. `failed`: they are not leased to this session again, unless there is no other; otherwise the session has not
    failed them, and gets nothing for the time being. `tries_again`: it has failed them, and would try them again.

    All of them that came from a queue leave the inbox, unless their group has no members any more. Those stay too that the
    session would try again, if there is no other that has not failed them. So do those that it has not failed, if their group
    has no other member. The facts say `returned`: a subject's message that other sessions of it still have open, or that one of
    them has settled, goes nowhere.
    """
    arguments = [text for log_id, times in attempts.items() for text in (log_id, times)]
    keys = (k.session(name), k.inbox(name), k.facts, k.once(f"put back {secrets.token_hex(12)}"))
    how = 2 if tries_again else int(failed)
    return Step("requeue", keys, (k.base, token, name, facts_max, REMEMBERED_MS, how, *arguments), _requeued)


def _requeued(answer: Any) -> Requeued:
    returned, *stay = answer
    return Requeued(returned, tuple(LogId(int(each)) for each in stay))


def discard(
    k: Keys,
    token: str,
    queue: str,
    ids: Sequence[LogId] | None,
    facts_max: int,
    *,
    reason: EndReason = EndReason.DROPPED,
) -> Step[int]:
    """Take messages out of a queue for good, these or all (None), at most `MOST_DISCARDED`. Returns how many there were."""

    def count(answer: Any) -> int:
        return int(answer[0])

    return Step(
        "discard_waiting",
        _discard_keys(k, token),
        (k.base, facts_max, 0, 0, queue, str(reason), "", "", *_few(ids)),
        count,
    )


def dead_letter(
    k: Keys,
    token: str,
    queue: str,
    ids: Sequence[LogId] | None,
    facts_max: int,
    letters_max: int,
    letters_max_bytes: int = 0,
    *,
    code: str,
    reason: str,
) -> Step[Discarded]:
    """Make dead letters of messages of a queue, these or all (None), at most `MOST_DISCARDED`. Their receiver is
    the subject."""

    def parse(answer: Any) -> Discarded:
        return Discarded(answer[0], [each.decode() for each in answer[1:]])

    arguments: tuple[str | int, ...] = (
        k.base,
        facts_max,
        letters_max,
        letters_max_bytes,
        queue,
        str(EndReason.DEAD),
        code,
        reason,
        *_few(ids),
    )
    return Step("discard_waiting", _discard_keys(k, token), arguments, parse)


def keep(k: Keys, token: str, queues: Sequence[str], facts_max: int) -> Step[None]:
    """Let the groups that have these queues, and no others, keep their messages while they have no member."""
    keys = k.node(token), k.kept, k.facts
    return Step("keep_groups", keys, (k.base, facts_max, *queues), lambda _: None)


async def size(store: Store, queue: str) -> int:
    """Return how many messages wait in the queue."""
    return int(await store.reader.zcard(store.keys.queue(queue)))


def _discard_keys(k: Keys, token: str) -> tuple[str, ...]:
    return (k.node(token), k.log, k.dead, k.facts)


def _few(ids: Sequence[LogId] | None) -> Sequence[int]:
    if ids is None:
        return ()
    if not 0 < len(ids) <= MOST_DISCARDED:
        raise ValueError(f"ids: expected 1 to {MOST_DISCARDED}, not {len(ids)}")
    return ids


async def queues(store: Store) -> list[StoredQueue]:
    """Return all queues that are not empty, by name."""
    found: Any = await store.reader.zrange(store.keys.queues, 0, -1, withscores=True)
    touched = sorted((name.decode(), int(score * 1000)) for name, score in found)
    stored = []
    for start in range(0, len(touched), _TOGETHER):
        pipeline = store.reader.pipeline(transaction=False)
        portion = touched[start : start + _TOGETHER]
        for name, _ in portion:
            pipeline.zcard(store.keys.queue(name))
        sizes = await pipeline.execute()
        stored += [StoredQueue(name, size, when) for (name, when), size in zip(portion, sizes, strict=True) if size]
    return stored


async def has_members(store: Store, queue: str) -> bool:
    """Return whether the group that has this queue has a member, of whichever node."""
    return bool(await store.reader.exists(store.keys.members(queue)))


async def channels(store: Store, queue: str) -> AsyncIterator[str]:
    """Yield the channels of all messages in the queue; one may come more than once. The store reads a portion at a time, so
    that others wait for milliseconds only. Raises StoreError."""
    k, place = store.keys, b""
    while True:
        script = scripts()["channels"].text.decode()
        bounds = (_CHANNELS_OF, _CHANNELS_OF_BYTES)
        found: Any = await store.reader.eval(script, 2, k.queue(queue), k.queue_bodies(queue), place, *bounds)
        place, *names = found
        for name in names:
            yield name.decode()
        if not place:
            return


async def peek(store: Store, queue: str, count: int, start: int = 0) -> list[Logged]:
    """Return the next messages of a queue, best first, at most so many, from the place `start` on."""
    places: Any = await store.reader.zrange(store.keys.queue(queue), start, start + count - 1) if count > 0 else []
    if not places:
        return []
    ids = [place.partition(b":")[2] for place in places]
    found: Any = await store.reader.hmget(store.keys.queue_bodies(queue), ids)
    return [logged(LogId(int(each)), unpacked(text)) for each, text in zip(ids, found, strict=True) if text is not None]
