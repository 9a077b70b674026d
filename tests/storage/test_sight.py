"""What a reader of some channels does not see is not in a page, nor is it why a page is short; a time bounds such a call."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from crewel.delivery.records import Submission
from crewel.storage import dead_letter_bin, dead_letter_store, message_bodies, message_facts, sight
from crewel.storage.dead_letter_groups import count_by
from crewel.storage.dead_letter_records import DeadLetterFilter
from crewel.storage.message_facts import messages_with_key
from crewel.storage.sight import Sight
from crewel.storage.store import Store
from tests.storage.dead_lettered import letter
from tests.storage.owner import FACTS_MAX, JOE, Owner, owner_of, started

BODY = b'{"data":"soup"}'
HIDDEN = 20
GROUP = ("group:/** x",)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that read so little that any of what is hidden would end them."""
    sizes: dict[ModuleType, dict[str, int]] = {
        message_bodies: {"_PORTION": 2, "_MOST_READ": 4, "_MOST_QUEUES": 1},
        message_facts: {"_PORTION": 2, "_MOST_READ": 4},
        dead_letter_store: {"_PORTION": 2, "_MOST_READ": 4, "_FEW": 0},
        dead_letter_bin: {"_PORTION": 2, "_MOST_READ": 4},
    }
    for module, named in sizes.items():
        for name, size in named.items():
            monkeypatch.setattr(module, name, size)


def of_a() -> Sight:
    return Sight(lambda channel: channel == "/a")


async def published(store: Store, *, has_hidden: bool) -> list[str]:
    """Three messages, among them very many others; the ids of the three."""
    owner, ids = await started(store), []
    others = [Submission("/b", BODY, groups=GROUP, key=f"x /b {number}", publisher_key="k") for number in range(HIDDEN)]
    for number in range(3):
        if has_hidden:
            await owner.append(others)
        mine = [Submission("/a", BODY, groups=GROUP, key=f"x /a {number}", publisher_key="k")]
        ids += (await owner.append(mine)).ids
    if has_hidden:
        await owner.append(others)
    return list(map(str, ids))


@pytest.mark.parametrize("has_hidden", [False, True])
async def test_a_search_pages_through_what_is_seen(store: Store, has_hidden: bool) -> None:
    ids = await published(store, has_hidden=has_hidden)
    assert [each for each, _ in await pages(lambda after: message_bodies.search(store, "soup", after, 2, sight=of_a()))] == [
        ids[:0:-1], ids[:1],
    ]  # fmt: skip
    assert await message_bodies.search(store, "tea", sight=of_a()) == ([], "")
    queued = await message_bodies.search_queues(store, "soup", 3, sight=of_a())
    assert ([str(each.id) for each in queued.messages], queued.is_partial) == (ids[::-1], False)
    found = await pages(lambda after: messages_with_key(store, "k", after, 2, of_a()))
    assert [each for each, _ in found] == [ids[:0:-1], ids[:1]]


async def pages(ask: Any) -> list[tuple[list[str], str]]:
    """The ids of each page, and what it says of the next one."""
    found: list[tuple[list[str], str]] = []
    while not found or found[-1][1]:
        page = await ask(found[-1][1] if found else "")
        found.append(([str(each.id) for each in page.messages], page.next))
    return found


async def lettered(store: Store, *, has_hidden: bool) -> tuple[Owner, list[str]]:
    owner, ids = await owner_of(store, JOE), []
    others = [letter("user.hidden", channel="/b") for _ in range(HIDDEN)]
    for number in range(3):
        if has_hidden:
            await owner.dead_letter(*others)
        ids += await owner.dead_letter(letter(f"user.{number}"))
    if has_hidden:
        await owner.dead_letter(*others)
    return owner, ids


@pytest.mark.parametrize("few", [0, 50])
@pytest.mark.parametrize("has_hidden", [False, True])
async def test_dead_letters_within_some_channels_are_all_that_counts(
    store: Store, has_hidden: bool, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_store, "_FEW", few)
    owner, ids = await lettered(store, has_hidden=has_hidden)
    wanted = DeadLetterFilter(within=("/a", "/c/**"))
    first = await dead_letter_store.page(store, wanted, count=2)
    assert ([each.dead_id for each in first.letters], first.next) == (ids[:2], ids[1])
    last = await dead_letter_store.page(store, wanted, first.next, 2)
    assert ([each.dead_id for each in last.letters], last.next) == (ids[2:], "")
    newest = await dead_letter_store.page(store, wanted, count=2, newest_first=True)
    assert ([each.dead_id for each in newest.letters], newest.next) == (ids[:0:-1], ids[1])
    assert await dead_letter_store.page(store, DeadLetterFilter(contains="tea", within=("/a",))) == ([], "")
    assert await dead_letter_store.count(store, wanted) == 3
    found = await count_by(store, wanted, ["code"])
    assert (found.letters, found.is_partial) == (3, False)
    assert sorted(group.value for group in found.groups["code"].largest) == ["user.0", "user.1", "user.2"]
    every = [each.dead_id for each in (await dead_letter_store.page(store, DeadLetterFilter(), count=1000)).letters]
    while every:
        part, every = every[:10], every[10:]
        await owner.do(dead_letter_store.discard(owner.keys, owner.token, part, FACTS_MAX, keeps=True))
    left = [each.dead_id for each in (await dead_letter_store.page(store, wanted, count=9)).letters]
    await owner.do(dead_letter_store.discard(owner.keys, owner.token, left, FACTS_MAX, keeps=True))
    page = await dead_letter_bin.page(store, wanted, count=2)
    assert len(page.letters) == 2
    assert bool(page.next)
    rest = await dead_letter_bin.page(store, wanted, page.next, 2)
    assert {each.letter.dead_id for each in (*page.letters, *rest.letters)} == set(ids)
    assert rest.next == ""


async def test_the_names_of_shared_queues_are_read_in_portions(store: Store) -> None:
    owner = await started(store)
    await owner.append(
        [Submission("/a", BODY, groups=(f"group:/a {number}",), key=f"x {number}") for number in range(5)]
    )
    await store.reader.config_resetstat()
    found = await message_bodies.search_queues(store, "soup", 9, sight=of_a())
    assert (len(found.messages), found.is_partial) == (5, False)
    stats: Any = await store.reader.info("commandstats")
    assert stats["cmdstat_zrevrange"]["calls"] == 3


async def test_reading_for_a_reader_of_some_channels_ends_after_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await published(store, has_hidden=True)
    monkeypatch.setattr(sight, "READING_S", 0.0)
    found = await pages(lambda after: message_bodies.search(store, "soup", after, 9, sight=of_a()))
    assert len(found) > HIDDEN // 2
    assert [each for some, _ in found for each in some] == ids[::-1]
    assert (await message_bodies.search_queues(store, "soup", sight=of_a())).is_partial
    monkeypatch.setattr(dead_letter_store, "READING_S", 0.0)
    await lettered(store, has_hidden=True)
    page = await dead_letter_store.page(store, DeadLetterFilter(within=("/a",)))
    assert (page.letters, bool(page.next)) == ([], True)
