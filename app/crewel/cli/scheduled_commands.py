"""`crewel scheduled`: messages that are to be published later, and how to cancel them."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from crewel.cli import output
from crewel.cli.admin_client import LISTED, MAX_PAGE, Admin, Count, Named, Reason, command, given
from crewel.cli.bayeux_client import AsJson

app = typer.Typer(name="scheduled", help="List scheduled messages, and cancel them.", no_args_is_help=True)

_Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of scheduled messages.")]


@command(app, "list")
async def _list(
    admin: Admin,
    channel: Annotated[str | None, typer.Option(metavar="CHANNEL", help="Only on this channel or pattern.")] = None,
    count: Count = None,
    as_json: AsJson = None,
) -> None:
    """Print scheduled messages, those that are due first, first."""
    if count is None and not output.wants_json(as_json):
        count = LISTED
    found = admin.pages("/scheduled-messages", "messages", given(channel=channel), count)
    headings = ("id", "deliver at", "channel", "sender", "data", "refused because")
    await output.print_entries(found, headings, _row, as_json)


def _row(each: Mapping[str, Any]) -> tuple[Any, ...]:
    from crewel.times import format_timestamp

    sender = each["sender"].removeprefix("client/")
    return each["id"], format_timestamp(each["deliverAt"]), each["channel"], sender, each["data"], each["refusal"]


@command(app)
async def show(admin: Admin, ids: _Ids, as_json: AsJson = None) -> None:
    """Show everything about scheduled messages."""
    for message_id in ids:
        found = await admin.call(
            "GET", "/scheduled-messages/{scheduled}", about=Named({"scheduled": message_id}, "id", message_id)
        )
        output.print_fields(found, "id", as_json)


@command(app)
async def cancel(admin: Admin, ids: _Ids, reason: Reason = None, as_json: AsJson = None) -> None:
    """Cancel scheduled messages: they are not published."""
    cancelled, wanted = 0, list(dict.fromkeys(ids))
    for start in range(0, len(wanted), MAX_PAGE):
        body = {"ids": wanted[start : start + MAX_PAGE]} | given(reason=reason)
        cancelled += (await admin.call("POST", "/scheduled-messages/cancel", body=body))["cancelled"]
    text = f"{cancelled} cancelled"
    if cancelled < len(wanted):
        text += f"; {len(wanted) - cancelled} not there: published, or cancelled before"
    output.print_answer({"cancelled": cancelled}, text, as_json)
