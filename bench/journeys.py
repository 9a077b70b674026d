"""How far a message walks through the code: calls, modules, and returns into a module already left.

    .venv/bin/python bench/journeys.py            # a minute at most; a table is printed
    .venv/bin/python bench/journeys.py --calls    # and each call of each step, to see where a reader loses the thread

A server with its embedded store runs in this process, and an HTTP client beside it; `sys.setprofile` records the calls of
functions of `crewel` in the order in which they begin. A step lasts from its first request until the server is quiet.
A *return* is a call that enters a module which an earlier part of the step has left: each makes a reader turn back a page.
The last column leaves out calls of pure packages, keys, metrics and settings, which a reader takes by their name.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from crewel import server
from crewel.delivery.records import BATCH_BLOCK
from crewel.settings import Settings, load
from crewel.standard_output import closed_pipe_ends

TOKEN = "journeys-need-an-operator-0123456789"
QUIET_S, LIMIT_S, IDLE_S = 0.3, 10.0, 3.0
SETTINGS = (
    "http.port=0",
    "http.demos=false",
    "bayeux.max_sessions_per_browser=-1",
    "bayeux.timeout_ms=120000",
    "bayeux.sweep_ms=60000",
    f"admin.token={TOKEN}",
)
ANONYMOUS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
VALUES = (
    "bayeux.",
    "qos.",
    "delivery.",
    "topics",
    "errors.",
    "addresses",
    "limits",
    "settings.",
    "storage.keys",
    "metrics",
)
ID = itertools.count(1)


@dataclass
class Trace:
    """The calls of one step, as (module, function)."""

    step: str
    calls: list[tuple[str, str]] = field(default_factory=list)

    @property
    def modules(self) -> int:
        return len({module for module, _ in self.calls})

    @property
    def returns(self) -> int:
        return returns(module for module, _ in self.calls)

    @property
    def acting(self) -> int:
        """Returns if calls of pure functions and of declarations are left out: they give a value, and nothing else happens."""
        return returns(module for module, _ in self.calls if not module.removeprefix("crewel.").startswith(VALUES))


def returns(modules: Iterable[str]) -> int:
    """Return how often a module is entered again that was left before."""
    left: set[str] = set()
    count, here = 0, ""
    for module in modules:
        if module != here:
            left.add(here)
            count += module in left
            here = module
    return count


class Tracer:
    """Records calls into the package. What an idle server does is not recorded, and no figures for operators, which it counts
    now and then whatever happens."""

    def __init__(self) -> None:
        self.trace = Trace("idle")
        self._idle: set[tuple[str, str, str]] = set()
        self._figures: set[str] = set()
        self._seen: dict[FrameType, bool] = {}
        self._modules: dict[str, str | None] = {}

    def _module(self, frame: FrameType) -> str | None:
        """The name of the module that the frame's code is in; None if it is not of the package."""
        file = frame.f_code.co_filename
        if file.startswith("<"):
            return None  # generated, such as the constructor of a record
        if file not in self._modules:
            name = frame.f_globals.get("__name__", "")
            self._modules[file] = name if name.startswith("crewel") else None
        return self._modules[file]

    def _root(self, frame: FrameType) -> FrameType:
        """The outermost function of the package on the stack: what the event loop called, or a supervised task."""
        root, outer = frame, frame.f_back
        while outer is not None:
            if self._module(outer) not in (None, "crewel.supervision"):
                root = outer
            outer = outer.f_back
        return root

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or (module := self._module(frame)) is None:
            return
        if frame in self._seen or frame.f_code.co_name in ANONYMOUS:
            return  # a coroutine that is resumed
        self._seen[frame] = True
        call, root = (module, frame.f_code.co_qualname), self._root(frame)
        rooted = root.f_code.co_qualname, *call
        if self.trace.step == "idle":
            self._idle.add(rooted)
            if (self._module(root) or "").startswith("crewel.admin."):
                self._figures.add(rooted[0])
        elif rooted not in self._idle and rooted[0] not in self._figures:
            self.trace.calls.append(call)

    @contextmanager
    def step(self, name: str) -> Iterator[Trace]:
        self.trace, self._seen = Trace(name), {}
        sys.setprofile(self)
        try:
            yield self.trace
        finally:
            sys.setprofile(None)

    async def until_quiet(self) -> None:
        """Wait until nothing has been called for a moment."""
        async with asyncio.timeout(LIMIT_S):
            before = -1
            while before != len(self.trace.calls):
                before = len(self.trace.calls)
                await asyncio.sleep(QUIET_S)


class Connection:
    """One connection over HTTP/1.1, a request at a time."""

    def __init__(self, url: str) -> None:
        self.host, self.path = url.removeprefix("http://").split("/", 1)
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.cookie = ""

    async def post(self, path: str, value: Any, **headers: str) -> Any:
        """The JSON that is answered."""
        if self.streams is None:
            host, _, port = self.host.partition(":")
            self.streams = await asyncio.open_connection(host, int(port))
        reader, writer = self.streams
        body = json.dumps(value).encode()
        fields = {"Host": self.host, "Content-Type": "application/json", "Cookie": self.cookie, **headers}
        head = "".join(f"{name}: {text}\r\n" for name, text in fields.items() if text)
        writer.write(f"POST /{path} HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        answer = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines[1:])}
        self.cookie = answer.get("set-cookie", self.cookie).partition(";")[0]
        return json.loads(await reader.readexactly(int(answer["content-length"])))

    async def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            await self.streams[1].wait_closed()


class Peer:
    """A long-polling client: it knows the wire, and nothing of the package. Like a browser it has two connections, one of
    them for connects."""

    def __init__(self, url: str) -> None:
        self.requests, self.connects = Connection(url), Connection(url)
        self.batch = 0
        self.client_id = self.reply_id = ""
        self.held: asyncio.Task[list[dict[str, Any]]] | None = None

    async def send(self, channel: str, **fields: Any) -> list[dict[str, Any]]:
        message = {"channel": channel, "id": str(next(ID)), "clientId": self.client_id, **fields}
        connection = self.connects if channel == "/meta/connect" else self.requests
        replies: list[dict[str, Any]] = await connection.post(connection.path, [message])
        self.connects.cookie = self.requests.cookie
        for reply in replies:
            if "successful" in reply:
                assert reply["successful"], reply
                self.batch = reply.get("ext", {}).get("ack", self.batch)
        return replies

    async def begin(self, *channels: str, name: str = "", ack: bool = False) -> None:
        """Handshake, subscribe, and let a connect be held."""
        ext: dict[str, Any] = {"session": {"name": name, "update": True} if name else {}}
        if ack:
            ext["ack"] = True
        [reply] = await self.send("/meta/handshake", version="1.0", supportedConnectionTypes=["long-polling"], ext=ext)
        self.client_id, self.reply_id, self.batch = reply["clientId"], reply["ext"]["session"]["replyId"], 0
        for channel in channels:
            await self.send("/meta/subscribe", subscription=channel)
        await self.connect(advice={"timeout": 0})
        self.hold()
        await asyncio.sleep(QUIET_S)

    async def connect(self, **fields: Any) -> list[dict[str, Any]]:
        update = fields.pop("update", None)
        ext = {"ack": self.batch, **({"update": update} if update else {})}
        return await self.send("/meta/connect", connectionType="long-polling", ext=ext, **fields)

    def hold(self, **fields: Any) -> None:
        """Send a connect that waits for the next message."""
        self.held = asyncio.create_task(self.connect(**fields))

    async def close(self) -> None:
        if self.held is not None:
            self.held.cancel()
            await asyncio.gather(self.held, return_exceptions=True)
        await self.requests.close()
        await self.connects.close()

    def move(self, url: str) -> None:
        """Go on at another server, as the same client of the same browser."""
        cookie = self.requests.cookie
        self.requests, self.connects = Connection(url), Connection(url)
        self.requests.cookie = self.connects.cookie = cookie

    async def receive(self) -> dict[str, Any]:
        """The message that ends the held connect."""
        assert self.held is not None
        messages = await self.held
        return next(message for message in messages if "successful" not in message)


async def journeys(tracer: Tracer, url: str) -> list[tuple[str, list[Trace]]]:
    """Walk each journey; its name, and its steps."""
    done: list[tuple[str, list[Trace]]] = []

    def finish(journey: str, *traces: Trace) -> None:
        done.append((journey, list(traces)))

    operator = Connection(url)
    publisher, plain, reliable = (Peer(url) for _ in range(3))
    await publisher.begin()
    await plain.begin("/room")
    await reliable.begin("/orders", name="client/reader/1", ack=True)
    await asyncio.sleep(IDLE_S)  # what a start leaves to be written
    with tracer.step("idle"):
        await asyncio.sleep(IDLE_S)
    persistent = {"ext": {"publish": {"persistent": True}}}

    async def hear(text: str) -> tuple[dict[str, Any], Trace]:
        with tracer.step("persistent publish") as published:
            await publisher.send("/orders", data=text, **persistent)
            heard = await reliable.receive()
            await tracer.until_quiet()
        return heard, published

    async def settle(**status: Any) -> Trace:
        with tracer.step("acknowledging connect, commit") as settled:
            reliable.hold(update=[status])
            await asyncio.sleep(QUIET_S)
            await tracer.until_quiet()
        return settled

    # The first of each kind fills caches and makes the topic known; the second is the one that is shown.
    for text in ("first", "second"):
        with tracer.step("transient publish") as transient:
            await publisher.send("/room", data=text)
            await plain.receive()
            await tracer.until_quiet()
        plain.hold()
        await asyncio.sleep(QUIET_S)
    finish("transient publish to a held poll", transient)

    for text in ("first", "second"):
        heard, published = await hear(text)
        settled = await settle(id=heard["ext"]["update"]["id"], state="OK")
    finish("persistent publish / acknowledging connect, commit", published, settled)

    heard, _ = await hear("poison")
    failed = await settle(id=heard["ext"]["update"]["id"], errorCode="user.update.error", message="too many")
    with tracer.step("redrive") as redriven:
        answer = await operator.post("admin/api/dead-letters/redrive", {"all": True}, Authorization=f"Bearer {TOKEN}")
        assert answer["redriven"] == 1, answer
        heard = await reliable.receive()
        await tracer.until_quiet()
    await settle(id=heard["ext"]["update"]["id"], state="OK")
    finish("failure, commit of its dead letter / redrive", failed, redriven)

    responder, caller = Peer(url), Peer(url)
    await responder.begin("/ask")
    await caller.begin()
    await caller.send("/meta/subscribe", subscription=f"/ret/{caller.reply_id}/*")
    for number in range(2):
        with tracer.step("request to answer") as asked:
            publish = {"replyTo": f"/ret/{caller.reply_id}/300000{number}"}
            await caller.send("/ask", data=7, ext={"publish": publish})
            request = await responder.receive()
            await responder.send(request["ext"]["replyTo"], data=49)
            await caller.receive()
            await tracer.until_quiet()
        responder.hold()
        caller.hold()
        await asyncio.sleep(QUIET_S)
    finish("request to answer", asked)
    await operator.close()
    for peer in (publisher, plain, reliable, responder, caller):
        await peer.close()
    return done


def table(done: list[tuple[str, list[Trace]]]) -> str:
    """The figures as Markdown; steps of a journey are separated by slashes."""

    def cell(traces: list[Trace], of: str) -> str:
        return " / ".join(str(len(trace.calls) if of == "calls" else getattr(trace, of)) for trace in traces)

    lines = ["| journey | calls | modules | returns | less pure functions |", "| --- | ---: | ---: | ---: | ---: |"]
    for journey, traces in done:
        cells = (cell(traces, of) for of in ("calls", "modules", "returns", "acting"))
        lines.append(f"| {journey} | {' | '.join(cells)} |")
    return "\n".join(lines)


async def restart(tracer: Tracer, settings: Settings) -> Trace:
    """Let one server end while a message is open at a client, and another one start that has the same store."""
    async with server.listening(settings, [], lambda: None) as url:
        peer = Peer(url)
        await peer.begin("/orders", name="client/reader/2", ack=True)
        await peer.send("/orders", data="open", ext={"publish": {"persistent": True}})
        message = await peer.receive()
        await peer.close()
    async with AsyncExitStack() as stack:
        with tracer.step("restart") as trace:
            url = await stack.enter_async_context(server.listening(settings, [], lambda: None))
            peer.move(url)
            peer.hold()
            again = await peer.receive()
            await tracer.until_quiet()
        assert again["id"] == message["id"], again
        assert peer.batch > BATCH_BLOCK, peer.batch
        await peer.close()
    return trace


async def run(settings: Settings) -> list[tuple[str, list[Trace]]]:
    """Serve and walk, in one event loop."""
    tracer = Tracer()
    async with server.listening(settings, [], lambda: None) as url:
        done = await journeys(tracer, url)
    return [*done, ("restart", [await restart(tracer, settings)])]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", action="store_true", help="print each call too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        done = asyncio.run(run(load(None, (*SETTINGS, f"storage.data_dir={directory}"))))
    if options.calls:
        for journey, traces in done:
            for trace in traces:
                print(f"\n## {journey}: {trace.step}\n")
                for module, function in trace.calls:
                    print(f"    {module.removeprefix('crewel.')}  {function}")
        print()
    print(table(done))


if __name__ == "__main__":
    with closed_pipe_ends():
        main()
