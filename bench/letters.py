"""What a million dead letters cost: pages, filters, and sending many again, as an operator asks for it.

    python bench/letters.py                  a million, written into bench/RESULTS.md (about 3 minutes)
    python bench/letters.py --quick          100,000, printed only

A store of our own is filled by the scripts that the server uses, in this process; then the store and its client are measured
together, from the question to the letters in hand. It ends without help, and leaves nothing.
"""

import asyncio
import os
import random
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvloop
from section import TARGETS, Figure, Section, parser

from crewel.delivery.records import Commit, LogId, PendingDeadLetter, SessionName, Transient
from crewel.errors import StoreError
from crewel.settings import Settings
from crewel.settings.storage import Storage
from crewel.storage import dead_letter_store, log, node_leases, session_store
from crewel.storage.dead_letter_records import DeadLetterFilter, StoredDeadLetter
from crewel.storage.dead_letter_store import RedriveOutcome
from crewel.storage.store import Store

TOKEN = "bench"
AT_ONCE = 500  # letters in one commit
SESSIONS, CHANNELS = 2000, 5000
FACTS_MAX = 10_000
LIMIT_MS = 200.0
PATIENCE_S = 30
TURNS = 15
# Half of the letters have the first code, and every ten-thousandth the last.
CODES = {
    "user.update.internalError": 5000,
    "communication.noConnection.dead": 3000,
    "resource.overflow.queue.entries": 1500,
    "user.update.deadMessage": 499,
    "user.rare": 1,
}
RARE = "client/rare/1"


@asynccontextmanager
async def opened(directory: str) -> AsyncIterator[Store]:
    """An empty store of our own."""
    store = Store(Settings(storage=Storage(data_dir=directory)))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def done(store: Store, *steps: Any) -> list[Any]:
    """Do the steps, again if a busy machine gets no answer in time: a commit or a login is not done twice. Then the
    first error is raised."""
    for attempt in range(PATIENCE_S):
        answers = await store.run(steps)
        failures = [answer for answer in answers if isinstance(answer, Exception)]
        if not any(isinstance(failure, StoreError) for failure in failures) or attempt == PATIENCE_S - 1:
            break
        await asyncio.sleep(1)
    for failure in failures:
        raise failure
    return answers


async def fill(store: Store, count: int) -> float:
    """Store the letters of sessions that stand for the receivers; the store's processor time for each, microseconds."""
    k, draw = store.keys, random.Random(1)
    names = [RARE, *(f"client/u{number % 500}/{number // 500 + 1}" for number in range(SESSIONS))]
    await done(store, node_leases.claim(k, TOKEN, "bench", node_leases.this_process("bench", has_directory=False), 0))
    for start in range(0, len(names), 200):
        await done(
            store,
            *(
                session_store.login(k, TOKEN, name, {"id": f"bench-{name}"}, -1, FACTS_MAX)
                for name in names[start : start + 200]
            ),
        )
    codes, weights = list(CODES), list(CODES.values())
    body = b'{"channel":"/bench/c0","data":{"text":"' + b"x" * 160 + b'"}}'

    def one(number: int) -> PendingDeadLetter:
        name = RARE if number % 100 == 0 else names[1 + draw.randrange(SESSIONS)]
        message = Transient(f"{number}", f"{number}000", f"/bench/c{draw.randrange(CHANNELS)}", body, "client/ann/1")
        code = draw.choices(codes, weights)[0]
        return PendingDeadLetter(SessionName(name), LogId(0), code, "it did not want this", 1, message)

    before = await processor(store)
    for number, start in enumerate(range(0, count, AT_ONCE), 1):
        made = tuple(one(each) for each in range(start, min(start + AT_ONCE, count)))
        commit = Commit(number, LogId(0), LogId(0), (), (), made)  # beyond the log's end, it would tell of a loss
        await done(store, *log.commit(k, TOKEN, commit, FACTS_MAX, count))
    return (await processor(store) - before) / count * 1e6


async def processor(store: Store) -> float:
    """Seconds that the store's one thread has computed."""
    spent = await store.reader.info("cpu")
    return float(spent["used_cpu_user_main_thread"]) + float(spent["used_cpu_sys_main_thread"])


async def timed(ask: Callable[[], Awaitable[Any]]) -> tuple[float, float, float]:
    """Milliseconds that it takes: median, least, most."""
    times = []
    for _ in range(TURNS):
        begun = time.perf_counter()
        await ask()
        times.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(times), min(times), max(times)


async def pages(store: Store) -> list[Figure]:
    """A page of 100, through each filter."""
    frequent, some, rare = "user.update.internalError", "user.update.deadMessage", "user.rare"
    asked = {
        "the first page": (DeadLetterFilter(), False),
        "the newest page": (DeadLetterFilter(), True),
        "a code that half of the letters have": (DeadLetterFilter(code=frequent), False),
        "a code that one in 10,000 has": (DeadLetterFilter(code=rare), False),
        "all codes below `user`": (DeadLetterFilter(code="user"), True),
        "a receiver with 0.05 % of the letters": (DeadLetterFilter(receiver="client/u7/1"), False),
        "all sessions of a subject": (DeadLetterFilter(receiver="client/u7"), True),
        "a code and a receiver": (DeadLetterFilter(code=some, receiver=RARE), False),
        "a code and a receiver that have nothing in common": (
            DeadLetterFilter(code="user.rare", receiver="client/u7"),
            False,
        ),
        "a channel": (DeadLetterFilter(channel="/bench/c77"), False),
        "a pattern that all channels match": (DeadLetterFilter(channel="/bench/**"), False),
        "a pattern, a code and a receiver": (DeadLetterFilter(frequent, RARE, "/bench/*"), True),
    }
    figures = []
    for name, (wanted, newest_first) in asked.items():
        found = await dead_letter_store.page(store, wanted, newest_first=newest_first)
        middle, least, most = await timed(
            lambda w=wanted, n=newest_first: dead_letter_store.page(store, w, newest_first=n)
        )
        detail = f"{least:.1f} to {most:.1f} ms; {len(found.letters)} letters"
        figures.append(Figure(f"{name}: under {LIMIT_MS:.0f} ms", f"{middle:.1f} ms", most < LIMIT_MS, detail))
    return figures


async def counts(store: Store, count: int) -> list[Figure]:
    """How many there are, for a dry run."""
    figures = []
    for name, wanted in {
        "all": DeadLetterFilter(),
        "by code": DeadLetterFilter(code="user"),
        "by subject": DeadLetterFilter(receiver="client/u7"),
    }.items():
        middle, least, most = await timed(lambda w=wanted: dead_letter_store.count(store, w))
        found = await dead_letter_store.count(store, wanted)
        is_right = found == count if not wanted.kinds else 0 < found < count
        figures.append(
            Figure(
                f"counting {name}: under {LIMIT_MS:.0f} ms",
                f"{middle:.1f} ms",
                is_right and most < LIMIT_MS,
                f"{least:.1f} to {most:.1f} ms; {found:,}",
            )
        )
    return figures


async def redriving(store: Store, count: int) -> Figure:
    """Send letters of one receiver again, a page after the other, one step a letter."""
    moved, place = 0, ""
    begun = time.perf_counter()
    while moved < count:
        some, place = await dead_letter_store.page(
            store, DeadLetterFilter(receiver=RARE), place, min(100, count - moved)
        )
        moved += await redriven(store, some)
        if not place:
            break
    seconds = time.perf_counter() - begun
    held = await store.reader.hlen(store.keys.inbox(RARE))
    left = await dead_letter_store.count(store, DeadLetterFilter(receiver=RARE))
    return Figure(
        f"redriving {count:,}: each in its receiver's inbox, none left behind",
        f"{seconds:.1f} s",
        moved == held == count,
        f"{seconds / count * 1e6:.0f} µs a letter, 100 steps under way, fsync always; {left:,} of the receiver's are left",
    )


async def redriven(store: Store, some: list[StoredDeadLetter]) -> int:
    """Send these again; how many went."""
    steps = [dead_letter_store.redrive(store.keys, TOKEN, each, FACTS_MAX) for each in some]
    return sum(answer.outcome is RedriveOutcome.MOVED for answer in await done(store, *steps))


def resident() -> float:
    """MiB that this process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def used(store: Store) -> int:
    """Bytes that the store has in use."""
    return int((await store.reader.info("memory"))["used_memory"])


async def index_bytes(store: Store) -> int:
    """Bytes that the indexes take, of which the sorted sets are estimated by the store."""
    keys = [key async for key in store.reader.scan_iter(match=f"{store.keys.dead}:*", count=1000)]
    pipeline = store.reader.pipeline()
    for key in keys:
        pipeline.memory_usage(key, samples=100)
    return sum(await pipeline.execute())


async def measure(count: int) -> list[Figure]:
    """Everything."""
    with TemporaryDirectory() as directory:
        async with opened(directory) as store:
            empty = await used(store)
            cost = await fill(store, count)
            taken, indexes = await used(store) - empty, await index_bytes(store)
            before = resident()
            figures = [*await pages(store), *await counts(store, count), await redriving(store, count // 100)]
            after = resident()
            assert await dead_letter_store.count(store, DeadLetterFilter()) == count - count // 100
    storing = Figure(
        "storing a letter: at most 50 µs of the store's processor time, its file included",
        f"{cost:.1f} µs",
        cost <= 50,
        f"{AT_ONCE} in a commit; {taken / count:.0f} bytes each in the store, of which"
        f" {indexes / count:.0f} are indexes; {SESSIONS + 1:,} receivers, {CHANNELS:,} channels, {len(CODES)} codes",
    )
    flat = Figure(
        "memory of this process after all that: at most 20 MiB more",
        f"plus {after - before:.1f} MiB",
        after - before <= 20,
        f"{before:.1f} MiB before, {after:.1f} after",
    )
    return [storing, *figures, flat]


def report(figures: list[Figure], count: int) -> Section:
    """The section of RESULTS.md."""
    return Section(
        "letters",
        f"{count:,} dead letters",
        f"pages of 100 letters, medians of {TURNS} with the least and the most; the store and its client together, on cores"
        " that they share.",
        TARGETS,
        [figure.row() for figure in figures],
    )


def main() -> None:
    """Measure and write."""
    options = parser(__doc__, "100,000 letters").parse_args()
    count = 100_000 if options.quick else 1_000_000
    uvloop.install()
    report(asyncio.run(measure(count)), count).publish(is_part=options.quick)


if __name__ == "__main__":
    main()
