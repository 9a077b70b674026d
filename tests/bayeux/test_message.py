"""Messages at the door, and as their subscribers get them."""

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.bayeux.channel import parse
from crewel.bayeux.message import MAX_ADVICE_MS, Accepted, Message, delivered
from crewel.errors import BayeuxCode, IllegalArgument, Refused
from tests.texts import texts

names = st.sampled_from(["channel", "id", "clientId", "data", "ext", "advice", "subscription", "successful", "x"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts(max_size=5) | st.just("/a"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(max_size=3), inner, max_size=3),
    max_leaves=4,
)


def message(**fields: Any) -> Message:
    return Message.read({"channel": "/foo", **fields})


def refusal(fields: dict[str, Any]) -> str:
    with pytest.raises(Refused) as caught:
        Message.read(fields)
    return caught.value.error


class TestExt:
    def test_what_is_written_to_an_ext_that_is_not_there_is_an_error_that_names_the_remedy(self) -> None:
        ext = message().ext
        assert (ext, ext.get("a"), ext.pop("a", None)) == ({}, None, None)

        def add() -> None:
            nonlocal ext
            ext |= {"seen": 1}

        writes: list[Callable[[], object]] = [
            lambda: operator.setitem(ext, "seen", 1),
            lambda: ext.setdefault("seen", 1),
            lambda: ext.update({"seen": 1}),
            lambda: ext.update(seen=1),
            add,
        ]
        for write in writes:
            with pytest.raises(TypeError, match=r"no ext: set message.fields\['ext'\]"):
                write()
        assert message().ext == {}

    def test_what_is_written_to_one_that_is_there_is_in_the_message(self) -> None:
        found = message(ext={"a": 1})
        found.ext["seen"] = 1
        assert found.fields["ext"] == {"a": 1, "seen": 1}


class TestReading:
    @pytest.mark.parametrize(
        ("fields", "error"),
        [
            ({}, BayeuxCode.CHANNEL_MISSING),
            ({"channel": None, "id": "-"}, BayeuxCode.CHANNEL_MISSING),
            ({"channel": "/a//b", "id": "-"}, BayeuxCode.CHANNEL_INVALID),
            ({"channel": ""}, BayeuxCode.CHANNEL_INVALID),
            ({"channel": 5}, BayeuxCode.CHANNEL_INVALID),
            ({"channel": ["/a"]}, BayeuxCode.CHANNEL_INVALID),
            ({"channel": "/a", "id": ""}, BayeuxCode.MESSAGE_ID_INVALID),
            ({"channel": "/a", "id": "a-b"}, BayeuxCode.MESSAGE_ID_INVALID),
            ({"channel": "/a", "id": "1.5"}, BayeuxCode.MESSAGE_ID_INVALID),
            ({"channel": "/a", "id": "1\n"}, BayeuxCode.MESSAGE_ID_INVALID),
            ({"channel": "/a", "id": "\u0661"}, BayeuxCode.MESSAGE_ID_INVALID),
            ({"channel": "/a", "id": 1.5}, BayeuxCode.MESSAGE_ID_INVALID),
            ({"channel": "/a", "id": -1}, BayeuxCode.MESSAGE_ID_INVALID),
            ({"channel": "/a", "id": {}}, BayeuxCode.MESSAGE_ID_INVALID),
        ],
    )
    def test_the_channel_is_checked_before_the_id(self, fields: dict[str, Any], error: str) -> None:
        assert refusal(fields) == error

    @pytest.mark.parametrize(
        ("value", "echoed"),
        [("1", "1"), ("aZ9", "aZ9"), (10, "10"), (True, "true"), (False, "false"), (None, None)],
    )
    def test_an_id_is_echoed_as_a_string(self, value: Any, echoed: str | None) -> None:
        assert message(id=value).id == echoed

    def test_a_message_may_have_no_id(self) -> None:
        assert message().id is None

    @given(st.dictionaries(names, values, max_size=5))
    def test_whatever_its_fields_are_it_is_read_or_refused(self, fields: dict[str, Any]) -> None:
        try:
            read = Message.read(fields)
        except Refused:
            return
        assert isinstance(read.ext, dict)
        assert read.client_id is None or isinstance(read.client_id, str)
        assert read.advised_ms("timeout") is None or read.advised_ms("timeout") >= 0  # type: ignore[operator]
        assert "data" in delivered(read)


class TestFields:
    @pytest.mark.parametrize(("value", "read"), [("abc", "abc"), (5, None), (None, None), (["abc"], None)])
    def test_a_client_id_is_a_string_or_missing(self, value: Any, read: str | None) -> None:
        assert message(clientId=value).client_id == read

    def test_data_is_opaque_and_none_if_missing(self) -> None:
        assert message(data=[1]).data == [1]
        assert message().data is None

    def test_ext_is_empty_if_it_is_missing(self) -> None:
        assert message(ext={"a": 1}).ext == {"a": 1}
        assert message().ext == {}

    @pytest.mark.parametrize(
        ("value", "told"),
        [(None, "null"), ("x", "a string"), ([], "a list"), (5, "a number"), (1.5, "a number"), (True, "a boolean")],
    )
    def test_an_ext_that_is_no_object_is_refused_and_named(self, value: Any, told: str) -> None:
        with pytest.raises(IllegalArgument) as caught:
            message(ext=value)
        assert caught.value.error == "400:ext:user.illegalArgument"
        assert caught.value.message == f"ext: must be an object, not {told}"

    @pytest.mark.parametrize(
        ("value", "read"),
        [
            (0, 0),
            (1500, 1500),
            (1.5, 1.5),
            (10**18, MAX_ADVICE_MS),
            (-1, None),
            (True, None),
            ("5", None),
            (None, None),
            (float("nan"), None),
        ],
    )
    def test_advised_times_are_numbers_from_zero_to_a_day(self, value: Any, read: float | None) -> None:
        assert message(advice={"timeout": value}).advised_ms("timeout") == read

    @pytest.mark.parametrize(
        ("advice", "has"), [({}, True), ({"timeout": 0}, True), (None, False), ("x", False), ([], False)]
    )
    def test_only_an_object_is_advice(self, advice: Any, has: bool) -> None:
        assert message(advice=advice).has_advice is has
        assert message(advice=advice).advised_ms("interval") is None


class TestSubscriptions:
    @pytest.mark.parametrize(
        ("value", "channels"),
        [("/a", ["/a"]), ("/a/", ["/a"]), (["/a", "/b/**"], ["/a", "/b/**"]), (["/a", "/a"], ["/a", "/a"])],
    )
    def test_one_name_or_a_list_of_them(self, value: Any, channels: list[str]) -> None:
        assert [channel.name for channel in message(subscription=value).subscriptions()] == channels

    @pytest.mark.parametrize(
        ("value", "error"),
        [
            (None, BayeuxCode.SUBSCRIPTION_MISSING),
            ([], BayeuxCode.SUBSCRIPTION_INVALID),
            ("", BayeuxCode.SUBSCRIPTION_INVALID),
            ("/a//b", BayeuxCode.SUBSCRIPTION_INVALID),
            (5, BayeuxCode.SUBSCRIPTION_INVALID),
            ({}, BayeuxCode.SUBSCRIPTION_INVALID),
            (["/a", "//"], BayeuxCode.SUBSCRIPTION_INVALID),
            (["/a", 5], BayeuxCode.SUBSCRIPTION_INVALID),
            ([["/a"]], BayeuxCode.SUBSCRIPTION_INVALID),
            ([None], BayeuxCode.SUBSCRIPTION_INVALID),
        ],
    )
    def test_one_bad_name_refuses_the_whole(self, value: Any, error: str) -> None:
        with pytest.raises(Refused) as caught:
            message(subscription=value).subscriptions()
        assert caught.value.error == error


class TestDelivered:
    def test_a_delivered_message_is_the_published_one_without_the_publishers_fields(self) -> None:
        published = message(id="1", clientId="secret", data={"n": 1}, ext={"a": 1}, timestamp="t", lazy=True, x=[2])
        assert delivered(published) == {
            "channel": "/foo",
            "data": {"n": 1},
            "ext": {"a": 1},
            "timestamp": "t",
            "lazy": True,
            "x": [2],
        }

    @pytest.mark.parametrize("name", ["advice", "successful", "error", "subscription"])
    def test_nobody_speaks_with_the_servers_voice(self, name: str) -> None:
        assert delivered(message(data=1, **{name: {"reconnect": "none"}})) == {"channel": "/foo", "data": 1}

    @pytest.mark.parametrize("name", ["publish", "update", "session", "ack", "subscribe"])
    def test_the_servers_ext_is_taken_out_and_other_ext_is_copied(self, name: str) -> None:
        assert delivered(message(data=1, ext={name: 1, "a": 2}))["ext"] == {"a": 2}
        assert "ext" not in delivered(message(data=1, ext={name: 1}))

    def test_an_empty_ext_is_left_out(self) -> None:
        assert "ext" not in delivered(message(data=1, ext={}))

    def test_missing_data_is_delivered_as_null(self) -> None:
        assert delivered(message()) == {"channel": "/foo", "data": None}

    def test_the_channel_is_told_without_its_trailing_slash(self) -> None:
        assert delivered(message(channel="/foo/", data=1))["channel"] == "/foo"

    def test_the_message_itself_stays_as_it_was(self) -> None:
        published = message(id="1", ext={"ack": 1}, data=1)
        delivered(published)
        assert published.fields == {"channel": "/foo", "id": "1", "ext": {"ack": 1}, "data": 1}


@pytest.mark.parametrize(
    ("busy", "is_busy", "awaits"),
    [(True, True, False), ("awaits", False, True), (1, False, False), (None, False, False)],
)
def test_a_connect_says_whether_its_client_is_busy_and_waits_all_the_same(
    busy: object, *, is_busy: bool, awaits: bool
) -> None:
    connect = message(ext={"busy": busy})
    assert (connect.says_busy, connect.awaits_answer) == (is_busy, awaits)


def test_what_a_service_hears_has_no_id_and_tells_its_sender() -> None:
    channel = parse("/a")
    assert channel is not None
    heard = Accepted({"channel": "/a", "data": 1}, channel, "client/joe/1")
    assert (heard.id, heard.data, heard.sender) == (None, 1, "client/joe/1")
    assert Accepted({}, channel).sender == ""
