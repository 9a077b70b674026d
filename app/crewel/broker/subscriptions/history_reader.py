"""The history of a topic, for reads without a subscription: the remote call `/service/get`, and operators."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from crewel.bayeux.channel import Channel, parse
from crewel.bayeux.codec import reread
from crewel.bayeux.message import Fields, Message
from crewel.broker.admission.guard import NOT_AUTHORIZED
from crewel.broker.handler_steps import complete, start
from crewel.broker.mailboxes.dispatcher_runner import DispatcherRunner
from crewel.broker.mailboxes.full_queue import SIZE
from crewel.broker.runtime import Runtime
from crewel.broker.service_registry import call_failure, read_call
from crewel.broker.session import Session
from crewel.broker.subscriptions.history_start import Room
from crewel.broker.subscriptions.options import SubscriptionOptions
from crewel.broker.subscriptions.subscribe_handler import Permissions
from crewel.delivery.entry import Entry
from crewel.errors import DENIED_BY_POLICY, Denied, StoreError, denied
from crewel.qos.fields import Check, flag, whole
from crewel.qos.subscribe import ALL
from crewel.storage import histories
from crewel.storage.histories import History

GET_SERVICE: Final = "/service/get"
_AT_ONCE: Final = 4

log = logging.getLogger(__name__)


def as_delivered(entry: Entry, *, with_origin: bool) -> Fields:
    """The message as it is delivered: with its origin if asked for, and if its stored form can carry it."""
    if with_origin:
        try:
            return reread(entry.updated())
        except Exception as error:  # noqa: BLE001 - one message that cannot be encoded must not hide the others
            log.error("the origin of a message on %s cannot be delivered: %r", entry.channel, error)
    return entry.fields


def _channel(value: object) -> Channel:
    channel = parse(value) if isinstance(value, str) else None
    if channel is None or channel.is_wildcard or not channel.is_broadcast:
        raise ValueError("the name of a channel, such as /news/sport")
    return channel


_CHECKS: Final[Mapping[str, Check]] = {
    "channel": _channel,
    "numEntries": whole(0, or_else=ALL),
    "newestFirst": flag,
}


@dataclass(eq=False)
class HistoryReader:
    """Reads histories without a subscription."""

    _runtime: Runtime
    _options: SubscriptionOptions

    async def read(self, channel: Channel, count: int | None, room: Room | None = None) -> list[Entry]:
        """The newest so many messages of the history, or all, as far as there is room for them; oldest first. Nothing is
        missing that was published before this was asked. Raises StoreError."""
        access = self._runtime.access
        if not access.has_store or not self._options.has_history(channel):
            return []
        newest = count if room is None else min(room.entries if count is None else count, room.entries)
        step = histories.history(
            access.keys,
            access.token,
            channel.name,
            newest=newest,
            max_bytes=None if room is None else room.size,
            now=self._runtime.clock.microseconds(),
        )
        history: History = await access.writing.ask(step)
        entries = history.entries if room is None else room.newest(history.entries)
        return [Entry.read_back(each) for each in entries]

    async def shown(self, channel: Channel, count: int | None, newest_first: bool) -> list[Fields]:
        """The newest so many messages of the channel's history, or all, as receivers get them that ask for their origin.
        Raises StoreError."""
        entries = await self.read(channel, count)
        return [as_delivered(each, with_origin=True) for each in (reversed(entries) if newest_first else entries)]


@dataclass(eq=False)
class GetService:
    """The remote call. One session reads one history at a time, and all together a few: what was read and not yet queued is
    bounded, however many calls come in one request."""

    _runtime: Runtime
    _reader: HistoryReader
    _permissions: Permissions
    _dispatchers: DispatcherRunner

    def __post_init__(self) -> None:
        self._settings = self._runtime.settings
        self._all = asyncio.Semaphore(_AT_ONCE)
        self._own: WeakKeyDictionary[Session, asyncio.Lock] = WeakKeyDictionary()

    async def get(self, session: Session, data: Any) -> Fields:
        """Answer one call, as `get` does. Raises RemoteCallError."""
        async with self._own.setdefault(session, asyncio.Lock()), self._all:
            return await self._get(session, data)

    async def _get(self, session: Session, data: Any) -> Fields:
        """Answer `{"messages": [...]}` to `{"channel", "numEntries": 1, "newestFirst": true}`: as many of the newest as one
        response holds. Raises RemoteCallError."""
        asked = read_call(data, _CHECKS, "channel")
        channel: Channel = asked["channel"]
        refusal = await self._refusal(session, channel)
        if refusal is not None:
            raise call_failure(NOT_AUTHORIZED, refusal)
        count = asked.get("numEntries", 1)
        limits = self._settings.bayeux
        room = Room(limits.max_queue_messages, limits.max_response_bytes)
        try:
            entries = await self._reader.read(channel, None if count == ALL else count, room)
        except StoreError as error:
            raise call_failure(error.code, str(error)) from error
        if entries:
            # To make an answer of many takes milliseconds, and several histories may have been read in this turn.
            await self._runtime.turns.rest(session.account.name if session.account is not None else None)
        # One response is left free, so that refusals do not push out what was answered.
        size = sum(len(each.wire) for each in entries) + limits.max_response_bytes
        if entries and not session.mailbox.view().has_bytes(size):
            text = "the queue of the session has no room for the messages: take the waiting ones, then ask again"
            raise call_failure(SIZE, text)
        if asked.get("newestFirst", True):
            entries.reverse()
        return {"messages": [as_delivered(each, with_origin=session in self._dispatchers.updated) for each in entries]}

    async def _refusal(self, session: Session, channel: Channel) -> str | None:
        """Why the session may not see what subscribers of the channel see; None if it may."""
        if channel.is_system or channel.is_reply:
            return denied(DENIED_BY_POLICY, Denied.SUBSCRIBE)
        subscribe = parse("/meta/subscribe")
        assert subscribe is not None
        fields: Fields = {"channel": subscribe.name, "clientId": session.id, "subscription": channel.name}
        steps = self._permissions.grant(session, Message(fields, subscribe, None), [channel])
        waiting, done = start(steps)
        if waiting is not None:
            done = await complete(steps, waiting)
        assert done is not None
        return done[1]
