"""`crewel dead-letters bin`, `restore` and `edit`: what can be done about a discard, and about a message that is wrong."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from crewel.cli import output
from crewel.cli.admin_client import LISTED, MAX_PAGE, Admin, Count, Named, Reason, command, given
from crewel.cli.bayeux_client import AsJson
from crewel.cli.dead_letter_commands import FILTERS, OPTIONAL, SHOWN, app, counted, filters_of, row
from crewel.cli.output import progress

group = app
"""All commands of `crewel dead-letters`, with those of this module."""
_PAGE = 500
_NAMED = 5
_Job = Annotated[str | None, typer.Option("--job", metavar="ID", help="Only those that this job discarded.")]


@command(app, "bin", options=FILTERS)
async def list_bin(admin: Admin, job: _Job = None, count: Count = None, as_json: AsJson = None, **asked: Any) -> None:
    """Print discarded dead letters that can be restored, the last discarded first."""
    query = filters_of(asked) | given(job=job)
    if count is None and not output.wants_json(as_json) and not asked["everything"]:
        count = LISTED
    names = (*SHOWN, *OPTIONAL, "discarded")
    letters = (
        {name: letter[name] for name in names if name in letter}
        async for letter in admin.pages("/dead-letters/bin", "letters", query, count, _PAGE)
    )
    headings = ("id", "channel", "receiver", "code", "reason", "data", "discarded", "by")
    await output.print_entries(letters, headings, _row, as_json)


def _row(letter: Mapping[str, Any]) -> tuple[Any, ...]:
    from crewel.times import format_timestamp

    return (*row(letter), format_timestamp(letter["discarded"]["at"]), letter["discarded"]["who"])


@command(app, options=FILTERS)
async def restore(
    admin: Admin,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of discarded dead letters.")] = None,
    job: _Job = None,
    reason: Reason = None,
    as_json: AsJson = None,
    **asked: Any,
) -> None:
    """Restore discarded dead letters: by id, all of a job, or all that match. They are dead letters again, under new ids. The
    originals of edited messages are restored by id only."""
    from crewel.storage.dead_letter_records import is_dead_id, place_of

    query = filters_of(asked)
    if bool(ids) + (job is not None) + bool(query or asked["everything"]) != 1:
        raise typer.BadParameter("give either ids, --job, or filters or --all")
    for dead_id in ids or ():
        if not is_dead_id(dead_id):
            raise typer.BadParameter(f"{dead_id} is not the id of a dead letter, such as 1795179106957-0")
    choice = given(job=job) if job is not None else {"all": True, **query}
    done: dict[str, str] = {}
    edited: dict[str, str] = {}
    count = 0
    with progress("restoring", "dead letters", len(ids or ())) as shown:
        left = sorted(set(ids or ()), key=place_of)
        while True:
            body = {"ids": left[:MAX_PAGE]} if ids else choice
            answer = await admin.call("POST", "/dead-letters/restore", body=body | given(reason=reason))
            done |= answer["ids"]
            edited |= answer.get("edited", {})  # servers of before say nothing of them
            count += answer["restored"]
            shown(count)
            if ids:
                left = left[left.index(answer["next"] or left[:MAX_PAGE][-1]) + 1 :]
            elif answer["next"]:
                choice["after"] = answer["next"]
            if not (left if ids else answer["next"]):
                break
    text = f"{counted(count)} restored"
    if edited:
        named = ", ".join(f"{dead_id} (sent as {message})" for dead_id, message in list(edited.items())[:_NAMED])
        more = f" and {len(edited) - _NAMED} more" if len(edited) > _NAMED else ""
        text += f"; restored by id only, because an edited message was sent in their place: {named}{more}"
    output.print_answer({"restored": count, "ids": done, "edited": edited}, text, as_json)


@command(app)
async def edit(
    admin: Admin,
    dead_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the dead letter.")],
    data: Annotated[str, typer.Option("--data", metavar="JSON", help="The new data of the message.")],
    to_channel: Annotated[
        bool, typer.Option("--to-channel", help="Send to its channel instead of the receiver.")
    ] = False,
    reason: Reason = None,
    as_json: AsJson = None,
) -> None:
    """Change the data of the message of a dead letter and send it to its receiver. The bin keeps the original."""
    import orjson

    from crewel.bayeux.numbers import parse

    try:
        value = parse(data)
    except orjson.JSONDecodeError as error:
        raise typer.BadParameter(f"--data takes JSON: {error}") from None
    body = {"data": value, "toChannel": to_channel} | given(reason=reason)
    about = Named({"id": dead_id}, "original", dead_id)
    answer = await admin.call("POST", "/dead-letters/{id}/edit", body=body, about=about)
    text = f"sent as message {answer['redrivenAs']}; the bin keeps the original, {answer['original']}"
    output.print_answer(answer, text, as_json)
