"""A world with a real store behind its broker, and clients that are told the origin of their messages.

Its clock is the controlled one: what the store is asked takes no time at all, for `settle` waits until it has answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import orjson

from crewel.bayeux.message import Fields
from crewel.broker.exchange import Peer
from crewel.broker.session import Session
from crewel.delivery.records import LogId
from crewel.extension import Extension
from crewel.extensions.ack import AckExtension
from crewel.extensions.update import UpdateExtension
from crewel.storage import dead_letter_store
from crewel.storage.dead_letter_records import DeadLetterFilter, StoredDeadLetter
from crewel.storage.store import Store
from tests.broker.world import Client, Recording, Request, Socket, World
from tests.store_process import own_prefix, shared_store

T = TypeVar("T")
COMMIT_S = 0.2
MESSAGE: dict[str, Any] = {"name": "joe/1", "settle": "message"}
"""Options of a session whose client settles each message by itself."""


class StoredWorld(World):
    """One server; `again` and `crash` answer its successor."""

    def __init__(self, *sets: str, prefix: str = "", extensions: Iterable[Extension] | None = None) -> None:
        self.sets = sets
        self.prefix = prefix or own_prefix()
        # A lease would have to be waited for, and time stands still: a successor takes the store.
        where = (f"storage.url={shared_store().url}", f"storage.prefix={self.prefix}", "storage.take_over=true")
        super().__init__(*where, *sets, extensions=extensions or (UpdateExtension(), AckExtension()))
        self.store = Store(self.broker.settings)
        self.wait(self.store.open())
        self.access = self.broker.runtime.access
        self.durability = self.wait(self.broker.make_durable(self.store))
        self.is_closed = False
        self._has_left = False

    def wait(self, awaitable: Awaitable[T]) -> T:
        """The result of something that the store has to say something about. Time stands still meanwhile."""

        async def waited() -> T:
            return await awaitable

        return self.loop.run_until_complete(waited())

    def settle(self) -> None:
        """Let everything happen that can, the store's answers included."""
        super().settle()
        while not self._has_left and (busy := self._busy()):
            self.loop.run_until_complete(_any(busy))
            super().settle()

    def _busy(self) -> list[asyncio.Future[Any]]:
        writing = self.access.writing.under_way
        return [*self.durability.backlog.running.values(), *([writing] if writing is not None else [])]

    def advance(self, seconds: float) -> None:
        end = self.loop.time() + seconds
        while (timers := self.loop._scheduled) and timers[0].when() <= end:  # type: ignore[attr-defined]
            super().advance(max(timers[0].when() - self.loop.time(), 0.0))
            self.wait(self.store.reader.ping())  # what was read has been answered before: no time passes for that
            self.settle()
        super().advance(end - self.loop.time())
        self.settle()

    def commit(self) -> None:
        """Let the store hear of everything so far."""
        for _ in range(3):
            self.advance(COMMIT_S)

    def receive(self, peer: Peer, *elements: Any) -> None:
        super().receive(peer, *elements)
        self.settle()

    # What lies in the store

    def letters(self) -> list[StoredDeadLetter]:
        """All dead letters, oldest first."""
        self.commit()
        return self.wait(dead_letter_store.page(self.store, DeadLetterFilter(), count=1000)).letters

    def record(self, session: Session) -> dict[str, str]:
        """The session's record, as it lies in the store."""
        self.commit()
        assert session.durable is not None
        found: Any = self.wait(self.store.reader.hgetall(self.store.keys.session(session.durable.name)))
        return {name.decode(): value.decode() for name, value in found.items()}

    def inbox(self, session: Session) -> list[LogId]:
        """What lies in the session's inbox."""
        self.commit()
        assert session.durable is not None
        found: Any = self.wait(self.store.reader.hkeys(self.store.keys.inbox(session.durable.name)))
        return sorted(LogId(int(each)) for each in found)

    def ended(self) -> list[tuple[str, str, int]]:
        """How messages ended by the facts: session, reason, id."""
        self.commit()
        found: Any = self.wait(self.store.reader.xrange(self.store.keys.facts))
        told = [orjson.loads(fields[b"d"]) for _, fields in found if fields[b"t"] == b"ended"]
        return [
            (each["session"], each["reason"], log_id)
            for fact in told
            for each in fact["ended"]
            for log_id in each["ids"]
        ]

    # The end

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.broker.drain()
            self.wait(self.durability.close())
            self._leave()

    def _leave(self) -> None:
        self.wait(self.broker.close())
        self.wait(self.store.close())
        self._has_left = True
        super().settle()
        self.loop.close()

    def crash(self) -> None:
        """End without a word to the store."""
        self.is_closed = True
        self._leave()


MakeStored = Callable[..., StoredWorld]


async def _any(futures: list[asyncio.Future[Any]]) -> None:
    """Wait until one of them is done: in real time, for the loop's stands still."""
    done = asyncio.get_running_loop().create_future()
    for each in futures:
        each.add_done_callback(lambda _: done.done() or done.set_result(None))
    await done


class Receiver(Client):
    """A client with the acknowledge extension that is told the origin of its messages."""

    world: StoredWorld

    def __init__(self, world: World, socket: Socket | None = None, browser: str | None = None) -> None:
        super().__init__(world, socket, browser)
        self.ack: int | None = None
        self.login: dict[str, Any] = {}

    def send(self, *messages: Fields) -> Recording:
        peer = super().send(*messages)
        if peer.mints_cookie:
            self.browser = peer.browser
        return peer

    def started(self, *channels: str, **session: Any) -> Receiver:
        """Shake hands, connect, subscribe."""
        reply = self.handshake(ext={"ack": True, "session": {"update": True, **session}})
        assert reply["successful"], reply
        self.login = reply["ext"]["session"]
        self.take()
        self.subscribe(*channels)
        return self

    def taking_over(self, other: Receiver, **session: Any) -> Receiver:
        """Shake hands as the client that goes on with the other one's session."""
        asked = {"update": True, "settle": "message", "resume": other.login["resume"], **session}
        reply = self.handshake(ext={"ack": True, "session": asked})
        assert reply["successful"], reply
        self.login = reply["ext"]["session"]
        return self

    def reconnect(self, *statuses: Fields, **fields: Any) -> Request:
        """Send a connect that acknowledges what came; it may be held."""
        ext: dict[str, Any] = {"ack": self.ack}
        if statuses:
            ext["update"] = list(statuses)
        return self.connect(ext=ext, **fields)

    def heard(self, request: Request) -> list[Fields]:
        """The deliveries of a response; the next connect acknowledges them."""
        reply = next(each for each in request.answer if each["channel"] == "/meta/connect")
        if reply["successful"]:
            self.ack = reply["ext"]["ack"]
        return [each for each in request.answer if "data" in each]

    def take(self, *statuses: Fields) -> list[Fields]:
        """Connect, do not wait, and return what came."""
        return self.heard(self.reconnect(*statuses, advice={"timeout": 0}))

    def tell(self, *statuses: Any) -> Fields:
        """Say something of messages beside a connect."""
        return self.say("/service/update", data=list(statuses))


def store(world: StoredWorld, channel: str, *values: Any) -> list[str]:
    """Publish these, stored; their ids."""
    return [world.wait(world.broker.publish_stored(channel, value)) for value in values]


def origin(message: Fields) -> dict[str, Any]:
    """What a delivery tells of its message."""
    told: dict[str, Any] = message["ext"]["update"]
    return told


def data(messages: Iterable[Fields]) -> list[Any]:
    return [each["data"] for each in messages]


def ok(message: Fields) -> Fields:
    return {"id": origin(message)["id"], "state": "OK"}


def failed(message: Fields, code: str, words: str = "why") -> Fields:
    return {"id": origin(message)["id"], "errorCode": code, "message": words}
