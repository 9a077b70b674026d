"""Tokens that a function gives, against a real server that asks for JSON Web Tokens."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crewel.bayeux.message import Fields
from crewel.client import AccessDenied, Client, Event, Extension, Message, Outbox, State, TokenUnavailableError, sync
from tests.client.support import LIMIT_S, QUICK, Steps
from tests.conftest import StartServer
from tests.security.issuer import secret_file, signed
from tests.server_process import Server, serving

HOUR = 3600
SOON_S = 6
"""How long a token lives that has to expire at the server: a busy machine takes a part of it to log in."""


class Issuer:
    """A back end: every token is another one."""

    def __init__(self, *first: str | Exception, **claims: Any) -> None:
        self.first, self.claims = list(first), claims
        self.given: list[str] = []
        self.lifetime_s = HOUR

    def __call__(self) -> str:
        if self.first:
            given = self.first.pop(0)
            if isinstance(given, Exception):
                raise given
        else:
            given = signed(exp=int(time.time()) + self.lifetime_s, jti=str(len(self.given)), **self.claims)
        self.given.append(given)
        return given

    async def later(self) -> str:
        """Be a coroutine function."""
        await asyncio.sleep(0)
        return self()


def with_clock(client: Client, clock: Callable[[], float]) -> Client:
    """Let the client take this for the time: so a token is due early, or never, whatever the speed of the machine."""
    client._session._tokens._clock = clock
    return client


def ahead(lifetime_s: float) -> Callable[[], float]:
    """A clock by which a token that is good for an hour lives for so long."""
    return lambda: time.time() + HOUR - lifetime_s


def behind() -> float:
    """A clock by which no token expires."""
    return time.time() - HOUR


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that holds connects for longer than any test lasts, and lets no token live longer than it says."""
    place = tmp_path_factory.mktemp("server")
    sets = ("security.policy=jwt", f"security.jwt_keys={secret_file(place)}", "security.jwt_leeway_ms=0")
    with serving(place, *sets, "bayeux.sweep_ms=100") as server:
        yield server


async def test_a_token_is_renewed_before_it_expires_and_nothing_is_lost_or_comes_twice(
    server: Server, transport: str
) -> None:
    """Publishes go on all the time: none fails, and each message is delivered once, in its order."""
    channel = f"/chat/{transport}"
    steps, issuer = Steps(), Issuer(publish=["/chat/*"], configure=["/chat/*"])
    client = Client(server.url, transports=[transport], name="joe/1", token=issuer, on_state=steps)
    async with asyncio.timeout(LIMIT_S), with_clock(client, ahead(1.0)):
        # Who subscribes again gets the history again.
        messages, sent = await client.subscribe(channel, history=5), 0
        while len([step for step in steps.seen if step.event is Event.RENEWING]) < 3:
            await client.publish(channel, sent, history_max=5)
            assert (await anext(messages)).data == sent
            sent += 1
        assert client.login["reconnected"] is True
    assert {step.event for step in steps.seen}.isdisjoint({Event.SESSION_LOST, Event.CONNECTION_LOST})
    assert len(set(issuer.given)) >= 4


async def test_a_message_that_the_application_has_does_not_come_again_with_the_next_token(
    server: Server, transport: str
) -> None:
    channel = f"/chat/open-{transport}"
    steps, issuer = Steps(), Issuer(publish=["/chat/*"], configure=["/chat/*"])
    client = Client(server.url, transports=[transport], name="joe/1", update=True, token=issuer, on_state=steps)
    async with asyncio.timeout(LIMIT_S), with_clock(client, ahead(1.0)):
        messages = await client.subscribe(channel)
        await client.publish(channel, 1)
        first = await messages.receive(defer=True)
        await steps.reach(State.CONNECTED, 3)
        await client.publish(channel, 2)
        second = await messages.receive(defer=True)
        assert (first.data, second.data, client.login["reconnected"]) == (1, 2, True)
        first.settle()
        second.settle()


class Renewed(Extension):
    """Notes the channels to which a client sends, from the handshake with its second token on, which it passes on."""

    def __init__(self, renewing: Callable[[Fields], object]) -> None:
        self.channels: list[str] = []
        self._renewing, self._handshakes = renewing, 0

    def outgoing(self, message: Fields) -> Fields:
        """Note one."""
        self._handshakes += message["channel"] == "/meta/handshake"
        if self._handshakes > 1:
            self.channels.append(message["channel"])
            if len(self.channels) == 1:
                self._renewing(message)
        return message


@pytest.mark.parametrize("decide", [Message.settle, lambda message: message.reject("user.update.deadMessage")])
@pytest.mark.parametrize("leave", [True, False])
async def test_a_client_that_is_closed_during_a_renewal_sends_its_last_statuses_and_disconnects(
    server: Server, transport: str, leave: bool, decide: Callable[[Message], None]
) -> None:
    channel, leaving = f"/chat/closed-{transport}-{leave}", asyncio.Event()

    def settle(handshake: Fields) -> None:
        decide(first)
        leaving.set()

    sent, issuer = Renewed(settle), Issuer(publish=["/chat/*"], configure=["/chat/*"])
    options: Any = {"transports": [transport], "name": "joe/1", "update": True, "token": issuer}
    client = Client(server.url, extensions=[sent], leave=leave, close_timeout=LIMIT_S, **options)
    async with asyncio.timeout(LIMIT_S):
        async with with_clock(client, ahead(1.0)):
            messages = await client.subscribe(channel)
            await client.publish(channel, 1, persistent=True)
            first = await messages.receive(defer=True)
            await leaving.wait()
            assert client.state is State.HANDSHAKING
        assert sent.channels == [
            "/meta/handshake",
            "/meta/connect",
            "/service/update",
            *["/meta/disconnect"] * (not leave),
        ]
        async with Client(server.url, **options) as again:
            assert again.login["reconnected"] is leave
            messages = await again.subscribe(channel)
            await again.publish(channel, 2, persistent=True)
            assert (await anext(messages)).data == 2


async def test_a_renewal_that_takes_too_long_does_not_keep_a_client_from_closing(server: Server) -> None:
    issuer, asked = Issuer(), asyncio.Event()

    async def give() -> str:
        if len(issuer.given) == 2:
            asked.set()
            await asyncio.Event().wait()
        return issuer()

    def spoil(handshake: Fields) -> None:
        handshake["ext"]["session"]["token"] = "no token"

    client = Client(
        server.url, name="joe/2", token=give, extensions=[Renewed(spoil)], close_timeout=0.1, network_delay=LIMIT_S * 10
    )
    async with asyncio.timeout(LIMIT_S):
        async with with_clock(client, ahead(1.0)):
            await asked.wait()
        assert client.state is State.CLOSED


async def test_a_held_connect_does_not_keep_a_silent_client_from_its_next_token(server: Server, transport: str) -> None:
    steps, issuer = Steps(), Issuer()
    client = Client(server.url, transports=[transport], name="joe/1", token=issuer.later, on_state=steps)
    async with asyncio.timeout(LIMIT_S), with_clock(client, ahead(1.0)):
        await steps.reach(State.CONNECTED, 3)
    assert [step.event for step in steps.seen if step.new is State.HANDSHAKING] == [
        Event.OPENED,
        Event.RENEWING,
        Event.RENEWING,
    ]


async def test_a_session_goes_on_while_the_function_fails(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    steps, issuer = Steps(), Issuer(signed(), OSError("no back end"), OSError("no back end"))
    client = Client(server.url, name="joe/1", token=issuer, on_state=steps)
    async with asyncio.timeout(LIMIT_S), with_clock(client, ahead(1.0)):
        await steps.reach(State.CONNECTED, 2)
        assert not issuer.first
    assert "no back end" in caplog.text
    assert Event.SESSION_LOST not in [step.event for step in steps.seen]


async def test_a_token_that_has_expired_at_the_server_is_asked_for_until_there_is_another(
    server: Server, transport: str
) -> None:
    """The clocks differ, and the back end is late itself: it gives the same token once more."""
    channel, rights = f"/chat/late-{transport}", {"publish": ["/chat/*"], "configure": ["/chat/*"]}
    steps, old = Steps(), signed(exp=int(time.time()) + SOON_S, **rights)
    issuer = Issuer(old, old, old, OSError("no back end"), **rights)
    client = Client(
        server.url, transports=[transport], name="joe/1", token=issuer, on_state=steps, backoff=QUICK, open_timeout=0
    )
    async with asyncio.timeout(LIMIT_S), with_clock(client, behind):
        messages = await client.subscribe(channel, history=5)
        await client.publish(channel, 0, history_max=5)
        assert (await anext(messages)).data == 0
        lost = await steps.reach(State.HANDSHAKING, 2)
        assert (lost.event, "user.security.authentication.expired" in str(lost.reason)) == (Event.SESSION_LOST, True)
        await steps.reach(State.CONNECTED, 2)
        assert client.login["reconnected"] is True
        assert (len(issuer.given), issuer.first) == (4, [])
        await client.publish(channel, 1)
        assert (await anext(messages)).data == 1


async def test_a_token_that_is_not_taken_any_more_is_asked_for_again(start_server: StartServer, tmp_path: Path) -> None:
    """Its key was changed. The server forgets its sessions, so that the client needs a token at once."""
    keys, steps = secret_file(tmp_path), Steps()
    sets = ("security.policy=jwt", f"security.jwt_keys={keys}", "storage.enabled=false")
    server = start_server(*sets)
    issuer = Issuer(signed())
    async with (
        asyncio.timeout(2 * LIMIT_S),
        Client(server.url, name="joe/1", token=issuer, on_state=steps, backoff=QUICK) as client,
    ):
        await steps.reach(State.CONNECTED)
        await asyncio.to_thread(server.kill)
        changed = "another secret that has more than the sixty-four bytes that HS512 asks for"
        keys.write_text(changed)
        issuer.first = [signed(changed)]
        await asyncio.to_thread(lambda: start_server(*sets, port=server.port))
        await steps.reach(State.CONNECTED, 2)
        await client.publish("/chat/demo", 1)
    assert len(issuer.given) == 2


async def test_the_first_token_has_to_be_good(server: Server) -> None:
    issuer = Issuer(signed(exp=5))
    with pytest.raises(AccessDenied, match="expired"):
        await Client(server.url, name="joe/1", token=issuer).__aenter__()
    assert len(issuer.given) == 1
    with pytest.raises(TokenUnavailableError, match="no back end"):
        await Client(server.url, token=Issuer(OSError("no back end")), open_timeout=0).__aenter__()
    async with Client(server.url, token=Issuer(OSError("no back end")), backoff=QUICK) as client:
        await client.publish("/chat/demo", 1)


async def test_a_session_ends_whose_function_gives_what_is_refused(start_server: StartServer, tmp_path: Path) -> None:
    """A user who has lost the access: to ask again and again is of no use."""
    sets = ("security.policy=jwt", f"security.jwt_keys={secret_file(tmp_path)}", "storage.enabled=false")
    server, steps = start_server(*sets), Steps()
    issuer = Issuer(signed(exp=int(time.time()) + SOON_S), "no token", "no token")
    async with asyncio.timeout(LIMIT_S), Client(server.url, name="joe/1", token=issuer, on_state=steps) as client:
        with pytest.raises(AccessDenied, match="accessDenied"):
            await anext(await client.subscribe("/chat/demo"))
        assert (await steps.reach(State.CLOSED)).event is Event.ENDED


async def test_workers_and_outboxes_ask_the_function_of_their_client(server: Server, tmp_path: Path) -> None:
    issuer, outbox = Issuer(), Outbox()
    async with (
        asyncio.timeout(LIMIT_S),
        Client(server.url, token=issuer, outbox=outbox) as client,
        client.consume("/chat/demo", name="joe/7", resume_file=tmp_path / "joe.resume") as consumer,
    ):
        await client.enqueue("/chat/demo", 1)
        await outbox.drained()
        async with await anext(consumer) as message:
            data = message.data
        assert data == 1
    assert len(issuer.given) == 2


def test_a_program_without_asyncio_has_a_plain_function(server: Server) -> None:
    issuer = Issuer()
    for give in (issuer, issuer.later):
        with sync.Client(server.url, name="joe/3", token=give) as client:
            messages = client.subscribe("/chat/demo")
            client.publish("/chat/demo", 1)
            assert messages.receive(timeout=LIMIT_S).data == 1
    assert len(issuer.given) == 2
