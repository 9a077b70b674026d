"""What the broker makes of the store's answers about subscriptions and ends, above all of those that never come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from crewel.broker.handler_steps import resolve
from crewel.broker.subscriptions.subscription_store import SubscriptionStore
from crewel.broker.writing.store_phase import StorePhase
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.log_consumer import LogConsumer
from crewel.delivery.records import DEAD_SESSION, EndReason, LogId, PendingDeadLetter, PendingMessage, SessionName
from crewel.errors import StoreError, StoreUnavailable, StoreUncertain
from crewel.metrics import Metrics
from crewel.storage.keys import Keys
from crewel.storage.script_step import Step
from crewel.storage.session_store import SessionEnd

PATTERNS = ("/a", "/*")


class Store:
    """A session `joe` on a node at 10, and the queue of what the store is asked."""

    def __init__(self) -> None:
        self.node = LogConsumer(LogId(10))
        self.index: set[str] = set()
        self.joe = DurableSession(SessionName("client/joe/1"))
        self.node.add(self.joe)
        self.session = SimpleNamespace(is_live=True, subscriptions=self.index)
        self.joe.connected = self.session
        self.asked: list[tuple[Step[Any], Callable[[Any], None], bool]] = []
        self.metrics = Metrics()
        self.dead_letters: list[PendingDeadLetter] = []
        self.leaving: dict[SessionName, list[PendingDeadLetter]] = {}
        self.subscriptions = self._subscription_store()

    def _access(self) -> Any:
        return SimpleNamespace(
            phase=StorePhase.SERVING,
            node=self.node,
            keys=Keys("test:"),
            token="token",
            facts_max=100,
            leaving=self.leaving,
            changed=lambda names: None,
            writing=SimpleNamespace(submit=self._submit, ask=self._ask),
        )

    def _subscription_store(self) -> SubscriptionStore:
        delivery = SimpleNamespace(letters_for_anonymous=False, dead_letters_max=100, dead_letters_max_bytes=0)
        runtime: Any = SimpleNamespace(
            loop=asyncio.get_running_loop(),
            settings=SimpleNamespace(delivery=delivery),
            metrics=self.metrics,
            access=self._access(),
        )
        subscribing: Any = SimpleNamespace(
            ask=lambda session, patterns: lambda: None,
            enter=lambda session, pattern, choices: self.index.add(pattern),
            leave=lambda session, pattern: self.index.discard(pattern),
        )
        letters: Any = SimpleNamespace(letters_stored=lambda letters, dead_ids: self.dead_letters.extend(letters))
        returning: Any = SimpleNamespace(of=lambda durable: {}, ended=lambda durable, returning, returned: None)
        expiring: Any = SimpleNamespace(now=lambda: 0)
        backlog: Any = SimpleNamespace(load_if_waiting=lambda session: None)
        return SubscriptionStore(runtime, expiring, returning, subscribing, backlog, letters)

    def _ask(self, step: Step[Any], *, then: Callable[[Any], Any]) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()

        def answered(answer: Any) -> None:
            result = then(answer)
            resolve(future, answer if isinstance(answer, StoreError) else result)

        self._submit(step, answered)
        return future

    def _submit(self, step: Step[Any], done: Callable[[Any], None], *, retries: bool = False, size: int = 0) -> None:
        self.asked.append((step, done, retries))

    def subscribe(self, *patterns: str) -> asyncio.Future[None]:
        return self.subscriptions.subscribe(self.session, self.joe, dict.fromkeys(patterns, ()))  # type: ignore[arg-type]

    def unsubscribe(self, *patterns: str) -> asyncio.Future[None]:
        return self.subscriptions.unsubscribe(self.session, self.joe, list(patterns))  # type: ignore[arg-type]

    def answer(self, answer: Any) -> str:
        """Answer the oldest question; returns its script, with a `!` if it is asked until it is answered."""
        step, done, retries = self.asked.pop(0)
        done(answer)
        return step.script + "!" * retries

    def take(self, log_id: int) -> None:
        self.node.take(LogId(log_id), PATTERNS, PendingMessage(0, 1), [self.joe])


def interval(since: int, until: int) -> dict[str, tuple[LogId, LogId]]:
    return {"/a": (LogId(since), LogId(until))}


async def test_a_subscription_begins_where_the_store_says() -> None:
    store = Store()
    done = store.subscribe("/a")
    store.take(11)
    assert store.answer({"/a": LogId(10)}) == "subscribe"
    assert done.result() is None
    assert (store.joe.since, store.joe.evicted, store.index) == ({"/a": 10}, [11], {"/a"})


async def test_a_subscribe_in_doubt_is_refused_and_ended_and_what_it_was_owed_is_owed() -> None:
    store = Store()
    done = store.subscribe("/a")
    store.take(11)
    store.take(12)
    store.answer(StoreUncertain("lost"))
    assert isinstance(done.exception(), StoreUncertain)
    assert store.node.commit() is None  # the cursor waits
    assert store.answer(interval(10, 11)) == "unsubscribe!"
    assert [*store.joe.pending] == [11]
    assert store.joe.since == {}


async def test_nothing_is_asked_for_a_session_while_something_is_in_doubt() -> None:
    """The unsubscribe that is on its way would end the new subscription, which was answered as good."""
    store = Store()
    first, second = store.subscribe("/a"), store.subscribe("/b")
    for done in (first, second):
        store.answer(StoreUncertain("lost"))
        assert isinstance(done.exception(), StoreUncertain)
    for _ in range(2):
        for ask in (store.subscribe, store.unsubscribe):
            with pytest.raises(StoreUnavailable):
                await ask("/a")
        store.answer({})
    store.subscribe("/a")
    assert store.answer({"/a": LogId(10)}) == "subscribe"


async def test_a_subscription_that_held_before_a_subscribe_in_doubt_goes_on() -> None:
    store = Store()
    store.subscribe("/a")
    store.answer({"/a": LogId(10)})
    again = store.subscribe("/a", "/b")
    store.answer(StoreUncertain("lost"))
    assert isinstance(again.exception(), StoreUncertain)
    step, _, retries = store.asked[0]
    assert retries
    assert "/a" not in step.arguments
    assert "/b" in step.arguments
    store.answer({})
    assert (store.joe.since, store.index) == ({"/a": 10}, {"/a"})


async def test_an_unsubscribe_in_doubt_is_asked_until_the_store_says_where_it_ended() -> None:
    store = Store()
    store.subscribe("/a")
    store.answer({"/a": LogId(10)})
    done = store.unsubscribe("/a")
    store.take(11)
    store.take(12)
    assert store.answer(StoreUncertain("lost")) == "unsubscribe"
    assert isinstance(done.exception(), StoreUncertain)
    assert store.answer(interval(10, 11)) == "unsubscribe!"
    assert ([*store.joe.pending], store.joe.since, store.index) == ([11], {}, set())


async def test_an_unsubscribe_that_was_not_done_leaves_the_subscription() -> None:
    store = Store()
    store.subscribe("/a")
    store.answer({"/a": LogId(10)})
    done = store.unsubscribe("/a")
    store.answer(StoreUnavailable("away"))
    assert isinstance(done.exception(), StoreUnavailable)
    assert (store.joe.since, store.index) == ({"/a": 10}, {"/a"})


async def test_a_name_is_taken_until_the_store_has_ended_the_session() -> None:
    store = Store()
    store.subscriptions.end(store.joe)
    assert store.answer(LogId(10)) == "close!"
    store.subscriptions.end_stored(store.joe)
    assert store.leaving == {"client/joe/1": []}
    assert store.answer(SessionEnd([], [], [])) == "end!"
    assert store.leaving == {}


async def test_letters_that_the_store_makes_by_itself_are_counted() -> None:
    store = Store()
    store.subscriptions.end(store.joe)
    store.answer(LogId(10))
    store.subscriptions.end_stored(store.joe)
    store.answer(SessionEnd(["5-0", "5-1"], [], []))
    assert store.metrics.ended[EndReason.DEAD] == 2
    assert [letter.code for letter in store.dead_letters] == [DEAD_SESSION] * 2
