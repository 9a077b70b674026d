"""What a redrive will meet: how many dead letters the queue of each receiver has room for, and whether its client is there."""

from __future__ import annotations

from typing import Any

from tests.admin.desk import Desk, Receiver, publish
from tests.functional.wire import until
from tests.server_process import Server


def room(desk: Desk, **chosen: Any) -> dict[str, Any]:
    """What a dry run says of the only receiver."""
    told = desk.post("/dead-letters/redrive", {**chosen, "dryRun": True})
    (row,) = told["receivers"]["groups"]
    assert told["count"] == row["count"]
    return dict(row)


def test_a_dry_run_says_what_room_there_is_by_ids_and_by_filter(
    desk: Desk, server: Server, channel: str, subject: str
) -> None:
    name = f"client/{subject}/1"
    full = Receiver(server).be(f"{subject}/1", queue={"maxEntries": 3})
    full.subscribe(channel)
    publish(server, channel, 8)
    letters = until(lambda: found if len(found := desk.letters(f"receiver={subject}/1")) == 5 else None)
    ids = [each["id"] for each in letters]
    for chosen in ({"ids": ids}, {"all": True, "receiver": name}):
        told = room(desk, **chosen)
        assert (told["value"], told["count"], told["room"], told["conditions"]) == (name, 5, 0, ["full", "connected"])
        assert told["awaySince"] is None
    full.accept(full.take())
    until(lambda: room(desk, ids=ids)["room"] == 3)
    assert room(desk, ids=ids[:2])["count"] == 2
    desk.post(f"/sessions/{subject}/1/kill")
    until(lambda: room(desk, ids=ids)["room"] is None)
    assert room(desk, ids=ids)["conditions"] == []


def test_an_absent_client_is_said_to_be_away(desk: Desk, server: Server, channel: str, subject: str) -> None:
    gone = Receiver(server)
    assert gone.shake(name=f"{subject}/1", update=True)["successful"]
    gone.subscribe(channel)
    publish(server, channel, 2)
    desk.post(f"/sessions/{subject}/1/drain")
    until(lambda: len(desk.letters(f"receiver={subject}/1")) == 2)
    told = room(desk, all=True, receiver=f"{subject}/1")
    assert told["conditions"] == ["away"]
    assert told["awaySince"] > 0
    assert told["room"] > 2
