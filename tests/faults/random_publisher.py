"""A publisher whose random numbers say what goes where. It tries again until each message is answered."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from time import monotonic
from typing import Any, NamedTuple

from tests.faults.at_work import AtWork
from tests.faults.history import History
from tests.functional.bayeux import Client
from tests.functional.wire import Address

CHANNELS = ("/x/a", "/x/b", "/x/c", "/x/d/e")


class Published(NamedTuple):
    """One message, as it was answered."""

    channel: str
    data: Any
    is_persistent: bool
    qos: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it
    """What else was asked for it."""


class RandomPublisher(AtWork):
    """Publishes `count` messages, numbered from `first`, on a thread of its own. `answered` has them by their ids."""

    def __init__(
        self,
        server: Address,
        rng: random.Random,
        count: int,
        *,
        first: int = 1,
        transient: float = 0.0,
        pause_s: float = 0.01,
        history: History | None = None,
        more: Callable[[random.Random], dict[str, Any]] = lambda _: {},
        choose: Callable[[random.Random], tuple[str, dict[str, Any]]] = lambda rng: (rng.choice(CHANNELS), {}),
    ) -> None:
        """`transient`: how many are not stored. `more`: what stands in the data beside the number. `choose`: the channel, and
        what else is asked in `ext.publish`."""
        super().__init__()
        self.answered: dict[str, Published] = {}
        self._server = server
        self._rng = rng
        self._numbers = range(first, first + count)
        self._transient = transient
        self._pause_s = pause_s
        self._history = history or History()
        self._more = more
        self._choose = choose
        self._prefix = secrets.token_hex(4)
        self._client: Client | None = None

    def work(self) -> None:
        for number in self._numbers:
            channel, qos = self._choose(self._rng)
            is_persistent = self._rng.random() >= self._transient
            published = Published(channel, {"n": number, **self._more(self._rng)}, is_persistent, qos)
            began = monotonic()
            while not self.is_ending and not self._publish(number, published, began):
                self.pause(0.05)
            self.pause(self._rng.uniform(0, 2 * self._pause_s))

    def _publish(self, number: int, published: Published, began: float) -> bool:
        """Whether it was answered. A transient one is published once: nobody would notice that it comes twice."""
        try:
            if self._client is None:
                self._client = Client(self._server).start()
            kept = {"persistent": True, "key": f"{self._prefix}-{number}"} if published.is_persistent else {}
            kept |= published.qos
            (reply,) = self._client.send(
                self._client.message(published.channel, data=published.data, ext={"publish": kept})
            )
        except (OSError, EOFError):
            self._client = None
            return False
        if reply["successful"]:
            log_id = reply["ext"]["publish"]["id"]
            self.answered[log_id] = published
            fields = {"channel": published.channel, "id": log_id, "item": str(published.data)}
            self._history.add("publish", began, monotonic(), **fields)
            return True
        assert reply["error"].startswith(("402:", "503:")), reply
        if reply["error"].startswith("402:"):
            self._client = None
        return False
