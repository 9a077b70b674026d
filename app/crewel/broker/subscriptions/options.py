"""What the sessions of one broker want of the channels that they are subscribed to, and so of each message.

A message that sessions with filters are asked about is read once, and each filter is evaluated once for all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from crewel.bayeux.channel import Channel, matches
from crewel.bayeux.codec import encode, reread
from crewel.bayeux.message import Fields
from crewel.broker.channels import Channels
from crewel.broker.point_to_point.consumer_groups import ConsumerGroups
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.session_queue.open_messages import OpenMessages
from crewel.broker.session_queue.outbound import Outbound
from crewel.broker.topics.topic_table import TopicTable
from crewel.delivery.entry import Entry
from crewel.errors import IllegalArgument
from crewel.metrics import Metrics
from crewel.qos.filters import BUDGET_MINIMUM, MAX_STEPS, Filter, FilterBudget, FilterFailed, FilterTooCostly
from crewel.qos.subscribe import MAX_POSITIONS, USUAL, Choice, SubscribeQos, joined, read_choice

if TYPE_CHECKING:
    from crewel.broker.subscriptions.history_start import Numbers

log = logging.getLogger(__name__)


class MatchResult(Enum):
    """How one message reaches a session, by the options of its subscriptions."""

    NO = "not at all"
    YES = "as others"
    ONEWAY = "without waiting for its answer"


class Budgets:
    """What the filters of each session may cost. Sessions whose filters are conditions have no budget: they need none."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        self.metrics = metrics
        self._clock = clock
        self._of: dict[Session, FilterBudget] = {}

    def allowance(self, session: Session) -> int:
        """The steps that the session's filters may take for one message."""
        now = self._clock()
        budget = self._of.get(session)
        if budget is None:
            budget = self._of[session] = FilterBudget(now)
        return budget.allowance(now)

    def spend(self, session: Session, steps: int) -> None:
        """The session's filters have taken so many."""
        self._of[session].spend(steps)

    def forget(self, session: Session) -> None:
        """The session has ended."""
        self._of.pop(session, None)


Exceeded = Callable[[Session, str, Filter, int], None]
"""Called with the session, the pattern of its subscription, the filter, and how many steps that was allowed."""


class FilterContext:
    """One message that sessions with filters are asked about: it is read once, and each expression is evaluated once, however
    many sessions have it. `exceeded` is called with each session whose filter cannot judge it within the budget."""

    __slots__ = (
        "_asking",
        "_budgets",
        "_document",
        "_exceeded",
        "_left",
        "_verdicts",
        "channel",
        "entry",
        "qos",
        "sender",
    )

    def __init__(
        self, channel: Channel, entry: Entry, sender: str, qos: bytes, budgets: Budgets, exceeded: Exceeded
    ) -> None:
        self.channel = channel
        self.entry = entry
        self.sender = sender
        self.qos = qos
        self._budgets = budgets
        self._document: dict[str, Any] | None = None
        self._exceeded = exceeded
        self._verdicts: dict[str, bool | None] = {}  # None: no session's budget suffices
        self._asking: Session | None = None  # whose filters are being evaluated, and what they have left
        self._left = 0

    def passes(self, expression: Filter, session: Session, pattern: str) -> bool:
        """Whether the expression, of the session's subscription to this pattern, is true for the message. One that fails is
        not. A message that cannot be judged within the session's budget passes, so that it is not lost, and the subscription
        fails."""
        if expression.text in self._verdicts:
            verdict = self._verdicts[expression.text]
            if verdict is None:
                self._exceeded(session, pattern, expression, MAX_STEPS)
                return True
            return verdict
        verdict = self._evaluated(expression) if expression.is_cheap else None
        return self._within_budget(expression, session, pattern) if verdict is None else verdict

    def _evaluated(self, expression: Filter) -> bool | None:
        try:
            verdict = expression.accepts(self._read(), BUDGET_MINIMUM)
        except FilterTooCostly:
            return None
        except FilterFailed:
            verdict = self._failed()
        self._verdicts[expression.text] = verdict
        return verdict

    def _within_budget(self, expression: Filter, session: Session, pattern: str) -> bool:
        if self._asking is not session:
            self._asking = session
            self._left = self._budgets.allowance(session)
        allowed = self._left
        verdict: bool | None
        try:
            verdict = expression.accepts(self._read(), allowed)
        except FilterTooCostly:
            self._exceeded(session, pattern, expression, allowed)
            verdict = None
        except FilterFailed:
            verdict = self._failed()
        self._left -= expression.spent
        self._budgets.spend(session, expression.spent)
        if verdict is not None or allowed == MAX_STEPS:  # with more to spend, another session may judge it
            self._verdicts[expression.text] = verdict
        return verdict is not False

    def _failed(self) -> bool:
        self._budgets.metrics.filter_failures += 1
        return False

    def _read(self) -> dict[str, Any]:
        if self._document is None:
            self._document = {
                "data": reread(self.entry.wire).get("data"),
                "channel": self.channel.name,
                "clientProperties": reread(self.qos).get("clientProperties", {}) if self.qos else {},
                "sender": self.sender,
            }
        return self._document


Choices = tuple[Choice, ...]
"""What a session wants of one channel or pattern: what any of these wants. Empty: everything."""


@dataclass(eq=False)
class SubscriptionOptions:
    """Knows which sessions choose among the messages of their channels."""

    _runtime: Runtime
    _channels: Channels
    _outbound: Outbound
    _open_messages: OpenMessages
    _topics: TopicTable
    _groups: ConsumerGroups
    filtered: dict[Session, dict[str, Choices]] = field(default_factory=dict, init=False)
    """The sessions that do not want every message as it comes, and what they want by pattern; all others need not be
    asked about."""
    numbers: Numbers | None = field(default=None, init=False)
    """Numbers events for the replay extension; None: it is not loaded."""
    exceeded: Exceeded = field(init=False)
    """A filter of a session cannot judge a message within its budget."""
    _question: FilterContext | None = field(default=None, init=False)
    """About the message that sessions are being asked about."""

    def __post_init__(self) -> None:
        self._budgets = Budgets(self._runtime.metrics, self._runtime.loop.time)

    # Messages

    def match(self, session: Session, channel: Channel, entry: Entry, sender: str, qos: bytes) -> MatchResult:
        """How the message, which was published by `sender` with these qualities, reaches the session. To be asked once about
        each that is about to be queued: where only the newest is wanted, older ones leave the queue."""
        wants = self.filtered.get(session)
        if wants is None:
            return MatchResult.YES
        question = self._asked(channel, entry, sender, qos)
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
            self._open_messages.conflate(session, channel.name, entry.position)
        return _match_result(session, hearing)

    def filter_subscribers(
        self, channel: Channel, entry: Entry, subscribers: Collection[Session], sender: str, qos: bytes
    ) -> list[Session]:
        """The subscribers less those that have said that they do not want this message, and those to whom it has gone now
        because they do not answer it."""
        hearing = []
        for session in subscribers:
            match = MatchResult.YES
            if session in self.filtered:
                match = self.match(session, channel, entry, sender, qos)
            if match is MatchResult.YES:
                hearing.append(session)
            elif match is MatchResult.ONEWAY:
                self._outbound.enqueue(session, entry.oneway())
        return hearing

    def match_history(
        self, session: Session, pattern: str, choices: Choices, channel: Channel, entry: Entry
    ) -> MatchResult:
        """Whether a subscription to this pattern, with these options, gets a message of the history."""
        assert entry.origin is not None
        question = self._asked(channel, entry, entry.origin.sender, entry.origin.qos)
        hearing = [each for each in choices or (USUAL,) if _wants(each, session, question, pattern)]
        return _match_result(session, hearing) if hearing else MatchResult.NO

    def _asked(self, channel: Channel, entry: Entry, sender: str, qos: bytes) -> FilterContext:
        question = self._question
        if question is None or question.entry is not entry:
            question = self._question = FilterContext(channel, entry, sender, qos, self._budgets, self.exceeded)
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
        wants = self.filtered.get(session, {})
        if choices:
            self.filtered[session] = {**wants, pattern: choices}
        elif pattern in wants:
            self._drop(session, pattern)

    def _drop(self, session: Session, pattern: str) -> None:
        rest = {each: choices for each, choices in self.filtered[session].items() if each != pattern}
        if rest:
            self.filtered[session] = rest
        else:
            del self.filtered[session]

    def enter(self, session: Session, pattern: str, choices: Choices) -> None:
        """The session is subscribed to this pattern, and wants this of it."""
        former = self.filtered.get(session, {}).get(pattern, ())
        self.choose(session, pattern, choices)
        if not group_of(choices):
            self._channels.subscribe(session, pattern)
            return
        session.subscriptions.add(pattern)
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
            session.subscriptions.discard(pattern)
            self._groups.leave(session, pattern)
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


def _match_result(session: Session, hearing: list[Choice]) -> MatchResult:
    is_oneway = session.is_reliable and all(each.update_oneway for each in hearing)
    return MatchResult.ONEWAY if is_oneway else MatchResult.YES


def _wants(choice: Choice, session: Session, question: FilterContext, pattern: str) -> bool:
    if choice.group or not (choice.local or not session.name or question.sender != session.name):
        return False
    return choice.filter is None or question.passes(choice.filter, session, pattern)
