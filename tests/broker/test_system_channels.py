"""The channels on which the server speaks of itself, `/__sys__*`."""

from typing import Any

import pytest

from crewel.broker.services import Service
from crewel.security.grants import Grants, Role
from crewel.security.policy import GRANT, OpenPolicy
from tests.broker.world import Client, MakeWorld, World, data_of

DEAD = "/__sys__deadMessage"


class Permissive(OpenPolicy):
    """Grants everything that it is asked."""

    def can_create(self, *question: Any) -> bool:
        return True

    def can_subscribe(self, *question: Any) -> bool:
        return True

    def can_publish(self, *question: Any) -> bool:
        return True


def permissive() -> Service:
    service = Service("permissive")
    service.policy = Permissive()
    service.authorizer("/**")(lambda *question: GRANT)
    service.authorizer(DEAD)(lambda *question: GRANT)
    return service


def operator(world: World, **fields: Any) -> Client:
    world.broker.admission.admin.know("secret")
    client = Client(world)
    assert client.handshake(ext={"session": {"token": "secret"}}, **fields)["successful"]
    assert client.session.is_operator
    return client


def subscribed(client: Client, name: str) -> Any:
    request = client.send(client.message("/meta/subscribe", subscription=name))
    client.world.settle()
    return request.received[0]


class TestSubscribing:
    def test_an_operator_hears_them_by_name(self, world: World) -> None:
        client = operator(world)
        assert subscribed(client, DEAD)["successful"]
        client.connect()
        request = client.connect()
        world.broker.publish(DEAD, 1)
        world.settle()
        assert data_of(request.answer) == [1]

    @pytest.mark.parametrize("name", ["/__sys__*", "/__sys__/*", "/__sys__/**", "/__sys__deadMessage/**", "/__sys__**"])
    def test_an_operator_hears_no_pattern_of_them(self, world: World, name: str) -> None:
        client = operator(world)
        assert subscribed(client, name)["error"] == "403:denied_by_security_policy:create_denied"
        assert not client.session.subscriptions

    @pytest.mark.parametrize("name", ["/**", "/*"])
    def test_not_even_an_operator_hears_them_by_a_wide_pattern(self, world: World, name: str) -> None:
        client = operator(world)
        assert subscribed(client, name)["successful"]
        client.connect()
        request = client.connect()
        world.broker.publish(DEAD, 1)
        world.broker.publish("/a", 2)
        world.settle()
        assert data_of(request.answer) == [2]

    @pytest.mark.parametrize("services", [(), (permissive,)])
    def test_others_are_refused_whatever_the_policy_says(self, make_world: MakeWorld, services: Any) -> None:
        world = make_world(services=[make() for make in services])
        client = Client(world)
        client.handshake()
        assert subscribed(client, DEAD)["error"] == "403:denied_by_security_policy:create_denied"
        world.broker.addressing.channels.create(DEAD)
        assert subscribed(client, DEAD)["error"] == "403:denied_by_security_policy:subscribe_denied"
        assert not client.session.subscriptions

    def test_an_operator_whose_token_has_expired_is_one_no_more(self, world: World) -> None:
        client = operator(world)
        client.session.grants = Grants("joe", role=Role.DESTROY, expires_at=1.0)
        assert subscribed(client, DEAD)["error"] == "403:denied_by_security_policy:create_denied"


class TestPublishing:
    @pytest.mark.parametrize("services", [(), (permissive,)])
    def test_nobody_publishes_there(self, make_world: MakeWorld, services: Any) -> None:
        world = make_world(services=[make() for make in services])
        someone = Client(world).joined()
        for name, error in ((DEAD, "channel_create_denied"), ("/__sys__/x", "channel_create_denied")):
            request = someone.send(someone.message(name, data=1))
            world.settle()
            assert request.received[0]["error"] == f"403:denied_by_security_policy:{error}"

    def test_an_operator_neither(self, world: World) -> None:
        client = operator(world)
        request = client.send(client.message(DEAD, data=1))
        world.settle()
        assert request.received[0]["error"] == "403:denied_by_security_policy:publish_denied"
