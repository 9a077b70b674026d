"""How a receiver stands, in plain words, and why: each cause with its time, the most urgent first.

Pure: what is known of one receiver in, causes out. A new cause is a row of `CAUSES`; `receiver_facts` fills what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from crewel.admin.backlog_trends import Trend
from crewel.admin.level import Level
from crewel.admin.rejections import Rejected
from crewel.admin.turned_away import Overflow
from crewel.broker.sessions.login_refusals import RefusedLogins
from crewel.delivery.dispatcher import Rejection
from crewel.delivery.dispatcher_states import Holdback

SLOW_MS: Final = 60_000
"""How long a message waits for a client that is connected, until the receiver is slow."""
_BUSY_MS: Final = 10_000
"""How long a client works on a message until that is worth a word."""
_NEARLY: Final = 0.8
"""The part of its bound from which on a queue is nearly full."""
_SOON_MS: Final = 1_800_000
"""A queue that will be full within this time is full soon."""
_VERY_SOON_MS: Final = 600_000
"""Within this time, that is bad."""
_MANY: Final = 20
"""A queue in memory, whose messages have no times, is known to fall behind if it grows by so many messages a minute."""
_SOME: Final = 3
"""From so many rejected messages on, a receiver rejects more than a message that is no good."""
_MINUTE_MS: Final = 60_000
_WEIGHT: Final = 10**9
"""What the rank of a cause counts, in the number by which receivers are sorted, of the messages that wait."""


class Condition(StrEnum):
    """How a receiver stands. A session is connected or away, and may stand in other ways as well."""

    REJECTING = "rejecting everything"
    ON_HOLD = "on hold"
    FULL = "full"
    EXPIRED = "expired token"
    REJECTS = "rejects messages"
    RETRYING = "waiting to retry"
    SOON_FULL = "soon full"
    BEHIND = "falling behind"
    CATCHING_UP = "catching up"
    UNATTENDED = "without a member"
    UNSUBSCRIBED = "no subscriptions"
    AWAY = "away"
    CONNECTED = "connected"


NO_TAKERS: Final[dict[Condition | None, str]] = {
    Condition.UNATTENDED: "no session takes its messages",
    Condition.AWAY: "all its members are away or on hold",
}
"""Why a group or subject whose members stand so gets nothing."""


@dataclass(slots=True)
class Facts:
    """What is known of one receiver. Times are milliseconds since 1970."""

    now: int
    is_away: bool = False
    is_unsubscribed: bool = False
    """Whether it is a session without a subscription, as of a client that only publishes."""
    takes_ptp: bool = True
    """Whether it takes what is addressed to it and to its subject."""
    away_since: int | None = None
    waiting: int = 0
    waiting_bytes: int = 0
    max_entries: int = 0
    """0: it is not known."""
    max_bytes: int | None = None
    """None: any number."""
    oldest: int | None = None
    """When the oldest of its stored messages was published."""
    holdback: Holdback | None = None
    is_held_gone: bool = False
    """Whether it is on hold for a message that has left its queue, as after a skip."""
    rejection: Rejection | None = None
    rejected: Rejected | None = None
    trend: Trend | None = None
    failure: tuple[str, str] | None = None
    """Code and reason of the last failure that its client reported."""
    retry_at: int | None = None
    """When what its client could not take goes to it again; None: nothing waits for that."""
    tries: tuple[int, int] = (0, 0)
    """Failures in a row, and how many there may be (-1: any number)."""
    policy: str = ""
    """What its queue does when it is full, as `onOverflow` says; empty if it is no session's."""
    overflow: Overflow | None = None
    is_overflow_known: bool = True
    """Whether `overflow` says what there is to say; else the operator that asks may not see it."""
    refused: RefusedLogins | None = None
    token_expired_at: int | None = None
    """When the token expired that its client has shown; None: it holds."""
    unclaimed: int = 0
    at_client: int = 0
    max_open: int = 0
    is_at_limit: bool = False
    """Whether its client has as many messages as it wants to have at a time."""
    sent_at: int | None = None
    """When the first of the messages was sent that it has not settled."""
    members: Condition | None = None
    """Of a group or subject: whether it has members, and whether one of them takes messages. None: it is a session."""
    stopped_since: int | None = None
    """Since when no member takes messages; None if that is not known."""
    is_group: bool = False

    @property
    def share(self) -> float:
        """How full its queue is: 1 is full."""
        by_bytes = self.waiting_bytes / self.max_bytes if self.max_bytes else 0.0
        by_entries = self.waiting / self.max_entries if self.max_entries else 0.0
        return max(by_entries, by_bytes if self.waiting > 1 else 0.0)

    @property
    def is_well(self) -> bool:
        """Whether nothing can be wrong, as of most receivers: a short way for lists of very many."""
        asks_nothing = self.retry_at is None and self.token_expired_at is None and self.members is None
        is_free = self.holdback is None and self.rejection is None and self.rejected is None and self.overflow is None
        return asks_nothing and is_free and not (self.is_away or self.waiting or self.is_unsubscribed)

    @property
    def is_stopped(self) -> bool:
        """Whether it gets nothing until its client comes, or an operator or its client does something."""
        return self.is_away or self.holdback is not None or self.token_expired_at is not None

    @property
    def is_full(self) -> bool:
        """Whether its queue takes no more."""
        return self.waiting > 0 and self.share >= 1

    @property
    def full_in(self) -> int | None:
        """In how many milliseconds its queue will be full, if that is soon."""
        if self.trend is None or self.trend.full_at is None or self.is_full or self.trend.full_at - self.now > _SOON_MS:
            return None
        return max(self.trend.full_at - self.now, 0)


class Cause(NamedTuple):
    """One reason why a receiver is not as it should be."""

    kind: str
    level: Level
    text: str
    details: dict[str, Any]
    """Numbers and times that belong to it, as REST has them."""

    def as_json(self) -> dict[str, Any]:
        """The object of the answer."""
        return {"kind": self.kind, "level": self.level.value, "text": self.text, **self.details}


Found = Iterator[tuple[Level, str, dict[str, Any]]]

_TURNED_AWAY: Final = {
    "deadMessage": "{} became dead letters",
    "dropOldest": "{} pushed older ones out, or were dropped",
    "disconnect": "{} ended its session",
}
"""What a full queue did with so many messages, by its policy."""
_GROUP: Final = "deadMessage"
"""What a full queue of a group does, and what those do that ask for it."""
_FURTHER: Final = {
    _GROUP: "further ones become dead letters",
    "dropOldest": "further ones push older ones out, or are dropped",
    "disconnect": "a further one ends its session",
    "": "further ones are refused",
}
"""What a full queue does with further messages, by its policy; one of a subject has none."""


def things(count: int, thing: str, more: str = "") -> str:
    """So many of these, as a text."""
    return f"{count:,} {thing if count == 1 else more or f'{thing}s'}"


def listed(texts: Sequence[str], most: int, joint: str = ", ", thing: str = "", of: int = 0) -> str:
    """The first of these, and how many more things there are, `of` so many in all: "a, b and 2 more"."""
    left = (of or len(texts)) - min(most, len(texts))
    more = f"{joint.strip(', ')} and {things(left, f'more {thing}') if thing else f'{left:,} more'}" if left > 0 else ""
    return joint.join(texts[:most]) + more


def _turned_away(overflow: Overflow) -> str:
    return _TURNED_AWAY.get(overflow.policy, "{} were turned away").format(things(overflow.count, "message"))


def _overflow_details(overflow: Overflow) -> dict[str, Any]:
    return {"since": overflow.since, "at": overflow.at, "count": overflow.count, "policy": overflow.policy}


def _rejecting(facts: Facts) -> Found:
    if facts.rejection is not None:
        code, reason, _ = facts.rejection
        yield Level.BAD, f"all its messages become dead letters: {_said(code, reason)}", {"code": code}


class Rule(StrEnum):
    """How much a receiver rejects."""

    ALL = "all"
    KIND = "one kind"
    TENTH = "more than a tenth"
    FEW = "few"


RULES: Final[tuple[tuple[Rule, Callable[[Rejected], bool], Level, str], ...]] = (
    (
        Rule.ALL,
        lambda found: found.rejected >= _SOME and not (found.taken or found.is_part),
        Level.BAD,
        "it rejects all its messages, {share}",
    ),
    (
        Rule.KIND,
        lambda found: found.whole_rejected >= _SOME,
        Level.BAD,
        "it rejects all messages of {channels}, {whole}",
    ),
    (
        Rule.TENTH,
        lambda found: found.rejected >= _SOME and 10 * found.rejected > found.rejected + found.taken,
        Level.WARN,
        "it rejects {share} messages",
    ),
    (Rule.FEW, lambda _: True, Level.INFO, "it rejected {share} messages"),
)
"""What counts is the first rule that fits: its name, when it does, how urgent it is, and its words."""


def _rejects(facts: Facts) -> Found:
    found = facts.rejected
    if found is None or facts.rejection is not None:  # which says more
        return
    rule, _, level, words = next(each for each in RULES if each[1](found))
    if rule is Rule.FEW and not found.taken:
        words = "it rejected its last {messages}"
    number = found.whole_rejected if rule is Rule.KIND else found.rejected
    text = words.format(
        share=f"{found.rejected:,} of {found.rejected + found.taken:,}",
        messages="message" if found.rejected == 1 else f"{found.rejected} messages",
        channels=listed(found.whole, 2, thing="channel"),
        whole=f"{number:,} of {number:,}",
    )
    minutes = (found.at - found.since) / _MINUTE_MS
    pace = round(number / minutes) if minutes >= 1 else 0
    more = f" and {things(found.codes - 1, 'more code')}" if found.codes > 1 else ""
    details: dict[str, Any] = {
        "since": found.since,
        "at": found.at,
        "count": number,
        "of": number if rule is Rule.KIND else found.rejected + found.taken,
        "code": found.code,
        "rule": rule.value,
        "channels": list(found.whole if rule is Rule.KIND else found.channels),
    }
    if pace:
        details["perMinute"] = pace
        text += f", {pace:,} a minute"
    yield level, f"{text}: {_said(found.code, found.reason)}{more}", details


def _filling(facts: Facts) -> Found:
    left, trend = facts.full_in, facts.trend
    if left is not None and trend is not None:
        minutes = round(left / _MINUTE_MS)
        when = f"in {things(minutes, 'minute')}" if minutes else "within a minute"
        text = (
            f"its queue will be full {when}{_with_absence(facts)}: {_room(facts)},"
            f" {things(round(trend.per_minute), 'message')} more a minute"
        )
        level = Level.BAD if left <= _VERY_SOON_MS else Level.WARN
        details = {"fullAt": trend.full_at, "perMinute": round(trend.per_minute), "share": round(facts.share, 3)}
        details |= {"awaySince": facts.away_since} if facts.is_away else {}
        yield level, text, details


def _with_absence(facts: Facts) -> str:
    return ", and its client is away" if facts.is_away else ""


def _room(facts: Facts) -> str:
    return f"{facts.waiting:,} of {things(facts.max_entries, 'message')}"


def _held(facts: Facts) -> Found:
    held = facts.holdback
    if held is not None:
        gone = {"waits": False} if facts.is_held_gone else {}
        by = "" if held.message_id or not (held.code or held.reason) else f", by {held.who}"
        yield (
            Level.BAD,
            f"{held.cause}{by}",
            {"since": held.since_ms, "who": held.who, "code": held.code, "id": held.message_id} | gone,
        )


def _full(facts: Facts) -> Found:
    if not facts.is_full:
        return
    bound = _room(facts) if facts.waiting >= facts.max_entries else "the bytes that it may have"
    text, overflow = f"its queue is full: {bound}{_with_absence(facts)}", facts.overflow
    away = {"awaySince": facts.away_since} if facts.is_away else {}
    if not facts.is_overflow_known:
        yield Level.BAD, text, away
    elif overflow is None:  # or it is not known any more, as after a restart
        policy = _GROUP if facts.is_group else facts.policy
        yield Level.BAD, f"{text}; {_FURTHER.get(policy, _FURTHER[''])}", away
    else:
        yield Level.BAD, f"{text}; {_turned_away(overflow)}", _overflow_details(overflow) | away


def _token(facts: Facts) -> Found:
    if facts.token_expired_at is not None:
        text = "its token has expired"
        details = {"since": facts.token_expired_at}
        if facts.refused is not None:
            tries = things(facts.refused.count, "time")
            text = f"its token has expired, and its client has tried {tries} to log in with one that is refused"
            details |= {"refused": facts.refused.count, "at": facts.refused.at}
        yield Level.BAD, text, details


def _refused(facts: Facts) -> Found:
    refused = facts.refused
    if refused is not None and facts.is_away:
        times = "a login" if refused.count == 1 else f"{refused.count:,} logins"
        text = f"{times} of its name {'was' if refused.count == 1 else 'were'} refused: {_said(refused.code, refused.reason)}"
        details = {
            "code": refused.code,
            "since": refused.since,
            "at": refused.at,
            "count": refused.count,
            "from": refused.address,
        }
        yield Level.BAD if facts.waiting else Level.WARN, text, details


def _retrying(facts: Facts) -> Found:
    if facts.retry_at is not None:
        number, most = facts.tries
        text = _said(*facts.failure) if facts.failure is not None else "its client has failed"
        yield Level.WARN, text, {"next": facts.retry_at, "number": number, "of": most}


def _unclaimed(facts: Facts) -> Found:
    if facts.unclaimed:
        yield (
            Level.WARN,
            f"no listener of its client takes {things(facts.unclaimed, 'message')}",
            {"count": facts.unclaimed},
        )


def _no_takers(facts: Facts) -> Found:
    text = NO_TAKERS.get(facts.members)
    if text is not None:
        stuck = Level.BAD if facts.is_group else Level.WARN  # a subject may well be away
        since = {} if facts.stopped_since is None else {"since": facts.stopped_since}
        yield stuck if facts.waiting else Level.INFO, text, since


def _away(facts: Facts) -> Found:
    if facts.is_away:
        yield Level.WARN if facts.waiting else Level.INFO, "its client is away", {"since": facts.away_since}


def _can_take(facts: Facts) -> bool:
    """Whether messages go to its client, as far as the server is concerned."""
    return not (facts.is_stopped or facts.rejection is not None or facts.retry_at is not None)


def _is_behind(facts: Facts) -> bool:
    """Whether a receiver that gets messages has not taken them for long. A queue in memory does not tell when they came."""
    if not _can_take(facts) or facts.members not in (None, Condition.CONNECTED):
        return False
    if facts.oldest is not None:
        return facts.now - facts.oldest >= SLOW_MS
    trend = facts.trend
    return trend is not None and abs(trend.per_minute) >= _MANY and facts.now - trend.since >= SLOW_MS


def _slow(facts: Facts) -> Found:
    trend = facts.trend
    if not _is_behind(facts) or (trend is not None and trend.per_minute < 0):
        return
    if trend is None:
        yield Level.WARN, f"its oldest message waits{_at_work(facts, ': ')}", {"since": facts.oldest}
        return
    more = things(round(trend.per_minute), "message")
    text = f"it takes less than comes: {more} more a minute, {facts.waiting:,} wait{_at_work(facts, '; ')}"
    yield Level.WARN, text, {"since": trend.since, "oldest": facts.oldest, "perMinute": round(trend.per_minute)}


def _recovers(facts: Facts) -> Found:
    trend = facts.trend
    if _is_behind(facts) and trend is not None and trend.per_minute < 0:
        fewer, minutes = things(round(-trend.per_minute), "message"), round(facts.waiting / -trend.per_minute)
        left = f"{things(minutes, 'minute')} to go" if minutes else "less than a minute to go"
        text = f"it catches up: {fewer} fewer a minute, {facts.waiting:,} wait, {left}"
        yield Level.WARN, text, {"since": trend.since, "oldest": facts.oldest, "perMinute": round(trend.per_minute)}


def _overflowed(facts: Facts) -> Found:
    overflow = facts.overflow
    if overflow is not None and not facts.is_full:
        text = f"its queue was full: {_turned_away(overflow)}; it has room again, {_room(facts)}"
        yield Level.WARN, text, _overflow_details(overflow)


def _nearly_full(facts: Facts) -> Found:
    if _NEARLY <= facts.share < 1 and facts.full_in is None:
        yield Level.WARN, f"its queue is at {facts.share:.0%} of its bound", {"share": round(facts.share, 3)}


def _busy(facts: Facts) -> Found:
    if not _can_take(facts) or _is_behind(facts):
        return
    works_long = facts.sent_at is not None and facts.now - facts.sent_at >= _BUSY_MS
    if (facts.is_at_limit and facts.waiting > facts.at_client) or works_long:
        since = {} if facts.sent_at is None else {"since": facts.sent_at}
        yield Level.INFO, f"its client is busy{_at_work(facts, ': ')}", {**since, "count": facts.at_client}


def _unsubscribed(facts: Facts) -> Found:
    if facts.is_unsubscribed and not facts.is_away:
        takes = "takes only what is addressed to it" if facts.takes_ptp else "only publishes"
        yield Level.INFO, f"it has no subscriptions: it {takes}", {}


def _at_work(facts: Facts, joint: str) -> str:
    if not facts.at_client:
        return ""
    most = f", of at most {facts.max_open:,}" if facts.max_open else ""
    return f"{joint}{things(facts.at_client, 'message')} sent and not acknowledged{most}"


def _said(code: str, reason: str) -> str:
    return ": ".join(filter(None, (code, reason)))


class Check(NamedTuple):
    """One cause: its name, how urgent it is, and what finds it."""

    kind: str
    rank: int
    find: Callable[[Facts], Found]
    condition: Condition | None = None
    """How a receiver stands that has it; None: that is not said in a word."""
    is_trouble: bool = True
    """Whether it may be trouble; else it only explains how the receiver stands."""


CAUSES: Final = (
    Check("members", 17, _no_takers),
    Check("rejecting", 16, _rejecting, Condition.REJECTING),
    Check("held", 15, _held, Condition.ON_HOLD),
    Check("full", 14, _full, Condition.FULL),
    Check("token", 13, _token, Condition.EXPIRED),
    Check("rejects", 12, _rejects, Condition.REJECTS),
    Check("refused", 11, _refused),
    Check("retry", 9, _retrying, Condition.RETRYING),
    Check("unclaimed", 8, _unclaimed),
    Check("filling", 7, _filling, Condition.SOON_FULL),
    Check("away", 6, _away),
    Check("slow", 5, _slow, Condition.BEHIND),
    Check("recovering", 4, _recovers, Condition.CATCHING_UP),
    Check("overflow", 3, _overflowed),
    Check("nearly-full", 2, _nearly_full),
    Check("busy", 1, _busy, is_trouble=False),
    Check("unsubscribed", 0, _unsubscribed, Condition.UNSUBSCRIBED, is_trouble=False),
)
"""All causes, the most urgent first among those of one level."""
TROUBLES: Final = tuple(each.kind for each in CAUSES if each.is_trouble)
"""The kinds of those by which receivers in trouble are counted."""
_LEVELS: Final = list(Level)
_RANKS: Final = {each.kind: each.rank for each in CAUSES}
_CONDITIONS: Final = {each.kind: each.condition for each in CAUSES}


def causes_of(facts: Facts) -> list[Cause]:
    """Why the receiver is not as it should be, what is bad first; empty if it is."""
    if facts.is_well:
        return []
    found = [Cause(each.kind, *found) for each in CAUSES for found in each.find(facts)]
    return sorted(found, key=lambda cause: _LEVELS.index(cause.level))


def conditions_of(facts: Facts, causes: Sequence[Cause]) -> list[Condition]:
    """How the receiver stands, the most urgent first, and last whether its client is there."""
    there = facts.members or (Condition.AWAY if facts.is_away else Condition.CONNECTED)
    return [*(word for each in causes if (word := _CONDITIONS[each.kind]) is not None), there]


def has_cause(causes: Sequence[Cause], kind: str) -> bool:
    """Whether the most urgent cause is of this kind and is trouble: so the overview counts its findings."""
    return bool(causes) and causes[0].kind == kind and causes[0].level is not Level.INFO


def trouble_of(facts: Facts, causes: Sequence[Cause]) -> int:
    """A number by which receivers are sorted: the larger, the more urgent. What is bad is first, as in the findings. With equal
    causes, what has more messages is."""
    first = next((each for each in causes if each.level is not Level.INFO), None)
    rank = 0 if first is None else _RANKS[first.kind] + len(CAUSES) * (first.level is Level.BAD)
    return rank * _WEIGHT + min(facts.waiting, _WEIGHT - 1)
