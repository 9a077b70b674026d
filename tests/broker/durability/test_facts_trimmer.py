"""Facts and dead letters that take too much memory give way, and the server says so."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.broker.stored_world import MakeStored, Receiver

MOST = 1_048_576
PRESENCE = "/__sys__presence/room"


def test_letters_beyond_the_bound_in_bytes_are_dropped_and_said(
    make_stored: MakeStored, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_stored(f"delivery.dead_letters_max_bytes={MOST}")
    Receiver(world).started("/a", name="joe/1", queue={"maxEntries": 1})
    world.advance(1.5)
    with caplog.at_level(logging.WARNING, "crewel.broker.durability.log_trimmer"):
        for number in range(40):
            world.broker.publish("/a", f"{number} {'x' * 50_000}")
        kept = world.letters()
        world.advance(6)
    assert 15 <= len(kept) <= 20
    assert b'"39 x' in kept[-1].body
    (line,) = (
        record.getMessage() for record in caplog.records if record.name == "crewel.broker.durability.log_trimmer"
    )
    assert f"{39 - len(kept)} dead letters were dropped" in line
    assert "such as client/joe:" in line
    assert f"delivery.dead_letters_max_bytes={MOST}" in line


def test_messages_dropped_without_a_dead_letter_are_said_once(
    make_stored: MakeStored, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_stored()
    Receiver(world).started("/a", queue={"maxEntries": 1})
    with caplog.at_level(logging.WARNING, "crewel.broker.durability.log_trimmer"):
        for number in range(4):
            world.broker.publish("/a", number)
        world.advance(20)
    (line,) = (
        record.getMessage() for record in caplog.records if record.name == "crewel.broker.durability.log_trimmer"
    )
    assert line.startswith(
        "messages were dropped without a dead letter: 3 at the full queue of a session without a name"
    )
    assert "delivery.letters_for_anonymous" in line


def test_each_cause_of_a_missing_dead_letter_is_said_with_its_own_count(
    make_stored: MakeStored, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_stored()
    Receiver(world).started("/a", queue={"maxEntries": 1})
    joe = Receiver(world).started(PRESENCE, name="joe/1", queue={"maxEntries": 1})
    with caplog.at_level(logging.WARNING, "crewel.broker.durability.log_trimmer"):
        for number in range(3):
            world.broker.publish("/a", number)
            world.broker.deliver(joe.session, PRESENCE, number)
        world.broker.publish("/a", 4)
        world.advance(20)
    (line,) = (
        record.getMessage() for record in caplog.records if record.name == "crewel.broker.durability.log_trimmer"
    )
    assert "3 at the full queue of a session without a name" in line
    assert "2 of the server itself" in line


def test_a_session_that_ends_with_changes_of_presence_only_has_lost_nothing(
    make_stored: MakeStored, caplog: pytest.LogCaptureFixture
) -> None:
    """A page that was closed: no one misses these."""
    world = make_stored()
    joe = Receiver(world).started(PRESENCE, name="joe/1", timeout=60_000)
    ann = Receiver(world).started(name="ann/1")
    ann.say("/service/presence", data={"channel": "/room", "action": "enter"})
    assert joe.session.mailbox.view().depth == 1
    with caplog.at_level(logging.INFO, "crewel.broker"):
        joe.say("/meta/disconnect")
        world.advance(20)
    assert world.letters() == []
    assert (world.broker.metrics.lost, world.broker.metrics.ended["lapsed"]) == (0, 1)
    said = [record.getMessage() for record in caplog.records]
    assert not [line for line in said if "were dropped" in line]
    (ending,) = [record for record in caplog.records if "has ended" in record.getMessage()]
    assert ending.levelname == "INFO"
    assert ending.getMessage().endswith("its waiting messages (1) end with it")


def test_facts_beyond_the_bound_in_bytes_are_dropped_and_said(
    make_stored: MakeStored, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_stored(f"storage.facts_max_bytes={MOST}")
    reader, facts = world.store.reader, world.store.keys.facts
    pipeline = reader.pipeline()
    for _ in range(1000):
        pipeline.xadd(facts, {"t": "ended", "d": b"x" * 5000})
    world.wait(pipeline.execute())
    with caplog.at_level(logging.WARNING, "crewel.broker.durability.log_trimmer"):
        world.advance(1.5)
        world.commit()  # a look asks the store several times
    size: Any = world.wait(reader.memory_usage(facts))
    left: Any = world.wait(reader.xlen(facts))
    assert size < MOST
    assert 100 < left < 250
    assert world.broker.metrics.facts_dropped >= 1000 - left
    assert f"storage.facts_max_bytes={MOST}" in caplog.text
