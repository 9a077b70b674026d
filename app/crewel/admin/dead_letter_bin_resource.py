"""REST resources of what happens to dead letters one by one or for a while: those in the bin, and one that is edited."""

from __future__ import annotations

import re
from typing import Any, Final

from crewel.admin.dead_letter_resource import CHOICE, LETTER, SAMPLE, filter_of, shown
from crewel.admin.example import SAMPLES, Example
from crewel.admin.operation import About
from crewel.admin.request_fields import NEXT, PAGE, WITH_REASON, count_text, cursor, flag_field, json_field, text_field
from crewel.admin.role_scopes import refused
from crewel.admin.route import Ask, NotThere, Route
from crewel.bayeux.codec import encode, reread
from crewel.broker.dead_letters.bin import Wanted
from crewel.errors import IllegalArgument
from crewel.event_loop import in_turns
from crewel.qos.fields import text_that
from crewel.security.grants import Role
from crewel.security.masks import unmasked
from crewel.storage import dead_letter_bin, dead_letter_store
from crewel.storage.dead_letter_bin import DiscardedDeadLetter
from crewel.storage.dead_letter_records import DeadLetterFilter, is_dead_id, place_of

_MOST_TOLD: Final = 1000
_NOTED: Final = 20
"""Dead letters that the audit names."""
_FILTERS: Final = tuple(
    each for each in CHOICE if each.name in ("code", "receiver", "channel", "contains", "deadReason", "field")
)
_SINCE: Final = next(each for each in CHOICE if each.name == "since")._replace(
    meaning="Only those that were discarded from this time on: as above."
)


_place: Final = text_that(re.compile(r"\d{1,20}", re.ASCII).fullmatch, NEXT)
_JOB: Final = text_field(
    "job", "Only those that this job discarded.", text_that(is_dead_id, "the id of a job, such as 1795179106957-17")
)
_AFTER: Final = text_field("after", "`next` of the previous page.", cursor(_place))


def _discarded(ask: Ask, each: DiscardedDeadLetter) -> dict[str, Any]:
    kept_ms = ask.admin.settings.delivery.discarded_kept_ms
    told = {"at": each.at_ms, "until": each.at_ms + kept_ms, "who": each.who, "job": each.job}
    return shown(ask, each.letter) | {"discarded": told | ({"editedAs": each.edited_as} if each.edited_as else {})}


async def _list(ask: Ask) -> dict[str, Any]:
    fields, store = ask.fields, ask.admin.store
    wanted = filter_of(ask, Role.VIEW)
    page = await dead_letter_bin.page(
        store, wanted, ask.after(_place), fields.get("count", PAGE), fields.get("job", "")
    )
    return {
        "letters": [_discarded(ask, each) async for each in in_turns(page.letters)],
        "next": ask.following(page.next),
        "kept": await dead_letter_bin.count(store) if ask.covers_all else None,
    }


async def _show(ask: Ask) -> dict[str, Any]:
    dead_id = ask.path["id"]
    found = await dead_letter_bin.get(ask.admin.store, [dead_id])
    if not found or not ask.covers(found[0].letter.channel):
        raise NotThere(f"there is no dead letter {dead_id[:64]} in the bin, or it has been removed")
    channel = found[0].letter.channel
    return _discarded(ask, found[0]) | {"may": ask.may(lambda role: ask.covers(channel, role))}


async def _restore(ask: Ask) -> dict[str, Any]:
    fields = ask.fields
    wanted = await _wanted(ask)
    asked = [] if wanted.ids is None else list(wanted.ids[:_NOTED])
    about = {name: fields[name] for name in ("job", *(each.name for each in _FILTERS)) if name in fields}
    given = {"ids": asked, "asked": len(wanted.ids)} if wanted.ids is not None else about
    with ask.action("restore dead letters", reason=fields.get("reason", ""), **given) as action:
        done = await ask.admin.broker.dead_letters.bin.restore(wanted, ask.who)
        action.count = len(done.ids)
        action.details.setdefault("ids", list(done.ids)[:_NOTED])
        action.details["restoredAs"] = list(done.ids.values())[:_NOTED]
    ask.admin.forget_groups()
    return {
        "restored": len(done.ids),
        "ids": dict(list(done.ids.items())[:_MOST_TOLD]),
        "edited": dict(list(done.edited.items())[:_MOST_TOLD]),
        "next": ask.following(done.next),
    }


async def _wanted(ask: Ask) -> Wanted:
    fields = ask.fields
    ids = fields.get("ids")
    if sum(name in fields for name in ("ids", "job", "all")) != 1:
        raise IllegalArgument("ids", 'is required, or `job`, or "all": true, but only one of them')
    if ids is None:
        return Wanted(filter_of(ask, Role.OPERATE), fields.get("job", ""), ask.after(_place))
    for each in (*_FILTERS, _SINCE, _AFTER):
        if each.name in fields:
            raise IllegalArgument(each.name, "excludes `ids`")
    if not ask.scope.allows(Role.OPERATE):
        found = await dead_letter_bin.get(ask.admin.store, ids)
        channels = {each.letter.channel for each in found}
        if any(ask.covers(channel) and not ask.covers(channel, Role.OPERATE) for channel in channels):
            raise refused(Role.OPERATE, About.MANY)
    within = tuple(sorted(ask.scope.patterns(Role.OPERATE)))
    return Wanted(DeadLetterFilter(within=within), ids=tuple(sorted(ids, key=place_of)))


async def _edit(ask: Ask) -> dict[str, Any]:
    dead_id, fields, admin = ask.path["id"], ask.fields, ask.admin
    found = await dead_letter_store.get(admin.store, [dead_id])
    if not found or not ask.covers(found[0].channel):
        raise NotThere(f"there is no dead letter {dead_id[:64]}, or it has been removed")
    letter = found[0]
    if not ask.covers(letter.channel, Role.OPERATE):
        raise refused(Role.OPERATE, About.MANY)
    body = _edited(letter.body, fields["data"], admin.masks, admin.settings.bayeux.max_message_bytes)
    to_channel = fields.get("toChannel", False)
    with ask.action("edit dead letter", about=dead_id, reason=fields.get("reason", ""), toChannel=to_channel) as action:
        moved = await admin.redrive.edit(letter, body, ask.who, to_channel=to_channel)
        action.count, action.details["redrivenAs"] = 1, str(moved.id)
    admin.forget_groups()
    return {"original": dead_id, "redrivenAs": str(moved.id)}


def _edited(body: bytes, data: Any, masks: frozenset[str], max_bytes: int) -> bytes:
    """The body of the message with other data. Raises IllegalArgument."""
    try:
        message = reread(body)
    except ValueError:
        raise IllegalArgument("id", "nothing is left of its message") from None
    try:
        edited = encode(message | {"data": unmasked(data, message.get("data"), masks)})
    except ValueError as error:
        raise IllegalArgument("data", str(error)) from None
    if len(edited) > max_bytes:
        raise IllegalArgument("data", f"makes a message of {len(edited)} bytes; the most is {max_bytes}")
    return edited


_KEPT: Final = (
    "`discarded`: `at`, `until` (when it is removed; earlier if dead letters need the room), `who` and `job` (empty without a"
    " job). The original of an edited message also has `editedAs` there, the new id of the message"
)

DEAD_LETTER_BIN_ROUTES: Final = (
    Route(
        "GET",
        "/dead-letters/bin",
        "List the discarded dead letters that can be restored, the last discarded first, a page at a time.",
        _list,
        f"`letters`, a list of dead letters as in the list of those, each with {_KEPT}. `next`: the cursor of the next page,"
        " empty if this is the last. `kept`: how many there are in all; null for an operator of some channels.",
        Example({"since": "2h"}, {"letters": [SAMPLE | {"discarded": {"who": "admin"}}], "next": ""}),
        query=(
            *_FILTERS,
            _SINCE,
            _JOB,
            _AFTER,
            count_text("At most this many dead letters."),
        ),
        about=About.MANY,
    ),
    Route(
        "GET",
        "/dead-letters/bin/{id}",
        "Show one discarded dead letter that can be restored.",
        _show,
        f"{LETTER} Also {_KEPT}.",
        Example({}, SAMPLE | {"discarded": {"who": "admin", "job": ""}}),
        refusals={404: "There is no such dead letter in the bin, or it has been removed."},
        about=About.MANY,
    ),
    Route(
        "POST",
        "/dead-letters/restore",
        "Restore discarded dead letters: they are dead letters again, under new ids, in their old order.",
        _restore,
        "`restored`: how many; `ids`: the new id of each by the old one, of at most 1000. `edited`: the originals of edited"
        " messages, which stay in the bin unless their `ids` are given, each with the id of the message that was sent in its"
        " place; at most 1000. Without `ids`, a request takes five"
        " seconds at most. `next` is empty if nothing is left to do. Otherwise, send the request again with this `next` as"
        " `after`.",
        Example({"ids": [SAMPLES["id"]], "reason": "discarded by mistake"}, {"restored": 1, "next": ""}),
        body=(
            next(each for each in CHOICE if each.name == "ids"),
            _JOB._replace(meaning="Instead of `ids`: those that this job discarded."),
            next(each for each in CHOICE if each.name == "all")._replace(
                meaning="Instead of `ids`: all that were discarded, or those that match the filters."
            ),
            *_FILTERS,
            _SINCE,
            _AFTER,
            WITH_REASON,
        ),
        role=Role.OPERATE,
        action="restore dead letters",
        about=About.MANY,
    ),
    Route(
        "POST",
        "/dead-letters/{id}/edit",
        "Change the data of the message of a dead letter and send it to its receiver. The bin keeps the original, which the new"
        " message names.",
        _edit,
        "`original`: the id of the dead letter, which is in the bin; `redrivenAs`: the new id of the message. If it fails"
        " again, the new dead letter has `redriveOf`, the id of the original, and `edited`.",
        Example({"data": {"order": 17}, "reason": "a field was missing"}, {"original": SAMPLES["id"]}),
        body=(
            json_field(
                "data",
                "The new data, any JSON. A masked field with `***` keeps its value, also in an item of a list that moves. Write"
                " the value where it is not clear which item that was: the answer is 400 and names the place.",
                "the new data of the message, any JSON",
            ),
            flag_field("toChannel", "Publish it to its channel instead, an addressed one to its destination."),
            WITH_REASON,
        ),
        role=Role.OPERATE,
        action="edit dead letter",
        refusals={404: "There is no such dead letter, or it has been removed."},
        about=About.MANY,
    ),
)
