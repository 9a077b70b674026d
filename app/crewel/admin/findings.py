"""What is wrong with a server, as an operator wants to read it: each finding has its cause, what to do, and where.

Pure: figures in, findings out. A new one is a function in `CHECKS`; `overview_resource` fills the figures that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from crewel.admin.level import Level
from crewel.admin.session_counts import SessionCounts

_NEARLY: Final = 0.85
"""The part of the store's memory from which on it is nearly full."""
_NAMED: Final = 3
"""Receivers on hold whose causes are reported."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    key: str
    level: Level
    title: str
    cause: str
    advice: str
    link: str
    """The view of the page that shows it, as an address after `#`."""
    count: int = 0

    def as_json(self) -> dict[str, Any]:
        """The object of the answer."""
        return {name: getattr(self, name) for name in ("key", "level", "title", "cause", "advice", "link", "count")}


class EmptyGroup(NamedTuple):
    """A consumer group without a member that takes messages."""

    pattern: str
    name: str
    waiting: int
    members: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What the checks look at."""

    now_ms: int = 0
    counted: SessionCounts = field(default_factory=SessionCounts)
    concerns: dict[str, str] = field(default_factory=dict)
    """Why the server is not ready, by what it is about."""
    failing_workers: dict[str, int] = field(default_factory=dict)
    """Number of a worker that does not start -> how often in a row it has been tried."""
    dead_letters_made: int = 0
    """Dead letters in the store that were made in the last hour: what was redriven or discarded does not count."""
    dead_letter_codes: Sequence[tuple[str, int]] = ()
    """Dead letters in the store, by code, the most first."""
    messages_dropped: int = 0
    """Messages of the last hour that were dropped and are in no dead letter."""
    dead_letters_dropped: int = 0
    """Dead letters that were dropped because there were too many."""
    store_used: int = 0
    store_most: int = 0
    """Bytes of the store's memory, and how many it may have; 0: any number."""
    facts_lost: int = 0
    """Facts and events that were removed before the data pipeline had read them."""
    empty_groups: Sequence[EmptyGroup] = ()
    """Consumer groups with messages that no member takes."""


def _plural(count: int, thing: str, things: str = "") -> str:
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def _span(milliseconds: int) -> str:
    minutes = milliseconds // 60_000
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def _receiver(name: str) -> str:
    return f"/receivers/{quote(name)}" if name else "/receivers"


def _server(figures: Figures) -> Iterator[Finding]:
    advice = {
        "store": "Look at the store and its log; see How the store fails in the manual. Publishers get errors meanwhile.",
        "descriptors": "Raise the limit of open files (ulimit -n), or lower limits.max_connections.",
    }
    for about, why in figures.concerns.items():
        usual = "Look at the log of the server; it retries automatically."
        title = "The store cannot be used" if about == "store" else f"The server is not ready: {about}"
        yield Finding(f"not-ready-{about}", Level.BAD, title, why, advice.get(about, usual), "/")


def _workers(figures: Figures) -> Iterator[Finding]:
    if figures.failing_workers:
        tries = ", ".join(f"worker {number}: {count} times" for number, count in figures.failing_workers.items())
        yield Finding(
            "worker-failing",
            Level.BAD,
            f"{_plural(len(figures.failing_workers), 'worker')} cannot be started",
            f"failed in a row before it served, {tries}; the others have its clients",
            "Its own message in the log of the server has the cause. It is started again at least every minute.",
            "/",
            len(figures.failing_workers),
        )


def _held(figures: Figures) -> Iterator[Finding]:
    counted = figures.counted
    if not counted.on_hold_count:
        return
    _, name, _ = counted.on_hold[0]
    one = counted.on_hold_count == 1
    causes = [cause if one else f"{held}: {cause}" for _, held, cause in counted.on_hold[:_NAMED]]
    more = counted.on_hold_count - len(causes)
    yield Finding(
        "held",
        Level.BAD,
        f"{name} is on hold" if one else f"{_plural(counted.on_hold_count, 'receiver')} are on hold",
        "; ".join([*causes, f"and {more:,} more"] if more else causes),
        "Read the message that is held. If its cause is gone, release the receiver. If not, skip the message, then release.",
        _receiver(name) if one else "/receivers?held=true",
        counted.on_hold_count,
    )


def _letters(figures: Figures) -> Iterator[Finding]:
    made = figures.dead_letters_made
    if made:
        codes = figures.dead_letter_codes
        most = f"in the store, most have the code {codes[0][0]}: {codes[0][1]:,}" if codes else "see their codes"
        yield Finding(
            "letters",
            Level.BAD,
            f"{_plural(made, 'dead letter')} of the last hour",
            most,
            "Open a group and read the reason of one. Redrive the group when its cause is gone.",
            "/dead-letters?since=1h",
            made,
        )


def _dropped(figures: Figures) -> Iterator[Finding]:
    if figures.dead_letters_dropped:
        yield Finding(
            "letters-dropped",
            Level.BAD,
            f"{_plural(figures.dead_letters_dropped, 'dead letter')} were dropped",
            "There were more than delivery.dead_letters_max, or they took more than delivery.dead_letters_max_bytes.",
            "Export, redrive or discard old ones, or raise the setting. Dropped ones are lost.",
            "/dead-letters",
            figures.dead_letters_dropped,
        )


def _lost(figures: Figures) -> Iterator[Finding]:
    if figures.messages_dropped:
        yield Finding(
            "messages-dropped",
            Level.BAD,
            f"{_plural(figures.messages_dropped, 'message')} dropped in the last hour",
            "The queue of a receiver was full, and the receiver has no name, or asked to drop the oldest.",
            "Give clients that must miss nothing a session name, or set delivery.letters_for_anonymous. Dropped ones are lost.",
            "/receivers?sort=waiting",
            figures.messages_dropped,
        )


def _full(figures: Figures) -> Iterator[Finding]:
    counted = figures.counted
    if counted.full_count:
        share, name = counted.full[0]
        is_full, one = share >= 1, counted.full_count == 1
        how = ("full" if is_full else "nearly full") if one else "full or nearly full"
        yield Finding(
            "queue-full",
            Level.BAD if is_full else Level.WARN,
            f"{_plural(counted.full_count, 'queue')} {how}",
            f"the queue of {name} is {'full' if is_full else f'at {share:.0%} of its bound'}",
            "Start its client if it is away, make it process messages faster, or drain the queue into dead letters.",
            _receiver(name),
            counted.full_count,
        )


def _away(figures: Figures) -> Iterator[Finding]:
    counted = figures.counted
    if counted.away_count:
        waiting, name = counted.away[0]
        yield Finding(
            "away",
            Level.WARN,
            f"{_plural(counted.away_count, 'receiver')} away, {_plural(counted.away_waiting, 'message')} waiting",
            f"{name} has {_plural(waiting, 'message')} waiting: its client is gone, or has failed",
            "Start the client again. Its messages wait until the session ends.",
            "/receivers?state=POLLING&sort=waiting" if counted.away_count > 1 else _receiver(name),
            counted.away_count,
        )


def _behind(figures: Figures) -> Iterator[Finding]:
    counted = figures.counted
    if counted.behind_count:
        since, waiting, name = counted.behind[0]
        one = counted.behind_count == 1
        yield Finding(
            "behind",
            Level.WARN,
            f"{name} falls behind" if one else f"{_plural(counted.behind_count, 'receiver')} fall behind",
            f"{name} is connected, and its oldest message has waited for {_span(figures.now_ms - since)}:"
            f" {_plural(waiting, 'message')} in its queue",
            "See how many it acknowledges a minute. Let it acknowledge sooner, or share its work in a consumer group.",
            _receiver(name) if one else "/receivers?state=ALIVE&sort=oldest",
            counted.behind_count,
        )


def _groups(figures: Figures) -> Iterator[Finding]:
    if figures.empty_groups:
        first, count = figures.empty_groups[0], len(figures.empty_groups)
        why = f"{_plural(first.members, 'member')}, away or on hold" if first.members else "no member"
        yield Finding(
            "group-empty",
            Level.BAD,
            f"{_plural(count, 'consumer group')} without a member that takes messages",
            f"{first.name} on {first.pattern}: {_plural(first.waiting, 'message')} queued, {why}",
            "Start a worker of the group, or release one that is on hold.",
            f"/topics?pattern={quote(first.pattern)}",
            count,
        )


def _memory(figures: Figures) -> Iterator[Finding]:
    if figures.store_most and figures.store_used >= _NEARLY * figures.store_most:
        yield Finding(
            "store-nearly-full",
            Level.WARN,
            "The store is nearly full",
            f"{figures.store_used / figures.store_most:.0%} of its memory is used",
            "Discard dead letters, end receivers that do not come back, or raise the store's maxmemory.",
            "/dead-letters",
        )


def _pipeline(figures: Figures) -> Iterator[Finding]:
    if figures.facts_lost:
        yield Finding(
            "pipeline-behind",
            Level.WARN,
            "The data pipeline is behind",
            f"{_plural(figures.facts_lost, 'entry', 'entries')} were removed before it had read them",
            "Start the pipeline, or raise storage.facts_max_entries and events.max_bytes.",
            "/",
            figures.facts_lost,
        )


CHECKS: Final[tuple[Callable[[Figures], Iterator[Finding]], ...]] = (
    _server,
    _workers,
    _held,
    _dropped,
    _lost,
    _groups,
    _letters,
    _full,
    _away,
    _behind,
    _memory,
    _pipeline,
)
"""All checks, what is most urgent first."""


def findings(figures: Figures) -> list[Finding]:
    """All that is wrong, bad ones first."""
    found = [each for check in CHECKS for each in check(figures)]
    return sorted(found, key=lambda each: each.level is not Level.BAD)
