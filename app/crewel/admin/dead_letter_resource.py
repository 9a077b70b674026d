"""REST resources of dead letters."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final

from aiohttp import web

from crewel.admin.administration import Administration
from crewel.admin.audit import Action
from crewel.admin.dead_letter_filters import ATTRIBUTES, FILTERS, dead_letter_id
from crewel.admin.example import SAMPLES, Example
from crewel.admin.jobs import choice_of, filters_of
from crewel.admin.operation import About
from crewel.admin.receiver_facts import standing_of
from crewel.admin.request_fields import (
    MAX_PAGE,
    PAGE,
    WITH_REASON,
    Field,
    choice_field,
    count_text,
    cursor,
    flag_field,
    flag_text,
    list_field,
    number_field,
    text_field,
)
from crewel.admin.role_scopes import refused
from crewel.admin.route import Ask, NotThere, Route, send_lines
from crewel.bayeux.codec import encode
from crewel.broker.dead_letter import DeadLetter
from crewel.broker.dead_letters.redrive import Chosen, Limits, Report, Undone
from crewel.errors import IllegalArgument
from crewel.event_loop import in_turns
from crewel.qos.fields import number
from crewel.security.grants import Role
from crewel.storage import dead_letter_bin, dead_letter_store
from crewel.storage.dead_letter_groups import (
    GROUPED,
    KINDS,
    LIKENESS,
    REASON,
    RETURNS,
    Counted,
    Group,
    Groups,
    count_by,
)
from crewel.storage.dead_letter_matching import parse_field
from crewel.storage.dead_letter_records import DeadLetterFilter, StoredDeadLetter, is_dead_id, place_of
from crewel.storage.dead_letter_store import Page

_MOST_WORKED: Final = 10_000
_MOST_TOLD: Final = 1000
_SECONDS: Final = 5.0
_RECEIVER: Final = "receiver"
_WITHOUT: Final[Mapping[str, dict[str, Any]]] = {
    "code": {"code": ""},
    "channel": {"channel": ""},
    _RECEIVER: {"receiver": ""},
    REASON: {"reason": ""},
    LIKENESS: {"like": ""},
    RETURNS: {"returns": None},
}
"""The filter that chooses a group of this kind, as it is without a choice."""
_EXPORTED: Final = 20
"""Dead letters that an export reads first, and again where they are large; else ten times as many."""
_LARGE: Final = 256 * 1024  # bytes
_ALL: Final = DeadLetterFilter()
_ROOMS: Final = 20
"""Receivers of which a dry run says what room they have."""
_FEW: Final = 2000
"""So many dead letters are read for each request that counts them: some 0.1 s of this process, with turns for others."""


# Fields


def _kinds(value: object) -> tuple[str, ...]:
    kinds = tuple(dict.fromkeys(value.split(","))) if isinstance(value, str) else ()
    if not kinds or not set(kinds) <= set(GROUPED):
        raise ValueError(f"some of {', '.join(GROUPED)}, separated by commas")
    return kinds


def _all(value: object) -> bool:
    if value is not True:
        raise ValueError("true")
    return True


_FILTERS: Final = (
    *FILTERS,
    text_field("after", "Continue after this id: `next` of the previous page.", cursor(dead_letter_id)),
)
CHOICE: Final = (
    list_field("ids", "These dead letters.", dead_letter_id),
    Field("all", _all, {"type": "boolean"}, "Instead of `ids`: all dead letters, or those that match the filters."),
    *_FILTERS,
    flag_field("dryRun", "Only count them."),
    WITH_REASON,
    number_field("count", "At most this many dead letters in this request.", 1, _MOST_WORKED, MAX_PAGE),
)


REDRIVE_FIELDS: Final = (
    flag_field("toChannel", "Publish them to their channels instead, addressed ones to their destinations."),
    Field(
        "rate",
        number(0.001, 1_000_000),
        {"type": "number", "minimum": 0.001},
        "Maximum number of dead letters per second.",
    ),
)
"""What a redrive takes more."""
FOR_GOOD: Final = flag_field("forGood", "Remove them at once, also from the bin, in place of moving them into the bin.")
"""What a discard takes more."""


def wanted_field(ask: Ask) -> str:
    """The field of the data that is asked for, and its value. Raises IllegalArgument for one that operators do not see."""
    field: str = ask.fields.get("field", "")
    if field and any(name.lower() in ask.admin.masks for name in parse_field(field)[0]):
        raise IllegalArgument("field", "names a field that is masked (admin.mask)")
    return field


def filter_of(ask: Ask, needed: Role, until: str = "") -> DeadLetterFilter:
    """What the fields ask for, of the channels for which the operator has the role that is needed. Raises IllegalArgument for a
    field that operators do not see."""
    given = {ATTRIBUTES[each.name]: ask.fields[each.name] for each in FILTERS if each.name in ask.fields}
    within = tuple(sorted(ask.scope.patterns(needed)))
    return DeadLetterFilter(**{"until": until, **given, "field": wanted_field(ask), "within": within})


# Looking


async def _list(ask: Ask) -> dict[str, Any]:
    fields = ask.fields
    page = await dead_letter_store.page(
        ask.admin.store,
        filter_of(ask, Role.VIEW),
        ask.after(dead_letter_id),
        fields.get("count", PAGE),
        newest_first=fields.get("newestFirst", False),
    )
    letters = [shown(ask, letter) async for letter in in_turns(page.letters)]
    return {"letters": letters, "next": ask.following(page.next)}


async def _count(ask: Ask) -> dict[str, Any]:
    store, kinds = ask.admin.store, ask.fields.get("by", ())
    if kinds:
        found = await _look(ask, kinds, are_facets=ask.fields.get("facets", False))
        groups = {kind: _groups_view(kind, found.groups[kind]) for kind in kinds}
        told: dict[str, Any] = {"count": found.letters, "partial": found.is_partial, "groups": groups}
    else:
        told = {"count": await dead_letter_store.count(store, filter_of(ask, Role.VIEW))}
    return {
        **told,
        "dropped": await dead_letter_store.dropped(store) if ask.covers_all else None,
        "binned": await dead_letter_bin.count(store) if ask.covers_all else None,
    }


async def _look(ask: Ask, kinds: Sequence[str], *, are_facets: bool = False) -> Counted:
    """The dead letters that match, by these kinds, from one look. With `are_facets`, a kind is counted without the filter that
    chooses one of its groups."""
    admin = ask.admin
    if ask.covers_all and not {each.name for each in _FILTERS} & ask.fields.keys():
        is_cheap = all(kind in KINDS for kind in kinds) or await dead_letter_store.count(admin.store, _ALL) <= _FEW
        return await (count_by(admin.store, kinds=kinds) if is_cheap else admin.dead_letters_counted.get())
    wanted = filter_of(ask, Role.VIEW)
    others = {kind: replace(wanted, **_WITHOUT[kind]) for kind in kinds if are_facets}
    others = {kind: other for kind, other in others.items() if other != wanted}
    # Of several looks, each is at what there is now.
    until = await dead_letter_store.newest(admin.store) if others else ""
    found = await count_by(admin.store, wanted, [kind for kind in kinds if kind not in others], until)
    groups = dict(found.groups)
    for kind, other in others.items():
        groups |= (await count_by(admin.store, other, [kind], until)).groups
    return found._replace(groups=groups)


async def _accounts(ask: Ask) -> dict[str, Any]:
    store, delivery = ask.admin.store, ask.admin.settings.delivery
    held = await dead_letter_store.shares(store, ask.fields.get("count", PAGE))
    return {
        "max": delivery.dead_letters_max,
        "maxBytes": delivery.dead_letters_max_bytes,
        "bytes": await dead_letter_store.used_bytes(store),
        "accounts": [{"account": each.account, "count": each.entries, "bytes": each.bytes} for each in held],
    }


async def _groups(ask: Ask) -> dict[str, Any]:
    kind = ask.fields.get("by", KINDS[0])
    return _groups_view(kind, (await _look(ask, [kind])).groups[kind])


def _groups_view(kind: str, found: Groups) -> dict[str, Any]:
    rows = [{"value": each.value, "count": each.letters} for each in found.largest]
    if kind == LIKENESS:
        rows = [
            row | {"like": each.like, "example": each.example} for row, each in zip(rows, found.largest, strict=True)
        ]
    return {"by": kind, "groups": rows, "values": found.values, "partial": found.is_partial}


async def _show(ask: Ask) -> dict[str, Any]:
    dead_id = ask.path["id"]
    if not is_dead_id(dead_id):
        raise NotThere(f"{dead_id!r} is not the id of a dead letter, such as 1795179106957-0")
    found = await dead_letter_store.get(ask.admin.store, [dead_id])
    if not found or not ask.covers(found[0].channel):
        raise NotThere(f"there is no dead letter {dead_id}, or it has been removed")
    return shown(ask, found[0]) | {"may": ask.may(lambda role: ask.covers(found[0].channel, role))}


async def _export(ask: Ask) -> web.StreamResponse:
    """The dead letters as lines."""
    store = ask.admin.store
    # Up to the newest of now: an export ends although new dead letters arrive.
    wanted = filter_of(ask, Role.VIEW, await dead_letter_store.newest(store))
    page = await dead_letter_store.page(store, wanted, ask.after(dead_letter_id), _EXPORTED)
    with ask.action("export dead letters", **ask.fields) as action:
        return await send_lines(ask, _portions(ask, wanted, page, action))


async def _portions(ask: Ask, wanted: DeadLetterFilter, page: Page, action: Action) -> AsyncGenerator[bytes, None]:
    action.count = 0
    while True:
        lines = b"".join([encode(shown(ask, letter)) + b"\n" async for letter in in_turns(page.letters)])
        yield lines
        action.count += len(page.letters)
        if not page.next:
            return
        count = _EXPORTED if len(lines) > _LARGE else 10 * _EXPORTED
        page = await dead_letter_store.page(ask.admin.store, wanted, page.next, count)


def shown(ask: Ask, letter: StoredDeadLetter) -> dict[str, Any]:
    """The dead letter as REST tells it."""
    return DeadLetter.read(letter, ask.admin.node).masked(ask.admin.masks).as_json()


# Working


async def _redrive(ask: Ask) -> dict[str, Any]:
    fields = ask.fields
    chosen = await chosen_of(ask, Role.OPERATE)
    if fields.get("dryRun", False):
        return await _counted(ask, chosen)
    to_channel = fields.get("toChannel", False)
    limits = Limits(fields.get("count", MAX_PAGE), _SECONDS, fields.get("rate"), ask.is_given_up)
    with _action(ask, "redrive dead letters", chosen, toChannel=to_channel) as action:
        report = await ask.admin.redrive.redrive(chosen, limits, to_channel=to_channel)
        _note(ask, action, chosen, report)
    ask.admin.forget_groups()
    return {"redriven": report.done} | _outcome(ask, report, chosen)


async def _discard(ask: Ask) -> dict[str, Any]:
    chosen = await chosen_of(ask, Role.DESTROY)
    if ask.fields.get("dryRun", False):
        return await _counted(ask, chosen)
    limits = Limits(ask.fields.get("count", MAX_PAGE), _SECONDS, None, ask.is_given_up)
    keeps = not ask.fields.get("forGood", False)
    with _action(ask, "discard dead letters", chosen, **({} if keeps else {"forGood": True})) as action:
        report = await ask.admin.redrive.discard(chosen, limits, ask.who, keeps=keeps)
        _note(ask, action, chosen, report)
    ask.admin.forget_groups()
    return {"discarded": report.done} | _outcome(ask, report, chosen)


async def chosen_of(ask: Ask, needed: Role) -> Chosen:
    """The dead letters that the body says, of the channels for which the operator has the role that is needed; those that they
    do not see are none. Dead letters that are made from now on are not part of it: what comes back would be sent again and
    again."""
    fields, store = ask.fields, ask.admin.store
    ids: Sequence[str] | None = fields.get("ids")
    if (ids is None) is ("all" not in fields):
        raise IllegalArgument("ids", 'is required, or "all": true, but not both')
    if ids is None:
        bound = dead_letter_store.newest if ask.covers_all else dead_letter_store.now
        return Chosen(filter_of(ask, needed, fields.get("until") or await bound(store)), ask.after(dead_letter_id))
    for each in _FILTERS:
        if each.name in fields:
            raise IllegalArgument(each.name, 'needs "all": true, and excludes `ids`')
    if not ask.scope.allows(needed):
        letters = await dead_letter_store.get(store, ids)
        if any(ask.covers(letter.channel) and not ask.covers(letter.channel, needed) for letter in letters):
            raise refused(needed, About.MANY)
    return Chosen(
        DeadLetterFilter(within=tuple(sorted(ask.scope.patterns(needed)))), ids=tuple(sorted(ids, key=place_of))
    )


async def _counted(ask: Ask, chosen: Chosen) -> dict[str, Any]:
    redrive, told = ask.admin.redrive, {"until": chosen.wanted.until, "dryRun": True}
    if chosen.ids is not None:
        counts = await redrive.receivers_of(chosen, chosen.ids)
        count, found = (
            counts.total(),
            Groups([Group(number, name) for name, number in counts.most_common()], len(counts), False),
        )
    else:
        counted = await count_by(ask.admin.store, chosen.wanted, (_RECEIVER,))
        count, found = counted.letters, counted.groups[_RECEIVER]
        if counted.is_partial:
            count = await redrive.count(chosen)
    receivers = _groups_view(_RECEIVER, found)
    if ask.covers_all:  # the queue of a receiver may have messages of any channel
        for row in receivers["groups"][:_ROOMS]:
            row.update(_room(ask.admin, row["value"]))
    return {"count": count, "receivers": receivers, **told}


def _room(admin: Administration, receiver: str) -> dict[str, Any]:
    """What the queue of a receiver has room for, and whether its client takes what is sent there."""
    session = admin.find(receiver)
    stands = {} if session is None else standing_of(admin, session)
    away = next((each for each in stands.get("causes", ()) if each["kind"] == "away"), None)
    return {
        "room": admin.redrive.room(receiver),
        "conditions": stands.get("conditions", []),
        "awaySince": None if away is None else away["since"],
    }


def _action(ask: Ask, what: str, chosen: Chosen, **more: Any) -> AbstractContextManager[Action]:
    """The audit's entry of a piece of work."""
    if chosen.ids is not None:
        which: dict[str, Any] = {"ids": list(chosen.ids[:20]), "asked": len(chosen.ids)}
    else:
        which = filters_of(choice_of(chosen)) | ({"after": chosen.after} if chosen.after else {})
    return ask.action(what, reason=ask.fields.get("reason", ""), **which, **more)


def _note(ask: Ask, action: Action, chosen: Chosen, report: Report) -> None:
    if chosen.ids is not None and report.next:
        report.undone += _passed_over(ask.fields["ids"], chosen.ids, report.next)
    action.count = report.done
    if report.undone:
        action.details["undone"] = len(report.undone)


def _passed_over(asked: Sequence[str], ids: Sequence[str], place: str) -> list[Undone]:
    """What was not reached, and lies before this place in the order of the request: its client does not send it again."""
    behind = set(asked[asked.index(place) + 1 :])
    left = [each for each in ids[ids.index(place) + 1 :] if each not in behind]
    return [Undone(each, "resource.unavailable", "it was not reached in time: send it again") for each in left]


def _outcome(ask: Ask, report: Report, chosen: Chosen) -> dict[str, Any]:
    return {
        "undone": [
            {"id": each.dead_id, "errorCode": each.code, "message": each.message} for each in report.undone[:_MOST_TOLD]
        ],
        "undoneCount": len(report.undone),
        "next": report.next if chosen.ids is not None else ask.following(report.next),
        "until": chosen.wanted.until,
        "waitMs": round(report.wait_s * 1000),
    }


_WORK: Final = (
    "`undone`: the first 1000 that remain, with `id`, `errorCode` and `message`; `undoneCount`: how many remain. A"
    " request takes five seconds at most. `next` is empty if nothing is left to do. Otherwise, wait for `waitMs`"
    " milliseconds and send the request again with this `next` as `after` and this `until`. With `ids`, the oldest come"
    " first, whatever the order of the list: send those that are after `next` in the list; `undone` has those that were not"
    " reached and are before it. With `dryRun`, the response has `count` and `receivers` instead: the"
    " same dead letters by receiver, as a group of `GET /dead-letters/groups`. For operators of all channels, the first 20"
    " receivers also have `room`, `conditions` and `awaySince`. `room`: how many messages more their queue takes, or null if"
    " it is not known. `conditions`: how they stand; empty if that is not known. `awaySince`: since when their client is away,"
    " or null."
)
LETTER: Final = (
    "`id` (the dead id), `message` (the id of the message), `channel`, `receiver`, `errorCode`, `reason`, `attempts`,"
    " `data`, `ext`, `sender`, `rcvTimestamp`, `persistent`, `qos`. An addressed message has `to`, its destination. If"
    " the message was redriven before, there are `redriveOf` and `returns`. `errorCodeGiven` is the code as the"
    " receiver gave it, if it may not report such a code and `errorCode` is what it counts as; at most 128"
    " characters, a longer one ends in `…`. `history`, if more"
    " than one attempt or a redrive is known: the failed attempts, each with `at`, `errorCode` and `reason`, and the redrives"
    " between them, with `at` and `redrivenAs`. `edited` is true if an operator changed the message. `restoredFrom` is the id"
    " that it had before it was discarded and restored, `editedAs` the id of an edited message that was sent in its place"
    " before that."
)

SAMPLE: Final = {"id": SAMPLES["id"], "receiver": "/node/heron/client/joe/1", "errorCode": "user.update.error"}
"""Some of a dead letter, in examples."""

DEAD_LETTER_ROUTES: Final = (
    Route(
        "GET",
        "/dead-letters",
        "List the dead letters, the oldest first, a page at a time.",
        _list,
        f"`letters`, a list; `next`, the cursor of the next page, empty if this is the last. A dead letter has {LETTER}",
        Example({"receiver": "client/joe/1", "since": "2h"}, {"letters": [SAMPLE], "next": ""}),
        query=(
            *_FILTERS,
            count_text("At most this many dead letters."),
            flag_text("newestFirst", "true: the newest first."),
        ),
        about=About.MANY,
    ),
    Route(
        "GET",
        "/dead-letters/count",
        "Count the dead letters.",
        _count,
        "`count`; `dropped`: how many were dropped since the creation of the store, because there were too many; `binned`: how"
        " many discarded ones are in the bin; both null for an operator of some channels. With `by` also `groups`: by kind,"
        " what `GET /dead-letters/groups` answers, from one look, so that the numbers agree; and `partial`: whether there are"
        " at least `count`, because a request does not read more, and no index has the number.",
        Example({"by": "code"}, {"groups": {"code": {"groups": [{"value": "user.update.error"}]}}}),
        query=(
            text_field("by", f"Also count them by these kinds, separated by commas: {', '.join(GROUPED)}.", _kinds),
            flag_text(
                "facets", "true: count each kind without the filter of that kind, as if no group of it were chosen."
            ),
            *FILTERS,
        ),
        about=About.MANY,
    ),
    Route(
        "GET",
        "/dead-letters/accounts",
        "Show which accounts hold the dead letters: subjects of receivers, and consumer groups.",
        _accounts,
        "`accounts`, a list of `account`, `count` and `bytes`, the most bytes first; `max` and `maxBytes`: the bounds of all;"
        " `bytes`: what all take, with the bin. Beyond a bound, the account that holds most loses its oldest dead letters.",
        Example({}, {"accounts": [{"account": "client/joe"}], "maxBytes": 134217728}),
        query=(count_text("At most this many accounts."),),
    ),
    Route(
        "GET",
        "/dead-letters/groups",
        "Count the matching dead letters by code, channel, receiver, reason (whatever its numbers are), likeness, which is the"
        " shape of their data, or by how often they came back after a redrive.",
        _groups,
        "`by`; `groups`, a list of `value` and `count`, the largest first, at most 1000; `values`: their total number;"
        " `partial`: whether there are more than one request reads, so that larger groups may be missing. By reason, likeness"
        " or returns, or with a filter, a request reads the newest 20,000 dead letters. By likeness, a group also has `like`,"
        " for the filter, and `example`, the id of its newest dead letter.",
        Example({"by": "reason"}, {"by": "reason", "groups": [{"value": "no pizza", "count": 1}], "partial": False}),
        query=(
            choice_field("by", "Group them by this", GROUPED),
            *FILTERS,
        ),
        about=About.MANY,
    ),
    Route(
        "GET",
        "/dead-letters/export",
        "Export all dead letters, the oldest first, as lines of JSON.",
        _export,
        "One dead letter per line, as in the list.",
        Example({"channel": "/kitchen/**"}, SAMPLE),
        query=_FILTERS,
        media_type="application/x-ndjson",
        about=About.MANY,
    ),
    Route(
        "GET",
        "/dead-letters/{id}",
        "Show one dead letter.",
        _show,
        LETTER,
        Example({}, SAMPLE),
        refusals={404: "There is no such dead letter, or it has been removed."},
        about=About.MANY,
    ),
    Route(
        "POST",
        "/dead-letters/redrive",
        "Redrive dead letters, each to its receiver.",
        _redrive,
        f"`redriven`: how many were sent. {_WORK}",
        Example({"ids": [SAMPLES["id"]], "rate": 50}, {"redriven": 1, "next": ""}),
        body=(*CHOICE, *REDRIVE_FIELDS),
        role=Role.OPERATE,
        about=About.MANY,
    ),
    Route(
        "POST",
        "/dead-letters/discard",
        "Discard dead letters: the bin keeps them for `delivery.discarded_kept_ms`, so that they can be restored.",
        _discard,
        f"`discarded`: how many. {_WORK}",
        Example({"ids": [SAMPLES["id"]], "reason": "order was cancelled"}, {"discarded": 1, "next": ""}),
        body=(*CHOICE, FOR_GOOD),
        about=About.MANY,
    ),
)
