"""Transient messages to somebody by name, on a server without a store."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from crewel.broker.services import Service
from crewel.extensions.update import UpdateExtension
from crewel.security.grants import Grants, Role
from crewel.security.policy import OpenPolicy
from tests.broker.world import Client, Socket, World, data_of

UNKNOWN = "user.ptp.unknownDestination"
UNKNOWN_SESSION = "user.ptp.unknownDestinationSession"
DENIED = "user.ptp.denied"


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A server without a store."""
    return make_world()


@pytest.fixture
def clerk(world: World) -> Client:
    """Somebody who publishes."""
    client = Client(world)
    assert client.handshake(ext={"session": {"name": "clerk/1"}})["successful"]
    client.connect()
    return client


def login(world: World, name: str, **session: Any) -> Client:
    """A session whose first connect has been answered."""
    client = Client(world)
    assert client.handshake(ext={"session": {"name": name, **session}})["successful"]
    client.connect(advice={"timeout": 0})
    world.settle()
    return client


def send(
    clerk: Client, data: Any, *to: str | dict[str, Any], channel: str = "/service/post", **qos: Any
) -> dict[str, Any]:
    destinations = [each if isinstance(each, dict) else {"to": each} for each in to]
    return clerk.say(channel, data=data, ext={"publish": {"destination": destinations, **qos}})


def heard(client: Client) -> list[Any]:
    client.world.settle()
    return data_of(client.connect(advice={"timeout": 0}).received)


def refused(reply: dict[str, Any]) -> str:
    assert not reply["successful"]
    code: str = reply["ext"]["publish"]["errorCode"]
    return code


class TestASession:
    def test_a_destination_has_the_message_and_no_other_session_has_it(self, world: World, clerk: Client) -> None:
        joe, other = login(world, "joe/1"), login(world, "joe/2")
        reply = send(clerk, "hi", "client/joe/1")
        assert reply["successful"]
        assert reply["ext"]["publish"]["destinations"] == [{"to": "client/joe/1", "state": "OK"}]
        assert (heard(joe), heard(other)) == (["hi"], [])

    def test_over_a_socket(self, world: World, clerk: Client) -> None:
        socket = Socket()
        joe = Client(world, socket)
        assert joe.handshake(ext={"session": {"name": "joe/1"}})["successful"]
        joe.send(joe.message("/meta/connect"))
        send(clerk, "hi", "joe/1")
        world.settle()
        assert data_of(socket.take()) == ["hi"]

    @pytest.mark.parametrize("to", ["joe/1", "client/joe/1", "client/joe/session/1", "/node/other/client/joe/1"])
    def test_each_form_of_its_name_means_it(self, world: World, clerk: Client, to: str) -> None:
        joe = login(world, "joe/1")
        assert send(clerk, "hi", to)["ext"]["publish"]["destinations"] == [{"to": "client/joe/1", "state": "OK"}]
        assert heard(joe) == ["hi"]

    def test_one_that_the_server_has_numbered(self, world: World, clerk: Client) -> None:
        joe = login(world, "joe")
        assert send(clerk, "hi", joe.session.name)["successful"]
        assert heard(joe) == ["hi"]

    def test_an_anonymous_one(self, world: World, clerk: Client) -> None:
        client = Client(world)
        client.handshake(ext={"session": {}})
        client.connect()
        assert client.session.name.startswith("client/anonymous/-")
        assert send(clerk, "hi", client.session.name)["successful"]
        assert heard(client) == ["hi"]

    @pytest.mark.parametrize("queue", [True, False])
    def test_one_that_is_not_there(self, world: World, clerk: Client, queue: bool) -> None:
        login(world, "joe/2")
        reply = send(clerk, "hi", {"to": "joe/1", "forceQueuing": queue})
        assert reply["error"] == f"404:client/joe/1:{UNKNOWN_SESSION}"
        assert refused(reply) == UNKNOWN_SESSION

    def test_one_that_takes_no_messages(self, world: World, clerk: Client) -> None:
        joe = login(world, "joe/1", ptp=False)
        assert refused(send(clerk, "hi", "joe/1")) == DENIED
        assert heard(joe) == []

    def test_one_that_takes_messages_since_its_next_login(self, world: World, clerk: Client) -> None:
        first = Client(world)
        resume = first.handshake(ext={"session": {"name": "joe/1", "ptp": False}})["ext"]["session"]["resume"]
        assert refused(send(clerk, "hi", "joe/1")) == DENIED
        joe = Client(world)
        joe.handshake(ext={"session": {"name": "joe/1", "resume": resume}})
        assert send(clerk, "hi", "joe/1")["successful"]
        assert heard(joe) == ["hi"]


class TestASubject:
    def test_all_its_sessions_have_the_message(self, world: World, clerk: Client) -> None:
        sessions = [login(world, f"joe/{number}") for number in (1, 2, 3)]
        assert send(clerk, "hi", "client/joe")["successful"]
        assert [heard(each) for each in sessions] == [["hi"]] * 3

    def test_sessions_that_take_none_do_not_have_the_message(self, world: World, clerk: Client) -> None:
        closed, joe = login(world, "joe/1", ptp=False), login(world, "joe/2")
        assert send(clerk, "hi", "client/joe")["successful"]
        assert (heard(closed), heard(joe)) == ([], ["hi"])

    def test_if_none_takes_any_it_is_denied(self, world: World, clerk: Client) -> None:
        login(world, "joe/1", ptp=False)
        assert refused(send(clerk, "hi", "joe")) == DENIED

    def test_nobody_is_there(self, world: World, clerk: Client) -> None:
        assert refused(send(clerk, "hi", "joe")) == UNKNOWN

    def test_without_a_store_nothing_can_wait(self, world: World, clerk: Client) -> None:
        assert refused(send(clerk, "hi", {"to": "joe", "forceQueuing": True})) == "resource.unavailable"

    def test_without_a_store_those_who_are_there_have_it_all_the_same(self, world: World, clerk: Client) -> None:
        joe = login(world, "joe/1")
        assert send(clerk, "hi", {"to": "joe", "forceQueuing": True})["successful"]
        assert heard(joe) == ["hi"]

    def test_nobody_is_called_anonymous(self, world: World, clerk: Client) -> None:
        client = Client(world)
        client.handshake(ext={"session": {}})
        reply = send(clerk, "hi", "client/anonymous/-999999", {"to": "client/anonymous", "forceQueuing": True})
        assert not reply["successful"]

    def test_one_of_its_sessions_has_it_the_one_with_the_least_to_do(self, world: World, clerk: Client) -> None:
        sessions = [login(world, f"joe/{number}") for number in (1, 2, 3)]
        for number in range(9):
            assert send(clerk, number, {"to": "joe", "distribute": "one"})["successful"]
        got = [heard(each) for each in sessions]
        assert [len(each) for each in got] == [3, 3, 3]
        assert sorted(itertools.chain(*got)) == list(range(9))


class TestSeveral:
    def test_all_are_tried_and_the_first_failure_is_named(self, world: World, clerk: Client) -> None:
        joe, ann = login(world, "joe/1"), login(world, "ann/1")
        reply = send(clerk, "hi", "joe/1", "joe/2", "bob", "ann")
        assert reply["error"] == f"404:client/joe/2:{UNKNOWN_SESSION}"
        told = reply["ext"]["publish"]["destinations"]
        assert [(each["to"], each["state"], each.get("errorCode")) for each in told] == [
            ("client/joe/1", "OK", None),
            ("client/joe/2", "ERROR", UNKNOWN_SESSION),
            ("client/bob", "ERROR", UNKNOWN),
            ("client/ann", "OK", None),
        ]
        assert (heard(joe), heard(ann)) == (["hi"], ["hi"])

    def test_whom_two_of_them_mean_has_it_once(self, world: World, clerk: Client) -> None:
        joe = login(world, "joe/1")
        assert send(clerk, "hi", "joe", "joe/1", "joe/1")["successful"]
        assert heard(joe) == ["hi"]


class TestKeys:
    def test_a_repeat_delivers_nothing_and_has_the_id_of_the_first(self, world: World, clerk: Client) -> None:
        joe = login(world, "joe/1")
        first, again = (send(clerk, "hi", "joe/1", key="k") for _ in range(2))
        assert again["successful"]
        assert first["ext"] == again["ext"]
        assert heard(joe) == ["hi"]

    def test_a_repeat_tries_those_again_who_were_not_there(self, world: World, clerk: Client) -> None:
        joe = login(world, "joe/1")
        first = send(clerk, "hi", "joe/1", "ann/1", key="k")
        assert not first["successful"]
        ann = login(world, "ann/1")
        again = send(clerk, "hi", "joe/1", "ann/1", key="k")
        assert again["successful"]
        assert again["ext"]["publish"]["id"] == first["ext"]["publish"]["id"]
        assert (heard(joe), heard(ann)) == (["hi"], ["hi"])


class TestWithoutAStore:
    def test_what_is_to_be_stored_is_refused(self, world: World, clerk: Client) -> None:
        login(world, "joe/1")
        reply = send(clerk, "hi", "joe/1", persistent=True)
        assert not reply["successful"]
        assert refused(reply) == "resource.unavailable"


class TestChannels:
    def test_subscribers_of_a_broadcast_channel_hear_it_too(self, world: World, clerk: Client) -> None:
        joe, other = login(world, "joe/1"), login(world, "ann/1")
        other.subscribe("/news")
        send(clerk, 1, "joe/1", channel="/news")
        send(clerk, 2, "joe/1", channel="/news", subscribable=False)
        assert (heard(joe), heard(other)) == ([1, 2], [1])

    def test_a_message_has_its_channel_and_what_its_publisher_adds(self, world: World, clerk: Client) -> None:
        joe = login(world, "joe/1")
        clerk.say("/service/post", data=1, ext={"publish": {"destination": [{"to": "joe/1"}]}, "more": 2})
        world.settle()
        (message,) = (each for each in joe.connect(advice={"timeout": 0}).received if "data" in each)
        assert message == {"channel": "/service/post", "data": 1, "ext": {"more": 2}}

    def test_what_configures_a_topic_is_delivered_to_nobody(self, world: World, clerk: Client) -> None:
        joe = login(world, "client/joe/1")
        reply = send(clerk, "a pizza", "joe/1", channel="/orders", administrative=True)
        assert reply["error"] == "400:destination:user.illegalArgument"
        assert heard(joe) == []


class TestServicesOfTheServer:
    """No policy is asked about a publish to one, so it is no way to other clients."""

    @pytest.mark.parametrize("channel", ["/service/update", "/service/get", "/service/erase", "/service/__cmd"])
    def test_a_publish_to_one_has_no_destinations(self, make_world: Callable[..., World], channel: str) -> None:
        class Silent(OpenPolicy):
            def can_publish(self, *question: Any) -> bool:
                return False

        service = Service("policy")
        service.policy = Silent()
        world = make_world(extensions=[UpdateExtension()], services=[service])
        world.broker.admission.guard.reserve("/service/__cmd")
        joe, eve = login(world, "joe/1"), login(world, "eve/1")
        if channel == "/service/__cmd":
            eve.session.authenticate(Grants("eve", role=Role.VIEW))
        reply = send(eve, "hi", "joe/1", channel=channel)
        assert (reply["successful"], reply["error"]) == (False, "400:destination:user.illegalArgument")
        assert heard(joe) == []

    def test_a_server_that_is_open_to_all_has_the_same_rule(self, world: World, clerk: Client) -> None:
        joe = login(world, "joe/1")
        assert refused(send(clerk, "hi", "joe/1", channel="/service/get")) == "user.illegalArgument"
        assert heard(joe) == []


class TestSubscribersToo:
    def test_a_publish_that_may_make_no_topic_goes_to_no_destination(self, make_world: Callable[..., World]) -> None:
        world = make_world("limits.max_channels=1")
        joe, clerk = login(world, "joe/1"), login(world, "clerk/1")
        assert clerk.publish("/a", 1)["successful"]
        reply = send(clerk, 2, "joe/1", channel="/b")
        assert (refused(reply), "destinations" in reply["ext"]["publish"]) == ("resource.exhaust", False)
        assert heard(joe) == []
        assert send(clerk, 3, "joe/1", channel="/a")["successful"]
        assert heard(joe) == [3]

    def test_a_topic_is_published_to_once(self, world: World, clerk: Client) -> None:
        login(world, "joe/1")
        assert send(clerk, 1, "joe/1", channel="/a")["successful"]
        assert world.broker.topics.table.known["/a"].claims == 1

    def test_a_publish_that_no_destination_could_get_leaves_no_topic(self, world: World, clerk: Client) -> None:
        assert refused(send(clerk, 1, "joe/1", channel="/a", persistent=True)) == "resource.unavailable"
        assert "/a" not in world.broker.topics.table.known
