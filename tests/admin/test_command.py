"""The form of commands, without a server."""

from __future__ import annotations

import pytest

from crewel.admin.command import Order, read_order
from crewel.admin.operation import Level
from crewel.errors import IllegalArgument


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("__cmd:?clientList", Order(Level.NODE, "", "clientList", None)),
        ("__cmd:/?clientList", Order(Level.NODE, "", "clientList", None)),
        ("__cmd:node?clientList", Order(Level.NODE, "", "clientList", None)),
        ("__cmd:node/?clientList", Order(Level.NODE, "", "clientList", None)),
        ("__cmd:/node/heron/?clientList", Order(Level.NODE, "", "clientList", None)),
        ("__cmd:client/joe/?numSessions", Order(Level.SUBJECT, "client/joe", "numSessions", None)),
        ("__cmd:client/joe?numSessions", Order(Level.SUBJECT, "client/joe", "numSessions", None)),
        ("__cmd:/node/heron/client/joe/?numSessions", Order(Level.SUBJECT, "client/joe", "numSessions", None)),
        ("__cmd:client/joe/1/?id", Order(Level.SESSION, "client/joe/1", "id", None)),
        ("__cmd:client/joe/session/1/?id", Order(Level.SESSION, "client/joe/1", "id", None)),
        ("__cmd:client/joe/-7/?id", Order(Level.SESSION, "client/joe/-7", "id", None)),
        ("__cmd:/node/heron/client/joe/1?id", Order(Level.SESSION, "client/joe/1", "id", None)),
        ("__cmd:client/node/1/?id", Order(Level.SESSION, "client/node/1", "id", None)),
        ("__cmd:topic/a/b/?subscribers", Order(Level.TOPIC, "/a/b", "subscribers", None)),
        ("__cmd:topic/a/**?subscribers", Order(Level.TOPIC, "/a/**", "subscribers", None)),
        ("__cmd:client/joe/1/?x=true", Order(Level.SESSION, "client/joe/1", "x", ("true",))),
        ("__cmd:client/joe/1/?x=", Order(Level.SESSION, "client/joe/1", "x", ("",))),
        ("__cmd:client/joe/1/?x=1&2", Order(Level.SESSION, "client/joe/1", "x", ("1", "2"))),
        ("__cmd:client/joe/1/?x=a%26b=c", Order(Level.SESSION, "client/joe/1", "x", ("a&b=c",))),
    ],
)
def test_a_command_is_read_into_its_parts(text: str, order: Order) -> None:
    assert read_order(text, "heron") == order


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "must be a text"),
        (7, "must be a text"),
        ("", "must be a text"),
        ("__cmd:?" + "x" * 5000, "1 to 4096 characters"),
        ("client/joe/1/?id", "must begin with __cmd:"),
        ("__cmd:client/joe/1", "names no property"),
        ("__cmd:client/joe/1/?", "names no property"),
        ("__cmd:?=5", "names no property"),
        ("__cmd:/node/crane/?uptime", "is for the node 'crane', and this is the node 'heron'"),
        ("__cmd:subscription/7/?id", "unknown path 'subscription/7/'; known are nothing or `node`, client/<subject>"),
        ("__cmd:client/?id", "neither client/<subject> nor client/<subject>/<number>"),
        ("__cmd:client/joe/0/?id", "neither client/<subject> nor"),
        ("__cmd:client/joe/x/?id", "neither client/<subject> nor"),
        ("__cmd:client/j%20oe/?id", "neither client/<subject> nor"),
        ("__cmd:client/joe/1/2/?id", "neither client/<subject> nor"),
        ("__cmd:topic/?subscribers", "'/' is not the name of a channel"),
        ("__cmd:topic/a//b/?subscribers", "is not the name of a channel"),
    ],
)
def test_a_malformed_command_is_refused_by_name(text: object, words: str) -> None:
    with pytest.raises(IllegalArgument) as caught:
        read_order(text, "heron")
    assert caught.value.field == "command"
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("text", "absolute"),
    [
        ("__cmd:?clientList", "__cmd:/node/heron/?clientList"),
        ("__cmd:client/joe/?numSessions", "__cmd:/node/heron/client/joe/?numSessions"),
        ("__cmd:client/joe/session/1?x=true", "__cmd:/node/heron/client/joe/1/?x=true"),
        ("__cmd:topic/a/b?subscribers", "__cmd:/node/heron/topic/a/b/?subscribers"),
    ],
)
def test_the_absolute_form_has_the_node(text: str, absolute: str) -> None:
    order = read_order(text, "heron")
    assert order.absolute("heron") == absolute
    assert read_order(absolute, "heron") == order
