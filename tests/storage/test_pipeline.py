"""What the server reads of what the data pipeline leaves in the store."""

import pytest

from crewel.storage.store import Store
from crewel.storage.streams import Alert, Progress, alerts, progress


async def test_progress_tells_how_far_the_pipeline_is_and_how_far_the_streams_go(store: Store) -> None:
    for number in range(1, 6):
        await store.reader.xadd(store.keys.facts, {"t": "x", "d": "{}"}, f"{number}-0")
    await store.reader.xtrim(store.keys.facts, 2, approximate=False)
    await store.reader.hset(store.keys.positions, "facts", b'{"id": "2-0", "count": 2}')
    (found,) = (await store.run([progress(store.keys)]))[0]
    assert found == Progress("facts", read=2, added=5, trimmed=3)
    assert found.missed == 1


@pytest.mark.parametrize("position", [b"[1]", b"no JSON", b'{"id": "5-0", "count": null}', b"\xff"])
async def test_a_position_that_tells_no_count_is_left_out(store: Store, position: bytes) -> None:
    await store.reader.hset(store.keys.positions, "events", position)
    assert await store.run([progress(store.keys)]) == [[]]


async def test_a_stream_that_is_not_there_has_nothing(store: Store) -> None:
    await store.reader.hset(store.keys.positions, "events", b'{"id": "5-0", "count": 3}')
    assert await store.run([progress(store.keys)]) == [[Progress("events", 3, 0, 0)]]


async def test_alerts_come_in_the_order_of_their_sessions_and_what_is_none_is_left_out(store: Store) -> None:
    told = {"client/joe/2": b'{"held_ms": 5}', "client/joe/1": b'{"held_ms": 7}', "client/ann/1": b"no JSON"}
    await store.reader.hset(store.keys.alerts, mapping=told)
    assert await alerts(store) == [Alert("client/joe/1", {"held_ms": 7}), Alert("client/joe/2", {"held_ms": 5})]
