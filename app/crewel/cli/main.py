"""Puts the commands together and turns errors into one line and an exit status.

Exit status: 0, 1 with one line on stderr, 2 for wrong usage; `serve` has more, which docs/how-to/operating.md lists. Command
modules import what they need inside their commands, because each start of the server would wait for it.
"""

import sys
from importlib import import_module
from typing import Annotated

import typer

from crewel.cli import (
    bayeux_client,
    dead_letter_bin_commands,
    job_commands,
    mock,
    operations,
    scheduled_commands,
    settings,
    standard_streams,
)
from crewel.cli.admin_client import command
from crewel.cli.audit_log import audit_log
from crewel.cli.backup import backup, restore
from crewel.cli.conformance import conformance
from crewel.cli.console_command import console
from crewel.cli.doctor import doctor
from crewel.cli.examples import add_examples
from crewel.cli.message_command import message
from crewel.cli.nodes_command import nodes
from crewel.cli.pages_command import pages
from crewel.cli.presence_command import presence
from crewel.cli.pub import pub
from crewel.cli.reply import reply
from crewel.cli.request import request
from crewel.cli.serve import serve
from crewel.cli.sub import sub
from crewel.cli.top import top
from crewel.cli.trace_command import trace
from crewel.errors import CrewelError
from crewel.standard_output import Commands

app = typer.Typer(
    name="crewel",
    cls=Commands,
    help="A Bayeux server that does not lose messages.",
    epilog="`crewel COMMAND --help` explains a command and shows an example.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its boxes break an error into several lines, also in a log
)
for _command in (serve, console, doctor, pages, backup, restore, pub, sub, request, reply, conformance):
    app.command(name=_command.__name__)(_command)
command(app)(operations.cmd)
command(app)(nodes)
command(app)(message)
command(app)(presence)
command(app)(top)
command(app)(trace)
command(app, "audit-log")(audit_log)
for _group in (
    settings.app,
    operations.sessions,
    operations.subjects,
    operations.topics,
    dead_letter_bin_commands.group,
    job_commands.app,
    scheduled_commands.app,
    mock.app,
):
    app.add_typer(_group)


@app.command(
    name="pipeline",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def pipeline(context: typer.Context) -> None:
    """Analyse facts and events: live, backfill, report, audit, query, redrive, compact, doctor."""
    # By name, so that nothing of the server imports the pipeline and its Spark.
    jobs_of_spark = import_module("crewel.pipeline.cli")
    add_examples(jobs_of_spark.app, ("pipeline",))
    jobs_of_spark.run(context.args, bayeux_client.local_token)


add_examples(app)


def run() -> None:
    """Run the command line of this process and exit."""
    standard_streams.prepare()
    try:
        app()
    except CrewelError as error:
        from crewel.logs import escaped

        print(f"crewel: {escaped(str(error), is_one_line=False)}", file=sys.stderr)  # it may repeat words of a client
        sys.exit(error.exit_status)


def _print_version(wanted: bool) -> None:
    if wanted:
        from crewel.version import VERSION

        print("crewel", VERSION)
        raise typer.Exit


@app.callback()
def _crewel(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Hold the options that stand before a command."""
