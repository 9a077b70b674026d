"""Pages of dead letters: whatever the filter, and however small the portions, they hold what a plain look at all finds."""

import os
import random
from typing import Any

import pytest

from crewel.delivery.records import PendingDeadLetter
from crewel.storage import dead_letter_store
from crewel.storage.dead_letter_records import DeadLetterFilter
from crewel.storage.dead_letter_store import Page
from crewel.storage.store import Store
from tests.storage.dead_lettered import all_letters, assert_indexes_agree, letter, place, wanted_of
from tests.storage.owner import FACTS_MAX, Owner, started

CODES = ["user.update", "user.update.holdback", "user.updated", "user", "communication.x", "userx", "u"]
RUNS = 4 if os.environ.get("FAULTS") == "full" else 1
RECEIVERS = [
    "client/joe/1",
    "client/joe/2",
    "client/joey/1",
    "client/joe/-3",
    "client/jo/1",
    "client/anonymous/-1",
]
CHANNELS = ["/a", "/a/b", "/a/b/c", "/ab", "/a/b.c", "/a b/c", "/__sys__x", "/a/b!", "/z"]
CODE_FILTERS = ["", *CODES, "user.up", "none"]
RECEIVER_FILTERS = ["", *RECEIVERS, "client/joe", "client/jo", "client", "none"]
CHANNEL_FILTERS = ["", *CHANNELS, "/**", "/*", "/a/**", "/a/*", "/a/b/**", "/none/**", "no channel", "/a/"]


@pytest.fixture(params=["large", "small"])
def portions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are, and so small that every limit is met."""
    if request.param == "small":
        for name, size in {"_PORTION": 5, "_MOST_READ": 12, "_FEW": 2, "_VALUES": 2, "_IDS": 7}.items():
            monkeypatch.setattr(dead_letter_store, name, size)


async def owner_of_all(store: Store) -> Owner:
    owner = await started(store)
    for name in RECEIVERS:
        await owner.login(name)
    return owner


def drawn(draw: random.Random, number: int) -> PendingDeadLetter:
    # rare and frequent ones, so that indexes differ in size
    code = CODES[min(int(draw.expovariate(1)), len(CODES) - 1)]
    receiver = RECEIVERS[min(int(draw.expovariate(0.7)), len(RECEIVERS) - 1)]
    return letter(code, receiver, draw.choice(CHANNELS), message_id=str(number))


async def walk(owner: Owner, wanted: DeadLetterFilter, count: int, *, newest_first: bool = False) -> list[str]:
    """The dead ids of all pages. Each has at most `count` letters, and goes on where the one before ended."""
    found: list[str] = []
    after = ""
    while True:
        page = await dead_letter_store.page(owner.store, wanted, after, count, newest_first=newest_first)
        assert len(page.letters) <= count
        found += [each.dead_id for each in page.letters]
        if not page.next:
            return found
        assert not after or (place(page.next) < place(after)) is newest_first, "it does not go on"
        after = page.next


def a_filter(draw: random.Random, places: list[str]) -> DeadLetterFilter:
    since = draw.choice([0, 0, place(draw.choice(places))[0]]) if places else 0
    until = draw.choice(["", "", draw.choice(places)]) if places else ""
    texts = [draw.choice([draw.choice(each), ""]) for each in (CODE_FILTERS, RECEIVER_FILTERS, CHANNEL_FILTERS)]
    return DeadLetterFilter(*texts, since, until)


@pytest.mark.parametrize("seed", range(RUNS))
@pytest.mark.usefixtures("portions")
async def test_pages_hold_what_reading_all_dead_letters_finds(store: Store, seed: int) -> None:
    draw = random.Random(seed)
    owner = await owner_of_all(store)
    for turn in range(12):
        await change_some(owner, draw, turn)
        await assert_indexes_agree(owner)
        every = await all_letters(owner)
        places = [each.dead_id for each in every]
        for _ in range(8):
            wanted = a_filter(draw, places)
            expected = wanted_of(every, wanted)
            count = draw.choice([1, 3, 10, 400])
            assert await walk(owner, wanted, count) == expected, wanted
            assert await walk(owner, wanted, count, newest_first=True) == expected[::-1], wanted
            assert await dead_letter_store.count(store, wanted) == len(expected), wanted


async def change_some(owner: Owner, draw: random.Random, turn: int) -> None:
    """Letters are made, dropped over a bound, sent again and thrown away."""
    made = [drawn(draw, turn * 1000 + number) for number in range(draw.randrange(60))]
    await owner.dead_letter(*made, letters_max=draw.choice([100, 40, 1000]))
    every = await all_letters(owner)
    chosen = draw.sample(every, draw.randrange(len(every) // 3 + 1))
    for each in chosen[::2]:
        step = dead_letter_store.redrive(owner.keys, owner.token, each, FACTS_MAX, to_channel=draw.random() < 0.5)
        assert (await owner.do(step)).outcome is dead_letter_store.RedriveOutcome.MOVED
    discarded = [each.dead_id for each in chosen[1::2]]
    assert await owner.do(dead_letter_store.discard(owner.keys, owner.token, discarded, FACTS_MAX)) == len(discarded)


async def test_the_last_page_says_that_it_is(store: Store) -> None:
    owner = await owner_of_all(store)
    places = await owner.dead_letter(*(letter(message_id=str(number)) for number in range(6)))
    for wanted in (DeadLetterFilter(), DeadLetterFilter(code="user.x"), DeadLetterFilter(receiver="client/joe")):
        first = await dead_letter_store.page(store, wanted, count=3)
        assert ([each.dead_id for each in first.letters], first.next) == (places[:3], places[2])
        second = await dead_letter_store.page(store, wanted, first.next, 3)
        assert ([each.dead_id for each in second.letters], second.next) == (places[3:], "")


async def test_without_letters_there_is_an_empty_page(store: Store) -> None:
    await owner_of_all(store)
    for wanted in (
        DeadLetterFilter(),
        DeadLetterFilter(code="user"),
        DeadLetterFilter("user", "client/joe", "/a/**", 1, "1-0"),
    ):
        assert await dead_letter_store.page(store, wanted) == Page([], "")
        assert await dead_letter_store.count(store, wanted) == 0


@pytest.mark.parametrize("bad", ["x", "5", "5-", "-1", "5-1-1", "9" * 30 + "-0", "5-1\n", "(5-1"])
async def test_malformed_dead_id_is_named_in_the_error(store: Store, bad: str) -> None:
    for arguments in ((DeadLetterFilter(), bad), (DeadLetterFilter(until=bad),)):
        with pytest.raises(ValueError, match=r"(after|until): expected a dead id such as"):
            await dead_letter_store.page(store, *arguments)
    with pytest.raises(ValueError, match="until: expected"):
        await dead_letter_store.count(store, DeadLetterFilter(until=bad))


async def test_a_page_looks_at_a_bounded_number_of_letters(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two filters that both have many letters, and none in common but the last."""
    monkeypatch.setattr(dead_letter_store, "_PORTION", 10)
    monkeypatch.setattr(dead_letter_store, "_MOST_READ", 30)
    owner = await owner_of_all(store)
    joe, ann = RECEIVERS[:2]
    places = []
    for _ in range(50):
        places += await owner.dead_letter(letter("user.a", joe), letter("user.b", ann), letter("user.c", ann))
    places += await owner.dead_letter(letter("user.a", ann))
    page = await dead_letter_store.page(store, DeadLetterFilter("user.a", ann))
    assert page == Page([], places[29 * 3])
    assert await walk(owner, DeadLetterFilter("user.a", ann), 10) == [places[-1]]


async def test_a_page_of_large_letters_comes_back_short(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_store, "_PORTION", 4)
    monkeypatch.setattr(dead_letter_store, "_MOST_BYTES", 600)
    owner = await owner_of_all(store)
    places = await owner.dead_letter(*(letter(body=b"x" * 100) for _ in range(30)))
    page = await dead_letter_store.page(store, DeadLetterFilter(), count=20)
    assert ([each.dead_id for each in page.letters], page.next) == (places[:6], places[5])
    assert await walk(owner, DeadLetterFilter(), 20) == places


async def test_many_values_are_looked_through_as_letters(store: Store) -> None:
    owner = await owner_of_all(store)
    places = await owner.dead_letter(
        *(letter(channel=f"/many/c{number}") for number in range(120)), letter(channel="/one")
    )
    for text, expected in (("/many/**", places[:120]), ("/many/*", places[:120]), ("/many/c7", [places[7]])):
        assert await walk(owner, DeadLetterFilter(channel=text), 50) == expected
        assert await dead_letter_store.count(store, DeadLetterFilter(channel=text)) == len(expected)


async def test_letters_that_go_while_a_page_is_read_are_left_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = await owner_of_all(store)
    places = await owner.dead_letter(*(letter(channel="/x" if number % 3 else "/y") for number in range(30)))
    get = dead_letter_store.get

    async def after_a_discard(store: Store, dead_ids: Any) -> Any:
        await owner.do(dead_letter_store.discard(owner.keys, owner.token, dead_ids[:2], FACTS_MAX))
        return await get(store, dead_ids)

    monkeypatch.setattr(dead_letter_store, "get", after_a_discard)
    page = await dead_letter_store.page(store, DeadLetterFilter(channel="/y"))
    assert [each.dead_id for each in page.letters] == places[::3][2:]
    assert page.next == ""
