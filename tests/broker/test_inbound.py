"""From a payload to its replies: one each, in order, with the checks in their order."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.broker.services import Service
from crewel.extension import Extension
from crewel.extensions.ack import AckExtension
from crewel.security.policy import OpenPolicy
from tests.broker.world import Client, MakeWorld, Request, Socket, World, data_of, is_connect, reply_to


@pytest.fixture
def client(world: World) -> Client:
    return Client(world)


class TestReplies:
    def test_each_message_gets_one_in_the_order_of_the_requests(self, client: Client) -> None:
        client.joined()
        request = client.send(
            client.message("/a", data=1, id="x1"),
            client.message("/meta/subscribe", subscription="/b", id="x2"),
            client.message("/meta/nonsense", id="x3"),
            client.message("/meta/connect", id="x4"),
            client.message("/service/s", id="x5"),
        )
        assert [each["id"] for each in request.received] == ["x1", "x2", "x3", "x4", "x5"]
        assert [each["successful"] for each in request.received] == [True, True, False, True, True]

    @pytest.mark.parametrize(("sent", "echoed"), [("a1", "a1"), (10, "10"), (True, "true")])
    def test_ids_are_echoed_as_strings(self, client: Client, sent: Any, echoed: str) -> None:
        client.handshake()
        (reply,) = client.send(client.message("/a", id=sent, data=1)).received
        assert reply == {"channel": "/a", "id": echoed, "successful": True}

    def test_a_reply_never_tells_the_client_id(self, client: Client) -> None:
        client.joined("/a")
        request = client.send(client.message("/a", data=1), client.message("/meta/connect"))
        assert not [each for each in request.received if "clientId" in each]

    @pytest.mark.parametrize("element", [5, None, "text", [], [{"channel": "/a"}], True])
    def test_an_element_that_is_no_object_fails_alone(self, client: Client, element: Any) -> None:
        client.handshake()
        request = client.send(client.message("/a", data=1, id="good"), element, client.message("/b", data=2, id="too"))
        assert [each["successful"] for each in request.received] == [True, False, True]
        assert request.received[1] == {"successful": False, "error": "400::channel_missing"}


class TestOrderOfChecks:
    @pytest.mark.parametrize(
        ("fields", "error"),
        [
            ({"id": "-", "clientId": "unknown"}, "400::channel_missing"),
            ({"channel": None, "clientId": "unknown"}, "400::channel_missing"),
            ({"channel": "/a//b", "id": "-", "clientId": "unknown"}, "405::channel_invalid"),
            ({"channel": "/a/*/b", "clientId": "unknown"}, "405::channel_invalid"),
            ({"channel": "/a,b", "clientId": "unknown"}, "405::channel_invalid"),
            ({"channel": 5, "clientId": "unknown"}, "405::channel_invalid"),
            ({"channel": "/a", "id": "a-b", "clientId": "unknown"}, "405::message_id_invalid"),
            ({"channel": "/a", "id": "", "clientId": "unknown"}, "405::message_id_invalid"),
            ({"channel": "/a", "id": "1", "clientId": "unknown"}, "402::session_unknown"),
            ({"channel": "/a/*", "id": "1", "clientId": "unknown"}, "402::session_unknown"),
            ({"channel": "/meta/nonsense", "clientId": "unknown"}, "402::session_unknown"),
            ({"channel": "/meta/subscribe", "clientId": "unknown"}, "402::session_unknown"),
            ({"channel": "/a", "clientId": 5}, "402::session_unknown"),
            ({"channel": "/a"}, "402::session_unknown"),
        ],
    )
    def test_the_name_the_id_then_the_session(self, world: World, fields: dict[str, Any], error: str) -> None:
        (reply,) = world.post(fields).answer
        assert (reply["successful"], reply["error"]) == (False, error)
        assert "advice" not in reply

    def test_extensions_come_before_the_session_and_the_policy_after_it(self, make_world: MakeWorld) -> None:
        asked: list[str] = []

        class Notes(Extension):
            def rcv(self, session: Any, message: Any) -> bool:
                asked.append(f"extension {'known' if session else 'unknown'}")
                return True

        class Policy(OpenPolicy):
            def can_create(self, *question: Any) -> bool:
                asked.append("create")
                return True

            def can_publish(self, *question: Any) -> bool:
                asked.append("publish")
                return True

        service = Service("notes")
        service.policy = Policy()
        service.listener("/a")(lambda session, message: asked.append("listener"))
        world = make_world(extensions=[Notes()], services=[service])
        world.post({"channel": "/a", "data": 1})
        assert asked == ["extension unknown"]
        client = Client(world)
        client.handshake()
        asked.clear()
        client.publish("/a", 1)
        client.publish("/a", 2)
        first, second = ["extension known", "create", "publish", "listener"], ["extension known", "publish", "listener"]
        assert asked == first + second


class TestBatches:
    def test_the_first_message_chooses_the_session(self, world: World) -> None:
        one, two = Client(world).joined("/a"), Client(world).joined("/a")
        request = one.send(
            one.message("/a", data=1, id="1"), two.message("/a", data=2, id="2"), {"channel": "/a", "id": "3"}
        )
        assert data_of(request.received) == [1]
        errors = [reply_to(request, name).get("error") for name in "123"]
        assert errors == [None, "402::session_unknown", "402::session_unknown"]

    @pytest.mark.parametrize(
        "first", [{"channel": "/a", "clientId": "unknown", "id": "0"}, {"channel": "/a", "id": "0"}, 7]
    )
    def test_if_the_first_is_bad_all_are_unknown(self, client: Client, first: Any) -> None:
        client.joined()
        request = client.send(first, client.message("/a", data=1, id="1"), client.message("/meta/connect", id="2"))
        assert [reply_to(request, name)["error"] for name in "12"] == ["402::session_unknown"] * 2

    def test_messages_after_a_disconnect_are_unknown(self, client: Client) -> None:
        client.joined()
        request = client.send(client.message("/meta/disconnect"), client.message("/a", data=1, id="late"))
        assert reply_to(request, "late")["error"] == "402::session_unknown"

    def test_a_connect_among_others_is_never_held(self, client: Client) -> None:
        client.joined()
        for batch in (["/meta/connect", "/a"], ["/a", "/meta/connect"], ["/meta/connect", "/meta/connect"]):
            assert len(client.send(*(client.message(name, data=1) for name in batch)).received) == 2

    def test_deliveries_while_it_is_processed_do_not_wake_the_held_connect(self, client: Client) -> None:
        client.joined("/a")
        held = client.connect()
        request = client.send(client.message("/a", data=1), client.message("/a", data=2))
        client.world.settle()
        assert held.is_held
        assert data_of(request.received) == [1, 2]

    def test_the_held_connect_is_not_woken_while_a_policy_decides(self, make_world: MakeWorld) -> None:
        """The flush that the first message asks for comes before the second one is through."""
        waiting: list[Any] = []

        class Slow(OpenPolicy):
            def can_publish(self, session: Any, channel: Any, message: Any) -> Any:
                return waiting[0] if message.data == "slow" else True

        service = Service("slow")
        service.policy = Slow()
        world = make_world(services=[service])
        waiting.append(world.loop.create_future())
        client = Client(world).joined("/a")
        held = client.connect()
        request = client.send(client.message("/a", data=1), client.message("/a", data="slow"))
        world.settle()
        assert held.is_held
        waiting[0].set_result(True)
        world.settle()
        assert held.is_held
        assert data_of(request.received) == [1, "slow"]
        world.broker.publish("/a", 3)
        world.settle()
        assert data_of(held.answer) == [3]

    def test_a_message_that_nobody_could_handle_fails_alone(self, make_world: MakeWorld, caplog: Any) -> None:
        service = Service("broken")

        class Broken(OpenPolicy):
            def can_publish(self, session: Any, channel: Any, message: Any) -> Any:
                return True

        service.policy = Broken()
        service.listener("/bad")(lambda session, message: message.fields.update(data=object()))
        client = Client(make_world(services=[service])).joined()
        request = client.send(client.message("/bad", data=1, id="1"), client.message("/a", data=1, id="2"))
        assert reply_to(request, "1")["error"] == "500::internal_error"
        assert reply_to(request, "2")["successful"]
        assert "could not be handled" in caplog.text


names = st.sampled_from(
    [
        "/meta/connect",
        "/meta/subscribe",
        "/meta/unsubscribe",
        "/meta/disconnect",
        "/meta/x",
        "/a",
        "/a/*",
        "/service/s",
        "//",
    ]
)
oddities = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=3) | names,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["timeout", "ack", "a"]), inner, max_size=2)
    ),
    max_leaves=4,
)
fields = st.sampled_from(["id", "advice", "subscription", "ext", "data", "connectionType", "successful", "error"])


@given(st.lists(st.tuples(names, st.dictionaries(fields, oddities, max_size=4)), min_size=1, max_size=4))
def test_whatever_a_client_sends_is_answered_message_by_message(batch: list[tuple[str, dict[str, Any]]]) -> None:
    world = World()
    try:
        client = Client(world)
        client.handshake()
        sent = [{**each, "channel": name, "clientId": client.id} for name, each in batch]
        request = client.send(*sent)
        world.advance(100_000)
        replies = [each for each in request.received if "successful" in each]
        assert [each.get("channel") for each in replies] == [name for name, _ in batch]
        assert not [each for each in replies if each.get("error", "").startswith("500")]
    finally:
        world.close()


def test_requests_may_be_answered_without_a_task(client: Client) -> None:
    client.joined("/a")
    request = Request(client.browser)
    assert client.world.broker.inbound.receive(request, [client.message("/a", data=1)]) is None
    assert not is_connect(request.answer[0])


class TestTheShortWay:
    """A plain connect takes a shorter way through the broker; nobody may be able to tell."""

    STEPS = st.one_of(
        st.tuples(
            st.just("connect"),
            st.sampled_from([{}, {}, {}, {"advice": {"timeout": 500}}, {"advice": {"interval": 9000}}]),
        ),
        st.tuples(st.just("ack"), st.sampled_from([0, 0, 1, None])),
        st.tuples(st.just("publish"), st.sampled_from(["/a", "/b", "/lazy"])),
        st.tuples(st.just("own"), st.sampled_from(["/a", "/service/x"])),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.05, 0.3, 1.2, 6.0])),
        st.tuples(st.just("advise"), st.sampled_from([None, 400])),
        st.tuples(st.just("socket"), st.none()),
        st.tuples(st.just("vanish"), st.none()),
        st.tuples(st.just("other"), st.none()),
        st.tuples(st.just("disconnect"), st.booleans()),
    )

    def played(self, script: list[tuple[str, Any]], *, is_reliable: bool, is_short: bool) -> list[Any]:
        """What the client and everybody else got, and where the session stood in the end."""
        sets = ["bayeux.timeout_ms=1000", "bayeux.max_interval_ms=5000", "bayeux.lazy_channels=/lazy"]
        world = World(*sets, extensions=[AckExtension()])
        try:
            if not is_short:
                world.broker.mailboxes.connects.hold_plain = lambda peer, fields: False  # type: ignore[method-assign]
            client = Client(world, browser="b").joined("/a", "/lazy", **({"ext": {"ack": True}} if is_reliable else {}))
            other = Client(world, browser="b").joined()
            session, peers, batch = client.session, [], 1
            for what, value in script:
                if what in ("connect", "ack"):
                    got = [
                        each["ext"]["ack"] for peer in peers for each in peer.received if "ack" in each.get("ext", {})
                    ]
                    batch = max(got, default=1)
                    fields = {"ext": {"ack": batch - value}} if what == "ack" and value is not None else {}
                    peers.append(client.connect(**(value if what == "connect" else fields)))
                elif what == "publish":
                    world.broker.publish(value, len(peers))
                    world.settle()
                elif what == "own":
                    peers.append(client.send(client.message(value, data=len(peers))))
                elif what == "wait":
                    world.sweep_after(value)
                elif what == "advise":
                    session.advise(timeout_ms=value)
                elif what == "socket":
                    peers.append(Socket())
                    world.receive(peers[-1], client.message("/a", data="socket"))
                elif what == "vanish" and session.held is not None:
                    world.broker.mailboxes.connects.vanished(session.held.peer)
                elif what == "other":
                    other.connect()
                elif what == "disconnect" and value:
                    session.disconnect()
                world.settle()
            metrics = world.broker.metrics
            return [
                [(peer.payloads, peer.superseded) for peer in peers],
                (session.state, session.expires_at, session.mailbox.news, session.held is None, session.peer is None),
                (
                    world.broker.mailboxes.connects.held,
                    metrics.connects,
                    metrics.deliveries,
                    metrics.resends,
                    metrics.errors,
                ),
            ]
        finally:
            world.close()

    @given(st.lists(STEPS, max_size=25), st.booleans())
    def test_the_general_way_answers_the_same(self, script: list[tuple[str, Any]], is_reliable: bool) -> None:
        short = self.played(script, is_reliable=is_reliable, is_short=True)
        assert short == self.played(script, is_reliable=is_reliable, is_short=False)
