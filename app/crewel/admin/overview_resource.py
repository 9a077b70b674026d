"""The overview of one server: its last hour, its figures of now, and what is wrong. A REST resource."""

from __future__ import annotations

from time import time
from typing import Any, Final

from crewel.admin.administration import Administration
from crewel.admin.fields import number_text
from crewel.admin.findings import EmptyGroup, Figures, findings
from crewel.admin.metrics_history import COLUMNS, EVERY_S
from crewel.admin.route import Ask, Route
from crewel.admin.session_counts import SessionCounts
from crewel.errors import StoreError
from crewel.qos.names import group_of, group_queue
from crewel.storage import dead_letters
from crewel.storage.dead_letter_groups import groups
from crewel.storage.dead_letter_records import DeadLetterFilter
from crewel.storage.store import Store

_CODES: Final = 8
_LATEST: Final = 10**15


async def _overview(ask: Ask) -> dict[str, Any]:
    return await overview(ask.admin, ask.fields.get("after", 0))


async def overview(admin: Administration, after_ms: float) -> dict[str, Any]:
    """The figures of now, what is wrong, and the samples that are newer than this."""
    broker = admin.broker
    counted = await admin.session_counter.take()
    store = await _store(admin)
    empty_groups, working = _groups(admin)
    figures = Figures(
        now_ms=int(time() * 1000),
        counted=counted,
        concerns={about: why for about, read in broker.concerns.items() if (why := read()) is not None},
        failing_workers=broker.runtime.failing_workers,
        dead_letters_made=store["lettersNew"],
        dead_letter_codes=[(each["value"], each["count"]) for each in store["codes"]],
        messages_dropped=admin.metrics_history.lost,
        dead_letters_dropped=store["lettersDropped"],
        store_used=store["usedMemory"],
        store_most=store["maxMemory"],
        facts_lost=sum(broker.metrics.trimmed_unread.values()),
        empty_groups=empty_groups,
    )
    return {
        "node": admin.node,
        "at": int(time() * 1000),
        "uptimeMs": int((broker.loop.time() - admin.started) * 1000),
        "everyMs": int(EVERY_S * 1000),
        "samples": admin.metrics_history.since(after_ms),
        "sessions": _sessions(admin, counted),
        "store": store,
        "groups": {"working": working, "empty": [tuple(each) for each in empty_groups]},
        "findings": [each.as_json() for each in findings(figures)],
    }


def _groups(admin: Administration) -> tuple[list[EmptyGroup], list[tuple[str, str]]]:
    """The consumer groups with messages that no member here takes; and those with a member here that takes messages."""
    queues, groups = admin.broker.shared_queues, admin.broker.groups
    found = []
    for queue in queues.names():
        group, members = group_of(queue), groups.members(queue)
        if group is not None and not any(map(admin.takes, members)):
            found.append(EmptyGroup(*group, queues.waiting(queue), len(members)))
    states = [(each.pattern, each.name) for each in groups.states()]
    return found, [each for each in states if any(map(admin.takes, groups.members(group_queue(*each))))]


def _sessions(admin: Administration, counted: SessionCounts) -> dict[str, Any]:
    queues = admin.broker.shared_queues
    return {
        "count": len(admin.broker.sessions),
        "unnamed": counted.unnamed,
        "pages": counted.pages,
        "states": counted.states,
        "transports": counted.transports,
        "held": counted.on_hold_count,
        "waiting": counted.waiting,
        "queued": sum(map(queues.waiting, queues.names())),
    }


async def _store(admin: Administration) -> dict[str, Any]:
    """What the store reports. One that does not answer leaves the rest of the overview as it is."""
    access = admin.broker.access
    shown: dict[str, Any] = {
        "trouble": access.trouble if access.has_store else None,
        "kept": access.has_store,
        "usedMemory": 0,
        "maxMemory": 0,
        "letters": 0,
        "lettersNew": 0,
        "lettersDropped": 0,
        "codes": [],
    }
    if not access.has_store or access.trouble is not None:
        return shown
    try:
        return shown | await _asked(admin, access.store)
    except StoreError as error:
        return shown | {"trouble": str(error)}


async def _asked(admin: Administration, store: Store) -> dict[str, Any]:
    info = await store.reader.info("memory")
    codes = await groups(store, "code")
    letters = await dead_letters.count(store, DeadLetterFilter())
    return {
        "usedMemory": int(info["used_memory"]) - int(info.get("mem_not_counted_for_evict", 0)),
        "maxMemory": int(info.get("maxmemory", 0)),
        "letters": letters,
        "lettersNew": await admin.new_dead_letters.count(letters),
        "lettersDropped": await dead_letters.dropped(store),
        "codes": [{"value": each.value, "count": each.letters} for each in codes.largest[:_CODES]],
    }


OVERVIEW_ROUTES: Final = (
    Route(
        "GET",
        "/overview",
        "Show the last hour, the current figures and the problems found.",
        _overview,
        f"`samples`: by column ({', '.join(COLUMNS)}) a list, the oldest first; rates are per second, null is unknown."
        " `memoryBytes`: messages queued in memory, without those in the store. `sessions`, `store`: the current"
        " figures; `pages`: operators' pages; `queued`: messages for subjects and groups. `findings`: the problems,"
        " each with `level` (bad, warn), `title`, `cause`, `advice`, `link` (a view of the page) and `count`. `groups`:"
        " consumer groups that are `working`, or `empty`: no member takes their messages. With `cluster.enabled`, all"
        " figures except `uptimeMs` cover all `nodes`: samples are sums (for percentiles, the largest), and a finding"
        " has its `node`; `unreached`: how many nodes did not answer, `failed` of them because of an internal error.",
        query=(number_text("after", "Only samples that are newer: milliseconds since 1970.", 0, _LATEST, 0),),
    ),
)
