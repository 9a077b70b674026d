"""A bare long-polling client, with only what the chat needs: it shows the wire, not a library."""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

import aiohttp

LIMIT_S = 30.0

Fields = dict[str, Any]


class Member:
    """One session. Made by `async with Member(url)`; what is delivered to it lies in `heard`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ids = count(1)
        self.heard: list[Fields] = []
        self.client_id = ""

    async def __aenter__(self) -> "Member":
        # The jar must take the cookie of an address without a name.
        self._http = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
        reply = await self.ask("/meta/handshake", version="1.0", supportedConnectionTypes=["long-polling"])
        self.client_id = reply["clientId"]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def ask(self, channel: str, **fields: Any) -> Fields:
        """Send one message; keep what was delivered with the reply and return the reply."""
        message = {"channel": channel, "id": str(next(self._ids)), **fields}
        if self.client_id:
            message["clientId"] = self.client_id
        async with asyncio.timeout(LIMIT_S), self._http.post(self._url, json=[message]) as response:
            replies = await response.json()
        self.heard += [reply for reply in replies if "data" in reply]
        return next(reply for reply in replies if reply.get("id") == message["id"])

    async def subscribe(self, *channels: str) -> None:
        reply = await self.ask("/meta/subscribe", subscription=list(channels))
        assert reply["successful"], reply

    async def publish(self, channel: str, data: Any) -> Fields:
        return await self.ask(channel, data=data)

    async def connect(self) -> Fields:
        return await self.ask("/meta/connect", connectionType="long-polling")

    async def hear(self, wanted: Callable[[Fields], bool]) -> Fields:
        """Connect until something wanted has been delivered; return it and forget what came before it."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                for place, delivery in enumerate(self.heard):
                    if wanted(delivery):
                        del self.heard[: place + 1]
                        return delivery
                await self.connect()

    async def hear_names(self, room: str, *names: str) -> None:
        """Wait for exactly this list of members."""
        expected = {"channel": f"/members/{room}", "data": list(names)}
        await self.hear(lambda delivery: delivery == expected)

    async def join(self, name: str, room: str = "demo") -> None:
        """Do what CometD's chat clients do."""
        await self.subscribe(f"/chat/{room}", f"/members/{room}")
        await self.publish(f"/chat/{room}", {"user": name, "membership": "join", "chat": f"{name} has joined"})
        reply = await self.publish("/service/members", {"user": name, "room": f"/chat/{room}"})
        assert reply["successful"], reply
