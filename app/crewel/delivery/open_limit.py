"""How many messages may be open at one client: sent, and without a status or an acknowledgement.

What is open already goes out again whatever the limit, for that opens nothing. Messages that nothing settles do not count and
do not wait: answers to requests above all, for a client that processes its one message may wait for such an answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from crewel.bayeux.channel import REPLIES

if TYPE_CHECKING:
    from crewel.delivery.batches import Batches
    from crewel.delivery.dispatcher import Dispatcher
    from crewel.delivery.entry import Entry

_ANSWERS: Final = (REPLIES, "/meta/", "/service/")


class OpenLimit:
    """The limit of one session: `most` messages, 1 or more."""

    __slots__ = ("_dispatcher", "has_passing", "most")

    def __init__(self, most: int, dispatcher: Dispatcher) -> None:
        self.most = most
        self._dispatcher = dispatcher
        self.has_passing = False
        """Whether the queue has something that leaves although the limit is reached."""

    def room(self, batches: Batches) -> int:
        """How many messages more the client may get."""
        messages = self._dispatcher.messages
        if not self._dispatcher.rules.tells:
            # What is to be sent again is the front of the queue, and takes its place when it leaves.
            opened = 0 if batches.must_resend else self._count(batches.unacknowledged)
        elif len(messages.opened) < self.most:
            opened = len(messages.opened)
        else:
            opened = self._count(messages.entries)
        return max(self.most - opened, 0)

    def lets_some_leave(self, queue: list[Entry], batches: Batches) -> bool:
        """Whether something of this queue may leave now."""
        return bool(queue) and (self.has_passing or batches.must_resend or self.room(batches) > 0)

    def leaving(self, queue: list[Entry], batches: Batches) -> list[Entry]:
        """The entries of this queue that may leave now, in their order."""
        room = self.room(batches)
        if not (self.has_passing or batches.must_resend):
            return queue[:room]
        leaving = []
        for entry in queue:
            if not self._passes(entry):
                if not room:
                    continue
                room -= 1
            leaving.append(entry)
        return leaving

    def queued(self, entry: Entry) -> None:
        """The entry waits now too."""
        self.has_passing = self.has_passing or self._passes(entry)

    def left(self, entries: Iterable[Entry]) -> None:
        """Of the entries that stay in the queue, only these may leave in spite of the limit."""
        self.has_passing = any(map(self._passes, entries))

    def _passes(self, entry: Entry) -> bool:
        """Whether the entry leaves whatever the limit: because it is open already, or is never open."""
        opened = self._dispatcher.messages.opened
        return not self._counts(entry) or (entry.origin is not None and entry.origin.id in opened)

    def _count(self, entries: Iterable[Entry]) -> int:
        return sum(map(self._counts, entries))

    def _counts(self, entry: Entry) -> bool:
        """Whether the entry, once sent, is open until its client settles it."""
        if entry.is_oneway or (self._dispatcher.rules.tells and entry.origin is None):
            return False
        return bool(entry.position or entry.to) or not entry.channel.startswith(_ANSWERS)
