"""Which proxy is on the way to a server, and that its password is in no text."""

import pytest

from crewel.outgoing_proxy import Proxy, proxy_for

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "REQUEST_METHOD")
PROXY = "http://proxy.example:3128"


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


def test_without_any_variable_there_is_no_proxy() -> None:
    assert proxy_for("https://crewel.example/cometd") is None


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("http://crewel.example/cometd", "HTTP_PROXY"),
        ("http://crewel.example/cometd", "http_proxy"),
        ("ws://crewel.example/cometd", "HTTP_PROXY"),
        ("https://crewel.example/cometd", "HTTPS_PROXY"),
        ("https://crewel.example/cometd", "https_proxy"),
        ("wss://crewel.example/cometd", "https_proxy"),
    ],
)
def test_the_variable_of_the_scheme_says_the_proxy(url: str, variable: str, environ: pytest.MonkeyPatch) -> None:
    environ.setenv(variable, PROXY)
    assert proxy_for(url) == Proxy(PROXY)
    other = url.replace("://", "s://", 1) if "s://" not in url else url.replace("s://", "://", 1)
    assert proxy_for(other) is None, "it is for the other scheme"


def test_lower_case_counts_where_both_are_set(environ: pytest.MonkeyPatch) -> None:
    environ.setenv("HTTP_PROXY", "http://other.example:1")
    environ.setenv("http_proxy", PROXY)
    assert proxy_for("http://crewel.example") == Proxy(PROXY)
    environ.setenv("http_proxy", "")
    assert proxy_for("http://crewel.example") is None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]", "LOCALHOST", "[::ffff:127.0.0.1]"])
def test_a_server_on_loopback_has_a_proxy_only_if_the_program_names_one(host: str, environ: pytest.MonkeyPatch) -> None:
    environ.setenv("http_proxy", PROXY)
    assert proxy_for(f"http://{host}:8080/cometd") is None
    assert proxy_for(f"http://{host}:8080/cometd", PROXY) == Proxy(PROXY)


@pytest.mark.parametrize(
    ("exceptions", "is_excepted"),
    [
        ("crewel.example", True),
        (".example", True),
        ("example", True),
        ("other.example, crewel.example:8080", True),
        ("crewel.example:80", False),
        ("wel.example", False),
        ("*", True),
    ],
)
def test_the_hosts_of_no_proxy_have_none(exceptions: str, is_excepted: bool, environ: pytest.MonkeyPatch) -> None:
    environ.setenv("http_proxy", PROXY)
    environ.setenv("NO_PROXY", exceptions)
    assert (proxy_for("http://joe:x@crewel.example:8080/cometd") is None) is is_excepted
    assert proxy_for("http://crewel.example:8080/cometd", PROXY) == Proxy(PROXY), "what a program names counts"


def test_an_empty_proxy_is_none_whatever_the_environment_says(environ: pytest.MonkeyPatch) -> None:
    environ.setenv("http_proxy", PROXY)
    assert proxy_for("http://crewel.example", "") is None


@pytest.mark.parametrize(
    ("text", "shown", "authorization"),
    [
        ("proxy.example:3128", "http://proxy.example:3128", None),
        ("http://joe:s%3Acret@proxy.example", "http://proxy.example:80", "Basic am9lOnM6Y3JldA=="),
        ("joe:s@cret@[::1]:3128", "http://[::1]:3128", "Basic am9lOnNAY3JldA=="),
    ],
)
def test_the_text_of_a_proxy_has_no_password(text: str, shown: str, authorization: str | None) -> None:
    proxy = proxy_for("http://crewel.example", text)
    assert proxy is not None
    assert (str(proxy), proxy.authorization) == (shown, authorization)
    assert "cret" not in repr(proxy)


@pytest.mark.parametrize(
    "text", ["socks5://joe:secret@proxy:1", "http://joe:secret@", "http://joe:secret@proxy:x", "https://joe:secret/@p"]
)
def test_what_is_no_http_proxy_is_refused_without_its_password(text: str, environ: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"^proxy is the address of an HTTP proxy, such as http://") as refused:
        proxy_for("https://crewel.example", text)
    environ.setenv("https_proxy", text)
    with pytest.raises(ValueError, match=r"^HTTPS_PROXY is the address of an HTTP proxy") as found:
        proxy_for("https://crewel.example")
    assert "secret" not in f"{refused.value}{found.value}"
