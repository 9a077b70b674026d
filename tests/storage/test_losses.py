"""What a store has lost: which messages a server misses, and how they are recorded."""

import orjson

from crewel.delivery.records import LogId
from crewel.storage.losses import AnsweredIds, Loss, Losses, Met, losses_of, meet, note
from crewel.storage.store import Store
from tests.storage.owner import FACTS_MAX, started
from tests.storage.reading import last_id


def ids(*numbers: int) -> list[LogId]:
    return [LogId(each) for each in numbers]


def test_what_was_answered_before_the_store_changed_and_is_beyond_what_it_kept_is_missing() -> None:
    answered = AnsweredIds()
    answered.note(LogId(0), ids(5, 6, 7))
    answered.note(LogId(7), ids(8))
    answered.note(LogId(9), ids(12, 13))
    answered.turn(LogId(13))
    answered.note(LogId(13), ids(14))
    assert answered.seen == 13
    assert answered.missing(LogId(5)) == [(6, 8), (12, 13)]
    assert answered.missing(LogId(13)) == []
    answered.forget()
    assert (answered.missing(LogId(0)), answered.seen) == ([], 0)
    answered.turn(LogId(14))
    assert answered.missing(LogId(0)) == [(14, 14)]


def test_repeats_of_older_publishes_are_not_missing() -> None:
    answered = AnsweredIds()
    answered.note(LogId(10), ids(3, 11, 12))
    answered.note(LogId(12), ids(13, 4))
    answered.note(LogId(13), ids(2))
    answered.note(LogId(13), [])
    answered.turn(LogId(13))
    assert answered.missing(LogId(0)) == [(11, 13)]


def test_a_store_that_changed_twice_before_it_could_be_asked_misses_all() -> None:
    answered = AnsweredIds()
    answered.note(LogId(0), ids(5))
    answered.turn(LogId(5))
    answered.note(LogId(2), ids(6))
    answered.turn(LogId(4))
    assert answered.seen == 5
    assert answered.missing(LogId(2)) == [(5, 6)]


def test_a_loss_says_what_is_missing() -> None:
    met = Met(LogId(1_000_000), "1-0", 5)
    loss = Loss("heron", met, LogId(3_000_000), [(LogId(2_000_000), LogId(2_000_001)), (LogId(3_000_000),) * 2])
    assert loss.count == 3
    assert str(loss) == (
        "what came after 1000000 of 1970-01-01T00:00:01.000Z, up to 3000000 of 1970-01-01T00:00:03.000Z; of this server 3"
        " messages: 2000000 to 2000001, 3000000"
    )
    assert "published none of it" in str(Loss("heron", met, LogId(3), []))
    assert str(Loss("heron", met, LogId(3), [(LogId(2), LogId(2))] * 11)).endswith("2, ...")
    assert "after the first, up" in str(Loss("heron", Met(LogId(0), "0-0", 5), LogId(3), []))


async def test_a_store_is_met_once(store: Store) -> None:
    owner = await started(store)
    (first,) = await owner.publish("/a")
    met = await owner.do(meet(owner.keys, "second"))
    assert met.last == first
    assert met.fact != "0-0"
    await owner.publish("/a")
    assert await owner.do(meet(owner.keys, "second")) == met
    assert await owner.do(meet(owner.keys, "third")) != met


async def test_no_id_is_given_twice_and_histories_begin_a_new_epoch(store: Store) -> None:
    owner = await started(store)
    (first,) = await owner.publish("/a", history_max=5)
    await owner.publish("/b")
    before = await store.reader.hget(owner.keys.topic("/a"), "epoch")
    met = await owner.do(meet(owner.keys, "second"))
    ahead = LogId(first + 3_600_000_000)
    loss = Loss("heron", met, ahead, [(LogId(ahead - 1), ahead)])
    assert await owner.do(note(owner.keys, owner.token, "second", loss, FACTS_MAX)) is True
    assert await owner.do(note(owner.keys, owner.token, "second", loss, FACTS_MAX)) is False
    assert await last_id(store) == ahead
    assert (await owner.publish("/a"))[0] == ahead + 1
    assert await store.reader.hget(owner.keys.topic("/a"), "epoch") != before
    (fact,) = await owner.facts("lost")
    assert (fact["from"], fact["until"], fact["messages"]) == (met.last, ahead, 2)
    assert (fact["first"], fact["last"]) == ([ahead - 1], [ahead])
    newest: list[tuple[bytes, object]] = await store.reader.xrevrange(owner.keys.facts, count=2)
    assert int(newest[1][0].split(b"-")[0]) > ahead // 1000, "behind those of the store whose clock was ahead"
    assert losses_of(await store.reader.hgetall(owner.keys.losses)) == Losses(1, 2, fact)
    other = Loss("crane", met, LogId(met.last + 1), [])
    assert await owner.do(note(owner.keys, "other", "second", other, FACTS_MAX)) is True
    found = losses_of(await store.reader.hgetall(owner.keys.losses))
    assert found is not None
    assert (found.times, found.messages, found.newest["node"]) == (2, 2, "crane")
    assert await last_id(store) == ahead + 1


async def test_each_node_notes_what_it_knows_of_the_same_loss(store: Store) -> None:
    owner = await started(store)
    (first,) = await owner.publish("/a")
    met = await owner.do(meet(owner.keys, "second"))
    ahead = LogId(first + 3_600_000_000)
    nodes = ["heron", "crane", "stork"]
    for number, node in enumerate(nodes):
        seen = LogId(ahead - 500_000 * number)  # of the facts that are put behind those that were lost, some are later
        loss = Loss(node, met, seen, [(seen, seen)])
        assert await owner.do(note(owner.keys, node, "second", loss, FACTS_MAX)) is True
    assert [fact["node"] for fact in await owner.facts("lost")] == nodes
    found = losses_of(await store.reader.hgetall(owner.keys.losses))
    assert found is not None
    assert (found.times, found.messages) == (3, 3)


def test_a_store_that_lost_nothing_says_nothing() -> None:
    assert losses_of({}) is None
    said = {b"times": b"2", b"messages": b"3", b"newest": orjson.dumps({"node": "heron"})}
    assert losses_of(said) == Losses(2, 3, {"node": "heron"})
