"""What waits in memory, in bytes: for one session and for all of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from crewel.broker.services import Service
from crewel.broker.session import Session
from tests.broker.world import Client, MakeWorld, Socket, World, data_of

TEXT = "x" * 1000


def waiting(client: Client) -> list[int]:
    return [data[0] for data in data_of(entry.fields for entry in client.session.mailbox._queue)]


def flood(world: World, count: int, channel: str = "/a", text: str = TEXT) -> None:
    for number in range(count):
        world.broker.publish(channel, [number, text])


def test_the_oldest_give_way_when_a_session_has_too_many_bytes(make_world: MakeWorld) -> None:
    world = make_world("bayeux.max_queue_bytes=10000")
    client = Client(world).joined("/a")
    flood(world, 30)
    assert waiting(client) == list(range(21, 30))
    assert world.broker.metrics.dropped == {"dropOldest": 21}
    flood(world, 1, text="x" * 50_000)
    assert waiting(client) == [0], "a message that is alone fits"


def test_one_that_has_no_room_beside_urgent_messages_takes_no_others_place(make_world: MakeWorld) -> None:
    world = make_world("bayeux.max_queue_bytes=10000")
    client = Client(world).joined("/a")
    Client(world).joined().publish("/a", [100, TEXT * 8], ext={"publish": {"priority": "HIGH"}})
    flood(world, 5, text="small")
    flood(world, 1, text=TEXT * 3)
    assert waiting(client) == [100, 0, 1, 2, 3, 4]
    assert world.broker.metrics.dropped == {"dropOldest": 1}
    flood(world, 1, text="x" * 1700)
    assert waiting(client)[0] == 100
    assert waiting(client)[-1] == 0, "the oldest small ones give way to one that fits"


def test_what_was_taken_makes_room_in_bytes(make_world: MakeWorld) -> None:
    world = make_world("bayeux.max_queue_bytes=10000", "bayeux.max_response_bytes=3000")
    client = Client(world).joined("/a")
    flood(world, 9)
    client.connect()
    assert waiting(client) == list(range(2, 9))
    flood(world, 2)
    assert waiting(client) == [*range(2, 9), 0, 1]
    assert not world.broker.metrics.dropped
    client.session.mailbox._replace(client.session.mailbox._queue[:1])  # as what expires or is settled leaves
    flood(world, 8)
    assert waiting(client) == [2, *range(8)]
    assert not world.broker.metrics.dropped


def test_a_login_asks_for_its_own_bound_in_bytes(make_world: MakeWorld) -> None:
    world = make_world("storage.enabled=false")
    queue = {"maxBytes": 3000, "onOverflow": "disconnect"}
    client = Client(world).joined("/a", ext={"session": {"queue": queue}})
    flood(world, 3)
    world.settle()
    assert not client.is_known
    assert world.broker.metrics.dropped == {"disconnect": 1}


def test_a_message_counts_once_however_many_sessions_wait_for_it(make_world: MakeWorld) -> None:
    world = make_world()
    for _ in range(50):
        Client(world).joined("/a")
    flood(world, 10)
    assert 10_000 < world.broker.mailboxes.outbound.backlog.size < 20_000


def test_nothing_is_counted_once_it_has_left(make_world: MakeWorld) -> None:
    world = make_world()
    taker, goer, expirer, sock = (Client(world).joined("/a") for _ in range(4))
    pushed = Client(world, Socket()).joined("/a")
    assert pushed.socket is not None
    pushed.socket.reads = False
    flood(world, 10)
    assert world.broker.mailboxes.outbound.backlog.size > 10_000
    taker.connect()
    sock.connect()
    goer.say("/meta/disconnect")
    world.sweep_after(30)
    assert not expirer.is_known
    pushed.socket.reads = True
    if pushed.is_known:
        pushed.say("/meta/disconnect")
    world.settle()
    assert world.broker.mailboxes.outbound.backlog.size == 0


def test_long_queues_make_room_when_all_together_have_too_much_and_short_ones_go_on(make_world: MakeWorld) -> None:
    world = make_world("limits.max_queued_bytes=100000")
    hogs = [Client(world).joined(f"/hog/{number}") for number in range(3)]
    modest = Client(world).joined("/a")
    world.broker.sweep()
    for number in range(3):
        flood(world, 100, f"/hog/{number}")
    world.broker.sweep()
    assert world.broker.mailboxes.outbound.backlog.size <= 110_000, "but for what each message takes beside its body"
    flood(world, 5)
    assert waiting(modest) == list(range(5))
    assert len(hogs[0].session.mailbox._queue) > 20
    assert world.broker.metrics.dropped["dropOldest"] > 150


@pytest.mark.parametrize("most", [0, 3])
def test_calls_that_wait_for_their_results_are_bounded(make_world: MakeWorld, most: int) -> None:
    service = Service("slow")
    done: list[asyncio.Future[int]] = []

    @service.remote_call("slow")
    async def slow(session: Session, data: Any) -> int:
        done.append(asyncio.get_running_loop().create_future())
        return await done[-1]

    world = make_world(f"limits.max_calls_per_session={most}", services=[service])
    client, other = Client(world).joined(), Client(world).joined()
    calls = [client.send(client.message("/service/slow", data=number)) for number in range(5)]
    other.say("/service/slow", data=9)
    world.settle()
    assert len(done) == (6 if most == 0 else 4)
    refused = data_of(message for call in calls for message in call.received)
    assert [each["errorCode"] for each in refused] == ([] if most == 0 else ["resource.exhaust"] * 2)
    for each in done:
        each.set_result(1)
    world.settle()
    client.say("/service/slow", data=5)
    world.settle()
    assert len(done) == (7 if most == 0 else 5)
    done[-1].set_result(1)


def test_calls_of_all_sessions_of_an_address_are_bounded(make_world: MakeWorld) -> None:
    service = Service("slow")
    done: list[asyncio.Future[int]] = []

    @service.remote_call("slow")
    async def slow(session: Session, data: Any) -> int:
        done.append(asyncio.get_running_loop().create_future())
        return await done[-1]

    world = make_world("limits.max_calls_per_address=3", services=[service])
    clients = [Client(world).joined() for _ in range(2)]
    calls = [each.send(each.message("/service/slow", data=number)) for number in range(2) for each in clients]
    world.settle()
    assert len(done) == 3
    (refused,) = data_of(message for call in calls for message in call.received)
    assert refused["errorCode"] == "resource.exhaust"
    assert "limits.max_calls_per_address: 3 calls" in refused["message"]
    assert world.broker.metrics.limited["max_calls_per_address"] == 1
    world.broker.disconnect(clients[0].session)
    for each in done:
        each.set_result(1)
    world.settle()
    assert clients[1].session.account is not None
    assert clients[1].session.account.calls == 0
    clients[1].say("/service/slow", data=5)
    world.settle()
    assert len(done) == 4
    done[-1].set_result(1)


def test_a_history_longer_than_the_bound_is_refused_by_name(make_world: MakeWorld) -> None:
    world = make_world("limits.max_history_entries=100", "topics./ruled.history.max_entries=1000")
    client = Client(world).joined()
    reply = client.publish("/a", 1, ext={"publish": {"history": {"maxEntries": 101}}})
    assert reply["error"] == "400:history.maxEntries:user.illegalArgument"
    assert "limits.max_history_entries" in reply["ext"]["publish"]["message"]
    reply = client.publish("/a", 1, ext={"publish": {"history": {"maxEntries": 2**53 - 1}}})
    assert reply["error"].startswith("400:")
    assert client.publish("/ruled", 1, ext={"publish": {"priority": 7}})["error"].startswith("503:"), (
        "a rule may have more"
    )


@pytest.mark.parametrize(
    ("arriving", "left"), [(5, [(9, 0), (5, 2), (5, 3)]), (9, [(9, 0), (9, 3), (5, 2)]), (1, [(9, 0), (5, 1), (5, 2)])]
)
def test_what_arrives_itself_gives_way_to_what_is_all_above_it(
    make_world: MakeWorld, arriving: int, left: list[tuple[int, int]]
) -> None:
    world = make_world("bayeux.max_queue_messages=3")
    client = Client(world).joined("/a")
    for number, priority in enumerate((9, 5, 5, arriving)):
        world.broker.publish("/a", [number], qos={"priority": priority})
    assert [(entry.priority, entry.fields["data"][0]) for entry in client.session.mailbox._queue] == left
