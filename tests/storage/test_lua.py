"""The Lua files as such: each tells what it does, and the store takes all of them, full or not."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import crewel.storage
from crewel.delivery.records import Disposition, EndReason, LogId, PendingDeadLetter
from crewel.errors import StoreFull
from crewel.storage import dead_letter_store, histories, shared_queue_store
from crewel.storage.script_step import scripts
from crewel.storage.store import Store
from tests.storage.conftest import OpenStore, StartStore
from tests.storage.dead_lettered import all_letters, assert_indexes_agree, letter
from tests.storage.owner import JOE, Owner, change, started

FILES = sorted((Path(crewel.storage.__file__).parent / "scripts").glob("*.lua"))
GROWING = {
    "publish",
    "send",
    "login",
    "claim",
    "subscribe",
    "configure",
    "redrive",
    "bin",
    "restore",
    "events",
    "begin_job",
    "schedule",
    "postpone",
}
READING = {"channels", "fetch", "histories", "history", "members", "progress", "recall", "weigh"}
ADDRESSED = shared_queue_store.Addressed("/a", b"{}")
TO_JOE = shared_queue_store.Delivery(JOE, JOE)


def header(text: str) -> list[str]:
    lines = text.splitlines()[1:]
    return lines[: next(number for number, line in enumerate(lines) if not line.startswith("--"))]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_script_says_what_it_does_and_takes(file: Path) -> None:
    text = file.read_text()
    # A full store refuses what makes it grow; a script that writes nothing need not be allowed.
    flags = "" if file.stem in GROWING else " flags=no-writes" if file.stem in READING else " flags=allow-oom"
    assert text.splitlines()[0] == f"#!lua{flags}"
    head = "\n".join(header(text))
    assert re.match(r"-- [A-Z][^.]*\.", head)
    assert re.search(r"^-- Returns ", head, re.MULTILINE)
    described = re.findall(r"^-- (KEYS|ARGV)\[(\d+)(\.\.\.)?\]", head, re.MULTILINE)
    body = text[len(head) :]
    for table in ("KEYS", "ARGV"):
        numbers = [int(number) for name, number, _ in described if name == table]
        assert numbers == list(range(1, len(numbers) + 1))
        assert {int(number) for number in re.findall(rf"{table}\[(\d+)\]", body)} <= set(numbers)


def test_every_include_names_a_file() -> None:
    assert not [name for name, script in scripts().items() if b"-- include" in script.text]


async def test_the_store_loads_all_of_them(store: Store) -> None:
    for file in FILES:
        assert re.fullmatch(r"[0-9a-f]{40}", await store.reader.script_load(scripts()[file.stem].text))


# A full store


async def full(open_store: OpenStore, start_store: StartStore, before: Callable[[Owner], Awaitable[None]]) -> Owner:
    process = start_store()
    store = await open_store(f"storage.url={process.url}")
    owner = await started(store)
    await before(owner)
    await store.reader.config_set("maxmemory", "1")
    return owner


async def prepare(owner: Owner) -> None:
    await owner.login(JOE)
    await owner.subscribe("/a")
    ids = await owner.publish("/a", "/a", "/a")
    owner.number = 1
    await owner.apply(owner.next_commit(ids[-1], change(opened=ids), low=0))
    await owner.dead_letter(letter(), letter())
    await owner.publish("/a", "/a", history_max=9, groups=("group:/a x",), qos=b'{"forceDestroy":true}', expires=10**6)
    await owner.publish("/a", "/a", groups=("group:/a x",))


async def contents(owner: Owner) -> dict[bytes, bytes | None]:
    return {key: await owner.store.reader.dump(key) async for key in owner.store.reader.scan_iter()}


async def test_a_full_store_refuses_what_grows_as_a_whole(open_store: OpenStore, start_store: StartStore) -> None:
    owner = await full(open_store, start_store, prepare)
    first, *_ = await all_letters(owner)
    before = await contents(owner)
    for growing in (
        lambda: owner.publish("/a", "/b", key="x"),
        lambda: owner.login("client/joe/"),
        lambda: owner.login(JOE, id="new"),
        lambda: owner.subscribe("/b"),
        lambda: owner.do(shared_queue_store.send(owner.keys, owner.token, ADDRESSED, [TO_JOE], 1000)),
        lambda: owner.do(histories.configure(owner.keys, owner.token, "/a", b"{}", "e")),
        lambda: owner.do(dead_letter_store.redrive(owner.keys, owner.token, first, 1000)),
        lambda: owner.do(dead_letter_store.redrive(owner.keys, owner.token, first, 1000, to_channel=True)),
    ):
        with pytest.raises(StoreFull) as caught:
            await growing()
        assert caught.value.code == "resource.noMoreSpace"
    assert await contents(owner) == before


async def test_a_full_store_lets_go_what_it_has(open_store: OpenStore, start_store: StartStore) -> None:
    owner = await full(open_store, start_store, prepare)
    first, second, third, *others = await owner.log_ids()
    await let_go_of_queues(owner, others[-2:])
    assert await owner.spill(first) == [first]
    await owner.hold(b'{"active":false}')
    dead = [PendingDeadLetter(JOE, second, "user.x", "why"), letter("user.new", channel="/new")]
    await owner.commit(
        third, change(settled=[second]), letters=dead, ended=[Disposition(JOE, EndReason.DEAD, (second,))]
    )
    await assert_indexes_agree(owner)
    old = [each.dead_id for each in await all_letters(owner)]
    assert await owner.do(dead_letter_store.discard(owner.keys, owner.token, old[1:], 1000)) == 3
    await assert_indexes_agree(owner)
    assert await owner.trim() == 3
    assert (await owner.unsubscribe("/a")) == {"/a": (0, others[-1])}
    heir = await started(owner.store, "b")
    assert set(await heir.adopt_all()) == {JOE}
    assert await heir.close(death=("user.x", "why")) == others[-1]
    ended = [Disposition(JOE, EndReason.DEAD, (third,)), Disposition(JOE, EndReason.LAPSED, (first,))]
    await heir.end(ended, [PendingDeadLetter(JOE, third, "user.last", "why")])
    assert [each.code for each in await all_letters(heir)] == ["user.x", "user.last"]
    await assert_indexes_agree(heir)
    assert await owner.nodes() == {"b"}


async def let_go_of_queues(owner: Owner, ids: list[LogId]) -> None:
    keys, token, queue = owner.keys, owner.token, "group:/a x"
    assert (await owner.do(histories.history(keys, token, "/a", newest=1))).total == 2
    assert await owner.do(histories.expire(keys, token, 2000, 9)) == (4, [("/a", 2, 0), (queue, 2, 2)])
    found = await owner.do(shared_queue_store.lease(keys, token, queue, [shared_queue_store.Member(JOE, 9)], 1000))
    assert [each.id for each in found.leased] == ids
    requeued = await owner.do(shared_queue_store.requeue(keys, token, JOE, dict.fromkeys(ids, 1), 1000, failed=False))
    assert requeued == shared_queue_store.Requeued(0, tuple(ids))
    assert await owner.do(shared_queue_store.discard(keys, token, queue, None, 1000)) == 0
    assert await owner.do(histories.erase(keys, token, "/a", 1000)) == 0


async def test_a_store_that_has_space_again_goes_on(open_store: OpenStore, start_store: StartStore) -> None:
    owner = await full(open_store, start_store, prepare)
    with pytest.raises(StoreFull):
        await owner.publish("/a")
    await owner.store.reader.config_set("maxmemory", "0")
    assert len(await owner.publish("/a")) == 1
