"""A broker, and clients that speak to it without a network.

`Request` and `Socket` are peers that keep what they are sent; `Client` speaks as one client does, with its `clientId`, its
cookie and rising ids. What a client sends is processed at once; `World.settle` lets the held connects be answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from crewel.bayeux.message import Fields
from crewel.broker.broker import Broker
from crewel.broker.cluster import Cluster
from crewel.broker.exchange import Peer
from crewel.broker.node_tags import tag_of
from crewel.broker.services import Service
from crewel.broker.session import Session
from crewel.delivery.records import SessionName
from crewel.extension import Extension
from crewel.settings import load
from crewel.storage import nodes
from crewel.storage.keys import Keys
from crewel.storage.node_leases import Membership, Slice
from crewel.storage.script_step import Step
from crewel.storage.store import Store
from crewel.supervision import Body, Supervisor
from tests.broker.clock import ControlledLoop


class Recording(Peer):
    """What both kinds of peers do: keep each payload."""

    def __init__(self, browser: str | None = None) -> None:
        super().__init__(browser)
        self.payloads: list[list[Fields]] = []
        self.superseded = 0

    def send(self, parts: list[bytes]) -> None:
        self.payloads.append([orjson.loads(part) for part in parts])

    def supersede(self) -> None:
        self.superseded += 1

    @property
    def headers(self) -> Mapping[str, str]:
        return {"X-Test": "yes"}

    @property
    def remote(self) -> str | None:
        return "192.0.2.1"

    @property
    def is_secure(self) -> bool:
        return False

    @property
    def received(self) -> list[Fields]:
        """Every message so far, in order."""
        return [message for payload in self.payloads for message in payload]


class Request(Recording):
    """An HTTP request: answered once, or superseded."""

    transport = "long-polling"

    def send(self, parts: list[bytes]) -> None:
        assert not self.payloads, "a request is answered once"
        assert not self.superseded, "a superseded request is not answered"
        super().send(parts)

    @property
    def is_held(self) -> bool:
        return not self.payloads and not self.superseded

    @property
    def answer(self) -> list[Fields]:
        """The messages of the response; the request must have been answered."""
        assert self.payloads, "the request is still held"
        return self.payloads[0]


class CallbackRequest(Request):
    """A request of callback-polling."""

    transport = "callback-polling"
    connect_only = True


class Socket(Recording):
    """A WebSocket."""

    transport = "websocket"
    pushes = True

    def __init__(self, browser: str | None = None) -> None:
        super().__init__(browser)

    @property
    def reads(self) -> bool:
        """Whether the reader keeps up; a test may let it fall behind."""
        return self.is_writable

    @reads.setter
    def reads(self, reads: bool) -> None:
        self.is_writable = reads

    def take(self) -> list[Fields]:
        """What came since the last look."""
        received, self.payloads = self.received, []
        return received


class OneOfSeveral(Cluster):
    """The part of a node whose others say nothing."""

    is_single = False
    has_receivers = False
    broker: Broker

    def __init__(self) -> None:
        self.announced_queues: list[str] = []

    def announce(self, queue: str) -> None:
        self.announced_queues.append(queue)

    def counted(self, most: int) -> int:
        return most

    def author(self, name: str) -> str:
        return name

    def registration(self, token: str) -> Membership:
        return Membership(tag_of(token), "")

    def may_have(self, name: SessionName) -> bool:
        return name not in self.broker.runtime.access.node.sessions

    def follow_log(self, supervisor: Supervisor, tail: Body) -> None:
        supervisor.start("tail of the log", tail)

    async def is_replaced(self, store: Store, epoch: int) -> bool:
        return False

    def adoption(self, keys: Keys, token: str, count: int, dead: Iterable[str]) -> Step[Slice]:
        return nodes.inherit(keys, token, count, dead)


class World:
    """A broker on a loop of its own."""

    def __init__(self, *sets: str, extensions: Iterable[Extension] = (), services: Iterable[Service] = ()) -> None:
        self.loop = ControlledLoop()
        settings = load(overrides=list(sets), environ={})
        self.cluster = OneOfSeveral() if settings.cluster.enabled else Cluster()
        self.broker = Broker(settings, extensions, self.loop, self.cluster)
        if isinstance(self.cluster, OneOfSeveral):
            self.cluster.broker = self.broker
        self.broker.install(services)

    def settle(self) -> None:
        self.loop.settle()

    def advance(self, seconds: float) -> None:
        self.loop.advance(seconds)

    def sweep_after(self, seconds: float) -> None:
        """Let time pass, then sweep."""
        self.advance(seconds)
        self.broker.sweep()
        self.settle()

    def receive(self, peer: Peer, *elements: Any) -> None:
        self.broker.inbound.receive(peer, list(elements))

    def post(self, *elements: Any, browser: str | None = None, kind: type[Request] = Request) -> Request:
        request = kind(browser)
        self.receive(request, *elements)
        return request

    def close(self) -> None:
        self.loop.run_until_complete(self.broker.close())
        self.settle()
        self.loop.close()


MakeWorld = Callable[..., World]


class Client:
    """One client, by requests or, if it is given one, by a socket."""

    def __init__(self, world: World, socket: Socket | None = None, browser: str | None = None) -> None:
        self.world = world
        self.socket = socket
        self.browser = browser
        self.id: str | None = None
        self._ids = 0

    @property
    def session(self) -> Session:
        """The session while it lives."""
        assert self.id is not None
        session = self.world.broker.session(self.id)
        assert session is not None, "the session is gone"
        return session

    @property
    def is_known(self) -> bool:
        assert self.id is not None
        return self.world.broker.session(self.id) is not None

    def message(self, channel: str, **fields: Any) -> Fields:
        """A message of this client, for a batch."""
        self._ids += 1
        return {"channel": channel, "id": str(self._ids), "clientId": self.id, **fields}

    def send(self, *messages: Fields) -> Recording:
        """Send these in one payload; by HTTP in a new request."""
        peer: Recording = self.socket or Request(self.browser)
        self.world.receive(peer, *messages)
        if peer.mints_cookie:
            self.browser = peer.browser
        return peer

    def say(self, channel: str, **fields: Any) -> Fields:
        """Send one message and return its reply, which must have come at once."""
        message = self.message(channel, **fields)
        return reply_to(self.send(message), message["id"])

    def handshake(self, **fields: Any) -> Fields:
        self._ids += 1
        message = {"channel": "/meta/handshake", "id": str(self._ids), "version": "1.0", **fields}
        reply = reply_to(self.send(message), message["id"])
        self.id = reply.get("clientId", self.id)
        return reply

    def connect(self, **fields: Any) -> Request:
        """Send a connect by HTTP; it may be held."""
        request = self.send(self.message("/meta/connect", connectionType="long-polling", **fields))
        assert isinstance(request, Request)
        return request

    def subscribe(self, *channels: str) -> None:
        for channel in channels:
            assert self.say("/meta/subscribe", subscription=channel)["successful"]

    def publish(self, channel: str, data: Any, **fields: Any) -> Fields:
        return self.say(channel, data=data, **fields)

    def joined(self, *channels: str, **fields: Any) -> Client:
        """Handshake, connect once (answered at once), subscribe; ready for a connect that is held."""
        assert self.handshake(**fields)["successful"]
        ext = {"ext": {"ack": 0}} if "ext" in fields else {}
        self.send(self.message("/meta/connect", **ext))
        self.subscribe(*channels)
        if self.socket is not None:
            self.socket.take()
        return self


def reply_to(peer: Recording, message_id: str) -> Fields:
    """The reply with this id: not an event, which has data."""
    replies = [each for each in peer.received if each.get("id") == message_id and "data" not in each]
    assert len(replies) == 1, f"one reply to {message_id}, not {replies}"
    return replies[0]


def data_of(messages: Iterable[Fields]) -> list[Any]:
    """The data of the delivered messages among these, in order."""
    return [message["data"] for message in messages if "data" in message]


def is_connect(message: Fields) -> bool:
    return message["channel"] == "/meta/connect"


def let_go(world: World) -> None:
    """Let so much time pass that all clients count as gone."""
    world.advance(60.0)
    world.broker.sweep()
