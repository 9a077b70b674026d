"""Applications on the Python client, in a process that may be killed at any moment: `python -m tests.faults.application SPEC`.

SPEC is `{"url", "seed", "apps": [{"name", "resume", "transport", "settle", "channels"}]}`. An application hears its channels,
some of them from the start and some late, and what is addressed to it. It says on its standard output, a JSON line each, what
it has taken or rejected before its listener returns, what takes its session over, and when it listens to everything.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from typing import Any

from crewel.client import (
    BackoffRule,
    Client,
    ClientError,
    Event,
    Message,
    NameTaken,
    NotConnectedError,
    Subscription,
    Transition,
    TransportError,
)

QUICK = BackoffRule(initial=0.05, factor=1.5, maximum=0.3)
REJECTED = "user.update.error"
LATEST_S = 0.6
"""How late a listener may come."""


def tell(event: str, name: str, **fields: Any) -> None:
    """Say it so that a kill right after this cannot take it back."""
    os.write(1, json.dumps({"event": event, "name": name, **fields}).encode() + b"\n")


class Application:
    """One application, from its first connect to the end of the process."""

    def __init__(self, url: str, spec: dict[str, Any], rng: random.Random) -> None:
        self._url, self._spec, self._rng = url, spec, rng
        self._name: str = spec["name"]
        self._resume: str | None = spec.get("resume")

    async def run(self) -> None:
        """Live, and begin again when the session is over."""
        while True:
            try:
                await self._live()
            except* NameTaken:
                self._resume = None  # it may be an old one; a session without a client can be had by its name
            except* ClientError:
                pass
            await asyncio.sleep(0.1)

    async def _live(self) -> None:
        settles = {} if self._spec["settle"] is None else {"update": True, "settle": self._spec["settle"]}
        client = Client(
            self._url,
            transports=[self._spec["transport"]],
            name=self._name,
            resume=self._resume,
            leave=True,
            backoff=QUICK,
            **settles,
        )
        self._client = client
        client.on_state(self._moved)
        channels = self._spec["channels"]
        late = [channel for channel in channels if self._rng.random() < 0.7]
        early = {channel: await client.subscribe(channel) for channel in channels if channel not in late}
        async with client, asyncio.TaskGroup() as group:
            for channel, subscription in early.items():
                group.create_task(self._read(channel, subscription))
            self._rng.shuffle(late)
            for channel in late:
                await asyncio.sleep(self._rng.uniform(0, LATEST_S))
                group.create_task(self._read(channel, await self._subscribe(channel)))
            await asyncio.sleep(self._rng.uniform(0, LATEST_S))
            listener = client.listen("/**", unclaimed=True)
            tell("ready", self._name)
            async for message in listener:
                await self._take(message)

    def _moved(self, step: Transition) -> None:
        if step.event is Event.HANDSHAKEN:
            self._resume = self._client.resume
            tell("resume", self._name, resume=self._resume)

    async def _read(self, channel: str, subscription: Subscription) -> None:
        while True:
            async for message in subscription:
                await self._take(message)
            subscription = await self._subscribe(channel)  # its topic was erased

    async def _subscribe(self, channel: str) -> Subscription:
        while True:
            try:
                return await self._client.subscribe(channel)
            except (TransportError, NotConnectedError):  # there is no server at the moment
                await asyncio.sleep(0.1)

    async def _take(self, message: Message) -> None:
        """Take a message, or reject it. Asking for the next one settles it."""
        if self._rng.random() < 0.2:
            await asyncio.sleep(self._rng.uniform(0, 0.02))
        if message.is_erased:
            return
        if self._spec["settle"] is not None and self._rng.random() < 0.03:
            tell("rejected", self._name, id=message.id)
            message.reject(REJECTED, "no")
        else:
            tell("taken", self._name, id=message.id)


async def main(spec: dict[str, Any]) -> None:
    """All applications of the process."""
    rng = random.Random(spec["seed"])
    async with asyncio.TaskGroup() as group:
        for each in spec["apps"]:
            group.create_task(Application(spec["url"], each, random.Random(rng.random())).run())


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
