"""Presence over several nodes, one of which is killed: no member stays that has gone, and none that is there is missing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.functional.bayeux import Client
from tests.functional.cluster import NODE, OPERATED, PATIENT
from tests.functional.people import Person
from tests.functional.test_presence import call, members
from tests.functional.wire import until
from tests.patience import patience
from tests.server_process import Server

ROOM = "/room"
CHANGES = f"/__sys__presence{ROOM}"
LEASE_S = 1.0
MARGIN_S = 2.0
"""How long after the end of its node's lease a session that has gone may be present at most."""
SETS = (NODE, OPERATED, PATIENT, f"cluster.lease_ms={LEASE_S * 1000:.0f}")


@pytest.fixture
def three(start_server: StartServer) -> list[Server]:
    """Three nodes with short leases."""
    first = start_server(*SETS, "node.name=a")
    return [first, *(start_server(*first.store_sets, *SETS, f"node.name={name}") for name in "bc")]


class Watcher:
    """A session that applies the changes as the page of the protocol says, and counts what it sees of each member."""

    def __init__(self, server: Server) -> None:
        self.person = Person(server).be()
        self.person.subscribe(CHANGES)
        self.seen: Counter[tuple[str, str]] = Counter()
        self.members: dict[str, int] = {}
        self.place: tuple[str, int] = ("", 0)
        self.ask()

    def ask(self) -> None:
        answer = call(self.person, ROOM, "members")
        self.place = answer["epoch"], answer["seq"]
        listed = {each["id"]: each["sessions"] for each in answer["members"]}
        self.seen.update(("join", each) for each in listed.keys() - self.members.keys())
        self.seen.update(("leave", each) for each in self.members.keys() - listed.keys())
        self.members = listed

    def look(self) -> dict[str, int]:
        """The members, after all changes that have come."""
        for message in self.person.take_all():
            if message["channel"] == CHANGES:
                self._apply(message["data"])
        return self.members

    def _apply(self, event: dict[str, Any]) -> None:
        epoch, seq = self.place
        if "reset" in event or event["epoch"] != epoch or event["seq"] > seq + 1:
            self.ask()
        elif event["seq"] == seq + 1:
            self.place = epoch, seq + 1
            for change in event["changes"]:
                self.seen[change["change"], change["id"]] += 1
                if change["change"] == "leave":
                    del self.members[change["id"]]
                else:
                    self.members[change["id"]] = change["sessions"]


def all_see(watchers: Iterable[Watcher], expected: dict[str, int]) -> None:
    until(lambda: all(watcher.look() == expected for watcher in watchers))


def test_members_of_all_nodes_are_counted_once_by_subject(three: list[Server]) -> None:
    watchers = [Watcher(server) for server in three]
    tabs = [Person(server).be(f"joe/{number}") for number, server in enumerate(three, 1)]
    for tab in tabs:
        call(tab, ROOM, "enter", "here")
    all_see(watchers, {"joe": 3})
    call(tabs[0], ROOM, "leave")
    tabs[1].send(tabs[1].message("/meta/disconnect"))
    all_see(watchers, {"joe": 1})
    call(tabs[2], ROOM, "leave")
    all_see(watchers, {})
    for watcher in watchers:
        assert (watcher.seen["join", "joe"], watcher.seen["leave", "joe"]) == (1, 1)


def test_a_node_is_killed(three: list[Server]) -> None:
    """Sessions that are not stored end with it, within its lease and two seconds; the others are present all the time."""
    watchers = [Watcher(server) for server in three]
    stored = [Person(server).be(f"stored{number}/1") for number, server in enumerate(three * 4)]
    plain = [
        Client(server).start(ext={"session": {"name": f"plain{number}/1"}}) for number, server in enumerate(three * 4)
    ]
    for each in (*stored, *plain):
        call(each, ROOM, "enter")
    everybody = {f"{kind}{number}": 1 for kind in ("stored", "plain") for number in range(12)}
    all_see(watchers, everybody)
    dead = three[2]
    dead.kill()
    ended_at = time.monotonic()
    gone = {f"plain{number}" for number in range(2, 12, 3)}
    rest = {each: 1 for each in everybody if each not in gone}
    all_see(watchers[:2], rest)
    assert time.monotonic() - ended_at < (LEASE_S + MARGIN_S) * patience()
    for person in (*stored, watchers[2].person):
        if person.server is dead:
            person.server = three[0]
            person.forget_connections()
    until(lambda: _has_session(stored[2]))
    assert members(stored[2], ROOM) == rest  # which has moved, and is present as before
    all_see(watchers, rest)
    call(stored[2], ROOM, "update", "still here")
    call(stored[2], ROOM, "leave")
    all_see(watchers, {each: 1 for each in rest if each != "stored2"})
    for watcher in watchers:
        joined = {each: count for (kind, each), count in watcher.seen.items() if kind == "join"}
        left = {each: count for (kind, each), count in watcher.seen.items() if kind == "leave"}
        assert joined == dict.fromkeys(everybody, 1)
        assert left == dict.fromkeys([*gone, "stored2"], 1)


def _has_session(person: Person) -> bool:
    person.take()
    return True


def test_a_node_that_ends_as_planned_hands_its_members_over(three: list[Server]) -> None:
    watcher, person = Watcher(three[0]), Person(three[1]).be("joe/1")
    call(person, ROOM, "enter")
    all_see([watcher], {"joe": 1})
    three[1].end_well()
    person.server = three[0]
    person.forget_connections()
    call(person, ROOM, "update", "moved")
    until(lambda: watcher.look() == {"joe": 1} and watcher.seen["update", "joe"] == 1)
    assert watcher.seen["leave", "joe"] == 0
