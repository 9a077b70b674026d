"""Every table of the pipeline: bronze has the entries as read, silver the typed rows, gold the results.
docs/reference/pipeline-tables.md is generated from it. Only this package defines the names of columns."""

from typing import Final

from crewel.pipeline.schemas.bronze import BRONZE, BYTES, GAP, LONGEST_PAYLOAD, PLACE, RAW, STREAMS
from crewel.pipeline.schemas.events import EVENT_VERSIONS, EVENTS
from crewel.pipeline.schemas.facts import FACTS
from crewel.pipeline.schemas.gold import FINDINGS, GOLD
from crewel.pipeline.schemas.table import Column, Layer, Table, unique

__all__ = [
    "BRONZE",
    "BYTES",
    "EVENTS",
    "EVENT_VERSIONS",
    "FACTS",
    "FINDINGS",
    "GAP",
    "GOLD",
    "LONGEST_PAYLOAD",
    "PLACE",
    "RAW",
    "STREAMS",
    "TABLES",
    "Column",
    "Layer",
    "Table",
]

TABLES: Final = unique((*BRONZE, *FACTS, *EVENTS, *GOLD))
"""Every table by its name."""
