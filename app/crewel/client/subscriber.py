"""Tells the server which channels are subscribed to locally: when the first one comes, and in every new session."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from contextlib import contextmanager

from crewel.bayeux.message import Fields
from crewel.client.connection import Connection
from crewel.client.errors import NotConnectedError, RefusedError, SubscribeRefused
from crewel.client.life import Life
from crewel.client.message import SUBSCRIBE, is_successful
from crewel.client.replies import told_of
from crewel.client.router import Interest, Router
from crewel.client.subscribing import Progress

UNKNOWN_SESSION = frozenset({401, 402})
"""Codes that say "I do not know you" (Faye: 401)."""
_TOGETHER = 100
"""How many are asked for in one payload: servers bound its messages and its bytes."""


class Subscriber:
    """Asks each channel once a session, whoever wants it."""

    def __init__(self, connection: Connection, router: Router, life: Life, network_delay: float) -> None:
        self._connection = connection
        self._router = router
        self._life = life
        self._network_delay = network_delay

    async def subscribe(self, interest: Interest) -> None:
        """Tell the server of a channel, unless it knows.

        Raises:
            SubscribeRefused: it does not want it; the channel's local subscriptions have ended.
        """
        while not interest.confirmed:
            await self._life.ready(self._network_delay)
            if interest.refusal is not None:
                raise interest.refusal  # somebody else has asked
            if interest.asked is not None:
                await interest.asked.wait()  # no longer than the request of whoever asks
                continue
            moved = self._life.moved
            for refusal in await self._ask([interest]):
                raise refusal
            if not interest.confirmed:
                # 402: the session is gone, as the loop is about to learn from its next connect.
                await self._next_move(moved)

    async def catch_up(self) -> None:
        """Tell the server of every channel that it does not know yet. Those it refuses end."""
        interests = self._router.unconfirmed()
        for first in range(0, len(interests), _TOGETHER):
            await self._ask(interests[first : first + _TOGETHER])

    async def _next_move(self, moved: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(self._network_delay):
                await moved.wait()
        except TimeoutError:
            raise NotConnectedError("the server does not know the session") from self._life.failure

    async def _ask(self, interests: list[Interest]) -> list[SubscribeRefused]:
        """Tell the server of these channels in one payload; the refusals."""
        client_id = self._connection.client_id
        messages = [_message(interest) for interest in interests]
        with _being_asked(interests):
            replies = await self._connection.exchange(messages, self._network_delay)
        refusals = []
        for interest, message, reply in zip(interests, messages, replies, strict=True):
            if is_successful(reply):
                # The reply may be about a session that was lost while it was on its way.
                interest.confirmed = client_id == self._connection.client_id
                _take_position(interest, message, reply)
            elif RefusedError(reply).code not in UNKNOWN_SESSION:
                refusals.append(SubscribeRefused(reply))
                self._router.refuse(interest, refusals[-1])
        return refusals


@contextmanager
def _being_asked(interests: list[Interest]) -> Iterator[None]:
    settled = asyncio.Event()
    for interest in interests:
        interest.asked = settled
    try:
        yield
    finally:
        settled.set()
        for interest in interests:
            interest.asked = None


def _message(interest: Interest) -> Fields:
    message: Fields = {"channel": SUBSCRIBE, "subscription": interest.channel}
    if interest.ext is not None:
        message["ext"] = copy.deepcopy(interest.ext)
        if interest.progress and "since" in _asked(message):
            message["ext"]["subscribe"]["since"] = interest.progress.position
    return message


def _asked(message: Fields) -> Fields:
    return told_of(message, "subscribe")


def _take_position(interest: Interest, message: Fields, reply: Fields) -> None:
    """Note where the subscription begins. What is recovered is still to come, and counts from where it was asked for."""
    told = told_of(reply, "subscribe")
    recovered = told.get("recovered")
    interest.recovered = recovered if isinstance(recovered, bool) else None
    told_position = told.get("position")
    position = {
        channel: {name: text for name, text in place.items() if isinstance(text, str)}
        for channel, place in (told_position.items() if isinstance(told_position, dict) else ())
        if isinstance(place, dict)
    }
    since = _asked(message).get("since")
    if interest.recovered and isinstance(since, dict):
        position |= {channel: position[channel] | place for channel, place in since.items() if channel in position}
    interest.progress = Progress()
    interest.progress.begin(position)
    for subscription in interest.subscriptions:
        subscription.confirmed(interest.recovered, position)
