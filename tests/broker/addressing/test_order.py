"""What goes past the log (to a session, out of a shared queue, sent again) has its place among the messages of the log,
whichever node has appended those; with the real store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from crewel.bayeux.channel import Channel, parse
from crewel.broker.dead_letters.redrive import Chosen, Limits
from crewel.delivery.records import LogId, SessionName
from crewel.errors import StoreUnavailable
from crewel.qos.names import subject_queue
from crewel.storage import log
from crewel.storage.shared_queue_store import Addressed, Delivery, send
from tests.broker.addressing.post import Clerk, come, login
from tests.broker.addressing.test_doubt import Line, wait
from tests.broker.stored_world import Receiver, StoredWorld, failed
from tests.broker.world import Request

NODE = "cluster.enabled=true"
STORED: dict[str, Any] = {"publish": {"persistent": True}}
POISON = "user.update.illegalArgument"


@pytest.fixture
def here(make_stored: Callable[..., StoredWorld]) -> StoredWorld:
    return make_stored(NODE)


@pytest.fixture
def there(make_stored: Callable[..., StoredWorld], here: StoredWorld) -> StoredWorld:
    """Another node. What it appends is not read for `here` until the store says that something is missing."""
    return make_stored(NODE, prefix=here.prefix)


def channel_of(name: str) -> Channel:
    channel = parse(name)
    assert channel is not None
    return channel


def publish(world: StoredWorld, *values: str, channel: str = "/a") -> None:
    """Store these on the channel, from this node."""
    publisher = Receiver(world).started()
    publisher.send(*(publisher.message(channel, data=each, ext=STORED) for each in values))
    world.settle()


def taken(receiver: Receiver) -> list[Any]:
    return [each["data"] for each in come(receiver)]


def put(world: StoredWorld, data: str, delivery: Delivery) -> None:
    """Have the store put this there, as another node's step does."""
    keys, token = world.access.keys, world.access.token
    message = Addressed("/service/post", b'{"channel":"/service/post","data":"%s"}' % data.encode())
    world.wait(world.store.run([send(keys, token, message, [delivery], 1000)]))


def newest(world: StoredWorld) -> LogId:
    """The newest id that the store has given."""
    return LogId(int(world.wait(world.store.reader.get(world.store.keys.last))))


def heard(receiver: Receiver, request: Request) -> list[Any]:
    """What the connect that was held has brought, and what comes after it."""
    receiver.world.settle()
    return [each["data"] for each in (*receiver.heard(request), *come(receiver))]


def test_a_message_to_a_session_waits_for_what_another_node_has_appended(here: StoredWorld, there: StoredWorld) -> None:
    clerk, joe = Clerk(here), login(here, "joe/1", "/a")
    taken(joe)
    publish(there, "1", "2")
    clerk.post("3", "joe/1", channel="/a", subscribable=False, persistent=True)
    publish(there, "4")
    clerk.post("5", "joe", persistent=True)
    publish(here, "6")
    assert taken(joe) == ["1", "2", "3", "4", "5", "6"]


def test_messages_of_one_request_keep_their_order(here: StoredWorld, there: StoredWorld) -> None:
    joe = login(here, "joe/1", "/a")
    taken(joe)
    held = joe.reconnect()
    publisher = Receiver(here).started()
    to_joe = {"publish": {"persistent": True, "destination": [{"to": "joe/1"}], "subscribable": False}}
    expected = []
    for number in range(0, 60, 6):
        values = [str(number + each) for each in range(6)]
        expected += values
        publish(there, values[0])
        kinds = (to_joe, STORED, to_joe, to_joe, STORED)
        publisher.send(
            *(publisher.message("/a", data=each, ext=ext) for each, ext in zip(values[1:], kinds, strict=True))
        )
    assert heard(joe, held) == expected


def test_a_leased_message_waits_for_what_another_node_has_appended(here: StoredWorld, there: StoredWorld) -> None:
    joe = login(here, "joe/1", "/a")
    taken(joe)
    held = joe.reconnect()
    publish(there, "1")
    put(there, "2", Delivery("client/joe", queue=subject_queue("joe")))
    publish(there, "3")
    put(there, "4", Delivery("client/joe", queue=subject_queue("joe")))
    here.broker.addressing.shared_queues.announced([subject_queue("joe")])
    assert heard(joe, held) == ["1", "2", "3", "4"]


def test_a_message_of_a_group_waits_for_what_another_node_has_appended(here: StoredWorld, there: StoredWorld) -> None:
    """It lies in the log under the same id, for those that are in no group."""
    member, hearer = (login(here, f"joe/{number}", "/a") for number in (1, 2))
    member.say("/meta/subscribe", subscription="/work", ext={"subscribe": {"group": "workers"}})
    hearer.subscribe("/work")
    for each in (member, hearer):
        taken(each)
    held = member.reconnect()
    (queue_name,) = here.broker.addressing.groups.on(channel_of("/work"))
    there.broker.addressing.groups.add_elsewhere(queue_name)
    publish(there, "1")
    publish(there, "2", channel="/work")
    publish(there, "3")
    here.broker.addressing.shared_queues.announced([queue_name])
    assert taken(hearer) == ["1", "2", "3"]
    assert heard(member, held) == ["1", "2", "3"]


def test_what_an_operator_sends_again_comes_behind_what_another_node_has_appended(
    here: StoredWorld, there: StoredWorld
) -> None:
    clerk, joe = Clerk(here), login(here, "joe/1", "/a")
    clerk.post("poison", "joe/1", persistent=True)
    (poison,) = come(joe)
    joe.take(failed(poison, POISON))
    held = joe.reconnect()
    (letter,) = here.letters()
    publish(there, "1", "2")
    report = here.wait(here.broker.dead_letters.redrive.redrive(Chosen(ids=[letter.dead_id]), Limits()))
    assert report.done == 1
    publish(there, "3")
    publish(here, "4")
    assert heard(joe, held) == ["1", "2", "poison", "3", "4"]


def test_an_heir_delivers_from_no_inbox_what_comes_later_in_the_log(
    make_stored: Callable[..., StoredWorld], here: StoredWorld, there: StoredWorld
) -> None:
    dead = make_stored(NODE, prefix=here.prefix)
    joe = login(dead, "joe/1", "/a")
    taken(joe)
    dead.commit()
    publish(there, "1")
    put(there, "2", Delivery("client/joe/1", SessionName("client/joe/1"), is_elsewhere=1))
    publish(there, "3")
    token = dead.access.token
    dead.crash()
    assert here.access.node.cursor < newest(there)
    assert here.wait(here.durability.inheritance.take_over_dead([token])) >= 1
    client = Receiver(here, browser=joe.browser)
    client.id, client.ack = joe.id, joe.ack
    early = taken(client)
    publish(here, "4")
    assert [*early, *taken(client)] == ["1", "2", "3", "4"]


def test_what_waits_for_its_place_comes_when_the_log_can_be_read_again(
    here: StoredWorld, there: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    clerk, joe = Clerk(here), login(here, "joe/1", "/a")
    taken(joe)
    publish(there, "1")
    read, refusals = log.read, [1, 1]

    async def refused(*arguments: Any) -> Any:
        if refusals:
            refusals.pop()
            raise StoreUnavailable("away")
        return await read(*arguments)

    monkeypatch.setattr(log, "read", refused)
    clerk.post("2", "joe/1", persistent=True)
    assert taken(joe) == []
    clerk.post("3", "joe/1", persistent=True)
    wait(here)
    assert (taken(joe), refusals) == (["1", "2", "3"], [])


def test_a_probe_that_is_refused_is_repeated_for_what_waits(here: StoredWorld, there: StoredWorld) -> None:
    clerk, joe = Clerk(here), login(here, "joe/1", "/a")
    taken(joe)
    publish(there, "1")
    line = Line(here, "publish", is_done=False)
    clerk.post("2", "joe/1", persistent=True)
    assert line.left == 0
    wait(here)
    assert taken(joe) == ["1", "2"]


def test_what_cannot_be_taken_keeps_nothing_behind_it(
    here: StoredWorld, there: StoredWorld, caplog: pytest.LogCaptureFixture
) -> None:
    joe = login(here, "joe/1", "/a")
    taken(joe)
    publish(there, "1")

    def fails() -> None:
        raise ValueError("broken")

    here.access.in_place(newest(here), fails)
    publish(here, "2")
    assert taken(joe) == ["1", "2"]
    assert "could not be handed to its receivers" in caplog.text


def test_a_message_to_a_session_waits_while_an_older_one_of_its_channel_is_handed_to_many(here: StoredWorld) -> None:
    clerk = Clerk(here)
    crowd = [login(here, f"joe/{number}", "/a") for number in range(1, 11)]
    for each in crowd:
        come(each)
    publisher = Receiver(here).started()
    fan_outs = here.broker.mailboxes.outbound.fan_outs
    fan_outs.at_once = fan_outs.step = 1
    fan_outs.slice_s = 0.0
    life = {"publish": {"persistent": True, "lifeTime": 60000, "forceDestroy": True}}  # handed over one by one
    to = [{"to": "joe"}]
    addressed = {"publish": {"persistent": True, "destination": to, "subscribable": False}}

    async def both() -> None:
        for sender, data, ext in ((publisher, "1", life), (clerk, "2", addressed)):
            message = sender.message("/a", data=data, ext=ext)
            here.broker.inbound.receive(Request(sender.browser), [message])
        await asyncio.sleep(0)

    here.wait(both())
    here.settle()
    assert [taken(each) for each in crowd] == [["1", "2"]] * len(crowd)


def test_a_message_that_was_in_doubt_goes_before_younger_ones_that_still_wait(here: StoredWorld) -> None:
    clerk, joe = Clerk(here), login(here, "joe/1", "/a")
    taken(joe)
    line = Line(here, "send", 2, is_done=True)
    reply = clerk.ask("1", "joe/1", persistent=True)
    assert (reply["successful"], line.left) == (False, 0)
    publish(here, "2", "3")
    wait(here)
    assert taken(joe) == ["1", "2", "3"]


def test_a_later_session_of_the_same_name_gets_nothing_of_the_former_one(here: StoredWorld, there: StoredWorld) -> None:
    """Its node finds in the log what the former session had at another node."""
    former = login(there, "joe/1")
    taken(former)
    put(there, "former", Delivery("client/joe/1", SessionName("client/joe/1"), is_elsewhere=1))
    publish(there, "1")
    assert taken(former) == ["former"]
    former.say("/meta/disconnect")
    there.commit()
    joe = login(here, "joe/1", "/a")
    publish(here, "2")
    assert taken(joe) == ["2"]
