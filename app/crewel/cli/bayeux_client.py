"""What commands share: options, where the server is, and how they end."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Iterable, Mapping
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import urlsplit

import typer

from crewel import outgoing_proxy
from crewel.addresses import HTTP_SCHEMES
from crewel.errors import CrewelError

if TYPE_CHECKING:
    from crewel.client import Client
    from crewel.settings import Settings

Credential = str | Callable[[], str] | None
"""A token, or what returns one."""

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
ResultT = TypeVar("ResultT")

DEFAULT_URL = "http://127.0.0.1:8080/cometd"

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="Settings file. Default: crewel.toml in this directory, if it exists."
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set a setting; may be repeated."),
]
Url = Annotated[
    str, typer.Option(envvar="CREWEL_URL", help="The server's Bayeux address. Without a path: its /cometd.")
]
Transports = Annotated[
    list[str] | None,
    typer.Option(
        "--transport", metavar="NAME", help="websocket or long-polling; may be repeated, in order of preference."
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        envvar="CREWEL_TOKEN",
        help=(
            "A JSON Web Token, or the admin token. Default: the admin token of a server on this machine; it is sent to "
            "that server only, and through no proxy."
        ),
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        envvar="CREWEL_TOKEN_FILE",
        metavar="FILE",
        help="File with the token, in the place of --token: read again before the token expires, and when it was refused.",
    ),
]
Proxy = Annotated[
    str | None,
    typer.Option(
        "--proxy",
        envvar="CREWEL_PROXY",
        metavar="URL",
        help=(
            "The HTTP proxy, http://NAME:PASSWORD@HOST:PORT; empty: none. Default: HTTP_PROXY, HTTPS_PROXY and NO_PROXY, but "
            "no proxy for a server on loopback."
        ),
    ),
]
ResumeFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File for the session's secret (0600), with which the next process takes over the session at once.",
    ),
]
Sender = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="SUBJECT",
        help=(
            "Subject of the sender, such as joe: receivers see client/joe/-7. Messages queued for joe stay queued. "
            "With --token, a subject of the token."
        ),
    ),
]
AsJson = Annotated[
    bool | None,
    typer.Option("--json/--no-json", help="Print one JSON object per line; the default without a terminal."),
]


def parameters(command: Callable[..., Any], options: Mapping[str, Any]) -> list[Parameter]:
    """The parameters of a command, with these options in the place of its `**asked`, or behind its `as_json`. An option is its
    annotation, or that and its default (`Parameter.empty`: it must be given); else the default is None."""
    own = [each for each in signature(command).parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
    more = [
        Parameter(
            name,
            Parameter.POSITIONAL_OR_KEYWORD,
            default=kind[1] if isinstance(kind, tuple) else None,
            annotation=kind[0] if isinstance(kind, tuple) else kind,
        )
        for name, kind in options.items()
    ]
    # What must be given stands first, as Python has it.
    return sorted([*own, *more], key=lambda each: each.default is not Parameter.empty)


def with_options(options: Mapping[str, Any]) -> Callable[[CommandT], CommandT]:
    """Let a command take these options, by the names of its arguments, as its `**asked`."""

    def extended(command: CommandT) -> CommandT:
        take(command, parameters(command, options))
        return command

    return extended


def take(command: Callable[..., Any], own: list[Parameter]) -> None:
    """Let a command that takes `**asked` have these parameters, as the library that reads the command line sees them."""
    vars(command)["__signature__"] = signature(command).replace(parameters=own)


def credential(token: str | None, file: Path | None) -> Credential:
    """The token of the command line; of a file, a function that reads it, and raises TokenUnavailableError."""

    def read(file: Path) -> str:
        from crewel.client import TokenUnavailableError

        try:
            found = file.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it has characters that no token has"
            raise TokenUnavailableError(f"the token file {file} cannot be read: {why}") from None
        if not found:
            raise TokenUnavailableError(f"the token file {file} is empty")
        return found

    return token if file is None else lambda: read(file)


def client(url: str, transports: list[str] | None, token: Credential, proxy: str | None, **more: Any) -> "Client":
    """The command's client: it tries once to reach the server. Wrong usage ends the command with 2."""
    from crewel.client import Client
    from crewel.client.config import TRANSPORTS

    try:
        options = {"token": token or local_token(url, proxy), "proxy": proxy, "open_timeout": 0}
        return Client(url, transports=transports or TRANSPORTS, **(options | more))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def patient_client(
    url: str, transports: list[str] | None, token: Credential, proxy: str | None, patience_s: float, **more: Any
) -> "Client":
    """A client that tries for so many seconds to reach the server, often; 0: once."""
    from crewel.client.publish_options import PAUSES

    return client(url, transports, token, proxy, open_timeout=patience_s, backoff=PAUSES, **more)


def as_sender(name: str | None) -> dict[str, Any]:
    """The client's options for a session of this subject that only sends; none without a name. Wrong usage ends the command
    with 2."""
    from crewel.qos.names import ANONYMOUS, parse_name

    if name is None:
        return {}
    found = parse_name(name)
    if found is None or found.subject == ANONYMOUS:
        raise typer.BadParameter(f"not a subject: {name}", param_hint="--name")
    if found.number:
        # Its queue would come to a command that reads nothing, and end with it.
        text = f"{name} is a session, which belongs to its receiver: give its subject, {found.subject}"
        raise typer.BadParameter(text, param_hint="--name")
    return {"name": name, "session": {"ptp": False}, "ack": False}


def local_token(url: str, proxy: str | None) -> str | None:
    """The admin token of this server, if it runs on this machine, keeps its token where this user can read it, and no proxy is
    on the way to it. Else None. Wrong usage ends the command with 2."""
    from crewel.security.tokens import find_token

    return None if proxy_on_the_way(url, proxy) is not None else find_token(url, _data_dir())


def proxy_on_the_way(url: str, proxy: str | None) -> outgoing_proxy.Proxy | None:
    """The proxy on the way to this server, if `--proxy` is this. Wrong usage ends the command with 2."""
    try:
        return outgoing_proxy.proxy_for(url, proxy)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def how_to_get_token() -> str:
    """What an error about a missing admin token advises: a clause. A server with a token in its settings keeps none for the
    commands, which cannot know that it is the one that they ask."""
    settings = _settings()
    if "CREWEL_ADMIN__TOKEN" in os.environ or (settings is not None and settings.admin.token is not None):
        return "give the token of the setting admin.token with --token or CREWEL_TOKEN"
    return "run the command in the server's working directory, or give the token with --token or CREWEL_TOKEN"


def elsewhere(url: str) -> str:
    """What an error about this address adds if the server of this directory listens at another one: a clause, or nothing."""
    from crewel.security.tokens import address_kept

    here = address_kept(_data_dir())
    return (
        ""
        if here is None or urlsplit(here).port == urlsplit(url).port
        else f"; the server of this directory: --url {here}"
    )


def _data_dir() -> str:
    settings = _settings()
    return os.environ.get("CREWEL_STORAGE__DATA_DIR", "data") if settings is None else settings.storage.data_dir


def _settings() -> "Settings | None":
    """Those of the server of this directory; None if they are not here, or do not hold."""
    from crewel.errors import SettingsError

    try:
        Path("crewel.toml").stat()
    except OSError:
        return None  # this user may not even enter this directory
    from crewel.settings import load  # slow to import, and most directories have no such file

    try:
        return load()
    except SettingsError:
        return None  # of another machine's server, perhaps: then there is no token to be found


def site(url: str) -> str:
    """The address of the site that has this Bayeux address: http://127.0.0.1:8080. Wrong usage ends the command with 2."""
    try:
        parts = urlsplit(url)
        is_known = parts.scheme in HTTP_SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a bracket that is not closed, or a port that is none
        is_known = False
    if not is_known:
        raise typer.BadParameter(
            f"--url takes an address such as {DEFAULT_URL}, not {outgoing_proxy.without_password(url)}"
        )
    return f"{HTTP_SCHEMES[parts.scheme]}://{parts.netloc}"


def check_channels(channels: Iterable[str]) -> None:
    """End the command with 2 if one of these is not a channel name."""
    from crewel.bayeux.channel import why_invalid

    for channel in channels:
        if why := why_invalid(channel):
            raise typer.BadParameter(f"not a channel name: {channel}: {why}")


def run(work: Coroutine[Any, Any, None], *, is_endless: bool = False) -> None:
    """Run until it is done, as `finished` does."""
    try:
        finished(work, is_endless=is_endless)
    except CrewelError as error:
        from crewel.client.errors import AccessDenied  # slow to import, and most commands do not fail

        if isinstance(error, AccessDenied):
            raise CrewelError(f"{error}; --token or CREWEL_TOKEN sets the token") from None
        raise


def finished(work: Coroutine[Any, Any, ResultT], *, is_endless: bool = False) -> ResultT:
    """What the work returns. A signal cancels it, so that it can say goodbye to the server and remove what it began, and ends
    the command with what a shell expects then. That is 0 if the work `is_endless`, where a signal is the regular end."""
    return asyncio.run(_unless_signalled(work, is_endless))


async def _unless_signalled(work: Coroutine[Any, Any, ResultT], is_endless: bool) -> ResultT:
    task = asyncio.ensure_future(work)
    came: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        came.append(number)
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        return await task  # work that was done before the signal could stop it counts as done
    except asyncio.CancelledError:
        if not came:
            raise
        raise typer.Exit(0 if is_endless else 128 + came[0]) from None
