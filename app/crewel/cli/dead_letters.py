"""`crewel dead-letters`: what could not be delivered, who was to get it and why, and sending it again."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import typer

from crewel.cli import administering, connecting, dumping
from crewel.cli.administering import Admin
from crewel.cli.choosing import After, All, ByChannel, ByCode, ByReceiver, Choice, Ids, choose, filters
from crewel.cli.progress import progress
from crewel.errors import CrewelError

SHOWN = ("id", "channel", "receiver", "errorCode", "reason", "attempts", "data")
_LISTED = 100
_PAGE = 500

app = typer.Typer(
    name="dead-letters", help="Look at dead letters, send them again, throw them away.", no_args_is_help=True
)


def register(parent: typer.Typer) -> None:
    """Add `dead-letters` to the command line."""
    parent.add_typer(app)


@app.command(name="list")
def list_letters(
    code: ByCode = None,
    receiver: ByReceiver = None,
    channel: ByChannel = None,
    since: After = None,
    count: Annotated[
        int | None, typer.Option(min=1, help=f"At most so many; {_LISTED} on a terminal, else all.")
    ] = None,
    newest: Annotated[bool, typer.Option("--newest", help="The newest first.")] = False,
    everything: All = False,
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    as_json: connecting.AsJson = None,
) -> None:
    """Print dead letters, the oldest first."""
    query = filters(code, receiver, channel, since) | ({"newestFirst": "true"} if newest else {})
    is_json = administering.wants_json(as_json)
    if count is None and not is_json and not everything:
        count = _LISTED

    async def work(admin: Admin) -> None:
        rows = []
        async for letter in _pages(admin, query, count):
            if is_json:
                administering.print_json({name: letter[name] for name in SHOWN})
            else:
                rows.append(_row(letter))
        if not is_json:
            administering.print_table(("id", "channel", "receiver", "code", "reason", "data"), rows)
            if count is not None and len(rows) == count:
                print(f"the first {count}; --count, --all, --newest and the filters show others")

    administering.operate(url, token, work)


async def _pages(admin: Admin, query: dict[str, str | int], count: int | None = None) -> AsyncIterator[dict[str, Any]]:
    """The letters that these filters leave, at most so many."""
    left, place = count, ""
    while left is None or left > 0:
        size = _PAGE if left is None else min(left, _PAGE)
        page = await admin.get("/dead-letters", query | {"count": size} | ({"after": place} if place else {}))
        for letter in page["letters"]:
            yield letter
        left = None if left is None else left - len(page["letters"])
        place = page["next"]
        if not place:
            return


def _row(letter: dict[str, Any]) -> tuple[Any, ...]:
    data = administering.readable(letter["data"])
    shortened = data if len(data) <= 60 else f"{data[:59]}…"
    _, _, receiver = letter["receiver"].partition("/client/")
    return letter["id"], letter["channel"], receiver, letter["errorCode"], letter["reason"], shortened


@app.command()
def show(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Dead ids.")],
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    as_json: connecting.AsJson = None,
) -> None:
    """Print all that is known of dead letters."""
    choice = choose(ids)

    async def work(admin: Admin) -> None:
        async for letter in _chosen(admin, choice):
            if administering.wants_json(as_json):
                administering.print_json(letter)
            else:
                administering.print_table((letter["id"], ""), list(letter.items()))

    administering.operate(url, token, work)


async def _chosen(admin: Admin, choice: Choice) -> AsyncIterator[dict[str, Any]]:
    if choice.ids is None:
        async for letter in _pages(admin, choice.query):
            yield letter
    else:
        for dead_id in choice.ids:
            yield await admin.get(f"/dead-letters/{dead_id}")


@app.command()
def redrive(
    ids: Ids = None,
    everything: All = False,
    code: ByCode = None,
    receiver: ByReceiver = None,
    channel: ByChannel = None,
    since: After = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    rate: Annotated[float | None, typer.Option(min=0.001, max=1_000_000, help="Letters a second at most.")] = None,
    to_channel: Annotated[
        bool,
        typer.Option(
            "--to-channel",
            help="To all who are subscribed to their channels, instead of the receiver; addressed ones to their destination.",
        ),
    ] = False,
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    as_json: connecting.AsJson = None,
) -> None:
    """Send dead letters again, each to the receiver that it was for. What cannot be sent stays where it is."""
    choice = choose(ids, filters(code, receiver, channel, since), everything=everything)
    options: dict[str, Any] = {"toChannel": to_channel}
    if rate is not None:
        options |= {"rate": rate, "count": max(1, min(_PAGE, int(rate)))}

    async def work(admin: Admin) -> None:
        if dry_run:
            await _count(admin, choice, "would be sent again", as_json)
        else:
            await _work_through(admin, "redrive", choice, options, as_json)

    administering.operate(url, token, work)


@app.command()
def discard(
    ids: Ids = None,
    everything: All = False,
    code: ByCode = None,
    receiver: ByReceiver = None,
    channel: ByChannel = None,
    since: After = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    as_json: connecting.AsJson = None,
) -> None:
    """Throw dead letters away, for good."""
    choice = choose(ids, filters(code, receiver, channel, since), everything=everything)
    if choice.ids is None and not yes and not dry_run and not sys.stdin.isatty():
        raise typer.BadParameter("discarding letters that are not named one by one needs --yes")

    if choice.ids is None and not yes and not dry_run:
        _confirm(choice, url, token)

    async def work(admin: Admin) -> None:
        if dry_run:
            await _count(admin, choice, "would be thrown away", as_json)
        else:
            await _work_through(admin, "discard", choice, {}, as_json)

    administering.operate(url, token, work)


def _confirm(choice: Choice, url: str, token: str | None) -> None:
    """Ask, with nothing under way: else a signal would have to wait for the answer. No ends the command with 1."""
    count = 0

    async def work(admin: Admin) -> None:
        nonlocal count
        count = (await _dry(admin, choice))["count"]

    administering.operate(url, token, work)
    typer.confirm(f"Throw {count:,} dead letters away?", abort=True, err=True)


async def _dry(admin: Admin, choice: Choice) -> dict[str, Any]:
    count, until = 0, ""
    for ids in choice.portions():
        answer = await admin.post("/dead-letters/redrive", choice.body(ids) | {"dryRun": True})
        count, until = count + answer["count"], answer["until"]
    return {"count": count, "until": until}


async def _count(admin: Admin, choice: Choice, what: str, as_json: bool | None) -> None:
    counted = await _dry(admin, choice)
    if administering.wants_json(as_json):
        administering.print_json({"count": counted["count"], "dryRun": True})
    else:
        print(f"{counted['count']:,} dead letters {what}")


async def _work_through(admin: Admin, what: str, choice: Choice, options: dict[str, Any], as_json: bool | None) -> None:
    """Go on until the server says that all is done. Letters that are made meanwhile are not part of it."""
    total = (await _dry(admin, choice))["count"] if sys.stderr.isatty() else None
    done, undone = 0, []
    doing = "sending again" if what == "redrive" else "throwing away"
    with progress(doing, "letters", total) as shown:
        async for answer in _requests(admin, f"/dead-letters/{what}", choice, options):
            done += answer.get("redriven", 0) + answer.get("discarded", 0)
            undone += answer["undone"]
            shown(done + len(undone))
    told = "redriven" if what == "redrive" else "discarded"
    if administering.wants_json(as_json):
        administering.print_json({told: done, "undone": undone})
    else:
        print(f"{done:,} dead letters {told}")
    if undone:
        codes = ", ".join(sorted({each["errorCode"] for each in undone}))
        raise CrewelError(f"{len(undone):,} stayed ({codes}); the first, {undone[0]['id']}: {undone[0]['message']}")


async def _requests(admin: Admin, path: str, choice: Choice, options: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    import asyncio

    for portion in choice.portions():
        body = choice.body(portion) | {"count": _PAGE} | options
        while True:
            answer = await admin.post(path, body)
            yield answer
            if not answer["next"]:
                break
            if portion is None:
                body |= {"after": answer["next"], "until": answer["until"]}
            else:
                body["ids"] = portion[portion.index(answer["next"]) + 1 :]
            await asyncio.sleep(answer["waitMs"] / 1000)


@app.command()
def export(
    ids: Ids = None,
    everything: All = False,
    code: ByCode = None,
    receiver: ByReceiver = None,
    channel: ByChannel = None,
    since: After = None,
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
) -> None:
    """Write dead letters to standard output, a JSON object a line; all of them, unless ids or filters are given."""
    choice = choose(ids, filters(code, receiver, channel, since), everything=everything or not ids)

    async def work(admin: Admin) -> None:
        if choice.ids is not None:
            async for letter in _chosen(admin, choice):
                administering.print_json(letter)
            return
        count = 0
        with progress("exporting", "letters") as shown:
            async for chunk in admin.chunks("/dead-letters/export", choice.query):
                sys.stdout.buffer.write(chunk)
                sys.stdout.buffer.flush()
                count += chunk.count(b"\n")
                shown(count)

    administering.operate(url, token, work)


@app.command()
def dump(
    directory: Annotated[Path, typer.Option("--dir", metavar="DIRECTORY", help="Where to; it is made if need be.")],
    ids: Ids = None,
    everything: All = False,
    code: ByCode = None,
    receiver: ByReceiver = None,
    channel: ByChannel = None,
    since: After = None,
    token: connecting.Token = None,
    url: connecting.Url = connecting.DEFAULT_URL,
    as_json: connecting.AsJson = None,
) -> None:
    """Write each dead letter to a file of its own, in a directory for each receiver. Files that are there already stay as
    they are. The letters stay too: `discard` throws them away."""
    choice = choose(ids, filters(code, receiver, channel, since), everything=everything or not ids)

    async def work(admin: Admin) -> None:
        written = known = 0
        with progress("writing", "letters") as shown:
            async for letter in _chosen(admin, choice):
                if dumping.write(letter, directory):
                    written += 1
                else:
                    known += 1
                shown(written + known)
        if administering.wants_json(as_json):
            administering.print_json({"written": written, "there": known})
        else:
            print(f"{written:,} letters written to {directory}, {known:,} were there")

    administering.operate(url, token, work)
