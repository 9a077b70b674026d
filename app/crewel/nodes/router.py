"""Where a request is processed whose session may be another node's (decision 0260).

A request for a session of a node that is dead waits until its sessions are here. So does one for a node that may just have
died, until that node has renewed its lease. Requests are not forwarded yet: one for a node that lives is answered here, and its
client has to open a new session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
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

HOLD_S: Final = 10.0
"""How long a request waits at most: as long as stock clients wait for an answer beyond the time of a connect."""
_UNAVAILABLE: Final = coded("resource.unavailable", "", 503)
_AGAIN_MS: Final = 1000


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
        registry.on_change.append(self.look_again)

    def receive(self, peer: Peer, elements: list[Any]) -> asyncio.Task[None] | None:
        """What `Inbound.receive` does, at once or later."""
        if not self._waits(elements, since=elapsed()):
            return self._inbound.receive(peer, elements)
        self._registry.hurry()
        return self._runtime.spawn(self._receive_later(peer, elements))

    def look_again(self) -> None:
        """Something is known of the nodes that was not known, or sessions have come."""
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)

    def _waits(self, elements: list[Any], since: float) -> bool:
        """Whether it cannot be said yet whose request this is, which came at that time."""
        if not self._lease.lasts or self._access.is_reloading:
            return True  # another node may have the sessions of this one, or has them, and memory does not know it yet
        first = elements[0] if elements else None
        client_id = first.get("clientId") if type(first) is dict else None
        if type(client_id) is not str or self._knows(client_id) or is_handshake(first):
            return False
        node = self._registry.owner(tag_in(client_id))
        if node is None or node.token == self._registry.own:
            return False
        return not self._registry.has_renewed(node, since)

    async def _receive_later(self, peer: Peer, elements: list[Any]) -> None:
        since = elapsed()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._hold_s):
                while self._waits(elements, since):
                    if self._changed is None:
                        self._changed = self._runtime.loop.create_future()
                    await asyncio.wait([self._changed])
        if peer.is_gone:
            return
        if self._waits(elements, since):
            self._refuse(peer, elements)
            return
        task = self._inbound.receive(peer, elements)
        if task is not None:
            await task

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
