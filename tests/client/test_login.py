"""Who the client is: names, tokens and `resume`, and messages that are stored, against the real server."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crewel.client import (
    AccessDenied,
    Client,
    ClientError,
    DestinationDenied,
    DestinationRefused,
    Event,
    HandshakeRefused,
    NameTaken,
    NotStored,
    PublishRefused,
    QueueOverflow,
    RefusedError,
    Reply,
    State,
    SupersededError,
    TopicReadonly,
    UnknownDestination,
    UnknownDestinationSession,
)
from crewel.client.client_extension import LoginExtension
from crewel.client.config import Config
from crewel.client.errors import handshake_refused, publish_refused
from tests.client.support import LIMIT_S, QUICK, Steps
from tests.conftest import StartServer
from tests.cutting_proxy import CuttingProxy
from tests.security.issuer import secret_file, signed
from tests.server_process import Server

NOWHERE = "http://localhost/cometd"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that remembers long; its connects are held for half a second."""
    options = ["--port=0", "--set=bayeux.timeout_ms=500", "--set=bayeux.sweep_ms=100"]
    server = Server(options, tmp_path_factory.mktemp("server"))
    yield server
    server.end_well()


class TestExtension:
    def test_who_asks_for_nothing_says_so_and_wants_no_session_back(self) -> None:
        extension = LoginExtension(Config(NOWHERE, name=None, persistent=False).login)
        shake: dict[str, Any] = {"channel": "/meta/handshake"}
        assert extension.outgoing(dict(shake))["ext"] == {"session": {}}
        extension.incoming({"channel": "/meta/handshake", "successful": True, "ext": {"session": {"resume": "first"}}})
        assert extension.outgoing(dict(shake))["ext"] == {"session": {}}

    def test_the_fields_of_the_application_are_joined_by_the_last_secret(self) -> None:
        extension = LoginExtension(
            Config(NOWHERE, ack=False, session={"timeout": 5}, name="joe/1", resume="first").login
        )
        shake: dict[str, Any] = {"channel": "/meta/handshake", "ext": {"ack": True}}
        session = {"timeout": 5, "name": "joe/1", "resume": "first"}
        ext = extension.outgoing(dict(shake))["ext"]
        nonce = ext["session"].pop("nonce")
        assert ext == {"ack": True, "session": session}
        extension.incoming({"channel": "/meta/handshake", "successful": True, "ext": {"session": {"resume": "second"}}})
        again = extension.outgoing(dict(shake))["ext"]["session"]
        assert again["resume"] == "second"
        assert (len(again["nonce"]), again["nonce"] == nonce) == (32, False)
        assert extension.outgoing({"channel": "/a"}) == {"channel": "/a"}

    @pytest.mark.parametrize("ext", [None, 5, {}, {"session": 5}, {"session": {"resume": 5}}])
    def test_a_server_that_answers_oddly_does_no_harm(self, ext: Any) -> None:
        extension = LoginExtension({"name": "joe"})
        extension.incoming({"channel": "/meta/handshake", "successful": True, "ext": ext})
        assert extension.resume is None


@pytest.mark.parametrize(
    ("reply", "make", "kind", "code"),
    [
        ({"error": "403:joe:user.security.authentication.expired"}, handshake_refused, AccessDenied, "expired"),
        ({"error": "403:joe:user.configuration.identicalClient"}, handshake_refused, NameTaken, "identicalClient"),
        ({"error": "403:joe:user.configuration.maxSession"}, handshake_refused, HandshakeRefused, "maxSession"),
        ({"error": "403::handshake_denied"}, handshake_refused, HandshakeRefused, ""),
        ({"error": "503::resource.unavailable"}, publish_refused, NotStored, "unavailable"),
        ({"error": "503::resource.noMoreSpace"}, publish_refused, NotStored, "noMoreSpace"),
        ({"error": "413:x:resource.overflow.queue.entries"}, publish_refused, QueueOverflow, "entries"),
        ({"error": "413:x:resource.overflow.queue.bytes"}, publish_refused, QueueOverflow, "bytes"),
        ({"error": "404:joe:user.ptp.unknownDestination"}, publish_refused, UnknownDestination, "unknownDestination"),
        (
            {"error": "404:joe/1:user.ptp.unknownDestinationSession"},
            publish_refused,
            UnknownDestinationSession,
            "unknownDestinationSession",
        ),
        ({"error": "404:joe/1:user.ptp.denied"}, publish_refused, DestinationDenied, "denied"),
        ({"error": "404:joe/1:user.ptp.unknownSession"}, publish_refused, DestinationRefused, "unknownSession"),
        ({"error": "409:/a:user.publish.readonly"}, publish_refused, TopicReadonly, "readonly"),
        ({"error": "403::publish_denied"}, publish_refused, PublishRefused, ""),
        ({}, publish_refused, PublishRefused, ""),
    ],
)
def test_each_dotted_code_has_its_exception(
    reply: dict[str, Any], make: Any, kind: type[RefusedError], code: str
) -> None:
    error = make({"channel": "/a", "successful": False, **reply})
    assert type(error) is kind
    assert error.error_code.rpartition(".")[2] == code


def test_what_the_server_says_for_people_is_in_the_error() -> None:
    told = {"errorCode": "user.illegalArgument", "message": "key: must be a string"}
    error = publish_refused({"channel": "/a", "error": "400:key:user.illegalArgument", "ext": {"publish": told}})
    assert (error.error_code, error.message) == ("user.illegalArgument", "key: must be a string")
    assert str(error).endswith("(key: must be a string)")


@pytest.mark.parametrize(
    ("reply", "message_id"),
    [({"ext": {"publish": {"id": "7"}}}, "7"), ({}, None), ({"ext": 5}, None), ({"ext": {"publish": {"id": 7}}}, None)],
)
def test_a_reply_knows_the_message_id(reply: dict[str, Any], message_id: str | None) -> None:
    assert Reply(reply).message_id == message_id


async def test_a_client_has_the_name_that_it_asks_for(server: Server, transport: str) -> None:
    async with Client(server.url, transports=[transport], name="joe/1") as client:
        assert client.name is not None
        assert re.fullmatch(r"/node/[^/]+/client/joe/1", client.name)
        assert client.login["durable"] is True
        assert client.resume


async def test_stored_messages_are_answered_with_their_id(server: Server, transport: str) -> None:
    channel = f"/stored/{transport}"
    async with asyncio.timeout(LIMIT_S), Client(server.url, transports=[transport]) as client:
        messages = await client.subscribe(channel)
        first = await client.publish(channel, 1, persistent=True, key="k")
        again = await client.publish(channel, 2, persistent=True, key="k")
        assert first.message_id == again.message_id is not None
        async with client.batch() as batch:
            batch.publish(channel, 3, persistent=True, properties={"n": 1})
            batch.publish(channel, 4)
        assert [reply.message_id is None for reply in batch.replies] == [False, True]
        heard = [await anext(messages) for _ in range(3)]
        assert sorted(message.data for message in heard) == [1, 3, 4]
        (stored,) = [message for message in heard if message.data == 1]
        assert stored.fields["id"] == first.message_id
        with pytest.raises(PublishRefused, match="clientProperties"):
            await client.publish(channel, 1, properties={"b": {"base64": "?"}})


async def test_a_session_that_is_left_behind_collects_for_the_next_client(server: Server, transport: str) -> None:
    async with asyncio.timeout(LIMIT_S), Client(server.url) as other:
        first = Client(server.url, transports=[transport], name="ann/1", leave=True)
        first.on_state(steps := Steps())
        async with first:
            await first.subscribe("/left")
            await steps.reach(State.CONNECTED)  # before its first connect, the server gives the name to another client
            resume = first.resume
        await other.publish("/left", "meanwhile", persistent=True)
        with pytest.raises(NameTaken):
            async with Client(server.url, transports=[transport], name="ann/1", name_timeout=0):
                pass
        async with Client(server.url, transports=[transport], name="ann/1", resume=resume) as second:
            assert second.login["reconnected"] is True
            assert (await (await second.subscribe("/left")).receive(LIMIT_S)).data == "meanwhile"


async def test_a_name_whose_client_was_killed_is_waited_for(
    start_server: StartServer, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its socket is cut as by a kill; the connect that it held is not waited for."""
    server = start_server("bayeux.max_interval_ms=3000")
    proxy = await CuttingProxy(server.port).__aenter__()
    async with asyncio.timeout(LIMIT_S):
        first = Client(f"http://127.0.0.1:{proxy.port}/cometd", transports=[transport], name="ann/1")
        steps = Steps()
        first.on_state(steps)
        await first.__aenter__()
        await steps.reach(State.CONNECTED)
        with pytest.raises(NameTaken) as taken:
            await Client(server.url, name="ann/1", open_timeout=0).__aenter__()
        assert taken.value.retry_after is None  # its client is connected
        await proxy.__aexit__(None, None, None)
        async with Client(server.url, transports=[transport], name="ann/1", open_timeout=0) as second:
            assert second.login["reconnected"] is True
        assert re.search(r"its name is free in [0-3]\.", caplog.text)
        await first.__aexit__(None, None, None)


async def test_a_resume_file_lets_the_next_process_take_over_at_once(
    server: Server, transport: str, tmp_path: Path
) -> None:
    kept, more = tmp_path / "joe.resume", {"transports": [transport], "open_timeout": 0, "name_timeout": 0}
    async with asyncio.timeout(LIMIT_S):
        async with Client(server.url, name="kept/1", resume_file=kept, leave=True, **more) as first:
            await first.ready()
            assert kept.read_text().strip() == first.resume
            assert kept.stat().st_mode & 0o777 == 0o600
        async with Client(server.url, name="kept/1", resume_file=kept, **more) as second:
            assert second.login["reconnected"] is True
            assert kept.read_text().strip() == second.resume != first.resume
        # The session has ended: what is kept is good for nothing, and does no harm.
        async with Client(server.url, name="kept/1", resume_file=kept, **more) as third:
            assert third.login["reconnected"] is False
            kept.write_text("somebody else's\n")
            with pytest.raises(NameTaken):
                await Client(server.url, name="kept/1", resume_file=kept, **more).__aenter__()


async def test_a_resume_file_that_cannot_be_read_is_said(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ClientError, match=r"cannot be read: .*Is a directory"):
        await Client(server.url, name="kept/2", resume_file=tmp_path).__aenter__()


class Full:
    """Keeps no secret, and raises an error of its own."""

    async def load(self) -> None:
        """Return none."""

    async def save(self, secret: str) -> None:
        """Fail."""
        raise OSError("no space left")


async def test_a_store_of_the_application_that_fails_does_not_end_the_session(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(LIMIT_S), Client(server.url, name="kept/3", resume_store=Full()) as client:
        await client.publish("/a", 1)
    assert "resume_store failed: the next process of this session has to wait for it" in caplog.text


async def test_who_is_taken_over_hears_so_and_ends(server: Server, transport: str) -> None:
    steps = Steps()
    async with asyncio.timeout(LIMIT_S):
        async with Client(server.url, transports=[transport], name="eve/1", on_state=steps) as first:
            messages = await first.subscribe("/taken")
            async with Client(server.url, transports=[transport], name="eve/1", resume=first.resume) as second:
                with pytest.raises(SupersededError):
                    await anext(messages)
                assert second.login["reconnected"] is True
        assert (await steps.reach(State.CLOSED)).event is Event.ENDED


async def test_a_client_goes_on_after_a_restart_of_the_server(start_server: StartServer, transport: str) -> None:
    server = start_server("bayeux.timeout_ms=1000")
    steps = Steps()
    async with (
        asyncio.timeout(2 * LIMIT_S),
        Client(server.url, transports=[transport], backoff=QUICK, on_state=steps) as client,
    ):
        messages = await client.subscribe("/a")
        client_id = client.client_id
        await client.publish("/a", 1, persistent=True)
        assert (await anext(messages)).data == 1
        await steps.reach(State.CONNECTED)
        await asyncio.to_thread(server.kill)
        await steps.reach(State.RECONNECTING)
        server = await asyncio.to_thread(lambda: start_server(*server.store_sets, port=server.port))
        await steps.reach(State.CONNECTED, 2)
        assert client.client_id == client_id
        await client.publish("/a", 2, persistent=True)
        while (await anext(messages)).data != 2:
            pass


async def test_a_client_takes_its_session_over_by_itself_when_the_server_has_lost_it(
    start_server: StartServer, transport: str
) -> None:
    """Another cookie jar or a lost clientId: the server says 402, and the next handshake shows name and resume."""
    server = start_server("bayeux.timeout_ms=500", "storage.enabled=false")
    steps = Steps()
    async with (
        asyncio.timeout(2 * LIMIT_S),
        Client(server.url, transports=[transport], name="joe/1", backoff=QUICK, on_state=steps) as client,
    ):
        await client.subscribe("/a")
        await steps.reach(State.CONNECTED)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(lambda: start_server(*server.store_sets, port=server.port))
        await steps.reach(State.CONNECTED, 2)
        assert client.login["reconnected"] is False


async def test_a_token_is_shown(start_server: StartServer, tmp_path: Path, transport: str) -> None:
    server = start_server("security.policy=jwt", f"security.jwt_keys={secret_file(tmp_path)}")
    async with Client(server.url, transports=[transport], name="joe/1", token=signed()) as client:
        await client.publish("/chat/demo", 1)
        with pytest.raises(PublishRefused, match="403:"):
            await client.publish("/other", 1)
    for token in (None, "x", signed(exp=5)):
        with pytest.raises(AccessDenied):
            async with Client(server.url, transports=[transport], name="joe/1", token=token):
                pass
