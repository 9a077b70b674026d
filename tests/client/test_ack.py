"""Acknowledgement: the wire rules, and batches that are handed over whole or not at all."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.bayeux.message import AWAITS, Fields
from crewel.client.client_extension import AckExtension, BatchGate

HANDSHAKE = "/meta/handshake"
CONNECT = "/meta/connect"


def reply(channel: str, ack: Any = None, successful: bool = True) -> Fields:
    fields: Fields = {"channel": channel, "successful": successful, "id": "1"}
    return fields if ack is None else {**fields, "ext": {"ack": ack}}


def brings_new(ack: int) -> Fields:
    """The reply to a connect of a busy client that waits for an answer."""
    return {"channel": CONNECT, "successful": True, "id": "1", "ext": {"ack": ack, "busy": AWAITS}}


def delivery(data: Any) -> Fields:
    return {"channel": "/a", "data": data}


def negotiated(ack: Any = True) -> AckExtension:
    extension = AckExtension()
    extension.outgoing({"channel": HANDSHAKE})
    extension.incoming(reply(HANDSHAKE, ack))
    return extension


def sent(extension: AckExtension) -> Any:
    """What the next connect would acknowledge."""
    return extension.outgoing({"channel": CONNECT}).get("ext", {}).get("ack")


class TestTheExtension:
    def test_the_handshake_asks_with_true_and_keeps_other_ext(self) -> None:
        assert AckExtension().outgoing({"channel": HANDSHAKE, "ext": {"token": 1}})["ext"] == {"token": 1, "ack": True}

    @pytest.mark.parametrize(
        ("answer", "first"),
        [(True, 0), ({"enabled": True, "batch": 1}, 1), ({"enabled": True}, 0), ({"enabled": True, "batch": "1"}, 0)],
    )
    def test_both_forms_of_the_answer_enable_it(self, answer: Any, first: int) -> None:
        assert sent(negotiated(answer)) == first

    @pytest.mark.parametrize("answer", [None, False, "true", 1, {"enabled": False}, {"enabled": "true"}])
    def test_anything_else_leaves_it_off(self, answer: Any) -> None:
        extension = negotiated(answer)
        assert not extension.enabled
        assert sent(extension) is None

    def test_a_connect_acknowledges_the_last_successful_one(self) -> None:
        extension = negotiated()
        extension.incoming(reply(CONNECT, 1))
        extension.incoming(reply(CONNECT, 9, successful=False))
        extension.incoming(reply(CONNECT, True))
        extension.incoming(reply(CONNECT))
        assert sent(extension) == 1

    def test_other_messages_are_left_alone(self) -> None:
        extension = negotiated()
        assert extension.outgoing({"channel": "/a"}) == {"channel": "/a"}
        extension.incoming({"channel": "/a", "successful": True, "ext": {"ack": 5}})
        assert sent(extension) == 0

    def test_a_new_handshake_starts_over(self) -> None:
        extension = negotiated()
        extension.incoming(reply(CONNECT, 7))
        extension.outgoing({"channel": HANDSHAKE})
        assert not extension.enabled
        extension.incoming(reply(HANDSHAKE, True))
        assert sent(extension) == 0


def gate(has_room: Callable[[list[Fields]], bool] = lambda batch: True, ack: Any = True) -> BatchGate:
    return BatchGate(negotiated(ack), has_room)


def data(messages: list[Fields]) -> list[Any]:
    return [fields.get("data", "reply") for fields in messages]


class TestTheGate:
    def test_without_acknowledgement_everything_passes(self) -> None:
        assert data(gate(ack=False).admit([delivery(1)], whole=False)) == [1]

    def test_deliveries_wait_for_the_reply_that_closes_their_batch(self) -> None:
        frames = gate()
        assert frames.admit([delivery(1)], whole=False) == []
        assert frames.admit([delivery(2)], whole=False) == []
        assert data(frames.admit([reply(CONNECT, 1)], whole=False)) == [1, 2, "reply"]

    def test_a_reply_before_its_messages_closes_their_batch_all_the_same(self) -> None:
        assert data(gate().admit([reply(CONNECT, 1), delivery(1)], whole=True)) == [1, "reply"]

    def test_other_replies_pass_at_once(self) -> None:
        publish_reply = reply("/a")
        assert gate().admit([publish_reply], whole=False) == [publish_reply]

    def test_a_whole_response_without_a_connect_passes(self) -> None:
        assert data(gate().admit([delivery(1), reply("/a")], whole=True)) == [1, "reply"]

    def test_a_broken_connection_takes_an_open_batch_with_it(self) -> None:
        frames = gate()
        frames.admit([delivery(1)], whole=False)
        frames.reset()
        assert data(frames.admit([delivery(1), reply(CONNECT, 2)], whole=False)) == [1, "reply"]

    def test_a_refused_connect_still_hands_over_what_came_before_it(self) -> None:
        """The session is gone then: nobody would send it again."""
        closing = reply(CONNECT, successful=False)
        assert data(gate().admit([delivery(1), closing], whole=False)) == [1, "reply"]

    def test_a_batch_without_room_waits_and_is_not_acknowledged_before(self) -> None:
        room: list[int] = []
        extension = negotiated()
        frames = BatchGate(extension, lambda batch: bool(room))
        [closing] = frames.admit([delivery(1), reply(CONNECT, 4)], whole=True)
        assert closing["ext"] == {}
        assert frames.admit([reply(CONNECT)], whole=True) == [reply(CONNECT)]  # to a connect that says busy
        assert (frames.is_full, frames.has_room, frames.take_waiting(), sent(extension)) == (True, False, [], 0)
        room.append(1)
        assert (frames.is_full, frames.has_room, data(frames.take_waiting()), sent(extension)) == (True, True, [1], 4)
        assert (frames.is_full, frames.has_room, frames.take_waiting()) == (False, True, [])

    def test_the_batch_that_waits_gives_way_to_the_one_that_brings_it_again(self) -> None:
        room: list[int] = []
        extension = negotiated()
        frames = BatchGate(extension, lambda batch: bool(room))
        frames.admit([delivery(1), reply(CONNECT, 4)], whole=True)
        frames.admit([delivery(1), delivery(2), reply(CONNECT, 5)], whole=True)
        room.append(1)
        assert (data(frames.take_waiting()), sent(extension)) == ([1, 2], 5)

    def test_what_is_new_while_an_answer_is_awaited_waits_behind_the_batch(self) -> None:
        room: list[int] = []
        extension = negotiated()
        frames = BatchGate(extension, lambda batch: bool(room), lambda fields: fields["data"] == "answer")
        frames.admit([delivery(1), reply(CONNECT, 4)], whole=True)
        answered = frames.admit([delivery("answer"), delivery(2), brings_new(5)], whole=True)
        assert data(answered) == ["answer", "reply"]
        assert data(frames.admit([delivery(3), brings_new(6)], whole=True)) == ["reply"]
        assert (frames.take_waiting(), sent(extension)) == ([], 0)
        room.append(1)
        assert (data(frames.take_waiting()), sent(extension)) == ([1, 2, 3], 6)

    @pytest.mark.parametrize("is_refused", [True, False])
    def test_with_the_connection_or_the_session_goes_the_batch_that_waits(self, is_refused: bool) -> None:
        frames = gate(has_room=lambda batch: not batch)
        frames.admit([delivery(1), reply(CONNECT, 4)], whole=True)
        if is_refused:
            frames.admit([reply(CONNECT, successful=False)], whole=True)
        else:
            frames.reset()
        assert not frames.is_full

    def test_a_reply_without_ext_has_no_number_to_lose(self) -> None:
        closing = reply(CONNECT)
        assert gate(has_room=lambda batch: False).admit([closing], whole=True) == [closing]

    def test_the_result_of_a_remote_call_does_not_wait(self) -> None:
        result = {"channel": "/service/a", "data": 1, "id": "3"}
        frames = BatchGate(negotiated(), lambda batch: True, lambda fields: fields.get("id") == "3")
        assert frames.admit([result], whole=False) == [result]

    def test_messages_announced_by_the_handshake_are_a_batch_of_their_own(self) -> None:
        frames = gate(ack={"enabled": True, "batch": 1})
        frames.expect(2)
        assert frames.admit([delivery(1)], whole=False) == []
        assert frames.is_opening
        assert data(frames.admit([delivery(2)], whole=False)) == [1, 2]
        assert not frames.is_opening

    def test_announced_messages_that_did_not_come_are_not_acknowledged(self) -> None:
        extension = negotiated({"enabled": True, "batch": 1})
        frames = BatchGate(extension, lambda batch: True)
        frames.expect(2)
        frames.admit([delivery(1)], whole=False)
        frames.reset()
        assert sent(extension) == 0
        assert not frames.is_opening


class ServerBatches:
    """The server's side, in a few lines: retained until acknowledged, sent again until then."""

    def __init__(self) -> None:
        self.retained: list[tuple[int, Fields]] = []
        self.batch = 1

    def publish(self, value: int) -> None:
        self.retained.append((self.batch, delivery(value)))

    def connect(self, acknowledged: int, *, is_busy: bool, awaits: bool) -> list[Fields]:
        if is_busy and not awaits:
            return [reply(CONNECT)]
        self.retained = [(batch, fields) for batch, fields in self.retained if batch > acknowledged]
        batch, self.batch = self.batch, self.batch + 1
        new = [fields for number, fields in self.retained if number == batch]
        if is_busy:
            return [*new, brings_new(batch)]
        return [*(fields for _, fields in self.retained), reply(CONNECT, batch)]


steps = st.lists(
    st.one_of(st.sampled_from(("publish", "connect", "full", "asks")), st.floats(0, 0.99)), min_size=1, max_size=60
)


@given(steps, st.booleans(), st.booleans())
def test_whatever_is_cut_or_has_no_room_nothing_is_lost_and_nothing_comes_twice(
    steps: list[Any], whole: bool, understands: bool
) -> None:
    """A float cuts the answer to a connect there: over a socket the frames before the cut still arrive. "asks": there is no
    room, and the client waits for an answer. Not each server understands that the client is busy."""
    server, extension = ServerBatches(), negotiated()
    full = awaits = False
    frames = BatchGate(extension, lambda batch: not full)
    published, received = 0, []

    def answer(share: float | None) -> None:
        for fields in frames.take_waiting():
            received.append(fields["data"])
        messages = server.connect(sent(extension), is_busy=understands and frames.is_full, awaits=awaits)
        arrived = messages if share is None else [] if whole else messages[: int(len(messages) * share)]
        for payload in [arrived] if whole else [[fields] for fields in arrived]:
            for fields in frames.admit(payload, whole=whole):
                extension.incoming(fields)
                received.extend([fields["data"]] if "data" in fields else [])
        if share is not None:
            frames.reset()

    for step in [*steps, "connect", "connect"]:
        full, awaits = step in ("full", "asks"), step == "asks"
        if step == "publish":
            server.publish(published)
            published += 1
        else:
            answer(step if isinstance(step, float) else None)
    assert received == list(range(published))
    assert not server.retained
