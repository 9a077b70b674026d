"""Subscribe and unsubscribe; what `ext.subscribe` and `ext.replay` ask for beyond a channel."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from crewel.bayeux import replies
from crewel.bayeux.channel import Channel, Kind, parse, presence_of
from crewel.bayeux.message import Message, named
from crewel.bayeux.replies import Reply
from crewel.broker.addressing.addressing import Addressing
from crewel.broker.admission.admission import Admission
from crewel.broker.admission.guard import NOT_AUTHORIZED
from crewel.broker.exchange import Exchange
from crewel.broker.handler_steps import Steps
from crewel.broker.pipe import META_CHANNELS
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.subscriptions.filter_failures import SubscriptionFailures
from crewel.broker.subscriptions.history_start import ReplayRequest, ReplayResult
from crewel.broker.subscriptions.options import Choices
from crewel.broker.subscriptions.replay_numbers import REPLAY_NEW, read_number, replay_refusal
from crewel.broker.subscriptions.subscribers import Subscriber, Subscribers
from crewel.broker.topics.topic_table import TopicTable
from crewel.errors import BayeuxCode, Denied, IllegalArgument, Refused, StoreError, coded, denied
from crewel.qos.names import group_queue
from crewel.qos.subscribe import SubscribeQos, read_subscribe_qos

T = TypeVar("T")

_AT_ONCE: Final = 100
"""Names of one message that are taken in one turn of the loop: about a millisecond."""
_NOTHING_OLD: Final = SubscribeQos(initial_update=False)
"""What a subscribe without `ext.subscribe` asks for."""


@dataclass(eq=False)
class SubscribeHandler:
    """Answers subscribes and unsubscribes."""

    _runtime: Runtime
    _admission: Admission
    _permissions: Permissions
    _topics: TopicTable
    _failures: SubscriptionFailures

    def __post_init__(self) -> None:
        self._limits, self._guard = self._admission.limits, self._admission.guard
        self._channels, self._subscribers = self._permissions.channels, self._permissions.subscribers
        self._options = self._subscribers.options
        self.subscribe = self._runtime.cluster.announcing(self._subscribe)

    def _subscribe(self, exchange: Exchange, session: Session, message: Message) -> Reply | Steps[Reply]:
        """MUST carry `subscription`. Names are taken one by one: where one is refused, those before it stay subscribed."""
        names = message.fields.get("subscription")
        if isinstance(names, list) and len(names) > _AT_ONCE:
            return self._subscribe_to_many(session, message, names)
        channels = _checked(message.subscriptions())
        self._limits.subscribe(session, len(channels))
        if self._asks_for_more(session, message):
            return self._subscribe_with_options(session, message, channels)
        if not all(map(self._guard.is_open, channels)):
            return self._subscribe_granted(session, message, channels)
        names = {channel.name: () for channel in channels if channel.kind is Kind.BROADCAST}
        waiting = self._subscribers.of(session).subscribe(names)
        return replies.ok(message) if waiting is None else self._reply_subscribed(session, message, waiting)

    def _reply_subscribed(self, session: Session, message: Message, waiting: Awaitable[Any]) -> Steps[Reply]:
        """Reply when the store has answered."""
        reply = yield from _reply_later(message, waiting, None)
        return reply if session.is_live else replies.failed(message, BayeuxCode.SUBSCRIBE_FAILED)

    def _subscribe_to_many(self, session: Session, message: Message, names: list[object]) -> Steps[Reply]:
        """Thousands of names fit into one message: a portion in each turn."""
        channels = _checked((yield from self._channels_of(session, names)))
        if not session.is_live:
            raise Refused(BayeuxCode.SESSION_UNKNOWN)
        self._limits.subscribe(session, len(channels))
        if self._asks_for_more(session, message):
            return (yield from self._subscribe_with_options(session, message, channels))
        return (yield from self._subscribe_granted(session, message, channels))

    def _channels_of(self, session: Session, names: list[object]) -> Steps[list[Channel]]:
        """The channels of these names, a portion in each turn. Raises Refused."""
        channels: list[Channel] = []
        for portion in _portions(names):
            channels += named(portion)
            yield self._rest(session)
        return channels

    def _rest(self, session: Session) -> Awaitable[None]:
        return self._runtime.turns.rest(session.account.name if session.account is not None else None)

    def _subscribe_granted(self, session: Session, message: Message, channels: list[Channel]) -> Steps[Reply]:
        granted, error = yield from self._permissions.grant(session, message, channels)
        failure = yield from self._enter_in_portions(session, [channel.name for channel in granted])
        error = error or failure
        return replies.ok(message) if error is None else replies.failed(message, error)

    def _enter_in_portions(self, session: Session, names: list[str]) -> Steps[str | None]:
        """The error, if the store could not take it."""
        for number, portion in enumerate(_portions(names)):
            if number:
                yield self._rest(session)
            if not session.is_live:
                return BayeuxCode.SUBSCRIBE_FAILED
            self._limits.room_for(session, len(portion))  # others of its requests may have been granted meanwhile
            waiting = self._subscribers.of(session).subscribe(dict.fromkeys(portion, ()))
            if waiting is not None:
                try:
                    yield waiting
                except StoreError as failure:
                    return coded(failure.code)
        return None if session.is_live else BayeuxCode.SUBSCRIBE_FAILED

    def _asks_for_more(self, session: Session, message: Message) -> bool:
        """Whether there is more to this subscribe than to get channels from now on, or to the session. That may have asked for
        more of the same channels before, or may not know yet that a subscription to them has failed or its topic was erased."""
        if session in self._options.filtered or self._failures.has_notices(session):
            return True
        ext = message.fields.get("ext")
        if type(ext) is not dict:
            return False
        return "subscribe" in ext or ("replay" in ext and self._options.numbers is not None)

    def _subscribe_with_options(self, session: Session, message: Message, channels: list[Channel]) -> Steps[Reply]:
        """MUST carry `subscription`. What `ext.subscribe` asks for goes for all channels that it names. Raises Refused."""
        asked = message.ext
        qos = read_subscribe_qos(asked["subscribe"]) if "subscribe" in asked else _NOTHING_OLD
        _check(self._subscribers.of(session), qos, channels)
        granted, error = yield from self._permissions.grant(session, message, channels)
        if qos.choice.group:
            yield from self._ask_for_group(session, message, granted)
        names = dict.fromkeys(channel.name for channel in granted)
        if (refusal := self._failures.refusal(session, names)) is not None:
            name, why = refusal
            reply = replies.failed(message, coded(why["errorCode"], name, 429))
            reply["ext"] = {"subscribe": why}  # asked for or not: nothing else says what has happened
            return reply
        result = ReplayResult()
        starts = [] if qos.choice.group else (yield from self._starts(session, message, qos, granted, result))
        is_again = any(name in session.subscriptions for name in names)
        wanted = yield from self._wanted(session, names, qos)
        former = self._options.filtered.get(session, {})
        joining = _queues(wanted)
        leaving = _queues({name: former.get(name, ()) for name in wanted}) - joining
        try:
            with self._limits.joining(session, joining, leaving):
                yield from self._begin(session, wanted, starts, result)
        except StoreError as failure:
            raise Refused(coded(failure.code), failure.code, str(failure)) from failure
        self._failures.withdraw_erased(session, names)
        if error is None and not session.is_live:
            error = BayeuxCode.SUBSCRIBE_FAILED
        reply = replies.ok(message) if error is None else replies.failed(message, error)
        if "subscribe" in asked:
            reply["ext"] = {"subscribe": _reply_ext(result, qos, is_again=is_again)}
            if error is not None:
                reply["ext"]["subscribe"].pop("recovered", None)  # of what was refused nothing is known
        return reply

    def _wanted(self, session: Session, names: Iterable[str], qos: SubscribeQos) -> Steps[dict[str, Choices]]:
        """What the session will want of each name, a portion in each turn. Raises Refused, and IllegalArgument."""
        wanted: dict[str, Choices] = {}
        for number, portion in enumerate(_portions(list(names))):
            if number:
                yield self._rest(session)
            if not session.is_live:
                raise Refused(BayeuxCode.SESSION_UNKNOWN)
            wanted |= {name: self._options.wanted(session, name, qos) for name in portion}
        return wanted

    def _ask_for_group(self, session: Session, message: Message, channels: list[Channel]) -> Steps[None]:
        """Raise Refused if the grant to subscribe does not cover a consumer group, which takes messages from its members."""
        for channel in channels:
            if not (yield from self._guard.group(session, channel, message)):
                text = f"the grant to subscribe to {channel.name} does not cover a consumer group on it"
                raise Refused(coded(NOT_AUTHORIZED, channel.name), NOT_AUTHORIZED, text)

    def _starts(
        self, session: Session, message: Message, qos: SubscribeQos, channels: list[Channel], result: ReplayResult
    ) -> Steps[list[ReplayRequest]]:
        """The histories to be read. Where there is none, nothing can be recovered. For each pattern all topics are looked at,
        so each but the first has a turn of its own."""
        has_looked = False
        starts: dict[str, ReplayRequest] = {}
        entries = qos.history if qos.initial_update else 0
        for number, channel in enumerate(channels):
            name = channel.name
            if number and not number % _AT_ONCE:
                yield self._rest(session)
            if channel.is_wildcard:
                if not entries:
                    continue
                if has_looked:
                    yield self._rest(session)
                kept, has_looked = self._options.histories(channel), True
                starts |= {
                    each: ReplayRequest(each, name, entries, qos.newest_first) for each in kept if each not in starts
                }
                continue
            since = (qos.since or {}).get(name)
            replay = self._replay(message, channel)
            if not self._options.has_history(channel):
                if replay is not None and replay >= 0:
                    raise replay_refusal(replay)
                result.is_recovered &= since is None
            elif since is not None or replay is not None or "subscribe" in message.ext:
                starts[name] = ReplayRequest(
                    name, name, entries, qos.newest_first, since, None if since is not None else replay
                )
        return list(starts.values())

    def _replay(self, message: Message, channel: Channel) -> int | None:
        """The number after which events of this channel should come again, or ALL; None: only new ones. Raises Refused."""
        numbers = message.ext.get("replay")
        if not isinstance(numbers, dict) or self._options.numbers is None or not self._topics.is_replayed(channel):
            return None
        number = read_number(numbers.get(channel.name, REPLAY_NEW))
        return None if number == REPLAY_NEW else number

    def _begin(
        self, session: Session, wanted: Mapping[str, Choices], starts: list[ReplayRequest], result: ReplayResult
    ) -> Steps[None]:
        """Let the session receive these channels, after what their histories have for it. Raises StoreError and Refused."""
        names = list(wanted)
        while len(names) > _AT_ONCE and not starts:
            first, names = names[:_AT_ONCE], names[_AT_ONCE:]
            yield from self._begin(session, {name: wanted[name] for name in first}, starts, result)
            yield self._rest(session)
            if not session.is_live:
                return
        self._limits.room_for(session, len(names))
        wanted = {name: wanted[name] for name in names}
        yield from self._subscribers.of(session).subscribe_after(wanted, starts, result)

    def unsubscribe(self, exchange: Exchange, session: Session, message: Message) -> Reply | Steps[Reply]:
        """MUST carry `subscription`. Names are taken one by one, as in subscribe."""
        names = message.fields.get("subscription")
        if isinstance(names, list) and len(names) > _AT_ONCE:
            return self._unsubscribe_from_many(session, message, names)
        return self._unsubscribe(session, message, message.subscriptions())

    def _unsubscribe_from_many(self, session: Session, message: Message, names: list[object]) -> Steps[Reply]:
        channels = yield from self._channels_of(session, names)
        reply = replies.ok(message)
        for portion in _portions(channels):
            if not session.is_live:
                raise Refused(BayeuxCode.SESSION_UNKNOWN)
            outcome = self._unsubscribe(session, message, portion)
            reply = outcome if isinstance(outcome, dict) else (yield from outcome)
            if not reply["successful"]:
                break
            yield self._rest(session)
        return reply

    def _unsubscribe(self, session: Session, message: Message, channels: list[Channel]) -> Reply | Steps[Reply]:
        given_up: list[str] = []
        error: str | None = None
        for channel in channels:
            if channel.name in META_CHANNELS:
                error = BayeuxCode.UNSUBSCRIBE_FAILED
            elif not (
                channel.kind is Kind.SERVICE or channel.name in self._channels or channel.name in session.subscriptions
            ):
                error = BayeuxCode.CHANNEL_MISSING
            if error is not None:
                break
            given_up.append(channel.name)
        waiting = self._subscribers.of(session).unsubscribe(given_up)
        if waiting is not None:
            return _reply_later(message, waiting, error)
        return replies.ok(message) if error is None else replies.failed(message, error)


def _reply_later(message: Message, waiting: Awaitable[Any], error: str | None) -> Steps[Reply]:
    """Reply when the store has answered."""
    try:
        yield waiting
    except StoreError as failure:
        error = error or coded(failure.code)
    return replies.ok(message) if error is None else replies.failed(message, error)


def _portions(items: list[T]) -> Iterator[list[T]]:
    for at in range(0, len(items), _AT_ONCE):
        yield items[at : at + _AT_ONCE]


def _queues(wanted: Mapping[str, Choices]) -> set[str]:
    """The queues of the groups that are asked for."""
    return {group_queue(name, each.group) for name, choices in wanted.items() for each in choices if each.group}


def _checked(channels: list[Channel]) -> list[Channel]:
    """These channels. Raises Refused if one cannot be subscribed to. A subscription that an older version stored can end."""
    for channel in channels:
        if channel.has_dot_segments:
            raise Refused(BayeuxCode.SUBSCRIPTION_INVALID)
    return channels


def _check(subscriber: Subscriber, qos: SubscribeQos, channels: list[Channel]) -> None:
    """Raise what refuses a subscribe that asks for what cannot be had."""
    if qos.since is not None and any(channel.is_wildcard for channel in channels):
        raise IllegalArgument("since", "must be left out with a pattern: only a channel has a history")
    subscriber.check(qos)
    if qos.choice.group and any(each.is_system or each.is_reply or not each.is_broadcast for each in channels):
        raise IllegalArgument("group", "must be left out: messages on this channel cannot be shared")


def _reply_ext(result: ReplayResult, qos: SubscribeQos, *, is_again: bool) -> dict[str, Any]:
    ext: dict[str, Any] = {
        "position": {name: {"epoch": place.epoch, "id": str(place.id)} for name, place in result.positions.items()}
    }
    if qos.since is not None:
        ext["recovered"] = result.is_recovered
    if is_again and not qos.multi_subscribe:
        ext["state"] = "WARNING"  # as xmlBlaster says that there was a subscription already
    return ext


@dataclass(eq=False)
class Permissions:
    """Asks the policy, channel by channel."""

    _runtime: Runtime
    _addressing: Addressing
    _admission: Admission
    subscribers: Subscribers

    def __post_init__(self) -> None:
        self.on_regrant: list[Callable[[Session], None]] = []
        """Called when another client continues a session, with other rights perhaps."""
        self.channels, self._groups, self._guard = (
            self._addressing.channels,
            self._addressing.groups,
            self._admission.guard,
        )

    def grant(
        self, session: Session, message: Message, channels: list[Channel]
    ) -> Steps[tuple[list[Channel], str | None]]:
        """The channels that the session may subscribe to, up to the first that it may not, and the error of that. No one
        subscribes to service channels: they are granted, and left out."""
        granted: list[Channel] = []
        for number, channel in enumerate(channels, 1):
            if not number % _AT_ONCE:
                yield self._runtime.turns.rest(session.account.name if session.account is not None else None)
            error = yield from self._refused(session, channel, message)
            if error is None and (channel.kind is Kind.META or not session.is_live):
                error = BayeuxCode.SUBSCRIBE_FAILED
            if error is not None:
                return granted, error
            if channel.kind is Kind.BROADCAST:
                granted.append(channel)
        return granted, None

    def regrant(self, session: Session) -> Steps[None]:
        """Another client continues the session: end the subscriptions that its token does not grant. Raises StoreError, and
        then they stay."""
        grouped = {pattern for pattern, _ in self._groups.of(session)}
        for regrant in self.on_regrant:
            regrant(session)
        names = [name for name in session.subscriptions if not _may_keep(session, name, is_grouped=name in grouped)]
        if not names:
            return
        waiting = self.subscribers.of(session).unsubscribe(names)
        if waiting is not None:
            yield waiting

    def _refused(self, session: Session, channel: Channel, message: Message) -> Steps[str | None]:
        is_known = channel.name in META_CHANNELS or channel.name in self.channels or channel.kind is Kind.SERVICE
        if not is_known:
            reason = yield from self._guard.create(session, channel, message)
            if reason is not None:
                return denied(reason, Denied.CREATE)
        reason = yield from self._guard.subscribe(session, channel, message)
        return None if reason is None else denied(reason, Denied.SUBSCRIBE)


def _may_keep(session: Session, name: str, *, is_grouped: bool) -> bool:
    channel = parse(name)
    if channel is None or channel.is_reply:
        return True
    grants, watched = session.grants, presence_of(channel)
    if channel.is_system and watched is None:
        return session.is_operator
    if grants is None or grants.by_policy:
        return True
    if watched is not None:
        return grants.may_subscribe(watched) and grants.may_be_present(watched)
    return grants.may_subscribe(channel) and (not is_grouped or grants.may_group(channel))
