"""What `pub` and `sub` may ask of the server for their messages: the options, and how they are read."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

if TYPE_CHECKING:
    from crewel.client import Position

_DURATION: Final = re.compile(r"([0-9]{1,15})(ms|s|m|h|d|w|)", re.ASCII)
_FOR_EVER: Final = ("-1", "forever")


def _priority(text: str) -> int | str:
    from crewel.qos.publish import PRIORITIES  # late, as in all commands: reading the tables takes a fifth of a start

    if text.upper() in PRIORITIES:
        return text.upper()
    if text.isascii() and text.isdigit() and int(text) <= 9:
        return int(text)
    raise typer.BadParameter(f"{text} is neither a number from 0 to 9 nor one of {', '.join(PRIORITIES)}")


def _address(text: str) -> str:
    from crewel.qos.names import parse_name

    if parse_name(text) is None:
        raise typer.BadParameter(
            f"{text} is not the name of a session or a subject, such as client/joe/1 or client/joe"
        )
    return text


def addresses(texts: Sequence[str] | None) -> list[str] | None:
    """Names of sessions and subjects. Raises BadParameter."""
    return [_address(each) for each in texts] if texts else None


def duration(text: str) -> float:
    """Seconds; -1: without limit. Raises BadParameter."""
    from crewel.times import UNITS_MS

    if text in _FOR_EVER:
        return -1
    found = _DURATION.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text} is not a time such as 500, 90s, 30m, 2h or 7d; a bare number is milliseconds")
    return int(found[1]) * (UNITS_MS[found[2]] if found[2] else 1) / 1000


def _pause(text: str) -> float:
    """Seconds, of a time that has to end. Raises BadParameter."""
    seconds = duration(text)
    if seconds < 0:
        raise typer.BadParameter(f"{text} is not a time such as 90s, 30m, 2h or 7d")
    return seconds


def _instant(text: str) -> float:
    """Seconds since 1970. Raises BadParameter."""
    from crewel.times import parse_timestamp

    try:
        if _DURATION.fullmatch(text) and not text.isdecimal():
            raise ValueError  # that would be so long ago
        return parse_timestamp(text, 0) / 1000
    except ValueError:
        raise typer.BadParameter(
            f"{text} is not a date such as 2026-12-24T20:00:00Z, or milliseconds since 1970"
        ) from None


def channel_name(text: str) -> str:
    """The channel's name. Raises BadParameter for what is none, and for wildcards."""
    from crewel.bayeux.channel import parse

    channel = parse(text)
    if channel is None or channel.is_wildcard:
        raise typer.BadParameter(f"not the name of a channel: {text}")
    return channel.name


def value(text: str) -> Any:
    """The text as JSON if it is JSON, else the text. Raises NotEncodableError for what is JSON but for numbers that are none,
    `{"a": NaN}` or `1e999`: it was not meant as a text."""
    import orjson

    from crewel.bayeux.numbers import parse

    try:
        return parse(text)
    except orjson.JSONDecodeError:
        _check_numbers(text)
        return text


def _check_numbers(text: str) -> None:
    import json

    from crewel.bayeux.codec import not_encodable
    from crewel.client import NotEncodableError

    if text.isidentifier() or text.removeprefix("-").isidentifier():
        return  # a word: NaN alone is one
    try:
        fault = not_encodable(json.loads(text), "data")
    except (ValueError, RecursionError):
        return
    if fault is not None:
        raise NotEncodableError(fault)


# Of a publish

To = Annotated[
    list[str] | None,
    typer.Option(
        "--to",
        metavar="NAME",
        help="Send it to a session, client/joe/1, or to all sessions of a subject, client/joe; may be repeated.",
    ),
]


OF_PUBLISH: Final[Mapping[str, Any]] = {
    "priority": Annotated[str | None, typer.Option(metavar="0-9|NAME", help="MIN, LOW, NORM, HIGH and MAX are names.")],
    "to": To,
    "force_queuing": Annotated[
        bool | None, typer.Option("--force-queuing", help="With --to: queue it while the subject has no session.")
    ],
    "distribute": Annotated[
        Literal["all", "one"] | None,
        typer.Option("--distribute", help="With --to: which sessions of a subject get it."),
    ],
    "subscribable": Annotated[
        bool | None,
        typer.Option(
            "--subscribable/--not-subscribable", help="With --to: whether subscribers of the channel receive it too."
        ),
    ],
    "life_time": Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Lifetime: 90s, 30m, 7d, or milliseconds; 0: the history does not keep it."),
    ],
    "force_destroy": Annotated[
        bool | None, typer.Option("--force-destroy", help="Remove it from queues too when it expires.")
    ],
    "force_update": Annotated[
        bool | None,
        typer.Option("--force-update/--no-force-update", help="Whether it is delivered if it equals the previous one."),
    ],
    "reply_to": Annotated[str | None, typer.Option(metavar="CHANNEL", help="Channel for replies.")],
    "properties": Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="A client property, JSON or text; may be repeated."),
    ],
    "history_max": Annotated[
        int | None,
        typer.Option("--history", min=0, metavar="N", help="Topic: how many messages its history keeps."),
    ],
    "readonly": Annotated[bool | None, typer.Option("--readonly", help="Topic: accept no second message.")],
    "destroy_delay": Annotated[str | None, typer.Option(metavar="TIME", help="Topic: lifetime without references.")],
    "administrative": Annotated[
        bool | None,
        typer.Option("--administrative", help="Configure the topic and deliver nothing. DATA is optional."),
    ],
    "deliver_at": Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="With --persistent: publish it then, 2026-12-24T20:00Z, or ms since 1970."),
    ],
    "deliver_after": Annotated[
        str | None, typer.Option(metavar="TIME", help="With --persistent: publish it so much later: 90s, 30m, 7d.")
    ],
}
"""What `publish_options` reads."""

_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "priority": _priority,
    "to": addresses,
    "life_time": duration,
    "destroy_delay": duration,
    "deliver_at": _instant,
    "deliver_after": _pause,
    "reply_to": channel_name,
    "properties": lambda texts: dict(map(_property, texts)),
}
"""How options are read that the client does not take as they are."""


def publish_options(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a publish as the client takes them. Raises BadParameter for those that do not fit."""
    given = {name: option for name, option in asked.items() if option is not None and option != []}
    if "to" not in given and not given.keys().isdisjoint(("force_queuing", "distribute", "subscribable")):
        raise typer.BadParameter("--force-queuing, --distribute and --subscribable need --to")
    return {name: _READ[name](option) if name in _READ else option for name, option in given.items()}


def _property(text: str) -> tuple[str, Any]:
    name, separator, given = text.partition("=")
    if not name or not separator:
        raise typer.BadParameter(f"--property takes NAME=VALUE, not {text}")
    return name, value(given)


# Of a subscription

Group = Annotated[
    str | None, typer.Option(metavar="GROUP", help="Share the messages with the other members of this group.")
]


OF_SUBSCRIPTION: Final[Mapping[str, Any]] = {
    "group": Group,
    "filter": Annotated[
        str | None,
        typer.Option(
            "--filter",
            metavar="EXPRESSION",
            help="Receive only messages that match this JMESPath over data, channel, clientProperties and sender:"
            " 'data.n > `3`'.",
        ),
    ],
    "history": Annotated[
        int | None,
        typer.Option("--history", min=-1, metavar="N", help="Begin with the last N messages of the history; -1: all."),
    ],
    "newest_first": Annotated[bool | None, typer.Option("--newest-first", help="With --history: newest first.")],
    "since": Annotated[
        str | None,
        typer.Option(
            metavar="EPOCH:ID|now",
            help="Begin after this message of the history, if the history still has all later messages. At its end, the command"
            " prints the position to continue from. JSON for several channels.",
        ),
    ],
    "local": Annotated[
        bool | None, typer.Option("--local/--no-local", help="Whether to receive what this session publishes.")
    ],
}
"""What `subscribe_options` reads."""


def subscribe_options(channels: Sequence[str], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a subscription as the client takes them. Raises BadParameter for those that do not fit."""
    options = {name: option for name, option in asked.items() if option is not None}
    if "history" in options:
        options.setdefault("newest_first", False)  # people read downwards
    elif "newest_first" in options:
        raise typer.BadParameter("--newest-first needs --history")
    if "since" in options:
        options["since"] = _position(options["since"], channels)
    return options


def _position(text: str, channels: Sequence[str]) -> "Position":
    if text == "now":
        return {}
    given = value(text)
    if isinstance(given, dict):
        return given
    epoch, separator, message_id = text.rpartition(":")
    if not separator:
        raise typer.BadParameter(f"--since takes EPOCH:ID, as the command prints it at its end, or now, not {text}")
    if len(channels) != 1:
        raise typer.BadParameter("--since takes EPOCH:ID for one channel, and JSON for several")
    return {channels[0]: {"epoch": epoch, "id": message_id}}


def shown(position: "Position", channels: Sequence[str]) -> str:
    """A position as `--since` takes it for these channels."""
    import orjson

    places = list(position.values())
    if list(position) == list(channels) and len(places) == 1 and places[0].keys() == {"epoch", "id"}:
        return f"{places[0]['epoch']}:{places[0]['id']}"
    return orjson.dumps(position).decode()
