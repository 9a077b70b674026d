"""A trace shows what passes, and no secret; the session is as it was afterwards."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.admin.desk import TOKEN, Desk, Receiver, publish
from tests.functional.wire import until
from tests.server_process import Server
from tests.template import Command

pytestmark = pytest.mark.server
LONG = 12345678901234567890123
"""A number that no double has."""


def test_a_trace_shows_messages_of_both_ways_and_no_secret(
    desk: Desk, server: Server, receiver: Receiver, channel: str, subject: str
) -> None:
    words = ["trace", f"{subject}/1", "--seconds", "60", "--token", TOKEN, "--url", server.url]
    process = Command(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: f"client/{subject}/1" in server.stderr and "trace session" in server.stderr, 60)
        publish(server, channel, 2)
        taken = until(receiver.take)
        receiver.accept(taken)
        receiver.publish(channel, {"token": "hidden", "n": LONG})
        assert len(until(receiver.take)) == 1
        desk.post(f"/sessions/{subject}/1/kill")  # which ends the trace
        told, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, said
    records = [json.loads(line) for line in told.splitlines()]
    assert {record["way"] for record in records} == {"in", "out"}
    out = [record["message"]["data"] for record in records if record["way"] == "out" and "data" in record["message"]]
    assert out == [0, 1, {"token": "***", "n": LONG}]
    published = [record["message"] for record in records if record["way"] == "in" and "data" in record["message"]]
    assert [message["data"]["n"] for message in published] == [LONG]
    connects = [record for record in records if record["message"]["channel"] == "/meta/connect"]
    assert {record["way"] for record in connects} == {"in", "out"}
    assert receiver.id is not None
    for secret in (receiver.id, receiver.login["resume"], "hidden"):
        assert secret not in told


def test_a_trace_ends_with_its_time_and_leaves_nothing(
    desk: Desk, server: Server, receiver: Receiver, channel: str, subject: str
) -> None:
    before = server.stderr.count("trace session")
    with desk.send("GET", f"/sessions/{subject}/1/trace?seconds=1") as connection:
        until(lambda: server.stderr.count("trace session") > before)
        publish(server, channel, 1)
        taken = until(receiver.take)
        response = connection.response()
    assert response.status == 200
    assert response.header("Content-Type") == "application/x-ndjson"
    assert len([line for line in response.body.splitlines() if line]) >= 1
    receiver.accept(taken)
    publish(server, channel, 1)
    assert len(until(receiver.take)) == 1
    assert desk.ask("GET", "/sessions/nobody/1/trace").status == 404
    assert desk.ask("GET", f"/sessions/{subject}/1/trace?seconds=0").status == 400
