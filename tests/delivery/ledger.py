"""The ledger of a random run: what was pending for whom, by what the store has done, and how it ended.

It looks at the store's steps only, so it knows nothing of what a server believes. `Broken` says in one sentence which
promise did not hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Protocol

from crewel.delivery.records import Change, Disposition, EndReason, LogId, PendingDeadLetter, SessionName, SessionRecord

MATCHING = {"/a": ("/a", "/*"), "/b": ("/b", "/*"), "/c": ("/c", "/*")}
"""The patterns of each channel."""


class Broken(AssertionError):
    """A promise that did not hold."""


class Stored(Protocol):
    """What the ledger wants to see of a store."""

    def take_notes(self) -> tuple[list[Disposition], list[PendingDeadLetter]]: ...
    def sessions(self) -> dict[SessionName, tuple[str, SessionRecord]]: ...
    def cursor(self, token: str) -> LogId: ...
    def has_body(self, name: SessionName, log_id: LogId) -> bool: ...


class Account:
    """What is pending for one session."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        """Patterns that it is subscribed to in the store."""
        self.waiting: set[LogId] = set()
        """Published while it was subscribed, and not ended."""
        self.ended: dict[LogId, EndReason] = {}
        self.batch = 0
        """The highest batch number that may have been used."""


class Ledger:
    """All accounts of the sessions that the store has."""

    def __init__(self) -> None:
        self.accounts: dict[SessionName, Account] = {}
        self.owners: dict[SessionName, str] = {}
        """The servers to which the store has given the sessions."""
        self.ends: Counter[EndReason] = Counter()

    # What happens

    def published(self, log_id: LogId, channel: str) -> None:
        for account in self.accounts.values():
            if not account.held.isdisjoint(MATCHING[channel]):
                account.waiting.add(log_id)

    def owned(self, name: SessionName, token: str, reserved: int, upto: int) -> None:
        """The store has made the session, or given it to this server, with batch numbers beyond `reserved`."""
        self.owners[name] = token
        account = self.accounts.setdefault(name, Account())
        if reserved < account.batch:
            raise Broken(f"batch {account.batch} of {name} may have been sent, and {reserved + 1} comes now")
        account.batch = upto

    def committed(self, changes: Iterable[Change], fenced: Collection[SessionName]) -> None:
        """The store has reserved these batch numbers."""
        for change in changes:
            if change.batch is not None and change.name not in fenced:
                self.accounts[change.name].batch = max(change.batch, self.accounts[change.name].batch)

    def delivered(self, name: SessionName, token: str, log_id: LogId) -> None:
        """A server has put this into the session's queue. One that was superseded may be wrong about what is pending."""
        if self.owners.get(name) != token:
            return
        account = self.accounts[name]
        if log_id in account.ended:
            raise Broken(f"{log_id} came back to {name} after it had ended as {account.ended[log_id]}")
        if log_id not in account.waiting:
            raise Broken(f"{log_id} was delivered to {name} and is not pending for it")

    def noted(self, store: Stored) -> None:
        """Book what the store's last step wrote into facts and letters."""
        self._book(*store.take_notes())

    def _book(self, ended: Iterable[Disposition], letters: Iterable[PendingDeadLetter]) -> None:
        dead = [(each.session, log_id) for each in ended if each.reason is EndReason.DEAD for log_id in each.ids]
        if sorted(dead) != sorted((letter.session, letter.id) for letter in letters):
            raise Broken(f"dead are {dead}, and the letters are {letters}")
        for each in ended:
            for log_id in each.ids:
                self._ended(each.session, log_id, each.reason)

    def _ended(self, name: SessionName, log_id: LogId, reason: EndReason) -> None:
        account = self.accounts[name]
        if log_id in account.ended:
            raise Broken(f"{log_id} ended for {name} twice, as {account.ended[log_id]} and as {reason}")
        if log_id not in account.waiting:
            raise Broken(f"{log_id} ended for {name} as {reason} and was not pending for it")
        account.waiting.remove(log_id)
        account.ended[log_id] = reason
        self.ends[reason] += 1

    def left(self, name: SessionName) -> None:
        """The session has ended in the store, now or before."""
        self.owners.pop(name, None)
        account = self.accounts.pop(name, None)
        if account is not None and (waiting := account.waiting):
            raise Broken(f"{name} has ended, and {sorted(waiting)} were pending for it")

    # What must hold at any time

    def audit(self, store: Stored) -> None:
        """The invariant of the design, section 4, on what lies in the store."""
        sessions = store.sessions()
        if sessions.keys() != self.accounts.keys():
            raise Broken(f"the store has the sessions {sorted(sessions)}, not {sorted(self.accounts)}")
        for name, (owner, record) in sessions.items():
            if owner != self.owners[name]:
                raise Broken(f"{name} belongs to {owner}, and was given to {self.owners[name]}")
            cursor = store.cursor(owner) if record.own_cursor is None else record.own_cursor
            self._audit_session(name, record, cursor, store)

    def _audit_session(self, name: SessionName, record: SessionRecord, cursor: LogId, store: Stored) -> None:
        account = self.accounts[name]
        open_ids = record.pending.keys() | record.inbox.keys()
        if crossed := open_ids - account.waiting:
            raise Broken(f"{sorted(crossed)} are open for {name} and not pending for it, or ended")
        if lost := [each for each in account.waiting - open_ids if each <= cursor]:
            raise Broken(f"{sorted(lost)} are lost for {name}: at or below the cursor, not open and not ended")
        if trimmed := [each for each in account.waiting if not store.has_body(name, each)]:
            raise Broken(f"{sorted(trimmed)} are pending for {name}, and their bodies are gone")
        if record.subscriptions.keys() != account.held:
            raise Broken(f"{name} is subscribed to {sorted(record.subscriptions)}, not {sorted(account.held)}")

    def restore(self, earlier: Ledger) -> None:
        """Go back to what was booked then: the store has lost the rest."""
        self.accounts, self.owners, self.ends = earlier.accounts, earlier.owners, earlier.ends
