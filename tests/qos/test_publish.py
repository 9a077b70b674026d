"""PublishQos: what `ext.publish` can ask for, what that is by default, and what is refused."""

from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.errors import IllegalArgument
from crewel.qos.names import Name
from crewel.qos.publish import (
    DEFAULT,
    FOR_EVER,
    Destination,
    Distribute,
    PublishQos,
    life_ends,
    read_publish_qos,
)
from tests.texts import texts

DEFAULTS: dict[str, Any] = {
    "persistent": False,
    "priority": 5,
    "lifeTime": -1,
    "forceDestroy": False,
    "forceUpdate": True,
    "readonly": False,
    "destroyDelay": 60000,
    "history": {"maxEntries": 0},
    "destination": [],
    "subscribable": True,
    "clientProperties": {},
    "administrative": False,
}


def test_what_is_not_given_has_the_default_and_so_has_what_is_given_as_the_default() -> None:
    assert read_publish_qos({}) == read_publish_qos(DEFAULTS) == DEFAULT == PublishQos()
    assert read_publish_qos({"history": {}, "priority": "norm"}) == DEFAULT


JOE, JOE_1 = Name("joe"), Name("joe", 1)

ASKED: list[tuple[str, Any, str, Any]] = [
    ("persistent", True, "persistent", True),
    *(("priority", each, "priority", each) for each in range(10)),
    ("priority", "MIN", "priority", 0),
    ("priority", "low", "priority", 3),
    ("priority", "Norm", "priority", 5),
    ("priority", "HIGH", "priority", 7),
    ("priority", "max", "priority", 9),
    ("lifeTime", 0, "life_time_ms", 0),
    ("lifeTime", -1, "life_time_ms", FOR_EVER),
    ("lifeTime", 2**53 - 1, "life_time_ms", 2**53 - 1),
    ("forceDestroy", True, "force_destroy", True),
    ("forceUpdate", False, "force_update", False),
    ("readonly", True, "readonly", True),
    ("destroyDelay", 0, "destroy_delay_ms", 0),
    ("destroyDelay", -1, "destroy_delay_ms", -1),
    ("history", {"maxEntries": 7}, "history_max", 7),
    ("destination", [{"to": "client/joe"}], "destinations", (Destination(JOE),)),
    (
        "destination",
        [{"to": "joe/1", "forceQueuing": True, "distribute": "one"}, {"to": "client/joe", "distribute": "all"}],
        "destinations",
        (Destination(JOE_1, force_queuing=True, distribute=Distribute.ONE), Destination(JOE)),
    ),
    ("destination", {"to": "client/joe"}, "destinations", (Destination(JOE),)),
    ("destination", [], "destinations", ()),
    ("destination", [{"to": "joe"}] * 100, "destinations", (Destination(JOE),) * 100),
    ("subscribable", False, "subscribable", False),
    ("replyTo", "/ret/1/300001", "reply_to", "/ret/1/300001"),
    ("key", "k" * 256, "key", "k" * 256),
    ("clientProperties", {"n": 1, "b": {"base64": "AA=="}}, "properties", {"n": 1, "b": {"base64": "AA=="}}),
    ("administrative", True, "administrative", True),
    ("deliverAt", 1_795_179_106_957, "deliver_at_ms", 1_795_179_106_957),
    ("deliverAt", 0, "deliver_at_ms", 0),
    ("deliverAfter", 60_000, "deliver_after_ms", 60_000),
]


@pytest.mark.parametrize(("field", "value", "name", "read"), ASKED)
def test_what_is_asked_for_is_read(field: str, value: Any, name: str, read: Any) -> None:
    is_stored = field.startswith("deliver")  # what is published later has to be
    asked = {field: value} | ({"persistent": True} if is_stored else {})
    expected = {name: read} | ({"persistent": True} if is_stored else {})
    assert read_publish_qos(asked) == replace(DEFAULT, **expected)


def test_every_field_can_be_asked_for() -> None:
    assert {name for _, _, name, _ in ASKED} == {each.name for each in fields(PublishQos) if each.init}


def test_what_is_left_out_is_as_usual_there_and_what_is_given_is_as_given() -> None:
    usual = PublishQos(persistent=True, priority=7, history_max=3)
    assert read_publish_qos({}, usual) == usual
    assert read_publish_qos({"persistent": True}, usual) == usual
    assert read_publish_qos({"priority": 5, "persistent": False}, usual) == PublishQos(history_max=3)


def test_the_commonest_one_is_made_once() -> None:
    assert read_publish_qos({"persistent": True}) is read_publish_qos({"persistent": True})


class TestKept:
    def test_what_is_as_usual_is_not_kept(self) -> None:
        assert DEFAULT.differing() == {}
        assert DEFAULT.as_stored() == b""

    def test_how_it_was_published_and_the_topic_are_not_kept(self) -> None:
        said = PublishQos(
            persistent=True,
            force_update=False,
            readonly=True,
            destroy_delay_ms=0,
            history_max=5,
            destinations=(Destination(JOE),),
            subscribable=False,
            key="k",
            administrative=True,
        )
        assert said.differing() == {}

    @pytest.mark.parametrize(
        "given",
        [
            {"priority": 0},
            {"lifeTime": 0},
            {"lifeTime": 5000},
            {"forceDestroy": True},
            {"replyTo": "/ret/1/300001"},
            {"clientProperties": {"n": 1}},
        ],
    )
    def test_what_a_receiver_is_told_is_kept_as_it_was_asked_for(self, given: dict[str, Any]) -> None:
        qos = read_publish_qos(given)
        assert qos.differing() == given
        assert read_publish_qos(orjson.loads(qos.as_stored())) == qos


@pytest.mark.parametrize(
    ("qos", "is_volatile"),
    [
        (DEFAULT, False),
        (PublishQos(life_time_ms=0), True),
        (PublishQos(life_time_ms=1), False),
        (PublishQos(destinations=(Destination(JOE),)), True),
        (PublishQos(destinations=(Destination(JOE),), life_time_ms=1), False),
        (PublishQos(destinations=(Destination(JOE),), life_time_ms=0), True),
    ],
)
def test_a_message_of_no_life_is_volatile_and_so_is_one_to_somebody_unless_it_has_a_life(
    qos: PublishQos, *, is_volatile: bool
) -> None:
    assert qos.is_volatile is is_volatile


@pytest.mark.parametrize(("life_time_ms", "ends"), [(FOR_EVER, 0), (0, 1000), (1, 2000), (60_000, 60_001_000)])
def test_life_begins_when_the_server_accepts_a_message(life_time_ms: int, ends: int) -> None:
    assert life_ends(1000, life_time_ms) == ends


@pytest.mark.parametrize(
    ("qos", "leaves"),
    [
        (DEFAULT, 0),
        (PublishQos(life_time_ms=0), 0),
        (PublishQos(life_time_ms=5), 6000),
        (PublishQos(life_time_ms=5, force_destroy=True), 6000),
        (PublishQos(destinations=(Destination(JOE),)), 0),
        (PublishQos(destinations=(Destination(JOE),), life_time_ms=5), 6000),
    ],
)
def test_what_is_volatile_does_not_leave_a_history_for_it_never_was_in_one(qos: PublishQos, leaves: int) -> None:
    assert qos.leaves_history(1000) == leaves


@pytest.mark.parametrize(
    ("life_time_ms", "force_destroy", "expires"),
    [(FOR_EVER, False, 0), (FOR_EVER, True, 0), (3, False, 0), (3, True, 4000), (0, True, 1000), (0, False, 0)],
)
def test_only_who_wants_it_destroyed_takes_a_message_out_of_queues(
    life_time_ms: int, expires: int, *, force_destroy: bool
) -> None:
    assert PublishQos(life_time_ms=life_time_ms, force_destroy=force_destroy).expires(1000) == expires


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("persistent", "yes", "persistent"),
        ("persistent", 1, "persistent"),
        ("priority", 10, "priority"),
        ("priority", -1, "priority"),
        ("priority", True, "priority"),
        ("priority", "URGENT", "priority"),
        ("lifeTime", -2, "lifeTime"),
        ("lifeTime", 1.5, "lifeTime"),
        ("lifeTime", 2**53, "lifeTime"),
        ("destroyDelay", -2, "destroyDelay"),
        ("forceDestroy", 0, "forceDestroy"),
        ("forceUpdate", None, "forceUpdate"),
        ("readonly", "", "readonly"),
        ("destroyDelay", "60000", "destroyDelay"),
        ("history", 5, "history"),
        ("history", {"maxEntries": -1}, "history.maxEntries"),
        ("history", {"max": 1}, "history.max"),
        ("destination", "client/joe", "destination"),
        ("destination", [{}], "destination.0"),
        ("destination", ["client/joe"], "destination.0"),
        ("destination", [{"to": "client/joe"}, {"to": "a b"}], "destination.1.to"),
        ("destination", [{"to": 5}], "destination.0.to"),
        ("destination", [{"to": "joe", "distribute": "some"}], "destination.0.distribute"),
        ("destination", [{"to": "joe", "forceQueuing": 1}], "destination.0.forceQueuing"),
        ("subscribable", [], "subscribable"),
        ("destination", [{"to": "joe"}] * 101, "destination"),
        ("destination", [{"to": "joe", "queue": 1}], "destination.0.queue"),
        ("replyTo", 5, "replyTo"),
        ("replyTo", "", "replyTo"),
        ("replyTo", "ret", "replyTo"),
        ("replyTo", "/ret/*", "replyTo"),
        ("replyTo", "/meta/connect", "replyTo"),
        ("key", "", "key"),
        ("key", "x" * 257, "key"),
        ("key", 5, "key"),
        ("clientProperties", [], "clientProperties"),
        ("clientProperties", {"a": {"base64": "?"}}, "clientProperties.a"),
        ("administrative", 1, "administrative"),
        ("deliverAt", -1, "deliverAt"),
        ("deliverAt", "2026-12-24T20:00Z", "deliverAt"),
        ("deliverAfter", 0.5, "deliverAfter"),
        ("deliverAt", 5, "deliverAt"),  # it is not persistent
        ("deliverAfter", 5, "deliverAfter"),
        ("persistant", True, "persistant"),
    ],
)
def test_what_does_not_fit_is_refused_and_named(field: str, value: Any, named: str) -> None:
    with pytest.raises(IllegalArgument) as caught:
        read_publish_qos({field: value})
    assert caught.value.error == f"400:{named}:user.illegalArgument"
    assert caught.value.message.startswith(f"{named}: ")


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ({"deliverAt": 5, "deliverAfter": 5}, "deliverAfter: must be left out: `deliverAt` is given"),
        ({"deliverAt": 5, "administrative": True}, "deliverAt: must be left out: a topic is configured at once"),
        (
            {"deliverAfter": 5, "destination": {"to": "client/joe"}},
            "deliverAfter: must be left out of a message with a destination",
        ),
        ({"deliverAt": 5, "persistent": False}, "deliverAt: needs `persistent`"),
    ],
)
def test_what_cannot_be_published_later_is_refused(asked: dict[str, Any], fault: str) -> None:
    with pytest.raises(IllegalArgument) as caught:
        read_publish_qos({"persistent": True} | asked)
    assert caught.value.message.startswith(fault)


def test_a_rule_can_make_it_persistent() -> None:
    assert read_publish_qos({"deliverAfter": 5}, PublishQos(persistent=True)).due_ms(1000) == 1005
    assert read_publish_qos({"deliverAt": 5}, PublishQos(persistent=True)).due_ms(1000) == 5


@pytest.mark.parametrize(
    ("qos", "is_immediate", "is_scheduled"),
    [
        (DEFAULT, True, False),
        (PublishQos(administrative=True), False, False),
        (PublishQos(persistent=True, deliver_at_ms=5), False, True),
        (PublishQos(persistent=True, deliver_after_ms=5), False, True),
    ],
)
def test_what_configures_or_waits_is_not_published_at_once(
    qos: PublishQos, *, is_immediate: bool, is_scheduled: bool
) -> None:
    assert (qos.is_immediate, qos.is_scheduled) == (is_immediate, is_scheduled)


@pytest.mark.parametrize("value", [5, [], None, "x", True])
def test_publish_options_must_be_an_object(value: Any) -> None:
    with pytest.raises(IllegalArgument, match="400:publish:"):
        read_publish_qos(value)


@given(
    st.dictionaries(
        st.sampled_from([*DEFAULTS, "key", "replyTo", "x"]),
        st.none() | st.booleans() | st.integers() | texts(max_size=9) | st.lists(st.integers(), max_size=2),
    )
)
def test_whatever_comes_is_read_or_refused(asked: dict[str, Any]) -> None:
    with suppress(IllegalArgument):
        assert read_publish_qos(asked).persistent is asked.get("persistent", False)


def test_the_copy_of_its_destinations_says_who_they_are() -> None:
    destinations = [
        {"to": "client/joe/1"},
        {"to": "client/ann", "forceQueuing": True},
        {"to": "client/sue", "distribute": "one"},
    ]
    asked = {"destination": destinations, "priority": 7}
    kept = {"priority": 7}
    qos = read_publish_qos(asked)
    assert orjson.loads(qos.as_stored()) == kept
    assert orjson.loads(qos.as_stored_addressed()) == kept | {"destination": destinations}
    private = read_publish_qos({**asked, "subscribable": False})
    assert orjson.loads(private.as_stored()) == kept
    assert orjson.loads(private.as_stored_addressed()) == kept | {"destination": destinations, "subscribable": False}
