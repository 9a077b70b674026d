"""Acknowledged messages on the wire: every rule of CometD's extension, and batches on top."""

from typing import Any

import pytest

from crewel.bayeux.message import AWAITS
from crewel.broker.services import Service
from crewel.extensions.ack import AckExtension
from tests.broker.world import Client, MakeWorld, Request, Socket, World, data_of, is_connect

ASK = {"ext": {"ack": True}}


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(extensions=[AckExtension()])


@pytest.fixture
def client(world: World) -> Client:
    """A client that acknowledges, has got batch 1 and is subscribed to /a."""
    return Client(world).joined("/a", **ASK)


def connect(client: Client, ack: Any) -> Request:
    return client.connect(ext={"ack": ack})


def seen(request: Request) -> tuple[list[Any], int]:
    """The data of the deliveries and the batch of the connect reply, which is last."""
    *messages, reply = request.answer
    assert is_connect(reply)
    return data_of(messages), reply["ext"]["ack"]


class TestHandshake:
    @pytest.mark.parametrize("asked", [True, "true"])
    def test_the_ack_of_a_handshake_is_answered_in_kind(self, world: World, asked: Any) -> None:
        client = Client(world)
        assert client.handshake(ext={"ack": asked})["ext"] == {"ack": asked}
        assert client.session.connect_only

    @pytest.mark.parametrize(
        "ext", [{"ack": 1}, {"ack": 1.0}, {"ack": False}, {"ack": {"enabled": True}}, {"ack": "yes"}, {}]
    )
    def test_anything_else_leaves_it_off(self, world: World, ext: Any) -> None:
        client = Client(world)
        assert "ext" not in client.handshake(ext=ext)
        assert not client.session.connect_only
        assert "ext" not in connect(client, 0).answer[0]

    def test_with_delivery_during_the_handshake_it_tells_the_first_batch(self, make_world: MakeWorld) -> None:
        greeter = Service("greeter")
        greeter.on_session_added(lambda session: session.deliver("/hello", 1))
        world = make_world(
            "bayeux.allow_message_delivery_during_handshake=true", extensions=[AckExtension()], services=[greeter]
        )
        client = Client(world)
        request = client.send({"channel": "/meta/handshake", "ext": {"ack": True}})
        reply, message = request.received
        assert (reply["ext"], reply["x-messages"]) == ({"ack": {"enabled": True, "batch": 1}}, 1)
        assert message["data"] == 1
        client.id = reply["clientId"]
        first = connect(client, 1)
        assert seen(first) == ([], 2)

    def test_a_message_of_the_handshake_that_was_not_acknowledged_comes_again(self, make_world: MakeWorld) -> None:
        greeter = Service("greeter")
        greeter.on_session_added(lambda session: session.deliver("/hello", 1))
        world = make_world(
            "bayeux.allow_message_delivery_during_handshake=true", extensions=[AckExtension()], services=[greeter]
        )
        client = Client(world)
        client.handshake(**ASK)
        assert seen(connect(client, 0)) == ([1], 2)


class TestBatches:
    def test_the_trace_of_the_reference(self, client: Client) -> None:
        client.world.broker.publish("/a", "m1")
        assert seen(connect(client, 1)) == (["m1"], 2)
        again = connect(client, 1)  # the reply was lost
        assert seen(again) == (["m1"], 3)
        assert again.answer[-1]["advice"]["reconnect"] == "retry"
        held = connect(client, 3)
        assert held.is_held
        client.world.advance(30)
        assert seen(held) == ([], 4)

    @pytest.mark.parametrize("first", [0, -1, None])
    def test_the_first_connect_gets_batch_one(self, world: World, first: Any) -> None:
        client = Client(world)
        client.handshake(**ASK)
        assert seen(connect(client, first)) == ([], 1)

    def test_every_connect_reply_takes_the_next_number_also_empty_ones(self, client: Client) -> None:
        numbers = [seen(client.connect(ext={"ack": 1}, advice={"timeout": 0}))[1] for _ in range(3)]
        assert numbers == [2, 3, 4]

    def test_a_refused_connect_takes_none(self, world: World) -> None:
        first, second = (Client(world, browser="one").joined(**ASK) for _ in range(2))
        held = connect(first, 1)
        world.broker.settings.bayeux.multi_session_interval_ms = 0
        refused = connect(second, 1).answer[0]
        assert not refused["successful"]
        assert "ext" not in refused
        first.say("/meta/disconnect")
        assert not held.is_held
        assert seen(second.connect(ext={"ack": 1}, advice={"timeout": 0}))[1] == 2

    def test_only_connects_carry_messages(self, client: Client) -> None:
        client.world.broker.publish("/a", 1)
        for channel in ("/a", "/meta/subscribe", "/meta/unsubscribe"):
            request = client.send(client.message(channel, subscription="/a", data=2))
            assert [each["channel"] for each in request.received] == [channel]

    def test_only_connects_carry_messages_on_a_socket(self, world: World) -> None:
        socket = Socket()
        client = Client(world, socket).joined("/a", **ASK)
        client.send(client.message("/meta/connect", ext={"ack": 1}))
        client.publish("/a", 1)
        assert data_of(socket.take()) == []
        world.settle()
        delivery, reply = socket.take()
        assert (delivery["data"], reply["ext"]) == (1, {"ack": 2})

    def test_what_is_acknowledged_is_dropped_and_the_rest_stays_in_order(self, client: Client) -> None:
        for number in (1, 2, 3):
            client.world.broker.publish("/a", number)
        assert seen(connect(client, 1)) == ([1, 2, 3], 2)
        client.world.broker.publish("/a", 4)
        assert seen(connect(client, 1)) == ([1, 2, 3, 4], 3)
        client.world.broker.publish("/a", 5)
        assert seen(connect(client, 3)) == ([5], 4)

    @pytest.mark.parametrize("ack", [0, -1, -100, 5, 10**12, "2", 2.0, True, [], {}])
    def test_what_is_no_batch_that_was_sent_acknowledges_nothing(self, client: Client, ack: Any) -> None:
        """Design, section 4: neither a number that is to come, nor anything else."""
        client.world.broker.publish("/a", 1)
        assert seen(connect(client, 1)) == ([1], 2)
        request = connect(client, ack)
        client.world.advance(30)
        assert seen(request) == ([1], 3)

    def test_a_connect_without_an_acknowledgement_is_held_and_brings_everything(self, client: Client) -> None:
        client.world.broker.publish("/a", 1)
        assert seen(connect(client, 1)) == ([1], 2)
        held = client.connect()
        assert held.is_held
        client.world.advance(29)
        client.world.broker.publish("/a", 2)
        client.world.settle()
        assert seen(held) == ([1, 2], 3)

    def test_one_that_nobody_wakes_brings_it_at_the_end_of_its_hold(self, client: Client) -> None:
        client.world.broker.publish("/a", 1)
        seen(connect(client, 1))
        held = client.connect()
        client.world.advance(30)
        assert seen(held) == ([1], 3)

    def test_other_replies_have_no_ext(self, client: Client) -> None:
        assert "ext" not in client.publish("/b", 1)
        assert "ext" not in client.say("/meta/subscribe", subscription="/b")

    def test_a_resend_that_waits_goes_no_more_if_its_acknowledgement_overtakes_it(self, client: Client) -> None:
        client.world.broker.publish("/a", 1)
        assert seen(connect(client, 1)) == ([1], 2)
        assert seen(connect(client, 1)) == ([1], 3)
        waiting = connect(client, 1)
        assert waiting.is_held
        newer = connect(client, 3)
        assert waiting.superseded
        client.world.advance(10)
        assert newer.is_held

    def test_a_connect_that_acknowledges_nothing_does_not_hurry_a_resend(self, client: Client) -> None:
        client.world.broker.publish("/a", 1)
        for _ in range(2):
            seen(connect(client, 1))
        connect(client, 1)
        newer = connect(client, 1)
        client.world.advance(0.09)
        assert newer.is_held
        client.world.advance(0.02)
        assert seen(newer)[0] == [1]

    def test_two_connects_in_one_payload_have_two_numbers(self, client: Client) -> None:
        client.world.broker.publish("/a", 1)
        request = client.send(
            client.message("/meta/connect", ext={"ack": 1}), client.message("/meta/connect", ext={"ack": 1})
        )
        assert data_of(request.received) == [1]
        assert [each["ext"]["ack"] for each in request.received if is_connect(each)] == [2, 3]
        assert connect(client, 3).is_held

    def test_a_lost_reply_loses_nothing_when_the_response_limit_cuts_it(self, make_world: MakeWorld) -> None:
        world = make_world("bayeux.max_response_bytes=55", extensions=[AckExtension()])
        client = Client(world).joined("/a", **ASK)
        for number in range(5):
            world.broker.publish("/a", number)
        assert seen(connect(client, 1)) == ([0, 1], 2)
        assert seen(connect(client, 1)) == ([0, 1], 3)
        assert seen(connect(client, 3)) == ([2, 3], 4)
        assert seen(connect(client, 4)) == ([4], 5)
        assert connect(client, 5).is_held


class TestTheEnd:
    def test_a_disconnect_discards_what_is_open(self, client: Client) -> None:
        client.world.broker.publish("/a", 1)
        seen(connect(client, 1))
        client.world.broker.publish("/a", 2)
        request = client.send(client.message("/meta/disconnect"), client.message("/meta/connect", ext={"ack": 1}))
        assert data_of(request.received) == []
        assert [each["successful"] for each in request.received] == [True, False]

    def test_an_overflow_ends_the_session_and_what_it_heard_has_no_gap(self, make_world: MakeWorld) -> None:
        world = make_world("bayeux.max_queue_messages=3", extensions=[AckExtension()])
        client = Client(world).joined("/a", **ASK)
        for number in range(3):
            world.broker.publish("/a", number)
            world.settle()
        assert seen(connect(client, 1)) == ([0, 1, 2], 2)
        assert client.is_known  # what is not acknowledged counts
        world.broker.publish("/a", 3)
        world.settle()
        assert not client.is_known
        assert connect(client, 2).answer[0]["advice"]["reconnect"] == "handshake"


class TestAClientThatNeverAcknowledges:
    @pytest.mark.parametrize("ack", [0, 1, 999, None])
    @pytest.mark.parametrize("is_busy", [False, True])
    def test_a_client_that_never_acknowledges_makes_at_most_15_connects_in_30_seconds(
        self, client: Client, ack: Any, is_busy: bool
    ) -> None:
        world, start, connects = client.world, client.world.loop.time(), 2  # those of the fixture and the first below
        world.broker.publish("/a", 0)
        request = connect(client, ack)
        while world.loop.time() < start + 30:
            if request.is_held:
                world.advance(0.05)
                if is_busy:
                    world.broker.publish("/a", world.loop.time())
                    world.settle()
                continue
            assert data_of(request.answer)[0] == 0
            request = connect(client, ack)
            connects += 1
        assert 3 <= connects <= 15

    def test_a_client_that_acknowledges_again_gets_the_rest_at_once(self, client: Client) -> None:
        client.world.broker.publish("/a", 1)
        batch = 1
        for _ in range(6):
            request = connect(client, 1)
            client.world.advance(5)
            batch = seen(request)[1]
        client.world.broker.publish("/a", 2)
        assert seen(connect(client, batch)) == ([2], batch + 1)

    def test_resends_are_counted(self, client: Client) -> None:
        client.world.broker.publish("/a", 1)
        seen(connect(client, 1))
        seen(connect(client, 1))
        assert client.world.broker.metrics.resends == 1
        assert client.world.broker.metrics.deliveries == 2

    def test_a_client_that_is_connected_and_does_not_answer_is_busy(self, client: Client) -> None:
        client.world.broker.publish("/a", 1)
        metrics = client.world.broker.metrics
        batch = 1
        for expected in ((0, 0), (1, 0), (1, 1), (1, 2)):
            request = connect(client, 1)
            client.world.advance(5)
            batch = seen(request)[1]
            assert (metrics.resends, metrics.resends_busy) == expected
        client.world.broker.publish("/a", 2)
        seen(connect(client, batch))  # it has answered: a reply may be lost again
        seen(connect(client, batch))
        assert (metrics.resends, metrics.resends_busy) == (2, 2)


class TestAClientThatIsBusy:
    """`ext.busy` of a connect: what came is not lost, and there is no room for more."""

    def busy(self, client: Client, ack: Any, **fields: Any) -> list[Any]:
        """The answer to such a connect, which comes at once."""
        request = client.connect(ext={"ack": ack, "busy": True}, **fields)
        assert not request.is_held
        return request.answer

    @pytest.mark.parametrize("fields", [{}, {"advice": {"timeout": 0}}])
    def test_a_busy_client_gets_no_message_and_no_batch(self, client: Client, fields: Any) -> None:
        client.world.broker.publish("/a", 1)
        [reply] = self.busy(client, 1, **fields)
        assert (reply["successful"], reply.get("ext")) == (True, None)
        assert seen(connect(client, 1)) == ([1], 2)

    def test_what_a_busy_client_has_got_stays_with_it(self, client: Client) -> None:
        client.world.broker.publish("/a", 1)
        seen(connect(client, 1))
        for number in (2, 3, 4):
            self.busy(client, 1)
            client.world.broker.publish("/a", number)
        assert seen(connect(client, 2)) == ([2, 3, 4], 3)
        assert client.world.broker.metrics.deliveries == 4
        assert client.world.broker.metrics.resends + client.world.broker.metrics.resends_busy == 0

    def test_a_busy_client_acknowledges_what_is_done(self, client: Client) -> None:
        for number in (1, 2):
            client.world.broker.publish("/a", number)
            seen(connect(client, number))
        self.busy(client, 2)
        assert seen(connect(client, 2)) == ([2], 4)

    def test_connects_of_a_busy_client_are_no_futile_ones(self, client: Client) -> None:
        client.world.broker.publish("/a", 1)
        seen(connect(client, 1))
        for _ in range(9):
            self.busy(client, 1)
        assert seen(connect(client, 1)) == ([1], 3)  # at once: the reply may have been lost

    def test_what_was_to_be_sent_again_waits_too(self, client: Client) -> None:
        client.world.broker.publish("/a", 1)
        seen(connect(client, 1))
        seen(connect(client, 1))
        assert connect(client, 1).is_held  # with a pause, as a client that makes no progress
        self.busy(client, 1)
        client.world.broker.publish("/a", 2)
        assert client.session.mailbox._batches.resending == 1
        self.busy(client, 3)
        assert seen(connect(client, 3)) == ([2], 4)

    def test_a_message_that_comes_later_waits_for_the_next_connect(self, client: Client) -> None:
        self.busy(client, 1)
        client.world.broker.publish("/a", 1)
        client.world.advance(1)
        assert seen(connect(client, 1)) == ([1], 2)

    def test_messages_of_a_busy_client_count_against_the_bound_of_its_queue(self, client: Client) -> None:
        client.world.broker.publish("/a", 1)
        seen(connect(client, 1))
        self.busy(client, 1)
        assert client.session.mailbox._retained == 1

    @pytest.mark.parametrize("comes_first", [True, False])
    def test_a_busy_client_that_waits_for_an_answer_gets_what_is_new(self, client: Client, comes_first: bool) -> None:
        client.world.broker.publish("/a", 1)
        seen(connect(client, 1))
        if comes_first:
            client.world.broker.publish("/a", 2)
        request = client.connect(ext={"ack": 1, "busy": AWAITS})
        if not comes_first:
            assert request.is_held
            client.world.broker.publish("/a", 2)
            client.world.settle()
        assert request.answer[-1]["ext"]["busy"] == AWAITS
        assert seen(request) == ([2], 3)
        assert client.session.mailbox._retained == 2
        self.busy(client, 1)
        assert client.world.broker.metrics.deliveries == 2
        client.world.broker.publish("/a", 3)
        assert seen(connect(client, 3)) == ([3], 4)

    def test_a_busy_client_that_waits_is_told_if_it_gets_something_again(self, client: Client) -> None:
        client.world.broker.publish("/a", 1)
        seen(connect(client, 1))
        seen(connect(client, 1))
        assert connect(client, 1).is_held  # with a pause, as a client that makes no progress
        request = client.connect(ext={"ack": 1, "busy": AWAITS})
        client.world.advance(1)
        assert "busy" not in request.answer[-1]["ext"]
        assert seen(request) == ([1], 4)

    def test_without_acknowledgement_the_field_says_nothing(self, world: World) -> None:
        client = Client(world).joined("/a")
        request = client.connect(ext={"busy": True})
        assert request.is_held
