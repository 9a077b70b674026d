"""Every table of the pipeline: bronze as it was read, silver typed, gold the answers. docs/reference/pipeline-tables.md is
generated from it, and nothing else says what a column is called."""

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
