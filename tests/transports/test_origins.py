"""Whose page a request comes from. Headers go by their names in lower case."""

from __future__ import annotations

import pytest

from crewel.settings import Settings
from crewel.settings.server_settings import Http
from crewel.transports.forwarded import Client
from crewel.transports.origins import Origins

HERE = Client("192.0.2.1", "http", "chat.example:8080")
SECURE = Client("192.0.2.1", "https", "chat.example")


def origins(**http: object) -> Origins:
    return Origins(Settings(http=Http.model_validate(http)))


@pytest.mark.parametrize(
    ("origin", "client", "is_own"),
    [
        ("http://chat.example:8080", HERE, True),
        ("HTTP://Chat.Example:8080", HERE, True),
        ("http://chat.example:8080/", HERE, True),
        ("http://chat.example", HERE, False),
        ("https://chat.example:8080", HERE, False),
        ("https://chat.example", SECURE, True),
        ("https://chat.example:443", SECURE, True),
        ("https://chat.example:444", SECURE, False),
        ("http://chat.example", SECURE, False),
        ("https://sub.chat.example", SECURE, False),
        ("https://chat.example.evil.example", SECURE, False),
        ("null", SECURE, False),
        ("", SECURE, False),
        ("https://", SECURE, False),
        ("https://[::1", SECURE, False),
        ("https://chat.example:port", SECURE, False),
        ("http://[::1]:80", Client(None, "http", "[::1]"), True),
    ],
)
def test_the_own_origin_is_recognised(origin: str, client: Client, is_own: bool) -> None:
    assert origins().is_own(origin, client) is is_own
    assert origins().allows({"origin": origin}, client) is is_own


@pytest.mark.parametrize(("origin", "is_own"), [("https://chat.example.org", True), ("https://chat.example", False)])
def test_the_public_url_replaces_the_host(origin: str, is_own: bool) -> None:
    assert origins(public_url="https://chat.example.org/path").is_own(origin, SECURE) is is_own


@pytest.mark.parametrize(
    ("origin", "host", "is_own"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1:8080", True),
        ("http://localhost:8080", "LOCALHOST:8080", True),
        ("http://[::1]:8080", "[::1]:8080", True),
        ("http://127.0.0.1:8081", "127.0.0.1:8080", False),
        ("https://127.0.0.1:8080", "127.0.0.1:8080", False),
        ("http://evil.example:8080", "evil.example:8080", False),
        ("http://localhost.evil.example", "localhost.evil.example", False),
        ("http://10.0.0.5:8080", "10.0.0.5:8080", False),
        ("http://127.0.0.1:8080", "", False),
    ],
)
def test_beside_the_public_url_only_an_address_of_loopback_is_the_servers_own(
    origin: str, host: str, is_own: bool
) -> None:
    """Operators open the server's own address, for example through a tunnel, because the proxy keeps their page to itself."""
    public = origins(public_url="https://chat.example.org")
    assert public.is_own(origin, Client("127.0.0.1", "http", host)) is is_own
    assert public.is_own("https://chat.example.org", Client("127.0.0.1", "http", host))


@pytest.mark.parametrize(
    ("site", "allowed"),
    [(None, True), ("none", True), ("same-origin", True), ("same-site", True), ("cross-site", False)],
)
def test_without_an_origin_the_browser_tells_what_is_cross_site(site: str | None, allowed: bool) -> None:
    headers = {} if site is None else {"sec-fetch-site": site}
    assert origins().allows(headers, HERE) is allowed
    assert origins(allowed_origins="https://a.example").allows(headers, HERE) is allowed
    assert origins(allowed_origins="*").allows(headers, HERE) is True


def test_a_list_names_whole_origins() -> None:
    listed = origins(allowed_origins="https://a.example,http://b.example:3000")
    for origin in ("https://a.example", "https://A.EXAMPLE:443", "http://b.example:3000", "http://chat.example:8080"):
        assert listed.allows({"origin": origin}, HERE)
    for origin in ("http://a.example", "https://a.example:3000", "http://b.example", "https://aa.example", "null"):
        assert not listed.allows({"origin": origin}, HERE)


@pytest.mark.parametrize(
    ("listed", "origin", "allowed"),
    [
        ("https://*.example.org", "https://a.example.org", True),
        ("https://*.example.org", "https://A.EXAMPLE.org:443", True),
        ("https://*.example.org", "https://xn--a-1ga.example.org", True),
        ("https://*.example.org", "https://example.org", False),
        ("https://*.example.org", "https://a.b.example.org", False),
        ("https://*.example.org", "https://.example.org", False),
        ("https://*.example.org", "https://*.example.org", False),
        ("https://*.example.org", "http://a.example.org", False),
        ("https://*.example.org", "https://a.example.org:8443", False),
        ("https://*.example.org", "https://aexample.org", False),
        ("https://*.example.org", "https://a.example.org.evil.example", False),
        ("https://*.example.org", "https://evil.example/.example.org", False),
        ("https://*.example.org", "https://evil.example#.example.org", False),
        ("https://*.example.org", "https://a@evil.example", False),
        ("https://*.example.org:8443", "https://a.example.org:8443", True),
        ("capacitor://localhost", "capacitor://localhost", True),
        ("capacitor://localhost", "http://localhost", False),
        ("capacitor://localhost", "ionic://localhost", False),
        ("null", "null", True),
        ("null", "file://", False),
        ("file://", "file://", True),
    ],
)
def test_a_listed_origin_may_have_any_first_label_or_be_that_of_an_app(listed: str, origin: str, allowed: bool) -> None:
    assert origins(allowed_origins=listed).allows({"origin": origin}, HERE) is allowed


def test_cors_headers_echo_the_origin_and_never_a_star() -> None:
    allowed = origins(allowed_origins="*")
    assert allowed.cors({}) == allowed.preflight({}) == {}
    assert allowed.cors({"origin": "https://a.example"}) == {
        "Access-Control-Allow-Origin": "https://a.example",
        "Access-Control-Allow-Credentials": "true",
        "Vary": "Origin",
    }
    preflight = allowed.preflight({"origin": "https://a.example", "access-control-request-headers": "x-a,x-b"})
    assert preflight["Access-Control-Allow-Headers"] == "x-a,x-b"
    assert preflight["Access-Control-Max-Age"] == "1800"


@pytest.mark.parametrize(
    ("origin", "host", "is_another"),
    [
        ("https://app.example.org", "api.example.org", False),
        ("https://app.example.org:3000", "app.example.org:8080", False),
        ("http://example.org", "a.b.EXAMPLE.org.", False),
        ("https://app.example.net", "api.example.org", True),
        ("https://a.example.co.uk", "b.example.co.uk", False),
        ("http://localhost:3000", "localhost:8080", False),
        ("http://localhost:3000", "127.0.0.1:8080", True),
        ("http://127.0.0.1:3000", "127.0.0.1:8080", False),
        ("http://10.0.0.5", "10.1.0.5", True),
        ("http://[::1]:3000", "[::1]:8080", False),
        ("http://[::1]:3000", "[::2]:8080", True),
        ("http://intranet", "wiki", True),
        ("capacitor://localhost", "localhost:8080", True),
        ("null", "localhost:8080", False),
        ("file://", "localhost:8080", True),
        ("http://é.example", "localhost:8080", False),
        ("http://" + "x" * 300, "localhost:8080", False),
    ],
)
def test_a_page_is_of_another_site_by_its_domain(origin: str, host: str, is_another: bool) -> None:
    client = Client("192.0.2.1", "http", host)
    assert origins().of_another_site({"origin": origin}, client) == (origin if is_another else None)
    assert origins().of_another_site({}, client) is None


@pytest.mark.parametrize(
    ("site", "is_another"), [("cross-site", True), ("same-site", False), ("same-origin", False), ("none", False)]
)
def test_a_browser_knows_better_what_a_site_is(site: str, is_another: bool) -> None:
    for origin in ("https://other.example", "https://chat.example"):
        headers = {"origin": origin, "sec-fetch-site": site}
        assert origins().of_another_site(headers, SECURE) == (origin if is_another else None)


def test_the_public_url_is_of_the_same_site_whatever_host_a_proxy_asks_for() -> None:
    public = origins(public_url="https://chat.example.org")
    inner = Client("127.0.0.1", "http", "127.0.0.1:8080")
    for name, is_another in (("chat.example.org", False), ("app.example.org", False), ("app.example.net", True)):
        origin = f"http://{name}"
        assert public.of_another_site({"origin": origin}, inner) == (origin if is_another else None)
    assert public.of_another_site({"origin": "http://127.0.0.1:3000"}, inner) is None


def test_any_page_can_be_of_the_origin_null() -> None:
    assert origins().of_another_site({"origin": "null", "sec-fetch-site": "cross-site"}, SECURE) is None
