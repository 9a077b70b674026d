"""`crewel dead-letters`: messages that could not be delivered, their receivers and reasons, and how to redrive them."""

import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from crewel.cli import bayeux_client, output
from crewel.cli.admin_client import LISTED, MAX_PAGE, Admin, Count, Named, Reason, command, given, operate
from crewel.cli.bayeux_client import AsJson
from crewel.cli.dead_letter_files import write_file
from crewel.cli.job_commands import followed
from crewel.cli.output import progress
from crewel.errors import CrewelError

SHOWN = ("id", "channel", "receiver", "errorCode", "reason", "attempts", "data")
OPTIONAL = ("errorCodeGiven",)
_PAGE = 500
_NAMED: Final = 3
"""Receivers of dead letters that a question names."""


# Which ones are meant

_Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of dead letters.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count them.")]
_Detach = Annotated[
    bool, typer.Option("--detach", help="Start the job and exit; crewel jobs shows its progress. Not with ids.")
]
FILTERS: Final[Mapping[str, Any]] = {
    "everything": Annotated[
        bool | None, typer.Option("--all", help="All dead letters, or all that match the filters.")
    ],
    "code": Annotated[
        str | None, typer.Option("--code", metavar="CODE", help="Only with this error code or one below it.")
    ],
    "receiver": Annotated[
        str | None, typer.Option("--receiver", metavar="NAME", help="Only for this session (joe/1) or subject (joe).")
    ],
    "channel": Annotated[
        str | None, typer.Option("--channel", metavar="CHANNEL", help="Only on this channel or pattern.")
    ],
    "since": Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="WHEN",
            help="Only those after this time: 30m, 2h or 7d ago, or a date such as 2026-11-20.",
        ),
    ],
    "field": Annotated[
        str | None,
        typer.Option("--field", metavar="NAME=VALUE", help="Only with exactly this value in the data: order=100."),
    ],
    "with_reason": Annotated[
        str | None,
        typer.Option("--with-reason", metavar="TEXT", help="Only with this reason, whatever its numbers are."),
    ],
}
"""The options of all commands that choose dead letters; `_choose` reads them."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """The dead letters that are meant: `ids`, or without them all that the filters leave."""

    ids: list[str] | None = None
    query: dict[str, str | int] = field(default_factory=dict)

    def portions(self) -> Iterator[list[str] | None]:
        """The ids, the oldest first, as many at a time as one request takes; None if it is not ids that were chosen."""
        from crewel.storage.dead_letter_records import place_of

        if self.ids is None:
            yield None
            return
        ids = sorted(self.ids, key=place_of)
        for start in range(0, len(ids), MAX_PAGE):
            yield ids[start : start + MAX_PAGE]

    def body(self, ids: list[str] | None) -> dict[str, Any]:
        """What a request about them says."""
        return {"all": True, **self.query} if ids is None else {"ids": ids}


def _choose(ids: list[str] | None, asked: Mapping[str, Any], *, or_all: bool = False) -> _Choice:
    """The choice that the command line says; with `or_all`, all if it says none. Else ends the command with 2 for none, and for
    two that exclude each other."""
    from crewel.storage.dead_letter_records import is_dead_id

    query = filters_of(asked)
    if ids:
        if query:
            raise typer.BadParameter("give either ids or filters")
        for dead_id in ids:
            if not is_dead_id(dead_id):
                raise typer.BadParameter(f"{dead_id} is not the id of a dead letter, such as 1795179106957-0")
        return _Choice(list(dict.fromkeys(ids)))
    if not query and not asked.get("everything") and not or_all:
        raise typer.BadParameter(
            "which dead letters? give ids, a filter (--code, --receiver, --channel, --since, --field, --with-reason), or"
            " --all"
        )
    return _Choice(None, query)


def filters_of(asked: Mapping[str, Any]) -> dict[str, str | int]:
    """The filters as the server takes them. Ends the command with 2 for one that does not fit."""
    from crewel.admin.dead_letter_filters import FILTERS as FIELDS

    found = {}
    for each in FIELDS:
        name = "with_reason" if each.name == "deadReason" else each.name
        if (text := asked.get(name)) is not None:
            try:
                found[each.name] = each.check(text)
            except ValueError as error:
                raise typer.BadParameter(f"--{name.replace('_', '-')} takes {error}, not {text}") from None
    return found


# Commands

app = typer.Typer(name="dead-letters", help="List, redrive and discard dead letters.", no_args_is_help=True)


@command(app, "list", options=FILTERS)
async def _list(
    admin: Admin,
    count: Count = None,
    newest: Annotated[bool, typer.Option("--newest", help="Newest first.")] = False,
    as_json: AsJson = None,
    **asked: Any,
) -> None:
    """Print dead letters, oldest first."""
    query = filters_of(asked) | ({"newestFirst": "true"} if newest else {})
    if count is None and not output.wants_json(as_json) and not asked["everything"]:
        count = LISTED
    letters = (
        {name: letter[name] for name in SHOWN} | {name: letter[name] for name in OPTIONAL if name in letter}
        async for letter in admin.pages("/dead-letters", "letters", query, count, _PAGE)
    )
    headings = ("id", "channel", "receiver", "code", "reason", "data")
    if await output.print_entries(letters, headings, row, as_json) == count:
        print(f"the first {count}; --count, --all, --newest and the filters show others")


def row(letter: Mapping[str, Any]) -> tuple[Any, ...]:
    """A dead letter in a table for people."""
    data = output.readable(letter["data"])
    shortened = data if len(data) <= 60 else f"{data[:59]}…"
    _, _, receiver = letter["receiver"].partition("/client/")
    code = letter["errorCode"]
    if "errorCodeGiven" in letter:
        code = f"{code} (given: {letter['errorCodeGiven']})"
    return letter["id"], letter["channel"], receiver, code, letter["reason"], shortened


@command(app, "count", options={name: each for name, each in FILTERS.items() if name != "everything"})
async def summary(
    admin: Admin,
    by: Annotated[
        str,
        typer.Option(
            metavar="KINDS",
            help="Count them by these, separated by commas: receiver, code, channel, reason, likeness or returns.",
        ),
    ] = "receiver,code",
    as_json: AsJson = None,
    **asked: Any,
) -> None:
    """Count dead letters, in all and by receiver and code. All numbers are from one look at the store."""
    told = await admin.call("GET", "/dead-letters/count", filters_of(asked) | {"by": by})
    if output.wants_json(as_json):
        output.print_json(told)
        return
    print(f"{'at least ' if told['partial'] else ''}{counted(told['count'])}")
    rows = [(kind, each["value"], each["count"]) for kind, found in told["groups"].items() for each in found["groups"]]
    output.print_table(("by", "value", "dead letters"), rows)
    partial = [kind for kind, found in told["groups"].items() if found["partial"]]
    if partial:
        print(f"by {' and '.join(partial)}: of the newest ones")


@command(app)
async def show(
    admin: Admin,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of dead letters.")],
    as_json: AsJson = None,
) -> None:
    """Show everything about dead letters."""
    async for letter in _chosen(admin, _choose(ids, {})):
        output.print_fields(letter, "id", as_json)


async def _chosen(admin: Admin, choice: _Choice) -> AsyncIterator[dict[str, Any]]:
    if choice.ids is None:
        async for letter in admin.pages("/dead-letters", "letters", choice.query, size=_PAGE):
            yield letter
    else:
        for dead_id in choice.ids:
            yield await admin.call("GET", "/dead-letters/{id}", about=Named({"id": dead_id}, "id", dead_id))


@command(app, options=FILTERS)
async def redrive(
    admin: Admin,
    ids: _Ids = None,
    dry_run: _DryRun = False,
    rate: Annotated[
        float | None, typer.Option(min=0.001, max=1_000_000, help="Maximum dead letters per second.")
    ] = None,
    to_channel: Annotated[
        bool,
        typer.Option(
            "--to-channel",
            help="Send to their channels instead of the receiver; point-to-point messages go to their destination.",
        ),
    ] = False,
    wait_for_room_ms: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=604_800_000,
            help="With filters: how long to wait for room in full queues while nothing is moved; 0: not at all. Usually ten"
            " minutes.",
        ),
    ] = None,
    reason: Reason = None,
    detach: _Detach = False,
    as_json: AsJson = None,
    **asked: Any,
) -> None:
    """Redrive dead letters, each to its receiver. A dead letter that cannot be sent stays a dead letter. With filters, the
    server does this as a job, which survives an interrupt, and waits for room in full queues."""
    choice = _choose(ids, asked)
    if choice.ids is not None and wait_for_room_ms is not None:
        raise typer.BadParameter(
            "--wait-for-room-ms is for filters: the server does not wait for dead letters given by ids"
        )
    options: dict[str, Any] = {"toChannel": to_channel} | given(
        rate=rate, reason=reason, waitForRoomMs=wait_for_room_ms
    )
    if dry_run:
        await _count(admin, choice, "would be redriven", as_json)
    else:
        await _work_through(admin, "redrive", choice, options, as_json, detach=detach)


@app.command()
@bayeux_client.with_options(FILTERS)
def discard(
    ids: _Ids = None,
    dry_run: _DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    for_good: Annotated[
        bool,
        typer.Option("--for-good", help="Remove them at once: they cannot be restored. With ids, also from the bin."),
    ] = False,
    token: bayeux_client.Token = None,
    token_file: bayeux_client.TokenFile = None,
    url: bayeux_client.Url = bayeux_client.DEFAULT_URL,
    proxy: bayeux_client.Proxy = None,
    reason: Reason = None,
    detach: _Detach = False,
    as_json: AsJson = None,
    **asked: Any,
) -> None:
    """Discard dead letters: the bin keeps them for a day, see `bin` and `restore`. With filters, the server does this as a job,
    which survives an interrupt."""
    choice, who = _choose(ids, asked), bayeux_client.credential(token, token_file)
    if choice.ids is None and not yes and not dry_run:
        if not sys.stdin.isatty():
            raise typer.BadParameter("discarding dead letters without giving their ids needs --yes")
        _confirm(choice, who, url, proxy)

    async def work(admin: Admin) -> None:
        if dry_run:
            await _count(admin, choice, "would be discarded", as_json)
        else:
            options = given(reason=reason) | ({"forGood": True} if for_good else {})
            await _work_through(admin, "discard", choice, options, as_json, detach=detach)

    operate(who, url, proxy, work)


def _confirm(choice: _Choice, token: bayeux_client.Credential, url: str, proxy: str | None) -> None:
    """Ask, with nothing under way: else a signal would have to wait for the answer. No ends the command with 1."""
    letters = ""

    async def work(admin: Admin) -> None:
        nonlocal letters
        _, letters = await _dry(admin, choice)

    operate(token, url, proxy, work)
    typer.confirm(f"Discard {letters}?", abort=True, err=True)


async def _dry(admin: Admin, choice: _Choice) -> tuple[int, str]:
    """How many there are; and in words, with their receivers if filters choose them."""
    count, receivers = 0, ""
    for ids in choice.portions():
        answer = await admin.call("POST", "/dead-letters/redrive", body=choice.body(ids) | {"dryRun": True})
        count += answer["count"]
        receivers = _of_receivers(answer.get("receivers")) if count == answer["count"] else ""
    return count, f"{counted(count)}{receivers}"


def _of_receivers(told: Mapping[str, Any] | None) -> str:
    """` of client/joe/1 (3) and client/ann/1 (2)`; empty if the answer does not say it of all."""
    from crewel.logs import escaped

    if not told or not told["groups"] or told["partial"]:
        return ""
    names = [escaped(each["value"]) for each in told["groups"][:_NAMED]]
    rooms = [_room(each) for each in told["groups"]]
    if told["values"] == 1:
        return f" of {names[0]}" + (f" ({rooms[0]})" if rooms[0] else "")
    named = [
        f"{name} ({each['count']:,}{', ' * bool(room)}{room})"
        for name, each, room in zip(names, told["groups"], rooms, strict=False)
    ]
    more = told["values"] - len(named)
    return f" of {', '.join(named if more else named[:-1])} and {f'{more:,} more' if more else named[-1]}"


def _room(group: Mapping[str, Any]) -> str:
    """What keeps a redrive from arriving at this receiver at once; empty if nothing is known to."""
    room = group.get("room")
    lacks = f"room for {room:,}" if room is not None and room < group["count"] else ""
    return ", ".join(filter(None, (lacks, "its client is away" if group.get("awaySince") else "")))


async def _count(admin: Admin, choice: _Choice, what: str, as_json: bool | None) -> None:
    count, letters = await _dry(admin, choice)
    if not count:
        print(f"crewel: no dead letter matches; none {what}", file=sys.stderr)
    output.print_answer({"count": count, "dryRun": True}, f"{letters} {what}", as_json)


async def _work_through(
    admin: Admin, what: str, choice: _Choice, options: dict[str, Any], as_json: bool | None, *, detach: bool
) -> None:
    """Work on the dead letters until all is done: on ids by requests, on all that filters choose by a job of the server. Dead
    letters that are made meanwhile are not part of it."""
    if choice.ids is None:
        job = await admin.call("POST", "/jobs", body={"what": what, **choice.body(None), **options})
        if detach:
            output.print_answer(job, f"job {job['id']}: {counted(job['total'])}", as_json)
            return
        job = await followed(admin, job)
        done, undone, errors = job["done"], job["undone"], job["errors"]
        if job["state"] != "done":
            why = job["error"] or f"by {job['changedBy']}"
            raise CrewelError(f"the job {job['id']} was {job['state']} after {counted(done)}: {why}")
    else:
        done, errors = await _by_requests(admin, what, choice, options)
        undone = len(errors)
    verb = "redriven" if what == "redrive" else "discarded"
    output.print_answer({verb: done, "undone": errors}, f"{counted(done)} {verb}", as_json)
    if not done and not undone:
        print(f"crewel: no dead letter matches; nothing was {verb}", file=sys.stderr)
    if undone:
        codes = ", ".join(sorted({each["errorCode"] for each in errors}))
        raise CrewelError(f"{undone:,} stayed ({codes}); the first, {errors[0]['id']}: {errors[0]['message']}")


async def _by_requests(
    admin: Admin, what: str, choice: _Choice, options: dict[str, Any]
) -> tuple[int, list[dict[str, str]]]:
    """Repeat until the server says that all is done; how many it was, and what could not be done."""
    done, undone = 0, []
    doing = "redriving" if what == "redrive" else "discarding"
    with progress(doing, "dead letters", len(choice.ids or ())) as shown:
        async for answer in _requests(admin, f"/dead-letters/{what}", choice, options):
            done += answer.get("redriven", 0) + answer.get("discarded", 0)
            undone += answer["undone"]
            shown(done + len(undone))
    return done, undone


async def _requests(admin: Admin, path: str, choice: _Choice, options: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    import asyncio

    count = max(1, min(_PAGE, int(options.get("rate", _PAGE))))
    for portion in choice.portions():
        left = portion or []
        while left:
            answer = await admin.call("POST", path, body={"ids": left, "count": count, **options})
            yield answer
            left = left[left.index(answer["next"]) + 1 :] if answer["next"] else []
            await asyncio.sleep(answer["waitMs"] / 1000)


@command(app, options=FILTERS)
async def export(admin: Admin, ids: _Ids = None, **asked: Any) -> None:
    """Write dead letters to standard output, one JSON object per line: all of them, or those that ids or filters select."""
    choice = _choose(ids, asked, or_all=True)
    if choice.ids is not None:
        async for letter in _chosen(admin, choice):
            output.print_json(letter)
        return
    count = 0
    with progress("exporting", "dead letters") as shown:
        async for chunk in admin.chunks("/dead-letters/export", choice.query):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            count += chunk.count(b"\n")
            shown(count)


@command(app, options=FILTERS)
async def dump(
    admin: Admin,
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIRECTORY", help="Target directory; created if it does not exist.")
    ],
    ids: _Ids = None,
    as_json: AsJson = None,
    **asked: Any,
) -> None:
    """Write each dead letter to a separate file, in one directory for each receiver. Existing files are not changed. The
    dead letters stay; `discard` removes them."""
    written = known = 0
    with progress("writing", "dead letters") as shown:
        async for letter in _chosen(admin, _choose(ids, asked, or_all=True)):
            if write_file(letter, directory):
                written += 1
            else:
                known += 1
            shown(written + known)
    text = f"{written:,} dead letters written to {directory}, {known:,} already there"
    output.print_answer({"written": written, "there": known}, text, as_json)


def counted(count: int) -> str:
    """So many dead letters, in words."""
    return "1 dead letter" if count == 1 else f"{count:,} dead letters"
