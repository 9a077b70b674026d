"""One node with all that makes it one of several: what it knows of the others, its links, and the way of requests.

Without `cluster.enabled` nothing of it is made.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from crewel.broker.addressing.session_names import BEYOND_STORED
from crewel.broker.broker import Broker
from crewel.broker.node_tags import first_number, tag_in, tag_of
from crewel.errors import SettingsError, StoreError
from crewel.event_loop import in_turns
from crewel.nodes.bus import Bus
from crewel.nodes.calls import Calls
from crewel.nodes.forwarding import Ways
from crewel.nodes.frames import Kind
from crewel.nodes.heir_search import HeirSearch
from crewel.nodes.link import LinkListener, OpenLinks, address_of, advertised_address
from crewel.nodes.node_registry import NodeRegistry
from crewel.nodes.remote_destinations import RemoteDestinations
from crewel.nodes.remote_peers import RemotePeers
from crewel.nodes.remote_presence import RemotePresence
from crewel.nodes.remote_subjects import RemoteSubjects
from crewel.nodes.remote_topics import RemoteTopics
from crewel.nodes.request_router import Router
from crewel.nodes.stored_groups import StoredGroups
from crewel.storage import nodes, shared_queue_store
from crewel.storage.nodes import Node

_FORGET_S: Final = 60.0


class Membership:
    """The part that a server has in a cluster."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.link = ""
        """Where the others reach this node; empty until it listens."""
        access, durability = broker.runtime.access, broker.durability
        self._settings = broker.settings.cluster
        self.registry = NodeRegistry(access, durability, broker.metrics, self._settings.lease_ms / 1000)
        self.links = OpenLinks(lambda: access.token)
        self.bus = self._made_bus(broker)
        self.groups = StoredGroups(
            broker.runtime, broker.addressing.groups, self.registry, self.bus, self._settings.lease_ms / 1000
        )
        self.calls = Calls(broker.runtime, self.links)
        broker.dead_letters.notifier.on_stored.append(self.bus.announce_dead_letters)
        self.addressed = RemoteDestinations(
            broker.loop,
            access,
            broker.addressing.names,
            broker.addressing.destinations,
            broker.addressing.shared_queues,
            self.registry,
            self.links,
        )
        self.router = Router(
            broker.runtime,
            broker.inbound,
            broker.sessions.by_id,
            broker.addressing.names,
            self.registry,
            Ways(self.links, self.bus, self.calls),
        )
        broker.runtime.life.on_drain.append(self.router.forwarder.drain)
        self.presence = RemotePresence(
            broker.runtime, broker.presence, broker.addressing.names, self.registry, self.links, self.calls
        )
        self.remote_peers = RemotePeers(
            broker.runtime, broker.mailboxes, self.router, self.bus, self.calls, self.addressed, self.presence
        )
        self.listener = LinkListener(broker.loop, self.remote_peers, self.links)
        self.search = self._made_search(broker)
        self.topics = RemoteTopics(
            broker.runtime, broker.topics.views, durability.topic_changes, self.registry, self.calls
        )
        self.subjects = RemoteSubjects(
            access, broker.addressing.names, broker.sessions.claims, self.registry, self.calls
        )
        broker.runtime.services.session_removed.append(self.subjects.on_removed)
        self.registry.on_change.append(self.bus.on_nodes_changed)
        self.registry.on_change.append(self._end_former_links)
        self.registry.on_change.append(self._dial)
        self.registry.on_change.append(self._name_again)
        self._named_as = ""
        broker.metrics.gauge("forwarded_open", lambda: len(self.router.forwarder))

    def _made_bus(self, broker: Broker) -> Bus:
        return Bus(
            broker.runtime,
            broker.publishing.broadcaster,
            broker.addressing,
            broker.dead_letters.notifier,
            self.registry,
            self.links,
        )

    def _made_search(self, broker: Broker) -> HeirSearch:
        return HeirSearch(
            broker.sessions.by_id,
            broker.runtime,
            broker.mailboxes,
            broker.durability.lease,
            self.registry,
            self.router,
            self.calls,
        )

    async def listen(self) -> None:
        """Accept links, before other nodes read where. Raises SettingsError."""
        host, port = address_of(self._settings.listen)
        try:
            port = await self.listener.listen(host, port)
        except OSError as error:
            raise SettingsError(f"cluster.listen {self._settings.listen}: {error.strerror or error}") from error
        self.link = advertised_address(host, port, self._settings.advertise)

    async def join(self) -> None:
        """This node is registered: get to know the others, and watch over them from now on. Raises StoreError."""
        access = self._broker.runtime.access
        self._named_as = access.token
        self._broker.addressing.names.number_from(first_number(tag_of(access.token), BEYOND_STORED))
        self.links.secret = await nodes.secret(access.store)
        await self.registry.refresh()
        await self.groups.look()
        others = self.registry.others()
        reached = await asyncio.gather(*(self.router.dialler.reach(each.token, each.link) for each in others))
        tokens = [each.token for each, is_open in zip(others, reached, strict=True) if is_open]
        await self.bus.wait_for(tokens)
        await self.bus.linked(tokens)
        await self.subjects.join()
        await self.presence.join(tokens)
        await self.groups.look()  # once more: to reach the others may have taken longer than a subscribe there waits
        self._broker.supervisor.start("watch over the nodes", self.registry.run_forever)
        self._broker.supervisor.start("search for an heir", self.search.run_forever)
        self._broker.supervisor.start("groups of other nodes", self.groups.run_forever)
        self._broker.supervisor.start("former nodes and groups", self._forget_forever)

    async def _forget_forever(self) -> None:
        while True:
            await asyncio.sleep(_FORGET_S)
            with suppress(StoreError):
                await self.forget_tags()
                await self.forget_groups()

    async def forget_tags(self) -> None:
        """Forget the tags of former nodes whose sessions came here and have all ended. Raises StoreError."""
        broker, token = self._broker, self._broker.runtime.access.token
        known = self.registry.members.nodes.values()
        if broker.runtime.access.phase.is_reloading or any(each.heir or not each.lives for each in known):
            return  # this node may have tags already whose sessions are still on their way to it
        unused = {tag for tag, owner in self.registry.members.tags.items() if owner == token} - {tag_of(token)}
        if not unused:
            return
        async for session in in_turns(broker.sessions.by_id.values()):
            unused -= {tag_in(session.id), tag_in(session.reply_id)}
        if unused:
            await broker.runtime.access.writing.ask(nodes.untag(broker.runtime.access.keys, token, unused))

    async def forget_groups(self) -> None:
        """Forget the groups that have no member at any node, with what has come for them since. Raises StoreError."""
        groups, access = self._broker.addressing.groups, self._broker.runtime.access
        for queue, said in list(groups.elsewhere.items()):
            has_members = await shared_queue_store.has_members(access.store, queue)
            # One that has joined since the store was asked was announced meanwhile.
            if not has_members and groups.elsewhere.get(queue) == said:
                groups.remove_elsewhere(queue)
                self._broker.addressing.shared_queues.end_queue(queue)

    def _end_former_links(self) -> None:
        """After this node began again, a link that it has dialled before still says the former token at its other end, where
        subscribes wait for the new one. The end of a link is reason to dial again."""
        if not self._broker.runtime.access.phase.is_reloading:
            self.links.end_former()

    def _name_again(self) -> None:
        """After this node was taken for dead, and began again, other nodes must know the names that it has given."""
        token = self._broker.runtime.access.token
        if token != self._named_as and not self._broker.runtime.access.phase.is_reloading:
            self._named_as = token
            self._broker.spawn(self._note_names(token))

    async def _note_names(self, token: str) -> None:
        try:
            await self.subjects.claim_again(list(self._broker.sessions.by_id.values()))
        except StoreError:
            if self._named_as == token:
                self._named_as = ""  # the next look tries it once more

    def _dial(self) -> None:
        """Have a link to each other node, before there is something to forward."""
        for node in self.registry.others():
            if self.links.to(node.token) is None:
                self._broker.spawn(self._reach(node))

    async def _reach(self, node: Node) -> None:
        await self.router.dialler.reach(node.token, node.link)

    async def leave(self) -> None:
        """This node has given up its sessions: let the others have them at once."""
        for link in (*self.links.accepted(), *self.links.dialled()):
            link.send(Kind.LEAVING)
        await asyncio.sleep(0)  # what was sent goes out at the end of a turn
        await asyncio.sleep(0)
        await self.router.dialler.close()
        self.listener.close()
        self.links.end()
