"""The real store with the model of tests/delivery beside it: both must answer the same to each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from crewel.delivery.records import Disposition, LogId, PendingDeadLetter, SessionName, SessionRecord, Submission
from crewel.errors import StoreError
from tests.delivery.ledger import Broken
from tests.delivery.store_model import StoreModel
from tests.storage.real_store import RealStore


class ComparedStore(RealStore):
    """A `RealStore` that raises Broken when the model answers something else."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self.model = StoreModel()

    def _both(
        self, what: str, real: Callable[[], Any], model: Callable[[], Any], plain: Any = lambda answer: answer
    ) -> Any:
        answer, modelled = _outcome(real), _outcome(model)
        if isinstance(answer, StoreError):
            if type(answer) is not type(modelled):
                raise Broken(f"{what}: the store raises {answer!r}, the model answers {modelled!r}")
            raise answer
        if isinstance(modelled, StoreError) or plain(answer) != plain(modelled):
            raise Broken(f"{what}: the store answers {answer!r}, the model {modelled!r}")
        return answer

    def append(self, token: str, submissions: Sequence[Submission]) -> tuple[LogId, list[LogId]]:
        def real() -> tuple[LogId, list[LogId]]:
            prev, ids = super(ComparedStore, self).append(token, submissions)
            self.model.clock = ids[0] - 1
            return prev, ids

        return self._both("append", real, lambda: self.model.append(token, submissions))  # type: ignore[no-any-return]

    def adopt(self, token: str, count: int) -> list[SessionRecord]:
        def real() -> list[SessionRecord]:
            records = super(ComparedStore, self).adopt(token, count)
            self.model.chosen = {each.name for each in records}
            return records

        model = self.model
        return self._both("adopt", real, lambda: model.adopt(token, count), _plain_records)  # type: ignore[no-any-return]

    def sessions(self) -> dict[SessionName, tuple[str, SessionRecord]]:
        parent = super()
        found = self._both("sessions", parent.sessions, self.model.sessions, _plain_sessions)
        cursors = {token: node.cursor for token, node in self.model.contents.nodes.items()}
        if self._cursors != cursors:
            raise Broken(f"the servers are at {self._cursors}, in the model at {cursors}")
        return found  # type: ignore[no-any-return]

    def take_notes(self) -> tuple[list[Disposition], list[PendingDeadLetter]]:
        return self._both("notes", super().take_notes, self.model.take_notes, _plain_notes)  # type: ignore[no-any-return]

    def snapshot(self) -> None:
        super().snapshot()
        self.model.snapshot()

    def lose(self) -> None:
        super().lose()
        self.model.lose()


def _beside(kind: str) -> Callable[..., Any]:
    def step(self: ComparedStore, *arguments: Any) -> Any:
        real, model = getattr(RealStore, kind), getattr(self.model, kind)
        return self._both(f"{kind}{arguments}", lambda: real(self, *arguments), lambda: model(*arguments))

    return step


for _kind in ("trim", "boot", "login", "subscribe", "unsubscribe", "close", "end", "spill", "commit", "read"):
    setattr(ComparedStore, _kind, _beside(_kind))


def _outcome(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except StoreError as error:
        return error


def _plain(record: SessionRecord) -> tuple[Any, ...]:
    subscriptions, closed = sorted(record.subscriptions.items()), sorted(record.closed)
    waiting = sorted(record.pending), sorted(record.inbox)
    return (record.name, record.own_cursor, record.batch, record.ending, subscriptions, closed, waiting)


def _plain_records(records: list[SessionRecord]) -> list[tuple[Any, ...]]:
    return sorted(map(_plain, records))


def _plain_sessions(found: dict[SessionName, tuple[str, SessionRecord]]) -> list[tuple[str, tuple[Any, ...]]]:
    return sorted((owner, _plain(record)) for owner, record in found.values())


def _plain_notes(
    notes: tuple[list[Disposition], list[PendingDeadLetter]],
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    ended, letters = notes
    return (
        sorted((each.session, each.reason, log_id) for each in ended for log_id in each.ids),
        sorted((each.session, each.id, each.code) for each in letters),
    )
