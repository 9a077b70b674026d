"""The other half of `wide`: what Spark has made of a batch becomes tables, in the memory of this process, with Arrow alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from crewel.pipeline.schemas import BYTES, GAP, PLACE, RAW, TABLES, Table
from crewel.pipeline.transformations.bronze import ORDER
from crewel.pipeline.transformations.minutes import COUNTED
from crewel.pipeline.transformations.shapes import EVENTS
from crewel.pipeline.transformations.wide import WHY

_MINUTES: Final = TABLES["minutes"]
_CORRUPT: Final = TABLES["corrupt"]
_GAPS: Final = TABLES["gaps"]
_EVENTS: Final = frozenset(each.table.name for each in EVENTS)
_PLACE: Final = {column.name: "id" if column.name == "place" else column.name for column in PLACE}
"""The columns of a row that come from its entry, and how those are called in bronze."""


def split(found: pa.Table) -> dict[str, pa.Table]:
    """Return bronze, and all tables of silver that have rows, by name, of what `wide` has made."""
    made = {RAW.name: found.select(RAW.names).sort_by([(name, "ascending") for name in ORDER])}
    for name in found.column_names:
        if name in TABLES:
            made[name] = _rows(found, TABLES[name])
    if "gap_before" in found.column_names:
        made[_GAPS.name] = _gaps(found)
    made[_CORRUPT.name] = _corrupt(found)
    return {name: table for name, table in made.items() if table.num_rows}


def minutes(made: Mapping[str, pa.Table]) -> pa.Table | None:
    """Return the table `minutes` of some tables, by their names; None if none of them is counted."""
    counted = [_counted(made[name], name) for name in COUNTED if name in made]
    if not counted:
        return None
    every = pa.concat_tables(counted).group_by(["minute", "date", "what"]).aggregate([("count", "sum")])
    return every.rename_columns(["minute", "date", "what", "count"]).select(_MINUTES.names)


def _rows(found: pa.Table, table: Table) -> pa.Table:
    """Return the rows of a table, each with the columns of its entry."""
    found = found.filter(pc.greater(pc.fill_null(pc.list_value_length(found[table.name]), 0), 0)).combine_chunks()
    if not found.num_rows:
        return pa.table({})
    lists = found[table.name].chunk(0)
    entries = pc.list_parent_indices(lists)
    rows = pc.list_flatten(lists)
    columns = {name: found[of].take(entries) for name, of in _PLACE.items()}
    if BYTES.name in table.names:
        shares = found["all_bytes"] if table.name in _EVENTS else pc.list_value_length(lists)
        size = pc.divide(pc.cast(found["bytes"], pa.float64()), pc.cast(shares, pa.float64()))
        columns[BYTES.name] = size.take(entries)
    own = {rows.type.field(i).name: rows.field(i) for i in range(rows.type.num_fields)}
    return pa.table({name: columns[name] if name in columns else own[name] for name in table.names})


def _gaps(found: pa.Table) -> pa.Table:
    found = found.filter(pc.ends_with(found["key"], GAP))
    before = found["gap_before"]
    columns = {name: found[of] for name, of in _PLACE.items()}
    columns["key"] = pc.utf8_slice_codeunits(found["key"], 0, -len(GAP))
    columns["before"] = before
    columns["before_ms"] = pc.cast(pc.replace_substring_regex(before, "-.*", ""), pa.int64())
    columns["lost"] = found["gap_lost"]
    return pa.table({name: columns[name] for name in _GAPS.names})


def _corrupt(found: pa.Table) -> pa.Table:
    """Return the entries that could not be understood, with the reason."""
    whys = [found[name] for name in found.column_names if name.startswith(WHY)]
    found = found.append_column("why", pc.coalesce(*whys, pa.scalar(None, pa.string())))
    found = found.filter(pc.is_valid(found["why"]))
    return pa.table({name: found[_PLACE.get(name, name)] for name in _CORRUPT.names})


def _counted(rows: pa.Table, name: str) -> pa.Table:
    counted = COUNTED[name]
    number = rows.num_rows
    what: pa.Array = pa.array([counted.what] * number, pa.string())
    if counted.of is not None:
        what = pc.binary_join_element_wise(counted.what, pc.cast(rows[counted.of], pa.string()), counted.after, "")
    count = pa.array([1] * number, pa.int64()) if counted.count is None else pc.cast(rows[counted.count], pa.int64())
    minute = pc.floor_temporal(rows["at"], unit="minute")
    return pa.table({"minute": minute, "date": rows["date"], "what": what, "count": count})
