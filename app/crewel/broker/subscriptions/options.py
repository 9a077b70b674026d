"""What the sessions of one broker want of the channels that they are subscribed to, and so of each message.

A message that sessions with filters are asked about is read once, and each filter is evaluated once for all of them
(`filter_context`). What takes longer than a portion of a turn is done in later turns, in the order of the channel.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from crewel.bayeux.channel import Channel, matches
from crewel.bayeux.codec import encode
from crewel.bayeux.message import Fields
from crewel.broker.addressing.addressing import Addressing
from crewel.broker.mailboxes.ends import Ends
from crewel.broker.mailboxes.outbound import Outbound
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.subscriptions.filter_context import Budgets, Exceeded, FilterContext
from crewel.broker.topics.topic_table import TopicTable
from crewel.delivery.entry import Entry
from crewel.errors import IllegalArgument
from crewel.fair_turns import PORTION_S
from crewel.qos.subscribe import MAX_POSITIONS, USUAL, Choice, SubscribeQos, joined, read_choice

if TYPE_CHECKING:
    from crewel.broker.subscriptions.replay_numbers import Numbers

log = logging.getLogger(__name__)

_QUESTIONS: Final = 8
"""Messages of which is kept what filters have said: without them, a filter is only evaluated again."""


class MatchResult(Enum):
    """How one message reaches a session, by the options of its subscriptions."""

    NO = "not at all"
    YES = "as others"
    ONEWAY = "without waiting for its answer"


Choices = tuple[Choice, ...]
"""What a session wants of one channel or pattern: what any of these wants. Empty: everything."""


@dataclass(eq=False)
class SubscriptionOptions:
    """Knows which sessions choose among the messages of their channels."""

    _runtime: Runtime
    _outbound: Outbound
    _addressing: Addressing
    _topics: TopicTable
    exceeded: Exceeded
    """A filter of a session cannot judge a message within its budget."""
    filtered: dict[Session, dict[str, Choices]] = field(default_factory=dict, init=False)
    """The sessions that do not want every message as it comes, and what they want by pattern; all others need not be
    asked about."""
    numbers: Numbers | None = field(default=None, init=False)
    """Numbers events for the replay extension; None: it is not loaded."""
    _questions: dict[Entry, FilterContext] = field(default_factory=dict, init=False)
    """About the messages that sessions are being asked about, of several channels in turns."""

    def __post_init__(self) -> None:
        self._channels, self._groups = self._addressing.channels, self._addressing.groups
        self._budgets = Budgets(self._runtime.metrics, self._runtime.loop.time)

    # Messages

    def match(self, session: Session, channel: Channel, entry: Entry, sender: str, qos: bytes) -> MatchResult:
        """How the message, which was published by `sender` with these qualities, reaches the session. To be asked once about
        each that is about to be queued: where only the newest is wanted, older ones leave the queue."""
        if session not in self.filtered:
            return MatchResult.YES
        return self._match(session, self._asked(channel, entry, sender, qos))

    def _match(self, session: Session, question: FilterContext) -> MatchResult:
        wants, channel, entry = self.filtered[session], question.channel, question.entry
        hearing: list[Choice] = []
        for pattern in channel.patterns:
            if pattern in session.subscriptions:
                choices = wants.get(pattern)
                if choices is None:
                    return MatchResult.YES
                hearing += [each for each in choices if _wants(each, session, question, pattern)]
        if not hearing:
            return MatchResult.NO
        if all(each.newest_only for each in hearing):
            Ends(session.mailbox).conflate(channel.name, entry.position)
        return _match_result(session, hearing)

    def fan_out(
        self,
        channel: Channel,
        entry: Entry,
        subscribers: Sequence[Session],
        sender: str,
        qos: bytes,
        counted: Callable[[int], object] | None = None,
    ) -> None:
        """Hand the message to the subscribers that want it. Sessions with filters have it at once as far as a portion of this
        turn reaches, and the others in later turns. All that comes for the sessions of their address then waits behind it,
        whatever its channel, so a session gets its messages in their order. `counted` is called with how many have got it
        each time, at least once."""
        outbound, question = self._outbound, self._asked(channel, entry, sender, qos)
        plain = [session for session in subscribers if session not in self.filtered]
        outbound.fan_out(entry, plain, None)
        if counted is not None:
            counted(len(plain))
        asked: dict[str, list[Session]] = {}
        for session in subscribers:
            if session in self.filtered:
                asked.setdefault(_queue_of(session), []).append(session)
        until = perf_counter() + PORTION_S
        for name, sessions in asked.items():
            done = 0
            if name not in outbound.fan_outs.pending:
                done = self._fan_out_portion(question, sessions, 0, until, counted)
            if done < len(sessions):
                outbound.fan_outs.add(name, self._fan_out_rest(question, sessions, done, counted))

    def _fan_out_rest(
        self,
        question: FilterContext,
        subscribers: Sequence[Session],
        done: int,
        counted: Callable[[int], object] | None,
    ) -> Iterator[None]:
        while done < len(subscribers):
            done = self._fan_out_portion(question, subscribers, done, 0.0, counted)
            yield

    def _fan_out_portion(
        self,
        question: FilterContext,
        subscribers: Sequence[Session],
        start: int,
        until: float,
        counted: Callable[[int], object] | None,
    ) -> int:
        """Hand the message to some of the subscribers, from this place on; the place of the next. `until`: the end of the
        portion; 0 in a later turn, which has a portion of its own. By then one may have ended, or its subscription: its
        notice must come last."""
        outbound, entry, patterns = self._outbound, question.entry, question.channel.patterns
        is_late = not until
        hearing: list[Session] = []
        at, end = start, min(start + outbound.fan_outs.at_once, len(subscribers))
        while at < end and not (until and perf_counter() >= until):
            session = subscribers[at]
            at += 1
            until = until or perf_counter() + PORTION_S
            if is_late and not (session.is_live and not session.subscriptions.isdisjoint(patterns)):
                continue
            match = self._match(session, question) if session in self.filtered else MatchResult.YES
            if match is MatchResult.YES:
                hearing.append(session)
            elif match is MatchResult.ONEWAY:
                outbound.enqueue(session, entry.oneway())
        outbound.fan_out(entry, hearing, None, in_turn=True)
        if counted is not None:
            counted(len(hearing))
        return at

    def match_history(
        self, session: Session, pattern: str, choices: Choices, channel: Channel, entry: Entry
    ) -> MatchResult:
        """Whether a subscription to this pattern, with these options, gets a message of the history."""
        assert entry.origin is not None
        question = self._asked(channel, entry, entry.origin.sender, entry.origin.qos)
        hearing = [each for each in choices or (USUAL,) if _wants(each, session, question, pattern)]
        return _match_result(session, hearing) if hearing else MatchResult.NO

    def _asked(self, channel: Channel, entry: Entry, sender: str, qos: bytes) -> FilterContext:
        question = self._questions.get(entry)
        if question is None:
            if len(self._questions) >= _QUESTIONS:
                del self._questions[next(iter(self._questions))]
            question = FilterContext(channel, entry, sender, qos, self._budgets, self.exceeded)
            self._questions[entry] = question
        return question

    def is_local(self, session: Session, channel: Channel) -> bool:
        """Whether the session wants to receive what it publishes on this channel itself."""
        wants = self.filtered.get(session, {})
        wanted = [wants.get(pattern) for pattern in channel.patterns if pattern in session.subscriptions]
        return not wanted or any(choices is None or any(each.local for each in choices) for choices in wanted)

    def wants_notice(self, session: Session, pattern: str) -> bool:
        """Whether the session, which is subscribed to this channel or pattern, asked for the notice that a topic was erased."""
        choices = self.filtered.get(session, {}).get(pattern)
        return choices is None or any(each.notify for each in choices)

    def number(self, channel: Channel, fields: Fields) -> None:
        """Give a message that goes into a history its number, if events of this channel can be replayed."""
        if self.numbers is not None and self._topics.is_replayed(channel):
            self.numbers.write(fields)

    def has_history(self, channel: Channel) -> bool:
        """Whether messages of this channel are kept, or will be when the first one comes."""
        topic = self._topics.find(channel.name)
        if topic is None:
            return self._topics.usual(channel).history_max > 0
        return topic.settings.history_max > 0 or topic.history_count > 0

    def histories(self, pattern: Channel) -> list[str]:
        """The channels that this pattern matches and that have a history with messages in it, by name, `MAX_POSITIONS` at
        most."""
        beginning = pattern.name.rstrip("*")
        found = [
            name
            for name, topic in self._topics.known.items()
            if topic.history_count and name.startswith(beginning) and not topic.is_erased
        ]
        return [name for name in sorted(found) if matches(pattern.name, name)][:MAX_POSITIONS]

    # What sessions want

    def as_json(self, session: Session) -> dict[str, list[dict[str, Any]]]:
        """What the session wants of which pattern, by the names on the wire; patterns of which it wants everything are left
        out."""
        return {
            pattern: [each.as_json() for each in choices] for pattern, choices in self.filtered.get(session, {}).items()
        }

    def wanted(self, session: Session, pattern: str, qos: SubscribeQos) -> Choices:
        """What the session will want of this pattern after a subscribe. Raises IllegalArgument if that cannot be."""
        choices = self.filtered.get(session, {}).get(pattern, ())
        if pattern not in session.subscriptions:
            return joined((), qos.choice)
        if bool(group_of(choices)) is not bool(qos.choice.group):
            raise IllegalArgument(
                "group", f"must be as before: the session is subscribed to {pattern}; unsubscribe first"
            )
        if not qos.multi_subscribe:
            return joined((), qos.choice)
        return joined(choices or (USUAL,), qos.choice)

    def choose(self, session: Session, pattern: str, choices: Choices) -> None:
        """From now on the session wants this of the pattern."""
        if choices:
            self.filtered.setdefault(session, {})[pattern] = choices
        elif session in self.filtered:
            wants = self.filtered[session]
            wants.pop(pattern, None)
            if not wants:
                del self.filtered[session]

    def ask(self, session: Session, patterns: Iterable[str]) -> Callable[[], None]:
        """The store is asked to let the session subscribe to these patterns, until the function that this returns is called."""
        return self._channels.ask(session, patterns)

    def enter(self, session: Session, pattern: str, choices: Choices) -> None:
        """The session is subscribed to this pattern, and wants this of it."""
        former = self.filtered[session].get(pattern, ()) if session in self.filtered else ()
        if choices or former:
            self.choose(session, pattern, choices)
        if not choices or not group_of(choices):
            self._channels.subscribe(session, pattern)
            return
        self._channels.add_grouped(session, pattern)
        groups = [each.group for each in choices]
        for choice in former:
            if choice.group and choice.group not in groups:
                self._groups.leave(session, pattern, choice.group)
        for group in groups:
            self._groups.join(session, pattern, group)

    def leave(self, session: Session, pattern: str) -> None:
        """The session is subscribed to this pattern no more."""
        choices = self.filtered.get(session, {}).get(pattern, ())
        if group_of(choices):
            self._channels.remove_grouped(session, pattern)
            for each in choices:
                self._groups.leave(session, pattern, each.group)
        else:
            self._channels.unsubscribe(session, pattern)
        self.choose(session, pattern, ())

    def forget(self, session: Session) -> None:
        """The session has ended."""
        self.filtered.pop(session, None)
        self._budgets.forget(session)

    def restore(self, session: Session, stored: Mapping[str, Any]) -> None:
        """A session came back from the store, with what it wants of which pattern."""
        for pattern, kept in stored.items():
            try:
                choices = tuple(read_choice(each) for each in (kept if isinstance(kept, list) else [kept]))
            except IllegalArgument as error:  # it was granted by a server of another version
                log.warning("a subscription is restored without one of its options: %s", error.message)
            else:
                if group_of(choices) or pattern in session.subscriptions:
                    self.enter(session, pattern, choices)


def group_of(choices: Iterable[Choice]) -> str:
    """The group of a subscription; empty if it is not one of a group."""
    return next((each.group for each in choices), "")


def as_stored(choices: Choices) -> bytes:
    """What the store keeps of it."""
    return encode([each.as_json() for each in choices])


def _queue_of(session: Session) -> str:
    """The name under which what comes for the session waits, if filters of its address take long. It is no channel."""
    return "filters" if session.account is None else f"filters {session.account.name}"


def _match_result(session: Session, hearing: list[Choice]) -> MatchResult:
    is_oneway = session.acknowledges and all(each.update_oneway for each in hearing)
    return MatchResult.ONEWAY if is_oneway else MatchResult.YES


def _wants(choice: Choice, session: Session, question: FilterContext, pattern: str) -> bool:
    if choice.group or not (choice.local or not session.name or question.sender != session.name):
        return False
    return choice.filter is None or question.passes(choice.filter, session, pattern)
