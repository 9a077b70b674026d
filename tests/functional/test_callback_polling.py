"""Callback-polling (JSONP): off unless listed, and then with everything that guards it."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from tests.functional.bayeux import Client, Message, data, held
from tests.functional.conftest import Serve
from tests.functional.wire import Connection, Response, until
from tests.server_process import Server

HANDSHAKE = {"channel": "/meta/handshake", "id": "1"}


def get(server: Server, query: str, path: str = "/cometd", cookie: str | None = None) -> Response:
    with Connection(server) as connection:
        return connection.get(f"{path}?{query}", {"Cookie": f"BAYEUX_BROWSER={cookie}"} if cookie else {})


def said(response: Response, function: str = "cb") -> list[Message]:
    """The messages that the script hands to the function."""
    assert response.status == 200, response.body
    script = response.body.decode()
    assert script.startswith(f"/**/{function}(")
    assert script.endswith(");")
    messages = json.loads(script.removeprefix(f"/**/{function}(").removesuffix(");"))
    assert isinstance(messages, list)
    return messages


def call(client: Client, *messages: Message) -> list[Message]:
    query = f"jsonp=cb&message={quote(json.dumps(messages))}"
    return said(get(client.server, query, cookie=client.cookie))


def test_callback_polling_is_off_by_default(shared: Serve) -> None:
    response = get(shared(), f"jsonp=cb&message={quote(json.dumps([HANDSHAKE]))}")
    assert response.status == 400
    assert response.body.startswith(b"Unknown Bayeux Transport: callback-polling is not in bayeux.transports. ")
    assert b"http.allowed_origins" in response.body
    assert "callback-polling" not in Client(shared()).handshake()["supportedConnectionTypes"]


def test_a_handshake_is_a_script_with_its_protections(server: Server) -> None:
    response = get(server, f"jsonp=cb&message={quote(json.dumps([HANDSHAKE]))}")
    (reply,) = said(response)
    assert reply["successful"] is True
    assert (response.header("Content-Type") or "").lower().replace(" ", "") == "text/javascript;charset=utf-8"
    assert response.header("X-Content-Type-Options") == "nosniff"
    assert (response.header("Content-Disposition") or "").startswith("attachment")
    assert response.header("Cache-Control") == "no-cache, no-store"
    assert len(response.all("Set-Cookie")) == 1


@pytest.mark.parametrize("function", ["cb", "org.cometd.CometD_2-x", "_", "x" * 64, "0"])
def test_names_of_functions(server: Server, function: str) -> None:
    said(get(server, f"jsonp={function}&message={quote(json.dumps(HANDSHAKE))}"), function)


@pytest.mark.parametrize(
    "query",
    ["jsonp=", "jsonp=alert(1)", "jsonp=a%20b", "jsonp=%3Cscript%3E", "jsonp=a&jsonp=b", "jsonp=" + "x" * 65,
     "jsonp=caf%C3%A9", "jsonp=a%0A", "jsonp=a%2F%2F"],
)  # fmt: skip
def test_anything_else_is_no_name(server: Server, query: str) -> None:
    response = get(server, f"{query}&message={quote(json.dumps([HANDSHAKE]))}")
    assert response.status == 400
    assert "script" not in (response.header("Content-Type") or "")


@pytest.mark.parametrize("query", ["", "callback=cb&"])
def test_without_a_name_the_function_is_that_of_the_specification(server: Server, query: str) -> None:
    (reply,) = said(get(server, f"{query}message={quote(json.dumps([HANDSHAKE]))}"), "jsonpcallback")
    assert reply["successful"] is True
    assert get(server, query).status == 400


@pytest.mark.parametrize(
    "message", [None, "", "[]", "null", "7", "{", "[1", quote('[{"channel":"/meta/handshake"},{}]')]
)
def test_without_messages_it_is_refused(server: Server, message: str | None) -> None:
    assert get(server, "jsonp=cb" if message is None else f"jsonp=cb&message={message}").status == 400


def test_the_message_may_repeat(server: Server) -> None:
    query = "&".join(f"message={quote(json.dumps({'channel': '/a', 'id': number}))}" for number in (1, 2))
    assert [reply["id"] for reply in said(get(server, f"jsonp=cb&{query}"))] == ["1", "2"]


def test_only_connects_carry_messages(server: Server, channel: str) -> None:
    client = Client(server).start()
    assert call(client, client.message("/meta/subscribe", subscription=channel))[-1]["successful"] is True
    answer = call(client, client.message(channel, data=1))
    assert [message["successful"] for message in answer] == [True]
    assert data(call(client, client.message("/meta/connect", connectionType="callback-polling"))) == [1]


def test_a_connect_is_held_and_tells_the_advice_of_the_new_transport(server: Server, channel: str) -> None:
    client, other = Client(server).start(), Client(server).start()
    client.subscribe(channel)
    connect = quote(json.dumps([client.message("/meta/connect", connectionType="callback-polling")]))
    connection = Connection(server)
    connection.request("GET", f"/cometd?jsonp=cb&message={connect}", b"", {"Cookie": f"BAYEUX_BROWSER={client.cookie}"})
    until(lambda: held(server) == 1)
    other.publish(channel, 1)
    message, reply = said(connection.response())
    assert message["data"] == 1
    assert reply["advice"]["timeout"] == 30000


def test_what_ends_a_line_of_javascript_is_escaped(server: Server, channel: str) -> None:
    client = Client(server).start()
    client.subscribe(channel)
    text = "a\u2028b\u2029c</script>"
    call(client, client.message(channel, data=text))
    query = f"jsonp=cb&message={quote(json.dumps([client.message('/meta/connect')]))}"
    response = get(server, query, cookie=client.cookie)
    assert "\u2028" not in response.body.decode()
    assert "\u2029" not in response.body.decode()
    assert data(said(response)) == [text]


def test_a_session_is_bound_to_its_cookie_here_too(server: Server) -> None:
    client = Client(server).start()
    client.cookie = "another"
    (reply,) = call(client, client.message("/meta/connect"))
    assert reply["error"] == "402::session_unknown"


def test_the_parameter_and_its_length_are_settings(serve: Serve) -> None:
    server = serve(
        "bayeux.transports=long-polling,callback-polling",
        "bayeux.callback_parameter=callback",
        "bayeux.callback_parameter_max_length=3",
    )
    message = quote(json.dumps([HANDSHAKE]))
    said(get(server, f"callback=abc&message={message}"), "abc")
    assert get(server, f"callback=abcd&message={message}").status == 400
    assert get(server, f"jsonp=abc&message={message}").status == 400
