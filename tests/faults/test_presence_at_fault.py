"""10,200 presences on 100 channels of three nodes, one of which is killed: no member is missing, and none stays."""

from __future__ import annotations

import time
from typing import Any

from tests.conftest import StartServer
from tests.functional.bayeux import Client
from tests.functional.cluster import NODE, OPERATED, PATIENT
from tests.functional.people import Person
from tests.functional.wire import until
from tests.server_process import Server

SERVICE = "/service/presence"
CHANNELS = [f"/room/{number}" for number in range(100)]
SESSIONS = 17
"""Of each kind at each node."""
LEASE_S = 3.0
MARGIN_S = 2.0
SETS = (NODE, OPERATED, PATIENT, "cluster.lease_ms=3000", "bayeux.max_queue_messages=100000")


def calls(client: Client, action: str) -> None:
    """The same call for all channels, whose answers come with the client's next connects."""
    replies = client.send(
        *(client.message(SERVICE, data={"channel": channel, "action": action}) for channel in CHANNELS)
    )
    assert all(reply["successful"] for reply in replies)


class Watcher:
    """Sees the members of all channels, by what the changes say after one list, and how often each came and went."""

    def __init__(self, server: Server) -> None:
        self.person = Person(server).be()
        for channel in CHANNELS:
            self.person.subscribe(f"/__sys__presence{channel}")
        self.members: dict[str, set[str]] = {channel: set() for channel in CHANNELS}
        self.joined = self.left = 0
        self.seqs: dict[str, tuple[str, int]] = {}

    def look(self) -> dict[str, set[str]]:
        for message in self.person.take_all():
            if message["channel"] == SERVICE:
                self._listed(message["data"])
            else:
                self._apply(message["data"])
        return self.members

    def _list(self, channel: str) -> None:
        """Ask for all members, as after a gap."""
        asked = {"channel": channel, "action": "members"}
        for message in self.person.send(self.person.message(SERVICE, data=asked)):
            assert message["successful"]

    def _listed(self, answer: dict[str, Any]) -> None:
        channel = answer["channel"]
        listed = {each["id"] for each in answer["members"]}
        self.seqs[channel] = answer["epoch"], answer["seq"]
        self.joined += len(listed - self.members[channel])
        self.left += len(self.members[channel] - listed)
        self.members[channel] = listed

    def _apply(self, event: dict[str, Any]) -> None:
        channel = event["channel"]
        epoch, seq = self.seqs.get(channel, ("", 0))
        if "reset" in event or event["epoch"] != epoch or event["seq"] > seq + 1:
            self._list(channel)
            return
        if event["seq"] <= seq:
            return
        self.seqs[channel] = epoch, seq + 1
        members = self.members[channel]
        for change in event["changes"]:
            if change["change"] == "join":
                assert change["id"] not in members
                members.add(change["id"])
                self.joined += 1
            elif change["change"] == "leave":
                members.remove(change["id"])
                self.left += 1


def test_a_node_with_a_third_of_the_members_is_killed(start_server: StartServer) -> None:
    first = start_server(*SETS, "node.name=a")
    nodes = [first, *(start_server(*first.store_sets, *SETS, f"node.name={name}") for name in "bc")]
    watchers = [Watcher(server) for server in nodes[:2]]
    plain, stored = set(), set()
    gone = set()
    for place, server in enumerate(nodes):
        for number in range(SESSIONS):
            name = f"p{place}x{number}"
            calls(Client(server).start(ext={"session": {"name": f"{name}/1"}}), "enter")
            (gone if place == 2 else plain).add(name)
            name = f"s{place}x{number}"
            calls(Person(server).be(f"{name}/1"), "enter")
            stored.add(name)
    everybody = plain | stored | gone
    assert len(everybody) * len(CHANNELS) == 10_200
    until(lambda: all(watcher.look()[channel] == everybody for watcher in watchers for channel in CHANNELS))
    nodes[2].kill()
    killed_at = time.monotonic()
    until(lambda: all(watcher.look()[channel] == everybody - gone for watcher in watchers for channel in CHANNELS))
    took = time.monotonic() - killed_at
    print(f"{len(gone) * len(CHANNELS)} presences left within {took:.2f} s")
    assert took < LEASE_S + MARGIN_S
    for watcher in watchers:
        assert watcher.joined == len(everybody) * len(CHANNELS)
        assert watcher.left == len(gone) * len(CHANNELS)
