"""The topics of one server: which there are, and what they are configured to be.

A topic costs a plain publish one look-up, the one that finds its channel. All else is found out on request, or when
a sweep comes by (`Endings`).
"""

from __future__ import annotations

import logging
from asyncio import Future, gather
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from crewel.bayeux.channel import Channel
from crewel.bayeux.codec import encode
from crewel.broker.addressing.addressing import Addressing
from crewel.broker.admission.admission import Admission
from crewel.broker.handler_steps import resolve
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.topic import Topic
from crewel.broker.topics.references import QueuedTopics, channel_of
from crewel.broker.topics.rule_reader import read_rules
from crewel.delivery.records import LogId
from crewel.errors import Limited, StoreError, StoreUncertain
from crewel.qos.publish import DEFAULT, PublishQos
from crewel.storage import histories
from crewel.storage.histories import ChangeKind, History, StoredTopic, TopicChange
from crewel.topics import HISTORY_MAX, USUAL, TopicSettings

log = logging.getLogger(__name__)


@dataclass(eq=False)
class TopicTable:
    """Topics by the names of their channels. Raises SettingsError for rules that cannot be."""

    _runtime: Runtime
    _addressing: Addressing
    _admission: Admission
    _queued: QueuedTopics
    known: dict[str, Topic] = field(default_factory=dict, init=False)
    """Those that are configured, and those that were erased and still have messages in queues."""
    spreading: dict[str, Future[None]] = field(default_factory=dict, init=False)
    """Those of which not all nodes know what the first publish has asked for. Each future is done when they do."""
    erasing: Counter[str] = field(default_factory=Counter, init=False)
    """Topics that are being erased: subscriptions to their names are about to end."""
    parting: dict[str, set[str]] = field(default_factory=dict, init=False)
    """Erased topics, and the queues of the groups that still have messages."""

    def __post_init__(self) -> None:
        runtime, addressing = self._runtime, self._addressing
        self._access = runtime.access
        self._channels, self._groups = addressing.channels, addressing.groups
        self._limits = self._admission.limits
        self._rules = read_rules(runtime.settings)
        runtime.metrics.gauge("topics", lambda: len(self.known))

    # What a publish asks

    def plain(self, channel: Channel, publisher: Session | None = None) -> bool:
        """Take notice of a publish that asks for nothing. Whether its topic asks for nothing either: no rule, no history, no
        group. Raises Limited if the topic is one too many for its publisher; the server itself has no limit."""
        if channel.is_reply:
            return True  # each is used once, and not remembered
        topic = self._channels.create(channel.name).topic
        if topic is None or topic.is_erased:
            self.admit(channel, publisher)
            topic = self.begin(channel, self.usual(channel))
        topic.is_fresh = True
        groups = self._groups
        is_plain = topic.is_plain and not (groups.by_pattern and groups.on(channel))
        topic.claims += is_plain  # if it is not, the publish asks once more
        return is_plain

    def usual(self, channel: Channel) -> PublishQos:
        """What holds for a publish on this channel that does not say otherwise."""
        return self._rules.usual(channel.patterns) if self._rules else DEFAULT

    def would_configure(self, channel: Channel, qos: PublishQos) -> bool:
        """Whether a publish with these qualities would say what the topic is like: it is administrative, or the first one
        and not as usual."""
        if qos.administrative:
            return True
        return self.find(channel.name) is None and TopicSettings.of(qos) != TopicSettings.of(self.usual(channel))

    def is_replayed(self, channel: Channel) -> bool:
        """Whether the messages of this channel are numbered for the replay extension."""
        return bool(self._rules) and self._rules.is_replayed(channel.patterns)

    def admit(self, channel: Channel, publisher: Session | None) -> None:
        """Raise Limited if the topic would be one too many for its publisher."""
        if publisher is None or channel.name in self.known:
            return
        try:
            self._limits.new_channel(publisher)
        except Limited:
            self._channels.forget_unused(channel.name)
            raise

    def publish(self, channel: Channel, qos: PublishQos, publisher: Session | None = None) -> Topic:
        """Take notice of a publish. The first one says what its topic is like. Raises Limited like `plain`."""
        topic = self._channels.create(channel.name).topic
        if topic is None or topic.is_erased:
            self.admit(channel, publisher)
            topic = self.begin(channel, qos)
        topic.is_fresh = True
        topic.claims += 1
        # Only where the publish gets as far as the store: what it asks for must not outlive its refusal there.
        if topic.asked and not topic.is_stored and self._access.is_writable:
            stored = self.store(topic)
            if stored is not None:
                self._spread(topic.name, stored)
        return topic

    def _spread(self, name: str, stored: Future[Any]) -> None:
        known = self._runtime.cluster.known_everywhere(stored, raises=False)
        if known is not None:
            self.spreading[name] = known
            known.add_done_callback(partial(self._has_spread, name))

    def _has_spread(self, name: str, known: Future[None]) -> None:
        if self.spreading.get(name) is known:
            del self.spreading[name]

    def refused(self, name: str) -> None:
        """A publish that was taken notice of was refused. If nothing else speaks for its topic, there is none."""
        topic = self.known.get(name)
        if topic is None:
            return
        topic.claims -= 1
        if not (topic.claims or topic.epoch or topic.is_erased):
            self.forget(topic)

    def administered(self, channel: Channel) -> PublishQos:
        """What holds for an administrative publish that does not say otherwise: of the topic all as it is."""
        topic, usual = self.find(channel.name), self.usual(channel)
        if topic is None:
            return usual
        now = topic.settings
        return replace(
            usual, history_max=now.history_max, readonly=now.is_readonly, destroy_delay_ms=now.destroy_delay_ms
        )

    def administer(self, channel: Channel, qos: PublishQos) -> Future[Any] | None:
        """Configure the topic again. What is returned must be waited for: the store keeps it then. It raises StoreError, and
        then the topic is what it was, unless it is unknown what the store has."""
        topic = self.publish(channel, qos)
        former, was_asked = topic.settings, topic.asked
        self._configure(topic, TopicSettings.of(qos), is_kept=True)
        steps = [self._shorten(topic), self.store(topic) if topic.asked else None]
        asked = [each for each in steps if each is not None]
        if not asked:
            return None
        done = gather(*asked)
        done.add_done_callback(partial(self._take_back, topic, topic.settings, former, is_kept=bool(was_asked)))
        known = self._runtime.cluster.known_everywhere(done)
        return done if known is None else known

    def _take_back(
        self, topic: Topic, refused: TopicSettings, former: TopicSettings, done: Future[Any], *, is_kept: bool
    ) -> None:
        error = None if done.cancelled() else done.exception()
        if error is None or isinstance(error, StoreUncertain):
            return
        if topic.settings is refused:
            self._configure(topic, former, is_kept=is_kept)
        self.refused(topic.name)

    def _shorten(self, topic: Topic) -> Future[Any] | None:
        """Take out of the history what it is too short for now."""
        most, access = topic.settings.history_max, self._access
        if topic.history_count <= most or not access.has_store:
            return None
        return self._store_settings(topic, encode({HISTORY_MAX: most}), most) if most else self._clear(topic)

    def _clear(self, topic: Topic, *, retries: bool = False) -> Future[int]:
        """Remove the history. The future has how many messages it had, or raises StoreError."""

        def cleared(answer: int | StoreError) -> int | StoreError:
            if isinstance(answer, int | StoreUncertain):
                topic.emptied()
            return answer

        access = self._access
        step = histories.clear(access.keys, access.token, topic.name, author=self._runtime.cluster.author(access.token))
        return access.writing.ask(step, retries=retries, then=cleared)

    def added_to_history(self, name: str, log_id: LogId) -> None:
        """The store has put a message of this topic into its history."""
        topic = self.known.get(name)
        if topic is not None:
            topic.newest = log_id
            topic.history_count = min(topic.history_count + 1, max(topic.settings.history_max, 1))

    def count_again(self, names: Iterable[str]) -> None:
        """The store has messages of these topics of which this server did not know: their histories may have them too."""
        for name in names:
            topic = self.find(name)
            if topic is not None and topic.settings.history_max:
                self.count(topic)

    def find(self, name: str) -> Topic | None:
        """The topic of this name; None if there is none, or it was erased."""
        topic = self.known.get(name)
        return None if topic is None or topic.is_erased else topic

    def count(self, topic: Topic) -> Future[None]:
        """Let the store say what the history holds; what it has answered is known when the future is done."""
        done: Future[None] = self._runtime.loop.create_future()

        def answered(answer: History | StoreError) -> None:  # at once, so that what was published after it counts too
            if isinstance(answer, StoreError):
                log.warning("the history of %s cannot be read: %s", topic.name, answer)
            else:
                topic.history_count, topic.epoch = answer.total, answer.epoch
                topic.newest = answer.entries[-1].id if answer.entries else topic.newest if answer.total else LogId(0)
            resolve(done, None)

        access, now = self._access, self._runtime.clock.microseconds()
        if not access.has_store:
            resolve(done, None)
        else:
            step = histories.history(access.keys, access.token, topic.name, newest=1, now=now)
            access.writing.submit(step, answered)
        return done

    def is_closed(self, channel: Channel) -> bool:
        """Whether the topic takes one message, and has it."""
        topic = self.find(channel.name)
        return topic is not None and topic.settings.is_readonly and topic.history_count > 0

    # What operators do

    async def clear(self, name: str) -> int:
        """Remove the history of a topic; returns how many messages it had. Raises StoreError."""
        topic = self.find(name)
        if topic is None or not self._access.has_store:
            return 0
        try:
            removed = await self._clear(topic)
        except StoreUncertain:
            removed = await self._clear(topic, retries=True)  # it may have been done
        if (known := self._runtime.cluster.everywhere()) is not None:
            await known
        return removed

    # Configuration

    def begin(self, channel: Channel, qos: PublishQos) -> Topic:
        """The topic of a channel that is published to; if there is none yet, one as this publish has it."""
        topic = self.known.get(channel.name)
        if topic is None or topic.is_erased:
            if topic is not None:
                self._begins_again(topic)
            topic = self.known[channel.name] = Topic(channel.name)
            self._configure(topic, TopicSettings.of(qos), is_kept=qos.persistent)
        self._channels.create(channel.name).topic = topic
        return topic

    def _configure(self, topic: Topic, settings: TopicSettings, *, is_kept: bool) -> None:
        """`is_kept`: whether the store is to know it. It always is if there is a history."""
        channel = channel_of(topic.name)
        topic.settings = settings
        topic.is_plain = self._is_plain(channel, settings)
        differing = settings.differing(TopicSettings.of(self.usual(channel)))
        topic.asked = encode(differing) if topic.is_stored or (differing and (is_kept or settings.history_max)) else b""

    def _is_plain(self, channel: Channel, settings: TopicSettings) -> bool:
        return not self._rules.apply_to(channel.patterns) and settings == USUAL

    def store(self, topic: Topic) -> Future[Any] | None:
        """Let the store know the settings before anything that is published from now on. The future raises StoreError; then
        the next publish tries again."""
        topic.is_stored = True
        done = self._store_settings(topic, topic.asked)
        if done is not None:
            done.add_done_callback(partial(self._stored, topic))
        return done

    @staticmethod
    def _stored(topic: Topic, done: Future[Any]) -> None:
        error = done.exception()
        if error is not None:
            log.warning("the settings of %s are not stored: %s", topic.name, error)
            topic.is_stored = False

    def _store_settings(self, topic: Topic, settings: bytes, most: int | None = None) -> Future[Any] | None:
        """`most`: as many messages are left in the history then."""
        access = self._access
        if not access.has_store:
            return None

        def answered(answer: str | StoreError) -> None:
            if not isinstance(answer, StoreError):
                topic.epoch = answer
            if most is not None and isinstance(answer, str | StoreUncertain):
                topic.history_count = min(topic.history_count, most)

        step = histories.configure(
            access.keys,
            access.token,
            topic.name,
            settings,
            histories.new_epoch(),
            self._runtime.cluster.author(access.token),
        )
        return access.writing.ask(step, then=answered)

    # What is left of topics that end

    def forget(self, topic: Topic) -> None:
        """Know the topic no more."""
        topic.is_erased = True  # for the channel, which may still know it
        self.unmark(topic)
        if self.known.get(topic.name) is topic:
            del self.known[topic.name]

    def _begins_again(self, topic: Topic) -> None:
        """A client publishes to an erased topic, or subscribes to it: for its remaining subscribers it is as before."""
        self.parting.pop(topic.name, None)
        self.unmark(topic)

    def unmark(self, topic: Topic) -> None:
        """Let the store forget that the topic was erased."""
        access = self._access
        if topic.is_marked and not access.writing.is_closed:
            topic.is_marked = False
            step = histories.forget(access.keys, access.token, topic.name)
            access.writing.submit(step, lambda _: None, retries=True)

    # The start

    async def stored(self) -> list[StoredTopic]:
        """The topics that the store has, with settings or a history. Raises StoreError."""
        access = self._access
        found = await histories.topics(access.store)
        if access.phase.is_reloading:
            found = [each if each.is_erased else await self._renewed(each) for each in found]
        return found

    async def restore(self, found: list[StoredTopic]) -> None:
        """Know these topics, which the store has, and those whose messages wait."""
        for topic in self.known.values():
            topic.is_stored = False
            topic.emptied()
        for stored in found:
            self._restore(stored)
        for name in (await self._queued.queued()).keys() - self.known.keys():
            self.begin(channel_of(name), self.usual(channel_of(name))).claims += 1

    async def _renewed(self, stored: StoredTopic) -> StoredTopic:
        """The store has lost something: a client that has seen a history before must not take it for the same."""
        access, epoch = self._access, histories.new_epoch()
        author = self._runtime.cluster.author(access.token)
        await access.writing.ask(
            histories.configure(access.keys, access.token, stored.channel, b"", epoch, author, renews=True)
        )
        return replace(stored, epoch=epoch)

    def learn(self, change: TopicChange) -> None:
        """The log has the settings of a topic, or that its history was removed, from this or another node."""
        former = self.known.get(change.channel)
        if former is not None and former.is_erased:
            self._begins_again(former)
        known = self.find(change.channel)
        entries, newest = (0, LogId(0)) if known is None else (known.history_count, known.newest)
        if change.kind == ChangeKind.CLEARED:
            entries, newest = 0, LogId(0)
        topic = self._restore(StoredTopic(change.channel, change.settings, change.epoch, entries, newest))
        topic.changed_at = change.id
        if topic.settings.history_max or entries:
            self.count(topic)

    def _restore(self, stored: StoredTopic) -> Topic:
        channel = channel_of(stored.channel)
        if stored.is_erased:
            topic = self.known[channel.name] = Topic(channel.name)
            topic.is_erased = topic.is_marked = True
            topic.is_fresh = False
            self.parting[topic.name] = set(self._groups.on(channel))
            return topic
        topic = self.find(channel.name) or Topic(channel.name)
        topic.claims += not topic.claims
        topic.is_stored = bool(stored.settings)
        self.known[channel.name] = self._channels.create(channel.name).topic = topic
        usual = TopicSettings.of(self.usual(channel))
        self._configure(topic, usual.with_stored(stored.settings), is_kept=True)
        topic.epoch, topic.history_count, topic.newest = stored.epoch, stored.entries, stored.newest
        return topic
