"""The policy `open`: everything but what belongs to the server itself."""

from typing import cast

import pytest

from crewel.bayeux.channel import parse
from crewel.bayeux.message import Message
from crewel.broker.session import Session
from crewel.errors import DENIED_BY_POLICY
from crewel.security.policy import OpenPolicy, Refusal, is_reserved

NOBODY = cast("Session", None)


@pytest.mark.parametrize(
    ("name", "reserved"),
    [
        ("/a", False),
        ("/**", False),
        ("/service/x", False),
        ("/service/**", False),
        ("/meta", False),
        ("/metadata/x", False),
        ("/a/__sys__", False),
        ("/__sys", False),
        ("/meta/connect", True),
        ("/meta/x", True),
        ("/meta/**", True),
        ("/__sys__deadMessage", True),
        ("/__sys__", True),
        ("/__sys__/**", True),
        ("/__sys__*", True),
    ],
)
def test_each_question_about_a_channel(name: str, reserved: bool) -> None:
    channel = parse(name)
    assert channel is not None
    message = Message({"channel": name}, channel, None)
    assert is_reserved(channel) is reserved
    policy = OpenPolicy()
    for question in (policy.can_create, policy.can_subscribe, policy.can_publish):
        assert question(NOBODY, channel, message) is not reserved
    assert policy.can_handshake(NOBODY, message) is True


def test_a_refusal_says_no_more_than_it_is_told_to() -> None:
    assert Refusal() == Refusal(reason=DENIED_BY_POLICY, reconnect="none", ext=None)
