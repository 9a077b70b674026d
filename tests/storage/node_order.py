"""Random interleavings of several nodes in which messages are also sent to sessions by name, past the log and across nodes.

Each session gets what is in the log and what is not in the order of the ids, whichever node has appended or sent it, and also
when its session moves to another node. `take_beside` and `bring_in` do here what `StoreAccess` and `Inheritance` do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from crewel.delivery.beside_log import BesideLog
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.records import Logged, LogId, PendingMessage, SessionName, SessionRecord
from crewel.errors import StoreError
from crewel.storage import session_store, shared_queue_store
from crewel.storage.session_store import LoggedIn
from crewel.storage.shared_queue_store import Addressed, Delivery, SendOutcome, Sent
from tests.delivery.ledger import MATCHING, Broken, Ledger
from tests.delivery.server_model import Request, Server
from tests.storage.node_interleaving import NodeServer, NodesRun, NodesStore
from tests.storage.real_store import BOUND
from tests.storage.sharing import SharingLedger, SharingServer, SharingStore


class OrderStore(NodesStore, SharingStore):
    """The scripts of nodes, and those that send."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self.begun: dict[SessionName, LogId] = {}
        """The newest id when a session was made."""

    def login(self, token: str, name: SessionName) -> int:
        answer: LoggedIn = self.do(session_store.login(self.keys, token, name, {}, -1, BOUND))
        if answer.is_new:
            self.begun[name] = answer.last
        return answer.batch


class OrderServer(SharingServer, NodeServer):
    """A node that sends to sessions wherever they are."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.begun: dict[SessionName, LogId]
        self.beside: BesideLog[Callable[[], None]] = BesideLog()
        self._newest_of: dict[DurableSession, LogId] = {}
        self._is_excused = False
        """Whether what comes may be older than what came before: it was in doubt, or is sorted before it is delivered."""

    def send_to(self, names: Iterable[SessionName]) -> None:
        """One message for these sessions."""
        there = dict(self.serving.sessions)
        deliveries = [Delivery(each, each, is_elsewhere=int(each not in there)) for each in names]
        step = shared_queue_store.send(self.keys, self.token, Addressed("/a", b"{}"), deliveries, BOUND)

        def answered(sent: Sent | StoreError) -> None:
            if isinstance(sent, StoreError):
                self._refused(sent)
            else:
                self.sent(sent, partial(self._arrive_all, there, deliveries, sent))

        self._ask("send", step, "", then=answered)

    def sent(self, sent: Sent, arrive: Callable[[], None]) -> None:
        """The store has it. The node takes it in its place."""
        if sent.prev == self.serving.cursor:
            self.serving.skip(sent.id)
        if sent.id <= self.serving.cursor:
            with_excuse = sent.is_repeated and self._excused()
            arrive()
            self._is_excused = self._is_excused and not with_excuse
        else:
            self.beside.add(sent.id, arrive)

    def _excused(self) -> bool:
        self._is_excused = True
        return True

    def _arrive_all(self, there: dict[SessionName, DurableSession], deliveries: list[Delivery], sent: Sent) -> None:
        for delivery, outcome in zip(deliveries, sent.outcomes, strict=True):
            if outcome is SendOutcome.OK:
                self._arrive(there.get(SessionName(delivery.receiver)), sent.id, "")

    def take_beside(self, last: LogId) -> None:
        """What waits for a place up to there."""
        for log_id, arrive in self.beside.take(last):
            self.serving.skip(log_id)
            arrive()

    def take(self, logged: Logged, *, is_bounded: bool) -> None:
        self.take_beside(LogId(logged.id - 1))
        if not logged.addressed:
            super().take(logged, is_bounded=is_bounded)
            return
        self.serving.skip(logged.id)
        for name in shared_queue_store.addressed(logged):
            durable = self.serving.sessions.get(name)
            if durable is not None and durable.may_lack(logged.id):
                self._arrive(durable, logged.id, "")

    def _logged_in(self, durable: DurableSession) -> None:
        durable.inbox_until = durable.inbox_until or self.begun[durable.name]

    def bring_in(self, records: Iterable[SessionRecord], read: Callable[[LogId], Iterable[Logged]]) -> None:
        records = list(records)
        self.catch_up(max((each for record in records for each in record.inbox), default=LogId(0)), read)
        node, durables = self.serving, dict[SessionName, DurableSession]()
        for record in records:
            durable = durables[record.name] = self.durable_class.adopted(record)
            node.add(durable)
            self._received[durable] = {*durable.pending, *durable.inbox}
        self._is_excused = True
        for logged in read(min(record.own_cursor or LogId(0) for record in records)):
            if logged.id > node.cursor:
                break
            addressed = shared_queue_store.addressed(logged) if logged.addressed else {}
            for durable in durables.values():
                if logged.addressed:
                    if durable.name in addressed and durable.may_lack(logged.id):
                        self._arrive(durable, logged.id, "")
                elif durable.wants(MATCHING[logged.channel], logged.id):
                    durable.take(logged.id, PendingMessage(1, len(logged.body), logged.channel))
                    node.mark_dirty(durable)
                    self._receive(durable, logged.id)
        self._is_excused = False
        for durable in durables.values():
            self._late.add(durable)
            self._newest_of[durable] = max(self._received[durable], default=LogId(0))

    def catch_up(self, newest: LogId, read: Callable[[LogId], Iterable[Logged]]) -> None:
        """Take what the log has before the newest message in an inbox."""
        for logged in read(self.serving.cursor):
            if logged.id > newest:
                break
            self.take(logged, is_bounded=False)
        self.take_beside(newest)
        self.serving.skip(newest)

    def _expect(self, *arguments: Any) -> None:
        self._is_excused = True  # an answer about a subscription has brought what was passed before
        super()._expect(*arguments)
        self._is_excused = False

    def _receive(self, durable: DurableSession, log_id: LogId) -> None:
        super()._receive(durable, log_id)
        newest = self._newest_of.get(durable, LogId(0))
        if log_id < newest and not (self._is_excused or durable.is_fenced):
            raise Broken(f"{log_id} came to {durable.name} after {newest}")
        self._newest_of[durable] = max(log_id, newest)


class OrderRun(NodesRun):
    """One run."""

    store: OrderStore

    def __init__(self, seed: int, client: Any, *, server: type[OrderServer] = OrderServer) -> None:
        super().__init__(seed, client, store=OrderStore, server=server)

    def _new_ledger(self) -> Ledger:
        return SharingLedger()

    def _weighted(self, loses: bool) -> Iterable[Callable[[], None]]:
        yield from super()._weighted(loses)
        yield from [self._send] * 20

    def _boot(self) -> Server:
        server = super()._boot()
        assert isinstance(server, OrderServer)
        server.keys, server.begun = self.store.keys, self.store.begun
        return server

    def _book(self, server: Server, request: Request, result: Any) -> None:
        if request.kind == "send":
            self.ledger.noted(self.store)
        super()._book(server, request, result)

    def _send(self) -> None:
        server, names = self._server(), sorted(self.ledger.accounts)
        if isinstance(server, OrderServer) and names:
            server.send_to(self.random.sample(names, self.random.randint(1, min(2, len(names)))))

    # What the store has answered before a node looks into the log is heard before that

    def _take(self) -> None:
        for server in [each for each in self.servers if not each.is_asleep]:
            self._hear(server, len(server.answers))
        super()._take()
        for server in self.servers:
            if not server.is_asleep and not server.answers:
                self._look(server)

    def _inherit_slice(self, server: Server, count: int) -> bool:
        self._hear(server, len(server.answers))
        return server in self.servers and super()._inherit_slice(server, count)

    def _look(self, server: Server) -> None:
        """The log has nothing under the ids of what was sent to the sessions of the node that sent it."""
        assert isinstance(server, OrderServer)
        last = self.store.last()
        if not self.store.read(server.serving.cursor, 1):
            server.take_beside(last)
            server.serving.skip(last)

    def _read_all(self, server: Server) -> None:
        super()._read_all(server)
        self._look(server)
