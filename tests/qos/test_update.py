"""What a delivery says of its message: encoded once for all, and what is each receiver's own behind it."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.qos.update import Origin, counts_down_to, own, shared
from tests.texts import texts

WIRE = b'{"channel":"/a","data":1}'
PLAIN = Origin("1700-0-ab", "1700000000")


def told(origin: Origin, wire: bytes = WIRE, **own_fields: Any) -> dict[str, Any]:
    """The message as its receiver reads it."""
    fields: dict[str, Any] = orjson.loads(own(shared(wire, origin), **own_fields))
    return fields


def update(origin: Origin, **own_fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = told(origin, **own_fields)["ext"]["update"]
    return found


class TestOrigin:
    def test_of_a_stored_message_the_place_in_the_log_is_the_id_and_the_time(self) -> None:
        origin = Origin.stored(17, "client/joe/1", b'{"priority":9}', "99-0")
        assert origin == Origin("17", "17000", "client/joe/1", b'{"priority":9}', True, "99-0")


class TestShared:
    def test_defaults_are_left_out(self) -> None:
        assert told(PLAIN) == {
            "channel": "/a",
            "data": 1,
            "ext": {"update": {"id": "1700-0-ab", "rcvTimestamp": "1700000000"}},
        }

    def test_a_stored_message_says_that_it_is_persistent(self) -> None:
        assert update(Origin.stored(17, "", b"")) == {"id": "17", "rcvTimestamp": "17000", "persistent": True}

    def test_the_sender_and_what_it_asked_for_travel_along(self) -> None:
        qos = b'{"priority":9,"lifeTime":5000,"clientProperties":{"a":1}}'
        assert update(PLAIN._replace(sender="client/joe/1", qos=qos)) == {
            "id": "1700-0-ab",
            "rcvTimestamp": "1700000000",
            "sender": "client/joe/1",
            "priority": 9,
            "lifeTime": 5000,
            "clientProperties": {"a": 1},
        }

    def test_who_else_gets_it_is_not_told(self) -> None:
        qos = b'{"priority":9,"destination":[{"to":"client/joe"}],"subscribable":false}'
        assert update(PLAIN._replace(qos=qos)).keys() == {"id", "rcvTimestamp", "priority"}

    @pytest.mark.parametrize(
        ("qos", "properties"),
        [
            (b"", {"__redriveOf": "99-0"}),
            (b'{"clientProperties":{"a":1}}', {"a": 1, "__redriveOf": "99-0"}),
            (b'{"clientProperties":{"__redriveOf":"me"}}', {"__redriveOf": "99-0"}),
        ],
    )
    def test_a_letter_that_comes_again_says_which_it_was(self, qos: bytes, properties: dict[str, Any]) -> None:
        assert update(PLAIN._replace(qos=qos, redrive_of="99-0"))["clientProperties"] == properties

    def test_what_comes_from_a_history_and_what_tells_of_a_topic_say_so(self) -> None:
        assert update(PLAIN._replace(is_initial=True))["initial"] is True
        assert update(PLAIN._replace(state="ERASED"))["state"] == "ERASED"

    def test_a_message_of_another_node_has_a_route(self) -> None:
        stored = Origin.stored(17, "", b"", node="a")
        first, second = orjson.loads(own(shared(WIRE, stored, "b", 5)))["ext"]["update"]["route"]
        assert first == {"node": "a", "stratum": 0, "timestamp": "17000", "dirtyRead": False}
        assert second == {"node": "b", "stratum": 1, "timestamp": "5000000", "dirtyRead": False}
        assert "route" not in orjson.loads(own(shared(WIRE, stored, "a")))["ext"]["update"]
        transient = PLAIN._replace(node="a")
        first, second = orjson.loads(own(shared(WIRE, transient, "b", 5)))["ext"]["update"]["route"]
        assert first == {"node": "a", "stratum": 0, "dirtyRead": False}
        assert second == {"node": "b", "stratum": 1, "timestamp": PLAIN.received, "dirtyRead": False}

    def test_what_a_publisher_put_into_ext_stays_beside_it(self) -> None:
        fields = told(PLAIN, b'{"channel":"/a","ext":{"x":{"y":1},"update":{"id":"forged"}},"data":1}')
        assert fields == {
            "channel": "/a",
            "data": 1,
            "ext": {"x": {"y": 1}, "update": {"id": "1700-0-ab", "rcvTimestamp": "1700000000"}},
        }

    def test_data_that_looks_like_ext_stays_data(self) -> None:
        fields = told(PLAIN, b'{"channel":"/a","data":{"ext":{"update":1}}}')
        assert fields["data"] == {"ext": {"update": 1}}
        assert fields["ext"]["update"]["id"] == "1700-0-ab"


@pytest.mark.parametrize(
    ("qos", "ends"),
    [
        (b"", 0),
        (b'{"lifeTime":5000}', 6700),
        (b'{"lifeTime":0}', 0),
        (b'{"clientProperties":{"lifeTime":5000}}', 0),
    ],
)
def test_a_life_ends_so_long_after_the_message_came(qos: bytes, ends: int) -> None:
    assert counts_down_to(Origin("1700-0-ab", "1700000000", qos=qos)) == ends


class TestOwn:
    def test_a_pattern_by_which_it_is_heard(self) -> None:
        assert update(PLAIN, subscription="/a/**")["subscription"] == "/a/**"

    def test_how_often_it_may_have_come_before(self) -> None:
        assert update(PLAIN, redeliver=3)["redeliver"] == 3

    def test_its_place_in_a_backlog(self) -> None:
        assert update(PLAIN, queue=(0, 5))["queue"] == {"index": 0, "size": 5}

    def test_the_rest_of_its_life(self) -> None:
        assert update(PLAIN, remaining_ms=0)["remainingLife"] == 0

    def test_one_encoding_serves_receivers_that_are_told_different_things(self) -> None:
        shared_json = shared(WIRE, PLAIN)
        first, second = (orjson.loads(own(shared_json, redeliver=number)) for number in (0, 1))
        second["ext"]["update"].pop("redeliver")
        assert first == second

    @given(
        st.dictionaries(texts(), texts() | st.integers(-9, 9) | st.none(), max_size=3),
        st.none() | st.dictionaries(texts(), st.integers(-9, 9), max_size=3),
        texts(),
        st.integers(0, 3),
        st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
    )
    def test_whatever_is_in_it_it_is_json_and_the_data_is_untouched(
        self, data: Any, ext: Any, pattern: str, redeliver: int, queue: tuple[int, int] | None
    ) -> None:
        fields = {"channel": "/a", "data": data} | ({} if ext is None else {"ext": ext})
        read = told(PLAIN, orjson.dumps(fields), subscription=pattern, redeliver=redeliver, queue=queue)
        assert read["data"] == data
        found = read["ext"].pop("update")
        assert read["ext"] == {name: value for name, value in (ext or {}).items() if name != "update"}
        assert (found.get("subscription", ""), found.get("redeliver", 0)) == (pattern, redeliver)
        assert ("queue" in found) is (queue is not None)
