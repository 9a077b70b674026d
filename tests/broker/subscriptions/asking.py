"""Sessions of each kind that subscribe with all that can be asked for, and topics that keep what is published."""

from __future__ import annotations

from typing import Any

from crewel.bayeux.message import Fields
from tests.broker.stored_world import Receiver, StoredWorld
from tests.broker.world import Client

KINDS = ("plain", "ack", "update")
RULES = 'topics={"/h/**":{"history":{"max_entries":5}},"/long/**":{"history":{"max_entries":5000}}}'


def publish(world: StoredWorld, channel: str, *values: Any) -> list[str]:
    ids = [world.wait(world.broker.publish_stored(channel, value)) for value in values]
    world.settle()
    return ids


def asked(**qos: Any) -> Fields:
    return {"ext": {"subscribe": qos}}


class Asking:
    """A session without acknowledgements, and one with them: what they see of a subscription is the same."""

    def __init__(self, world: StoredWorld, kind: str) -> None:
        self.world = world
        self.client: Client
        if kind == "plain":
            self.client = Client(world).joined()
        elif kind == "ack":
            self.client = Client(world).joined(ext={"ack": True})
        else:
            self.client = Receiver(world).started()
        self.kind = kind
        self.ack = None

    def subscribe(self, channel: str | list[str], **qos: Any) -> Fields:
        """The reply; what came with it stays to be taken."""
        message = self.client.message("/meta/subscribe", subscription=channel, ext={"subscribe": qos})
        request = self.client.send(message)
        self.early = [each for each in request.received if "data" in each]
        (reply,) = [each for each in request.received if each["channel"] == "/meta/subscribe"]
        return reply

    def take(self) -> list[Fields]:
        """All that has come since the subscribe."""
        if isinstance(self.client, Receiver):
            return [*self.early, *self.client.take()]
        ext = {"ack": self.ack} if self.kind == "ack" else {}
        request = self.client.connect(ext=ext, advice={"timeout": 0})
        if self.kind == "ack":
            self.ack = next(each for each in request.answer if each["channel"] == "/meta/connect")["ext"]["ack"]
        early, self.early = self.early, []
        return [*early, *(each for each in request.answer if "data" in each)]
