"""Groups of consumers: each message goes to one member only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from crewel.bayeux.channel import Channel

if TYPE_CHECKING:
    from crewel.broker.broker import Broker

__all__ = ["Groups"]


class Groups:
    """The groups of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def on(self, channel: Channel) -> tuple[str, ...]:
        """The shared queues of the groups that hear this channel."""
        return ()

    def filled(self, queues: Iterable[str]) -> None:
        """The store has put a message into these queues."""
