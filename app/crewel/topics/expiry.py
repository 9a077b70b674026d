"""How long a message lives. Life begins when the server accepts it; times are microseconds since 1970, as log ids are, and
milliseconds where the wire has them; 0 stands for never.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from crewel.delivery.publish_qos import FOR_EVER, PublishQos

__all__ = ["MESSAGE_STATES", "MessageState", "ends_at", "leaves_history_at", "message_state"]

_US: Final = 1000  # microseconds in a millisecond


class MessageState(Enum):
    """Where a message is in its life."""

    ALIVE = "ALIVE"
    EXPIRED = "EXPIRED"
    """Its life is over. No history shows it; queues that hold it deliver it all the same."""
    DESTROYED = "DESTROYED"
    """Gone everywhere."""


MESSAGE_STATES: Final[Mapping[tuple[bool, bool, bool], MessageState]] = {
    # its life is over, force_destroy, something refers to it
    (False, False, True): MessageState.ALIVE,
    (False, True, True): MessageState.ALIVE,
    (True, False, True): MessageState.EXPIRED,
    (True, True, True): MessageState.DESTROYED,
    (False, False, False): MessageState.DESTROYED,
    (False, True, False): MessageState.DESTROYED,
    (True, False, False): MessageState.DESTROYED,
    (True, True, False): MessageState.DESTROYED,
}


def message_state(qos: PublishQos, accepted: int, now: int, *, is_referenced: bool) -> MessageState:
    """The state of a message that was accepted then; `is_referenced`: whether a history or a queue holds it."""
    ends = ends_at(qos, accepted)
    return MESSAGE_STATES[0 < ends <= now, qos.force_destroy, is_referenced]


def ends_at(qos: PublishQos, accepted: int) -> int:
    """When the life of a message is over; 0: never."""
    return 0 if qos.life_time_ms == FOR_EVER else accepted + qos.life_time_ms * _US


def leaves_history_at(qos: PublishQos, accepted: int) -> int:
    """When it goes out of its topic's history; 0: not by time, or because it never goes in."""
    return 0 if qos.is_volatile else ends_at(qos, accepted)
