"""Random interleavings of everything that can happen to reliable sessions, over the real engine and a store.

`Run` lets servers live, freeze, wake as fenced predecessors and die between any two steps. What a server asks the store
waits in a queue, is executed some time later, and the answer arrives some time after that, or never. The `Ledger` watches
the store. `Run.heal` ends it all: one fresh server takes over, reads what is left, and everything that was pending must be
accounted for; then its receivers settle it, and nothing may be left behind.
"""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from crewel.delivery.durable_session import DurableSession
from crewel.delivery.log_consumer import LogConsumer
from crewel.delivery.records import (
    BATCH_BLOCK,
    Commit,
    Disposition,
    Logged,
    LogId,
    PendingDeadLetter,
    SessionName,
    SessionRecord,
    Submission,
)
from crewel.errors import StoreError, StoreFull
from tests.delivery.ledger import MATCHING, Broken, Ledger, Stored
from tests.delivery.server_model import Request, Server

NAMES = tuple(SessionName(name) for name in ("client/joe/1", "client/joe/2", "client/eve/1", "client/eve/-7"))
PATTERNS = ("/a", "/b", "/c", "/*")
MOST_SERVERS = 3
MOST_ROUNDS = 100
"""Commits after which a server that nobody disturbs has nothing more to say."""
REFUSABLE = frozenset({"append", "login", "subscribe", "unsubscribe", "spill"})
"""What a full store refuses."""
CHECKED = frozenset({"commit", "end", "trim", "spill"})
"""After what the invariant is looked at."""


class Store(Stored, Protocol):
    """The scripts, as `StoreModel` has them."""

    def append(self, token: str, submissions: Sequence[Submission]) -> tuple[LogId, list[LogId]]: ...
    def read(self, after: LogId, count: int) -> list[Logged]: ...
    def trim(self, token: str) -> int: ...
    def boot(self, token: str) -> LogId: ...
    def adopt(self, token: str, count: int) -> list[SessionRecord]: ...
    def login(self, token: str, name: SessionName) -> int: ...
    def subscribe(self, token: str, name: SessionName, patterns: Sequence[str]) -> dict[str, LogId]: ...
    def unsubscribe(self, token: str, name: SessionName, patterns: Sequence[str]) -> dict[str, tuple[LogId, LogId]]: ...
    def close(self, token: str, name: SessionName) -> LogId: ...
    def end(
        self, token: str, name: SessionName, ended: Sequence[Disposition], letters: Sequence[PendingDeadLetter]
    ) -> None: ...
    def spill(self, token: str, name: SessionName, ids: Sequence[LogId]) -> list[LogId]: ...
    def commit(self, token: str, commit: Commit) -> list[SessionName]: ...
    def snapshot(self) -> None: ...
    def lose(self) -> None: ...


class Run:
    """One run. All randomness comes from the seed; `loses`: the store may come back without its newest writes."""

    names = NAMES
    books_in_steps = True
    """Whether what was taken for many is applied in steps, before commits."""

    def __init__(
        self,
        seed: int,
        store: Store,
        *,
        node: type[LogConsumer] = LogConsumer,
        durable: type[DurableSession] = DurableSession,
        server: type[Server] = Server,
        loses: bool = False,
    ) -> None:
        self.random = random.Random(seed)
        self.store = store
        self.ledger = self._new_ledger()
        self.servers: list[Server] = []
        """Oldest first; the last is the one that lives, as far as anybody knows."""
        self._orphans: list[tuple[Server, deque[Request]]] = []
        """What dead servers had sent, and what the store may still find."""
        self._new: Callable[[str, LogId], Server] = lambda token, last: server(token, last, self.ledger, node, durable)
        self._booted = 0
        self._saved = copy.deepcopy(self.ledger)
        self._steps = [*self._weighted(loses)]
        self._boot()

    def _new_ledger(self) -> Ledger:
        return Ledger()

    def _weighted(self, loses: bool) -> Iterable[Callable[[], None]]:
        """Each kind of step, as often as its weight says."""
        for weight, step in (
            (14, self._publish),
            (30, self._execute),
            (30, self._answer),
            (14, self._take),
            (14, self._acknowledge),
            (5, self._acknowledge_sent),
            (9, self._subscribe),
            (4, self._unsubscribe),
            (9, self._commit),
            *(((4, self._book_some), (4, self._count)) if self.books_in_steps else ()),
            (7, self._login),
            (10, self._adopt),
            (3, self._load),
            (3, self._spill),
            (4, self._trim),
            (2, self._dead_letter),
            (1, self._reserve),
            (2, self._close),
            (2, self._disconnect),
            (1, self._ask_again),
            (2, self._execute_orphan),
            (1, self._sleep_or_wake),
            (1, self._kill),
            (1, self._supersede),
            *(((2, self._snapshot), (1, self._lose)) if loses else ()),
        ):
            yield from [step] * weight

    def run(self, steps: int) -> None:
        """Do so many steps, and heal. Raises Broken."""
        for _ in range(steps):
            self.random.choice(self._steps)()
        self.heal()

    # Choosing

    def _server(self) -> Server | None:
        """Any server that is awake and serves."""
        serving = [each for each in self.servers if each.node is not None and not each.is_asleep]
        return self.random.choice(serving) if serving else None

    def _session(self) -> tuple[Server, DurableSession] | None:
        """Any session of such a server that neither comes nor goes."""
        server = self._server()
        sessions = [] if server is None else server.sessions
        return (server, self.random.choice(sessions)) if server is not None and sessions else None

    def _open(self) -> tuple[Server, DurableSession, LogId] | None:
        """Any open message of such a session."""
        found = self._session()
        ids = [] if found is None else [*found[1].pending, *found[1].inbox]
        return (*found, self.random.choice(ids)) if found is not None and ids else None

    # Servers

    def _boot(self) -> Server:
        self._booted += 1
        token = f"token-{self._booted}"
        server = self._new(token, self.store.boot(token))
        self.servers.append(server)
        if len(self.servers) > MOST_SERVERS:
            self._remove(self.servers[0])
        return server

    def _adopt(self) -> None:
        adopting = [each for each in self.servers if each.node is None and not each.is_asleep]
        if adopting:
            self._adopt_slice(self.random.choice(adopting), self.random.randint(1, 2))

    def _adopt_slice(self, server: Server, count: int) -> None:
        try:
            records = self.store.adopt(server.token, count)
        except StoreError:
            self._remove(server)
            return
        for record in records:
            self.ledger.owned(record.name, server.token, record.batch - BATCH_BLOCK, record.batch)
            server.records[record.name] = record
        if not records:
            server.serve()

    def _remove(self, server: Server) -> None:
        self.servers.remove(server)
        self._orphans.append((server, server.requests))
        if all(each.is_asleep for each in self.servers):
            self._boot()

    def _kill(self) -> None:
        """kill -9. Its last requests may still be in a socket."""
        self._remove(self.random.choice(self.servers))

    def _supersede(self) -> None:
        """Another server starts; whoever is there becomes its predecessor."""
        self._boot()

    def _sleep_or_wake(self) -> None:
        """SIGSTOP and SIGCONT, for predecessors."""
        for server in self.servers[:-1]:
            server.is_asleep = self.random.random() < 0.5

    # The way to the store and back

    def _execute(self) -> None:
        waiting = [each for each in self.servers if each.requests]
        if waiting:
            server = self.random.choice(waiting)
            for _ in range(min(len(server.requests), self.random.randint(1, 3))):
                request = server.requests.popleft()
                server.answers.append((request, self._done(server, request)))

    def _execute_orphan(self) -> None:
        if self._orphans:
            server, requests = orphan = self.random.choice(self._orphans)
            if requests and self.random.random() < 0.8:
                self._done(server, requests.popleft())
            else:
                self._orphans.remove(orphan)

    def _done(self, server: Server, request: Request) -> Any:
        """Have the store do it, book what it did, and return its answer."""
        if request.kind in REFUSABLE and self.random.random() < 0.03:
            return StoreFull("full")
        try:
            result = getattr(self.store, request.kind)(server.token, *request.arguments)
        except StoreError as error:
            return error
        self._book(server, request, result)
        return result

    def _book(self, server: Server, request: Request, result: Any) -> None:
        ledger, arguments = self.ledger, request.arguments
        match request.kind:
            case "append":
                for submission, log_id in zip(arguments[0], result[1], strict=True):
                    ledger.published(log_id, submission.channel)
            case "login":
                ledger.owned(arguments[0], server.token, result, result + BATCH_BLOCK)
            case "subscribe":
                ledger.accounts[arguments[0]].held.update(result)
            case "unsubscribe":
                ledger.accounts[arguments[0]].held.difference_update(arguments[1])
            case "close":
                ledger.accounts[arguments[0]].held.clear()
            case "commit":
                ledger.noted(self.store)
                ledger.committed(arguments[0].changes, result)
            case "end":
                ledger.noted(self.store)
                ledger.left(arguments[0])
        if request.kind in CHECKED:
            ledger.audit(self.store)

    def _answer(self) -> None:
        waiting = [each for each in self.servers if each.answers and not each.is_asleep]
        if waiting:
            self._hear(self.random.choice(waiting), self.random.randint(1, 3))

    def _hear(self, server: Server, count: int) -> None:
        for _ in range(min(len(server.answers), count)):
            request, result = server.answers.popleft()
            server.hear(request, result)
            if server.is_gone:
                self._remove(server)
                return

    def _disconnect(self) -> None:
        """The connection breaks: some of what was sent is done, and the server knows of nothing whether it was."""
        server = self.random.choice(self.servers)
        count = self.random.randint(0, len(server.requests))
        for request in [*server.requests][:count]:
            self._done(server, request)
        server.disconnected()

    def _ask_again(self) -> None:
        for server in self.servers:
            server.requests += server.later
            server.later.clear()

    def _snapshot(self) -> None:
        self.store.snapshot()
        self._saved = copy.deepcopy(self.ledger)

    def _lose(self) -> None:
        """The store comes back without its newest writes; a server that sees it start again begins anew."""
        self.store.lose()
        self._saved, saved = copy.deepcopy(self._saved), self._saved
        self.ledger.restore(saved)
        self._orphans.clear()
        self.servers.clear()
        self._boot()

    # What clients do

    def _publish(self) -> None:
        if server := self._server():
            channels = self.random.choices([*MATCHING], k=self.random.randint(1, 3))
            server.publish([Submission(channel, b"{}") for channel in channels])

    def _take(self) -> None:
        server = self._server()
        if server is not None:
            for logged in self.store.read(server.serving.cursor, self.random.randint(1, 4)):
                server.take(logged, is_bounded=True)

    def _acknowledge(self) -> None:
        if found := self._open():
            server, durable, log_id = found
            server.settle(durable, log_id)

    def _acknowledge_sent(self) -> None:
        if server := self._server():
            server.acknowledge()

    def _dead_letter(self) -> None:
        if found := self._open():
            server, durable, log_id = found
            server.dead_letter(durable, log_id)

    def _subscribe(self) -> None:
        if found := self._session():
            server, durable = found
            pattern = self.random.choice(PATTERNS)
            if (durable.name, pattern) not in server.busy:
                server.subscribe(durable, pattern)

    def _unsubscribe(self) -> None:
        if found := self._session():
            server, durable = found
            held = [each for each in sorted(durable.since) if (durable.name, each) not in server.busy]
            if held:
                server.unsubscribe(durable, self.random.choice(held))

    def _login(self) -> None:
        server, name = self._server(), self.random.choice(self.names)
        if server is None or (name, "") in server.busy:
            return
        durable = server.serving.sessions.get(name)
        if durable is None or durable.ending is None:
            server.login(name)

    def _close(self) -> None:
        if found := self._session():
            server, durable = found
            server.close(durable)

    def _reserve(self) -> None:
        if found := self._session():
            server, durable = found
            server.reserve(durable)

    def _load(self) -> None:
        if found := self._session():
            server, durable = found
            server.load(durable, self.random.randint(1, 3))

    # What servers do by themselves

    def _commit(self) -> None:
        if server := self._server():
            server.commit()

    def _count(self) -> None:
        """Somebody asks how much waits, and changes nothing."""
        if found := self._session():
            len(found[1])

    def _book_some(self) -> None:
        if server := self._server():
            server.book()

    def _spill(self) -> None:
        found = self._session()
        if found is not None and found[1].pending:
            server, durable = found
            server.spill(durable, [*durable.pending][: self.random.randint(1, 4)])

    def _trim(self) -> None:
        if server := self._server():
            server.trim()

    # The end

    def heal(self) -> None:
        """See that memory has what the store has. Then kill all, let one fresh server take over, and see that everything is
        accounted for and can be settled."""
        self._compare(self.servers[-1])
        self.servers.clear()
        self._orphans.clear()
        server = self._boot()
        while server.node is None:
            self._adopt_slice(server, 2)
        self._read_all(server)
        self._account(server)

    def _compare(self, server: Server) -> None:
        """What waits for the sessions of this server by its memory is what the store has open, when nothing is under way."""
        self._hear(server, len(server.answers))
        for _ in range(2):  # of a commit that is divided the last part may be nothing, and another one follows
            if server.node is None or server.is_gone:
                return
            self._read_all(server)
            self._calm_down(server)
        for name, (owner, record) in self.store.sessions().items():
            durable = server.serving.sessions.get(name)
            if durable is None and name in server.unanswered:
                continue  # its next login reads what waits for it
            found = set() if durable is None else {*durable.pending, *durable.inbox}
            if owner == server.token and found != (stored := record.pending.keys() | record.inbox.keys()):
                raise Broken(f"{sorted(found)} are open for {name} in memory, and {sorted(stored)} in the store")

    def _account(self, server: Server) -> None:
        """This server has everything: what was pending is accounted for, and can be settled."""
        self._calm_down(server)
        for name, account in self.ledger.accounts.items():
            durable = server.serving.sessions.get(name)
            if durable is None:
                raise Broken(f"{name} has not come to the last server")
            if account.waiting != (found := {*durable.pending, *durable.inbox}):
                raise Broken(f"{sorted(account.waiting)} wait for {name}, and {sorted(found)} are open")
            for log_id in found:
                server.settle(durable, log_id)
        server.trim()
        self._calm_down(server)
        self._inspect()

    def _read_all(self, server: Server) -> None:
        for logged in self.store.read(server.serving.cursor, 10**6):
            server.take(logged, is_bounded=False)

    def _calm_down(self, server: Server) -> None:
        for _ in range(MOST_ROUNDS):
            server.commit()
            self._ask_again()
            if not (server.requests or server.serving.is_divided):
                return
            while server.requests:
                request = server.requests.popleft()
                server.answers.append((request, self._done(server, request)))
            self._hear(server, len(server.answers))
            if server.is_gone:
                return
        raise Broken("there is always something to commit")

    def _inspect(self) -> None:
        for name, (_, record) in self.store.sessions().items():
            left = (
                record.own_cursor,
                record.ending,
                record.closed,
                record.pending,
                record.inbox,
                self.ledger.accounts[name].waiting,
            )
            if any(left) or record.own_cursor is not None:
                raise Broken(f"of {name} is left {left}")
