"""Browsers: who may speak for a session, and how many of their connects are held."""

from typing import Any

import pytest

from tests.broker.world import Client, MakeWorld, Request, Socket, World, data_of

SHAKE = {"channel": "/meta/handshake"}


class TestCookie:
    def test_a_handshake_without_one_is_given_one(self, world: World) -> None:
        request = world.post(SHAKE)
        assert request.mints_cookie
        assert request.browser is not None
        assert len(request.browser) >= 16
        assert request.browser.isalnum()

    def test_the_one_that_the_request_has_is_adopted(self, world: World) -> None:
        request = world.post(SHAKE, browser="mine")
        assert (request.mints_cookie, request.browser) == (False, "mine")

    @pytest.mark.parametrize("browser", [None, "other"])
    def test_another_browser_does_not_know_the_session(self, world: World, browser: str | None) -> None:
        client = Client(world).joined("/a")
        message = client.message("/meta/connect")
        (reply,) = world.post(message, browser=browser).answer
        assert (reply["error"], reply["advice"]["reconnect"]) == ("402::session_unknown", "handshake")

    @pytest.mark.parametrize("browser", [None, "other"])
    def test_unless_the_operator_trusts_the_client_id_alone(self, make_world: MakeWorld, browser: str | None) -> None:
        world = make_world("bayeux.trust_client_session=true")
        client = Client(world).joined()
        assert world.post(client.message("/a", data=1), browser=browser).answer[0]["successful"]

    def test_a_stranger_neither_ends_nor_prolongs_nor_overtakes(self, world: World) -> None:
        client = Client(world).joined()
        held = client.connect()
        for channel in ("/meta/connect", "/meta/disconnect", "/a"):
            world.post(client.message(channel), browser="other")
        assert held.is_held
        assert client.is_known

    def test_a_stranger_without_one_does_not_end_a_session_before_its_first_connect(self, world: World) -> None:
        client, lossy, has_left_something = Client(world), Client(world), Client(world)
        for each in (client, lossy, has_left_something):
            each.handshake()
            if each is has_left_something:
                each.subscribe("/a")
            (reply,) = world.post(each.message("/meta/connect")).answer
            assert reply["advice"]["interval"] > 0
        assert client.say("/meta/connect")["successful"]
        world.sweep_after(4.9)
        assert lossy.is_known
        world.sweep_after(0.2)
        assert [each.is_known for each in (client, lossy, has_left_something)] == [True, False, True]

    def test_a_socket_neither_sets_nor_needs_it(self, world: World) -> None:
        socket = Socket()
        made_by_http = Client(world).joined()
        made_by_http.socket = socket
        assert made_by_http.publish("/a", 1)["successful"]
        assert not socket.mints_cookie

    def test_a_session_made_over_a_socket_is_bound_by_its_first_request(self, world: World) -> None:
        client = Client(world, Socket()).joined()
        first = world.post(client.message("/a", data=1))
        assert first.mints_cookie
        assert world.post(client.message("/a", data=1), browser=first.browser).answer[0]["successful"]
        assert not world.post(client.message("/a", data=1), browser="other").answer[0]["successful"]

    def test_a_session_made_over_a_socket_is_bound_by_the_cookie_of_its_upgrade(self, world: World) -> None:
        client = Client(world, Socket("upgrade")).joined()
        assert not world.post(client.message("/a", data=1)).answer[0]["successful"]
        assert world.post(client.message("/a", data=1), browser="upgrade").answer[0]["successful"]

    @pytest.mark.parametrize("channel", ["connect", "subscribe", "unsubscribe", "disconnect", "publish", "call"])
    @pytest.mark.parametrize("cookie", [None, "mine", "other"])
    @pytest.mark.parametrize("is_by_socket", [True, False], ids=["by a socket", "by a request"])
    @pytest.mark.parametrize("maker", [Request("mine"), Socket("mine"), Socket()], ids=["request", "socket", "bare"])
    def test_one_rule_holds_for_sockets_and_requests(
        self, world: World, maker: Request | Socket, *, is_by_socket: bool, cookie: str | None, channel: str
    ) -> None:
        client = Client(world, type(maker)(maker.browser) if isinstance(maker, Socket) else None, maker.browser).joined(
            "/a"
        )
        other = Client(world, Socket(cookie) if is_by_socket else None, cookie)
        other.id = client.id
        name = {"publish": "/b", "call": "/service/get"}.get(channel, f"/meta/{channel}")
        reply = other.say(
            name, subscription="/a", data={"channel": "/a"}, advice={"timeout": 0}, connectionType="websocket"
        )
        may = maker.browser is None or cookie == maker.browser or (is_by_socket and cookie is None)
        assert reply.get("error", "").startswith("402:") is not may
        assert client.is_known is not (may and channel == "disconnect")
        if client.is_known:
            assert ("/a" in client.session.subscriptions) is not (may and channel == "unsubscribe")


class TestLimit:
    def tabs(self, world: World, count: int) -> list[Client]:
        return [Client(world, browser="cookie").joined("/a") for _ in range(count)]

    def test_one_connect_of_a_browser_is_held_and_the_others_poll_slowly(self, world: World) -> None:
        first, second = self.tabs(world, 2)
        held = first.connect()
        assert second.connect().answer == [
            {
                "channel": "/meta/connect",
                "id": "4",
                "successful": True,
                "advice": {"multiple-clients": True, "reconnect": "retry", "interval": 2000},
            }
        ]
        assert held.is_held
        assert second.publish("/b", 1)["successful"]

    def test_such_a_session_has_that_pause_longer_to_come_back(self, world: World) -> None:
        first, second = self.tabs(world, 2)
        first.connect()
        second.connect()
        world.sweep_after(11.9)
        assert second.is_known
        world.sweep_after(0.2)
        assert not second.is_known

    def test_a_request_with_advice_is_told_the_hold_too(self, world: World) -> None:
        first, second = self.tabs(world, 2)
        first.connect()
        assert second.connect(advice={"timeout": 0}).answer[0]["advice"] == {
            "multiple-clients": True,
            "reconnect": "retry",
            "interval": 2000,
            "timeout": 30000,
        }

    @pytest.mark.parametrize("interval", [0, -1])
    def test_without_an_interval_they_are_refused_and_stay_valid(self, make_world: MakeWorld, interval: int) -> None:
        world = make_world(f"bayeux.multi_session_interval_ms={interval}")
        first, second = self.tabs(world, 2)
        first.connect()
        assert second.connect().answer == [
            {
                "channel": "/meta/connect",
                "id": "4",
                "successful": False,
                "advice": {"multiple-clients": True, "reconnect": "none"},
            }
        ]
        assert second.publish("/b", 1)["successful"]

    def test_what_is_queued_is_answered_in_spite_of_it(self, world: World) -> None:
        first, second = self.tabs(world, 2)
        held = first.connect()
        world.broker.publish("/a", 1)
        assert data_of(second.connect().answer) == [1]
        world.settle()
        assert data_of(held.answer) == [1]

    def release(self, held: Request, client: Client) -> None:
        client.world.broker.publish("/a", 1)
        client.world.settle()

    def vanish(self, held: Request, client: Client) -> None:
        client.world.broker.mailboxes.connects.vanished(held)

    def time_out(self, held: Request, client: Client) -> None:
        client.world.advance(30)

    def replace(self, held: Request, client: Client) -> None:
        assert not client.connect(advice={"timeout": 0}).is_held

    def disconnect(self, held: Request, client: Client) -> None:
        client.say("/meta/disconnect")

    @pytest.mark.parametrize("how", ["release", "vanish", "time_out", "replace", "disconnect"])
    def test_its_place_is_free_again_however_the_connect_ends(self, world: World, how: str) -> None:
        first, second = self.tabs(world, 2)
        held: Any = first.connect()
        getattr(self, how)(held, first)
        second.session.mailbox._replace([])
        assert second.connect(advice={"timeout": 60000}).is_held

    def test_a_session_that_replaces_its_own_connect_keeps_its_place(self, world: World) -> None:
        first, second = self.tabs(world, 2)
        for _ in range(3):
            held = first.connect()
            assert held.is_held
        assert not second.connect().is_held

    @pytest.mark.parametrize(("limit", "held"), [(0, 0), (1, 1), (2, 2), (-1, 3)])
    def test_the_limit_is_a_setting(self, make_world: MakeWorld, limit: int, held: int) -> None:
        world = make_world(f"bayeux.max_sessions_per_browser={limit}")
        assert [tab.connect().is_held for tab in self.tabs(world, 3)] == [True] * held + [False] * (3 - held)

    def test_browsers_do_not_count_for_each_other(self, world: World) -> None:
        assert [Client(world, browser=name).joined().connect().is_held for name in ("a", "b", None, None)] == [True] * 4
