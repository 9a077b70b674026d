"""One origin rule for POST, JSONP and upgrade."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from tests.functional.bayeux import Client
from tests.functional.conftest import Serve
from tests.functional.frames import Refused, Socket
from tests.functional.wire import Connection, Response, figures
from tests.server_process import Server

MESSAGE = json.dumps([{"channel": "/meta/handshake", "id": "1"}])
ALL = "bayeux.transports=websocket,long-polling,callback-polling"
LISTED = (ALL, "http.allowed_origins=https://app.example.org,http://localhost:3000")


def post(server: Server, headers: dict[str, str], body: bytes = MESSAGE.encode()) -> Response:
    with Connection(server) as connection:
        connection.request("POST", "/cometd", body, headers)
        return connection.response()


def statuses(server: Server, headers: dict[str, str]) -> set[int]:
    """How the three transports answer: one rule, so one status (200 for the upgrade that is taken)."""
    with Connection(server) as connection:
        jsonp = connection.get(f"/cometd?jsonp=cb&message={quote(MESSAGE)}", headers).status
    try:
        Socket(server, headers=headers)
        upgrade = 200
    except Refused as refused:
        upgrade = refused.response.status
    return {post(server, headers).status, jsonp, upgrade}


def own(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


def test_without_an_origin_all_is_well(server: Server) -> None:
    assert statuses(server, {}) == {200}
    for site in ("same-origin", "same-site", "none"):
        assert statuses(server, {"Sec-Fetch-Site": site}) == {200}


def test_a_cross_site_request_without_an_origin_is_refused(server: Server) -> None:
    """So is a script tag for JSONP: no browser sends its origin."""
    assert statuses(server, {"Sec-Fetch-Site": "cross-site"}) == {403}


def test_the_own_origin_is_the_host_that_was_asked_for(shared: Serve) -> None:
    server = shared(ALL, "http.allowed_hosts=chat.example")
    assert statuses(server, {"Origin": own(server)}) == {200}
    assert statuses(server, {"Origin": "http://chat.example", "Host": "chat.example"}) == {200}
    assert statuses(server, {"Origin": "http://CHAT.example:80", "Host": "chat.example"}) == {200}
    assert statuses(server, {"Origin": "http://chat.example", "Host": "chat.example:80"}) == {200}


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "", "http://127.0.0.1", "https://127.0.0.1:{port}", "http://127.0.0.1:{port}.evil.example",
     "file://", "http://127.0.0.1:{port}@evil.example", "http://127.0.0.1:99999", "http://[::1", "*", "127.0.0.1:{port}"],
)  # fmt: skip
def test_other_origins_are_refused(server: Server, origin: str) -> None:
    assert statuses(server, {"Origin": origin.format(port=server.port)}) == {403}


def test_a_refused_origin_gets_no_cors_headers_and_no_parsing(server: Server) -> None:
    before = figures(server).get('crewel_refused_payloads_total{fault="origin"}', 0)
    malformed = figures(server).get('crewel_refused_payloads_total{fault="malformed"}', 0)
    response = post(server, {"Origin": "https://evil.example"}, b"{ this is no JSON")
    assert response.status == 403
    assert response.header("Vary") == "Origin"
    assert response.header("Access-Control-Allow-Origin") is None
    after = figures(server)
    assert after['crewel_refused_payloads_total{fault="origin"}'] == before + 1
    assert after.get('crewel_refused_payloads_total{fault="malformed"}', 0) == malformed


def test_a_refused_origin_makes_no_session(server: Server) -> None:
    before = figures(server)["crewel_handshakes_total"]
    assert statuses(server, {"Origin": "https://evil.example"}) == {403}
    assert figures(server)["crewel_handshakes_total"] == before


def test_listed_origins_may(shared: Serve) -> None:
    server = shared(*LISTED)
    for origin in ("https://app.example.org", "http://localhost:3000", "https://APP.example.org:443", own(server)):
        assert statuses(server, {"Origin": origin}) == {200}
        assert statuses(server, {"Origin": origin, "Sec-Fetch-Site": "cross-site"}) == {200}
    for origin in ("http://app.example.org", "https://app.example.org:444", "http://localhost", "null"):
        assert statuses(server, {"Origin": origin}) == {403}


def test_an_allowed_origin_is_echoed_with_credentials(shared: Serve) -> None:
    server = shared(*LISTED)
    for response in (
        post(server, {"Origin": "https://app.example.org"}),
        post(server, {"Origin": "https://app.example.org"}, b"{"),
    ):
        assert response.header("Access-Control-Allow-Origin") == "https://app.example.org"
        assert response.header("Access-Control-Allow-Credentials") == "true"
        assert response.header("Vary") == "Origin"


def test_without_an_origin_there_are_no_cors_headers(shared: Serve) -> None:
    response = post(shared(*LISTED), {})
    assert not [name for name, _ in response.headers if name.lower().startswith("access-control")]


def test_a_connect_that_was_held_has_the_headers_too(shared: Serve) -> None:
    client = Client(shared(*LISTED), headers={"Origin": "https://app.example.org"}).start()
    response = client.ask_connect(advice={"timeout": 100}).response()
    assert response.header("Access-Control-Allow-Origin") == "https://app.example.org"


def test_a_replaced_connect_has_the_headers_too(shared: Serve) -> None:
    """Else the page sees a failure of the network, and not the status."""
    client = Client(shared(*LISTED), headers={"Origin": "https://app.example.org"}).start()
    old = client.hold()
    client.drop_polling()
    client.ask_connect()
    response = old.response()
    assert response.status == 500
    assert response.header("Access-Control-Allow-Origin") == "https://app.example.org"


@pytest.mark.parametrize("origin", ["https://anybody.example", "null", "http://[::1"])
def test_everybody_may_if_the_list_says_so(shared: Serve, origin: str) -> None:
    server = shared(ALL, "http.allowed_origins=*")
    assert statuses(server, {"Origin": origin, "Sec-Fetch-Site": "cross-site"}) == {200}
    assert statuses(server, {"Sec-Fetch-Site": "cross-site"}) == {200}
    assert post(server, {"Origin": origin}).header("Access-Control-Allow-Origin") == origin


# Preflight


def preflight(server: Server, origin: str, **headers: str) -> Response:
    with Connection(server) as connection:
        connection.request(
            "OPTIONS", "/cometd/connect", b"", {"Origin": origin, "Access-Control-Request-Method": "POST", **headers}
        )
        return connection.response()


def test_a_preflight_tells_what_a_page_may_send(shared: Serve) -> None:
    response = preflight(shared(*LISTED), "https://app.example.org")
    assert (response.status, response.body) == (200, b"")
    assert response.header("Access-Control-Allow-Origin") == "https://app.example.org"
    assert response.header("Access-Control-Allow-Credentials") == "true"
    assert "POST" in (response.header("Access-Control-Allow-Methods") or "").split(",")
    assert "Content-Type" in (response.header("Access-Control-Allow-Headers") or "")
    assert response.header("Access-Control-Max-Age") == "1800"
    assert response.header("Vary") == "Origin"


def test_a_preflight_grants_the_headers_that_were_asked_for(shared: Serve) -> None:
    response = preflight(
        shared(*LISTED), "https://app.example.org", **{"Access-Control-Request-Headers": "content-type,authorization"}
    )
    assert response.header("Access-Control-Allow-Headers") == "content-type,authorization"


def test_a_preflight_of_a_foreign_page_is_refused(shared: Serve) -> None:
    response = preflight(shared(*LISTED), "https://evil.example")
    assert response.status == 403
    assert response.header("Access-Control-Allow-Origin") is None


# Paths that there are not


def asked(server: Server, method: str, path: str, **headers: str) -> Response:
    with Connection(server) as connection:
        connection.request(method, path, b"[]" if method == "POST" else b"", headers)
        return connection.response()


@pytest.mark.parametrize(
    ("method", "path", "status"), [("POST", "/bayeux", 404), ("POST", "/", 405), ("GET", "/extensions/none.js", 404)]
)
def test_a_page_of_an_allowed_origin_can_read_that_there_is_no_such_path(
    shared: Serve, method: str, path: str, status: int
) -> None:
    """Else its browser tells it of a failure of the network."""
    server = shared(*LISTED)
    response = asked(server, method, path, Origin="https://app.example.org")
    assert response.status == status
    assert response.header("Access-Control-Allow-Origin") == "https://app.example.org"
    assert response.header("Access-Control-Allow-Credentials") == "true"
    assert (response.header("Allow") is not None) is (status == 405)
    for other in (
        asked(server, method, path, Origin="https://evil.example"),
        asked(server, method, path),
        asked(server, method, path, **{"Sec-Fetch-Site": "cross-site"}),
    ):
        assert (other.status, other.header("Access-Control-Allow-Origin")) == (status, None)


@pytest.mark.parametrize(
    ("path", "origin", "status"),
    [
        ("/bayeux", "https://app.example.org", 200),
        ("/", "https://app.example.org", 200),
        ("/bayeux", "https://evil.example", 404),
        ("/", "https://evil.example", 405),
        ("/api/publish", "https://app.example.org", 405),
    ],
)
def test_a_preflight_for_a_path_that_there_is_not_lets_the_request_find_out(
    shared: Serve, path: str, origin: str, status: int
) -> None:
    """What is served is not for pages of other origins, so a preflight for it is refused as before."""
    response = asked(shared(*LISTED), "OPTIONS", path, Origin=origin, **{"Access-Control-Request-Method": "POST"})
    assert response.status == status
    assert (response.header("Access-Control-Allow-Methods") is not None) is (status == 200)


def test_a_client_with_the_wrong_address_is_logged_once_with_the_right_one(serve: Serve) -> None:
    server = serve("bayeux.path=/chat-server")
    for _ in range(2):
        asked(server, "POST", "/cometd?token=of-somebody")
        asked(server, "GET", "/favicon.ico")
        asked(server, "GET", "/socket", Upgrade="websocket", Connection="Upgrade")
    server.close()  # all that it has logged is read
    assert len([line for line in server.stderr.splitlines() if "/socket" in line]) == 1
    (line,) = (line for line in server.stderr.splitlines() if "'/cometd'" in line)
    assert "Bayeux is served at /chat-server" in line
    assert '"level":"info"' in line
    assert "favicon" not in server.stderr
    assert "of-somebody" not in server.stderr


# Behind proxies


def test_the_public_url_and_an_address_of_loopback_are_the_own_origin(serve: Serve) -> None:
    """The proxies of the guide refuse `/admin/`, so operators open its page at the server's own address."""
    server = serve(ALL, "http.public_url=https://chat.example.org/")
    assert statuses(server, {"Origin": "https://chat.example.org"}) == {200}
    assert statuses(server, {"Origin": own(server)}) == {200}
    assert statuses(server, {"Origin": "http://127.0.0.1:1"}) == {403}
    assert statuses(server, {"Origin": "http://chat.example.org", "Host": "chat.example.org"}) == {403}
    assert statuses(server, {"Origin": "http://evil.example", "Host": "evil.example"}) == {421}


def test_a_trusted_proxy_tells_scheme_and_host(serve: Serve) -> None:
    server = serve(ALL, "http.trusted_proxies=127.0.0.0/8")
    proxied = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "chat.example.org", "X-Forwarded-For": "198.51.100.7"}
    assert statuses(server, {**proxied, "Origin": "https://chat.example.org"}) == {200}
    assert statuses(server, {**proxied, "Origin": "http://chat.example.org"}) == {403}
    assert statuses(server, {**proxied, "Origin": own(server)}) == {403}


def test_nobody_else_is_believed(serve: Serve) -> None:
    server = serve(ALL, "http.trusted_proxies=10.0.0.0/8")
    forged = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example", "Origin": "https://evil.example"}
    assert statuses(server, forged) == {403}
    assert statuses(server, {**forged, "Origin": own(server)}) == {200}


def test_a_refused_origin_is_logged_once_with_what_to_set(serve: Serve) -> None:
    server = serve(ALL)
    for path in ("/cometd", "/cometd?token=of-somebody"):
        with Connection(server) as connection:
            for _ in range(2):
                connection.request("POST", path, MESSAGE.encode(), {"Origin": "https://app.example.org"})
                assert connection.response().status == 403
    server.close()  # all that it has logged is read
    (line,) = (line for line in server.stderr.splitlines() if "app.example.org" in line)
    assert own(server) in line
    assert "http.public_url" in line
    assert "of-somebody" not in server.stderr
