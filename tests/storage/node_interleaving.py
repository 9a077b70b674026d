"""Random interleavings of several nodes on one store: the runs of tests/delivery, with servers that live beside each other.

A node dies, sleeps beyond its lease, or is taken for dead while it lives; others inherit its sessions a slice at a time, may
die in between, and trim the log. The ledger looks at the store after every commit, trim and end, as in the other runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import redis

from crewel.delivery.records import BATCH_BLOCK, Logged, LogId, PendingMessage, SessionRecord
from crewel.errors import Fenced
from crewel.storage import node_leases, nodes
from crewel.storage.node_leases import Claimed, Membership
from crewel.storage.nodes import Slice
from tests.delivery.interleaving import MOST_SERVERS, Run
from tests.delivery.ledger import MATCHING
from tests.delivery.server_model import Server
from tests.storage.owner import PROCESS
from tests.storage.real_store import RealStore

LEASE_MS = 600_000
"""Leases end when the run says so, and not by time."""


class NodesStore(RealStore):
    """The scripts of nodes, too."""

    def boot(self, token: str) -> LogId:
        member = Membership(f"tag-{token}", "")
        answer = self.do(node_leases.claim(self.keys, token, "heron", PROCESS, LEASE_MS, (), member))
        assert not isinstance(answer, Claimed)
        return LogId(answer)

    def expire(self, token: str) -> None:
        """Let the lease of a node end."""
        self._client.delete(self.keys.lease(token))

    def inherit(self, token: str, count: int) -> Slice:
        found: Slice = self.do(nodes.inherit(self.keys, token, count))
        return found

    def release(self, token: str, finished: Sequence[str]) -> int:
        return int(self.do(nodes.release(self.keys, token, finished)))

    def _record_of(self, token: str) -> str:
        left = self.keys.left(token)
        return left if self._client.exists(left) else self.keys.node(token)


class NodeServer(Server):
    """A node, with what it does about dead ones."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.finished: list[str] = []
        """Dead nodes of which it has all sessions."""
        self.to_release: list[str] = []
        """Those whose sessions are in a commit of this node."""

    def bring_in(self, records: Iterable[SessionRecord], read: Callable[[LogId], Iterable[Logged]]) -> None:
        """As `Inheritance` does: the sessions, and what they have missed up to the cursor, in one turn."""
        node, records = self.serving, list(records)
        durables = []
        for record in records:
            durable = self.durable_class.adopted(record)
            node.add(durable)
            self._received[durable] = {*durable.pending, *durable.inbox}
            self._late.add(durable)
            durables.append(durable)
        for logged in read(min(record.own_cursor or LogId(0) for record in records)):
            if logged.id > node.cursor:
                break
            for durable in durables:
                if durable.wants(MATCHING[logged.channel], logged.id):
                    durable.take(logged.id, PendingMessage(1, len(logged.body), logged.channel))
                    node.mark_dirty(durable)
                    self._receive(durable, logged.id)

    def commit(self) -> None:
        """A commit that begins now has all sessions that have come until now."""
        if not self.is_committing and not self.serving.is_divided:
            self.to_release += self.finished
            self.finished = []
        super().commit()


class NodesRun(Run):
    """One run with several nodes."""

    def __init__(self, seed: int, client: redis.Redis, **options: type) -> None:
        self._nodes_store: NodesStore = options.pop("store", NodesStore)(client)
        self._expired: set[str] = set()
        self.inherited = 0
        """How many sessions have come to another node."""
        super().__init__(seed, self._nodes_store, server=options.pop("server", NodeServer), **options)  # type: ignore[arg-type]

    def _weighted(self, loses: bool) -> Iterable[Callable[[], None]]:
        replaced = {self._adopt, self._supersede}
        yield from (step for step in super()._weighted(loses) if step not in replaced)
        for weight, step in ((8, self._inherit), (4, self._expire), (3, self._release), (1, self._join)):
            yield from [step] * weight

    def _boot(self) -> Server:
        self._booted += 1
        token = f"token-{self._booted}"
        server = self._new(token, self.store.boot(token))
        server.serve()
        self.servers.append(server)
        return server

    def _join(self) -> None:
        if len(self.servers) < MOST_SERVERS:
            self._boot()

    def _sleep_or_wake(self) -> None:
        server = self.random.choice(self.servers)
        server.is_asleep = not server.is_asleep

    def _expire(self) -> None:
        """Time passes for a node that is dead or asleep; now and then also for one that lives, and is only slow."""
        tokens = {f"token-{number}" for number in range(1, self._booted + 1)} - self._expired
        awake = {each.token for each in self.servers if not each.is_asleep}
        chosen = sorted(tokens - awake) or (sorted(tokens) if self.random.random() < 0.1 else [])
        if chosen:
            token = self.random.choice(chosen)
            self._nodes_store.expire(token)
            self._expired.add(token)

    def _inherit(self) -> None:
        server = self._server()
        if server is not None:
            self._inherit_slice(server, self.random.randint(1, 2))

    def _inherit_slice(self, server: Server, count: int) -> bool:
        assert isinstance(server, NodeServer)
        try:
            found = self._nodes_store.inherit(server.token, count)
        except Fenced:
            self._remove(server)
            return False
        for record in found.records:
            self.ledger.owned(record.name, server.token, record.batch - BATCH_BLOCK, record.batch)
        server.finished += [each for each in found.finished if each not in (*server.finished, *server.to_release)]
        self.inherited += len(found.records)
        if found.records:
            server.bring_in(found.records, lambda after: self.store.read(after, 10**6))
        return bool(found.records)

    def _release(self) -> None:
        server = self._server()
        is_free = server is not None and not (server.is_committing or server.serving.is_divided)
        if isinstance(server, NodeServer) and server.to_release and is_free:
            try:
                self._nodes_store.release(server.token, server.to_release)
            except Fenced:
                self._remove(server)
                return
            server.to_release = []

    def heal(self) -> None:
        """All die but one that starts now: it inherits everything, and everything is accounted for."""
        for number in range(1, self._booted + 1):
            self._nodes_store.expire(f"token-{number}")
        self.servers.clear()
        self._orphans.clear()
        server = self._boot()
        while self._inherit_slice(server, 2):
            pass
        self._read_all(server)
        self._account(server)
