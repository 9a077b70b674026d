"""What becomes of messages that their receiver reports: xmlBlaster's table row by row, with the official client and ours, on
the real server and its store."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any

import orjson
import pytest

from crewel.client import Client
from crewel.settings import load
from crewel.storage import dead_letter_store
from crewel.storage.dead_letter_records import DeadLetterFilter, StoredDeadLetter
from crewel.storage.store import Store
from tests.admin.desk import TOKEN, Desk
from tests.cutting_proxy import CuttingProxy, random_cuts
from tests.functional.conftest import Serve, one_lane
from tests.functional.receivers import ByNode, ByPython, Receiver
from tests.functional.wire import figures
from tests.server_process import LIMIT_S, Server

KINDS: list[tuple[type[ByNode] | type[ByPython], str]] = [
    (ByNode, "long-polling"),
    (ByNode, "websocket"),
    (ByPython, "long-polling"),
    (ByPython, "websocket"),
]
ONCE = [(ByNode, "websocket"), (ByPython, "long-polling")]
# Connects are held for longer than anybody waits here: what comes must not come with the next one.
SETTINGS = ("bayeux.timeout_ms=60000", "bayeux.sweep_ms=100")
OPERATED = (f"admin.token={TOKEN}",)

_numbers = itertools.count(1)

pytestmark = one_lane


def name_of(kind: tuple[type[ByNode] | type[ByPython], str]) -> str:
    """How a test with it is called."""
    return f"{kind[0].__name__}-{kind[1]}"


# The table is the server's, and codes the client's: neither knows the transport.
each_client = pytest.mark.parametrize("kind", ONCE, indirect=True, ids=name_of)


class World:
    """A server, a receiver and a publisher, and what the store says of them."""

    def __init__(self, server: Server, store: Store, receiver: Receiver, transport: str) -> None:
        self.server = server
        self.url = server.url
        """Where the receiver finds it."""
        self.receiver = receiver
        self.notes = receiver.notes
        self.store = store
        number = next(_numbers)
        self.name, self.channel = f"client/receiver{number}/1", f"/orders/{number}"
        self._transport = transport

    async def __aenter__(self) -> World:
        self.publisher = await Client(self.server.url).__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.publisher.__aexit__(None, None, None)
        await self.receiver.leave()

    async def subscribe(self, **session: Any) -> None:
        """Start the receiver, asking for these fields of `ext.session`."""
        await self.receiver.start(self.url, self._transport, self.name, self.channel, session)

    async def publish(self, *messages: dict[str, Any]) -> None:
        """Publish persistent messages, one after the other."""
        for message in messages:
            await self.publisher.publish(self.channel, message, persistent=True)

    async def letters(self, count: int) -> list[StoredDeadLetter]:
        """The receiver's dead letters, once there are so many; more are a failure."""
        wanted = DeadLetterFilter(receiver=self.name)
        found: list[StoredDeadLetter] = []

        async def are_there() -> bool:
            found[:] = (await dead_letter_store.page(self.store, wanted)).letters
            return len(found) >= count

        await eventually(are_there, lambda: f"{count} letters: {found}")
        assert len(found) == count, found
        return sorted(found, key=lambda letter: int(letter.id))

    async def holdback(self) -> bytes:
        """What the store says of the session's dispatcher, nothing if there is nothing to say."""
        stored: Any = await self.store.reader.hget(self.store.keys.session(self.name), "d")
        return stored or b""

    async def open(self) -> int:
        """How many messages wait for anybody on this server; sessions of other tests may be on their way out."""
        return int((await asyncio.to_thread(figures, self.server))["crewel_waiting"])


async def eventually(holds: Callable[[], Awaitable[bool]], what: Callable[[], str] = lambda: "it") -> None:
    """Look again and again until it holds."""
    try:
        async with asyncio.timeout(LIMIT_S):
            while not await holds():
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"did not come: {what()}") from None


@pytest.fixture(params=KINDS, ids=name_of)
def kind(request: pytest.FixtureRequest) -> tuple[type[ByNode] | type[ByPython], str]:
    """Each client on each of its transports."""
    found: tuple[type[ByNode] | type[ByPython], str] = request.param
    return found


Meet = Callable[..., Awaitable[World]]


@pytest.fixture
async def meet(kind: tuple[type[ByNode] | type[ByPython], str], shared: Serve) -> AsyncIterator[Meet]:
    """A world with this client, on a server with these settings: `world = await meet("delivery.retries=1")`."""
    make, transport = kind
    async with AsyncWorlds() as worlds:

        async def start(*sets: str) -> World:
            # Not in another thread: the store ends with the thread that has started it.
            return await worlds.add(shared(*SETTINGS, *sets), make(), transport)

        yield start


class AsyncWorlds:
    """The worlds of one test, which end with it."""

    def __init__(self) -> None:
        self._worlds: list[World] = []
        self._stores: list[Store] = []

    async def add(self, server: Server, receiver: Receiver, transport: str) -> World:
        """Begin one."""
        store = Store(await asyncio.to_thread(load, None, server.store_sets, {}))
        await store.open()
        self._stores.append(store)
        world = World(server, store, receiver, transport)
        self._worlds.append(await world.__aenter__())
        return world

    async def __aenter__(self) -> AsyncWorlds:
        return self

    async def __aexit__(self, *_: object) -> None:
        for world in self._worlds:
            await world.__aexit__()
        for store in self._stores:
            await store.close()


def said(letters: Sequence[StoredDeadLetter]) -> list[tuple[str, str, int]]:
    """Code, reason and attempts of each letter."""
    return [(letter.code, letter.reason, letter.attempts) for letter in letters]


def fails(n: int, code: str, times: int = 1_000, **more: Any) -> dict[str, Any]:
    """A message whose listener fails with this code."""
    return {"n": n, "code": code, "why": f"no {n}", "times": times, **more}


class TestEachTransport:
    """A status together with the next message, and a redelivery."""

    async def test_user_is_a_dead_letter_and_the_next_message_is_heard(self, meet: Meet) -> None:
        world = await meet()
        await world.subscribe()
        await world.publish(fails(1, "user.update.error"), {"n": 2}, fails(3, "user.some.other"), {"n": 4})
        await world.notes.hears(1, 2, 3, 4)
        letters = await world.letters(2)
        assert said(letters) == [("user.update.error", "no 1", 1), ("user.some.other", "no 3", 1)]
        assert [letter.channel for letter in letters] == [world.channel] * 2
        assert [each.n for each in world.notes.heard] == [1, 2, 3, 4]
        await eventually(lambda: settled(world))

    async def test_communication_is_heard_again_after_the_delay_and_counted(self, meet: Meet) -> None:
        world = await meet()
        await world.subscribe(dispatcher={"retries": 3, "delay": 300})
        await world.publish(fails(1, "communication.timeout", times=2), {"n": 2})
        await world.notes.until(lambda notes: len(notes.times(1)) >= 3)
        await world.notes.hears(2)
        await eventually(lambda: settled(world))
        first, second, third = (each for each in world.notes.heard if each.n == 1)
        assert [first.redeliver, second.redeliver, third.redeliver] == [0, 1, 2]
        assert first.id == second.id == third.id
        assert second.at - first.at >= 0.3
        assert third.at - second.at >= 0.3
        assert await world.letters(0) == []


class TestHoldback:
    @pytest.mark.parametrize(
        ("kind", "code"),
        [*zip(ONCE, ("user.update.holdback", "communication.user.holdback"), strict=True)],
        indirect=["kind"],
        ids=["node", "python"],
    )
    async def test_holdback_keeps_the_message_and_all_after_it(self, meet: Meet, code: str) -> None:
        world = await meet()
        await world.subscribe()
        await world.publish(fails(1, code))
        await world.notes.hears(1)
        await eventually(lambda: is_held(world))
        await world.publish({"n": 2})
        held = orjson.loads(await world.holdback())
        assert (held["active"], held["code"], held["reason"]) == (False, code, "no 1")
        assert held["id"] == world.notes.heard[0].id
        await eventually(lambda: wait(world, 2))
        assert await world.letters(0) == []
        assert [each.n for each in world.notes.heard] == [1]

    @each_client
    async def test_what_was_held_back_comes_first_when_an_operator_lets_it(self, meet: Meet) -> None:
        world = await meet(*OPERATED)
        await world.subscribe()
        await world.publish(fails(1, "user.update.holdback", times=1))
        await eventually(lambda: is_held(world))
        await world.publish({"n": 2})
        await asyncio.to_thread(Desk(world.server).cmd, f"__cmd:{world.name}/?dispatcherActive=true")
        await world.notes.until(lambda notes: len(notes.heard) == 3)
        assert [each.n for each in world.notes.heard] == [1, 1, 2]
        assert world.notes.heard[0].id == world.notes.heard[1].id
        assert world.notes.times(1) == [0, 1]
        await eventually(lambda: settled(world))
        assert await world.holdback() == b""


@each_client
class TestTheTable:
    async def test_a_dead_letter_that_is_sent_again_is_another_message(self, meet: Meet) -> None:
        world = await meet(*OPERATED)
        await world.subscribe()
        await world.publish(fails(1, "user.update.error", times=1))
        (letter,) = await world.letters(1)
        await asyncio.to_thread(Desk(world.server).post, "/dead-letters/redrive", {"ids": [letter.dead_id]})
        await world.notes.until(lambda notes: len(notes.times(1)) == 2)
        assert world.notes.heard[0].id != world.notes.heard[1].id
        await eventually(lambda: settled(world))
        assert await world.letters(0) == []

    async def test_dead_message_is_a_dead_letter_and_the_next_message_is_heard(self, meet: Meet) -> None:
        world = await meet("delivery.on_user_error=dead")  # which is for the other codes of its kind
        await world.subscribe()
        await world.publish(fails(1, "user.update.deadMessage"), {"n": 2})
        await world.notes.hears(1, 2)
        assert said(await world.letters(1)) == [("user.update.deadMessage", "no 1", 1)]
        await eventually(lambda: settled(world))

    async def test_communication_that_fails_too_often_is_the_end_of_the_session(self, meet: Meet) -> None:
        world = await meet()
        await world.subscribe(dispatcher={"retries": 1, "delay": 0})
        await world.publish(fails(1, "communication.noConnection"))
        (letter,) = await world.letters(1)
        assert said([letter]) == [("communication.noConnection", "no 1", 2)]
        assert world.notes.times(1) == [0, 1]
        await world.notes.until(lambda notes: notes.subscribed == 2)

    async def test_our_clients_retry_communication_failures_by_default(self, meet: Meet) -> None:
        world = await meet()
        await world.subscribe(dispatcher={"delay": 50})
        await world.publish(fails(1, "communication.timeout", times=3), {"n": 2})
        await world.notes.until(lambda notes: notes.times(1) == [0, 1, 2, 3])
        await world.notes.hears(2)
        await eventually(lambda: settled(world))
        assert await world.letters(0) == []

    async def test_communication_without_retries_is_the_end_of_the_session_at_once(self, meet: Meet) -> None:
        world = await meet()
        await world.subscribe(dispatcher={"retries": 0})
        await world.publish({"n": 1}, fails(2, "communication.timeout"))
        assert said(await world.letters(1)) == [("communication.timeout", "no 2", 1)]
        # A session of its own, which has heard nothing yet.
        await world.notes.until(lambda notes: notes.subscribed == 2)
        await world.publish({"n": 3})
        await world.notes.hears(3)
        assert world.notes.times(2) == [0]

    async def test_the_end_of_a_session_takes_all_that_waits_with_it(self, meet: Meet) -> None:
        world = await meet()
        await world.subscribe(burst={"maxEntries": 1})
        await world.publish(
            fails(1, "user.security.authentication.accessDenied", hold=500),
            {"n": 2, "hold": 60_000},
            {"n": 3, "hold": 60_000},
        )
        letters = await world.letters(3)
        assert letters[0].code == "user.security.authentication.accessDenied"
        assert {letter.code.partition(".")[0] for letter in letters[1:]} <= {"user", "communication"}

    async def test_anything_else_is_an_internal_error(self, meet: Meet) -> None:
        codes = ["", "resource.exhaust", "user", "user.not-a-code", "user." + "x" * 200]
        world = await meet()
        await world.subscribe()
        await world.publish(*(fails(n, code) for n, code in enumerate(codes, 1)), {"n": 6})
        await world.notes.hears(1, 2, 3, 4, 5, 6)
        letters = await world.letters(len(codes))
        assert said(letters) == [("user.update.internalError", f"no {n}", 1) for n in range(1, 6)]

    async def test_a_sink_makes_letters_of_all_that_comes(self, meet: Meet) -> None:
        world = await meet("delivery.on_user_error=dead")
        await world.subscribe()
        await world.publish(fails(1, "user.update.error"))
        await world.letters(1)
        await world.publish({"n": 2}, {"n": 3})
        assert [letter.code for letter in await world.letters(3)] == ["user.update.error"] * 3
        assert [each.n for each in world.notes.heard] == [1]


@pytest.mark.parametrize("version", ["8", "7", "3"])
async def test_older_versions_of_the_official_client_settle_too(version: str, shared: Serve) -> None:
    async with AsyncWorlds() as worlds:
        world = await worlds.add(shared(*SETTINGS), ByNode(version), "long-polling")
        await world.subscribe()
        await world.publish(fails(1, "user.update.error", hold=10), fails(2, "", times=1), {"n": 3})
        await world.notes.hears(1, 2, 3)
        assert [letter.code for letter in await world.letters(2)] == ["user.update.error", "user.update.internalError"]
        await eventually(lambda: settled(world))


class TestOneAtATime:
    async def test_the_next_message_is_heard_when_the_one_before_has_ended(self, meet: Meet) -> None:
        world = await meet()
        await world.subscribe(maxOpen=1, dispatcher={"retries": 3, "delay": 50})
        await world.publish({"n": 1, "hold": 200}, fails(2, "communication.noConnection", times=1, hold=200), {"n": 3})
        await world.notes.hears(1, 2, 3)
        heard = world.notes.heard
        assert [(each.n, each.redeliver) for each in heard] == [(1, 0), (2, 0), (2, 1), (3, 0)]
        assert all(later.at - before.at >= 0.19 for before, later in pairwise(heard))


class TestWaiting:
    async def test_a_message_that_nobody_settles_in_time_is_a_dead_letter(self, meet: Meet) -> None:
        world = await meet()
        await world.subscribe(ackWait=300, dispatcher={"retries": 0})
        await world.publish({"n": 1, "hold": 60_000})
        await world.notes.hears(1)
        (letter,) = await world.letters(1)
        assert letter.code == "communication.responseTimeout"
        assert world.notes.subscribed == 1

    async def test_one_that_is_being_worked_on_has_its_time(self, meet: Meet) -> None:
        world = await meet()
        await world.subscribe(ackWait=1000)
        await world.publish({"n": 1, "hold": 1500, "working": 150})
        await world.notes.hears(1)
        await eventually(lambda: settled(world))
        assert await world.letters(0) == []
        assert world.notes.times(1) == [0]

    async def test_what_is_settled_too_late_is_told_back(self, meet: Meet) -> None:
        world = await meet()
        await world.subscribe(ackWait=200)
        await world.publish({"n": 1, "hold": 700})  # it is put back after 200 ms, and sent again a second later
        await world.notes.until(lambda notes: len(notes.rejected) == 1)
        (status,) = world.notes.rejected
        assert (status["id"], status["state"]) == (world.notes.heard[0].id, "OK")
        assert status["reason"]


class TestCuts:
    """Statuses that are lost on their way go again: nothing is lost, and nothing that went well is heard twice."""

    async def test_what_went_well_is_heard_once_and_what_did_not_is_a_letter(self, meet: Meet) -> None:
        world = await meet("bayeux.max_interval_ms=30000")
        async with CuttingProxy(world.server.port) as proxy:
            world.url = f"http://localhost:{proxy.port}/cometd"
            await world.subscribe(dispatcher={"retries": -1, "delay": 20})
            proxy.arm(random_cuts(1066, chance=0.3))
            count = 0
            while count < 80 or len(proxy.breaks) < 6:
                assert count < 800, f"too little was cut: {proxy.breaks}"
                await world.publish(*map(mixed, range(count, count + 8)))
                count += 8
                await world.notes.hears(*range(count))
            proxy.calm()
            await eventually(lambda: settled(world))
            rejected = [n for n in range(count) if mixed(n).get("code") == "user.update.error"]
            letters = await world.letters(len(rejected))
            assert [orjson.loads(letter.body)["data"]["n"] for letter in letters] == rejected
            heard = Counter(each.n for each in world.notes.heard)
            assert {n: heard[n] for n in range(count) if "code" not in mixed(n) and heard[n] != 1} == {}
            assert world.notes.subscribed == 1


def mixed(n: int) -> dict[str, Any]:
    """Every fifth message cannot be done, some cannot be done at first."""
    if n % 5 == 0:
        return fails(n, "user.update.error")
    return fails(n, "communication.timeout", times=1) if n % 7 == 3 else {"n": n}


async def wait(world: World, count: int) -> bool:
    """Whether so many messages wait."""
    return await world.open() == count


async def settled(world: World) -> bool:
    """Whether nothing waits any more."""
    return await wait(world, 0)


async def is_held(world: World) -> bool:
    """Whether the store knows that the session is held back."""
    return bool(await world.holdback())
