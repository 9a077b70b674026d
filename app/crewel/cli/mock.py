"""`crewel mock`: stand-ins for services that speak Bayeux."""

import sys
from typing import Annotated

import typer

from crewel.cli import standard_streams

app = typer.Typer(name="mock", help="Serve stand-ins for Bayeux services, for tests.", no_args_is_help=True)


@app.callback()
def _mock() -> None:
    """Make `salesforce` a command of its own."""


@app.command()
def salesforce(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the org; 0 picks one.")] = 0,
    control_port: Annotated[int, typer.Option(help="Port of the control address; 0 picks one.")] = 0,
    edition: Annotated[
        str, typer.Option(help="Limits of the org: unlimited, performance, enterprise, developer.")
    ] = "enterprise",
    tls: Annotated[
        bool, typer.Option("--tls", help="Serve https with a certificate made at the start, and print how to trust it.")
    ] = False,
) -> None:
    """Serve a stand-in for Salesforce's streaming API. Prints `control URL`, `login URL`, `token TOKEN` and `ready URL`; with
    --tls, before the last one, `certificate FILE` and `trust VARIABLES`."""
    import asyncio

    from crewel.errors import SettingsError
    from crewel.mock.salesforce import Salesforce
    from crewel.mock.salesforce_control import ROUTES
    from crewel.testing.control import control_app
    from crewel.testing.process import until_ended

    def on_ready(url: str, control: str) -> None:
        print("control", control)
        print("login", org.login_url)
        print("token", org.token)
        if org.certificate is not None:
            from crewel.mock.self_signed_certificate import TRUST

            print("certificate", org.certificate)
            print("trust", *(f"{name}={org.certificate}" for name in TRUST))
        print("ready", url)
        sys.stdout.flush()

    try:
        with (
            standard_streams.closed_pipe_fails("nothing reads `ready`"),
            Salesforce(edition=edition, host=host, port=port, tls=tls) as org,
        ):
            app = control_app(org, org.settings, ROUTES)
            asyncio.run(until_ended(app, host, control_port, f"{org.url}/cometd", on_ready))
    except ValueError as error:
        raise SettingsError(str(error)) from None
    except OSError as error:
        raise SettingsError(str(error.strerror or error)) from None
