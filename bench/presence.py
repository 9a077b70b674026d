"""What the presence of a channel costs, beside Centrifuge, the library of Centrifugo.

    python bench/presence.py            medians of 5, written into bench/RESULTS.md (about 40 seconds)
    python bench/presence.py --quick    printed only

Both servers run at the same time and are asked in turn. On each, watchers are on one channel and see all changes, while others
enter and leave it, each after the answer to the one before. What is measured is the processor time of the server. Nothing is
bound to a core. The same clients, in Python, speak to both servers over WebSockets, in JSON.
"""

import asyncio
import itertools
import json
import statistics
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import aiohttp
from peers import BENCH, BUILD, Missing, build, is_older, tool
from section import Section, parser, spread
from workers import cpu

CENTRIFUGE = BENCH / "peers" / "centrifuge"
WATCHERS, MEMBERS, RATE = 50, 10, 50
CHANNEL = "/room"
LIMIT_S = 20.0


class Client(ABC):
    """One connection, which counts the changes that it sees."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.seen = 0
        self._socket = socket
        self._ids = itertools.count(1)
        self._answers: dict[str, asyncio.Future[Any]] = {}
        self._reading = asyncio.create_task(self._read())

    @abstractmethod
    async def begin(self, name: str) -> None:
        """Connect."""

    @abstractmethod
    async def watch(self) -> None:
        """Be a member, and see the changes of the channel."""

    @abstractmethod
    async def enter(self) -> None:
        """Be a member."""

    @abstractmethod
    async def leave(self) -> None:
        """Be a member no more."""

    @abstractmethod
    async def take(self, text: str) -> None:
        """Look at what has come."""

    async def close(self) -> None:
        self._reading.cancel()
        await self._socket.close()

    async def answered(self, key: str, text: str) -> Any:
        """Send this, and wait for the answer with this key."""
        self._answers[key] = future = asyncio.get_running_loop().create_future()
        await self._socket.send_str(text)
        async with asyncio.timeout(LIMIT_S):
            return await future

    def resolve(self, key: str, answer: Any) -> None:
        future = self._answers.pop(key, None)
        if future is not None:
            future.set_result(answer)

    async def send(self, text: str) -> None:
        await self._socket.send_str(text)

    async def _read(self) -> None:
        async for message in self._socket:
            await self.take(message.data)


class OfCrewel(Client):
    """A session that connects over a WebSocket."""

    async def begin(self, name: str) -> None:
        kinds, session = ["websocket"], {"name": f"client/{name}/1"}
        asked = {"version": "1.0", "supportedConnectionTypes": kinds, "ext": {"session": session}}
        self._id = (await self._ask("/meta/handshake", **asked))["clientId"]
        await self._connect()

    async def watch(self) -> None:
        await self._ask("/meta/subscribe", subscription=f"/__sys__presence{CHANNEL}")
        await self.enter()

    async def enter(self) -> None:
        await self._call("enter", {"name": "Joe"})

    async def leave(self) -> None:
        await self._call("leave", None)

    async def take(self, text: str) -> None:
        for message in json.loads(text):
            channel = message["channel"]
            if channel.startswith("/__sys__presence"):
                self.seen += len(message["data"]["changes"])
            elif channel == "/meta/connect":
                await self._connect()
            elif channel != "/service/presence" or "data" in message:
                self.resolve(message["id"], message)

    async def _connect(self) -> None:
        fields = {"channel": "/meta/connect", "clientId": self._id, "connectionType": "websocket"}
        await self.send(json.dumps([fields]))

    async def _call(self, action: str, data: Any) -> None:
        asked = {"channel": CHANNEL, "action": action, "data": data}
        answer = await self._ask("/service/presence", clientId=self._id, data=asked)
        assert answer["successful"], answer

    async def _ask(self, channel: str, **fields: Any) -> Any:
        key = str(next(self._ids))
        own = {"clientId": self._id} if channel != "/meta/handshake" else {}
        message = {"channel": channel, "id": key, **own, **fields}
        return await self.answered(key, json.dumps([message]))


class OfCentrifuge(Client):
    """A client of Centrifuge's protocol, in JSON. It is present while it is subscribed."""

    async def begin(self, name: str) -> None:
        await self._ask(connect={"name": name, "data": {"name": "Joe"}})

    async def watch(self) -> None:
        await self._ask(subscribe={"channel": CHANNEL})

    async def enter(self) -> None:
        await self._ask(subscribe={"channel": CHANNEL, "data": {"is": "a member"}})

    async def leave(self) -> None:
        await self._ask(unsubscribe={"channel": CHANNEL})

    async def take(self, text: str) -> None:
        for line in text.splitlines():
            message = json.loads(line)
            if not message:
                await self.send("{}")  # a ping
            elif "push" in message:
                self.seen += "join" in message["push"] or "leave" in message["push"]
            else:
                self.resolve(str(message["id"]), message)

    async def _ask(self, **command: Any) -> None:
        number = next(self._ids)
        answer = await self.answered(str(number), json.dumps({"id": number, **command}))
        assert "error" not in answer, answer


class Arm:
    """One server with its clients."""

    def __init__(self, name: str, pid: int, watchers: list[Client], members: list[Client]) -> None:
        self.name, self._pid, self._watchers, self._members = name, pid, watchers, members

    async def ask(self, seconds: float) -> dict[str, float]:
        """What one round gives: microseconds for each change, with the answer to who makes it; and how many of the changes were
        seen."""
        before, seen, changes = cpu([self._pid]), self._seen(), 0
        begun = perf_counter()
        for member, action in self._turns():
            await asyncio.sleep(begun + changes / RATE - perf_counter())
            if perf_counter() - begun > seconds and action == "enter":
                break
            await getattr(member, action)()
            changes += 1
        wanted = seen + changes * len(self._watchers)
        until = perf_counter() + LIMIT_S
        while self._seen() < wanted and perf_counter() < until:
            await asyncio.sleep(0.01)
        spent = cpu([self._pid]) - before
        return {"change": spent / changes * 1e6, "seen": (self._seen() - seen) / (wanted - seen), "count": changes}

    def _seen(self) -> int:
        return sum(each.seen for each in self._watchers)

    def _turns(self) -> Iterator[tuple[Client, str]]:
        for member in itertools.cycle(self._members):
            yield member, "enter"
            yield member, "leave"


@contextmanager
def _made() -> Iterator[list[str]]:
    made = BUILD / "centrifuge"
    if is_older(made, *CENTRIFUGE.glob("*")):
        build("centrifuge", [tool("go"), "build", "-o", str(made), "."], CENTRIFUGE)
    yield [str(made)]


@contextmanager
def _crewel() -> Iterator[list[str]]:
    with TemporaryDirectory() as directory:
        sets = (f"storage.data_dir={directory}", "bayeux.max_sessions_per_browser=-1")
        yield [sys.executable, "-m", "crewel", "serve", "--port", "0", *(f"--set={each}" for each in sets)]


@asynccontextmanager
async def serving(name: str, http: aiohttp.ClientSession) -> AsyncIterator[Arm]:
    """A server with its clients."""
    starts, kind = (_crewel, OfCrewel) if name == "Crewel" else (_made, OfCentrifuge)
    with starts() as command:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=asyncio.subprocess.DEVNULL)
        clients: list[Client] = []
        try:
            assert process.stdout is not None
            url = (await process.stdout.readline()).decode().split()[1]
            for number in range(WATCHERS + MEMBERS):
                clients.append(client := kind(await http.ws_connect(url)))
                await client.begin(f"user{number}")
            watchers, members = clients[:WATCHERS], clients[WATCHERS:]
            for each in watchers:
                await each.watch()
            yield Arm(name, process.pid, watchers, members)
        finally:
            for each in clients:
                await each.close()
            process.terminate()
            await process.wait()


async def measure(rounds: int, seconds: float) -> Section:
    """The section of bench/RESULTS.md."""
    found: dict[str, list[dict[str, float]]] = {"Crewel": [], "Centrifuge": []}
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        arms = [await stack.enter_async_context(serving(name, http)) for name in found]
        for arm in arms:
            await arm.ask(seconds / 2)
        for number in range(rounds):
            for arm in arms if number % 2 else arms[::-1]:
                found[arm.name].append(await arm.ask(seconds))
    rows = [
        (
            name,
            spread([each["change"] for each in asked]),
            spread([each["change"] / WATCHERS for each in asked]),
            f"{100 * min(each['seen'] for each in asked):.1f} %",
        )
        for name, asked in found.items()
    ]
    ratios = zip(found["Crewel"], found["Centrifuge"], strict=True)
    ratio = statistics.median(own["change"] / other["change"] for own, other in ratios)
    return Section(
        "presence",
        "Presence",
        f"{WATCHERS} members of a channel see {RATE} joins and leaves a second, which others make one after another. Medians of"
        f" {rounds} interleaved rounds of {seconds:g} s (in brackets the lowest and the highest).",
        ("server", "CPU µs per change:", "the same, per watcher:", "changes seen, the worst round:"),
        rows,
        conclusion=f"A change costs {ratio:.2f} of one in Centrifuge. Its join and leave messages are best effort; Crewel"
        " numbers them, so that clients notice a gap. A channel without presence pays nothing: a delivery does not know of it.",
    )


def main() -> None:
    """Measure and write."""
    options = parser(__doc__, "two short rounds").parse_args()
    try:
        section = asyncio.run(measure(2, 1.5) if options.quick else measure(5, 3))
    except Missing as missing:
        sys.exit(str(missing))
    section.publish(is_part=options.quick)


if __name__ == "__main__":
    main()
