"""The sessions that survive, and the servers that own them.

Every function but `nowhere` makes a step, done as a whole or not at all. A session has one owner, known by its token; a step
of another server changes nothing and raises Fenced. Unless said otherwise a step may be repeated when its outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from crewel.delivery.records import BATCH_BLOCK, Disposition, LogId, PendingDeadLetter, SessionName, SessionRecord
from crewel.storage.account_shares import account_of_name
from crewel.storage.dead_letter_store import described
from crewel.storage.facts import ends
from crewel.storage.keys import Keys
from crewel.storage.node_leases import filled
from crewel.storage.script_step import Step, nothing
from crewel.storage.store import Store

_UNCOUNTED: Final = "client/anonymous/"
_STAYS: Final = -2
_TOGETHER: Final = 500  # sessions that are looked for in one round trip
_NO_OPTIONS: Final[Mapping[str, bytes]] = {}
_NOTHING_RETURNS: Final[Mapping[LogId, int]] = {}


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """What a login has made."""

    name: SessionName
    """The session's name, numbered if the login left that to the store."""
    is_new: bool
    batch: int
    """The session's batch numbers begin after this one; a block of them is reserved."""
    last: LogId
    """The newest id of the log."""


def login(k: Keys, token: str, name: str, login: dict[str, Any], max_sessions: int, facts_max: int) -> Step[LoggedIn]:
    """Make a session, or give one that this server owns a new login and new batch numbers.

    A name that ends with a slash gets a number from the store: `client/joe/` becomes `client/joe/-7`. A negative
    `max_sessions` allows any number, and anonymous sessions are not counted. Raises TooManySessions, Fenced if another server
    owns the session, and StoreUnavailable if its end has begun. Sessions that are not stored count too, and
    NameTaken is raised if one has the name. Repeating it makes a second session of a name that the store numbers.
    """
    keys: tuple[str, ...] = (k.node(token), k.own(token), k.last, k.names, k.facts)
    if not name.startswith(_UNCOUNTED):
        keys += (k.subject(name.split("/")[1]),)
    fixed = orjson.dumps(login)
    arguments = (k.base, token, name, fixed, max_sessions, facts_max, BATCH_BLOCK)
    return Step("login", keys, arguments, _logged_in)


def _logged_in(answer: Any) -> LoggedIn:
    name, is_new, batch, last = answer
    return LoggedIn(SessionName(name.decode()), is_new == b"1", batch, last)


async def nowhere(store: Store, names: Iterable[SessionName]) -> list[SessionName]:
    """Return those of these sessions that the store does not have, at whatever node. Raises StoreError."""
    found = list[SessionName]()
    asked = list(names)
    for start in range(0, len(asked), _TOGETHER):
        portion = asked[start : start + _TOGETHER]
        pipeline = store.reader.pipeline(transaction=False)
        for name in portion:
            pipeline.exists(store.keys.session(name))
        found += [name for name, is_there in zip(portion, await pipeline.execute(), strict=True) if not is_there]
    return found


def recall(k: Keys, token: str, name: SessionName, batch: int) -> Step[SessionRecord]:
    """Return a session of this server as the store has it; `batch` is the number that its login reserved. Raises Fenced."""

    def parse(answer: Any) -> SessionRecord:
        return filled(SessionRecord(name, {}, None, batch), answer)

    return Step("recall", (k.session(name),), (token,), parse)


def subscribe(
    k: Keys, token: str, name: str, patterns: Sequence[str], facts_max: int, options: Mapping[str, bytes] = _NO_OPTIONS
) -> Step[dict[str, LogId]]:
    """Subscribe a session; returns for each pattern the id after which it holds. An earlier subscription stays as it was.
    Returns nothing if the session's end has begun. Raises Fenced.

    `options` are what was asked for by pattern, a JSON object or a list of some; they replace what there was, which goes for a
    pattern that has none. For patterns that are only there nothing of the log is delivered. Where they name a `group`, the
    session is a member of that."""
    delivered = list(dict.fromkeys(patterns))
    arguments: list[bytes | str | int] = [
        text for pattern in delivered for text in (1, pattern, options.get(pattern, b""))
    ]
    arguments += [text for pattern in options if pattern not in delivered for text in (0, pattern, options[pattern])]

    def parse(answer: Any) -> dict[str, LogId]:
        return dict(zip(delivered, answer, strict=False)) if answer else {}

    keys = (k.session(name), k.last, k.facts)
    return Step("subscribe", keys, (k.base, token, name, facts_max, *arguments), parse)


def unsubscribe(
    k: Keys, token: str, name: str, patterns: Sequence[str], facts_max: int
) -> Step[dict[str, tuple[LogId, LogId]]]:
    """End subscriptions of a session; returns for each the ids after which and up to which it held. A repeated call answers the
    same, as long as the interval is kept; subscriptions of which nothing is known are left out. Raises Fenced.

    A membership of a group is left out as well. When the last member goes, the messages that wait for the group expire.
    """

    def parse(answer: Any) -> dict[str, tuple[LogId, LogId]]:
        ids = iter(answer)
        intervals = zip(patterns, ids, ids, strict=True)
        return {pattern: (since, until) for pattern, since, until in intervals if since >= 0}

    keys = (k.session(name), k.last, k.facts)
    return Step("unsubscribe", keys, (k.base, token, name, facts_max, "", 0, "", *patterns), parse)


class Erased(NamedTuple):
    """What the erase of a topic, or the end of a subscription by the server, was to one session."""

    interval: tuple[LogId, LogId] | None
    """The ids after which and up to which its subscription to the name held; None if it had none that the log delivers to."""
    stays: bool
    """Whether its subscription stays: it is one of a group with a backlog."""
    prev: LogId
    """The newest id before the notice. A reader whose cursor it is has missed nothing, and can continue at `notice`."""
    notice: LogId
    """Where the notice lies; 0 if there is none."""


def erased(
    k: Keys, token: str, name: str, channel: str, facts_max: int, *, ends: bool, notifies: bool, why: str = ""
) -> Step[Erased]:
    """Note that the topic of this channel was erased; or, with `why` (JSON), that the server ends the subscription to this
    pattern. `ends`: the session's subscription to it ends, as `unsubscribe` has it, but not for a group for which something
    waits. `notifies`: the session gets the notice, which waits in its record behind all that came before; one that waits
    there is dropped for it. Raises Fenced."""

    def parse(answer: Any) -> Erased:
        ids = [LogId(each) for each in answer]
        since, until = ids[:2] if ends else (-1, -1)
        interval = (LogId(since), LogId(until)) if since >= 0 else None
        return Erased(interval, since == _STAYS, *(ids[-2:] if notifies else (LogId(0), LogId(0))))

    keys = (k.session(name), k.last, k.facts)
    patterns = (channel,) if ends else ()
    return Step("unsubscribe", keys, (k.base, token, name, facts_max, channel, int(notifies), why, *patterns), parse)


def close(k: Keys, token: str, name: str, facts_max: int, death: tuple[str, str] | None = None) -> Step[LogId]:
    """Begin the end of a session: all its subscriptions end. `death` is error code and reason if its receiver has failed for
    good; a server that adopts the session before `end` finds them. Returns the last id that is delivered to it, at a repeated
    call the same as at the first. Raises Fenced, also if the session does not exist."""
    cause = orjson.dumps(death) if death is not None else b""
    return Step("close", (k.session(name), k.last, k.facts), (token, name, facts_max, cause), LogId)


def hold(k: Keys, token: str, name: str, dispatch: bytes | None, facts_max: int) -> Step[None]:
    """Hold a session back: it gets no messages. `dispatch` says on whose decision, when and why, a JSON object; None releases
    it. Raises Fenced, also if the session does not exist."""
    fact = orjson.dumps({"session": name} | (orjson.loads(dispatch) if dispatch else {}))
    return Step("hold", (k.session(name), k.facts), (token, facts_max, dispatch or b"", fact), nothing)


def away(k: Keys, token: str, ends: Mapping[SessionName, int]) -> Step[None]:
    """Note of these sessions when they end because their clients have gone, milliseconds since 1970, or that their clients have
    come (0). Sessions of other servers are left out. Raises Fenced if the server has been superseded."""
    arguments = [text for name, ends_ms in ends.items() for text in (name, ends_ms)]
    return Step("away", (k.node(token),), (k.base, token, *arguments), nothing)


def spill(k: Keys, token: str, name: str, ids: Sequence[LogId]) -> Step[list[LogId]]:
    """Copy messages that are open for a session from the log to its inbox, where the session's account is charged for them.
    Returns those that lie there now; what the log has lost, or what the store does not have as open, is not among them. Raises
    Fenced."""
    keys = (k.session(name), k.inbox(name), k.log)
    return Step("spill", keys, (token, account_of_name(name), *ids), list)


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """What happened to the messages of a session that has left the store."""

    letters: list[str]
    """The dead ids of the dead letters in their order, less those of messages that have not died; and then those of what had
    not reached the owner."""
    returned: list[LogId]
    """What went back to the shared queue that it came from, or is open for other sessions of the subject, or settled by one."""
    lapsed: list[LogId]
    """What could not go back and has no dead letter, or came from a group that has no members any more."""


def end(
    k: Keys,
    token: str,
    name: SessionName,
    ended: Sequence[Disposition],
    letters: Sequence[PendingDeadLetter],
    facts_max: int,
    letters_max: int,
    returning: Mapping[LogId, int] = _NOTHING_RETURNS,
    letters_max_bytes: int = 0,
) -> Step[SessionEnd]:
    """Take a session out of the store, the second step of its end: to be done when a commit has passed what `close` answered.
    What is still open for it ends as `ended` and `letters` say. Its memberships of groups end; with the last member goes
    the queue of the group. Repeated, it changes nothing and writes no fact. Raises Fenced if another server owns the session.

    `returning` are messages of the inbox that came from shared queues, and how often each may have been sent: they go back
    there. A subject's message that another of its sessions has open, or has settled, ends without a dead letter, as one that
    went back. The script writes the facts of that: what `ended` says of these messages is left out."""
    facts = ends(_less(ended, returning), letters).get(name, [])
    letter_words = described(letters).get(name, [])
    back = [text for log_id, attempts in returning.items() for text in (log_id, attempts)]
    subject = name.split("/")[1]
    keys = (k.session(name), k.inbox(name), k.own(token), k.subject(subject), k.log, k.dead, k.facts)
    counts = (letters_max_bytes, len(facts), len(returning))
    arguments = (k.base, token, name, facts_max, letters_max, *counts, *facts, *back, *letter_words)
    return Step("end", keys, arguments, _left)


def _less(ended: Sequence[Disposition], returning: Mapping[LogId, int]) -> Iterator[Disposition]:
    for each in ended:
        ids = tuple(log_id for log_id in each.ids if log_id not in returning)
        if ids or not each.ids:
            yield each._replace(ids=ids)


def _left(answer: Any) -> SessionEnd:
    letters, returned, lapsed = answer
    return SessionEnd(
        [each.decode() for each in letters],
        [LogId(int(each)) for each in returned],
        [LogId(int(each)) for each in lapsed],
    )
