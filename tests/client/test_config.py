"""What a client can be told."""

from typing import Any

import pytest

from crewel.client.config import Config
from crewel.outgoing_proxy import without_password


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("ws://127.0.0.1:1/cometd", "http://127.0.0.1:1/cometd"),
        ("wss://example.org/cometd?a=b", "https://example.org/cometd?a=b"),
        ("https://example.org/cometd", "https://example.org/cometd"),
        ("http://example.org:8081", "http://example.org:8081/cometd"),
        ("wss://example.org/?a=1", "https://example.org/cometd?a=1"),
    ],
)
def test_all_transports_share_one_http_address(given: str, url: str) -> None:
    assert Config(url=given).url == url


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"url": "ftp://a/b"}, "not an http or ws URL"),
        ({"url": "localhost:8080/cometd"}, "the address needs a scheme: http://localhost:8080/cometd, not localhost"),
        ({"url": "http://a/b", "transports": ("pigeon",)}, "not pigeon"),
        ({"url": "http://a/b", "transports": ()}, "not none"),
        ({"url": "http://a/b", "network_delay": 0}, "network_delay"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Config(**settings)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://joe:secret@host/cometd", "https://host/cometd"),
        ("http://joe:se@cret@host:8080/a@b?c=d@e", "http://host:8080/a@b?c=d@e"),
        ("http://joe:secret@", "http://"),
        ("joe:secret@host/cometd", "host/cometd"),
        ("http://host/a@b", "http://host/a@b"),
        ("host", "host"),
    ],
)
def test_an_address_is_shown_without_user_and_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


@pytest.mark.parametrize(
    "url", ["ftp://joe:secret@host/", "joe:secret@host/cometd", "http://joe:secret@", "http://j:secret@h:x/"]
)
def test_an_error_about_an_address_shows_no_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"http|URL") as raised:
        Config(url)
    assert "secret" not in str(raised.value)
