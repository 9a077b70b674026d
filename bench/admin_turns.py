"""How long the server's loop stands still for each request of an operator, with many receivers and dead letters.

    .venv/bin/python bench/admin_turns.py [RECEIVERS] [LETTERS] [ROUNDS]      (100000, 100000, 3)

One broker with a store of its own runs in this process, with 20,000 topics, and a job whose outcome more facts tell than one
request reads. Each resource that only looks is asked for, as the page does,
and answered as JSON. A turn is what the loop does between two looks at the clock, in processor time; the shortest of the rounds
counts, so that the garbage collector and other work on the machine make none longer. The second figure is the shortest by the
clock, which only a quiet machine keeps.
"""

import asyncio
import gc
import os
import sys
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import uvloop
from letters import fill, opened
from turns import QUIET_S, Bench, Meanwhile, turns

from crewel.admin.administration import Administration
from crewel.admin.jobs import Work
from crewel.admin.rest import ROUTES
from crewel.admin.route import Ask, Route, read
from crewel.broker.broker import Broker
from crewel.errors import CrewelError
from crewel.event_loop import encoded_in_turns
from crewel.extensions.ack import AckExtension
from crewel.security.grants import Role, Scope
from crewel.settings import Settings, load
from crewel.storage import dead_letter_store
from crewel.storage.dead_letter_records import DeadLetterFilter
from crewel.storage.store import Store
from crewel.transports.forwarded import Client

SETS = (
    "bayeux.max_sessions_per_browser=-1",
    "bayeux.max_interval_ms=3600000",
    "limits.max_sessions=0",
    "limits.max_sessions_per_address=0",
    "delivery.dead_letters_max=10000000",
    "admin.token=the-admin-token-of-benches",
)
LONG_MS = 20
TOPICS = 20_000
OF_JOB, AT_ONCE = 10_000, 100  # messages of the job that each round reads; facts written in one step
MOST_MESSAGES, MOST_WAITING = 20, 200_000  # for each receiver, and for all of them
QUERIES: dict[str, tuple[dict[str, str], ...]] = {
    "/receivers": ({"sort": "waiting"}, {"contains": "joe99"}, {"address": "10."}, {"client": "x"}, {"count": "1000"}),
    "/sessions": ({"sort": "waiting"}, {"contains": "joe99"}, {"count": "1000"}),
    "/subjects": ({}, {"count": "1000"}),
    "/dead-letters": ({"newestFirst": "true"}, {"contains": "nowhere"}, {"channel": "/bench/**"}, {"count": "1000"}),
    "/dead-letters/count": ({}, {"contains": "nowhere"}, {"channel": "/bench/**"}),
    "/dead-letters/groups": (
        *({"by": kind} for kind in ("code", "channel", "receiver", "likeness")),
        *({"by": kind, "channel": "/bench/**"} for kind in ("code", "channel", "receiver", "likeness")),
    ),
    "/topics": ({}, {"pattern": "/many/**"}, {"state": "ALIVE"}, {"count": "1000"}),
    "/prefixes": ({}, {"below": "/many"}),
    "/messages": ({"contains": "nowhere"}, {"key": "nowhere"}),
}
"""What is asked for beside the resource itself."""
LEFT_OUT = ("/me", "/dead-letters/export", "/audit/export", "/sessions/{subject}/{number}/trace", "/openapi.json")
"""Not asked for: they need a request of aiohttp, or last as long as their reader wants."""


def questions(names: dict[str, str]) -> Iterator[tuple[str, Route, dict[str, str], dict[str, Any]]]:
    """Yield what is asked: a name of it, the route, what its path names, and its fields."""
    for route in ROUTES:
        if route.method != "GET" or route.path in LEFT_OUT:
            continue
        for query in QUERIES.get(route.path, ({},)):
            search = "&".join(f"{name}={value}" for name, value in query.items())
            yield f"{route.path}{'?' if search else ''}{search}", route, names, read(route, query, b"")


async def asked(admin: Administration, route: Route, path: dict[str, str], fields: dict[str, Any]) -> Meanwhile:
    """Ask once; what was seen of the loop meanwhile."""
    seen = Meanwhile()
    watching = asyncio.create_task(turns(seen))
    await asyncio.sleep(0.01)
    seen.longest = seen.longest_wall = 0.0
    ask = Ask(admin, "admin", None, path, fields, Client(None, "", ""), Scope(Role.DESTROY), None)
    try:
        await encoded_in_turns(await route.handler(ask))
    except CrewelError as error:
        print(f"{route.path}: {error}", file=sys.stderr)
    await asyncio.sleep(0)
    watching.cancel()
    await asyncio.wait([watching])
    return seen


async def begun_job(admin: Administration, letter: str, rounds: int) -> str:
    """The id of a job that has redriven many, of which every other was acknowledged. Nothing works it off."""
    more = {"reason": "", "to_channel": False, "rate": None}
    job = await admin.jobs.begin(Work.REDRIVE, "admin", Role.DESTROY, {"ids": [letter]}, 1, **more)
    store, session = admin.store, "client/joe0/1"
    for first in range(1, rounds * OF_JOB, AT_ONCE):
        pipeline, ids = store.reader.pipeline(), range(first, first + AT_ONCE)
        for log_id in ids:
            redriven = {"letter": f"{log_id}-1", "message": "1", "id": log_id, "session": session, "job": job.id}
            pipeline.xadd(store.keys.facts, {"t": "redriven", "d": orjson.dumps(redriven)})
        ended = {"ended": [{"session": session, "reason": "settled", "ids": list(ids)[::2]}]}
        pipeline.xadd(store.keys.facts, {"t": "ended", "d": orjson.dumps(ended)})
        await pipeline.execute()
    return job.id


async def make_topics(broker: Broker) -> None:
    """Publish on many channels."""
    for number in range(TOPICS):
        broker.publish(f"/many/{number % 100}/{number}", number)
        if number % 100 == 0:
            await asyncio.sleep(0)


async def measure(receivers: int, letters: int, rounds: int) -> None:
    """Fill a store and a broker, and ask for everything."""
    with TemporaryDirectory() as directory:
        async with opened(directory) as filled:
            await fill(filled, letters)
        settings: Settings = load(overrides=[f"storage.data_dir={directory}", *SETS], environ={})
        store = Store(settings)
        await store.open()
        broker = Broker(settings, (AckExtension(),), asyncio.get_running_loop())
        await broker.make_durable(store)
        bench = Bench(broker, store)
        await bench.let_in(receivers, 1000, named=True)
        bench.leave()
        await asyncio.sleep(QUIET_S)
        await bench.publish(min(MOST_MESSAGES, max(MOST_WAITING // receivers, 1)))
        await bench.told()
        page = await dead_letter_store.page(store, DeadLetterFilter(), count=1)
        message = str(next(iter(broker.runtime.access.node.sessions["client/joe0/1"].pending)))
        names = {
            "subject": "joe0",
            "number": "1",
            "channel": "large",
            "id": page.letters[0].dead_id,
            "message": message,
        }
        admin = Administration(broker)
        names["job"] = await begun_job(admin, page.letters[0].dead_id, rounds)
        await make_topics(broker)
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 2, 320)  # as the server does
        worst = 0.0
        for name, route, path, fields in questions(names):
            gc.freeze()  # also what has been read again since
            seen = [await asked(admin, route, path, fields) for _ in range(rounds)]
            longest = min(each.longest for each in seen) * 1000
            wall = min(each.longest_wall for each in seen) * 1000
            worst = max(worst, longest)
            print(
                f"{longest:7.1f} ms, {wall:7.1f} by the clock  {name}{'  TOO LONG' if longest > LONG_MS else ''}",
                flush=True,
            )
        print(f"longest turn {worst:.1f} ms, with {receivers:,} receivers and {letters:,} dead letters")
        await broker.close()
        await store.close()


if __name__ == "__main__":
    counts = [int(text) for text in sys.argv[1:]]
    before = os.getloadavg()[0]
    uvloop.run(measure(*counts, *(100_000, 100_000, 3)[len(counts) :]))
    print(f"load average before {before:.1f}, after {os.getloadavg()[0]:.1f}")
