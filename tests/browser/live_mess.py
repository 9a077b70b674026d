"""A server with eight faults and real receivers, which take their messages again as soon as an operator has cured what stops
them.

By hand, for somebody who has not seen the page: `.venv/bin/python -m tests.browser.live_mess /tmp/mess` prints the address of
the page, and what has to be done beside it. It ends with Control-C.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from crewel.client import Client, Message
from tests.admin.desk import SETS, STORED, TOKEN, Desk, Receiver
from tests.faults.disks import SmallDisk, can_mount
from tests.faults.health import store_pid
from tests.functional.wire import until
from tests.security.issuer import secret_file, signed
from tests.server_process import Server

EVERYTHING: Final[dict[str, Any]] = {"subscribe": ["/**"], "publish": ["/**"]}
PUBLISHED: Final = {"slow": 20, "kitchen": 6, "printer": 2, "archive": 8, "clerk": 2, "away": 4}
"""Messages for each receiver, on a channel of its name."""
ROOM: Final = 3
"""What the queue of the archive holds."""
CURES: Final = {
    "kitchen": "repair the program of the kitchen, which rejects all its messages",
    "archive": "start the archive, whose queue is full",
    "clerk": "give the clerk a new token",
    "slow": "make the slow one faster",
    "away": "start the one that is away",
}
"""What an operator does beside the page. The printer needs no more than to be released."""


class Receivers:
    """Programs that use the client, each with a fault until that is cured. They run in a thread of their own."""

    def __init__(self, server: Server) -> None:
        self._url = f"{server.base}/cometd"
        self._cured = {name: asyncio.Event() for name in CURES}
        self._ready: dict[str, threading.Event] = {name: threading.Event() for name in PUBLISHED}
        self._refused: set[str | None] = set()
        self.taken: dict[str, int] = dict.fromkeys(PUBLISHED, 0)
        """How many messages each of them has taken."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._tasks = [self._spawn(each) for each in (self._kitchen(), self._printer(), self._clerk(), self._slow())]
        self._tasks += [self._spawn(self._absent(name, **more)) for name, more in self._absentees()]
        for name, ready in self._ready.items():
            assert ready.wait(20), f"{name} has not subscribed"

    def _spawn(self, work: Coroutine[Any, Any, None]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    @staticmethod
    def _absentees() -> list[tuple[str, dict[str, Any]]]:
        return [("archive", {"queue": {"maxEntries": ROOM, "onOverflow": "deadMessage"}}), ("away", {})]

    def cure(self, name: str) -> None:
        """Do what an operator does beside the page."""
        self._loop.call_soon_threadsafe(self._cured[name].set)

    def close(self) -> None:
        """End all programs."""
        for task in self._tasks:
            task.cancel()

        async def cancelled() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(cancelled(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # The programs

    async def _serve(
        self, name: str, handle: Callable[[Message], Awaitable[None]], *, token: Any = None, **options: Any
    ) -> None:
        usual = signed(sub=name, **EVERYTHING)
        async with Client(self._url, name=f"{name}/1", token=token or usual, update=True, **options) as client:
            subscription = await client.subscribe(f"/{name}", bound=1000)
            self._ready[name].set()
            async for message in subscription:
                await handle(message)

    def _take(self, name: str, message: Message) -> None:
        message.settle()
        self.taken[name] += 1

    async def _kitchen(self) -> None:
        async def handle(message: Message) -> None:
            if self._cured["kitchen"].is_set():
                self._take("kitchen", message)
            else:
                message.reject("user.update.illegalArgument", "the price is no number")

        await self._serve("kitchen", handle)

    async def _printer(self) -> None:
        """It puts itself on hold at each message that comes for the first time while it has no paper: once."""

        async def handle(message: Message) -> None:
            if self._refused:
                self._take("printer", message)
            else:
                self._refused.add(message.id)
                message.reject("user.update.holdback", "out of paper")

        await self._serve("printer", handle)

    async def _clerk(self) -> None:
        old = signed(sub="clerk", exp=int(time.time()) + 3, **EVERYTHING)

        async def token() -> str:
            return signed(sub="clerk", **EVERYTHING) if self._cured["clerk"].is_set() else old

        async def handle(message: Message) -> None:
            self._take("clerk", message)

        await self._serve("clerk", handle, token=token)

    async def _slow(self) -> None:
        async def handle(message: Message) -> None:
            try:
                async with asyncio.timeout(30):
                    await self._cured["slow"].wait()
            except TimeoutError:
                pass
            self._take("slow", message)

        await self._serve("slow", handle, max_open=1)

    async def _absent(self, name: str, **session: Any) -> None:
        """It subscribes, ends without a word, and comes back when it is started."""
        token, subscribed = signed(sub=name, **EVERYTHING), {"session": session} if session else {}
        async with Client(self._url, name=f"{name}/1", token=token, update=True, leave=True, **subscribed) as client:
            await client.subscribe(f"/{name}")
        self._ready[name].set()
        await self._cured[name].wait()

        async def handle(message: Message) -> None:
            self._take(name, message)

        await self._serve(name, handle, name_timeout=0, **subscribed)


class LiveMess:
    """The server, its receivers, and its disk if a test may make one."""

    def __init__(self, directory: Path) -> None:
        self._undo = ExitStack()
        self.disk = SmallDisk(directory, 400) if can_mount() else None
        if self.disk is not None:
            self._undo.callback(self.disk.close)
        sets = [
            *SETS,
            "security.policy=jwt",
            f"security.jwt_keys={secret_file(directory)}",
            "bayeux.max_interval_ms=600000",  # sessions live long, as those of telephones do
            *(self.disk.sets if self.disk is not None else ("storage.url=",)),
        ]
        self.server = Server(["--port=0", *(f"--set={text}" for text in sets)], directory)
        self._undo.callback(self.server.end_well)
        self.receivers = Receivers(self.server)
        self._undo.callback(self.receivers.close)
        self._publish()

    def _publish(self) -> None:
        desk, speaker = Desk(self.server), Receiver(self.server).be(token=TOKEN)
        until(lambda: "token" in [each["kind"] for each in desk.get("/sessions/clerk/1")["causes"]])
        for name, count in PUBLISHED.items():
            for number in range(count):
                speaker.publish(f"/{name}", {"order": number}, ext=STORED)
        speaker.disconnect()
        until(lambda: desk.get("/sessions/printer/1")["holdback"])
        until(lambda: [each for each in desk.get("/sessions/archive/1")["causes"] if each.get("count") == 5])

    def stop_store(self) -> None:
        """Let the store hang: an operator ends its process, and the server starts it again."""
        os.kill(store_pid(self.server), signal.SIGSTOP)

    def close(self) -> None:
        """End all of it."""
        self._undo.close()


def main(directory: Path) -> None:
    """Make the mess, and do what files in the directory ask for."""
    directory.mkdir(parents=True)
    mess = LiveMess(directory)
    wishes: dict[str, Callable[[], None]] = {name: (lambda name=name: mess.receivers.cure(name)) for name in CURES}  # type: ignore[misc]
    wishes["store-hangs"] = mess.stop_store
    print(f"page: {mess.server.base}/admin/   token: {TOKEN}")
    print("beside the page, an operator can:")
    for name, text in CURES.items():
        print(f"  touch {directory}/{name}: {text}")
    print(f"  touch {directory}/store-hangs: the seventh fault; its cure is to end the process of the store")
    if mess.disk is not None:
        disk = mess.disk
        wishes["disk-full"] = lambda: disk.fill(mess.server)
        print(f"  touch {directory}/disk-full: the eighth fault; its cure is to remove {disk.path}/ballast")
    try:
        while True:
            for name in [name for name in wishes if (directory / name).exists()]:
                (directory / name).unlink()
                wishes[name]()
                print(f"done: {name}; taken so far: {mess.receivers.taken}", flush=True)
            time.sleep(0.5)
    except KeyboardInterrupt:
        mess.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
