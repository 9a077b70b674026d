"""What the mailboxes of a server report, and ask of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from crewel.broker.mailboxes.backlog import Backlog
    from crewel.delivery.dispatcher import FailedDelivery
    from crewel.delivery.durable_session import DurableSession
    from crewel.delivery.entry import Entry
    from crewel.delivery.records import EndReason, NoLetter, Transient
    from crewel.qos.connect import Bounds, OverflowPolicy
    from crewel.settings.server_settings import Bayeux


class Occasion(NamedTuple):
    """At which a mailbox looks at the statuses of its messages."""

    receiver: str
    """The name of its session."""
    now: float
    """Loop time (s)."""
    now_ms: int
    """Milliseconds since 1970."""
    goes_elsewhere: Callable[[FailedDelivery], bool]
    """Whether another session gets a message that this one has failed; it has no attempts if this one would try again."""


class MailboxListener(Protocol):
    """One listener serves all mailboxes of a server."""

    bayeux: Bayeux
    """The settings that say how many messages wait where a login says nothing."""
    bounds: Bounds
    """What may wait where it says nothing."""
    backlog: Backlog
    """The messages in all queues."""

    def has_changed(self, durable: DurableSession) -> None:
        """The next commit has to look at this session."""

    def acknowledged(self, durable: DurableSession, entries: list[Entry]) -> None:
        """The client has acknowledged these, some of which the store has; they have ended."""

    def transients_ended(self, reason: EndReason, count: int) -> None:
        """So many messages that the store does not have ended in this way, of a session that acknowledges."""

    def left_no_letter(self, why: NoLetter) -> None:
        """A message was dropped, and has no dead letter."""

    def resent(self, name: str, count: int, *, is_busy: bool) -> None:
        """So many messages leave again; `name` is the session's if the store has it, else empty. `is_busy`: its client did not
        lack them."""

    def overflowed(self, policy: OverflowPolicy, name: str) -> None:
        """A queue was full, and its policy was applied; `name` is the session's if the store has it, else empty."""

    def charged(self, durable: DurableSession) -> str:
        """A dead letter of a full queue is charged to the accounts of this session: why the session has to end, or an empty
        text."""

    @property
    def letters_for_anonymous(self) -> bool:
        """Whether sessions without a name leave dead letters."""

    def now(self) -> int:
        """Microseconds since 1970."""

    def share(self, most: int) -> int:
        """The bytes that one queue may have whose own limit is `most`: less, if all together have too much."""

    def as_transient(self, entry: Entry) -> Transient:
        """A message that the store does not have, as the record of its dead letter holds it."""

    def lazy_until(self) -> float:
        """The loop time (s) up to which a lazy message that comes now may wait; 0: none waits."""
