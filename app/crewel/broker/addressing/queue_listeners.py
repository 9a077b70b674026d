"""What queues and groups report to the parts above them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from crewel.delivery.records import PendingDeadLetter


class LettersListener(Protocol):
    """Gets the dead letters that are made."""

    def letters_stored(self, letters: Iterable[PendingDeadLetter], dead_ids: Sequence[str]) -> None:
        """The store has these since just now: of some that it made itself there is only the id."""


class AddressingListener(LettersListener, Protocol):
    """Gets what happens to groups and their queues."""

    def new_member(self, queue: str) -> None:
        """The group with this queue has a new member."""
