"""`crewel topics`: what is published to, what is kept of it, and how to end it."""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

import typer

from crewel.cli import output, qos_options
from crewel.cli.admin_client import Admin, command
from crewel.cli.bayeux_client import AsJson

Channels = Annotated[list[str], typer.Argument(metavar="CHANNEL...", help="Channels: /chat/demo.")]

app = typer.Typer(name="topics", help="Inspect topics and their histories, and erase them.", no_args_is_help=True)


@command(app, "list")
async def _list(
    admin: Admin,
    pattern: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Only topics of this channel or pattern: '/chat/**'.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATE", help="Only topics in this state: ALIVE, UNREFERENCED, UNCONFIGURED or SOFTERASED."
        ),
    ] = None,
    as_json: AsJson = None,
) -> None:
    """Print the topics."""
    query = {name: value for name, value in (("pattern", pattern), ("state", state)) if value is not None}
    topics = admin.pages("/topics", "topics", query)
    await output.print_entries(topics, ("channel", "state", "history", "queued", "subscribers"), _row, as_json)


def _row(topic: Mapping[str, Any]) -> tuple[Any, ...]:
    history = topic["history"]
    kept = f"{history['entries']} of {history['maxEntries']}" if history["maxEntries"] else "none"
    return topic["channel"], topic["state"], kept, topic["queued"], topic["subscribers"]


@command(app)
async def show(admin: Admin, channels: Channels, as_json: AsJson = None) -> None:
    """Print all that is known of topics. Ends with 1 if there is none on a channel, or it is DEAD."""
    for path in _paths("topics", *channels):
        output.print_fields(await admin.call("GET", path), "channel", as_json)


@command(app)
async def history(
    admin: Admin,
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel.")],
    count: Annotated[int, typer.Option(min=1, max=1000, help="At most this many of the newest messages.")] = 100,
    newest_first: Annotated[bool, typer.Option("--newest-first", help="Newest first.")] = False,
) -> None:
    """Print the messages that the history of a topic keeps, a JSON object a line. They stay."""
    query = {"count": count, "newestFirst": "true" if newest_first else "false"}
    for path in _paths("history", channel):
        for message in (await admin.call("GET", path, query))["messages"]:
            output.print_json(message)


@command(app)
async def erase(
    admin: Admin,
    channels: Channels,
    force: Annotated[bool, typer.Option("--force", help="Drop queued messages too.")] = False,
    as_json: AsJson = None,
) -> None:
    """Erase topics with history and settings. Subscribers get a notice. Queued messages are delivered unless --force."""
    for path in _paths("topics", *channels):
        answer = await admin.call("DELETE", path, {"force": "true"} if force else {})
        end = _ENDS.get(answer["state"], "erased, and created again since")
        output.print_answer(answer, f"{answer['channel']}: {end}", as_json)


_ENDS = {"DEAD": "erased", "SOFTERASED": "erased; queued messages are still delivered"}


@command(app)
async def clear(admin: Admin, channels: Channels, as_json: AsJson = None) -> None:
    """Empty the histories of topics, and no more."""
    for path in _paths("history", *channels):
        answer = await admin.call("DELETE", path)
        output.print_answer(answer, f"{answer['channel']}: {answer['cleared']} messages removed", as_json)


def _paths(resource: str, *channels: str) -> list[str]:
    """The paths of these channels. Ends the command with 2 for what is no name of a channel, before anything is done."""
    return [f"/{resource}{quote(qos_options.channel_name(channel))}" for channel in channels]
