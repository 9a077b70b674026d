"""The channels of the log that this node may pass over: no session and no group here receives them.

On a busy log of many nodes that is most of what the tail brings. So an entry is looked at by the bytes of its channel, before
anything is made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from crewel.bayeux.channel import parse
from crewel.broker.addressing.channels import Channels
from crewel.broker.addressing.consumer_groups import ConsumerGroups
from crewel.broker.writing.store_access import StoreAccess

_MOST: Final = 10_000
_NOTHING: Final[Mapping[bytes, str]] = {}


@dataclass(eq=False)
class UnheardChannels:
    """What is known of the channels that came last. It holds for the subscriptions and groups of that time."""

    _channels: Channels
    _groups: ConsumerGroups
    _access: StoreAccess
    _names: dict[bytes, str] = field(default_factory=dict, init=False)  # as the store has it: the name
    _versions: tuple[int, int] = field(default=(0, 0), init=False)  # of subscriptions and groups

    def known(self) -> Mapping[bytes, str]:
        """The names of some of them, as the store has them and as text, until a subscription or a group changes. None while the
        index of subscriptions does not show all sessions that may receive an entry."""
        node, versions = self._access.node, (self._channels.changes.version, self._groups.version)
        if node.closing or not node.is_stable:
            return _NOTHING
        if versions != self._versions:
            self._names.clear()
            self._versions = versions
        return self._names

    def has(self, name: bytes) -> bool:
        """Whether this channel is one of them. It is known from then on."""
        node, channel = self._access.node, parse(name.decode())
        assert channel is not None
        if node.closing or not node.is_stable or self._channels.most_subscribers(channel) or self._groups.on(channel):
            return False
        if len(self._names) >= _MOST:
            self._names.clear()
        self._names[name] = channel.name
        return True
