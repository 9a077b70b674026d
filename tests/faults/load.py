"""The load of a run: reliable subscribers and publishers of persistent messages, which the faults do not tell from others.

Each publisher sends a few messages, waits for the answers, and sends again what was not answered, so that its messages keep
their order. Clients of the official library run in processes of their own (tests/interop); `Plain` ones are bare sockets.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from time import monotonic
from typing import Any

from tests.faults.history import Batches, History
from tests.faults.ledger import Item, Ledger
from tests.functional.bayeux import Client, Message
from tests.interop.peers import DRIVERS, Event, Kind, Peer
from tests.patience import patience

LONG_POLLING = Kind("cometd", "9", "long-polling", ("node", str(DRIVERS / "cometd.mjs"), "9"), frozenset())
WEBSOCKET = Kind("cometd", "9", "websocket", ("node", str(DRIVERS / "cometd.mjs"), "9"), frozenset())
PATTERN = "/load/*"
_OWN = "/own/"
_OWN_CHANCE = 0.1  # that a message is for one subscriber alone
Outcome = tuple[str | None, str | None]
"""Of a publish: its id if the answer was successful, else the error, if there was an answer at all."""
_PAUSE_S = 0.1  # before a refused publish, or connect, is sent again
_UNTOLD = ("message", "publishing")
"""Events that a run has thousands of, and no use for."""


def channel_of(publisher: str) -> str:
    """Each publisher has a channel, whose order is the publisher's."""
    return f"/load/{publisher}"


def own_channel(subscriber: str) -> str:
    """Each subscriber has a channel that no other one subscribes to."""
    return f"{_OWN}{subscriber}"


class _Seen:
    """When a client was last seen to be served, and how long it was not."""

    went_on_at = 0.0
    longest_gap = 0.0
    """The longest time without an answered connect, in seconds, since it was set to 0."""

    def goes_on(self) -> None:
        """A connect was answered."""
        now = monotonic()
        self.longest_gap = max(self.longest_gap, now - self.went_on_at)
        self.went_on_at = now


class Stock(Peer, _Seen):
    """The official client with the acknowledge extension and nothing else, as it is configured by itself."""

    def __init__(self, name: str, kind: Kind, ledger: Ledger, history: History) -> None:
        super().__init__(kind)
        self.name = name
        self.handshakes = self.subscribes = 0
        self.complaints: list[Event] = []
        self._ledger = ledger
        self._history = history
        self.batches = Batches(history, name)
        self._begun = monotonic()

    async def begin(self, port: int, *, subscribes: bool) -> None:
        """Shake hands, and subscribe if this is a subscriber."""
        await self.start()
        backoff = {"backoffIncrement": 1000, "maxBackoff": 60000}  # as the library has them
        await self.open(f"http://localhost:{port}/cometd", extensions=["ack"], untold=_UNTOLD, **backoff)
        if subscribes:
            await self.subscribe(own_channel(self.name), PATTERN)

    def note(self, event: Event) -> None:
        """Keep what matters; a run has many thousand events."""
        match event["event"]:
            case "delivered" if self.name in self._ledger.received:
                item = _item(event["data"])
                self._ledger.came(self.name, event["id"], item)
                self.batches.came(event["channel"], event["id"], item)
            case "connecting" if event["ack"] is not None:
                self.batches.ask(event["ack"])
            case "handshaken":
                self.handshakes += 1
                self.events.append(event)
            case "subscribed":
                self._history.add("subscribe", self._begun, monotonic(), receiver=self.name, channel=event["channel"])
                if event["channel"] == PATTERN:
                    self.subscribes += 1
                    self._ledger.subscribed(self.name)
            case "connected":
                if event["ack"] is not None:
                    self.batches.answered(event["ack"])
                self.goes_on()
            case "unsuccessful":
                self.complaints.append(event)

    async def publish_all(self, items: list[Item], *, is_keyed: bool) -> list[Outcome]:
        """Publish these together and return what became of each."""
        messages = [
            {
                "channel": own_channel(to) if (to := self._ledger.published[name, number].to) else channel_of(name),
                "data": {"p": name, "n": number},
                "props": _props((name, number), is_keyed),
            }
            for name, number in items
        ]
        answer = await self.do("batch", messages=messages)
        return [
            (reply["published"]["id"] if reply["successful"] else None, reply["error"]) for reply in answer["replies"]
        ]


class Plain(_Seen):
    """A reliable subscriber over plain sockets, on a thread of its own: it comes back at once, and again and again."""

    def __init__(self, name: str, ledger: Ledger, history: History) -> None:
        self.name = name
        self.handshakes = self.subscribes = 0
        self._ledger = ledger
        self._history = history
        self.batches = Batches(history, name)
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._batch = 0
        self.trouble: Exception | None = None

    async def begin(self, port: int) -> None:
        """Shake hands and subscribe."""
        self._client = Client(_Address(port))
        await asyncio.to_thread(self._subscribe)
        self._thread.start()

    @property
    def client_id(self) -> str:
        """That of its session."""
        assert self._client.id is not None
        return self._client.id

    async def stop(self) -> None:
        """End the thread, also while the server holds its connect."""
        self._is_ending.set()
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        for _ in range(150):
            if not self._thread.is_alive():
                return
            self._client.interrupt()
            self._thread.join(0.1)

    def _subscribe(self) -> None:
        self._client.handshake(ext={"ack": True})
        self.handshakes += 1
        for channel in (own_channel(self.name), PATTERN):
            began = monotonic()
            self._client.subscribe(channel)
            self._history.add("subscribe", began, monotonic(), receiver=self.name, channel=channel)
        self.subscribes += 1
        self._ledger.subscribed(self.name)

    def _run(self) -> None:
        while not self._is_ending.is_set():
            self.batches.ask(self._batch)
            try:
                answer = self._client.ask_connect(ext={"ack": self._batch}).response()
                if answer.status == HTTPStatus.OK:
                    self._take(answer.messages)
                else:
                    self._reopen()  # as a stock client does, whatever the reason
            except (OSError, EOFError):
                self._reopen()
            except Exception as error:  # noqa: BLE001 - the test tells it
                self.trouble = error
                return

    def _reopen(self) -> None:
        """A request has failed: give up its connection, for a node that was stopped would read the request later."""
        self._client.close()
        self._is_ending.wait(0.05)

    def _take(self, answer: list[Message]) -> None:
        *messages, reply = answer
        for message in messages:
            item = _item(message["data"])
            self._ledger.came(self.name, message["id"], item)
            self.batches.came(message["channel"], message["id"], item)
        if not reply["successful"]:
            self._obey(reply.get("advice", {}))
            return
        self._batch = reply["ext"]["ack"]
        self.batches.answered(self._batch)
        self.goes_on()

    def _obey(self, advice: dict[str, Any]) -> None:
        """A connect was refused: do as a stock client does."""
        if advice.get("reconnect", "retry") == "retry":
            self._is_ending.wait(max(advice.get("interval", 0) / 1000, _PAUSE_S))
            return
        assert advice["reconnect"] == "handshake", advice
        self._subscribe()
        self._batch = 0


class _Address:
    def __init__(self, port: int) -> None:
        self.port = port


class Publisher:
    """Publishes through a stock client until it is told to end, one handful after the other."""

    def __init__(
        self, client: Stock, ledger: Ledger, rng: random.Random, receivers: list[str], *, is_keyed: bool
    ) -> None:
        """`receivers` are those that it sends something that is for one of them alone."""
        self.client = client
        self._receivers = receivers
        self.longest_wait = 0.0
        """Longest time in which nothing was answered successful."""
        self._ledger = ledger
        self._rng = rng
        self._is_keyed = is_keyed
        self._number = 0
        self._is_ending = False
        self._task = asyncio.create_task(self._run())

    async def end(self) -> None:
        """Let the last messages be answered, and publish no more."""
        self._is_ending = True
        await self._task

    async def _run(self) -> None:
        handful = 0
        while not self._is_ending:
            handful += 1
            items: list[Item] = []
            for _ in range(self._rng.randint(1, 8)):
                self._number += 1
                items.append((self.client.name, self._number))
                to = self._rng.choice(self._receivers) if self._rng.random() < _OWN_CHANCE else ""
                self._ledger.begin(items[-1], is_keyed=self._is_keyed, handful=handful, to=to)
            await self._insist(items)
            await asyncio.sleep(self._rng.uniform(0, 0.1))

    async def _insist(self, items: list[Item]) -> None:
        begun = monotonic()
        while items:
            outcomes = list(zip(items, await self.client.publish_all(items, is_keyed=self._is_keyed), strict=True))
            for item, (log_id, error) in outcomes:
                if log_id is None:
                    self._ledger.refused(item, error)
                else:
                    self._ledger.answered(item, log_id)
            items = [item for item, (log_id, _) in outcomes if log_id is None]
            if items:
                await asyncio.sleep(_PAUSE_S)
        self.longest_wait = max(self.longest_wait, monotonic() - begun)


class Load:
    """All clients of a run, and their ledger."""

    def __init__(self, rng: random.Random) -> None:
        self.ledger = Ledger()
        self.history = History()
        self.clients: list[Stock | Plain] = []
        self.publishers: list[Publisher] = []
        self.log: Callable[[], str] = str
        """What else a failure should tell: what the server logged."""
        self._rng = rng

    async def begin(self, port: int, *, subscribers: int = 1, publishers: int = 2) -> None:
        """`subscribers` of each kind, and publishers over both transports in turn, every second one with keys."""
        for number in range(subscribers):
            for kind in (LONG_POLLING, WEBSOCKET):
                await self._stock(f"{kind.transport}-{number}", kind, port, subscribes=True)
            plain = Plain(f"plain-{number}", self.ledger, self.history)
            await plain.begin(port)
            self.clients.append(plain)
        receivers = [each.name for each in self.clients]
        for number in range(publishers):
            client = await self._stock(f"p{number}", (WEBSOCKET, LONG_POLLING)[number % 2], port, subscribes=False)
            rng = random.Random(self._rng.random())
            self.publishers.append(Publisher(client, self.ledger, rng, receivers, is_keyed=number % 4 < 2))

    async def join(self, port: int, *, subscribes: bool = True) -> Stock:
        """One more subscriber, which is owed what is published from now on, or from when it subscribes."""
        number = len(self.clients)
        return await self._stock(f"late-{number}", (WEBSOCKET, LONG_POLLING)[number % 2], port, subscribes=subscribes)

    async def _stock(self, name: str, kind: Kind, port: int, *, subscribes: bool) -> Stock:
        client = Stock(name, kind, self.ledger, self.history)
        self.clients.append(client)
        await client.begin(port, subscribes=subscribes)
        return client

    async def goes_on(self, since: float, limit_s: float) -> float:
        """Wait until a connect of each client has been answered after `since`, and return how long that took."""
        await wait_for(lambda: all(each.went_on_at > since for each in self.clients), limit_s, self.report)
        return max(each.went_on_at for each in self.clients) - since

    def watch_gaps(self) -> None:
        """Measure the gaps of all clients from here on."""
        for each in self.clients:
            each.longest_gap = 0.0

    async def answers(self, count: int, limit_s: float) -> None:
        """Wait until so many more publishes were answered successful."""
        wanted = self.ledger.answered_count + count
        await wait_for(lambda: self.ledger.answered_count >= wanted, limit_s, self.report)

    async def settle(self, limit_s: float = 15.0, *, may_begin_anew: bool = False) -> None:
        """Let the publishers end, wait for what is owed, and compare the ledger. Nobody may have made a new session."""
        async with asyncio.timeout(limit_s * patience()):
            for publisher in self.publishers:
                await publisher.end()
        troubles = {each.name: each.trouble for each in self.clients if isinstance(each, Plain) and each.trouble}
        assert not troubles, f"clients of the test ended: {troubles}"
        with suppress(AssertionError):  # the ledger says it better
            await wait_for(self.ledger.is_complete, limit_s, self.report, every_s=0.2)
        self._end_history()  # before the books are compared: that takes seconds after a long run
        try:
            self.ledger.check()
        except AssertionError as error:
            error.add_note(self.report())
            raise
        for client in [] if may_begin_anew else self.clients:
            assert client.handshakes == 1, f"{client.name} shook hands {client.handshakes} times: {self.report()}"
            assert client.subscribes <= 1, f"{client.name} subscribed {client.subscribes} times"

    def _end_history(self) -> None:
        for each in self.subscribers:
            each.batches.end()
        for item, each in self.ledger.published.items():
            channel = own_channel(each.to) if each.to else channel_of(item[0])
            answered = None if each.id is None else each.answered
            self.history.add("publish", each.begun, answered, channel=channel, id=each.id or "", item=str(item))
        self.history.end()

    def judge(self, directory: Path) -> str:
        """What the checker says of the history, after `settle`: tests/faults/history.py."""
        try:
            return self.history.judge(directory / "history.jsonl")
        except AssertionError as error:  # the logs of the servers tell what no test injected
            error.add_note(self.report())
            raise

    @property
    def subscribers(self) -> list[Stock | Plain]:
        """The clients that the messages are for."""
        return [each for each in self.clients if each.name in self.ledger.received]

    async def stop(self) -> None:
        """End all clients."""
        for publisher in self.publishers:
            publisher._task.cancel()
        for client in self.clients:
            await client.stop()

    def report(self) -> str:
        """What is known of each client, for a failure."""
        return (
            "\n".join(
                f"{each.name}: {each.handshakes} handshakes, last connect {monotonic() - each.went_on_at:.1f} s ago,"
                f" {each.ending or each.complaints[-3:] if isinstance(each, Stock) else each.trouble}"
                for each in self.clients
            )
            + self.log()
        )


async def wait_for(
    holds: Callable[[], Any], limit_s: float, report: Callable[[], str] = str, *, every_s: float = 0.02
) -> None:
    """Wait until something holds that nothing announces."""
    limit_s *= patience()
    deadline = monotonic() + limit_s
    while not holds():
        assert monotonic() < deadline, f"it did not come about within {limit_s:.0f} s\n{report()}"
        await asyncio.sleep(every_s)


def _item(data: Any) -> Item:
    return data["p"], data["n"]


def _props(item: Item, is_keyed: bool) -> dict[str, Any]:
    key = {"key": f"{item[0]}-{item[1]}"} if is_keyed else {}
    return {"ext": {"publish": {"persistent": True, **key}}}
