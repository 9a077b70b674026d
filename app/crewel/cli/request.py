"""`crewel request`: asks, and prints the answer."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crewel.cli import bayeux_client, output, qos_options, standard_streams

if TYPE_CHECKING:
    from crewel.client import Client


def request(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="Channel of the responders.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="The request: JSON or text. `-`: all of standard input.")],
    timeout_ms: Annotated[
        int, typer.Option(min=1, metavar="MS", help="Time-out of the reply, from the start of the command.")
    ] = 10_000,
    to: qos_options.To = None,
    persistent: Annotated[bool, typer.Option("--persistent", help="Store the request before it is answered.")] = False,
    sender: bayeux_client.Sender = None,
    token: bayeux_client.Token = None,
    token_file: bayeux_client.TokenFile = None,
    url: bayeux_client.Url = bayeux_client.DEFAULT_URL,
    proxy: bayeux_client.Proxy = None,
    transport: bayeux_client.Transports = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the whole message as a JSON object, not only its data.")
    ] = False,
) -> None:
    """Publish a request, wait for the answer, and print its data as JSON.

    If no answer arrives in time, or the answer is an error, prints one line on standard error.
    """
    name = qos_options.channel_name(channel)
    text = standard_streams.read_text().strip() if data == "-" else data
    options: dict[str, Any] = {"persistent": persistent or None, "to": qos_options.addresses(to)}
    who = bayeux_client.credential(token, token_file)
    client = bayeux_client.patient_client(
        url, transport, who, proxy, timeout_ms / 1000, **bayeux_client.as_sender(sender)
    )
    bayeux_client.run(_request(client, name, qos_options.value(text), timeout_ms / 1000, options, as_json))


async def _request(
    client: "Client", channel: str, data: Any, limit_s: float, options: dict[str, Any], as_json: bool
) -> None:
    from crewel.client import AnswerTimeoutError

    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    async with client:
        left = max(deadline - loop.time(), 0.001)
        try:
            answer = await client.request(channel, data, left, **options)
        except AnswerTimeoutError:
            raise AnswerTimeoutError(f"{channel}: no answer within {limit_s:g} s") from None
        output.print_json(answer.fields if as_json else answer.data)
