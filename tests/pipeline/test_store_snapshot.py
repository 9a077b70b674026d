"""The records of the store as the audit reads them: such as tests write, and those that a server has written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import redis

from crewel.errors import StoreUnavailable
from crewel.pipeline import store_snapshot
from crewel.pipeline.connection import Address, patiently
from crewel.pipeline.jobs import audit
from crewel.pipeline.store_snapshot import Snapshot, take
from crewel.storage.keys import FORMAT, RESTORING
from tests.admin.desk import SETS, Desk, Receiver, publish
from tests.conftest import StartServer
from tests.pipeline.frames import told
from tests.store_process import own_prefix, shared_store, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOE = "client/joe/1"


@pytest.fixture
def store(address: Address) -> Iterator[redis.Redis]:
    with address.client() as client:
        yield client


def session(store: redis.Redis, address: Address, name: str, **fields: str | int) -> None:
    store.hset(address.keys.session(name), mapping={"owner": "token", **fields})


def node(store: redis.Redis, address: Address, token: str, cursor: int) -> None:
    store.sadd(address.keys.nodes, token)
    store.hset(address.keys.node(token), "cursor", cursor)


def test_nothing_is_there_where_nothing_is(address: Address) -> None:
    assert take(address) == Snapshot()


def test_a_part_of_a_backup_is_no_store(store: redis.Redis, address: Address) -> None:
    """Before the mark, nothing is wrong; then an audit would find losses that are none."""
    store.set(address.keys.format, FORMAT)
    store_snapshot.require_whole(address)
    store.set(address.keys.format, RESTORING)
    with pytest.raises(StoreUnavailable, match="is not complete"):
        audit._look(address, "facts")


def test_what_is_open_in_the_log_and_beside_it_waits(store: redis.Redis, address: Address) -> None:
    session(store, address, JOE, **{"o:17": "x", "i:18": "y", "batch": 7})
    assert sorted(take(address).waiting) == [(JOE, 17), (JOE, 18)]


def test_a_shared_queue_waits_too(store: redis.Redis, address: Address) -> None:
    store.zadd(address.keys.queue("client/ann"), {"5:21": 1, "5:9": 2})
    assert take(address).waiting == [("client/ann", 9), ("client/ann", 21)]


def test_a_cursor_is_that_of_the_owner_unless_the_session_has_one_of_its_own(
    store: redis.Redis, address: Address
) -> None:
    node(store, address, "token", 100)
    session(store, address, "client/a/1")
    session(store, address, "client/b/1", at=40)
    session(store, address, "client/c/1", owner="who began later")
    assert sorted(take(address).cursors) == [("client/a/1", 100), ("client/b/1", 40), ("client/c/1", 0)]


def test_a_node_without_a_cursor_has_none(store: redis.Redis, address: Address) -> None:
    store.sadd(address.keys.nodes, "token")
    session(store, address, JOE)
    assert take(address).cursors == [(JOE, 0)]


def test_subscriptions_that_hold_and_that_are_over_and_none_of_groups(store: redis.Redis, address: Address) -> None:
    fields = {"s:/a/*": 5, "p:/a/*": '{"filter":"g"}', "c:/b/** 3": 8, "p:/c": '{"group":"h"}'}
    session(store, address, JOE, **fields)
    assert sorted(take(address).subscriptions, key=lambda row: row[1]) == [
        (JOE, "/a/*", 5, None),
        (JOE, "/b/**", 3, 8),
    ]


def test_a_record_without_an_owner_is_no_session(store: redis.Redis, address: Address) -> None:
    store.hset(address.keys.session(JOE), "o:17", "x")
    assert take(address) == Snapshot()


def test_a_prefix_of_any_kind_finds_its_own_keys_only() -> None:
    own = Address(shared_store().url, f"{own_prefix()}[a]*?\\:")
    other = Address(own.url, own.prefix.replace("[a]*?\\", "a"))
    with own.client() as client:
        for number, address in enumerate((own, other), 1):
            session(client, address, JOE, **{f"o:{number}": "x"})
    assert take(own).waiting == [(JOE, 1)]


def test_many_sessions_are_read_in_portions_each_once(
    store: redis.Redis, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_snapshot, "_PORTION", 7)
    for number in range(50):
        session(store, address, f"client/joe/{number}", **{f"o:{number}": "x"})
    assert sorted(take(address).waiting) == sorted((f"client/joe/{number}", number) for number in range(50))


def test_a_store_that_is_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_snapshot, "patiently", lambda step: patiently(step, 0.0))
    with pytest.raises(StoreUnavailable, match="has been away"):
        take(Address("unix:///nowhere.sock"))


def test_frames_hold_the_rows_with_numbers_as_numbers(spark: SparkSession) -> None:
    snapshot = Snapshot([(JOE, 2**53 + 1)], [(JOE, 7)], [(JOE, "/a", 3, None), (JOE, "/b", 1, 2)])
    frames = snapshot.frames(spark)
    assert told(frames.waiting, "receiver", "log_id") == [(JOE, 2**53 + 1)]
    assert told(frames.cursors, "session", "cursor") == [(JOE, 7)]
    rows = told(frames.subscriptions, "pattern", "from_id", "until_id")
    assert rows == [("/a", 3, None), ("/b", 1, 2)]
    empty = Snapshot().frames(spark)
    assert [each.count() for each in (empty.waiting, empty.cursors, empty.subscriptions)] == [0, 0, 0]


def test_what_a_server_has_written_is_understood(address: Address, start_server: StartServer) -> None:
    server = start_server(*SETS, f"storage.url={address.url}", f"storage.prefix={address.prefix}")
    joe = Receiver(server).be("joe/1", persistent=True)
    joe.subscribe("/orders/*")
    joe.subscribe("/bills")
    Desk(server).post("/sessions/joe/1/hold", {"reason": "lunch"})
    publish(server, "/orders/new", 3)
    joe.send(joe.message("/meta/unsubscribe", subscription="/bills"))
    until(lambda: len(take(address).waiting) == 3)
    until(
        lambda: {name for name, _ in take(address).cursors} == {JOE}
    )  # the record of who published goes a moment later
    found = take(address)
    ids = [log_id for name, log_id in found.waiting if name == JOE]
    assert len(ids) == 3
    cursors = dict(found.cursors)
    until(lambda: dict(take(address).cursors)[JOE] >= max(ids))
    assert cursors.keys() == {JOE}
    (held,) = (row for row in found.subscriptions if row[1] == "/orders/*")
    assert held[2] is not None
    assert (held[0], held[2] < min(ids), held[3]) == (JOE, True, None)
