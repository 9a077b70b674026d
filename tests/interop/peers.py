"""Other people's Bayeux clients, each in a process of its own that does what a test tells it.

A driver (drivers/) takes a JSON command a line on stdin and answers each with a line; between answers it tells
what happens. Commands: open, subscribe, unsubscribe, publish, publishBinary, batch,
call, reload, loaded, disconnect. Events:

| event | fields | when |
| --- | --- | --- |
| handshaken | clientId, ext | a handshake succeeded, the first one or a later one |
| connecting | transport, ack | a connect goes out |
| connected | ack, advice | a connect was answered successfully |
| subscribed | channel | the server confirmed a subscription |
| publishing | channel | a message goes out (cometd alone) |
| delivered | channel, id, data | a message arrived on the wire: one event a copy |
| message | subscription, channel, data | the application's listener was called |
| ended | | the server ended the session for good |
| unsuccessful | channel, error, advice | a request failed or was refused |
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.patience import patience

HERE = Path(__file__).parent
DRIVERS = HERE / "drivers"
LIMIT_S = 15.0
IS_FULL = os.environ.get("FAULTS") == "full"
"""Whether `make faults` runs, with every version of a library on both lanes."""

Event = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A client library, its version and the transport it is made to use; `can` names what the library offers, and `lane`
    is the setting that chooses who answers its requests."""

    library: str
    version: str
    transport: str
    command: tuple[str, ...]
    can: frozenset[str]
    lane: str = "http.fast_lane=true"

    def __str__(self) -> str:
        by_aiohttp = "-aiohttp" if self.lane.endswith("false") else ""
        return f"{self.library}-{self.version}-{self.transport}{by_aiohttp}"


def _kinds(
    library: str, version: str, command: tuple[str, ...], can: str = "", *, both_lanes: bool = True
) -> list[Kind]:
    abilities = frozenset(can.split())
    by_aiohttp = Kind(library, version, "long-polling", command, abilities, lane="http.fast_lane=false")
    return [
        Kind(library, version, "long-polling", command, abilities),
        *([by_aiohttp] if both_lanes or IS_FULL else []),
        Kind(library, version, "websocket", command, abilities),
    ]


def _cometd(version: str) -> list[Kind]:
    # All versions have the HTTP of the same cometd-nodejs-client, so the newest one shows the other lane enough.
    command = ("node", str(DRIVERS / "cometd.mjs"), version)
    return _kinds("cometd", version, command, can="listeners batch call extensions", both_lanes=version == "9")


KINDS = [
    *_cometd("9"),
    *_cometd("8"),
    *_cometd("7"),
    *_cometd("3"),
    *_kinds("faye", "1.4", ("node", str(DRIVERS / "faye.mjs")), can="listeners batch"),
    *_kinds("aiocometd-ng", "0.5", (sys.executable, str(DRIVERS / "aiocometd_driver.py"))),
]


def kinds_that_can(ability: str) -> list[Kind]:
    """Return the kinds whose library offers this: what a library lacks makes no test, rather than a skipped one."""
    return [kind for kind in KINDS if ability in kind.can]


class PeerError(Exception):
    """The driver could not do what it was told: the client library threw, or the process ended."""


class Peer:
    """A running client. Every wait has a limit and ends in a failure that shows the last events."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.events: list[Event] = []
        self.client_id = ""
        self.transport = ""
        self._answers: dict[int, asyncio.Future[Event]] = {}
        self._news = asyncio.Condition()

    async def start(self) -> None:
        """Start the driver; `stop` must follow."""
        environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        self._process = await asyncio.create_subprocess_exec(
            *self.kind.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
            limit=2**20,
        )
        self._reading = asyncio.create_task(self._read())

    async def stop(self) -> None:
        """End the driver as a closed tab would: without a word to the server."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading

    @property
    def ending(self) -> str:
        """How the driver has ended, which it does by itself only if it fails; empty while it runs."""
        status = self._process.returncode
        return "" if status is None else f"its driver has ended with status {status}"

    async def open(
        self,
        url: str,
        *,
        extensions: Sequence[str] = (),
        transports: Sequence[str] = (),
        untold: Sequence[str] = (),
        **configure: Any,
    ) -> None:
        """Make the handshake and wait for the first answered connect; `configure` are options of the cometd client. The driver
        of this client leaves out the events that `untold` names."""
        answer = await self.do(
            "open",
            url=url,
            extensions=extensions,
            transports=transports or (self.kind.transport,),
            untold=untold,
            configure=configure,
            retry_s=0.1,
        )
        self.client_id, self.transport = answer["clientId"], answer["transport"]

    async def subscribe(self, *channels: str) -> None:
        """Subscribe to each channel; a refusal fails the test."""
        for channel in channels:
            answer = await self.do("subscribe", channel=channel)
            assert answer["successful"], answer

    async def publish(self, channel: str, data: Any) -> None:
        """Publish and waits for the acknowledgement; a refusal fails the test."""
        answer = await self.do("publish", channel=channel, data=data)
        assert answer["successful"], answer

    async def do(self, command: str, **fields: Any) -> Event:
        """Return the driver's answer to this command."""
        number = len(self._answers) + 1
        self._answers[number] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number, "do": command, **fields}).encode() + b"\n")
        try:
            answer = await asyncio.wait_for(asyncio.shield(self._answers[number]), LIMIT_S * patience())
        except TimeoutError:
            raise self._failed(f"no answer to {command} {fields}") from None
        if "failed" in answer:
            raise self._failed(f"{command} {fields}: {answer['failed']}")
        return answer

    def told(self, event: str, **fields: Any) -> list[Event]:
        """Return the events of this name so far whose fields have these values."""
        return [e for e in self.events if e["event"] == event and fields.items() <= e.items()]

    def heard(self, subscription: str | None = None) -> list[Any]:
        """Return the data that listeners were called with, in order; of one subscription if it is named."""
        wanted = {} if subscription is None else {"subscription": subscription}
        return [event["data"] for event in self.told("message", **wanted)]

    async def until(self, met: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
        """Wait until the condition holds, looking again at each event."""
        try:
            async with asyncio.timeout(limit_s * patience()), self._news:
                await self._news.wait_for(met)
        except TimeoutError:
            raise self._failed(f"did not come within {limit_s} s: {what}") from None

    async def hears(self, *data: Any) -> None:
        """Wait until listeners have been called with at least all of these."""
        await self.until(lambda: all(item in self.heard() for item in data), f"messages {data}")

    async def tells(self, event: str, count: int = 1, **fields: Any) -> None:
        """Wait for this many events of this name with these fields, earlier ones included."""
        await self.until(lambda: len(self.told(event, **fields)) >= count, f"{count} x {event} {fields}")

    def note(self, event: Event) -> None:
        """Keep an event; others may listen here."""
        self.events.append(event)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            event = json.loads(line)
            if "answer" in event:
                self._answers[event["answer"]].set_result(event)
                continue
            self.note(event)
            async with self._news:
                self._news.notify_all()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result({"failed": "the driver ended"})

    def _failed(self, what: str) -> PeerError:
        last = "\n".join(json.dumps(event) for event in self.events[-12:])
        return PeerError(f"{self.kind}: {what}; the last events:\n{last}")
