"""A topic for tests: a channel of its own, who publishes to it, who hears it, and what operators are told of it."""

from __future__ import annotations

import itertools
from typing import Any

from tests.admin.desk import TOKEN, Desk, Receiver
from tests.functional.bayeux import Message
from tests.functional.people import Person
from tests.functional.post import comes
from tests.functional.wire import until
from tests.server_process import Server

SETS = (
    f"admin.token={TOKEN}",
    "node.name=heron",
    "bayeux.max_interval_ms=60000",
    "bayeux.timeout_ms=60000",
    "bayeux.sweep_ms=30",
    "delivery.commit_ms=30",
)
_numbers = itertools.count(1)


class Topic:
    """A topic that no other test has."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.desk = Desk(server)
        number = next(_numbers)
        self.family = f"/topic/{number}/*"
        """A pattern that matches it and no other test's."""
        self.channel = f"/topic/{number}/a"
        self._names = (f"reader{number}/{each}" for each in itertools.count(1))
        self._writer = Person(server).be(f"writer{number}/1")

    def again(self, server: Server) -> Topic:
        """The same topic at another server."""
        topic = Topic(server)
        topic.channel, topic.family = self.channel, self.family
        return topic

    # What clients do

    def publish(self, data: Any = "hi", *, history: int = 0, **qos: Any) -> str:
        """Publish a message, which has to be accepted; its id. `history`: how many the topic is to keep."""
        reply = self.ask(data, history=history, **qos)
        assert reply["successful"] is True, reply
        message_id: str = reply["ext"]["publish"]["id"]
        return message_id

    def ask(self, data: Any = "hi", *, history: int = 0, **qos: Any) -> Message:
        """The answer to a publish."""
        asked = {"history": {"maxEntries": history}, **qos} if history else qos
        return self._writer.send(self._writer.message(self.channel, data=data, ext={"publish": asked}))[-1]

    def reader(self, pattern: str = "", **subscribe: Any) -> Receiver:
        """Somebody who is subscribed to the topic, or to this pattern."""
        reader = Receiver(self.server).be(next(self._names))
        self.subscribe(reader, pattern, **subscribe)
        return reader

    def subscribe(self, reader: Person, pattern: str = "", **subscribe: Any) -> Message:
        """The answer to a subscribe, which has to be accepted; with `ext.subscribe` if anything is asked."""
        asked = {"ext": {"subscribe": subscribe}} if subscribe else {}
        reply = reader.send(reader.message("/meta/subscribe", subscription=pattern or self.channel, **asked))[-1]
        assert reply["successful"] is True, reply
        return reply

    def unsubscribe(self, reader: Person, pattern: str = "") -> None:
        """Give a subscription up."""
        reply = reader.send(reader.message("/meta/unsubscribe", subscription=pattern or self.channel))[-1]
        assert reply["successful"] is True, reply

    def get(self, count: int = -1, *, newest_first: bool = False) -> list[Message]:
        """The messages of the history."""
        return read(self._writer, self.channel, count, newest_first=newest_first)

    # What operators see and do

    def cmd(self, what: str) -> Any:
        """The result of a command about the topic."""
        return self.desk.cmd(f"__cmd:topic{self.channel}/?{what}")

    def facts(self) -> Message | None:
        """What REST tells of it; nothing if the server does not know it."""
        response = self.desk.ask("GET", f"/topics{self.channel}")
        assert response.status in (200, 404), response
        return response.json() if response.status == 200 else None

    @property
    def state(self) -> str:
        """Its state; DEAD is one that the server does not know."""
        facts = self.facts()
        return "DEAD" if facts is None else str(facts["state"])

    def becomes(self, state: str) -> None:
        """Wait until it is in this state."""
        until(lambda: self.state == state)

    def erase(self, *, force: bool = False) -> None:
        """Erase it, as an operator does."""
        answer = self.desk.ask("DELETE", f"/topics{self.channel}{'?force=true' if force else ''}")
        assert answer.status == 200, answer

    @property
    def conditions(self) -> str:
        """The page's four columns, with a dash for each that is false: visible, referenced by history, by callback queue, with
        EXACT subscriptions."""
        facts = self.facts() or {"history": {"entries": 0}, "queued": 0, "exactSubscribers": 0}
        columns = {
            "V": self.channel in self.desk.cmd("__cmd:?topicList"),
            "H": facts["history"]["entries"] > 0,
            "C": facts["queued"] > 0,
            "E": facts["exactSubscribers"] > 0,
        }
        return " ".join(letter if holds else "-" for letter, holds in columns.items())


def read(client: Person, channel: str, count: int = -1, *, newest_first: bool = False) -> list[Message]:
    """The messages of a topic's history, by the remote call."""
    data = {"channel": channel, "numEntries": count, "newestFirst": newest_first}
    answer = client.send(client.message("/service/get", data=data))
    assert answer[-1]["successful"] is True, answer
    (result,) = [each for each in answer if "data" in each] or comes(client)
    assert result["successful"] is True, result
    messages: list[Message] = result["data"]["messages"]
    return messages


def settle(reader: Receiver, count: int = 1) -> list[Message]:
    """Take so many messages and settle them."""
    taken = comes(reader, count)
    reader.say(*({"id": message["ext"]["update"]["id"], "state": "OK"} for message in taken))
    return taken
