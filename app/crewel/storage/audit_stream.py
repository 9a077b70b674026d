"""The audit: what operators did and were refused, a bounded stream of the store, written by the server that did it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from crewel.storage.keys import Keys
from crewel.storage.script_step import Step
from crewel.storage.store import Store
from crewel.storage.stream_walk import Walk

_PORTION: Final = 500
_MOST_READ: Final = 5000
"""Entries that one page reads."""


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries are wanted; what is empty asks for nothing."""

    who: str = ""
    what: str = ""
    """The beginning of what was done."""
    about: str = ""
    """What it was done to: this name, or all below it, as `client/joe` for `client/joe/1`."""
    outcome: str = ""
    since_ms: int = 0
    contains: str = ""
    """Text anywhere in the entry, in any case."""

    def has(self, entry: Mapping[str, Any], text: bytes) -> bool:
        """Whether this entry is wanted; `text` is how it is stored."""
        about = str(entry.get("about", ""))
        return (
            self.who in ("", entry.get("who"))
            and str(entry.get("what", "")).startswith(self.what)
            and (self.about in ("", about) or about.startswith(f"{self.about}/"))
            and self.outcome in ("", entry.get("outcome"))
            and self.contains.lower() in text.decode("utf-8", "replace").lower()
        )


class Page(NamedTuple):
    """Some entries, and where the next page begins."""

    entries: list[dict[str, Any]]
    next: str
    """To be passed as `after`; empty if there are no more."""


def write(k: Keys, entry: Mapping[str, Any], most: int) -> Step[str]:
    """Append an entry; of more than `most`, the oldest of the operator with the most leave. Returns its id."""
    try:
        text = orjson.dumps(entry, default=str)
    except TypeError:  # a number or a text that no JSON of others has: what was done is written all the same
        text = json.dumps(entry, default=str, ensure_ascii=False).encode("utf-8", "replace")
    who = str(entry.get("who", "")).encode("utf-8", "replace")
    return Step("audit", (k.audit,), (k.base, most, who, text), bytes.decode)


async def shares(store: Store, most: int = 100) -> list[tuple[str, int]]:
    """The operators with the most entries, and how many each has, the largest first. Raises StoreError."""
    found: Any = await store.reader.zrange(store.keys.audit_shares.entries, 0, most - 1, desc=True, withscores=True)
    return [(who.decode(), int(entries)) for who, entries in found]


async def length(store: Store) -> int:
    """Return how many entries there are. Raises StoreError."""
    return int(await store.reader.xlen(store.keys.audit))


async def page(
    store: Store, wanted: AuditFilter, after: str = "", count: int = 100, *, newest_first: bool = True
) -> Page:
    """Return the next entries that are wanted, `count` at most, after the place where the page before ended. A page may come
    back short, or empty, and yet say where the next begins: one call reads a bounded number. Raises StoreError."""
    low = f"{wanted.since_ms}-0" if wanted.since_ms > 0 else "-"
    found: list[dict[str, Any]] = []
    entries = Walk(
        store, store.keys.audit, low, after=after, newest_first=newest_first, portion=_PORTION, most=_MOST_READ
    )
    async for _, fields in entries:
        entry = orjson.loads(fields[b"d"])
        if wanted.has(entry, fields[b"d"]):
            if len(found) == count:
                return Page(found, found[-1]["id"])
            found.append({"id": entries.after, **entry})
    return Page(found, "" if entries.is_whole else entries.after)
