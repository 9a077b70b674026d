"""`crewel message`: what happened to a message."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from crewel.cli import output
from crewel.cli.admin_client import Admin, Named
from crewel.cli.bayeux_client import AsJson
from crewel.errors import CrewelError


async def message(
    admin: Admin,
    message_id: Annotated[
        str | None,
        typer.Argument(
            metavar="ID", show_default=False, help="The id of a stored message, or of a dead letter: 1795324804876345."
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="List the messages that were published with this idempotency key.")
    ] = None,
    as_json: AsJson = None,
) -> None:
    """Print the outcome of a stored message for each receiver: acknowledged, waiting, a dead letter, or the reason for none."""
    from crewel.logs import escaped
    from crewel.times import format_timestamp

    if (message_id is None) is (key is None):
        raise typer.BadParameter("give the id of a message, or --key with its idempotency key")
    if key is not None:
        found = [each async for each in admin.pages("/messages", "messages", {"key": key})]
        if not found:
            raise CrewelError(f"there is no record of a message with the key {key}, or it has been removed")
        if len(found) > 1:
            headings = ("message", "published", "channel")
            await output.print_entries(found, headings, _found_row, as_json)
            return
        message_id = found[0]["message"]
    assert message_id is not None
    told = await admin.call("GET", "/messages/{message}", about=Named({"message": message_id}))
    if output.wants_json(as_json):
        output.print_json(told)
        return
    published = format_timestamp(told["publishedAt"]) if told["recorded"] else "no longer recorded"
    how = f"published {published}" if told.get("schedule") is None else _schedule(told["schedule"])
    print(escaped(f"message {told['message']}, channel {told['channel'] or 'no longer recorded'}, {how}"))
    if told.get("key"):  # servers of before do not tell it
        print(escaped(f"idempotency key {told['key']}"))
    links = {
        "redriveOf": "redrive of the dead letter",
        "redrivenAs": "redriven as",
        "scheduledAs": "scheduled as",
    }
    for name, text in links.items():
        if told.get(name):  # servers of before do not tell each
            print(f"{text} {told[name] if isinstance(told[name], str) else ', '.join(told[name])}")
    await output.print_entries(_each(told), ("receiver", "state", "at", "more"), _row, as_json)
    if told["partial"]:
        print("there are more facts than one request reads: later ones may be missing")


def _schedule(told: Mapping[str, Any]) -> str:
    """What happened to a scheduled message."""
    from crewel.times import format_timestamp

    text = "scheduled" if told["deliverAt"] is None else f"scheduled for {format_timestamp(told['deliverAt'])}"
    if told["publishedAs"]:
        return f"{text}, published as {told['publishedAs']}"
    if told["cancelled"] is not None:
        return f"{text}, cancelled {format_timestamp(told['cancelled']['at'])} by {told['cancelled']['who']}"
    return text


def _found_row(each: Mapping[str, Any]) -> tuple[Any, ...]:
    from crewel.times import format_timestamp

    return each["message"], format_timestamp(each["publishedAt"]), each["channel"]


def _each(told: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from told["receivers"]
    for each in told["notFor"]:
        yield {"receiver": each["receiver"], "state": f"not for it: {each['why']}", "at": None}


def _row(each: Mapping[str, Any]) -> tuple[Any, ...]:
    from crewel.times import format_timestamp

    names = {
        "code": "",
        "reason": "",
        "why": "",
        "attempts": "attempts ",
        "letter": "dead letter ",
        "redrivenAs": "redriven as ",
    }
    more = [f"{text}{each[name]}" for name, text in names.items() if each.get(name)]
    return each["receiver"], each["state"], "" if each["at"] is None else format_timestamp(each["at"]), ", ".join(more)
