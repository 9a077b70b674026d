"""Where a request is processed whose session may be another node's (decisions 0260 and 0261).

`_place` is the table of it. A request for a session of a node that lives is forwarded there, once. One for a session of a dead
node waits until its sessions have been taken over. One that another node has forwarded is processed here or given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, Final

from crewel.bayeux import advice, replies
from crewel.bayeux.codec import is_handshake
from crewel.bayeux.message import Message
from crewel.broker.addressing.session_names import Names
from crewel.broker.exchange import Peer, encode_reply
from crewel.broker.ids import elapsed
from crewel.broker.inbound import Answering, Inbound
from crewel.broker.node_tags import tag_in
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.delivery.records import SessionName
from crewel.errors import Refused, StoreError, coded
from crewel.nodes.forwarding import Forwarder, Ways
from crewel.nodes.link import Dialler
from crewel.nodes.node_registry import NodeRegistry
from crewel.nodes.remote_peer import RemotePeer
from crewel.nodes.waiting_requests import WaitingRequests, asked_session, session_name
from crewel.storage import nodes
from crewel.storage.nodes import Node

_UNAVAILABLE: Final = coded("resource.unavailable", "", 503)


class Place(Enum):
    """Where a request is processed, if it is not another node."""

    HERE = "here: the session is this node's, or no node's"
    LATER = "it cannot be said yet, or not before sessions have moved"
    GONE = "nowhere: the client of a request is gone"
    NAMED = "where the session of the name is: the store knows"


_HERE: Final = Place.HERE
"""Asked for with each request: a member of an enumeration is a slow look-up."""


class Router:
    """Stands before `Inbound` where several servers share a store."""

    def __init__(
        self,
        runtime: Runtime,
        inbound: Inbound,
        sessions: Mapping[str, Session],
        names: Names,
        registry: NodeRegistry,
        ways: Ways,
    ) -> None:
        """`sessions` are those of this node, by `clientId`."""
        self._runtime = runtime
        self._inbound = inbound
        self._access = runtime.access
        self._knows = sessions.__contains__
        self._names = names
        self._lease = registry.lease
        self._registry = registry
        self._waiting = WaitingRequests()
        self.links = ways.links
        needs_cookie = not runtime.settings.bayeux.trust_client_session
        self.forwarder = Forwarder(self, ways.bus, ways.calls, needs_cookie=needs_cookie)
        self.dialler = Dialler(runtime.loop, self.forwarder, self.links)
        registry.on_change.append(self.on_nodes_changed)

    def receive(self, peer: Peer, elements: list[Any]) -> Answering | None:
        """What `Inbound.receive` does, here or at another node, at once or later."""
        since = elapsed()
        place = self._place(elements, since)
        if isinstance(place, Node) and peer.pushes and _speaks(peer) and not is_handshake(elements[0]):
            place = Place.HERE  # the session of a socket is the only one that it may speak for
        if place is _HERE:
            if peer.relay is not None:
                peer.relay.gone()  # a socket that spoke for another session before
            return self._inbound.receive(peer, elements)
        link = self.links.to(place.token) if isinstance(place, Node) else None
        if link is not None:
            self._runtime.metrics.forwarded += 1
            self.forwarder.forward(link, peer, elements)
            return None
        return self._runtime.spawn(self._receive_later(peer, elements, since))

    def receive_forwarded(self, peer: RemotePeer, elements: list[Any]) -> Answering | None:
        """Take what another node has forwarded. It is never forwarded again: nodes that disagree about the owner would send it
        round in circles."""
        since = elapsed()
        place = self._place(elements, since)
        if place is not _HERE and (place is Place.LATER or (isinstance(place, Node) and not is_handshake(elements[0]))):
            return self._runtime.spawn(self._receive_later(peer, elements, since))
        return self._inbound.receive(peer, elements)

    def on_nodes_changed(self) -> None:
        """Something is known of the nodes that was not known."""
        for link in self.links.dialled():
            if self._registry.has_gone(link.token):
                link.end()  # its queued requests wait for its heir from now on
        self._waiting.wake_all()

    def sessions_came(self, names: Iterable[SessionName]) -> None:
        """The sessions with these names were a dead node's, and are this one's."""
        sessions = [each for name in names if (each := self._names.find(name)) is not None]
        self._waiting.wake(each.name for each in sessions)
        self._waiting.wake(each.id for each in sessions)

    def _place(self, elements: list[Any], since: float) -> Place | Node:
        """Where this is processed, which came at that time, as far as memory knows."""
        if not self._lease.lasts or self._access.phase.is_reloading:
            return self._place_without_lease(elements)
        first = elements[0] if elements else None
        if type(first) is not dict:
            return Place.HERE
        if is_handshake(first):
            return self._place_of_login(first, since)
        client_id = first.get("clientId")
        if type(client_id) is not str or self._knows(client_id):
            return _HERE
        return self._place_of_tag(tag_in(client_id), since)

    def _place_without_lease(self, elements: list[Any]) -> Place | Node:
        """Another node may have the sessions of this one by now: then it is its heir. What is for a node that can be reached
        needs no store here: that node knows what it has."""
        client_id = elements[0].get("clientId") if elements and type(elements[0]) is dict else None
        node = self._registry.owner(tag_in(client_id)) if type(client_id) is str else None
        if node is not None and node.token in self._lease.own:
            node = self._registry.heir
        return Place.LATER if node is None or self.links.to(node.token) is None else node

    def _place_of_login(self, handshake: dict[str, Any], since: float) -> Place | Node:
        """A login goes to the node of the session that it may take over."""
        asked = asked_session(handshake)
        resume = asked.get("resume")
        if type(resume) is str and (tag := tag_in(resume)):
            place = self._place_of_tag(tag, since)
            if place is not Place.HERE:
                return place
        name = session_name(asked)
        return Place.HERE if not name or self._names.find(name) is not None else Place.NAMED

    def _place_of_tag(self, tag: str, since: float) -> Place | Node:
        steady = self._registry.steady.get(tag)
        if steady is not None and not self._registry.leaving:
            return steady  # as most are
        if not tag:
            return Place.HERE
        node = self._registry.owner(tag)
        if node is None:
            # It may have joined since the last look.
            return Place.HERE if self._registry.has_looked(since) else Place.LATER
        if node.token == self._registry.own:
            return Place.HERE
        return node if self._registry.stays(node) else Place.LATER

    async def _place_of_name(self, name: str, since: float) -> Place | Node:
        try:
            token = await nodes.owner(self._access.store, name, list(self._registry.members.nodes))
        except StoreError:
            return Place.HERE  # the login says what is the matter
        if token in ("", self._registry.own):
            return Place.HERE
        node = self._registry.members.nodes.get(token)
        if node is None:
            return Place.HERE if self._registry.has_looked(since) else Place.LATER
        return node if self._registry.stays(node) else Place.LATER

    async def _receive_later(
        self, peer: Peer, elements: list[Any], since: float, not_by: str = "", *, cuts: bool = False
    ) -> None:
        """Process it when it can be said where; not by the node with the token `not_by`, which has given it back. If that
        takes too long, it is refused; or, if `cuts`, the connection is cut off, and another one may reach another node."""
        place: Place | Node = Place.LATER
        with suppress(TimeoutError):
            async with asyncio.timeout(self._runtime.settings.hold_ms / 1000):
                place = await self._settled(peer, elements, since, not_by)
        if place is Place.GONE or _is_in_vain(peer):
            return
        if isinstance(place, Node) and isinstance(peer, RemotePeer):
            peer.refuse(elements)  # also where it could be forwarded: the first node then waits for the heir itself
            return
        link = self.links.to(place.token) if isinstance(place, Node) else None
        if link is not None:
            self._runtime.metrics.forwarded += 1
            self.forwarder.forward(link, peer, elements)
        elif place is Place.HERE:
            answering = self._inbound.receive(peer, elements)
            if answering is not None:
                await answering
        elif cuts:
            peer.cut_off()
        else:
            self._refuse(peer, elements)

    async def _settled(self, peer: Peer, elements: list[Any], since: float, not_by: str) -> Place | Node:
        """The place, once it is known and can be reached."""
        with self._waiting.waiting(elements) as news:
            while True:
                news.clear()
                place = await self._settled_now(peer, elements, since, not_by)
                if place is not Place.LATER:
                    return place
                self._registry.hurry()
                await news.wait()

    async def _settled_now(self, peer: Peer, elements: list[Any], since: float, not_by: str) -> Place | Node:
        """The place; LATER if it is not known, or cannot be reached."""
        place = Place.GONE if _is_in_vain(peer) else self._place(elements, since)
        if place is Place.NAMED:
            place = await self._place_of_name(session_name(elements[0]["ext"]["session"]), since)
        if not_by and isinstance(place, Node) and place.token == not_by:
            # It says that it does not have the session; what this node knew of it may have been old.
            place = Place.HERE if self._registry.has_looked(since) else Place.LATER
        if not isinstance(place, Node):
            return place
        if isinstance(peer, RemotePeer):
            if is_handshake(elements[0]):
                return Place.HERE
            # The other node may know more: that the owner is dead, and this one its heir.
            return place if place is self._registry.heir or self._registry.has_looked(since) else Place.LATER
        is_reached = await self.dialler.reach(place.token, place.link) and self.links.to(place.token) is not None
        return place if is_reached else Place.LATER

    # What the forwarder reports

    def on_open(self) -> None:
        """There is a way for the queued requests."""
        self.on_nodes_changed()

    def on_leaving(self, token: str) -> None:
        """The node with this token ends."""
        self._registry.left(token)

    def on_refused(self, token: str, peer: Peer, elements: list[Any]) -> None:
        """The node with this token has not taken it."""
        self._runtime.spawn(self._receive_later(peer, elements, elapsed(), not_by=token))

    def on_lost(self, token: str, waiting: list[tuple[Peer, list[Any]]]) -> None:
        """A link has ended. The connects that waited for that node wait for its heir, or for it to be reached again."""
        self._registry.hurry()
        for peer, elements in waiting:
            self._runtime.spawn(self._receive_later(peer, elements, elapsed(), cuts=peer.pushes))

    def _refuse(self, peer: Peer, elements: list[Any]) -> None:
        """Nothing was done, and the client may try again with the same session."""
        answers = []
        for element in elements:
            try:
                reply = replies.failed(Message.read(element), _UNAVAILABLE)
            except Refused as error:
                reply = replies.refused(element, error.error)
            settings = self._runtime.settings
            reply["advice"] = advice.retry(settings.again_ms, settings.bayeux.timeout_ms)
            answers.append(encode_reply(reply, self._runtime.metrics))
        peer.send(answers)
        if not self._lease.lasts or self._access.phase.is_reloading:
            peer.end_well()  # the next connection may reach a node that can say more


def _is_in_vain(peer: Peer) -> bool:
    """Whether a request needs no answer any more. What came on a socket before it closed is still carried out."""
    return peer.is_gone and not peer.pushes


def _speaks(socket: Peer) -> bool:
    """Whether this socket speaks for a session of this node that lives."""
    return socket.session is not None and socket.session.is_live
