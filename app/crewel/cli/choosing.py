"""Which dead letters a command is about: ids, or filters, or all."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

MOST_IDS = 1000
"""Ids in one request."""

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Dead ids.")]
All = Annotated[bool, typer.Option("--all", help="All letters; with filters, all that these leave.")]
ByCode = Annotated[
    str | None, typer.Option("--code", metavar="CODE", help="Only with this error code or one below it.")
]
ByReceiver = Annotated[
    str | None, typer.Option("--receiver", metavar="NAME", help="Only for this session (joe/1) or subject (joe).")
]
ByChannel = Annotated[str | None, typer.Option("--channel", metavar="CHANNEL", help="Only of this channel or pattern.")]
After = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="WHEN", help="Only those not older: 30m, 2h or 7d ago, or a date such as 2026-11-20."
    ),
]


@dataclass(frozen=True, slots=True)
class Choice:
    """The letters that are meant: `ids`, or without them all that the filters leave."""

    ids: list[str] | None = None
    query: dict[str, str | int] = field(default_factory=dict)

    def portions(self) -> Iterator[list[str] | None]:
        """The ids, as many at a time as one request takes; None if it is not ids that were chosen."""
        if self.ids is None:
            yield None
            return
        for start in range(0, len(self.ids), MOST_IDS):
            yield self.ids[start : start + MOST_IDS]

    def body(self, ids: list[str] | None) -> dict[str, Any]:
        """What a request about them says."""
        return {"all": True, **self.query} if ids is None else {"ids": ids}


def choose(ids: list[str] | None, query: dict[str, str | int] | None = None, *, everything: bool = False) -> Choice:
    """The choice that the command line says. Ends the command with 2 if it says none, or two that exclude each other."""
    from crewel.storage.dead_letters import is_dead_id

    if ids:
        if query:
            raise typer.BadParameter("give ids or filters: filters choose among all letters")
        for dead_id in ids:
            if not is_dead_id(dead_id):
                raise typer.BadParameter(f"{dead_id} is not the id of a dead letter, such as 1795179106957-0")
        return Choice(list(dict.fromkeys(ids)))
    if not query and not everything:
        raise typer.BadParameter("which? give ids, filters, or --all")
    return Choice(None, query or {})


def filters(code: str | None, receiver: str | None, channel: str | None, since: str | None) -> dict[str, str | int]:
    """The filters as the server takes them. Ends the command with 2 for one that is none."""
    given: dict[str, str | int] = {}
    if code is not None:
        given["code"] = code
    if receiver is not None:
        given["receiver"] = _receiver(receiver)
    if channel is not None:
        given["channel"] = _channel(channel)
    if since is not None:
        given["since"] = _since(since)
    return given


def _receiver(text: str) -> str:
    from crewel.qos.names import parse_name

    name = parse_name(text)
    if name is None:
        raise typer.BadParameter(f"--receiver takes a session or a subject, joe/1 or joe, not {text}")
    return name.relative


def _channel(text: str) -> str:
    from crewel.bayeux.channel import parse

    channel = parse(text)
    if channel is None:
        raise typer.BadParameter(f"--channel takes a channel or a pattern such as /chat/**, not {text}")
    return channel.name


def _since(text: str) -> int:
    from time import time

    from crewel.admin.moments import moment

    try:
        return moment(text, int(time() * 1000))
    except ValueError as error:
        raise typer.BadParameter(f"--since takes {error}, not {text}") from None
