"""An operator at work, and receivers that give them some."""

from __future__ import annotations

import json
from typing import Any

from tests.functional.bayeux import Message
from tests.functional.people import Person
from tests.functional.wire import Address, Connection, Response
from tests.server_process import Server

TOKEN = "the-admin-token-of-tests"
SETS = (
    f"admin.token={TOKEN}",
    "node.name=heron",
    "delivery.ping_timeout_ms=700",
    "log.format=json",
    "bayeux.max_interval_ms=60000",
    "limits.failed_tokens_burst=100000",  # each route is asked with wrong tokens, one after the other
)
STORED = {"publish": {"persistent": True}}
Json = Any


def audit(server: Server) -> list[str]:
    """Return the lines of the audit in the log of the server."""
    return [line for line in server.stderr.splitlines() if '"crewel.audit"' in line]


class Desk:
    """Asks the administration of one server."""

    def __init__(self, server: Address, token: str | None = TOKEN) -> None:
        self.server = server
        self.token = token

    def send(self, method: str, path: str, body: Json = None, **headers: str) -> Connection:
        """Ask, and do not wait for the answer. A body that is bytes is sent as it is."""
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        bearer = {"Authorization": f"Bearer {self.token}"} if self.token is not None else {}
        connection = Connection(self.server)
        connection.request(method, f"/admin/api{path}", content, {**bearer, **headers})
        return connection

    def ask(self, method: str, path: str, body: Json = None, **headers: str) -> Response:
        with self.send(method, path, body, **headers) as connection:
            return connection.response()

    def get(self, path: str) -> Json:
        return answer(self.ask("GET", path))

    def post(self, path: str, body: Json = None) -> Json:
        return answer(self.ask("POST", path, body))

    def cmd(self, command: str) -> Json:
        """The result of a command."""
        return self.post("/commands", {"command": command})["result"]

    def refused(self, command: Json) -> str:
        """Why a command is refused."""
        response = self.ask("POST", "/commands", {"command": command})
        assert (response.status, response.json()["errorCode"]) == (400, "user.illegalArgument"), response
        message = response.json()["message"]
        assert isinstance(message, str)
        return message

    def letters(self, query: str = "") -> list[Json]:
        """One page of letters."""
        found = self.get(f"/dead-letters?{query}")["letters"]
        assert isinstance(found, list)
        return found


def answer(response: Response) -> Json:
    """The JSON of a response that has to be one."""
    assert response.status == 200, (response.status, response.body)
    assert response.header("Content-Type") == "application/json"
    return response.json()


class Receiver(Person):
    """A client that tells how each message fared."""

    def be(self, name: str | None = None, **session: Any) -> Receiver:
        super().be(name, **({"update": True, "settle": "message"} | session))
        return self

    def say(self, *statuses: Message) -> list[Message]:
        """Connect with these statuses; the messages that come with the answer."""
        *messages, reply = self.connect(advice={"timeout": 0}, ext={"ack": self.batch, "update": list(statuses)})
        assert reply["successful"] is True, reply
        assert not reply["ext"].get("update", {}).get("rejected"), reply
        self.batch = reply["ext"]["ack"]
        return messages

    def stay(self) -> None:
        """Be there from now on: get what there is, and let the server hold the next connect."""
        while self.take():
            pass
        self.hold(advice={"timeout": 600_000}, ext={"ack": self.batch})

    def accept(self, messages: list[Message]) -> None:
        self.say(*({"id": message["ext"]["update"]["id"], "state": "OK"} for message in messages))

    def reject(self, messages: list[Message], code: str = "user.update.error", text: str = "no") -> None:
        ids = [message["ext"]["update"]["id"] for message in messages]
        self.say(*({"id": each, "errorCode": code, "message": text} for each in ids))


def publish(server: Address, channel: str, count: int, first: int = 0) -> None:
    """Publish so many numbers, stored."""
    speaker = Receiver(server).be()
    for number in range(first, first + count):
        speaker.publish(channel, number, ext=STORED)
    speaker.disconnect()
