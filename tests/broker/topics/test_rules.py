"""The rules for topics as the settings have them."""

import pytest

from crewel.bayeux.channel import parse
from crewel.broker.topics.topic import read_rules
from crewel.errors import SettingsError
from crewel.qos.publish import PRIORITIES, PublishQos
from crewel.settings import load
from crewel.settings import topic_rules as declared
from crewel.settings.table import declared_rules


def usual(*rules: str) -> PublishQos:
    """What the rules say of /a."""
    channel = parse("/a")
    assert channel is not None
    return read_rules(load(overrides=[f"topics./a.{rule}" for rule in rules], environ={})).usual(channel.patterns)


@pytest.mark.parametrize("pattern", ["/a/**/b", "/meta/handshake"])
def test_a_rule_for_no_channel_is_a_wrong_setting(pattern: str) -> None:
    with pytest.raises(SettingsError, match="is not a channel or pattern, such as"):
        read_rules(load(overrides=[f"topics.{pattern}.priority=1"], environ={}))


@pytest.mark.parametrize(
    ("rule", "qos"),
    [
        ("persistent=true", PublishQos(persistent=True)),
        ("priority=MAX", PublishQos(priority=9)),
        ("life_time_ms=0", PublishQos(life_time_ms=0)),
        ("force_destroy=true", PublishQos(force_destroy=True)),
        ("force_update=false", PublishQos(force_update=False)),
        ("readonly=true", PublishQos(readonly=True)),
        ("destroy_delay_ms=-1", PublishQos(destroy_delay_ms=-1)),
        ("history.max_entries=5", PublishQos(history_max=5)),
        ("subscribable=false", PublishQos(subscribable=False)),
        ("replay=true", PublishQos()),
    ],
)
def test_each_field_of_a_rule_is_one_of_a_publish(rule: str, qos: PublishQos) -> None:
    assert usual(rule) == qos


def test_all_fields_have_been_tried_and_each_one_usually_says_nothing() -> None:
    assert len(declared_rules()) == 10
    for name, field in declared_rules().items():
        assert usual(f"{name}={field.default}") == PublishQos()


def test_rules_for_one_channel_are_one_rule() -> None:
    assert usual("persistent=true", "history.max_entries=5") == PublishQos(persistent=True, history_max=5)


def test_the_names_of_priorities_are_those_of_the_wire() -> None:
    assert declared.PRIORITIES == PRIORITIES
