"""What a topic is configured to be."""

import pytest

from crewel.qos.publish import DEFAULT, PublishQos, read_publish_qos
from crewel.topics import USUAL, TopicSettings


def test_usually_there_is_no_history_and_a_minute_to_live() -> None:
    assert TopicSettings.of(DEFAULT) == USUAL == TopicSettings(0, is_readonly=False, destroy_delay_ms=60_000)


def test_a_publish_says_what_its_topic_is_like() -> None:
    qos = read_publish_qos({"history": {"maxEntries": 7}, "readonly": True, "destroyDelay": -1, "priority": 9})
    assert TopicSettings.of(qos) == TopicSettings(7, is_readonly=True, destroy_delay_ms=-1)


def test_what_takes_one_message_only_keeps_it() -> None:
    assert TopicSettings.of(PublishQos(readonly=True)).history_max == 1


@pytest.mark.parametrize(
    ("settings", "stored"),
    [
        (USUAL, {}),
        (TopicSettings(3), {"historyMax": 3}),
        (TopicSettings(1, is_readonly=True), {"historyMax": 1, "readonly": True}),
        (TopicSettings(destroy_delay_ms=0), {"destroyDelay": 0}),
    ],
)
def test_what_is_not_as_usual_is_stored_and_comes_back(settings: TopicSettings, stored: dict[str, object]) -> None:
    assert settings.differing(USUAL) == stored
    assert USUAL.with_stored(stored) == settings


def test_what_is_as_the_rules_say_follows_them_when_they_change() -> None:
    before, now = TopicSettings(200, destroy_delay_ms=5), TopicSettings(100, destroy_delay_ms=7)
    stored = TopicSettings(200, destroy_delay_ms=1).differing(before)
    assert now.with_stored(stored) == TopicSettings(100, destroy_delay_ms=1)


def test_what_nobody_knows_in_the_store_is_left_alone() -> None:
    assert USUAL.with_stored({"colour": "red"}) == USUAL
