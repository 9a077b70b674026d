"""Replies: the channel and the id of their request, and nothing that looks like an event."""

from typing import Any

import pytest

from crewel.bayeux import replies
from crewel.bayeux.message import Message


def message(**fields: Any) -> Message:
    return Message.read({"channel": "/foo", **fields})


def test_a_reply_echoes_channel_and_id_and_carries_neither_data_nor_client_id() -> None:
    assert replies.ok(message(id=7, data=1, clientId="c")) == {"channel": "/foo", "id": "7", "successful": True}


def test_the_channel_is_echoed_as_it_was_sent() -> None:
    assert replies.ok(message(channel="/foo/"))["channel"] == "/foo/"


def test_no_id_asks_for_no_id() -> None:
    assert replies.ok(message()) == {"channel": "/foo", "successful": True}


@pytest.mark.parametrize("value", ["/a", ["/a", "/b"], [], 5, None])
def test_the_subscription_is_echoed_unchanged_also_on_failure(value: Any) -> None:
    subscribe = message(channel="/meta/subscribe", subscription=value)
    assert replies.ok(subscribe)["subscription"] == value
    assert replies.failed(subscribe, "403::x")["subscription"] == value
    assert replies.refused(subscribe.fields, "403::x")["subscription"] == value


def test_a_failure_says_why() -> None:
    assert replies.failed(message(id="1"), "404::message_deleted") == {
        "channel": "/foo",
        "id": "1",
        "successful": False,
        "error": "404::message_deleted",
    }


@pytest.mark.parametrize(
    ("element", "echoed"),
    [
        (5, {}),
        (None, {}),
        ([], {}),
        ({}, {}),
        ({"channel": 5, "id": []}, {}),
        ({"channel": "/a//b", "id": 5}, {"channel": "/a//b", "id": "5"}),
        ({"channel": "/a", "id": "a-b"}, {"channel": "/a", "id": "a-b"}),
    ],
)
def test_what_is_no_message_gets_back_what_there_is_to_echo(element: Any, echoed: dict[str, Any]) -> None:
    assert replies.refused(element, "400::channel_missing") == {
        **echoed,
        "successful": False,
        "error": "400::channel_missing",
    }


def test_a_handshake_reply_holds_all_that_a_client_needs() -> None:
    shake = message(channel="/meta/handshake", id="1", version="2.0", supportedConnectionTypes=["odd"])
    assert replies.handshaken(shake, "c1", ["websocket", "long-polling"], {"reconnect": "retry"}) == {
        "channel": "/meta/handshake",
        "id": "1",
        "successful": True,
        "version": "1.0",
        "minimumVersion": "1.0",
        "clientId": "c1",
        "supportedConnectionTypes": ["websocket", "long-polling"],
        "advice": {"reconnect": "retry"},
    }
