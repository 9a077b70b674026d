"""What a delivery costs in calls: a guard against work that creeps onto the hot path.

Not a timing: the number of calls that Python makes for one message to one session, from the bytes of the connect that waits
for it to the bytes of the answer. It is the same on every machine.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
from aiohttp import web

from crewel import server
from crewel.extensions import ack, timesync
from crewel.settings import Settings, load
from crewel.transports.fast_lane import FastLane
from crewel.transports.http_fast import FastConnection
from tests.transports.wires import Client, DeflatingClient, SocketClient, Wire
from tests.work import calls

SESSIONS = 50

# The figures of this version. Lower them when you make it cheaper; raise them only for a reason that a user would accept.
MAX_CALLS_PLAIN = 34
MAX_CALLS_ACKNOWLEDGED = 41
MAX_CALLS_PUBLISH = 68
MAX_CALLS_HANDSHAKE = 146
MAX_CALLS_SUBSCRIBE = 132
MAX_CALLS_SOCKET = 3
MAX_CALLS_SOCKET_ACKNOWLEDGED = 38  # two of them are the test's own, in place of a loop that receives
MAX_CALLS_SOCKET_ACKNOWLEDGED_COMPRESSED = 48  # and here


@pytest.fixture
def settings() -> Settings:
    """The settings; reading them and the extensions looks at files, which must not happen inside the event loop."""
    assert ack.AckExtension.name in load(None, []).bayeux.extensions
    assert timesync.TimesyncExtension.name in load(None, []).bayeux.extensions
    return load(None, ["bayeux.max_sessions_per_browser=-1"])


def connect_all(requests: list[tuple[Callable[[bytes], None], bytes]]) -> None:
    for receive, data in requests:
        receive(data)


async def calls_per_delivery(
    settings: Settings, kind: type[Client] = Client, *, acknowledges: bool
) -> tuple[float, Counter[str]]:
    app = web.Application()
    broker = server.attach(app, settings)
    lane = FastLane(app[server.ENDPOINT], lambda: (_ for _ in ()).throw(AssertionError("handed to aiohttp")))
    tasks = len(asyncio.all_tasks())
    clients = [kind(lane, acknowledges=acknowledges) for _ in range(SESSIONS)]
    counted: Counter[str] = Counter()
    try:
        for client in clients:
            client.ask({"channel": "/meta/subscribe", "subscription": "/room"})
            client.ask({"channel": "/meta/connect"})
            client.receive(client.connect())
        assert len(asyncio.all_tasks()) == tasks, "no connection and no connect that is held needs a task"
        for _ in range(2):  # in the first round each connection sees its connect's head for the first time
            counted.clear()
            published = calls(partial(broker.publish, "/room", {"text": "x" * 40}))
            counted.update(calls(broker.mailboxes.outbound._flush))
            if kind is SocketClient and not acknowledges:
                counted.update(published)  # the message is pushed at once, and no connect is answered
                continue
            for client in clients:
                client.reply()
            counted.update(calls(partial(connect_all, [(client.receive, client.connect()) for client in clients])))
    finally:
        await lane.close(0)
        await broker.close()
    return counted.total() / SESSIONS, counted


async def test_a_delivery_over_long_polling_makes_no_more_calls_than_before(settings: Settings) -> None:
    figure, counted = await calls_per_delivery(settings, acknowledges=False)
    assert figure <= MAX_CALLS_PLAIN, counted.most_common(40)


async def test_an_acknowledged_delivery_makes_no_more_calls_than_before(settings: Settings) -> None:
    figure, counted = await calls_per_delivery(settings, acknowledges=True)
    assert figure <= MAX_CALLS_ACKNOWLEDGED, counted.most_common(60)


async def test_a_delivery_over_a_socket_makes_no_more_calls_than_before(settings: Settings) -> None:
    figure, counted = await calls_per_delivery(settings, SocketClient, acknowledges=False)
    assert figure <= MAX_CALLS_SOCKET, counted.most_common(40)


async def test_an_acknowledged_delivery_over_a_socket_makes_no_more_calls_than_before(settings: Settings) -> None:
    figure, counted = await calls_per_delivery(settings, SocketClient, acknowledges=True)
    assert figure <= MAX_CALLS_SOCKET_ACKNOWLEDGED, counted.most_common(60)
    assert counted["Exchange.__init__"] == 0, "a connect that says nothing unusual needs no exchange"


async def test_an_acknowledged_delivery_to_a_client_that_compresses_costs_its_decompression_only(
    settings: Settings,
) -> None:
    figure, counted = await calls_per_delivery(settings, DeflatingClient, acknowledges=True)
    assert figure <= MAX_CALLS_SOCKET_ACKNOWLEDGED_COMPRESSED, counted.most_common(60)
    assert counted["FrameReader.__init__"] == 0


async def test_a_connect_that_has_to_wait_for_its_turn_is_not_parsed_either(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = web.Application()
    broker = server.attach(app, settings)
    lane = FastLane(app[server.ENDPOINT], lambda: (_ for _ in ()).throw(AssertionError("handed to aiohttp")))
    client = SocketClient(lane, acknowledges=True)
    parsed: list[object] = []
    try:
        client.ask({"channel": "/meta/subscribe", "subscription": "/room"})
        client.ask({"channel": "/meta/connect"})
        for _ in range(2):
            client.receive(client.connect())
            broker.publish("/room", "x")
            broker.mailboxes.outbound._flush()
            client.reply()
        assert not lane.turns.is_over()
        lane.turns.unseen = lane.turns.until = 0
        monkeypatch.setattr(lane.turns, "is_over", lambda: True)
        monkeypatch.setattr(lane.endpoint.receiver, "receive", lambda _, elements: parsed.append(elements))
        client.receive(client.connect())
        session = client.wire.protocol.session
        assert session.held is None
        while session.held is None:
            await asyncio.sleep(0)
    finally:
        await lane.close(0)
        await broker.close()
    assert not parsed


async def test_a_publish_makes_no_more_calls_than_before(settings: Settings) -> None:
    """From the bytes of the request to those of the answer, without a subscriber."""
    app = web.Application()
    broker = server.attach(app, settings)
    lane = FastLane(app[server.ENDPOINT], lambda: (_ for _ in ()).throw(AssertionError("handed to aiohttp")))
    client = Client(lane, acknowledges=False)
    request = client.request({"channel": "/room", "data": {"text": "x" * 40}})
    try:
        for _ in range(2):
            counted = calls(partial(client.connection.data_received, request))
            client.reply()
    finally:
        await lane.close(0)
        await broker.close()
    assert counted.total() <= MAX_CALLS_PUBLISH, counted.most_common(60)


async def test_a_newcomer_makes_no_more_calls_than_before(settings: Settings) -> None:
    """From the connection to the answer of the handshake, and from the bytes of a first subscribe to its answer."""
    app = web.Application()
    broker = server.attach(app, settings)
    lane = FastLane(app[server.ENDPOINT], lambda: (_ for _ in ()).throw(AssertionError("handed to aiohttp")))
    try:
        for _ in range(3):  # the heads of the first are parsed
            client = Client(lane, acknowledges=False)
            asked = client.request({"channel": "/meta/subscribe", "subscription": "/room"})
            subscribed = calls(partial(client.receive, asked))
            client.reply()
        asked = client.request({"channel": "/meta/handshake"})
        for _ in range(2):
            connection, wire = FastConnection(lane), Wire()
            shaken = calls(partial(connection.connection_made, wire))
            shaken.update(calls(partial(connection.data_received, asked)))
            assert len(wire.written) == 1
    finally:
        await lane.close(0)
        await broker.close()
    assert shaken.total() <= MAX_CALLS_HANDSHAKE, shaken.most_common(60)
    assert subscribed.total() <= MAX_CALLS_SUBSCRIBE, subscribed.most_common(60)


async def test_no_work_is_done_twice_for_a_delivery(settings: Settings) -> None:
    """One encoding of the message for all, one write and one look-up of the session each, and nothing kept of the connect."""
    _, counted = await calls_per_delivery(settings, acknowledges=False)
    assert counted["Inbound.receive"] == SESSIONS
    assert counted["Wire.write"] == SESSIONS
    assert counted["Message.__init__"] == 0, "a connect that says nothing unusual is no more than its id"
    assert counted["Entry.__init__"] == 0, "the message is encoded when it is published and not when it leaves"
