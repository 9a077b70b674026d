"""10,000 members on 100 channels of three nodes that are killed: no member is missing, and none stays."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.conftest import StartServer
from tests.faults.conftest import IS_FULL, Tell, volume
from tests.functional.bayeux import Client, Message
from tests.functional.cluster import NODE, OPERATED, PATIENT
from tests.functional.people import Person
from tests.functional.wire import Connection, until
from tests.patience import patience
from tests.server_process import Server

SERVICE = "/service/presence"
CHANNELS = [f"/room/{number}" for number in range(100)]
SESSIONS = 17
"""Of each kind at each node."""
LEASE_S = 3.0
MARGIN_S = 2.0
MEMBERS = volume(10_000, 400)
KILLS = 6 if IS_FULL else 2
ALL_OF_THEM_S = 300.0
"""Within which everybody is seen, on a busy machine too."""
SETS = (
    NODE,
    OPERATED,
    PATIENT,
    "cluster.lease_ms=3000",
    "bayeux.max_queue_messages=100000",
    "http.keepalive_ms=600000",  # on a busy machine, a connection may rest for minutes
)


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


class Member(Client):
    """A session that is present on one channel. All members of a node share a connection."""

    def __init__(self, server: Server, line: Connection, name: str, channel: str, *, is_stored: bool) -> None:
        super().__init__(server)
        self.name, self.channel, self.is_stored = name, channel, is_stored
        self.use(line)

    def use(self, line: Connection) -> None:
        self._command = self._polling = line

    def enter(self) -> None:
        self.handshake(ext={"session": {"name": f"{self.name}/1"}, **({"ack": True} if self.is_stored else {})})
        connect = self.message("/meta/connect", connectionType="long-polling", advice={"timeout": 0})
        self._call("enter", connect)

    def leave(self) -> None:
        self._call("leave")

    def _call(self, action: str, *others: Message) -> None:
        call = self.message(SERVICE, data={"channel": self.channel, "action": action})
        for reply in self.send(call, *others):
            assert reply.get("successful", True), reply


class Crowd:
    """Members that come and go, and what everybody has to see of them."""

    def __init__(self, servers: dict[str, Server]) -> None:
        self.rng = random.Random(11)
        self.servers = servers
        self.lines = {node: Connection(server) for node, server in servers.items()}
        self.there: dict[str, set[str]] = {channel: set() for channel in CHANNELS}
        self.came: set[str] = set()
        self.gone: set[str] = set()
        """Those that have left, or whose session ended with its node."""
        self._members: dict[str, tuple[str, Member]] = {}  # by name, with the node
        self._numbers = itertools.count()

    def enter(self) -> None:
        node = self.rng.choice(list(self.lines))
        number = next(self._numbers)
        channel = CHANNELS[number % len(CHANNELS)]
        member = Member(self.servers[node], self.lines[node], f"m{number}", channel, is_stored=self.rng.random() < 0.5)
        self.came.add(member.name)
        member.enter()
        self._members[member.name] = node, member
        self.there[channel].add(member.name)

    def leave(self) -> None:
        """One that has moved with its session leaves by way of another node."""
        name = self.rng.choice(list(self._members))
        node, member = self._members.pop(name)
        self.there[member.channel].remove(name)
        self.gone.add(name)
        member.use(self.lines.get(node) or self.rng.choice(list(self.lines.values())))
        member.leave()

    def fill(self) -> Iterator[int]:
        while len(self._members) < MEMBERS:
            self.enter()
            yield len(self._members)

    def kill(self, node: str) -> set[str]:
        """Returns the names of those whose sessions end with it."""
        del self.lines[node]
        ended = {name for name, (home, each) in self._members.items() if home == node and not each.is_stored}
        for name in ended:
            self.there[self._members.pop(name)[1].channel].remove(name)
        for name, (home, each) in self._members.items():
            if home == node:
                self._members[name] = "moved", each
        self.gone |= ended
        self.servers[node].kill()
        return ended

    def add_node(self, node: str, server: Server) -> None:
        self.servers[node], self.lines[node] = server, Connection(server)


class Witness(Watcher):
    """Notes each join and leave, of which there must be one for each member, and no leave of one that is there."""

    def __init__(self, server: Server, crowd: Crowd) -> None:
        self.crowd = crowd
        self.saw: list[tuple[str, str]] = []
        super().__init__(server)
        for channel in CHANNELS:
            self._list(channel)
        until(lambda: self.look() and len(self.seqs) == len(CHANNELS), ALL_OF_THEM_S)

    def _listed(self, answer: dict[str, Any]) -> None:
        before = self.members[answer["channel"]]
        super()._listed(answer)
        self._note("join", self.members[answer["channel"]] - before)
        self._note("leave", before - self.members[answer["channel"]])

    def _apply(self, event: dict[str, Any]) -> None:
        before = set(self.members[event["channel"]])
        super()._apply(event)
        self._note("join", self.members[event["channel"]] - before)
        self._note("leave", before - self.members[event["channel"]])

    def _note(self, change: str, names: set[str]) -> None:
        assert change == "join" or names <= self.crowd.gone, "one that is there has left"
        self.saw += ((change, name) for name in names)

    def sees(self, names: set[str]) -> bool:
        """Whether any of these is a member."""
        return any(not names.isdisjoint(members) for members in self.look().values())


def test_members_come_and_go_while_nodes_are_killed(start_server: StartServer, tell: Tell) -> None:
    first = start_server(*SETS, "node.name=a")
    crowd = Crowd({"a": first})
    for node in "bc":
        crowd.add_node(node, start_server(*first.store_sets, *SETS, f"node.name={node}"))
    witnesses = {node: Witness(server, crowd) for node, server in crowd.servers.items()}
    from_the_start = list(witnesses.values())
    moved: list[Witness] = []

    def fill() -> None:
        """As many members as there were, and wait until all see them."""
        everyone = [*witnesses.values(), *moved]
        for count in crowd.fill():
            if count % 50 == 0:
                for each in everyone:
                    each.look()
        until(lambda: all(each.look() == crowd.there for each in everyone), ALL_OF_THEM_S)

    began = time.monotonic()
    fill()
    took = []
    for kill in range(KILLS):
        node = "abc"[kill % 3]
        moved.append(witnesses.pop(node))
        ended = crowd.kill(node)
        killed_at = time.monotonic()
        while any(each.sees(ended) for each in witnesses.values()):
            crowd.enter()
            assert time.monotonic() - killed_at < (LEASE_S + MARGIN_S) * patience()
        took.append(time.monotonic() - killed_at)
        server = start_server(*first.store_sets, *SETS, f"node.name={node}")
        crowd.add_node(node, server)
        for each in moved:
            each.person.server = server
            each.person.forget_connections()
        witnesses[node] = Witness(server, crowd)
        fill()  # so that each has seen those that leave
        for _ in range(MEMBERS // 50):
            crowd.leave()
        fill()
    everything = Counter([*(("join", name) for name in crowd.came), *(("leave", name) for name in crowd.gone)])
    for each in from_the_start:
        assert Counter(each.saw) - everything == everything - Counter(each.saw) == Counter()
    assert all(len(each.saw) == len(set(each.saw)) for each in witnesses.values())
    tell(
        f"{MEMBERS} members on {len(CHANNELS)} channels, {KILLS} kills; {len(crowd.came)} came and {len(crowd.gone)} went, seen"
        f" once each; those of a dead node left after {max(took):.1f} s at most; {time.monotonic() - began:.0f} s"
    )
