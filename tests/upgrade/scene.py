"""What a store holds that an earlier release has written: one of everything that survives a restart."""

from __future__ import annotations

from typing import Any, Final

from tests.admin.desk import SETS, STORED, Desk, Receiver
from tests.functional.bayeux import Client
from tests.functional.test_groups_across_nodes import member
from tests.functional.wire import until
from tests.server_process import Server

_LONG_MS: Final = 3_000_000_000_000
"""Sessions live for 95 years: the store waits in the repository until a later version opens it."""
KEPT: Final = (
    *SETS,
    "storage.url=",
    "storage.prefix=crewel:",
    'topics={"/upgrade/work":{"groups":{"keep":["g"]}}}',
    f"delivery.discarded_kept_ms={_LONG_MS}",
)
"""The settings of the server that writes and of the one that reads."""


def write(server: Server) -> None:
    """Bring all this about, and leave without a goodbye."""
    _sessions(server)
    _topics(server)
    _dots(server)
    _dead_letters(server)


def _receiver(server: Server, name: str, *channels: str) -> Receiver:
    receiver = Receiver(server).be(name, timeout=_LONG_MS)
    for channel in channels:
        receiver.subscribe(channel)
    return receiver


def _publish(server: Server, channel: str, value: Any, **qos: Any) -> None:
    client = Client(server).start()
    (reply,) = client.publish(channel, value, ext={"publish": {**STORED["publish"], **qos}})
    assert reply["successful"], reply


def _sessions(server: Server) -> None:
    """A queue with priorities, of which one message was sent and not acknowledged; one on hold; one for a user who is away."""
    ann = _receiver(server, "client/ann/1", "/upgrade/orders")
    _publish(server, "/upgrade/orders", "sent")
    assert len(ann.take(timeout=5000)) == 1
    for value, priority in (("low", 1), ("high", 9), ("middle", 5)):
        _publish(server, "/upgrade/orders", value, priority=priority)
    _receiver(server, "client/held/1", "/upgrade/held")
    Desk(server).post("/sessions/held/1/hold")
    _publish(server, "/upgrade/held", {"deep": [1, None, "ü"]}, clientProperties={"colour": "red"})
    carol = [{"to": "client/carol", "forceQueuing": True}]
    _publish(server, "/upgrade/letter", "for carol", destination=carol, subscribable=False)


def _topics(server: Server) -> None:
    """A history, a read-only topic, and a group whose last member has gone."""
    for number in range(4):
        _publish(server, "/upgrade/prices", number, history={"maxEntries": 3})
    _publish(server, "/upgrade/fixed", "once", readonly=True)
    worker = member(server, "client/worker/1", "/upgrade/work")
    worker.disconnect()
    _publish(server, "/upgrade/work", "job")


def _dots(server: Server) -> None:
    """A queue, a history and a dead letter of channels that clients cannot name any more."""
    dora = _receiver(server, "client/d.ora/1", "/upgrade/./dots", "/upgrade/../bills")
    _publish(server, "/upgrade/../bills", "dotted bill", lifeTime=_LONG_MS)
    dora.reject(dora.take(timeout=5000), "user.update.illegalArgument", "no address")
    until(lambda: len(Desk(server).letters()) == 1)
    _publish(server, "/upgrade/./dots", "dotted", history={"maxEntries": 3})


def _dead_letters(server: Server) -> None:
    """One that is there, and one that was discarded and may be restored."""
    bob, desk = _receiver(server, "client/bob/1", "/upgrade/bills"), Desk(server)
    for bill in ("discarded bill", "bill"):
        _publish(server, "/upgrade/bills", bill, lifeTime=_LONG_MS)
        bob.reject(bob.take(timeout=5000), "user.update.illegalArgument", "no address")
        until(lambda: len(desk.letters()) == 2)
        if bill == "discarded bill":
            (letter,) = desk.letters("receiver=client/bob/1")
            assert desk.post("/dead-letters/discard", {"ids": [letter["id"]]})["discarded"] == 1
