"""What is told when the store has trimmed facts or events that the data pipeline had not read."""

import logging

import orjson
import pytest

from crewel.broker.durability import log_trimmer
from crewel.broker.durability.log_trimmer import PipelineLag
from crewel.metrics import Metrics
from crewel.storage import log as stored_log
from crewel.storage.streams import Progress
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld


def looked(metrics: Metrics, *looks: tuple[int, int]) -> PipelineLag:
    """Looks at a stream, each of them with what was read and what was trimmed."""
    lag = PipelineLag(None, metrics)  # type: ignore[arg-type]
    for read, trimmed in looks:
        lag.compare([Progress("facts", read, trimmed + 1000, trimmed)])
    return lag


@pytest.mark.parametrize(
    ("looks", "missed"),
    [
        ([(100, 0)], 0),
        ([(100, 100)], 0),
        ([(100, 130)], 30),
        ([(100, 130), (100, 130)], 30),
        ([(100, 130), (100, 170)], 70),
        ([(100, 130), (150, 170)], 50),
        ([(100, 130), (900, 170)], 30),
        ([(100, 130), (0, 0), (0, 5)], 35),
    ],
    ids=["nothing trimmed", "all read", "some", "told once", "more", "caught up a little", "all", "another store"],
)
def test_what_was_trimmed_unread_is_counted_once(looks: list[tuple[int, int]], missed: int) -> None:
    metrics = Metrics()
    looked(metrics, *looks)
    assert metrics.trimmed_unread["facts"] == missed


def test_a_server_says_what_it_has_trimmed_and_how_to_mend_it(
    make_stored: MakeStored, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_stored("storage.facts_max_entries=1000")
    keys, reader = world.store.keys, world.store.reader
    with caplog.at_level(logging.WARNING, "crewel.broker.durability.log_trimmer"):
        _add(world, 1000)
        world.wait(reader.hset(keys.positions, "facts", orjson.dumps({"id": "1-0", "count": 700})))
        world.advance(6)
        assert not caplog.records
        _add(world, 3000)
        trimmed = 4000 - world.wait(reader.xlen(keys.facts))
        world.advance(6)
    assert world.broker.metrics.trimmed_unread["facts"] == pytest.approx(trimmed - 700, abs=5)
    assert "storage.facts_max_entries" in caplog.text
    assert b'crewel_trimmed_unread_total{stream="facts"}' in world.broker.metrics.exposition()


def test_the_log_is_trimmed_in_parts_until_nothing_is_left(
    make_stored: MakeStored, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_stored()
    monkeypatch.setattr(stored_log, "TRIMMED_AT_ONCE", 200)
    for number in range(950):
        world.broker.publish("/a", number, qos={"persistent": True})
    world.commit()
    assert world.wait(world.store.reader.xlen(world.store.keys.log)) == 950
    world.wait(world.durability.trimmer._trim())
    assert world.wait(world.store.reader.xlen(world.store.keys.log)) == 0


@pytest.mark.parametrize(("others", "is_moved"), [(60, True), (8, False)])
def test_one_pending_message_does_not_keep_a_long_log_when_room_in_the_store_is_scarce(
    make_stored: MakeStored, monkeypatch: pytest.MonkeyPatch, others: int, is_moved: bool
) -> None:
    """It is copied, unless the copies took as much room as they make."""
    monkeypatch.setattr(log_trimmer, "_SMALL_LOG", 0)
    world = make_stored()
    away = Receiver(world).started("/a", name="joe/1")
    world.broker.publish("/a", "x" * 1000, qos={"persistent": True})
    for _ in range(others):
        world.broker.publish("/b", "x" * 1000, qos={"persistent": True})
    world.commit()
    trimmer = world.durability.trimmer
    world.store.is_scarce = False
    world.wait(trimmer._trim_and_spill())
    assert not world.inbox(away.session)
    world.store.is_scarce = True
    world.wait(trimmer._trim_and_spill())
    assert len(world.inbox(away.session)) == is_moved
    world.wait(trimmer._trim())
    assert (world.wait(world.store.reader.xlen(world.store.keys.log)) < others) is is_moved


def test_a_session_that_another_server_has_by_now_does_not_keep_messages_of_others_in_the_log(
    make_stored: MakeStored,
) -> None:
    world = make_stored()
    keys, reader, trimmer = world.store.keys, world.store.reader, world.durability.trimmer
    for name in ("joe/1", "ann/1"):
        Receiver(world).started("/a", name=name)
    for channel in ("/a", *["/b"] * 20):
        world.broker.publish(channel, 1, qos={"persistent": True})
    world.commit()
    world.wait(reader.hset(keys.session("client/joe/1"), "owner", "another"))
    assert world.wait(trimmer.spill())
    assert [world.wait(reader.hlen(keys.inbox(f"client/{name}"))) for name in ("joe/1", "ann/1")] == [0, 1]
    assert not world.wait(trimmer.spill())  # nothing is left that could be copied


def _add(world: StoredWorld, count: int) -> None:
    async def add() -> None:
        pipeline = world.store.reader.pipeline()
        for _ in range(count):
            pipeline.xadd(world.store.keys.facts, {"t": "x", "d": "{}"}, maxlen=1000, approximate=True)
        await pipeline.execute()

    world.wait(add())
