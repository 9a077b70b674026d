"""Long-polling, the request matrix: every form of body, and what is no request."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from tests.functional.conftest import Serve
from tests.functional.wire import Connection, Response, chunked, figures
from tests.server_process import Server

HANDSHAKE = {"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"], "id": "1"}
TEXT = json.dumps([HANDSHAKE])
FORM = "application/x-www-form-urlencoded"


def post(server: Server, body: bytes, content_type: str | None = "application/json", path: str = "/cometd") -> Response:
    headers = [] if content_type is None else [("Content-Type", content_type)]
    with Connection(server) as connection:
        connection.request("POST", path, body, headers)
        return connection.response()


def assert_shaken(response: Response) -> None:
    (reply,) = response.messages
    assert (reply["channel"], reply["id"], reply["successful"]) == ("/meta/handshake", "1", True)


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json;charset=UTF-8",
        "application/json; charset=utf-8",
        'application/json; charset="UTF-8"',
        "APPLICATION/JSON",
        "text/json",
        "text/plain",
        "text/plain;charset=UTF-8",
        "application/octet-stream",
        FORM,
        "no media type at all",
        "",
        None,
    ],
)
def test_json_is_taken_under_any_media_type(server: Server, content_type: str | None) -> None:
    assert_shaken(post(server, TEXT.encode(), content_type))


@pytest.mark.parametrize(
    "charset", ["iso-8859-1", "ISO-8859-15", "us-ascii", "utf-16", "utf-16le", "utf-32", "windows-1252"]
)
def test_other_charsets_are_decoded(server: Server, charset: str) -> None:
    assert_shaken(post(server, TEXT.encode(charset), f"application/json;charset={charset}"))


def test_a_body_is_decoded_by_its_charset_and_not_by_luck(server: Server) -> None:
    message = {"channel": "/meta/subscribe", "subscription": "/é", "id": "1"}
    body = json.dumps([message], ensure_ascii=False).encode("iso-8859-1")
    assert post(server, body, "text/json;charset=ISO-8859-1").messages[0]["subscription"] == "/é"
    assert post(server, body).status == 400


@pytest.mark.parametrize(
    "charset", ["klingon", "punycode", "idna", "hex", "rot13", "zlib", "unicode_escape", "raw_unicode_escape"]
)
def test_an_unknown_charset_is_not_guessed(server: Server, charset: str) -> None:
    assert post(server, TEXT.encode(), f"application/json;charset={charset}").status == 415


@pytest.mark.parametrize(
    "body",
    [
        f"message={quote(TEXT)}",
        f"message={quote_plus(TEXT)}",
        f"message={quote(json.dumps(HANDSHAKE))}",
        f"other=1&message={quote(TEXT)}&more=",
    ],
    ids=["array", "plus for space", "object", "among others"],
)
def test_a_form_carries_messages(server: Server, body: str) -> None:
    assert_shaken(post(server, body.encode(), FORM))
    assert_shaken(post(server, body.encode(), f"{FORM};charset=UTF-8"))


def test_a_form_may_repeat_its_field(server: Server) -> None:
    def unknown(number: str) -> str:
        return quote(json.dumps({"channel": "/a", "id": number}))

    body = f"message={unknown('1')}&message=%5B{unknown('2')},{unknown('3')}%5D"
    replies = post(server, body.encode(), FORM).messages
    assert [reply["id"] for reply in replies] == ["1", "2", "3"]
    assert all(reply["error"] == "402::session_unknown" for reply in replies)


def test_a_form_comes_as_plain_text_too(server: Server) -> None:
    """So do Faye's cross-origin requests, to need no preflight."""
    assert_shaken(post(server, f"message={quote(TEXT)}".encode(), "text/plain"))
    assert_shaken(post(server, f"message={quote(TEXT)}".encode(), None))


@pytest.mark.parametrize(
    "body", [b"message=", b"message=%5B%5D", b"message=null", b"message=%7B", b"other=1", b"message=%FF", b"&&"]
)
def test_a_form_without_messages_is_refused(server: Server, body: bytes) -> None:
    assert post(server, body, FORM).status == 400


def test_a_bare_object_is_a_batch_of_one(server: Server) -> None:
    response = post(server, json.dumps(HANDSHAKE).encode())
    assert_shaken(response)
    assert response.body.startswith(b"[")


def test_white_space_around_the_messages_is_no_fault(server: Server) -> None:
    assert_shaken(post(server, b" \r\n\t" + TEXT.encode() + b"\n \n"))


@pytest.mark.parametrize(
    "path",
    [
        "/cometd",
        "/cometd/",
        "/cometd/handshake",
        "/cometd/connect",
        "/cometd/disconnect",
        "/cometd/subscribe",
        "/cometd/unsubscribe",
        "/cometd/any/thing/deeper/",
        "/cometd/50.0",
        "/cometd?query=1&jsonp=cb",
        "/cometd/?",
        "/cometd/handshake?a=b#c",
        "/cometd/a%20b",
    ],
)
def test_one_endpoint_answers_below_its_path(server: Server, path: str) -> None:
    assert_shaken(post(server, TEXT.encode(), path=path))


@pytest.mark.parametrize("path", ["/cometdx", "/Cometd", "/comet", "/x/cometd"])
def test_other_paths_are_not_bayeux(server: Server, path: str) -> None:
    assert post(server, TEXT.encode(), path=path).status in (404, 405)


def test_the_path_is_a_setting(serve: Serve) -> None:
    server = serve("bayeux.path=/bayeux/v1")
    assert server.url.endswith("/bayeux/v1")
    assert_shaken(post(server, TEXT.encode(), path="/bayeux/v1/handshake"))
    assert post(server, TEXT.encode()).status in (404, 405)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"[]",
        b"null",
        b"{",
        b"[{]",
        b"7",
        b"1.5",
        b"true",
        b'"text"',
        TEXT.encode() + b"x",
        TEXT.encode() + TEXT.encode(),
        TEXT.encode("utf-8-sig"),
        TEXT.encode("utf-16"),
        TEXT.replace("1.0", "\\ud800").encode(),
        b'[{"channel":"/\xff\xfe"}]',
        b"[NaN]",
        b"[{'channel':'/a'}]",
        b"[{}]\x00",
        b"[" * 100,
    ],
)
def test_what_is_no_list_of_messages_is_refused(server: Server, body: bytes) -> None:
    response = post(server, body)
    assert response.status == 400
    assert "json" not in (response.header("Content-Type") or "")


@pytest.mark.parametrize("element", [1, "x", None, True, [], [[]], 1.5])
def test_an_element_that_is_no_object_fails_alone(server: Server, element: Any) -> None:
    first, second = post(server, json.dumps([element, {"channel": "/a", "id": "2"}]).encode()).messages
    assert first["successful"] is False
    assert first["error"].startswith("400:")
    assert second["error"] == "402::session_unknown"


def test_a_handshake_in_a_batch_is_refused_in_either_place(server: Server) -> None:
    other = {"channel": "/meta/connect", "clientId": "x", "id": "2"}
    for batch in ([HANDSHAKE, other], [other, HANDSHAKE], [HANDSHAKE, HANDSHAKE]):
        assert post(server, json.dumps(batch).encode()).status == 400


def test_a_bayeux_error_is_a_200(server: Server) -> None:
    (reply,) = post(server, b'{"channel":"/meta/connect","clientId":"nobody","id":"7"}').messages
    assert reply == {
        "channel": "/meta/connect",
        "id": "7",
        "successful": False,
        "error": "402::session_unknown",
        "advice": {"reconnect": "handshake", "interval": 0},
    }


@pytest.mark.parametrize(
    ("sent", "echoed"), [("abc", "abc"), (10, "10"), (True, "true"), ("007", "007"), (2**62, str(2**62))]
)
def test_the_id_comes_back_as_a_string(server: Server, sent: Any, echoed: str) -> None:
    (reply,) = post(server, json.dumps([{**HANDSHAKE, "id": sent}]).encode()).messages
    assert reply["id"] == echoed


def test_without_an_id_the_reply_has_none(server: Server) -> None:
    (reply,) = post(server, b'{"channel":"/meta/handshake"}').messages
    assert reply["successful"] is True
    assert "id" not in reply


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD", "PATCH", "TRACE"])
def test_other_methods_name_no_transport(server: Server, method: str) -> None:
    with Connection(server) as connection:
        connection.request(method, "/cometd")
        response = connection.response(to_head=method == "HEAD")
    assert response.status == 400
    assert method == "HEAD" or response.body == b"Unknown Bayeux Transport"


def test_options_is_answered_empty(server: Server) -> None:
    with Connection(server) as connection:
        connection.request("OPTIONS", "/cometd")
        response = connection.response()
    assert (response.status, response.body) == (200, b"")


def test_without_long_polling_a_post_names_no_transport(serve: Serve) -> None:
    server = serve("bayeux.transports=websocket")
    assert post(server, TEXT.encode()).status == 400


def test_the_answer_is_json_that_nobody_stores(server: Server) -> None:
    response = post(server, TEXT.encode())
    assert (response.header("Content-Type") or "").partition(";")[0] == "application/json"
    assert response.header("Cache-Control") == "no-cache, no-store"
    assert response.header("Content-Length") == str(len(response.body))


def test_the_handshake_reply_is_complete(server: Server) -> None:
    (reply,) = post(server, TEXT.encode()).messages
    client_id = reply.pop("clientId")
    assert client_id.replace("-", "").isalnum()  # a hyphen stands before the tag of a node
    assert client_id == client_id.lower()
    assert 26 <= len(client_id) <= 64
    assert reply == {
        "channel": "/meta/handshake",
        "id": "1",
        "successful": True,
        "version": "1.0",
        "minimumVersion": "1.0",
        "supportedConnectionTypes": ["websocket", "long-polling", "callback-polling"],
        "advice": {"reconnect": "retry", "interval": 0, "timeout": 30000},
    }


# Sizes


def padded(size: int) -> bytes:
    body = json.dumps([{**HANDSHAKE, "pad": ""}]).encode()
    return body.replace(b'"pad": ""', b'"pad": "' + b"x" * (size - len(body)) + b'"')


def test_a_body_may_be_as_long_as_the_limit(server: Server) -> None:
    assert_shaken(post(server, padded(65536)))
    assert post(server, padded(65537)).status == 413


def test_a_longer_body_is_refused_before_it_is_sent(server: Server) -> None:
    with Connection(server) as connection:
        connection.request("POST", "/cometd", b"", [("Content-Length", "10000000000")])
        assert connection.response().status == 413


def test_a_longer_body_in_chunks_is_refused_when_it_passes_the_limit(server: Server) -> None:
    with Connection(server) as connection:
        connection.request("POST", "/cometd", b"", [("Transfer-Encoding", "chunked")])
        for _ in range(70):
            connection.send(b"400\r\n" + b" " * 1024 + b"\r\n")
        assert connection.response().status == 413


def test_the_limit_of_the_body_is_a_setting(serve: Serve) -> None:
    server = serve("bayeux.max_message_bytes=1000")
    assert_shaken(post(server, padded(1000)))
    assert post(server, padded(1001)).status == 413
    form = f"message={quote(padded(999).decode())}".encode()
    assert post(server, form, FORM).status == 413
    assert figures(server)['crewel_refused_payloads_total{fault="too_large"}'] == 2


def test_chunks_make_one_body(server: Server) -> None:
    with Connection(server) as connection:
        body = TEXT.encode()
        connection.request("POST", "/cometd", b"", [("Transfer-Encoding", "chunked")])
        connection.send(chunked(*(body[start : start + 7] for start in range(0, len(body), 7))))
        assert_shaken(connection.response())
        assert_shaken(connection.post("/cometd", [HANDSHAKE]))


def test_a_body_may_come_byte_by_byte(server: Server) -> None:
    with Connection(server) as connection:
        connection.request("POST", "/cometd", b"", [("Content-Length", str(len(TEXT)))])
        for byte in TEXT.encode():
            connection.send(bytes([byte]))
        assert_shaken(connection.response())


def test_the_batch_limit_is_a_setting(serve: Serve) -> None:
    server = serve("bayeux.max_batch_messages=3")
    message = {"channel": "/a"}
    assert len(post(server, json.dumps([message] * 3).encode()).messages) == 3
    assert post(server, json.dumps([message] * 4).encode()).status == 400
    form = "&".join(f"message={quote(json.dumps([message] * 2))}" for _ in range(2))
    assert post(server, form.encode(), FORM).status == 400


@pytest.mark.parametrize(("open_", "close"), [("[", "]"), ('{"a":', "}")])
def test_the_depth_limit_counts_all_levels(serve: Serve, open_: str, close: str) -> None:
    server = serve("bayeux.max_depth=10")

    def nested(depth: int) -> bytes:
        inner = depth - 2
        return f'[{{"channel":"/a","data":{open_ * inner}1{close * inner}}}]'.encode()

    assert post(server, nested(10)).messages[0]["error"] == "402::session_unknown"
    assert post(server, nested(11)).status == 400
    assert post(server, nested(5000)).status == 400


def test_a_refused_request_says_which_of_its_messages_is_to_blame(server: Server) -> None:
    """By its place, because the refusal of a whole request has no replies."""
    fine, deep = '{"channel":"/a","data":1}', '{"channel":"/a","data":%s}' % ("[" * 63 + "]" * 63)
    half = r'{"channel":"/a","ext":{"x":"\ud83d"}}'
    for body, text in (
        (f"[{fine},{deep}]", "message 2 of 2: JSON nested too deeply (deeper than bayeux.max_depth, which is 64)"),
        (
            f"[{fine}, {half},{half}]",
            "message 2 of 3: not a JSON object or array of objects in UTF-8 (half of a surrogate pair, character 56)",
        ),
        (
            half,
            "message 1 of 1: not a JSON object or array of objects in UTF-8 (half of a surrogate pair, character 28)",
        ),
        (f"[{half},", "not a JSON object or array of objects in UTF-8 (half of a surrogate pair, character 29)"),
        (
            "[" + ",".join([fine] * 1001) + "]",
            "too many messages in one batch (1001; bayeux.max_batch_messages is 1000)",
        ),
    ):
        response = post(server, body.encode())
        assert (response.status, response.body.decode()) == (400, text)
        assert response.header("Crewel-Refused") in ("too_deep", "malformed", "too_many")
        assert response.header("Access-Control-Expose-Headers") == "Crewel-Refused"


# Compressed bodies


def test_chunks_that_are_none_are_refused(server: Server) -> None:
    with Connection(server) as connection:
        connection.request("POST", "/cometd", b"five\r\nhello\r\n0\r\n\r\n", [("Transfer-Encoding", "chunked")])
        assert connection.response().status == 400
        connection.rest()


def test_an_unknown_compression_is_refused(server: Server) -> None:
    with Connection(server) as connection:
        connection.request("POST", "/cometd", TEXT.encode()[::-1], {"Content-Encoding": "middle-out"})
        assert connection.response().status in (400, 415)
