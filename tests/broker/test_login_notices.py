"""Operators hear who comes and goes."""

from collections.abc import Callable
from typing import Any

import pytest

from crewel.broker.sessions.login_notices import LOGIN, LOGOUT, USER_LIST
from crewel.qos.connect import Bounds
from tests.broker.world import Client, World, data_of


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A server without a store."""
    return make_world()


@pytest.fixture
def watch(world: World) -> Client:
    """An operator that hears all three channels."""
    world.broker.admission.admin.know("secret")
    client = Client(world)
    assert client.handshake(ext={"session": {"token": "secret", "name": "client/operator/1"}})["successful"]
    client.connect()
    for channel in (LOGIN, LOGOUT, USER_LIST):
        assert client.say("/meta/subscribe", subscription=channel)["successful"]
    return client


def heard(watch: Client) -> list[dict[str, Any]]:
    watch.world.settle()
    request = watch.connect(advice={"timeout": 0})
    watch.world.settle()
    return [each for each in request.answer if "data" in each]


def login(world: World, name: str, **session: Any) -> Client:
    client = Client(world)
    assert client.handshake(ext={"session": {"name": name, **session}})["successful"]
    return client


def test_a_login_is_told_with_the_name_of_the_session(world: World, watch: Client) -> None:
    login(world, "joe/1")
    event, users = heard(watch)
    assert (event["channel"], event["data"]) == (LOGIN, "joe")
    node = world.broker.settings.node.name
    properties = event["ext"]["update"]["clientProperties"]
    assert properties == {"__publicSessionId": 1, "__absoluteName": f"/node/{node}/client/joe/1"}
    assert (users["channel"], users["data"]) == (USER_LIST, ["joe", "operator"])


def test_a_session_without_a_number_is_told_with_the_one_it_is_given(world: World, watch: Client) -> None:
    login(world, "joe")
    event, _ = heard(watch)
    assert event["ext"]["update"]["clientProperties"]["__publicSessionId"] < 0


def test_a_logout_is_told(world: World, watch: Client) -> None:
    joe = login(world, "joe/1")
    heard(watch)
    joe.say("/meta/disconnect")
    event, users = heard(watch)
    assert (event["channel"], event["data"]) == (LOGOUT, "joe")
    assert event["ext"]["update"]["clientProperties"]["__publicSessionId"] == 1
    assert users["data"] == ["operator"]


def test_a_session_that_ends_by_silence_logs_out(world: World, watch: Client) -> None:
    login(world, "joe/1", timeout=1000)
    heard(watch)
    world.sweep_after(2.0)
    assert [each["channel"] for each in heard(watch)] == [LOGOUT, USER_LIST]


def test_the_list_is_told_when_it_is_another_one(world: World, watch: Client) -> None:
    first = login(world, "joe/1")
    assert len(heard(watch)) == 2
    login(world, "joe/2")
    assert [each["channel"] for each in heard(watch)] == [LOGIN]
    first.say("/meta/disconnect")
    assert [each["channel"] for each in heard(watch)] == [LOGOUT]


def test_a_take_over_is_no_login(world: World, watch: Client) -> None:
    first = Client(world)
    resume = first.handshake(ext={"session": {"name": "joe/1"}})["ext"]["session"]["resume"]
    heard(watch)
    second = Client(world)
    assert second.handshake(ext={"session": {"name": "joe/1", "resume": resume}})["successful"]
    assert heard(watch) == []


def test_nobody_is_told_of_sessions_without_a_name(world: World, watch: Client) -> None:
    client = Client(world).joined(ext={"session": {}})
    client.say("/meta/disconnect")
    Client(world).joined().say("/meta/disconnect")
    assert heard(watch) == []


def test_only_operators_hear_it(world: World) -> None:
    client = Client(world)
    assert client.handshake(ext={"session": {"name": "joe/1"}})["successful"]
    client.connect()
    for channel in (LOGIN, LOGOUT, USER_LIST):
        assert not client.say("/meta/subscribe", subscription=channel)["successful"]


def test_who_was_an_operator_hears_no_more(world: World, watch: Client) -> None:
    watch.session.authenticate(None)
    login(world, "joe/1")
    assert data_of(heard(watch)) == []


def test_a_full_queue_does_not_overflow_for_it(world: World, watch: Client) -> None:
    world.settle()
    watch.session.mailbox.bound(Bounds(1, 10**6))
    for number in range(3):
        login(world, f"joe/{number + 1}")
    assert len(heard(watch)) == 1
    assert watch.is_known
