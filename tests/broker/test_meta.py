"""Handshake, connect, disconnect, subscribe, unsubscribe."""

from typing import Any

import pytest

from crewel.broker.services import Service
from crewel.broker.session import State
from crewel.extension import Extension
from crewel.security.policy import OpenPolicy, Refusal
from tests.broker.world import Client, MakeWorld, Socket, World, data_of, reply_to

FULL_ADVICE = {"reconnect": "retry", "interval": 0, "timeout": 30000}
SHAKE_AGAIN = {"reconnect": "handshake", "interval": 0}


@pytest.fixture
def client(world: World) -> Client:
    return Client(world)


def policy_service(**answers: Any) -> Service:
    """A service whose policy answers so: a value, or a function of the question's arguments."""

    class Policy(OpenPolicy):
        def __getattribute__(self, name: str) -> Any:
            if name not in answers:
                return super().__getattribute__(name)
            answer = answers[name]
            return answer if callable(answer) else lambda *question: answer

    service = Service("policy")
    service.policy = Policy()
    return service


class TestHandshake:
    def test_the_reply_holds_all_that_a_client_needs(self, world: World) -> None:
        request = world.post({"channel": "/meta/handshake", "id": "1", "advice": {"timeout": 60000}})
        (reply,) = request.answer
        client_id = reply.pop("clientId")
        assert reply == {
            "channel": "/meta/handshake",
            "id": "1",
            "successful": True,
            "version": "1.0",
            "minimumVersion": "1.0",
            "supportedConnectionTypes": ["websocket", "long-polling"],
            "advice": FULL_ADVICE,
        }
        assert client_id.isalnum()
        assert client_id == client_id.lower()
        assert len(client_id) >= 26

    @pytest.mark.parametrize(
        "fields",
        [{}, {"version": "2.0"}, {"supportedConnectionTypes": "smoke"}, {"clientId": "stray"}, {"minimumVersion": 5}],
    )
    def test_what_hand_written_clients_leave_out_or_make_up_is_not_checked(
        self, world: World, fields: dict[str, Any]
    ) -> None:
        (reply,) = world.post({"channel": "/meta/handshake", **fields}).answer
        assert reply["successful"]
        assert "id" not in reply

    @pytest.mark.parametrize("types", [["smoke"], [], [7, None, ["websocket"]]])
    def test_a_client_that_has_no_transport_in_common_is_refused(self, world: World, types: list[Any]) -> None:
        request = world.post({"channel": "/meta/handshake", "id": "1", "supportedConnectionTypes": types})
        assert request.answer == [
            {
                "channel": "/meta/handshake",
                "id": "1",
                "successful": False,
                "error": "405::no_transport",
                "supportedConnectionTypes": ["websocket", "long-polling"],
                "advice": {"reconnect": "none"},
            }
        ]
        assert not world.broker.sessions.by_id

    def test_one_transport_in_common_is_enough(self, world: World) -> None:
        types = ["smoke", "long-polling"]
        assert world.post({"channel": "/meta/handshake", "supportedConnectionTypes": types}).answer[0]["successful"]

    def test_the_grace_is_told_if_the_operator_wants_it(self, make_world: MakeWorld) -> None:
        client = Client(make_world("bayeux.handshake_reconnect=true", "bayeux.max_interval_ms=1234"))
        assert client.handshake()["advice"] == {**FULL_ADVICE, "maxInterval": 1234}

    def test_each_handshake_makes_a_new_session_and_leaves_the_old_one(self, client: Client) -> None:
        client.handshake()
        before = client.id
        client.handshake(clientId=before)
        assert client.id != before
        assert client.world.broker.session(str(before)) is not None

    @pytest.mark.parametrize(
        ("answer", "advice", "ext"),
        [
            (False, {"reconnect": "none"}, None),
            (None, {"reconnect": "none"}, None),
            ("yes", {"reconnect": "none"}, None),
            (1, {"reconnect": "none"}, None),
            (Refusal(reconnect="handshake"), {"reconnect": "handshake"}, None),
            (Refusal(ext={"authn": {"failure": "x"}}), {"reconnect": "none"}, {"authn": {"failure": "x"}}),
        ],
    )
    def test_what_is_not_a_clear_yes_refuses_it_and_sets_no_cookie(
        self, make_world: MakeWorld, answer: Any, advice: dict[str, Any], ext: Any
    ) -> None:
        world = make_world(services=[policy_service(can_handshake=answer)])
        request = world.post({"channel": "/meta/handshake", "id": "1"})
        expected = {"channel": "/meta/handshake", "id": "1", "successful": False, "error": "403::handshake_denied"}
        assert request.answer == [{**expected, "advice": advice, **({"ext": ext} if ext else {})}]
        assert not request.mints_cookie
        assert not world.broker.sessions.by_id

    def test_a_policy_that_fails_refuses_it(self, make_world: MakeWorld) -> None:
        def fail(*question: Any) -> bool:
            raise RuntimeError("broken")

        client = Client(make_world(services=[policy_service(can_handshake=fail)]))
        assert client.handshake()["error"] == "403::handshake_denied"

    def test_a_policy_may_take_its_time(self, make_world: MakeWorld) -> None:
        waiting: list[Any] = []

        async def ask(session: Any, message: Any) -> bool:
            await waiting[0]
            return message.ext == {"user": "joe"}

        world = make_world(services=[policy_service(can_handshake=ask)])
        waiting.append(world.loop.create_future())
        good = world.post({"channel": "/meta/handshake", "ext": {"user": "joe"}})
        bad = world.post({"channel": "/meta/handshake"})
        world.settle()
        assert good.is_held
        assert bad.is_held
        waiting[0].set_result(None)
        world.settle()
        assert good.answer[0]["successful"]
        assert not bad.answer[0]["successful"]
        assert len(world.broker.sessions.by_id) == 1

    def test_an_extension_that_vetoes_it_gives_no_advice_and_leaves_no_session(self, make_world: MakeWorld) -> None:
        class Veto(Extension):
            def rcv_meta(self, session: Any, message: Any) -> bool:
                return False

        world = make_world(extensions=[Veto()])
        (reply,) = world.post({"channel": "/meta/handshake"}).answer
        assert reply == {"channel": "/meta/handshake", "successful": False, "error": "404::message_deleted"}
        assert not world.broker.sessions.by_id


class TestConnect:
    def test_the_first_is_answered_at_once_and_without_advice(self, client: Client) -> None:
        client.handshake()
        assert client.connect().answer == [{"channel": "/meta/connect", "id": "2", "successful": True}]
        assert client.session.state is State.CONNECTED

    @pytest.mark.parametrize("advice", [{}, {"timeout": 0}, {"interval": "soon"}])
    def test_advice_in_the_request_brings_the_full_advice(self, client: Client, advice: dict[str, Any]) -> None:
        client.joined()
        request = client.connect(advice=advice)
        client.world.advance(30)
        assert request.answer[0]["advice"] == FULL_ADVICE

    @pytest.mark.parametrize("advice", [None, 5, "x", []])
    def test_advice_that_is_no_object_counts_as_none(self, client: Client, advice: Any) -> None:
        client.handshake()
        assert "advice" not in client.connect(advice=advice).answer[0]

    def test_a_clients_own_pause_is_told_back_and_its_own_hold_is_not(self, client: Client) -> None:
        client.joined()
        assert client.connect(advice={"timeout": 0, "interval": 5000}).answer[0]["advice"] == {
            "reconnect": "retry",
            "interval": 5000,
            "timeout": 30000,
        }
        assert client.connect(advice={"timeout": 0}).answer[0]["advice"]["interval"] == 0

    def test_another_transport_than_the_advised_one_brings_the_full_advice_once(self, client: Client) -> None:
        client.joined()
        socket = Socket()
        for expected in ({"advice": FULL_ADVICE}, {}):
            client.world.receive(socket, client.message("/meta/connect", id="x"))
            client.world.advance(30)
            assert [{"channel": "/meta/connect", "id": "x", "successful": True, **expected}] == socket.take()

    def test_times_of_the_applications_own_are_told_also_on_the_held_connect(self, client: Client) -> None:
        client.joined()
        held = client.connect()
        client.session.advise(timeout_ms=7000, interval_ms=100)
        client.world.advance(30)
        assert held.answer[0]["advice"] == {"reconnect": "retry", "interval": 100, "timeout": 7000}
        again = client.connect()
        client.world.advance(7)
        assert "advice" not in again.answer[0]
        client.session.advise()
        reply = client.say("/meta/connect", advice={"timeout": 0})
        assert reply["advice"] == FULL_ADVICE

    @pytest.mark.parametrize("client_id", ["unknown", None, 5, ["x"]])
    def test_an_unknown_session_must_shake_hands_again(self, world: World, client_id: Any) -> None:
        request = world.post({"channel": "/meta/connect", "id": "1", "clientId": client_id})
        assert request.answer == [
            {
                "channel": "/meta/connect",
                "id": "1",
                "successful": False,
                "error": "402::session_unknown",
                "advice": SHAKE_AGAIN,
            }
        ]

    def test_after_a_disconnect_in_the_same_payload_it_is_over(self, client: Client) -> None:
        client.joined()
        leave, connect = client.message("/meta/disconnect"), client.message("/meta/connect")
        peer = client.send(leave, connect)
        assert reply_to(peer, leave["id"])["successful"]
        reply = reply_to(peer, connect["id"])
        assert (reply["error"], reply["advice"]) == ("402::session_unknown", {"reconnect": "none", "interval": 0})

    def test_an_extension_that_vetoes_it_gives_no_advice_and_does_not_hold_it(self, make_world: MakeWorld) -> None:
        class Veto(Extension):
            def rcv_meta(self, session: Any, message: Any) -> bool:
                return message.channel.name != "/meta/connect"

        client = Client(make_world(extensions=[Veto()]))
        client.handshake()
        assert client.connect().answer == [
            {"channel": "/meta/connect", "id": "2", "successful": False, "error": "404::message_deleted"}
        ]


class TestDisconnect:
    def test_a_disconnect_is_answered_and_the_session_is_gone(self, client: Client) -> None:
        client.joined("/a")
        session = client.session
        assert client.say("/meta/disconnect") == {"channel": "/meta/disconnect", "id": "4", "successful": True}
        assert session.state is State.DISCONNECTED
        assert not client.is_known
        assert client.world.broker.addressing.channels.count("/a") == 0

    def test_queued_messages_come_before_its_reply(self, client: Client) -> None:
        client.joined("/a")
        client.world.broker.publish("/a", 1)
        request = client.send(client.message("/meta/disconnect"))
        assert [each["channel"] for each in request.received] == ["/a", "/meta/disconnect"]

    def test_the_held_connect_is_answered_first_and_says_not_to_come_back(self, world: World) -> None:
        socket = Socket()
        client = Client(world, socket).joined()
        client.send(client.message("/meta/connect", id="c"))
        client.send(client.message("/meta/disconnect", id="d"))
        assert socket.payloads == [
            [{"channel": "/meta/connect", "id": "c", "successful": True, "advice": {"reconnect": "none"}}],
            [{"channel": "/meta/disconnect", "id": "d", "successful": True}],
        ]

    def test_later_messages_are_unknown(self, client: Client) -> None:
        client.joined()
        client.say("/meta/disconnect")
        late = client.publish("/a", 1)
        assert (late["error"], "advice" in late) == ("402::session_unknown", False)
        assert client.say("/meta/connect")["advice"] == SHAKE_AGAIN

    def test_an_unknown_session_gets_no_advice(self, world: World) -> None:
        request = world.post({"channel": "/meta/disconnect", "clientId": "unknown"})
        assert request.answer == [{"channel": "/meta/disconnect", "successful": False, "error": "402::session_unknown"}]

    def test_the_server_tells_a_held_connect_in_one_response(self, client: Client) -> None:
        client.joined()
        held = client.connect()
        client.session.disconnect()
        assert held.answer == [
            {"channel": "/meta/disconnect", "successful": True},
            {"channel": "/meta/connect", "id": "3", "successful": True, "advice": {"reconnect": "none"}},
        ]

    def test_without_a_held_connect_the_notice_rides_on_the_response_in_progress(self, make_world: MakeWorld) -> None:
        service = Service("guard")

        @service.listener("/service/leave")
        def leave(session: Any, message: Any) -> None:
            session.disconnect()

        client = Client(make_world(services=[service])).joined()
        request = client.send(client.message("/service/leave", data=1))
        assert request.received[0] == {"channel": "/meta/disconnect", "successful": True}
        assert client.say("/meta/connect")["advice"] == SHAKE_AGAIN

    def test_the_server_disconnects_once(self, client: Client) -> None:
        client.joined()
        session, held = client.session, client.connect()
        session.disconnect()
        session.disconnect()
        assert len(held.answer) == 2
        assert not session.deliver("/a", 1)


class TestSubscribe:
    @pytest.mark.parametrize(
        "subscription", ["/a", "/a/", ["/a", "/b/*"], "/**", "/service/x", "/service/**", ["/a", "/a"]]
    )
    def test_the_subscription_is_echoed_as_sent(self, client: Client, subscription: Any) -> None:
        client.handshake()
        for message_id in ("2", "3"):  # again is the same
            reply = client.say("/meta/subscribe", subscription=subscription)
            assert reply == {
                "channel": "/meta/subscribe",
                "id": message_id,
                "successful": True,
                "subscription": subscription,
            }

    def test_one_publish_is_one_delivery_however_often_subscribed(self, client: Client) -> None:
        client.joined("/a/b", "/a/b", "/a/*", "/a/**", "/**")
        request = client.send(client.message("/a/b", data=1))
        assert data_of(request.received) == [1]

    def test_a_service_channel_is_not_really_subscribed(self, client: Client) -> None:
        client.joined("/service/x")
        assert not client.session.subscriptions
        assert data_of(client.send(client.message("/service/x", data=1)).received) == []

    @pytest.mark.parametrize(
        ("fields", "error"),
        [
            ({}, "403::subscription_missing"),
            ({"subscription": None}, "403::subscription_missing"),
            ({"subscription": []}, "403::subscription_invalid"),
            ({"subscription": ["/a", "/b//"]}, "403::subscription_invalid"),
            ({"subscription": {"a": 1}}, "403::subscription_invalid"),
            ({"subscription": "/meta/connect"}, "403:denied_by_security_policy:subscribe_denied"),
            ({"subscription": "/meta/handshake/"}, "403:denied_by_security_policy:subscribe_denied"),
            ({"subscription": "/meta/x"}, "403:denied_by_security_policy:create_denied"),
            ({"subscription": "/meta/*"}, "403:denied_by_security_policy:create_denied"),
            ({"subscription": "/meta/**"}, "403:denied_by_security_policy:create_denied"),
            ({"subscription": "/__sys__deadMessage"}, "403:denied_by_security_policy:create_denied"),
        ],
    )
    def test_what_is_refused_says_why_and_subscribes_nothing(
        self, client: Client, fields: dict[str, Any], error: str
    ) -> None:
        client.handshake()
        reply = client.say("/meta/subscribe", **fields)
        assert (reply["successful"], reply["error"]) == (False, error)
        assert reply.get("subscription") == fields.get("subscription")
        assert "advice" not in reply
        assert not client.session.subscriptions

    def test_of_a_list_those_before_a_refused_one_stay(self, client: Client) -> None:
        client.handshake()
        reply = client.say("/meta/subscribe", subscription=["/a", "/meta/x", "/b"])
        assert not reply["successful"]
        assert client.session.subscriptions == {"/a"}

    def test_a_permissive_policy_opens_no_meta_channel(self, make_world: MakeWorld) -> None:
        client = Client(make_world(services=[policy_service(can_create=True, can_subscribe=True)]))
        client.handshake()
        for name in ("/meta/connect", "/meta/x", "/meta/**"):
            assert client.say("/meta/subscribe", subscription=name)["error"] == "403::subscribe_failed"

    def test_a_session_that_ends_while_the_policy_thinks_is_not_subscribed(self, make_world: MakeWorld) -> None:
        waiting: list[Any] = []
        world = make_world(services=[policy_service(can_subscribe=lambda *question: waiting[0])])
        waiting.append(world.loop.create_future())
        client = Client(world)
        client.handshake()
        request = client.send(client.message("/meta/subscribe", subscription="/a", id="s"))
        client.session.disconnect()
        waiting[0].set_result(True)
        world.settle()
        assert reply_to(request, "s")["error"] == "403::subscribe_failed"
        assert world.broker.addressing.channels.count("/a") == 0

    def test_a_subscribe_is_accepted_before_the_first_connect(self, client: Client) -> None:
        client.handshake()
        client.subscribe("/a")
        assert client.session.state is State.HANDSHAKEN


class TestUnsubscribe:
    def test_an_unsubscribe_ends_the_subscription(self, client: Client) -> None:
        client.joined("/a", "/b")
        reply = client.say("/meta/unsubscribe", subscription=["/a"])
        assert reply == {"channel": "/meta/unsubscribe", "id": "5", "successful": True, "subscription": ["/a"]}
        assert client.session.subscriptions == {"/b"}
        assert data_of(client.send(client.message("/a", data=1)).received) == []

    def test_who_was_not_subscribed_is_told_the_same(self, client: Client) -> None:
        Client(client.world).joined("/a")
        client.joined()
        assert client.say("/meta/unsubscribe", subscription="/a")["successful"]
        assert client.say("/meta/unsubscribe", subscription="/service/x")["successful"]

    @pytest.mark.parametrize(
        ("subscription", "error"),
        [
            ("/nowhere", "400::channel_missing"),
            ("/meta/connect", "403::unsubscribe_failed"),
            ("/a//b", "403::subscription_invalid"),
            (None, "403::subscription_missing"),
            ([], "403::subscription_invalid"),
        ],
    )
    def test_what_cannot_be_is_refused(self, client: Client, subscription: Any, error: str) -> None:
        client.joined()
        assert client.say("/meta/unsubscribe", subscription=subscription)["error"] == error

    def test_of_a_list_those_before_an_unknown_one_are_gone(self, client: Client) -> None:
        client.joined("/a", "/b")
        assert not client.say("/meta/unsubscribe", subscription=["/a", "/nowhere", "/b"])["successful"]
        assert client.session.subscriptions == {"/b"}


@pytest.mark.parametrize(
    "name", ["/meta/publish", "/meta/handshake/x", "/meta/x/handshake", "/meta/connectx", "/meta/*"]
)
def test_a_meta_channel_is_known_by_its_whole_name_only(client: Client, name: str) -> None:
    client.handshake()
    reply = client.say(name, data=1)
    assert reply["error"] == "403:denied_by_security_policy:channel_create_denied"
