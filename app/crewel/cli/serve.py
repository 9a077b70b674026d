"""`crewel serve`: runs the server until SIGTERM or SIGINT."""

import errno
import gc
import os
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from crewel.cli import standard_streams
from crewel.cli.bayeux_client import DEFAULT_URL, Config, Overrides
from crewel.cli.console_command import page_link
from crewel.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from crewel.broker.services import Service
    from crewel.settings import Settings
    from crewel.workers.control_channel import Inheritance
    from crewel.workers.parent import Command


_TO_TRY = """crewel: the chat is at {base}/chat/; open it in two windows. To try in another terminal, after
crewel: `source .venv/bin/activate` in a checkout:
    crewel sub /chat/demo{option}
    crewel pub /chat/demo '{{"user": "joe", "chat": "hello"}}' --persistent{option}
    crewel sessions list"""


_TO_OPERATE = """crewel: the operator's page is at the link below, which signs in once, within 15 minutes (crewel console
crewel: prints another):
    {link}"""


def serve(
    host: Annotated[str | None, typer.Option(help="Same as --set http.host=…")] = None,
    port: Annotated[int | None, typer.Option(help="Same as --set http.port=…; 0 picks one.")] = None,
    data_dir: Annotated[str | None, typer.Option(metavar="DIRECTORY", help="Same as --set storage.data_dir=…")] = None,
    service: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE", help="Python module with services; may be repeated."),
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Take over the store even from a running server, which then ends.")
    ] = False,
    ephemeral: Annotated[
        bool,
        typer.Option(
            "--ephemeral",
            help="For tests: serve on a free port of loopback with an empty store in a temporary directory, which is removed"
            " at the end. Also prints `control URL`, an address that publishes, moves the clock, kills and restarts the"
            " server.",
        ),
    ] = False,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Same as --set cluster.workers=…")] = None,
    inherited: Annotated[str | None, typer.Option("--inherited", hidden=True)] = None,
    control_port: Annotated[int, typer.Option(help="With --ephemeral: port of the control address; 0 picks one.")] = 0,
    overrides: Overrides = None,
    config: Config = None,
) -> None:
    """Run the server. Prints one line, `ready URL`, when it accepts requests. Exits with 3 if another server takes its
    store."""
    from crewel.settings import load

    given = {"http.host": host, "http.port": port, "storage.data_dir": data_dir, "cluster.workers": workers}
    options = [f"{name}={value}" for name, value in given.items() if value is not None]
    if take_over:
        options.append("storage.take_over=true")
    modules = service or []
    if ephemeral:
        _run_ephemeral(partial(load, config), [*(overrides or ()), *options], modules, control_port)
        return
    options = [*(overrides or ()), *options]
    settings = load(config, options)
    _refuse_open_to_all(settings)
    if inherited is not None:
        _run_worker(settings, modules, inherited)
    elif settings.cluster.workers > 1:
        _run_workers(settings, partial(_worker_command, config, options, modules))
    else:
        _run(settings, modules)


def _worker_command(
    config: Path | None, options: list[str], modules: list[str], inherited: "Inheritance", decided: list[str]
) -> list[str]:
    """The command line of a worker. It reads the settings from the same sources, when it starts."""
    command = [sys.executable, "-m", "crewel", "serve", f"--inherited={inherited.text()}"]
    if config is not None:
        command.append(f"--config={config}")
    return [*command, *(f"--set={each}" for each in (*options, *decided)), *(f"--service={each}" for each in modules)]


def _run_worker(settings: "Settings", modules: list[str], inherited: str) -> None:
    gc.disable()  # as in _run
    import uvloop

    from crewel import logs, server
    from crewel.workers.control_channel import Inheritance
    from crewel.workers.worker import Worker

    logs.configure(settings)
    worker = Worker(Inheritance.read(inherited))
    uvloop.run(server.serve(settings, _services(modules), worker.is_ready, worker))


def _run_workers(settings: "Settings", command: "Command") -> None:
    import uvloop

    from crewel import logs
    from crewel.workers.parent import Parent

    if not settings.storage.enabled:
        raise SettingsError("cluster.workers needs storage.enabled: the workers share a store")
    logs.configure(settings)
    with _explaining(settings):

        async def run() -> None:
            await Parent(settings, command).run(partial(_ready, settings))

        uvloop.run(run())


_OF_ITS_OWN: Final = {
    "http.host": "127.0.0.1",
    "http.port": 0,
    "http.demos": False,
    "storage.url": "",
    "storage.replicas": 0,
    "cluster.enabled": False,
    "cluster.tails": "primary",
    "admin.notice_webhook": "",
    "admin.notice_webhook_token": "",
    "delivery.dead_letter_webhook": "",
    "delivery.dead_letter_webhook_token": "",
    "telemetry.traces": False,
}
"""Where a server for tests listens and what it calls, unless the command line says otherwise. The file and the environment may
be those of a real server, and the control address needs no password."""


def ephemeral_settings(load: "Callable[[list[str]], Settings]", directory: str, overrides: list[str]) -> "Settings":
    """The settings of a server for tests with this data directory. Options replace what tests usually want. Raises
    SettingsError."""
    from crewel.testing.instance import ADMIN_TOKEN

    usual = {**_OF_ITS_OWN, "storage.data_dir": directory, "admin.token": ADMIN_TOKEN}
    settings = load([*(f"{name}={value}" for name, value in usual.items()), *overrides])
    security, keys = settings.security, "security.jwt_keys"
    is_address = (security.jwt_keys or "").startswith(("http://", "https://"))
    # Without the keys, its policy would be another one than was asked for.
    if security.policy == "jwt" and is_address and settings.source(keys) != "--set":
        raise SettingsError(
            f"--ephemeral calls no address that a file or the environment names: set {keys} or security.policy=open with --set"
        )
    return settings


def _run_ephemeral(
    load: "Callable[[list[str]], Settings]", overrides: list[str], modules: list[str], control_port: int
) -> None:
    """Serve with a data directory that is removed in the end. Raises SettingsError."""
    import asyncio
    from tempfile import TemporaryDirectory

    from crewel import logs
    from crewel.testing.process import serve_ephemeral

    with TemporaryDirectory(prefix="crewel-") as directory:
        settings = ephemeral_settings(load, directory, overrides)
        if settings.cluster.workers > 1:
            raise SettingsError(
                f"--ephemeral serves with one process, and cluster.workers is {settings.cluster.workers}:"
                " set cluster.workers=1"
            )
        _refuse_open_to_all(settings)
        logs.configure(settings)
        services = _services(modules)
        with _explaining(settings):
            asyncio.run(serve_ephemeral(settings, services, control_port, _ready_for_tests))


def _ready_for_tests(url: str, control: str) -> None:
    print("control", control)
    print("ready", url, flush=True)


def _run(settings: "Settings", modules: list[str]) -> None:
    gc.disable()  # what is imported stays: looking for garbage in it takes a sixth of a start. The server enables it again
    import uvloop

    from crewel import logs, server

    logs.configure(settings)
    services = _services(modules)
    with _explaining(settings):
        uvloop.run(server.serve(settings, services, partial(_ready, settings)))


@contextmanager
def _explaining(settings: "Settings") -> "Iterator[None]":
    """Say which address it was that could not be had, or that nothing reads where the server is."""
    try:
        with standard_streams.closed_pipe_fails("nothing reads `ready`"):
            yield
    except OSError as error:
        address = f"{settings.http.host}:{settings.http.port}"
        # Its own text repeats the address.
        why = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else error.strerror or error
        advice = "; stop the program that uses the port, or choose another port with --port or CREWEL_HTTP__PORT"
        raise SettingsError(
            f"cannot serve on {address}: {why}{advice if error.errno == errno.EADDRINUSE else ''}"
        ) from None


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
    token = settings.admin.token or read_token(data_dir)
    if token is not None and sys.stderr.isatty():
        print(_TO_OPERATE.format(link=page_link(url, token)), file=sys.stderr, flush=True)
    if settings.http.demos and sys.stderr.isatty():
        print(_to_try(url, url.removesuffix(settings.bayeux.path)), file=sys.stderr, flush=True)


def _to_try(url: str, base: str) -> str:
    """What a person may do next; the commands find only the usual address without a setting."""
    return _TO_TRY.format(base=base, option="" if url == DEFAULT_URL else f" --url {url}")


def _refuse_open_to_all(settings: "Settings") -> None:
    """Raise SettingsError if everyone could reach a server that believes every name."""
    if settings.security.policy != "open" or settings.security.allow_open:
        return
    if not _is_loopback(settings.http.host):
        raise SettingsError(
            f"http.host {settings.http.host} is not loopback, and security.policy=open accepts every client:"
            " set security.allow_open=true if you want this, or if a service has its own policy"
        )


def _is_loopback(host: str) -> bool:
    from crewel.transports.origins import is_loopback

    try:
        return is_loopback(host)
    except OSError as error:
        raise SettingsError(f"http.host {host}: {error.strerror}") from None
