"""Which subscriptions hear a message, and what the server has to be told."""

import asyncio
from datetime import date
from typing import Any

import pytest

from crewel.client.errors import DisconnectedError, SubscribeRefused
from crewel.client.payload import Payload
from crewel.client.router import Router
from crewel.client.subscription import Overflow, Subscription
from tests.client.test_subscription import drained


async def no_release(subscription: Subscription) -> None:
    pass


def subscribed(router: Router, channel: str, bound: int = 10, overflow: Overflow = Overflow.HOLD) -> Subscription:
    subscription = Subscription(channel, bound=bound, overflow=overflow, release=no_release, on_room=router.made_room)
    router.add(subscription, None)
    return subscription


def delivered(channel: str, data: Any = 1) -> dict[str, Any]:
    return {"channel": channel, "data": data}


@pytest.mark.parametrize(
    ("channel", "hearing"),
    [
        ("/foo", ["/foo", "/*", "/**"]),
        ("/foo/bar", ["/foo/*", "/foo/**", "/**"]),
        ("/foo/bar/", ["/foo/*", "/foo/**", "/**"]),
        ("/foo/bar/baz", ["/foo/**", "/**"]),
        ("/other", ["/*", "/**"]),
        ("not a channel", []),
    ],
)
async def test_a_message_is_fanned_out_to_every_pattern_that_matches(channel: str, hearing: list[str]) -> None:
    router = Router()
    subscriptions = [subscribed(router, name) for name in ("/foo", "/*", "/foo/*", "/foo/**", "/**")]
    router.deliver(delivered(channel), retained=False)
    assert sorted(each.channel for each in subscriptions if each.queued) == sorted(hearing)


async def test_every_local_subscription_of_a_channel_hears_it_once() -> None:
    router = Router()
    first, second = subscribed(router, "/a"), subscribed(router, "/a")
    router.deliver(delivered("/a"), retained=False)
    assert (first.queued, second.queued) == (1, 1)
    assert len(router.unconfirmed()) == 1


async def test_a_subscription_with_a_type_leaves_the_data_of_the_others_as_it_came() -> None:
    router = Router()
    typed = Subscription(
        "/a", bound=9, overflow=Overflow.HOLD, release=no_release, on_room=router.made_room, payload=Payload(date)
    )
    router.add(typed, None)
    plain = subscribed(router, "/**")
    router.deliver(delivered("/a", "2026-11-30"), retained=False)
    assert (await typed.receive(1)).data == date(2026, 11, 30)
    assert (await plain.receive(1)).data == "2026-11-30"


@pytest.mark.parametrize("error", [DisconnectedError("the server ended the session"), None])
async def test_a_listener_that_comes_after_the_session_has_ended_ends_too(error: Exception | None) -> None:
    router = Router()
    router.end(error)
    router.end(None)  # the client is closed
    late = Subscription("/a", bound=10, overflow=Overflow.HOLD, release=no_release, on_room=router.made_room)
    router.add_listener(late)
    with pytest.raises(StopAsyncIteration if error is None else DisconnectedError):
        await asyncio.wait_for(anext(late), 5)


async def test_only_the_last_one_of_a_channel_is_worth_telling_the_server() -> None:
    router = Router()
    first, second = subscribed(router, "/a"), subscribed(router, "/a")
    assert router.remove(first) is None
    assert router.remove(first) is None
    interest = router.remove(second)
    assert interest is not None
    assert interest.channel == "/a"
    assert router.remove(second) is None
    assert not router.unconfirmed()


async def test_a_subscription_that_a_full_queue_has_ended_keeps_no_channel() -> None:
    router = Router()
    full = subscribed(router, "/a", bound=1, overflow=Overflow.CLOSE)
    for _ in range(2):
        router.deliver(delivered("/a"), retained=False)
    assert full.is_ended
    assert router.remove(subscribed(router, "/a")) is not None
    assert router.remove(full) is None


async def test_a_new_session_is_told_of_everything_again() -> None:
    router = Router()
    subscribed(router, "/a")
    [interest] = router.unconfirmed()
    interest.confirmed = True
    assert not router.unconfirmed()
    router.forget_session()
    assert router.unconfirmed() == [interest]


async def test_a_refused_channel_ends_its_subscriptions_and_no_others() -> None:
    router = Router()
    refused, other = subscribed(router, "/a"), subscribed(router, "/b")
    router.refuse(router.unconfirmed()[0], SubscribeRefused({"subscription": "/a", "error": "403::no"}))
    with pytest.raises(SubscribeRefused, match="/a"):
        await refused.receive(1)
    assert not other.is_ended
    assert [interest.channel for interest in router.unconfirmed()] == ["/b"]


async def test_the_end_of_the_session_ends_all() -> None:
    router = Router()
    subscriptions = [subscribed(router, "/a"), subscribed(router, "/b")]
    router.end(None)
    assert [await drained(each) for each in subscriptions] == [[], []]


async def test_a_batch_has_room_unless_a_held_queue_it_goes_to_is_full() -> None:
    router = Router()
    subscribed(router, "/full", bound=1)
    subscribed(router, "/dropping", bound=1, overflow=Overflow.DROP_OLDEST)
    for channel in ("/full", "/dropping"):
        router.deliver(delivered(channel), retained=True)
    assert not router.has_room([delivered("/full")])
    assert router.has_room([delivered("/dropping"), delivered("/nobody"), {"channel": "/meta/connect"}])


async def test_waiting_for_room_ends_when_the_queue_is_read() -> None:
    router = Router()
    queue = subscribed(router, "/a", bound=1)
    router.deliver(delivered("/a"), retained=True)
    waiting = asyncio.create_task(router.wait_for_room(lambda: router.has_room([delivered("/a")]), 5))
    await asyncio.sleep(0)
    assert not waiting.done()
    await queue.receive(1)
    await asyncio.wait_for(waiting, 5)


async def test_waiting_for_room_has_an_end() -> None:
    router = Router()
    subscribed(router, "/a", bound=1)
    router.deliver(delivered("/a"), retained=True)
    await router.wait_for_room(lambda: router.has_room([delivered("/a")]), 0.01)
    assert not router.has_room([delivered("/a")])
