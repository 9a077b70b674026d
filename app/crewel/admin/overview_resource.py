"""The overview of one server: its last hour, its figures of now, and what is wrong. A REST resource."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from math import isnan
from time import time
from typing import Any, Final

from crewel.admin.administration import Administration
from crewel.admin.example import Example
from crewel.admin.figures import Concern, EmptyGroup, Figures, as_json
from crewel.admin.findings import findings
from crewel.admin.merges import At
from crewel.admin.metrics_history import COLUMNS, EVERY_S
from crewel.admin.new_dead_letters import NONE, LastHour
from crewel.admin.past_findings import over
from crewel.admin.receiver_facts import PACED, last_stop, others_text, taken_lately, taken_text
from crewel.admin.request_fields import number_text
from crewel.admin.route import Ask, Route
from crewel.admin.session_counts import SessionCounts, Trouble, as_view
from crewel.broker.writing.store_access import StoreAccess
from crewel.errors import StoreError
from crewel.event_loop import in_turns
from crewel.qos.names import group_of
from crewel.storage import dead_letter_store
from crewel.storage.account_shares import Share, largest
from crewel.storage.dead_letter_groups import count_by
from crewel.storage.disk import Disk, look_at_disk
from crewel.storage.store import Store

_CODES: Final = 8
_LATEST: Final = 10**15
_IDLE: Final = {"busy": 0.0, "diskWait": 0.0}
_UNKNOWN: Final = dict.fromkeys(
    ("usedMemory", "maxMemory", "letters", "lettersNew", "lettersDropped", "lettersBytes", "lettersMaxBytes")
)
"""The figures that only the store has, while it does not say them."""


async def _overview(ask: Ask) -> dict[str, Any]:
    after_ms = ask.fields.get("after", 0)
    return await (overview(ask.admin, after_ms) if ask.is_part else whole_overview(ask.admin, after_ms))


async def whole_overview(admin: Administration, after_ms: float) -> dict[str, Any]:
    """The overview of all nodes, as operators see it."""
    if admin.everywhere is not None:
        return await admin.everywhere.overview(after_ms)
    return shown(await overview(admin, after_ms))


def shown(told: dict[str, Any]) -> dict[str, Any]:
    """An overview without what is for other nodes."""
    return {name: value for name, value in told.items() if name != "figures"}


async def overview(admin: Administration, after_ms: float) -> dict[str, Any]:
    """The figures of now, what is wrong, and the samples that are newer than this."""
    counted = await _with_others(admin, await admin.session_counter.take())
    store = await _store(admin)
    last_hour = NONE
    if store["letters"] is not None:
        last_hour = await _last_hour(admin, store["letters"])
        store["lettersNew"] = last_hour.made
    disk, load = await _disk(admin), store["load"] or _IDLE
    empty_groups, working = await _groups(admin)
    figures = Figures(
        counted=counted,
        concerns=_concerns(admin),
        failing_workers=admin.broker.runtime.failing_workers,
        dead_letters_made=last_hour.made,
        dead_letters_since=last_hour.recent.since,
        dead_letter_pairs=last_hour.recent.pairs,
        messages_dropped=admin.metrics_history.lost,
        dead_letters_dropped=store["lettersDropped"] or 0,
        store_used=store["usedMemory"] or 0,
        store_most=store["maxMemory"] or 0,
        store_busy=load["busy"],
        store_waiting=load["diskWait"] or 0.0,
        disk=disk,
        store_process=admin.access.store.own_process,
        facts_lost=sum(admin.metrics.trimmed_unread.values()),
        empty_groups=empty_groups,
        past=admin.past_troubles.over(),
    )
    return {
        "node": admin.node,
        "at": int(time() * 1000),
        "uptimeMs": int((admin.now() - admin.started) * 1000),
        "everyMs": int(EVERY_S * 1000),
        "samples": admin.metrics_history.since(after_ms),
        "sessions": as_view(counted) | {"queued": admin.queued()},
        "store": store | {"disk": None if disk is None else disk._asdict()},
        "groups": {"working": working, "empty": [tuple(each) for each in empty_groups]},
        "queues": {kind: each.count for kind, each in counted.queues.items()},
        "findings": [each.as_json() for each in findings(figures)],
        "over": [each.as_json() for each in over(figures.past)],
        "figures": as_json(figures),
    }


async def _with_others(admin: Administration, counted: SessionCounts) -> SessionCounts:
    """The counts, with causes that say what only the store knows: what other receivers do with messages that one rejects, and
    how much those take that fall behind."""
    troubles, queues = dict(counted.troubles), dict(counted.queues)
    if "rejects" in troubles:
        others = await admin.taken_by_others()
        troubles["rejects"] = _said_of(troubles["rejects"], lambda name: others_text(others.get(name)))
    for kind in PACED:
        if kind in troubles:
            troubles[kind] = await _with_pace(admin, troubles[kind])
        if kind in queues:
            queues[kind] = await _with_pace(admin, queues[kind])
    return replace(counted, troubles=troubles, queues=queues)


async def _with_pace(admin: Administration, trouble: Trouble) -> Trouble:
    taken = await taken_lately(admin, [each.name for each in trouble.named])
    return _said_of(trouble, lambda name: taken_text(taken.get(name)))


def _said_of(trouble: Trouble, text_of: Callable[[str], str]) -> Trouble:
    return replace(trouble, named=[replace(each, text=each.text + text_of(each.name)) for each in trouble.named])


async def _last_hour(admin: Administration, letters: int) -> LastHour:
    """The dead letters of the last hour, if the store, which has so many in all, says them."""
    try:
        return await admin.new_dead_letters.look(letters)
    except StoreError:
        return NONE


def _concerns(admin: Administration) -> dict[str, Concern]:
    """Why the server is not ready, and since when."""
    told = ((about, read()) for about, read in admin.life.concerns.items())
    since, nodes = admin.server_timeline.since, (admin.node,)
    return {about: Concern(why, since(about), nodes) for about, why in told if why is not None}


async def _disk(admin: Administration) -> Disk | None:
    """The disk of an embedded store, looked at now: also while the store cannot be used."""
    home = admin.access.store.home if admin.access.has_store else None
    return None if home is None else await asyncio.to_thread(look_at_disk, home)


async def _groups(admin: Administration) -> tuple[list[EmptyGroup], list[tuple[str, str]]]:
    """The consumer groups with messages that no member here takes; and those with a member here that takes messages."""
    queues, groups = admin.queues, admin.groups
    found = []
    async for queue in in_turns(queues.names()):
        group, members = group_of(queue), groups.members(queue)
        if group is not None and not any(map(admin.takes, members)):
            found.append(EmptyGroup(*group, queues.waiting(queue), len(members), *last_stop(admin, members)))
    working = []
    async for queue in in_turns(groups.with_members()):
        group = group_of(queue)
        if group is not None and any(map(admin.takes, groups.members(queue))):
            working.append(group)
    return found, sorted(working)


async def _store(admin: Administration) -> dict[str, Any]:
    """What the store reports. One that does not answer leaves the rest of the overview as it is: its figures are unknown."""
    access = admin.access
    told: dict[str, Any] = {"trouble": None, "kept": access.has_store, "unknownSince": None}
    told |= {**_UNKNOWN, "load": None, "lettersHeld": [], "messagesHeld": [], "accountMaxBytes": None, "codes": []}
    if not access.has_store:
        return told | dict.fromkeys(_UNKNOWN, 0)
    trouble = access.trouble
    if trouble is None:
        try:
            return told | await _asked(admin, access)
        except StoreError as error:
            trouble = str(error)
    return told | {"trouble": trouble, "unknownSince": admin.unknown_since or int(time() * 1000)}


def _share(each: Share, what: str) -> dict[str, Any]:
    return {"account": each.account, what: each.entries, "bytes": each.bytes}


async def _messages_held(store: Store) -> list[dict[str, Any]]:
    """What accounts have in the store; it is not counted while there is much room."""
    if not store.is_scarce:
        return []
    return [_share(each, "messages") for each in await largest(store.reader, store.keys.message_shares, _CODES)]


def _load(store: Store) -> dict[str, float | None] | None:
    load = store.load
    if load is None:
        return None
    return {"busy": load.busy, "diskWait": None if isnan(load.waiting) else load.waiting, "steps": load.steps}


async def _asked(admin: Administration, access: StoreAccess) -> dict[str, Any]:
    store = access.store
    info = await store.reader.info("memory")
    made = await count_by(store, kinds=("code",))
    return {
        "usedMemory": int(info["used_memory"]) - int(info.get("mem_not_counted_for_evict", 0)),
        "maxMemory": int(info.get("maxmemory", 0)),
        "load": _load(store),
        "letters": made.letters,
        "lettersDropped": await dead_letter_store.dropped(store),
        "lettersBytes": await dead_letter_store.used_bytes(store),
        "lettersMaxBytes": admin.settings.delivery.dead_letters_max_bytes,
        "lettersHeld": [_share(each, "letters") for each in await dead_letter_store.shares(store, _CODES)],
        "messagesHeld": await _messages_held(store),
        "accountMaxBytes": admin.broker.runtime.stored_shares.most,
        "codes": [{"value": each.value, "count": each.letters} for each in made.groups["code"].largest[:_CODES]],
    }


OVERVIEW_ROUTES: Final = (
    Route(
        "GET",
        "/overview",
        "Show the last hour, the current figures and the problems found.",
        _overview,
        f"`samples`: by column ({', '.join(COLUMNS)}) a list, the oldest first; rates are per second, null is unknown."
        " `memoryBytes`: messages queued in memory, without those in the store. `sessions`, `store`: the current figures."
        " `pages`: operators' pages; `queued`: messages for subjects and groups; `conditions`: how many sessions stand how,"
        " in plain words. `trouble` of the store: why it cannot be used, or null; its figures are null from `unknownSince` on,"
        " while it cannot be asked. `messagesHeld`: while more than half of the store's memory is used, the accounts with the"
        " most stored messages (`account`, `messages`, `bytes`), and `accountMaxBytes`: how much one may have"
        " (`limits.max_stored_ratio`), or null. `load`: the last minute of the store's thread, or null: the cores that"
        " it used (`busy`; 1 is the most), the part of the time in which it waited for its disk (`diskWait`, or null), and"
        " `steps` a second. `disk`: that of an embedded store, else null: `directory`, and in bytes"
        " `total`, `free`, `used` and `file`, the store's file. `findings`: the problems; a receiver is in one of them. A"
        " finding has `level` (bad, warn), `title`, `cause`, `advice`, `link` (a view of the page), `count`, `since` (or"
        " null), `nodes` and `receivers`: some of those that it is about, each with `name`, `title`, `link`, `cause`, `node`,"
        " `since` and `awaySince` (or null). `over`: what was wrong with receivers and has ended in the last hour, with `key`,"
        " `title`,"
        " `cause`, `link`, `count`, `since`, `until` and `nodes`. `groups`:"
        " consumer groups that are `working`, or `empty`: no member takes their messages. `queues`: how many queues of subjects"
        " and groups are full, or soon or nearly so, or fall behind, by the kind of the cause. With `cluster.enabled`, all"
        " figures except `uptimeMs` cover all `nodes`: samples are sums (for percentiles, the largest). `unreached`: how"
        " many nodes did not answer, `failed` of them because of an internal error.",
        Example({}, {"node": "heron", "findings": [{"key": "group-empty", "level": "bad", "count": 1}]}),
        query=(number_text("after", "Only samples that are newer: milliseconds since 1970.", 0, _LATEST, 0),),
        merge=At.HANDLER,
    ),
)
