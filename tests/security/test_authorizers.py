"""Authorisers: one denial refuses, else one grant is needed, and none at all leaves it to the policy."""

from itertools import product
from typing import Any, cast

import pytest

from crewel.bayeux.channel import parse
from crewel.bayeux.message import Message
from crewel.broker.session import Session
from crewel.errors import DENIED_BY_NOT_GRANTING
from crewel.security.policy import GRANT, IGNORE, Deny, Operation, refusal

CHANNEL = parse("/a")
NOBODY = cast("Session", None)
VERDICTS = [GRANT, IGNORE, Deny("no")]


def decide(*verdicts: Any) -> str | None:
    assert CHANNEL is not None
    message = Message({"channel": "/a"}, CHANNEL, None)
    asked = [lambda *question, verdict=verdict: verdict for verdict in verdicts]
    return refusal(asked, Operation.PUBLISH, CHANNEL, NOBODY, message)


@pytest.mark.parametrize("verdicts", [verdicts for count in range(4) for verdicts in product(VERDICTS, repeat=count)])
def test_the_whole_table(verdicts: tuple[Any, ...]) -> None:
    if Deny("no") in verdicts:
        assert decide(*verdicts) == "no"
    elif GRANT in verdicts or not verdicts:
        assert decide(*verdicts) is None
    else:
        assert decide(*verdicts) == DENIED_BY_NOT_GRANTING


def test_the_first_denial_is_told() -> None:
    assert decide(GRANT, Deny("first"), Deny("second")) == "first"


def test_after_a_denial_nobody_is_asked() -> None:
    assert decide(Deny("no"), None) == "no"


@pytest.mark.parametrize("answer", [None, True, False, "grant", 1, Deny])
def test_anything_but_a_verdict_is_a_failure(answer: Any) -> None:
    with pytest.raises(TypeError, match="GRANT"):
        decide(GRANT, answer)
