"""Stock clients under load, and who of them is not well: what the reports have to find out, and the clients know.

All speak through the official library, each in a process of its own: shops that publish, plain receivers that acknowledge
batches, and such that tell how each message fared. What goes wrong stands in the messages (tests/functional/receivers.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from tests.faults.load import LONG_POLLING, WEBSOCKET
from tests.functional.receivers import ByNode
from tests.interop.peers import Event, Kind, Peer

PATTERN = "/orders/*"
TICKS = "/ticks"
SHOPS = ("/orders/berlin", "/orders/lima", "/orders/osaka")
"""The channels, of which each shop has one."""
AT_ONCE = 10
PAUSE_S = 0.15
_LIMIT_S = 60.0

Fault = Callable[[int], dict[str, Any]]
"""Says of a message's number what is wrong with it: fields of its data."""


class Buyer(ByNode):
    """A receiver that tells how each message fared; the official client with update.js."""

    def __init__(self, name: str, transport: str, version: str) -> None:
        super().__init__(version)
        self.name, self.transport = name, transport


class Plain(Peer):
    """A receiver that acknowledges batches and knows of nothing else."""

    count = 0

    def note(self, event: Event) -> None:
        """Count messages; there are thousands of them."""
        if event["event"] == "delivered":
            self.count += 1
        elif event["event"] not in {"message", "connecting", "connected"}:
            super().note(event)


@dataclass
class Played:
    """What was played, as the clients know it."""

    ids: dict[int, str] = field(default_factory=dict)
    """Number of a message -> its id, in the order of the answers."""
    channels: Counter[str] = field(default_factory=Counter)
    """How many were published to each channel."""
    ticks: int = 0
    heard: dict[str, set[int]] = field(default_factory=dict)
    """Receiver -> the numbers that it heard."""


def healthy(number: int) -> dict[str, Any]:
    """Nothing is wrong with any message."""
    return {}


async def play(
    url: str,
    buyers: list[Buyer],
    seconds: float,
    fault: Fault,
    is_over: Callable[[], bool],
    held: str | None = None,
    *,
    least: int = 0,
) -> Played:
    """Publish for so long, and at least so many, to these receivers and to two plain ones; then wait until each has heard what
    it can get, and until the server says that it `is_over`. `held` will hold itself back, and is not waited for."""
    url = url.replace("127.0.0.1", "localhost")
    played = Played()
    async with contextlib.AsyncExitStack() as stack:
        shops = [await _peer(stack, Peer(kind), url) for kind in (WEBSOCKET, LONG_POLLING, WEBSOCKET)]
        plain = [await _plain(stack, kind, url) for kind in (WEBSOCKET, LONG_POLLING)]
        session = {"persistent": True, "settle": "message"}
        await asyncio.gather(*(each.start(url, each.transport, each.name, PATTERN, session) for each in buyers))
        stack.push_async_callback(lambda: asyncio.gather(*(each.vanish() for each in buyers)))
        end = monotonic() + seconds
        numbers = iter(range(10**9))

        def is_enough() -> bool:
            return monotonic() >= end and len(played.ids) > least

        async with asyncio.TaskGroup() as selling:
            for shop, channel in zip(shops, SHOPS, strict=True):
                selling.create_task(_sell(shop, channel, numbers, fault, is_enough, played))
        well = [each for each in buyers if each.name != held]
        await _until(
            lambda: all(_distinct(each) >= len(played.ids) - 1 for each in well), lambda: _state(played, buyers)
        )
        await _until(lambda: all(each.count >= len(played.ids) for each in plain), lambda: _state(played, buyers))
        await _until(is_over, lambda: _state(played, buyers))
        for each in plain:
            await each.do("disconnect")
        played.heard = {each.name: {heard.n for heard in each.notes.heard} for each in buyers}
    return played


async def _peer(stack: contextlib.AsyncExitStack, peer: Peer, url: str) -> Peer:
    await peer.start()
    stack.push_async_callback(peer.stop)
    await peer.open(url, extensions=["ack"] if isinstance(peer, Plain) else [])
    return peer


async def _plain(stack: contextlib.AsyncExitStack, kind: Kind, url: str) -> Plain:
    peer = Plain(kind)
    await _peer(stack, peer, url)
    await peer.subscribe(PATTERN)
    return peer


async def _sell(
    shop: Peer, channel: str, numbers: Any, fault: Fault, is_enough: Callable[[], bool], played: Played
) -> None:
    stored = {"ext": {"publish": {"persistent": True}}}
    while not is_enough():
        handful = [next(numbers) for _ in range(AT_ONCE)]
        messages = [{"channel": channel, "data": {"n": each, **fault(each)}, "props": stored} for each in handful]
        tick = {"channel": TICKS, "data": handful[0]}
        answer = await shop.do("batch", messages=[*messages, tick])
        *replies, ticked = answer["replies"]
        assert ticked["successful"], ticked
        for number, reply in zip(handful, replies, strict=True):
            assert reply["successful"], reply
            played.ids[number] = reply["published"]["id"]
        played.channels[channel] += AT_ONCE
        played.ticks += 1
        await asyncio.sleep(PAUSE_S)


def _distinct(buyer: Buyer) -> int:
    return len({heard.n for heard in buyer.notes.heard})


def _state(played: Played, buyers: list[Buyer]) -> str:
    return f"{len(played.ids)} published, { ({each.name: _distinct(each) for each in buyers}) }"


async def _until(holds: Callable[[], bool], state: Callable[[], str]) -> None:
    deadline = monotonic() + _LIMIT_S
    while not holds():
        assert monotonic() < deadline, state()
        await asyncio.sleep(0.05)
