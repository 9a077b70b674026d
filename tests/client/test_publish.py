"""What a publish may ask for and what it is answered, as they are on the wire."""

from datetime import UTC, datetime
from typing import Any

import pytest

from crewel.bayeux.message import Fields
from crewel.client import Batch, Destination, PayloadRefusedError, PublishRefused, Reply
from crewel.client.errors import SocketClosedError, publish_refused
from crewel.client.publish_options import PublishOptions, publication
from crewel.client.time_units import TIMES
from crewel.qos.publish import DESTINATION, PUBLISH

STORED = {"ext": {"publish": {"id": "17", "state": "OK"}}}
TWO = [
    {"to": "client/joe", "state": "OK"},
    {"to": "client/ann/7", "state": "ERROR", "errorCode": "user.ptp.unknownDestinationSession"},
]


@pytest.mark.parametrize(
    ("options", "qos"),
    [
        ({"persistent": True}, {"persistent": True}),
        ({"persistent": False}, {"persistent": False}),
        ({"priority": 0}, {"priority": 0}),
        ({"priority": "HIGH"}, {"priority": "HIGH"}),
        ({"life_time": 0, "force_destroy": True}, {"lifeTime": 0, "forceDestroy": True}),
        ({"force_update": False}, {"forceUpdate": False}),
        ({"subscribable": False}, {"subscribable": False}),
        ({"reply_to": "/ret/a/3000000", "key": "order-7"}, {"replyTo": "/ret/a/3000000", "key": "order-7"}),
        ({"properties": {"a": 1}}, {"clientProperties": {"a": 1}}),
        ({"readonly": True, "history_max": 0}, {"readonly": True, "history": {"maxEntries": 0}}),
        ({"destroy_delay": -1, "administrative": True}, {"destroyDelay": -1, "administrative": True}),
        ({"deliver_after": 1.5, "persistent": True}, {"deliverAfter": 1500, "persistent": True}),
        ({"deliver_at": 1_795_324_804.876}, {"deliverAt": 1_795_324_804_876}),
        ({"deliver_at": datetime(2026, 12, 24, 20, tzinfo=UTC)}, {"deliverAt": 1_798_142_400_000}),
        ({"to": "client/joe"}, {"destination": [{"to": "client/joe"}]}),
        ({"to": "joe", "force_queuing": True}, {"destination": [{"to": "joe", "forceQueuing": True}]}),
        ({"to": "joe", "distribute": "one"}, {"destination": [{"to": "joe", "distribute": "one"}]}),
        ({"to": "joe", "force_queuing": False}, {"destination": [{"to": "joe"}]}),
        (
            {"to": [Destination("ann/1"), Destination("ann", True, "one"), "joe"], "force_queuing": True},
            {
                "destination": [
                    {"to": "ann/1"},
                    {"to": "ann", "forceQueuing": True, "distribute": "one"},
                    {"to": "joe", "forceQueuing": True},
                ]
            },
        ),
    ],
)
def test_each_option_is_a_field(options: dict[str, Any], qos: dict[str, Any]) -> None:
    assert publication("/a/", 1, **options) == {"channel": "/a", "data": 1, "ext": {"publish": qos}}


def test_what_extensions_write_into_ext_stays_out_of_that_of_the_application() -> None:
    ext = {"mood": "good"}
    publication("/a", 1, ext)["ext"]["token"] = "secret"
    assert ext == {"mood": "good"}


async def test_a_batch_sends_each_message_as_it_was_added() -> None:
    sent: list[Fields] = []

    async def request(messages: list[Fields]) -> list[Fields]:
        sent.extend(messages)
        return [{"successful": True}] * len(messages)

    order, properties = {"pizza": 0}, {"oven": 0}
    async with Batch(request) as batch:
        for number in (1, 2):
            order["pizza"] = properties["oven"] = number
            batch.publish("/orders", order, properties=properties)
    qos = [{"clientProperties": {"oven": number}} for number in (1, 2)]
    assert [(each["data"], each["ext"]["publish"]) for each in sent] == [({"pizza": 1}, qos[0]), ({"pizza": 2}, qos[1])]


@pytest.mark.parametrize(
    ("code", "reason", "is_refused"),
    [
        (1008, "too many messages in one batch (2; bayeux.max_batch_messages is 1)", True),
        (1008, "too many messages in one batch (3; bayeux.max_batch_messages is 2)", False),  # another one was to blame
        (1008, "JSON nested too deeply", False),
        (1001, "", False),
    ],
)
async def test_a_batch_for_which_the_socket_is_closed_is_refused_as_over_http(
    code: int, reason: str, is_refused: bool
) -> None:
    async def close(messages: list[Fields]) -> list[Fields]:
        raise SocketClosedError(code, reason)

    batch = Batch(close)
    batch.publish("/a", 1)
    batch.publish("/a", 2)
    with pytest.raises(PayloadRefusedError if is_refused else SocketClosedError, match=str(code)):
        await batch.__aexit__(None, None, None)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"deliver_after": -1}, "deliver_after is a number of seconds from 0 on, not -1"),
        ({"deliver_after": float("inf")}, "deliver_after is a number of seconds from 0 on"),
        ({"deliver_at": datetime(2026, 12, 24)}, "deliver_at is a datetime with a time zone"),  # noqa: DTZ001 - it has none
        ({"deliver_at": "2026-12-24"}, "deliver_at is a datetime with a time zone, or a number of seconds since 1970"),
    ],
)
def test_a_time_that_is_none_is_refused(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        publication("/a", 1, **options)


def test_what_is_not_said_is_as_the_server_has_it() -> None:
    assert publication("/a", None, persistent=None, key=None, to=None, force_queuing=None, history_max=None) == {
        "channel": "/a",
        "data": None,
    }


def test_options_stand_beside_what_ext_says() -> None:
    given = {"mood": "good", "publish": {"key": "a", "priority": 1}}
    ext = publication("/a", 1, given, priority=9, persistent=True)["ext"]
    assert ext == {"mood": "good", "publish": {"key": "a", "priority": 9, "persistent": True}}
    assert given == {"mood": "good", "publish": {"key": "a", "priority": 1}}
    assert publication("/a", 1, {"publish": "?"}, priority=9)["ext"] == {"publish": {"priority": 9}}


@pytest.mark.parametrize("options", [{"force_queuing": True}, {"distribute": "one"}])
def test_how_to_distribute_nothing_is_a_mistake(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="`to`"):
        publication("/a", 1, **options)


def test_an_option_that_there_is_not_is_a_mistake() -> None:
    unknown: dict[str, Any] = {"prioritee": 1}
    with pytest.raises(TypeError, match=r"publish\(\) has no argument 'prioritee': did you mean 'priority'\?"):
        publication("/a", 1, **unknown)


def test_a_reply_tells_how_each_destination_fared() -> None:
    reply = Reply({"successful": False, "ext": {"publish": {"id": "17", "destinations": TWO}}})
    joe, ann = reply.destinations
    assert (reply.message_id, joe.to, joe.is_ok, joe.error_code) == ("17", "client/joe", True, "")
    assert (ann.to, ann.is_ok, ann.error_code) == ("client/ann/7", False, "user.ptp.unknownDestinationSession")


def test_an_error_tells_it_too() -> None:
    told = {"destinations": TWO, "errorCode": TWO[1]["errorCode"], "message": "no such session"}
    reply = {"channel": "/a", "error": f"404:client/ann/7:{TWO[1]['errorCode']}", "ext": {"publish": told}}
    error = publish_refused(reply)
    assert isinstance(error, PublishRefused)
    assert [each.is_ok for each in error.destinations] == [True, False]
    assert str(error).endswith("(no such session)")


@pytest.mark.parametrize(
    "told", [None, 5, {}, {"publish": 5}, {"publish": {"id": 5}}, {"publish": {"destinations": 5}},
             {"publish": {"destinations": [5]}}]
)  # fmt: skip
def test_an_odd_reply_tells_nothing(told: Any) -> None:
    reply = Reply({"ext": told})
    assert (reply.message_id, reply.destinations) == (None, ())


def test_odd_states_of_a_destination_are_not_ok() -> None:
    (state,) = Reply({"ext": {"publish": {"destinations": [{"to": 5, "state": True}]}}}).destinations
    assert (state.to, state.state, state.is_ok) == ("", "", False)


def test_publish_options_are_those_of_the_table() -> None:
    assert {TIMES.get(name, name) for name in PublishOptions.__annotations__} - {"content_type"} == (
        PUBLISH.wire_names.keys() - {"destinations"}
    ) | DESTINATION.wire_names.keys()
