"""Publishes that wait for the server."""

import asyncio
import logging
import math
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crewel.bayeux.message import Fields
from crewel.client import (
    Client,
    ClientError,
    DisconnectedError,
    MessageDroppedError,
    NotConnectedError,
    NotEncodableError,
    Outbox,
    OutboxFullError,
    PayloadRefusedError,
)
from crewel.client.errors import SocketClosedError
from crewel.client.outbox import RefusedPublish, log
from tests.client.support import QUICK
from tests.conftest import StartServer
from tests.ports import free_port
from tests.server_process import Server

LIMIT_S = 60.0


@pytest.fixture
def port() -> int:
    """A port on which no server listens yet."""
    return free_port()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the outbox is."""
    return tmp_path / "orders.outbox"


def away(outbox: Outbox, port: int) -> Client:
    """A client whose server is away."""
    return Client(f"http://127.0.0.1:{port}/cometd", outbox=outbox, backoff=QUICK, close_timeout=0.01)


@pytest.mark.server
async def test_what_is_published_while_the_server_is_away_is_sent_when_it_is_there(
    start_server: StartServer, port: int
) -> None:
    outbox = Outbox()
    async with away(outbox, port) as client:
        keys = [await client.enqueue("/orders", number) for number in range(3)]
        assert (outbox.waiting, len(set(keys))) == (3, 3)
        server = start_server(port=port)
        await outbox.drained(LIMIT_S)
        assert outbox.waiting == 0
        async with Client(server.url, update=True) as reader:
            past = await reader.subscribe("/later")
            await client.enqueue("/later", "live", key="k-1", properties={"a": 1})
            message = await past.receive(LIMIT_S)
            assert (message.data, message.idempotency_key, message.is_persistent) == ("live", "k-1", True)
            assert message.client_properties["a"] == 1


@pytest.mark.server
async def test_a_file_outlives_the_process_and_keeps_the_order(server: Server, port: int, file: Path) -> None:
    async with away(Outbox(file), port) as client:
        for number in range(250):
            await client.enqueue("/outbox/file", number)
        assert file.stat().st_mode & 0o777 == 0o600
    async with Client(server.url) as reader:
        heard = await reader.subscribe("/outbox/file")
        outbox = Outbox(file)
        async with Client(server.url, outbox=outbox):
            await outbox.drained(LIMIT_S)
        assert [(await heard.receive(LIMIT_S)).data for _ in range(250)] == list(range(250))
    async with Client(server.url, outbox=(again := Outbox(file))):
        assert again.waiting == 0


@pytest.mark.server
async def test_a_key_is_one_message(server: Server) -> None:
    async with Client(server.url, outbox=Outbox()) as client, Client(server.url) as reader:
        heard = await reader.subscribe("/outbox/key")
        for _ in range(2):
            await client.enqueue("/outbox/key", "once", key="order-7")
            assert client.outbox is not None
            await client.outbox.drained(LIMIT_S)
        await client.enqueue("/outbox/key", "last")
        assert [(await heard.receive(LIMIT_S)).data for _ in range(2)] == ["once", "last"]


@pytest.mark.server
async def test_what_the_server_refuses_is_kept_with_the_reason(server: Server, file: Path) -> None:
    refused: list[RefusedPublish] = []
    outbox = Outbox(file, on_refused=refused.append)
    async with Client(server.url, outbox=outbox) as client:
        await client.enqueue("/outbox/refused", 1, priority=77, key="bad")
        await client.enqueue("/outbox/refused", "x" * 100_000, key="large")
        await client.enqueue("/outbox/refused", 2)
        await outbox.drained(LIMIT_S)
        found = [(each.key, each.channel, each.error_code) for each in await outbox.refused()]
        assert found == [
            ("bad", "/outbox/refused", "user.illegalArgument"),
            ("large", "/outbox/refused", "user.maxSizeExceed"),
        ]
        assert {each.key for each in refused} == {"bad", "large"}
    async with Client(server.url, outbox=(again := Outbox(file))):
        assert len(await again.refused()) == 2
        await again.forget_refused()
        assert await again.refused() == []


def nested(levels: int) -> Any:
    """Data of so many levels."""
    data: Any = 1
    for _ in range(levels):
        data = [data]
    return data


@pytest.mark.server
async def test_what_the_server_never_takes_keeps_nothing_waiting(
    server: Server, port: int, file: Path, transport: str
) -> None:
    """It was put into the file by a process whose server was away."""
    channel = f"/outbox/deep/{transport}"
    async with away(Outbox(file), port) as client:
        for number in range(10):
            await client.enqueue(channel, nested(70) if number in (3, 4) else number, key=f"{transport} {number}")
    refused: list[RefusedPublish] = []
    async with Client(server.url) as reader:
        heard = await reader.subscribe(channel)
        outbox = Outbox(file, on_refused=refused.append)
        async with Client(server.url, outbox=outbox, transports=[transport]):
            await outbox.drained(LIMIT_S)
            assert [(await heard.receive(LIMIT_S)).data for _ in range(8)] == [0, 1, 2, *range(5, 10)]
            kept = await outbox.refused()
    assert kept == refused
    assert [(each.key[-1], each.error_code) for each in kept] == [
        ("3", "user.illegalArgument"),
        ("4", "user.illegalArgument"),
    ]
    assert all("deeper than bayeux.max_depth, which is 64" in each.text for each in kept)


@pytest.mark.server
async def test_more_than_the_server_takes_in_one_batch_go_in_several(
    start_server: StartServer, port: int, transport: str
) -> None:
    outbox = Outbox()
    client = Client(f"http://127.0.0.1:{port}/cometd", outbox=outbox, backoff=QUICK, transports=[transport])
    async with client:
        for number in range(10):
            await client.enqueue("/outbox/batch", number)
        start_server("bayeux.max_batch_messages=4", port=port)
        await outbox.drained(LIMIT_S)
        assert await outbox.refused() == []
        batch = client.batch()
        for number in range(5):
            batch.publish("/outbox/batch", number)
        with pytest.raises(PayloadRefusedError, match=r"in one batch \(5; bayeux\.max_batch_messages is 4\)"):
            await batch.__aexit__(None, None, None)


@pytest.mark.server
async def test_a_refused_publish_is_replaced_by_the_next_one_with_its_key(server: Server, file: Path) -> None:
    async with Client(server.url, outbox=(outbox := Outbox(file))) as client, Client(server.url) as reader:
        heard = await reader.subscribe("/outbox/replaced")
        await client.enqueue("/outbox/replaced", "wrong", priority=77, key="bad")
        await outbox.drained(LIMIT_S)
        assert [each.key for each in await outbox.refused()] == ["bad"]
        await client.enqueue("/outbox/replaced", "right", key="bad")
        await outbox.drained(LIMIT_S)
        assert (await heard.receive(LIMIT_S)).data == "right"
        assert await outbox.refused() == []


@pytest.mark.server
async def test_an_outbox_ends_with_its_session(server: Server) -> None:
    outbox = Outbox()
    async with Client(server.url, outbox=outbox) as client:
        await client.ready(LIMIT_S)
        await client.enqueue("/outbox/end", 1)
        await outbox.drained(LIMIT_S)
    with pytest.raises(NotConnectedError, match="is not entered"):
        await client.enqueue("/outbox/end", 2)


@pytest.mark.server
async def test_bytes_and_content_types_arrive(server: Server) -> None:
    picture = bytes(range(256)) + b"odd"
    async with Client(server.url, update=True) as client:
        heard = await client.subscribe("/outbox/bytes")
        await client.publish("/outbox/bytes", picture, content_type="image/png")
        await client.publish("/outbox/bytes", b"")
        await client.publish("/outbox/bytes", "<a/>", content_type="application/xml", properties={"b": 2})
        await client.publish("/outbox/bytes", 1)
        messages = [await heard.receive(LIMIT_S) for _ in range(4)]
    assert [(each.content, each.content_type) for each in messages] == [
        (picture, "image/png"),
        (b"", "application/octet-stream"),
        (None, "application/xml"),
        (None, None),
    ]
    assert messages[2].client_properties == {"b": 2, "contentType": "application/xml"}


# Without a server: the port is closed, and a refused connection is all that comes of it.


@pytest.mark.server
async def test_an_outbox_is_bounded(port: int) -> None:
    async with away(Outbox(max_messages=2), port) as client:
        await client.enqueue("/a", 1)
        await client.enqueue("/a", 2)
        with pytest.raises(OutboxFullError, match="has 2 of 2 messages"):
            await client.enqueue("/a", 3)
    async with away(Outbox(max_bytes=500), port) as client:
        await client.enqueue("/a", "x" * 200)
        with pytest.raises(OutboxFullError, match="of 500 bytes"):
            await client.enqueue("/a", "x" * 200)


@pytest.mark.server
async def test_a_key_that_waits_is_not_added_again(port: int) -> None:
    async with away(outbox := Outbox(), port) as client:
        assert [await client.enqueue("/a", each, key="k") for each in (1, 2)] == ["k", "k"]
        assert outbox.waiting == 1


@pytest.mark.server
async def test_a_file_belongs_to_one_client(port: int, file: Path) -> None:
    async with away(outbox := Outbox(file), port):
        with pytest.raises(ClientError, match="cannot be used: database is locked"):
            await away(Outbox(file), port).__aenter__()
        with pytest.raises(ClientError, match="belongs to another client"):
            await away(outbox, port).__aenter__()


@pytest.mark.server
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda file: file.write_bytes(b"no database" * 100), "file is not a database"),
        (lambda file: file.mkdir(), "orders.outbox"),
        (lambda file: _with_version(file, 99), "it has the format 99, and this version of Crewel knows 1"),
    ],
)
async def test_a_file_that_is_no_outbox_is_refused(
    port: int, file: Path, damage: Callable[[Path], object], words: str
) -> None:
    damage(file)
    with pytest.raises(ClientError, match=words):
        await away(Outbox(file), port).__aenter__()


@pytest.mark.server
async def test_a_file_that_is_refused_is_closed(port: int, file: Path) -> None:
    _with_version(file, 99)
    with pytest.raises(ClientError) as refusal:
        await away(Outbox(file), port).__aenter__()
    _with_version(file, 0)  # while the traceback lives
    assert "99" in str(refusal.value)
    async with away(Outbox(file), port):
        pass


def _with_version(file: Path, version: int) -> None:
    database = sqlite3.connect(file, timeout=0)
    database.execute(f"PRAGMA user_version = {version}")
    database.close()


@pytest.mark.server
async def test_what_cannot_be_published_is_refused_at_once(port: int) -> None:
    async with away(Outbox(), port) as client:
        with pytest.raises(NotEncodableError, match="data is NaN"):
            await client.enqueue("/a", float("nan"))
        with pytest.raises(ValueError, match=r"key is a string, not 7"):
            await client.enqueue("/a", 1, key=7)  # type: ignore[typeddict-item]
        with pytest.raises(ValueError, match="nothing can be published to"):
            await client.enqueue("/a/*", 1)
        with pytest.raises(ValueError, match="life_time is a number of seconds"):
            await client.enqueue("/a", 1, life_time=-5)


@pytest.mark.unit
async def test_a_client_without_an_outbox_says_how_to_give_it_one() -> None:
    with pytest.raises(ClientError, match=r"Outbox\(path\)"):
        await Client("http://127.0.0.1:1/cometd").enqueue("/a", 1)


@pytest.mark.unit
@pytest.mark.parametrize("name", ["max_messages", "max_bytes"])
def test_a_wrong_bound_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is a whole number from 1, not 0"):
        Outbox(**{name: 0})  # type: ignore[arg-type]


@pytest.mark.unit
@pytest.mark.parametrize("given", ["", 5])
async def test_a_wrong_content_type_is_named(given: object) -> None:
    with pytest.raises(ValueError, match="content_type is a media type such as image/png"):
        await Client("http://127.0.0.1:1/cometd").publish("/a", 1, content_type=given)  # type: ignore[arg-type]


# Without a client: the test plays the server.


class World:
    """An outbox, what the client of the test has sent of it, and the answers of the server that the test plays."""

    def __init__(self, file: Path | None = None) -> None:
        self.refused: list[RefusedPublish] = []
        self.outbox = Outbox(file, on_refused=self.refused.append)
        self.sent: list[list[Any]] = []
        self.answer: Callable[[list[Any]], Awaitable[list[Fields]]] = self.accept

    async def accept(self, bodies: list[Any]) -> list[Fields]:
        """Accept all."""
        return [{"channel": "/a", "successful": True} for _ in bodies]

    async def request(self, messages: list[Fields]) -> list[Fields]:
        """Note the data, and answer."""
        self.sent.append([message["data"] for message in messages])
        return await self.answer(self.sent[-1])

    async def put(self, *bodies: object, channel: str = "/a", **publish: object) -> None:
        """Put messages with these data into the outbox; their keys are the texts of the data."""
        for body in bodies:
            ext = {"publish": {"key": str(body), **publish}}
            await self.outbox.put({"channel": channel, "data": body, "ext": ext})

    @property
    def table(self) -> Any:
        """The table of the open outbox."""
        return self.outbox._table

    async def rename(self, old: str, new: str) -> None:
        """Rename the table, without which the file cannot be used."""
        await self.table.call(lambda: self.table._database.execute(f"ALTER TABLE {old} RENAME TO {new}"))


@pytest.fixture
async def world(file: Path) -> AsyncIterator[World]:
    """An open outbox that does not send yet."""
    made = World(file)
    await made.outbox.open()
    yield made
    await made.outbox.close(0)


@pytest.mark.unit
async def test_a_cancelled_enqueue_counts_if_its_message_was_added(world: World) -> None:
    gate = threading.Event()
    blocking = asyncio.create_task(world.table.call(gate.wait))
    await asyncio.sleep(0)
    adding = asyncio.create_task(world.put(1))
    await asyncio.sleep(0)
    adding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await adding
    gate.set()
    await blocking
    world.outbox.start(world.request)
    await world.put(2)
    await world.outbox.drained(LIMIT_S)
    assert (world.outbox.waiting, [body for payload in world.sent for body in payload]) == (0, [1, 2])


@pytest.mark.unit
async def test_drained_ends_when_the_client_is_closed(world: World) -> None:
    await world.put(1)
    waiting = asyncio.create_task(world.outbox.drained())
    await asyncio.sleep(0)
    await world.outbox.close(0)
    for drained in (waiting, world.outbox.drained()):
        with pytest.raises(DisconnectedError, match="1 publishes are left"):
            await asyncio.wait_for(drained, 5)


class Heard(logging.Handler):
    """Waits for a line of the outbox's log."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] = []
        self._more = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Note the line."""
        self._lines.append(record.getMessage())
        self._more.set()

    async def wait_for(self, words: str) -> None:
        """Wait until there is a line with these words."""
        async with asyncio.timeout(LIMIT_S):
            while not any(words in line for line in self._lines):
                self._more.clear()
                await self._more.wait()


@pytest.fixture
def heard() -> Iterator[Heard]:
    """The log of the outbox."""
    handler = Heard()
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


@pytest.mark.unit
async def test_a_file_that_fails_after_the_answer_is_tried_again_and_nothing_is_sent_twice(
    world: World, heard: Heard
) -> None:
    async def refuse_the_second(bodies: list[Any]) -> list[Fields]:
        await world.rename("outbox", "away")
        refused = {"channel": "/a", "successful": False, "error": "400::no"}
        return [refused if body == 2 else {"channel": "/a", "successful": True} for body in bodies]

    await world.put(1, 2)
    world.answer = refuse_the_second
    world.outbox.start(world.request)
    await heard.wait_for("no such table: outbox: trying again")
    world.answer = world.accept
    await world.rename("away", "outbox")
    await world.outbox.drained(LIMIT_S)
    assert (world.sent, [each.key for each in world.refused]) == ([[1, 2]], ["2"])
    await world.put(3)
    await world.outbox.drained(LIMIT_S)
    assert (world.sent, world.outbox.failure) == ([[1, 2], [3]], None)


@pytest.mark.unit
async def test_a_message_that_is_put_off_keeps_no_others_waiting(world: World) -> None:
    put_off = {"channel": "/a", "successful": False, "error": "503::later"}
    put_off["ext"] = {"publish": {"errorCode": "resource.temporary.unavailable"}}

    async def put_off_until_all_others_are_there(bodies: list[Any]) -> list[Fields]:
        before = {body for payload in world.sent[:-1] for body in payload}
        is_last = len(before) == 250
        return [put_off if body == 0 and not is_last else {"channel": "/a", "successful": True} for body in bodies]

    await world.put(*range(250))
    world.answer = put_off_until_all_others_are_there
    world.outbox.start(world.request)
    await world.outbox.drained(LIMIT_S / 10)
    assert world.sent == [[*range(100)], [0, *range(100, 199)], [0, *range(199, 250)], [0]]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("full", "free"),
    [
        ({"channel": "/full"}, {"channel": "/free"}),
        ({"deliverAt": 1}, {}),
        ({}, {"deliverAfter": 1}),
    ],
)
async def test_a_cap_puts_off_only_the_publishes_that_it_counts(
    world: World, full: dict[str, Any], free: dict[str, Any]
) -> None:
    capped = {"channel": "/full", "successful": False, "error": "429:limits:resource.exhaust"}
    accepted: list[Any] = []

    async def refuse_until_the_others_are_there(bodies: list[Any]) -> list[Fields]:
        is_free = "last" in accepted
        taken = [isinstance(body, str) or is_free for body in bodies]
        accepted.extend(body for body, is_taken in zip(bodies, taken, strict=True) if is_taken)
        return [{"channel": "/a", "successful": True} if is_taken else capped for is_taken in taken]

    await world.put(*range(150), **full)
    await world.put("first", "last", **free)
    world.answer = refuse_until_the_others_are_there
    world.outbox.start(world.request)
    await world.outbox.drained(LIMIT_S / 10)
    assert accepted == ["first", "last", *range(150)]
    assert world.sent[:2] == [[*range(100)], ["first", "last"]]
    assert world.refused == []


@pytest.mark.unit
@pytest.mark.parametrize(
    "error",
    [
        MessageDroppedError("dropped"),
        NotEncodableError("data is NaN"),
        PayloadRefusedError("too deep"),
        SocketClosedError(1009),
        SocketClosedError(1007, "no UTF-8"),
    ],
)
async def test_a_message_that_does_not_get_out_is_refused_alone(world: World, error: ClientError) -> None:
    async def fail_with_the_second(bodies: list[Any]) -> list[Fields]:
        if 2 in bodies:
            raise error
        return await world.accept(bodies)

    await world.put(1, 2, 3)
    world.answer = fail_with_the_second
    world.outbox.start(world.request)
    await world.outbox.drained(LIMIT_S / 10)
    assert [(each.key, each.error_code, each.text) for each in world.refused] == [
        ("2", "user.illegalArgument", str(error))
    ]
    assert world.sent[-1] == [3]
    assert [body for payload in world.sent for body in payload if len(payload) == 1][:2] == [1, 2]


@pytest.mark.unit
async def test_a_socket_that_is_closed_for_another_reason_refuses_nothing(world: World) -> None:
    codes = [1007, 1007, 1008, 1007]

    async def close_at_first(bodies: list[Any]) -> list[Fields]:
        if codes:
            raise SocketClosedError(codes.pop(0))
        return await world.accept(bodies)

    await world.put(1)
    world.answer = close_at_first
    world.outbox.start(world.request)
    await world.outbox.drained(LIMIT_S)
    assert (len(world.sent), world.refused) == (5, [])


@pytest.mark.unit
async def test_a_drain_that_takes_too_long_ends() -> None:
    outbox = Outbox()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(LIMIT_S):
            await outbox.drained(0.01)


@pytest.mark.parametrize("timeout", [-1, math.inf])
async def test_a_drain_may_have_no_limit(timeout: float) -> None:
    draining = asyncio.create_task(Outbox().drained(timeout))
    await asyncio.sleep(0.01)
    assert not draining.done()
    draining.cancel()
    await asyncio.wait([draining])


async def test_a_wrong_limit_of_a_drain_is_named() -> None:
    with pytest.raises(ValueError, match="timeout is a number of seconds from 0, not -2"):
        await Outbox().drained(-2)
