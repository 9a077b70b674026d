"""The presence of one channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from crewel.client import client_presence
from crewel.client.client_presence import Member, PresenceChange
from crewel.client.sync.background import Block, Fact


class Presence(Block[client_presence.Presence]):
    """The presence of a channel while its block lasts: `with client.presence("/room", data="here") as presence:`.

    Entering it lists the members, and lets this session be present, unless `enter` was False. `members` has them from then on,
    also after a new connection, a new session or a restart of the server. Iterate over it for the changes; nothing is missed in
    between. Leaving it, or the end of the session, lets this session leave.
    """

    # Written by tools/sync_client.py, as crewel.client.Presence has it
    channel = Fact[str]("_origin", "channel")
    """The channel."""
    id = Fact[str | None]("_origin", "id")
    """The id of this session's member; None while it is not present."""
    dropped = Fact[int]("_origin", "dropped")
    """How many changes were dropped because nothing read them."""
    members = Fact[Mapping[str, Member]]("_origin", "members")
    """The members at this moment, by their ids."""

    def enter(self, data: Any = None) -> None:
        """Let this session be present, or replace its data. Raises RemoteCallFailedError, and as `remote_call` does."""
        self._background.wait_for(lambda: self._origin.enter(data))

    def update(self, data: Any) -> None:
        """Replace the data of this session, which is present. Raises RemoteCallFailedError, with the code
        `user.presence.absent` if it is not, and as `remote_call` does."""
        self._background.wait_for(lambda: self._origin.update(data))

    def leave(self) -> None:
        """Let this session not be present, and list the members all the same. Raises as `remote_call` does."""
        self._background.wait_for(self._origin.leave)

    # End of what is written

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> PresenceChange:
        try:
            return self._background.take(self._origin.__anext__, self._origin.put_back)
        except StopAsyncIteration:
            raise StopIteration from None
