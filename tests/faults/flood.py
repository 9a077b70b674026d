"""A publisher that publishes as fast as it is answered, and one receiver that keeps up with it, in a process of their own:
`python -m tests.faults.flood PORT COUNT`. Prints what the receiver got as one line of JSON.

The publisher waits for the receiver, so that nothing ever piles up for it.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import asdict, dataclass
from time import monotonic

from tests.functional.bayeux import Client
from tests.functional.frames import SocketClient

CHANNEL = "/flood"
_AT_ONCE = 1000
_AHEAD = 10_000  # messages that the receiver may lag behind
_QUEUE = 40_000
_QOS = {"publish": {"persistent": True}}
_PAD = "x" * 100


@dataclass
class Address:
    """Where the server is."""

    port: int


@dataclass
class Outcome:
    """What the receiver got."""

    received: int = 0
    """Messages in their order, each once."""
    duplicates: int = 0
    wrong: int = 0
    """Messages out of order."""
    seconds: float = 0.0
    refused: int = 0


class Flood:
    """The two."""

    def __init__(self, port: int, count: int) -> None:
        self.outcome = Outcome()
        self._count = count
        self._news = threading.Condition()
        self._receiver = Client(Address(port))
        self._publisher = SocketClient(Address(port))

    def run(self) -> Outcome:
        """Publish everything and wait until it has come."""
        self._receiver.handshake(
            ext={"ack": True, "session": {"queue": {"maxEntries": _QUEUE, "maxBytes": 100_000_000}}}
        )
        self._receiver.subscribe(CHANNEL)
        self._publisher.handshake()
        publishing = threading.Thread(target=self._publish, daemon=True)
        begun = monotonic()
        publishing.start()
        self._receive()
        publishing.join()
        self.outcome.seconds = monotonic() - begun
        return self.outcome

    def _publish(self) -> None:
        """The next handful is on its way while the last one is answered."""
        client = self._publisher
        open_count = 0
        for start in range(1, self._count + 1, _AT_ONCE):
            with self._news:
                self._news.wait_for(lambda start=start: self.outcome.received > start - _AHEAD, 60)
            numbers = range(start, min(start + _AT_ONCE, self._count + 1))
            client.send(*(client.message(CHANNEL, data={"n": number, "pad": _PAD}, ext=_QOS) for number in numbers))
            open_count += len(numbers)
            while open_count > _AT_ONCE:
                open_count -= self._answers()
        while open_count:
            open_count -= self._answers()

    def _answers(self) -> int:
        replies = self._publisher.socket.receive()
        self.outcome.refused += sum(not reply["successful"] for reply in replies)
        return len(replies)

    def _receive(self) -> None:
        batch = 0
        while self.outcome.received < self._count:
            *messages, reply = self._receiver.connect(ext={"ack": batch})
            assert reply["successful"], reply
            batch = reply["ext"]["ack"]
            for message in messages:
                self._take(message["data"]["n"])
            with self._news:
                self._news.notify_all()

    def _take(self, number: int) -> None:
        expected = self.outcome.received + 1
        if number == expected:
            self.outcome.received = number
        elif number < expected:
            self.outcome.duplicates += 1
        else:
            self.outcome.wrong += 1


if __name__ == "__main__":
    print(json.dumps(asdict(Flood(int(sys.argv[1]), int(sys.argv[2])).run())))
