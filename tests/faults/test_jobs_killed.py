"""The server is killed while it works off a job: the next one continues, and each dead letter is sent once."""

from __future__ import annotations

from tests.admin.desk import SETS, STORED, Desk
from tests.conftest import StartServer
from tests.faults.conftest import IS_FULL
from tests.functional.people import Person
from tests.functional.wire import until

MANY = 10_000 if IS_FULL else 450
RATE = 2000 if IS_FULL else 150
"""Dead letters a second: so that the kill comes in the middle, on a slow machine too."""
AT_ONCE = 500 if IS_FULL else MANY
LIMIT_S = 120.0
LARGE = ("bayeux.max_batch_messages=1000", "bayeux.max_message_bytes=1000000", "delivery.queue_max_entries=10000")


def test_a_redrive_survives_a_kill_of_the_server_and_sends_each_letter_once(start_server: StartServer) -> None:
    server = start_server(*SETS, *LARGE)
    desk = Desk(server)
    joe = Person(server).be("joe/1", queue={"maxEntries": MANY}, burst={"maxEntries": AT_ONCE})
    joe.subscribe("/many")
    speaker = Person(server).be()
    for start in range(0, MANY, AT_ONCE):
        numbers = range(start, start + AT_ONCE)
        replies = speaker.send(*(speaker.message("/many", data=number, ext=STORED) for number in numbers))
        assert all(reply["successful"] for reply in replies)
    assert desk.post("/sessions/joe/1/drain")["letters"] == MANY
    until(lambda: desk.get("/dead-letters/count")["count"] == MANY, LIMIT_S)
    job = desk.post("/jobs", {"what": "redrive", "all": True, "rate": RATE, "reason": "a test"})
    path = f"/jobs/{job['id']}"
    assert job["total"] == MANY
    until(lambda: desk.get(path)["done"] > 0, LIMIT_S)
    server.kill()
    again = Desk(start_server(*SETS, *LARGE, *server.store_sets, port=server.port or 0))
    assert 0 < again.get(path)["done"] < MANY, "the kill came too late to prove anything"
    until(lambda: again.get(path)["ended"], LIMIT_S)
    done = again.get(path)
    assert (done["state"], done["done"], done["undone"], done["total"]) == ("done", MANY, 0, MANY)
    assert again.get("/dead-letters/count")["count"] == 0
    joe.forget_connections()
    assert sorted(message["data"] for message in joe.take_all()) == list(range(MANY))
