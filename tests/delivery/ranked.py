"""Random interleavings in which messages have priorities, and lives that end.

`RankedRun` adds to `failing.FailingRun` what publishers ask for, a clock by which messages die, and bodies that are read while
others arrive. Beside all other promises: what leaves goes by priority and age, behind what is sent again; nothing leaves
when its life is over, and then it ends expired, for whoever is away too; nothing expires that is not to be destroyed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from crewel.delivery.durable_session import DurableSession
from crewel.delivery.entry import Entry, place_of, priority_of, rank_of
from crewel.delivery.log_consumer import LogConsumer
from crewel.delivery.records import EndReason, Logged, LogId, SessionName, Submission
from tests.delivery.failing import FailingLedger, FailingRun
from tests.delivery.ledger import MATCHING, Broken, Ledger
from tests.delivery.receiver import Receiver
from tests.delivery.receiving import DEAD_SESSION, ReceivingServer
from tests.delivery.server_model import Request, Server

FAR: Final = 10**12
LIVES: Final = (b'"lifeTime":1,"forceDestroy":true', b'"lifeTime":2,"forceDestroy":true')
"""Milliseconds; a place of the log counts as a microsecond."""
QUALITIES: Final = (
    *(b"",) * 6,
    *(b'{"priority":%d}' % priority for priority in (0, 1, 4, 6, 9, 9)),
    *(b"{%b}" % life for life in LIVES),
    *(b'{"priority":%d,%b}' % (priority, life) for priority in (1, 9) for life in LIVES),
    b'{"lifeTime":1}',
)
"""What publishers ask for."""


class RankedLedger(FailingLedger):
    """Knows when messages have to go."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.expiries: dict[LogId, int] = {}

    def _ended(self, name: SessionName, log_id: LogId, reason: EndReason) -> None:
        if reason is EndReason.EXPIRED and not 0 < self.expiries.get(log_id, 0) <= self.now:
            raise Broken(f"{log_id} expired for {name} at {self.now}, and not at {self.expiries.get(log_id)}")
        super()._ended(name, log_id, reason)


class RankedReceiver(Receiver):
    """A session whose queue is filled while bodies are read."""

    of_run: RankedLedger
    """Its clock is that of all servers."""
    node: LogConsumer
    """Of its server."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.reading: list[LogId] = []
        self.is_owed = False
        """Whether something may be evicted that goes before what is queued: a subscription was answered late."""

    @property
    def clock(self) -> int:  # type: ignore[override]
        return self.of_run.now

    def refill(self, count: int) -> None:
        """Begin to read what is evicted."""
        if not self._dispatcher.is_paused and not self.reading:
            self.reading = self.durable.first_evicted(count)

    def finish_reading(self) -> None:
        ids, self.reading = self.reading, []
        if not self._dispatcher.is_paused:
            read = [self._read(log_id) for log_id in self.durable.load(ids)]
            for entry in read:
                self.load(entry)
            ranks = [rank_of(entry.position, entry.priority) for entry in read]
            if ranks and (left := self._first_evicted()) is not None and left < ranks[-1]:
                raise Broken(f"{ranks} were read for {self.durable.name} before {left}")

    def _first_evicted(self) -> int | None:
        """The rank of what goes first of all that is evicted, whatever order it has there."""
        known = {each: self.durable.find(each) for each in self.in_store_only()}
        return min((rank_of(each, waiting.priority) for each, waiting in known.items() if waiting), default=None)

    def check(self) -> None:
        super().check()
        evicted = [rank for rank in self.durable.evicted if self.durable.find(place_of(rank))]
        if evicted and evicted[0] != self._first_evicted():
            raise Broken(f"{evicted} are evicted for {self.durable.name} in this order")

    def depart(self) -> None:
        """A response is about to leave."""
        self.sweep(is_away=False)

    def reply(self, count: int, now: float) -> tuple[int, list[str]]:
        if not self._dispatcher.is_paused:
            self.depart()
        return super().reply(count, now)

    def _look_after_order(self, again: list[Entry], leaving: list[Entry]) -> None:
        super()._look_after_order(again, leaving)
        stored, first = [each.priority for each in leaving if each.position], self._first_evicted()
        if not self.is_owed and stored and first is not None and min(stored) < priority_of(first):
            raise Broken(f"{stored} were sent to {self.durable.name} before {first}")
        if over := [each for each in (*again, *leaving) if each.is_over(self.clock)]:
            raise Broken(f"at {self.clock} was sent what had to go at {[each.expires for each in over]}")

    def sweep(self, *, is_away: bool) -> None:
        """End what has to go out by now."""
        self.expire(self.clock, is_gone=is_away)
        self.node.mark_dirty(self.durable)
        self.check()


class RankedServer(ReceivingServer):
    """A server that takes out what has to go."""

    ledger: RankedLedger

    def receiver(self, durable: DurableSession) -> Receiver:
        receiver = super().receiver(durable)
        assert isinstance(receiver, RankedReceiver)
        receiver.node = self.serving
        return receiver

    def _expect(self, durable: DurableSession, ids: Iterable[LogId]) -> None:
        pending = [*ids]
        super()._expect(durable, pending)
        if pending and durable in self.receivers:
            receiver = self.receivers[durable]
            assert isinstance(receiver, RankedReceiver)
            receiver.is_owed = True

    def sweep(self, *, is_away: bool) -> None:
        now = self.ledger.now
        for durable in self.serving.expiring(now):
            if durable in self.receivers:
                self._sweep(self.receivers[durable], is_away=is_away)
            else:
                durable.expire(durable.expired(now))
            self.serving.mark_dirty(durable)
        for receiver in self.receivers.values():
            if receiver.volatile:
                self._sweep(receiver, is_away=is_away)
        self._look_after_lives()

    def _sweep(self, receiver: Receiver, *, is_away: bool) -> None:
        assert isinstance(receiver, RankedReceiver)
        receiver.sweep(is_away=is_away)

    def _look_after_lives(self) -> None:
        for durable in self.serving.sessions.values():
            receiver = self.receivers.get(durable)
            at_client = () if receiver is None else {each.position for each in receiver.sent()}
            waiting = {**durable.pending, **durable.inbox}
            over = [each for each in waiting if 0 < waiting[each].expires <= self.ledger.now and each not in at_client]
            if over and not durable.is_fenced:
                raise Broken(f"{over} had to go, and wait for {durable.name} after a sweep at {self.ledger.now}")

    def close(self, durable: DurableSession) -> None:
        if durable in self.receivers:
            receiver = self.receivers[durable]
            assert isinstance(receiver, RankedReceiver)
            receiver.leave(receiver.clock)
        super().close(durable)

    def _end_open(self, durable: DurableSession) -> None:
        durable.expire(durable.expired(self.ledger.now))
        super()._end_open(durable)

    def _end(self, durable: DurableSession) -> None:
        super()._end(durable)
        letters = self.requests[-1].arguments[2]
        for letter in letters:
            if letter.code == DEAD_SESSION[0] and 0 < self.ledger.expiries.get(letter.id, 0) <= self.ledger.now:
                raise Broken(f"{letter} was made when the life of the message was over")


class RankedRun(FailingRun):
    """One run."""

    ledger: RankedLedger

    def __init__(
        self,
        seed: int,
        *,
        receiver: type[RankedReceiver] = RankedReceiver,
        server: type[RankedServer] = RankedServer,
        **parts: Any,
    ) -> None:
        self._ranked = RankedLedger()
        bound: Any = type(receiver.__name__, (receiver,), {"of_run": self._ranked})
        super().__init__(seed, receiver=bound, server=server, **parts)

    def _new_ledger(self) -> Ledger:
        return self._ranked

    def _weighted(self, loses: bool) -> Iterable[Callable[[], None]]:
        yield from super()._weighted(loses)
        for weight, step in (
            (30, self._finish_reading),
            (10, self._live),
            (8, self._sweep),
            (30, self._publish),
            (30, self._execute),
            (30, self._answer),
            (30, self._take),
            (15, self._push),
            (20, self._operate),
            (30, self._reply),
            (10, self._refill),
        ):
            yield from [step] * weight

    # What clients do

    def _publish(self) -> None:
        if server := self._server():
            channels = self.random.choices([*MATCHING], k=self.random.randint(1, 3))
            server.publish([Submission(each, b"{}", qos=self.random.choice(QUALITIES)) for each in channels])

    def _book(self, server: Server, request: Request, result: Any) -> None:
        if request.kind == "append":
            for submission, log_id in zip(request.arguments[0], result[1], strict=True):
                logged = Logged(log_id, submission.channel, submission.body, qos=submission.qos)
                self.ledger.expiries[log_id] = Entry.read_back(logged).expires
        super()._book(server, request, result)

    def _push(self) -> None:
        if found := self._receiving():
            server, durable = found
            self._sent += 1
            expires = self.random.choice([0, 0, self.ledger.now + 500])
            server.push(durable, f"v-{self._sent}", priority=self.random.choice([0, 5, 5, 9]), expires=expires)

    # What time does

    def _finish_reading(self) -> None:
        if found := self._receiving():
            server, durable = found
            receiver = server.receiver(durable)
            assert isinstance(receiver, RankedReceiver)
            receiver.finish_reading()
            receiver.check()

    def _live(self) -> None:
        self.ledger.now += self.random.choice([100, 400, 1200])

    def _sweep(self) -> None:
        server = self._server()
        if server is not None:
            assert isinstance(server, RankedServer)
            server.sweep(is_away=self.random.random() < 0.3)

    # The end

    def _read_all(self, server: Server) -> None:
        """Everything that has an end has come to it."""
        super()._read_all(server)
        assert isinstance(server, RankedServer)
        self.ledger.now = FAR
        server.sweep(is_away=True)
