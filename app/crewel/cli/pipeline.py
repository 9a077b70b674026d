"""`crewel pipeline`: the data pipeline on Spark, which is imported when it is asked for, and not by the server."""

from importlib import import_module

import typer

from crewel.cli import connecting


def register(app: typer.Typer) -> None:
    """Add `pipeline` to the command line."""
    everything = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command(name="pipeline", add_help_option=False, context_settings=everything)(pipeline)


def pipeline(context: typer.Context) -> None:
    """Ask what happened: live, backfill, report, audit, redrive, compact, doctor."""
    import_module("crewel.pipeline.cli").run(context.args, connecting.local_token)
