"""A publisher whose random numbers say what goes where. It tries again until each message is answered."""

from __future__ import annotations

import random
import secrets
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

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


class RandomPublisher:
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
        more: Callable[[random.Random], dict[str, Any]] = lambda _: {},
        choose: Callable[[random.Random], tuple[str, dict[str, Any]]] = lambda rng: (rng.choice(CHANNELS), {}),
    ) -> None:
        """`transient`: how many are not stored. `more`: what stands in the data beside the number. `choose`: the channel, and
        what else is asked in `ext.publish`."""
        self.answered: dict[str, Published] = {}
        self.trouble: BaseException | None = None
        self._server = server
        self._rng = rng
        self._numbers = range(first, first + count)
        self._transient = transient
        self._pause_s = pause_s
        self._more = more
        self._choose = choose
        self._prefix = secrets.token_hex(4)
        self._client: Client | None = None
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether everything was answered, or something went wrong."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """End, whatever was published."""
        self._is_ending.set()
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            for number in self._numbers:
                channel, qos = self._choose(self._rng)
                is_persistent = self._rng.random() >= self._transient
                published = Published(channel, {"n": number, **self._more(self._rng)}, is_persistent, qos)
                while not self._is_ending.is_set() and not self._publish(number, published):
                    self._is_ending.wait(0.05)
                self._is_ending.wait(self._rng.uniform(0, 2 * self._pause_s))
        except BaseException as error:  # noqa: BLE001 - the test tells it
            self.trouble = error

    def _publish(self, number: int, published: Published) -> bool:
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
            self.answered[reply["ext"]["publish"]["id"]] = published
            return True
        assert reply["error"].startswith(("402:", "503:")), reply
        if reply["error"].startswith("402:"):
            self._client = None
        return False
