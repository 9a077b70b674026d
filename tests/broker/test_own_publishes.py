"""What the server publishes and sends itself, with the qualities that clients can ask for."""

from typing import Any

import pytest

from crewel.broker.services import Service
from crewel.errors import IllegalArgument, Refused
from tests.broker.stored_world import StoredWorld
from tests.broker.world import Client, World, data_of


@pytest.fixture
def service(world: World) -> Service:
    service = Service("app")
    world.broker.install([service])
    return service


def sent(world: World, coroutine: Any) -> str:
    task = world.loop.create_task(coroutine)
    world.settle()
    return str(task.result())


def test_a_publish_has_the_qualities_that_are_asked_for(world: World, service: Service) -> None:
    hearer = Client(world).joined("/a")
    service.publish("/a", 1)
    service.publish("/a", 2, qos={"priority": "MAX"})
    assert data_of(hearer.connect().received[:2]) == [2, 1]


@pytest.mark.parametrize(
    ("data", "fault"), [({"price": [0, float("nan")]}, r"data\.price\[1\] is NaN"), (b"123", "data is 3 bytes")]
)
def test_what_json_cannot_say_is_refused_with_its_place(world: World, service: Service, data: Any, fault: str) -> None:
    joe = Client(world).joined("/a", ext={"session": {"name": "client/joe/1"}})
    with pytest.raises(TypeError, match=fault):
        service.publish("/a", data)
    with pytest.raises(TypeError, match=fault):
        sent(world, service.send("client/joe/1", "/a", data))
    with pytest.raises(TypeError, match=fault):
        sent(world, world.broker.publish_stored("/a", data))
    with pytest.raises(TypeError, match=fault):
        world.broker.deliver(joe.session, "/a", data)
    assert joe.session.mailbox._queue == []


def test_what_cannot_be_asked_for_is_refused(service: Service) -> None:
    with pytest.raises(IllegalArgument, match="priority"):
        service.publish("/a", 1, qos={"priority": 10})


def test_a_message_goes_to_a_session_by_its_name(world: World, service: Service) -> None:
    joe = Client(world).joined(ext={"session": {"name": "client/joe/1"}})
    assert sent(world, service.send("client/joe/1", "/orders", 7))
    assert data_of(joe.connect().received[:1]) == [7]


def test_whoever_is_not_there_is_named(world: World, service: Service) -> None:
    with pytest.raises(Refused) as refused:
        sent(world, service.send("client/joe/1", "/orders", 7))
    assert refused.value.error == "404:client/joe/1:user.ptp.unknownDestinationSession"


def test_what_its_topic_keeps_is_heard_once_it_is_stored(stored: StoredWorld) -> None:
    hearer = Client(stored).joined("/a")
    stored.broker.publish("/a", 1, qos={"history": {"maxEntries": 5}})
    assert hearer.session.mailbox._queue == []
    stored.settle()
    stored.broker.publish("/a", 2)  # and the topic goes on as it began
    stored.settle()
    assert data_of(hearer.connect().received[:2]) == [1, 2]
    topic = stored.broker.topics.table.find("/a")
    assert topic is not None
    assert topic.history_count == 2
