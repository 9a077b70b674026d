"""A clerk who publishes to people by name, in a world with a real store; and a ledger of what has become of each message."""

from __future__ import annotations

from collections import Counter
from typing import Any

from crewel.bayeux.message import Fields
from crewel.delivery.records import EndReason
from tests.broker.stored_world import Receiver, StoredWorld, ok, origin
from tests.broker.world import Client, Recording, reply_to

BOX = "/service/post"


class Clerk(Client):
    """Publishes, and is told what became of it."""

    def __init__(self, world: StoredWorld) -> None:
        super().__init__(world)
        assert self.handshake(ext={"session": {"name": "clerk"}})["successful"]
        self.send(self.message("/meta/connect"))

    def ask(self, data: Any, *to: str | Fields, channel: str = BOX, **qos: Any) -> Fields:
        """The answer to a publish to these."""
        destinations = [each if isinstance(each, dict) else {"to": each} for each in to]
        message = self.message(channel, data=data, ext={"publish": {"destination": destinations, **qos}})
        peer: Recording = self.send(message)
        self.world.settle()
        return reply_to(peer, message["id"])

    def post(self, data: Any, *to: str | Fields, **qos: Any) -> str:
        """Publish to these, which has to be accepted; the message's id."""
        reply = self.ask(data, *to, **qos)
        assert reply["successful"], reply
        message_id: str = reply["ext"]["publish"]["id"]
        return message_id


def queue(to: str) -> Fields:
    """A destination that a message waits for."""
    return {"to": to, "forceQueuing": True}


def one(to: str, *, waits: bool = False) -> Fields:
    """A subject of whose sessions one gets the message."""
    return {"to": to, "distribute": "one", "forceQueuing": waits}


def login(world: StoredWorld, name: str, *channels: str, **session: Any) -> Receiver:
    """A session that settles each message by itself. It has not connected yet: nothing of what waits has come."""
    receiver = Receiver(world)
    reply = receiver.handshake(
        ext={"ack": True, "session": {"name": name, "update": True, "settle": "message", **session}}
    )
    assert reply["successful"], reply
    receiver.login = reply["ext"]["session"]
    receiver.subscribe(*channels)
    return receiver


def settled(receiver: Receiver, *messages: Fields) -> list[Fields]:
    """Settle these, and return what comes with the answer."""
    return receiver.take(*map(ok, messages))


def come(receiver: Receiver) -> list[Fields]:
    """What comes when the client looks, after the store has been asked."""
    receiver.world.settle()
    return [*receiver.take(), *receiver.take()]


def ids(messages: list[Fields]) -> list[str]:
    return [origin(each)["id"] for each in messages]


def letters(world: StoredWorld) -> list[tuple[str, str, str]]:
    """Receiver, code and id of each dead letter."""
    return [(each.receiver, each.code, each.id) for each in world.letters()]


def ends(world: StoredWorld) -> Counter[tuple[str, str]]:
    """How each message has ended, by id and reason, over all receivers; what went back to its queue has not."""
    return Counter((str(log_id), reason) for _, reason, log_id in world.ended() if reason != EndReason.RETURNED)
