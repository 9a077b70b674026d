"""A connect that differs from the last one only in its id and its acknowledgement is not parsed; every other one is."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from crewel.broker.broker import Broker
from crewel.broker.exchange import Held
from crewel.broker.mailboxes.known_connect import KnownConnect
from crewel.broker.session import SessionPart
from crewel.settings import Settings, load
from crewel.transports.fast_lane import FastLane
from tests.transports.wires import SocketClient
from tests.work import calls


@pytest.fixture
def settings() -> Settings:
    return load(None, ["storage.enabled=false", "bayeux.max_sessions_per_browser=-1"])


class Waiting(SocketClient):
    """A client that has sent two connects as all others do, so that the second one is known."""

    def begin(self, broker: Broker) -> None:
        self.broker = broker
        self.ask({"channel": "/meta/subscribe", "subscription": "/room"})
        self.ask({"channel": "/meta/connect", "connectionType": "websocket", "advice": {"timeout": 0}})
        for _ in range(2):
            self.receive(self.connect())
            assert self.deliver() == ["text"]

    def deliver(self) -> list[str]:
        """What comes, with the answer to the connect that is held, when a message is published."""
        self.broker.publish("/room", "text")
        self.broker.mailboxes.outbound._flush()
        return self.take()

    def take(self) -> list[str]:
        frame = self.wire.written.pop()
        *messages, reply = orjson.loads(frame[frame.index(b"[{") :])
        self.note(reply)
        return [message["data"] for message in messages]

    def parses(self, payload: bytes) -> bool:
        """Send this; whether it is parsed."""
        sent = Frame(Opcode.TEXT, payload).serialize(mask=True)
        return calls(lambda: self.receive(sent))["decode"] > 0

    def fields(self, **other: Any) -> dict[str, Any]:
        self.sent += 1
        fields = {"id": str(self.sent), "clientId": self.client_id, "channel": "/meta/connect"}
        return fields | {"connectionType": "websocket", "ext": {"ack": self.batch}} | other

    def open_messages(self) -> int:
        session = self.broker.sessions.by_id.get(self.client_id)
        assert session is not None
        return len(session.mailbox._batches.unacknowledged)


@pytest.fixture
def client(lane: FastLane) -> Waiting:
    client = Waiting(lane, acknowledges=True)
    client.begin(lane.endpoint.broker)
    return client


async def test_the_next_connect_is_held_and_acknowledges_unparsed(client: Waiting) -> None:
    for _ in range(12):  # ids and batches of two digits, too
        assert client.open_messages() == 1
        assert not client.parses(orjson.dumps([client.fields()]))
        assert client.open_messages() == 0
        assert client.deliver() == ["text"]


async def test_an_id_may_be_any_word(client: Waiting) -> None:
    assert not client.parses(orjson.dumps([client.fields(id="aB09")]))
    client.broker.publish("/room", "text")
    client.broker.mailboxes.outbound._flush()
    assert b'"id":"aB09"' in client.wire.written[-1]


@pytest.mark.parametrize(
    "other",
    [
        {"advice": {"timeout": 0}},
        {"ext": {"ack": 1}},
        {"ext": {"ack": True}},
        {"ext": {}},
        {"ext": {"ack": 99}},
        {"id": "a-b"},
        {"id": "é"},
        {"connectionType": "long-polling"},
        {"clientId": "another"},
        {"channel": "/meta/subscribe", "subscription": "/b"},
    ],
    ids=str,
)
async def test_what_differs_anywhere_else_is_parsed(client: Waiting, other: dict[str, Any]) -> None:
    assert client.parses(orjson.dumps([client.fields(**other)]))


async def test_other_bytes_of_the_same_connect_are_parsed(client: Waiting) -> None:
    fields = client.fields()
    assert client.parses(orjson.dumps(fields)), "without its array"
    assert client.deliver() == ["text"], "and it counts as ever"
    assert client.parses(orjson.dumps([client.fields()], option=orjson.OPT_INDENT_2))
    assert client.deliver() == ["text"]
    assert client.parses(orjson.dumps([dict(reversed(client.fields().items()))]))
    assert client.deliver() == ["text"]
    assert not client.parses(orjson.dumps([client.fields()])), "the one that is known still is"


async def test_messages_that_wait_are_answered_at_once(client: Waiting) -> None:
    client.broker.publish("/room", "early")
    client.broker.mailboxes.outbound._flush()
    assert client.parses(orjson.dumps([client.fields()]))
    assert client.take() == ["early"]


async def test_a_batch_that_is_not_acknowledged_comes_again(client: Waiting) -> None:
    assert client.parses(orjson.dumps([client.fields(ext={"ack": client.batch - 1})]))
    assert client.take() == ["text"]
    client.receive(client.connect())
    assert client.open_messages() == 0


async def test_a_session_that_has_ended_is_refused(client: Waiting) -> None:
    client.ask({"channel": "/meta/disconnect"})
    assert client.parses(orjson.dumps([client.fields()]))
    assert b"402" in client.wire.written.pop()


async def test_a_publish_that_looks_like_a_connect_is_one_all_the_same(client: Waiting) -> None:
    connect = client.fields()
    assert not client.parses(orjson.dumps([connect]))
    data = {"id": connect["id"], "ext": {"ack": client.batch}}
    assert client.parses(orjson.dumps([{"channel": "/room", "data": data, "id": "9", "clientId": client.client_id}]))
    assert b'"channel":"/room"' in client.wire.written.pop()


class _Acknowledging(SessionPart):
    batch = 7

    def expects(self, session: Any) -> bytes:
        return b'"ack":%d' % self.batch


class _Session:
    """As much of a session as matters."""

    def __init__(self, request: bytes) -> None:
        self.held = Held(None, request, None, 0.0)  # type: ignore[arg-type]
        self.plain = _Acknowledging()


def known(payload: bytes) -> KnownConnect | None:
    value = orjson.loads(payload)
    elements = value if isinstance(value, list) else [value]
    return KnownConnect.of(_Session(elements[0]["id"].encode()), payload, elements)  # type: ignore[arg-type]


_CONNECT = b'[{"channel":"/meta/connect","id":"1","ext":{"ack":7},"clientId":"c"}]'


@pytest.mark.parametrize(
    "payload",
    [
        b'[{"channel":"/meta/connect","id":"1","ext":{"ack":7},"id":"1"}]',
        b'[{"channel":"/meta/connect","id":"1","ext":{"ack":7},"\\u0069d":"1"}]',
        b'[{"channel":"/meta/connect","id":"1","ext":{"ack":7},"ext":{"ack":7}}]',
        b'[{"channel":"/meta/connect","id": "1","ext":{"ack":7}}]',
        b'[{"channel":"/meta/connect","id":"1","ext":{"ack": 7}}]',
        b'[{"channel":"/meta/connect","id":"1","a":{"ext":{"ack":7}},"ext":{"ack":8}}]',
        b'[{"channel":"/room","id":"1","ext":{"ack":7}}]',
        b'[{"channel":"/meta/connect","id":"1","ext":{"ack":7}},{"id":"1"}]',
    ],
)
def test_nothing_is_known_where_a_place_is_not_certain(payload: bytes) -> None:
    assert known(payload) is None


@given(
    st.permutations([b'"channel":"/meta/connect"', b'"id":"1"', b'"ext":{"ack":7}', b'"clientId":"c%s"']),
    st.sampled_from((b"[{%b}]", b"{%b}", b" [ {%b} ]\n")),
    st.from_regex(rb"[0-9A-Za-z]{1,8}", fullmatch=True),
    st.integers(0, 10**6),
)
def test_another_id_and_batch_are_read_in_any_order(fields: list[bytes], form: bytes, name: bytes, batch: int) -> None:
    payload = form % b",".join(fields)
    found = known(payload)
    assert found is not None
    found.session.plain.batch = batch  # type: ignore[union-attr]
    assert found.id_in(payload.replace(b'"1"', b'"%b"' % name).replace(b'"ack":7', b'"ack":%d' % batch)) == name


@given(st.binary(max_size=12), st.integers(0, len(_CONNECT)), st.integers(0, len(_CONNECT)))
@example(b"1", _CONNECT.index(b'1"'), _CONNECT.index(b'1"') + 1)
@example(b"a7", _CONNECT.index(b'1"'), _CONNECT.index(b'1"') + 1)
@example(b'\\"', _CONNECT.index(b'1"'), _CONNECT.index(b'1"') + 1)
def test_changed_bytes_are_read_as_the_parser_reads_them_or_not_at_all(new: bytes, start: int, end: int) -> None:
    found = known(_CONNECT)
    assert found is not None
    payload = _CONNECT[:start] + new + _CONNECT[end:]
    message_id = found.id_in(payload)
    if message_id is not None:
        expected = orjson.loads(_CONNECT)[0] | {"id": message_id.decode()}
        assert orjson.loads(payload) == [expected]
