"""The browser cookie, what it binds, and several sessions of one browser."""

from __future__ import annotations

import time

import pytest

from tests.functional.bayeux import Client, Message, data, held, in_time
from tests.functional.conftest import Serve, one_lane
from tests.functional.frames import SocketClient
from tests.functional.wire import Connection, figures, until
from tests.server_process import Server

HANDSHAKE = {"channel": "/meta/handshake", "id": "1"}


def set_cookies(server: Server, **headers: str) -> list[str]:
    with Connection(server) as connection:
        return connection.post("/cometd", [HANDSHAKE], headers).all("Set-Cookie")


# The cookie


def test_a_handshake_sets_the_cookie(server: Server) -> None:
    (cookie,) = set_cookies(server)
    value, *attributes = cookie.split("; ")
    name, _, secret = value.partition("=")
    assert name == "BAYEUX_BROWSER"
    assert len(secret) >= 16
    assert secret.isalnum()
    assert attributes == ["Path=/", "HttpOnly"]


def test_each_browser_gets_another_cookie(server: Server) -> None:
    assert len({set_cookies(server)[0] for _ in range(10)}) == 10


def test_a_cookie_that_came_is_kept_and_not_set_again(server: Server) -> None:
    assert set_cookies(server, Cookie="BAYEUX_BROWSER=mine") == []
    assert set_cookies(server, Cookie="other=1; BAYEUX_BROWSER=mine; more=2") == []


@pytest.mark.parametrize("value", ["", "x" * 65, "a,b", "<script>", "a/b", "é"])
def test_a_value_that_the_server_would_not_set_is_not_adopted(server: Server, value: str) -> None:
    (cookie,) = set_cookies(server, Cookie=f"BAYEUX_BROWSER={value}")
    assert not cookie.startswith(f"BAYEUX_BROWSER={value};")


@pytest.mark.parametrize("broken", ["", ";", "=", "BAYEUX_BROWSER", "a=b=c;;; ,", "$Version=1; a"])
def test_a_broken_cookie_header_is_none(server: Server, broken: str) -> None:
    assert len(set_cookies(server, Cookie=broken)) == 1


def test_only_a_successful_handshake_sets_the_cookie(server: Server) -> None:
    with Connection(server) as connection:
        for refused in ({"channel": "/meta/connect", "clientId": "x"}, {**HANDSHAKE, "id": "not allowed"}):
            response = connection.post("/cometd", [refused])
            assert response.messages[0]["successful"] is False
            assert response.all("Set-Cookie") == []


ALL = {
    "bayeux.cookie_domain=example.org": "Domain=example.org",
    "bayeux.cookie_path=/app": "Path=/app",
    "bayeux.cookie_max_age=0": "Max-Age=0",
    "bayeux.cookie_http_only=true": "HttpOnly",
    "bayeux.cookie_secure=true": "Secure",
    "bayeux.cookie_same_site=none": "SameSite=None",
    "bayeux.cookie_partitioned=true": "Partitioned",
}


def test_the_attributes_come_in_their_order(serve: Serve) -> None:
    server = serve("bayeux.cookie_name=OTHER", "http.trusted_proxies=127.0.0.1", *ALL)
    (cookie,) = set_cookies(server, **{"X-Forwarded-Proto": "https"})
    assert cookie.startswith("OTHER=")
    assert cookie.split("; ")[1:] == list(ALL.values())


def test_secure_is_left_out_where_it_would_keep_the_cookie_away(serve: Serve) -> None:
    server = serve("bayeux.cookie_secure=true", "bayeux.cookie_http_only=false", "bayeux.cookie_same_site=lax")
    (cookie,) = set_cookies(server, **{"X-Forwarded-Proto": "https"})
    assert cookie.split("; ")[1:] == ["Path=/", "SameSite=Lax"]


# What it binds


def assert_unknown(reply: Message) -> None:
    assert reply["error"] == "402::session_unknown"


@pytest.mark.parametrize("cookie", [None, "another"])
def test_a_session_is_unknown_without_its_cookie(server: Server, cookie: str | None) -> None:
    client = Client(server).start()
    thief = Client(server, cookie=cookie)
    thief.id = client.id
    (reply,) = thief.connect()
    assert_unknown(reply)
    assert reply["advice"] == {"reconnect": "handshake", "interval": 0}
    for channel in ("/meta/subscribe", "/meta/unsubscribe", "/meta/disconnect", "/a"):
        (reply,) = thief.send(thief.message(channel, subscription="/a", data=1))
        assert_unknown(reply)
        assert "advice" not in reply
    assert client.connect(advice={"timeout": 0})[-1]["successful"] is True


def test_a_stolen_connect_does_not_replace_the_held_one(server: Server) -> None:
    client = Client(server).start()
    polling = client.hold()
    thief = Client(server, cookie="another")
    thief.id = client.id
    assert_unknown(thief.connect()[0])
    assert held(server) == 1
    assert not polling.has_input()


@pytest.mark.parametrize("is_by_socket", [True, False], ids=["websocket", "long-polling"])
@pytest.mark.parametrize("made_by_socket", [True, False], ids=["made by websocket", "made by long-polling"])
def test_another_browser_may_not_use_a_session_on_any_transport(
    server: Server, *, made_by_socket: bool, is_by_socket: bool
) -> None:
    own: Client | SocketClient
    if made_by_socket:
        own = SocketClient(server, headers={"Cookie": "BAYEUX_BROWSER=mine"}).start()
    else:
        own = Client(server, cookie="mine").start()
    assert own.id is not None
    for cookie, is_known in (("another", False), ("mine", True), ("another", False)):
        fields = {"subscription": "/a", "connectionType": "websocket", "data": 1, "advice": {"timeout": 0}}
        for channel in ("/meta/connect", "/meta/subscribe", "/a"):
            if is_by_socket:
                socket = SocketClient(server, headers={"Cookie": f"BAYEUX_BROWSER={cookie}"})
                socket.id = own.id
                reply = socket.call(channel, **fields)
            else:
                client = Client(server, cookie=cookie)
                client.id = own.id
                (reply,) = (each for each in client.send(client.message(channel, **fields)) if "successful" in each)
            assert reply["successful"] is is_known, (cookie, reply)
            if not is_known:
                assert_unknown(reply)
                is_connect = channel == "/meta/connect"
                assert reply.get("advice") == ({"reconnect": "handshake", "interval": 0} if is_connect else None)


def test_a_socket_without_a_cookie_may_use_a_session_of_long_polling(server: Server) -> None:
    """Clients that shake hands over HTTP and send no cookie with the upgrade (aiocometd, Faye) need this."""
    client = Client(server).start()
    socket = SocketClient(server)
    socket.id = client.id
    assert socket.connect(advice={"timeout": 0})["successful"] is True


def test_a_socket_with_a_cookie_binds_a_session_that_was_made_without_one(server: Server) -> None:
    first = SocketClient(server).start()
    for cookie, is_known in (("mine", True), ("another", False)):
        socket = SocketClient(server, headers={"Cookie": f"BAYEUX_BROWSER={cookie}"})
        socket.id = first.id
        assert socket.connect(advice={"timeout": 0})["successful"] is is_known


def test_the_client_id_alone_does_if_the_server_trusts_it(serve: Serve) -> None:
    server = serve(ALL_PAGES, "bayeux.trust_client_session=true")
    client = Client(server).start()
    for cookie in (None, "another"):
        other = Client(server, cookie=cookie)
        other.id = client.id
        assert other.connect(advice={"timeout": 0})[-1]["successful"] is True
    of_a_page = page(server, PAGE, "cross-site").start()
    for origin in (PAGE, OTHER_PAGE):
        assert may_use(server, of_a_page, page(server, origin, "cross-site"))
        assert may_use(server, of_a_page, SocketClient(server, headers={"Origin": origin}))


def test_a_handshake_makes_a_new_session_whatever_it_carries(server: Server) -> None:
    client = Client(server).start()
    old = client.id
    client.handshake(clientId=old)
    assert client.id != old
    second = Client(server, cookie=client.cookie)
    second.id = old
    assert second.connect(advice={"timeout": 0})[-1]["successful"] is True


# Pages of other sites


PAGE, OTHER_PAGE = "http://app.example.net", "http://other.example.net"
ALL_PAGES = "http.allowed_origins=*"


def page(server: Server, origin: str, site: str | None = None, **options: str) -> Client:
    """A page in a browser that keeps the cookie of the server from pages of other sites."""
    fetched = {} if site is None else {"Sec-Fetch-Site": site}
    return Client(server, headers={"Origin": origin, **fetched}, **options)


def may_use(server: Server, owner: Client | SocketClient, other: Client | SocketClient) -> bool:
    other.id = owner.id
    reply = other.connect(advice={"timeout": 0})
    reply = reply if isinstance(reply, dict) else reply[-1]
    if not reply["successful"]:
        assert_unknown(reply)
    return bool(reply["successful"])


@pytest.mark.parametrize(
    ("sets", "origin", "site"),
    [
        ((), PAGE, None),
        ((), PAGE, "cross-site"),
        ((), "http://localhost", None),
        ((), "capacitor://127.0.0.1", None),
        (("bayeux.cookie_same_site=none", "bayeux.cookie_partitioned=true"), PAGE, "cross-site"),
    ],
)
def test_a_page_of_another_site_needs_no_cookie(
    shared: Serve, sets: tuple[str, ...], origin: str, site: str | None
) -> None:
    client = page(shared(ALL_PAGES, *sets), origin, site).start()
    assert client.cookie is None
    client.subscribe("/a")
    assert data(client.publish("/a", 1)) == [1]
    client.hold()


def test_the_session_of_a_page_of_another_site_is_known_to_pages_of_its_origin_only(shared: Serve) -> None:
    server = shared(ALL_PAGES)
    client = page(server, PAGE, "cross-site").start()
    own = f"http://127.0.0.1:{server.port}"
    for other, is_known in (
        (page(server, OTHER_PAGE, "cross-site"), False),
        (page(server, PAGE + ":8080", "cross-site"), False),
        (page(server, "null", "cross-site"), False),
        (page(server, own, "same-origin"), False),
        (Client(server), False),
        (Client(server, cookie="mine"), False),
        (Client(server, cookie=PAGE), False),
        (Client(server, cookie="origin"), False),
        (page(server, PAGE, "cross-site", cookie="mine"), False),
        (SocketClient(server, headers={"Origin": OTHER_PAGE}), False),
        (SocketClient(server, headers={"Origin": own}), False),
        (SocketClient(server, headers={"Origin": PAGE}), True),
        (SocketClient(server), True),  # a program: it could name any origin
        (page(server, PAGE, "cross-site"), True),
    ):
        assert may_use(server, client, other) is is_known, (other.headers, is_known)


def test_a_page_in_a_sandboxed_frame_needs_the_cookie(shared: Serve) -> None:
    server = shared(ALL_PAGES)
    client = page(server, "null", "cross-site").start()
    assert client.cookie is not None
    assert not may_use(server, client, page(server, "null", "cross-site"))
    assert may_use(server, client, page(server, "null", "cross-site", cookie=client.cookie))


@pytest.mark.parametrize("site", [None, "same-site"])
def test_a_page_of_the_same_site_needs_the_cookie(shared: Serve, site: str | None) -> None:
    """A port is no part of a site. Its browser brings the cookie, so a stolen `clientId` is worth nothing."""
    server = shared(ALL_PAGES)
    origin = "http://127.0.0.1:3000"
    client = page(server, origin, site).start()
    assert client.cookie is not None
    for thief in (page(server, origin, site), page(server, PAGE, "cross-site"), page(server, PAGE)):
        assert not may_use(server, client, thief)
    assert may_use(server, client, page(server, origin, site, cookie=client.cookie))


def test_a_cookie_that_crosses_sites_binds_pages_of_other_sites(shared: Serve) -> None:
    server = shared(ALL_PAGES, "http.trusted_proxies=127.0.0.1", "bayeux.cookie_same_site=none")
    headers = {"X-Forwarded-Proto": "https", "Origin": "https://app.example.net", "Sec-Fetch-Site": "cross-site"}
    client = Client(server, headers=headers).start()
    assert client.cookie is not None
    assert not may_use(server, client, Client(server, headers=headers))
    assert may_use(server, client, Client(server, headers=headers, cookie=client.cookie))


def test_a_session_that_a_socket_of_a_page_made_is_bound_to_the_page_by_long_polling(shared: Serve) -> None:
    server = shared(ALL_PAGES)
    socket = SocketClient(server, headers={"Origin": PAGE}).start()
    assert may_use(server, socket, page(server, PAGE, "cross-site"))
    assert not may_use(server, socket, page(server, OTHER_PAGE, "cross-site"))
    assert may_use(server, socket, page(server, PAGE, "cross-site"))


def test_many_visitors_of_a_page_of_another_site_are_held(shared: Serve) -> None:
    """They have their origin in common, but not their browser."""
    server = shared(ALL_PAGES)
    for _ in range(3):
        page(server, PAGE, "cross-site").start().hold()


@one_lane
def test_the_session_of_a_page_of_another_site_survives_a_restart(serve: Serve) -> None:
    server = serve(ALL_PAGES)
    client = page(server, PAGE, "cross-site").start(ext={"ack": True})
    server.kill()
    again = serve(ALL_PAGES, *server.store_sets)
    for other, is_known in ((page(again, OTHER_PAGE, "cross-site"), False), (page(again, PAGE, "cross-site"), True)):
        assert may_use(again, client, other) is is_known


# Clients that do not keep the cookie


def forgetful(server: Server, *, headers: dict[str, str], **handshake: object) -> Message:
    """Handshake and connect without the cookie; the reply to the connect."""
    client = Client(server, headers=headers)
    client.handshake(**handshake)
    client.cookie = None
    (reply,) = client.connect()
    assert_unknown(reply)
    return reply


@one_lane
@pytest.mark.parametrize("ext", [{}, {"ack": True}], ids=["transient", "stored"])
def test_a_client_that_keeps_no_cookie_comes_less_and_less_often(serve: Serve, ext: dict[str, bool]) -> None:
    server = serve("http.trusted_proxies=127.0.0.1")
    intervals = [forgetful(server, headers={}, ext=ext)["advice"]["interval"] for _ in range(12)]
    assert intervals[:5] == [250, 500, 1000, 2000, 4000]
    assert intervals[-2:] == [60_000, 60_000]
    another = {"X-Forwarded-For": "198.51.100.7"}
    assert forgetful(server, headers=another)["advice"] == {"reconnect": "handshake", "interval": 250}
    assert figures(server)["crewel_lost_cookies_total"] == 13
    Client(server).start().hold()  # a client of the same address that keeps it is another matter


@one_lane
def test_what_helps_a_client_that_keeps_no_cookie_is_logged_once(serve: Serve) -> None:
    server = serve("http.trusted_proxies=127.0.0.1", "http.allowed_origins=*", "bayeux.cookie_same_site=none")
    page = {"X-Forwarded-Proto": "https", "Origin": "https://app.example.net"}
    of_pages = (page | {"Sec-Fetch-Site": "cross-site"}, page | {"Sec-Fetch-Site": "same-site"})
    for headers in ({}, *of_pages, page | {"Origin": "null", "Sec-Fetch-Site": "cross-site"}):
        for _ in range(2):
            forgetful(server, headers=headers)
    lines = until(
        lambda: len(found := [each for each in server.stderr.splitlines() if "the cookie" in each]) >= 4 and found
    )
    assert len(lines) == 4
    assert ["trust_client_session" in each for each in lines] == [True, False, False, False]
    assert ["leave bayeux.cookie_same_site unset" in each for each in lines] == [False, True, False, False]
    assert ["'https://app.example.net'" in each for each in lines] == [False, True, True, False]
    assert ["allow-same-origin" in each for each in lines] == [False, False, False, True]


# Several sessions of one browser


def tabs(server: Server, count: int) -> list[Client]:
    first = Client(server).start()
    return [first, *(Client(server, cookie=first.cookie).start() for _ in range(count - 1))]


def test_the_second_tab_is_told_to_poll(server: Server) -> None:
    one, two = tabs(server, 2)
    polling = one.hold()
    begin = time.monotonic()
    (reply,) = two.connect()
    assert time.monotonic() - begin < 5
    assert reply["successful"] is True
    assert reply["advice"] == {"multiple-clients": True, "reconnect": "retry", "interval": 2000}
    (reply,) = two.connect(advice={"timeout": 0})
    assert reply["advice"] == {"multiple-clients": True, "reconnect": "retry", "interval": 2000, "timeout": 30000}
    assert two.publish("/a", 1)
    one.disconnect()
    assert polling.response().status == 200
    two.hold()


def test_the_place_is_free_when_the_holder_goes(server: Server) -> None:
    one, two = tabs(server, 2)
    one.hold().reset()
    until(lambda: held(server) == 0)
    two.hold()


@pytest.mark.parametrize(("limit", "allowed"), [(2, 2), (-1, 4)])
def test_the_number_of_tabs_is_a_setting(serve: Serve, limit: int, allowed: int) -> None:
    server = serve(f"bayeux.max_sessions_per_browser={limit}", "bayeux.multi_session_interval_ms=1234")
    all_tabs = tabs(server, 4)
    for tab in all_tabs[:allowed]:
        tab.hold()
    for tab in all_tabs[allowed:]:
        assert tab.connect()[-1]["advice"]["interval"] == 1234
    Client(server).start().hold()  # another browser is another matter


def test_with_a_limit_of_none_nobody_is_held(serve: Serve) -> None:
    server = serve("bayeux.max_sessions_per_browser=0")
    client = Client(server)
    client.handshake()
    for _ in range(2):
        assert client.connect()[-1]["advice"]["multiple-clients"] is True


@pytest.mark.parametrize("interval", [0, -1])
def test_without_an_interval_further_tabs_are_refused(serve: Serve, interval: int) -> None:
    server = serve(f"bayeux.multi_session_interval_ms={interval}")
    one, two = tabs(server, 2)
    one.hold()
    (reply,) = two.connect()
    assert reply["successful"] is False
    assert reply["advice"] == {"multiple-clients": True, "reconnect": "none"}
    assert "error" not in reply
    assert two.publish("/a", 1)


@one_lane
def test_a_polling_tab_does_not_expire_while_it_pauses(serve: Serve) -> None:
    server = serve("bayeux.max_interval_ms=300", "bayeux.multi_session_interval_ms=5000", "bayeux.sweep_ms=50")

    def pauses() -> None:
        one, two = tabs(server, 2)
        one.hold()
        assert two.connect()[-1].get("advice", {}).get("interval") == 5000
        two.command.has_input(within=0.6)
        assert two.connect()[-1]["successful"] is True

    in_time(pauses)
