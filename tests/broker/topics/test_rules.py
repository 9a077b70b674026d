"""The rules for topics as the settings have them."""

import pytest

from crewel.bayeux.channel import parse
from crewel.broker.addressing.consumer_groups import kept_groups
from crewel.broker.topics.rule_reader import read_rules
from crewel.errors import SettingsError
from crewel.qos.publish import PRIORITIES, PublishQos
from crewel.settings import load
from crewel.settings import topic_rules as declared
from crewel.settings.table import as_text, declared_rules


def usual(*rules: str) -> PublishQos:
    """What the rules say of /a."""
    channel = parse("/a")
    assert channel is not None
    return read_rules(load(overrides=[f"topics./a.{rule}" for rule in rules], environ={})).usual(channel.patterns)


@pytest.mark.parametrize("pattern", ["/a/**/b", "/meta/handshake"])
def test_a_rule_for_no_channel_is_a_wrong_setting(pattern: str) -> None:
    with pytest.raises(SettingsError, match="is not a channel or pattern, such as"):
        read_rules(load(overrides=[f"topics.{pattern}.priority=1"], environ={}))


def test_the_groups_that_are_kept_are_on_just_the_patterns_of_their_rules() -> None:
    overrides = ["topics./a/*.groups.keep=cooks,waiters", "topics./b/.groups.keep=cooks", "topics./c.persistent=true"]
    settings = load(overrides=overrides, environ={})
    assert kept_groups(settings) == ["group:/a/* cooks", "group:/a/* waiters", "group:/b cooks"]


@pytest.mark.parametrize("pattern", ["/service/a", "/ret/a/*"])
def test_messages_that_no_group_can_share_are_kept_for_none(pattern: str) -> None:
    with pytest.raises(SettingsError, match=r"groups\.keep: messages on this channel cannot be shared in a group"):
        read_rules(load(overrides=[f"topics.{pattern}.groups.keep=cooks"], environ={}))


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
        ("groups.keep=cooks", PublishQos()),
    ],
)
def test_each_field_of_a_rule_is_one_of_a_publish(rule: str, qos: PublishQos) -> None:
    assert usual(rule) == qos


def test_all_fields_have_been_tried_and_each_one_usually_says_nothing() -> None:
    assert len(declared_rules()) == 11
    for name, field in declared_rules().items():
        assert usual(f"{name}={as_text(field.default)}") == PublishQos()


def test_rules_for_one_channel_are_one_rule() -> None:
    assert usual("persistent=true", "history.max_entries=5") == PublishQos(persistent=True, history_max=5)


def test_the_names_of_priorities_are_those_of_the_wire() -> None:
    assert declared.PRIORITIES == PRIORITIES
