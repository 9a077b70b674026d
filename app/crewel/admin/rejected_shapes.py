"""Whether the messages that a receiver rejects have other fields than those that were acknowledged last of their channel.

The server has both anyway: the data of dead letters, and by sample the shape of what was acknowledged. It has no values of the
latter, so that a value which decides is found by the report of the pipeline alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from crewel.admin.receiver_condition import things
from crewel.storage import dead_letter_store
from crewel.storage.data_shape import shape_of
from crewel.storage.dead_letter_records import DeadLetterFilter

if TYPE_CHECKING:
    from crewel.admin.server_view import ServerView

_NEWEST: Final = 50
"""Dead letters that are looked at."""
LEAST: Final = 3
"""Fewer of one shape say nothing."""


def other_shape(rejected: Iterable[tuple[str, str]], last_of: Callable[[str], str | None]) -> str:
    """What tells the rejected messages, pairs of channel and shape, from what was acknowledged last of their channel, whose
    shape `last_of` returns; empty if nothing does."""
    for (channel, shape), count in Counter(rejected).most_common():
        last = last_of(channel)
        if count >= LEAST and last is not None and last != shape:
            had = f"{things(count, 'rejected message')} of {channel} have the data {shape}"
            return f"{had}; what was acknowledged last there had {last}"
    return ""


async def rejected_shape(admin: ServerView, name: str, since_ms: int) -> str:
    """What tells the newest messages that this receiver has rejected since this time from those that were acknowledged; empty
    if nothing does. Raises StoreError."""
    wanted = DeadLetterFilter(receiver=name, since_ms=since_ms)
    page = await dead_letter_store.page(admin.store, wanted, count=_NEWEST, newest_first=True)
    found = [(each.channel, shape_of(each.body)) for each in page.letters]
    return other_shape(found, admin.events.last_shape)
