"""With acknowledgements, connections that are cut or fall silent lose and repeat nothing for the application.

The stock clients remove no duplicates, and have no need to: a client takes a response whole or not at all, so what
was cut in the middle has not been heard, and what was heard whole is acknowledged by the next connect that arrives.
The server must do its part: send again all that is not acknowledged, and over WebSocket keep the messages and the
connect reply that acknowledges them in one frame. So the rule here is strict: each message once, in order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator

import pytest

from tests.cutting_proxy import Break, Cut, CuttingProxy, How, listed_cuts, random_cuts
from tests.interop.conftest import OpenPeer
from tests.interop.peers import IS_FULL, KINDS, Kind, Peer, kinds_that_can
from tests.server_process import Server

PUBLISHER = KINDS[0]
BATCH = 8
MESSAGES = 26 * BATCH  # at least; more if that is not enough for these cuts:
CUTS = 12


SEEDS = (1066, 1077, 1082)


def cut_kinds() -> Iterator[tuple[Kind, int]]:
    """Each kind of client with a seed of its cuts, in `make faults` with all of them."""
    turns = Counter[str]()
    for kind in kinds_that_can("extensions"):
        seeds = SEEDS if IS_FULL else [SEEDS[turns[kind.transport] % len(SEEDS)]]
        turns[kind.transport] += 1  # so that each transport meets all of them
        yield from ((kind, seed) for seed in seeds)


async def first_of(*waits: Awaitable[None]) -> None:
    """Return when one of these has come; its failure is a failure, the others are given up."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def publish_numbers(publisher: Peer, channel: str, start: int) -> None:
    """Publish a batch of numbers, and wait for all acknowledgements."""
    messages = [{"channel": channel, "data": number} for number in range(start, start + BATCH)]
    answer = await publisher.do("batch", messages=messages)
    assert all(reply["successful"] for reply in answer["replies"]), answer


async def has_heard(subscriber: Peer, count: int) -> None:
    """Wait until the application was given this many messages."""
    await subscriber.until(lambda: len(subscriber.heard()) >= count, f"{count} messages")


def enough_was_cut(breaks: list[Break], transport: str) -> bool:
    """Return whether connections were broken in every way and place, and a dozen times at least."""
    parts = {"headers", "body"} if transport == "long-polling" else {"frame"}
    return (
        len(breaks) >= CUTS
        and parts <= {broken.part for broken in breaks}
        and {How.FIN, How.RESET} == {broken.how for broken in breaks}
    )


@pytest.mark.parametrize(("kind", "seed"), [pytest.param(*each, id=f"{each[0]}-{each[1]}") for each in cut_kinds()])
async def test_cut_responses_lose_and_repeat_nothing(
    kind: Kind, seed: int, servers: Callable[..., Server], open_peer: OpenPeer, root: str
) -> None:
    server = servers(kind.lane, "bayeux.timeout_ms=5000", "bayeux.max_interval_ms=30000")
    async with CuttingProxy(server.port) as proxy:
        publisher = await open_peer(PUBLISHER, server.port)
        subscriber = await open_peer(kind, proxy.port, extensions=["ack"])
        await subscriber.subscribe(root)
        proxy.arm(random_cuts(seed, chance=0.4))
        published = 0
        while published < MESSAGES or not enough_was_cut(proxy.breaks, kind.transport):
            assert published < 5 * MESSAGES, f"too little was cut: {proxy.breaks}"
            broken = len(proxy.breaks)
            await publish_numbers(publisher, root, published)
            published += BATCH
            await first_of(has_heard(subscriber, published), proxy.broken(broken + 1))
        proxy.calm()
        await has_heard(subscriber, published)

        await publish_numbers(publisher, root, published)  # a last batch, so that a late repeat would be seen before it
        await has_heard(subscriber, published + BATCH)
        assert subscriber.heard() == list(range(published + BATCH))
        assert len(subscriber.told("handshaken")) == 1


@pytest.mark.parametrize("kind", kinds_that_can("extensions"), ids=str)
async def test_silent_connections_lose_and_repeat_nothing(
    kind: Kind, servers: Callable[..., Server], open_peer: OpenPeer, root: str
) -> None:
    server = servers(kind.lane, "bayeux.timeout_ms=400", "bayeux.max_interval_ms=30000")
    async with CuttingProxy(server.port) as proxy:
        publisher = await open_peer(PUBLISHER, server.port)
        subscriber = await open_peer(kind, proxy.port, extensions=["ack"], maxNetworkDelay=500)
        await subscriber.subscribe(root)
        for number, keep in enumerate((0.2, 0.95)):
            proxy.arm(listed_cuts(Cut(keep, How.STALL)))
            await publish_numbers(publisher, root, number * BATCH)
            await proxy.broken(number + 1)
            await has_heard(subscriber, (number + 1) * BATCH)

        await publish_numbers(publisher, root, 2 * BATCH)
        await has_heard(subscriber, 3 * BATCH)
        assert subscriber.heard() == list(range(3 * BATCH))
        assert len(subscriber.told("handshaken")) == 1


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "extensions" not in kind.can], ids=str)
async def test_client_without_acknowledgements_goes_on_after_cuts(
    kind: Kind, servers: Callable[..., Server], open_peer: OpenPeer, root: str
) -> None:
    """What was on its way may be lost, which is why there are acknowledgements; what comes later must arrive."""
    server = servers(kind.lane, "bayeux.timeout_ms=600")
    async with CuttingProxy(server.port) as proxy:
        publisher = await open_peer(PUBLISHER, server.port)
        peer = await open_peer(kind, proxy.port)
        await peer.subscribe(root)
        for number, keep in enumerate((0.2, 0.95)):
            proxy.arm(listed_cuts(Cut(keep, How.RESET)))
            await publish_numbers(publisher, root, number * BATCH)
            await proxy.broken(number + 1)
            await peer.tells("connected", len(peer.told("connected")) + 2)
        await publish_numbers(publisher, root, 2 * BATCH)
        await peer.hears(*range(2 * BATCH, 3 * BATCH))
        assert sorted(set(peer.heard())) == sorted(peer.heard())
