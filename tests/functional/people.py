"""Clients that say who they are: `ext.session` in the handshake, and what the server answers to it."""

from __future__ import annotations

from typing import Any

from tests.functional.bayeux import Client, Message
from tests.functional.wire import Address

IDENTICAL = "user.configuration.identicalClient"
DENIED = "user.security.authentication.accessDenied"


class Person(Client):
    """A client over long-polling that acknowledges, unless it is told not to."""

    batch = 0
    acknowledges = True

    def __init__(self, server: Address) -> None:
        super().__init__(server)
        self.login: Message = {}

    def shake(self, **session: Any) -> Message:
        """Shake hands as this session; the reply, granted or not."""
        ext: Message = {"session": session}
        if self.acknowledges:
            ext["ack"] = True
        fields = {"version": "1.0", "supportedConnectionTypes": ["long-polling"], "ext": ext}
        self.id, self.batch = None, 0
        response = self.post(self.message("/meta/handshake", **fields))
        (reply,) = response.messages
        if reply["successful"]:
            self.id = reply["clientId"]
            self.login = reply["ext"]["session"]
            for cookie in response.all("Set-Cookie"):
                self.cookie = cookie.partition("=")[2].partition(";")[0]
        return reply

    def be(self, name: str | None = None, **session: Any) -> Person:
        """Shake hands, which has to succeed, and make the first connect."""
        reply = self.shake(**({} if name is None else {"name": name}), **session)
        assert reply["successful"] is True, reply
        self.take()
        return self

    def take(self, *, timeout: int = 0) -> list[Message]:
        """The messages of one connect that is not held, and acknowledges what the one before brought."""
        ext = {"ext": {"ack": self.batch}} if self.acknowledges else {}
        *messages, reply = self.connect(advice={"timeout": timeout}, **ext)
        assert reply["successful"] is True, reply
        if self.acknowledges:
            self.batch = reply["ext"]["ack"]
        return messages

    def take_all(self) -> list[Message]:
        """The messages of all connects until one brings nothing."""
        taken: list[Message] = []
        while messages := self.take():
            taken += messages
        return taken

    def take_many(self, count: int) -> list[Message]:
        """The messages of all connects until so many came: from another node they may come one by one."""
        taken: list[Message] = []
        while len(taken) < count:
            taken += self.take(timeout=1000)
        return taken

    def forget_connections(self) -> None:
        """As after a failure of the network, or of the server."""
        self._command = self._polling = None


def refusal(reply: Message) -> tuple[str, str, str]:
    """The error of a refused handshake, its dotted code, and what its client is to do."""
    assert reply["successful"] is False, reply
    assert "clientId" not in reply
    return reply["error"], reply["ext"]["session"]["errorCode"], reply["advice"]["reconnect"]
