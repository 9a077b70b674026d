"""Checks of what is on the HTTP connection itself: media types, forms, callbacks, paths."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from crewel.conformance.check_table import Level, check
from crewel.conformance.trial import Trial
from crewel.conformance.verdicts import CALLBACK_POLLING, LONG_POLLING, WEBSOCKET, Untested, expect
from crewel.conformance.wires import open_socket, request, unwrapped

_FORM = "application/x-www-form-urlencoded"


def _handshake(number: str, transport: str = LONG_POLLING) -> dict[str, Any]:
    return {"channel": "/meta/handshake", "id": number, "version": "1.0", "supportedConnectionTypes": [transport]}


def _refused(number: str) -> dict[str, Any]:
    """A message that may be sent in any number, and has a reply."""
    return {"channel": "/meta/subscribe", "id": number, "clientId": "conformancenosuchclient", "subscription": "/x"}


@check(
    "content-type",
    Level.SHOULD,
    "long-polling",
    "A response has the content type application/json and UTF-8.",
    [LONG_POLLING],
)
async def _content_type(trial: Trial) -> None:
    """The header of the response to a handshake."""
    response = await trial.http(json.dumps([_handshake("1")]).encode())
    expect(response.content_type == "application/json", "application/json", response.content_type)
    expect((response.charset or "utf-8").lower() == "utf-8", "UTF-8", response.charset)


@check(
    "response-array",
    Level.MUST,
    "Messages",
    "A response is an array of messages, even of a single one.",
    [LONG_POLLING],
)
async def _response_array(trial: Trial) -> None:
    """The body of the response to a handshake."""
    messages = (await trial.http(json.dumps([_handshake("1")]).encode())).messages()
    expect([each.get("id") for each in messages] == ["1"], "an array with the reply", messages)


@check(
    "form-one",
    Level.SHOULD,
    "long-polling",
    "Messages may come as the parameter `message` of a form: one message.",
    [LONG_POLLING],
)
async def _form_one(trial: Trial) -> None:
    """A form with a single message."""
    await _form(trial, [_refused("1")], ["1"])


@check(
    "form-array",
    Level.SHOULD,
    "long-polling",
    "Messages may come as the parameter `message` of a form: an array.",
    [LONG_POLLING],
)
async def _form_array(trial: Trial) -> None:
    """A form with an array of two messages."""
    await _form(trial, [[_refused("1"), _refused("2")]], ["1", "2"])


@check(
    "form-several",
    Level.SHOULD,
    "long-polling",
    "The parameter `message` of a form may have several values.",
    [LONG_POLLING],
)
async def _form_several(trial: Trial) -> None:
    """Forms with two messages, with two arrays, and with one of each."""
    await _form(trial, [_refused("1"), _refused("2")], ["1", "2"])
    await _form(trial, [[_refused("1")], [_refused("2"), _refused("3")]], ["1", "2", "3"])
    await _form(trial, [_refused("1"), [_refused("2")]], ["1", "2"])


async def _form(trial: Trial, values: list[Any], ids: list[str]) -> None:
    body = urlencode([("message", json.dumps(each)) for each in values])
    response = await trial.http(body.encode(), _FORM)
    expect(response.status == 200, "status 200 for a form", response.status)
    got = [each.get("id") for each in response.messages()]
    expect(got == ids, f"replies to {ids}", got)


@check("utf-8", Level.SHOULD, "long-polling", "Requests and responses are in UTF-8.", [LONG_POLLING, WEBSOCKET])
async def _utf_8(trial: Trial) -> None:
    """A client publishes a text to itself whose characters have two, three and four bytes, none of them escaped."""
    client = await trial.open(trial.root)
    await client.publish(trial.root, "ü ☃ 𝄞")
    await client.receives(trial.root, "ü ☃ 𝄞")


@check(
    "callback",
    Level.MUST,
    "callback-polling",
    "A response calls the function that the parameter `jsonp` names with an array.",
    [CALLBACK_POLLING],
)
async def _callback(trial: Trial) -> None:
    """Handshakes with the parameters `jsonp` and `message`, and two names of functions."""
    for name in ("conformance_call", "c1"):
        text = await _called(trial, {"jsonp": name}, name)
        messages = json.loads(text)
        expect(isinstance(messages, list) and messages[0].get("id") == "1", "an array with the reply", messages)


@check(
    "callback-default",
    Level.MUST,
    "callback-polling",
    "Without the parameter `jsonp` the function is `jsonpcallback`.",
    [CALLBACK_POLLING],
)
async def _callback_default(trial: Trial) -> None:
    """A handshake with the parameter `message` alone."""
    await _called(trial, {}, "jsonpcallback")


async def _called(trial: Trial, parameters: dict[str, str], callback: str) -> str:
    agent = await trial.agent()
    query = urlencode({**parameters, "message": json.dumps([_handshake("1", CALLBACK_POLLING)])})
    response = await trial.within(request(agent, "GET", f"{trial.site.url}?{query}"), "an HTTP response")
    expect(response.status == 200, "status 200", f"{response.status} {response.body[:100]!r}")
    return unwrapped(response.body, callback)


@check(
    "callback-name",
    Level.CLIENTS,
    "callback-polling",
    "A name of a function that could be markup or a script is refused.",
    [CALLBACK_POLLING],
)
async def _callback_name(trial: Trial) -> None:
    """`jsonp=<script>alert(1)</script>`: the response does not have it."""
    agent = await trial.agent()
    query = urlencode(
        {"jsonp": "<script>alert(1)</script>", "message": json.dumps([_handshake("1", CALLBACK_POLLING)])}
    )
    response = await trial.within(request(agent, "GET", f"{trial.site.url}?{query}"), "an HTTP response")
    expect("<script>alert(1)" not in response.body or "html" not in response.content_type, "no script", response.body)
    expect(not response.body.lstrip("/* \n").startswith("<script>"), "that the name is refused", response.body[:80])


@check("bare-object", Level.CLIENTS, "Messages", "A single message without an array is accepted.", [LONG_POLLING])
async def _bare_object(trial: Trial) -> None:
    """A handshake as a bare object: its reply is in an array."""
    messages = (await trial.http(json.dumps(_handshake("1")).encode())).messages()
    expect(messages[0].get("successful") is True, "a successful handshake", messages)


@check(
    "paths",
    Level.CLIENTS,
    "Connect",
    "The JavaScript client posts to <url>/handshake, /connect, /disconnect and <url>/.",
    [LONG_POLLING],
)
async def _paths(trial: Trial) -> None:
    """A handshake to each of the paths."""
    for path in ("/", "/handshake", "/connect", "/disconnect"):
        response = await trial.http(json.dumps([_handshake("1")]).encode(), path=path)
        expect(response.status == 200, f"status 200 at {path}", response.status)
        expect(response.messages()[0].get("id") == "1", f"a reply at {path}", response.body)


@check(
    "refusal-status",
    Level.CLIENTS,
    "error",
    "A refused message is answered with status 200: clients drop the body of others.",
    [LONG_POLLING],
)
async def _refusal_status(trial: Trial) -> None:
    """A subscribe with an unknown `clientId`."""
    response = await trial.http(json.dumps([_refused("1")]).encode())
    expect(response.status == 200, "status 200", response.status)


@check(
    "malformed",
    Level.CLIENTS,
    "Messages",
    "A body that is not JSON is refused with a status from 400 to 499.",
    [LONG_POLLING],
)
async def _malformed(trial: Trial) -> None:
    """The body `[{"channel":`."""
    response = await trial.http(b'[{"channel":')
    expect(400 <= response.status < 500, "a status from 400 to 499", response.status)


@check("socket-array", Level.MUST, "Messages", "A frame is an array of messages.", [WEBSOCKET])
async def _socket_array(trial: Trial) -> None:
    """A handshake in a frame; the frame that comes back."""
    agent = await trial.agent()
    socket = await trial.within(open_socket(agent, trial.site), "a WebSocket")
    await socket.send_str(json.dumps([_handshake("1", WEBSOCKET)]))
    frame = await trial.within(socket.receive(), "a frame")
    await socket.close()
    if not isinstance(frame.data, str):
        raise Untested(f"the socket was closed with {frame.data}")
    messages = json.loads(frame.data)
    expect(isinstance(messages, list) and messages[0].get("id") == "1", "an array with the reply", messages)
