"""A post office for tests: people of one subject, who come and go, and a publisher who writes to them by name."""

from __future__ import annotations

import itertools
from typing import Any

from tests.admin.desk import TOKEN, Desk, Receiver
from tests.functional.bayeux import Message
from tests.functional.people import Person
from tests.functional.wire import Address, until
from tests.server_process import Server

SETS = (
    f"admin.token={TOKEN}",
    "node.name=heron",
    "bayeux.max_interval_ms=300",  # who does not connect is POLLING after that
    "bayeux.sweep_ms=30",
    "delivery.commit_ms=30",
    "bayeux.timeout_ms=60000",
)
BOX = "/service/post"
"""A channel on which nobody hears a message but those to whom it is addressed."""
MARK = "__subId:PtP"

_numbers = itertools.count(1)


class Keeper(Receiver):
    """A receiver that throws nothing away: what waits for it often comes with its very first connect."""

    def __init__(self, server: Address) -> None:
        super().__init__(server)
        self._early: list[Message] = []

    def be(self, name: str | None = None, **session: Any) -> Keeper:
        """Shake hands, which has to succeed, and make the first connect."""
        asked = {"update": True, "settle": "message"} | ({} if name is None else {"name": name}) | session
        reply = self.shake(**asked)
        assert reply["successful"] is True, reply
        self._early = self.take()
        return self

    def take(self, *, timeout: int = 0) -> list[Message]:
        """The messages of the first connect, or else of another."""
        early, self._early = self._early, []
        return early or super().take(timeout=timeout)


class Office:
    """A server, a subject that no other test has (`joe`), and somebody who publishes."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.desk = Desk(server)
        number = next(_numbers)
        self.joe = f"client/joe{number}"
        self.clerk = Person(server).be(f"clerk{number}/1")

    def name(self, number: int) -> str:
        """The name of one of the subject's sessions."""
        return f"{self.joe}/{number}"

    def login(self, number: int = 1, **session: Any) -> Receiver:
        """A session of the subject that has made its first connect, and settles each message by itself."""
        return Keeper(self.server).be(self.name(number), **session)

    def ask(self, data: Any, *destinations: Message, channel: str = BOX, **qos: Any) -> Message:
        """The answer to a publish to these destinations."""
        ext = {"publish": {"destination": list(destinations), **qos}}
        return self.clerk.send(self.clerk.message(channel, data=data, ext=ext))[-1]

    def send(self, data: Any, to: str, *, queue: bool = False, **qos: Any) -> str:
        """Publish to one destination, which has to be accepted; the message's id."""
        reply = self.ask(data, {"to": to, "forceQueuing": queue}, **qos)
        assert reply["successful"] is True, reply
        told = reply["ext"]["publish"]
        assert (told["state"], [(each["to"], each["state"]) for each in told["destinations"]]) == ("OK", [(to, "OK")])
        message_id: str = told["id"]
        return message_id

    def refused(self, data: Any, to: str, *, queue: bool = False, **qos: Any) -> str:
        """Publish to one destination, which has to be refused; the dotted code."""
        reply = self.ask(data, {"to": to, "forceQueuing": queue}, **qos)
        assert reply["successful"] is False, reply
        told = reply["ext"]["publish"]
        code: str = told["errorCode"]
        assert reply["error"] == f"404:{to}:{code}"
        assert told["message"]
        (state,) = told["destinations"]
        assert (state["to"], state["errorCode"]) == (to, code)
        assert state["state"] != "OK"
        return code

    def queued(self) -> int:
        """How many messages wait in the subject's queue. A subject with nothing and nobody is not known."""
        command = f"__cmd:{self.joe}/?subjectQueueNumMsgs"
        response = self.desk.ask("POST", "/commands", {"command": command})
        assert response.status in (200, 400), response
        return int(response.json()["result"]) if response.status == 200 else 0

    def state(self, number: int = 1) -> str:
        """What the administration says of the session's dispatcher."""
        state: str = self.desk.cmd(f"__cmd:{self.name(number)}/?connectionState")
        return state

    def letters(self, number: int = 1) -> list[Message]:
        """The session's dead letters."""
        return self.desk.letters(f"receiver={self.name(number)}")


def comes(receiver: Person, count: int = 1) -> list[Message]:
    """The next so many messages, or more; they may need a moment."""
    found: list[Message] = []

    def is_complete() -> bool:
        found.extend(receiver.take())
        return len(found) >= count

    until(is_complete)
    return found
