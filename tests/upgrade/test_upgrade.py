"""That this version opens the stores that earlier releases have written: `python -m tests.upgrade` makes such a file."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admin.desk import Desk, Receiver
from tests.cli.command import crewel
from tests.functional.bayeux import Client
from tests.functional.test_groups_across_nodes import drained, member
from tests.functional.wire import close_connections, until
from tests.server_process import Server
from tests.upgrade import scene

BACKUPS = sorted(Path(__file__).parent.glob("*.backup"))
BEGAN_MS = time.time() * 1000
"""Before this version has opened any of them."""
pytestmark = pytest.mark.server


@pytest.fixture(scope="module", params=BACKUPS, ids=[file.stem for file in BACKUPS])
def upgraded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the store of that release."""
    directory = tmp_path_factory.mktemp("upgraded")
    restored = crewel("restore", str(request.param), directory=directory)
    assert restored.status == 0, restored
    server = Server(["--port=0", *(f"--set={each}" for each in scene.KEPT)], directory)
    yield server
    close_connections()
    server.end_well()


def back(server: Server, name: str) -> Receiver:
    """The session of this name, before its first connect."""
    receiver = Receiver(server)
    reply = receiver.shake(name=name, update=True, settle="message")
    assert reply["successful"], reply
    return receiver


def test_there_is_a_store_to_open() -> None:
    assert BACKUPS


def test_a_queue_comes_in_its_order_and_what_was_sent_comes_again(upgraded: Server) -> None:
    ann = back(upgraded, "client/ann/1")
    assert ann.login["reconnected"] is True
    assert drained([ann], 4) == ["high", "sent", "middle", "low"]


def test_a_session_on_hold_stays_so_and_gets_its_message_when_it_is_activated(upgraded: Server) -> None:
    held, desk = back(upgraded, "client/held/1"), Desk(upgraded)
    assert held.take() == []
    desk.post("/sessions/held/1/activate")
    (message,) = until(held.take)
    assert message["data"] == {"deep": [1, None, "ü"]}
    assert message["ext"]["update"]["clientProperties"] == {"colour": "red"}


def test_a_user_who_was_away_gets_what_was_addressed_to_them(upgraded: Server) -> None:
    assert drained([back(upgraded, "client/carol/1")], 1) == ["for carol"]


def test_a_topic_keeps_its_history_and_a_readonly_one_takes_no_second_message(upgraded: Server) -> None:
    reader = Receiver(upgraded).be("client/reader/1")
    ask = reader.message(
        "/meta/subscribe", subscription="/upgrade/prices", ext={"subscribe": {"history": {"numEntries": 9}}}
    )
    (reply,) = reader.send(ask)
    assert reply["successful"], reply
    assert drained([reader], 3) == [3, 2, 1]
    client = Client(upgraded).start()
    (refused,) = client.send(client.message("/upgrade/fixed", data="twice"))
    assert refused["error"].startswith("409:"), refused


def test_a_group_without_members_gives_what_waits_to_the_next_one(upgraded: Server) -> None:
    assert drained([member(upgraded, "client/heir/1", "/upgrade/work")], 1) == ["job"]


def test_a_channel_with_a_segment_of_dots_gives_what_it_has_and_takes_no_more(upgraded: Server) -> None:
    dora, desk = back(upgraded, "client/d.ora/1"), Desk(upgraded)
    assert dora.login["reconnected"] is True
    assert drained([dora], 1) == ["dotted"]
    (letter,) = desk.letters("receiver=client/d.ora/1")
    assert (letter["channel"], letter["data"]) == ("/upgrade/../bills", "dotted bill")
    assert desk.post("/dead-letters/redrive", {"ids": [letter["id"]]})["redriven"] == 1
    assert drained([dora], 1) == ["dotted bill"]
    assert "/upgrade/./dots" in [each["channel"] for each in desk.get("/topics?count=1000")["topics"]]
    client = Client(upgraded).start()
    (refused,) = client.send(client.message("/upgrade/./dots", data="more"))
    assert refused["error"].startswith("405:"), refused


def test_dead_letters_count_for_their_accounts(upgraded: Server) -> None:
    """No server of that release counted them so."""
    client, desk = Receiver(upgraded).be("client/new/1", timeout=60_000), Desk(upgraded)
    client.subscribe("/upgrade/new")
    client.publish("/upgrade/new", 1, ext={"publish": {"persistent": True}})
    client.reject(client.take(timeout=5000))
    until(lambda: desk.letters("receiver=client/new/1"))
    held = {each["account"]: each["count"] for each in desk.get("/dead-letters/accounts?count=1000")["accounts"]}
    letters = [each["receiver"] for each in desk.letters()]
    assert held == Counter(each.removeprefix("/node/heron/").rpartition("/")[0] for each in letters)
    desk.post("/dead-letters/discard", {"all": True, "receiver": "client/new/1"})


def test_a_discarded_dead_letter_is_restored(upgraded: Server) -> None:
    desk = Desk(upgraded)
    (discarded,) = (each for each in desk.get("/dead-letters/bin")["letters"] if each["channel"] == "/upgrade/bills")
    assert (discarded["data"], discarded["discarded"]["who"]) == ("discarded bill", "admin")
    assert desk.post("/dead-letters/restore", {"ids": [discarded["id"]]})["restored"] == 1
    assert "discarded bill" in [each["data"] for each in desk.letters("receiver=client/bob/1")]


def test_what_operators_did_is_in_the_audit(upgraded: Server) -> None:
    entries = Desk(upgraded).get("/audit?count=1000")["entries"]
    whats = [each["what"] for each in entries if each["at"] < BEGAN_MS]
    assert {"hold session", "discard dead letters"} <= set(whats), whats


def test_a_dead_letter_is_redriven(upgraded: Server) -> None:
    desk = Desk(upgraded)
    (letter,) = (each for each in desk.letters("receiver=client/bob/1") if each["data"] == "bill")
    told = letter["channel"], letter["errorCode"], letter["reason"], letter["data"]
    assert told == ("/upgrade/bills", "user.update.illegalArgument", "no address", "bill")
    bob = back(upgraded, "client/bob/1")
    assert desk.post("/dead-letters/redrive", {"ids": [letter["id"]]})["redriven"] == 1
    assert drained([bob], 1) == ["bill"]
    until(lambda: letter["id"] not in [each["id"] for each in desk.letters()])
