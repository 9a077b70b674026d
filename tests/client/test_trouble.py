"""The client when things go wrong: servers that vanish, connections that are cut, transports that are refused."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from crewel.bayeux.message import Fields
from crewel.client import (
    BackoffRule,
    Client,
    ClientError,
    Event,
    Extension,
    HandshakeRefused,
    Message,
    NegotiationError,
    NotConnectedError,
    State,
    Transition,
    TransportError,
    UntrustedCertificateError,
    UpgradeRefusedError,
    WrongAddressError,
)
from tests.client.support import LIMIT_S, QUICK, SERVICE, Steps
from tests.conftest import StartServer
from tests.cutting_proxy import Cut, CuttingProxy, How, listed_cuts, random_cuts
from tests.server_process import Server, serving

SETS = ("bayeux.timeout_ms=1000", "bayeux.max_interval_ms=3000", "bayeux.sweep_ms=100")
SEEDS = {"websocket": 1, "long-polling": 3}
"""Those of the cuts: each has both ways among its first ones, and places in headers and in bodies."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """For tests whose trouble is between client and server; each has a channel of its own."""
    with serving(tmp_path_factory.mktemp("server"), *SETS) as server:
        yield server


async def test_a_server_that_is_not_there_is_told_at_once(start_server: StartServer, transport: str) -> None:
    server = start_server()
    server.terminate()
    client = Client(server.url, transports=[transport], open_timeout=0)
    with pytest.raises(TransportError, match=f"{server.port}/cometd: connection refused"):
        await client.__aenter__()
    assert client.state is State.CLOSED


@pytest.mark.server
async def test_a_password_in_the_address_is_in_no_error_and_no_log(
    transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client("http://joe:secret@127.0.0.1:1/cometd", transports=[transport], open_timeout=0)
    with caplog.at_level("DEBUG"), pytest.raises(TransportError, match=r"^http://127\.0\.0\.1:1/cometd: ") as raised:
        await client.__aenter__()
    assert "secret" not in str(raised.value)
    assert "no handshake over" in caplog.text
    assert "secret" not in caplog.text


async def test_opening_waits_for_a_server_that_comes_later(start_server: StartServer, transport: str) -> None:
    server = start_server()
    server.terminate()
    client = Client(server.url, transports=[transport], backoff=QUICK, open_timeout=LIMIT_S)
    entering = asyncio.create_task(client.__aenter__())
    await asyncio.sleep(0)
    start_server(port=server.port)
    await asyncio.wait_for(entering, LIMIT_S)
    assert client.state in (State.CONNECTING, State.CONNECTED)
    await client.__aexit__(None, None, None)


async def test_a_publish_with_retry_for_is_repeated_under_one_key(server: Server, transport: str) -> None:
    async with CuttingProxy(server.port) as proxy, Client(server.url, backoff=QUICK) as hearing:
        channel = f"/repeated/{transport}"
        heard = await hearing.subscribe(channel)
        url = f"http://127.0.0.1:{proxy.port}/cometd"
        async with Client(url, transports=[transport], backoff=QUICK) as client:
            await client.ready()
            proxy.arm(random_cuts(seed=3, chance=1.0, limit=3))
            reply = await client.publish(channel, 1, persistent=True, retry_for=LIMIT_S)
            await client.publish(channel, 2, persistent=True, retry_for=LIMIT_S)
        assert [(await heard.receive(LIMIT_S)).data for _ in range(2)] == [1, 2]
        assert reply.message_id


@pytest.mark.parametrize(
    "use",
    [
        lambda client: client.ready(LIMIT_S),
        lambda client: client.publish("/a", 1),
        lambda client: client.request("/a", 1, timeout=LIMIT_S),
        lambda client: client.remote_call("a", timeout=LIMIT_S),
    ],
)
async def test_a_client_that_was_never_opened_fails_at_once(use: Callable[[Client], Awaitable[object]]) -> None:
    before = asyncio.get_running_loop().time()
    with pytest.raises(NotConnectedError, match="the client is not open: enter it first"):
        await use(Client("http://127.0.0.1:9/cometd"))
    assert asyncio.get_running_loop().time() - before < LIMIT_S / 10


def test_a_client_in_another_event_loop_says_so(server: Server) -> None:
    client = Client(server.url)
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        first.run_until_complete(client.__aenter__())
        with pytest.raises(RuntimeError, match="opened in another event loop"):
            second.run_until_complete(client.publish("/a", 1))
        first.run_until_complete(client.__aexit__(None, None, None))
    finally:
        first.close()
        second.close()


async def test_a_wrong_path_is_said_at_once_and_not_tried_again(server: Server, transport: str) -> None:
    client = Client(server.url + "d", transports=[transport], open_timeout=LIMIT_S * 10)
    with pytest.raises((WrongAddressError, UpgradeRefusedError), match="answered 404"):
        await asyncio.wait_for(client.__aenter__(), LIMIT_S)


async def test_the_wait_for_a_message_says_how_long_it_was(server: Server) -> None:
    async with Client(server.url) as client:
        subscription = await client.subscribe("/quiet")
        with pytest.raises(TimeoutError, match=r"/quiet: no message within 0\.01 s"):
            await subscription.receive(0.01)


async def test_a_publish_with_retry_for_raises_its_last_failure(start_server: StartServer, transport: str) -> None:
    server = start_server(*SETS)
    async with Client(server.url, transports=[transport], backoff=QUICK, network_delay=0.1) as client:
        server.kill()
        with pytest.raises((TransportError, NotConnectedError)):
            await client.publish("/p", 1, persistent=True, retry_for=0.3)
        with pytest.raises(ValueError, match="retry_for is 0 to 100 seconds"):
            await client.publish("/p", 1, persistent=True, retry_for=121)


async def test_opening_can_be_cancelled(start_server: StartServer) -> None:
    server = start_server()
    server.terminate()
    before = asyncio.all_tasks()
    entering = asyncio.create_task(Client(server.url, backoff=QUICK).__aenter__())
    await asyncio.sleep(0.05)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("ack", [True, False])
async def test_after_a_restart_the_session_is_new_and_its_subscriptions_are_there(
    start_server: StartServer, transport: str, ack: bool
) -> None:
    server = start_server(*SETS, service=SERVICE)
    steps = Steps()
    async with Client(server.url, transports=[transport], ack=ack, backoff=QUICK, on_state=steps) as client:
        wide, exact = await client.subscribe("/a/**"), await client.subscribe("/a/b")
        await steps.reach(State.CONNECTED)
        first = client.client_id
        server.kill()
        await steps.reach(State.RECONNECTING)
        start_server(*SETS, port=server.port, service=SERVICE)
        await steps.reach(State.CONNECTED, times=2)
        assert client.client_id != first
        assert Event.SESSION_LOST in [step.event for step in steps.seen]
        await client.publish("/a/b", "after")
        assert [(await each.receive(LIMIT_S)).data for each in (wide, exact)] == ["after", "after"]


async def test_requests_wait_for_the_next_session(start_server: StartServer, transport: str) -> None:
    server = start_server(*SETS, service=SERVICE)
    steps = Steps()
    async with Client(server.url, transports=[transport], backoff=QUICK, on_state=steps) as client:
        await steps.reach(State.CONNECTED)
        server.kill()
        await steps.reach(State.RECONNECTING)
        call = asyncio.create_task(client.remote_call("echo", 1))
        subscribing = asyncio.create_task(client.subscribe("/a"))
        start_server(*SETS, port=server.port, service=SERVICE)
        assert await asyncio.wait_for(call, LIMIT_S) == 1
        subscription = await asyncio.wait_for(subscribing, LIMIT_S)
        await client.publish("/a", 1)
        assert (await subscription.receive(LIMIT_S)).data == 1


async def test_a_restart_fails_what_is_on_its_way_over_a_socket_and_the_next_request_waits(
    start_server: StartServer, tmp_path: Path
) -> None:
    sets = (*SETS, "bayeux.timeout_ms=0", "bayeux.interval_ms=1000", f"storage.data_dir={tmp_path}")
    server = start_server(*sets)
    steps, failures, published = Steps(), list[ClientError](), asyncio.Event()
    async with Client(server.url, transports=["websocket"], backoff=QUICK, on_state=steps) as client:
        await steps.reach(State.CONNECTED)

        async def publish() -> None:
            while True:
                try:
                    await client.publish("/a", 1)
                except ClientError as error:
                    failures.append(error)
                    await asyncio.sleep(0)
                else:
                    published.set()

        publishing = asyncio.create_task(publish())
        await asyncio.wait_for(published.wait(), LIMIT_S)
        await asyncio.to_thread(server.end_well)
        published.clear()
        await asyncio.to_thread(start_server, *sets, port=server.port)
        await asyncio.wait_for(published.wait(), LIMIT_S)
        publishing.cancel()
    assert len(failures) <= 1, failures


async def test_without_a_server_requests_fail_in_time(start_server: StartServer, transport: str) -> None:
    server = start_server(*SETS)
    steps = Steps()
    client = Client(server.url, transports=[transport], backoff=QUICK, on_state=steps, network_delay=0.5)
    async with client:
        await steps.reach(State.CONNECTED)
        server.kill()
        await steps.reach(State.RECONNECTING)
        with pytest.raises(NotConnectedError):
            await client.ready(0.05)
        with pytest.raises(NotConnectedError):
            await client.publish("/a", 1)


async def test_a_cut_connection_keeps_the_session(server: Server, transport: str) -> None:
    steps = Steps()
    async with CuttingProxy(server.port) as proxy:
        url = f"http://127.0.0.1:{proxy.port}/cometd"
        async with Client(url, transports=[transport], backoff=QUICK, on_state=steps) as client:
            channel = f"/cut/{transport}"
            subscription = await client.subscribe(channel)
            await steps.reach(State.CONNECTED)
            first = client.client_id
            proxy.arm(random_cuts(seed=1, chance=1.0, limit=1))
            await steps.reach(State.CONNECTED, times=2)
            assert client.client_id == first
            await client.publish(channel, 1)
            assert (await subscription.receive(LIMIT_S)).data == 1


async def test_a_socket_that_closes_between_two_connects_is_replaced_at_once(start_server: StartServer) -> None:
    """The first connect over the next socket is answered at once: it is not held while requests wait for its answer."""
    steps = Steps()
    server = start_server("bayeux.timeout_ms=30000", "bayeux.interval_ms=500")
    async with CuttingProxy(server.port) as proxy:
        url = f"http://127.0.0.1:{proxy.port}/cometd"
        async with Client(url, transports=["websocket"], backoff=QUICK, on_state=steps) as client:
            await steps.reach(State.CONNECTED)
            proxy.hang_up()
            await steps.reach(State.RECONNECTING)
            async with asyncio.timeout(LIMIT_S / 3):
                await client.publish("/a", 1)
            assert client.state is State.CONNECTED


class Gate(Extension):
    """Opens when the client sends its disconnect."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()

    def outgoing(self, message: Fields) -> Fields:
        """Open for a disconnect, and send the message."""
        if message["channel"] == "/meta/disconnect":
            self.is_open.set()
        return message


async def test_a_client_that_closes_begins_no_callback_for_what_still_waits(server: Server) -> None:
    gate, begun = Gate(), list[Any]()

    async def process(message: Message) -> None:
        begun.append(message.data)
        await gate.is_open.wait()

    async with Client(server.url, update=True, extensions=[gate]) as client:
        subscription = await client.subscribe("/closing", process)
        await client.publish("/closing", 1)
        await client.publish("/closing", 2)
        async with asyncio.timeout(LIMIT_S):
            while not (begun and subscription.queued):
                await asyncio.sleep(0.01)
    assert (begun, gate.is_open.is_set()) == ([1], True)


class Asked(Extension):
    """Notes the subscribes and unsubscribes that a client sends."""

    def __init__(self) -> None:
        self.channels: list[str] = []

    def outgoing(self, message: Fields) -> Fields:
        """Note the message and send it."""
        if message["channel"] in ("/meta/subscribe", "/meta/unsubscribe"):
            self.channels.append(message["channel"])
        return message


async def test_an_unsubscribe_during_an_outage_leaves_a_later_subscription_alone(
    server: Server, transport: str
) -> None:
    channel = f"/room/{transport}"
    changing: list[asyncio.Task[Any]] = []
    steps, asked = Steps(), Asked()

    def change(step: Transition) -> None:
        steps(step)
        if step.new is State.RECONNECTING and not changing:
            changing.append(asyncio.create_task(first.unsubscribe()))
            changing.append(asyncio.create_task(client.subscribe(channel)))

    async with CuttingProxy(server.port) as proxy:
        url = f"http://127.0.0.1:{proxy.port}/cometd"
        async with Client(url, transports=[transport], backoff=QUICK, on_state=change, extensions=[asked]) as client:
            first = await client.subscribe(channel)
            await steps.reach(State.CONNECTED)
            proxy.arm(random_cuts(seed=1, chance=1.0, limit=1))
            await steps.reach(State.RECONNECTING)
            _, second = await asyncio.wait_for(asyncio.gather(*changing), LIMIT_S)
            await client.publish(channel, 1)
            assert (await second.receive(LIMIT_S)).data == 1
            assert asked.channels == ["/meta/subscribe"] * 2


async def test_more_subscribes_than_the_server_takes_in_one_batch_go_in_several(
    start_server: StartServer, transport: str
) -> None:
    sets = (*SETS, "bayeux.max_batch_messages=4")
    server, steps = start_server(*sets), Steps()
    async with Client(server.url, transports=[transport], backoff=QUICK, on_state=steps) as client:
        subscriptions = [await client.subscribe(f"/many/{number}") for number in range(10)]
        await steps.reach(State.CONNECTED)
        server.kill()
        await steps.reach(State.RECONNECTING)
        start_server(*sets, port=server.port)
        await steps.reach(State.CONNECTED, times=2)
        for number in range(10):
            await client.publish(f"/many/{number}", number)
        assert [(await each.receive(LIMIT_S)).data for each in subscriptions] == list(range(10))


async def test_an_unsubscribe_that_an_outage_outlasts_is_sent_after_it(
    start_server: StartServer, transport: str
) -> None:
    server = start_server("bayeux.timeout_ms=1000", "bayeux.max_interval_ms=60000")
    steps, asked, slow = Steps(), Asked(), BackoffRule(initial=5.0, factor=1.0, maximum=5.0)
    async with CuttingProxy(server.port) as proxy:
        url = f"http://127.0.0.1:{proxy.port}/cometd"
        client = Client(
            url, transports=[transport], backoff=slow, network_delay=2.0, on_state=steps, extensions=[asked]
        )
        async with client:
            subscription = await client.subscribe("/left")
            await steps.reach(State.CONNECTED)
            first = client.client_id
            proxy.arm(random_cuts(seed=1, chance=1.0, limit=1))
            await steps.reach(State.RECONNECTING)
            await subscription.unsubscribe()
            assert client.state is State.RECONNECTING
            await steps.reach(State.CONNECTED, times=2)
            assert (client.client_id, asked.channels) == (first, ["/meta/subscribe", "/meta/unsubscribe"])


async def test_with_acknowledgement_cuts_lose_nothing_and_repeat_nothing(server: Server, transport: str) -> None:
    channel = f"/cuts/{transport}"
    async with CuttingProxy(server.port) as proxy, Client(server.url) as publisher:
        url = f"http://127.0.0.1:{proxy.port}/cometd"
        async with Client(url, transports=[transport], backoff=QUICK) as client:
            subscription = await client.subscribe(channel, bound=1000)
            first = client.client_id
            reader = asyncio.create_task(_receive(subscription, 300))
            proxy.arm(random_cuts(SEEDS[transport], chance=0.2))
            for number in range(300):
                await publisher.publish(channel, number)
                await asyncio.sleep(0.004)
            await proxy.broken(5)
            proxy.calm()
            assert await asyncio.wait_for(reader, LIMIT_S) == list(range(300))
            assert client.client_id == first
            assert subscription.queued == 0


async def _receive(subscription: Any, count: int) -> list[Any]:
    return [(await anext(subscription)).data for _ in range(count)]


async def test_a_silent_connection_is_given_up_in_time(server: Server, transport: str) -> None:
    """The proxy passes half of an answer and then nothing, without closing: only the time-out notices."""
    steps = Steps()
    async with CuttingProxy(server.port) as proxy:
        url = f"http://127.0.0.1:{proxy.port}/cometd"
        client = Client(url, transports=[transport], backoff=QUICK, on_state=steps, network_delay=0.5)
        async with client:
            await steps.reach(State.CONNECTED)
            proxy.arm(listed_cuts(Cut(0.5, How.STALL)))
            lost = await steps.reach(State.RECONNECTING)
            assert isinstance(lost.reason, TransportError)
            await steps.reach(State.CONNECTED, times=2)
            await client.publish("/silent", 1)


async def test_a_session_that_expired_meanwhile_is_renewed(start_server: StartServer, transport: str) -> None:
    """The client comes back later than the server remembers it; the reply to the next connect says so. If it comes too early,
    it is cut once more and waits again."""
    server = start_server("bayeux.timeout_ms=500", "bayeux.max_interval_ms=100", "bayeux.sweep_ms=50", service=SERVICE)
    late = BackoffRule(initial=1.2, maximum=1.2)
    steps = Steps()
    async with CuttingProxy(server.port) as proxy, Client(server.url) as witness:
        url = f"http://127.0.0.1:{proxy.port}/cometd"
        gone = await witness.subscribe("/gone")
        async with Client(url, transports=[transport], backoff=late, on_state=steps) as client:
            subscription = await client.subscribe("/a")
            await steps.reach(State.CONNECTED)
            proxy.arm(random_cuts(seed=1, chance=1.0))
            assert (await gone.receive(LIMIT_S)).data == "expired"
            proxy.calm()
            await steps.reach(State.CONNECTED, times=2)
            await client.publish("/a", 1)
            assert (await subscription.receive(LIMIT_S)).data == 1


async def test_a_refused_upgrade_falls_back_to_long_polling(start_server: StartServer) -> None:
    server = start_server("bayeux.transports=long-polling")
    async with Client(server.url) as client:
        assert client.transport == "long-polling"
        subscription = await client.subscribe("/a")
        await client.publish("/a", 1)
        assert (await subscription.receive(LIMIT_S)).data == 1


async def test_when_sockets_stop_working_the_session_goes_on_over_long_polling(start_server: StartServer) -> None:
    """The same session: what was sent meanwhile is not lost with it."""
    server = start_server("bayeux.timeout_ms=1000")
    gate = UpgradeRefusingProxy(server.port)
    steps = Steps()
    async with gate:
        client = Client(f"http://127.0.0.1:{gate.port}/cometd", backoff=QUICK, on_state=steps)
        async with client, Client(server.url) as publisher:
            subscription = await client.subscribe("/a")
            await steps.reach(State.CONNECTED)
            first = client.client_id
            assert client.transport == "websocket"
            gate.refuse()
            await steps.reach(State.RECONNECTING)
            await publisher.publish("/a", "meanwhile")
            assert (await subscription.receive(LIMIT_S)).data == "meanwhile"
            assert (client.transport, client.client_id) == ("long-polling", first)


class UpgradeRefusingProxy:
    """Passes everything until it is told to cut what there is and to answer upgrades with 502, as some proxies do."""

    def __init__(self, server_port: int) -> None:
        self.port = 0
        self._server_port = server_port
        self._refusing = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> None:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        await self._cut()

    def refuse(self) -> None:
        self._refusing = True
        for task in self._tasks:
            task.cancel()

    async def _cut(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        try:
            if self._refusing and b"upgrade: websocket" in head.lower():
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                await writer.drain()
                return
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
            try:
                up_writer.write(head)
                async with asyncio.TaskGroup() as both:
                    both.create_task(_pipe(reader, up_writer))
                    both.create_task(_pipe(up_reader, writer))
            finally:
                up_writer.close()
        finally:
            writer.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()
    writer.close()


async def test_over_tls_the_servers_certificate_must_be_trusted(
    start_server: StartServer, tmp_path: Path, transport: str
) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "pem"))
    server = start_server(f"http.tls_cert={tmp_path / 'pem'}", f"http.tls_key={tmp_path / 'pem'}")
    assert server.url.startswith("https:")
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with Client(server.url, transports=[transport], ssl=trusting) as client:
        subscription = await client.subscribe("/a")
        await client.publish("/a", 1)
        assert (await subscription.receive(LIMIT_S)).data == 1
    # At once, however patient the client is.
    with pytest.raises(UntrustedCertificateError, match=r"certificate verify failed: .* \(SSL_CERT_FILE "):
        await Client(server.url, transports=[transport], open_timeout=3600).__aenter__()


async def test_a_server_without_tls_is_told_from_one_that_is_not_there(server: Server) -> None:
    url = server.url.replace("http:", "https:")
    with pytest.raises(TransportError, match=r"TLS failed: WRONG_VERSION_NUMBER \(does the server speak http\?\)"):
        await Client(url, open_timeout=0).__aenter__()


async def test_a_client_is_used_once(server: Server) -> None:
    client = Client(server.url)
    async with client:
        pass
    with pytest.raises(RuntimeError, match="a client can be opened once"):
        await client.__aenter__()


async def test_no_common_transport_is_an_error(start_server: StartServer) -> None:
    server = start_server("bayeux.transports=long-polling")
    with pytest.raises(TransportError, match="answered 400 to the upgrade"):
        await Client(server.url, transports=["websocket"], open_timeout=0).__aenter__()
    with pytest.raises(TransportError, match="answered 404 Not Found: Crewel's path is /cometd"):
        await Client(f"{server.base}/comet", transports=["long-polling"], open_timeout=0).__aenter__()
    socket_only = start_server("bayeux.transports=websocket")
    with pytest.raises((NegotiationError, TransportError)):
        await Client(socket_only.url, transports=["long-polling"], open_timeout=0).__aenter__()


async def test_a_refused_handshake_is_final(start_server: StartServer, transport: str) -> None:
    server = start_server(service="tests.client.strict")
    with pytest.raises(HandshakeRefused) as refused:
        await Client(server.url, transports=[transport]).__aenter__()
    assert (refused.value.code, refused.value.text) == (403, "handshake_denied")


async def test_a_server_that_asks_for_another_try_gets_it(start_server: StartServer, transport: str) -> None:
    server = start_server(service="tests.client.strict")
    token = {"ext": {"token": "let me in later"}}
    async with Client(server.url, transports=[transport], handshake=token, backoff=QUICK) as client:
        assert client.client_id is not None


@pytest.mark.parametrize("ack", [True, False])
async def test_messages_that_come_with_the_handshake_arrive_once(
    start_server: StartServer, transport: str, ack: bool
) -> None:
    server = start_server(
        "bayeux.timeout_ms=500", "bayeux.allow_message_delivery_during_handshake=true", service="tests.client.strict"
    )
    steps = Steps()
    client = Client(
        server.url, transports=[transport], ack=ack, handshake={"ext": {"token": "let me in"}}, on_state=steps
    )
    heard = client_listener(client, "/greeting")
    async with client:
        await steps.reach(State.CONNECTED)
        await client.publish("/service/any", None)
        last = await client.subscribe("/last")
        await client.publish("/last", None)
        await last.receive(LIMIT_S)
    assert heard == ["hello", "again"]


def client_listener(client: Client, channel: str) -> list[Any]:
    """What an extension sees on a channel that nobody could subscribe to before the handshake."""
    from crewel.bayeux.message import Fields
    from crewel.client import Extension

    heard: list[Any] = []

    class Listener(Extension):
        def incoming(self, message: Fields) -> Fields:
            if message.get("channel") == channel:
                heard.append(message["data"])
            return message

    client.add_extension(Listener())
    return heard
