"""What the client of one session was sent: a record for each message that is open there, or waits again after that.

A message without a record was not sent to this client yet. So none pays for a record that is delivered without statuses.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final, NamedTuple

import orjson

from crewel.delivery.entry import Entry
from crewel.delivery.records import LogId

MOST: Final = 20
"""Attempts at one message that are kept: the newest."""
_NOT_HERE: Final = Entry.placeholder(LogId(0))


class FailedAttempt(NamedTuple):
    """One attempt that failed."""

    at: int
    """When it was known: milliseconds since 1970."""
    code: str
    reason: str


class SentMessage:
    """What is known of one."""

    __slots__ = ("entry", "failed", "is_unclaimed", "sent_at", "tries")

    def __init__(self, entry: Entry, sent_at: float) -> None:
        self.entry = entry
        """The message, while it is open."""
        self.sent_at = sent_at
        """Since when its status is awaited."""
        self.tries = 0
        """How often it may have been sent before."""
        self.is_unclaimed = False
        """Whether no listener of the client takes it. Acknowledging its batch does not end it. When its time limit passes, it
        is sent again, and that is no failure: the client has reported it."""
        self.failed: tuple[FailedAttempt, ...] = ()


class SentMessages:
    """Those of one session, by id."""

    __slots__ = ("opened", "unclaimed", "waiting")

    def __init__(self) -> None:
        self.opened: dict[str, SentMessage] = {}
        """What the client has got and not settled, in the order of sending or of its last word."""
        self.waiting: dict[str, SentMessage] = {}
        """Messages that were sent and wait again."""
        self.unclaimed = 0
        """How many open messages no listener of the client takes."""

    @property
    def entries(self) -> list[Entry]:
        """The open messages, in the order of sending or of the last word."""
        return [each.entry for each in self.opened.values()]

    def of(self, message_id: str) -> SentMessage | None:
        """What is known of this message, open or not."""
        return self.opened.get(message_id) or self.waiting.get(message_id)

    def times_sent(self, message_id: str) -> int:
        """How often the message may have been sent by this server."""
        known = self.of(message_id)
        return 0 if known is None else known.tries + (message_id in self.opened)

    def failed(self, message_id: str) -> str:
        """The attempts at the message that have failed, as the store keeps them: a JSON list of `at`, `code` and `reason`;
        empty if none is known."""
        known = self.of(message_id)
        return (
            ""
            if known is None or not known.failed
            else orjson.dumps([each._asdict() for each in known.failed]).decode()
        )

    def beside(self, entries: Iterable[Entry]) -> int:
        """How many messages are open that are none of these."""
        return len(self.opened.keys() - map(id_of, entries))

    # What moves them

    def send(self, entry: Entry, now: float) -> int:
        """The message leaves; returns how often it may have been sent before."""
        assert entry.origin is not None
        message_id = entry.origin.id
        known = self.opened.pop(message_id, None)
        if known is not None:  # no reply has confirmed it
            known.tries += 1
            self._claim(known)
        elif not self.waiting or (known := self.waiting.pop(message_id, None)) is None:
            self.opened[message_id] = SentMessage(entry, now)
            return 0
        known.entry, known.sent_at = entry, now
        self.opened[message_id] = known
        return known.tries

    def hear(self, message_id: str, now: float, *, is_unclaimed: bool) -> bool:
        """The client has said of an open message that it has it, or that no listener takes it; its wait begins again. Whether
        it says the latter for the first time."""
        known = self.opened[message_id] = self.opened.pop(message_id)
        known.sent_at = now
        is_news = is_unclaimed and not known.is_unclaimed
        self._claim(known)
        known.is_unclaimed = is_unclaimed
        self.unclaimed += is_unclaimed
        return is_news

    def close(self, message_id: str) -> Entry | None:
        """The message has ended. Returns it if it was open."""
        known = self.opened.pop(message_id, None)
        if known is None:
            self.waiting.pop(message_id, None)
            return None
        if known.is_unclaimed:
            self._claim(known)
        return known.entry

    def put_back(self, message_id: str, attempt: FailedAttempt | None = None) -> Entry:
        """The open message waits again, because this attempt has failed or another client continues."""
        known = self.waiting[message_id] = self.opened.pop(message_id)
        if attempt is not None:
            known.failed = (*known.failed, attempt)[-MOST:]
        self._claim(known)
        known.tries += 1
        entry, known.entry = known.entry, _NOT_HERE  # its body need not stay in memory
        return entry

    def put_all_back(self) -> list[Entry]:
        """All that is open waits again: another client continues, which has received nothing."""
        return [self.put_back(message_id) for message_id in list(self.opened)]

    def drop_body(self) -> None:
        """The client is away: keep of what is stored no more than its place, and let no wait for a status run out."""
        for known in self.opened.values():
            known.entry, known.sent_at = known.entry.drop_body(), inf

    def restart_wait(self, now: float) -> None:
        """The client is there again, and has time to report the statuses of its messages."""
        for known in self.opened.values():
            known.sent_at = now

    def _claim(self, known: SentMessage) -> None:
        self.unclaimed -= known.is_unclaimed
        known.is_unclaimed = False


def id_of(entry: Entry) -> str:
    """What the client calls the message. Memory may have no more of a stored one than its place."""
    return str(entry.position) if entry.origin is None else entry.origin.id
