"""Drives aiocometd-ng over the same lines as the Node drivers (see peers.py).

It has no listeners (one stream of messages), no batches, no remote calls and no acknowledgements.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from typing import Any

from aiocometd_ng import Client, ConnectionType, Extension
from aiocometd_ng.exceptions import ServerError

Line = dict[str, Any]


def tell(line: Line) -> None:
    """Print one line for the test."""
    print(json.dumps(line), flush=True)


class Witness(Extension):
    """Tell what goes over the wire, below everything that the client library does with it."""

    async def incoming(self, payload: list[Line], headers: Any = None) -> None:
        for message in payload:
            self._received(message)

    async def outgoing(self, payload: list[Line], headers: Any) -> None:
        for message in payload:
            if message["channel"] == "/meta/connect":
                tell({"event": "connecting", "transport": message["connectionType"]})

    def _received(self, message: Line) -> None:
        channel = message["channel"]
        if "data" in message:
            tell({"event": "delivered", "channel": channel, "data": message["data"]})
        elif not message["successful"]:
            details = {"error": message.get("error"), "advice": message.get("advice")}
            tell({"event": "unsuccessful", "channel": channel, **details})
        elif channel == "/meta/handshake":
            tell({"event": "handshaken", "clientId": message["clientId"]})
        elif channel == "/meta/connect":
            tell({"event": "connected", "advice": message.get("advice")})
        elif channel == "/meta/subscribe":
            tell({"event": "subscribed", "channel": message["subscription"]})


class Driver:
    """One client and the task that reads its messages."""

    client: Client
    reading: asyncio.Task[None]

    async def open(self, command: Line) -> Line:
        types = [ConnectionType(name) for name in command["transports"]]
        # A connection_timeout other than 0 uses wait_for(loop=...), which Python 3.10 removed.
        self.client = Client(command["url"], types, connection_timeout=0, max_pending_count=0, extensions=[Witness()])
        await self.client.open()
        self.reading = asyncio.create_task(self._read())
        return {"clientId": self.client._transport.client_id, "transport": self.client.connection_type.value}

    async def _read(self) -> None:
        async for message in self.client:
            tell({"event": "message", "subscription": None, "channel": message["channel"], "data": message["data"]})

    async def subscribe(self, command: Line) -> Line:
        return await outcome(self.client.subscribe(command["channel"]))

    async def unsubscribe(self, command: Line) -> Line:
        return await outcome(self.client.unsubscribe(command["channel"]))

    async def publish(self, command: Line) -> Line:
        return await outcome(self.client.publish(command["channel"], command["data"]))

    async def disconnect(self, command: Line) -> Line:
        self.reading.cancel()
        return await outcome(self.client.close())


async def outcome(request: Any) -> Line:
    """Return what became of a request in the words that all drivers use."""
    try:
        await request
    except ServerError as refusal:
        return {"successful": False, "error": refusal.error}
    return {"successful": True, "error": None}


async def carry_out(driver: Driver, command: Line) -> None:
    """Answers one command; a failure is an answer too."""
    try:
        answer = await getattr(driver, command["do"])(command)
    except Exception:  # noqa: BLE001 - whatever the library throws is the answer
        answer = {"failed": traceback.format_exc()}
    tell({"answer": command["id"], **answer})


async def obey() -> None:
    """Carrie out the commands on stdin, side by side, until it ends."""
    lines = asyncio.StreamReader(limit=2**20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    driver = Driver()
    running: set[asyncio.Task[None]] = set()
    while line := await lines.readline():
        task = asyncio.create_task(carry_out(driver, json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)


asyncio.run(obey())
