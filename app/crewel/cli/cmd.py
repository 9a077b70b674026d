"""`crewel cmd`: one administrative command."""

from typing import Annotated, Any

import typer

from crewel.cli import admin_client, bayeux_client, output
from crewel.cli.admin_client import Admin


def register(app: typer.Typer) -> None:
    """Add `cmd` to the command line."""
    app.command(name="cmd")(cmd)


def cmd(
    command: Annotated[
        str, typer.Argument(metavar="COMMAND", help="Such as '__cmd:client/joe/1/?dispatcherActive=true'.")
    ],
    token: bayeux_client.Token = None,
    url: bayeux_client.Url = bayeux_client.DEFAULT_URL,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object with the command and its result.")
    ] = False,
) -> None:
    """Carry out a command and print its result: a list by the line, an object as JSON."""

    async def work(admin: Admin) -> None:
        answer = await admin.post("/commands", {"command": command})
        if as_json:
            output.print_json(answer)
        else:
            _print(answer["result"])

    admin_client.operate(url, token, work)


def _print(result: Any) -> None:
    for each in result if isinstance(result, list) else [result]:
        if isinstance(each, str):
            print(each)
        else:
            output.print_json(each)
