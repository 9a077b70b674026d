"""Where a request is processed whose session may be another node's (decision 0260).

A request for a session of a node that is dead waits until its sessions are here. So does one for a node that may just have
died, until that node has renewed its lease. A worker gives the connection to the worker that has the session. Requests are not
forwarded yet: one for another node that lives is answered here, and its client has to open a new session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Final

from crewel.bayeux import advice, replies
from crewel.bayeux.codec import is_handshake
from crewel.bayeux.message import Message
from crewel.broker.durability.access import StoreAccess
from crewel.broker.durability.lease import StoreLease
from crewel.broker.ids import elapsed
from crewel.broker.inbound import Inbound
from crewel.broker.node_tags import tag_in
from crewel.broker.outbox.exchange import Peer, encode_reply
from crewel.broker.runtime import Runtime
from crewel.errors import Refused, coded
from crewel.nodes.registry import NodeRegistry
from crewel.storage.nodes import Node

HOLD_S: Final = 10.0
"""How long a request waits at most: as long as stock clients wait for an answer beyond the time of a connect."""
_UNAVAILABLE: Final = coded("resource.unavailable", "", 503)
_AGAIN_MS: Final = 1000


class _Place(Enum):
    """Where a request is processed."""

    HERE = auto()
    GONE = auto()
    """The client is gone, or another process has the connection."""
    UNSURE = auto()
    """That is not known yet."""


class Router:
    """Stands before `Inbound` where several servers share a store."""

    def __init__(
        self,
        runtime: Runtime,
        inbound: Inbound,
        access: StoreAccess,
        knows: Callable[[str], bool],
        lease: StoreLease,
        registry: NodeRegistry,
        hold_s: float = HOLD_S,
    ) -> None:
        """`knows` tells whether the session of a `clientId` is here."""
        self._runtime = runtime
        self._inbound = inbound
        self._access = access
        self._knows = knows
        self._lease = lease
        self._registry = registry
        self._hold_s = hold_s
        self._changed: asyncio.Future[None] | None = None
        self.mover: Callable[[Peer, Node], bool | None] | None = None
        """Gives the connection of a peer to a node, and returns whether it could. None: it may be able to later."""
        registry.on_change.append(self.look_again)

    def receive(self, peer: Peer, elements: list[Any]) -> asyncio.Task[None] | None:
        """What `Inbound.receive` does, at once or later, here or where the session is."""
        since = elapsed()
        outcome = self._place(peer, elements, since)
        if outcome is _Place.HERE:
            return self._inbound.receive(peer, elements)
        if outcome is _Place.GONE:
            return None
        self._registry.hurry()
        return self._runtime.spawn(self._receive_later(peer, elements, since))

    def look_again(self) -> None:
        """Something is known of the nodes that was not known, or sessions have come."""
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)

    def _place(self, peer: Peer, elements: list[Any], since: float) -> _Place:
        """Where the request belongs that came at that time; its connection may be given away in here."""
        registry = self._registry
        if not self._lease.lasts or self._access.is_reloading:
            return (
                _Place.UNSURE
            )  # another node may have the sessions of this one, or has them, and memory does not know it yet
        first = elements[0] if elements else None
        client_id = first.get("clientId") if type(first) is dict else None
        if type(client_id) is not str or self._knows(client_id) or is_handshake(first):
            return _Place.HERE
        tag = tag_in(client_id)
        node = registry.owner(tag)
        if node is None:  # perhaps one that has just started
            return _Place.UNSURE if tag and registry.looked_at <= since else _Place.HERE
        if node.token == registry.own:
            return _Place.HERE
        if registry.leaves(node):
            return _Place.UNSURE
        if self.mover is not None and (has_gone := self.mover(peer, node)) is not False:
            return _Place.GONE if has_gone else _Place.UNSURE
        return _Place.HERE if registry.has_renewed(node, since) else _Place.UNSURE

    async def _receive_later(self, peer: Peer, elements: list[Any], since: float) -> None:
        outcome = _Place.UNSURE
        with suppress(TimeoutError):
            async with asyncio.timeout(self._hold_s):
                while outcome is _Place.UNSURE:
                    if self._changed is None:
                        self._changed = self._runtime.loop.create_future()
                    await asyncio.wait([self._changed])
                    outcome = _Place.GONE if peer.is_gone else self._place(peer, elements, since)
        if outcome is _Place.HERE:
            task = self._inbound.receive(peer, elements)
            if task is not None:
                await task
        elif outcome is _Place.UNSURE and not peer.is_gone:
            self._refuse(peer, elements)

    def _refuse(self, peer: Peer, elements: list[Any]) -> None:
        """Nothing was done, and the client may try again with the same session."""
        answers = []
        for element in elements:
            try:
                reply = replies.failed(Message.read(element), _UNAVAILABLE)
            except Refused as error:
                reply = replies.refused(element, error.error)
            reply["advice"] = advice.retry(_AGAIN_MS, self._runtime.settings.bayeux.timeout_ms)
            answers.append(encode_reply(reply, self._runtime.metrics))
        peer.send(answers)
