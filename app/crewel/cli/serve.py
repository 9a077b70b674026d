"""`crewel serve`: runs the server until SIGTERM or SIGINT."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crewel.cli.bayeux_client import Config, Overrides
from crewel.errors import SettingsError

if TYPE_CHECKING:
    from crewel.settings import Settings


def serve(
    host: Annotated[str | None, typer.Option(help="Same as --set http.host=…")] = None,
    port: Annotated[int | None, typer.Option(help="Same as --set http.port=…; 0 picks one.")] = None,
    data_dir: Annotated[str | None, typer.Option(metavar="DIRECTORY", help="Same as --set storage.data_dir=…")] = None,
    service: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE", help="Python module with services; may be repeated."),
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Take over the store even from a server that is alive, which then ends.")
    ] = False,
    overrides: Overrides = None,
    config: Config = None,
) -> None:
    """Serve Bayeux. Prints one line, `ready URL`, once it does. Ends with 3 if another server takes its store."""
    from crewel.settings import load

    given = {"http.host": host, "http.port": port, "storage.data_dir": data_dir}
    options = [f"{name}={value}" for name, value in given.items() if value is not None]
    if take_over:
        options.append("storage.take_over=true")
    settings = load(config, [*(overrides or ()), *options])
    _refuse_open_to_all(settings)
    _run(settings, service or [])


def _run(settings: "Settings", modules: list[str]) -> None:
    import uvloop

    from crewel import logs, server
    from crewel.broker.services import load_services

    logs.configure(settings)
    sys.path.insert(0, str(Path.cwd()))  # where people have their services; `python -m` does the same
    services = load_services(modules)
    try:
        uvloop.run(server.serve(settings, services, partial(_ready, settings)))
    except OSError as error:
        address = f"{settings.http.host}:{settings.http.port}"
        # Its own text repeats the address.
        why = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else error.strerror or error
        raise SettingsError(f"cannot serve on {address}: {why}") from None


def _ready(settings: "Settings", url: str) -> None:
    from crewel.security.tokens import note_address, read_token, token_file

    data_dir = settings.storage.data_dir
    if settings.admin.token is None and (token := read_token(data_dir)) is not None:
        note_address(data_dir, url)
        if sys.stderr.isatty():
            print(f"crewel: the admin token is {token}, kept in {token_file(data_dir)}", file=sys.stderr, flush=True)
    print("ready", url, flush=True)


def _refuse_open_to_all(settings: "Settings") -> None:
    """Raise SettingsError if everybody could reach a server that believes every name."""
    if settings.security.policy != "open" or settings.security.allow_open:
        return
    if not _is_loopback(settings.http.host):
        raise SettingsError(
            f"http.host {settings.http.host} is not loopback, and security.policy=open accepts every client:"
            " set security.allow_open=true if that is meant"
        )


def _is_loopback(host: str) -> bool:
    from crewel.transports.origins import is_loopback

    try:
        return is_loopback(host)
    except OSError as error:
        raise SettingsError(f"http.host {host}: {error.strerror}") from None
