"""Rules for topics: what a publish has that does not say otherwise."""

from typing import Any

import pytest

from crewel.bayeux.channel import parse
from crewel.qos.publish import DEFAULT, PublishQos
from crewel.topics import Rules


def patterns(name: str) -> tuple[str, ...]:
    channel = parse(name)
    assert channel is not None
    return channel.patterns


RULES = Rules(
    {
        "/**": {"priority": 3},
        "/chat/**": {"persistent": True, "history_max": 200, "priority": 7},
        "/chat/*": {"history_max": 20},
        "/chat/demo": {"persistent": False},
        "/feed/**": {"replay": True, "history_max": 5},
        "/feed/off": {"replay": False},
        "/nothing": {},
    }
)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("/other", {"priority": 3}),
        ("/chat/a/b", {"priority": 7, "persistent": True, "history_max": 200}),
        ("/chat/a", {"priority": 7, "persistent": True, "history_max": 20}),
        ("/chat/demo", {"priority": 7, "persistent": False, "history_max": 20}),
        ("/feed/on", {"priority": 3, "history_max": 5}),
    ],
)
def test_the_narrowest_pattern_has_the_last_word_about_each_field(name: str, fields: dict[str, Any]) -> None:
    assert RULES.usual(patterns(name)) == PublishQos(**fields)


def test_without_a_rule_all_is_as_by_default() -> None:
    assert Rules({}).usual(patterns("/a")) is DEFAULT
    assert RULES.usual(("/nothing",)) is DEFAULT


@pytest.mark.parametrize(("name", "is_replayed"), [("/feed/on", True), ("/feed/off", False), ("/chat/demo", False)])
def test_messages_are_numbered_where_the_rule_says_so(name: str, is_replayed: bool) -> None:
    assert RULES.is_replayed(patterns(name)) is is_replayed


def test_a_rule_applies_where_its_pattern_matches() -> None:
    rules = Rules({"/chat/**": {"persistent": True}})
    assert rules.apply_to(patterns("/chat/a/b"))
    assert not rules.apply_to(patterns("/chats"))


def test_a_rule_that_says_nothing_is_none() -> None:
    assert not Rules({"/a": {}})
    assert Rules({"/a": {"persistent": False}})
