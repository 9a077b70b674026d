"""The ledger of a run: what was published and answered, who was subscribed, and what came where.

`check` is the promise, as far as clients can see it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from time import monotonic

Item = tuple[str, int]
"""A publisher's name and the number of its message, which it counts from 1."""


@dataclass
class Publication:
    """One message of a publisher, however often it was sent."""

    begun: float
    is_keyed: bool
    handful: int
    """Those with one number were sent together; the next ones when all of these were answered successful."""
    to: str = ""
    """The one subscriber that may get it; empty: all."""
    was_refused: bool = False
    id: str | None = None
    """The id that a successful answer told."""
    answered: float = 0.0
    is_excused: bool = False
    """Whether it may be lost although it was answered."""


@dataclass
class Received:
    """What one reliable subscriber got, in order."""

    since: float
    """When its subscription was answered."""
    messages: list[tuple[str, Item]] = field(default_factory=list)
    """Ids and items, duplicates included."""

    @property
    def first(self) -> dict[str, Item]:
        """The first occurrence of each id, in order."""
        firsts: dict[str, Item] = {}
        for log_id, item in self.messages:
            firsts.setdefault(log_id, item)
        return firsts


class Ledger:
    """What happened in a run. The clients write it, each on its own thread or task."""

    def __init__(self) -> None:
        self.published: dict[Item, Publication] = {}
        self.received: dict[str, Received] = {}
        self.answered_count = 0
        """Publishes that were answered successful."""
        self.refusals: Counter[str] = Counter()
        """The errors of publishes that were not successful; empty where no answer came."""

    # Publishers

    def begin(self, item: Item, *, is_keyed: bool, handful: int, to: str = "") -> None:
        """The item is about to be sent for the first time."""
        self.published[item] = Publication(monotonic(), is_keyed, handful, to)

    def answered(self, item: Item, log_id: str) -> None:
        """The publisher was told that it is safe."""
        publication = self.published[item]
        self.answered_count += publication.id is None
        publication.id, publication.answered = log_id, monotonic()

    def refused(self, item: Item, error: str | None) -> None:
        """The publisher was told that it is not, or was not told anything."""
        self.published[item].was_refused = True
        self.refusals[error or ""] += 1

    def excuse(self, since: float) -> None:
        """A crash may have lost what was answered from `since` until now."""
        for publication in self.published.values():
            if publication.id is not None and publication.answered > since:
                publication.is_excused = True

    # Subscribers

    def subscribed(self, name: str) -> None:
        """The subscriber was told that it will hear everything from now on. It may have been another session before."""
        self.received.setdefault(name, Received(0)).since = monotonic()

    def came(self, name: str, log_id: str, item: Item) -> None:
        """A copy has come to this subscriber."""
        self.received[name].messages.append((log_id, item))

    # The end

    @property
    def duplicates(self) -> int:
        """Copies that had come to their subscriber before, under the same id."""
        return sum(len(each.messages) - len(each.first) for each in self.received.values())

    def missing(self, name: str) -> list[Item]:
        """What this subscriber is owed and has not got."""
        received = self.received[name]
        ids = received.first
        return [
            item
            for item, publication in self.published.items()
            if publication.id is not None
            and not publication.is_excused
            and publication.begun > received.since
            and publication.to in ("", name)
            and publication.id not in ids
        ]

    def is_complete(self) -> bool:
        """Whether everybody has got all that was answered."""
        return not any(self.missing(name) for name in self.received)

    def check(self) -> None:
        """Compare what was promised with what happened. Raises AssertionError with what is wrong."""
        ids: dict[str, Item] = {}
        for item, publication in self.published.items():
            if publication.id is not None:
                assert ids.setdefault(publication.id, item) == item, f"two messages were answered {publication.id}"
        for name, received in self.received.items():
            missing = self.missing(name)
            assert not missing, f"{name} never got {len(missing)} answered messages, the first is {missing[0]}"
            self._check_copies(name, received, ids)
            self._check_order(name, received)

    def _check_copies(self, name: str, received: Received, ids: dict[str, Item]) -> None:
        keyed: dict[Item, str] = {}
        for log_id, item in received.messages:
            assert item in self.published, f"{name} got {item}, which nobody published"
            assert self.published[item].to in ("", name), f"{name} got {item}, which is for {self.published[item].to}"
            assert ids.setdefault(log_id, item) == item, f"{name} got {item} as {log_id}, which is {ids[log_id]}"
            if self.published[item].is_keyed:
                first = keyed.setdefault(item, log_id)
                assert first == log_id, f"{name} got {item}, published with a key, as {first} and as {log_id}"

    def _check_order(self, name: str, received: Received) -> None:
        last_id, handfuls, numbers, seen = 0, dict[str, int](), dict[str, int](), set[Item]()
        for log_id, item in received.first.items():
            assert int(log_id) > last_id, f"{name} got {log_id} for the first time after {last_id}"
            last_id = int(log_id)
            if (
                item in seen
            ):  # sent again without a key, and the first request was with a node that hung and then took it, too
                continue
            seen.add(item)
            publisher, number = item
            publication = self.published[item]
            before = handfuls.get(publisher, 0)
            assert publication.handful >= before, f"{name} got number {number} of {publisher} after later ones"
            handfuls[publisher] = publication.handful
            if not publication.was_refused:  # then it may come after others of its handful that were not
                assert number > numbers.get(publisher, 0), f"{name} got number {number} of {publisher} after later ones"
                numbers[publisher] = number
