"""Random interleavings in which messages are sent to receivers by name and shared by them, on the real scripts.

`SharingRun` adds to `interleaving.Run` what a broker does with shared queues: it sends, leases and gives back, asks again what
it had no answer to, and lets sessions end that have such messages open. Whatever dies between any two steps, each message waits
in its queue, or with whom it was given to, or has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from crewel.delivery.durable_session import DurableSession
from crewel.delivery.records import (
    Disposition,
    EndReason,
    Logged,
    LogId,
    PendingDeadLetter,
    PendingMessage,
    SessionName,
)
from crewel.errors import StoreError
from crewel.storage import session_store, shared_queue_store
from crewel.storage.keys import Keys
from crewel.storage.script_step import Step
from crewel.storage.shared_queue_store import Addressed, Delivery, Lease, Member, Requeued, SendOutcome, Sent
from tests.delivery.interleaving import Run
from tests.delivery.ledger import Broken, Ledger
from tests.delivery.server_model import Request, Server
from tests.storage.real_store import BOUND, RealStore

SUBJECT: Final = "client/joe"
ONE: Final = "one:client/joe"
ASKED_AGAIN: Final = frozenset({"send", "lease", "requeue"})
ENDED: Final = ("communication.noConnection.dead", "the session has ended")


class SharingStore(RealStore):
    """The scripts that share, too. A step is made once, so that it can be asked again."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self.told: list[tuple[str, dict[str, Any]]] = []
        """The facts of the last step."""

    def send(self, token: str, step: Step[Sent], source: str) -> Sent:
        return self.do(step)  # type: ignore[no-any-return]

    def lease(self, token: str, step: Step[Lease]) -> Lease:
        return self.do(step)  # type: ignore[no-any-return]

    def requeue(self, token: str, step: Step[Requeued]) -> Requeued:
        return self.do(step)  # type: ignore[no-any-return]

    def end(
        self,
        token: str,
        name: SessionName,
        ended: Sequence[Disposition],
        letters: Sequence[PendingDeadLetter],
        returning: Mapping[LogId, int] | None = None,
    ) -> None:
        self.do(session_store.end(self.keys, token, name, ended, letters, BOUND, BOUND, returning or {}))

    def take_notes(self) -> tuple[list[Disposition], list[PendingDeadLetter]]:
        found = self._client.xrange(self.keys.facts, b"(" + self._facts_read)
        self.told = [(fields[b"t"].decode(), orjson.loads(fields[b"d"])) for _, fields in found]
        return super().take_notes()

    def last(self) -> LogId:
        return LogId(int(self._client.get(self.keys.last) or 0))

    def queued(self, queue: str) -> set[LogId]:
        places = self._client.zrange(self.keys.queue(queue), 0, -1)
        return {LogId(int(place.partition(b":")[2])) for place in places}

    def left_open(self) -> list[bytes]:
        """What is noted of subjects' messages that sessions have open."""
        return list(self._client.scan_iter(f"{self.keys.base}ptp:*", count=1000))


class SharingLedger(Ledger):
    """Knows of each message that was sent where it may be."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: dict[LogId, str] = {}
        """The shared queue that a message may go back to."""
        self.queues: dict[str, set[LogId]] = {SUBJECT: set(), ONE: set()}
        self.final: dict[LogId, list[EndReason]] = {}
        """How messages have ended for those who had them, but for going back."""

    def noted(self, store: Any) -> None:
        ended, letters = store.take_notes()
        for kind, fact in store.told:
            if kind == "addressed":
                self._add(fact["queues"], fact["id"])
                for name in fact["sessions"]:
                    self.accounts[name].waiting.add(fact["id"])
            elif kind == "leased":
                for each in fact["leases"]:
                    for log_id in each["ids"]:
                        self._given(fact["queue"], each["session"], log_id)
        self._book(ended, letters)
        for kind, fact in store.told:
            if kind == "returned":
                for log_id in fact["ids"]:
                    self._add([fact["queue"]], log_id)
        self.look()

    def _add(self, queues: Iterable[str], log_id: LogId) -> None:
        for queue in queues:
            if log_id in self.queues[queue]:
                raise Broken(f"{log_id} is in {queue} twice")
            self.queues[queue].add(log_id)

    def _given(self, queue: str, name: SessionName, log_id: LogId) -> None:
        account = self.accounts[name]
        if log_id not in self.queues[queue]:
            raise Broken(f"{log_id} was leased from {queue} and was not there")
        if account.ended.pop(log_id, EndReason.RETURNED) is not EndReason.RETURNED:
            raise Broken(f"{log_id} was leased to {name} after it had ended there")
        self.queues[queue].remove(log_id)
        account.waiting.add(log_id)

    def _ended(self, name: SessionName, log_id: LogId, reason: EndReason) -> None:
        super()._ended(name, log_id, reason)
        if log_id in self.sources and reason is not EndReason.RETURNED:
            self.final.setdefault(log_id, []).append(reason)

    def look(self) -> None:
        """Each message is somewhere, and nowhere twice that is one session's at a time."""
        for log_id, source in self.sources.items():
            queued = sum(log_id in waiting for waiting in self.queues.values())
            having = sum(log_id in account.waiting for account in self.accounts.values())
            final = len(self.final.get(log_id, ()))
            if not queued + having + final:
                raise Broken(f"{log_id} of {source!r} is lost")
            if queued and having:
                raise Broken(f"{log_id} waits in {source!r}, and {having} sessions have it")
            if source != SUBJECT and queued + having + final > 1:
                raise Broken(f"{log_id} of {source!r} is in {queued + having} places, and has ended {final} times")

    def restore(self, earlier: Ledger) -> None:
        super().restore(earlier)
        assert isinstance(earlier, SharingLedger)
        self.sources, self.queues, self.final = earlier.sources, earlier.queues, earlier.final


class SharingServer(Server):
    """A server that sends and shares."""

    keys: Keys

    def _doubt(self, request: Request) -> None:
        if request.kind in ASKED_AGAIN:
            request.was_in_doubt = True
            self.later.append(request)
        else:
            super()._doubt(request)

    def send(self, deliveries: list[Delivery], source: str) -> None:
        there = dict(self.serving.sessions)
        step = shared_queue_store.send(self.keys, self.token, Addressed("/a", b"{}"), deliveries, BOUND)

        def answered(sent: Sent | StoreError) -> None:
            if isinstance(sent, StoreError):
                self._refused(sent)
                return
            if self.serving.cursor == sent.prev:
                self.serving.skip(sent.id)
            for delivery, outcome in zip(deliveries, sent.outcomes, strict=True):
                if delivery.receiver and outcome is SendOutcome.OK:
                    self._arrive(there.get(SessionName(delivery.receiver)), sent.id, source)

        self._ask("send", step, source, then=answered)

    def _arrive(self, durable: DurableSession | None, log_id: LogId, source: str, attempts: int = 0) -> None:
        """It lies in the inbox of a session, unless that is ending or another one by now; if it logs in again, too."""
        if durable is None or durable.ending is not None or self.serving.sessions.get(durable.name) is not durable:
            return
        if durable.arrived(log_id, PendingMessage(attempts, 2, "/a", source=source)):
            self._receive(durable, log_id)
            durable.evict(log_id)
            self.serving.mark_dirty(durable)

    def take(self, logged: Logged, *, is_bounded: bool) -> None:
        if not logged.addressed:
            super().take(logged, is_bounded=is_bounded)
            return
        self.serving.skip(logged.id)
        for name, waiting in shared_queue_store.addressed(logged).items():
            durable = self.serving.sessions.get(name)
            if durable is not None and logged.id > durable.own_cursor:
                self._arrive(durable, logged.id, waiting.source)

    def lease(self, queue: str, members: list[Member]) -> None:
        there = dict(self.serving.sessions)

        def answered(lease: Lease | StoreError) -> None:
            if isinstance(lease, StoreError):
                self._refused(lease)
                return
            for each in lease.leased:
                self._arrive(there.get(each.receiver), each.id, queue, each.attempts)

        self._ask("lease", shared_queue_store.lease(self.keys, self.token, queue, members, BOUND), then=answered)

    def requeue(self, durable: DurableSession, log_id: LogId, *, failed: bool) -> None:
        attempts = {log_id: durable.inbox[log_id].attempts + 1}
        durable.forget_evicted(log_id)
        durable.requeue(log_id)
        self._received[durable].discard(log_id)
        self.serving.mark_dirty(durable)
        step = shared_queue_store.requeue(self.keys, self.token, durable.name, attempts, BOUND, failed=failed)
        self._ask("requeue", step, then=lambda answer: None)

    def _end(self, durable: DurableSession) -> None:
        self._begin(durable.name, "")
        self.serving.leave(durable)
        returning = {log_id: waiting.attempts for log_id, waiting in durable.inbox.items() if waiting.source}
        letters = [PendingDeadLetter(durable.name, log_id, *ENDED) for log_id in returning if log_id % 2]
        for log_id in returning:
            durable.requeue(log_id)
        self._end_open(durable)
        ended, dead = durable.take_ended()

        def answered(_: Any) -> None:
            self.busy.discard((durable.name, ""))
            self.serving.drop(durable)

        self._ask("end", durable.name, ended, [*dead, *letters], returning, then=answered)


class SharingRun(Run):
    """One run."""

    store: SharingStore
    ledger: SharingLedger

    def __init__(
        self, seed: int, store: SharingStore, *, durable: type[DurableSession] = DurableSession, loses: bool = False
    ) -> None:
        server = type("BoundServer", (SharingServer,), {"keys": store.keys})
        super().__init__(seed, store, durable=durable, server=server, loses=loses)

    def _new_ledger(self) -> Ledger:
        return SharingLedger()

    def _weighted(self, loses: bool) -> Iterable[Callable[[], None]]:
        yield from super()._weighted(loses)
        for weight, step in ((14, self._send), (20, self._lease), (14, self._put_back)):
            yield from [step] * weight

    def _book(self, server: Server, request: Request, result: Any) -> None:
        if request.kind == "send" and not result.is_repeated and SendOutcome.OK in result.outcomes:
            self.ledger.sources[result.id] = request.arguments[1]
        if request.kind in ASKED_AGAIN:
            self.ledger.noted(self.store)
        super()._book(server, request, result)

    # What clients do

    def _sharing(self) -> SharingServer | None:
        server = self._server()
        assert server is None or isinstance(server, SharingServer)
        return server

    def _send(self) -> None:
        if server := self._sharing():
            there = [each for each in sorted(server.serving.sessions) if each.startswith(SUBJECT)]
            source = self.random.choice([SUBJECT, SUBJECT, ONE, ""])
            if source == SUBJECT and there and self.random.random() < 0.8:
                deliveries = [Delivery(SUBJECT, each, source=SUBJECT) for each in there]
            elif source:
                deliveries = [Delivery(SUBJECT, queue=source)]
            else:
                deliveries = [Delivery(SUBJECT, self.random.choice(there))] if there else []
            if deliveries:
                server.send(deliveries, source)

    def _lease(self) -> None:
        if server := self._sharing():
            there = [each.name for each in server.sessions if each.name.startswith(SUBJECT)]
            members = [Member(name, self.random.randrange(3)) for name in there]
            server.lease(self.random.choice([SUBJECT, ONE]), members)

    def _put_back(self) -> None:
        if found := self._session():
            server, durable = found
            assert isinstance(server, SharingServer)
            shared = [log_id for log_id, waiting in durable.inbox.items() if waiting.source == ONE]
            if shared:
                server.requeue(durable, self.random.choice(shared), failed=self.random.random() < 0.5)

    # The log, which has nothing under most ids of what was sent

    def _take(self) -> None:
        super()._take()
        for server in self.servers:
            if server.node is not None and not server.is_asleep:
                self._look(server)

    def _look(self, server: Server) -> None:
        last = self.store.last()
        if not self.store.read(server.serving.cursor, 1):
            server.serving.skip(last)

    def _read_all(self, server: Server) -> None:
        super()._read_all(server)
        self._look(server)

    # The end

    def heal(self) -> None:
        super().heal()
        self.ledger.look()
        for queue, waiting in self.ledger.queues.items():
            if waiting != (found := self.store.queued(queue)):
                raise Broken(f"{sorted(waiting)} wait in {queue}, and it has {sorted(found)}")
        if left := self.store.left_open():
            raise Broken(f"nobody has anything open, and {left} are left")
