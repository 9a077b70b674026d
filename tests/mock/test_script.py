"""The script of faults."""

import pytest

from crewel.mock.script import Script


def play(text: str, *operations: str) -> list[str | None]:
    script = Script(text)
    return [script.fault_of(operation) for operation in operations]


def test_rules_apply_one_after_the_other() -> None:
    text = """
        after 2 connects: unknown client   # as on a real org
        next subscribe:   invalid replay id
        then:             ok
    """
    operations = ["handshake", "connect", "subscribe", "connect", "connect", "connect", "subscribe", "subscribe"]
    expected = [None] * 8
    expected[4], expected[6] = "unknown client", "invalid replay id"  # type: ignore[call-overload]
    assert play(text, *operations) == expected


def test_then_applies_to_all_that_follows() -> None:
    assert play("next connect: reset\nthen: 502 page", "connect", "connect", "handshake") == [
        "reset",
        "502 page",
        "502 page",
    ]


def test_every() -> None:
    assert play("every 2 connects: drop", "connect", "connect", "connect", "connect") == [None, "drop", None, "drop"]


def test_any_request() -> None:
    assert play("after 1 request: reset", "handshake", "connect") == [None, "reset"]


def test_whether_it_is_over() -> None:
    script = Script("next connect: reset\nthen: ok")
    assert not script.is_over
    script.fault_of("connect")
    assert script.is_over
    assert Script().is_over


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("sometimes: reset", "is not a rule"),
        ("next login: reset", "no operation 'login'; known are handshake"),
        ("next connect: explosion", "no fault 'explosion'; known are 502 page"),
        ("every 0 connects: reset", "needs a number of at least 1"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Script(line)
