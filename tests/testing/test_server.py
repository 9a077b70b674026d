"""Servers for tests: in a thread, with a clock that can be moved, killed and started again."""

import asyncio
import json
import socket
import threading
import urllib.request
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from crewel import Message, Service, Session
from crewel.client import Client, PublishRefused, State
from crewel.delivery.dispatcher_states import DispatcherState
from crewel.testing import LoopThread, Server, TestClient, serving, serving_in_thread
from crewel.testing.clock import VirtualLoop
from crewel.testing.instance import Instance

pytestmark = pytest.mark.server

ConnectsClient = Any
members = Service("members")


@members.remote_call("count")
def count(session: Session, data: Any) -> Any:
    return {"of": data}


@members.listener("/refused")
def refuse(session: Session, message: Message) -> bool:
    return False


def test_a_message_reaches_a_client(crewel: Server[Instance], crewel_client: ConnectsClient) -> None:
    client = crewel_client()
    news = client.subscribe("/news")
    crewel.publish("/news", {"title": "first"})
    assert news.next().data == {"title": "first"}
    client.publish("/news", "second")
    assert news.take(1) == ["second"]


def test_the_state_names_clients_and_subscriptions(crewel: Server[Instance], crewel_client: ConnectsClient) -> None:
    client = crewel_client(name="client/joe/1")
    client.subscribe("/news/*")
    state = crewel.wait_for(lambda state: state.subscribers("/news/*") == 1 and state.connected == 1)
    (known,) = state.clients
    assert (known.name, known.client_id) == ("client/joe/1", client.client_id)
    assert known.is_held
    client.close()
    assert not crewel.wait_for_clients(0).clients


def test_a_condition_that_is_not_met_names_what_there_is(crewel: Server[Instance]) -> None:
    with pytest.raises(AssertionError, match=r"not met within 0.02 s; the server has State\(clients=\(\)"):
        crewel.wait_for_clients(1, timeout=0.02)


@pytest.mark.crewel(services=[members], settings={"bayeux.timeout_ms": 1000})
def test_the_mark_says_what_the_server_is_like(crewel: Server[Instance], crewel_client: ConnectsClient) -> None:
    client = crewel_client()
    assert client.remote_call("count", 3) == {"of": 3}
    with pytest.raises(PublishRefused, match="404"):
        client.publish("/refused", 1)


def test_a_service_may_be_in_several_servers_at_once() -> None:
    with serving_in_thread(services=[members]) as one, serving_in_thread(services=[members]) as other:
        assert len(members.brokers) == 2
        assert one.port != other.port
    assert not members.brokers


def test_a_silent_session_expires_in_virtual_time(crewel: Server[Instance]) -> None:
    handshake = {"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"]}
    (reply,) = post(crewel.url, handshake)
    crewel.advance("9s")
    assert [each.client_id for each in crewel.state.clients] == [reply["clientId"]]
    crewel.advance("3s")
    assert not crewel.state.clients


def test_connected_clients_stay_connected_while_hours_pass(
    crewel: Server[Instance], crewel_client: ConnectsClient
) -> None:
    client = crewel_client(transports=["long-polling"])
    news = client.subscribe("/news")
    first = client.client_id
    crewel.wait_for_clients(1)
    crewel.advance("10m")
    crewel.publish("/news", "after ten minutes")
    assert news.take(1) == ["after ten minutes"]
    assert client.client_id == first


def test_a_client_that_time_does_not_wait_for_loses_its_session(
    crewel: Server[Instance], crewel_client: ConnectsClient
) -> None:
    client = crewel_client(transports=["long-polling"])
    first = client.client_id
    crewel.wait_for_clients(1)
    crewel.advance("10m", keep_up=False)
    crewel.wait_for(lambda state: state.connected == 1 and state.clients[0].client_id != first)


@pytest.mark.crewel(
    settings={"bayeux.max_lazy_ms": 60_000, "bayeux.lazy_channels": ["/slow"], "bayeux.timeout_ms": 600_000}
)
def test_a_lazy_message_comes_when_its_time_has_come(crewel: Server[Instance], crewel_client: ConnectsClient) -> None:
    slow = crewel_client(transports=["long-polling"]).subscribe("/slow")
    crewel.wait_for_clients(1)
    crewel.publish(
        "/slow",
        1,
    )
    crewel.advance("59s")
    assert crewel.state.clients[0].queued == 1
    crewel.advance("2s")
    assert slow.take(1) == [1]


@pytest.mark.crewel(store=True)
def test_what_is_stored_survives_a_kill(crewel: Server[Instance], crewel_client: ConnectsClient) -> None:
    port = crewel.port
    client = crewel_client(name="client/joe/1")
    orders = client.subscribe("/orders")
    assert crewel.publish("/orders", "before", persistent=True)
    crewel.kill()
    assert not crewel.is_up
    crewel.restart()
    assert crewel.port == port
    crewel.publish("/orders", "after", persistent=True)
    data = orders.take(2)
    assert data[-1] == "after"
    assert set(data) == {"before", "after"}


@pytest.mark.crewel(store=True)
def test_an_expired_session_leaves_dead_letters(crewel: Server[Instance], crewel_client: ConnectsClient) -> None:
    client = crewel_client(name="client/joe/1", leave=True, session={"timeout": 60_000})
    client.subscribe("/orders")
    client.close()
    crewel.publish("/orders", {"no": 1}, persistent=True)
    crewel.advance("50s")
    assert crewel.letters == []
    crewel.advance("60s")
    (letter,) = crewel.letters
    assert (letter.channel, letter.data) == ("/orders", {"no": 1})


@pytest.mark.parametrize("ends", ["kill", "stop"])
def test_a_connection_that_has_just_been_accepted_ends_with_the_server(crewel: Server[Instance], ends: str) -> None:
    """It has no protocol yet when the server is closed: asyncio would leave it open, and its client would wait."""

    async def ended(instance: Instance) -> socket.socket:
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", crewel.port))  # the system has the connection, the server not yet
        for _ in range(2):
            await asyncio.sleep(0)
        await getattr(instance, ends)()
        return client

    with crewel.call(ended) as client:
        client.settimeout(20)
        try:
            assert client.recv(1) == b""
        except ConnectionResetError:
            assert ends == "kill"


def test_a_killed_server_resets_its_connections(crewel: Server[Instance], crewel_client: ConnectsClient) -> None:
    client = crewel_client(transports=["long-polling"])
    crewel.wait_for_clients(1)
    crewel.kill()
    with pytest.raises(RuntimeError, match="restart"):
        _ = crewel.state
    crewel.restart()
    crewel.wait_for_clients(1)
    assert client.state is State.CONNECTED


async def test_a_server_in_an_event_loop() -> None:
    async with serving(services=[members]) as server, Client(server.url) as client:
        subscription = await client.subscribe("/news")
        await server.wait_for_subscribers("/news")
        await server.publish("/news", 1)
        assert (await subscription.receive(10)).data == 1
        await server.advance("1s")
        await server.restart()
        await server.wait_for_clients(1)
        await server.publish("/news", 2)
        assert (await subscription.receive(10)).data == 2


def test_a_hundred_servers_one_after_the_other_leave_no_thread() -> None:
    threads = threading.active_count()
    for number in range(100):
        with serving_in_thread() as server:
            assert server.publish("/news", number) is None
    assert threading.active_count() == threads


def test_the_loop_of_a_server_cannot_wait_for_itself() -> None:
    thread = LoopThread()

    async def within() -> None:
        async def nothing() -> None: ...

        with pytest.raises(RuntimeError, match="own thread"):
            thread.run(nothing())

    thread.run(within())
    thread.close()
    thread.close()


def test_a_call_that_hangs_is_an_error() -> None:
    thread = LoopThread()

    async def hangs() -> None:
        await thread.loop.create_future()

    with pytest.raises(TimeoutError, match="no result within"):
        thread.run(hangs(), limit=0.01)
    thread.close()


def test_a_timer_that_wakes_nothing_takes_few_turns_of_the_loop(
    crewel: Server[Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = crewel._thread.loop
    assert isinstance(loop, VirtualLoop)
    turns: list[None] = []
    steps: list[None] = []
    select, skip = loop._sockets.select, loop.skip
    monkeypatch.setattr(loop._sockets, "select", lambda timeout=None: (turns.append(None), select(timeout))[1])
    monkeypatch.setattr(loop, "skip", lambda seconds: (steps.append(None), skip(seconds))[1])
    crewel.advance("10m", keep_up=False)
    assert len(steps) > 600
    assert len(turns) < 5 * len(steps)


def test_a_client_without_fixtures() -> None:
    thread = LoopThread()
    with serving_in_thread() as server, TestClient(thread, server.url) as client:
        got = client.subscribe("/a")
        client.publish("/a", 1)
        assert got.take(1) == [1]
        got.unsubscribe()
    thread.close()


async def test_the_pages_of_operators_have_the_token(crewel: Server[Instance]) -> None:
    headers = {"Authorization": f"Bearer {crewel.admin_token}"}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{crewel.base_url}/admin/api/sessions", headers=headers) as got,
    ):
        assert got.status == 200


@pytest.mark.crewel(settings={"bayeux.max_interval_ms": 600_000})
def test_a_queued_message_expires_in_virtual_time(crewel: Server[Instance]) -> None:
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    (handshake,) = post(crewel.url, {"channel": "/meta/handshake", "version": "1.0"}, opened=browser.open)
    subscribe = {"channel": "/meta/subscribe", "clientId": handshake["clientId"], "subscription": "/news"}
    assert post(crewel.url, subscribe, opened=browser.open)[0]["successful"]
    crewel.publish("/news", "soon old", lifeTime=60_000, forceDestroy=True)
    crewel.advance("50s")
    assert crewel.state.clients[0].queued == 1
    crewel.advance("70s")
    assert crewel.state.clients[0].queued == 0


def post(url: str, *messages: dict[str, Any], opened: Callable[..., Any] = urllib.request.urlopen) -> Any:
    request = urllib.request.Request(url, json.dumps(messages).encode(), {"Content-Type": "application/json"})
    with opened(request, timeout=20) as response:
        return json.load(response)


@pytest.mark.crewel(store=True)
def test_the_pause_between_retries_passes_in_virtual_time(
    crewel: Server[Instance], crewel_client: ConnectsClient
) -> None:
    dispatcher = {"retries": 3, "delay": 60_000, "factor": 1}
    client = crewel_client(name="client/joe/1", update=True, session={"dispatcher": dispatcher})
    orders = client.subscribe("/orders")
    crewel.publish("/orders", 1, persistent=True)
    orders.reject(orders.next(), "communication.timeout", "the printer is away")
    crewel.wait_for(lambda _: is_polling(crewel))
    crewel.advance("55s")
    assert (is_polling(crewel), orders.waiting) == (True, 0)
    crewel.advance("6s")
    assert orders.next().data == 1


def is_polling(crewel: Server[Instance]) -> bool:
    """Whether the one session is in the pause after a failure."""
    polling: bool = crewel.call(
        lambda instance: (
            [each.mailbox._dispatcher.state for each in instance.broker.sessions.by_id.values()]
            == [DispatcherState.POLLING]
        )
    )
    return polling


def test_a_connect_is_held_for_as_long_as_the_server_advises(crewel: Server[Instance]) -> None:
    answered = []

    async def connected() -> None:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
            handshake = {"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"]}
            async with http.post(crewel.url, json=handshake) as response:
                client_id = (await response.json())[0]["clientId"]
            connect = {"channel": "/meta/connect", "clientId": client_id, "connectionType": "long-polling"}
            for _ in range(2):  # the first is not held
                async with http.post(crewel.url, json=connect) as response:
                    answered.append((await response.json())[-1]["successful"])

    client = threading.Thread(target=lambda: asyncio.run(connected()))
    client.start()
    crewel.wait_for_clients(1)
    crewel.advance("29s", keep_up=False)
    assert (crewel.state.connected, answered) == (1, [True])
    crewel.advance("2s", keep_up=False)
    client.join(60)
    assert answered == [True, True]
