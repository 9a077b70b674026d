"""How a subscription to a channel with a history begins: what it is sent first, and the instant from which it receives.

The histories are read by steps in the queue of all that is written, whose answers come in the order of the questions. When
they are there, all that this server had published before has been taken, and nothing that came later. What they hold up to
there is queued, and the session enters the index in the same turn. What others have published meanwhile comes from the log,
and is left out of what the histories hold. So no message comes twice or is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple

from crewel.bayeux.channel import parse
from crewel.broker.handler_steps import resolve
from crewel.broker.mailboxes.outbound import Outbound
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.subscriptions.options import Choices, MatchResult, SubscriptionOptions
from crewel.broker.subscriptions.replay_numbers import REPLAY_ALL, events_after, replay_refusal
from crewel.delivery.entry import Entry
from crewel.delivery.records import Logged, LogId
from crewel.errors import Refused, StoreError, StoreUnavailable
from crewel.qos.subscribe import ALL, Position
from crewel.storage import histories
from crewel.storage.histories import Past, Pasts, Wanted, Way

_TRIES: Final = 5  # while the client knows what this server has not taken from the log
_AT_ONCE: Final = 1000
"""Histories that one step reads at most."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What one channel's subscription begins with. At most one of `since` and `replay` is there, and then `entries` and
    `newest_first` do not count."""

    channel: str
    pattern: str
    """What is subscribed to: the channel, or a pattern that matches it."""
    entries: int = 0
    """How many messages of the history; ALL: all of them."""
    newest_first: bool = True
    since: Position | None = None
    """All after this one, or nothing."""
    replay: int | None = None
    """All events after the one of this number, or all."""

    @property
    def is_initial(self) -> bool:
        """Whether its messages come because of the subscribe alone."""
        return self.since is None and self.replay is None


@dataclass(frozen=True, slots=True)
class Room:
    """What the queue of a session can take; None: any number of bytes."""

    entries: int
    size: int | None = None

    def holds(self, messages: Sequence[Logged]) -> bool:
        """Whether all of these fit."""
        if len(messages) > self.entries:
            return False
        return self.size is None or sum(len(each.body) for each in messages) <= self.size

    def meet(self, other: Room) -> Room:
        """What fits into both."""
        sizes = [each for each in (self.size, other.size) if each is not None]
        return Room(min(self.entries, other.entries), min(sizes, default=None))

    def less(self, messages: Sequence[Logged]) -> Room:
        """What is left once these are there."""
        size = None if self.size is None else self.size - sum(len(each.body) for each in messages)
        return Room(self.entries - len(messages), size)

    def newest(self, messages: Sequence[Logged]) -> list[Logged]:
        """As many of the newest of these as fit; they are in order, oldest first."""
        taken: list[Logged] = []
        size = 0
        for each in reversed(messages):
            size += len(each.body)
            if len(taken) >= self.entries or (self.size is not None and size > self.size):
                break
            taken.append(each)
        return taken[::-1]


@dataclass(slots=True)
class ReplayResult:
    """What the subscriptions of one subscribe start with."""

    entries: list[Entry] = field(default_factory=list)
    """What the session is sent before anything else of these channels."""
    positions: dict[str, Position] = field(default_factory=dict)
    """Where each history was at that instant."""
    is_recovered: bool = True
    """Whether all that was missed `since` is among the entries, or still to come."""


class Begin(NamedTuple):
    """One request, and what there is for it."""

    start: ReplayRequest
    past: Past
    until: LogId
    """The session receives what came after this from the log."""

    def position(self) -> Position:
        """The newest message that does not come from the log, as far as it is known."""
        known = (self.past.newest, self.past.before, *(each.id for each in self.past.entries))
        return Position(self.past.epoch, max((each for each in known if each <= self.until), default=LogId(0)))

    def unheard(self, entries: Iterable[Logged]) -> list[Logged]:
        """Those of these that do not come from the log."""
        return [each for each in entries if each.id <= self.until]


def decide(result: ReplayResult, begins: Sequence[Begin], room: Room) -> None:
    """Work out how subscriptions begin. What is asked for `since` comes all or not at all. Raises Refused for the number of an
    event that is not there."""
    recovered: list[Logged] = []
    missed: list[Logged] = []
    for begin in begins:
        start, past = begin.start, begin.past
        result.positions[start.channel] = begin.position()
        if start.since is not None:
            # Between two moments without a history there may have been one, which was erased.
            result.is_recovered &= bool(past.epoch) and past.epoch == start.since.epoch and past.reaches
            recovered += past.entries
            missed += begin.unheard(past.entries)
        elif start.replay is not None:
            events = past.entries
            if start.replay != REPLAY_ALL:
                found = events_after(past.entries, start.replay)
                if found is None:
                    raise replay_refusal(start.replay)
                events = found
            events = room.newest(events)
            room = room.less(events)
            result.entries += [Entry.remembered(each, is_initial=False) for each in begin.unheard(events)]
    result.is_recovered &= room.holds(recovered)
    if result.is_recovered:
        room = room.less(recovered)
        missed.sort(key=attrgetter("id"))
        result.entries += [Entry.remembered(each, is_initial=False) for each in missed]
    result.entries += _initial([begin for begin in begins if begin.start.is_initial], room)


def _initial(begins: Sequence[Begin], room: Room) -> Iterator[Entry]:
    """What comes because of the subscribe alone: the newest messages of all these topics together, topic by topic."""
    entries = [each for begin in begins for each in begin.unheard(begin.past.entries)]
    entries.sort(key=attrgetter("id"))
    of_channel: dict[str, list[Logged]] = {}
    for each in room.newest(entries):
        of_channel.setdefault(each.channel, []).append(each)
    for begin in begins:
        found = of_channel.get(begin.start.channel, [])
        for each in reversed(found) if begin.start.newest_first else found:
            yield Entry.remembered(each, is_initial=True)


@dataclass(frozen=True, slots=True)
class HistoryReads:
    """What the reading of histories takes of the server."""

    runtime: Runtime
    outbound: Outbound
    options: SubscriptionOptions

    def room_of(self, session: Session) -> Room:
        """What the session's queue can take now."""
        view = session.mailbox.view()
        return Room(view.room, view.room_in_bytes)


@dataclass(eq=False)
class HistoryRead:
    """The histories of one subscribe, on their way from the store. `result` gets what is in them."""

    _readers: HistoryReads
    _session: Session
    _wanted: Mapping[str, Choices]
    _starts: Sequence[ReplayRequest]
    _result: ReplayResult
    _answers: list[Pasts] = field(default_factory=list, init=False)
    _error: StoreError | None = field(default=None, init=False)
    _awaited: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._access = self._readers.runtime.access
        self._of_channel = {start.channel: (start.pattern, self._wanted[start.pattern]) for start in self._starts}
        self._room = Room(0)

    def ask(self, done: Callable[[], None]) -> None:
        """Read them; `done` is called once all answers are there."""
        self._room = self._readers.room_of(self._session)
        access, room, now = self._access, self._room, self._readers.runtime.clock.microseconds()
        wanted = [_wanted(start, room.entries) for start in self._starts]
        portions = [wanted[at : at + _AT_ONCE] for at in range(0, len(wanted), _AT_ONCE)]
        step = partial(histories.pasts, room=room.entries, max_bytes=room.size, taken=access.node.cursor, now=now)
        self._answers, self._error, self._awaited = [], None, len(portions)
        for portion in portions:
            access.writing.submit(step(access.keys, access.token, portion), partial(self._answered, done))

    def _answered(self, done: Callable[[], None], answer: Pasts | StoreError) -> None:
        if isinstance(answer, StoreError):
            self._error = answer
        else:
            self._answers.append(answer)
        self._awaited -= 1
        if not self._awaited:
            done()

    def begin(self, enter: Callable[[], None]) -> asyncio.Future[None]:
        """Read them, queue what they hold, and let `enter` put the session into the index, in one turn. The future raises
        StoreError and Refused, and then nothing has changed."""
        done: asyncio.Future[None] = self._readers.runtime.loop.create_future()
        self._begin(enter, done, _TRIES)
        return done

    def _begin(self, enter: Callable[[], None], done: asyncio.Future[None], tries: int) -> None:
        def answered() -> None:
            if self._is_ahead() and tries > 1:
                self._access.writing.probe()
                self._begin(enter, done, tries - 1)
                return
            try:
                if self._is_ahead():
                    raise StoreUnavailable("the server has not read the log to its end yet")
                self.finish({}, ())
            except (StoreError, Refused) as error:
                resolve(done, error)
                return
            if self._session.is_live:
                enter()
            resolve(done, None)

        self.ask(answered)

    def _is_ahead(self) -> bool:
        """Whether the client may know messages that this server has not taken from the log yet: it would get them again."""
        cursor = self._access.node.cursor
        if all(each.last <= cursor for each in self._answers):
            return False
        return any(
            (start.since is not None and start.since.id > cursor) or (start.replay is not None and start.replay >= 0)
            for start in self._starts
        )

    def finish(self, since: Mapping[str, LogId], held: Collection[str]) -> None:
        """All answers are there: queue what the histories hold. The session receives from the log what comes after the place
        `since` that the store has said for the pattern. It receives all that has not been taken from the log yet if no place
        was said, or if it `held` a pattern before by which it receives the channel. Raises StoreError and Refused."""
        if self._error is not None:
            raise self._error
        cursor = self._access.node.cursor
        found = (past for answer in self._answers for past in answer.found)
        begins = []
        for start, past in zip(self._starts, found, strict=True):
            channel = parse(start.channel)
            assert channel is not None
            is_heard = any(pattern in held for pattern in channel.patterns)
            begins.append(Begin(start, past, cursor if is_heard else since.get(start.pattern, cursor)))
        last = [each.last for each in self._answers]
        if any(each.until > min(last) for each in begins):
            raise StoreUnavailable("the store does not have what was published before")
        if max(last) > cursor:
            self._access.writing.probe()  # what this server has not taken yet comes soon
        decide(self._result, begins, self._room.meet(self._readers.room_of(self._session)))
        if self._session.is_live:
            self._queue()

    def _queue(self) -> None:
        """Queue the messages that the subscription wants, less those that wait anyway and were only asked for because they may
        have been missed."""
        readers, session = self._readers, self._session
        waiting = session.mailbox.view().waiting_ids()
        for entry in self._result.entries:
            channel = parse(entry.channel)
            assert channel is not None
            assert entry.origin is not None
            if not entry.origin.is_initial and entry.origin.id in waiting:
                continue
            match = readers.options.match_history(session, *self._of_channel[entry.channel], channel, entry)
            if match is MatchResult.NO:
                continue
            readers.outbound.enqueue(session, entry if match is MatchResult.YES else entry.oneway())
            if not entry.origin.is_initial:
                session.recover_to(entry)


def _wanted(start: ReplayRequest, room: int) -> Wanted:
    """What has to be read for this."""
    if start.since is not None:
        return Wanted(start.channel, Way.SINCE, since=LogId(start.since.id))
    if start.replay is not None:
        # One more than fits shows that they do not.
        return Wanted(start.channel, Way.ALONE, room if start.replay == REPLAY_ALL else room + 1)
    return Wanted(start.channel, Way.NEWEST, room if start.entries == ALL else min(start.entries, room))
