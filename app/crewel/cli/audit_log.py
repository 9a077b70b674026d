"""`crewel audit-log`: what operators did, and what they were refused."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from crewel.cli import output
from crewel.cli.admin_client import LISTED, Admin, Count, given
from crewel.cli.bayeux_client import AsJson


async def audit_log(
    admin: Admin,
    who: Annotated[str | None, typer.Option(metavar="NAME", help="Only actions of this operator: joe, admin.")] = None,
    what: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Only actions that begin with this text: 'hold session', redrive."),
    ] = None,
    about: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only actions on this name or below it: client/joe, /chat/demo.")
    ] = None,
    outcome: Annotated[
        str | None, typer.Option(metavar="OUTCOME", help="Only actions with this outcome: done, refused or failed.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="Only actions after this time: 30m, 2h or 7d ago, or a date such as 2026-11-20."
        ),
    ] = None,
    contains: Annotated[str | None, typer.Option(metavar="TEXT", help="Only entries that contain this text.")] = None,
    count: Count = None,
    as_json: AsJson = None,
) -> None:
    """Print the actions of operators, including refused ones, newest first: operator, action, object, number, reason."""
    query = given(who=who, what=what, about=about, outcome=outcome, since=since, contains=contains)
    if count is None and not output.wants_json(as_json):
        count = LISTED
    headings = ("when", "who", "what", "on", "count", "outcome", "reason")
    await output.print_entries(admin.pages("/audit", "entries", query, count), headings, _row, as_json)


def _row(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    from crewel.times import format_timestamp

    count = "" if entry["count"] is None else entry["count"]
    outcome = ", ".join(filter(None, (entry["outcome"], entry["errorCode"])))
    about = entry["about"] or entry["details"].get("command", "")
    return format_timestamp(entry["at"]), entry["who"], entry["what"], about, count, outcome, entry["reason"]
