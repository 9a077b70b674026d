"""What is wrong with a server, as an operator wants to read it: each finding has its cause, what to do, and where.

Pure: figures in, findings out. A new one is a function in `CHECKS`; `figures` has what it looks at, of one node or of several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from crewel.admin.figures import Figures
from crewel.admin.level import Level
from crewel.admin.receiver_condition import Variant, things
from crewel.admin.session_counts import Trouble
from crewel.storage.dead_letter_groups import Pair
from crewel.storage.disk import FREE_DISK, Disk

_NEARLY: Final = 0.85
"""The part of the store's memory from which on it is nearly full."""
DISK_FILLS: Final = 0.8
"""The part of the disk of an embedded store from which on it is filling up."""
DISK_NEARLY_FULL: Final = 0.9
"""The part from which on that is bad: a rewrite of the store's file may fail."""
_NAMED: Final = 3
"""Receivers whose causes are reported."""
_OVERFLOW: Final = {"resource.overflow.queue.bytes", "resource.overflow.queue.entries"}
"""The codes of messages that a full queue has turned away."""
_CLOCKS_MS: Final = 5000
"""How far the clocks of a server and of its store may be apart."""
_NO_NAME: Final = "a client without a name"
_MIB: Final = 1 << 20
_STORE: Final = "/?show=store"
"""The view of the store: its memory, its disk, and who has most of it."""


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
    since: int | None = None
    """Since when, as far as is known: milliseconds since 1970."""
    nodes: tuple[str, ...] = ()
    """Where it is; empty if it is nowhere in particular."""

    def as_json(self) -> dict[str, Any]:
        """The object of the answer."""
        names = ("key", "level", "title", "cause", "advice", "link", "count", "since")
        return {name: getattr(self, name) for name in names} | {"nodes": list(self.nodes)}


def receiver_link(name: str) -> str:
    """The view of a receiver. A group has the name that lists have, `/jobs/* workers`."""
    if name.startswith("/"):
        pattern, _, group = name.rpartition(" ")
        return f"/groups/{quote(pattern, safe='')}/{quote(group, safe='')}"
    return f"/receivers/{quote(name)}" if name else "/receivers"


def called(name: str) -> str:
    """What a receiver is called in a text."""
    if name.startswith("/"):
        pattern, _, group = name.rpartition(" ")
        return f"Group {group} on {pattern}"
    return name or _NO_NAME


def _server(figures: Figures) -> Iterator[Finding]:
    usual = "Look at the log of the server; it retries automatically."
    advice = {
        "descriptors": "Raise the limit of open files (ulimit -n), or lower limits.max_connections.",
    }
    for about, concern in figures.concerns.items():
        title, what = f"The server is not ready: {about}", advice.get(about, usual)
        if about == "store":
            title, what = _store_words(figures)
        nodes = tuple(concern.nodes)
        yield Finding(f"not-ready-{about}", Level.BAD, title, concern.why, what, "/timeline", 0, concern.since, nodes)


def _store_words(figures: Figures) -> tuple[str, str]:
    """Title and advice for a store that cannot be used, which depend on whose it is and what it lacks."""
    meanwhile = "Publishers get errors meanwhile, and nothing that was answered is lost."
    disk = figures.disk
    if disk is None:
        return (
            "The store cannot be used",
            f"Look at the store and its log; see When the store is unavailable in docs/explanation/storage.md. {meanwhile}",
        )
    if _is_full(disk):
        make_room = f"Make room on the disk of {disk.directory}, or let storage.data_dir lie on a larger one."
        return "The disk of the store is full", f"{make_room} The server continues automatically. {meanwhile}"
    if any("memory of the store" in each.why for each in figures.concerns.values()):
        return "The store is full", f"{_MAKE_ROOM} or raise storage.max_memory_bytes. {meanwhile}"
    if any("no answer" in each.why for each in figures.concerns.values()):
        own = "The store is the server's own, and hangs: see whether the machine or its disk is overloaded, or end"
        return "The store cannot be used", f"{own} its process, which the server starts again. {meanwhile}"
    log = f"The store is the server's own, which starts it again. {disk.directory}/store.log says why it ended."
    return "The store cannot be used", f"{log} {meanwhile}"


def _workers(figures: Figures) -> Iterator[Finding]:
    if figures.failing_workers:
        tries = ", ".join(f"worker {number}: {count} times" for number, count in figures.failing_workers.items())
        yield Finding(
            "worker-failing",
            Level.BAD,
            f"{things(len(figures.failing_workers), 'worker')} cannot be started",
            f"failed in a row before it served, {tries}; the others have its clients",
            "Its own message in the log of the server has the cause. It is started again at least every minute.",
            "/timeline",
            len(figures.failing_workers),
        )


class Words(NamedTuple):
    """How a finding about receivers reads: what is said of one of them, of several, and what to do about it."""

    key: str
    one: str
    many: str
    advice: str


_DRAIN: Final = (
    "Make it process messages faster, start its client if it is away, or drain the queue into dead letters. Redrive what became"
    " dead letters when there is room."
)
_MORE: Final = (
    "Start more sessions of the subject or members of the group, or make them process messages faster. Redrive what became dead"
    " letters when there is room."
)
_SHARE: Final = "Make its client faster, let it take more messages at a time, or share its work in a consumer group."
_RECEIVERS: Final[dict[str, Words]] = {
    "rejecting": Words(
        "rejecting",
        "{} rejects everything",
        "{} reject everything",
        "Repair its client and let it log in again, or end the session. Its messages are in the dead letters.",
    ),
    "rejects": Words(
        "rejects",
        "{} rejects messages",
        "{} reject messages",
        "If other receivers take these messages, repair its client; if none does, look at what the publisher sends. Then"
        " redrive its dead letters.",
    ),
    "held": Words(
        "held",
        "{} is on hold",
        "{} are on hold",
        "Read the message that is held. If its cause is gone, release the receiver. If not, skip the message, then release.",
    ),
    "full": Words("queue-full", "{} is full", "{} are full", _DRAIN),
    "token": Words(
        "token-expired",
        "{} has an expired token",
        "{} have an expired token",
        "Give its client a new token. It logs in again automatically, if it can get one.",
    ),
    "refused": Words(
        "login-refused",
        "A login as {} was refused",
        "Logins of {} were refused",
        "Give its client a token or a name that holds. Any client can ask for a name: see where the login came from.",
    ),
    "retry": Words(
        "retrying",
        "{} waits to retry",
        "{} wait to retry",
        "Repair what its client needs. Its messages go to it again automatically, or at once with Retry now.",
    ),
    "unclaimed": Words(
        "unclaimed",
        "{} has messages that no listener takes",
        "{} have messages that no listener takes",
        "Start the part of its client that listens to these channels, or skip the messages.",
    ),
    "filling": Words("soon-full", "{} will be full soon", "{} will be full soon", _DRAIN),
    "away": Words(
        "away",
        "{} is away",
        "{} are away",
        "Start the client again. Its messages wait until the session ends.",
    ),
    "slow": Words("behind", "{} falls behind", "{} fall behind", _SHARE),
    "recovering": Words(
        "catches-up", "{} catches up", "{} catch up", "Nothing needs to be done, unless it is too slow."
    ),
    "overflow": Words("turned-away", "{} has turned messages away", "{} have turned messages away", _DRAIN),
    "nearly-full": Words("nearly-full", "{} is nearly full", "{} are nearly full", _DRAIN),
}
"""The findings about receivers, by the kind of their most urgent cause: a receiver is in one of them."""
_ADVICE: Final = {
    Variant.BY_OPERATOR: "Release the receiver when the reason is gone. None of its messages is at fault.",
    Variant.AWAY: "Start its client: it takes what waits. Then redrive its dead letters, if there are any.",
    Variant.REFUSED: "Give its client a new token: it tries again with the one that is refused.",
}
"""What to do instead, if all that are named have this variant of the cause."""


def _receivers(figures: Figures) -> Iterator[Finding]:
    for kind, words in _RECEIVERS.items():
        sessions, queues = figures.counted.troubles.get(kind, Trouble()), figures.counted.queues.get(kind)
        trouble = sessions if queues is None else sessions.join(queues)
        if trouble.count:
            only = "kind=session&" if queues is None else ""
            said = words if sessions.count else words._replace(advice=_MORE)
            yield _of_receivers(said, trouble, f"/receivers?{only}cause={kind}")


def _of_receivers(words: Words, trouble: Trouble, link: str) -> Finding:
    first, is_one = trouble.named[0], trouble.count == 1
    waiting = f", {things(trouble.waiting, 'message')} waiting" if words.key == "away" else ""
    title = words.one.format(called(first.name)) if is_one else words.many.format(things(trouble.count, "receiver"))
    return Finding(
        words.key,
        Level.BAD if any(each.is_bad for each in trouble.named) else Level.WARN,
        title + waiting,
        _cause(words, trouble),
        _ADVICE.get(first.variant, words.advice)
        if len({each.variant for each in trouble.named}) == 1
        else words.advice,
        receiver_link(first.name) if is_one else link,
        trouble.count,
        trouble.since,
        tuple(sorted({each.node for each in trouble.named} - {""})),
    )


def _cause(words: Words, trouble: Trouble) -> str:
    """The cause of one receiver; of several the names of some, each with its cause unless all have the same."""
    named = trouble.named[:_NAMED]
    if trouble.count == 1:
        return named[0].text
    more = trouble.count - len(named)
    names, texts = [called(each.name) for each in named], [each.text for each in named]
    if words.key == "away":
        texts = [""]  # the title says it
    are_same = len(set(texts)) == 1
    listed = names if are_same else [f"{name}: {text}" for name, text in zip(names, texts, strict=True)]
    ending = f" and {more:,} more" if more else ""
    told = f"{', '.join(listed)}{ending}" if are_same else f"{'; '.join(listed)}{';' if more else ''}{ending}"
    return f"{told}: {texts[0]}" if are_same and texts[0] else told


def _letters(figures: Figures) -> Iterator[Finding]:
    made, pairs = figures.dead_letters_made, figures.dead_letter_pairs
    rest = [each for each in pairs if not _is_said(figures, each)]
    read, left = (sum(each.letters for each in some) for some in (pairs, rest))
    if not made or (pairs and not rest):
        return
    if made <= read:  # all were looked at
        made = left
    one = rest[0] if len(rest) == 1 else None
    yield Finding(
        "letters",
        Level.BAD,
        f"{things(made, 'dead letter')} of the last hour" + (f" of {one.receiver}" if one else ""),
        _by_receiver(rest, left if made > left else 0),
        "Open a group and read the reason of one. Redrive the group when its cause is gone.",
        f"/dead-letters?since=1h&receiver={quote(one.receiver)}&code={quote(one.code)}"
        if one
        else "/dead-letters?since=1h",
        made,
        figures.dead_letters_since if made > left else min((each.since for each in rest), default=None),
    )


def _by_receiver(pairs: Sequence[Pair], of: int) -> str:
    """How many dead letters which receivers have with which codes. `of`: so many of them were looked at; 0: all."""
    if len(pairs) == 1 and not of:
        return pairs[0].code
    told = "; ".join(f"{each.receiver}: {each.letters:,} with {each.code}" for each in pairs[:_NAMED])
    more = f"; and {things(len(pairs) - _NAMED, 'more group')}" if len(pairs) > _NAMED else ""
    return f"{f'of the newest {of:,}: ' if of else ''}{told}{more}" or "see their codes"


def _is_said(figures: Figures, pair: Pair) -> bool:
    """Whether a finding about receivers says why these became dead letters: not of those that are older than what it says."""
    troubles = figures.counted.troubles
    if pair.code in _OVERFLOW:
        return not {"full", "overflow"}.isdisjoint(troubles)
    rejecting = (each for kind in ("rejecting", "rejects") if kind in troubles for each in troubles[kind].named)
    return any(each.name == pair.receiver and (each.since or 0) <= pair.since + _CLOCKS_MS for each in rejecting)


def _dropped(figures: Figures) -> Iterator[Finding]:
    if figures.dead_letters_dropped:
        yield Finding(
            "letters-dropped",
            Level.BAD,
            f"{things(figures.dead_letters_dropped, 'dead letter')} were dropped",
            "There were more than delivery.dead_letters_max, or they took more than delivery.dead_letters_max_bytes. Those of"
            " the subject or group that had the most were dropped first.",
            "Export, redrive or discard old ones, or raise the setting. Dropped ones are lost.",
            "/dead-letters",
            figures.dead_letters_dropped,
        )


def _lost(figures: Figures) -> Iterator[Finding]:
    if figures.messages_dropped:
        yield Finding(
            "messages-dropped",
            Level.BAD,
            f"{things(figures.messages_dropped, 'message')} dropped in the last hour",
            "The queue of a receiver was full, and the receiver has no name, or asked to drop the oldest.",
            "Give clients that must miss nothing a session name, or set delivery.letters_for_anonymous. Dropped ones are lost.",
            "/receivers?sort=waiting",
            figures.messages_dropped,
        )


def _groups(figures: Figures) -> Iterator[Finding]:
    if figures.empty_groups:
        first, count = figures.empty_groups[0], len(figures.empty_groups)
        name = f"{first.name} on {first.pattern}"
        members = f"{things(first.members, 'member')}, away or on hold" if first.members else "no member"
        members += f"; {first.why}" if first.why else ""
        cause = f"{things(first.waiting, 'message')} queued, {members}"
        is_one = count == 1
        yield Finding(
            "group-empty",
            Level.BAD,
            f"The group {name} has no member that takes messages"
            if is_one
            else f"{things(count, 'group')} have no member that takes messages",
            cause if is_one else f"the group {name}: {cause}; and {count - 1:,} more",
            "Start a worker of the group, or release one that is on hold.",
            receiver_link(f"{first.pattern} {first.name}") if is_one else "/receivers?kind=group",
            count,
            first.since,
        )


_MAKE_ROOM: Final = "Discard dead letters, end receivers that do not come back,"


def _memory(figures: Figures) -> Iterator[Finding]:
    is_said = "store" in figures.concerns  # one cause, one finding
    if not is_said and figures.store_most and figures.store_used >= _NEARLY * figures.store_most:
        yield Finding(
            "store-nearly-full",
            Level.WARN,
            "The store is nearly full",
            f"{figures.store_used / figures.store_most:.0%} of its memory is used",
            f"{_MAKE_ROOM} or raise the store's maxmemory.",
            "/dead-letters",
        )


def _disk(figures: Figures) -> Iterator[Finding]:
    disk = figures.disk
    is_said = disk is not None and "store" in figures.concerns and _is_full(disk)
    if disk is not None and disk.share >= DISK_FILLS and not is_said:
        is_bad = disk.share >= DISK_NEARLY_FULL
        yield Finding(
            "disk-nearly-full" if is_bad else "disk-filling",
            Level.BAD if is_bad else Level.WARN,
            f"The disk of the store is {'nearly full' if is_bad else 'filling up'}: {int(disk.share * 100)} %",
            f"{_size(disk.free)} are left on the disk of {disk.directory}; the store's file has {_size(disk.file)}",
            "Make room, or let storage.data_dir lie on a larger disk. With less than 64 MiB, publishes are refused.",
            _STORE,
        )


def _is_full(disk: Disk) -> bool:
    """Whether the store has no room on it."""
    return disk.free < FREE_DISK


def _size(number: int) -> str:
    """A size in MiB, or in GiB if it is large."""
    mebibytes = number / _MIB
    return f"{mebibytes:,.0f} MiB" if mebibytes < 10_000 else f"{mebibytes / 1024:,.0f} GiB"


def _pipeline(figures: Figures) -> Iterator[Finding]:
    if figures.facts_lost:
        yield Finding(
            "pipeline-behind",
            Level.WARN,
            "The data pipeline is behind",
            f"{things(figures.facts_lost, 'entry', 'entries')} were removed before it had read them",
            "Start the pipeline, or raise storage.facts_max_entries and events.max_bytes.",
            _STORE,
            figures.facts_lost,
        )


CHECKS: Final[tuple[Callable[[Figures], Iterator[Finding]], ...]] = (
    _server,
    _workers,
    _disk,
    _dropped,
    _lost,
    _groups,
    _receivers,
    _letters,
    _memory,
    _pipeline,
)
"""All checks, what is most urgent first."""


def findings(figures: Figures) -> list[Finding]:
    """All that is wrong, bad ones first."""
    found = [each for check in CHECKS for each in check(figures)]
    return sorted(found, key=lambda each: each.level is not Level.BAD)
