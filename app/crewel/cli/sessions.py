"""`crewel sessions`: who is there, who is held back, and what to do about it."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from crewel.cli import administering, connecting
from crewel.cli.administering import Admin

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Sessions: joe/1, or client/joe/1.")]

app = typer.Typer(name="sessions", help="Look at sessions, hold them back, let them go on.", no_args_is_help=True)


def register(parent: typer.Typer) -> None:
    """Add `sessions` to the command line."""
    parent.add_typer(app)


@app.command(name="list")
def list_sessions(
    subject: Annotated[str | None, typer.Option(metavar="SUBJECT", help="Only this subject's.")] = None,
    state: Annotated[str | None, typer.Option(metavar="STATE", help="Only those ALIVE, POLLING or DEAD.")] = None,
    held: Annotated[bool, typer.Option("--held", help="Only those that are held back.")] = False,
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    as_json: connecting.AsJson = None,
) -> None:
    """Print the sessions that have a name."""
    query: dict[str, str | int] = {"count": 1000}
    query |= {name: value for name, value in (("subject", subject), ("state", state)) if value is not None}
    if held:
        query["active"] = "false"

    async def work(admin: Admin) -> None:
        rows, unnamed = [], 0
        while True:
            page = await admin.get("/sessions", query)
            unnamed = page["unnamed"]
            for session in page["sessions"]:
                if administering.wants_json(as_json):
                    administering.print_json(session)
                else:
                    rows.append(_row(session))
            if not page["next"]:
                break
            query["after"] = page["next"]
        if not administering.wants_json(as_json):
            administering.print_table(("session", "state", "waiting", "subscriptions", "held back; next"), rows)
            if unnamed:
                print(f"and {unnamed} without a name")

    administering.operate(url, token, work)


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
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    as_json: connecting.AsJson = None,
) -> None:
    """Print all that is known of sessions."""
    paths = [_path(name) for name in names]

    async def work(admin: Admin) -> None:
        for path in paths:
            session = await admin.get(path)
            if administering.wants_json(as_json):
                administering.print_json(session)
            else:
                administering.print_table((session["name"], ""), list(session.items()))

    administering.operate(url, token, work)


@app.command()
def activate(
    names: Names,
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    as_json: connecting.AsJson = None,
) -> None:
    """Deliver again to sessions that are held back, the held message in its old place."""
    _do(names, "activate", url, token, as_json, "active, {waiting} waiting")


@app.command()
def hold(
    names: Names,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for who looks at it later.")] = None,
    code: Annotated[str | None, typer.Option(metavar="CODE", help="A code, for who looks at it later.")] = None,
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    as_json: connecting.AsJson = None,
) -> None:
    """Hold sessions back: what arrives waits until they are activated."""
    given = {name: text for name, text in (("reason", reason), ("code", code)) if text is not None}
    _do(names, "hold", url, token, as_json, "held back, {waiting} waiting", given)


@app.command()
def skip(
    names: Names,
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    as_json: connecting.AsJson = None,
) -> None:
    """Make the held message, or the first that waits, a dead letter. A held session stays held."""
    _do(names, "skip", url, token, as_json, "{letters} became dead letters, {waiting} waiting")


@app.command()
def drain(
    names: Names,
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    as_json: connecting.AsJson = None,
) -> None:
    """Make all that waits dead letters. A held session stays held."""
    _do(names, "drain", url, token, as_json, "{letters} became dead letters, {waiting} waiting")


@app.command()
def ping(
    names: Names,
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    as_json: connecting.AsJson = None,
) -> None:
    """Ask clients for a sign of life."""
    _do(names, "ping", url, token, as_json, "{pingMs} ms")


@app.command()
def retry(
    names: Names,
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    as_json: connecting.AsJson = None,
) -> None:
    """Send again now what clients could not take, without waiting for the end of the pause."""
    _do(names, "retry", url, token, as_json, _retried)


@app.command()
def kill(
    names: Names,
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    as_json: connecting.AsJson = None,
) -> None:
    """End sessions. What waits for a named one becomes dead letters."""
    _do(names, "kill", url, token, as_json, "ended")


def _retried(session: dict[str, Any]) -> str:
    return "tried again" if session["retried"] else "nothing waited for a retry"


def _do(
    names: list[str],
    what: str,
    url: str,
    token: str | None,
    as_json: bool | None,
    told: str | Callable[[dict[str, Any]], str],
    given: dict[str, str] | None = None,
) -> None:
    paths = [_path(name) for name in names]

    async def work(admin: Admin) -> None:
        for path in paths:
            answer = await admin.post(f"{path}/{what}", given)
            if administering.wants_json(as_json):
                administering.print_json(answer)
            else:
                words = told.format_map(answer) if isinstance(told, str) else told(answer)
                print(f"{answer['name']}: {words}")

    administering.operate(url, token, work)


def _path(text: str) -> str:
    from crewel.qos.names import parse_name

    name = parse_name(text)
    if name is None or not name.number:
        raise typer.BadParameter(f"{text} is not the name of a session, such as joe/1 or client/joe/1")
    return f"/sessions/{name.subject}/{name.number}"
