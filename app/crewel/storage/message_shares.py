"""What each account has in the store: bytes and messages, in the log, the histories, the shared queues, the inboxes and
scheduled messages.

Nothing counts that while messages come and go, so that they cost nothing more. It is counted from what is there, in parts of a
millisecond or two, when the store is so full that it matters.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, NamedTuple

from crewel.qos.names import SUBJECT
from crewel.storage.account_shares import Share, account_of_name
from crewel.storage.keys import Keys
from crewel.storage.script_step import Step, scripts
from crewel.storage.store import Store

MOST_ACCOUNTS: Final = 1000
"""Those with the most bytes; what others have is too little to matter."""
_KEYS_AT_ONCE: Final = 100
_PART_BYTES: Final = 1 << 20
_MOST, _LEAST = 1000, 8  # messages in a part
_REST: Final = 4.0
"""So many times as long as the store worked for a part, it has for others before the next."""


class Count(NamedTuple):
    """What was counted."""

    accounts: list[Share]
    """The largest first."""
    seconds: float
    """How long the store worked for it."""


async def count(store: Store) -> Count:
    """Count once. Raises StoreError."""
    sizes, messages, seconds = Counter[str](), Counter[str](), 0.0
    most, loop = _LEAST, asyncio.get_running_loop()
    script = scripts()["weigh"].text.decode()
    async for keys in _keys(store):
        done, place = 0, b""
        while done < len(keys):
            began = loop.time()
            left = keys[done:]
            told: Any = await store.reader.eval(script, len(left), *left, place, most)
            took = loop.time() - began
            seconds += took
            read = _add(told[2:], sizes, messages)
            most = min(max(int(most * _PART_BYTES / max(read, 1)), _LEAST), 2 * most, _MOST)
            done, place = done + told[0], told[1]
            await asyncio.sleep(took * _REST)
    accounts = [Share(name, messages[name], size) for name, size in sizes.most_common(MOST_ACCOUNTS)]
    return Count(accounts, seconds)


def _add(told: list[Any], sizes: Counter[str], messages: Counter[str]) -> int:
    """Add what a part has; returns its bytes."""
    read = 0
    words = iter(told)
    for word, size, number in zip(words, words, words, strict=True):
        name = word.decode()
        if name.startswith(SUBJECT):  # that of the sender of what has no account
            name = account_of_name(name)
        sizes[name] += size
        messages[name] += number
        read += size
    return read


async def _keys(store: Store) -> AsyncIterator[list[str | bytes]]:
    """All keys that hold messages, some at a time."""
    keys: list[str | bytes] = [store.keys.log, store.keys.scheduled_messages]
    async for name in _names(store):
        keys.append(name)
        if len(keys) >= _KEYS_AT_ONCE:
            yield keys
            keys = []
    if keys:
        yield keys


async def _names(store: Store) -> AsyncIterator[str]:
    k, reader = store.keys, store.reader
    async for channel in reader.sscan_iter(k.topics, count=_KEYS_AT_ONCE):
        yield k.history(channel.decode())
    async for queue, _ in reader.zscan_iter(k.queues, count=_KEYS_AT_ONCE):
        yield k.queue_bodies(queue.decode())
    tokens: Any = await reader.smembers(k.nodes)
    for token in tokens:
        async for name in reader.sscan_iter(k.own(token.decode()), count=_KEYS_AT_ONCE):
            yield k.inbox(name.decode())


def charge(k: Keys, accounts: Iterable[Share]) -> Step[int]:
    """Let all servers and operators know what was counted. Returns how often it was. May be repeated."""
    shares = k.message_shares
    arguments: list[str | int] = []
    for each in accounts:
        arguments += (each.account, each.bytes, each.entries)
    return Step("charge", (shares.bytes, shares.entries, shares.charged), tuple(arguments), int)


async def counters(store: Store) -> list[str]:
    """The tokens of all servers of the store, in their order: the first one counts. Raises StoreError."""
    found: Any = await store.reader.smembers(store.keys.nodes)
    return sorted(token.decode() for token in found)


async def times_counted(store: Store) -> int:
    """How often what accounts have was counted. Raises StoreError."""
    return int(await store.reader.get(store.keys.message_shares.charged) or 0)
