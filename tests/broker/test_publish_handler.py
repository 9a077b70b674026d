"""Publish and delivery, listeners and remote calls (section 6)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from crewel.broker.services import Service
from crewel.errors import RemoteCallError
from crewel.security.policy import OpenPolicy
from tests.broker.world import Client, MakeWorld, World, data_of, reply_to


@pytest.fixture
def service() -> Service:
    return Service("app")


@pytest.fixture
def app(make_world: MakeWorld) -> Callable[[Service], Client]:
    """A client of a server in which this service runs."""
    return lambda service: Client(make_world(services=[service])).joined()


class TestPublish:
    @pytest.mark.parametrize("channel", ["/a", "/a/b/c", "/service/x", "/meta", "/service"])
    def test_a_publish_is_acknowledged_with_and_without_subscribers(self, world: World, channel: str) -> None:
        client = Client(world).joined()
        assert client.publish(channel, {"n": 1}) == {"channel": channel, "id": "3", "successful": True}

    def test_a_delivery_is_the_message_less_its_senders_own_affair(self, world: World) -> None:
        publisher, hearer = Client(world).joined(), Client(world).joined("/a")
        held = hearer.connect()
        big = 1234567890123456789
        publisher.publish("/a", {"n": big}, ext={"x": 1, "ack": 5}, advice={"reconnect": "none"}, custom=[1])
        world.settle()
        assert held.answer == [
            {"channel": "/a", "data": {"n": big}, "ext": {"x": 1}, "custom": [1]},
            {"channel": "/meta/connect", "id": "4", "successful": True},
        ]

    def test_missing_data_is_delivered_as_null(self, world: World) -> None:
        hearer = Client(world).joined("/a")
        held = hearer.connect()
        Client(world).joined().say("/a")
        world.settle()
        assert held.answer[0] == {"channel": "/a", "data": None}

    def test_a_trailing_slash_is_echoed_and_not_delivered(self, world: World) -> None:
        client = Client(world).joined("/a")
        delivery, reply = client.send(client.message("/a/", data=1)).received
        assert (delivery["channel"], reply["channel"]) == ("/a", "/a/")

    def test_a_publisher_hears_itself_before_the_acknowledgement(self, world: World) -> None:
        client = Client(world).joined("/a")
        assert data_of(client.send(client.message("/a", data=1)).received[:1]) == [1]

    def test_a_publish_is_accepted_before_the_first_connect(self, world: World) -> None:
        client = Client(world)
        client.handshake()
        assert client.publish("/a", 1)["successful"]

    @pytest.mark.parametrize("channel", ["/a/*", "/**", "/service/*"])
    def test_a_wildcard_is_no_place_to_publish_to(self, world: World, channel: str) -> None:
        assert Client(world).joined().publish(channel, 1)["error"] == "405::channel_invalid"

    @pytest.mark.parametrize("channel", ["/__sys__deadMessage", "/__sys__/x", "/meta/x"])
    def test_the_servers_own_channels_are_closed(self, world: World, channel: str) -> None:
        error = Client(world).joined().publish(channel, 1)["error"]
        assert error == "403:denied_by_security_policy:channel_create_denied"

    def test_the_servers_own_channel_stays_closed_once_it_is_known(self, world: World) -> None:
        world.broker.addressing.channels.create("/__sys__x")
        error = Client(world).joined().publish("/__sys__x", 1)["error"]
        assert error == "403:denied_by_security_policy:publish_denied"

    def test_a_service_message_reaches_nobody_by_subscription(self, world: World) -> None:
        hearer = Client(world).joined("/service/x", "/service/**", "/**")
        held = hearer.connect()
        Client(world).joined().publish("/service/x", 1)
        world.broker.publish("/service/x", 2)
        world.settle()
        assert held.is_held

    @pytest.mark.parametrize(
        ("setting", "own", "hears"),
        [
            (True, None, True),
            (False, None, False),
            (True, False, False),
            (False, True, True),
        ],
    )
    def test_broadcast_to_publisher_is_decided_by_server_and_session(
        self, make_world: MakeWorld, setting: bool, own: bool | None, hears: bool
    ) -> None:
        world = make_world(f"bayeux.broadcast_to_publisher={setting}")
        client, other = Client(world).joined("/a"), Client(world).joined("/*")
        client.session.broadcast_to_publisher = own
        held = other.connect()
        assert data_of(client.send(client.message("/a", data=1)).received) == ([1] if hears else [])
        world.settle()
        assert data_of(held.answer) == [1]


class TestListeners:
    def test_listeners_are_called_widest_first_with_session_and_message(
        self, service: Service, app: Callable[[Service], Client]
    ) -> None:
        calls: list[tuple[str, Any, Any]] = []
        for pattern in ("/a/b", "/**", "/a/*", "/other"):
            service.listener(pattern)(
                lambda session, message, pattern=pattern: calls.append((pattern, session.id, message.data))
            )
        client = app(service)
        client.publish("/a/b", 1)
        assert calls == [("/**", client.id, 1), ("/a/*", client.id, 1), ("/a/b", client.id, 1)]

    @pytest.mark.parametrize(("verdict", "passes"), [(False, False), (None, True), (True, True), (0, True)])
    def test_only_false_is_a_veto(
        self, service: Service, app: Callable[[Service], Client], verdict: Any, passes: bool
    ) -> None:
        service.listener("/a")(lambda session, message: verdict)
        client = app(service)
        client.subscribe("/a")
        request = client.send(client.message("/a", data=1, id="p"))
        assert reply_to(request, "p").get("error") == (None if passes else "404::message_deleted")
        assert data_of(request.received) == ([1] if passes else [])

    def test_a_veto_stops_the_ones_after_it(self, service: Service, app: Callable[[Service], Client]) -> None:
        called: list[str] = []
        service.listener("/**")(lambda session, message: False)
        service.listener("/a")(lambda session, message: called.append("a"))
        app(service).publish("/a", 1)
        assert called == []

    def test_one_that_fails_is_logged_and_does_not_veto(
        self, service: Service, app: Callable[[Service], Client], caplog: Any
    ) -> None:
        def fail(session: Any, message: Any) -> None:
            raise RuntimeError("broken")

        service.listener("/a")(fail)
        assert app(service).publish("/a", 1)["successful"]
        assert "a listener failed on /a" in caplog.text

    def test_the_acknowledgement_waits_for_an_async_one(
        self, service: Service, app: Callable[[Service], Client]
    ) -> None:
        waiting: list[asyncio.Future[bool]] = []

        @service.listener("/a")
        async def slow(session: Any, message: Any) -> bool:
            waiting.append(asyncio.get_running_loop().create_future())
            return await waiting[-1]

        client = app(service)
        good, bad = client.send(client.message("/a", data=1, id="1")), client.send(client.message("/a", data=2, id="2"))
        client.world.settle()
        assert not good.received
        waiting[0].set_result(True)
        waiting[1].set_result(False)
        client.world.settle()
        assert reply_to(good, "1")["successful"]
        assert reply_to(bad, "2")["error"] == "404::message_deleted"

    def test_a_session_that_ends_meanwhile_publishes_nothing(
        self, service: Service, app: Callable[[Service], Client]
    ) -> None:
        service.listener("/a")(lambda session, message: session.disconnect())
        client = app(service)
        hearer = Client(client.world).joined("/a")
        held = hearer.connect()
        assert client.publish("/a", 1)["error"] == "402::session_unknown"
        client.world.settle()
        assert held.is_held

    def test_a_session_that_ended_while_the_policy_thought_is_not_told_to_listeners(
        self, service: Service, make_world: MakeWorld
    ) -> None:
        """The application has been told of its end: whatever it kept of the session would stay for ever."""
        told: list[Any] = []
        waiting: list[Any] = []

        class Slow(OpenPolicy):
            def can_publish(self, *question: Any) -> Any:
                return waiting[0]

        service.policy = Slow()
        service.listener("/a")(lambda session, message: told.append(session))
        world = make_world(services=[service])
        waiting.append(world.loop.create_future())
        client = Client(world).joined()
        request = client.send(client.message("/a", data=1, id="p"))
        client.session.disconnect()
        waiting[0].set_result(True)
        world.settle()
        assert reply_to(request, "p")["error"] == "402::session_unknown"
        assert told == []


class TestRemoteCalls:
    def call(self, client: Client, data: Any = None, target: str = "/service/echo") -> list[dict[str, Any]]:
        return client.send(client.message(target, data=data, id="rpc")).received

    def test_a_result_precedes_the_acknowledgement(self, service: Service, app: Callable[[Service], Client]) -> None:
        service.remote_call("echo")(lambda session, data: {"echo": data})
        assert self.call(app(service), 5) == [
            {"channel": "/service/echo", "data": {"echo": 5}, "successful": True, "id": "rpc"},
            {"channel": "/service/echo", "id": "rpc", "successful": True},
        ]

    @pytest.mark.parametrize("target", ["echo", "/echo"])
    def test_the_target_may_begin_with_a_slash(
        self, service: Service, app: Callable[[Service], Client], target: str
    ) -> None:
        service.remote_call(target)(lambda session, data: data)
        assert len(self.call(app(service))) == 2

    def test_a_failure_on_purpose_tells_its_data(self, service: Service, app: Callable[[Service], Client]) -> None:
        @service.remote_call("echo")
        def refuse(session: Any, data: Any) -> Any:
            raise RemoteCallError({"why": "not today"})

        result = self.call(app(service))[0]
        assert (result["successful"], result["data"]) == (False, {"why": "not today"})

    @pytest.mark.parametrize("result", [RuntimeError("secret"), object()])
    def test_any_other_failure_leaks_nothing(
        self, service: Service, app: Callable[[Service], Client], result: Any, caplog: Any
    ) -> None:
        @service.remote_call("echo")
        def fail(session: Any, data: Any) -> Any:
            if isinstance(result, Exception):
                raise result
            return result

        answer, acknowledgement = self.call(app(service))
        assert (answer["successful"], answer["data"]) == (False, {"message": "internal error"})
        assert acknowledgement["successful"]
        assert "the remote call on /service/echo failed" in caplog.text

    @pytest.mark.parametrize("fails", [False, True])
    def test_an_async_result_comes_later_on_its_own(
        self, service: Service, app: Callable[[Service], Client], fails: bool
    ) -> None:
        @service.remote_call("echo")
        async def slow(session: Any, data: Any) -> Any:
            await asyncio.sleep(1)
            if fails:
                raise RemoteCallError(data)
            return data

        client = app(service)
        held = client.connect()
        assert self.call(client, 7) == [{"channel": "/service/echo", "id": "rpc", "successful": True}]
        client.world.advance(1)
        assert held.answer[0] == {"channel": "/service/echo", "data": 7, "successful": not fails, "id": "rpc"}

    def test_a_late_result_for_a_session_that_is_gone_is_dropped(
        self, service: Service, app: Callable[[Service], Client]
    ) -> None:
        @service.remote_call("echo")
        async def slow(session: Any, data: Any) -> Any:
            await asyncio.sleep(1)
            return data

        client = app(service)
        self.call(client)
        session = client.session
        client.say("/meta/disconnect")
        client.world.advance(2)
        assert session.mailbox._queue == []

    def test_without_a_handler_there_is_only_the_acknowledgement(self, world: World) -> None:
        assert len(self.call(Client(world).joined())) == 1

    def test_a_call_without_an_id_is_answered_without_one(
        self, service: Service, app: Callable[[Service], Client]
    ) -> None:
        service.remote_call("echo")(lambda session, data: data)
        client = app(service)
        request = client.send({"channel": "/service/echo", "data": 1, "clientId": client.id})
        assert request.received == [
            {"channel": "/service/echo", "data": 1, "successful": True},
            {"channel": "/service/echo", "successful": True},
        ]

    def test_an_acknowledging_session_gets_the_result_with_its_connect(
        self, service: Service, make_world: MakeWorld
    ) -> None:
        service.remote_call("echo")(lambda session, data: data)
        world = make_world(services=[service])
        client = Client(world).joined()
        client.session.connect_only = True
        held = client.connect()
        assert len(self.call(client, 1)) == 1
        world.settle()
        assert data_of(held.answer) == [1]
