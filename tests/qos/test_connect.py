"""ConnectQos: what `ext.session` can ask for."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.errors import IllegalArgument
from crewel.qos.connect import Bounds, Burst, ConnectQos, OverflowPolicy, QueueQos, Retries, Settle, read_connect_qos
from crewel.qos.names import Name
from tests.texts import texts

MOST = 10_000
MOST_BYTES = 100_000_000


def read(**fields: Any) -> ConnectQos:
    return read_connect_qos(fields, MOST, MOST_BYTES)


def test_what_is_not_given_has_the_default() -> None:
    qos = read()
    assert qos == ConnectQos()
    assert (qos.name, qos.token, qos.resume, qos.dispatcher) == (None, None, None, None)
    assert (qos.update, qos.ptp, qos.persistent, qos.clear_sessions) == (False, True, False, False)
    assert (qos.settle, qos.ack_wait_ms, qos.max_open, qos.ping_interval_ms) == (Settle.BATCH, None, 0, 0)
    assert (qos.timeout_ms, qos.max_sessions) == (86_400_000, 10)
    assert (qos.burst, qos.queue) == (Burst(), QueueQos())


@pytest.mark.parametrize(
    ("dispatcher", "asked"),
    [
        ({}, Retries(None, None, 1.0, None, absence=True)),
        ({"retries": 3, "factor": 2, "maxDelay": 9000, "absence": False}, Retries(3, None, 2.0, 9000, absence=False)),
        ({"factor": 1.5}, Retries(factor=1.5)),
    ],
)
def test_retries_may_back_off_and_leave_absence_out(dispatcher: dict[str, Any], asked: Retries) -> None:
    assert read(dispatcher=dispatcher).dispatcher == asked


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("factor", 0.5, "a number from 1 to 10"),
        ("factor", True, "a number from 1 to 10"),
        ("factor", "2", "a number from 1 to 10"),
        ("maxDelay", 0, "a whole number, 1 or more"),
        ("absence", 0, "true or false"),
    ],
)
def test_what_does_not_fit_in_the_dispatcher_is_named(field: str, value: object, expected: str) -> None:
    with pytest.raises(IllegalArgument) as refused:
        read(dispatcher={field: value})
    assert refused.value.message == f"dispatcher.{field}: must be {expected}"


def test_the_whole_of_it() -> None:
    qos = read(
        name="client/joe/1",
        token="t",
        resume="r",
        nonce="0123456789abcdef",
        update=True,
        settle="message",
        ackWait=5000,
        maxOpen=3,
        pingInterval=60000,
        burst={"maxEntries": 100, "maxBytes": 524288},
        ptp=False,
        persistent=True,
        timeout=1000,
        maxSessions=3,
        clearSessions=True,
        reconnectSameClientOnly=True,
        dispatcher={"retries": -1, "delay": 60000},
        queue={"maxEntries": MOST, "maxBytes": 10485760, "onOverflow": "dropOldest"},
    )
    assert qos == ConnectQos(
        name=Name("joe", 1),
        token="t",
        resume="r",
        nonce="0123456789abcdef",
        update=True,
        settle=Settle.MESSAGE,
        ack_wait_ms=5000,
        max_open=3,
        ping_interval_ms=60000,
        burst=Burst(100, 524288),
        ptp=False,
        persistent=True,
        timeout_ms=1000,
        max_sessions=3,
        clear_sessions=True,
        reconnect_same_client_only=True,
        dispatcher=Retries(-1, 60000),
        queue=QueueQos(MOST, 10485760, OverflowPolicy.DROP_OLDEST),
    )


@pytest.mark.parametrize("fields", [{}, {"delay": 5}, {"retries": 0}])
def test_a_dispatcher_that_is_given_is_told_from_none(fields: dict[str, Any]) -> None:
    assert read(dispatcher=fields).dispatcher == Retries(fields.get("retries"), fields.get("delay"))


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("name", 5, "name"),
        ("name", "client//1", "name"),
        ("name", "anonymous", "name"),
        ("name", "client/anonymous/1", "name"),
        ("token", "", "token"),
        ("token", 5, "token"),
        ("token", "x" * 8193, "token"),
        ("resume", None, "resume"),
        ("nonce", 5, "nonce"),
        ("nonce", "x" * 15, "nonce"),
        ("nonce", "x" * 65, "nonce"),
        ("update", 1, "update"),
        ("settle", "now", "settle"),
        ("ackWait", 0, "ackWait"),
        ("ackWait", -2, "ackWait"),
        ("maxOpen", -1, "maxOpen"),
        ("maxOpen", True, "maxOpen"),
        ("maxOpen", "1", "maxOpen"),
        ("pingInterval", -1, "pingInterval"),
        ("burst", 5, "burst"),
        ("burst", {"maxEntries": 0}, "burst.maxEntries"),
        ("burst", {"maxBytes": "1"}, "burst.maxBytes"),
        ("burst", {"entries": 1}, "burst.entries"),
        ("ptp", "yes", "ptp"),
        ("persistent", 1, "persistent"),
        ("timeout", 0, "timeout"),
        ("timeout", 2**53, "timeout"),
        ("maxSessions", 0, "maxSessions"),
        ("clearSessions", None, "clearSessions"),
        ("reconnectSameClientOnly", 1, "reconnectSameClientOnly"),
        ("dispatcher", [], "dispatcher"),
        ("dispatcher", {"retries": -2}, "dispatcher.retries"),
        ("dispatcher", {"delay": -1}, "dispatcher.delay"),
        ("queue", {"maxEntries": MOST + 1}, "queue.maxEntries"),
        ("queue", {"maxEntries": 0}, "queue.maxEntries"),
        ("queue", {"maxBytes": 0}, "queue.maxBytes"),
        ("queue", {"maxBytes": MOST_BYTES + 1}, "queue.maxBytes"),
        ("queue", {"onOverflow": "panic"}, "queue.onOverflow"),
        ("colour", "red", "colour"),
    ],
)
def test_what_does_not_fit_is_refused_and_named(field: str, value: Any, named: str) -> None:
    with pytest.raises(IllegalArgument) as caught:
        read(**{field: value})
    assert caught.value.field == named
    assert caught.value.message.startswith(f"{named}: ")


@pytest.mark.parametrize("value", [5, [], None, "joe", True])
def test_session_options_must_be_an_object(value: Any) -> None:
    with pytest.raises(IllegalArgument, match="session"):
        read_connect_qos(value, MOST, MOST_BYTES)


@pytest.mark.parametrize("name", [None, "joe", "joe/0", "joe/-1"])
def test_only_a_session_that_the_client_numbers_can_be_persistent(name: str | None) -> None:
    with pytest.raises(IllegalArgument) as caught:
        read(persistent=True, **({} if name is None else {"name": name}))
    assert caught.value.field == "persistent"


def test_only_sessions_of_a_subject_can_be_cleared() -> None:
    assert read(clearSessions=True, name="joe").clear_sessions
    assert read(clearSessions=True, resume="r").clear_sessions
    with pytest.raises(IllegalArgument, match="400:clearSessions:"):
        read(clearSessions=True)


def test_a_session_without_a_name_can_be_asked_back_by_the_name_that_it_was_given() -> None:
    assert read(name="/node/heron/client/anonymous/-7").name == Name("anonymous", -7, "heron")


def test_each_way_to_settle_says_what_it_means() -> None:
    assert len({way.meaning for way in Settle}) == len(Settle)


@given(
    st.dictionaries(
        st.sampled_from(["name", "token", "settle", "ackWait", "burst", "queue", "dispatcher", "persistent", "x"]),
        st.none()
        | st.booleans()
        | st.integers()
        | texts(max_size=9)
        | st.dictionaries(st.sampled_from(["maxEntries", "retries", "onOverflow"]), st.integers() | texts(max_size=3)),
    )
)
def test_whatever_comes_is_read_or_refused(fields: dict[str, Any]) -> None:
    with suppress(IllegalArgument):
        assert isinstance(read_connect_qos(fields, MOST, MOST_BYTES), ConnectQos)


@pytest.mark.parametrize(
    ("entries", "size", "code"),
    [
        (0, 100, None),
        (2, 100, None),
        (3, 10, "resource.overflow.queue.entries"),
        (3, 101, "resource.overflow.queue.entries"),
        (2, 101, "resource.overflow.queue.bytes"),
    ],
)
def test_the_bound_that_one_message_more_goes_beyond_is_named(entries: int, size: int, code: str | None) -> None:
    assert Bounds(3, 100).exceeded(entries, size) == code


def test_a_message_that_is_alone_fits_however_large() -> None:
    assert Bounds(3, 100).exceeded(0, 10**9) is None


@pytest.mark.parametrize("policy", OverflowPolicy)
def test_every_policy_says_in_a_sentence_what_it_does(policy: OverflowPolicy) -> None:
    assert policy.meaning.endswith(".")
