"""Receivers that settle their messages as these say: `{"n": 1, "code": "user.update.error", "why": "no", "times": 1}`.

`n` is the message's number. It fails with `code` (an empty one: with an exception without one) and the words `why`, the first
`times` times or always; after `hold` ms, if given, in which it says every `working` ms that it is still at work. With `only`
none but the receiver of that name fails; the official client knows that.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Protocol

from crewel.client import Client, Event, Message, Transition
from tests.server_process import LIMIT_S

DRIVERS = Path(__file__).parents[1] / "interop" / "drivers"


class Heard(NamedTuple):
    """One call of a listener."""

    n: int
    redeliver: int
    id: str
    at: float
    """When, by a clock that does not jump."""


class Receiver(Protocol):
    """A session of this name that hears this channel."""

    notes: Notes

    async def start(self, url: str, transport: str, name: str, channel: str, session: dict[str, Any]) -> None:
        """Shake hands, asking for these fields of `ext.session`, and subscribe."""

    async def leave(self) -> None:
        """Say goodbye."""


class Notes:
    """What a receiver has seen, and waiting for it."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.rejected: list[dict[str, Any]] = []
        self.subscribed = 0
        self._news = asyncio.Event()

    def hear(self, n: int, redeliver: int, message_id: str) -> None:
        """A listener was called."""
        self.heard.append(Heard(n, redeliver, message_id, monotonic()))
        self.tell()

    def tell(self) -> None:
        """Something has changed."""
        self._news.set()

    def times(self, n: int) -> list[int]:
        """The redeliver counts with which a message was heard."""
        return [each.redeliver for each in self.heard if each.n == n]

    async def until(self, holds: Callable[[Notes], bool]) -> None:
        """Wait until this holds of the notes."""
        try:
            async with asyncio.timeout(LIMIT_S):
                while not holds(self):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"in vain: {self.heard} {self.rejected} {self.subscribed}") from None

    async def hears(self, *numbers: int) -> None:
        """Wait until each of these was heard."""
        await self.until(lambda notes: set(numbers) <= {each.n for each in notes.heard})


class ByNode:
    """The official client under Node, with update.js."""

    def __init__(self, version: str = "9") -> None:
        self.notes = Notes()
        self._version = version

    async def start(self, url: str, transport: str, name: str, channel: str, session: dict[str, Any]) -> None:
        pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
        told = (url, transport, name, channel, json.dumps(session), self._version)
        command = ("node", str(DRIVERS / "update.mjs"), *told)
        self._process = await asyncio.create_subprocess_exec(*command, **pipes)  # type: ignore[arg-type]
        self._reading = asyncio.create_task(self._read())
        await self.notes.until(lambda notes: notes.subscribed > 0)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            told = json.loads(line)
            event = told.pop("event")
            if event == "heard":
                self.notes.hear(told["n"], told["redeliver"], told["id"])
            elif event == "rejected":
                self.notes.rejected.append(told)
            elif event == "subscribed":
                self.notes.subscribed += 1
            self.notes.tell()

    async def vanish(self) -> None:
        """End as a crashed page does, without a word to the server."""
        self._process.kill()
        await self._process.wait()
        await self._reading

    async def leave(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(LIMIT_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
        await self._reading


class Coded(Exception):
    """An exception that says what it means."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.error_code = code


class ByPython:
    """The Python client, with a callback."""

    def __init__(self) -> None:
        self.notes = Notes()
        self._times: Counter[int] = Counter()
        self._is_new = False
        """Whether this is a new session of the client, whose subscriptions the server may not know yet."""

    async def start(self, url: str, transport: str, name: str, channel: str, session: dict[str, Any]) -> None:
        self._client = Client(
            url,
            transports=[transport],
            update=True,
            name=name,
            session=session,
            on_rejected=self._rejected,
            on_state=self._moved,
        )
        await self._client.__aenter__()
        assert self._client.settles
        await self._client.subscribe(channel, self._hear)
        self.notes.subscribed += 1

    def _rejected(self, status: dict[str, Any]) -> None:
        self.notes.rejected.append(status)
        self.notes.tell()

    def _moved(self, step: Transition) -> None:
        if step.event is Event.HANDSHAKEN:
            self._is_new = self.notes.subscribed > 0
        elif step.event is Event.ANSWERED and self._is_new:
            # The client has subscribed again by itself: the first connect of a session waits for that.
            self._is_new = False
            self.notes.subscribed += 1
            self.notes.tell()

    async def _hear(self, message: Message) -> None:
        data = message.data
        self._times[data["n"]] += 1
        self.notes.hear(data["n"], message.redeliver, message.id or "")
        if "hold" in data:
            await self._work(message, data["hold"] / 1000, data.get("working", 0) / 1000)
        if "code" in data and self._times[data["n"]] <= data.get("times", 1_000):
            raise Coded(data["code"], data["why"]) if data["code"] else ValueError(data["why"])

    async def _work(self, message: Message, hold_s: float, working_s: float) -> None:
        end = monotonic() + hold_s
        while (left := end - monotonic()) > 0:
            await asyncio.sleep(min(left, working_s or left))
            if working_s:
                message.working()

    async def leave(self) -> None:
        await self._client.__aexit__(None, None, None)
