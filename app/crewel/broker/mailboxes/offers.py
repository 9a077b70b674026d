"""What a mailbox answers at each delivery, as numbers: what happened to an offer, and whether something may leave."""

from typing import Final

from crewel.delivery.records import LogId

NOT_OF_INBOX: Final = LogId(0)
"""What is offered does not come past the log."""
UNSTORED: Final[tuple[int, ...]] = ()
"""In place of what is evicted: the store does not have the session."""
UNSURE: Final = -3
"""Nothing has been done: to be certain that there is room takes a closer look."""
OVERFULL: Final = -2
"""There is no room, and the session has to end."""
ENDED: Final = -1
"""There is no room, and the message has ended."""
KEPT: Final = 0
"""It waits, and need not or must not leave at once."""
READY: Final = 1
"""It waits, and something may leave."""
EVICTED: Final = 2
"""It waits in the store only: behind others there, or because nothing is sent."""

NOTHING: Final = 0
"""No message is in memory and waits."""
WAITS: Final = 1
"""Some do, and must not leave or need not: it is paused, at the limit of its client, or all may wait a while."""
LEAVES: Final = 2
"""Something may leave."""
