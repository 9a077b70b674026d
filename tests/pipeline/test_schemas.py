"""That the tables are whole, and agree with what the server says about its streams."""

import pytest

from crewel.pipeline.schemas import EVENT_VERSIONS, FINDINGS, LONGEST_PAYLOAD, STREAMS, TABLES, Table
from crewel.pipeline.schemas.table import Column, Layer, unique
from crewel.storage.dead_letter_keys import DEAD_LETTER_KEYS
from crewel.storage.facts import FACTS as WRITTEN_FACTS
from crewel.storage.keys import KEYS
from crewel.storage.streams import EVENTS as WRITTEN_EVENTS
from crewel.storage.streams import SCHEMA

# Types of facts that share a table or lie in one of another name.
TABLE_OF = {"opened-session": "fact_sessions", "closed-session": "fact_sessions"}


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_every_column_is_documented_and_has_a_type_of_spark(table: Table) -> None:
    assert table.meaning.endswith(".")
    assert len({*table.names}) == len(table.columns)
    assert not [column.name for column in table.columns if not column.meaning.strip()]
    assert table.struct().fieldNames() == table.names


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_every_duration_and_size_has_a_unit(table: Table) -> None:
    assert not [column.name for column in table.columns if column.name.endswith(("_ms", "_ns")) and not column.unit]
    assert not [column.name for column in table.columns if column.type in {"timestamp", "date"} and not column.unit]


def test_every_type_of_fact_and_of_event_has_a_table() -> None:
    facts = {TABLE_OF.get(each.name, f"fact_{each.name}") for each in WRITTEN_FACTS}
    events = {f"event_{each.name}" for each in WRITTEN_EVENTS}
    assert facts == {name for name in TABLES if name.startswith("fact_")}
    assert events == {name for name in TABLES if name.startswith("event_")} - {"event_groups"}


def test_the_version_and_the_streams_are_those_that_the_server_writes() -> None:
    assert SCHEMA in EVENT_VERSIONS
    assert {*STREAMS} <= {key.name for key in (*KEYS, *DEAD_LETTER_KEYS)}


def test_the_audit_names_its_findings() -> None:
    assert all(f"`{name}`" in TABLES["audit"].column("finding").meaning for name in FINDINGS)


def test_what_may_be_cut_is_longer_than_what_the_server_writes_in_earnest() -> None:
    """A session's end tells all that it was owed: seventeen digits a message."""
    assert LONGEST_PAYLOAD > 500_000 * 18


def test_types_and_what_may_be_null_become_sparks() -> None:
    columns = (Column("a", "array<bigint>", "Some."), Column("b", "string", "One.", nullable=True))
    table = Table(Layer.GOLD, "some", "Some.", columns, key=("a",), partitions=())
    assert table.ddl == "`a` ARRAY<BIGINT> NOT NULL, `b` STRING"
    assert table.struct(strict=True).simpleString() == "struct<a:array<bigint>,b:string>"
    assert [field.nullable for field in table.struct(strict=True)] == [False, True]
    assert [field.nullable for field in table.struct()] == [True, True]
    assert table.path == "gold/some/v1"
    with pytest.raises(KeyError):
        table.column("c")


def test_two_tables_of_one_name_and_keys_without_a_column_are_refused() -> None:
    table = Table(Layer.GOLD, "some", "Some.", (Column("a", "int", "One."),), key=("a",), partitions=())
    with pytest.raises(ValueError, match="some"):
        unique((table, table))
    with pytest.raises(ValueError, match="other"):
        unique((Table(Layer.GOLD, "other", "Some.", (Column("a", "int", "One."),), key=("b",), partitions=()),))
