"""Random interleavings in which receivers fail: clients report this and that of their messages or say nothing, operators hold
back, skip, drain and send letters again, sessions end, and servers die between any two steps.

`FailingRun` adds to `interleaving.Run` what `receiving.py` models. Beside the promises that `Ledger` looks after, the sums must
be exact at the end: what was published to whom was subscribed, and sent again, is what has ended, by reasons, and what waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from crewel.delivery.dispatcher import Rules
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.log_consumer import LogConsumer
from crewel.delivery.outcomes import OnUserError
from crewel.delivery.records import Disposition, EndReason, LogId, PendingDeadLetter, PendingMessage, SessionName
from crewel.qos.connect import OverflowPolicy, Settle
from tests.delivery.interleaving import Run
from tests.delivery.ledger import Broken, Ledger
from tests.delivery.receiver import Receiver
from tests.delivery.receiving import DEAD_SESSION, ReceivingServer
from tests.delivery.server_model import Request, Server
from tests.delivery.store_model import SessionRow, StoreModel

KINDS: Final = {
    SessionName("client/joe/1"): (Rules(tells=True, retries=1, delay=2.0), OverflowPolicy.DEAD_MESSAGE),
    SessionName("client/joe/2"): (
        Rules(tells=True, settle=Settle.MESSAGE, ack_wait=5.0, retries=2, delay=0.0),
        OverflowPolicy.DROP_OLDEST,
    ),
    SessionName("client/eve/1"): (
        Rules(tells=True, settle=Settle.MESSAGE, retries=-1, delay=3.0, on_user_error=OnUserError.DEAD),
        OverflowPolicy.DEAD_MESSAGE,
    ),
    SessionName("client/eve/-7"): (
        Rules(tells=True, settle=Settle.MESSAGE, ack_wait=5.0, retries=0),
        OverflowPolicy.DISCONNECT,
    ),
    SessionName("client/anonymous/-9"): (Rules(tells=True, ack_wait=inf, retries=0), OverflowPolicy.DROP_OLDEST),
}
"""How each session has logged in."""
SAID: Final = (
    *({"state": "OK"},) * 20,
    *({"state": "WORKING"},) * 2,
    {"state": "DONE"},
    *({"errorCode": "user.update.deadMessage"},) * 2,
    *({"errorCode": "user.update.error"},) * 2,
    *({"errorCode": "communication.noConnection", "message": "away"},) * 4,
    *({"errorCode": "user.update.holdback", "message": "lunch"},) * 2,
    {"errorCode": "no.code"},
    {"errorCode": "user.security.authentication"},
)
"""What clients say of a message."""


class FailingLedger(Ledger):
    """Counts what was pending, and keeps the letters."""

    def __init__(self) -> None:
        super().__init__()
        self.pending = 0
        self.letters: list[PendingDeadLetter] = []
        """Of stored messages, and not sent again."""
        self.volatile: set[str] = set()
        """Messages that were never stored, and are letters."""
        self.redriven: dict[LogId, PendingDeadLetter] = {}

    def published(self, log_id: LogId, channel: str) -> None:
        super().published(log_id, channel)
        self.pending += sum(log_id in account.waiting for account in self.accounts.values())

    def _book(self, ended: Iterable[Disposition], letters: Iterable[PendingDeadLetter]) -> None:
        stored = [letter for letter in letters if letter.message is None]
        for letter in letters:
            if letter.message is not None:
                message_id = f"{letter.session} {letter.message.id}"
                if message_id in self.volatile:
                    raise Broken(f"{message_id} is a letter twice")
                self.volatile.add(message_id)
        super()._book(ended, stored)
        self.letters += stored

    def moved(self, letter: PendingDeadLetter, log_id: LogId) -> None:
        """The letter waits for its receiver again, under this id."""
        if log_id not in self.redriven:
            if letter not in self.letters:
                raise Broken(f"{letter} was sent again twice")
            self.redriven[log_id] = letter
            self.letters.remove(letter)
            self.accounts[letter.session].waiting.add(log_id)
            self.pending += 1

    def settle_accounts(self) -> None:
        """What was pending is what has ended, and what waits."""
        waiting = sum(len(account.waiting) for account in self.accounts.values())
        if self.pending != self.ends.total() + waiting:
            raise Broken(f"{self.pending} were pending, {dict(self.ends)} have ended and {waiting} wait")
        if self.ends[EndReason.DEAD] != len(self.letters) + len(self.redriven):
            raise Broken(f"{self.ends} have ended, and there are {len(self.letters)} letters")


class FailingStore(StoreModel):
    """The store with what receivers and operators need."""

    def __init__(self) -> None:
        super().__init__()
        self._moved: dict[int, LogId] = {}

    def hold(self, token: str, name: SessionName, told: dict[str, Any] | None) -> None:
        self._fence(token, name).record.dispatch = told

    def redrive(self, token: str, letter: PendingDeadLetter) -> LogId | None:
        """The new id; None if it cannot be. Asked again, it answers the same."""
        self._node(token)
        row = self.contents.sessions.get(letter.session)
        if id(letter) in self._moved:
            return self._moved[id(letter)]
        if row is None or row.record.ending is not None:
            return None
        self.clock += 1
        log_id = self.contents.last = self._moved[id(letter)] = LogId(max(self.contents.last + 1, self.clock))
        row.record.inbox[log_id] = PendingMessage(0, 2)
        row.bodies[log_id] = letter  # type: ignore[assignment]
        return log_id

    def end(
        self, token: str, name: SessionName, ended: Sequence[Disposition], letters: Sequence[PendingDeadLetter]
    ) -> None:
        row = self.contents.sessions.get(name)
        if row is not None and self._is_owner(token, name):  # what is sent again has not reached its owner, perhaps
            told = {each for group in ended for each in group.ids}
            untold = self._untold(row, told)
            if untold:
                ended = [*ended, Disposition(name, EndReason.DEAD, untold)]
                letters = [*letters, *(PendingDeadLetter(name, each, *DEAD_SESSION) for each in untold)]
        super().end(token, name, ended, letters)

    def _untold(self, row: SessionRow, told: set[LogId]) -> tuple[LogId, ...]:
        return tuple(each for each in sorted(row.record.inbox) if each not in told)


@dataclass
class Client:
    """One client. It survives its server, and acknowledges what reached it."""

    ack: int | None = None
    got: list[str] = field(default_factory=list)
    """What it can say something of; it may say it more than once."""


class FailingRun(Run):
    """One run."""

    names = tuple(KINDS)
    books_in_steps = False  # the runs of the base have that; here it would take room from what receivers do
    ledger: FailingLedger

    def __init__(
        self,
        seed: int,
        *,
        node: type[LogConsumer] = LogConsumer,
        durable: type[DurableSession] = DurableSession,
        receiver: type[Receiver] = Receiver,
        server: type[ReceivingServer] = ReceivingServer,
        store: type[FailingStore] | None = None,
    ) -> None:
        parts = {"kinds": KINDS, "receiver_class": receiver}
        bound: type[Server] = type(server.__name__, (server,), parts)
        self.clients: dict[DurableSession, Client] = {}
        self.clock = 0.0
        self._sent = 0
        super().__init__(seed, (store or FailingStore)(), node=node, durable=durable, server=bound)

    def _new_ledger(self) -> Ledger:
        return FailingLedger()

    def _weighted(self, loses: bool) -> Iterable[Callable[[], None]]:
        # Clients and servers do it here as they really do.
        settling = {self._acknowledge, self._acknowledge_sent, self._dead_letter, self._load}
        for step in super()._weighted(loses):
            if step not in settling:
                yield step
        for weight, step in (
            (40, self._reply),
            (30, self._connect),
            (14, self._say),
            (4, self._pass_time),
            (6, self._refill),
            (4, self._push),
            (6, self._operate),
            (8, self._redrive),
            (6, self._acknowledge_all),
        ):
            yield from [step] * weight

    def _book(self, server: Server, request: Request, result: Any) -> None:
        if request.kind == "redrive" and result is not None:
            self.ledger.moved(request.arguments[0], result)
        super()._book(server, request, result)

    # Receivers

    def _receiving(self) -> tuple[ReceivingServer, DurableSession] | None:
        found = self._session()
        if found is None:
            return None
        server, durable = found
        assert isinstance(server, ReceivingServer)
        server.now = self.clock
        return server, durable

    def _client(self, durable: DurableSession) -> Client:
        return self.clients.setdefault(durable, Client())

    def _refill(self) -> None:
        if found := self._receiving():
            server, durable = found
            server.receiver(durable).refill(self.random.randint(1, 5))

    def _reply(self) -> None:
        """A response leaves, and reaches the client or gets lost."""
        if found := self._receiving():
            server, durable = found
            receiver = server.receiver(durable)
            if not receiver._queue:
                receiver.refill(self.random.randint(1, 5))
            batch, ids = receiver.reply(self.random.randint(1, 4), self.clock)
            receiver.check()
            if self.random.random() < 0.8:
                client = self._client(durable)
                client.ack = batch
                client.got += ids

    def _connect(self) -> None:
        """The client connects: with what it says of messages, and an acknowledgement."""
        if found := self._receiving():
            server, durable = found
            client = self._client(durable)
            self._tell(server, durable, client)
            if durable in server.receivers:
                ack = client.ack if self.random.random() < 0.9 else self.random.choice([None, 0, 10**9])
                server.receiver(durable).connected(ack)
                server.serving.mark_dirty(durable)
                server.receiver(durable).check()

    def _acknowledge_all(self) -> None:
        """Things go well for once."""
        if found := self._receiving():
            server, durable = found
            client = self._client(durable)
            server.told(durable, [{"id": each, "state": "OK"} for each in client.got])
            client.got.clear()
            server.receiver(durable).connected(client.ack)
            server.receiver(durable).check()

    def _say(self) -> None:
        if found := self._receiving():
            server, durable = found
            self._tell(server, durable, self._client(durable))

    def _tell(self, server: ReceivingServer, durable: DurableSession, client: Client) -> None:
        count = self.random.randint(0, 3)
        named = [self.random.choice(client.got) for _ in range(count) if client.got]
        server.told(durable, [{"id": each, **self.random.choice(SAID)} for each in named])
        if self.random.random() < 0.8:  # else it does not hear that it was understood
            client.got = [each for each in client.got if each not in named]

    def _pass_time(self) -> None:
        self.clock += self.random.choice([0.5, 2.0, 6.0])
        for server in self.servers:
            if server.node is not None and not server.is_asleep:
                assert isinstance(server, ReceivingServer)
                server.now = self.clock
                for durable in server.sessions:
                    server.ring(durable)

    def _push(self) -> None:
        if found := self._receiving():
            server, durable = found
            self._sent += 1
            server.push(durable, f"v-{self._sent}")

    # Operators

    def _operate(self) -> None:
        if found := self._receiving():
            server, durable = found
            what = self.random.choice(["hold", *["activate"] * 8, *["skip"] * 3, "drain", "drop"])
            server.operate(durable, what, self.random.randint(1, 3))

    def _redrive(self) -> None:
        server = self._server()
        if server is not None and self.ledger.letters:
            assert isinstance(server, ReceivingServer)
            there = [each for each in self.ledger.letters if each.session in server.serving.sessions]
            letter = self.random.choice(there or self.ledger.letters)
            server.redrive(letter)
            if self.random.random() < 0.1:  # what is on its way to a session that ends
                for durable in server.sessions:
                    if durable.name == letter.session:
                        server.close(durable)

    # The log

    def _take(self) -> None:
        super()._take()
        for server in self.servers:
            if server.node is not None and not server.is_asleep:
                self._look(server)

    def _look(self, server: Server) -> None:
        """What was sent again has ids that the log does not have: where it ends, the cursor goes up to them."""
        assert isinstance(self.store, FailingStore)
        if not self.store.read(server.serving.cursor, 1):
            server.serving.cursor = max(server.serving.cursor, self.store.last())

    def _read_all(self, server: Server) -> None:
        super()._read_all(server)
        self._look(server)

    # The end

    def heal(self) -> None:
        super().heal()
        self.ledger.settle_accounts()
