"""Reading the log and the inboxes."""

from crewel.delivery.records import LogId
from crewel.storage import log
from crewel.storage.occupancy import occupied
from crewel.storage.store import Store
from tests.storage.owner import JOE, started
from tests.storage.reading import last_id


async def test_reading_goes_on_after_an_id(store: Store) -> None:
    owner = await started(store)
    ids = await owner.publish("/a", "/b", "/c", "/d")
    assert [each.id for each in await log.read(store, ids[0], 2)] == ids[1:3]
    assert [each.channel for each in await log.read(store, LogId(0), 10)] == ["/a", "/b", "/c", "/d"]
    assert await log.read(store, ids[-1], 10) == []


async def test_an_empty_log_reads_as_nothing(store: Store) -> None:
    assert await log.read(store, LogId(0), 10) == []
    assert await log.fetch(store, [LogId(5)]) == {}
    assert await log.fetch_inbox(store, JOE, [LogId(5)]) == {}
    assert await last_id(store) == 0
    assert (await occupied(store)).log == 0
    assert await log.oldest_tenth(store) == 0


async def test_entries_are_fetched_by_id(store: Store) -> None:
    owner = await started(store)
    ids = await owner.publish("/a", "/b", "/c")
    found = await log.fetch(store, [ids[2], LogId(ids[2] + 5), ids[0]])
    assert {log_id: each.channel for log_id, each in found.items()} == {ids[0]: "/a", ids[2]: "/c"}
    assert all(log_id == each.id for log_id, each in found.items())
    assert await log.fetch(store, []) == {}
    assert await log.fetch_inbox(store, JOE, []) == {}


async def test_the_size_grows_with_the_log(store: Store) -> None:
    owner = await started(store)
    await owner.publish("/a")
    small = (await occupied(store)).log
    for _ in range(5):
        await owner.publish(*["/a"] * 200)
    assert (await occupied(store)).log > small + 1000 * len('{"channel":"/a"}')


async def test_the_oldest_tenth_is_counted_in_entries(store: Store) -> None:
    owner = await started(store)
    ids = await owner.publish(*["/a"] * 9)
    assert await log.oldest_tenth(store) == 0
    for _ in range(60):
        ids += await owner.publish(*["/a"] * 200)
    ids += await owner.publish("/a")
    assert len(ids) == 12_010
    assert await log.oldest_tenth(store) == ids[1200]
