"""Choosing a transport (reference 1.3)."""

import pytest

from crewel.client.errors import NegotiationError
from crewel.client.negotiation import common_transports

OURS = ["websocket", "long-polling"]


@pytest.mark.parametrize(
    ("offered", "common"),
    [
        (["long-polling", "websocket", "callback-polling"], ["websocket", "long-polling"]),
        (["long-polling"], ["long-polling"]),
        (None, OURS),
        ("long-polling", OURS),
    ],
)
def test_our_order_decides_among_what_the_server_lists(offered: object, common: list[str]) -> None:
    assert common_transports(OURS, offered) == common


@pytest.mark.parametrize("offered", [[], ["eventsource"], [7, None]])
def test_nothing_in_common_is_an_error(offered: object) -> None:
    with pytest.raises(NegotiationError, match="offers"):
        common_transports(OURS, offered)
