"""The replica on which a node follows the log: which one it is, and when it is not believed any more.

A replica has what its primary has written, up to some point, as long as both name the same history. Each answer to a question
for entries comes with that name and with the newest id of the replica, in one exchange. So what another primary has written is
never taken for what this one has.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

from redis.exceptions import RedisError

from crewel.delivery.records import LogId
from crewel.errors import StoreError, StoreUnavailable
from crewel.settings.store_location import Place
from crewel.storage.store import Newest, Store
from crewel.storage.store_connection import Connection, Done, pack
from crewel.storage.store_info import StoreInfo

log = logging.getLogger(__name__)

WAIT_MS: Final = 500
"""Milliseconds that a replica waits for an entry: after them it says how it is."""
_LIMIT_S: Final = WAIT_MS / 1000 + 0.5
_CONNECT_LIMIT_S: Final = 0.5
_BEHIND_S: Final = 0.5
_SHUNNED_S: Final = 5.0
"""Seconds for which a replica is not asked that was left, or could not be used; and after which a node that reads from the
primary looks for one."""


class Reason(StrEnum):
    """Why a replica is left."""

    SILENT = "silent"
    """It does not answer, or refuses."""
    CUT_OFF = "cut_off"
    """It has no connection to its primary."""
    OTHER_HISTORY = "other_history"
    """It was promoted, or follows another primary."""
    BEHIND = "behind"
    """It lacks what the primary had 500 ms ago."""


def why_leave(info: StoreInfo, last: LogId, history: str, expected: LogId) -> Reason | None:
    """Why a replica is to be left that has said this and has this newest id; None if it is not. `history`: that of its
    primary; `expected`: an id that it must have."""
    if not info.is_replica or info.history != history:
        return Reason.OTHER_HISTORY
    if not info.is_linked:
        return Reason.CUT_OFF
    return Reason.BEHIND if last < expected else None


def expected_now(newest: Newest, now: float) -> LogId:
    """The id that a replica must have which is asked now, while this is known of its primary; 0 if that is too recent."""
    return newest.id if newest.at <= now - _BEHIND_S else LogId(0)


def in_turn(places: Sequence[Place], token: str) -> list[Place]:
    """The replicas in the order in which the node with this token tries them: nodes spread over them."""
    return sorted(places, key=lambda place: blake2b(f"{token} {place[0]}:{place[1]}".encode(), digest_size=8).digest())


@dataclass(eq=False)
class LogReplica:
    """A replica that is followed, on a connection of its own."""

    place: Place
    connection: Connection
    _store: Store
    _leave: Callable[[LogReplica, Reason], None]

    @property
    def is_closed(self) -> bool:
        """Whether its connection has ended."""
        return self.connection.is_closed

    def exchange(self, commands: Sequence[bytes], done: Done) -> None:
        """Send the commands, and call `done` with an answer each: StoreUnavailable if the replica is not to be believed and
        so is left."""
        newest = expected_now(self._store.newest, asyncio.get_running_loop().time())

        def answered(answers: list[Any]) -> None:
            reason = self._why_leave(answers, newest)
            if reason is None:
                done(answers[:-2])
            else:
                self._leave(self, reason)
                done([StoreUnavailable(f"the replica is left: {reason}") for _ in commands])

        own = pack(("INFO", "replication")), pack(("GET", self._store.keys.last))
        self.connection.exchange([*commands, *own], answered)

    def _why_leave(self, answers: Sequence[Any], expected: LogId) -> Reason | None:
        if any(isinstance(each, Exception) for each in answers):
            return Reason.SILENT
        return why_leave(StoreInfo(answers[-2]), LogId(int(answers[-1] or 0)), self._store.history, expected)


@dataclass(eq=False)
class Replicas:
    """Those of a store, for the node with this token."""

    _store: Store
    _token: str
    left: Counter[str]
    """How often one was left, by the reason."""
    current: LogReplica | None = field(default=None, init=False)
    """The one that is followed; None while the primary is."""
    _shunned: dict[Place, float] = field(default_factory=dict, init=False)
    _looks_at: float = field(default=0.0, init=False)

    @property
    def is_to_look(self) -> bool:
        """Whether to look for a replica, while none is followed."""
        return self.current is None and asyncio.get_running_loop().time() >= self._looks_at

    async def choose(self, primary: Connection) -> None:
        """Look for a replica of this primary that can be followed: `current` is the first one, if any."""
        now = asyncio.get_running_loop().time()
        self._looks_at = now + _SHUNNED_S
        said = await primary.ask(("INFO", "replication"))
        places = StoreInfo(said if isinstance(said, bytes) else b"").replicas_at_hand
        for place in in_turn(places, self._token):
            if self._shunned.get(place, now) > now:
                continue
            try:
                async with asyncio.timeout(_CONNECT_LIMIT_S):
                    self.current = await self._connected(place)
            except (StoreError, RedisError, OSError, TimeoutError):
                self._shun(place)
            else:
                log.info("the log is read from the replica %s:%d", *place)
                return

    def leave(self, replica: LogReplica, reason: Reason) -> None:
        """Do not follow it any more, if it is still followed, for this reason."""
        if self.current is replica:
            self.current = None
            self.left[reason] += 1
            log.warning("the log is not read from the replica %s:%d any more: %s", *replica.place, reason)
            self._shun(replica.place)
            self._looks_at = 0.0  # for another one
        replica.connection.close(f"the replica is left: {reason}")

    def close(self, reason: str) -> None:
        """Follow none any more."""
        replica, self.current = self.current, None
        self._looks_at = 0.0
        if replica is not None:
            replica.connection.close(reason)

    def _shun(self, place: Place) -> None:
        self._shunned[place] = asyncio.get_running_loop().time() + _SHUNNED_S

    async def _connected(self, place: Place) -> LogReplica:
        def lost(reason: str) -> None:
            if self.current is not None and self.current.connection is connection:
                self.leave(self.current, Reason.SILENT)
            connection.close(reason)

        connection = await self._store.connect_to_replica(place, lost)
        replica = LogReplica(place, connection, self._store, self.leave)
        checked: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        try:
            # Else a node of a cluster names its primary. Other stores refuse this, which does no harm.
            await connection.ask(("READONLY",))
            replica.exchange([pack(("PING",))], lambda answers: None if checked.done() else checked.set_result(answers))
            (answer,) = await checked
            if isinstance(answer, StoreError):
                raise answer
        except BaseException:
            connection.close("it cannot be followed")
            raise
        connection.wait_longer(_LIMIT_S)
        return replica
