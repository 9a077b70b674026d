"""What the operator's page costs: the server, the browser, and the wait for an answer.

    .venv/bin/python bench/console.py overview [SESSIONS] [SECONDS]     processor time, without a page and with one (5000, 120)
    .venv/bin/python bench/console.py receivers [SESSIONS]              elements, long tasks and heap in Chromium (100000)
    .venv/bin/python bench/console.py message [LETTERS] [SESSIONS]      the page of a message (1000000, 100000)

Processor times are those of the server's process in /proc. The page follows the live feed: an overview every 5 s.
"""

import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from durable import PERSISTENT
from letters import fill, opened
from playwright.sync_api import Page, sync_playwright
from waiting import Clients, publication, store_sessions

from crewel.settings.storage import Storage
from crewel.storage import dead_letter_store
from crewel.storage.dead_letter_records import DeadLetterFilter

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests import server_process  # noqa: E402
from tests.browser.conftest import ARGUMENTS, CHROMIUM  # noqa: E402
from tests.server_process import Server  # noqa: E402

TOKEN = "the-admin-token-of-benches"
SETS = (
    f"admin.token={TOKEN}",
    "bayeux.max_interval_ms=3600000",
    "limits.max_sessions=0",
    "limits.max_sessions_per_address=0",
)
EVERY_S = 5
AT_ONCE = 50  # handshakes on the way
ASKED = 1000  # messages
WATCHED_S = 20
LOADING_S = 600.0  # a store with a million dead letters is read before the server is ready
LONG_TASKS = """() => {
    window.tasks = [];
    new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((each) => each.duration)))
        .observe({type: "longtask", buffered: true});
}"""
SCROLL = """async () => {
    for (let turn = 0; turn < 40; turn += 1) {
        window.scrollBy(0, turn % 20 < 10 ? 400 : -400);
        await new Promise(requestAnimationFrame);
    }
}"""


def processor_s(pid: int) -> float:
    """Return the seconds of processor time that the process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def asked(server: Server, path: str) -> Any:
    """Return what the administration answers."""
    request = urllib.request.Request(f"{server.base}/admin/api{path}", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


async def _open_sessions(server: Server, count: int) -> None:
    numbers = iter(range(count))

    async def open_some(client: aiohttp.ClientSession) -> None:
        for number in numbers:
            handshake = {
                "channel": "/meta/handshake",
                "version": "1.0",
                "supportedConnectionTypes": ["long-polling"],
                "ext": {"ack": True, "session": {"name": f"joe{number}/1"}},
            }
            async with client.post(server.url, json=[handshake]) as response:
                (reply,) = await response.json()
                assert reply["successful"] is True, reply

    async with aiohttp.ClientSession() as client:
        await asyncio.gather(*(open_some(client) for _ in range(AT_ONCE)))


def started(directory: str, sessions: int, *sets: str) -> Server:
    """Return a server with so many reliable sessions that receive nothing."""
    server = Server(["--port=0", *(f"--set={text}" for text in (*SETS, *sets))], Path(directory))
    began = time.monotonic()
    asyncio.run(_open_sessions(server, sessions))
    count = asked(server, "/overview")["sessions"]["count"]
    print(f"{count:,} sessions, opened in {time.monotonic() - began:.0f} s", flush=True)
    return server


@contextmanager
def signed_in(server: Server, view: str) -> Iterator[Page]:
    """Open a view of the operator's page in Chromium."""
    with sync_playwright() as playwright:
        path = next(path for path in CHROMIUM if Path(path).exists())
        page = playwright.chromium.launch(executable_path=path, args=ARGUMENTS).new_page()
        page.set_default_timeout(60_000)
        page.goto(f"{server.base}/admin/#{view}")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()
        yield page


def measured(server: Server, what: str, wait: Callable[[], object]) -> str:
    """Return what the server takes while this waits."""
    before, began = processor_s(server.pid), time.monotonic()
    wait()
    took, used = time.monotonic() - began, processor_s(server.pid) - before
    return f"{what}: {used:.2f} s of processor in {took:.0f} s, {used / took:.2%} of one core"


def overview(sessions: int = 5000, seconds: int = 120) -> None:
    """Measure the server while no page is open, and while one is, which follows the live feed."""
    with tempfile.TemporaryDirectory() as directory:
        server = started(directory, sessions)
        time.sleep(EVERY_S)
        print(measured(server, "no page open", lambda: time.sleep(seconds)), flush=True)
        with signed_in(server, "/") as page:
            page.locator("body[data-live=true]").wait_for()
            page.wait_for_timeout(2 * EVERY_S * 1000)
            print(measured(server, "one page open", lambda: page.wait_for_timeout(seconds * 1000)), flush=True)
        server.end_well()


def receivers(sessions: int = 100_000) -> None:
    """Measure the browser that shows the receivers, sorted, while they are scrolled and refreshed."""
    with tempfile.TemporaryDirectory() as directory:
        server = started(directory, sessions)
        with signed_in(server, "/receivers") as page:
            page.locator("tbody tr").first.wait_for()
            page.evaluate(LONG_TASKS)
            for sort in ("name", "waiting"):
                print(f"sorted by {sort}: {watched(page, server, sort)}", flush=True)
        server.end_well()


def watched(page: Page, server: Server, sort: str) -> str:
    """Return what the browser needs in this time."""
    began = time.monotonic()
    page.goto(f"{server.base}/admin/#/receivers?sort={sort}")
    page.locator("tbody tr").first.wait_for()
    shown_ms = (time.monotonic() - began) * 1000
    page.evaluate("window.tasks.length = 0")
    while time.monotonic() - began < WATCHED_S:
        page.evaluate(SCROLL)
    tasks = page.evaluate("window.tasks")
    elements = page.evaluate("document.querySelectorAll('*').length")
    protocol = page.context.new_cdp_session(page)
    protocol.send("HeapProfiler.collectGarbage")
    heap = protocol.send("Runtime.getHeapUsage")["usedSize"] / 2**20
    long = f"{len(tasks)} tasks over 50 ms, the longest {max(tasks, default=0):.0f} ms"
    return f"first rows after {shown_ms:.0f} ms; {elements:,} elements; {long}; heap {heap:.1f} MiB"


async def _fill(directory: str, letters: int) -> list[str]:
    """Fill the store, and return the ids of some of its letters."""
    async with opened(directory) as store:
        await fill(store, letters)
        wanted = [DeadLetterFilter(receiver=f"client/u{number}") for number in range(10)]
        pages = [await dead_letter_store.page(store, each, count=ASKED // 20) for each in wanted]
        return [letter.dead_id for page in pages for letter in page.letters]


async def _publish(server: Server, count: int) -> list[str]:
    """Publish so many messages to one of the channels that sessions of the store subscribe to each; return their ids."""
    async with Clients(server.port) as clients:
        publisher = await clients.shake_hands(ack=False)
        bodies = [publication(publisher, b"/bench/%d" % number, PERSISTENT) for number in range(count)]
        replies = [json.loads(await publisher.connection.post(body)) for body in bodies]
        return [str(reply["ext"]["publish"]["id"]) for (reply,) in replies]


def _waits_ms(server: Server, ids: list[str]) -> str:
    """How long the answers about messages take, asked one after the other."""
    times, before = [], processor_s(server.pid)
    for each in random.Random(1).choices(ids, k=ASKED // 2):
        began = time.perf_counter()
        asked(server, f"/messages/{each}")
        times.append((time.perf_counter() - began) * 1000)
    times.sort()
    last = times[int(len(times) * 0.99)]
    used = (processor_s(server.pid) - before) / len(times) * 1000
    told = f"p50 {statistics.median(times):.1f} ms, p99 {last:.1f} ms, longest {times[-1]:.1f} ms"
    return f"asked {len(times):,} times: {told}; {used:.1f} ms of the server's processor each"


def message(letters: int = 1_000_000, sessions: int = 100_000) -> None:
    """Measure how long the answer about a message takes: of a dead letter's, and of one that waits for many sessions."""
    server_process.LIMIT_S = LOADING_S
    with tempfile.TemporaryDirectory() as directory:
        began = time.monotonic()
        ids = asyncio.run(_fill(directory, letters))
        print(f"{letters:,} dead letters stored in {time.monotonic() - began:.0f} s", flush=True)
        began = time.monotonic()
        asyncio.run(store_sessions(Storage(data_dir=directory), sessions))
        print(f"{sessions:,} sessions stored in {time.monotonic() - began:.0f} s", flush=True)
        own_store = ("storage.url=", f"storage.prefix={Storage().prefix}", f"storage.data_dir={directory}")
        server = started(directory, 0, *own_store, f"delivery.dead_letters_max={letters}")
        print(f"{asked(server, '/dead-letters/count')['count']:,} dead letters", flush=True)
        waiting = asyncio.run(_publish(server, ASKED // 20))
        one = asked(server, f"/messages/{waiting[0]}")
        print(f"{len(ids)} messages of dead letters, {_waits_ms(server, ids)}", flush=True)
        receivers = sum(one["states"].values())
        print(
            f"{len(waiting)} messages that wait for {receivers} sessions each, {_waits_ms(server, waiting)}", flush=True
        )
        server.end_well()


KINDS = {"overview": overview, "receivers": receivers, "message": message}

if __name__ == "__main__":
    kind, *numbers = sys.argv[1:] or ["overview"]
    KINDS[kind](*map(int, numbers))
