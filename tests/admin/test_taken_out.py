"""What operators take out of a queue is in the store when the server says that it is out."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.admin.desk import SETS, STORED, Desk, Receiver
from tests.faults.health import store_pid
from tests.functional.wire import until
from tests.server_process import Server

pytestmark = pytest.mark.server

SETTINGS = ["--port=0", *(f"--set={text}" for text in (*SETS, "storage.url=", "delivery.commit_ms=5000"))]
"""Commits that no part waits for come late."""
MESSAGES = 5
VERY_MANY = 3000
"""So many dead letters are stored in turns with what else happens."""
AT_ONCE = 200


def with_a_queue(directory: Path, messages: int = MESSAGES) -> Server:
    """A server with a receiver for which so many messages wait."""
    server = Server(SETTINGS, directory)
    joe = Receiver(server).be("joe/1", persistent=True, queue={"maxEntries": 5000})
    joe.subscribe("/orders")
    speaker = Receiver(server).be()
    for start in range(0, messages, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, messages))
        speaker.send(*(speaker.message("/orders", data=number, ext=STORED) for number in numbers))
    joe.forget_connections()
    until(lambda: Desk(server).get("/sessions/joe/1")["waiting"] == messages)
    return server


def again(server: Server, directory: Path) -> Server:
    """The next server with the same store."""
    return Server([*SETTINGS, *(f"--set={text}" for text in server.store_sets)], directory)


def waiting(server: Server) -> int:
    """How many messages the receiver has, once the server has taken it over."""
    desk = Desk(server)
    until(lambda: desk.ask("GET", "/sessions/joe/1").status == 200)
    number: int = desk.get("/sessions/joe/1")["waiting"]
    return number


@pytest.mark.parametrize(
    ("verb", "messages", "letters"),
    [("drain", MESSAGES, MESSAGES), ("skip", MESSAGES, 1), ("drain", VERY_MANY, VERY_MANY)],
)
def test_dead_letters_that_were_answered_are_there_after_the_store_and_the_server_were_killed(
    tmp_path: Path, verb: str, messages: int, letters: int
) -> None:
    server = with_a_queue(tmp_path, messages)
    assert Desk(server).post(f"/sessions/joe/1/{verb}")["letters"] == letters
    store = store_pid(server)
    os.kill(store, signal.SIGKILL)
    server.kill()
    server = again(server, tmp_path)
    assert waiting(server) == messages - letters
    assert Desk(server).get("/dead-letters/count")["count"] == letters
    server.end_well()


def test_what_was_cleared_does_not_come_back(tmp_path: Path) -> None:
    server = with_a_queue(tmp_path)
    assert Desk(server).post("/sessions/joe/1/clear")["cleared"] == MESSAGES
    server.kill()
    server = again(server, tmp_path)
    assert (waiting(server), Desk(server).letters()) == (0, [])
    server.end_well()


def test_what_a_command_removed_does_not_come_back_and_is_in_the_timeline(tmp_path: Path) -> None:
    server = with_a_queue(tmp_path)
    desk = Desk(server)
    assert desk.cmd("__cmd:client/joe/1/?removeFromCallbackQueue=2") == 2
    event = desk.get("/sessions/joe/1/timeline")["events"][0]
    assert (event["what"], event["who"], event["messages"]) == ("cleared", "admin", 2)
    server.kill()
    server = again(server, tmp_path)
    assert waiting(server) == MESSAGES - 2
    server.end_well()


def test_while_the_store_hangs_a_drain_says_that_it_is_not_sure(tmp_path: Path) -> None:
    server = with_a_queue(tmp_path)
    store = store_pid(server)
    os.kill(store, signal.SIGSTOP)
    try:
        answer = Desk(server).ask("POST", "/sessions/joe/1/drain")
        assert (answer.status, answer.json()["errorCode"]) == (503, "resource.unavailable")
    finally:
        os.kill(store, signal.SIGCONT)
    until(lambda: Desk(server).ask("GET", "/dead-letters/count").json().get("count") == MESSAGES)
    server.end_well()
