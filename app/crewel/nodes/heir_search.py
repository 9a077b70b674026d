"""What a node does that has lost its lease, because it cannot reach the store or was stopped. It asks the other nodes for its
heir, and gives it the connects that it holds (decision 0261).

The heir has the sessions, and the store will refuse this node as soon as it can be reached. Until then the clients need not
wait. As long as no node knows an heir, nothing moves: the store may be away for all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from math import inf
from typing import Final

from crewel.broker.durability.lease import StoreLease
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.errors import StoreUnavailable
from crewel.event_loop import in_turns
from crewel.nodes.calls import Calls
from crewel.nodes.node_registry import NodeRegistry
from crewel.nodes.node_requests import HEIR, NodeAddress, OfNode
from crewel.nodes.remote_peer import RemotePeer
from crewel.nodes.request_router import Router
from crewel.storage.nodes import Node

log = logging.getLogger(__name__)

_ASK_S: Final = 0.25
_ANSWER_S: Final = 1.0
_LOOK_S: Final = 0.01


class HeirSearch:
    """The search of one node, and its answers to those of others."""

    def __init__(
        self,
        sessions: Mapping[str, Session],
        runtime: Runtime,
        mailboxes: Mailboxes,
        lease: StoreLease,
        registry: NodeRegistry,
        router: Router,
        calls: Calls,
    ) -> None:
        self._sessions = sessions
        self._connects, self._loader, self._times = mailboxes.connects, mailboxes.outbound.loader, mailboxes.times
        self._access = runtime.access
        self._lease = lease
        self._registry = registry
        self._links, self._dialler, self._router = router.links, router.dialler, router
        self._calls = calls
        calls.serve(HEIR, self._tell)

    async def run_forever(self) -> None:
        """Search whenever there is no lease, until cancelled."""
        while True:
            await asyncio.sleep(self._lease.left_s + _LOOK_S)
            if not self._lease.lasts:
                await self._without_lease()

    async def _without_lease(self) -> None:
        """Search until this node serves again: it has a lease, and has read what the store has. No session ends meanwhile: its
        client could not come."""
        lost = self._registry.own
        self._times.excuse(inf)
        try:
            while not self._serves:
                known = self._registry.heir
                is_reached = known is not None and self._links.to(known.token) is not None
                if not is_reached and (heir := await self._ask_all(lost)) is not None:
                    log.warning("the sessions of this node are at another node now: forwarding their requests")
                    self._registry.heir = heir
                    self._registry.changed()
                if self._registry.heir is not None:
                    await self._give_back(self._registry.heir)
                await asyncio.sleep(_ASK_S)
        finally:
            self._registry.heir = None
            self._times.end_excuse(asyncio.get_running_loop().time())

    @property
    def _serves(self) -> bool:
        """Whether it has its sessions. On a slow line, to begin again under another token takes many seconds."""
        return self._lease.lasts and not self._access.phase.is_reloading

    async def _ask_all(self, lost: str) -> Node | None:
        asked = [self._ask(each.token, lost) for each in self._registry.others() if self._links.to(each.token)]
        return next((each for each in await asyncio.gather(*asked) if each is not None), None)

    async def _ask(self, token: str, lost: str) -> Node | None:
        """The heir of the token that this node had, as the node with this token knows it, if this node can reach it."""
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                answer = await self._calls.ask(token, HEIR, OfNode(lost))
                if answer.token and await self._dialler.reach(answer.token, answer.link):
                    return Node(answer.token, "", "", answer.link, None, inf, 0, 0, "")
        return None

    async def _tell(self, asked: OfNode) -> NodeAddress:
        """Which node has the sessions of the one that asks; nothing, if that is not known, or not yet.

        It asks because it serves them no more. In the store its lease may last longer: the last renewals may have arrived,
        and only their answers be late or lost. It need not end there, unless the store has been away for this node too."""
        heir = self._registry.heir_of(asked.token)
        if heir is None:
            if self._lease.is_steady:
                self._registry.gave_up(asked.token)
            self._registry.hurry()
            return NodeAddress()
        return NodeAddress(heir.token, heir.link)

    async def _give_back(self, heir: Node) -> None:
        """Let the connects that are held here wait at the heir. Those that other nodes have forwarded are left to these: they
        close the link when they see that this node has an heir. Those that wait for messages of the store are held from here
        on, and have their turn with the next look."""
        self._loader.wait_no_longer()
        async for session in in_turns(self._sessions.values(), is_urgent=True):
            if self._registry.heir is not heir or self._serves:
                return
            if session.held is not None and not isinstance(session.held.peer, RemotePeer):
                for peer, elements in self._connects.give_back(session):
                    self._router.receive(peer, elements)
