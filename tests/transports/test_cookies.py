"""The browser cookie as text."""

from __future__ import annotations

import itertools

import pytest

from crewel.settings import Settings
from crewel.settings.server_settings import Bayeux, Http
from crewel.transports.cookies import BrowserCookie


def cookie(tls: bool = False, **bayeux: object) -> BrowserCookie:
    http = {"tls_cert": "cert.pem", "tls_key": "key.pem"} if tls else {}
    return BrowserCookie(Settings(http=Http.model_validate(http), bayeux=Bayeux.model_validate(bayeux)))


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("BAYEUX_BROWSER=abc", "abc"),
        ("a=1; BAYEUX_BROWSER=abc; b=2", "abc"),
        ("BAYEUX_BROWSER=abc;b", "abc"),
        ('BAYEUX_BROWSER="abc"', "abc"),
        ("BAYEUX_BROWSER=" + "x" * 64, "x" * 64),
        ("BAYEUX_BROWSER=" + "x" * 65, None),
        ("BAYEUX_BROWSER=", None),
        ("BAYEUX_BROWSER", None),
        ("BAYEUX_BROWSERX=abc", None),
        ("XBAYEUX_BROWSER=abc", None),
        ("bayeux_browser=abc", None),
        ("BAYEUX_BROWSER=a b", None),
        ("BAYEUX_BROWSER=a,b", None),
        ("BAYEUX_BROWSER=<x>", None),
        ("BAYEUX_BROWSER=é", None),
        ("BAYEUX_BROWSER=a\r\nSet-Cookie: x", None),
        ("", None),
    ],
)
def test_the_cookie_is_read_from_the_header(header: str, value: str | None) -> None:
    assert cookie().read({"cookie": header}) == value


def test_no_cookie_header_gives_no_cookie() -> None:
    assert cookie().read({}) is None


OPTIONS = {
    "Domain=a.example": {"cookie_domain": "a.example"},
    "Path=/app": {"cookie_path": "/app"},
    "Max-Age=60": {"cookie_max_age": 60},
    "HttpOnly": {"cookie_http_only": True},
    "SameSite=Strict": {"cookie_same_site": "strict"},
    "Partitioned": {"cookie_partitioned": True},
}


@pytest.mark.parametrize("chosen", [some for n in range(7) for some in itertools.combinations(OPTIONS, n)])
def test_the_attributes_keep_their_order(chosen: tuple[str, ...]) -> None:
    settings: dict[str, object] = {"cookie_http_only": False, "cookie_secure": True}
    for attribute in chosen:
        settings |= OPTIONS[attribute]
    expected = [*chosen]
    if "Path=/app" not in chosen:
        expected.insert(1 if "Domain=a.example" in chosen else 0, "Path=/")
    behind = sum(each in chosen for each in ("SameSite=Strict", "Partitioned"))
    expected.insert(len(expected) - behind, "Secure")
    assert cookie(**settings).header("v", is_secure=True).split("; ") == ["BAYEUX_BROWSER=v", *expected]
    without = [each for each in expected if each not in ("Secure", "Partitioned")]
    assert cookie(**settings).header("v", is_secure=False).split("; ") == ["BAYEUX_BROWSER=v", *without]


@pytest.mark.parametrize("tls", [False, True])
def test_a_cookie_for_other_sites_is_secure_or_else_an_ordinary_one(tls: bool) -> None:
    """Browsers reject `SameSite=None` and `Partitioned` without `Secure`, and the cookie with them."""
    cross = cookie(cookie_same_site="none", cookie_partitioned=True)
    over_tls = ["Secure", "SameSite=None", "Partitioned"]
    assert cross.header("v", is_secure=tls).split("; ")[3:] == (over_tls if tls else [])
    assert cross.crosses_sites(is_secure=tls) is tls
    assert not cookie(cookie_same_site="lax", cookie_partitioned=True).crosses_sites(is_secure=tls)


@pytest.mark.parametrize(
    ("tls", "option", "over_tls", "marked"),
    [
        (False, False, False, False),
        (False, False, True, False),
        (False, True, False, False),
        (False, True, True, True),
        (True, False, True, True),
        (True, True, True, True),
    ],
)
def test_secure_needs_the_option_and_tls_or_a_server_that_has_only_tls(
    tls: bool, option: bool, over_tls: bool, marked: bool
) -> None:
    header = cookie(tls=tls, cookie_secure=option).header("v", is_secure=over_tls)
    assert ("Secure" in header.split("; ")) is marked
