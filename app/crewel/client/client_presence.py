"""The presence of one channel, as a client sees it: the members, and what changes (docs/how-to/presence.md)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import random
from types import TracebackType
from typing import Any, Final, Self

from crewel.bayeux.channel import PRESENCE
from crewel.bayeux.message import Fields
from crewel.client.client_message import Message, channel_name
from crewel.client.errors import ClientError, TransportError
from crewel.client.retry import Backoff, BackoffRule
from crewel.client.states import Life, State, Transition
from crewel.client.subscription import Subscription

log = logging.getLogger("crewel.client")

_SERVICE: Final = "presence"
_BOUND: Final = 1000
"""Changes that wait to be read. Beyond it, the oldest are dropped: `members` has what they led to."""
_PAUSES: Final = BackoffRule(initial=1.0, factor=2.0, maximum=60.0)
"""Between two attempts to list the members."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a channel."""

    id: str
    """Its subject, or a text that begins with `anonymous/`."""
    sessions: int
    """How many of its sessions are present; 0 in a change that says that it has left."""
    data: Any
    """The data that one of its sessions has set last."""


class PresenceEvent(StrEnum):
    """What happened to a member."""

    JOIN = "join"
    """Its first session has entered."""
    UPDATE = "update"
    """It has other data, or another number of sessions."""
    LEAVE = "leave"
    """Its last session has left, or has ended."""


@dataclass(frozen=True, slots=True)
class PresenceChange:
    """One change of one member."""

    event: PresenceEvent
    member: Member
    """As it is now; of one that has left, its last data."""


class Presence:
    """The presence of a channel while its block lasts: `async with client.presence("/room", data="here") as presence:`.

    Entering it lists the members, and lets this session be present, unless `enter` was False. `members` has them from then on,
    also after a new connection, a new session or a restart of the server. Iterate over it for the changes; nothing is missed in
    between. Leaving it, or the end of the session, lets this session leave.

    Entering raises `RemoteCallFailedError` if the server refuses the presence of the channel, and as `subscribe` does.
    """

    def __init__(
        self,
        life: Life,
        channel: str,
        call: Callable[[str, Fields], Awaitable[Any]],
        subscribe: Callable[[str], Awaitable[Subscription]],
        *,
        enters: bool,
        data: Any,
    ) -> None:
        self.channel = channel_name(channel)
        """The channel."""
        self.id: str | None = None
        """The id of this session's member; None while it is not present."""
        self.dropped = 0
        """How many changes were dropped because nothing read them."""
        self._life, self._remote_call, self._subscribe = life, call, subscribe
        self._data, self._is_entered = data, enters
        self._members: dict[str, Member] = {}
        self._epoch, self._seq = "", 0
        self._is_stale = False
        self._lock = asyncio.Lock()
        self._changes: deque[PresenceChange] = deque()
        self._changed = asyncio.Event()
        self._error: BaseException | None = None
        self._ended = False
        self._subscription: Subscription | None = None
        self._following: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None

    @property
    def members(self) -> Mapping[str, Member]:
        """The members at this moment, by their ids."""
        return dict(self._members)

    async def enter(self, data: Any = None) -> None:
        """Let this session be present, or replace its data. Raises RemoteCallFailedError, and as `remote_call` does."""
        async with self._lock:
            await self._enter(data)

    async def update(self, data: Any) -> None:
        """Replace the data of this session, which is present. Raises RemoteCallFailedError, with the code
        `user.presence.absent` if it is not, and as `remote_call` does."""
        async with self._lock:
            if self._is_entered:  # also if the server has forgotten that, after a restart
                await self._enter(data)
            else:
                await self._call("update", data)

    async def leave(self) -> None:
        """Let this session not be present, and list the members all the same. Raises as `remote_call` does."""
        async with self._lock:
            self._is_entered = False
            await self._call("leave")
            self.id = None

    async def __aenter__(self) -> Self:
        self._subscription = await self._subscribe(PRESENCE + self.channel)
        try:
            async with self._lock:
                await self._list()
        except BaseException as error:
            # The session may be present: the list failed, an answer was lost, or the call was cancelled. Another block may
            # enter again.
            is_unknown = isinstance(error, TransportError) or not isinstance(error, Exception)
            enters, is_absent = self._is_entered, self.id is None and not is_unknown
            self._is_entered = enters and not is_absent
            try:
                await self._part()
            finally:
                self._is_entered = enters
            raise
        self._changes.clear()  # the application begins with the list
        self._life.listeners.append(self._on_state)
        self._following = asyncio.create_task(self._follow(self._subscription), name="crewel-client-presence")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._following is not None:
            self._life.listeners.remove(self._on_state)
        for task in (self._following, self._refreshing):
            if task is not None:
                task.cancel()
        self._end(None)
        await self._part()

    async def _part(self) -> None:
        try:
            if self._is_entered and not self._life.is_ending:
                await self.leave()
        except ClientError as failure:
            log.info("%s: the server was not asked to let the session leave: %s", self.channel, failure)
        finally:
            if self._subscription is not None:
                await self._subscription.unsubscribe()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PresenceChange:
        while not self._changes:
            if self._ended:
                raise self._error or StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._changes.popleft()

    def put_back(self, change: PresenceChange) -> None:
        """Return it first: the application has not seen it."""
        self._changes.appendleft(change)

    # Inner

    async def _call(self, action: str, data: Any = None) -> Any:
        return await self._remote_call(_SERVICE, {"channel": self.channel, "action": action, "data": data})

    async def _enter(self, data: Any) -> None:
        answer = await self._call("enter", data)
        self.id, self._data, self._is_entered = answer["id"], data, True

    async def _list(self) -> None:
        """Enter again, and ask for all members: what is missing here has been missed."""
        self._is_stale = True
        if self._is_entered:
            await self._enter(self._data)
        answer = await self._call("members")
        self._epoch, self._seq, self._is_stale = answer["epoch"], answer["seq"], False
        listed = {each["id"]: _member(each) for each in answer["members"]}
        for gone in [each for each in self._members if each not in listed]:
            self._left(gone)
        for member in listed.values():
            self._is(member)

    async def _follow(self, subscription: Subscription) -> None:
        try:
            async for message in subscription:
                async with self._lock:
                    await self._take(message)
        except ClientError as error:
            self._end(error)
        else:
            self._end(None)

    async def _take(self, message: Message) -> None:
        event = message.data
        if event.get("reset") or event["epoch"] != self._epoch or event["seq"] > self._seq + 1:
            await self._try_to_list()
            if self._is_stale and (self._refreshing is None or self._refreshing.done()):
                self._begin_refresh()
        elif event["seq"] == self._seq + 1:
            self._seq += 1
            for change in event["changes"]:
                if change["change"] == PresenceEvent.LEAVE:
                    self._left(change["id"])
                else:
                    self._is(_member(change))

    async def _try_to_list(self) -> None:
        try:
            await self._list()
        except ClientError as error:
            log.warning("%s: the members could not be listed: %s", self.channel, error)

    def _on_state(self, transition: Transition) -> None:
        if transition.new is State.CONNECTED and (transition.old is State.CONNECTING or self._is_stale):
            self._begin_refresh()

    def _begin_refresh(self) -> None:
        self._is_stale = True
        if self._refreshing is not None:
            self._refreshing.cancel()
        self._refreshing = asyncio.get_running_loop().create_task(self._refresh(self._refreshing))

    async def _refresh(self, former: asyncio.Task[None] | None) -> None:
        """List the members, again after a failure. If the connection is lost meanwhile, the next one begins this again."""
        if former is not None:
            await asyncio.wait([former])
        pauses = Backoff(_PAUSES, random)
        while self._life.state is State.CONNECTED:
            async with self._lock:
                await self._try_to_list()
            if not self._is_stale:
                return
            await asyncio.sleep(pauses.failed())

    def _left(self, member_id: str) -> None:
        left = self._members.pop(member_id, None)
        if left is not None:
            self._note(PresenceEvent.LEAVE, Member(left.id, 0, left.data))

    def _is(self, member: Member) -> None:
        before, self._members[member.id] = self._members.get(member.id), member
        if before is None:
            self._note(PresenceEvent.JOIN, member)
        elif before != member:
            self._note(PresenceEvent.UPDATE, member)

    def _note(self, event: PresenceEvent, member: Member) -> None:
        if len(self._changes) >= _BOUND:
            self._changes.popleft()
            self.dropped += 1
        self._changes.append(PresenceChange(event, member))
        self._changed.set()

    def _end(self, error: BaseException | None) -> None:
        if not self._ended:
            self._ended, self._error = True, error
            self._changed.set()


def _member(fields: dict[str, Any]) -> Member:
    return Member(fields["id"], fields["sessions"], fields["data"])
