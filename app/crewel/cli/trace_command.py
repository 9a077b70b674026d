"""`crewel trace`: the messages of one session as they pass."""

from typing import Annotated, Any

import typer

from crewel.admin.operation import Level
from crewel.bayeux.numbers import parse
from crewel.cli import output
from crewel.cli.admin_client import Admin
from crewel.cli.bayeux_client import AsJson
from crewel.cli.operations import named_sessions


async def trace(
    admin: Admin,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The session: joe/1, or client/joe/1.")],
    seconds: Annotated[int, typer.Option(min=1, max=3600, help="How long.")] = 60,
    as_json: AsJson = None,
) -> None:
    """Print the messages of a session live, without secrets and masked fields. The session can
    be in use, and the command changes nothing."""
    [session] = named_sessions([name])
    rest = b""
    async for chunk in admin.chunks(f"{Level.SESSION.resource}/trace", {"seconds": seconds}, session):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in filter(None, lines):
            record = parse(line)
            if output.wants_json(as_json):
                output.print_json(record)
            else:
                print(_line(record), flush=True)


def _line(record: dict[str, Any]) -> str:
    from crewel.times import format_timestamp

    message = dict(record["message"])
    lost = f" ({record['lost']} before it were lost)" if record.get("lost") else ""
    sign, channel = "<" if record["way"] == "in" else ">", output.readable(message.pop("channel", ""))
    return f"{format_timestamp(record['at'])} {sign} {channel} {output.readable(message)}{lost}"
