"""PublishQos (design 3.2): what `ext.publish` can ask for, and what this server refuses as yet."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.delivery.publish_qos import DEFAULT, PublishQos, read_publish_qos
from crewel.errors import IllegalArgument

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


def test_what_this_server_obeys() -> None:
    assert read_publish_qos({"persistent": True}) == PublishQos(persistent=True)
    given = {"persistent": True, "key": "order-7", "clientProperties": {"n": 1, "b": {"base64": "AA=="}}}
    assert read_publish_qos(given) == PublishQos(True, "order-7", {"n": 1, "b": {"base64": "AA=="}})


def test_what_is_kept_with_the_message_is_what_is_not_as_usual() -> None:
    assert DEFAULT.differing() == {}
    assert PublishQos(True, "k").differing() == {}
    assert PublishQos(client_properties={"n": 1}).differing() == {"clientProperties": {"n": 1}}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", 9),
        ("priority", "MAX"),
        ("lifeTime", 0),
        ("lifeTime", 5000),
        ("forceDestroy", True),
        ("forceUpdate", False),
        ("readonly", True),
        ("destroyDelay", 0),
        ("destroyDelay", -1),
        ("history", {"maxEntries": 1}),
        ("destination", [{"to": "client/joe"}]),
        ("destination", [{"to": "joe/1", "forceQueuing": True, "distribute": "one"}]),
        ("subscribable", False),
        ("replyTo", "/ret/1/300001"),
        ("administrative", True),
    ],
)
def test_what_is_not_offered_yet_is_refused_and_never_ignored(field: str, value: Any) -> None:
    with pytest.raises(IllegalArgument, match=f"400:{field}:user.illegalArgument") as caught:
        read_publish_qos({field: value})
    assert "does not offer" in caught.value.message


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
        ("replyTo", 5, "replyTo"),
        ("key", "", "key"),
        ("key", "x" * 257, "key"),
        ("key", 5, "key"),
        ("clientProperties", [], "clientProperties"),
        ("clientProperties", {"a": {"base64": "?"}}, "clientProperties.a"),
        ("administrative", 1, "administrative"),
        ("persistant", True, "persistant"),
    ],
)
def test_what_does_not_fit_is_refused_and_named(field: str, value: Any, named: str) -> None:
    with pytest.raises(IllegalArgument) as caught:
        read_publish_qos({field: value})
    assert caught.value.error == f"400:{named}:user.illegalArgument"
    assert caught.value.message.startswith(f"{named}: ")


@pytest.mark.parametrize("value", [5, [], None, "x", True])
def test_it_must_be_an_object(value: Any) -> None:
    with pytest.raises(IllegalArgument, match="400:publish:"):
        read_publish_qos(value)


@given(
    st.dictionaries(
        st.sampled_from([*DEFAULTS, "key", "replyTo", "x"]),
        st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.lists(st.integers(), max_size=2),
    )
)
def test_whatever_comes_is_read_or_refused(fields: dict[str, Any]) -> None:
    with suppress(IllegalArgument):
        assert read_publish_qos(fields).persistent is fields.get("persistent", False)
