"""Readers that remember where they are: plain sessions that come and go, and ask for what they have missed."""

from __future__ import annotations

import random
import threading
from typing import Any

from tests.faults.at_work import AtWork
from tests.functional.bayeux import Client, Message
from tests.functional.wire import Address


class RandomReader(AtWork):
    """One reader of one topic. `ids` is all that it got, in its order; the topic keeps all that is ever published to it."""

    def __init__(self, server: Address, channel: str, rng: random.Random) -> None:
        super().__init__()
        self.ids: list[int] = []
        self.visits = 0
        """How often it came back and had missed something, or nothing."""
        self.begun = threading.Event()
        """Set when it has a position."""
        self.start_id = 0
        """What came after this is for it."""
        self._server = server
        self._channel = channel
        self._rng = rng
        self._position: dict[str, str] | None = None

    def work(self) -> None:
        while not self.is_ending:
            try:
                self._visit()
            except (OSError, EOFError):  # there is no server at the moment
                self.pause(0.05)

    def _visit(self) -> None:
        client = Client(self._server).start()
        if not self._subscribe(client):
            self.pause(0.05)
            return
        for _ in range(self._rng.randint(1, 8)):
            *messages, reply = client.connect(advice={"timeout": self._rng.choice((0, 50, 200))})
            self._read(messages)
            if not reply["successful"]:
                return
        if self._rng.random() < 0.5:
            self._read(client.disconnect())
        self.pause(self._rng.uniform(0, 0.3))

    def _subscribe(self, client: Client) -> bool:
        """Whether it could be answered: the store may be away."""
        asked = {"initialUpdate": False} if self._position is None else {"since": {self._channel: self._position}}
        ext: dict[str, Any] = {"subscribe": asked}
        answer = client.send(client.message("/meta/subscribe", subscription=self._channel, ext=ext))
        (reply,) = [each for each in answer if "subscription" in each]
        if not reply["successful"]:
            assert reply["error"].startswith(("402:", "503:")), reply
            return False
        told = reply["ext"]["subscribe"]
        if self._position is None:
            self._position = told["position"][self._channel]
            self.start_id = int(self._position["id"])
            self.begun.set()
        else:
            assert told["recovered"] is True, (self._position, reply)
            self.visits += 1
        self._read(answer)
        return True

    def _read(self, messages: list[Message]) -> None:
        assert self._position is not None
        for message in messages:
            if "data" in message:
                self.ids.append(int(message["id"]))
                self._position = {**self._position, "id": message["id"]}
