"""The other workers on this machine, as a node sees them: a connection can be given to one, and figures are those of all."""

from __future__ import annotations

from abc import ABC, abstractmethod

from crewel.broker.exchange import Peer
from crewel.storage.nodes import Node


class Siblings(ABC):
    """The processes that serve behind the address of this one."""

    @abstractmethod
    def move(self, peer: Peer, node: Node) -> bool | None:
        """Give the connection of this peer to a node, and return whether that could be done. None: it may be possible later."""

    @abstractmethod
    async def join(self, figures: bytes) -> bytes:
        """Make of the figures of this process those of the whole server, for Prometheus."""


class SingleProcess(Siblings):
    """A server that is one process."""

    def move(self, peer: Peer, node: Node) -> bool:
        """No connection can be given away."""
        return False

    async def join(self, figures: bytes) -> bytes:
        """They are those of the server."""
        return figures
