"""`crewel cmd`: one administrative command."""

from typing import Annotated

import typer

from crewel.cli import output
from crewel.cli.admin_client import Admin


async def cmd(
    admin: Admin,
    command: Annotated[
        str, typer.Argument(metavar="COMMAND", help="Such as '__cmd:client/joe/1/?dispatcherActive=true'.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object with the command and its result.")
    ] = False,
) -> None:
    """Carry out a command and print its result: a list by the line, an object as JSON."""
    answer = await admin.call("POST", "/commands", body={"command": command})
    if as_json:
        output.print_json(answer)
        return
    result = answer["result"]
    for each in result if isinstance(result, list) else [result]:
        if isinstance(each, str):
            print(each)
        else:
            output.print_json(each)
