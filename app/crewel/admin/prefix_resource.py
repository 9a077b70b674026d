"""Prefixes of channels, each with what the topics at and below it have. A REST resource."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from zlib import crc32

from crewel.admin.example import Example
from crewel.admin.merges import Parts, Row
from crewel.admin.operation import About
from crewel.admin.request_fields import PAGE, flag_text, page_fields, text_field
from crewel.admin.route import Ask, Route
from crewel.bayeux.channel import SYSTEM
from crewel.event_loop import in_turns, sorted_in_turns

_MOST_NAMED: Final = 50_000
"""Topics that one node names to another, in a short form, so that each is counted once."""

Topic = list[int]
"""A topic in its short form: the checksum of its name, whether it is below the prefix, its history, and its queued messages."""


async def _list(ask: Ask) -> dict[str, Any]:
    """A page of the names directly below a prefix; of one that becomes a part, with the topics themselves."""
    fields = ask.fields
    below = fields.get("below", "/").rstrip("/") + "/"
    after, count, internal = fields.get("after", ""), fields.get("count", PAGE), fields.get("internal")
    found: dict[str, list[int]] = {}
    topics: dict[str, list[Topic]] = {}
    async for view in in_turns(await ask.admin.topics.all(with_shared=ask.request is not None)):
        if internal is not None and view.name.startswith(SYSTEM) is not internal:
            continue
        if view.name.startswith(below) and ask.covers(view.name):
            prefix = below + view.name[len(below) :].partition("/")[0]
            topic = [crc32(view.name.encode()), int(view.name != prefix), view.history, view.queued]
            _count(found.setdefault(prefix, [0] * 4), topic)
            if ask.is_part:
                topics.setdefault(prefix, []).append(topic)
    rest = await sorted_in_turns(prefix for prefix in found if prefix > after)
    page = rest[:count]
    told: dict[str, Any] = {
        "below": below,
        "prefixes": [_row(prefix, found[prefix]) for prefix in page],
        "next": page[-1] if len(rest) > count else "",
    }
    if ask.is_part and sum(found[prefix][0] for prefix in page) <= _MOST_NAMED:
        told["topics"] = {prefix: topics[prefix] for prefix in page}
    return told


def _count(counts: list[int], topic: Topic) -> None:
    """Add a topic to the counts of its prefix: topics, those that are deeper, their histories, and their queued messages."""
    counts[0] += 1
    for place in (1, 2, 3):
        counts[place] += topic[place]


def _row(prefix: str, counts: Sequence[int]) -> Row:
    topics, deeper, history, queued = counts
    return {"prefix": prefix, "topics": topics, "deeper": deeper, "history": history, "queued": queued}


def _row_of(prefix: str, topics: Iterable[Topic]) -> Row:
    counts = [0] * 4
    for topic in topics:
        _count(counts, topic)
    return _row(prefix, counts)


def joined_prefixes(pages: Sequence[dict[str, Any]], count: int) -> dict[str, Any]:
    """The pages of several nodes as one. A topic that several of them have is counted once. If a node has too many to name
    them, a prefix has at least as many as the node that has most of them. Pure."""
    last = min((page["next"] for page in pages if page["next"]), default="")
    rows: dict[str, list[Row]] = {}
    topics: dict[str, dict[int, Topic]] = {}
    for page in pages:
        for row in page["prefixes"]:
            if not last or row["prefix"] <= last:  # what a node has behind the end of its page is not known
                rows.setdefault(row["prefix"], []).append(row)
        for prefix, some in page.get("topics", {}).items():
            _add(topics.setdefault(prefix, {}), some)
    are_named = all("topics" in page for page in pages)
    names = sorted(rows)
    shown = names[:count]
    has_more = len(names) > count or bool(last)
    return {
        "below": pages[0]["below"],
        "prefixes": [_row_of(name, topics[name].values()) if are_named else _largest(rows[name]) for name in shown],
        "next": shown[-1] if has_more and shown else "",
    }


def _add(known: dict[int, Topic], topics: Iterable[Topic]) -> None:
    """Each topic once: its history is in the store, and each node has queues of its own."""
    for name, deeper, history, queued in topics:
        before = known.get(name)
        if before is None:
            known[name] = [name, deeper, history, queued]
        else:
            before[2], before[3] = max(before[2], history), before[3] + queued


def _largest(rows: Sequence[Row]) -> Row:
    most = max(rows, key=lambda row: int(row["topics"]))
    return {**most, "queued": sum(row["queued"] for row in rows)}


PREFIX_ROUTES: Final = (
    Route(
        "GET",
        "/prefixes",
        "List the names directly below a prefix of channels, with how many topics each has, a page at a time.",
        _list,
        "`below`; `prefixes`, a list; `next`, the cursor of the next page, empty if this is the last. An entry has `prefix`,"
        " `topics` (how many topics have this name or are below it), `deeper` (how many are below it), and their messages:"
        " `history` and `queued`.",
        Example({"below": "/kitchen"}, {"prefixes": [{"prefix": "/kitchen/orders", "topics": 1}], "next": ""}),
        query=(
            text_field("below", "The prefix, such as /kitchen. Without it, the first segments."),
            flag_text("internal", "true: only the server's own topics, /__sys__…; false: only the others."),
            *page_fields("names"),
        ),
        about=About.MANY,
        merge=Parts(lambda pages, fields: joined_prefixes(pages, fields.get("count", PAGE))),
    ),
)
