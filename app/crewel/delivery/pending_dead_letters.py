"""Dead letters that the store does not have yet: those of one session, and what those of all sessions cost.

A dead letter takes the store fifty times as long as a message that was settled, and one request can make hundreds of thousands
of them. So a commit carries no more of them than the store writes in about 20 ms. If there are more they are withheld: the
store then has their messages as pending, the cursor passes them, and the dead letters follow, so many with each commit. If the
server dies before, the messages are delivered, and not lost.
"""

from __future__ import annotations

from typing import Final

from crewel.delivery.records import LogId, PendingDeadLetter, PendingMessage

Payers = tuple[str, ...]
"""The names of the accounts that dead letters are charged to."""

MAX_DEAD_LETTER_COST: Final = 400
"""What the dead letters of one commit cost at most: they take the store some 15 to 20 ms."""
_BYTES_A_LETTER: Final = 2048
"""Bytes of a body that the store copies in the time that a dead letter takes it otherwise, about."""


class Debt:
    """What pending dead letters cost that are charged to the same account, or to none."""

    __slots__ = ("by_channel", "size")

    def __init__(self) -> None:
        self.by_channel: dict[str, int] = {}
        """By the channel of their messages; channels without any are left out."""
        self.size = 0
        """All of them."""

    def add(self, channel: str, cost: int) -> None:
        """One more is pending."""
        self.size += cost
        self.by_channel[channel] = self.by_channel.get(channel, 0) + cost

    def remove(self, channel: str, cost: int) -> None:
        """One that was pending is stored, or another server's."""
        self.size -= cost
        left = self.by_channel[channel] - cost
        if left:
            self.by_channel[channel] = left
        else:
            del self.by_channel[channel]


class DeadLetterBacklog:
    """What the pending dead letters of all sessions cost, and the accounts of their receivers, which they are charged to.
    Publishers of these accounts wait until they are stored, and all publishers for those that no account pays for."""

    __slots__ = ("by_payer", "shared", "size")

    def __init__(self) -> None:
        self.size = 0
        """All of them, each once."""
        self.shared = Debt()
        """Those that no account pays for."""
        self.by_payer: dict[str, Debt] = {}
        """The others by account; each may have several. Accounts without any are left out."""

    def add(self, channel: str, cost: int, payers: Payers = ()) -> None:
        """One more is pending."""
        self.size += cost
        if not payers:
            self.shared.add(channel, cost)
        for payer in payers:
            debt = self.by_payer.get(payer)
            if debt is None:
                debt = self.by_payer[payer] = Debt()
            debt.add(channel, cost)

    def remove(self, channel: str, cost: int, payers: Payers = ()) -> None:
        """One that was pending is stored, or another server's."""
        self.size -= cost
        if not payers:
            self.shared.remove(channel, cost)
        for payer in payers:
            debt = self.by_payer[payer]
            debt.remove(channel, cost)
            if not debt.size:
                del self.by_payer[payer]

    def most(self, payers: Payers) -> int:
        """The largest cost that is pending for one of these accounts; of none: what no account pays for."""
        if not payers:
            return self.shared.size
        return max(debt.size if (debt := self.by_payer.get(payer)) is not None else 0 for payer in payers)


class PendingDeadLetters:
    """The dead letters of one session in the order in which they were made: first those that are withheld, then those that
    the next commit stores."""

    __slots__ = ("_backlog", "_letters", "_messages", "_payers", "_withheld", "cost", "first_needed", "spent")

    def __init__(self, backlog: DeadLetterBacklog | None = None, payers: Payers = ()) -> None:
        """`backlog` counts them for these accounts, as long as they are here."""
        self._payers = payers
        self._backlog = DeadLetterBacklog() if backlog is None else backlog
        self._letters: list[PendingDeadLetter] = []
        self._messages: list[PendingMessage] = []  # what was known of their messages, in the same order
        self._withheld = 0  # how many of the first are withheld
        self.cost = 0
        """What it costs the store to write those that are stored next: one for each, and more for a long body."""
        self.spent = 0
        """What those took of `most` that `take` has returned last."""
        self.first_needed: LogId | None = None
        """The first entry of the log that these dead letters are copied from; None if they need nothing there."""

    def __bool__(self) -> bool:
        return bool(self._letters)

    @property
    def due(self) -> int:
        """How many of them the next commit stores."""
        return len(self._letters) - self._withheld

    @property
    def withheld(self) -> int:
        """How many of them are withheld."""
        return self._withheld

    @property
    def withheld_messages(self) -> dict[LogId, PendingMessage]:
        """The messages of dead letters that are withheld: they count as pending."""
        withheld = zip(self._letters[: self._withheld], self._messages, strict=False)
        return {letter.id: pending for letter, pending in withheld if letter.message is None}

    @property
    def unstored(self) -> list[PendingDeadLetter]:
        """Those of messages that were never stored."""
        return [letter for letter in self._letters if letter.message is not None]

    def add(self, letter: PendingDeadLetter, pending: PendingMessage) -> None:
        """This dead letter is to be stored. `pending` is what was known of its message."""
        self._append(letter, pending)
        self._backlog.add(pending.channel, cost_of(pending), self._payers)

    def _append(self, letter: PendingDeadLetter, pending: PendingMessage) -> None:
        if letter.message is None and (self.first_needed is None or letter.id < self.first_needed):
            self.first_needed = letter.id
        self.cost += cost_of(pending)
        self._letters.append(letter)
        self._messages.append(pending)

    def withhold(self) -> None:
        """Store all that there are later, some at a time."""
        self._withheld, self.cost = len(self._letters), 0

    def detach(self) -> None:
        """The session is another server's, or ends: its dead letters are no part of the backlog any more."""
        self._uncount(self._messages)
        self._backlog = DeadLetterBacklog()
        for pending in self._messages:
            self._backlog.add(pending.channel, cost_of(pending), self._payers)

    def take(self, through: LogId | None, most: int = 0) -> list[PendingDeadLetter]:
        """Return those that are stored next, of messages up to `through`, and the oldest that are withheld, at a cost of `most`
        or a little more. None: all there are."""
        if through is None:
            taken, self._letters, self._withheld = self._letters, [], 0
            self._uncount(self._messages)
            self._messages = []
            return taken
        count = self.spent = 0
        while count < self._withheld and self.spent < most and self._letters[count].id <= through:
            self.spent += cost_of(self._messages[count])
            count += 1
        self._uncount(self._messages[:count])
        taken, letters, messages = (
            self._letters[:count],
            self._letters[self._withheld :],
            self._messages[self._withheld :],
        )
        self._letters, self._messages = self._letters[count : self._withheld], self._messages[count : self._withheld]
        self._withheld -= count
        self.cost = 0
        # In a steady flood some are always withheld: the log must be trimmed up to the first of them all the same.
        self.first_needed = min((each.id for each in self._letters if each.message is None), default=None)
        for letter, pending in zip(letters, messages, strict=True):
            if letter.id <= through:
                taken.append(letter)
                self._backlog.remove(pending.channel, cost_of(pending), self._payers)
            else:
                self._append(letter, pending)
        return taken

    def _uncount(self, messages: list[PendingMessage]) -> None:
        for pending in messages:
            self._backlog.remove(pending.channel, cost_of(pending), self._payers)


def cost_of(pending: PendingMessage) -> int:
    """What it costs the store to write the dead letter of this message."""
    return 1 + pending.size // _BYTES_A_LETTER
