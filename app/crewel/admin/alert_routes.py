"""The REST resource of the alerts that the data pipeline raises."""

from __future__ import annotations

from typing import Any, Final

from crewel.admin.routes import Ask, Route
from crewel.storage.pipeline import alerts


async def _list(ask: Ask) -> dict[str, Any]:
    """The alerts of sessions that are held back still. The pipeline looks seldom, and this server knows at once."""
    found = await alerts(ask.admin.durability.store)
    return {"alerts": [{"session": each.session, **each.fields} for each in found if _is_held(ask, each.session)]}


def _is_held(ask: Ask, name: str) -> bool:
    session = ask.admin.find(name)
    return session is not None and ask.admin.dispatching.holdback(session) is not None


ALERT_ROUTES: Final = (
    Route(
        "GET",
        "/alerts",
        "Receivers that have been held back for longer than the pipeline's limit, and are so still.",
        _list,
        "`alerts`, a list in the order of the names. An alert has `session`, `since` and `raised` (milliseconds since 1970),"
        " `held_ms` (how long it had been held when that was noticed), `code`, `who` and `reason`.",
    ),
)
