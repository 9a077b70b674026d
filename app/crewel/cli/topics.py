"""`crewel topics`: what is published to, what is kept of it, and how to end it."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from crewel.cli import admin_client, bayeux_client, output, qos_options
from crewel.cli.admin_client import Admin

Channels = Annotated[list[str], typer.Argument(metavar="CHANNEL...", help="Channels: /chat/demo.")]

app = typer.Typer(name="topics", help="Look at topics and their histories, and erase them.", no_args_is_help=True)


def register(parent: typer.Typer) -> None:
    """Add `topics` to the command line."""
    parent.add_typer(app)


@app.command(name="list")
def list_topics(
    pattern: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Only those of this channel or pattern: '/chat/**'.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help="Only those ALIVE, UNREFERENCED, UNCONFIGURED or SOFTERASED."),
    ] = None,
    token: bayeux_client.Token = None,
    url: bayeux_client.Url = bayeux_client.DEFAULT_URL,
    as_json: bayeux_client.AsJson = None,
) -> None:
    """Print the topics."""
    query = {name: value for name, value in (("pattern", pattern), ("state", state)) if value is not None}

    async def work(admin: Admin) -> None:
        rows = []
        async for topic in admin_client.pages(admin, "/topics", "topics", query):
            if output.wants_json(as_json):
                output.print_json(topic)
            else:
                rows.append(_row(topic))
        if not output.wants_json(as_json):
            output.print_table(("channel", "state", "history", "queued", "subscribers"), rows)

    admin_client.operate(url, token, work)


def _row(topic: dict[str, Any]) -> tuple[Any, ...]:
    history = topic["history"]
    kept = f"{history['entries']} of {history['maxEntries']}" if history["maxEntries"] else "none"
    return topic["channel"], topic["state"], kept, topic["queued"], topic["subscribers"]


@app.command()
def show(
    channels: Channels,
    token: bayeux_client.Token = None,
    url: bayeux_client.Url = bayeux_client.DEFAULT_URL,
    as_json: bayeux_client.AsJson = None,
) -> None:
    """Print all that is known of topics. Ends with 1 if there is none on a channel, or it is DEAD."""
    paths = [_path("topics", channel) for channel in channels]

    async def work(admin: Admin) -> None:
        for path in paths:
            output.print_fields(await admin.get(path), "channel", as_json)

    admin_client.operate(url, token, work)


@app.command()
def history(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel.")],
    count: Annotated[int, typer.Option(min=1, max=1000, help="Most messages, of the newest.")] = 100,
    newest_first: Annotated[bool, typer.Option("--newest-first", help="In this order.")] = False,
    token: bayeux_client.Token = None,
    url: bayeux_client.Url = bayeux_client.DEFAULT_URL,
) -> None:
    """Print the messages that the history of a topic keeps, a JSON object a line. They stay."""
    path = _path("history", channel)

    async def work(admin: Admin) -> None:
        query = {"count": count, "newestFirst": "true" if newest_first else "false"}
        for message in (await admin.get(path, query))["messages"]:
            output.print_json(message)

    admin_client.operate(url, token, work)


@app.command()
def erase(
    channels: Channels,
    force: Annotated[bool, typer.Option("--force", help="Drop what waits in queues too.")] = False,
    token: bayeux_client.Token = None,
    url: bayeux_client.Url = bayeux_client.DEFAULT_URL,
    as_json: bayeux_client.AsJson = None,
) -> None:
    """End topics: history and settings go, subscribers get a notice. What waits in queues is delivered unless --force."""
    paths = [_path("topics", channel) for channel in channels]

    async def work(admin: Admin) -> None:
        for path in paths:
            answer = await admin.delete(path, {"force": "true"} if force else {})
            end = _ENDS.get(answer["state"], "erased, and there is another one by now")
            output.print_answer(answer, f"{answer['channel']}: {end}", as_json)

    admin_client.operate(url, token, work)


_ENDS = {"DEAD": "erased", "SOFTERASED": "erased; what waits in queues is still delivered"}


@app.command()
def clear(
    channels: Channels,
    token: bayeux_client.Token = None,
    url: bayeux_client.Url = bayeux_client.DEFAULT_URL,
    as_json: bayeux_client.AsJson = None,
) -> None:
    """Empty the histories of topics, and no more."""
    paths = [_path("history", channel) for channel in channels]

    async def work(admin: Admin) -> None:
        for path in paths:
            answer = await admin.delete(path)
            output.print_answer(answer, f"{answer['channel']}: {answer['cleared']} messages removed", as_json)

    admin_client.operate(url, token, work)


def _path(resource: str, channel: str) -> str:
    return f"/{resource}{quote(qos_options.channel_name(channel))}"
