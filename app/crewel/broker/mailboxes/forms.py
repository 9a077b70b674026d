"""Something about a session that has a form for each kind of mailbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from crewel.delivery.durable_session import DurableSession

Owner_contra = TypeVar("Owner_contra", contravariant=True)
Form_co = TypeVar("Form_co", covariant=True)


class Forms(Protocol[Owner_contra, Form_co]):
    """It is chosen by the mailbox: `Mailbox.choose`."""

    def in_memory(self, session: Owner_contra, /) -> Form_co:
        """The form for a session whose messages end with the process."""

    def in_store(self, session: Owner_contra, durable: DurableSession, /) -> Form_co:
        """The form for a session that the store has."""
