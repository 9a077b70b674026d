"""`crewel topics`: what is published to, what is kept of it, and how to end it."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from crewel.cli import administering, asking, connecting
from crewel.cli.administering import Admin

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
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    as_json: connecting.AsJson = None,
) -> None:
    """Print the topics."""
    query: dict[str, str | int] = {"count": 1000}
    query |= {name: value for name, value in (("pattern", pattern), ("state", state)) if value is not None}

    async def work(admin: Admin) -> None:
        rows = []
        while True:
            page = await admin.get("/topics", query)
            for topic in page["topics"]:
                if administering.wants_json(as_json):
                    administering.print_json(topic)
                else:
                    rows.append(_row(topic))
            if not page["next"]:
                break
            query["after"] = page["next"]
        if not administering.wants_json(as_json):
            administering.print_table(("channel", "state", "history", "queued", "subscribers"), rows)

    administering.operate(url, token, work)


def _row(topic: dict[str, Any]) -> tuple[Any, ...]:
    history = topic["history"]
    kept = f"{history['entries']} of {history['maxEntries']}" if history["maxEntries"] else "none"
    return topic["channel"], topic["state"], kept, topic["queued"], topic["subscribers"]


@app.command()
def show(
    channels: Channels,
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    as_json: connecting.AsJson = None,
) -> None:
    """Print all that is known of topics. Ends with 1 if there is none on a channel, or it is DEAD."""
    paths = [_path("topics", channel) for channel in channels]

    async def work(admin: Admin) -> None:
        for path in paths:
            topic = await admin.get(path)
            if administering.wants_json(as_json):
                administering.print_json(topic)
            else:
                administering.print_table((topic["channel"], ""), list(topic.items()))

    administering.operate(url, token, work)


@app.command()
def history(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel.")],
    count: Annotated[int, typer.Option(min=1, max=1000, help="Most messages, of the newest.")] = 100,
    newest_first: Annotated[bool, typer.Option("--newest-first", help="In this order.")] = False,
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
) -> None:
    """Print the messages that the history of a topic keeps, a JSON object a line. They stay."""
    path = _path("history", channel)

    async def work(admin: Admin) -> None:
        query = {"count": count, "newestFirst": "true" if newest_first else "false"}
        for message in (await admin.get(path, query))["messages"]:
            administering.print_json(message)

    administering.operate(url, token, work)


@app.command()
def erase(
    channels: Channels,
    force: Annotated[bool, typer.Option("--force", help="Drop what waits in queues too.")] = False,
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    as_json: connecting.AsJson = None,
) -> None:
    """End topics: history and settings go, subscribers are told. What waits in queues is delivered, unless --force is given."""
    paths = [_path("topics", channel) for channel in channels]

    async def work(admin: Admin) -> None:
        for path in paths:
            answer = await admin.delete(path, {"force": "true"} if force else {})
            if administering.wants_json(as_json):
                administering.print_json(answer)
            else:
                print(f"{answer['channel']}: {_ENDS.get(answer['state'], 'erased, and there is another one by now')}")

    administering.operate(url, token, work)


_ENDS = {"DEAD": "erased", "SOFTERASED": "erased; what waits in queues is still delivered"}


@app.command()
def clear(
    channels: Channels,
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    as_json: connecting.AsJson = None,
) -> None:
    """Empty the histories of topics, and no more."""
    paths = [_path("history", channel) for channel in channels]

    async def work(admin: Admin) -> None:
        for path in paths:
            answer = await admin.delete(path)
            if administering.wants_json(as_json):
                administering.print_json(answer)
            else:
                print(f"{answer['channel']}: {answer['cleared']} messages removed")

    administering.operate(url, token, work)


def _path(resource: str, channel: str) -> str:
    return f"/{resource}{quote(asking.channel_name(channel))}"
