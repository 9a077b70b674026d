"""`crewel reply`: answers requests, with what they said or with what a command prints."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from crewel.cli import bayeux_client, qos_options

if TYPE_CHECKING:
    from crewel.client import Client, Message
    from crewel.client.client_responder import OnRequest

FAILED: Final = "user.clientCode"
"""What a command that fails answers."""
SLOW: Final = "communication.timeout"
"""What a command that takes too long answers."""


def reply(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="A name or a wildcard: /power /power/**")],
    echo: Annotated[bool, typer.Option("--echo", help="Answer each request with its own data.")] = False,
    command: Annotated[
        str | None,
        typer.Option(
            metavar="CMD",
            help="Shell command that prints the answer, JSON or text. It reads the request's data, as JSON,"
            " from its standard input; CREWEL_CHANNEL and CREWEL_SENDER hold the channel and the requester. If it fails, the"
            " last line of its standard error is the message of the answer.",
        ),
    ] = None,
    timeout_ms: Annotated[int, typer.Option(min=1, metavar="MS", help="Time-out of the command.")] = 60_000,
    at_once: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many requests to process at the same time.")
    ] = 1,
    count: Annotated[int | None, typer.Option(min=1, help="End after this many requests.")] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the session: joe/1, or joe to get a number."),
    ] = None,
    resume_file: bayeux_client.ResumeFile = None,
    group: qos_options.Group = None,
    token: bayeux_client.Token = None,
    token_file: bayeux_client.TokenFile = None,
    url: bayeux_client.Url = bayeux_client.DEFAULT_URL,
    proxy: bayeux_client.Proxy = None,
    transport: bayeux_client.Transports = None,
) -> None:
    """Answer requests until interrupted. Reports on standard error when it listens. Ignores messages that are not requests."""
    bayeux_client.check_channels([channel])
    if echo is (command is not None):
        raise typer.BadParameter("give either --echo or --command CMD")
    answer: OnRequest = _echo if command is None else _command(command, timeout_ms / 1000)
    who = bayeux_client.credential(token, token_file)
    client = bayeux_client.client(url, transport, who, proxy, name=name, resume_file=resume_file, update=True)
    work = _reply(client, channel, answer, at_once, count, {} if group is None else {"group": group})
    bayeux_client.run(work, is_endless=count is None)


async def _reply(
    client: "Client", channel: str, answer: "OnRequest", at_once: int, count: int | None, options: dict[str, Any]
) -> None:
    from crewel.client.client_responder import Responder

    responder = Responder(answer, client.publish, at_once)
    async with client:
        while count != 0:  # again, if the topic was erased: another of its name may come
            subscription = await client.subscribe(channel, **options)
            print(f"crewel: replying on {channel}", file=sys.stderr, flush=True)
            came = await responder.run(subscription, count)
            count = None if count is None else count - came


def _echo(message: "Message") -> Any:
    from crewel.client import create_response

    return create_response(message)


def _command(command: str, timeout: float) -> "OnRequest":
    """What answers with the output of this command."""
    from crewel.client import ErrorAnswer

    async def answer(message: "Message") -> Any:
        variables = {"CREWEL_CHANNEL": message.channel, "CREWEL_SENDER": message.sender or ""}
        try:
            async with asyncio.timeout(timeout):
                status, out, err = await _run(command, message.data, variables)
        except TimeoutError:
            raise ErrorAnswer(SLOW, f"the command took longer than {timeout:g} s") from None
        if status:
            words = err.strip().splitlines()
            raise ErrorAnswer(FAILED, words[-1] if words else f"the command ended with {status}")
        return qos_options.value(out.strip())

    return answer


async def _run(command: str, data: Any, variables: dict[str, str]) -> tuple[int, str, str]:
    """Run it to its end: its status, what it printed, and what it said of errors. Cancelled, it is killed."""
    from crewel.bayeux.codec import encode

    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_shell(
        command, stdin=pipe, stdout=pipe, stderr=pipe, env=os.environ | variables, start_new_session=True
    )
    try:
        out, err = await process.communicate(encode(data) + b"\n")
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    return process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace")
