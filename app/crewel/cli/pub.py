"""`crewel pub`: publishes messages to a channel."""

import sys
from collections.abc import AsyncIterator
from typing import Annotated, Any

import typer

from crewel.cli import connecting


def register(app: typer.Typer) -> None:
    """Add `pub` to the command line."""
    app.command(name="pub")(pub)


def pub(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="Where to.")],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="JSON, or else text. `-`, or nothing with a pipe: each line of standard input is one message.",
        ),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Publish DATA this often, or at most so many lines.")] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Messages a second; as fast as answered without.")
    ] = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    transport: connecting.Transports = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each reply as a JSON object a line.")] = False,
) -> None:
    """Publish one message, or many; each is answered before the next is sent. Says nothing if all goes well."""
    _check(channel, data)
    try:
        connecting.run(_publish(channel, data, count, rate, url, transport, as_json))
    except connecting.Interrupted as interrupted:
        raise typer.Exit(interrupted.exit_code) from None


def _check(channel: str, data: str | None) -> None:
    from crewel.client.message import publication

    try:
        publication(channel, None, None)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if data is None and sys.stdin.isatty():
        raise typer.BadParameter("DATA is missing: give it, `-`, or pipe lines in")


async def _publish(
    channel: str,
    data: str | None,
    count: int | None,
    rate: float | None,
    url: str,
    transports: list[str] | None,
    as_json: bool,
) -> None:
    import orjson

    texts = _lines() if data is None or data == "-" else _repeated(data, 1 if count is None else count)
    async with connecting.client(url, transports) as client:
        async for text in _paced(texts, count, rate):
            reply = await client.publish(channel, _value(text))
            if as_json:
                print(orjson.dumps(reply).decode(), flush=True)


def _value(text: str) -> Any:
    """The text as JSON if it is JSON, else the text."""
    import orjson

    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


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
    """The lines of standard input that are not empty."""
    import asyncio
    import threading

    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str | None] = asyncio.Queue(maxsize=100)

    def read() -> None:
        # A file of our own: at exit, Python would wait for the lock of sys.stdin that a blocked reader holds.
        with open(sys.stdin.fileno(), encoding="utf-8", errors="replace", closefd=False) as source:
            for line in source:
                asyncio.run_coroutine_threadsafe(lines.put(line.rstrip("\r\n")), loop).result()
        asyncio.run_coroutine_threadsafe(lines.put(None), loop).result()

    # A daemon, because nothing can wake a thread out of reading a terminal when the command is to end.
    threading.Thread(target=read, name="crewel-pub-stdin", daemon=True).start()
    while (line := await lines.get()) is not None:
        if line:
            yield line
