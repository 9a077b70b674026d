"""`crewel sessions`: which sessions there are, which are held back, and what to do about it."""

from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from crewel.cli import admin_client, bayeux_client, output
from crewel.cli.admin_client import Admin

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Sessions: joe/1, or client/joe/1.")]

app = typer.Typer(name="sessions", help="Look at sessions, hold them back, activate them.", no_args_is_help=True)


def register(parent: typer.Typer) -> None:
    """Add `sessions` to the command line."""
    parent.add_typer(app)


@app.command(name="list")
def list_sessions(
    subject: Annotated[str | None, typer.Option(metavar="SUBJECT", help="Only this subject's.")] = None,
    state: Annotated[str | None, typer.Option(metavar="STATE", help="Only those ALIVE, POLLING or DEAD.")] = None,
    held: Annotated[bool, typer.Option("--held", help="Only those that are held back.")] = False,
    token: bayeux_client.Token = None,
    url: bayeux_client.Url = bayeux_client.DEFAULT_URL,
    as_json: bayeux_client.AsJson = None,
) -> None:
    """Print the sessions that have a name."""
    query = {name: value for name, value in (("subject", subject), ("state", state)) if value is not None}
    if held:
        query["active"] = "false"

    async def work(admin: Admin) -> None:
        rows = []
        async for session in admin_client.pages(admin, "/sessions", "sessions", query):
            if output.wants_json(as_json):
                output.print_json(session)
            else:
                rows.append(_row(session))
        if not output.wants_json(as_json):
            output.print_table(("session", "state", "waiting", "subscriptions", "held back; next"), rows)
            unnamed = (await admin.get("/sessions", {"count": 1}))["unnamed"]
            if unnamed:
                print(f"and {unnamed} without a name")

    admin_client.operate(url, token, work)


def _row(session: dict[str, Any]) -> tuple[Any, ...]:
    channels = ", ".join(session["subscriptions"])
    # In one column: on a narrow terminal two of them could not be read.
    last = "; ".join(filter(None, (_why(session["holdback"]), _next(session))))
    return session["name"], session["state"], session["waiting"], channels, last


def _next(session: dict[str, Any]) -> str:
    """What will happen to the session, and when, if nothing else does."""
    from crewel.admin.moments import shown

    retry, ends = session["retry"], session["ends"]
    told = []
    if retry is not None:
        most = "" if retry["of"] < 0 else f" of {retry['of']}, then it ends"
        told.append(f"retry {retry['number']}{most} at {shown(retry['at'])}")
    if ends is not None:
        told.append(f"ends at {shown(ends['at'])}: {ends['why']}")
    return "; ".join(told)


def _why(holdback: dict[str, Any] | None) -> str:
    if holdback is None:
        return ""
    from crewel.admin.moments import shown

    reasons = (holdback["code"], holdback["reason"], holdback["id"] and f"message {holdback['id']}")
    return ", ".join((f"by {holdback['who']} since {shown(holdback['since'])}", *filter(None, reasons)))


@app.command()
def show(
    names: Names,
    token: bayeux_client.Token = None,
    url: bayeux_client.Url = bayeux_client.DEFAULT_URL,
    as_json: bayeux_client.AsJson = None,
) -> None:
    """Print all that is known of sessions."""
    paths = [_path(name) for name in names]

    async def work(admin: Admin) -> None:
        for path in paths:
            output.print_fields(await admin.get(path), "name", as_json)

    admin_client.operate(url, token, work)


@app.command()
def hold(
    names: Names,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for those who look at it later.")] = None,
    code: Annotated[str | None, typer.Option(metavar="CODE", help="A code, for those who look at it later.")] = None,
    token: bayeux_client.Token = None,
    url: bayeux_client.Url = bayeux_client.DEFAULT_URL,
    as_json: bayeux_client.AsJson = None,
) -> None:
    """Hold sessions back: what arrives waits until they are activated."""
    given = {name: text for name, text in (("reason", reason), ("code", code)) if text is not None}
    _operate(names, "hold", url, token, as_json, _held, given)


def _held(session: dict[str, Any]) -> str:
    return f"held back, {session['waiting']} waiting"


_OPERATIONS: Final[dict[str, tuple[str, Callable[[dict[str, Any]], str]]]] = {
    "activate": (
        "Deliver again to sessions that are held back, the held message in its old place.",
        lambda session: f"active, {session['waiting']} waiting",
    ),
    "skip": (
        "Make the held message, or the first that waits, a dead letter. A held session stays held.",
        lambda session: f"{session['letters']} became dead letters, {session['waiting']} waiting",
    ),
    "drain": (
        "Make all that waits dead letters. A held session stays held.",
        lambda session: f"{session['letters']} became dead letters, {session['waiting']} waiting",
    ),
    "ping": ("Ask clients for a sign of life.", lambda session: f"{session['pingMs']} ms"),
    "retry": (
        "Send again now what clients could not take, without waiting for the end of the pause.",
        lambda session: "tried again" if session["retried"] else "nothing waited for a retry",
    ),
    "kill": ("End sessions. What waits for a named one becomes dead letters.", lambda session: "ended"),
}
"""Commands that take names and nothing else: what they do, and what is printed of the answer."""


def _add(operation: str, help_text: str, text: Callable[[dict[str, Any]], str]) -> None:
    @app.command(name=operation, help=help_text)
    def command(
        names: Names,
        token: bayeux_client.Token = None,
        url: bayeux_client.Url = bayeux_client.DEFAULT_URL,
        as_json: bayeux_client.AsJson = None,
    ) -> None:
        _operate(names, operation, url, token, as_json, text)


for _name, (_help, _text) in _OPERATIONS.items():
    _add(_name, _help, _text)


def _operate(
    names: list[str],
    operation: str,
    url: str,
    token: str | None,
    as_json: bool | None,
    text: Callable[[dict[str, Any]], str],
    given: dict[str, str] | None = None,
) -> None:
    paths = [_path(name) for name in names]

    async def work(admin: Admin) -> None:
        for path in paths:
            answer = await admin.post(f"{path}/{operation}", given)
            output.print_answer(answer, f"{answer['name']}: {text(answer)}", as_json)

    admin_client.operate(url, token, work)


def _path(text: str) -> str:
    from crewel.qos.names import parse_name

    name = parse_name(text)
    if name is None or not name.number:
        raise typer.BadParameter(f"{text} is not the name of a session, such as joe/1 or client/joe/1")
    return f"/sessions/{name.subject}/{name.number}"
