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
    from collections.abc import Callable

    from crewel.broker.services import Service
    from crewel.settings import Settings


_TO_TRY = """crewel: the chat is at {base}/chat/; open it in two windows. To try in another terminal, after
crewel: `source .venv/bin/activate` in a checkout:
    crewel sub /chat/demo
    crewel pub /chat/demo '{{"user": "joe", "chat": "hello"}}' --persistent
    crewel sessions list"""


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
    ephemeral: Annotated[
        bool,
        typer.Option(
            "--ephemeral",
            help="For tests: serve on a free port with an empty store in a temporary directory, which is removed in the"
            " end. Prints also `control URL`, an address that publishes, moves the clock, kills and restarts the server.",
        ),
    ] = False,
    control_port: Annotated[int, typer.Option(help="With --ephemeral: port of the control address; 0 picks one.")] = 0,
    overrides: Overrides = None,
    config: Config = None,
) -> None:
    """Serve Bayeux. Prints one line, `ready URL`, once it does. Ends with 3 if another server takes its store."""
    from crewel.settings import load

    given = {"http.host": host, "http.port": port, "storage.data_dir": data_dir}
    options = [f"{name}={value}" for name, value in given.items() if value is not None]
    if take_over:
        options.append("storage.take_over=true")
    if ephemeral:
        _run_ephemeral(partial(load, config), [*(overrides or ()), *options], service or [], control_port)
        return
    settings = load(config, [*(overrides or ()), *options])
    _refuse_open_to_all(settings)
    _run(settings, service or [])


def _run_ephemeral(
    load: "Callable[[list[str]], Settings]", overrides: list[str], modules: list[str], control_port: int
) -> None:
    """Serve with a data directory that is removed in the end. What the caller sets replaces what tests usually want."""
    import asyncio
    from tempfile import TemporaryDirectory

    from crewel import logs
    from crewel.testing.instance import ADMIN_TOKEN
    from crewel.testing.process import serve_ephemeral

    with TemporaryDirectory(prefix="crewel-") as directory:
        usual = {"http.port": 0, "http.demos": False, "storage.data_dir": directory, "admin.token": ADMIN_TOKEN}
        settings = load([*(f"{name}={value}" for name, value in usual.items()), *overrides])
        _refuse_open_to_all(settings)
        logs.configure(settings)
        asyncio.run(serve_ephemeral(settings, _services(modules), control_port, _ready_for_tests))


def _ready_for_tests(url: str, control: str) -> None:
    print("control", control)
    print("ready", url, flush=True)


def _run(settings: "Settings", modules: list[str]) -> None:
    import uvloop

    from crewel import logs, server

    logs.configure(settings)
    services = _services(modules)
    try:
        uvloop.run(server.serve(settings, services, partial(_ready, settings)))
    except OSError as error:
        address = f"{settings.http.host}:{settings.http.port}"
        # Its own text repeats the address.
        why = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else error.strerror or error
        raise SettingsError(f"cannot serve on {address}: {why}") from None


def _services(modules: list[str]) -> "list[Service]":
    from crewel.broker.services import load_services

    sys.path.insert(0, str(Path.cwd()))  # where people have their services; `python -m` does the same
    return load_services(modules)


def _ready(settings: "Settings", url: str) -> None:
    from crewel.security.tokens import note_address, read_token, token_file

    data_dir = settings.storage.data_dir
    if settings.admin.token is None and (token := read_token(data_dir)) is not None:
        note_address(data_dir, url)
        if sys.stderr.isatty():
            print(f"crewel: the admin token is {token}, kept in {token_file(data_dir)}", file=sys.stderr, flush=True)
    print("ready", url, flush=True)
    if settings.http.demos and sys.stderr.isatty():
        print(_TO_TRY.format(base=url.removesuffix(settings.bayeux.path)), file=sys.stderr, flush=True)


def _refuse_open_to_all(settings: "Settings") -> None:
    """Raise SettingsError if everyone could reach a server that believes every name."""
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
