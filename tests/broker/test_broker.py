"""The broker: what the server itself may do, sweeping, and the end."""

import asyncio
from typing import Any

import pytest

from crewel.broker.services import Service
from crewel.extension import Extension
from crewel.security.policy import OpenPolicy
from tests.broker.world import Client, MakeWorld, World, data_of


class TestPublishAndDeliver:
    def test_a_publish_of_the_servers_reaches_every_subscriber(self, world: World) -> None:
        held = [Client(world).joined(name).connect() for name in ("/a", "/*", "/b")]
        world.broker.publish("/a", {"n": 1}, ext={"x": 1})
        world.settle()
        assert [request.is_held for request in held] == [False, False, True]
        assert held[0].answer[0] == {"channel": "/a", "data": {"n": 1}, "ext": {"x": 1}}

    def test_a_delivery_reaches_one_session_whatever_it_is_subscribed_to(self, world: World) -> None:
        client, other = Client(world).joined(), Client(world).joined("/**")
        held, others = client.connect(), other.connect()
        assert client.session.deliver("/service/private", 1, ext={"x": 2})
        world.settle()
        assert held.answer[0] == {"channel": "/service/private", "data": 1, "ext": {"x": 2}}
        assert others.is_held

    @pytest.mark.parametrize("channel", ["/a//b", "a", "/a/*", "/**", ""])
    def test_a_name_that_is_no_channel_is_the_callers_fault(self, world: World, channel: str) -> None:
        session = Client(world).joined().session
        with pytest.raises(ValueError, match="not the name of a channel"):
            world.broker.publish(channel, 1)
        with pytest.raises(ValueError, match="not the name of a channel"):
            session.deliver(channel, 1)

    def test_data_that_json_cannot_say_is_refused_and_not_delivered(self, world: World) -> None:
        client = Client(world).joined("/a")
        with pytest.raises(TypeError):
            world.broker.publish("/a", object())
        with pytest.raises(TypeError):
            client.session.deliver("/a", object())
        assert client.connect().is_held

    def test_an_extension_may_take_a_delivery_out(self, make_world: MakeWorld) -> None:
        class Censor(Extension):
            def send(self, session: Any, fields: Any) -> bool:
                return fields.get("data") != "no"

        world = make_world(extensions=[Censor()])
        client = Client(world).joined("/a")
        assert not client.session.deliver("/a", "no")
        world.broker.publish("/a", "no")
        world.broker.publish("/a", "yes")
        assert data_of(client.connect().answer) == ["yes"]

    def test_what_leaves_in_one_turn_leaves_in_the_order_of_publishing(self, world: World) -> None:
        client = Client(world).joined("/a", "/b")
        held = client.connect()
        for number in range(20):
            world.broker.publish("/a" if number % 3 else "/b", number)
        world.settle()
        assert data_of(held.answer) == list(range(20))

    def test_a_session_is_found_by_its_id_while_it_lives(self, world: World) -> None:
        client = Client(world).joined()
        assert world.broker.session(str(client.id)) is client.session
        assert world.broker.session("unknown") is None
        client.say("/meta/disconnect")
        assert world.broker.session(str(client.id)) is None


class TestSweeping:
    def test_a_sweep_ends_sessions_and_forgets_channels(self, world: World) -> None:
        client = Client(world).joined("/a")
        world.sweep_after(11)
        assert not client.is_known
        assert "/a" in world.broker.addressing.channels
        world.sweep_after(1)
        world.sweep_after(1)
        assert len(world.broker.addressing.channels) == 0

    def test_nothing_of_an_ended_session_stays(self, world: World) -> None:
        clients = [Client(world).joined("/a", "/b/*") for _ in range(100)]
        for client in clients:
            client.connect(advice={"timeout": 86_400_000})
        for client in clients[:50]:
            client.say("/meta/disconnect")
        for client in clients[50:]:
            world.broker.mailboxes.connects.vanished(client.session.held.peer)  # type: ignore[union-attr]
        for _ in range(5):
            world.sweep_after(11)
        assert len(world.broker.sessions.by_id) == 0
        assert len(world.broker.addressing.channels) == 0
        assert world.broker.mailboxes.connects.held == 0
        assert len(world.broker.mailboxes.outbound.timers) <= 65
        assert not world.broker.mailboxes.connects.browsers._holding

    def test_an_expired_session_is_over_for_everybody(self, world: World) -> None:
        client = Client(world).joined("/a")
        session = client.session
        world.sweep_after(11)
        world.broker.publish("/a", 1)
        assert not session.deliver("/a", 1)
        assert session.mailbox._queue == []
        session.disconnect()
        assert client.say("/meta/connect")["advice"] == {"reconnect": "handshake", "interval": 0}


class TestMetrics:
    def test_metrics_count_what_happens(self, world: World) -> None:
        client, silent = Client(world).joined("/a"), Client(world)
        silent.handshake()
        client.connect()
        client.publish("/a", 1)
        world.broker.publish("/b", 2)
        client.publish("/a/*", 3)
        client.say("/meta/nonsense")
        client.say("/meta/nonsense")
        exposed = world.broker.metrics.exposition().decode()
        figures = dict(line.rsplit(" ", 1) for line in exposed.splitlines() if not line.startswith("#"))
        expected = {
            "crewel_sessions": 2,
            "crewel_held_connects": 1,
            "crewel_channels": 2,
            "crewel_handshakes_total": 2,
            "crewel_connects_total": 2,
            "crewel_publishes_total": 2,
            "crewel_deliveries_total": 1,
            'crewel_errors_total{code="405"}': 1,
            'crewel_errors_total{code="403"}': 2,
        }
        assert {name: float(figures[name]) for name in expected} == {
            name: float(value) for name, value in expected.items()
        }
        world.advance(30)
        world.sweep_after(11)
        assert world.broker.metrics.sessions_expired == 2


class TestTheEnd:
    def test_the_end_answers_what_is_held_and_ends_what_runs(self, make_world: MakeWorld) -> None:
        class Endless(OpenPolicy):
            def can_publish(self, *question: Any) -> Any:
                return asyncio.get_running_loop().create_future()

        service = Service("endless")
        service.policy = Endless()
        service.on_session_added(lambda session: asyncio.sleep(1000))
        world = make_world(services=[service])
        client = Client(world).joined()
        held = client.connect()
        world.settle()
        world.loop.call_soon(client.send, client.message("/a", data=1))
        world.settle()
        world.loop.run_until_complete(world.broker.close())
        assert held.answer[0]["successful"]
        assert not asyncio.all_tasks(world.loop)

    def test_the_request_is_there_for_services_while_it_is_answered(self, make_world: MakeWorld) -> None:
        seen: list[Any] = []
        service = Service("curious")

        @service.listener("/a")
        def look(session: Any, message: Any) -> None:
            seen.append((session.peer.transport, session.peer.headers["X-Test"], session.peer.remote))

        client = Client(make_world(services=[service])).joined()
        client.publish("/a", 1)
        assert seen == [("long-polling", "yes", "192.0.2.1")]
        assert client.session.peer is None
