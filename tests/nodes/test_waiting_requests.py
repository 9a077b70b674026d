"""Which of the requests that wait there may be news for."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.nodes.waiting_requests import WaitingRequests

pytestmark = pytest.mark.unit

CONNECT = {"channel": "/meta/connect", "clientId": "abc-1234"}
LOGIN = {"channel": "/meta/handshake", "ext": {"session": {"name": "joe/1"}}}


@pytest.mark.parametrize(
    ("elements", "is_woken"),
    [
        ([CONNECT], True),
        ([LOGIN], True),
        ([{**CONNECT, "clientId": "def-1234"}, CONNECT], False),
        ([{**LOGIN, "ext": {"session": {"name": "joe/2"}}}], False),
        ([{**LOGIN, "ext": {"session": {"name": "joe"}}}], False),
        ([{**LOGIN, "ext": {"session": 7}}], False),
        ([{**CONNECT, "clientId": None}], False),
        (["abc-1234"], False),
        ([], False),
    ],
)
def test_a_request_is_woken_for_the_session_of_its_first_message(elements: list[Any], is_woken: bool) -> None:
    requests = WaitingRequests()
    with requests.waiting(elements) as first, requests.waiting(elements) as second:
        requests.wake(["abc-1234", "client/joe/1"])
        assert (first.is_set(), second.is_set()) == (is_woken, is_woken)
        requests.wake_all()
        assert first.is_set()
        assert second.is_set()
    assert not requests._events
