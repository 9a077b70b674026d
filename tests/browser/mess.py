"""A server with everything wrong that an operator meets: the cause of each is known, so that a test can look for it.

`FAULTS=full` makes it as large as a server may get: 50,000 dead letters and 5,000 sessions.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.admin.desk import SETS, STORED, TOKEN, Desk, Receiver
from tests.functional.bayeux import Message
from tests.functional.wire import until
from tests.security.issuer import secret_file, signed
from tests.server_process import Server

IS_FULL = os.environ.get("FAULTS") == "full"
LETTERS = 50_000 if IS_FULL else 60
SESSIONS = 5000 if IS_FULL else 30
CODES = (
    "user.update.error",
    "user.update.illegalArgument",
    "user.update.illegalState",
    "user.update.deadMessage",
    "user.update.internalError",
    "user.update.missingMessage",
)
"""The six kinds of dead letters."""
HOSTILE = "<img src=x onerror=alert(1)>"
POISON = {"order": 17, "price": "twelve"}
AT_ONCE = 200
JOBS: dict[str, Any] = {"subscribe": {"group": "workers"}}


@dataclass
class Mess:
    """The server, and those of its clients that a test needs to see it heal."""

    server: Server
    slow: Receiver
    worker: Receiver

    @property
    def desk(self) -> Desk:
        return Desk(self.server)


def _someone(server: Server, name: str, **session: Any) -> Receiver:
    """Return a client that may do everything."""
    everything = {"subscribe": ["/**"], "publish": ["/**"], "group": ["/**"]}
    return Receiver(server).be(name, token=signed(sub=name.partition("/")[0], **everything), **session)


def in_a_mess(directory: Path, *more: str, letters: int = LETTERS, sessions: int = SESSIONS) -> Mess:
    """Start the server, with these settings too, and break everything."""
    sets = (
        *SETS,
        "security.policy=jwt",
        f"security.jwt_keys={secret_file(directory)}",
        "bayeux.max_interval_ms=1500",  # after that a client without a connect is away
        *more,
    )
    server = Server(["--port=0", *(f"--set={text}" for text in sets)], directory)
    speaker = Receiver(server).be("speaker/1", token=TOKEN, timeout=600_000)  # it stays, however slow the machine is
    _hold(server, speaker)
    _fill(server, speaker)
    worker = _leave_group(server, speaker)
    slow = _slow_down(server, speaker)
    _poison(server, speaker)
    _fail(server, speaker, letters)
    for number in range(sessions):
        _someone(server, f"guest{number}/1").forget_connections()
    speaker.disconnect()
    return Mess(server, slow, worker)


def _publish(speaker: Receiver, channel: str, *data: Any) -> None:
    for each in data:
        speaker.publish(channel, each, ext=STORED)


def _taken(client: Receiver, number: int) -> list[Message]:
    """So many messages, which may be on their way between workers."""
    taken: list[Message] = []
    while len(taken) < number:
        taken += until(client.take)
    return taken


def _hold(server: Server, speaker: Receiver) -> None:
    """A printer has no paper, and puts itself on hold."""
    printer = _someone(server, "printer/1")
    printer.subscribe("/print/pages")
    _publish(speaker, "/print/pages", "one", "two")
    printer.reject(_taken(printer, 2)[:1], "user.update.holdback", "out of paper")


def _fill(server: Server, speaker: Receiver) -> None:
    """The queue of an archive that is away is full."""
    archive = _someone(server, "archive/1", queue={"maxEntries": 5, "onOverflow": "deadMessage"})
    archive.subscribe("/archive/pages")
    _publish(speaker, "/archive/pages", *range(5))
    archive.forget_connections()


def _leave_group(server: Server, speaker: Receiver) -> Receiver:
    """Three jobs wait for a group whose only member, which is given one of them, is away."""
    worker = _someone(server, "worker/1", burst={"maxEntries": 1})
    joined = worker.send(worker.message("/meta/subscribe", subscription="/jobs/*", ext=JOBS))[-1]
    assert joined["successful"] is True, joined
    _publish(speaker, "/jobs/resize", 1, 2, 3)
    until(lambda: Desk(server).get("/topics/jobs/resize")["groups"][0]["waiting"] == 2)
    worker.forget_connections()
    until(lambda: Desk(server).get("/sessions/worker/1")["state"] == "POLLING")
    return worker


def _slow_down(server: Server, speaker: Receiver) -> Receiver:
    """A client takes one message at a time, and is far behind."""
    slow = _someone(server, "slow/1", burst={"maxEntries": 1})
    slow.subscribe("/ticks")
    _publish(speaker, "/ticks", *range(20))
    return slow


def _poison(server: Server, speaker: Receiver) -> None:
    """One message fails each time that it is sent again."""
    till = _someone(server, "till/1")
    till.subscribe("/till/orders")
    _publish(speaker, "/till/orders", POISON)
    till.reject(_taken(till, 1), "user.update.illegalArgument", "the price is no number")
    desk = Desk(server)
    for _ in range(2):
        (letter,) = until(lambda: desk.letters("receiver=client/till/1"))
        desk.post("/dead-letters/redrive", {"ids": [letter["id"]]})
        till.reject(until(till.take), "user.update.illegalArgument", "the price is no number")
    until(lambda: [each for each in desk.letters("receiver=client/till/1") if each["returns"] == 2])


def take_and_accept_all(client: Receiver) -> int:
    """Let the client take its messages and accept them; return how many. What it accepts comes with the next ones."""
    client.forget_connections()  # the server may have closed idle ones since the client was last heard of
    count, messages = 0, client.take()
    while messages:
        count += len(messages)
        messages = client.say(*({"id": each["ext"]["update"]["id"], "state": "OK"} for each in messages))
    return count


def _fail(server: Server, speaker: Receiver, letters: int) -> None:
    """A kitchen rejects all its orders, for six reasons."""
    kitchen = _someone(server, "kitchen/1", burst={"maxEntries": AT_ONCE})
    kitchen.subscribe("/kitchen/orders")
    for start in range(0, letters, AT_ONCE):
        count = min(AT_ONCE, letters - start)
        _publish(speaker, "/kitchen/orders", *({"order": start + number, "note": HOSTILE} for number in range(count)))
        taken = _taken(kitchen, count)
        for place, code in enumerate(CODES):
            kitchen.reject(taken[place :: len(CODES)], code, HOSTILE)
    until(lambda: Desk(server).get("/dead-letters/count?receiver=client/kitchen/1")["count"] == letters)
