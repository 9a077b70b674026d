"""Receivers that treat each message as their random numbers say, and remember what they heard and what they said of it.

Each is one session over a plain wire, on a thread of its own, with the bad habits that it is given: it cuts connections before
the answer, is slow, goes away, comes back as itself or anew.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from time import monotonic
from typing import Any, NamedTuple

from tests.faults.at_work import AtWork
from tests.faults.history import History
from tests.functional.bayeux import COOKIE, Client, Message, Speaker
from tests.functional.frames import Refused, SocketClient
from tests.functional.wire import Address

OK, WORKING, SILENT, LATER = "OK", "WORKING", "SILENT", "LATER"
LETTER_CODES = ("user.update.error", "user.update.deadMessage", "user.clientCode", "resource.exhaust")
"""Codes that make a letter and leave the session alone. The last is none that a receiver may report."""
REPORTED_AS = {"resource.exhaust": "user.update.internalError"}
COMMUNICATION = "communication.timeout"
HOLDBACK = "user.update.holdback"
FATAL = "user.security.authentication.accessDenied"


@dataclass(frozen=True, slots=True)
class Habits:
    """What a receiver is and does."""

    patterns: tuple[str, ...]
    name: str | None = None
    session: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of `ext.session`."""
    weights: Mapping[str, float] = field(default_factory=lambda: {OK: 1})
    """What it says of messages, and how often."""
    socket: bool = False
    """Whether it uses a WebSocket."""
    cuts: float = 0.0
    """How often it cuts the connection before it has the answer."""
    slow: float = 0.0
    """How often it does nothing for up to half a second."""
    leaves: float = 0.0
    """How often it goes away, for up to two seconds, in one of several ways."""
    changes: float = 0.0
    """How often it unsubscribes, for a while."""
    asks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What it asks for some of these patterns, in `ext.subscribe`."""

    @property
    def tells(self) -> bool:
        """Whether its session answers statuses."""
        return bool(self.session.get("update"))

    @property
    def settles_batches(self) -> bool:
        """Whether an acknowledgement settles what no status has named."""
        return not self.tells or self.session.get("settle", "batch") == "batch"


class Heard(NamedTuple):
    """One copy of a message."""

    session: str
    id: str
    channel: str
    data: Any


Key = tuple[str, str]
"""Name of a session, id of a message."""


@dataclass(slots=True)
class Memory:
    """What a receiver knows at the end."""

    heard: list[Heard] = field(default_factory=list)
    said: dict[Key, set[str]] = field(default_factory=dict)
    """What was said of a message, also if it may not have arrived. OK is also what an acknowledgement says."""
    confirmed: dict[Key, str] = field(default_factory=dict)
    """What was said last of it, and answered, and not rejected: OK, or a code that makes a letter."""
    again: list[Key] = field(default_factory=list)
    """What came although that was confirmed."""
    repeats: list[Message] = field(default_factory=list)
    """The same, as it came."""
    sessions: set[str] = field(default_factory=set)
    losses: int = 0
    """How often its session was over."""
    codes: set[str] = field(default_factory=set)
    """All that it ever said."""

    def say(self, key: Key, what: str) -> None:
        """Something is about to be said of a message."""
        self.said.setdefault(key, set()).add(what)
        self.codes.add(what)


class _Polling(Client):
    """Long-polling, one request after the other."""

    connection_type = "long-polling"

    def exchange(self, message: Message) -> list[Message]:
        response = self.post(message)
        if response.status == HTTPStatus.INTERNAL_SERVER_ERROR:
            # A connect that was cut before was held back by a node that hung, and took the place of this one.
            assert response.body == b"replaced by a newer connect", response.body
            raise EOFError
        for cookie in response.all("Set-Cookie"):
            self.cookie = cookie.partition(f"{COOKIE}=")[2].partition(";")[0]
        return response.messages

    def cut(self, message: Message) -> None:
        self.command.request("POST", self.path, json.dumps([message]).encode(), self.all_headers())
        self.command.reset()
        self._command = None

    def forget(self) -> None:
        if self._command is not None:
            self._command.close()
        self._command = None


class _Socketing(Speaker):
    """A WebSocket, which is opened again whenever it is needed."""

    connection_type = "websocket"

    def __init__(self, server: Address) -> None:
        super().__init__()
        self._server = server
        self._client: SocketClient | None = None

    def exchange(self, message: Message) -> list[Message]:
        client = self._open()
        client.send(message)
        reply = client.reply_to(message)
        messages, client.events = client.events, []
        return [*messages, reply]

    def cut(self, message: Message) -> None:
        client = self._open()
        client.send(message)
        client.socket.connection.reset()
        self._client = None

    def forget(self) -> None:
        if self._client is not None:
            self._client.socket.connection.close()
        self._client = None

    def _open(self) -> SocketClient:
        if self._client is None:
            self._client = SocketClient(self._server)
        return self._client


class RandomReceiver(AtWork):
    """One receiver. It has stopped when `stop` returns; `trouble` is what went wrong, if anything."""

    def __init__(self, server: Address, habits: Habits, rng: random.Random, history: History | None = None) -> None:
        super().__init__()
        self.habits = habits
        self.weights = habits.weights
        """What it says from now on."""
        self.memory = Memory()
        self._history = history or History()
        self._said: dict[tuple[str, str], float] = {}  # when each status without an answer was sent for the first time
        self.subscribed = threading.Event()
        """Set when it has been subscribed for the first time."""
        self._rng = rng
        self._line = _Socketing(server) if habits.socket else _Polling(server)
        self._resume: str | None = None
        self._name = ""
        self._patterns: set[str] = set()
        self._missing: list[str] = []  # what it has to subscribe to before it goes on
        self._batch = 0
        self._in_batch: list[str] = []  # ids that the last reply held
        self._acknowledged: set[str] = set()  # of these, with a connect that may not be answered
        self._pending: list[Message] = []  # statuses that no reply has confirmed
        self._later: list[str] = []
        self._only_initial: set[Key] = set()  # came of a history alone: the message itself may still follow

    def stop(self) -> None:
        """End; the session stays as it is."""
        super().stop()
        self._line.forget()

    def work(self) -> None:
        while not self.is_ending:
            try:
                self._turn()
            except (OSError, EOFError, Refused):  # cut, or there is no server at the moment
                self._line.forget()
                self.pause(0.02)

    def _turn(self) -> None:
        habits, draw = self.habits, self._rng.random()
        gaps = [pattern for pattern in habits.patterns if pattern not in self._patterns]
        if self._line.id is None:
            self._log_in()
        elif self._missing:
            self._subscribe()
        elif gaps and self._rng.random() < 0.3:
            self._missing.append(gaps[0])
        elif draw < habits.leaves:
            self._leave()
        elif draw < habits.leaves + habits.slow:
            self.pause(self._rng.uniform(0, 0.5))
        elif draw < habits.leaves + habits.slow + habits.changes:
            self._change()
        elif self._pending and self._rng.random() < 0.3:
            self._tell()
        else:
            self._connect()

    # Logins

    def _log_in(self) -> None:
        habits = self.habits
        name = {} if habits.name is None else {"name": habits.name}
        resume = {} if self._resume is None else {"resume": self._resume}
        ext = {"ack": True, "session": {**name, **resume, **habits.session}}
        fields = {"version": "1.0", "supportedConnectionTypes": [self._line.connection_type], "ext": ext}
        reply = self._line.exchange(self._line.message("/meta/handshake", **fields))[-1]
        if not reply["successful"]:
            self._resume = None
            self.pause(0.1)
            return
        told = reply["ext"]["session"]
        self._line.id, self._resume = reply["clientId"], told["resume"]
        self._name = "client/" + told["name"].partition("/client/")[2]
        self.memory.sessions.add(self._name)
        self._batch, self._in_batch, self._pending, self._later = 0, [], [], []
        self._missing = list(habits.patterns)

    def _subscribe(self) -> None:
        pattern, began = self._missing[0], monotonic()
        wish = self.habits.asks.get(pattern)
        asked = {} if wish is None else {"ext": {"subscribe": wish}}
        if self._ask("/meta/subscribe", subscription=pattern, **asked):
            self._patterns.add(pattern)
            self._history.add("subscribe", began, monotonic(), receiver=self._name, channel=pattern)
            del self._missing[0]
            if not self._missing:
                self.subscribed.set()

    def _ask(self, channel: str, **fields: Any) -> bool:
        reply = self._line.exchange(self._line.message(channel, **fields))[-1]
        return bool(reply["successful"]) or self._refused(reply)

    def _refused(self, reply: Message) -> bool:
        """The session is over, or the server cannot say anything at the moment."""
        if reply["error"].startswith("402:"):
            self.memory.losses += 1
            self._line.id = None
        self.pause(0.02)
        return False

    def _leave(self) -> None:
        how = self._rng.choice(("away", "disconnect", "anew", "anew"))
        if how == "disconnect":
            self._line.exchange(self._line.message("/meta/disconnect"))
            self._line.id = self._resume = None
        elif how == "anew":
            self._line.forget()
            self._line.id = None  # with its resume, if it has one
        else:
            self._line.forget()
            self.pause(self._rng.uniform(0.3, 2))

    def _change(self) -> None:
        pattern = self._rng.choice(self.habits.patterns)
        if self._ask("/meta/unsubscribe", subscription=pattern):
            self._patterns.discard(pattern)

    # Messages

    def _tell(self) -> None:
        statuses = list(self._pending)
        message = self._line.message("/service/update", data=statuses)
        self._note(statuses)
        if self._cuts(message):
            return
        *others, reply = self._line.exchange(message)
        assert all(each["channel"].startswith("/meta/") for each in others), others
        if reply["successful"]:
            self._confirm(statuses, reply)
        else:
            self._refused(reply)

    def _connect(self) -> None:
        for log_id in list(self._later):
            if self._rng.random() < 0.5:
                self._later.remove(log_id)
                self._decide(log_id)
        statuses, batch = list(self._pending), self._batch
        ext: Message = {"ack": batch} | ({"update": statuses} if statuses else {})
        fields = {"connectionType": self._line.connection_type, "advice": {"timeout": self._rng.choice((0, 50, 200))}}
        message = self._line.message("/meta/connect", ext=ext, **fields)
        self._note(statuses)
        if self.habits.settles_batches:
            failed = {status["id"] for status in self._pending if "errorCode" in status}
            for log_id in self._in_batch:
                if log_id not in failed:
                    self.memory.say((self._name, log_id), OK)
                    # Sent again, it is no other operation: of thirty that have no answer, the checker tries all orders.
                    if log_id not in self._acknowledged:
                        self._acknowledged.add(log_id)
                        self._history.add("acknowledge", monotonic(), None, receiver=self._name, id=log_id)
        if self._cuts(message):
            return
        *messages, reply = self._line.exchange(message)
        if not reply["successful"]:
            self._refused(reply)
            return
        self._confirm(statuses, reply)
        self._batch = reply["ext"]["ack"]
        # What an operator's kill tells the client beside, the next request tells it too.
        self._in_batch = [self._hear(each) for each in messages if not each["channel"].startswith("/meta/")]
        for log_id in self._in_batch:
            self._decide(log_id)

    def _hear(self, message: Message) -> str:
        ext = message.get("ext", {})
        log_id: str = ext["update"]["id"] if "update" in ext else message.get("id", "")
        key = (self._name, log_id)
        self._acknowledged.discard(log_id)
        self.memory.heard.append(Heard(self._name, log_id, message["channel"], message["data"]))
        self._history.came(self._name, message["channel"], log_id, message["data"])
        if not ext.get("update", {}).get("initial"):
            self._only_initial.discard(key)
            if key in self.memory.confirmed:
                self.memory.again.append(key)
                self.memory.repeats.append(message)
        elif key not in self.memory.confirmed:
            self._only_initial.add(key)
        return log_id

    def _decide(self, log_id: str) -> None:
        if not self.habits.tells:
            return
        weights = self.weights
        (what,) = self._rng.choices(list(weights), list(weights.values()))
        if what in (LATER, WORKING):
            self._later.append(log_id)
        if what in (OK, WORKING):
            self._pending.append({"id": log_id, "state": what})
        elif what not in (SILENT, LATER):
            self._pending.append({"id": log_id, "errorCode": what, "message": f"no to {log_id}"})

    def _note(self, statuses: list[Message]) -> None:
        for status in statuses:
            code = status.get("errorCode", status.get("state"))
            self.memory.say((self._name, status["id"]), REPORTED_AS.get(code, code))
            self._said.setdefault((status["id"], code), monotonic())

    def _cuts(self, message: Message) -> bool:
        if self._rng.random() >= self.habits.cuts:
            return False
        self._line.cut(message)
        return True

    def _confirm(self, statuses: list[Message], reply: Message) -> None:
        rejected = {status["id"] for status in reply.get("ext", {}).get("update", {}).get("rejected", ())}
        self._pending = [status for status in self._pending if status not in statuses]
        for status in statuses:
            code, key = status.get("errorCode", status.get("state")), (self._name, status["id"])
            self._write(status["id"], code, None if status["id"] in rejected else monotonic())
            if status["id"] not in rejected and key not in self._only_initial and (code == OK or code in LETTER_CODES):
                self.memory.confirmed[key] = REPORTED_AS.get(code, code)

    def _write(self, log_id: str, code: str, answered: float | None) -> None:
        """A status and its answer go into the history."""
        began = self._said.pop((log_id, code), None)
        if began is not None and (code == OK or code in LETTER_CODES):
            do = "acknowledge" if code == OK else "reject"
            self._history.add(do, began, answered, receiver=self._name, id=log_id)
