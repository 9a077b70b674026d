"""The topics of one server: which there are, what they are configured to be, and when they end.

A topic costs a plain publish one look-up. All else is found out when somebody asks, or when a sweep comes by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crewel.bayeux.channel import Channel
from crewel.broker.topics.topic import Topic
from crewel.delivery.publish_qos import PublishQos
from crewel.delivery.records import LogId
from crewel.topics.configured import USUAL, TopicSettings
from crewel.topics.rules import Rules

if TYPE_CHECKING:
    from crewel.broker.broker import Broker

__all__ = ["Topics"]


class Topics:
    """Topics by the names of their channels."""

    def __init__(self, broker: Broker, rules: Rules | None = None) -> None:
        self._broker = broker
        self._channels = broker.channels
        self._rules = rules or Rules()
        self._known: dict[str, Topic] = {}

    # What a publish asks

    def plain(self, channel: Channel) -> bool:
        """Take notice of a publish that asks for nothing. Whether its topic asks for nothing either: no rule, no history, no
        group."""
        if channel.is_reply:
            return True  # each request has another one, and nothing is kept of it
        topic = self._channels.create(channel.name).topic
        if topic is None or topic.is_erased:
            topic = self._topic(channel, self.usual(channel))
        topic.is_fresh = True
        return topic.is_plain

    def usual(self, channel: Channel) -> PublishQos:
        """What holds for a publish on this channel that does not say otherwise."""
        return self._rules.usual(channel.patterns)

    def publish(self, channel: Channel, qos: PublishQos) -> Topic:
        """Take notice of a publish. The first one says what its topic is like, and an administrative one says it anew."""
        topic = self._channels.create(channel.name).topic
        if topic is None or topic.is_erased:
            topic = self._topic(channel, qos)
        if qos.administrative:
            self._configure(topic, TopicSettings.of(qos))
        topic.is_fresh = True
        return topic

    def kept(self, name: str, log_id: LogId) -> None:
        """The store has put a message of this topic into its history."""
        topic = self._known.get(name)
        if topic is not None:
            topic.newest = log_id
            topic.history_count = min(topic.history_count + 1, max(topic.settings.history_max, 1))

    def find(self, name: str) -> Topic | None:
        """The topic of this name; None if there is none, or it was erased."""
        topic = self._known.get(name)
        return None if topic is None or topic.is_erased else topic

    def look_again(self, pattern: str) -> None:
        """Something has begun or ended that concerns the publishes on all channels that this pattern matches: a group."""
        for topic in self._known.values():
            if pattern in topic.channel.patterns:
                topic.is_plain = self._is_plain(topic)

    # Life

    def _topic(self, channel: Channel, qos: PublishQos) -> Topic:
        """The topic of a channel that is published to, if there is none yet as this publish has it."""
        topic = self._known.get(channel.name)
        if topic is None or topic.is_erased:
            topic = self._known[channel.name] = Topic(channel)
            self._configure(topic, TopicSettings.of(qos))
        self._channels.create(channel.name).topic = topic
        return topic

    def _configure(self, topic: Topic, settings: TopicSettings) -> None:
        topic.settings = settings
        topic.is_plain = self._is_plain(topic)

    def _is_plain(self, topic: Topic) -> bool:
        special = self._rules.apply_to(topic.channel.patterns) or self._broker.groups.on(topic.channel)
        return not special and topic.settings == USUAL
