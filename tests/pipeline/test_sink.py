"""The sink: each batch once, whatever is repeated."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from crewel.errors import StoreError, StoreUnavailable
from crewel.pipeline.connection import Address
from crewel.pipeline.sink import MOST_COMMANDS, MOST_WORDS, Sink
from tests.pipeline.conftest import Streams
from tests.store_process import StoreProcess


def test_a_batch_that_is_repeated_changes_nothing(streams: Streams) -> None:
    sink = Sink(streams.address, "live.1")
    key = f"{streams.keys.base}pipeline:figures"
    assert sink.write(0, [("HINCRBY", key, "settled", 5), ("HSET", key, "text", b"\xff")])
    assert not sink.write(0, [("HINCRBY", key, "settled", 5)])
    assert sink.write(1, [("HINCRBY", key, "settled", 2)])
    assert not Sink(streams.address, "live.1").write(0, [("HINCRBY", key, "settled", 5)])
    assert streams.client.hgetall(key) == {b"settled": b"7", b"text": b"\xff"}


def test_jobs_do_not_know_each_other(streams: Streams) -> None:
    key = f"{streams.keys.base}pipeline:figures"
    assert Sink(streams.address, "live.1").write(7, [("HINCRBY", key, "n", 1)])
    assert Sink(streams.address, "live.2").write(0, [("HINCRBY", key, "n", 1)])
    assert streams.client.hgetall(streams.keys.ledger) == {b"live.1": b"7", b"live.2": b"0"}


def test_a_batch_without_commands_counts_as_done(streams: Streams) -> None:
    assert Sink(streams.address, "live.1").write(3, [])
    assert not Sink(streams.address, "live.1").write(3, [])


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("FLUSHALL",), "not among the commands"),
        (("EVAL", "pipeline:x"), "not among the commands"),
        (("HSET",), "not among the commands"),
        (("DEL", "{crewel}:log"), "does not write this key"),
        (("DEL", "crewel:{crewel}:pipeline:x"), "does not write this key"),
        (("DEL", b"pipeline:x"), "does not write this key"),
    ],
)
def test_a_sink_writes_its_own_keys_only(address: Address, command: tuple[str, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Sink(address, "live.1").write(0, [command])


def test_too_much_is_refused(address: Address) -> None:
    command = ("SET", f"{address.keys.base}pipeline:x", "1")
    with pytest.raises(ValueError, match="at most"):
        Sink(address, "live.1").write(0, [command] * (MOST_COMMANDS + 1))


def test_a_command_has_at_most_as_many_words_as_the_script_can_take(streams: Streams) -> None:
    key = f"{streams.keys.base}pipeline:x"
    longest = ("HDEL", key, *map(str, range(MOST_WORDS - 2)))
    assert Sink(streams.address, "live.1").write(0, [longest])
    with pytest.raises(ValueError, match=f"at most {MOST_WORDS}"):
        Sink(streams.address, "live.1").write(1, [(*longest, "more")])


def test_batch_that_the_store_takes_later_waits_for_it(tmp_path: Path) -> None:
    """As during a fail-over. A job that follows the store would end with any other error."""
    store = StoreProcess(tmp_path, min_replicas_to_write="1")
    try:
        address = Address(store.url)
        commands = [("INCRBY", f"{address.keys.base}pipeline:x", 1)]
        with pytest.raises(StoreUnavailable, match="NOREPLICAS"):
            Sink(address, "live.1", patience_s=0).write(0, commands)
        writer = threading.Timer(0.2, store.configure, ("min-replicas-to-write", 0))
        writer.start()
        assert Sink(address, "live.1").write(0, commands)
        writer.join(10)
    finally:
        store.close()


def test_what_the_store_refuses_is_said(streams: Streams) -> None:
    key = f"{streams.keys.base}pipeline:x"
    streams.client.set(key, "text")
    with pytest.raises(StoreError, match=r"refuses batch 0 of live\.1"):
        Sink(streams.address, "live.1").write(0, [("HSET", key, "a", "b")])
    assert not streams.client.exists(streams.keys.ledger)
