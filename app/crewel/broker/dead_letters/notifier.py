"""Reports dead letters as they are made: operators on the live channel, functions of services, and the webhook.

The store has the dead letters. Each follower keeps only their ids, up to a bound, and a task of its own reads them when it has
time. What is beyond the bound is counted, and only not shown. So a flood of dead letters costs nothing else. The webhook
(`delivery.dead_letter_webhook`) gets them as JSON, at least once what it takes in time. After some attempts they are left to
the store, so that a receiver that is broken holds nothing up.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from inspect import isawaitable
from itertools import islice
from typing import Final

from crewel.bayeux.channel import Channel, parse
from crewel.broker.addressing.channels import Channels
from crewel.broker.dead_letter import CHANNEL, DeadLetter
from crewel.broker.dead_letters.webhook import Webhook
from crewel.broker.mailboxes.outbound import Outbound
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.delivery.records import PendingDeadLetter
from crewel.errors import StoreError, class_of
from crewel.storage import dead_letter_store
from crewel.storage.dead_letter_records import DeadLetterFilter
from crewel.storage.store import Store

log = logging.getLogger(__name__)

MOST_WAITING: Final = 10_000
"""Dead letters that wait for one follower at most."""
_AT_ONCE: Final = 100
_PAUSE_S: Final = 0.5  # before the store is asked again that was away
_HOOK_LIMIT_S: Final = 60.0
_COUNT_LIMIT_S: Final = 0.2


@dataclass(eq=False)
class Follower:
    """A receiver of reports about dead letters: `show` gets them in their order, a few at a time."""

    _name: str
    _runtime: Runtime
    _show: Callable[[list[DeadLetter]], Awaitable[None]]
    _waiting: deque[str] = field(default_factory=deque, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    def offer(self, dead_ids: Sequence[str]) -> None:
        """Let these dead letters be shown, as far as there is room."""
        room = MOST_WAITING - len(self._waiting)
        self._waiting.extend(islice(dead_ids, room))
        if len(dead_ids) > room:
            self._runtime.metrics.letters_not_shown[self._name] += len(dead_ids) - room
        if self._task is None and self._waiting:
            self._task = self._runtime.supervisor.start(f"dead letters for the {self._name}", self._follow)

    async def _follow(self) -> None:
        while self._waiting:
            ids = list(islice(self._waiting, _AT_ONCE))
            try:
                letters = await self._read(ids)
            except StoreError as error:
                log.warning("dead letters for the live channel cannot be read yet: %s", error)
                await asyncio.sleep(_PAUSE_S)
                continue
            for _ in ids:
                self._waiting.popleft()
            try:
                await self._show(letters)
            except Exception:
                log.exception("dead letters could not be sent to the live channel")
        self._task = None

    async def _read(self, ids: list[str]) -> list[DeadLetter]:
        access = self._runtime.access
        return [
            DeadLetter.read(stored, self._runtime.settings.node.name)
            for stored in await dead_letter_store.get(access.store, ids)
        ]


@dataclass(eq=False)
class DeadLetterNotifier:
    """The followers of one broker."""

    _runtime: Runtime
    _channels: Channels
    _outbound: Outbound
    _webhook: Webhook | None = field(default=None, init=False)
    _posts: Follower | None = field(default=None, init=False)
    _counting: asyncio.Task[None] | None = field(default=None, init=False)

    on_stored: list[Callable[[Sequence[str]], None]] = field(default_factory=list, init=False)
    """Called with the ids of dead letters that the store has since just now."""

    def __post_init__(self) -> None:
        self._access, self._ids, self._registry = self._runtime.access, self._runtime.ids, self._runtime.services
        channel = parse(CHANNEL)
        assert channel is not None
        self._channel: Channel = channel
        self._live = Follower("channel", self._runtime, self._deliver)
        self._hooks = Follower("hook", self._runtime, self._call)
        self._counts = (0, 0, 0)
        self._runtime.metrics.gauge("letters_kept", lambda: self._counts[0])
        self._runtime.metrics.gauge("letters_dropped", lambda: self._counts[1])
        self._runtime.metrics.gauge("letters_returned", lambda: self._counts[2])
        address = self._runtime.settings.delivery.dead_letter_webhook
        if address:
            delivery = self._runtime.settings.delivery
            self._webhook = Webhook(
                address,
                delivery.dead_letter_webhook_token,
                lambda: delivery.dead_letter_webhook_timeout_ms / 1000,
                self._runtime.metrics,
            )
            self._posts = Follower("webhook", self._runtime, self._post)

    def stored(self, letters: Iterable[PendingDeadLetter], dead_ids: Sequence[str]) -> None:
        """The store has these dead letters since just now, under these ids: count them, and show them to those that follow."""
        counted = self._runtime.metrics.letters
        for letter in letters:
            if not counted:
                log.warning(
                    "the first dead letter since the start, of %s: %s, %s; crewel dead-letters list shows all,"
                    " and crewel_letters_kept counts them",
                    letter.session,
                    letter.code,
                    letter.reason or "no reason given",
                )
            counted[class_of(letter.code)] += 1
        if not dead_ids:
            return
        if self._channels.count(CHANNEL):
            self._live.offer(dead_ids)
        if self._registry.dead_letter:
            self._hooks.offer(dead_ids)
        if self._posts is not None:
            self._posts.offer(dead_ids)
        for stored in self.on_stored:
            stored(dead_ids)

    def made_elsewhere(self, dead_ids: Sequence[str]) -> None:
        """Another node has made these: its services and its webhook have them, and the operators who follow here may not."""
        if self._channels.count(CHANNEL):
            self._live.offer(dead_ids)

    async def count(self) -> None:
        """Read the figures of the store's dead letters, for the metrics. While the store is away, or takes its time, they stay
        as they were."""
        access = self._access
        if not access.store.is_up:
            return
        if self._counting is None or self._counting.done():
            self._counting = self._runtime.spawn(self._count(access.store))
        await asyncio.wait([self._counting], timeout=_COUNT_LIMIT_S)

    async def _count(self, store: Store) -> None:
        with suppress(StoreError):
            kept = await dead_letter_store.count(store, DeadLetterFilter())
            self._counts = (kept, await dead_letter_store.dropped(store), await dead_letter_store.returned(store))

    async def close(self) -> None:
        """Let go of the webhook's connections."""
        if self._webhook is not None:
            await self._webhook.close()

    # The webhook

    async def _post(self, letters: list[DeadLetter]) -> None:
        assert self._webhook is not None
        posted = await self._webhook.post([letter.as_json() for letter in letters])
        self._runtime.metrics.letters_posted += posted
        self._runtime.metrics.letters_not_posted += len(letters) - posted

    # The live channel

    async def _deliver(self, letters: list[DeadLetter]) -> None:
        names = frozenset(name.lower() for name in self._runtime.settings.admin.mask)
        for each in letters:
            letter = each.masked(names)
            fields = letter.fields()
            if not self._outbound.pipe.send(None, fields):
                continue
            entry = letter.entry(fields, *self._ids.stamp())
            self._outbound.fan_out(entry, self._listening(), None)
        self._runtime.metrics.letters_shown += len(letters)

    def _listening(self) -> list[Session]:
        """The operators that receive the channel and have room. One that was an operator when it subscribed may be none now;
        and no queue overflows for dead letters, or they would make others."""
        listening = []
        for session in self._channels.subscribers(self._channel):
            if not session.is_operator:
                continue
            if session.mailbox.view().room:
                listening.append(session)
            else:
                self._runtime.metrics.letters_not_shown["channel"] += 1
        return listening

    # Functions of services

    async def _call(self, letters: list[DeadLetter]) -> None:
        for letter in letters:
            for hook in self._registry.dead_letter:
                try:
                    result = hook(letter)
                    if isawaitable(result):
                        async with asyncio.timeout(_HOOK_LIMIT_S):
                            await result
                except Exception:
                    log.exception("a service failed in %s", getattr(hook, "__qualname__", hook))
