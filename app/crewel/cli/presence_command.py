"""`crewel presence`: which channels have members, or the members of one."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from crewel.cli import output
from crewel.cli.admin_client import Admin, Named
from crewel.cli.bayeux_client import AsJson
from crewel.cli.qos_options import channel_name


async def presence(
    admin: Admin,
    channel: Annotated[str | None, typer.Argument(metavar="CHANNEL", help="Only the members of this channel.")] = None,
    as_json: AsJson = None,
) -> None:
    """List the channels that have members, or the members of one channel: id, sessions and data."""
    if channel is None:
        found = admin.pages("/presence", "channels", {})
        await output.print_entries(found, ("channel", "members", "sessions"), _row, as_json)
    else:
        name = channel_name(channel)
        about = Named({"channel": name}, "channel", name)
        members = (await admin.call("GET", "/presence/{channel}", about=about))["members"]
        await output.print_entries(members, ("member", "sessions", "data"), _member, as_json)


def _row(channel: Mapping[str, Any]) -> tuple[Any, ...]:
    return channel["channel"], channel["members"], channel["sessions"]


def _member(member: Mapping[str, Any]) -> tuple[Any, ...]:
    from crewel.bayeux.codec import encode

    return member["id"], member["sessions"], encode(member["data"]).decode()
