"""Holding and releasing connects, expiry, bounds, lazy messages."""

from typing import Any

import pytest

from crewel.bayeux.message import Fields
from crewel.broker.mailboxes.ends import Ends
from crewel.broker.services import Service
from tests.broker.world import CallbackRequest, Client, MakeWorld, Request, Socket, World, data_of, is_connect, reply_to

FULL_ADVICE = {"reconnect": "retry", "interval": 0, "timeout": 30000}


@pytest.fixture
def client(world: World) -> Client:
    return Client(world).joined("/a")


def connect_reply(answer: list[Fields]) -> Fields:
    """The connect reply, which must be the last of the response."""
    assert is_connect(answer[-1])
    return answer[-1]


class TestHolding:
    def test_a_connect_is_held_until_its_time_is_over(self, client: Client) -> None:
        held = client.connect()
        client.world.advance(29.9)
        assert held.is_held
        client.world.advance(0.1)
        assert held.answer == [{"channel": "/meta/connect", "id": "4", "successful": True}]

    def test_a_held_connect_ends_with_all_messages_of_one_turn(self, client: Client) -> None:
        held = client.connect()
        for number in (1, 2, 3):
            client.world.broker.publish("/a", number)
        client.world.settle()
        assert data_of(held.answer) == [1, 2, 3]
        connect_reply(held.answer)

    def test_the_first_connect_is_answered_at_once(self, world: World) -> None:
        client = Client(world)
        client.handshake()
        assert not client.connect().is_held
        assert client.connect().is_held

    def test_what_was_queued_meanwhile_is_answered_at_once(self, client: Client) -> None:
        client.world.broker.publish("/a", 1)
        client.world.settle()
        assert data_of(client.connect().answer) == [1]
        assert client.connect().is_held

    @pytest.mark.parametrize(
        ("asked", "own", "seconds"),
        [
            (None, None, 30),
            (None, 5000, 5),
            (2000, 5000, 2),
            (2000, None, 2),
            (60000, None, 60),
            (-1, None, 30),
            ("x", None, 30),
        ],
    )
    def test_the_clients_time_goes_before_the_sessions_and_that_before_the_servers(
        self, client: Client, asked: Any, own: int | None, seconds: float
    ) -> None:
        client.session.advise(timeout_ms=own)
        held = client.connect(**({} if asked is None else {"advice": {"timeout": asked}}))
        client.world.advance(seconds - 0.01)
        assert held.is_held
        client.world.advance(0.01)
        assert not held.is_held

    @pytest.mark.parametrize("asked", [{"timeout": 0}, {"timeout": 0.0}])
    def test_a_client_may_ask_not_to_be_held_and_gets_advice(self, client: Client, asked: Fields) -> None:
        assert client.connect(advice=asked).answer[0]["advice"] == FULL_ADVICE
        assert client.connect().is_held  # that was for one connect only

    def test_a_server_without_a_hold_holds_nobody(self, make_world: MakeWorld) -> None:
        client = Client(make_world("bayeux.timeout_ms=0")).joined()
        assert not client.connect().is_held

    def test_a_publish_on_the_second_connection_does_not_wake_it(self, client: Client) -> None:
        held = client.connect()
        assert data_of(client.send(client.message("/a", data=1)).received) == [1]
        client.world.settle()
        assert held.is_held

    def test_a_short_hold_after_a_long_one_rings_in_time(self, client: Client) -> None:
        """The alarm of the longer hold is still in the heap, and that of the shorter one goes before it."""
        first = client.connect()
        second = client.connect(advice={"timeout": 1000})
        assert first.superseded
        client.world.advance(1)
        assert not second.is_held
        third = client.connect()
        client.world.advance(29.5)
        assert third.is_held
        client.world.advance(0.5)
        assert not third.is_held

    def test_messages_precede_the_replies_of_any_request(self, client: Client) -> None:
        client.world.broker.publish("/a", 1)
        received = client.send(client.message("/b", data=2), client.message("/meta/connect")).received
        assert [each["channel"] for each in received] == ["/a", "/b", "/meta/connect"]


class TestSecondConnect:
    def test_a_second_connect_takes_the_place_of_the_held_one_and_its_messages(self, client: Client) -> None:
        old = client.connect()
        new = client.connect()
        client.world.broker.publish("/a", 1)
        client.world.settle()
        assert (old.superseded, old.payloads) == (1, [])
        assert data_of(new.answer) == [1]
        assert client.world.broker.mailboxes.connects.held == 0

    def test_a_second_connect_that_is_not_held_takes_the_place_too(self, client: Client) -> None:
        old = client.connect()
        assert not client.connect(advice={"timeout": 0}).is_held
        assert old.superseded == 1

    def test_on_a_socket_the_old_one_gets_no_reply(self, world: World) -> None:
        socket = Socket()
        client = Client(world, socket).joined()
        client.send(client.message("/meta/connect", id="old"))
        client.send(client.message("/meta/connect", id="new"))
        world.advance(40)
        assert [each["id"] for each in socket.take()] == ["new"]

    def test_an_old_connects_end_does_not_expire_the_session_whose_new_one_is_held(self, client: Client) -> None:
        old, new = client.connect(), client.connect(advice={"timeout": 60000})
        client.world.broker.mailboxes.connects.vanished(old)
        client.world.sweep_after(50)
        assert new.is_held
        assert client.is_known


class TestLostConnections:
    def test_a_vanished_peer_gets_nothing_and_its_messages_wait(self, client: Client) -> None:
        held = client.connect()
        client.world.broker.mailboxes.connects.vanished(held)
        client.world.broker.publish("/a", 1)
        client.world.advance(1)
        assert not held.payloads
        assert client.session.peer is None
        assert data_of(client.connect().answer) == [1]

    def test_the_session_of_a_vanished_peer_expires_unless_it_comes_back(self, client: Client) -> None:
        client.world.broker.mailboxes.connects.vanished(client.connect())
        client.world.sweep_after(9.9)
        assert client.is_known
        client.world.sweep_after(0.2)
        assert not client.is_known

    def test_a_half_closed_peer_is_answered_now(self, client: Client) -> None:
        held = client.connect()
        client.world.broker.mailboxes.connects.half_closed(held)
        assert connect_reply(held.answer)["successful"]
        assert client.world.broker.mailboxes.connects.held == 0

    def test_one_that_holds_nothing_any_more_is_nobodys_affair(self, client: Client) -> None:
        old, new = client.connect(), client.connect()
        stranger = Request()
        for peer in (old, stranger):
            client.world.broker.mailboxes.connects.vanished(peer)
            client.world.broker.mailboxes.connects.half_closed(peer)
        client.world.broker.mailboxes.connects.socket_closed(Socket())
        assert new.is_held


class TestExpiry:
    @pytest.mark.parametrize(("interval", "grace"), [(0, 10), (5000, 15)])
    def test_a_session_has_the_interval_and_the_grace_to_come_back(
        self, make_world: MakeWorld, interval: int, grace: float
    ) -> None:
        world = make_world(f"bayeux.interval_ms={interval}")
        fresh, polled = Client(world), Client(world)
        fresh.handshake()
        polled.handshake()
        polled.connect()
        for client in (fresh, polled):
            session = client.session
            assert session.expires_at == pytest.approx(world.loop.time() + grace)
        world.sweep_after(grace - 0.01)
        assert fresh.is_known
        assert polled.is_known
        world.sweep_after(0.02)
        assert not fresh.is_known
        assert not polled.is_known

    def test_a_held_session_does_not_expire(self, client: Client) -> None:
        held = client.connect(advice={"timeout": 3_600_000})
        client.world.sweep_after(3599)
        assert held.is_held
        assert client.is_known

    def test_the_clients_own_pause_counts(self, client: Client) -> None:
        client.connect(advice={"timeout": 0, "interval": 60000})
        client.world.sweep_after(69)
        assert client.is_known
        client.world.sweep_after(2)
        assert not client.is_known

    def test_publishing_keeps_a_session_that_does_not_connect(self, client: Client) -> None:
        for _ in range(5):
            client.world.sweep_after(9)
            client.publish("/b", 1)
        assert client.is_known

    def test_publishing_never_shortens_a_deadline(self, client: Client) -> None:
        client.connect(advice={"timeout": 0, "interval": 60000})
        deadline = client.session.expires_at
        client.publish("/b", 1)
        assert client.session.expires_at == deadline

    def test_after_it_a_connect_must_shake_hands_again(self, client: Client) -> None:
        client.world.sweep_after(11)
        reply = client.say("/meta/connect")
        assert (reply["error"], reply["advice"]["reconnect"]) == ("402::session_unknown", "handshake")

    def test_a_client_that_says_nothing_while_its_connect_is_held_may_be_ended(self, make_world: MakeWorld) -> None:
        world = make_world("bayeux.max_processing_ms=5000")
        client = Client(world).joined()
        held = client.connect()
        world.sweep_after(4)
        client.publish("/b", 1)
        world.sweep_after(4)
        assert held.is_held
        world.sweep_after(2)
        assert held.answer == [
            {
                "channel": "/meta/connect",
                "id": "3",
                "successful": False,
                "error": "402::session_unknown",
                "advice": {"reconnect": "handshake", "interval": 0},
            }
        ]
        assert not client.is_known


class TestResponseLimit:
    def test_the_rest_goes_with_the_next_connect_at_once(self, make_world: MakeWorld) -> None:
        world = make_world("bayeux.max_response_bytes=70")
        client = Client(world).joined("/a")
        held = client.connect()
        for number in range(5):
            world.broker.publish("/a", number)  # 24 bytes each
        world.settle()
        assert data_of(held.answer) == [0, 1]
        assert data_of(client.connect().answer) == [2, 3]
        assert data_of(client.connect().answer) == [4]
        assert client.connect().is_held

    def test_one_message_goes_however_large_it_is(self, make_world: MakeWorld) -> None:
        world = make_world("bayeux.max_response_bytes=10")
        client = Client(world).joined("/a")
        world.broker.publish("/a", "x" * 100)
        world.broker.publish("/a", 2)
        assert data_of(client.connect().answer) == ["x" * 100]
        assert data_of(client.connect().answer) == [2]

    def test_what_a_publishs_answer_left_goes_with_the_held_connect(self, make_world: MakeWorld) -> None:
        world = make_world("bayeux.max_response_bytes=30")
        client = Client(world).joined("/a")
        held = client.connect()
        request = client.send(client.message("/a", data=1), client.message("/a", data=2))
        assert data_of(request.received) == [1]
        world.settle()
        assert data_of(held.answer) == [2]

    def test_a_socket_that_fell_behind_gets_it_in_more_frames(self, make_world: MakeWorld) -> None:
        world = make_world("bayeux.max_response_bytes=70")
        socket = Socket()
        client = Client(world, socket).joined("/a")
        socket.reads = False
        for number in range(5):
            world.broker.publish("/a", number)
        world.settle()
        assert not socket.payloads
        socket.reads = True
        world.broker.mailboxes.outbound.make_ready((client.session,))
        world.settle()
        assert [data_of(frame) for frame in socket.payloads] == [[0, 1], [2, 3], [4]]


class TestQueueBound:
    def test_the_oldest_give_way_and_are_counted(self, make_world: MakeWorld) -> None:
        world = make_world("bayeux.max_queue_messages=3")
        client = Client(world).joined("/a")
        for number in range(5):
            world.broker.publish("/a", number)
            world.settle()
        assert data_of(client.connect().answer) == [2, 3, 4]
        assert world.broker.metrics.dropped == {"dropOldest": 2}
        assert client.is_known

    def test_a_session_that_acknowledges_is_ended_and_hears_no_gap(self, make_world: MakeWorld) -> None:
        world = make_world("bayeux.max_queue_messages=3")
        client = Client(world).joined("/a")
        world.broker.durability.acknowledgements.begin(client.session)
        held = client.connect()
        for number in range(5):
            world.broker.publish("/a", number)
        world.settle()
        assert data_of(held.answer) == [0, 1, 2]
        assert not client.is_known
        assert world.broker.metrics.dropped == {"disconnect": 2}

    def test_what_is_not_acknowledged_counts(self, make_world: MakeWorld) -> None:
        world = make_world("bayeux.max_queue_messages=3")
        client = Client(world).joined("/a")
        world.broker.durability.acknowledgements.begin(client.session)
        client.session.mailbox._retained = 2
        world.broker.publish("/a", 1)
        world.settle()
        assert client.is_known
        world.broker.publish("/a", 2)
        world.settle()
        assert not client.is_known


class TestLazyMessages:
    @pytest.fixture
    def lazy(self, make_world: MakeWorld) -> Client:
        return Client(make_world("bayeux.lazy_channels=/a,/l/*")).joined("/a", "/b", "/l/1")

    def test_lazy_messages_wait_for_their_time(self, lazy: Client) -> None:
        held = lazy.connect()
        lazy.world.broker.publish("/a", 1)
        lazy.world.advance(2)
        lazy.world.broker.publish("/l/1", 2)
        lazy.world.advance(2.9)
        assert held.is_held
        lazy.world.advance(0.1)
        assert data_of(held.answer) == [1, 2]

    def test_lazy_messages_go_in_order_with_one_that_does_not_wait(self, lazy: Client) -> None:
        held = lazy.connect()
        lazy.world.broker.publish("/a", 1)
        lazy.world.broker.publish("/b", 2)
        lazy.world.settle()
        assert data_of(held.answer) == [1, 2]

    def test_lazy_messages_go_with_any_other_reply(self, lazy: Client) -> None:
        lazy.world.broker.publish("/a", 1)
        assert data_of(lazy.send(lazy.message("/x", data=0)).received) == [1]

    def test_a_connect_is_held_in_spite_of_them(self, lazy: Client) -> None:
        lazy.world.broker.publish("/a", 1)
        held = lazy.connect()
        assert held.is_held
        lazy.world.advance(5)
        assert data_of(held.answer) == [1]

    def test_their_time_runs_also_while_no_connect_is_held(self, lazy: Client) -> None:
        lazy.world.broker.publish("/a", 1)
        lazy.world.advance(6)
        assert data_of(lazy.connect().answer) == [1]

    def test_the_timer_is_not_lost_with_a_run_that_came_to_nothing(self, lazy: Client) -> None:
        for number in (1, 2):
            held = lazy.connect()
            lazy.world.broker.publish("/a", number)
            lazy.world.broker.publish("/b", number)
            lazy.world.settle()
            assert data_of(held.answer) == [number, number]
            lazy.world.advance(3)
        held = lazy.connect()
        lazy.world.broker.publish("/a", 3)
        lazy.world.advance(4.9)
        assert held.is_held
        lazy.world.advance(0.1)
        assert data_of(held.answer) == [3]

    def test_the_end_of_the_hold_carries_them(self, lazy: Client) -> None:
        held = lazy.connect(advice={"timeout": 1000})
        lazy.world.broker.publish("/a", 1)
        lazy.world.advance(1)
        assert data_of(held.answer) == [1]

    def test_a_connect_is_held_when_all_that_waited_was_taken_away(self, lazy: Client) -> None:
        lazy.world.broker.publish("/b", 1)
        Ends(lazy.session.mailbox).drop_first(1)
        assert lazy.connect().is_held

    def test_a_direct_delivery_is_lazy_only_if_it_says_so(self, lazy: Client) -> None:
        held = lazy.connect()
        lazy.session.deliver("/a", 1, lazy=True)
        lazy.world.settle()
        assert held.is_held
        lazy.session.deliver("/a", 2)
        lazy.world.settle()
        assert data_of(held.answer) == [1, 2]

    def test_without_a_time_to_wait_nothing_is_lazy(self, make_world: MakeWorld) -> None:
        world = make_world("bayeux.lazy_channels=/**", "bayeux.max_lazy_ms=0")
        client = Client(world).joined("/a")
        held = client.connect()
        world.broker.publish("/a", 1)
        world.settle()
        assert not held.is_held

    def test_a_socket_gets_them_at_their_time_too(self, make_world: MakeWorld) -> None:
        world = make_world("bayeux.lazy_channels=/a")
        socket = Socket()
        Client(world, socket).joined("/a")
        world.broker.publish("/a", 1)
        world.advance(4.9)
        assert socket.take() == []
        world.advance(0.1)
        assert data_of(socket.take()) == [1]

    def test_a_socket_gets_them_with_the_end_of_its_session(self, make_world: MakeWorld) -> None:
        world = make_world("bayeux.lazy_channels=/a")
        socket = Socket()
        client = Client(world, socket).joined("/a")
        world.broker.publish("/a", 1)
        client.session.disconnect()
        assert data_of(socket.take()[:1]) == [1]


class TestConnectOnly:
    @pytest.fixture
    def only(self, make_world: MakeWorld) -> Client:
        return Client(make_world("bayeux.meta_connect_deliver_only=true")).joined("/a")

    def test_other_replies_carry_no_messages(self, only: Client) -> None:
        held = only.connect()
        assert data_of(only.send(only.message("/a", data=1)).received) == []
        only.world.settle()
        assert data_of(held.answer) == [1]
        only.world.broker.publish("/a", 2)
        assert data_of(only.send(only.message("/b", data=0), only.message("/meta/connect")).received) == [2]

    def test_a_socket_carries_them_with_a_connect_reply(self, make_world: MakeWorld) -> None:
        world = make_world("bayeux.meta_connect_deliver_only=true")
        socket = Socket()
        client = Client(world, socket).joined("/a")
        world.broker.publish("/a", 1)
        world.settle()
        assert socket.take() == []
        client.send(client.message("/meta/connect"))
        assert data_of(socket.take()) == [1]

    def test_a_disconnect_discards_them(self, only: Client) -> None:
        only.world.broker.publish("/a", 1)
        assert data_of(only.send(only.message("/meta/disconnect")).received) == []

    def test_a_disconnect_on_a_socket_discards_them(self, make_world: MakeWorld) -> None:
        world = make_world("bayeux.meta_connect_deliver_only=true")
        socket = Socket()
        client = Client(world, socket).joined("/a")
        world.broker.publish("/a", 1)
        client.send(client.message("/meta/disconnect"))
        assert [each["channel"] for each in socket.take()] == ["/meta/disconnect"]

    def test_the_servers_own_disconnect_is_told_at_any_time(self, make_world: MakeWorld) -> None:
        world = make_world("bayeux.meta_connect_deliver_only=true")
        socket = Socket()
        client = Client(world, socket).joined("/a")
        world.broker.publish("/a", 1)
        client.session.disconnect()
        assert socket.take() == [{"channel": "/meta/disconnect", "successful": True}]

    def test_callback_polling_is_always_so(self, world: World) -> None:
        client = Client(world).joined("/a")
        world.broker.publish("/a", 1)
        publish = world.post(client.message("/b", data=0), browser=client.browser, kind=CallbackRequest)
        assert data_of(publish.answer) == []
        connect = world.post(client.message("/meta/connect"), browser=client.browser, kind=CallbackRequest)
        assert data_of(connect.answer) == [1]


class TestHandshakeDelivery:
    def greeter(self) -> Service:
        service = Service("greeter")

        @service.on_session_added
        def greet(session: Any) -> None:
            session.deliver("/hello", 1)
            session.deliver("/hello", 2)

        return service

    def test_messages_may_follow_the_handshake_reply_and_are_counted(self, make_world: MakeWorld) -> None:
        world = make_world("bayeux.allow_message_delivery_during_handshake=true", services=[self.greeter()])
        reply, *messages = world.post({"channel": "/meta/handshake"}).answer
        assert (reply["channel"], reply["x-messages"]) == ("/meta/handshake", 2)
        assert data_of(messages) == [1, 2]

    def test_none_are_not_counted(self, make_world: MakeWorld) -> None:
        world = make_world("bayeux.allow_message_delivery_during_handshake=true")
        assert "x-messages" not in world.post({"channel": "/meta/handshake"}).answer[0]

    def test_by_default_they_wait_for_the_first_connect(self, make_world: MakeWorld) -> None:
        client = Client(make_world(services=[self.greeter()]))
        assert "x-messages" not in client.handshake()
        assert data_of(client.connect().answer) == [1, 2]


class TestSockets:
    """Reference, section 4, as far as the broker decides it."""

    @pytest.fixture
    def socket(self) -> Socket:
        return Socket()

    def test_messages_come_at_any_time_and_do_not_answer_the_connect(self, world: World, socket: Socket) -> None:
        client = Client(world, socket).joined("/a")
        client.send(client.message("/meta/connect", id="c"))
        world.broker.publish("/a", 1)
        world.settle()
        assert socket.take() == [{"channel": "/a", "data": 1}]
        world.advance(30)
        assert reply_to(socket, "c")["successful"]

    def test_messages_come_from_the_first_frame_after_the_handshake_on(self, world: World, socket: Socket) -> None:
        client = Client(world, socket)
        client.handshake()
        client.subscribe("/a")
        socket.take()
        world.broker.publish("/a", 1)
        world.settle()
        assert data_of(socket.take()) == [1]

    def test_messages_come_before_the_replies_of_their_payload(self, world: World, socket: Socket) -> None:
        client = Client(world, socket).joined("/a")
        client.send(client.message("/a", data=1), client.message("/b", data=2))
        assert [[each["channel"] for each in frame] for frame in socket.payloads] == [["/a"], ["/a", "/b"]]
        assert "data" in socket.payloads[0][0], "the delivery, and then the two acknowledgements in one frame"

    def test_a_connect_among_others_is_answered_with_them_at_once(self, world: World, socket: Socket) -> None:
        client = Client(world, socket).joined()
        client.send(client.message("/meta/connect"), client.message("/b", data=1))
        assert len(socket.payloads) == 1

    def test_a_socket_speaks_for_one_session(self, world: World, socket: Socket) -> None:
        client, other = Client(world, socket).joined(), Client(world).joined()
        client.send({"channel": "/a", "data": 1, "clientId": other.id, "id": "x"})
        assert reply_to(socket, "x")["error"] == "402::session_unknown"

    def test_a_socket_may_handshake_again_and_speaks_for_the_new_session(self, world: World, socket: Socket) -> None:
        client = Client(world, socket).joined("/a")
        before = client.session
        client.joined("/b")
        assert before.socket is None
        world.broker.publish("/a", "old")
        world.broker.publish("/b", "new")
        world.settle()
        assert data_of(socket.take()) == ["new"]

    def test_after_its_sessions_end_it_may_do_so_too(self, world: World, socket: Socket) -> None:
        client = Client(world, socket).joined("/a")
        world.sweep_after(11)
        late = client.say("/meta/connect")
        assert late["advice"]["reconnect"] == "handshake"
        assert client.joined("/a").publish("/b", 1)["successful"]

    def test_a_new_socket_takes_the_deliveries_with_its_first_frame(self, world: World, socket: Socket) -> None:
        client = Client(world, socket).joined("/a")
        client.socket = Socket()
        client.publish("/b", 0)
        client.socket.take()
        world.broker.publish("/a", 1)
        world.settle()
        assert socket.take() == []
        assert data_of(client.socket.take()) == [1]
        world.broker.mailboxes.connects.socket_closed(socket)
        world.broker.publish("/a", 2)
        world.settle()
        assert data_of(client.socket.take()) == [2]

    def test_unless_each_connection_must_shake_hands(self, make_world: MakeWorld, socket: Socket) -> None:
        world = make_world("websocket.require_handshake_per_connection=true")
        client = Client(world, socket).joined()
        client.socket = Socket()
        assert client.publish("/b", 0)["error"] == "402::session_unknown"

    def test_a_session_made_by_http_may_move_to_a_socket_and_back(self, world: World, socket: Socket) -> None:
        """Faye and aiocometd shake hands by HTTP first; a client falls back to HTTP when sockets fail it."""
        client = Client(world).joined("/a")
        client.socket = socket
        client.publish("/b", 0)
        world.broker.publish("/a", 1)
        world.settle()
        assert data_of(socket.take()) == [1]
        client.socket = None
        held = client.connect()
        world.broker.publish("/a", 2)
        world.settle()
        assert data_of(held.answer) == [2]
        assert socket.take() == []

    def test_a_closed_socket_leaves_the_session_for_the_rest_of_the_hold_and_the_grace(
        self, world: World, socket: Socket
    ) -> None:
        client = Client(world, socket).joined("/a")
        client.send(client.message("/meta/connect"))
        world.advance(10)
        world.broker.mailboxes.connects.socket_closed(socket)
        world.broker.publish("/a", 1)
        world.sweep_after(29.9)
        assert client.is_known
        client.socket = Socket()
        client.publish("/b", 0)
        assert data_of(client.socket.take()) == [1]
        world.sweep_after(40)
        assert not client.is_known

    def test_a_slow_reader_gets_no_more_than_it_takes_and_the_rest_later(self, world: World, socket: Socket) -> None:
        client = Client(world, socket).joined("/a")
        socket.reads = False
        for number in (1, 2):
            world.broker.publish("/a", number)
        world.settle()
        assert socket.take() == []
        socket.reads = True
        world.broker.mailboxes.outbound.make_ready((client.session,))
        world.settle()
        assert data_of(socket.take()) == [1, 2]

    def test_the_browser_limit_is_for_http(self, world: World) -> None:
        sockets = [Socket("cookie"), Socket("cookie")]
        for socket in sockets:
            client = Client(world, socket).joined()
            client.send(client.message("/meta/connect", id="c"))
        world.advance(30)
        assert ["advice" in each for socket in sockets for each in socket.take()] == [False, False]


class TestDraining:
    def test_every_held_connect_is_answered_and_none_is_held_any_more(self, world: World) -> None:
        clients = [Client(world).joined("/a") for _ in range(3)]
        held = [client.connect() for client in clients]
        world.broker.drain()
        assert [connect_reply(request.answer)["successful"] for request in held] == [True] * 3
        assert not clients[0].connect().is_held
        assert world.broker.runtime.life.is_draining

    def test_clients_are_asked_for_a_pause_if_another_server_will_have_them(self, world: World) -> None:
        """Those whose connect is held, and those whose connect comes now, each for another time."""
        clients = [Client(world).joined("/a") for _ in range(8)]
        held = [client.connect() for client in clients[:-1]]
        world.broker.mailboxes.connects.drain(world.broker.sessions.by_id.values(), 300)
        held.append(clients[-1].connect())
        pauses = [connect_reply(request.answer)["advice"]["interval"] for request in held]
        assert all(150 <= each <= 300 for each in pauses)
        assert len(set(pauses)) > 1
