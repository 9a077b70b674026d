"""Rules for topics at a real server, from a file, the environment and the command line: for publishes that say nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.functional.bayeux import data
from tests.functional.conftest import Serve, one_lane
from tests.functional.topic import SETS, Topic, settle

pytestmark = one_lane

FILE = """
[topics."/topic/**"]
history.max_entries = 3
destroy_delay_ms = -1

[topics."/topic/only"]
readonly = true
"""
ENVIRON = {"CREWEL_TOPICS": json.dumps({"/topic/**": {"priority": "HIGH"}})}


@pytest.fixture
def rules(tmp_path: Path) -> str:
    """The option that gives a server a file with rules."""
    file = tmp_path / "rules.toml"
    file.write_text(FILE)
    return f"--config={file}"


def at(topic: Topic, name: str) -> Topic:
    """The same tester for another channel."""
    topic.channel = name
    return topic


def test_what_a_publish_does_not_say_comes_from_rules_of_all_places(serve: Serve, rules: str) -> None:
    server = serve(*SETS, 'topics."/topic/*".persistent=true', arguments=[rules], environ=ENVIRON)
    topic = at(Topic(server), "/topic/a")
    reader = topic.reader()
    for number in range(5):
        topic.publish(number)
    assert data(topic.get()) == [2, 3, 4]
    messages = settle(reader, 5)
    assert {message["ext"]["update"]["priority"] for message in messages} == {7}
    assert {message["ext"]["update"]["persistent"] for message in messages} == {True}
    assert topic.cmd("destroyDelay") == -1


def test_what_a_publish_says_goes_before_a_rule(serve: Serve, rules: str) -> None:
    topic = at(Topic(serve(*SETS, arguments=[rules])), "/topic/b")
    for number in range(3):
        topic.publish(number, history=1)
    assert data(topic.get()) == [2]


def test_a_rule_may_make_a_topic_take_one_message_only(serve: Serve, rules: str) -> None:
    topic = at(Topic(serve(*SETS, arguments=[rules])), "/topic/only")
    topic.publish("first")
    reply: dict[str, Any] = topic.ask("second")
    assert reply["error"].startswith("409:")
    assert reply["ext"]["publish"]["errorCode"] == "user.publish.readonly"
    assert data(topic.get()) == ["first"]


def test_another_rule_holds_after_the_next_start(serve: Serve, rules: str) -> None:
    server = serve(*SETS, arguments=[rules])
    topic = at(Topic(server), "/topic/c")
    for number in range(3):
        topic.publish(number)
    server.kill()
    server = serve(*SETS, *server.store_sets, "topics./topic/*.history.max_entries=2", port=server.port)
    topic = at(Topic(server), "/topic/c")
    topic.publish("more")
    assert data(topic.get()) == [2, "more"]
