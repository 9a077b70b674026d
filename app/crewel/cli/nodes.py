"""`crewel nodes`: which servers share the store."""

from collections.abc import Mapping
from typing import Any

from crewel.cli import output
from crewel.cli.admin_client import Admin
from crewel.cli.bayeux_client import AsJson


async def nodes(admin: Admin, as_json: AsJson = None) -> None:
    """List the servers that share the store: state, sessions in the store, start, process."""
    found = (await admin.call("GET", "/nodes"))["nodes"]
    await output.print_entries(found, ("node", "state", "sessions", "since", "process"), _row, as_json)


def _row(node: Mapping[str, Any]) -> tuple[Any, ...]:
    from crewel.times import format_timestamp

    return node["node"], node["state"], node["sessions"], format_timestamp(node["since"]), node["process"]
