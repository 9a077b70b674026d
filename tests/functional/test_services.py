"""An application in one file, loaded with --service, seen from its clients; and the same mounted by `attach`."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import ClientSession, CookieJar, WSMsgType, web

import crewel.extensions.ack  # imported by name when a server is made, which in a test would block its loop
import crewel.extensions.timesync  # noqa: F401
from crewel import Broker, Service
from crewel import server as crewel_server
from crewel.settings import Settings
from crewel.settings.server_settings import Bayeux
from crewel.settings.storage import Storage
from tests.conftest import StartServer
from tests.functional.bayeux import Client, data
from tests.functional.frames import SocketClient
from tests.functional.people import Person
from tests.functional.wire import until
from tests.server_process import Server


@pytest.fixture
def application(start_server: StartServer, lane: tuple[str, ...]) -> Server:
    return start_server(*lane, "bayeux.sweep_ms=50", service="tests.functional.services")


def last(client: Client, channel: str, **fields: object) -> dict[str, object]:
    return client.send(client.message(channel, **fields))[-1]


def test_listeners_policies_and_authorisers(start_server: StartServer, lane: tuple[str, ...]) -> None:
    server = start_server(*lane, service="tests.functional.services")
    client = Client(server).start()
    assert last(client, "/vetoed", data="bad")["error"] == "404::message_deleted"
    assert last(client, "/vetoed", data="good")["successful"] is True
    assert last(client, "/refused")["error"] == "403:not_today:publish_denied"
    assert last(client, "/forbidden")["error"] == "403:denied_by_security_policy:publish_denied"
    assert last(client, "/guarded/open")["successful"] is True
    assert last(client, "/guarded/denied")["error"] == "403:the guard says no:channel_create_denied"
    assert last(client, "/guarded/other")["error"] == "403:denied_by_not_granting:channel_create_denied"
    assert last(client, "/meta/subscribe", subscription="/guarded/denied")["error"].startswith("403:the guard says no:")  # type: ignore[attr-defined]


def test_a_handshake_is_decided_by_the_policy(application: Server) -> None:
    client = Client(application)
    for wanted, advice in (("refuse", {"reconnect": "none"}), ("retry", {"reconnect": "handshake"})):
        response = client.post(client.message("/meta/handshake", ext={"policy": wanted}))
        (reply,) = response.messages
        assert reply["error"] == "403::handshake_denied"
        assert reply["advice"] == advice
        assert "clientId" not in reply
        assert "supportedConnectionTypes" not in reply
        assert response.all("Set-Cookie") == []
    assert reply["ext"] == {"why": "try again"}


def test_messages_behind_one_that_waits_keep_their_order(application: Server) -> None:
    client = Client(application).start()
    client.subscribe("/slow", "/quick")
    answer = client.send(client.message("/slow", data=100), client.message("/quick", data="after"))
    assert data(answer) == [100, "after"]
    assert [reply["channel"] for reply in answer[2:]] == ["/slow", "/quick"]
    socket = SocketClient(application).start()
    slow, quick = socket.message("/slow", data=100), socket.message("/quick", data=1)
    socket.send(slow)
    socket.send(quick)
    assert [socket.socket.receive()[-1]["id"] for _ in range(2)] == [slow["id"], quick["id"]]


def test_remote_calls(application: Server) -> None:
    client = Client(application).start()
    message = client.message("/service/echo", data={"a": [1]})
    result, reply = client.send(message)
    assert result == {"channel": "/service/echo", "id": message["id"], "data": {"a": [1]}, "successful": True}
    assert reply["successful"] is True
    assert "data" not in reply
    result, reply = client.send(client.message("/service/refuse", data=1))
    assert (result["successful"], result["data"]) == (False, {"refused": 1})
    later = client.message("/service/later", data=2)
    assert client.send(later) == [{"channel": "/service/later", "id": later["id"], "successful": True}]
    (result, _) = client.connect()
    assert (result["id"], result["data"], result["successful"]) == (later["id"], 2, True)


def test_a_service_speaks_to_one_session_and_to_all(application: Server) -> None:
    client, other = Client(application).start(), Client(application).start()
    other.subscribe("/echo")
    event, reply = client.send(client.message("/service/deliver", data=7))
    assert event == {"channel": "/service/deliver", "data": {"echo": 7}}
    assert reply["successful"] is True
    client.publish("/heard/x", 8)
    assert data(other.connect()) == [["/heard/x", 8]]


def test_a_service_disconnects_a_session(application: Server) -> None:
    client = Client(application).start()
    polling = client.hold()
    client.send(client.message("/service/disconnect"))
    until(polling.has_input)
    notice, reply = polling.response().messages
    assert notice == {"channel": "/meta/disconnect", "successful": True}
    assert reply["advice"] == {"reconnect": "none"}
    (reply,) = client.connect()
    assert reply["advice"] == {"reconnect": "handshake", "interval": 0}


def test_a_service_learns_who_comes_and_goes(application: Server) -> None:
    client, leaving = Client(application).start(), Client(application).start()
    silent = Person(application)
    assert silent.shake(name="silent/1", timeout=500)["successful"] is True
    leaving.disconnect()

    def seen() -> dict[str, int]:
        (result, _) = client.send(client.message("/service/seen"))
        counts: dict[str, int] = result["data"]
        return counts

    assert seen()["left"] == 1
    until(lambda: seen().get("expired") == 1)
    assert silent.connect()[-1]["error"] == "402::session_unknown"


def test_what_fails_in_a_service_stays_there(start_server: StartServer, lane: tuple[str, ...]) -> None:
    """A listener that fails lets the message pass, a policy that fails refuses; both are logged, which this test wants."""
    server = start_server(*lane, service="tests.functional.services")
    client = Client(server).start()
    assert last(client, "/broken")["successful"] is True
    (reply,) = client.post(client.message("/meta/handshake", ext={"policy": "fail"})).messages
    assert reply["error"] == "403::handshake_denied"
    until(lambda: all(f"RuntimeError: {who} broke down" in server.stderr for who in ("a listener", "the policy")))
    server._errors.clear()


# In somebody else's application


@dataclass
class Mounted:
    base: str
    broker: Broker


@pytest.fixture
async def mounted(tmp_path: Path) -> AsyncIterator[Mounted]:
    """An application with a page of its own, run as aiohttp runs applications by default."""
    service = Service("mounted")
    service.remote_call("pid")(lambda session, data: os.getpid())
    app = web.Application()
    app.router.add_get("/", _own_page)
    settings = Settings(bayeux=Bayeux(path="/events/bayeux", sweep_ms=50), storage=Storage(data_dir=str(tmp_path)))
    broker = crewel_server.attach(app, settings, [service])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield Mounted(f"http://127.0.0.1:{runner.addresses[0][1]}", broker)
    async with asyncio.timeout(30):
        await runner.cleanup()
    assert broker.mailboxes.connects.held == 0


async def _own_page(request: web.Request) -> web.Response:
    return web.Response(text="the application's own page")


class Caller:
    """A Bayeux client over aiohttp."""

    def __init__(self, http: ClientSession, base: str) -> None:
        self.http = http
        self.url = f"{base}/events/bayeux"
        self.id: str | None = None

    async def send(self, **message: object) -> list[dict[str, object]]:
        message = {"clientId": self.id, **message} if self.id else message
        async with self.http.post(self.url, json=[message]) as response:
            assert response.status == 200
            messages: list[dict[str, object]] = await response.json()
            return messages

    async def start(self) -> Caller:
        (reply,) = await self.send(channel="/meta/handshake")
        self.id = str(reply["clientId"])
        await self.send(channel="/meta/connect")
        return self


async def test_attach_serves_bayeux_beside_the_applications_own_pages(mounted: Mounted) -> None:
    async with asyncio.timeout(60), ClientSession(cookie_jar=CookieJar(unsafe=True)) as http:
        async with http.get(mounted.base + "/") as page:
            assert await page.text() == "the application's own page"
        caller = await Caller(http, mounted.base).start()
        result, reply = await caller.send(channel="/service/pid", id="1", data=None)
        assert result["data"] == os.getpid()
        await caller.send(channel="/meta/subscribe", subscription="/news")
        held = asyncio.create_task(caller.send(channel="/meta/connect"))
        while not mounted.broker.mailboxes.connects.held:
            await asyncio.sleep(0.01)
        mounted.broker.publish("/news", "hello")
        message, reply = await held
        assert message["data"] == "hello"
        assert reply["successful"] is True


async def test_attach_serves_websocket(mounted: Mounted) -> None:
    async with asyncio.timeout(60), ClientSession() as http, http.ws_connect(mounted.base + "/events/bayeux") as socket:
        await socket.send_str('[{"channel":"/meta/handshake","id":"1"}]')
        reply = json.loads((await socket.receive()).data)[0]
        assert reply["successful"] is True
        await socket.send_str(
            json.dumps([{"channel": "/meta/subscribe", "subscription": "/a", "clientId": reply["clientId"]}])
        )
        assert json.loads((await socket.receive()).data)[0]["successful"] is True
        mounted.broker.publish("/a", 1)
        assert json.loads((await socket.receive()).data) == [{"channel": "/a", "data": 1}]
        await socket.send_str("{")
        assert (await socket.receive()).type is WSMsgType.CLOSE
        assert socket.close_code == 1007


async def test_attach_notices_a_peer_that_goes(mounted: Mounted) -> None:
    """aiohttp tells a handler nothing of that by itself."""
    async with asyncio.timeout(60):
        async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as http:
            caller = await Caller(http, mounted.base).start()
            held = asyncio.create_task(caller.send(channel="/meta/connect"))
            while not mounted.broker.mailboxes.connects.held:
                await asyncio.sleep(0.01)
            held.cancel()
            await asyncio.gather(held, return_exceptions=True)
        while mounted.broker.mailboxes.connects.held:
            await asyncio.sleep(0.05)


async def test_attach_answers_what_is_held_when_the_application_ends(tmp_path: Path) -> None:
    app = web.Application()
    broker = crewel_server.attach(app, Settings(storage=Storage(data_dir=str(tmp_path))))
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with asyncio.timeout(60), ClientSession(cookie_jar=CookieJar(unsafe=True)) as http:
        caller = Caller(http, f"http://127.0.0.1:{runner.addresses[0][1]}")
        caller.url = caller.url.replace("/events/bayeux", "/cometd")
        await caller.start()
        held = asyncio.create_task(caller.send(channel="/meta/connect"))
        while not broker.mailboxes.connects.held:
            await asyncio.sleep(0.01)
        await runner.cleanup()
        (reply,) = await held
        assert reply["successful"] is True
