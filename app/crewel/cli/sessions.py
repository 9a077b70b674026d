"""`crewel sessions`: list sessions, put them on hold and activate them."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import typer

from crewel.cli import output
from crewel.cli.admin_client import Admin, command
from crewel.cli.bayeux_client import AsJson

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Sessions: joe/1, or client/joe/1.")]
Describe = Callable[[Mapping[str, Any]], str]

app = typer.Typer(name="sessions", help="List sessions, put them on hold, activate them.", no_args_is_help=True)


@command(app, "list")
async def _list(
    admin: Admin,
    subject: Annotated[str | None, typer.Option(metavar="SUBJECT", help="Only sessions of this subject.")] = None,
    state: Annotated[
        str | None, typer.Option(metavar="STATE", help="Only sessions in this state: ALIVE, POLLING or DEAD.")
    ] = None,
    held: Annotated[bool, typer.Option("--held", help="Only those on hold.")] = False,
    as_json: AsJson = None,
) -> None:
    """Print the sessions that have a name."""
    asked = {"subject": subject, "state": state, "active": "false" if held else None}
    query = {name: value for name, value in asked.items() if value is not None}
    headings = ("session", "state", "waiting", "subscriptions", "on hold; next")
    await output.print_entries(admin.pages("/sessions", "sessions", query), headings, _row, as_json)
    if not output.wants_json(as_json):
        unnamed = (await admin.call("GET", "/sessions", {"count": 1}))["unnamed"]
        if unnamed:
            print(f"and {unnamed} without a name")


def _row(session: Mapping[str, Any]) -> tuple[Any, ...]:
    channels = ", ".join(session["subscriptions"])
    # In one column: on a narrow terminal two of them could not be read.
    last = "; ".join(filter(None, (_why(session["holdback"]), _next(session))))
    return session["name"], session["state"], session["waiting"], channels, last


def _next(session: Mapping[str, Any]) -> str:
    """What will happen to the session, and when, if nothing else does."""
    from crewel.admin.moments import shown

    retry, ends = session["retry"], session["ends"]
    parts = []
    if retry is not None:
        most = "" if retry["of"] < 0 else f" of {retry['of']}, then it ends"
        parts.append(f"retry {retry['number']}{most} at {shown(retry['at'])}")
    if ends is not None:
        parts.append(f"ends at {shown(ends['at'])}: {ends['why']}")
    return "; ".join(parts)


def _why(holdback: Mapping[str, Any] | None) -> str:
    from crewel.admin.moments import shown

    if holdback is None:
        return ""
    reasons = (holdback["code"], holdback["reason"], holdback["id"] and f"message {holdback['id']}")
    return ", ".join((f"by {holdback['who']} since {shown(holdback['since'])}", *filter(None, reasons)))


@command(app)
async def show(admin: Admin, names: Names, as_json: AsJson = None) -> None:
    """Print all that is known of sessions."""
    for path in _paths(names):
        output.print_fields(await admin.call("GET", path), "name", as_json)


@command(app)
async def hold(
    admin: Admin,
    names: Names,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Reason, for other operators.")] = None,
    code: Annotated[str | None, typer.Option(metavar="CODE", help="Code, for other operators.")] = None,
    as_json: AsJson = None,
) -> None:
    """Put sessions on hold: messages wait until they are activated."""
    given = {name: text for name, text in (("reason", reason), ("code", code)) if text is not None}
    await _operate(admin, names, "hold", as_json, lambda answer: f"on hold, {answer['waiting']} waiting", given)


_OPERATIONS: Final[Mapping[str, tuple[str, Describe]]] = {
    "activate": (
        "Deliver again to sessions on hold, the held message in its old place.",
        lambda answer: f"active, {answer['waiting']} waiting",
    ),
    "skip": (
        "Make the held message, or the first in the queue, a dead letter. A session on hold stays on hold.",
        lambda answer: f"{answer['letters']} became dead letters, {answer['waiting']} waiting",
    ),
    "drain": (
        "Make the whole queue dead letters. A session on hold stays on hold.",
        lambda answer: f"{answer['letters']} became dead letters, {answer['waiting']} waiting",
    ),
    "ping": ("Ping clients.", lambda answer: f"{answer['pingMs']} ms"),
    "retry": (
        "End the pause after a failure of clients: send their queues now.",
        lambda answer: "tried again" if answer["retried"] else "nothing waited for a retry",
    ),
    "kill": ("End sessions. The queue of a named one becomes dead letters.", lambda answer: "ended"),
}
"""Commands that take names and nothing else: what they do, and what is printed of the answer."""


def _add(operation: str, text: str, describe: Describe) -> None:
    @command(app, operation, text)
    async def _(admin: Admin, names: Names, as_json: AsJson = None) -> None:
        await _operate(admin, names, operation, as_json, describe)


for _name, (_text, _describe) in _OPERATIONS.items():
    _add(_name, _text, _describe)


async def _operate(
    admin: Admin,
    names: list[str],
    operation: str,
    as_json: bool | None,
    describe: Describe,
    given: dict[str, str] | None = None,
) -> None:
    for path in _paths(names):
        answer = await admin.call("POST", f"{path}/{operation}", body=given)
        output.print_answer(answer, f"{answer['name']}: {describe(answer)}", as_json)


def _paths(names: list[str]) -> list[str]:
    """The paths of these sessions. Ends the command with 2 for what is no name of a session, before anything is done."""
    from crewel.qos.names import parse_name

    paths = []
    for text in names:
        name = parse_name(text)
        if name is None or not name.number:
            raise typer.BadParameter(f"{text} is not the name of a session, such as joe/1 or client/joe/1")
        paths.append(f"/sessions/{name.subject}/{name.number}")
    return paths
