"""What a client can be told."""

from typing import Any

import pytest

from crewel.client.config import Config


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
