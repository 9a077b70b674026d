"""The dead letters of one session that the store does not have yet.

A letter takes the store fifty times as long as a message that was settled, and one request can make hundreds of thousands of
them. So letters can be withheld: the store then has their messages as open, the cursor passes them, and the letters follow
a few at a time. If the server dies before, the messages are delivered, and not lost.
"""

from __future__ import annotations

from typing import Final

from crewel.delivery.records import Letter, LogId, Waiting

_BYTES_A_LETTER: Final = 2048
"""Bytes of a body that the store copies in the time that a letter takes it otherwise, about."""


class Untold:
    """Letters in the order in which they were made: first those that are withheld, then those that are stored next."""

    __slots__ = ("_dead", "_letters", "_withheld", "cost", "low", "spent")

    def __init__(self) -> None:
        self._letters: list[Letter] = []
        self._dead: list[Waiting] = []  # what was known of the messages of these letters, in their order
        self._withheld = 0  # how many of the first are withheld
        self.cost = 0
        """What it costs the store to write those that are stored next: one for each, and more for a long body."""
        self.spent = 0
        """What those took of `most` that `take` has returned last."""
        self.low = LogId(0)
        """None of these letters needs anything before this id in the log; 0: none needs anything."""

    def __bool__(self) -> bool:
        return bool(self._letters)

    def __len__(self) -> int:
        """How many of them are stored next."""
        return len(self._letters) - self._withheld

    @property
    def withheld(self) -> int:
        """How many of them are withheld."""
        return self._withheld

    def add(self, letter: Letter, waiting: Waiting) -> None:
        """This letter is to be told. `waiting` is what was known of its message."""
        if letter.message is None and not 0 < self.low <= letter.id:
            self.low = letter.id
        self.cost += _cost(waiting)
        self._letters.append(letter)
        self._dead.append(waiting)

    def withhold(self) -> None:
        """Tell all that there are later, some at a time."""
        self._withheld, self.cost = len(self._letters), 0

    @property
    def kept(self) -> dict[LogId, Waiting]:
        """The messages of letters that are withheld: they count as open."""
        withheld = zip(self._letters[: self._withheld], self._dead, strict=False)
        return {letter.id: waiting for letter, waiting in withheld if letter.message is None}

    def take(self, through: LogId | None, most: int = 0) -> list[Letter]:
        """Return those that are stored next, of messages up to `through`, and the oldest that are withheld, at a cost of `most`
        or a little more. None: all there are."""
        if through is None:
            taken, self._letters, self._dead, self._withheld = self._letters, [], [], 0
            return taken
        count = self.spent = 0
        while count < self._withheld and self.spent < most and self._letters[count].id <= through:
            self.spent += _cost(self._dead[count])
            count += 1
        taken, letters, dead = self._letters[:count], self._letters[self._withheld :], self._dead[self._withheld :]
        self._letters, self._dead = self._letters[count : self._withheld], self._dead[count : self._withheld]
        self._withheld -= count
        self.cost = 0
        for letter, waiting in zip(letters, dead, strict=True):
            if letter.id <= through:
                taken.append(letter)
            else:
                self.add(letter, waiting)
        return taken


def _cost(waiting: Waiting) -> int:
    return 1 + waiting.size // _BYTES_A_LETTER
