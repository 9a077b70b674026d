"""The subscriptions of one broker that ask for more than a channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crewel.bayeux.channel import Channel
from crewel.bayeux.message import Fields
from crewel.broker.sessions import Session
from crewel.broker.subscribing.choice import Heard
from crewel.delivery.entry import Entry

if TYPE_CHECKING:
    from crewel.broker.broker import Broker

__all__ = ["Subscribing"]


class Subscribing:
    """Knows which sessions choose among the messages of their channels."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.choosing: set[Session] = set()
        """The sessions that do not want every message: all others need not be asked about."""

    def hears(self, session: Session, channel: Channel, entry: Entry, sender: str, qos: bytes) -> Heard:
        """How the message, which was published by `sender` with these qualities, reaches the session."""
        return Heard.YES

    def is_local(self, session: Session, channel: Channel) -> bool:
        """Whether the session hears what it publishes on this channel itself, as far as its subscriptions say."""
        return True

    def number(self, channel: Channel, fields: Fields) -> None:
        """Give a message of a topic that can be replayed its number."""

    def forget(self, session: Session) -> None:
        """The session has ended, or is set aside."""
