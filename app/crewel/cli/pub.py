"""`crewel pub`: publishes messages to a channel."""

import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crewel.cli import bayeux_client, output, qos_options, standard_streams
from crewel.errors import CrewelError

if TYPE_CHECKING:
    from crewel.bayeux.message import Fields
    from crewel.client import Client, PublishRefused

LONGEST_MS = 100_000
"""How long a persistent message may be tried again: its key is good for two minutes."""
PATIENCE_MS = 30_000
"""How long a persistent message is tried again, unless the command says otherwise."""

Count = Annotated[int | None, typer.Option(min=1, help="Publish DATA this many times, or at most this many lines.")]


@bayeux_client.with_options(qos_options.OF_PUBLISH)
def pub(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="Channel to publish to.")],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="JSON or text. `-`, or nothing with a pipe: each line of standard input is one message.",
        ),
    ] = None,
    count: Count = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Messages per second. Default: as fast as the server replies.")
    ] = None,
    persistent: Annotated[
        bool,
        typer.Option(
            "--persistent",
            help="Store the message before the reply. While the server or its store is unavailable, retry for"
            f" {PATIENCE_MS // 1000} seconds, or for --timeout-ms.",
        ),
    ] = False,
    timeout_ms: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=LONGEST_MS,
            metavar="MS",
            help="With --persistent or --force-queuing: how long to retry each message.",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Idempotency key: repeating a publish with it within two minutes has no effect. The second of"
            " several messages has KEY-2. --persistent alone uses a random key.",
        ),
    ] = None,
    name: bayeux_client.Sender = None,
    token: bayeux_client.Token = None,
    token_file: bayeux_client.TokenFile = None,
    url: bayeux_client.Url = bayeux_client.DEFAULT_URL,
    proxy: bayeux_client.Proxy = None,
    transport: bayeux_client.Transports = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each reply as one JSON object per line.")] = False,
    **asked: Any,
) -> None:
    """Publish messages, each after the reply to the previous one. Prints nothing on success."""
    if asked["administrative"] and data is None:
        data = "null"
    _check(channel, data)
    options = qos_options.publish_options({"persistent": persistent or None, "key": key, **asked})
    is_stored = bool(options.get("persistent") or options.get("force_queuing"))
    if timeout_ms is not None and not is_stored:
        raise typer.BadParameter("--timeout-ms needs --persistent or --force-queuing")
    options["retry_for"] = patience = (timeout_ms or PATIENCE_MS) / 1000 if is_stored else 0.0
    who = bayeux_client.credential(token, token_file)
    client = bayeux_client.patient_client(url, transport, who, proxy, patience, **bayeux_client.as_sender(name))
    texts = _lines() if data is None or data == "-" else _repeated(data, 1 if count is None else count)
    bayeux_client.run(_publish(client, channel, _paced(texts, count, rate), options, as_json))


def _check(channel: str, data: str | None) -> None:
    from crewel.client.publish_options import publication

    try:
        publication(channel, None, None)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if data is None and sys.stdin.isatty():
        raise typer.BadParameter("DATA is missing: give DATA or `-`, or pipe lines in")
    if (
        data is not None and data[:1] in ("{", "[") and qos_options.value(data) == data
    ):  # the shell has taken its quotes
        print("crewel: DATA is not JSON, and is published as text", file=sys.stderr)


async def _publish(
    client: "Client", channel: str, texts: AsyncIterator[str], options: dict[str, Any], as_json: bool
) -> None:
    from crewel.client import PayloadRefusedError, PublishRefused

    key, number = options.get("key"), 0
    async with client:
        async for text in texts:
            number += 1
            options["key"] = key if key is None or number == 1 else f"{key}-{number}"
            try:
                reply: Fields = await client.publish(channel, qos_options.value(text), **options)
            except (PublishRefused, PayloadRefusedError) as error:
                words = str(error)
                if isinstance(error, PublishRefused):
                    words += _destinations(error)
                    if as_json:
                        output.print_json(error.reply)
                before = f"message {number}, after {number - 1} that were published: " if number > 1 else ""
                raise CrewelError(f"{before}{words}") from None
            if as_json:
                _show(reply, number)
    if number == 0:
        print("crewel: standard input was empty: nothing was published", file=sys.stderr)


def _show(reply: "Fields", number: int) -> None:
    with standard_streams.closed_pipe_fails(f"stopped after {number} messages"):
        output.print_json(reply)


def _destinations(error: "PublishRefused") -> str:
    """The state of each destination, if there are several: the error names the first one that failed, and others may have the
    message."""
    if len(error.destinations) < 2:
        return ""
    states = (f"{each.to} {each.state if each.is_ok else each.error_code}" for each in error.destinations)
    return f"; of all destinations: {', '.join(states)}"


async def _paced(texts: AsyncIterator[str], count: int | None, rate: float | None) -> AsyncIterator[str]:
    """At most `count` of the texts, each not before its time: a late one does not delay those after it."""
    import asyncio

    loop = asyncio.get_running_loop()
    start, taken = loop.time(), 0
    async for text in texts:
        if rate is not None:
            await asyncio.sleep(start + taken / rate - loop.time())
        yield text
        taken += 1
        if taken == count:
            return


async def _repeated(text: str, times: int) -> AsyncIterator[str]:
    for _ in range(times):
        yield text


async def _lines() -> AsyncIterator[str]:
    """The lines of standard input that are not empty. Raises CrewelError after those that could be read."""
    import asyncio
    import contextlib
    import threading

    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str | CrewelError | None] = asyncio.Queue()
    room = threading.Semaphore(100)

    def read() -> None:
        end: CrewelError | None = None
        with contextlib.suppress(RuntimeError):  # the loop is closed: `--count` lines are published
            try:
                for line in standard_streams.read_lines():
                    room.acquire()
                    loop.call_soon_threadsafe(lines.put_nowait, line)
            except CrewelError as error:
                end = error
            loop.call_soon_threadsafe(lines.put_nowait, end)

    # A daemon, because nothing can wake a thread out of reading a terminal when the command is to end.
    threading.Thread(target=read, name="crewel-pub-stdin", daemon=True).start()
    while (line := await lines.get()) is not None:
        if isinstance(line, CrewelError):
            raise line
        room.release()
        if line:
            yield line
