"""`crewel nodes`: which servers share the store."""

from collections.abc import Mapping
from typing import Any, Final

from crewel.cli import output
from crewel.cli.admin_client import Admin
from crewel.cli.bayeux_client import AsJson

_WORDS: Final = {"ALIVE": "running", "DEAD": "gone"}
"""The states of the API, as the operator's page says them."""


async def nodes(admin: Admin, as_json: AsJson = None) -> None:
    """List the servers that share the store: whether they run, sessions in the store, start, process. A server that is gone
    stands there until others have taken over all its sessions."""
    found = (await admin.call("GET", "/nodes"))["nodes"]
    await output.print_entries(found, ("node", "state", "stored sessions", "since", "process"), _row, as_json)


def _row(node: Mapping[str, Any]) -> tuple[Any, ...]:
    from crewel.times import format_timestamp

    state = _WORDS.get(node["state"], node["state"])
    return node["node"], state, node["sessions"], format_timestamp(node["since"]), node["process"]
