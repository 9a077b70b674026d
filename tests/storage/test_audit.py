"""The stream of the audit: bounded, filtered, read a page at a time."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from crewel.storage import audit_stream
from crewel.storage.audit_stream import AuditFilter
from crewel.storage.store import Store

JOE = {"who": "joe", "what": "hold session", "about": "client/ann/1", "outcome": "done", "reason": "Paper"}
ANN = {"who": "ann", "what": "hold subject", "about": "client/annette", "outcome": "refused", "reason": ""}


async def write(store: Store, *entries: dict[str, Any], most: int = 100) -> list[str]:
    steps = [audit_stream.write(store.keys, entry, most) for entry in entries]
    return list(await store.run(steps))


async def test_the_newest_is_first_and_has_its_id(store: Store) -> None:
    ids = await write(store, JOE, ANN)
    page = await audit_stream.page(store, AuditFilter())
    assert page == ([{"id": ids[1], **ANN}, {"id": ids[0], **JOE}], "")
    oldest_first = await audit_stream.page(store, AuditFilter(), newest_first=False)
    assert [entry["who"] for entry in oldest_first.entries] == ["joe", "ann"]


async def test_what_no_json_of_others_has_is_written_all_the_same(store: Store) -> None:
    await write(store, {**JOE, "who": "joe\ud800", "details": {"after": 10**20}})
    ((entry,), _) = await audit_stream.page(store, AuditFilter())
    assert (entry["who"], entry["what"], entry["details"]) == ("joe?", "hold session", {"after": 1e20})


async def test_pages_follow_one_another_in_both_directions(store: Store) -> None:
    await write(store, *({"who": str(number)} for number in range(7)))
    for newest_first in (True, False):
        found, after = [], ""
        while True:
            page = await audit_stream.page(store, AuditFilter(), after, 3, newest_first=newest_first)
            assert len(page.entries) <= 3
            found += [int(entry["who"]) for entry in page.entries]
            after = page.next
            if not after:
                break
        assert found == sorted(range(7), reverse=newest_first)


async def test_the_oldest_leave(store: Store) -> None:
    await write(store, *({"who": str(number)} for number in range(9)), most=4)
    page = await audit_stream.page(store, AuditFilter())
    assert [entry["who"] for entry in page.entries] == ["8", "7", "6", "5"]
    assert await audit_stream.length(store) == 4


async def test_an_operator_displaces_its_own_entries(store: Store) -> None:
    await write(store, *({"who": "joe", "what": str(number)} for number in range(3)), most=10)
    await write(store, *({"who": "ann", "what": str(number)} for number in range(20)), most=10)
    page = await audit_stream.page(store, AuditFilter(), newest_first=False)
    expected = [("joe", str(each)) for each in range(3)] + [("ann", str(each)) for each in range(13, 20)]
    assert [(entry["who"], entry["what"]) for entry in page.entries] == expected
    assert await audit_stream.shares(store) == [("ann", 7), ("joe", 3)]


async def test_entries_of_a_server_of_version_1_0_are_counted(store: Store) -> None:
    for who in ("joe", *["ann"] * 20):
        await store.reader.xadd(store.keys.audit, {"d": orjson.dumps({"who": who})})
    await write(store, JOE, most=10)
    assert await audit_stream.shares(store) == [("ann", 8), ("joe", 2)]
    await store.reader.delete(store.keys.audit)  # as if it had trimmed all of them
    await write(store, *[ANN] * 12, most=10)
    assert (await audit_stream.shares(store))[0] == ("ann", 10)
    assert await audit_stream.length(store) == 10


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AuditFilter(who="joe"), ["joe"]),
        (AuditFilter(who="jo"), []),
        (AuditFilter(what="hold"), ["ann", "joe"]),
        (AuditFilter(what="hold session"), ["joe"]),
        (AuditFilter(about="client/ann"), ["joe"]),
        (AuditFilter(about="client/ann/1"), ["joe"]),
        (AuditFilter(about="client/ann/"), []),
        (AuditFilter(outcome="refused"), ["ann"]),
        (AuditFilter(contains="paper"), ["joe"]),
        (AuditFilter(since_ms=2**43), []),
        (AuditFilter(since_ms=1), ["ann", "joe"]),
    ],
)
async def test_a_filter_leaves_what_is_wanted(store: Store, wanted: AuditFilter, found: list[str]) -> None:
    await write(store, JOE, ANN)
    page = await audit_stream.page(store, wanted)
    assert [entry["who"] for entry in page.entries] == found


async def test_one_call_reads_a_bounded_number_and_says_where_to_continue(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_stream, "_PORTION", 2)
    monkeypatch.setattr(audit_stream, "_MOST_READ", 4)
    ids = await write(store, *({"who": str(number)} for number in range(6)))
    page = await audit_stream.page(store, AuditFilter(who="0"))
    assert page == ([], ids[2])
    assert [entry["who"] for entry in (await audit_stream.page(store, AuditFilter(who="0"), page.next)).entries] == [
        "0"
    ]
