"""What is wrong with a server, as an operator wants to read it: each finding has its cause, what to do, and where.

Pure: figures in, findings out. A new one is a function in `CHECKS`; `figures` has what it looks at, of one node or of several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from crewel.admin.cause_words import GROUP, WORDS, Words, usual_advice
from crewel.admin.figures import EmptyGroup, Figures
from crewel.admin.level import Level
from crewel.admin.receiver_condition import TROUBLES, listed, things
from crewel.admin.session_counts import NAMED, Named, Trouble
from crewel.qos.names import group_called, shown_name
from crewel.storage.dead_letter_groups import Pair
from crewel.storage.disk import FREE_DISK, Disk
from crewel.storage.store_load import BUSY, WAITING

_NEARLY: Final = 0.85
"""The part of the store's memory from which on it is nearly full."""
DISK_FILLS: Final = 0.8
"""The part of the disk of an embedded store from which on it is filling up."""
DISK_NEARLY_FULL: Final = 0.9
"""The part from which on that is bad: a rewrite of the store's file may fail."""
_NAMED: Final = 3
"""Receivers that a text names."""
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
    receivers: tuple[Named, ...] = ()
    """Some of the receivers that it is about; empty if it is about none."""

    def as_json(self) -> dict[str, Any]:
        """The object of the answer."""
        names = ("key", "level", "title", "cause", "advice", "link", "count", "since")
        receivers = [
            {
                "name": each.name,
                "title": called(each.name),
                "link": receiver_link(each.name),
                "cause": each.text,
                "node": each.node,
                "since": each.since,
                "awaySince": each.away_since,
            }
            for each in self.receivers
        ]
        return {name: getattr(self, name) for name in names} | {"nodes": list(self.nodes), "receivers": receivers}


def receiver_link(name: str) -> str:
    """The view of a receiver. A group has the name that lists have, `/jobs/* workers`."""
    if (group := group_called(name)) is not None:
        return "/groups/" + "/".join(quote(each, safe="") for each in group)
    return f"/receivers/{quote(name)}" if name else "/receivers"


def called(name: str) -> str:
    """What a receiver is called in a text."""
    group = group_called(name)
    return (name or _NO_NAME) if group is None else "Group {1} on {0}".format(*group)


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
    if any(" left" in each.why for each in figures.concerns.values()):  # it looks at its disk every few seconds
        return "The disk of the store was full", f"It has room now, and the server continues automatically. {meanwhile}"
    if any("memory of the store" in each.why for each in figures.concerns.values()):
        return "The store is full", f"{_MAKE_ROOM} or raise storage.max_memory_bytes. {meanwhile}"
    if any("no answer" in each.why for each in figures.concerns.values()):
        own = "The store is the server's own, and hangs: see whether the machine or its disk is overloaded, or end its"
        which = f" ({figures.store_process})" if figures.store_process else ""
        ending = f"{own} process{which} by kill -KILL, which also ends a stopped one. The server starts it again."
        return "The store cannot be used", f"{ending} {meanwhile}"
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


def _receivers(figures: Figures) -> Iterator[Finding]:
    for kind in TROUBLES:
        words = WORDS[kind]
        sessions, queues = figures.counted.troubles.get(kind, Trouble()), _with_members(figures, kind)
        trouble = sessions if queues is None else sessions.join(queues)
        if trouble.count and words.key:
            only = "kind=session&" if queues is None else ""
            usual = usual_advice(kind, "" if sessions.count else GROUP)
            yield _of_receivers(words, trouble, usual, f"/receivers?{only}cause={kind}")


def _with_members(figures: Figures, kind: str) -> Trouble | None:
    """Subjects and groups with this trouble, without groups that have no member, which another finding has."""
    trouble, empty = figures.counted.queues.get(kind), {each.receiver for each in figures.empty_groups}
    if trouble is None or not (others := [each for each in trouble.named if each.name in empty]):
        return trouble
    count, waiting = trouble.count - len(others), trouble.waiting - sum(each.waiting for each in others)
    return Trouble(count, waiting, [each for each in trouble.named if each.name not in empty]) if count else None


def _of_receivers(words: Words, trouble: Trouble, usual: str, link: str) -> Finding:
    first, is_one = trouble.named[0], trouble.count == 1
    waiting = f", {things(trouble.waiting, 'message')} waiting" if words.key == "away" else ""
    title = words.one.format(called(first.name)) if is_one else words.many.format(things(trouble.count, "receiver"))
    return Finding(
        words.key,
        Level.BAD if any(each.is_bad for each in trouble.named) else Level.WARN,
        title + waiting,
        first.text if is_one else _cause(words, trouble),
        first.advice if first.advice and len({each.advice for each in trouble.named}) == 1 else usual,
        receiver_link(first.name) if is_one else link,
        trouble.count,
        trouble.since,
        tuple(sorted({each.node for each in trouble.named} - {""})),
        tuple(trouble.named),
    )


def _cause(words: Words, trouble: Trouble) -> str:
    """The names of some receivers, each with its cause unless all have the same."""
    names, texts = [called(each.name) for each in trouble.named], [each.text for each in trouble.named]
    if words.key == "away":
        texts = [""]  # the title says it
    if len(set(texts[:_NAMED])) == 1:
        told = listed(names, _NAMED, of=trouble.count)
        return f"{told}: {texts[0]}" if texts[0] else told
    pairs = [f"{name}: {text}" for name, text in zip(names, texts, strict=True)]
    return listed(pairs, _NAMED, "; ", of=trouble.count)


def _letters(figures: Figures) -> Iterator[Finding]:
    made, pairs = figures.dead_letters_made, figures.dead_letter_pairs
    rest = [each for each in pairs if not _is_said(figures, each)]
    read, left = (sum(each.letters for each in some) for some in (pairs, rest))
    if not made or (pairs and not rest):
        return
    of, thing = made, "dead letter"
    if made <= read:  # all were looked at
        made = left
    if made < of:
        thing = "other dead letter"  # so that this and the number beside "Dead letters" agree
    one = rest[0] if len(rest) == 1 else None
    yield Finding(
        "letters",
        Level.BAD,
        f"{things(made, thing)} of the last hour" + (f" of {called(shown_name(one.receiver))}" if one else ""),
        _by_receiver(rest, left if made > left else 0) + (f" ({of:,} with those above)" if made < of else ""),
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
    told = listed(
        [f"{called(shown_name(each.receiver))}: {each.letters:,} with {each.code}" for each in pairs],
        _NAMED,
        "; ",
        "group",
    )
    return f"{f'of the newest {of:,}: ' if of else ''}{told}" or "see their codes"


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
            "The queue of a receiver was full, and the receiver has no name, or asked to drop the oldest; or there are no dead"
            " letters of such messages, as of changes of presence.",
            "Give clients that must miss nothing a session name, or set delivery.letters_for_anonymous. Dropped ones are lost.",
            "/receivers?sort=waiting",
            figures.messages_dropped,
        )


def _groups(figures: Figures) -> Iterator[Finding]:
    named = [_without_members(each) for each in figures.empty_groups]
    if named:
        first, count = figures.empty_groups[0], len(named)
        group, cause = f"group {first.name} on {first.pattern}", named[0].text
        is_one = count == 1
        yield Finding(
            "group-empty",
            Level.BAD,
            f"The {group} has no member that takes messages"
            if is_one
            else f"{things(count, 'group')} have no member that takes messages",
            cause if is_one else f"the {group}: {cause}; and {count - 1:,} more",
            usual_advice("members", GROUP),
            receiver_link(first.receiver) if is_one else "/receivers?kind=group&cause=members",
            count,
            Trouble(named=named).since,
            receivers=tuple(named[:NAMED]),
        )


def _without_members(group: EmptyGroup) -> Named:
    members = f"{things(group.members, 'member')}, away or on hold" if group.members else "no member"
    members += f"; {group.why}" if group.why else ""
    text = f"{things(group.waiting, 'message')} queued, {members}"
    return Named(group.receiver, text, group.since, group.waiting, "")


_MAKE_ROOM: Final = "Discard dead letters for good, end receivers that do not come back,"


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


def _load(figures: Figures) -> Iterator[Finding]:
    if figures.store_busy > BUSY:
        yield Finding(
            "store-busy",
            Level.WARN,
            f"The store is busy: {figures.store_busy:.0%} of a core",
            "It has one thread for all nodes. When that is full, stored publishes wait, and more nodes do not help.",
            "See what publishes most and store less of it, or give tenants a cluster each: docs/how-to/cells.md.",
            _STORE,
        )
    if figures.store_waiting > WAITING:
        yield Finding(
            "store-waits-for-disk",
            Level.WARN,
            f"The store waits for its disk: {figures.store_waiting:.0%} of the time",
            "Each stored publish waits until the disk has it, and meanwhile the store does nothing else.",
            "Use a faster disk. With storage.fsync=everysec it does not wait, and a crash may lose two seconds.",
            _STORE,
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
            "Start the pipeline, or raise storage.facts_max_entries, storage.facts_max_bytes and events.max_bytes.",
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
    _load,
    _pipeline,
)
"""All checks, what is most urgent first."""


def findings(figures: Figures) -> list[Finding]:
    """All that is wrong, bad ones first."""
    found = [each for check in CHECKS for each in check(figures)]
    return sorted(found, key=lambda each: each.level is not Level.BAD)
