"""Events that can be replayed by their numbers, in the form of Salesforce's Streaming API.

The server half of the pair whose other halves are the replay extensions of Salesforce's clients. It answers `ext.replay` of a
handshake; what a subscribe asks for in it (`{"/topic/x": -1 | -2 | number}`), and the numbers themselves, are the work of
`broker.subscriptions.options`, on channels whose rule says `replay = true`.
"""

from __future__ import annotations

from time import time

from crewel.bayeux.message import Fields, Message
from crewel.broker.broker import Broker
from crewel.broker.session import Session
from crewel.broker.subscriptions.replay_numbers import Numbers
from crewel.extension import Extension

HANDSHAKE = "/meta/handshake"


class ReplayExtension(Extension):
    """Lets clients ask for events by their numbers."""

    name = field = "replay"
    meta_channels = frozenset((HANDSHAKE,))

    def installed(self, broker: Broker) -> None:
        """Begin to number events."""
        broker.subscriptions.options.numbers = Numbers(time)

    def send_meta(self, session: Session | None, reply: Fields, message: Message) -> bool:
        """Tell the client that it may ask for numbers; those of Salesforce do so only then."""
        if reply["successful"] and message.ext["replay"] is not False:
            reply.setdefault("ext", {}).update({"replay": True, "payload.format": True})
        return True
