"""Long-polling, the connect: when it is held, what ends the hold, and who comes second."""

from __future__ import annotations

import json
import time

import pytest

from tests.functional.bayeux import Client, data, held, in_time, sessions
from tests.functional.conftest import Serve, one_lane
from tests.functional.wire import figures, until
from tests.server_process import Server

RETRY = {"reconnect": "retry", "interval": 0, "timeout": 30000}
QUICK = ("bayeux.timeout_ms=500", "bayeux.max_interval_ms=800", "bayeux.sweep_ms=50")
SOON_S = 20.0
"""Seconds within which comes what is not held for the usual time of 30 s, however slow the machine is."""


def seconds(begin: float) -> float:
    return time.monotonic() - begin


# What is held


def test_the_first_connect_is_answered_at_once_and_without_advice(server: Server) -> None:
    client = Client(server)
    client.handshake()
    begin = time.monotonic()
    (reply,) = client.connect()
    assert reply.keys() == {"channel", "id", "successful"}
    assert reply["successful"] is True
    assert seconds(begin) < SOON_S


def test_a_connect_is_held_until_a_message_comes(server: Server, channel: str) -> None:
    listener, publisher = Client(server).start(), Client(server).start()
    listener.subscribe(channel)
    polling = listener.hold()
    publisher.publish(channel, {"n": 1}, custom="kept")
    message, reply = polling.response().messages
    assert message == {"channel": channel, "data": {"n": 1}, "custom": "kept"}
    assert reply["successful"] is True
    assert "advice" not in reply


def test_what_came_while_no_connect_was_there_comes_with_the_next_at_once(server: Server, channel: str) -> None:
    listener, publisher = Client(server).start(), Client(server).start()
    listener.subscribe(channel)
    for number in range(5):
        publisher.publish(channel, number)
    assert data(listener.connect()) == [0, 1, 2, 3, 4]


def test_advice_of_a_request_counts_for_this_connect_only(server: Server) -> None:
    client = Client(server).start()
    (reply,) = client.connect(advice={"timeout": 0})
    assert reply["advice"] == RETRY
    begin = time.monotonic()
    assert client.connect(advice={"timeout": 300, "interval": 250})[-1]["advice"] == {**RETRY, "interval": 250}
    assert 0.25 < seconds(begin) < SOON_S
    polling = client.hold()
    client.disconnect()
    assert polling.response().status == 200


def test_an_empty_advice_asks_for_the_servers(server: Server) -> None:
    client, other = Client(server).start(), Client(server).start()
    client.subscribe("/test/advice")
    polling = client.hold(advice={})
    other.publish("/test/advice")
    assert polling.response().messages[-1]["advice"] == RETRY


@pytest.mark.parametrize(
    "advice", [{"timeout": "0"}, {"timeout": None}, {"timeout": True}, {"timeout": -1}, {"timeout": []}]
)
def test_advice_of_the_wrong_type_counts_as_none(server: Server, advice: dict[str, object]) -> None:
    client = Client(server).start()
    polling = client.hold(advice=advice)
    client.disconnect()
    assert polling.response().messages[-1]["advice"] == {"reconnect": "none"}


@pytest.mark.parametrize("advice", [None, 7, "x", [], [{"timeout": 0}]])
def test_advice_that_is_no_object_counts_as_none(server: Server, advice: object) -> None:
    client = Client(server).start()
    polling = client.hold(advice=advice)
    client.disconnect()
    assert polling.response().status == 200


def test_a_connect_in_a_batch_is_not_held(server: Server, channel: str) -> None:
    client = Client(server).start()
    replies = client.send(client.message("/meta/connect"), client.message("/meta/subscribe", subscription=channel))
    assert [reply["channel"] for reply in replies] == ["/meta/connect", "/meta/subscribe"]
    assert all(reply["successful"] for reply in replies)


def test_the_own_publish_does_not_wake_the_own_connect(server: Server, channel: str) -> None:
    client, other = Client(server).start(), Client(server).start()
    client.subscribe(channel)
    polling = client.hold()
    message, reply = client.publish(channel, "own")
    assert message["data"] == "own"
    assert reply["successful"] is True
    assert held(server) == 1
    other.publish(channel, "theirs")
    assert data(polling.response().messages) == ["theirs"]


def test_messages_come_before_replies_in_the_order_of_both(server: Server, channel: str) -> None:
    client = Client(server).start()
    client.subscribe(channel)
    batch = [client.message(channel, data=number) for number in range(3)]
    answer = client.send(*batch, client.message("/meta/unsubscribe", subscription=channel))
    assert data(answer) == [0, 1, 2]
    assert [message["id"] for message in answer[3:]] == [message["id"] for message in batch] + [
        str(int(batch[-1]["id"]) + 1)
    ]


def test_one_message_is_delivered_once_however_many_subscriptions_match(server: Server, channel: str) -> None:
    client = Client(server).start()
    client.subscribe(channel + "/a", channel + "/*", channel + "/**", channel + "/a")
    answer = client.publish(channel + "/a", 1)
    assert data(answer) == [1]


# Settings of time


def test_the_hold_ends_after_its_time(shared: Serve) -> None:
    client = Client(shared("bayeux.timeout_ms=500")).start()
    begin = time.monotonic()
    (reply,) = client.connect()
    assert 0.45 < seconds(begin) < SOON_S
    assert reply.keys() == {"channel", "id", "successful"}
    assert client.connect(advice={"timeout": 0})[-1]["advice"]["timeout"] == 500


@one_lane
def test_a_session_without_a_connect_expires(shared: Serve) -> None:
    server = shared(*QUICK)
    until(lambda: sessions(server) == 0)
    before = figures(server)["crewel_sessions_expired_total"]
    begin, client = in_time(lambda: (time.monotonic(), Client(server).start()))
    until(lambda: sessions(server) == 0)
    assert 0.75 < seconds(begin) < 9
    assert figures(server)["crewel_sessions_expired_total"] > before
    (reply,) = client.connect()
    assert reply["error"] == "402::session_unknown"
    assert reply["advice"] == {"reconnect": "handshake", "interval": 0}
    (reply,) = client.send(client.message("/a", data=1))
    assert reply["error"] == "402::session_unknown"
    assert "advice" not in reply


@one_lane
def test_a_session_that_never_connects_expires_too(shared: Serve) -> None:
    server = shared(*QUICK)
    until(lambda: sessions(server) == 0)

    def is_there() -> None:
        Client(server).handshake()
        assert sessions(server) == 1

    in_time(is_there)
    until(lambda: sessions(server) == 0)


def test_a_session_with_a_held_connect_does_not_expire(shared: Serve) -> None:
    server = shared(*QUICK)

    def is_held() -> None:
        client = Client(server).start()
        begin = time.monotonic()
        assert client.connect(advice={"timeout": 1200})[-1]["successful"] is True
        assert seconds(begin) > 1.1
        assert client.connect(advice={"timeout": 0})[-1]["successful"] is True

    in_time(is_held)


@one_lane
def test_publishing_keeps_a_session_alive(shared: Serve, channel: str) -> None:
    server = shared(*QUICK)

    def publishes() -> None:
        client = Client(server).start()
        begin = time.monotonic()
        while seconds(begin) < 1.2:
            client.publish(channel, 1)
            client.command.has_input(within=0.1)
        assert client.connect(advice={"timeout": 0})[-1]["successful"] is True

    in_time(publishes)


@one_lane
def test_an_announced_pause_counts(shared: Serve) -> None:
    server = shared(*QUICK)

    def pauses() -> None:
        client = Client(server).start()
        client.connect(advice={"timeout": 0, "interval": 1200})
        begin = time.monotonic()
        while seconds(begin) < 1.2:
            client.command.has_input(within=0.1)
        assert client.connect(advice={"timeout": 0})[-1]["successful"] is True

    in_time(pauses)


@one_lane
def test_the_interval_is_told_and_allowed(serve: Serve) -> None:
    server = serve(
        "bayeux.interval_ms=700", "bayeux.max_interval_ms=300", "bayeux.sweep_ms=50", "bayeux.handshake_reconnect=true"
    )
    told = {"reconnect": "retry", "interval": 700, "timeout": 30000, "maxInterval": 300}

    def connected() -> float:
        client = Client(server)
        assert client.handshake()["advice"] == told
        begin = time.monotonic()
        assert client.connect()[-1]["successful"] is True
        return begin

    begin = in_time(connected)
    until(lambda: sessions(server) == 0)
    assert 0.9 < seconds(begin) < 9


@one_lane
def test_a_connect_that_is_held_in_silence_too_long_ends_with_its_session(serve: Serve) -> None:
    server = serve("bayeux.max_processing_ms=800", "bayeux.sweep_ms=50")
    client = Client(server).start()
    begin = time.monotonic()
    (reply,) = client.connect()
    assert 0.7 < seconds(begin) < SOON_S
    assert reply["successful"] is False
    assert reply["advice"]["reconnect"] == "handshake"


# The second connect


def test_a_newer_connect_takes_the_place_of_the_held_one(serve: Serve, channel: str) -> None:
    server = serve("bayeux.duplicate_connect_status=599")  # one that HTTP has no phrase for
    client, other = Client(server).start(), Client(server).start()
    client.subscribe(channel)
    old = client.hold()
    client.drop_polling()
    new = client.ask_connect()
    response = old.response()
    assert response.status == 599
    assert not response.body.startswith(b"[")
    until(lambda: held(server) == 1)
    other.publish(channel, "for the new one")
    assert data(new.response().messages) == ["for the new one"]
    assert not old.has_input()


def test_a_replaced_connect_leaves_its_connection_usable(server: Server) -> None:
    client = Client(server).start()
    old = client.hold()
    client.drop_polling()
    new = client.ask_connect()
    assert old.response().status == 500
    old.request("GET", "/health/live")
    assert old.response().status == 200
    client.disconnect()
    assert new.response().messages[-1]["advice"] == {"reconnect": "none"}


def test_a_session_survives_the_end_of_its_replaced_connect(shared: Serve) -> None:
    """The old connect's own end must not start the time of the session, which has a newer one."""
    server = shared(*QUICK)

    def survives() -> None:
        client = Client(server).start()
        old = client.hold(advice={"timeout": 1200})
        client.drop_polling()
        new = client.ask_connect(advice={"timeout": 1200})
        assert old.response().status == 500
        old.reset()
        assert new.response().messages[-1]["successful"] is True

    in_time(survives)


def test_a_replaced_connect_gives_its_place_back(server: Server) -> None:
    client = Client(server).start()
    for _ in range(5):
        client.ask_connect()
        client.drop_polling()
    until(lambda: held(server) == 1)
    client.disconnect()
    until(lambda: held(server) == 0)
    assert "multiple-clients" not in json.dumps(
        Client(server, cookie=client.cookie).start().connect(advice={"timeout": 1})
    )


# The end


def test_disconnect_answers_the_held_connect(server: Server) -> None:
    client = Client(server).start()
    polling = client.hold()
    (reply,) = client.disconnect()
    assert reply.keys() == {"channel", "id", "successful"}
    assert reply["successful"] is True
    (last,) = polling.response().messages
    assert last["successful"] is True
    assert last["advice"] == {"reconnect": "none"}
    (after,) = client.connect()
    assert after["error"] == "402::session_unknown"
    assert after["advice"] == {"reconnect": "handshake", "interval": 0}


def test_what_is_queued_goes_out_before_the_disconnect_reply(server: Server, channel: str) -> None:
    client, other = Client(server).start(), Client(server).start()
    client.subscribe(channel)
    other.publish(channel, "last words")
    message, reply = client.disconnect()
    assert message["data"] == "last words"
    assert reply["channel"] == "/meta/disconnect"


def test_after_a_disconnect_in_the_same_batch_all_is_unknown(server: Server, channel: str) -> None:
    client = Client(server).start()
    done, publish, connect = client.send(
        client.message("/meta/disconnect"), client.message(channel, data=1), client.message("/meta/connect")
    )
    assert done["successful"] is True
    assert publish["error"] == "402::session_unknown"
    assert connect["error"] == "402::session_unknown"
    assert connect["advice"] == {"reconnect": "none", "interval": 0}


def test_the_first_message_chooses_the_session_of_the_batch(server: Server, channel: str) -> None:
    one = Client(server).start()
    two = Client(server, cookie=one.cookie).start()
    first, second, third = one.send(
        one.message(channel, data=1), two.message(channel, data=2), {"channel": channel, "data": 3, "id": "x"}
    )
    assert first["successful"] is True
    assert second["error"] == third["error"] == "402::session_unknown"


# Lazy channels


def test_a_lazy_message_does_not_wake_the_connect_at_once(serve: Serve) -> None:
    server = serve("bayeux.lazy_channels=/lazy/**", "bayeux.max_lazy_ms=1500")
    client, other = Client(server).start(), Client(server).start()
    client.subscribe("/lazy/a")
    polling = client.hold()
    begin = time.monotonic()
    other.publish("/lazy/a", "lazy")
    assert data(polling.response().messages) == ["lazy"]
    assert 1.4 < seconds(begin) < SOON_S


@one_lane
def test_a_lazy_message_comes_with_the_next_that_is_not_or_with_a_reply(serve: Serve) -> None:
    server = serve("bayeux.lazy_channels=/lazy/**", "bayeux.max_lazy_ms=600000", "bayeux.timeout_ms=600000")
    client, other = Client(server).start(), Client(server).start()
    client.subscribe("/lazy/a", "/prompt")
    polling = client.hold()
    other.publish("/lazy/a", "lazy")
    other.publish("/prompt", "prompt")
    assert data(polling.response().messages) == ["lazy", "prompt"]
    other.publish("/lazy/a", "waits for a reply")
    assert data(client.publish("/elsewhere", 1)[:1]) == ["waits for a reply"]


@one_lane
def test_a_connect_with_only_lazy_messages_waiting_is_held(serve: Serve) -> None:
    server = serve("bayeux.lazy_channels=/lazy/*", "bayeux.max_lazy_ms=20000")
    client, other = Client(server).start(), Client(server).start()
    client.subscribe("/lazy/a")
    other.publish("/lazy/a", 1)
    begin = time.monotonic()
    assert data(client.connect(advice={"timeout": 600})) == [1]
    assert 0.5 < seconds(begin) < 15


def test_with_no_lazy_time_nothing_is_lazy(serve: Serve) -> None:
    server = serve("bayeux.lazy_channels=/lazy/*", "bayeux.max_lazy_ms=0")
    client, other = Client(server).start(), Client(server).start()
    client.subscribe("/lazy/a")
    polling = client.hold()
    begin = time.monotonic()
    other.publish("/lazy/a", 1)
    assert data(polling.response().messages) == [1]
    assert seconds(begin) < SOON_S


# Limits of the response and the queue


def test_a_response_has_a_limit_and_the_rest_comes_at_once_with_the_next(serve: Serve) -> None:
    server = serve("bayeux.max_response_bytes=3000")
    client, other = Client(server).start(), Client(server).start()
    client.subscribe("/big")
    for number in range(10):
        other.publish("/big", [number, "x" * 1000])
    received: list[int] = []
    while len(received) < 10:
        begin = time.monotonic()
        messages = client.connect()
        assert 1 <= len(data(messages)) <= 2
        assert seconds(begin) < SOON_S
        received += [number for number, _ in data(messages)]
    assert received == list(range(10))


def test_a_message_over_the_limit_of_the_response_goes_alone(serve: Serve) -> None:
    server = serve("bayeux.max_response_bytes=1000")
    client, other = Client(server).start(), Client(server).start()
    client.subscribe("/big")
    for size in (5000, 10, 6000):
        other.publish("/big", "x" * size)
    assert [len(text) for _ in range(3) for text in data(client.connect())] == [5000, 10, 6000]


@one_lane
def test_a_full_queue_loses_its_oldest_and_says_so_in_the_figures(serve: Serve) -> None:
    server = serve("bayeux.max_queue_messages=5")
    client, other = Client(server).start(), Client(server).start()
    client.subscribe("/much")
    other.send(*[other.message("/much", data=number) for number in range(12)])
    assert data(client.connect()) == [7, 8, 9, 10, 11]
    assert figures(server)['crewel_dropped_total{policy="dropOldest"}'] == 7


# Who delivers


def test_connect_only_delivery_is_a_setting(serve: Serve, channel: str) -> None:
    server = serve("bayeux.meta_connect_deliver_only=true")
    client = Client(server).start()
    client.subscribe(channel)
    assert data(client.publish(channel, 1)) == []
    assert data(client.connect()) == [1]


def test_a_publisher_need_not_hear_itself(serve: Serve, channel: str) -> None:
    server = serve("bayeux.broadcast_to_publisher=false")
    client, other = Client(server).start(), Client(server).start()
    client.subscribe(channel)
    other.subscribe(channel)
    assert data(client.publish(channel, 1)) == []
    assert data(other.connect()) == [1]


def test_messages_may_come_with_the_handshake_reply_if_allowed(start_server: Serve, lane: tuple[str, ...]) -> None:
    server = start_server(
        *lane, "bayeux.allow_message_delivery_during_handshake=true", service="tests.functional.services"
    )
    client = Client(server, headers={"X-Welcome": "2"})
    answer = client.send(client.message("/meta/handshake"))
    assert answer[0]["channel"] == "/meta/handshake"
    assert answer[0]["x-messages"] == 2
    assert data(answer) == ["welcome 0", "welcome 1"]


def test_without_that_they_wait_for_the_connect(start_server: Serve, lane: tuple[str, ...]) -> None:
    server = start_server(*lane, service="tests.functional.services")
    client = Client(server, headers={"X-Welcome": "2"})
    reply = client.handshake()
    assert "x-messages" not in reply
    assert data(client.connect()) == ["welcome 0", "welcome 1"]
