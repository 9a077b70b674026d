"""Bayeux clients for tests: one for each transport, with no habits of their own.

`Client` is a browser over long-polling: a cookie, one connection for the connect and one for all else. `frames.py` has
the same over WebSocket.
"""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from tests.functional.wire import Address, Connection, Headers, Response, figures, pairs, until

Message = dict[str, Any]
COOKIE = "BAYEUX_BROWSER"
Result = TypeVar("Result")


class Speaker:
    """Makes messages: numbers them and signs them with the session's `clientId`."""

    def __init__(self) -> None:
        self.id: str | None = None
        self._numbers = itertools.count(1)

    def message(self, channel: str, **fields: Any) -> Message:
        message = {"channel": channel, "id": str(next(self._numbers)), **fields}
        if self.id is not None:
            message.setdefault("clientId", self.id)
        return message


class Client(Speaker):
    """One session over long-polling."""

    def __init__(
        self, server: Address, *, path: str = "/cometd", cookie: str | None = None, headers: Headers = ()
    ) -> None:
        super().__init__()
        self.server = server
        self.path = path
        self.cookie = cookie
        self.headers = pairs(headers)
        self.advice: Message = {}
        self._command: Connection | None = None
        self._polling: Connection | None = None

    @property
    def command(self) -> Connection:
        """The connection for all but connects."""
        if self._command is None:
            self._command = Connection(self.server)
        return self._command

    @property
    def polling(self) -> Connection:
        """The connection for connects."""
        if self._polling is None:
            self._polling = Connection(self.server)
        return self._polling

    def all_headers(self) -> list[tuple[str, str]]:
        cookies = [("Cookie", f"{COOKIE}={self.cookie}")] if self.cookie else []
        return [("Content-Type", "application/json"), *cookies, *self.headers]

    def post(self, *messages: Message) -> Response:
        """Send these on the connection for commands."""
        self.command.request("POST", self.path, json.dumps(messages).encode(), self.all_headers())
        return self.command.response()

    def send(self, *messages: Message) -> list[Message]:
        """What comes back for these messages."""
        return self.post(*messages).messages

    def handshake(self, **fields: Any) -> Message:
        """Shake hands, keep the cookie, and return the reply, which has to be successful."""
        message = {"version": "1.0", "supportedConnectionTypes": ["long-polling"], **fields}
        response = self.post(self.message("/meta/handshake", **message))
        (reply,) = [reply for reply in response.messages if reply["channel"] == "/meta/handshake"]
        assert reply["successful"] is True, reply
        self.id = reply["clientId"]
        for cookie in response.all("Set-Cookie"):
            self.cookie = cookie.partition("=")[2].partition(";")[0]
        return reply

    def start(self, **fields: Any) -> Client:
        """Shake hands and make the first connect, which is answered at once."""
        self.handshake(**fields)
        reply = self.connect()[-1]
        assert reply["successful"] is True, reply
        return self

    def ask_connect(self, **fields: Any) -> Connection:
        """Send a connect and do not wait for its answer."""
        message = self.message("/meta/connect", connectionType="long-polling", **fields)
        self.polling.request("POST", self.path, json.dumps([message]).encode(), self.all_headers())
        return self.polling

    def connect(self, **fields: Any) -> list[Message]:
        """A connect with what it brings: messages, then the reply."""
        return self.ask_connect(**fields).response().messages

    def hold(self, **fields: Any) -> Connection:
        """A connect that the server holds when this returns."""
        before = held(self.server)
        connection = self.ask_connect(**fields)
        until(lambda: held(self.server) > before)
        return connection

    def drop_polling(self) -> None:
        """Forget the connection for connects: the next connect opens another."""
        self._polling = None

    def interrupt(self) -> None:
        """Let another thread that waits for the answer of a connect get an EOFError instead."""
        connection = self._polling
        if connection is not None:
            with suppress(OSError):  # it has ended already
                connection.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close both connections; the next request opens another one."""
        for connection in (self._polling, self._command):
            if connection is not None:
                connection.close()
        self._polling = self._command = None

    def subscribe(self, *channels: str) -> None:
        name = channels[0] if len(channels) == 1 else list(channels)
        assert self.send(self.message("/meta/subscribe", subscription=name))[-1]["successful"] is True

    def publish(self, channel: str, data: Any = None, **fields: Any) -> list[Message]:
        """What comes back for a publish that has to be accepted."""
        answer = self.send(self.message(channel, data=data, **fields))
        assert answer[-1]["successful"] is True, answer
        return answer

    def disconnect(self) -> list[Message]:
        return self.send(self.message("/meta/disconnect"))


def held(server: Address) -> float:
    """How many connects the server holds."""
    return figures(server)["crewel_held_connects"]


def sessions(server: Address) -> float:
    """How many sessions live."""
    return figures(server)["crewel_sessions"]


def in_time(begin: Callable[[], Result]) -> Result:
    """What `begin` returns. It is called again, twice at most, if it fails: where sessions end soon, the machine may pause
    between two steps for longer than a session lives."""
    for _ in range(2):
        with suppress(AssertionError, EOFError, ConnectionError):
            return begin()
    return begin()


def data(messages: list[Message]) -> list[Any]:
    """The data of the messages that are no replies."""
    return [message["data"] for message in messages if "data" in message]
