"""The audit as a REST resource: a list, and an export as lines."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final

from aiohttp import web

from crewel.admin.audit import Outcome
from crewel.admin.example import Example
from crewel.admin.request_fields import PAGE, choice_field, page_fields, place, text_field
from crewel.admin.route import Ask, Route, send_lines
from crewel.bayeux.codec import encode
from crewel.storage import audit_stream
from crewel.storage.audit_stream import AuditFilter, Page
from crewel.times import EXPECTED, since

_EXPORTED: Final = 500
_SHOWN: Final = 10
_FILTERS: Final = (
    text_field(
        "who",
        "Only actions of this operator: a subject, or admin for the admin token. A token with that subject is admin (jwt).",
    ),
    text_field("what", "Only actions that begin with this text: hold session, redrive."),
    text_field("about", "Only actions on this session, subject, channel or job, or below it: client/joe."),
    choice_field("outcome", "Only actions with this outcome", Outcome),
    text_field("since", f"Only actions from this time on: {EXPECTED}.", since),
    text_field("contains", "Only entries that contain this text."),
)
_ENTRY: Final = (
    "`id`, `at` (milliseconds since 1970), `node`, `who` (empty for a refused sign-in), `role`, `what`, `about`,"
    " `count`, `reason`, `outcome` (done, refused, failed), `errorCode` and `details`. `count`: the number of affected"
    " objects, or null; for a refusal, how often it occurred since the previous entry"
)


def _filter(fields: dict[str, Any]) -> AuditFilter:
    given = {name: fields[name] for name in ("who", "what", "about", "outcome", "contains") if name in fields}
    return AuditFilter(**given, since_ms=fields.get("since", 0))


async def _list(ask: Ask) -> dict[str, Any]:
    store, fields = ask.admin.store, ask.fields
    page = await audit_stream.page(store, _filter(fields), fields.get("after", ""), fields.get("count", PAGE))
    return {
        "entries": page.entries,
        "next": page.next,
        "kept": await audit_stream.length(store),
        "max": ask.admin.settings.admin.audit_max_entries,
        "held": [{"who": who, "entries": entries} for who, entries in await audit_stream.shares(store, _SHOWN)],
    }


async def _export(ask: Ask) -> web.StreamResponse:
    wanted = _filter(ask.fields)
    page = await audit_stream.page(ask.admin.store, wanted, "", _EXPORTED, newest_first=False)
    with ask.action("export audit", **{f"only_{name}": value for name, value in ask.fields.items()}):
        return await send_lines(ask, _portions(ask, wanted, page))


async def _portions(ask: Ask, wanted: AuditFilter, page: Page) -> AsyncGenerator[bytes, None]:
    while True:
        yield b"".join([encode(entry) + b"\n" for entry in page.entries])
        if not page.next:
            return
        page = await audit_stream.page(ask.admin.store, wanted, page.next, _EXPORTED, newest_first=False)


_SAMPLE: Final = {"who": "admin", "what": "hold session", "about": "client/bob/1", "outcome": "done"}

AUDIT_ROUTES: Final = (
    Route(
        "GET",
        "/audit",
        "List the actions of operators, including refused ones, the newest first, a page at a time.",
        _list,
        "`entries`, a list; `next`, the cursor of the next page, empty if this is the last: earlier pages may be short"
        " or empty; `kept`: the number of entries; `max`: their maximum number; `held`: the operators with the most, each with"
        f" `who` and `entries`. Beyond `max`, the first of these loses its oldest. An entry has {_ENTRY}.",
        Example({"what": "hold session", "since": "2h"}, {"entries": [_SAMPLE], "next": ""}),
        query=(
            *_FILTERS,
            *page_fields("entries", place),
        ),
    ),
    Route(
        "GET",
        "/audit/export",
        "Export the audit, the oldest first, as lines of JSON.",
        _export,
        "One entry per line, as in the list.",
        Example({"what": "hold session"}, _SAMPLE),
        query=_FILTERS,
        media_type="application/x-ndjson",
    ),
)
